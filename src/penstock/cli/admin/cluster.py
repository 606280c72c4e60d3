"""``penstock cluster``: its nodes, how they reach each other, and what each has of mirrored queues.

An outside user of the management API; it needs the tag ``monitoring``.  Only ``refound`` works on
a data directory.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock.cli.data.repair import refound
from penstock.cli.data.storage import many
from penstock.cli.management import NAME, Management, command
from penstock.cli.options import all_of, option
from penstock.cli.queue.mirrors import progress_text
from penstock.cli.tables import shown, table, table_of

PATH: Final = "/api/penstock/cluster"
QUEUES_SHOWN: Final = 50
MIRRORS: Final = f"/api/penstock/mirrors?page=1&page_size={QUEUES_SHOWN}&sort=why&sort_reverse=true"
"""Those first of which something is not as it should be."""


@click.group(epilog="\b\nExample:\n  penstock cluster status")
def cluster() -> None:
    """Inspect a cluster, spread masters, refound it."""


cluster.add_command(refound)


@command("cluster status -o json", of=cluster, short="Show nodes and links.")
def status(management: Management) -> None:
    """Show the nodes of the cluster and its mirrored queues, as the node that is asked sees them.

    Of the queues those are listed that have no master, or a mirror that lacks messages.
    """
    absent = f"{management.url} says nothing of clusters"
    found = management.must_find(PATH, absent, "ask a node of Penstock")
    rows = management.get(MIRRORS)["items"] if found["mirrored_queues"] else []
    found["queues"] = [row for row in rows if row["why"]]
    management.say(found, cluster_text)


PATTERNS: Final = all_of(
    option("--vhost-pattern", "Virtual hosts.", default=".*"),
    option("--queue-pattern", "Queues.", default=".*"),
)


@command(
    "cluster rebalance --queue-pattern '^orders'",
    PATTERNS,
    of=cluster,
    short="Spread the masters of mirrored queues.",
)
def rebalance(management: Management, **patterns: str) -> None:
    """Move masters from nodes with many to synchronised mirrors on nodes with few."""
    moves = management.do("rebalance", **patterns)
    management.say(
        moves, table_of(moves, "vhost queue=name from to") if moves else "nothing to move"
    )


@command(
    "cluster grow penstock@n4",
    NAME,
    PATTERNS,
    option("--even", "Only those with an even number of copies.", is_flag=True),
    of=cluster,
    short="Give a node copies of quorum queues.",
)
def grow(name: str, even: bool, management: Management, **patterns: str) -> None:
    """Give the node NAME a copy of each quorum queue; it votes when it has all messages."""
    management.do("grow", node=name, strategy="even" if even else "all", **patterns)
    management.say({"node": name})


@command("cluster shrink penstock@n4", NAME, of=cluster, short="Take a node's copies away.")
def shrink(name: str, management: Management) -> None:
    """Take all copies of quorum queues from the node NAME, but those that lead: drain it first."""
    management.do("shrink", node=name)
    management.say({"node": name})


def cluster_text(found: Mapping[str, Any]) -> str:
    if not found["nodes"]:
        return f"{found['name']}: a node that stands alone"
    lines = [
        f"cluster      {found['name']}",
        f"coordinator  etcd at {found['coordinator']}",
        f"decides      {found['why_not'] or 'yes'}",
        f"mirrored     {_mirrored_text(found)}",
        "",
        table(
            (
                *("node", "state", "since", "masters", "mirrors", "unsynchronised", "link"),
                *("waiting bytes", "last error of the link"),
            ),
            [_node_row(node, found["this_node"]) for node in found["nodes"]],
        ),
    ]
    if found["queues"]:
        rows = [_queue_row(queue) for queue in found["queues"]]
        lines += ["", table(("vhost", "queue", "state", "master", "synchronised", "why"), rows)]
    if len(found["queues"]) == QUEUES_SHOWN:
        lines.append(f"and perhaps others: {QUEUES_SHOWN} are shown")
    return "\n".join(lines)


def _mirrored_text(found: Mapping[str, Any]) -> str:
    text = many(found["mirrored_queues"], "queue")
    return f"{text}, {found['mirrored_queues_down']} down" if found["mirrored_queues"] else text


def _queue_row(queue: Mapping[str, Any]) -> list[object]:
    copies = queue["copies"]
    synchronised = sum(one["synchronised"] for one in copies)
    how_many = f"{synchronised} of {len(copies)}" if copies else ""
    why = "; ".join(filter(None, (shown(queue["why"]), progress_text(queue))))
    head = [queue["vhost"], queue["name"], queue["state"], queue["master"] or ""]
    return [*head, how_many, why]


def _node_row(node: Mapping[str, Any], asked: str) -> list[object]:
    since = node["started_ms"] if node["running"] else node["down_since_ms"]
    state = "running" if node["running"] else "down"
    if node["drained"]:
        state += ", drained"
    counts = [node["masters"], node["mirrors"], node["unsynchronised_mirrors"]]
    head = [node["name"], state, _when(since), *counts]
    if node["name"] == asked:
        return [*head, "asked", 0, ""]
    link = node.get("link")
    if link is None:
        return [*head, "", 0, ""]
    way = "connected" if link["connected"] else "not connected"
    error = "" if link["connected"] else link["last_error"]
    return [*head, way, link["waiting_bytes"], error]


def _when(wall_ms: int) -> str:
    if wall_ms == 0:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(wall_ms / 1000))
