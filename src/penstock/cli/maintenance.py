"""``penstock drain`` and ``penstock revive``: maintenance without cutting anybody off.

In: the address of a management API.  Drained, a node lets no new client in, and says on
``/healthz/ready`` that it is not ready; who is connected goes on until they leave.  In a cluster
its masters go to synchronised mirrors, and it gets no others; masters that are alone stay.
"""

import sys
import time
from typing import Final

import click

from penstock.cli.failure import Failure
from penstock.cli.management import Management, connecting

DRAIN: Final = "/api/penstock/drain"
REVIVE: Final = "/api/penstock/revive"
POLL_S: Final = 0.2
SAY_EVERY_S: Final = 1.0


@click.command(
    short_help="Let no new clients in.", epilog="\b\nExample:\n  penstock drain --wait --timeout 60"
)
@click.option("--wait", is_flag=True, help="Until the last client has left.")
@click.option("--timeout", "timeout_s", default=300, show_default=True, help="Seconds to wait.")
@connecting
def drain(wait: bool, timeout_s: int, management: Management, output: str) -> None:
    """Let no new clients in; those that are connected go on.

    In a cluster the masters of mirrored queues go to other nodes, where they can.

    `penstock revive` takes it back. With --wait the exit code is 1 when clients are left.
    """
    state = management.post(DRAIN, {})
    until_s = time.monotonic() + timeout_s
    said_s = 0.0
    while wait and state["connections"] and time.monotonic() < until_s:
        if time.monotonic() - said_s >= SAY_EVERY_S:
            said_s = time.monotonic()
            click.echo(f"waiting for {state['connections']} clients", err=True)
            sys.stderr.flush()
        time.sleep(POLL_S)
        state = management.get(DRAIN)
    _tell(state, output)
    if wait and state["connections"]:
        raise Failure(
            f"{state['connections']} clients are still connected after {timeout_s} s",
            "close them (`penstock close-connection`) or wait longer",
        )


@click.command(short_help="Let clients in again.", epilog="\b\nExample:\n  penstock revive")
@connecting
def revive(management: Management, output: str) -> None:
    """Let clients in again, after `penstock drain`."""
    _tell(management.post(REVIVE, {}), output)


def _tell(state: dict[str, object], output: str) -> None:
    if output == "json":
        import json

        click.echo(json.dumps(state))
        return
    what = "no new clients are let in" if state["draining"] else "clients are let in"
    click.echo(f"{what}; {state['connections']} connected")
