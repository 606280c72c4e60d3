"""How fast a queue moves: what ``queue show`` says of it, and what the memory monitor asks.

Rates are exponential averages with a half life of 5 s over four streams of messages: in, out,
acknowledgements coming due (delivered), acknowledgements given.  A fifth stream is in bytes:
what was handed out and what was acknowledged, each message with its overhead.  A message passes
there twice, once on its way out of the ready ones and once out of memory, so half of it is the
queue's *byte rate*: for ``held bytes / byte rate`` what is in memory lasts.

RabbitMQ has all four rates in this place, in messages (VQ-21 to VQ-23 of the classic queue), and
by a slip reports half of what was meant.  Why ours is another measure, memory_monitor.py says.

``Moves`` counts beside that how many messages went from one state to the next: on the ways down and
back up only, a batch at a time, so a short queue pays nothing for it.
"""

from math import exp, log
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs

HALF_LIFE_S: Final = 5.0
STILL: Final = 0.05
"""So few a second are none: an average by halves never ends."""
PASSED_MAX_MS: Final[i64] = 60_000
"""Moves that were not looked at for so long begin anew: their first rate would be an average of
nothing."""
Q1_TO_BETA: Final = 0  # q1's front to q2, or to q3 where there is no delta
Q4_TO_BETA: Final = 1  # q4's end to q3
BETA_TO_GAMMA: Final = 2  # got a record in a segment because they rest
Q2_TO_DELTA: Final = 3
Q3_TO_DELTA: Final = 4
PUBLISH_TO_DELTA: Final = 5  # published to a lazy queue
DELTA_TO_Q3: Final = 6  # loaded ahead of consumers
Q2_TO_Q3: Final = 7  # delta came to its end
Q1_TO_Q4: Final = 8  # nothing was left between them
PENDING_TO_DISK: Final = 9  # handed out, and their contents left memory
MOVE_NAMES: Final = (
    "q1_to_beta",
    "q4_to_beta",
    "beta_to_gamma",
    "q2_to_delta",
    "q3_to_delta",
    "publish_to_delta",
    "delta_to_q3",
    "q2_to_q3",
    "q1_to_q4",
    "pending_to_disk",
)
MOVES: Final = 10


@final
@mypyc_attr(acyclic=True)
class Rates:
    """Counters up, averages out; ``update`` a few times a second at most."""

    def __init__(self) -> None:
        self.in_count: i64 = 0
        self.out_count: i64 = 0
        self.ack_in_count: i64 = 0
        self.ack_out_count: i64 = 0
        self.left_bytes: i64 = 0  # handed out, and once more when acknowledged
        self.in_rate: float = 0.0
        self.out_rate: float = 0.0
        self.ack_in_rate: float = 0.0
        self.ack_out_rate: float = 0.0
        self.left_rate: float = 0.0
        self._seen_in: i64 = 0
        self._seen_out: i64 = 0
        self._seen_ack_in: i64 = 0
        self._seen_ack_out: i64 = 0
        self._seen_left: i64 = 0
        self._updated_ms = WallMs(0)

    def stood_until(self, now_ms: WallMs) -> None:
        """Nothing moved until then, and rates were not brought up to date."""
        if 0 < self._updated_ms < now_ms:
            self._updated_ms = now_ms

    def is_still(self) -> bool:
        """Are all rates 0, and will they be so at the next update?"""
        seen = (
            self.in_count == self._seen_in
            and self.out_count == self._seen_out
            and self.ack_in_count == self._seen_ack_in
            and self.ack_out_count == self._seen_ack_out
            and self.left_bytes == self._seen_left
        )
        rates = self.in_rate == 0.0 and self.out_rate == 0.0 and self.left_rate == 0.0
        return seen and rates and self.ack_in_rate == 0.0 and self.ack_out_rate == 0.0

    def handed_out(self, count: i64, size: i64) -> None:
        """So many are pending now; below 0: so many are ready again, as if they never were."""
        self.out_count += count
        self.ack_in_count += count
        self.left_bytes += size

    def dropped(self, count: i64) -> None:
        """So many are ready no more, and no consumer has them."""
        self.out_count += count

    def update(self, now_ms: WallMs) -> None:
        passed_ms = now_ms - self._updated_ms
        if self._updated_ms == 0 or passed_ms < 0:
            self._updated_ms = now_ms
            passed_ms = 0
        if passed_ms == 0:
            return
        passed_s = float(int(passed_ms)) / 1000.0
        weight = exp(passed_s * log(0.5) / HALF_LIFE_S)
        self.in_rate = _mix(self.in_rate, self.in_count - self._seen_in, passed_s, weight)
        self.out_rate = _mix(self.out_rate, self.out_count - self._seen_out, passed_s, weight)
        self.ack_in_rate = _mix(
            self.ack_in_rate, self.ack_in_count - self._seen_ack_in, passed_s, weight
        )
        self.ack_out_rate = _mix(
            self.ack_out_rate, self.ack_out_count - self._seen_ack_out, passed_s, weight
        )
        self.left_rate = _mix(self.left_rate, self.left_bytes - self._seen_left, passed_s, weight)
        self._seen_in = self.in_count
        self._seen_out = self.out_count
        self._seen_ack_in = self.ack_in_count
        self._seen_ack_out = self.ack_out_count
        self._seen_left = self.left_bytes
        self._updated_ms = now_ms

    def acks_grow_faster(self) -> bool:
        """Is the pile of unacknowledged messages growing faster than the queue?"""
        return self.ack_in_rate - self.ack_out_rate > self.in_rate - self.out_rate

    def byte_rate(self) -> i64:
        """Bytes that leave in a second."""
        return i64(int(self.left_rate / 2.0)) if self.left_rate > 0.0 else 0

    def duration_s(self, held_bytes: i64) -> float:
        """For how long that lasts; infinity when nothing moves."""
        rate = self.byte_rate()
        return float(int(held_bytes)) / float(int(rate)) if rate > 0 else float("inf")

    def describe(self) -> dict[str, float]:
        return {
            "in": round(self.in_rate, 1),
            "out": round(self.out_rate, 1),
            "ack_in": round(self.ack_in_rate, 1),
            "ack_out": round(self.ack_out_rate, 1),
        }


