"""``DeferredMessages``: delayed messages of a queue (NSQ's REQ, delayed retry), until ready again.

What was delayed for long enough is ready again at the place it had, so it does not wait behind a
backlog; or at the tail, where a reader of ranges may have passed that place and would acknowledge
what it never read: after a start, and once there was one.  Some thousand at a time: ``next_due_ms``
of the queue says when there are more.

Only a plain backing can delay messages, so only a queue that has one may have leases.  A quorum
queue delays them in the backing of each priority.
"""

from typing import final

from mypy_extensions import i64

from penstock.backing.delaying import RELEASED_AT_ONCE
from penstock.backing.interface import BackingQueue
from penstock.core.clock_types import WallMs
from penstock.core.message import Message
from penstock.queues.limiting import QueueLimiter


@final
class DeferredMessages:
    """Of one queue; ``to_tail``: readers by position may have passed what is delayed."""

    def __init__(self, backing: BackingQueue, limiter: QueueLimiter) -> None:
        self.to_tail: bool = False
        self._backing = backing
        self._plain = backing.plain()
        self._may_delay = self._plain is not None
        self._limiter = limiter

    def order_by_priority(self, backing: BackingQueue) -> None:
        """From now on they are in this one, which has that of before as a part."""
        self._backing = backing
        self._plain = None

    def release_to_tail(self) -> None:
        """From now on."""
        self.to_tail = True

    def put(self, messages: list[Message], delay_ms: i64, now_ms: WallMs) -> None:
        """Pending messages are ready after that time, or at the tail at once."""
        if delay_ms > 0:
            self._backing.delay(messages, WallMs(now_ms + delay_ms))
            return
        assert self._plain is not None, "there were leases"
        self._plain.rare().moves.requeue_to_tail(messages, now_ms)
        self._limiter.returned(messages)

    def release(self, now_ms: WallMs) -> i64:
        """Some of what was delayed for long enough is ready; returns how many."""
        if not self._may_delay:
            return self._backing.release_due(now_ms, RELEASED_AT_ONCE)
        count: i64 = 0
        for part in self._backing.parts():
            part.delays.count_bodies(self._limiter.limits_bytes())
            if self.to_tail:
                count += part.delays.release_to_tail(now_ms, RELEASED_AT_ONCE - count)
            else:
                count += part.release_due(now_ms, RELEASED_AT_ONCE - count)
            self._limiter.add_bodies(part.delays.released_body_bytes)
        return count

    def drop(self) -> i64:
        """Returns how many."""
        if not self._may_delay:
            return 0
        return sum(int(part.drop_delayed()) for part in self._backing.parts())
