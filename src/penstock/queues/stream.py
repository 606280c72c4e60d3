"""``StreamQueue``: a queue whose messages stay; each consumer reads all, from its own place.

Readers for which something may be at hand are in a ring, the others aside: without room, while a
read is under way for them, or until the disk has more.  An acknowledgement moves one of them.

An acknowledgement, or any other settlement, is credit for one delivery more: nothing comes back,
and nothing goes but by retention.  What a stream does not do is refused here.

The position of a consumer that asks for it is kept by its tag (``streams/reader.py``): in memory
at once, on disk ``KEEP_MS`` later, for all consumers of the stream in one block.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import NotImplementedYet, PreconditionFailed
from penstock.core.message import Message
from penstock.core.pending import Pending
from penstock.core.turn_share import TurnShare
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer, ConsumerRing
from penstock.queues.context import QueueContext, QueueIdentity
from penstock.queues.limits import QueueLimits
from penstock.queues.queue import CROWDED_BYTES, Queue
from penstock.queues.range_groups import RangeGroups
from penstock.queues.refusals import not_for_streams
from penstock.queues.sampling import ACKED, REJECTED, RETURNED
from penstock.queues.stream_backing import StreamBacking
from penstock.queues.stream_feed import StreamFeed
from penstock.queues.stream_start import (
    TRACKING_ARGUMENT,
    channel_start,
    filter_of,
    header_filter_of,
    kept_name,
    start_of,
)
from penstock.streams.cursor import FIRST, NEXT, OFFSET, Start, StreamCursor
from penstock.streams.log import StreamLog
from penstock.streams.marks import POSITIONS_MAX
from penstock.streams.reader import StreamReader

TURN_BYTES: Final[i64] = 1024 * 1024
BESIDE_PUBLISHERS_BYTES: Final[i64] = 256 * 1024
"""All consumers together get so much, and a block more, in a turn (``core/turn_share.py``)."""
READER_BYTES: Final[i64] = 256 * 1024
"""And one of them so much, and a block more, before the next one: what several get of a block, and
the output of each, is still in the processor's cache then."""
READERS_AT_ONCE: Final[i64] = 256
"""One pass looks at so many of them."""
READS_AT_ONCE: Final[i64] = 8
"""Of all consumers: what they bring waits in memory."""
MESSAGE_COST_BYTES: Final[i64] = 32
"""As which a message counts beside its content."""
KEPT_WHOLE_BYTES: Final[i64] = 4 * 1024 * 1024
"""Once a consumer holds about so much, its deliveries are kept without their contents: the stream
has them, and settles by offset."""
KEEP_MS: Final[i64] = 1000
"""Positions that move are written so often at most."""


