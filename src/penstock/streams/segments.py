"""``SegmentTable``: where the segments of a stream begin, in offsets and in time.

24 bytes a segment are all that memory keeps of a stream's length.  A segment's end is the begin of
the next one, so an offset is found by bisection here, then in the index of one file.

Invariants (``check``):
  S1  offsets ascend strictly, times do not descend
  S2  total_bytes is the sum over the segments
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import final

from mypy_extensions import i64


@final
class SegmentTable:
    """Oldest first; the last one is written to."""

    __slots__ = ("_firsts", "_sizes", "_times", "total_bytes")

    def __init__(self) -> None:
        self._firsts: array[int] = array("q")
        self._times: array[int] = array("q")
        self._sizes: array[int] = array("q")
        self.total_bytes: i64 = 0

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: i64, first_ms: i64, size: i64) -> None:
        """A segment behind all others."""
        self._firsts.append(first)
        self._times.append(first_ms)
        self._sizes.append(size)
        self.total_bytes += size

    def grow(self, size: i64) -> None:
        """The last segment is so many bytes longer."""
        self._sizes[-1] += size
        self.total_bytes += size

    def drop(self, count: int) -> list[int]:
        """Forget that many of the oldest; returns their first offsets."""
        dropped = list(self._firsts[:count])
        self.total_bytes -= sum(self._sizes[:count])
        del self._firsts[:count]
        del self._times[:count]
        del self._sizes[:count]
        return dropped

    def first(self, number: i64) -> i64:
        """The first offset of the segment with that number; -1 for the last one."""
        return i64(self._firsts[number])

    def size(self, number: i64) -> i64:
        return i64(self._sizes[number])

    def time(self, number: i64) -> i64:
        """When its first message came."""
        return i64(self._times[number])

    def holding(self, offset: i64) -> i64:
        """The number of the segment that has the offset, which is not below the first one."""
        return bisect_right(self._firsts, offset) - 1

    def holding_time(self, time_ms: i64) -> i64:
        """The number of the segment with the first message that came at that time or later.

        The message may also be the first one of the next segment.
        """
        number: i64 = bisect_left(self._times, time_ms) - 1
        return number if number > 0 else 0

    def check(self) -> None:
        for i in range(1, len(self._firsts)):
            assert self._firsts[i - 1] < self._firsts[i], "S1"
            assert self._times[i - 1] <= self._times[i], "S1"
        assert self.total_bytes == sum(self._sizes), "S2"
        assert len(self._firsts) == len(self._times) == len(self._sizes), "S2"
