"""``SeqRanges``: a set of seq_ids, kept as half-open ranges.

The log says "acknowledged" in ranges that may cover millions of ids whose messages were
dropped long ago, so the set is never spelled out.  Ranges are added in bulk, merged by the
next question, and then asked for many ids, mostly ascending: the last answer is remembered
with the stretch over which it holds, so most questions are two comparisons.

  S1  starts and ends have one length and starts[i] < ends[i] < starts[i + 1]
"""

from bisect import bisect_right
from typing import Final, final

from mypy_extensions import i64

SEQ_ID_MAX: Final[i64] = 0x7FFF_FFFF_FFFF_FFFF


@final
class SeqRanges:
    """``starts`` and ``ends`` are for readers, and true after ``settle``."""

    __slots__ = ("_added", "_known_end", "_known_in", "_known_start", "ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._added: list[tuple[int, int]] = []
        self._known_start: i64 = 0
        self._known_end: i64 = 0
        self._known_in: bool = False

    def add(self, start: i64, end: i64) -> None:
        """All ids from ``start`` up to and without ``end``."""
        if start < end:
            self._added.append((int(start), int(end)))

    def settle(self) -> None:
        """Merge what was added since the last time."""
        if not self._added:
            return
        ranges = list(zip(self.starts, self.ends, strict=True)) + self._added
        ranges.sort()
        starts: list[int] = []
        ends: list[int] = []
        for start, end in ranges:
            if ends and start <= ends[-1]:
                if end > ends[-1]:
                    ends[-1] = end
            else:
                starts.append(start)
                ends.append(end)
        self.starts = starts
        self.ends = ends
        self._added = []
        self._known_start = 0
        self._known_end = 0

    def contains(self, seq_id: i64) -> bool:
        if self._added:
            self.settle()
        if self._known_start <= seq_id < self._known_end:
            return self._known_in
        return self._look_up(seq_id)

    def _look_up(self, seq_id: i64) -> bool:
        at: i64 = bisect_right(self.starts, int(seq_id)) - 1
        if at >= 0 and seq_id < self.ends[at]:
            self._known_start = self.starts[at]
            self._known_end = self.ends[at]
            self._known_in = True
            return True
        self._known_start = self.ends[at] if at >= 0 else 0
        self._known_end = self.starts[at + 1] if at + 1 < len(self.starts) else SEQ_ID_MAX
        self._known_in = False
        return False

    def check(self) -> None:
        assert len(self.starts) == len(self.ends), "S1"
        for i in range(len(self.starts)):
            assert self.starts[i] < self.ends[i], "S1"
            assert i == 0 or self.ends[i - 1] < self.starts[i], "S1"


def ranges_of(seq_ids: list[int]) -> SeqRanges:
    """The set of these ids, in any order, repeats allowed."""
    ranges = SeqRanges()
    for seq_id in seq_ids:
        ranges.add(seq_id, seq_id + 1)
    ranges.settle()
    return ranges
