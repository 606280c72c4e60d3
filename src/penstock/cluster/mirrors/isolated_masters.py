"""``IsolatedMasters``: masters of this node that cannot reach their mirrors, and their clients.

A master waits for its synchronised mirrors until the coordinator has taken one out of the view.  A
node that the coordinator does not hear (its lease is over) cannot bring that about: with a
mirror that it does not reach either, nothing is confirmed here until the cut is healed, and most
likely there is another master on the other side.  So clients of the queue here are sent away, as a
node in a minority does it for all its clients.  The queue takes no publish meanwhile: a client that
is refused publishes again, and a message that was kept would be there twice.  Publishes that other
nodes pass on wait in front of it (``serving.py``).  While all synchronised mirrors are reached the
queue goes on, whether or not a node hears the coordinator (K4); and queues without mirrors are not
affected.  With a reign a majority of the copies is enough, this one among them.

In: several times a second, the mirrored queues and the nodes that are reached.  Out: waits that are
given up, and consumers to be sent away, as often as some come.
"""

from collections.abc import Iterable
from typing import final

from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.mirrors.queue import MirroredQueue


@final
class IsolatedMasters:
    def __init__(self) -> None:
        self.found: bool = False
        self._is_cut_off: bool = False

    def told(self, *, is_cut_off: bool) -> None:
        """``is_cut_off``: this node's lease is over, as far as it knows."""
        self._is_cut_off = is_cut_off

    def look(self, queues: Iterable[MirroredQueue], nodes: LivingNodes) -> None:
        if not self._is_cut_off and not self.found:
            return
        self.found = False
        for known in queues:
            why = _why_alone(known, nodes) if self._is_cut_off else ""
            if why or known.alone():
                known.cut_off(why)
                self.found = self.found or why != ""


def _why_alone(known: MirroredQueue, nodes: LivingNodes) -> str:
    group, view = known.group, known.view
    if group is None or group.mirrored is None or view is None:
        return ""
    copies = [node_of(one) for one in [*view.synced, *group.safe.awaited] if one != group.me]
    needed = len(copies)
    if view.reign is not None:
        copies = [node for node in view.reign.copies if node != nodes.here]
        needed = view.reign.majority() - 1
    missing = [node for node in copies if node in nodes.unreached]
    if len(copies) - len(missing) >= needed:
        return ""
    text = f"queue '{known.name}' in vhost '{known.vhost.name}'"
    return (
        f"node '{nodes.here}' is cut off: it hears neither the coordinator nor"
        f" {', '.join(dict.fromkeys(missing))}, where copies of {text} are; ask another node"
    )
