"""The queue: who gets what, and when.  It knows no protocol's verbs.

In come batches of messages (``publish``) and settlements (``settle``, ``requeue``); out
come deliveries when the broker asks for them (``deliver``).  The queue never calls its
consumers: whenever something may have become deliverable it puts itself on the
``wakeups`` list it was given, and the broker's turn asks it.  So a hundred publishes in one turn
cost one delivery pass.

A consumer that settles one message of a window still nearly full has enough to work on:
refilling it can wait for the next settlements of the same moment (``refills``), so that
acknowledging one by one does not cost one system call a message.  The broker's turn asks
those queues as soon as nothing more comes in, or after ``REFILL_DELAY_MS``.

Invariants (``check``):
  Q1  a consumer's ``outstanding`` is never negative
  Q2  the queue is on the wakeups list exactly when ``awake``, and on the refills list
      exactly when ``refilling``
  Q3  an exclusive consumer is alone
  Q4  ``unacked_count`` = deliveries waiting for settlement, over consumers and gets
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.core.away import Away
from penstock.core.credit import FlowPeer
from penstock.core.errors import AccessRefused, ResourceLocked
from penstock.core.letters import REJECTED
from penstock.core.message import Message
from penstock.queues.allocator import Delivery, RoundRobinAllocator, in_order, is_late, stamp
from penstock.queues.consumers import UNLIMITED, Consumer, PriorityGroup
from penstock.queues.context import QueueContext, QueueIdentity
from penstock.queues.leasing import LeasedMessages
from penstock.queues.publish_notes import PublishNotes
from penstock.queues.refusals import check_going, leased, locked
from penstock.queues.sampling import ACKED, RETURNED, Sampler
from penstock.queues.sampling import REJECTED as SAMPLE_REJECTED

DELIVER_MESSAGES_MAX: Final[i64] = 8192
DELIVER_BYTES_MAX: Final[i64] = 256 * 1024
"""One pass stays within the processor's cache, and lets other queues have their turn; but it
takes at least what one read of a socket can bring, else publishers outrun consumers."""
CROWDED_BYTES: Final[i64] = 4 * 1024 * 1024

JUST_USED: Final[i64] = -1
"""As ``last_used_ms``: until now; whoever looks next says when that is."""


class Queue(LeasedMessages):
    """One queue: its consumers on this side, its backing on the other."""

    def __init__(
        self,
        identity: QueueIdentity,
        backing: BackingQueue,
        context: QueueContext,
    ) -> None:
        super().__init__(backing, context)
        self.vhost = identity.vhost
        self.name = identity.name
        self.incarnation = identity.incarnation
        self.durable = identity.durable
        self.auto_delete = identity.auto_delete
        self.arguments = identity.arguments
        self.owner: object = None  # the session an exclusive queue belongs to
        self.consumers: list[Consumer] = []
        self.message_ttl_ms: i64 = -1
        self.expires_ms: i64 = 0
        self.consumer_timeout_ms: i64 = 0  # for unsettled deliveries; 0 = the node's
        self.last_used_ms: i64 = 0
        self.idle_due_ms: i64 = 0  # when the schedule will look whether it is in use; 0 = never
        self.expiry_due_ms: i64 = 0  # when the schedule will look at its head; 0 = never
        self.awake: bool = False
        self.refilling: bool = False
        self.releases_to: object = None  # the exchange whose delayed messages wait here
        self.remote: bool = False  # its master is on another node
        self.home: str = ""  # the name of that node
        self.forsaken: bool = False  # its master is gone, and no copy may take its place
        self.paused: bool = False  # takes messages, gives none
        self.mirrors: PublishNotes | None = None  # of a master with mirrors
        self.flow: FlowPeer | None = None  # of publishes, since it was first behind with them
        self.had_consumer: bool = False
        self.single_active: bool = False
        self.active: Consumer | None = None  # who has all, if one is to have all
        self._rings: list[PriorityGroup] = []  # highest priority first
        self.range_lease: i64 = 0  # the newest fencing token; the broker seeds it at boot
        self._range_leased: bool = False
        self.begun_elsewhere: bool = False  # another node was its master; nobody leased it here yet
        if context.sampling.book.directory != "":
            self.sampler = Sampler(context.sampling, self.vhost, self.name)
        backing.set_reader(self)

    def identity(self) -> QueueIdentity:
        who = (self.vhost, self.name, self.incarnation)
        return QueueIdentity(*who, self.durable, self.auto_delete, self.arguments)

    @property
    def exclusive(self) -> bool:
        return self.owner is not None

    def check_owner(self, session: object) -> None:
        """Raises ResourceLocked when the queue is another session's exclusive one."""
        if self.owner is not None and self.owner is not session:
            raise locked(self.name, self.vhost)

    # -- messages ----------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: i64) -> None:
        """Take messages at the tail, unless it has mirrors and can confirm nothing."""
        if self.message_ttl_ms >= 0:
            stamp(messages, now_ms + self.message_ttl_ms)
        if self.mirrors is not None and not self.mirrors.note(messages):
            return
        self.backing.publish(messages, now_ms)
        self.published_count += len(messages)
        self.active_at_ms = now_ms
        if self._counts_bodies():
            self._count_bodies(messages, 1)
        if self.limits.drops:
            self._drop_over_limit(self.spare_room())
        self.wake()

    def publish_deferred(self, messages: list[Message], until_ms: i64, now_ms: i64) -> None:
        """Take messages nobody gets before that time; then their time to live begins."""
        if self.message_ttl_ms >= 0:
            stamp(messages, until_ms + self.message_ttl_ms)
        if self.mirrors is not None and not self.mirrors.note(messages):
            return
        self.backing.publish_delayed(messages, until_ms, now_ms)
        self.defers = True
        self.published_count += len(messages)
        self.active_at_ms = now_ms
        self.wake()

    def spare_room(self) -> i64:
        """How many messages consumers take now, were they there."""
        room: i64 = 0
        if not self._range_leased and not self.paused:
            for consumer in self.consumers:
                room += consumer.room()
        return room if room < UNLIMITED else UNLIMITED

    def deliver(self, now_ms: i64) -> list[Delivery]:
        """One pass over the consumers; asks for another turn itself if more can be done."""
        self.awake = False
        self._expired_away = False
        if self.latency is not None:
            self.latency.take_time(now_ms)
        if self.deleted:
            return []
        deliveries: list[Delivery] = []
        if len(self.consumers) > 0 and not self._range_leased and not self.paused:
            deliveries = self._deliver(now_ms)
            if deliveries:
                self.active_at_ms = now_ms
                if self._returned > 0:
                    for delivery in deliveries:
                        delivery.again_count = self._count_again(delivery.messages)
                    self._limit_returned(self.backing.ready_count())
                if self.counts_attempts:
                    for delivery in deliveries:
                        if not delivery.consumer.no_ack:
                            self._count_attempts(delivery.messages)
                if self.sampler is not None and self.delivered_count >= self.sampler.due:
                    last = deliveries[len(deliveries) - 1]
                    self._sample(last.consumer, last.messages)
        if self.limits.drops:
            self._drop_over_limit(self.spare_room())
        left = not self.awake and self.backing.ready_count() > 0
        self.capacity.note(left and self.spare_room() == 0, now_ms)
        return deliveries

    def _deliver(self, now_ms: i64) -> list[Delivery]:
        if self.active is not None:
            return self._deliver_to(self.active, now_ms)
        if len(self._rings) == 1:
            return self._deliver_in_turn(self._rings[0], now_ms)
        deliveries: list[Delivery] = []
        for ring in self._rings:
            deliveries.extend(self._deliver_in_turn(ring, now_ms))
            if self.backing.ready_count() == 0 or ring.has_room():
                break  # lower ones only get what these cannot take
        return deliveries

    def _deliver_in_turn(self, ring: PriorityGroup, now_ms: i64) -> list[Delivery]:
        if len(ring.members) == 1:
            return self._deliver_to(ring.members[0], now_ms)
        return self._deliver_round_robin(ring, now_ms)

    def _fetch(self, count: i64, size: i64, now_ms: i64) -> list[Message]:
        """From the head; a message whose time passed behind one that lasts is not handed out.

        One whose time comes just now may be: a time to live of 0 means "at once or not at all".
        One that came back had its once.
        """
        if count > DELIVER_MESSAGES_MAX:
            count = DELIVER_MESSAGES_MAX
        if size > DELIVER_BYTES_MAX:
            size = DELIVER_BYTES_MAX
        while True:
            messages = self.backing.fetch(count, size)
            if len(messages) > 0 and self._counts_bodies():
                self._count_bodies(messages, -1)
            if len(messages) == 0 or not self.backing.may_expire():
                return messages
            late = [one for one in messages if is_late(one, now_ms)]
            if len(late) == 0:
                return messages
            self._expired(late)
            if len(late) < len(messages):
                return [one for one in messages if not is_late(one, now_ms)]

    def _deliver_to(self, consumer: Consumer, now_ms: i64) -> list[Delivery]:
        room = consumer.room()
        if room == 0:
            return []
        messages = self._fetch(room, consumer.outlet.room_bytes(), now_ms)
        if len(messages) == 0:
            return []
        self._hand_out(consumer, messages)
        if self.backing.ready_count() > 0 and consumer.room() > 0:
            self.wake()
        return [Delivery(consumer, messages)]

    def _deliver_round_robin(self, ring: PriorityGroup, now_ms: i64) -> list[Delivery]:
        """Message by message to the next consumer that has room, as RabbitMQ deals."""
        dealing = RoundRobinAllocator(ring, DELIVER_MESSAGES_MAX)
        if dealing.messages_wanted == 0:
            return []
        messages = self._fetch(dealing.messages_wanted, dealing.bytes_wanted, now_ms)
        if len(messages) == 0:
            return []
        left = dealing.deal(messages)
        self.unacked_count += dealing.unacked_count
        deliveries = self._handed(dealing)
        if len(left) > 0:
            self.backing.unfetch(left)
            if self._counts_bodies():
                self._count_bodies(left, 1)
        elif self.backing.ready_count() > 0 and ring.has_room():
            self.wake()
        if ring.shares_holder:
            return in_order(messages[: len(messages) - len(left)], deliveries)
        return deliveries

    def _handed(self, dealing: RoundRobinAllocator) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for i in range(len(dealing.takers)):
            hand = dealing.hands[i]
            if len(hand) > 0:
                consumer = dealing.takers[i]
                self._count_out(consumer, len(hand))
                if consumer.no_ack:
                    self._let_go(hand)
                deliveries.append(Delivery(consumer, hand))
        return deliveries

    def _hand_out(self, consumer: Consumer, messages: list[Message]) -> None:
        count: i64 = len(messages)
        self._count_out(consumer, count)
        if consumer.no_ack:
            self._let_go(messages)
        else:
            consumer.take(count)
            self.unacked_count += count

    def _let_go(self, messages: list[Message]) -> None:
        """Handed to who acknowledges nothing: done."""
        self.backing.ack(messages)
        if self.latency is not None:
            self.latency.settled(messages)
            self.wake()

    def is_crowded(self) -> bool:
        """Consumers are here, but more waits for them than they take in a moment."""
        return len(self.consumers) > 0 and self.backing.ready_bytes() > CROWDED_BYTES

    def is_eased(self) -> bool:
        """No longer crowded, by a margin."""
        return self.deleted or self.backing.ready_bytes() * 2 < CROWDED_BYTES

    def get(self, account: Consumer) -> Message | None:
        """One message for ``account``, whatever its window says; None when empty.

        Raises Away when there is one, but on its way from the disk: ask again.
        """
        if self._range_leased:
            raise leased(self.name, self.vhost)
        if self.paused:
            return None
        messages = self.backing.fetch(1, 0)
        if len(messages) == 0 and self.backing.ready_count() > 0:
            check_going(self.backing, self.name, self.vhost)
            raise Away
        if len(messages) == 0:
            self.empty_count += 1
            return None
        if self._counts_bodies():
            self._count_bodies(messages, -1)
        self._hand_out(account, messages)
        self._count_get(account)
        if self._returned > 0:
            self._count_again(messages)
            self._limit_returned(self.backing.ready_count())
        if self.sampler is not None and self.delivered_count >= self.sampler.due:
            self._sample(account, messages)
        if self.counts_attempts and not account.no_ack:
            self._count_attempts(messages)
        return messages[0]

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        """The consumer is done with these, for good."""
        count: i64 = len(messages)
        consumer.release(count)
        self.unacked_count -= count
        self.acked_count += count
        consumer.acked_count += count
        self._sampled(messages, ACKED)
        if not self.deleted:
            self.backing.ack(messages)
            if self.latency is not None:
                self.latency.settled(messages)
            if self.backing.ready_count() > 0 or self.latency is not None:
                if consumer.nearly_full():
                    self.refill()
                else:
                    self.wake()

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        """The consumer is done with these, and does not want them: they die."""
        consumer.release(len(messages))
        self.unacked_count -= len(messages)
        self._sampled(messages, SAMPLE_REJECTED)
        if not self.deleted:
            self._die(messages, REJECTED)
            self.wake()

    def requeue(self, consumer: Consumer, messages: list[Message]) -> None:
        """The consumer gives these back: to their original places, as redelivered."""
        consumer.release(len(messages))
        self.unacked_count -= len(messages)
        self.redelivered_count += len(messages)
        self._sampled(messages, RETURNED)
        if not self.deleted:
            if self.limits.delivery_limit >= 0:
                messages = self._live_on(messages)
            self._returned += len(messages)
            self.backing.requeue(messages)
            if self._counts_bodies():
                self._count_bodies(messages, 1)
            if self.limits.drops:
                self._drop_over_limit(self.spare_room())
            self.wake()

    def purge(self) -> i64:
        self._body_bytes = self._returned = 0
        return self.backing.purge()

    def counts(self) -> tuple[int, int]:
        """Messages ready and consumers; raises Away."""
        return int(self.backing.ready_count()), len(self.consumers)

    def unacked_anywhere(self) -> i64:
        """Deliveries that are not settled, as its master counts them."""
        return self.unacked_count

    def consumers_anywhere(self) -> i64:
        return len(self.consumers)

    def why_down(self) -> str:
        """Its master is gone, and no other is expected; "" = it is not."""
        return ""

    def end(self) -> list[Consumer]:
        """It is deleted, with everything in it; returns the consumers who lost it."""
        self.deleted = True
        self.backing.delete()
        if self.flow is not None:
            self.flow.lost()
        consumers = self.consumers
        self.consumers = []
        return consumers

    def set_paused(self, paused: bool) -> None:
        self.paused = paused
        self.wake()

    def wake(self) -> None:
        """Something may be deliverable: ask for a turn."""
        if not self.awake and not self.deleted:
            self.awake = True
            self._context.wakeups.append(self)

    def refill(self) -> None:
        """Something may be deliverable, but there is no hurry: ask for a turn soon."""
        if not self.awake and not self.refilling and not self.deleted:
            self.refilling = True
            self._context.refills.append(self)

    # -- consumers -----------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Raises AccessRefused (exclusive use) or ResourceLocked (a range lease)."""
        if self._range_leased:
            raise leased(self.name, self.vhost)
        if (consumer.exclusive and self.single_active) or (
            len(self.consumers) > 0 and (consumer.exclusive or self.consumers[0].exclusive)
        ):
            raise AccessRefused(f"queue '{self.name}' in vhost '{self.vhost}' in exclusive use")
        consumer.queue = self
        self.consumers.append(consumer)
        self._ring(consumer.priority).add(consumer)
        if self.single_active and self.active is None:
            self.active = consumer
        self.had_consumer = True
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Stop delivering to it; what it holds stays with it until settled."""
        consumer.cancelled = True
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            ring = self._ring(consumer.priority)
            ring.remove(consumer)
            if len(ring.members) == 0:
                self._rings.remove(ring)
            if self.active is consumer:
                self.active = self._next_active()
        self.wake()

    def _ring(self, priority: i64) -> PriorityGroup:
        place = 0
        for ring in self._rings:
            if ring.priority == priority:
                return ring
            if ring.priority > priority:
                place += 1
        ring = PriorityGroup(priority)
        self._rings.insert(place, ring)
        return ring

    def _next_active(self) -> Consumer | None:
        """The oldest of those with the highest priority."""
        for consumer in self.consumers:
            if consumer.priority == self._rings[0].priority:
                return consumer
        return None

    @property
    def unused(self) -> bool:
        """An auto-delete queue in this state goes."""
        return self.auto_delete and self.had_consumer and len(self.consumers) == 0

    @property
    def is_leased(self) -> bool:
        """A reader of ranges holds it, which is as good as a consumer."""
        return self._range_leased

    # -- range readers -------------------------------------------------------------------

    def open_range_lease(self, token: int = 0) -> int:
        """Give the queue to a reader of ranges and fence off older ones; ``token``: as before."""
        if len(self.consumers) > 0:
            raise ResourceLocked(
                f"queue '{self.name}' in vhost '{self.vhost}' has consumers: it can be "
                "browsed, but not read and acknowledged as a table"
            )
        self.range_lease = token if token > 0 else self.range_lease + 1
        self._range_leased = True
        self.defers_to_tail = True
        return int(self.range_lease)

    def check_range_lease(self, token: int) -> bool:
        return self._range_leased and not self.deleted and self.range_lease == token

    def close_range_lease(self, token: int) -> None:
        if self._range_leased and self.range_lease == token:
            self._range_leased = False
            self.last_used_ms = JUST_USED
            self.wake()

    # -- invariants ----------------------------------------------------------------------

    def check(self) -> None:
        """Assert Q1-Q4 as far as the queue alone can see."""
        outstanding: i64 = 0
        for consumer in self.consumers:
            assert consumer.outstanding >= 0, "Q1"
            assert not consumer.exclusive or len(self.consumers) == 1, "Q3"
            outstanding += consumer.outstanding
        assert self.awake == (self in self._context.wakeups), "Q2"
        assert self.refilling == (self in self._context.refills), "Q2"
        assert outstanding <= self.unacked_count, "Q4"
        self.backing.check()
