"""``Latency``: how long messages of one queue took, from their publish until they were done.

In: messages a consumer is done with, and a little later the time (settling is told none, the pass
over the queue in the same turn is).  The time of a publish may be written in the message: the
protocol that reads it hands in a function.  Out: a histogram of the milliseconds between, with all
waiting, attempts and retries.
"""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.counting.histogram import SlidingHistogram
from penstock.core.message import Message

PublishTime = Callable[[Message], int]
"""When a message was published, in milliseconds since 1970."""


def enqueue_time(message: Message) -> int:
    """When its queue took it, which is later for one that went to the tail."""
    return int(message.enqueued_at_ms)


@final
class Latency:
    """Of one queue, whatever its consumers speak."""

    def __init__(self, window_ms: i64, publish_time: PublishTime = enqueue_time) -> None:
        self.times_ms = SlidingHistogram(window_ms)
        self._publish_time = publish_time
        self._done: list[int] = []  # when each of them was published

    def settled(self, messages: list[Message]) -> None:
        for message in messages:
            if message.enqueued_at_ms > 0:
                self._done.append(self._publish_time(message))

    def take_time(self, now_ms: WallMs) -> None:
        """What was settled since the last time was settled just now."""
        for taken_ms in self._done:
            self.times_ms.add(now_ms - taken_ms, now_ms)
        self._done.clear()
