"""``Pauses``: was the process paused for so long that its lease may have ended?

    turned(now_ms)     a turn has heard the coordinator
    lapsed(now_ms)     the lease was relied on then, and is no more
    is_known(now_ms)   it lasts, or it has ended: the coordinator said so after the pause

A lease also lapses without a pause, while the coordinator is away from all nodes: then it promotes
no other node, and masters go on (K4 of docs/design/clusters.md).  After a pause that is no reason:
the coordinator may have promoted others meanwhile and be unheard for other causes.  So this node
is ``unsure``, and tells clients nothing, until it is known what became of the lease, or until
``UNSURE_MS`` have passed in which the coordinator could not be asked.

Times are of CLOCK_BOOTTIME, in ms: a machine that slept has slept through its lease.
"""

from typing import Final, final

from penstock.cluster.agreement.coordinator import Coordinator
from penstock.cluster.agreement.membership import Membership
from penstock.core.clock_types import BootMs

PAUSE_PARTS: Final = 3
"""A turn that comes this part of the lease's time after the last one comes after a pause."""
UNSURE_MS: Final = 10_000


@final
class Pauses:
    """Of one node."""

    def __init__(self, membership: Membership, coordinator: Coordinator, lease_ms: int) -> None:
        self.unsure_until_ms = BootMs(0)
        self._membership = membership
        self._coordinator = coordinator
        self._pause_ms = lease_ms // PAUSE_PARTS
        self._turned_ms = BootMs(0)
        self._relied = False
        self._paused = False

    def turned(self, now_ms: BootMs) -> None:
        if self._relied and not self._membership.may_act(now_ms):
            return  # the pause was within that turn: ``lapsed`` is to say so
        self._turned_ms = now_ms
        self._relied = self._membership.may_act(now_ms)

    def lapsed(self, now_ms: BootMs) -> bool:
        if not self._relied or self._membership.may_act(now_ms):
            return False
        self._relied = False
        self._paused = now_ms - self._turned_ms >= self._pause_ms
        return True

    def is_known(self, now_ms: BootMs) -> bool:
        coordinator = self._coordinator
        if self._membership.may_act(now_ms) or coordinator.lease_has_ended():
            return True
        return not self._paused and coordinator.why_not() != ""

    def doubt(self, now_ms: BootMs) -> None:
        """It may be that what became of the lease is not known yet."""
        if self._paused and not self.is_known(now_ms):
            self.unsure_until_ms = BootMs(now_ms + UNSURE_MS)

    def settle(self, now_ms: BootMs) -> bool:
        """Is the doubt over?"""
        over = self.is_known(now_ms) or now_ms >= self.unsure_until_ms
        if over:
            self.unsure_until_ms = BootMs(0)
        return over
