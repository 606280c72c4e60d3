"""``SegmentGarbage``: which segments of all queues are to be rewritten, and when.

When more than a third of all they hold is garbage and more than two files' worth of the message
store: those that are garbage by more than half, the worst first, some megabytes at a time.  So in
all they are never larger than twice what lives, and that slack.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.engine.resting_queue import RestingQueue
from penstock.storage.index.segment import Segment

REWRITTEN_AT_ONCE_BYTES: Final[i64] = 32 * 1024 * 1024
"""Segments of so many bytes are rewritten in one turn, before a retirement may have its own."""


@final
class SegmentGarbage:
    """``count``, ``size_bytes`` and ``living_bytes`` are of all segments as of the last look.

    ``wasteful``: those to rewrite, the most garbage last.
    """

    def __init__(self, queues: dict[int, RestingQueue], slack_bytes: i64) -> None:
        """``slack_bytes``: so much garbage is nothing to work for."""
        self.count: i64 = 0
        self.size_bytes: i64 = 0
        self.living_bytes: i64 = 0
        self._queues: dict[int, RestingQueue] = queues
        self._slack_bytes: i64 = slack_bytes
        self.wasteful: list[Segment] = []

    def look(self) -> None:
        """Find the segments to rewrite, if the node has too much garbage."""
        count: i64 = 0
        total: i64 = 0
        living: i64 = 0
        wasteful: list[Segment] = []
        for queue in self._queues.values():
            index = queue.index_or_none()
            if index is not None:
                count += len(index.segments)
                for segment in index.segments.values():
                    total += segment.size
                    living += segment.record_bytes
                    if segment.is_wasteful():
                        wasteful.append(segment)
        self.count = count
        self.size_bytes = total
        self.living_bytes = living
        if 2 * total <= 3 * living + 2 * self._slack_bytes:
            wasteful = []
        wasteful.sort(key=_garbage_bytes)
        self.wasteful = wasteful

    def rewrite(self) -> None:
        """Put the next of them on the board."""
        quota = REWRITTEN_AT_ONCE_BYTES
        while self.wasteful and quota > 0:
            segment = self.wasteful.pop()
            queue = self._queues.get(int(segment.queue_id))
            index = None if queue is None else queue.index_or_none()
            if index is not None and index.rewriting.rewrite(segment):
                quota -= segment.size


def _garbage_bytes(segment: Segment) -> int:
    return int(segment.size - segment.record_bytes)
