"""Quantiles of durations over a sliding window, with bounded memory.

In: values, one at a time, with the time.  Out: how many there were of late, and the values below
which given shares of them lie.  An answer's rank is off by at most one hundredth of their number

``TargetedQuantiles`` is the algorithm of Cormode, Korn, Muthukrishnan and Srivastava for quantiles
known beforehand ("Effective computation of biased quantiles over data streams", 2005).  It keeps
**samples**, ascending: each stands for the ``width`` values up to it, and its rank is known up to
``delta``.  Values are collected in a buffer and merged in when that is full; then neighbours are
joined wherever the ranks that are asked for allow it (``_allowance``).  With one error for all of
them, as nsqd has it (0.01), the quantile for 0.99 is the greatest value: hence the tenth.

Two summaries are merged like two sorted lists: a sample's rank among the others lies between
those of its neighbours there, so its ``delta`` grows by what its successor stands for.  A merge
is thus never wrong about ranks, only less precise.

``SlidingQuantiles`` has two of them.  Each half of the window the older one is cleared and filled
from then on; an answer is of both, and so of between half a window and a whole one.

Invariants (``check``):
  N1  samples ascend, and their widths add up to the values merged in
  N2  the last sample's rank is known exactly
  N3  a sample that stands for more than one value, or is unsure, does so within its allowance
      (of a summary fed by values alone)
"""

import math
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

EPSILON: Final = 0.01
"""Of the number of values, the rank of an answer may be off by so much."""
TAIL_EPSILON: Final = 0.1
"""And of those that lie beyond it."""
_SLOPE: Final = 1 - 2 * TAIL_EPSILON
"""Left of a target the allowance grows; this keeps the error at the target within the promise."""
BUFFER_VALUES: Final = 500


def error_of(share: float) -> float:
    """How far off the rank of that quantile may be, as a share of all."""
    return min(EPSILON, TAIL_EPSILON * (1.0 - share))


@final
@mypyc_attr(acyclic=True)
class Sample:
    """The ``width`` values up to ``value``; its rank is between theirs and ``delta`` more."""

    __slots__ = ("delta", "value", "width")

    def __init__(self, value: float, width: i64, delta: i64) -> None:
        self.value = value
        self.width: i64 = width
        self.delta: i64 = delta


