"""A start that meets a damaged copy of a mirrored queue gives it up, if another node is its master.

Also the copy of a former master, which is a queue as long as its node has not joined.  Only the
coordinator knows whether a copy may be of use; so the node joins for a moment.  While the
queue has a master elsewhere the copy of a node that was away is of none: it is compared with the
master's in any case.  It is deleted in the definitions, as one that is not wanted any more, and the
next start goes on as from then on.  A queue without a master keeps its copy: it may be the last.
So does a quorum queue whose master does not live: there may be no other to elect.
"""

from penstock.broker.topology.mirror_copies import PREFIX
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.metadata import path
from penstock.cluster.agreement.mirror_keys import VIEWS
from penstock.cluster.agreement.queue_views import view_from_json
from penstock.core.errors import CopyGivenUp, DamagedQueue, PenstockError
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
    if record is None:
        return
    name = record.name.removeprefix(PREFIX)
    access = cluster_access(settings, node_name, lambda: None, tls_between_nodes(settings))
    try:
        master = _master_node(access.join(), path(VIEWS, record.vhost, name))
    except PenstockError:
        return  # etcd does not answer: the start ends and names the damage
    if master in ("", node_name):
        return
    definitions.delete_queue(record.vhost, record.name)
    definitions.commit()
    raise CopyGivenUp(
        f"the copy of queue '{name}' in vhost '{record.vhost}' is damaged and was given up: the"
        f" next start fetches it from '{master}'. {damage}"
    )


def _master_node(member: ClusterMember, key: str) -> str:
    """By the view under that key; "" = there is none to fetch from.  The member leaves."""
    try:
        for entry in member.coordinator.snapshot():
            if entry.key == key:
                view = view_from_json(entry.value)
                lives = view.reign is None or _lives(member, view.master)
                return node_of(view.master) if lives else ""
        return ""
    finally:
        member.leave()
        for listener in member.listeners:
            listener.close()


def _lives(member: ClusterMember, master: str) -> bool:
    known = member.membership.nodes.get(node_of(master))
    return known is not None and known.living is not None and known.living.member == master
