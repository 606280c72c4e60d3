"""Verbs that mean something in RabbitMQ which does not exist here; each says what does instead."""

from typing import NoReturn

from penstock.ctl.call import Call
from penstock.ctl.faults import SOFTWARE, UNAVAILABLE, Fault, Refused


def stop_app(call: Call) -> NoReturn:
    """There is no Erlang machine that could go on without the broker."""
    call.take(0)
    raise Fault(
        SOFTWARE,
        "Error: a Penstock has no application that stops by itself. 'penstockctl drain' closes it"
        " to clients, 'penstockctl stop' ends the process",
    )


def force_gc(call: Call) -> NoReturn:
    call.take(0)
    raise Fault(
        SOFTWARE,
        "Error: there are no Erlang processes to collect; memory is given back as messages leave",
    )


def hipe_compile(call: Call) -> str:
    call.take(1)
    return "This command is a no-op. HiPE is no longer supported by modern Erlang versions"


def no_erlang(call: Call) -> NoReturn:
    call.take(0, 1000)
    raise Fault(
        SOFTWARE,
        "Error: this needs an Erlang machine, which Penstock does not have",
    )


def rotate_logs(call: Call) -> NoReturn:
    call.take(0)
    raise Refused("This command does not rotate logs anymore [deprecated]", UNAVAILABLE)