@final
class StreamQueue(Queue):
    def __init__(
        self, identity: QueueIdentity, backing: StreamBacking, context: QueueContext
    ) -> None:
        super().__init__(identity, backing, context)
        self._stored: StreamBacking = backing
        self._readers: dict[Consumer, StreamReader] = {}
        self._feeds: dict[str, StreamFeed] = {}  # by the names of the queues that take from it
        self._ring = ConsumerRing()  # those for which something may be at hand
        self._reading: dict[Consumer, None] = {}  # for them it is on its way from disk
        self._idle: dict[Consumer, None] = {}  # for them there is nothing before the disk has more
        self._share: TurnShare = TurnShare(TURN_BYTES, BESIDE_PUBLISHERS_BYTES)
        self._moved: bool = False  # positions of named ones
        self._keep_at_ms: WallMs = WallMs(0)
        if context.sampling.book.directory != "":
            self.statistics.start_sampling(context.sampling, self.vhost, self.name, True)
        backing.set_reader(self)

    def _refusal(self, verb: str) -> NotImplementedYet:
        return not_for_streams(verb, self.name, self.vhost)

    # -- publishing ------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        if self.mirrors is not None:
            for message in messages:
                message.keep()  # all wait for the disks of the mirrors
            if not self.mirrors.note(messages):
                return
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
        self.begin_turn()
        deliveries: list[Delivery] = []
        if self.deleted:
            return deliveries
        self._stored.retire(now_ms)
        self._look_at_feeds()
        self._keep_positions(now_ms)
        if not self.paused:
            self._deliver(now_ms, deliveries)
        return deliveries

    def _deliver(self, now_ms: WallMs, deliveries: list[Delivery]) -> None:
        """To readers in turn, until their share of the turn is used up."""
        turn = self._context.book.turns
        for _ in range(READERS_AT_ONCE):
            left = self._share.left(turn, self.publishers_wait())
            consumer = self._ring.take() if left > 0 else None
            if consumer is None:
                break
            if len(self._reading) < READS_AT_ONCE or self._readers[consumer].cursor.blocks():
                taken = self._deliver_to(consumer, min(left, READER_BYTES), now_ms, deliveries)
                self._share.spend(taken)
            else:
                self._idle[consumer] = None
        if self._ring.has_room():
            self.wake()

    def _deliver_to(
        self, consumer: Consumer, most: i64, now_ms: WallMs, deliveries: list[Delivery]
    ) -> i64:
        """What it has room for, about ``most`` bytes of it; returns how many these were."""
        reader = self._readers[consumer]
        cursor = reader.cursor
        room = consumer.room()
        most = min(most, max(consumer.outlet.room_bytes(), 1))
        taken: i64 = 0
        while room > 0 and taken < most:
            if not cursor.look():
                self._put_aside(consumer, cursor)
                return taken
            messages = reader.take(room)
            count: i64 = len(messages)
            taken += reader.taken_bytes + count * MESSAGE_COST_BYTES
            if count == 0:
                continue
            room -= count
            consumer.take(count)
            self.unacked_count += count
            if reader.name != "":
                reader.took(messages)
            self.statistics.delivered(consumer, count, now_ms)
            sampler = self.statistics.sampler
            if sampler is not None and self.statistics.delivered_count >= sampler.due:
                self._sample(consumer, messages)
            kept = messages
            if consumer.outstanding * reader.taken_bytes > KEPT_WHOLE_BYTES * count:
                kept = [message.without_content() for message in messages]
            deliveries.append(Delivery(consumer, messages, 0, kept))
        self._ring.add(consumer)
        return taken

    def _put_aside(self, consumer: Consumer, cursor: StreamCursor) -> None:
        """Nothing is at hand for it."""
        if cursor.error is not None:
            self._stored.failed(cursor.error)
        if cursor.is_reading():
            self._reading[consumer] = None
        elif cursor.passing:
            self._ring.add(consumer)
        else:
            self._idle[consumer] = None

    def disk_came(self) -> None:
        """A read is done, or more of the stream is on disk: it may be for any reader.

        What was read is taken over by readers without room too: their cache bounds it.
        """
        for consumer in list(self._reading):
            cursor = self._readers[consumer].cursor
            cursor.look()
            if cursor.error is not None or not cursor.is_reading():
                del self._reading[consumer]
                self._ring.put_first([consumer])
        self._ring.put_last(list(self._idle))
        self._idle = {}
        self.wake()

    def room_came(self, consumer: Consumer) -> None:
        self._end_rest(consumer)
        self.wake()

    def _end_rest(self, consumer: Consumer) -> None:
        if consumer.resting:
            consumer.end_rest()
            self._ring.add(consumer)

    def _sample(self, consumer: Consumer, messages: list[Message]) -> None:
        """The sample is an object of its own: other consumers settle the shared one, too."""
        place = len(messages) // 2
        messages[place] = messages[place].separated()
        self.statistics.sample(consumer, messages)

    def get(self, account: Consumer) -> Message | None:
        raise self._refusal("basic.get")

    def spare_room(self, wanted: i64) -> i64:
        return 0

    # -- settling --------------------------------------------------------------------------

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        self.statistics.acked(consumer, messages)
        self._credit(consumer, messages, ACKED)

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        self._credit(consumer, messages, REJECTED)

    def requeue(self, given: dict[Consumer, list[Message]], failed: bool, now_ms: WallMs) -> None:
        for consumer, messages in given.items():
            self._credit(consumer, messages, RETURNED)

    def give_back(
        self, consumer: Consumer, messages: list[Message], delay_ms: i64, now_ms: WallMs
    ) -> None:
        self._credit(consumer, messages, RETURNED)

    def give_back_all(self, owner: i64) -> None:
        """No delivery has a deadline."""

    def _credit(self, consumer: Consumer, messages: list[Message], outcome: str) -> None:
        self.statistics.settled(messages, outcome)
        consumer.release(len(messages))
        self.unacked_count -= len(messages)
        self._end_rest(consumer)
        reader = self._readers.get(consumer)
        if reader is None:
            return
        if reader.name != "":
            reader.settled(messages, outcome == RETURNED)
            self._moved = True
        if consumer not in self.consumers:
            self._leave(consumer)
        elif consumer.nearly_full():
            self.refill()
        else:
            self.wake()

    # -- consumers -------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Raises PreconditionFailed (its prefetch, offset or position) or NotImplementedYet."""
        what = f"stream queue '{self.name}' in vhost '{self.vhost}'"
        if consumer.prefetch == 0 and consumer.window <= 0 and consumer.shared.limit == 0:
            raise PreconditionFailed(f"consumer prefetch count is not set for {what}")
        if consumer.no_ack:
            raise NotImplementedYet(f"automatic acknowledgement not supported by {what}")
        name = kept_name(consumer.tag, consumer.arguments)
        if name is None:
            raise PreconditionFailed(
                f"invalid arg '{TRACKING_ARGUMENT}' for {what}: the consumer tag is the server's"
            )
        start = self._start_of(consumer, name)
        if start is None:
            raise PreconditionFailed(f"invalid x-stream-offset for {what}")
        if name != "":
            self.check_room(name)
        cursor = StreamCursor(self.log, start, filter_of(consumer.arguments))
        headers = header_filter_of(consumer.arguments, self._stored.reader)
        reader = StreamReader(name, cursor, headers)
        self._readers[consumer] = reader
        if name != "":
            reader.report(self.log.marks.positions)
            self._moved = True
        consumer.join(self)
        self.consumers[consumer] = None
        self._ring.add(consumer)
        self.had_consumer = True
        self.wake()

    def check_room(self, name: str) -> None:
        """For one more position; raises PreconditionFailed."""
        if not self.log.marks.positions.has_room(name):
            what = f"stream queue '{self.name}' in vhost '{self.vhost}'"
            raise PreconditionFailed(
                f"{int(POSITIONS_MAX)} positions of consumers are kept for {what}: delete some"
            )

    def _start_of(self, consumer: Consumer, name: str) -> Start | None:
        """A position that is kept comes before what its arguments say; None = they say nothing."""
        if name != "":
            self._report()
            self._moved = True
            kept = self.log.marks.positions.find(name)
            if kept is not None:
                return Start(OFFSET, kept.number)
        return start_of(consumer.arguments, self._context.sampling.book.now_ms)

    def remove_consumer(self, consumer: Consumer) -> None:
        consumer.cancel()
        if consumer in self.consumers:
            del self.consumers[consumer]
            self._ring.cancel_one()
            self._leave(consumer)

    def _leave(self, consumer: Consumer) -> None:
        """A consumer that was cancelled may still settle what it holds: its position follows."""
        reader = self._readers.get(consumer)
        if reader is None:
            return
        self._reading.pop(consumer, None)
        self._idle.pop(consumer, None)
        reader.cursor.close()
        if reader.name != "":
            self._moved = True
            self.wake()
            if consumer.outstanding > 0:
                return
            reader.report(self.log.marks.positions)
            self._keep_at_ms = WallMs(0)
        del self._readers[consumer]

    def _report(self) -> None:
        positions = self.log.marks.positions
        for reader in self._readers.values():
            if reader.name != "":
                reader.report(positions)
        for feed in self._feeds.values():
            feed.report(positions)

    def _keep_positions(self, now_ms: WallMs) -> None:
        """Unless that was a moment ago; a clock that goes back does not put it off."""
        if not self._moved or 0 < self._keep_at_ms - now_ms <= KEEP_MS:
            return
        self.keep_positions()
        self._keep_at_ms = WallMs(now_ms + KEEP_MS)

    def keep_positions(self) -> None:
        """As they are now, with the next group."""
        self._report()
        self._stored.keep_positions()
        self._moved = any(feed.moved for feed in self._feeds.values())

    @property
    def unused(self) -> bool:
        return False

    @property
    def log(self) -> StreamLog:
        return self._stored.log

    def publishers_wait(self) -> bool:
        """Of this node, for something that is not on disk yet."""
        return not self._stored.journal.is_on_disk()

    def cursor_of(self, consumer: Consumer) -> StreamCursor:
        """Of one that is here."""
        return self._readers[consumer].cursor

    def forget_position(self, name: str) -> bool:
        """What is kept by this name; True = something was."""
        return self._stored.forget_position(name)

    @property
    def groups(self) -> RangeGroups:
        return self._stored.groups

    # -- queues that take from it ----------------------------------------------------------

    def feed(self, queue: Queue, told: str, alone: bool) -> StreamFeed:
        """For that queue, from its position if one is kept.

        ``told``: where it begins else (``channel_start``); "" = with the oldest message if it is
        ``alone``, without other channels, and with the next one if not.
        """
        start = channel_start(told, self._context.sampling.book.now_ms)
        if start is None:
            start = Start(FIRST if alone else NEXT)
        kept = self.log.marks.positions.find(queue.name) if queue.durable else None
        if kept is not None:
            start = Start(OFFSET, kept.number)
        feed = StreamFeed(self, queue, self.log, self._stored.journal, start)
        self._feeds[queue.name] = feed
        self._keep_at_ms = WallMs(0)  # before anything is published that it is to get
        self.wake()
        return feed

    def end_feed(self, queue: Queue) -> None:
        """That queue takes nothing more, and its position is forgotten."""
        feed = self._feeds.pop(queue.name, None)
        if feed is not None:
            feed.close()
            if not self.deleted:
                self.forget_position(queue.name)

    def _look_at_feeds(self) -> None:
        for feed in self._feeds.values():
            feed.look()
            self._moved = self._moved or feed.moved
            if feed.cursor.error is not None:
                self._stored.failed(feed.cursor.error)

    # -- time ------------------------------------------------------------------------------

    def use_leases(self) -> bool:
        return False

    def expire(self, now_ms: WallMs) -> i64:
        """Let retention take what is too old; readers that were stopped read again in time."""
        if self.deleted:
            return 0
        self._stored.retire(now_ms)
        self._keep_positions(now_ms)
        if self._stored.may_read_again(now_ms):
            for reader in self._readers.values():
                reader.cursor.read_again()
            for feed in self._feeds.values():
                feed.cursor.read_again()
            self.disk_came()
        return 0

    def release_due(self, now_ms: WallMs) -> i64:
        return 0

    def next_due_ms(self) -> WallMs:
        due_ms = self._stored.next_due_ms()
        if self._moved and (due_ms == 0 or self._keep_at_ms < due_ms):
            return self._keep_at_ms
        return due_ms

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
        self.hand_over()
        self._stored.delete()
        return self.retire()

    def hand_over(self) -> None:
        self.mirrors = None
        self.deleted = True
        for reader in self._readers.values():
            reader.cursor.close()
        self._readers = {}
        self._reading = {}
        self._idle = {}

    def check(self) -> None:
        super().check()
        resting = [one for one in self.consumers if one.resting]
        there = [*self._ring.in_turn(), *self._reading, *self._idle, *resting]
        assert len(there) == len(self.consumers), "a reader is in one place"
        assert set(there) == set(self.consumers), "and each is in one"
