"""How fast a queue moves: what ``queue show`` says of it, and what the memory monitor asks.

Rates are exponential averages with a half life of 5 s over four streams of messages: in, out,
acknowledgements coming due (delivered), acknowledgements given.  A fifth stream is in bytes:
what was handed out and what was acknowledged, each message with its overhead.  A message passes
there twice, once on its way out of the ready ones and once out of memory, so half of it is the
queue's *byte rate*: for ``held bytes / byte rate`` what is in memory lasts.

RabbitMQ has all four rates in this place, in messages (VQ-21 to VQ-23 of the classic queue), and
by a slip reports half of what was meant.  Why ours is another measure, memory_monitor.py says.
"""

from math import exp, log
from typing import Final, final

from mypy_extensions import i64

HALF_LIFE_S: Final = 5.0


@final
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


def _mix(rate: float, count: i64, passed_s: float, weight: float) -> float:
    return rate * weight + (float(int(count)) / passed_s) * (1.0 - weight)
