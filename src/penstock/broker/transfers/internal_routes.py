"""``InternalRoutes``: routes what leaves internal queues (delays, backlogs), some in a turn.

A queue for which a turn has no time left is sorted in the next one: first the one whose route is
unfinished, so that this goes on from there, then those that waited longest.  What is not routed
stays in its queue, in its order.
"""

from collections.abc import Callable
from typing import Final, final

from penstock.core.clock_types import WallMs
from penstock.core.turn_part import TurnPart
from penstock.queues.queue import Queue
from penstock.routing.steps import RoutingShare


@final
class InternalRoutes(TurnPart):
    """Of all internal queues of a node; ``sort`` looks at one."""

    def __init__(self, sort: Callable[[Queue, WallMs], None]) -> None:
        self._late: Final[list[Queue]] = []
        super().__init__(self._late)
        self._latest: Queue | None = None  # that had the share
        self._share: Final = RoutingShare()
        self._share.begin()
        self._sort: Final = sort

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        """What had to wait for this turn goes on."""
        self._share.begin()
        late = self._late[:]
        self._late.clear()
        for queue in late:
            self._sort(queue, now_ms)
        return len(self._late) > 0

    def share_for(self, queue: Queue) -> RoutingShare | None:
        """None: it is sorted in the next turn."""
        if not self._share.is_over():
            self._latest = queue
            return self._share
        if queue not in self._late:
            goes_on = queue is self._latest and self._share.unfinished
            self._late.insert(0 if goes_on else len(self._late), queue)
        return None
