"""``LettingGo``: what a reader of ranges has acknowledged leaves its queue some positions a turn.

In: queues, and below which position nobody needs their messages.  Out: after some turns they are
gone.  A reader that has its next batch to read need not wait for the end of the last one, which
may be millions; who is killed in between finds the rest still there, and acknowledges again.

The queue is leased meanwhile, so nobody gets them; whoever ends the lease calls ``finish`` first.
"""

from typing import Final, final

from penstock.queues.queue import Queue

POSITIONS_AT_ONCE: Final = 2048
"""Of a turn: a millisecond or two."""


@final
class LettingGo:
    """One for a node; by incarnation of the queue."""

    def __init__(self) -> None:
        self._below: dict[str, tuple[Queue, int]] = {}

    def add(self, queue: Queue, below: int) -> None:
        _, before = self._below.get(queue.incarnation, (queue, 0))
        self._below[queue.incarnation] = (queue, max(before, below))

    def holds(self, queue: Queue) -> bool:
        """Is something of it still to go?"""
        return queue.incarnation in self._below

    def finish(self, queue: Queue) -> None:
        """All of it, here and now."""
        found = self._below.pop(queue.incarnation, None)
        if found is not None and not found[0].deleted:
            found[0].drop_below(found[1])

    def run(self) -> bool:
        """One slice of the first queue; True = there is more."""
        for incarnation, (queue, below) in self._below.items():
            if queue.deleted or _let_go(queue, below):
                del self._below[incarnation]
            break
        return len(self._below) > 0


def _let_go(queue: Queue, below: int) -> bool:
    """True = nothing is left below, or it cannot be read."""
    floor = int(queue.backing.floor_seq_id())
    if floor < below:
        queue.drop_step(below, POSITIONS_AT_ONCE)
    return not floor < int(queue.backing.floor_seq_id()) < below
