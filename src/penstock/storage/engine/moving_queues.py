"""``MovingQueues``: which queues the engine visits a few times a second.

A queue is visited from when it changes (``wake``) until time changes nothing of it: its rates are
0, and nothing of it waits for the journal or for a time.  A node may have any number of queues that
rest.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.storage.engine.resting_queue import RestingQueue


@final
class MovingQueues:
    """``by_id``: those of ``queues`` that move; ``ticked_at_ms``: when they were visited last."""

    def __init__(self, queues: dict[int, RestingQueue]) -> None:
        self.by_id: dict[int, RestingQueue] = {}
        self.ticked_at_ms = WallMs(0)
        self._queues: dict[int, RestingQueue] = queues

    def wake(self, queue_id: i64) -> None:
        """It has changed, or waits for something."""
        queue = self._queues.get(int(queue_id))
        if queue is not None:
            self.by_id[int(queue_id)] = queue

    def remove(self, queue_id: i64) -> None:
        self.by_id.pop(int(queue_id), None)

    def tick(self, now_ms: WallMs, entries_max: i64) -> list[RestingQueue]:
        """Visit them all; returns those with more messages in the journal alone."""
        self.ticked_at_ms = now_ms
        impatient: list[RestingQueue] = []
        resting: list[int] = []
        for queue_id, queue in self.by_id.items():
            moves = queue.tick(now_ms)
            if queue.journal_only_count() > entries_max:
                impatient.append(queue)
            elif not moves:
                resting.append(queue_id)
        for queue_id in resting:
            del self.by_id[queue_id]
        return impatient

    def check(self) -> None:
        assert self.by_id.keys() <= self._queues.keys()
