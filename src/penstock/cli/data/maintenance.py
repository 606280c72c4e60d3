"""``penstock drain``, ``revive`` and ``backup``: maintenance that cuts no client off.

In: the address of a management API.  Drained, a node lets no new client in, and says on
``/healthz/ready`` that it is not ready; who is connected goes on until they leave.  In a cluster
its masters go to synchronised mirrors, and it gets no others; masters that are alone stay.
``--wait`` waits for clients, and for masters that another node could have.
"""

import os
import sys
import time
from typing import Any, Final

import click

from penstock.cli.data.storage import size
from penstock.cli.failure import Failure
from penstock.cli.management import Management, command
from penstock.cli.options import option
from penstock.cli.tables import say

DRAIN: Final = "/api/penstock/drain"
POLL_S: Final = 0.2
SAY_EVERY_S: Final = 1.0


@command(
    "drain --wait --timeout 60",
    option("--wait", "Until all have left that can.", is_flag=True),
    option("--timeout timeout_s", "Seconds to wait.", default=300),
)
def drain(wait: bool, timeout_s: int, management: Management, output: str) -> None:
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
    _tell(state, output)
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
def revive(management: Management, output: str) -> None:
    """Let clients in again, after `penstock drain`."""
    _tell(management.do("revive"), output)


@command(
    "backup /mnt/backup/n1",
    click.argument("directory", type=click.Path(path_type=str)),
    short="Copy the data directory of a node that runs.",
)
def backup(directory: str, management: Management, output: str) -> None:
    """Copy the data directory of a node, while it runs, into a new directory on its machine.

    The copy is as a kill at one moment leaves the data directory: all that was confirmed before is
    in it. To restore it, start a broker on the copy, or put it in the place of the data directory.
    `penstock audit` checks it. Clients are served meanwhile. In a cluster etcd has the list of
    queues: save its data after those of the nodes (`etcdctl snapshot save`).
    """
    done = management.post("/api/penstock/backup", {"directory": os.path.abspath(directory)})
    say(done, output, f"{size(done['bytes'])} are in {directory}")


def _tell(state: dict[str, Any], output: str) -> None:
    if output == "json":
        import json

        click.echo(json.dumps(state))
        return
    what = "no new clients are let in" if state["draining"] else "clients are let in"
    to_go = state.get("masters_to_go", 0) if state["draining"] else 0
    masters = f", {to_go} masters are to go" if to_go else ""
    click.echo(f"{what}; {state['connections']} connected{masters}")
