"""Clusters and mirrors: a Penstock is a single node, and answers as a single RabbitMQ does.

Nothing is pretended: what would need a second node is refused with the error that a RabbitMQ
gives in the same place.
"""

from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, UNAVAILABLE, Invalid, NotAsThingsAre, Refused
from penstock.ctl.queues import must_be_there

MUST_STOP_APP = (
    "this command requires the 'rabbit' app to be stopped on the target node."
    " Stop it with 'penstockctl stop_app'."
)
MUST_STOP = "this command requires the target node to be stopped."


def _needs_stopped_app(call: Call) -> None:
    call.node.get("/api/whoami")  # a node that does not answer is another error
    raise NotAsThingsAre(MUST_STOP_APP)


def join_cluster(call: Call) -> None:
    call.take(1)
    _needs_stopped_app(call)


def update_cluster_nodes(call: Call) -> None:
    call.take(1)
    _needs_stopped_app(call)


def change_cluster_node_type(call: Call) -> None:
    (kind,) = call.take(1)
    if kind not in ("disc", "disk", "ram"):
        raise Invalid("Bad argument: The node type must be either disc or ram.", DATA)
    _needs_stopped_app(call)


def reset(call: Call) -> None:
    call.take(0)
    _needs_stopped_app(call)


def rename_cluster_node(call: Call) -> None:
    call.take(2, 1000)
    call.node.get("/api/whoami")
    raise NotAsThingsAre(MUST_STOP)


def forget_cluster_node(call: Call) -> None:
    (node,) = call.take(1)
    if call.is_set("offline"):
        call.node.get("/api/whoami")
        raise NotAsThingsAre(MUST_STOP)
    call.say(f"Removing node {node} from the cluster")
    if node == call.node.name:
        raise Refused("{:cannot_remove_online_node, '" + node + "'}", UNAVAILABLE)
    raise Refused("{:not_a_cluster_node, 'The node selected is not in the cluster.'}", UNAVAILABLE)


def sync_queue(call: Call) -> None:
    (queue,) = call.take(1)
    call.say(f"Synchronising queue '{queue}' in vhost '{call.vhost}' ...")
    must_be_there(call, queue)
    raise Refused("not_mirrored", UNAVAILABLE)


def cancel_sync_queue(call: Call) -> str:
    (queue,) = call.take(1)
    call.say(f"Stopping synchronising queue '{queue}' in vhost '{call.vhost}' ...")
    must_be_there(call, queue)
    return "not_syncing"
