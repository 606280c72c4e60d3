"""Does ``penstock cluster status`` tell the truth?  What it stands on, against what was done.

    truth = Truth(names of all nodes, those that are gone, {queue: copies it should have})
    why_untrue(asked(ask), truth)          "" = it tells the truth

``asked`` gets what the command gets; ``text`` is what the command then prints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.cli.admin.cluster import MIRRORS, PATH, cluster_text


class Truth(NamedTuple):
    """``gone``: nodes that are dead or cut off; ``unheard``: that live, and the asked one cannot
    reach; ``copies``: of mirrored queues, all of them in step."""

    nodes: Sequence[str]
    gone: Collection[str]
    unheard: Collection[str]
    copies: Mapping[str, int]


def asked(ask: Callable[[str], Any]) -> dict[str, Any]:
    """As the command does it; its rows of queues are all of them, and ``text`` what it prints."""
    found: dict[str, Any] = ask(PATH)
    rows = ask(MIRRORS)["items"] if found["mirrored_queues"] else []
    found["queues"] = [row for row in rows if row["why"]]
    return {**found, "text": cluster_text(found), "queues": rows}


def why_untrue(found: Mapping[str, Any], truth: Truth) -> str:
    said = {node["name"]: node for node in found["nodes"]}
    if sorted(said) != sorted(truth.nodes):
        return f"it knows {sorted(said)}"
    for name, node in said.items():
        why = _why_node_untrue(name, node, found["this_node"], truth)
        if why:
            return f"{name}: {why}"
    if {row["name"] for row in found["queues"]} != set(truth.copies):
        return f"mirrored are {[row['name'] for row in found['queues']]}"
    for row in found["queues"]:
        why = _why_queue_untrue(row, truth)
        if why:
            return f"{row['name']}: {why}"
    masters = [row["master"] for row in found["queues"]]
    for name, node in said.items():
        if node["masters"] != masters.count(name):
            return f"{name}: {node['masters']} masters, and it has {masters.count(name)}"
    return _why_text_untrue(found, truth)


def _why_node_untrue(name: str, node: Mapping[str, Any], this: str, truth: Truth) -> str:
    if node["running"] is not (name not in truth.gone):
        return f"running: {node['running']}"
    if name in truth.gone:
        return "" if node["down_since_ms"] else "it does not say since when it is down"
    if name != this and node["link"]["connected"] is not (name not in truth.unheard):
        return f"link: {node['link']}"
    return ""


def _why_queue_untrue(row: Mapping[str, Any], truth: Truth) -> str:
    if not row["master"] or row["master"] in truth.gone:
        return f"its master is {row['master']}"
    there = [copy["node"] for copy in row["copies"] if copy["synchronised"]]
    if len(there) != truth.copies[row["name"]] or len(there) != len(row["copies"]):
        return f"copies {row['copies']}"
    lost = set(there) & set(truth.gone)
    if lost:
        return f"copies at {lost}"
    if set(row["slave_nodes"]) != set(there) - {row["master"]}:
        return f"mirrors at {row['slave_nodes']}"
    wanted = row["master"] not in truth.unheard
    return "" if (row["why"] == "") is wanted else f"why: {row['why']!r}"


def _why_text_untrue(found: Mapping[str, Any], truth: Truth) -> str:
    """The lines of nodes, as people read them."""
    for line in found["text"].splitlines():
        name, _, rest = line.partition(" ")
        if name in truth.nodes and rest.split()[0] != ("down" if name in truth.gone else "running"):
            return f"it prints {line!r}"
    return ""
