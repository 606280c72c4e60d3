"""The tiers of a queue: what of its messages is in memory, and where the rest of them is.

    append ─► q1 ─► q2 ─► delta ─► q3 ─► q4 ─► fetch
              alpha  beta   on disk  beta   alpha

``Tiers`` owns the four runs in memory, the bounds and counts of delta, delta's unwritten tail, the
pending and the delayed messages, and all counters of them; nothing else writes these.  Its verbs
are the transitions of messages (publish, fetch, end, hold, spill, trim, load, put); each leaves
counters and memory account right.  The caller decides when to call a verb, and writes its records
to the disk (disk_records.py).

Always true, and asserted by ``check``:
  V1  positions ascend strictly over q4, q3, delta, q2, q1, and are below next_seq_id
  V2  q1 not empty => q3 not empty, or delta not empty
  V3  q2 not empty => delta not empty
  V5  q3 and delta empty => q2 empty
  V6  lazy and converted: q1, q2 and q4 are empty; ready = delta + q3
  V7  delta_start + delta_count <= delta_end; delta holds exactly what lives in the index within
      its bounds, and its tail
  V8  the content of a message is in memory, or it is STORED or INDEXED; a STORED message's
      msg_id is not 0
  V9  ready_bytes, ram_count, trimmed_count, ram_bytes, persistent_count and
      delta_transient_count are the sums over the messages
  V10 a LOGGED message that lies in a finished journal file below ``flushed`` is INDEXED
  V11 nothing pending has a position in delta
  V12 nothing is negative; ram_count <= ready
V4 is in read_ahead.py.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.deferrals import NO_DEFERRALS, Deferrals
from penstock.backing.disk_records import DiskRecords
from penstock.backing.expiry_times import ExpiryTimes
from penstock.backing.message_deque import NO_MESSAGES, MessageDeque, ascending
from penstock.backing.pending import PendingAcks
from penstock.backing.ram_target import (
    BETA_TO_GAMMA,
    DELTA_TO_Q3,
    PENDING_TO_DISK,
    PUBLISH_TO_DELTA,
    Q1_TO_BETA,
    Q1_TO_Q4,
    Q2_TO_DELTA,
    Q2_TO_Q3,
    Q3_TO_DELTA,
    Q4_TO_BETA,
    Moves,
    Rates,
)
from penstock.core.clock_types import WallMs
from penstock.core.message import (
    INDEXED,
    LOGGED,
    PENDING,
    PERSISTENT,
    SETTLED,
    STORED,
    Message,
    mark_redelivered,
)
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.engine.resting_queue import INFINITE
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.reading import EVERYTHING
from penstock.storage.index.segment_jobs import SegmentRead

HEAD_LEAST_MESSAGES: Final[i64] = 64
HEAD_LEAST_BYTES: Final[i64] = 256 * 1024
"""So many messages stay at the head, whatever the target, if they are no more than that: eight
queues with 64 messages of a megabyte each would hold half a gigabyte."""
RUN: Final[i64] = 0
TAIL: Final[i64] = 1
SEGMENTS: Final[i64] = 2
OUT: Final[i64] = 3
ASIDE: Final[i64] = 4
"""Where a message is when it ends: ready in q1 to q4, in the tail of delta or in its segments (from
which it was read); handed out, that is pending; or delayed or held."""
COOLED_BYTES: Final[i64] = 64
"""A smaller content stays in memory: the message beside it is larger."""
TAIL_BYTES: Final[i64] = 128 * 1024
"""So much of delta's end is collected before it is written."""


