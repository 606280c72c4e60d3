"""What operators do to a node that runs, through its management API: drain it, copy its data, set
limits, close a connection, trace messages, read the audit trail.

Arguments, output and words of refusal of the limits and of tracing are those of ``rabbitmqctl``,
and its names, with ``_``, are taken, too, so that runbooks go on to work; the exit codes are ours.
A restart of the broker ends both, as there.

Drained, a node lets no new client in, and says on ``/healthz/ready`` that it is not ready; who is
connected goes on until they leave.  In a cluster its masters go to synchronised mirrors, and it
gets no others; masters that are alone stay.  ``--wait`` waits for clients, and for masters that
another node could have.

A client whose connection is closed gets connection.close with 320 CONNECTION_FORCED.  Most clients
connect again at once; to keep one out, change its user's password or permissions.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import click

from penstock.cli.data.storage import size
from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command, example
from penstock.cli.options import option
from penstock.cli.tables import table
from penstock.client.limits import BadLimit, Limit, disk_limit, memory_limit
from penstock.client.management import path_of

DRAIN: Final = "/api/penstock/drain"
POLL_S: Final = 0.2
SAY_EVERY_S: Final = 1.0
TRACED: Final = option("-p --vhost", "The virtual host whose messages.", default="/")
TRAIL: Final = "/api/penstock/audit"


@command(
    "drain --wait --timeout 60",
    option("--wait", "Until all have left that can.", is_flag=True),
    option("--timeout timeout_s", "Seconds to wait.", default=300),
)
def drain(wait: bool, timeout_s: int, management: Management) -> None:
    """Let no new clients in; those that are connected go on.

    In a cluster the masters of mirrored queues go to other nodes, where they can.

    `penstock revive` takes it back. With --wait it ends when the last client has left, and the
    last master that another node has or is fetching a copy of; the exit code is 1 when some are
    left.
    """
    state = management.do("drain")
    until_s = time.monotonic() + timeout_s
    said_s = 0.0
    while wait and _left(state) and time.monotonic() < until_s:
        if time.monotonic() - said_s >= SAY_EVERY_S:
            said_s = time.monotonic()
            click.echo(f"waiting for {_left(state)}", err=True)
            sys.stderr.flush()
        time.sleep(POLL_S)
        state = management.get(DRAIN)
    _tell(state, management)
    if wait and _left(state):
        raise Failure(
            f"still there after {timeout_s} s: {_left(state)}",
            "close clients (`penstock close-connection`), see why masters stay"
            " (`penstock cluster status`), or wait longer",
        )


def _left(state: dict[str, Any]) -> str:
    """Who and what is waited for; "" = nothing."""
    left = []
    if state["connections"]:
        left.append(f"{state['connections']} clients")
    to_go = state.get("masters_to_go", 0)
    if to_go:
        first = ", ".join(state["first_to_go"])
        more = ", ..." if to_go > len(state["first_to_go"]) else ""
        left.append(f"{to_go} masters ({first}{more})")
    return " and ".join(left)


@command("revive")
def revive(management: Management) -> None:
    """Let clients in again, after `penstock drain`."""
    _tell(management.do("revive"), management)


@command(
    "backup /mnt/backup/n1",
    click.argument("directory", type=click.Path(path_type=str)),
    short="Copy the data directory of a node that runs.",
)
def backup(directory: str, management: Management) -> None:
    """Copy the data directory of a node, while it runs, into a new directory on its machine.

    The copy is as a kill at one moment leaves the data directory: all that was confirmed before is
    in it. To restore it, start a broker on the copy, or put it in the place of the data directory.
    `penstock audit` checks it. Clients are served meanwhile. In a cluster etcd has the list of
    queues: save its data after those of the nodes (`etcdctl snapshot save`).
    """
    done = management.post("/api/penstock/backup", {"directory": os.path.abspath(directory)})
    management.say(done, f"{size(done['bytes'])} are in {directory}")


def _tell(state: dict[str, Any], management: Management) -> None:
    if management.as_json:
        click.echo(json.dumps(state))
        return
    what = "no new clients are let in" if state["draining"] else "clients are let in"
    to_go = state.get("masters_to_go", 0) if state["draining"] else 0
    masters = f", {to_go} masters are to go" if to_go else ""
    click.echo(f"{what}; {state['connections']} connected{masters}")


@command(
    "close-connection '127.0.0.1:41000 -> 127.0.0.1:5672' moving",
    NAME,
    click.argument("reason", required=False),
)
def close_connection(name: str, reason: str | None, management: Management) -> None:
    """Close a client's connection.

    NAME: as `penstock connections` shows it. The broker sends an AMQP client REASON.
    """
    headers = {} if reason is None else {"X-Reason": " ".join(reason.split())}
    management.delete(path_of("connections", name), headers)
    management.say({"connection": name, "closed": True})


@command("trace-on -p shop", TRACED)
def trace_on(vhost: str, management: Management) -> None:
    """Copy all messages to amq.rabbitmq.trace.

    Until trace-off or the end of the broker.  Bind a queue to that exchange with `publish.#`,
    `deliver.#`, `publish.<exchange>` or `deliver.<queue>`: each message that is published or
    delivered comes there too, with headers that say from whom and to whom.
    """
    _switch(vhost, management, "Starting", "enabled")


@command("trace-off -p shop", TRACED)
def trace_off(vhost: str, management: Management) -> None:
    """End what trace-on began."""
    _switch(vhost, management, "Stopping", "disabled")


def _switch(vhost: str, management: Management, says: str, done: str) -> None:
    if not management.as_json:
        click.echo(f'{says} tracing for vhost "{vhost}" ...')
    management.get(path_of("vhosts", vhost))  # else a slip in the name would make a new one
    on = done == "enabled"
    management.do("add_vhost", vhost=vhost, tracing=on)
    management.say({"vhost": vhost, "tracing": on}, f"Trace {done} for vhost {vhost}")


@command(
    example("set-vm-memory-high-watermark 0.4", "set-vm-memory-high-watermark absolute 2GB"),
    click.argument("limit", nargs=-1, metavar="FRACTION | absolute LIMIT"),
)
def set_vm_memory_high_watermark(limit: tuple[str, ...], management: Management) -> None:
    """Set how much memory a broker may use, until it is restarted.

    A fraction of the machine's memory, or so many bytes, with a unit or without. Above it
    publishers are blocked; 0 blocks them all.
    """
    _set("memory threshold", memory_limit, limit, management)


@command(
    example("set-disk-free-limit 2GB", "set-disk-free-limit mem_relative 1.0"),
    click.argument("limit", nargs=-1, metavar="LIMIT | mem_relative FRACTION"),
)
def set_disk_free_limit(limit: tuple[str, ...], management: Management) -> None:
    """Set how much of a broker's disk is to stay free, until it is restarted.

    Bytes, with a unit or without, or a multiple of the machine's memory. With less free disk
    publishers are blocked.
    """
    _set("disk free limit", disk_limit, limit, management)


def _set(
    what: str,
    limit_of: Callable[[Sequence[str]], Limit],
    words: tuple[str, ...],
    management: Management,
) -> None:
    try:
        limit = limit_of(words)
    except BadLimit as error:
        raise click.UsageError(str(error)) from error
    verb = "set_disk_free_limit" if limit_of is disk_limit else "set_vm_memory_high_watermark"
    answer = management.do(verb, **{limit.kind: limit.text})
    if not isinstance(answer, dict) or "node" not in answer:
        raise Failure(f"{management.url} does not say that it did", "is that a Penstock?")
    if management.as_json:
        click.echo(json.dumps(answer))
    else:
        click.echo(f"Setting {what} on {answer['node']} to {limit.to} ...")


@command(
    "trail --by ann --action queue_deleted",
    option("--by", "Records of this user.", default=""),
    option("--address", "From this address.", default=""),
    option("--protocol", "amqp091, nsq, ranges or http.", default=""),
    option("--action", "As queue_declared, login_refused, request_answered.", default=""),
    option("--answer", "ok, refused, or a code.", default=""),
    option("--object", "A text in the object, as the name of a queue.", default=""),
    option("--count", "Of the newest records.", default=100),
)
def trail(count: int, management: Management, **wanted: str) -> None:
    """Show the newest records of a node's audit trail, the newest first.

    For administrators. With -o json the answer has one record a line.
    """
    given = {"user" if name == "by" else name: value for name, value in wanted.items() if value}
    found: list[dict[str, Any]] = []
    before: str | None = ""
    while before is not None and len(found) < count:
        page = {"limit": min(count - len(found), 1000)} | ({"before": before} if before else {})
        answer = management.get(f"{TRAIL}?{urlencode(given | page)}")
        found += answer["records"]
        before = answer["next"]
    if management.as_json:
        for record in found:
            click.echo(json.dumps(record))
        return
    names = ("at", "user", "protocol", "address", "action", "object", "answer")
    click.echo(table(names, [tuple(_shown(one[name]) for name in names) for one in found]))


def _shown(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{name}={text}" for name, text in value.items())
