"""``Hold``: what readers keep retention from, although it is over a limit of the stream.

In: the offset from which on messages are wanted, and how many bytes may be kept for that; the
segments, and how many of the oldest are over a limit.  Out: how many of these are free to go.  The
newest are held first: a reader that is too far behind loses what is oldest.
"""

from typing import final

from mypy_extensions import i64

from penstock.streams.segments import SegmentTable


@final
class Hold:
    """``segments``: so many of the oldest are over a limit, and held."""

    def __init__(self) -> None:
        self.segments: int = 0
        self._offset: i64 = -1
        self._most_bytes: i64 = 0

    def move(self, offset: i64, most_bytes: i64) -> None:
        """-1 = nothing is wanted."""
        self._offset = offset
        self._most_bytes = most_bytes

    def take(self, table: SegmentTable, over: int) -> int:
        """Of so many that are over a limit, how many are free; the others are held."""
        free = over
        if self._offset >= 0 and over > 0:
            oldest = table.holding(max(self._offset, table.first(0)))
            size: i64 = 0
            while free > oldest:
                size += table.size(free - 1)
                if size > self._most_bytes:
                    break
                free -= 1
        self.segments = over - free
        return free

    def held_bytes(self, table: SegmentTable) -> i64:
        size: i64 = 0
        for number in range(self.segments):
            size += table.size(number)
        return size
