"""Clusters, and the mirrors of their queues.

A node joins a cluster by its settings, so the verbs that make one of a running node are refused
(``refused``).  What follows from ``sync_queue`` and
``rebalance`` comes after their answer.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import UNAVAILABLE, Refused
from penstock.ctl.output import Facts, boxes, erlang
from penstock.ctl.refused import MUST_STOP, refuse

NOT_A_NODE = "{:not_a_cluster_node, 'The node selected is not in the cluster.'}"
MUST_BE_STOPPED: Final = (
    "node {node} must be stopped with 'penstockctl -n {node} stop' before it can be removed"
)
CLUSTER: Final = "/api/penstock/cluster"
QUORUM: Final = "quorum"
KINDS: Final = ("all", "classic", QUORUM)
COUNTS: Final = ("Node name", "Number of quorum queues", "Number of replicated classic queues")
ALONE: Final = (
    "Target node seems to be the only one in a single node cluster, the command does not apply"
)
MIRROR_TIMEOUT_S: Final = 120
LOOK_EVERY_S: Final = 0.2


def forget_cluster_node(call: Call) -> None:
    (node,) = call.take(1)
    if call.is_set("offline"):
        refuse(call, MUST_STOP)
    call.say(f"Removing node {node} from the cluster")
    answer = call.node.ask("DELETE", path_of("penstock", "cluster", "nodes", node))
    if answer.status == 404:
        raise Refused(NOT_A_NODE, UNAVAILABLE)
    if answer.status == 400:
        raise Refused(MUST_BE_STOPPED.format(node=node), UNAVAILABLE)
    call.node.must(answer)


def nodes_of(call: Call) -> list[str]:
    return [str(one["name"]) for one in call.node.get(CLUSTER)["nodes"]] or [call.node.name]


def discover_peers(call: Call) -> str:
    call.say("Discovering peers nodes ...")
    return "[" + ", ".join(f":{name}" for name in nodes_of(call)) + "]"


# -- mirrored queues ---------------------------------------------------------------------------


def _found(call: Call, queue: str) -> Mapping[str, Any]:
    columns = "?columns=name,state,slave_nodes"
    found = call.node.found(path_of("queues", call.vhost, queue) + columns)
    if found is None:
        raise Refused("not_found", UNAVAILABLE)
    return dict(found)


def sync_queue(call: Call) -> None:
    (queue,) = call.take(1)
    call.say(f"Synchronising queue '{queue}' in vhost '{call.vhost}' ...")
    found = _found(call, queue)
    if "slave_nodes" not in found:
        raise Refused("not_mirrored", UNAVAILABLE)
    if found.get("state") == "down":
        raise Refused("the queue has no master: it is down", UNAVAILABLE)
    call.do("queue_action", queue=queue, action="sync")


def cancel_sync_queue(call: Call) -> str | None:
    (queue,) = call.take(1)
    call.say(f"Stopping synchronising queue '{queue}' in vhost '{call.vhost}' ...")
    if _found(call, queue).get("state") != "syncing":
        return "not_syncing"
    call.do("queue_action", queue=queue, action="cancel_sync")
    return None


def rebalance(call: Call) -> object:
    """The table is of masters before those that it began to move are there."""
    (kind,) = call.take(1)
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise Refused(f"type {kind} is not supported. Try one of {known}.", UNAVAILABLE)
    call.say(f"Re-balancing leaders of {kind} queues...")
    rows = _rebalanced(call, kind)
    value = [[[name, cell] for name, cell in zip(COUNTS, row, strict=True)] for row in rows]
    if call.formatter == "json":
        return Facts("", {"node": call.node.name, "result": "ok", "value": value})
    if not rows:
        return boxes(["Output"], [["[]"]])
    return boxes(COUNTS, [[str(cell) for cell in row] for row in rows])


def _rebalanced(call: Call, kind: str) -> list[tuple[str, int, int]]:
    """How many masters each node that runs is to have, where there is one to be moved or left."""
    asked = {"type": kind} | {
        f"{one}_pattern": call.text(f"{one}-pattern", ".*") for one in ("vhost", "queue")
    }
    moves = call.do("rebalance", **asked).json()
    nodes = [node for node in call.node.get(CLUSTER)["nodes"] if node["running"]]
    masters = {node["name"]: int(node["masters"]) for node in nodes}
    if kind == QUORUM:
        leaders = [one["node"] for one in call.node.get("/api/queues") if one["type"] == QUORUM]
        masters = {node["name"]: leaders.count(node["name"]) for node in nodes}
    for move in moves:
        masters[move["from"]] = masters.get(move["from"], 0) - 1
        masters[move["to"]] = masters.get(move["to"], 0) + 1
    found = [(node, count) for node, count in masters.items() if count > 0]
    return [(node, count, 0) if kind == QUORUM else (node, 0, count) for node, count in found]


def post_upgrade(call: Call) -> str:
    call.say("Executing post upgrade tasks...")
    call.say("Rebalancing queue masters...")
    lines = [
        erlang([(name, cell) for name, cell in zip(COUNTS, row, strict=True)])
        for row in _rebalanced(call, "all")
    ]
    return "\n".join(lines) or "\n"


def await_online_synchronized_mirror(call: Call) -> str | None:
    says = "a synchronised mirror be online for all classic mirrored queues"
    late = "no synchronised mirror came online for at least some classic mirrored queues"
    return _await(call, "node-is-mirror-sync-critical", says, late)


def await_online_quorum_plus_one(call: Call) -> str | None:
    says = "a quorum + 1 of nodes to be online for all quorum queues"
    late = "no quorum + 1 of nodes came online for at least some quorum queues"
    return _await(call, "node-is-quorum-critical", says, late)


def _await(call: Call, check: str, says: str, late: str) -> str | None:
    timeout_s = call.number("timeout", MIRROR_TIMEOUT_S)
    call.say(f"Will wait for {says} for {timeout_s} seconds...")
    until = time.monotonic() + timeout_s
    path = path_of("health", "checks", check)
    while (answer := call.node.ask("GET", path)).status == 503:
        if time.monotonic() >= until:
            raise Refused(f"time is up, {late}", UNAVAILABLE)
        time.sleep(LOOK_EVERY_S)
    return ALONE if "reason" in call.node.must(answer).json() else None
