"""``Latency``: how long messages of one queue took, from when it got them until they were done.

In: messages a consumer is done with, and a little later the time (settling is told none, the pass
over the queue in the same turn is).  Out: quantiles of the milliseconds between.  So everything
counts that lay between: waiting, attempts, retries.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.message import Message
from penstock.core.quantiles import SlidingQuantiles


@final
class Latency:
    """Of one queue, whatever its consumers speak."""

    def __init__(self, targets: list[float], window_ms: i64) -> None:
        self.quantiles = SlidingQuantiles(targets, window_ms, 0)
        self._done: list[int] = []  # when the queue got each of them

    def settled(self, messages: list[Message]) -> None:
        for message in messages:
            if message.enqueued_at_ms > 0:
                self._done.append(int(message.enqueued_at_ms))

    def take_time(self, now_ms: i64) -> None:
        """What was settled since the last time was settled just now."""
        for taken_ms in self._done:
            took_ms = now_ms - taken_ms
            self.quantiles.insert(float(took_ms if took_ms > 0 else 0), now_ms)
        self._done.clear()
