"""How fast a queue moves, and how much of it may stay in memory.

Rates are exponential averages with a half life of 5 s over four streams: messages in, out,
acknowledgements coming due (delivered), acknowledgements given.  From them follows for how
long what is in memory lasts (``duration_s``), and from a duration the node asks for, how
many messages may stay (``target_for``).

One departure: the field's formula has *previous* counts in the numerator and a 4 in the
denominator, and the previous counts are always 0 in its source, so it reports half of what
was meant.  Here it is what was meant: messages in memory over half the sum of the rates.

Facts: VQ-21 to VQ-23 of the classic queue.
"""

from math import exp, log
from typing import Final, final

from mypy_extensions import i64

HALF_LIFE_S: Final = 5.0
INFINITE: Final[i64] = -1
"""As a target: keep everything in memory."""
SLOWEST: Final = 0.01
"""Below this rate (messages per second) a stream stands still."""


@final
class Rates:
    """Counters up, averages out; ``update`` a few times a second at most."""

    def __init__(self) -> None:
        self.in_count: i64 = 0
        self.out_count: i64 = 0
        self.ack_in_count: i64 = 0
        self.ack_out_count: i64 = 0
        self.in_rate: float = 0.0
        self.out_rate: float = 0.0
        self.ack_in_rate: float = 0.0
        self.ack_out_rate: float = 0.0
        self._seen_in: i64 = 0
        self._seen_out: i64 = 0
        self._seen_ack_in: i64 = 0
        self._seen_ack_out: i64 = 0
        self._updated_ms: i64 = 0

    def update(self, now_ms: i64) -> None:
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
        self._seen_in = self.in_count
        self._seen_out = self.out_count
        self._seen_ack_in = self.ack_in_count
        self._seen_ack_out = self.ack_out_count
        self._updated_ms = now_ms

    def acks_grow_faster(self) -> bool:
        """Is the pile of unacknowledged messages growing faster than the queue?"""
        return self.ack_in_rate - self.ack_out_rate > self.in_rate - self.out_rate

    def _sum(self) -> float:
        return self.in_rate + self.out_rate + self.ack_in_rate + self.ack_out_rate

    def duration_s(self, ram_count: i64) -> float:
        """How long so many messages last at these rates; infinity when nothing moves."""
        if (
            self.in_rate < SLOWEST
            and self.out_rate < SLOWEST
            and self.ack_in_rate < SLOWEST
            and self.ack_out_rate < SLOWEST
        ):
            return float("inf")
        return float(int(ram_count)) * 2.0 / self._sum()

    def target_for(self, duration_s: float) -> i64:
        """How many messages may stay in memory so that they last this long; INFINITE = all."""
        if duration_s == float("inf"):
            return INFINITE
        return i64(int(duration_s * self._sum()))

    def describe(self) -> dict[str, float]:
        return {
            "in": round(self.in_rate, 1),
            "out": round(self.out_rate, 1),
            "ack_in": round(self.ack_in_rate, 1),
            "ack_out": round(self.ack_out_rate, 1),
        }


def _mix(rate: float, count: i64, passed_s: float, weight: float) -> float:
    return rate * weight + (float(int(count)) / passed_s) * (1.0 - weight)
