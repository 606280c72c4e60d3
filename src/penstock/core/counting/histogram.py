"""``Histogram``: how long something took, in fixed logarithmic buckets.

In: durations, in a unit that the owner chooses.  Out: count, sum, greatest, and the value at any
share of them.  A bucket is at most 1.6 % wide and is reported by its middle, so a percentile is
right to within 1 %; below 64 it is exact.  Two histograms are merged by adding their buckets.
There are as many buckets as the greatest value needs; adding one that fits allocates nothing.
"""

from collections.abc import Sequence
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from penstock.core.clock_types import WallMs

SUB_BITS: Final = 6
SUB_BUCKETS: Final = 64


def new_counters(size: int) -> vec[i64]:
    return vec[i64]([0] * size)


def bucket_of(value: i64) -> i64:
    """Linear below 64, then 64 equal steps from each power of two to the next."""
    if value < SUB_BUCKETS:
        return value if value > 0 else 0
    rest = value
    exponent: i64 = 0
    if rest >= 1 << 32:
        rest >>= 32
        exponent += 32
    if rest >= 1 << 16:
        rest >>= 16
        exponent += 16
    if rest >= 1 << 8:
        rest >>= 8
        exponent += 8
    if rest >= 1 << 4:
        rest >>= 4
        exponent += 4
    if rest >= 1 << 2:
        rest >>= 2
        exponent += 2
    if rest >= 1 << 1:
        exponent += 1
    shift = exponent - SUB_BITS
    return (shift + 1) * SUB_BUCKETS + (value >> shift) - SUB_BUCKETS


def bucket_middle(bucket: i64) -> i64:
    if bucket < SUB_BUCKETS:
        return bucket
    step = bucket % SUB_BUCKETS + SUB_BUCKETS
    first = step << (bucket // SUB_BUCKETS - 1)
    # Half of a step; a constant that is shifted has 32 bits when it is compiled.
    return first + first // (2 * step)


@final
class Histogram:
    """Durations of at least 0; one below counts as 0."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.sum: float = 0.0
        self.greatest: i64 = 0
        self._size: i64 = 0
        self._buckets: vec[i64] = new_counters(0)

    def add(self, value: i64, times: i64) -> None:
        if value < 0:
            value = 0  # the clock was set back
        self.count += times
        self.sum += float(value) * float(times)
        if value > self.greatest:
            self.greatest = value
        self._add_to(bucket_of(value), times)

    def _add_to(self, bucket: i64, times: i64) -> None:
        if bucket >= self._size:
            self._grow((bucket // SUB_BUCKETS + 1) * SUB_BUCKETS)
        buckets = self._buckets
        buckets[bucket] += times

    def _grow(self, size: i64) -> None:
        before = self._buckets
        buckets = new_counters(int(size))
        for bucket in range(self._size):
            buckets[bucket] = before[bucket]
        self._buckets = buckets
        self._size = size

    def percentile(self, fraction: float) -> int:
        """The value that ``fraction`` of all values do not exceed, to within 1 %."""
        wanted = fraction * float(self.count)
        passed: i64 = 0
        for bucket in range(self._size):
            passed += self._buckets[bucket]
            if float(passed) >= wanted and passed > 0:
                return int(min(bucket_middle(bucket), self.greatest))
        return int(self.greatest)

    def mean(self) -> float:
        return self.sum / float(self.count) if self.count else 0.0

    def counts(self, bounds: Sequence[int]) -> list[int]:
        """How many are above the bound before and up to each bound, and at last above all."""
        found = [0] * (len(bounds) + 1)
        place = 0
        for bucket in range(self._size):
            while place < len(bounds) and bucket > bucket_of(bounds[place]):
                place += 1
            found[place] += int(self._buckets[bucket])
        return found

    def packed(self) -> list[list[int]]:
        """The non-empty buckets as [bucket, count], for the way between processes."""
        found: list[list[int]] = []
        for bucket in range(self._size):
            times = self._buckets[bucket]
            if times > 0:
                found.append([int(bucket), int(times)])
        return found

    def merge(self, packed: list[list[int]], sum_: float, greatest: int) -> None:
        for bucket, times in packed:
            self._add_to(bucket, times)
            self.count += times
        self.sum += sum_
        if greatest > self.greatest:
            self.greatest = greatest

    def include(self, other: "Histogram") -> None:
        """Add what the other has."""
        self.merge(other.packed(), other.sum, int(other.greatest))


@final
class SlidingHistogram:
    """Of about the last ``window_ms``.

    Each half of the window the older of two histograms is dropped; an answer is of both, and so of
    between half a window and a whole one.
    """

    def __init__(self, window_ms: i64) -> None:
        self._half_ms: i64 = window_ms // 2 if window_ms > 1 else 1
        self._moved_ms = WallMs(0)
        self._current = Histogram()
        self._older = Histogram()

    def add(self, value: i64, now_ms: WallMs) -> None:
        self._move(now_ms)
        self._current.add(value, 1)

    def add_to(self, total: Histogram, now_ms: WallMs) -> None:
        """Merge what the window has into ``total``."""
        self._move(now_ms)
        total.include(self._older)
        total.include(self._current)

    def _move(self, now_ms: WallMs) -> None:
        passed_ms = now_ms - self._moved_ms
        if 0 <= passed_ms <= self._half_ms:
            return
        halves = passed_ms // self._half_ms
        self._moved_ms = WallMs(self._moved_ms + halves * self._half_ms)
        self._older = self._current if halves == 1 else Histogram()
        self._current = Histogram()
