"""``Admission``: the check that every publish passes, in every protocol.

    alarms (memory, disk) ───────────┐
    the disk is full (ENOSPC) ───────┼─► reason("orders") ─► "" = open, else why not
    budgets of virtual hosts ────────┘

All entry points ask here, so that none of them is a way around the others: RabbitMQ's HTTP API
publishes through an alarm.  The words are RabbitMQ's, since clients show them to people and some
look at them.  A reason holds publishers, never consumers: what they take ends the shortage.

``vhost_reasons`` is where the budgets of virtual hosts leave why their publishers are blocked; a
reason of the node comes first.
"""

from typing import Final, final

from penstock.broker.rules.alarms import Alarms

LOW_ON_MEMORY: Final = "low on memory"
LOW_ON_DISK: Final = "low on disk"
LOW_ON_BOTH: Final = "low on disk & memory"


@final
class Admission:
    """See the head of this file."""

    def __init__(self, alarms: Alarms) -> None:
        self.alarms = alarms
        self.stalled: bool = False  # a write has found no space
        self._unreserved: bool = False  # the reserve (storage/common/reserve.py) is incomplete
        self.vhost_reasons: dict[str, str] = {}

    def note_reserve(self, complete: bool) -> bool:
        """Whether the reserve has what it should; returns whether that is new."""
        is_new = complete == self._unreserved
        self._unreserved = not complete
        return is_new

    def is_full(self) -> bool:
        """Has the disk no room for what is new, publishes and definitions alike?"""
        return self.stalled or self._unreserved

    def node_reason(self) -> str:
        """Why publishers are blocked; "" = they are not, as far as the node is concerned."""
        alarms = self.alarms
        if alarms.disk or self.is_full():
            return LOW_ON_BOTH if alarms.memory else LOW_ON_DISK
        return LOW_ON_MEMORY if alarms.memory else ""

    def reason(self, vhost_name: str) -> str:
        """Why publishers to that virtual host are blocked; "" = they are not."""
        reason = self.node_reason()
        if reason == "" and self.vhost_reasons:
            return self.vhost_reasons.get(vhost_name, "")
        return reason