@final
class TargetedQuantiles:
    """Of all values since ``clear``; ``targets`` are in (0, 1]."""

    def __init__(self, targets: list[float]) -> None:
        self._targets = targets
        self._samples: list[Sample] = []
        self._merged: i64 = 0  # values the samples stand for
        self._buffer: list[float] = []
        self._pure: bool = True  # no summary was merged in

    def count(self) -> i64:
        return self._merged + len(self._buffer)

    def clear(self) -> None:
        self._samples = []
        self._merged = 0
        self._buffer = []
        self._pure = True

    def insert(self, value: float) -> None:
        self._buffer.append(value)
        if len(self._buffer) >= BUFFER_VALUES:
            self.flush()

    def flush(self) -> None:
        """Merge in what waits in the buffer."""
        if self._buffer:
            values = sorted(self._buffer)
            self._buffer = []
            self._join([Sample(value, 1, 0) for value in values])

    def merge(self, other: "TargetedQuantiles") -> None:
        """Take in what the other has; that one stays as it is but for its buffer."""
        self.flush()
        theirs = other.samples()
        if theirs:
            self._join([Sample(one.value, one.width, one.delta) for one in theirs])
            self._pure = False

    def samples(self) -> list[Sample]:
        self.flush()
        return self._samples

    def query(self, share: float) -> float:
        """The value below which that share lies; 0 when there is none."""
        self.flush()
        samples = self._samples
        if not samples:
            return 0.0
        if share == 1.0:
            return samples[len(samples) - 1].value
        rank = math.ceil(share * float(self._merged))
        rank += math.ceil(self._allowance(float(rank)) / 2)
        reached: i64 = 0
        before = samples[0]
        for i in range(1, len(samples)):
            sample = samples[i]
            reached += before.width
            if reached + sample.width + sample.delta > rank:
                return before.value
            before = sample
        return before.value

    # -- inside ----------------------------------------------------------------------------

    def _allowance(self, rank: float) -> float:
        """How many values a sample behind that rank may stand for and be unsure of."""
        total = float(self._merged)
        least = math.inf
        for share in self._targets:
            if share == 1.0:
                continue  # the last sample is the greatest value, whatever was joined
            error = _SLOPE * error_of(share)
            if share * total <= rank:
                allowed = 2 * error * rank / share
            else:
                allowed = 2 * error * (total - rank) / (1.0 - share)
            least = min(least, allowed)
        return least

    def _join(self, theirs: list[Sample]) -> None:
        """Two ascending lists become one; both are used up."""
        ours = self._samples
        joined: list[Sample] = []
        i: i64 = 0
        j: i64 = 0
        while i < len(ours) and j < len(theirs):
            our, their = ours[i], theirs[j]
            if our.value <= their.value:
                joined.append(_between(our, their))
                i += 1
            else:
                joined.append(_between(their, our))
                j += 1
        joined.extend(ours[i:])
        joined.extend(theirs[j:])
        for one in theirs:
            self._merged += one.width
        self._samples = joined
        self._compress()

    def _compress(self) -> None:
        """Join neighbours from the right, as far as the allowance goes."""
        samples = self._samples
        kept: list[Sample] = []
        rank = self._merged
        last = samples[len(samples) - 1]
        rank -= last.width
        for i in range(len(samples) - 2, -1, -1):
            sample = samples[i]
            rank -= sample.width
            if float(sample.width + last.width + last.delta) <= self._allowance(float(rank)):
                last.width += sample.width
            else:
                kept.append(last)
                last = sample
        kept.append(last)
        kept.reverse()
        self._samples = kept

    def check(self) -> None:
        """Assert N1-N3."""
        rank: i64 = 0
        before = -math.inf
        for sample in self._samples:
            assert sample.value >= before, "N1"
            assert sample.width > 0, "N1"
            assert sample.delta >= 0, "N1"
            if self._pure and sample.width + sample.delta > 1:
                assert float(sample.width + sample.delta) <= self._allowance(float(rank)), "N3"
            rank += sample.width
            before = sample.value
        assert rank == self._merged, "N1"
        if self._samples:
            assert self._samples[len(self._samples) - 1].delta == 0, "N2"

    def ranks(self) -> list[tuple[float, int, int]]:
        """Every sample's value with the least and greatest rank it can have; for tests."""
        self.flush()
        found: list[tuple[float, int, int]] = []
        rank: i64 = 0
        for sample in self._samples:
            rank += sample.width
            found.append((sample.value, int(rank), int(rank + sample.delta)))
        return found


def _between(sample: Sample, successor: Sample) -> Sample:
    """It comes before that one of the other summary."""
    sample.delta += successor.width + successor.delta - 1
    return sample


@final
class SlidingQuantiles:
    """Of about the last ``window_ms``; see the head of this file."""

    def __init__(self, targets: list[float], window_ms: i64, now_ms: i64) -> None:
        self.targets = targets
        self._half_ms: i64 = window_ms // 2 if window_ms > 1 else 1
        self._moved_ms: i64 = now_ms
        self._current = TargetedQuantiles(targets)
        self._older = TargetedQuantiles(targets)

    def insert(self, value: float, now_ms: i64) -> None:
        if now_ms - self._moved_ms > self._half_ms:
            self._move(now_ms)
        self._current.insert(value)

    def add_to(self, sum_: TargetedQuantiles, now_ms: i64) -> None:
        """Merge what the window has into that."""
        if now_ms - self._moved_ms > self._half_ms:
            self._move(now_ms)
        sum_.merge(self._older)
        sum_.merge(self._current)

    def _move(self, now_ms: i64) -> None:
        halves = (now_ms - self._moved_ms) // self._half_ms
        self._moved_ms += halves * self._half_ms
        older, self._older = self._older, self._current
        older.clear()
        self._current = older
        if halves > 1:
            self._older.clear()

    def check(self) -> None:
        self._older.check()
        self._current.check()
