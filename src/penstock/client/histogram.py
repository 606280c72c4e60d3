"""Durations in fixed logarithmic buckets: adding one allocates nothing (hot).

A bucket is at most 1.6 % wide and is reported by its middle, so a percentile is right to
within 1 %.  Histograms of several processes are merged by adding their buckets.
"""

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

SUB_BITS: Final = 6
SUB_BUCKETS: Final = 64
BUCKETS: Final = 3712
"""58 powers of two, each cut into 64: up to 2^63 nanoseconds."""


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
    """Durations in nanoseconds, in fixed logarithmic buckets."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.sum_ns: float = 0.0
        self.max_ns: i64 = 0
        self._buckets: vec[i64] = new_counters(BUCKETS)

    def add(self, value_ns: i64, times: i64) -> None:
        self.count += times
        self.sum_ns += float(value_ns) * float(times)
        if value_ns > self.max_ns:
            self.max_ns = value_ns
        buckets = self._buckets
        buckets[bucket_of(value_ns)] += times

    def percentile_ns(self, fraction: float) -> int:
        """The value that ``fraction`` of all values do not exceed, to within 1 %."""
        if self.count == 0:
            return 0
        wanted = fraction * float(self.count)
        passed: i64 = 0
        for bucket in range(BUCKETS):
            passed += self._buckets[bucket]
            if float(passed) >= wanted and passed > 0:
                return min(bucket_middle(bucket), self.max_ns)
        return self.max_ns

    def mean_ns(self) -> float:
        return self.sum_ns / float(self.count) if self.count else 0.0

    def packed(self) -> list[list[int]]:
        """The non-empty buckets as [bucket, count], for the way between processes."""
        found: list[list[int]] = []
        for bucket in range(BUCKETS):
            times = self._buckets[bucket]
            if times > 0:
                found.append([int(bucket), int(times)])
        return found

    def merge(self, packed: list[list[int]], sum_ns: float, max_ns: int) -> None:
        for bucket, times in packed:
            self._buckets[bucket] += times
            self.count += times
        self.sum_ns += sum_ns
        if max_ns > self.max_ns:
            self.max_ns = max_ns
