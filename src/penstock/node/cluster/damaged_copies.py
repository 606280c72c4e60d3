"""A start that meets a damaged copy of a mirrored queue gives it up, if another node is its master.

Only the coordinator knows whether a copy may be of use; so the node joins for a moment.  While the
queue has a master elsewhere the copy of a node that was away is of none: it is compared with the
master's in any case.  It is deleted in the definitions, as one that is not wanted any more, and the
next start goes on as from then on.  A queue without a master keeps its copy: it may be the last.
"""

from penstock.broker.topology.mirror_copies import PREFIX, is_copy
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.metadata import path
from penstock.cluster.agreement.mirror_keys import VIEWS
from penstock.cluster.agreement.queue_views import view_from_json
from penstock.core.errors import CopyGivenUp, DamagedQueue
from penstock.node.cluster.member import ClusterMember, cluster_access
from penstock.settings.settings import Settings
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import Topology, owners_of_ids
from penstock.tls.options import tls_between_nodes


def give_up_copy(
    damage: DamagedQueue,
    topology: Topology,
    definitions: Definitions,
    settings: Settings,
    node_name: str,
) -> None:
    """``node_name``: of this node, which does not run yet.

    Raises CopyGivenUp; returns where the damaged queue is no copy, or one that is kept.
    """
    record = owners_of_ids(topology.queues).get(damage.queue_id)
    if record is None or not is_copy(record.name):
        return
    name = record.name.removeprefix(PREFIX)
    access = cluster_access(settings, node_name, lambda: None, tls_between_nodes(settings))
    master = _master_node(access.join(), path(VIEWS, record.vhost, name))
    if master in ("", node_name):
        return
    definitions.delete_queue(record.vhost, record.name)
    definitions.commit()
    raise CopyGivenUp(
        f"the copy of queue '{name}' in vhost '{record.vhost}' is damaged and was given up: the"
        f" next start fetches it from '{master}'. {damage}"
    )


def _master_node(member: ClusterMember, key: str) -> str:
    """By the view under that key; "" = the queue has no master.  The member leaves."""
    try:
        for entry in member.coordinator.snapshot():
            if entry.key == key:
                return node_of(view_from_json(entry.value).master)
        return ""
    finally:
        member.leave()
        for listener in member.listeners:
            listener.close()
