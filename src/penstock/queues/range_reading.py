"""``RangeReading``: what a reader of ranges asks of a queue, which it has to itself meanwhile.

    open, is_current, close           its right to the queue, under a token (``range_lease.py``)
    drop_below, drop_step, drop_some  messages that it has read end, without a delivery

It is made for one call, so a queue that no reader has pays nothing for it.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.errors import ResourceLocked
from penstock.queues.deferring import DeferredMessages
from penstock.queues.limiting import QueueLimiter
from penstock.queues.queue import JUST_USED, Queue
from penstock.queues.range_lease import RangeLease
from penstock.queues.stream_feed import StreamFeed


@final
class RangeReading:
    def __init__(
        self,
        queue: Queue,
        lease: RangeLease,
        feed: StreamFeed | None,
        limiter: QueueLimiter,
        deferred: DeferredMessages,
    ) -> None:
        self._queue = queue
        self._lease = lease
        self._feed = feed
        self._limiter = limiter
        self._deferred = deferred

    def open(self, token: int = 0) -> int:
        """Give the queue to a reader of ranges and fence off older ones; ``token``: as before.

        Raises ResourceLocked when it has consumers.
        """
        queue = self._queue
        if len(queue.consumers) > 0:
            raise ResourceLocked(
                f"queue '{queue.name}' in vhost '{queue.vhost}' has consumers: it can be "
                "browsed, but not read and acknowledged as a table"
            )
        if self._feed is not None:
            raise ResourceLocked(
                f"queue '{queue.name}' in vhost '{queue.vhost}' takes its messages from a stream:"
                " read that as a table"
            )
        self._deferred.release_to_tail()
        return int(self._lease.open(token))

    def is_current(self, token: int) -> bool:
        return self._lease.held and not self._queue.deleted and self._lease.token == token

    def close(self, token: int) -> None:
        if self._lease.held and self._lease.token == token:
            self._lease.close()
            self._queue.used(JUST_USED)
            self._queue.wake()

    def drop_below(self, seq_id: int) -> int:
        return self._dropped(self._queue.backing.drop_below(seq_id))

    def drop_step(self, below: int, most: int) -> int:
        return self._dropped(self._queue.backing.drop_step(below, most))

    def drop_some(self, seq_ids: list[int]) -> int:
        return self._dropped(self._queue.backing.drop_some(seq_ids))

    def _dropped(self, count: i64) -> int:
        self._limiter.shrink()
        self._queue.statistics.dropped_read(count)
        return int(count)
