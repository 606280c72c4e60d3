"""``Admission``: the check that every publish passes, in every protocol.

    alarms (memory, disk) ───────────┐
    the disk is full (ENOSPC) ───────┤
    alarms of the cluster's nodes ───┼─► reason("orders") ─► "" = open, else why not
    budgets of virtual hosts ────────┘

All entry points ask here, so that none of them is a way around the others: RabbitMQ's HTTP API
publishes through an alarm.  The words are RabbitMQ's, since clients show them to users and some
look at them.  A reason holds publishers, never consumers: what they take ends the shortage.

``vhost_reasons`` is where the budgets of virtual hosts leave why their publishers are blocked; a
reason of the node comes first, then one of another node of the cluster, with the name of that node.
What another node has taken already, and sends on, is held only for reasons of this one
(``reason_here``): what waits on the way may be what the other node is short of memory for.
"""

from typing import Final, final

from penstock.broker.rules.alarms import Alarms

LOW_ON_MEMORY: Final = "low on memory"
LOW_ON_DISK: Final = "low on disk"
LOW_ON_BOTH: Final = "low on disk & memory"
MEMORY: Final = "memory"
DISK: Final = "disk"
NAMED_BYTES: Final = 180
"""Of the names of nodes in a reason, which is a short string of AMQP."""


@final
class Admission:
    def __init__(self, alarms: Alarms) -> None:
        self.alarms = alarms
        self.stalled: bool = False  # a write has found no space
        self._unreserved: bool = False  # the reserve (storage/common/reserve.py) is incomplete
        self.vhost_reasons: dict[str, str] = {}
        self.elsewhere: dict[str, list[str]] = {}  # other nodes, and of what they are short
        self._reason_elsewhere: str = ""

    def note_elsewhere(self, elsewhere: dict[str, list[str]]) -> None:
        """``elsewhere``: node to resources, as ``short_of`` names them."""
        self.elsewhere = elsewhere
        short = {resource for resources in elsewhere.values() for resource in resources}
        self._reason_elsewhere = ""
        if short:
            reason = _reason_of(DISK in short, MEMORY in short)
            self._reason_elsewhere = f"{reason} ({_named(list(elsewhere))})"

    def short_of(self) -> list[str]:
        """The resources of which this node is short."""
        is_short = ((DISK, self.alarms.disk or self.is_full()), (MEMORY, self.alarms.memory))
        return [resource for resource, short in is_short if short]

    def note_reserve(self, complete: bool) -> bool:
        """Whether the reserve has what it should; returns whether that is new."""
        is_new = complete == self._unreserved
        self._unreserved = not complete
        return is_new

    def is_short_of(self, resource: str) -> bool:
        """Is any node of the cluster?"""
        return any(resource in one for one in [self.short_of(), *self.elsewhere.values()])

    def is_full(self) -> bool:
        """Has the disk no room for what is new, publishes and definitions alike?"""
        return self.stalled or self._unreserved

    def node_reason(self) -> str:
        """What this node is short of; "" = nothing."""
        return _reason_of(self.alarms.disk or self.is_full(), self.alarms.memory)

    def cluster_reason(self) -> str:
        """Why publishers of all virtual hosts are blocked; "" = they are not."""
        reason = self.node_reason()
        return reason if reason != "" else self._reason_elsewhere

    def reason(self, vhost_name: str) -> str:
        """Why publishers to that virtual host are blocked; "" = they are not."""
        reason = self.cluster_reason()
        return reason if reason != "" else self._vhost_reason(vhost_name)

    def reason_here(self, vhost_name: str) -> str:
        """The same as far as this node is concerned."""
        reason = self.node_reason()
        return reason if reason != "" else self._vhost_reason(vhost_name)

    def _vhost_reason(self, vhost_name: str) -> str:
        return self.vhost_reasons.get(vhost_name, "") if self.vhost_reasons else ""


def _reason_of(disk: bool, memory: bool) -> str:
    if disk:
        return LOW_ON_BOTH if memory else LOW_ON_DISK
    return LOW_ON_MEMORY if memory else ""


def _named(nodes: list[str]) -> str:
    """As many names as there is room for."""
    text, kind = "", "node" if len(nodes) == 1 else "nodes"
    for at, node in enumerate(nodes):
        longer = f"{text}, {node}" if text else f"{kind} {node}"
        if len(longer.encode()) > NAMED_BYTES:
            more = len(nodes) - at
            return f"{text} and {more} more" if text else f"{more} of the cluster's nodes"
        text = longer
    return text
