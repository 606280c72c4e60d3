"""``StreamQueue``: a queue whose messages stay; each consumer reads all, from its own place.

An acknowledgement, or any other settlement, is credit for one delivery more: nothing comes back,
and nothing goes but by retention.  What a stream does not do is refused here.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import NotImplementedYet, PreconditionFailed
from penstock.core.message import Message
from penstock.core.pending import Pending
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueContext, QueueIdentity
from penstock.queues.limits import QueueLimits
from penstock.queues.queue import CROWDED_BYTES, Queue
from penstock.queues.stream_backing import StreamBacking
from penstock.queues.stream_start import filter_of, start_of
from penstock.streams.cursor import StreamCursor

DELIVER_BYTES_MAX: Final[i64] = 256 * 1024
"""One pass gives a consumer so much, and a block more."""


@final
class StreamQueue(Queue):
    """See the head of this file."""

    def __init__(
        self,
        identity: QueueIdentity,
        backing: StreamBacking,
        context: QueueContext,
    ) -> None:
        super().__init__(identity, backing, context)
        self._stored: StreamBacking = backing
        self._cursors: dict[Consumer, StreamCursor] = {}
        backing.set_reader(self)

    def _refusal(self, verb: str) -> NotImplementedYet:
        return NotImplementedYet(
            f"{verb} not supported by stream queues queue '{self.name}' in vhost '{self.vhost}'"
        )

    # -- publishing ------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        self._stored.publish(messages, now_ms)
        self.statistics.published(len(messages), now_ms)

    def publish_deferred(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        raise self._refusal("delays are")

    def is_crowded(self) -> bool:
        return self._stored.log.pending_bytes() > CROWDED_BYTES

    def is_eased(self) -> bool:
        return self.deleted or self._stored.log.pending_bytes() * 2 < CROWDED_BYTES

    # -- delivering ------------------------------------------------------------------------

    def deliver(self, now_ms: WallMs) -> list[Delivery]:
        self.awake = False
        deliveries: list[Delivery] = []
        if self.deleted:
            return deliveries
        self._stored.retire(now_ms)
        if not self.paused:
            for consumer in self.consumers:
                self._deliver_to(consumer, now_ms, deliveries)
        return deliveries

    def _deliver_to(self, consumer: Consumer, now_ms: WallMs, deliveries: list[Delivery]) -> None:
        cursor = self._cursors[consumer]
        room = consumer.room()
        left = min(consumer.outlet.room_bytes(), DELIVER_BYTES_MAX)
        while room > 0 and cursor.look():
            if left <= 0:
                self.wake()
                break
            messages = cursor.take(room)
            count: i64 = len(messages)
            room -= count
            for message in messages:
                left -= message.size
            consumer.take(count)
            self.unacked_count += count
            self.statistics.delivered(consumer, count, now_ms)
            deliveries.append(Delivery(consumer, messages))
        if cursor.error is not None:
            self._stored.failed(cursor.error, now_ms)

    def get(self, account: Consumer) -> Message | None:
        raise self._refusal("basic.get")

    def spare_room(self) -> i64:
        return 0

    # -- settling --------------------------------------------------------------------------

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        self.statistics.acked(consumer, messages)
        self._credit(consumer, messages)

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        self._credit(consumer, messages)

    def requeue(
        self, consumer: Consumer, messages: list[Message], failed: bool, now_ms: WallMs
    ) -> None:
        self._credit(consumer, messages)

    def give_back(
        self, consumer: Consumer, messages: list[Message], delay_ms: i64, now_ms: WallMs
    ) -> None:
        self._credit(consumer, messages)

    def give_back_all(self, owner: i64) -> None:
        """No delivery has a deadline."""

    def _credit(self, consumer: Consumer, messages: list[Message]) -> None:
        consumer.release(len(messages))
        self.unacked_count -= len(messages)
        if consumer in self._cursors:
            if consumer.nearly_full():
                self.refill()
            else:
                self.wake()

    # -- consumers -------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Raises PreconditionFailed (no prefetch) or NotImplementedYet (no acknowledgements)."""
        what = f"stream queue '{self.name}' in vhost '{self.vhost}'"
        if consumer.prefetch == 0 and consumer.window <= 0 and consumer.shared.limit == 0:
            raise PreconditionFailed(f"consumer prefetch count is not set for {what}")
        if consumer.no_ack:
            raise NotImplementedYet(f"automatic acknowledgement not supported by {what}")
        start = start_of(consumer.arguments, self._context.sampling.book.now_ms)
        if start is None:
            raise PreconditionFailed(f"invalid x-stream-offset for {what}")
        self._cursors[consumer] = StreamCursor(
            self._stored.log, start, filter_of(consumer.arguments)
        )
        consumer.join(self)
        self.consumers.append(consumer)
        self.had_consumer = True
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        consumer.cancel()
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            del self._cursors[consumer]

    @property
    def unused(self) -> bool:
        return False

    # -- time ------------------------------------------------------------------------------

    def use_leases(self) -> bool:
        return False

    def expire(self, now_ms: WallMs) -> None:
        """Let retention take what is too old; readers that were stopped read again in time."""
        if self.deleted:
            return
        self._stored.retire(now_ms)
        if self._stored.may_read_again(now_ms):
            for cursor in self._cursors.values():
                cursor.read_again()
            self.wake()

    def release_due(self, now_ms: WallMs) -> bool:
        return False

    def next_due_ms(self) -> WallMs:
        return self._stored.next_due_ms()

    # -- limits and counts -----------------------------------------------------------------

    def set_limits(self, limits: QueueLimits) -> None:
        self.limits = limits
        if limits.stream is not None:
            self._stored.log.set_limits(limits.stream)
        self.wake()

    def purge(self) -> int | Pending:
        raise self._refusal("queue.purge")

    def empty(self) -> int | Pending:
        raise self._refusal("queue.purge")

    def counts(self) -> tuple[int, int]:
        """As in RabbitMQ, consumers are not counted."""
        return int(self._stored.ready_count()), 0

    # -- its end -----------------------------------------------------------------------------

    def end(self) -> list[Consumer]:
        self.deleted = True
        self._cursors = {}
        self._stored.delete()
        return self.retire()
