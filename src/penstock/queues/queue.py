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

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.core.errors import AccessRefused, NotFound, ResourceLocked
from penstock.core.message import Message
from penstock.queues.consumers import Consumer

DELIVER_MESSAGES_MAX: Final[i64] = 8192
DELIVER_BYTES_MAX: Final[i64] = 256 * 1024
"""One pass stays within the processor's cache, and lets other queues have their turn; but it
takes at least what one read of a socket can bring, else publishers outrun consumers."""
CROWDED_BYTES: Final[i64] = 4 * 1024 * 1024


JUST_USED: Final[i64] = -1
"""As ``last_used_ms``: until now; whoever looks next says when that is."""


@final
class HeadAway(Exception):
    """The first message is on its way from the disk."""


@final
class Delivery:
    """Messages for one consumer, in queue order."""

    def __init__(self, consumer: Consumer, messages: list[Message]) -> None:
        self.consumer = consumer
        self.messages = messages


@final
class Queue:
    """One queue: its consumers on this side, its backing on the other."""

    def __init__(
        self,
        vhost: str,
        name: str,
        incarnation: str,
        durable: bool,
        auto_delete: bool,
        arguments: dict[str, object],
        backing: BackingQueue,
        wakeups: "list[Queue]",
        refills: "list[Queue]",
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.incarnation = incarnation
        self.durable = durable
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.backing = backing
        self.owner: object = None  # the session an exclusive queue belongs to
        self.consumers: list[Consumer] = []
        self.message_ttl_ms: i64 = -1
        self.expires_ms: i64 = 0
        self.last_used_ms: i64 = 0
        self.idle_due_ms: i64 = 0  # when the schedule will look whether it is in use; 0 = never
        self.expiry_due_ms: i64 = 0  # when the schedule will look at its head; 0 = never
        self.unacked_count: i64 = 0
        self.awake: bool = False
        self.refilling: bool = False
        self.deleted: bool = False
        self.had_consumer: bool = False
        self._wakeups = wakeups
        self._refills = refills
        self._next_consumer: i64 = 0
        self._shares_holder: bool = False
        self.range_lease: i64 = 0  # the newest fencing token; the broker seeds it at boot
        self._range_leased: bool = False
        # counters since the queue was opened, for people who watch
        self.published_count: i64 = 0
        self.delivered_count: i64 = 0
        self.acked_count: i64 = 0
        self.redelivered_count: i64 = 0
        self.expired_count: i64 = 0

    @property
    def exclusive(self) -> bool:
        return self.owner is not None

    def check_owner(self, session: object) -> None:
        """Raises ResourceLocked when the queue is another session's exclusive one."""
        if self.owner is not None and self.owner is not session:
            raise ResourceLocked(
                f"cannot obtain exclusive access to locked queue '{self.name}' in vhost "
                f"'{self.vhost}'. It could be originally declared on another connection or "
                "the exclusive property value does not match that of the original declaration."
            )

    # -- messages ----------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: i64) -> None:
        """Take messages at the tail."""
        if self.message_ttl_ms >= 0:
            latest = now_ms + self.message_ttl_ms
            for message in messages:
                if message.expires_at_ms == 0 or message.expires_at_ms > latest:
                    message.expires_at_ms = latest
        self.backing.publish(messages, now_ms)
        self.published_count += len(messages)
        self.wake()

    def deliver(self, now_ms: i64) -> list[Delivery]:
        """One pass over the consumers; asks for another turn itself if more can be done."""
        self.awake = False
        if self.deleted or self._range_leased or len(self.consumers) == 0:
            return []
        if len(self.consumers) == 1:
            return self._deliver_to(self.consumers[0], now_ms)
        return self._deliver_round_robin(now_ms)

    def _fetch(self, count: i64, now_ms: i64) -> list[Message]:
        """From the head; a message whose time passed behind one that lasts is not handed out.

        One whose time comes just now may be: a time to live of 0 means "at once or not at all".
        """
        if count > DELIVER_MESSAGES_MAX:
            count = DELIVER_MESSAGES_MAX
        while True:
            messages = self.backing.fetch(count, DELIVER_BYTES_MAX)
            if len(messages) == 0 or not self.backing.may_expire():
                return messages
            late = [one for one in messages if 0 < one.expires_at_ms < now_ms]
            if len(late) == 0:
                return messages
            self.backing.ack(late)
            self.expired_count += len(late)
            if len(late) < len(messages):
                return [one for one in messages if not 0 < one.expires_at_ms < now_ms]

    def _deliver_to(self, consumer: Consumer, now_ms: i64) -> list[Delivery]:
        room = consumer.room()
        if room == 0:
            return []
        messages = self._fetch(room, now_ms)
        if len(messages) == 0:
            return []
        self._hand_out(consumer, messages)
        if self.backing.ready_count() > 0 and consumer.room() > 0:
            self.wake()
        return [Delivery(consumer, messages)]

    def _deliver_round_robin(self, now_ms: i64) -> list[Delivery]:
        """Message by message to the next consumer that has room, as RabbitMQ deals."""
        rooms: list[int] = []
        total: i64 = 0
        for consumer in self.consumers:
            room = consumer.room()
            if room > DELIVER_MESSAGES_MAX:
                room = DELIVER_MESSAGES_MAX
            rooms.append(int(room))
            total += room
        if total == 0:
            return []
        messages = self._fetch(total, now_ms)
        if len(messages) == 0:
            return []
        hands: list[list[Message]] = [[] for _ in self.consumers]
        count: i64 = len(self.consumers)
        place = self._next_consumer % count
        left: list[Message] = []
        for message in messages:
            tried: i64 = 0
            # A shared window shrinks while we deal, so room is asked for each message.
            while tried < count and (
                rooms[place] <= len(hands[place]) or not self._can_take(place)
            ):
                place = (place + 1) % count
                tried += 1
            if tried == count:
                left.append(message)
                continue
            hands[place].append(message)
            consumer = self.consumers[place]
            if not consumer.no_ack:
                consumer.take(1)
                self.unacked_count += 1
            place = (place + 1) % count
        self._next_consumer = place
        if self._shares_holder:
            return self._deal_in_order(messages[: len(messages) - len(left)], hands, left)
        return self._deal(hands, left)

    def _can_take(self, place: i64) -> bool:
        return self.consumers[place].shared.room() > 0

    def _deal_in_order(
        self, messages: list[Message], hands: list[list[Message]], left: list[Message]
    ) -> list[Delivery]:
        """As ``_deal``, but in message order: two consumers of one session see it."""
        takers: dict[int, Consumer] = {}
        for i in range(len(hands)):
            for message in hands[i]:
                takers[int(message.seq_id)] = self.consumers[i]
        self._deal(hands, left)
        return [Delivery(takers[int(message.seq_id)], [message]) for message in messages]

    def _deal(self, hands: list[list[Message]], left: list[Message]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for i in range(len(hands)):
            if len(hands[i]) > 0:
                consumer = self.consumers[i]
                self.delivered_count += len(hands[i])
                if consumer.no_ack:
                    self.backing.ack(hands[i])
                deliveries.append(Delivery(consumer, hands[i]))
        if len(left) > 0:
            self.backing.unfetch(left)
        elif self.backing.ready_count() > 0:
            for consumer in self.consumers:
                if consumer.room() > 0:
                    self.wake()
                    break
        return deliveries

    def _hand_out(self, consumer: Consumer, messages: list[Message]) -> None:
        count: i64 = len(messages)
        self.delivered_count += count
        if consumer.no_ack:
            self.backing.ack(messages)
        else:
            consumer.take(count)
            self.unacked_count += count

    def is_crowded(self) -> bool:
        """Consumers are here, but more waits for them than they take in a moment."""
        return len(self.consumers) > 0 and self.backing.ready_bytes() > CROWDED_BYTES

    def is_eased(self) -> bool:
        """No longer crowded, by a margin."""
        return self.deleted or self.backing.ready_bytes() * 2 < CROWDED_BYTES

    def get(self, account: Consumer) -> Message | None:
        """One message for ``account``, whatever its window says; None when empty.

        Raises HeadAway when there is one, but on its way from the disk: ask again.
        """
        if self._range_leased:
            raise ResourceLocked(self._leased_text())
        messages = self.backing.fetch(1, 0)
        if len(messages) == 0 and self.backing.ready_count() > 0:
            if self.backing.why_stopped() != "":
                raise NotFound(
                    f"queue '{self.name}' in vhost '{self.vhost}' is stopped:"
                    f" {self.backing.why_stopped()}"
                )
            raise HeadAway
        if len(messages) == 0:
            return None
        self._hand_out(account, messages)
        return messages[0]

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        """The consumer is done with these, for good."""
        count: i64 = len(messages)
        consumer.release(count)
        self.unacked_count -= count
        self.acked_count += count
        if not self.deleted:
            self.backing.ack(messages)
            if self.backing.ready_count() > 0:
                if consumer.nearly_full():
                    self.refill()
                else:
                    self.wake()

    def requeue(self, consumer: Consumer, messages: list[Message]) -> None:
        """The consumer gives these back: to their original places, as redelivered."""
        count: i64 = len(messages)
        consumer.release(count)
        self.unacked_count -= count
        self.redelivered_count += count
        if not self.deleted:
            self.backing.requeue(messages)
            self.wake()

    def purge(self) -> i64:
        return self.backing.purge()

    def expire(self, now_ms: i64) -> None:
        """Drop what is over its time at the head, where nobody could take it."""
        self.expired_count += self.backing.expire(now_ms)

    def next_expiry_ms(self) -> i64:
        return self.backing.next_expiry_ms()

    def wake(self) -> None:
        """Something may be deliverable: ask for a turn."""
        if not self.awake and not self.deleted:
            self.awake = True
            self._wakeups.append(self)

    def refill(self) -> None:
        """Something may be deliverable, but there is no hurry: ask for a turn soon."""
        if not self.awake and not self.refilling and not self.deleted:
            self.refilling = True
            self._refills.append(self)

    # -- consumers -----------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Raises AccessRefused (exclusive use) or ResourceLocked (a range lease)."""
        if self._range_leased:
            raise ResourceLocked(self._leased_text())
        if len(self.consumers) > 0 and (consumer.exclusive or self.consumers[0].exclusive):
            raise AccessRefused(f"queue '{self.name}' in vhost '{self.vhost}' in exclusive use")
        consumer.queue = self
        # Behind everybody who waits for a turn: the one to be served next heads the ring.
        self.consumers.insert(self._next_consumer, consumer)
        self._next_consumer = (self._next_consumer + 1) % len(self.consumers)
        self._note_holders()
        self.had_consumer = True
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Stop delivering to it; what it holds stays with it until settled."""
        consumer.cancelled = True
        if consumer in self.consumers:
            place: i64 = self.consumers.index(consumer)
            del self.consumers[place]
            if place < self._next_consumer:
                self._next_consumer -= 1
            self._note_holders()
        self.wake()

    def _note_holders(self) -> None:
        """Do two consumers belong to one session's channel?"""
        holders = [id(consumer.holder) for consumer in self.consumers]
        self._shares_holder = len(set(holders)) < len(holders)

    @property
    def unused(self) -> bool:
        """An auto-delete queue in this state goes."""
        return self.auto_delete and self.had_consumer and len(self.consumers) == 0

    @property
    def is_leased(self) -> bool:
        """A reader of ranges holds it, which is as good as a consumer."""
        return self._range_leased

    # -- range readers -------------------------------------------------------------------

    def open_range_lease(self) -> int:
        """Give the queue to a reader of ranges; an older lease of the kind is fenced off."""
        if len(self.consumers) > 0:
            raise ResourceLocked(
                f"queue '{self.name}' in vhost '{self.vhost}' has consumers: it can be "
                "browsed, but not read and acknowledged as a table"
            )
        self.range_lease += 1
        self._range_leased = True
        return int(self.range_lease)

    def check_range_lease(self, token: int) -> bool:
        return self._range_leased and not self.deleted and self.range_lease == token

    def close_range_lease(self, token: int) -> None:
        if self._range_leased and self.range_lease == token:
            self._range_leased = False
            self.last_used_ms = JUST_USED
            self.wake()

    def drop_below(self, seq_id: int) -> int:
        """Acknowledge all ready messages below a position; returns how many."""
        count = self.backing.drop_below(seq_id)
        self.acked_count += count
        return int(count)

    def _leased_text(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost}' is leased to a reader of ranges"

    # -- invariants ----------------------------------------------------------------------

    def check(self) -> None:
        """Assert Q1-Q4 as far as the queue alone can see."""
        outstanding: i64 = 0
        for consumer in self.consumers:
            assert consumer.outstanding >= 0, "Q1"
            assert not consumer.exclusive or len(self.consumers) == 1, "Q3"
            outstanding += consumer.outstanding
        assert self.awake == (self in self._wakeups), "Q2"
        assert self.refilling == (self in self._refills), "Q2"
        assert outstanding <= self.unacked_count, "Q4"
        self.backing.check()
