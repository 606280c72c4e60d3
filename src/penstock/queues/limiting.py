"""How a queue keeps its limits: the part of ``Queue`` that lets messages die.

A message that dies (over its time, pushed out, refused by a consumer, tried too often) is simply
acknowledged when the queue buries nobody.  Else it stays pending in the backing and is put on
``deaths``, a list the broker reads in the same turn: it becomes a dead letter, and is acknowledged
when that letter is on disk (``dead_letters``).  A crash in between brings both back, never
none.

**Dropping from the head** spares what consumers can still take: in RabbitMQ a message is offered
to consumers before it counts, here deliveries come at the end of a turn.

**Bytes** are those of bodies.  They are counted here, as messages come and go, and only for
queues that limit them.  What is there after a start, or when the first limit in bytes comes, counts
with its properties, since the disk has one size of each; the surplus stays until nothing is ready.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.core.letters import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from penstock.core.message import (
    ATTEMPTS_MAX,
    ONE_ATTEMPT,
    Message,
    attempts_of,
    body_size,
)
from penstock.queues.context import QueueContext
from penstock.queues.counting import CountedMessages
from penstock.queues.limits import NO_LIMITS, DeadLetterBatch, QueueLimits

DROPPED_AT_ONCE: Final[i64] = 1024
DROPPED_BYTES_MAX: Final[i64] = 4 * 1024 * 1024


class LimitedMessages(CountedMessages):
    """The backing of a queue, with its limits around it."""

    def __init__(self, backing: BackingQueue, context: QueueContext) -> None:
        super().__init__()
        self.backing: BackingQueue = backing
        self.limits: QueueLimits = NO_LIMITS
        self.counts_attempts: bool = False  # when messages are handed out, not when they return
        self.expired_count: i64 = 0
        self.dropped_count: i64 = 0
        self._context = context
        self._body_bytes: i64 = 0  # of ready messages, if bytes are limited
        self._expired_away: bool = False  # the head is over its time, and on its way from disk

    def set_limits(self, limits: QueueLimits) -> None:
        if limits.max_length_bytes >= 0 and self.limits.max_length_bytes < 0:
            self._body_bytes = self.backing.ready_bytes()
        self.limits = limits

    # -- death -----------------------------------------------------------------------------

    def _die(self, messages: list[Message], reason: str) -> None:
        """These are pending, and nobody will have them."""
        if self.limits.buries:
            self._context.deaths.append(DeadLetterBatch(self, reason, messages, False))
            return
        self._context.dropped.count(reason, len(messages))
        if reason == MAXLEN:
            self.backing.ack_behind(messages)  # what they make room for may not be synced yet
        else:
            self.backing.ack(messages)

    def whole(self, message: Message) -> Message | None:
        """A pending message with its content, read here and now if need be; None = it is lost."""
        return message if len(message.content) > 0 else self.backing.whole(message)

    def _live_on(self, messages: list[Message]) -> list[Message]:
        """Of messages that come back, those that were not tried too often."""
        limit = self.limits.delivery_limit
        living: list[Message] = []
        exhausted: list[Message] = []
        for message in messages:
            attempts = attempts_of(message)
            if attempts < ATTEMPTS_MAX and not self.counts_attempts:
                message.flags += ONE_ATTEMPT
                attempts += 1
            (living if attempts <= limit else exhausted).append(message)
        if exhausted:
            self._die(exhausted, DELIVERY_LIMIT)
        if living and not self.counts_attempts:
            self.backing.note_attempts(living)
        return living

    def _count_bodies(self, messages: list[Message], sign: i64) -> None:
        """Bodies that became ready (1) or are ready no more (-1)."""
        total: i64 = 0
        for message in messages:
            total += body_size(message.content) if len(message.content) > 0 else message.size
        self._body_bytes += sign * total
        if self.backing.ready_count() == 0 or self._body_bytes < 0:
            self._body_bytes = 0

    def _counts_bodies(self) -> bool:
        return self.limits.max_length_bytes >= 0

    # -- lengths ---------------------------------------------------------------------------

    def spare_room(self) -> i64:
        """How many messages consumers take now, were they there."""
        raise NotImplementedError

    def overflowing(self, messages: list[Message]) -> set[int]:
        """The places of new messages it has no room for; what a consumer takes needs none."""
        limits = self.limits
        count = self.backing.ready_count() - self.spare_room()
        size = self._body_bytes
        over: set[int] = set()
        for place in range(len(messages)):
            body = body_size(messages[place].content)
            if count >= 0:
                too_many = 0 <= limits.max_length < count + 1
                if too_many or 0 <= limits.max_length_bytes < size + body:
                    over.add(place)
                    continue
                size += body
            count += 1
        return over

    def refuse(self, messages: list[Message]) -> None:
        """They had no room, and may be dead letters all the same."""
        self.dropped_count += len(messages)
        if self.limits.buries and self.limits.buries_refused:
            self._context.deaths.append(DeadLetterBatch(self, MAXLEN, messages, True))
        else:
            self._context.dropped.count(MAXLEN, len(messages))

    def _drop_over_limit(self, spare: i64) -> None:
        """The oldest go, as many as are too many; what is on its way from disk goes later."""
        while True:
            messages = self._first_over(spare)
            if not messages:
                return
            self.dropped_count += len(messages)
            self._die(messages, MAXLEN)

    def _first_over(self, spare: i64) -> list[Message]:
        limits = self.limits
        over: i64 = 0
        if limits.max_length >= 0:
            over = self.backing.ready_count() - limits.max_length - spare
        excess: i64 = 0
        if limits.max_length_bytes >= 0 and spare == 0:
            excess = self._body_bytes - limits.max_length_bytes
        if over <= 0 and excess <= 0:
            return []
        fetched = self.backing.fetch_surplus(
            DROPPED_AT_ONCE if excess > 0 or over > DROPPED_AT_ONCE else over, DROPPED_BYTES_MAX
        )
        count: i64 = 0
        for message in fetched:
            if over <= 0 and excess <= 0:
                break
            over -= 1
            excess -= body_size(message.content)
            count += 1
        if count < len(fetched):
            self.backing.unfetch(fetched[count:])
            del fetched[count:]
        if limits.max_length_bytes >= 0:
            self._count_bodies(fetched, -1)
        return fetched

    # -- chosen ones -----------------------------------------------------------------------

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        """Ready ones, out of the queue for good: who has taken them acknowledges, or buries."""
        taken = self.backing.take_chosen(priority, seq_ids)
        if self._counts_bodies():
            self._count_bodies(taken, -1)
        return taken

    def bury(self, taken: list[Message]) -> None:
        """Somebody has rejected what was taken."""
        self._die(taken, REJECTED)

    # -- readers of ranges are done with some -----------------------------------------------

    def drop_below(self, seq_id: int) -> int:
        return self._dropped(self.backing.drop_below(seq_id))

    def drop_step(self, below: int, most: int) -> int:
        return self._dropped(self.backing.drop_step(below, most))

    def drop_some(self, seq_ids: list[int]) -> int:
        return self._dropped(self.backing.drop_some(seq_ids))

    def _dropped(self, count: i64) -> int:
        self._body_bytes = min(self._body_bytes, self.backing.ready_bytes())
        self.acked_count += count
        return int(count)

    # -- time ------------------------------------------------------------------------------

    def expire(self, now_ms: i64) -> None:
        """Let die what is over its time, where nobody could take it."""
        self._expire_head(now_ms)
        late = self.backing.sweep_expired(now_ms, DROPPED_AT_ONCE)
        if late:
            if self._counts_bodies():
                self._count_bodies(late, -1)
            self._expired(late)

    def _expire_head(self, now_ms: i64) -> None:
        self._expired_away = False
        if not self.limits.buries and not self._counts_bodies():
            count = self.backing.expire(now_ms)
            self.expired_count += count
            self._context.dropped.expired += count
            return
        while True:
            late = self.backing.fetch_expired(now_ms, DROPPED_AT_ONCE)
            if not late:
                break
            if self._counts_bodies():
                self._count_bodies(late, -1)
            self._expired(late)
        due_ms = self.backing.next_expiry_ms()
        self._expired_away = 0 < due_ms <= now_ms

    def _expired(self, late: list[Message]) -> None:
        self.expired_count += len(late)
        self._die(late, EXPIRED)

    def next_expiry_ms(self) -> i64:
        """0 as well while the head is on its way: it wakes the queue when it is there."""
        return 0 if self._expired_away else self.backing.next_expiry_ms()

    def next_due_ms(self) -> i64:
        """When ``expire`` should be called next; 0 = nothing here has a time to die."""
        head_ms = self.next_expiry_ms()
        sweep_ms = self.backing.next_sweep_ms()
        return sweep_ms if head_ms == 0 or 0 < sweep_ms < head_ms else head_ms