@final
class Tiers:
    """The messages of one queue."""

    def __init__(self, records: DiskRecords, times: ExpiryTimes) -> None:
        self._records: Final = records
        self._times: Final = times
        self.q1: MessageDeque = MessageDeque()
        self.q2: MessageDeque = MessageDeque()
        self.q3: MessageDeque = MessageDeque()
        self.q4: MessageDeque = MessageDeque()
        self.tail: MessageDeque = MessageDeque()  # the end of delta that no segment has yet
        self.tail_bytes: i64 = 0
        self.delta_start: i64 = 0
        self.delta_end: i64 = 0
        self.delta_count: i64 = 0
        self.delta_bytes: i64 = 0
        self.delta_transient_count: i64 = 0
        self.pending: PendingAcks = PendingAcks()
        # Positions in memory, neither ready nor pending: they wait for their time, or were taken
        # out from anywhere and are held until they are acknowledged.
        self.delayed: Deferrals = NO_DEFERRALS
        self.ready_bytes: i64 = 0
        self.ram_count: i64 = 0  # ready, content in memory, delta's tail not counted
        self.ram_bytes: i64 = 0  # contents and objects, pending and tail too
        self.trimmed_count: i64 = 0  # in q3 and q2, content only on disk
        self.flushed_seq_id: i64 = 0  # see ``note_flushed``
        self.target_ram_bytes: i64 = INFINITE  # what may stay in memory
        self.lazy: bool = False
        self.cold: bool = False  # no consumer asked since the start, or the last drop
        self.rates: Rates = Rates()
        self._moves: Moves | None = None  # since the first

    # -- looking ---------------------------------------------------------------------------

    @property
    def moves(self) -> Moves:
        if self._moves is None:
            self._moves = Moves()
        return self._moves

    def tick(self, now_ms: WallMs) -> None:
        """Some time has passed: averages move."""
        self.rates.update(now_ms)
        if self._moves is not None:
            self._moves.update(now_ms)

    def is_still(self) -> bool:
        """Would ``tick`` change nothing?"""
        return self.rates.is_still() and (self._moves is None or self._moves.is_still())

    def stood_until(self, now_ms: WallMs) -> None:
        """There was no ``tick``, as it was still, until then."""
        self.rates.stood_until(now_ms)
        if self._moves is not None:
            self._moves.stood_until(now_ms)

    def disk_bytes(self) -> i64:
        """A durable queue's transient messages count as if they were persistent."""
        held = self.ready_bytes + self.pending.bytes + self.delayed.bytes
        if self._records.durable:
            return held
        objects: i64 = self.delayed.count()
        for run in self.runs_and_tail():
            objects += run.count()
        objects += self.pending.count
        elsewhere = held - (self.ram_bytes - objects * MESSAGE_OVERHEAD_BYTES)
        return elsewhere if elsewhere > 0 else 0

    def disk_count(self) -> i64:
        """Ready messages whose contents are not in memory."""
        return self.ready_count() - self.ram_count - self.tail.count()

    def ready_count(self) -> i64:
        q4, q3, q2, q1 = self.q4, self.q3, self.q2, self.q1
        head = len(q4.messages) - q4.head + len(q3.messages) - q3.head
        return head + self.delta_count + len(q2.messages) - q2.head + len(q1.messages) - q1.head

    def own_delayed(self) -> Deferrals:
        """``delayed``, for one that is to be in it."""
        if self.delayed is NO_DEFERRALS:
            self.delayed = Deferrals()
        return self.delayed

    def living_count(self) -> i64:
        """Of whatever state."""
        return self.ready_count() + self.pending.count + self.delayed.count()

    def runs(self) -> list[MessageDeque]:
        """From the head, without delta."""
        return [self.q4, self.q3, self.q2, self.q1]

    def runs_and_tail(self) -> list[MessageDeque]:
        """From the head, with the unwritten end of delta."""
        return [self.q4, self.q3, self.tail, self.q2, self.q1]

    def account(self, size: i64) -> None:
        """So many bytes more are in memory."""
        self.ram_bytes += size
        self._records.engine.ram.queued_bytes += size

    def head(self) -> Message | None:
        """The first ready message, if it is in memory as a position at least."""
        if self.q4.count() > 0:
            return self.q4.first()
        if self.q3.count() > 0:
            return self.q3.first()
        return None

    def size_of_one(self) -> i64:
        """Of the messages that are ready, on the average."""
        ready = self.ready_count()
        return self.ready_bytes // ready + MESSAGE_OVERHEAD_BYTES if ready > 0 else 1

    def head_least(self) -> i64:
        """So many messages stay at the head, whatever the target."""
        least = HEAD_LEAST_BYTES // self.size_of_one()
        if least < 1:
            return 1
        return least if least < HEAD_LEAST_MESSAGES else HEAD_LEAST_MESSAGES

    def floor_seq_id(self) -> i64:
        """No ready message has a smaller number."""
        head = self.head()
        if head is not None:
            return head.seq_id
        if self.delta_count > 0:
            return self.delta_start
        if self.q1.count() > 0:
            return self.q1.first().seq_id
        return self._records.next_seq_id

    def segments_end(self, end: i64) -> i64:
        """What of delta is below has a record in a segment."""
        tail_start = self.tail.first().seq_id if self.tail.count() > 0 else self.delta_end
        return end if end < tail_start else tail_start

    def decode(
        self, job: SegmentRead, count: i64 = EVERYTHING, size: i64 = EVERYTHING
    ) -> list[Message]:
        """The ready ones of a stretch of delta, or more than ``count`` or ``size`` bytes of them.

        Delayed ones may lie among them, and old places of what was moved from among them.
        """
        delayed = self.delayed
        if delayed.count() == 0 and not self._records.has_left():
            return self._records.the_index().decode(job, count, size)
        messages = self._records.the_index().decode(job)
        left = {int(message.seq_id) for message in self._records.places_left()}
        return [
            message
            for message in messages
            if not delayed.has(int(message.seq_id)) and int(message.seq_id) not in left
        ]

    def converting(self) -> bool:
        """Lazy was asked for, and alphas are still here."""
        return self.lazy and (self.q4.count() > 0 or self.q1.count() > 0 or self.q2.count() > 0)

    # -- new ones --------------------------------------------------------------------------

    def add(self, messages: list[Message], size: i64) -> bool:
        """New ones, contents at hand, ``size`` bytes of them, behind all others; as ``append``."""
        self.rates.in_count += len(messages)
        self.account(size + len(messages) * MESSAGE_OVERHEAD_BYTES)
        return self.append(messages, size)

    def append(self, messages: list[Message], size: i64) -> bool:
        """Behind all others; True = the tail of delta is long enough to be written."""
        count: i64 = len(messages)
        self.ready_bytes += size
        if self.lazy and self.q1.count() == 0 and self.q2.count() == 0:
            self._append_lazy(messages, size)
            return self.tail_bytes >= TAIL_BYTES
        self.ram_count += count
        # q4 while there is nothing behind it, else behind everything.
        run = self.q4 if self.q3.count() == 0 and self.delta_count == 0 else self.q1
        if count == 1 and run.messages is not NO_MESSAGES:
            run.messages.append(messages[0])
        else:
            run.append_all(messages)
        return False

    def _append_lazy(self, messages: list[Message], size: i64) -> None:
        if self.delta_count == 0:
            self.delta_start = messages[0].seq_id
        self.delta_end = messages[len(messages) - 1].seq_id + 1
        self.moves.count(PUBLISH_TO_DELTA, len(messages))
        self._count_into_delta(messages, size)
        self.tail_bytes += size
        self.tail.append_all(messages)

    def _count_into_delta(self, messages: list[Message], size: i64) -> None:
        self.delta_count += len(messages)
        self.delta_bytes += size
        for message in messages:
            if not message.flags & PERSISTENT:
                self.delta_transient_count += 1

    # -- out of the ready ones -------------------------------------------------------------

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        """Of the head what is at hand and fits, pending from now on."""
        self.cold = False
        run = self.q4 if len(self.q4.messages) > self.q4.head else self.q3
        taken = run.take(_fitting(run, max_messages, max_bytes))
        count: i64 = len(taken)
        if count == 0:
            return taken
        size: i64 = 0
        for message in taken:
            size += message.size
            message.flags |= PENDING
        self.ready_bytes -= size
        self.ram_count -= count
        self.pending.add(taken, size)
        self.rates.handed_out(count, size + count * MESSAGE_OVERHEAD_BYTES)
        return taken

    def end(self, messages: list[Message], origin: i64) -> i64:
        """Messages are gone; returns the flags that any of them had.

        ``origin`` says where they are; those of a run or of the tail have been taken out of it.
        """
        flags: i64 = 0
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        for message in messages:
            flags |= message.flags
            message.flags = (message.flags | SETTLED) & ~PENDING
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        count: i64 = len(messages)
        if origin == SEGMENTS:
            self.leave_delta(messages)
            return flags
        if origin == OUT:
            self.pending.remove(count, size, ram_count, ram_bytes)
            self.rates.ack_out_count += count
            self.rates.left_bytes += size + count * MESSAGE_OVERHEAD_BYTES
        elif origin == ASIDE:
            for message in messages:
                self.delayed.end(message)
        else:
            if origin == TAIL:
                self._leave_tail(messages)
            self._leave_ready(count, size, ram_count)
        self.account(-ram_bytes - count * MESSAGE_OVERHEAD_BYTES)
        return flags

    def hold(self, messages: list[Message], origin: i64) -> None:
        """Ready messages, taken out of ``origin``, are held until they are acknowledged."""
        for message in messages:
            self.own_delayed().hold(message)
        size, ram_count, ram_bytes = _sizes(messages)
        count: i64 = len(messages)
        if origin == SEGMENTS:
            self.leave_delta(messages)
            self.account(ram_bytes + count * MESSAGE_OVERHEAD_BYTES)
            self.rates.dropped(count)
            return
        if origin == TAIL:
            self._leave_tail(messages)
        self._leave_ready(count, size, ram_count)

    def _leave_ready(self, count: i64, size: i64, ram_count: i64) -> None:
        """So many have left the ready ones in memory, ``ram_count`` of them with contents."""
        self.ready_bytes -= size
        self.ram_count -= ram_count
        self.trimmed_count -= count - ram_count
        self.rates.dropped(count)

    # -- pending ---------------------------------------------------------------------------

    def unfetch(self, messages: list[Message]) -> None:
        """The last messages of the last ``fetch`` are ready again, unmarked."""
        count: i64 = len(messages)
        before = self.ready_bytes
        self.leave_pending(messages)
        self.put(messages)
        size = self.ready_bytes - before + count * MESSAGE_OVERHEAD_BYTES
        self.rates.handed_out(-count, -size)

    def requeue(self, messages: list[Message]) -> None:
        """Pending messages are ready again at their places, marked redelivered."""
        self.leave_pending(messages)
        mark_redelivered(messages)
        self.put(ascending(messages))

    # -- memory ----------------------------------------------------------------------------

    def set_target(self, target_bytes: i64) -> None:
        self.target_ram_bytes = target_bytes

    def set_lazy(self, lazy: bool) -> None:
        self.lazy = lazy

    def note_gammas(self, count: i64) -> None:
        """So many got a record in a segment because they rest."""
        self.moves.count(BETA_TO_GAMMA, count)

    def note_cold(self) -> None:
        """Nothing is read ahead before a consumer asks."""
        self.cold = True

    def spill_q1(self, quota: i64) -> list[Message]:
        """The first of q1 become betas; returns them."""
        messages = self.q1.take(quota)
        self.moves.count(Q1_TO_BETA, len(messages))
        if self.delta_count > 0:
            self.q2.append_all(messages)
        else:
            self.q3.append_all(messages)
        return messages

    def spill_q4(self, quota: i64) -> list[Message]:
        """The last of q4 become betas; returns them."""
        messages = self.q4.take_last(quota)
        self.moves.count(Q4_TO_BETA, len(messages))
        self.q3.put_back(messages)
        return messages

    def spill_q2(self, count: i64) -> i64:
        """The first of q2, which rest in segments, become the end of delta."""
        messages = self.q2.take(count)
        if self.delta_count == 0:
            self.delta_start = messages[0].seq_id
        self.delta_end = messages[len(messages) - 1].seq_id + 1
        self.moves.count(Q2_TO_DELTA, len(messages))
        return self._into_delta(messages)

    def spill_q3(self, count: i64) -> i64:
        """The last of q3, which rest in segments, become the head of delta."""
        messages = self.q3.take_last(count)
        if self.delta_count == 0:
            self.delta_end = messages[len(messages) - 1].seq_id + 1
        self.delta_start = messages[0].seq_id
        self.moves.count(Q3_TO_DELTA, len(messages))
        return self._into_delta(messages)

    def spill_tail(self) -> None:
        """The tail rests in segments now."""
        messages = self.tail.take_all()
        self.account(-self.tail_bytes - len(messages) * MESSAGE_OVERHEAD_BYTES)
        self.tail_bytes = 0

    def cool(self, most: i64) -> None:
        """The first of the newest messages, as far as they rest, become betas without contents."""
        has_no_betas = self.q3.count() == 0 and self.delta_count == 0
        newest = self.q4 if has_no_betas else self.q1
        count = _rested(newest, most)
        if count == 0:
            return
        if has_no_betas:
            messages = self.q4.take(count)
            self.moves.count(Q4_TO_BETA, count)
            self.q3.append_all(messages)
            self.q4, self.q1 = self.q1, self.q4  # what follows is behind betas
        else:
            messages = self.spill_q1(count)
        large = [message for message in messages if len(message.content) >= COOLED_BYTES]
        self.ram_count -= len(large)
        self.trimmed_count += len(large)
        self.account(-_drop_contents(large))

    def trim_pending(self, messages: list[Message]) -> None:
        """The disk has the contents of these pending messages."""
        freed = _drop_contents(messages)
        self.pending.trimmed(len(messages), freed)
        self.moves.count(PENDING_TO_DISK, len(messages))
        self.account(-freed)

    def trim_delayed(self, messages: list[Message]) -> None:
        """The disk has the contents of these delayed messages."""
        self.account(-_drop_contents(messages))

    def regain(self, message: Message, content: bytes) -> None:
        """A message of q3 has its content again."""
        self._regain(message, content)
        self.ram_count += 1
        self.trimmed_count -= 1

    def regain_pending(self, message: Message, content: bytes) -> None:
        self._regain(message, content)
        self.pending.regained(message.size)

    def _regain(self, message: Message, content: bytes) -> None:
        message.content = content
        self.account(message.size)

    def regain_delayed(self, message: Message, content: bytes) -> None:
        self._regain(message, content)
        deferred = self.delayed.find(message)
        if deferred is not None:
            self.delayed.keep_in_ram([deferred])

    # -- back from delta -------------------------------------------------------------------

    def turn_over(self) -> None:
        """q3 and q4 are empty, delta too: q2 must be, and q1 becomes q4."""
        if self.q1.count() > 0:
            assert self.q2.count() == 0
            self.moves.count(Q1_TO_Q4, self.q1.count())
            empty = self.q4
            self.q4 = self.q1
            self.q1 = empty

    def load_tail(self) -> None:
        messages = self.tail.live()
        assert len(messages) == self.delta_count
        self.spill_tail()
        self.load(messages, self.delta_end)

    def load(self, messages: list[Message], upto: i64) -> None:
        """The next messages of delta, which now begins at ``upto``, become betas."""
        size, ram_count, ram_bytes = _sizes(messages)
        for message in messages:
            if message.expires_at_ms != 0:
                self._times.note_any()
            if not message.flags & PERSISTENT:
                self.delta_transient_count -= 1
        count: i64 = len(messages)
        self.moves.count(DELTA_TO_Q3, count)
        self.q3.append_all(messages)
        self.delta_start = upto
        self.delta_count -= count
        self.delta_bytes -= size
        self.ram_count += ram_count
        self.trimmed_count += count - ram_count
        self.account(ram_bytes + count * MESSAGE_OVERHEAD_BYTES)
        assert self.delta_count >= 0
        if self.delta_count == 0:
            assert self.delta_bytes == 0
            self.delta_start = 0
            self.delta_end = 0
            if self.q2.count() > 0:
                self.moves.count(Q2_TO_Q3, self.q2.count())
                self.q3.append_all(self.q2.take_all())

    def leave_pending(self, messages: list[Message]) -> None:
        for message in messages:
            message.flags &= ~PENDING
        size, ram_count, ram_bytes = _sizes(messages)
        self.pending.remove(len(messages), size, ram_count, ram_bytes)
        self.pending.came_back()

    def _become_ready(self, messages: list[Message]) -> None:
        size, ram_count, _ = _sizes(messages)
        self.ready_bytes += size
        self.ram_count += ram_count
        self.trimmed_count += len(messages) - ram_count
        if self._times.expiring:
            self._times.note_return(messages)

    def put(self, messages: list[Message]) -> None:
        """Ascending messages are ready again at their places; all of them are before delta."""
        if len(messages) == 0:
            return
        self._become_ready(messages)
        if messages[0].seq_id < self.flushed_seq_id:
            self.flushed_seq_id = messages[0].seq_id
        place: i64 = 0
        count: i64 = len(messages)
        if not self.lazy or self.q4.count() > 0:
            place = self._end_of_alphas(messages)
        if place < count:
            if self.q4.count() > 0 and messages[place].seq_id < self.q4.last().seq_id:
                # A beta must not stand between alphas: those behind it become betas.
                behind = len(self.q4.messages) - self.q4.first_at(messages[place].seq_id)
                self.q3.put_back(self.q4.take_last(behind))
            self.q3.merge(messages[place:])
        self.q4.merge(messages[:place])

    def _end_of_alphas(self, messages: list[Message]) -> i64:
        """How many of the first belong to q4: contents at hand, and before the first of q3."""
        place: i64 = 0
        count: i64 = len(messages)
        limit: i64 = self.q3.first().seq_id if self.q3.count() > 0 else self._records.next_seq_id
        while place < count:
            message = messages[place]
            if message.seq_id > limit or len(message.content) == 0:
                break
            place += 1
        return place

    def belongs_before(self, message: Message) -> bool:
        """Before delta, or before q1 when there is no delta."""
        if self.delta_count > 0:
            return message.seq_id < self.delta_start
        return self.q1.count() == 0 or message.seq_id < self.q1.first().seq_id

    def belongs_in_delta(self, message: Message) -> bool:
        """Of a lazy queue the end of delta is the end of all."""
        if self.delta_count == 0:
            return False
        if message.seq_id < self.delta_end:
            return True
        return self.lazy and self.q1.count() == 0 and self.q2.count() == 0

    def put_behind(self, messages: list[Message]) -> None:
        """As ``put``, behind delta, or behind the first of q1 when there is no delta."""
        if len(messages) == 0:
            return
        self._become_ready(messages)
        self.flush_again(messages[0])
        betas = self.q2 if self.delta_count > 0 else self.q3
        bare = False
        for message in messages:
            if len(message.content) == 0:
                bare = True
        if bare or (betas.count() > 0 and messages[0].seq_id < betas.last().seq_id):
            # An alpha must not stand between betas: those ahead of the last become betas.
            ahead = self.q1.first_at(messages[len(messages) - 1].seq_id) - self.q1.head
            betas.append_all(self.q1.take(ahead))
            betas.merge(messages)
        else:
            self.q1.merge(messages)

    def flush_again(self, message: Message) -> None:
        """It may be below what was flushed of the runs."""
        if message.seq_id < self.flushed_seq_id:
            self.flushed_seq_id = message.seq_id

    def _into_delta(self, messages: list[Message]) -> i64:
        """They are not in memory any more."""
        count: i64 = len(messages)
        size, ram_count, ram_bytes = _sizes(messages)
        self._count_into_delta(messages, size)
        self.ram_count -= ram_count
        self.trimmed_count -= count - ram_count
        self.account(-ram_bytes - count * MESSAGE_OVERHEAD_BYTES)
        return count

    def trim_stored(self, messages: list[Message]) -> None:
        """Large ones leave their content to the store."""
        stored = [
            message
            for message in messages
            if len(message.content) > 0 and self._records.into_store(message)
        ]
        self.ram_count -= len(stored)
        self.trimmed_count += len(stored)
        self.account(-_drop_contents(stored))

    def put_in_tail(self, message: Message) -> None:
        """A delayed message with its content becomes part of the unwritten end of delta."""
        self.tail.merge([message])
        self.tail_bytes += message.size
        self.flush_again(message)
        if message.seq_id >= self.delta_end:
            self.delta_end = message.seq_id + 1
        self._put_in_delta(message)

    def put_in_segments(self, message: Message) -> None:
        """A delayed message that rests in a segment becomes part of delta."""
        self.account(-len(message.content) - MESSAGE_OVERHEAD_BYTES)
        self._put_in_delta(message)

    def _put_in_delta(self, message: Message) -> None:
        self._count_into_delta([message], message.size)
        self.ready_bytes += message.size
        if self._times.expiring:
            self._times.note_return([message])

    # -- out of delta ----------------------------------------------------------------------

    def leave_delta(self, messages: list[Message]) -> None:
        """Messages read from segments of delta are not in delta any more, nor ready."""
        self.ready_bytes -= self._count_out_of_delta(messages)

    def _leave_tail(self, messages: list[Message]) -> None:
        """Messages taken out of the tail are not in delta any more: ready, but in no run."""
        self.tail_bytes -= self._count_out_of_delta(messages)
        self.ram_count += len(messages)
        if self.tail.count() > 0:
            self.delta_end = self.tail.last().seq_id + 1  # V7: nothing is behind the tail

    def _count_out_of_delta(self, messages: list[Message]) -> i64:
        size: i64 = 0
        for message in messages:
            size += message.size
            if not message.flags & PERSISTENT:
                self.delta_transient_count -= 1
        self.delta_count -= len(messages)
        self.delta_bytes -= size
        return size

    def leave_segments(self, count: i64, transient_count: i64, size: i64) -> None:
        """So many messages of delta have ended with their segments, unread."""
        self.delta_count -= count
        self.delta_transient_count -= transient_count
        self.delta_bytes -= size
        self.ready_bytes -= size

    def cut_delta(self, start: i64) -> None:
        """Nothing of delta is below ``start``."""
        self.delta_start = start

    def clear_delta(self) -> None:
        """All of delta has ended."""
        self.ready_bytes -= self.delta_bytes
        self.delta_start = 0
        self.delta_end = 0
        self.delta_count = 0
        self.delta_bytes = 0
        self.delta_transient_count = 0

    def close_ranks(self) -> bool:
        """Messages have left from anywhere: V2 and V3 hold again; True = delta came to its end."""
        ended = self.delta_count == 0 and self.delta_end > 0
        if ended:
            self.clear_delta()
            self.q3.append_all(self.q2.take_all())
        if self.q3.count() == 0 and self.delta_count == 0 and self.q4.count() > 0:
            self.q4.append_all(self.q1.take_all())
        return ended

    # -- start and end ---------------------------------------------------------------------

    def adopt(self, index: QueueIndex, next_seq_id: i64) -> None:
        """Start from what was found on disk: all of it is delta."""
        self.flushed_seq_id = next_seq_id
        if index.live_count > 0:
            self.delta_start = index.first_seq_id()
            self.delta_end = next_seq_id
            self.delta_count = index.live_count
            self.delta_bytes = index.live_bytes
            self.ready_bytes = index.live_bytes
            self.cold = True

    def resume_at(self, next_seq_id: i64) -> None:
        """Right after the start: new messages get numbers from there on, in no segment yet."""
        self.flushed_seq_id = next_seq_id
        if self.delta_count > 0:
            self.delta_end = next_seq_id

    def note_flushed(self, upto: i64) -> None:
        """Below ``upto`` no run has a message that a segment should have and has not."""
        self.flushed_seq_id = upto

    def clear(self) -> None:
        """The queue is gone, and what it had in its runs."""
        self.account(-self.ram_bytes)
        self.pending = PendingAcks()
        self.delayed = NO_DEFERRALS
        self.clear_delta()
        self.ready_bytes = 0
        self.ram_count = 0
        self.trimmed_count = 0
        self.tail_bytes = 0

    # -- invariants ------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants above; O(n), for tests."""
        self._check_order()
        self._check_counts()
        self.pending.check()
        self.delayed.check()
        assert len(NO_MESSAGES) == 0, "shared by all queues"
        assert NO_DEFERRALS.count() == 0, "shared by all queues"
        if self.q1.count() > 0:
            assert self.q3.count() > 0 or self.delta_count > 0, "V2"
        if self.q2.count() > 0:
            assert self.delta_count > 0, "V3, V5"
        if self.lazy and not self.converting():
            assert self.q1.count() + self.q2.count() + self.q4.count() == 0, "V6"
        assert self.delta_start + self.delta_count <= self.delta_end or self.delta_count == 0, "V7"
        if self.delta_count > 0 and self.pending.count > 0:
            for message in self.pending.live():
                assert message.seq_id < self.delta_start, "V11"
        if self._records.index is not None:
            self._records.index.check()
            self._check_delta(self._records.index)

    def _check_order(self) -> None:
        last: i64 = -1
        for run in [self.q4, self.q3]:
            for message in run.live():
                assert message.seq_id > last, "V1"
                last = message.seq_id
        if self.delta_count > 0:
            assert last < self.delta_start, "V1"
            last = self.delta_start - 1
            for message in self.tail.live():
                assert last < message.seq_id < self.delta_end, "V1"
                last = message.seq_id
            # Nothing of delta is behind its tail.
            assert self.tail.count() == 0 or last == self.delta_end - 1, "V7"
            last = self.delta_end - 1
        else:
            assert self.tail.count() == 0, "V7"
        for run in [self.q2, self.q1]:
            for message in run.live():
                assert message.seq_id > last, "V1"
                last = message.seq_id
        assert last < self._records.next_seq_id, "V1"
        if self._records.durable:
            assert self._records.next_seq_id <= self._records.reserved_seq_id, "V1"

    def _check_counts(self) -> None:
        size: i64 = self.delta_bytes
        ram_count: i64 = 0
        trimmed: i64 = 0
        ram_bytes: i64 = self.pending.ram_bytes + self.tail_bytes
        objects: i64 = self.pending.count + self.tail.count() + self.delayed.count()
        for message in self.delayed.messages():
            ram_bytes += len(message.content)
        for run in self.runs():
            for message in run.live():
                self._check_message(message)
                assert message.flags & PENDING == 0, "V8"
                size += message.size
                objects += 1
                if len(message.content) > 0:
                    ram_count += 1
                    ram_bytes += message.size
                else:
                    trimmed += 1
        for message in self.tail.live() + self.pending.live() + self.delayed.messages():
            self._check_message(message)
        self._check_kinds()
        assert size == self.ready_bytes, "V9"
        assert ram_count == self.ram_count, "V9"
        assert trimmed == self.trimmed_count, "V9"
        assert ram_bytes + objects * MESSAGE_OVERHEAD_BYTES == self.ram_bytes, "V9"
        assert 0 <= self.ram_count <= self.ready_count(), "V12"
        assert self.delta_count >= 0, "V12"
        assert self.delta_bytes >= 0, "V12"
        assert self.tail_bytes >= 0, "V12"

    def _check_kinds(self) -> None:
        persistent: i64 = self.delta_count - self.delta_transient_count
        journal_only: i64 = 0
        for message in self.tail.live():
            if not message.flags & PERSISTENT:
                assert self.delta_transient_count > 0, "V9"
            elif not message.flags & INDEXED:
                journal_only += 1
        messages = self.pending.live() + self.delayed.messages()
        for run in self.runs():
            messages.extend(run.live())
        for message in messages:
            if message.flags & PERSISTENT:
                persistent += 1
                if not message.flags & INDEXED:
                    journal_only += 1
        if self._records.durable:
            assert persistent == self._records.persistent_count, "V9"
            assert journal_only == self._records.journal_only_count(), "V9"
        else:
            assert self._records.persistent_count == 0, "V9"

    def _check_message(self, message: Message) -> None:
        flags = message.flags
        assert not flags & SETTLED, "V8"
        assert message.size > 0, "V8"
        assert len(message.content) == message.size or (
            len(message.content) == 0 and flags & (STORED | INDEXED)
        ), "V8"
        assert not flags & STORED or message.msg_id > 0, "V8"
        if flags & LOGGED and message.seq_id < self.flushed_seq_id:
            assert flags & INDEXED or message.file_no >= self._records.oldest_file > 0, "V10"

    def _check_delta(self, index: QueueIndex) -> None:
        """What lives in the index is delta, or known by position."""
        known: i64 = len(self._records.places_left())
        in_tail: i64 = 0
        for run in self.runs():
            for message in run.live():
                if message.flags & INDEXED:
                    known += 1
        for message in self.pending.live() + self.delayed.messages():
            if message.flags & INDEXED:
                known += 1
        for message in self.tail.live():
            if message.flags & INDEXED:
                in_tail += 1
        assert index.live_count - known == self.delta_count - self.tail.count() + in_tail, "V7"


