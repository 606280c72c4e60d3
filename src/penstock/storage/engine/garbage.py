"""``SegmentGarbage``: which segments of all queues are to be rewritten, and when.

When more than a third of all they hold is garbage and more than two files' worth of the message
store: those that are garbage by more than half, the worst first, some megabytes at a time.  So in
all they are never larger than twice what lives, and that slack.  What they refer to in the journal
counts as theirs.

A file of the journal that is kept for a few of its records has the same rule: when all of these
files are more than twice as large as what segments refer to, and that slack, the segments that
refer to the worst one are rewritten, whatever they are like themselves, and the file goes.  Files
that a damaged segment refers to stay, and are not counted.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.engine.resting_queue import RestingQueue
from penstock.storage.index.segment import Segment
from penstock.storage.journal.resting import RestingFiles

LOOKED_AT_ONCE: Final[i64] = 1000
"""A look takes so many queues and segments; a node with more has a round of several looks."""
REWRITTEN_AT_ONCE_BYTES: Final[i64] = 32 * 1024 * 1024
"""Segments of so many bytes are rewritten in one turn, before a retirement may have its own."""


@final
class Round:
    """A look at each of ``queues``, which are those that are left."""

    def __init__(self, queues: list[RestingQueue], costly: int) -> None:
        """``costly``: a file of the journal that is to go; 0 = none."""
        self._costly: int = costly
        self.queues: list[RestingQueue] = queues
        self.count: i64 = 0
        self.size_bytes: i64 = 0
        self.living_bytes: i64 = 0
        self.wasteful: list[Segment] = []
        self.dear: list[Segment] = []  # they keep that file
        self.held: set[int] = set()  # files kept by segments that are not rewritten

    def look(self, at_most: i64) -> bool:
        """At about so many queues and segments; True = some are left."""
        while self.queues and at_most > 0:
            at_most -= 1
            index = self.queues.pop().index_or_none()
            if index is not None:
                at_most -= len(index.segments)
                self.count += len(index.segments)
                for segment in index.segments.values():
                    self.size_bytes += segment.total_bytes()
                    self.living_bytes += segment.record_bytes
                    if segment.left_alone:
                        self.held.update(segment.references)
                    elif self._costly in segment.references:
                        self.dear.append(segment)
                    elif segment.is_wasteful():
                        self.wasteful.append(segment)
        return len(self.queues) > 0


@final
class SegmentGarbage:
    """``count``, ``size_bytes`` and ``living_bytes`` are of all segments as of the last round.

    ``wasteful``: those to rewrite, the most garbage last.
    """

    def __init__(
        self, queues: dict[int, RestingQueue], resting: RestingFiles, slack_bytes: i64
    ) -> None:
        """``slack_bytes``: so much garbage is nothing to work for."""
        self.count: i64 = 0
        self.size_bytes: i64 = 0
        self.living_bytes: i64 = 0
        self._queues: dict[int, RestingQueue] = queues
        self._resting: RestingFiles = resting
        self._costly: int = 0
        self._slack_bytes: i64 = slack_bytes
        self.wasteful: list[Segment] = []
        self._round = Round([], 0)

    def look(self) -> None:
        """Go on with the round; at its end there are segments to rewrite, if it is too much."""
        if not self._round.queues:
            self._costly = self._resting.costly(self._slack_bytes, self._round.held)
            self._round = Round(list(self._queues.values()), self._costly)
        round_ = self._round
        if round_.look(LOOKED_AT_ONCE):
            return
        self.count = round_.count
        self.size_bytes = round_.size_bytes
        self.living_bytes = round_.living_bytes
        self.wasteful = []
        if 2 * self.size_bytes > 3 * self.living_bytes + 2 * self._slack_bytes:
            self.wasteful = round_.wasteful
            self.wasteful.sort(key=_garbage_bytes)
        self.wasteful.extend(round_.dear)

    def rewrite(self) -> None:
        """Put the next of them on the board."""
        quota = REWRITTEN_AT_ONCE_BYTES
        while self.wasteful and quota > 0:
            segment = self.wasteful.pop()
            queue = self._queues.get(int(segment.queue_id))
            index = None if queue is None else queue.index_or_none()
            if index is None or not (segment.is_wasteful() or self._costly in segment.references):
                continue
            if index.rewriting.rewrite(segment):
                quota -= segment.total_bytes()


def _garbage_bytes(segment: Segment) -> int:
    return int(segment.total_bytes() - segment.record_bytes)
