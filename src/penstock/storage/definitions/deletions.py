"""The table of deleted queues, by number.

In: the numbers of a queue, in the transaction that deletes its row.  Out: all of them at start,
when files and journal records of a queue without a row are either what a crash left of a deleted
queue or evidence of damage (``unknown_queues``).  When a start has removed that, all are
forgotten.  What adjoins is one range, one row: however many are deleted in one life, there are no
more rows than living queues between them.
"""

from typing import Final

from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.definitions.parameters import Change

DELETED_QUEUES: Final = """
CREATE TABLE deleted_queues (first INTEGER PRIMARY KEY, below INTEGER NOT NULL);
"""
ALL_WITHOUT_A_ROW: Final = """
INSERT INTO deleted_queues SELECT 0, value FROM counters WHERE name = 'next_queue_id';
"""
"""Of a version that recorded no deletions: at the next start no queue without a row is missed."""


class DeletedQueues:
    """As in the file, with what this turn has changed."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._below: dict[int, int] = {}  # by the first number
        self._first: dict[int, int] = {}  # by the number below which the range is

    def take(self, first: int, below: int) -> None:
        """A row of the table."""
        self._below[first] = below
        self._first[below] = first

    def __bool__(self) -> bool:
        return len(self._below) > 0

    def clear(self) -> None:
        self._change("DELETE FROM deleted_queues")
        self._below.clear()
        self._first.clear()

    def ranges(self) -> SeqRanges:
        ranges = SeqRanges()
        for first, below in self._below.items():
            ranges.add(first, below)
        ranges.settle()
        return ranges

    def add(self, first: int, below: int) -> None:
        """Those from ``first`` up to and without ``below``; none of them was in before."""
        after = self._below.pop(below, 0)
        if after > 0:
            self._change("DELETE FROM deleted_queues WHERE first = ?", below)
            below = after
        first = self._first.pop(first, first)
        self._change("INSERT OR REPLACE INTO deleted_queues VALUES (?, ?)", first, below)
        self.take(first, below)