def _sizes(messages: list[Message]) -> tuple[i64, i64, i64]:
    """Bytes of their contents; how many, and how many bytes, of them are in memory."""
    size: i64 = 0
    ram_count: i64 = 0
    ram_bytes: i64 = 0
    for message in messages:
        size += message.size
        if len(message.content) > 0:
            ram_count += 1
            ram_bytes += message.size
    return size, ram_count, ram_bytes


def _rested(run: MessageDeque, most: i64) -> i64:
    """How many of the first have a record in a segment."""
    place = run.head
    end: i64 = min(len(run.messages), place + most)
    while place < end and run.messages[place].flags & INDEXED:
        place += 1
    return place - run.head


def _drop_contents(messages: list[Message]) -> i64:
    """Returns their bytes."""
    freed: i64 = 0
    for message in messages:
        message.content = b""
        freed += message.size
    return freed


def _fitting(run: MessageDeque, max_messages: i64, max_bytes: i64) -> i64:
    """How many of the first messages fit and are at hand; at least one if the first is."""
    count: i64 = len(run.messages) - run.head
    if count > max_messages:
        count = max_messages
    messages = run.messages
    place = run.head
    end = place + count
    size: i64 = 0
    while place < end:
        message = messages[place]
        if len(message.content) == 0:
            break
        size += message.size
        if size > max_bytes and place > run.head:
            break
        place += 1
    return place - run.head