@final
@mypyc_attr(acyclic=True)
class Moves:
    """Messages that changed their state since the queue was opened, and how many a second do."""

    def __init__(self) -> None:
        self._counts: list[int] = [0] * MOVES
        self._seen: list[int] = [0] * MOVES
        self._rates: list[float] = [0.0] * MOVES
        self._moved: bool = False  # since the rates were brought up to date
        self._resting: bool = True
        self._updated_ms = WallMs(0)

    def count(self, move: i64, count: i64) -> None:
        """``move`` is a place in ``MOVE_NAMES``."""
        self._counts[move] += int(count)
        self._moved = True

    def stood_until(self, now_ms: WallMs) -> None:
        """As of ``Rates``."""
        self._updated_ms = now_ms

    def is_still(self) -> bool:
        return self._resting and not self._moved

    def update(self, now_ms: WallMs) -> None:
        """A few times a second at most; costs nothing while nothing moves."""
        passed_ms = now_ms - self._updated_ms
        self._updated_ms = now_ms
        if self.is_still():
            return
        if passed_ms <= 0 or passed_ms > PASSED_MAX_MS:
            return
        self._moved = False
        self._mix_in(float(int(passed_ms)) / 1000.0)

    def _mix_in(self, passed_s: float) -> None:
        weight = exp(passed_s * log(0.5) / HALF_LIFE_S)
        resting = True
        for place in range(MOVES):
            count: i64 = self._counts[place] - self._seen[place]
            rate = _mix(self._rates[place], count, passed_s, weight)
            if rate != 0.0:
                resting = False
            self._rates[place] = rate
        self._seen = self._counts[:]
        self._resting = resting

    def describe(self) -> dict[str, dict[str, float]]:
        """By name: how many, and how many a second."""
        found: dict[str, dict[str, float]] = {}
        for place in range(MOVES):
            rate = round(self._rates[place], 1)
            found[MOVE_NAMES[place]] = {"count": self._counts[place], "rate": rate}
        return found


def _mix(rate: float, count: i64, passed_s: float, weight: float) -> float:
    mixed = rate * weight + (float(int(count)) / passed_s) * (1.0 - weight)
    return 0.0 if -STILL < mixed < STILL else mixed
