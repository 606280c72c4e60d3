"""``DeferredTrim``: removes messages that a range reader acknowledged, some per turn.

In: queues, each with the sequence id below which all messages are acknowledged.  Out: after some
turns these messages are gone.  The reader need not wait for the end of a batch of millions before
it reads the next one; a reader that is killed in between finds the rest still there, and
acknowledges it again.

The queue is leased meanwhile, so no other consumer gets them; the end of a lease calls ``finish``
first.
"""

from typing import Final, final

from penstock.core.clock_types import WallMs
from penstock.core.turn_part import TurnPart
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue

POSITIONS_AT_ONCE: Final = 2048
"""Of a turn: a millisecond or two."""


@final
class DeferredTrim(TurnPart):
    """One for a node; by incarnation of the queue."""

    def __init__(self) -> None:
        self._below: dict[str, tuple[LocalQueue, int]] = {}
        super().__init__(self._below)

    def add(self, queue: LocalQueue, below: int) -> None:
        _, before = self._below.get(queue.incarnation, (queue, 0))
        self._below[queue.incarnation] = (queue, max(before, below))

    def holds(self, queue: Queue) -> bool:
        """Is something of it still to go?"""
        return queue.incarnation in self._below

    def finish(self, queue: LocalQueue) -> None:
        """All of it, here and now."""
        found = self._below.pop(queue.incarnation, None)
        if found is not None and not found[0].deleted:
            found[0].ranges.drop_below(found[1])

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        """One slice of the first queue."""
        for incarnation, (queue, below) in self._below.items():
            if queue.deleted or _let_go(queue, below):
                del self._below[incarnation]
            break
        return len(self._below) > 0


def _let_go(queue: LocalQueue, below: int) -> bool:
    """True = nothing is left below, or it cannot be read, which the reader hears when it closes."""
    floor = int(queue.backing.positions().tiers.floor_seq_id())
    if floor < below:
        queue.ranges.drop_step(below, POSITIONS_AT_ONCE)
    return not floor < int(queue.backing.positions().tiers.floor_seq_id()) < below
