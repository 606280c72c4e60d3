"""``penstock cluster``: the nodes of a cluster, and how they reach each other.

An outside user of the management API; it needs the tag ``monitoring``.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock.cli.failure import Failure
from penstock.cli.management import Management, connecting
from penstock.cli.tables import table

PATH: Final = "/api/penstock/cluster"


@click.group(epilog="\b\nExample:\n  penstock cluster status")
def cluster() -> None:
    """Look at the nodes of a cluster."""


@cluster.command(
    short_help="Show nodes and links.", epilog="\b\nExample:\n  penstock cluster status -o json"
)
@connecting
def status(management: Management, output: str) -> None:
    """Show the nodes of the cluster, as the node that is asked sees them."""
    found = management.get(PATH, absent=(404,))
    if found is None:
        raise Failure(f"{management.url} says nothing of clusters", "ask a node of Penstock")
    click.echo(json.dumps(found, indent=2) if output == "json" else cluster_text(found))


def cluster_text(found: Mapping[str, Any]) -> str:
    if not found["nodes"]:
        return f"{found['name']}: a node that stands alone"
    lines = [
        f"cluster      {found['name']}",
        f"coordinator  etcd at {found['coordinator']}",
        f"decides      {found['why_not'] or 'yes'}",
        "",
        table(
            ("node", "state", "since", "link", "waiting bytes", "last error of the link"),
            [_node_row(node, found["this_node"]) for node in found["nodes"]],
        ),
    ]
    return "\n".join(lines)


def _node_row(node: Mapping[str, Any], asked: str) -> list[object]:
    since = node["started_ms"] if node["running"] else node["down_since_ms"]
    state = "running" if node["running"] else "down"
    if node["name"] == asked:
        return [node["name"], state, _when(since), "asked", 0, ""]
    link = node.get("link")
    if link is None:
        return [node["name"], state, _when(since), "", 0, ""]
    way = "connected" if link["connected"] else "not connected"
    error = "" if link["connected"] else link["last_error"]
    return [node["name"], state, _when(since), way, link["waiting_bytes"], error]


def _when(wall_ms: int) -> str:
    if wall_ms == 0:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(wall_ms / 1000))
