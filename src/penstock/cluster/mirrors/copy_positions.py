"""``CopyPositions``: how far the copy of a queue is complete, and what it has heard, on its disk.

docs/design/majority.md says what positions are for.  Each is a number (term, parcel, and 1) that
only grows: the journal keeps the highest (``Journal.reserve``), by an id that follows
from the queue's, through its own retirement, clean stops and crashes.  A number that was never
written, 0, is NOWHERE, of what was heard BEGINNING: so begins a copy with a new queue id.  A copy
that gave up for a term is one parcel before the beginning of that.

    hear   before a parcel does anything     reach   behind all that it did, in a complete copy

The journal keeps the order, so a disk that says *complete* has the parcel, and one that has a part
of it says that it was heard; ``DiskRecords.await_journal`` keeps segments behind the journal.

Invariants (``check``):
  N1  a copy is complete no further than it has heard
  N2  what waits for the disk ascends, with the journal's positions behind it
"""

from collections import deque
from typing import Final, final

from penstock.cluster.agreement.reigns import BEGINNING, NOWHERE, Holding, Position, gave_up_for
from penstock.storage.journal.codec import position_ids
from penstock.storage.journal.journal import Journal

TERM_SHIFT: Final = 40


def _position(number: int) -> Position:
    return Position(number >> TERM_SHIFT, (number & (1 << TERM_SHIFT) - 1) - 1)


def _number(position: Position) -> int:
    return (position.term << TERM_SHIFT) + position.number + 1


@final
class CopyPositions:
    """Of the copy with that queue id, as ``journal`` has them."""

    def __init__(self, journal: Journal, queue_id: int) -> None:
        self._journal: Final = journal
        self._complete_id, self._heard_id = position_ids(queue_id)
        self.complete: Position = _position(journal.highest(self._complete_id))
        self.heard: Position = max(_position(journal.highest(self._heard_id)), BEGINNING)
        self.is_old: bool = False
        self._durable: Position = NOWHERE
        self._waiting: deque[tuple[Position, int]] = deque()
        self._await_disk()

    def _await_disk(self) -> None:
        self._waiting.append((self.complete, int(self._journal.position)))

    def hear(self, position: Position) -> None:
        """What comes now is of no later parcel."""
        if position > self.heard:
            self.heard = position
            self._journal.reserve(self._heard_id, _number(position))

    def reach(self, position: Position) -> None:
        """All that was confirmed up to there is in the journal."""
        if position > self.complete:
            self.is_old = False
            self.complete = position
            self._journal.reserve(self._complete_id, _number(position))
            self._await_disk()

    def distrust(self) -> None:
        """In this life, until it is complete again: its disk may be older than what it said."""
        self.is_old = True
        self.complete = self._durable = NOWHERE
        self._waiting.clear()

    def begin_new(self) -> None:
        """Of a queue declared in this life: the copy has all there was before its masters."""
        self.reach(BEGINNING)

    def give_up_for(self, term: int) -> None:
        """Of an empty copy, in the place of one that had more than counts for that term's master.

        That master has on its disk what was confirmed before.
        """
        self.reach(gave_up_for(term))

    def begin(self, term: int) -> None:
        """It is complete with what its master, or it as master, begins that term with."""
        self.hear(Position(term, 0))
        self.reach(Position(term, 0))

    def doubt(self) -> None:
        """Something was done to the copy that was of no parcel."""
        self.hear(self.heard._replace(number=self.heard.number + 1))

    def holding(self) -> Holding:
        """In memory: what may be told of as a vote of this life."""
        return Holding(self.complete, self.heard)

    def durable_number(self, term: int) -> int:
        """Up to which parcel of that term it is complete on disk; -1 = not at its beginning."""
        durable = self._journal.durable_position
        while self._waiting and self._waiting[0][1] <= durable:
            self._durable = self._waiting.popleft()[0]
        return self._durable.number if self._durable.term == term else -1

    def awaits_disk(self) -> bool:
        return bool(self._waiting) and self._waiting[-1][1] > self._journal.durable_position

    def check(self) -> None:
        """Assert N1 and N2."""
        assert self.complete.number < 0 or self.complete <= self.heard, "N1"
        assert list(self._waiting) == sorted(self._waiting), "N2"
