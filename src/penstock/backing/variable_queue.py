"""``VariableQueue``: a queue that is fast while short and cheap while long.

    publish ─► q1 ─► q2 ─► delta ─► q3 ─► q4 ─► fetch
               alpha  beta   on disk  beta   alpha

A message is in one of these states, by what of it is in memory:

    alpha   all of it; in q1 or q4
    beta    its position; in q2 or q3.  The content is on disk, or (small, or read ahead) in
            memory as well
    gamma   a beta whose position is in a segment too
    delta   nothing: it is one of a range of positions on disk
    pending handed out, waiting for its acknowledgement: the position, and the content until
            memory is short

In a short queue a publish goes straight to q4 and a fetch takes it from there.  When memory is
short, q4's end and q1's beginning are paged towards delta (paging.py); when the consumer
comes near, delta's head is read in (resting.py).  Messages end in ending.py and come back in
returning.py; what is delayed (delaying.py) is neither ready nor pending.  A *lazy* queue lets every
publish rest in delta at once and keeps no more than it reads ahead.

Persistent messages have a record in the journal from the start, and large ones their content
in the message store; a segment gets them only when they rest.  So the journal says that a
message exists, and the index only where it rests: RabbitMQ's gammas cost a record at once,
ours cost one when it is useful.

**Why an empty q3 and q4 mean an empty queue.**  When q3 and q4 become empty, ``look_ahead``
runs: with delta empty q1 becomes q4 (q2 is empty, see below), with delta not empty a read of
its head is begun.  So the queue is empty, or a read is under way, or nobody has asked since
the start (``cold``), or it is lazy and the next fetch asks.  RabbitMQ reads at this point and
waits; we do not hold up the loop, and the price is the other cases.

**Why an empty q3 and delta mean an empty q2.**  Betas go to q2 only while delta is not empty
(else to q3), and when the last of delta is loaded, q2 is joined to q3 at that moment.

Invariants (``check``):
  V1  positions ascend strictly over q4, q3, delta, q2, q1, and are below next_seq_id
  V2  q1 not empty => q3 not empty, or delta not empty
  V3  q2 not empty => delta not empty
  V4  q3 and q4 empty => the queue is empty, or a read is under way, or it is cold, lazy or
      faulty
  V5  q3 and delta empty => q2 empty
  V6  lazy and converted: q1, q2 and q4 are empty; ready = delta + q3
  V7  delta_start + delta_count <= delta_end; delta holds exactly what lives in the index within
      its bounds, and its tail
  V8  the content of a message is in memory, or it is STORED or INDEXED; a STORED message's
      msg_id is not 0
  V9  ready_bytes, ram_count, trimmed_count and ram_bytes are the sums over the messages
  V10 a LOGGED message that lies in a finished journal file below ``flushed`` is INDEXED
  V11 nothing pending has a position in delta
  V12 nothing is negative; ram_count <= ready
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.copying import CopiedMessages
from penstock.backing.ending import expired_at_head
from penstock.backing.interface import BackingQueue
from penstock.backing.paging import TAIL_BYTES
from penstock.backing.runs import Run, ascending
from penstock.core.message import (
    INDEXED,
    LOGGED,
    PENDING,
    PERSISTENT,
    REDELIVERED,
    SETTLED,
    STORED,
    Message,
)
from penstock.storage.engine import Engine
from penstock.storage.queue_index import QueueIndex
from penstock.storage.ram import MESSAGE_OVERHEAD_BYTES

EXPIRED_BYTES_MAX: Final[i64] = 4 * 1024 * 1024
SEQ_IDS_RESERVED: Final[i64] = 1 << 20
"""How many seq_ids a durable queue reserves at once, when half of them are used up.

