"""Things that are due at a time: one heap of (when, what), asked by the broker's turn.

An entry is never taken out early.  Its owner checks, when it comes up, whether
it still means anything; so nothing has to be found in the middle of a heap.
"""

import heapq
from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.queues.queue import Queue


@final
class Schedule:
    """Queues that want to be looked at, by one clock, which its owner chooses."""

    def __init__(self) -> None:
        self.entries: Final[list[tuple[int, int, Queue]]] = []
        self._count: int = 0  # breaks ties, so queues need no order

    def add(self, when_ms: i64, queue: Queue) -> None:
        self._count += 1
        heapq.heappush(self.entries, (int(when_ms), self._count, queue))

    def plan(self, when_ms: WallMs, queue: Queue) -> None:
        """Look at its messages then, 0 = never; an earlier plan holds."""
        if queue.due_at(when_ms):
            self.add(when_ms, queue)

    def next_ms(self) -> i64:
        """When the first entry is due; 0 = nothing is scheduled."""
        if len(self.entries) == 0:
            return 0
        return self.entries[0][0]

    def take_due(self, now_ms: i64, at_most: i64) -> list[tuple[int, Queue]]:
        """The first that are due, each with its time: an entry that was replaced tells by that."""
        due: list[tuple[int, Queue]] = []
        while len(self.entries) > 0 and self.entries[0][0] <= now_ms and len(due) < at_most:
            when_ms, _, queue = heapq.heappop(self.entries)
            due.append((when_ms, queue))
        return due
