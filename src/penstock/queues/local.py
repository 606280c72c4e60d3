"""``LocalQueue``: a queue whose messages are on this node, and their way to consumers.

    ConsumerGroups    whose turn it is           (``consumers.py``)
    QueueLimiter      which messages die         (``limiting.py``)
    DeferredMessages  what waits for its time    (``deferring.py``)
    Leases            deliveries with deadlines  (``leases.py``)
    RangeReading      a reader of ranges         (``range_reading.py``)
    Purge             of very many messages      (``purging.py``)
    StreamFeed        what is still in a stream  (``stream_feed.py``)

With leases it counts every attempt to deliver a message, to any consumer, and gives it again, at
the tail, when its time is over.  Where the queue is ``scanned``, the scan loop asks for that
(``release_due``).  A message that comes back was tried too often when the queue has a
``delivery_limit`` and its attempts are over it: then it dies.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.backing.message_deque import ascending
from penstock.backing.priorities import PriorityBacking, quorum_priorities
from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused
from penstock.core.letters import REJECTED
from penstock.core.long_work import AT_ONCE, Freeing
from penstock.core.message import PRIORITY_BITS, Message, attempts_of, mark_redelivered
from penstock.core.pending import Pending, ask_again
from penstock.queues.allocator import (
    DELIVER_BYTES_MAX,
    DELIVER_MESSAGES_MAX,
    DELIVERIES_AT_ONCE,
    Delivery,
    RoundRobinAllocator,
    is_late,
    stamp,
)
from penstock.queues.consumers import Consumer, ConsumerGroups, PriorityGroup
from penstock.queues.context import QUORUM, QueueContext, QueueIdentity, queue_type
from penstock.queues.deferring import DeferredMessages
from penstock.queues.leases import Leases
from penstock.queues.limiting import QueueLimiter
from penstock.queues.limits import QueueLimits, RetryDelays
from penstock.queues.purging import Purge
from penstock.queues.queue import CROWDED_BYTES, Queue
from penstock.queues.range_lease import RangeLease
from penstock.queues.range_reading import RangeReading
from penstock.queues.refusals import check_going, leased
from penstock.queues.sampling import REJECTED as SAMPLE_REJECTED
from penstock.queues.stream_feed import StreamFeed

TIMED_OUT_AT_ONCE: Final[i64] = 512
"""Each is put back, recorded, and delivered again in the same turn."""
LATE_AT_ONCE: Final[i64] = 1024
"""Over their time at the head: a pass that has met so many leaves the rest to the next."""
SINGLE_ACTIVE: Final = "x-single-active-consumer"


@final
class LocalQueue(Queue):
    def __init__(
        self, identity: QueueIdentity, backing: BackingQueue, context: QueueContext
    ) -> None:
        super().__init__(identity, backing, context)
        self.range_lease = RangeLease()
        self._quorum: Final = queue_type(identity.arguments) == QUORUM
        self.feed: StreamFeed | None = None  # its messages come from a stream
        self._defers: bool = False  # something may be delayed, or in flight with a deadline
        self._holds: i64 = 0  # of those who give it messages back in shares of a turn
        self._head_away: bool = False  # it is over its time, and on its way from disk
        self._spare: i64 = 0  # room of consumers, counted since the last pass for publishes
        self._spare_wanted: i64 = 0  # it is more, if it is so much
        self._groups = ConsumerGroups(identity.arguments.get(SINGLE_ACTIVE) is True)
        self._own_limiter: QueueLimiter | None = None
        self._own_deferred: DeferredMessages | None = None
        self._retries: Final = self._quorum and backing.plain() is not None
        if context.sampling.book.directory != "":
            self.statistics.start_sampling(context.sampling, self.vhost, self.name)
        backing.set_reader(self)

    # -- parts that are made when they are needed ------------------------------------------

    @property
    def _limiter(self) -> QueueLimiter:
        if self._own_limiter is None:
            self._own_limiter = QueueLimiter(self, self._context)
        return self._own_limiter

    @property
    def _deferred(self) -> DeferredMessages:
        if self._own_deferred is None:
            self._own_deferred = DeferredMessages(self.backing, self._limiter)
        return self._own_deferred

    # -- publishing ------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        limits = self.limits
        if self._quorum:
            self._keep(messages)
        if limits.message_ttl_ms >= 0:
            stamp(messages, WallMs(now_ms + limits.message_ttl_ms))
        if self.mirrors is not None and not self.mirrors.note(messages):
            return
        self.backing.publish(messages, now_ms)
        self.statistics.published(len(messages), now_ms)
        if limits.max_length_bytes >= 0:
            self._limiter.count_bodies(messages, 1)
        if limits.drops and self.spare_room(1) == 0:
            self._limiter.drop_over_limit()  # else when consumers have had their turn
        self.wake()
        if self.backing.may_expire() and self.backing.next_expiry_ms() == now_ms:
            self._context.urgent[self] = None

    def publish_deferred(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        limits = self.limits
        if self._quorum:
            self._keep(messages)
        if limits.message_ttl_ms >= 0:
            stamp(messages, WallMs(until_ms + limits.message_ttl_ms))
        if self.mirrors is not None and not self.mirrors.note(messages):
            return
        self.backing.publish_delayed(messages, until_ms, now_ms)
        self._defers = True
        self.statistics.published(len(messages), now_ms)
        self.wake()

    def _keep(self, messages: list[Message]) -> None:
        """A quorum queue keeps them on disk, and orders by priority since one of them names one.

        While a reader goes by positions, or deliveries have deadlines, where duplicates are
        dropped, and where it has copies, they go with those that name none.
        """
        flags: i64 = 0
        for message in messages:
            message.keep()
            flags |= message.flags
        if flags & PRIORITY_BITS == 0:
            return
        by_position = self.range_lease.held or self.leases is not None
        if by_position or self.mirrors is not None or not self._order_by_priority():
            for message in messages:
                message.forget_priority()

    def _order_by_priority(self) -> bool:
        """From now on; False where its backing cannot."""
        if isinstance(self.backing, PriorityBacking):
            return self.backing.keys() is None
        normal = self.backing.plain()
        if normal is None:
            return False
        backing = quorum_priorities(normal)
        backing.set_reader(self)
        deferred = self._deferred  # of the backing that it had
        self.backing = backing
        self._limiter.order_by_priority(backing)
        deferred.order_by_priority(backing)
        return True

    def open_priority(self, priority: int) -> None:
        """Before messages of that priority are found at the start."""
        if self._order_by_priority():
            assert isinstance(self.backing, PriorityBacking)
            self.backing.part_of(priority)

    def overflowing(self, messages: list[Message]) -> set[int]:
        wanted = self._limiter.not_fitting(len(messages))
        if wanted > self._spare >= self._spare_wanted:
            self._spare_wanted = 2 * wanted
            self._spare = self.spare_room(self._spare_wanted)
        return self._limiter.overflowing(messages, self._spare)

    def refuse(self, messages: list[Message]) -> None:
        self._limiter.refuse(messages)

    def is_crowded(self) -> bool:
        return len(self.consumers) > 0 and self.backing.ready_bytes() > CROWDED_BYTES

    def is_eased(self) -> bool:
        return self.deleted or self.backing.ready_bytes() * 2 < CROWDED_BYTES

    # -- delivering ------------------------------------------------------------------------

    def deliver(self, now_ms: WallMs) -> list[Delivery]:
        self.begin_turn()
        self._head_away = False
        self._count_spare_anew()
        statistics = self.statistics
        if statistics.latency is not None:
            statistics.latency.take_time(now_ms)
        if self.deleted or self._holds > 0:
            return []
        deliveries: list[Delivery] = []
        if len(self.consumers) > 0 and not self.paused:
            if self.feed is not None:
                self._take_from_stream(self.feed, self.spare_room(DELIVER_MESSAGES_MAX), now_ms)
            deliveries = self._deliver(now_ms)
            if deliveries:
                if statistics.returned_count > 0:
                    deliveries = [
                        Delivery(one.consumer, one.messages, statistics.again(one.messages))
                        for one in deliveries
                    ]
                    statistics.limit_returned(self._returnable_count())
                if self.leases is not None:
                    for delivery in deliveries:
                        if not delivery.consumer.no_ack:
                            self._count_attempts(delivery.messages)
                sampler = statistics.sampler
                if sampler is not None and statistics.delivered_count >= sampler.due:
                    last = deliveries[len(deliveries) - 1]
                    statistics.sample(last.consumer, last.messages)
        if self.limits.drops:
            self._limiter.drop_over_limit()
        left = not self.awake and self.backing.ready_count() > 0
        statistics.capacity.note(left and self.spare_room(1) == 0, now_ms)
        return deliveries

    def _take_from_stream(self, feed: StreamFeed, room: i64, now_ms: WallMs) -> None:
        """As many as there is room for, of one block; then it asks for a turn and takes more."""
        missing = min(room, DELIVER_MESSAGES_MAX) - self.backing.ready_count()
        messages = feed.take(missing) if missing > 0 else []
        if len(messages) > 0:
            self.publish(messages, now_ms)
            feed.took()

    def feed_from(self, feed: StreamFeed | None) -> None:
        """Its messages come from there from now on; None = they are published to it."""
        self.feed = feed
        self.wake()

    def spare_room(self, wanted: i64) -> i64:
        return 0 if self.paused else self._groups.room(wanted)

    def _count_spare_anew(self) -> None:
        self._spare = 0
        self._spare_wanted = 0

    def room_came(self, consumer: Consumer) -> None:
        self._count_spare_anew()
        if consumer.resting:
            self._groups.come_back(consumer)
        self.wake()

    def _deliver(self, now_ms: WallMs) -> list[Delivery]:
        groups = self._groups
        if groups.sole is not None:
            return self._deliver_to(groups.sole, now_ms)
        deliveries: list[Delivery] = []
        while len(deliveries) < DELIVERIES_AT_ONCE and self.backing.ready_count() > 0:
            group = groups.first()
            if group is None:
                return deliveries
            dealt = self._deal(group, DELIVERIES_AT_ONCE - len(deliveries), now_ms)
            deliveries.extend(dealt)
            if len(dealt) == 0:
                return deliveries  # what is ready is on its way from disk
            if group.ring.has_room():
                break  # lower ones only get what these cannot take
        if self.backing.ready_count() > 0 and groups.first() is not None:
            self.wake()
        return deliveries

    def _fetch(self, count: i64, size: i64, now_ms: WallMs) -> list[Message]:
        """From the head; a message whose time passed behind one that lasts is not handed out.

        One whose time comes just now may be: a time to live of 0 means "at once or not at all".
        One that came back had its once.
        """
        if count > DELIVER_MESSAGES_MAX:
            count = DELIVER_MESSAGES_MAX
        if size > DELIVER_BYTES_MAX:
            size = DELIVER_BYTES_MAX
        late_count: i64 = 0
        while late_count < LATE_AT_ONCE:
            messages = self.backing.fetch(count, size)
            if len(messages) > 0 and self.limits.max_length_bytes >= 0:
                self._limiter.count_bodies(messages, -1)
            if len(messages) == 0 or not self.backing.may_expire():
                return messages
            late = [one for one in messages if is_late(one, now_ms)]
            if len(late) == 0:
                return messages
            self._limiter.expired(late)
            if len(late) < len(messages):
                return [one for one in messages if not is_late(one, now_ms)]
            late_count += len(late)
        self.wake()
        return []

    def _deliver_to(self, consumer: Consumer, now_ms: WallMs) -> list[Delivery]:
        room = consumer.room()
        if room == 0:
            return []
        messages = self._fetch(room, consumer.outlet.room_bytes(), now_ms)
        count: i64 = len(messages)
        if count == 0:
            return []
        self.statistics.delivered(consumer, count, now_ms)
        if consumer.no_ack:
            self._let_go(messages)
        else:
            consumer.take(count)
            self.unacked_count += count
        if self.backing.ready_count() > 0 and consumer.room() > 0:
            self.wake()
        return [Delivery(consumer, messages)]

    def _deal(self, group: PriorityGroup, most: i64, now_ms: WallMs) -> list[Delivery]:
        """Message by message to the next consumer that has room, as RabbitMQ deals."""
        ready, size = self.backing.ready_count(), self.backing.ready_bytes()
        dealing = RoundRobinAllocator(group, ready, size, most)
        messages = self._fetch(dealing.messages_wanted, dealing.bytes_wanted, now_ms)
        left = dealing.deal(messages)
        self.unacked_count += dealing.unacked_count
        for place in range(len(dealing.takers)):
            hand = dealing.hands[place]
            if len(hand) > 0:
                consumer = dealing.takers[place]
                self.statistics.delivered(consumer, len(hand), now_ms)
                if consumer.no_ack:
                    self._let_go(hand)
        if len(left) > 0:
            self.backing.unfetch(left)
            if self.limits.max_length_bytes >= 0:
                self._limiter.count_bodies(left, 1)
        return dealing.deliveries(messages)

    def _let_go(self, messages: list[Message]) -> None:
        """Handed to a consumer that acknowledges nothing: done."""
        self.backing.ack(messages)
        latency = self.statistics.latency
        if latency is not None:
            latency.settled(messages)
            self.wake()

    def _count_attempts(self, messages: list[Message]) -> None:
        """They are being handed out."""
        for message in messages:
            message.tried()
        self.backing.note_attempts(messages)

    def get(self, account: Consumer) -> Message | Pending | None:
        if self.range_lease.held:
            raise leased(self.name, self.vhost)
        if self.paused:
            return None
        if self._holds > 0:
            return Pending(None, ask_again)
        feed = self.feed
        if feed is not None:
            self._take_from_stream(feed, 1, self._context.sampling.book.now_ms)
        messages = self.backing.fetch(1, 0)
        if len(messages) == 0 and (
            self.backing.ready_count() > 0 or (feed is not None and feed.has_more())
        ):
            check_going(self.backing, self.name, self.vhost)
            return Pending(None, ask_again)
        statistics = self.statistics
        if len(messages) == 0:
            statistics.found_nothing()
            return None
        if self.limits.max_length_bytes >= 0:
            self._limiter.count_bodies(messages, -1)
        statistics.got(account)
        if account.no_ack:
            self._let_go(messages)
        else:
            account.take(1)
            self.unacked_count += 1
        if statistics.returned_count > 0:
            statistics.again(messages)
            statistics.limit_returned(self._returnable_count())
        sampler = statistics.sampler
        if sampler is not None and statistics.delivered_count >= sampler.due:
            statistics.sample(account, messages)
        if self.leases is not None and not account.no_ack:
            self._count_attempts(messages)
        return messages[0]

    # -- settling --------------------------------------------------------------------------

    def _release(self, consumer: Consumer, count: i64) -> None:
        """It holds so many fewer."""
        consumer.release(count)
        if consumer.resting or self._spare_wanted > 0:
            self._gained(consumer, count)

    def _gained(self, consumer: Consumer, count: i64) -> None:
        """It has room for so many more."""
        if self._spare_wanted > 0 and consumer in self.consumers:
            self._spare += count
        if consumer.resting:
            self._groups.come_back(consumer)

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        consumer.release(len(messages))
        if consumer.resting or self._spare_wanted > 0:
            self._gained(consumer, len(messages))
        self.unacked_count -= len(messages)
        self.statistics.acked(consumer, messages)
        if not self.deleted:
            self.backing.ack(messages)
            latency = self.statistics.latency
            if latency is not None:
                latency.settled(messages)
            if self.backing.ready_count() > 0 or latency is not None or self.feed is not None:
                if consumer.nearly_full():
                    self.refill()
                else:
                    self.wake()

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        self._release(consumer, len(messages))
        self.unacked_count -= len(messages)
        self.statistics.settled(messages, SAMPLE_REJECTED)
        if not self.deleted:
            self._limiter.die(messages, REJECTED)
            self.wake()

    def requeue(self, given: dict[Consumer, list[Message]], failed: bool, now_ms: WallMs) -> None:
        back: list[Message] = []
        for consumer, messages in given.items():
            self._release(consumer, len(messages))
            back.extend(messages)
        self.statistics.redelivered(back)
        self._put_back(ascending(back), failed, now_ms)

    def hold(self, on: bool) -> None:
        self._holds += 1 if on else -1
        if self._holds == 0:
            self.wake()

    def give_back_all(self, owner: i64) -> None:
        leases = self.leases
        assert leases is not None
        messages = self._released(leases.release(owner))
        if messages:
            self.statistics.returned(messages)
            self._put_back(messages, True, WallMs(0))

    def _put_back(self, messages: list[Message], failed: bool, now_ms: WallMs) -> None:
        """To the places they had; ``failed``: a quorum queue counts this delivery to its limit."""
        self.unacked_count -= len(messages)
        if self.deleted:
            return
        if self.limits.delivery_limit >= 0 or self._quorum:
            messages = self._limiter.live_on(messages, failed)
        retry = self.limits.retry
        if retry is not None and self._retries and retry.cover(failed):
            self._retry_later(messages, retry, now_ms)
            return
        self.backing.requeue(messages)
        if self.limits.max_length_bytes >= 0:
            self._limiter.count_bodies(messages, 1)
        if self.limits.drops and self.spare_room(1) == 0:
            self._limiter.drop_over_limit()
        self.wake()

    def _retry_later(self, messages: list[Message], retry: RetryDelays, now_ms: WallMs) -> None:
        """To the places they had, when they have waited."""
        mark_redelivered(messages)
        by_delay: dict[i64, list[Message]] = {}
        for message in messages:
            by_delay.setdefault(retry.delay_ms(attempts_of(message)), []).append(message)
        for delay_ms, those in by_delay.items():
            self._deferred.put(those, delay_ms, now_ms)
        self._defers = True
        self.wake()

    def give_back(
        self, consumer: Consumer, messages: list[Message], delay_ms: i64, now_ms: WallMs
    ) -> None:
        self._release(consumer, len(messages))
        self.statistics.requeued(messages)
        self._take_back(messages, delay_ms, now_ms)

    def _take_back(self, messages: list[Message], delay_ms: i64, now_ms: WallMs) -> None:
        """To the tail, or not before some time has passed."""
        self.unacked_count -= len(messages)
        if self.deleted:
            return
        if self.limits.delivery_limit >= 0:
            messages = self._limiter.live_on(messages, True)
        if messages:
            self.statistics.will_come_again(len(messages))
            self._deferred.put(messages, delay_ms, now_ms)
        self.wake()

    # -- consumers -------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        if self.range_lease.held:
            raise leased(self.name, self.vhost)
        groups = self._groups
        alone = groups.sole is not None and groups.sole.exclusive
        if alone or (consumer.exclusive and (groups.single_active or len(self.consumers) > 0)):
            raise AccessRefused(f"queue '{self.name}' in vhost '{self.vhost}' in exclusive use")
        consumer.join(self)
        self.consumers[consumer] = None
        groups.add(consumer)
        self.had_consumer = True
        self._count_spare_anew()
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        self._count_spare_anew()
        consumer.cancel()
        if consumer in self.consumers:
            del self.consumers[consumer]
            self._groups.remove(consumer, self.consumers)
        self.wake()

    def active_consumer(self) -> Consumer | None:
        return self._groups.sole if self._groups.single_active else None

    @property
    def unused(self) -> bool:
        return self.auto_delete and self.had_consumer and len(self.consumers) == 0

    # -- time ------------------------------------------------------------------------------

    def use_leases(self) -> bool:
        if self.leases is None and self.backing.plain() is not None:
            self.leases = Leases()
            self._defers = True
        return self.leases is not None

    def defer_what_is_delayed(self) -> None:
        """Its backing has a life behind it: readers by position may have passed these."""
        if self.backing.count_delayed() > 0:
            self._defers = True
            self._deferred.release_to_tail()
            self.wake()

    def expire(self, now_ms: WallMs) -> i64:
        if not self.backing.may_expire():
            self._head_away = False
            return 0
        before = self._limiter.expired_count
        self._head_away = self._limiter.expire(now_ms)
        return self._limiter.expired_count - before

    def release_due(self, now_ms: WallMs) -> i64:
        if not self._defers:
            return 0
        leases = self.leases
        count = 0 if leases is None else self._time_out(leases, now_ms)
        if 0 < self.backing.next_due_ms() <= now_ms:
            released = self._deferred.release(now_ms)
            if released > 0:
                self.wake()
            count += released
        return count

    def _time_out(self, leases: Leases, now_ms: WallMs) -> i64:
        late = self._released(leases.expired(now_ms, TIMED_OUT_AT_ONCE))
        if len(late) > 0:
            self.statistics.timed_out(late)
            self._take_back(late, 0, now_ms)
        return len(late)

    def _released(self, ended: list[tuple[Consumer, Message]]) -> list[Message]:
        """The messages of deliveries with a deadline, which their consumers have no more."""
        messages: list[Message] = []
        for consumer, message in ended:
            self._release(consumer, 1)
            messages.append(message)
        return messages

    def next_expiry_ms(self) -> WallMs:
        return WallMs(0) if self._head_away else self.backing.next_expiry_ms()

    def next_due_ms(self) -> WallMs:
        due_ms = WallMs(0) if self._head_away else self.backing.next_expiry_ms()
        sweep_ms = self.backing.next_sweep_ms()
        if due_ms == 0 or 0 < sweep_ms < due_ms:
            due_ms = sweep_ms
        if not self._defers or self.scanned:
            return due_ms
        leases = self.leases
        if leases is not None:
            due_ms = _earlier(due_ms, leases.first_ms())
        return _earlier(due_ms, self.backing.next_due_ms())

    # -- limits and counts -----------------------------------------------------------------

    def set_limits(self, limits: QueueLimits) -> None:
        if limits.max_length_bytes >= 0 and self.limits.max_length_bytes < 0:
            self._limiter.measure_bodies()
        self.limits = limits

    def _returnable_count(self) -> i64:
        """How many may have come back: ready, or waiting for their time."""
        return self.backing.ready_count() + (self.backing.count_delayed() if self._defers else 0)

    def dropped_count(self) -> i64:
        return 0 if self._own_limiter is None else self._own_limiter.dropped_count

    def purge(self) -> int | Pending:
        return self._in_steps(self.purge_now)

    def empty(self) -> int | Pending:
        return self._in_steps(self.empty_now)

    def _in_steps(self, drop_rest: Callable[[], int]) -> int | Pending:
        if self.backing.ready_count() <= AT_ONCE:
            return drop_rest()
        purge = Purge(self, drop_rest)
        ticket = self._context.long_works.start(purge)
        return purge.count() if ticket is None else Pending(ticket, purge.count)

    def purge_now(self) -> int:
        count = int(self.backing.purge())
        if self._retries:
            count += int(self._deferred.drop())
        if self.feed is not None:
            count += self.feed.skip()
        self._limiter.shrink()
        self.statistics.limit_returned(0)
        return count

    def empty_now(self) -> int:
        count = self.purge_now() + int(self._deferred.drop())
        leases = self.leases
        if leases is not None:
            messages = self._released(leases.clear())
            self.unacked_count -= len(messages)
            self.backing.ack(messages)
            count += len(messages)
        self.wake()
        return count

    def counts(self) -> tuple[int, int]:
        return int(self.backing.ready_count() + self.behind()), len(self.consumers)

    def behind(self) -> i64:
        """How many of its messages are still in the stream that they come from."""
        return 0 if self.feed is None else self.feed.behind()

    # -- single messages -------------------------------------------------------------------

    def whole(self, message: Message) -> Message | None:
        """A pending message with its content, read here and now if need be; None = it is lost."""
        return message if len(message.content) > 0 else self.backing.whole(message)

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        """Ready ones, out of the queue for good: the caller acknowledges, or buries them."""
        taken = self.backing.take_chosen(priority, seq_ids)
        if self.limits.max_length_bytes >= 0:
            self._limiter.count_bodies(taken, -1)
        return taken

    def bury(self, taken: list[Message]) -> None:
        """What was taken is rejected."""
        self._limiter.die(taken, REJECTED)

    # -- readers of ranges -----------------------------------------------------------------

    @property
    def is_leased(self) -> bool:
        return self.range_lease.held

    @property
    def ranges(self) -> RangeReading:
        lease, feed = self.range_lease, self.feed
        return RangeReading(self, lease, feed, self._limiter, self._deferred)

    def check(self) -> None:
        super().check()
        self._groups.check(self.consumers)

    # -- its end -----------------------------------------------------------------------------

    def end(self) -> list[Consumer]:
        self.deleted = True
        self._context.long_works.start(Freeing(self.backing.delete()))
        return self.retire()

    def hand_over(self) -> None:
        self.mirrors = None
        leases = self.leases
        if leases is not None:
            self.unacked_count -= len(self._released(leases.clear()))
        self.deleted = True


def _earlier(one_ms: WallMs, other_ms: WallMs) -> WallMs:
    """The earlier of two times, 0 = never."""
    if one_ms == 0 or 0 < other_ms < one_ms:
        return other_ms
    return one_ms