A reservation must be on disk before the ids are handed out; half of it lasts for longer than
the journal goes unsynced, at any rate a queue takes (see ``Journal.reserve``)."""


@final
class VariableQueue(CopiedMessages, BackingQueue):
    """The backing of one queue; ``entries`` is its virtual host's segment size."""

    def __init__(self, engine: Engine, queue_id: i64, durable: bool, entries: i64) -> None:
        super().__init__(engine, queue_id, durable, entries)
        engine.add_queue(self)

    # -- in --------------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: i64) -> None:
        size = self._take_in(messages, now_ms)
        if self.notes is not None:
            self.notes.published(messages, 0)
        self.rates.in_count += len(messages)
        self._append_tail(messages, size)

    def publish_delayed(self, messages: list[Message], until_ms: i64, now_ms: i64) -> None:
        """New ones, delayed from the start."""
        self._take_in(messages, now_ms)
        if self.notes is not None:
            self.notes.published(messages, until_ms)
        self._defer(messages, until_ms)
        self._note_unsafe(messages[0].seq_id)

    def _take_in(self, messages: list[Message], now_ms: i64) -> i64:
        """New ones get their numbers and are written; returns the bytes of their contents."""
        seq_id = self._next_seq_id
        flags: i64 = 0
        size: i64 = 0
        largest: i64 = 0
        expiring = self._expiring
        for message in messages:
            message.seq_id = seq_id
            message.enqueued_at_ms = now_ms
            seq_id += 1
            flags |= message.flags
            size += message.size
            if message.size > largest:
                largest = message.size
            if message.expires_at_ms != 0:
                expiring = True
        if expiring:
            self._note_expiries(
                messages, self.ready_count() + self.pending.count + self.delayed.count()
            )
        self._next_seq_id = seq_id
        self._write(messages, flags, size, largest)
        return size

    def _write(self, messages: list[Message], flags: i64, size: i64, largest: i64) -> None:
        """Their numbers are known; ``flags`` of all of them, ``size`` of all contents."""
        if largest >= self._engine.limits.embed_below_bytes:
            self._store_large(messages)
        if self.durable:
            self._journal_publish(messages, flags, self._next_seq_id)
        self._account(size + len(messages) * MESSAGE_OVERHEAD_BYTES)

    def _append_tail(self, messages: list[Message], size: i64) -> None:
        count: i64 = len(messages)
        self._ready_bytes += size
        if self.lazy and self.q1.count() == 0 and self.q2.count() == 0:
            self._publish_lazy(messages, size)
            return
        self._ram_count += count
        # q4 while there is nothing behind it, else behind everything.
        run = self.q4 if self.q3.count() == 0 and self.delta_count == 0 else self.q1
        if count == 1:
            run.messages.append(messages[0])
        else:
            run.append_all(messages)

    def _store_large(self, messages: list[Message]) -> None:
        """Large persistent ones go to the store, or are there already for another queue."""
        store = self._engine.store
        least = self._engine.limits.embed_below_bytes
        for message in messages:
            if self.durable and message.flags & PERSISTENT and message.size >= least:
                if message.msg_id == 0:
                    message.msg_id = store.write(message.content, 1)
                else:
                    store.refer(message.msg_id, 1)
                message.flags |= STORED
            else:
                message.msg_id = 0

    def _journal_publish(self, messages: list[Message], flags: i64, next_seq_id: i64) -> None:
        self._reserve(next_seq_id)
        if flags & PERSISTENT:
            written = self._engine.journal.publish(self.queue_id, messages)
            self.disk_writes += written
            self._engine.disk_writes += written
            self._journalled(written)

    def _reserve(self, next_seq_id: i64) -> None:
        if self.durable and next_seq_id > self._reserved_seq_id - SEQ_IDS_RESERVED // 2:
            self._reserved_seq_id = next_seq_id + SEQ_IDS_RESERVED
            self._engine.journal.reserve(self.queue_id, self._reserved_seq_id)

    def _publish_lazy(self, messages: list[Message], size: i64) -> None:
        if self.delta_count == 0:
            self.delta_start = messages[0].seq_id
        count: i64 = len(messages)
        self.delta_end = messages[count - 1].seq_id + 1
        self.delta_count += count
        self.delta_bytes += size
        self.moves.in_delta += count
        self.tail_bytes += size
        self.tail.append_all(messages)
        if self.tail_bytes >= TAIL_BYTES:
            self.flush_tail()

    # -- out -------------------------------------------------------------------------------

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        self._cold = False
        if self._read is not None or self._fill_store is not None or self._fill_read is not None:
            self.absorb()
        if self.q4.count() == 0 and self.q3.count() == 0:
            self.look_ahead()
        run = self.q4 if self.q4.count() > 0 else self.q3
        taken = run.take(_fitting(run, max_messages, max_bytes))
        count: i64 = len(taken)
        if count == 0:
            if max_messages > 0 and self.ready_count() > 0:
                self.starved()
                self.look_ahead()
            return taken
        size: i64 = 0
        for message in taken:
            size += message.size
            message.flags |= PENDING
        self._ready_bytes -= size
        self._ram_count -= count
        self.pending.add(taken, size)
        self.rates.out_count += count
        self.rates.ack_in_count += count
        self.rates.left_bytes += size + count * MESSAGE_OVERHEAD_BYTES
        if self.q4.count() == 0:
            self.look_ahead()
        return taken

    def fetch_expired(self, now_ms: i64, max_messages: i64) -> list[Message]:
        if not self._expiring:
            return []
        self.absorb()
        count = expired_at_head(self.q4 if self.q4.count() > 0 else self.q3, now_ms)
        return self.fetch(count if count < max_messages else max_messages, EXPIRED_BYTES_MAX)

    # -- looking ---------------------------------------------------------------------------

    def ready_bytes(self) -> i64:
        return self._ready_bytes

    def next_seq_id(self) -> i64:
        return self._next_seq_id

    def firm_seq_id(self) -> i64:
        return self._first_unsafe()

    def floor_seq_id(self) -> i64:
        head = self._head()
        if head is not None:
            return head.seq_id
        if self.delta_count > 0:
            return self.delta_start
        if self.q1.count() > 0:
            return self.q1.first().seq_id
        return self._next_seq_id

    # -- the journal's files ---------------------------------------------------------------

    def needs_file(self, file_no: i64) -> bool:
        return 0 < self._oldest_file <= file_no

    def flush_file(self, file_no: i64, quota: i64) -> bool:
        if self._deleted:
            return True
        self._settle_left()
        if self._mixed_upto > 0:
            file_no = self._begin_pass(file_no)
        unwritten: list[Message] = []
        upto = self._flushed_seq_id
        done = False
        for run in [self.q4, self.q3, self.tail, self.q2, self.q1]:
            place = run.first_at(self._flushed_seq_id)
            end: i64 = len(run.messages)
            while place < end and quota > 0 and not done:
                message = run.messages[place]
                if message.flags & (LOGGED | INDEXED) == LOGGED:
                    if message.file_no <= file_no:
                        unwritten.append(message)
                    elif self._mixed_upto == 0:
                        done = True  # all behind it are younger still
                        break
                upto = message.seq_id + 1
                place += 1
                quota -= 1
        done = done or quota > 0
        if done:
            # In the same step, for what was handed out or delayed meanwhile.
            held = self.pending.live() + self.delayed.messages()
            unwritten.extend(
                [
                    message
                    for message in held
                    if message.flags & (LOGGED | INDEXED) == LOGGED and message.file_no <= file_no
                ]
            )
        for message in unwritten:
            if not self._the_index().can_append(message.seq_id):
                return False
        if unwritten:
            self._the_index().append(ascending(unwritten))
            if self.delayed.count() > 0:
                self._index_delays(unwritten)
        self._flushed_seq_id = upto
        if done and self._mixed_upto > 0:
            self._end_pass()
        return done

    def flushed(self, file_no: i64) -> None:
        self._oldest_file = file_no + 1 if self._newest_file > file_no else 0
        self.dirty_count = 0
        if 0 < self._mixed_upto <= file_no:
            self._end_pass()
            self._mixed_upto = 0

    # -- start and stop --------------------------------------------------------------------

    def adopt(self, index: QueueIndex | None, next_seq_id: i64, may_expire: bool) -> None:
        """Start from what was found on disk: all of it is delta."""
        self._next_seq_id = next_seq_id
        self._reserved_seq_id = next_seq_id
        self._flushed_seq_id = next_seq_id
        self._adopt_times(index, may_expire)
        self.index = index
        if index is not None and index.live_count > 0:
            self.delta_start = index.first_seq_id()
            self.delta_end = next_seq_id
            self.delta_count = index.live_count
            self.delta_bytes = index.live_bytes
            self._ready_bytes = index.live_bytes
            self._cold = True
            self._adopt_delayed(index)
        self._found_count = self.delta_count + self.delayed.count()
        self._found_seq_id = next_seq_id

    def note_delivered(self) -> None:
        """Before a clean stop: what was handed out is to be marked so after the start."""
        self._settle_left()
        index = self.index
        for run in [self.q4, self.q3, self.tail, self.q2, self.q1]:
            _mark_delivered(index, run.live())
        pending = self.pending.live()
        for message in pending:
            message.flags |= REDELIVERED
        _mark_delivered(index, pending)
        _mark_delivered(index, self.delayed.messages())

    def expiring(self) -> bool:
        return self._expiring

    # -- check ----------------------------------------------------------------------------

    def check(self) -> None:
        self._check_order()
        self._check_counts()
        self.pending.check()
        self.delayed.check()
        if self.q1.count() > 0:
            assert self.q3.count() > 0 or self.delta_count > 0, "V2"
        if self.q2.count() > 0:
            assert self.delta_count > 0, "V3, V5"
        if self.q3.count() + self.q4.count() == 0 and self.ready_count() > 0 and not self.lazy:
            assert self._read is not None or self._cold or self.fault != "", "V4"
        if self.lazy and not self.converting():
            assert self.q1.count() + self.q2.count() + self.q4.count() == 0, "V6"
        assert self.delta_start + self.delta_count <= self.delta_end or self.delta_count == 0, "V7"
        if self.delta_count > 0 and self.pending.count > 0:
            for message in self.pending.live():
                assert message.seq_id < self.delta_start, "V11"
        if self.index is not None:
            self.index.check()
            self._check_delta(self.index)

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
        assert last < self._next_seq_id, "V1"
        if self.durable:
            assert self._next_seq_id <= self._reserved_seq_id, "V1"

    def _check_counts(self) -> None:
        size: i64 = self.delta_bytes
        ram_count: i64 = 0
        trimmed: i64 = 0
        ram_bytes: i64 = self.pending.ram_bytes + self.tail_bytes
        objects: i64 = self.pending.count + self.tail.count() + self.delayed.count()
        for message in self.delayed.messages():
            ram_bytes += len(message.content)
        for run in [self.q4, self.q3, self.q2, self.q1]:
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
        assert size == self._ready_bytes, "V9"
        assert ram_count == self._ram_count, "V9"
        assert trimmed == self._trimmed_count, "V9"
        assert ram_bytes + objects * MESSAGE_OVERHEAD_BYTES == self._ram_bytes, "V9"
        assert 0 <= self._ram_count <= self.ready_count(), "V12"
        assert self.delta_count >= 0, "V12"
        assert self.delta_bytes >= 0, "V12"
        assert self.tail_bytes >= 0, "V12"

    def _check_message(self, message: Message) -> None:
        flags = message.flags
        assert not flags & SETTLED, "V8"
        assert message.size > 0, "V8"
        assert len(message.content) == message.size or (
            len(message.content) == 0 and flags & (STORED | INDEXED)
        ), "V8"
        assert not flags & STORED or message.msg_id > 0, "V8"
        if flags & LOGGED and message.seq_id < self._flushed_seq_id:
            assert flags & INDEXED or message.file_no >= self._oldest_file > 0, "V10"

    def _check_delta(self, index: QueueIndex) -> None:
        """What lives in the index is delta, or known by position."""
        known: i64 = len(self._places_left())
        in_tail: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
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


def _mark_delivered(index: QueueIndex | None, messages: list[Message]) -> None:
    if index is None:
        return
    for message in messages:
        if message.flags & INDEXED and message.flags & REDELIVERED:
            index.mark_delivered(message.seq_id)


def _fitting(run: Run, max_messages: i64, max_bytes: i64) -> i64:
    """How many of the first messages fit and are at hand; at least one if the first is."""
    count: i64 = run.count()
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
