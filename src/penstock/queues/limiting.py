"""Messages that leave a queue dropped or as dead letters: length, TTL, rejected, delivery limit.

A message that dies (over its time, pushed out, refused by a consumer, tried too often) is simply
acknowledged when the queue buries none.  Else it stays pending in the backing and is put on
``deaths``, a list the broker reads in the same turn: it becomes a dead letter, and is acknowledged
when that letter is on disk (``dead_letters``).  A crash in between brings both back, never
none.

**Dropping from the head** spares what consumers can still take: in RabbitMQ a message is offered
to consumers before it counts, here deliveries come at the end of a turn.

**Bytes** are those of bodies.  They are counted here, as messages come and go, and only for
queues that limit them.  What is there after a start, or when the first limit in bytes comes, counts
with its properties, since the disk has one size of each; the surplus stays until nothing is ready.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.core.clock_types import WallMs
from penstock.core.letters import DELIVERY_LIMIT, EXPIRED, MAXLEN
from penstock.core.long_work import DEATH_STEPS, LongWork
from penstock.core.message import Message, attempts_of, body_size
from penstock.core.steps import steps
from penstock.queues.context import QueueContext
from penstock.queues.limits import DeadLetterBatch
from penstock.queues.queue import Queue

DROPPED_AT_ONCE: Final[i64] = 1024
EXPIRED_AT_ONCE: Final[i64] = 8192
"""With nothing else to do for them."""
DROPPED_BYTES_MAX: Final[i64] = 4 * 1024 * 1024


@final
class QueueLimiter(LongWork):
    """Of one queue, around its backing."""

    def __init__(self, queue: Queue, context: QueueContext) -> None:
        self.body_bytes: i64 = 0  # of ready messages, if bytes are limited
        self.expired_count: i64 = 0
        self.dropped_count: i64 = 0
        self._is_dropping: bool = False  # in shares: more than a turn holds are over the limit
        self._queue = queue
        self._backing: BackingQueue = queue.backing
        self._context = context

    def measure_bodies(self) -> None:
        """Bytes are limited from now on."""
        self.body_bytes = self._backing.ready_bytes()

    # -- death -----------------------------------------------------------------------------

    def die(self, messages: list[Message], reason: str) -> None:
        """These are pending, and no consumer will have them."""
        if self._queue.limits.buries:
            self._context.deaths.append(DeadLetterBatch(self._queue, reason, messages, False))
            return
        self._context.dropped.count(reason, len(messages))
        if reason == MAXLEN:
            self._backing.ack_behind(messages)  # what they make room for may not be synced yet
        else:
            self._backing.ack(messages)

    def live_on(self, messages: list[Message], failed: bool) -> list[Message]:
        """Of messages that come back, those that were not tried too often.

        ``failed``: for a quorum queue it is an attempt.  With leases these count when handed out.
        """
        limit = self._queue.limits.delivery_limit
        returns = self._queue.is_quorum
        counted = self._queue.leases is not None or (returns and not failed)
        living: list[Message] = []
        exhausted: list[Message] = []
        for message in messages:
            if not counted:
                message.tried()
            if returns:
                message.returned()
            (living if attempts_of(message) <= limit or limit < 0 else exhausted).append(message)
        if exhausted:
            self.die(exhausted, DELIVERY_LIMIT)
        if living and (returns or not counted):
            self._backing.note_attempts(living)
        return living

    def count_bodies(self, messages: list[Message], sign: i64) -> None:
        """Bodies that became ready (1) or are ready no more (-1)."""
        total: i64 = 0
        for message in messages:
            total += body_size(message.content) if len(message.content) > 0 else message.size
        self.body_bytes += sign * total
        if self._backing.ready_count() == 0 or self.body_bytes < 0:
            self.body_bytes = 0

    def order_by_priority(self, backing: BackingQueue) -> None:
        """From now on they are in this one, which has that of before as a part."""
        self._backing = backing

    def limits_bytes(self) -> bool:
        return self._queue.limits.max_length_bytes >= 0

    def returned(self, messages: list[Message]) -> None:
        """Their bodies are ready again."""
        if self.limits_bytes():
            self.count_bodies(messages, 1)

    def add_bodies(self, size: i64) -> None:
        """So many bytes of bodies became ready."""
        self.body_bytes += size

    def shrink(self) -> None:
        """Some that were ready are gone."""
        self.body_bytes = min(self.body_bytes, self._backing.ready_bytes())

    # -- lengths ---------------------------------------------------------------------------

    def not_fitting(self, count: i64) -> i64:
        """If so many came, how many of all must consumers take that none is too many?"""
        limits = self._queue.limits
        over = self._backing.ready_count() + count
        return over - limits.max_length if limits.max_length_bytes < 0 else over

    def overflowing(self, messages: list[Message], spare: i64) -> set[int]:
        """The places of those there is no room for; ``spare``: so many need none."""
        limits = self._queue.limits
        count = self._backing.ready_count() - spare
        size = self.body_bytes
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
        if self._queue.limits.buries and self._queue.limits.buries_refused:
            self._context.deaths.append(DeadLetterBatch(self._queue, MAXLEN, messages, True))
        else:
            self._context.dropped.count(MAXLEN, len(messages))

    def drop_over_limit(self) -> None:
        """The oldest go, as many as are too many; what is on its way from disk goes later."""
        if not self._is_dropping and self._drop_some() and self._drop_some():
            self._is_dropping = self._context.long_works.start(self) is not None

    def step(self) -> bool:
        steps.count(DROPPED_AT_ONCE * DEATH_STEPS)
        self._is_dropping = not self._queue.deleted and self._drop_some()
        return self._is_dropping

    def _drop_some(self) -> bool:
        messages = self._first_over()
        if not messages:
            return False
        self.dropped_count += len(messages)
        self.die(messages, MAXLEN)
        return True

    def _first_over(self) -> list[Message]:
        limits = self._queue.limits
        over: i64 = 0
        if limits.max_length >= 0:
            over = self._backing.ready_count() - limits.max_length
        excess: i64 = 0
        if limits.max_length_bytes >= 0:
            excess = self.body_bytes - limits.max_length_bytes
        if over > 0 or excess > 0:
            spare = self._queue.spare_room(max(over, 1))
            over -= spare
            excess = 0 if spare > 0 else excess
        if over <= 0 and excess <= 0:
            return []
        fetched = self._backing.fetch_surplus(
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
            self._backing.unfetch(fetched[count:])
            del fetched[count:]
        if limits.max_length_bytes >= 0:
            self.count_bodies(fetched, -1)
        return fetched

    # -- time ------------------------------------------------------------------------------

    def expire(self, now_ms: WallMs) -> bool:
        """Let die some of what is over its time and no consumer could take.

        Returns whether the head is over its time, and on its way from disk.
        """
        head_away = self._expire_head(now_ms)
        late = self._backing.sweep_expired(now_ms, DROPPED_AT_ONCE)
        if late:
            self._expire_ready(late)
        return head_away

    def _expire_head(self, now_ms: WallMs) -> bool:
        limits = self._queue.limits
        if not limits.buries and limits.max_length_bytes < 0:
            count = self._backing.expire(now_ms, EXPIRED_AT_ONCE)
            self.expired_count += count
            self._context.dropped.count(EXPIRED, count)
            return False
        late = self._backing.fetch_expired(now_ms, DROPPED_AT_ONCE)
        if late:
            self._expire_ready(late)
            return False
        return 0 < self._backing.next_expiry_ms() <= now_ms

    def expired(self, late: list[Message]) -> None:
        """These are pending, and were counted as ready no more."""
        self.expired_count += len(late)
        self.die(late, EXPIRED)

    def _expire_ready(self, late: list[Message]) -> None:
        if self._queue.limits.max_length_bytes >= 0:
            self.count_bodies(late, -1)
        self.expired(late)
