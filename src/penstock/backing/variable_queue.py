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

Its invariants are in ``checking``.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.checking import CheckedMessages
from penstock.backing.ending import expired_at_head
from penstock.backing.interface import BackingQueue
from penstock.backing.message_deque import MessageDeque, ascending
from penstock.backing.paging import TAIL_BYTES
from penstock.core.message import (
    INDEXED,
    LOGGED,
    PENDING,
    PERSISTENT,
    REDELIVERED,
    STORED,
    Message,
)
from penstock.storage.engine.engine import Engine
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex

ALL_CONTENTS: Final[i64] = 1 << 62
EXPIRED_BYTES_MAX: Final[i64] = 4 * 1024 * 1024
SEQ_IDS_RESERVED: Final[i64] = 1 << 20
"""How many seq_ids a durable queue reserves at once, when half of them are used up.

A reservation must be on disk before the ids are handed out; half of it lasts for longer than
the journal goes unsynced, at any rate a queue takes (see ``Journal.reserve``)."""


@final
class VariableQueue(CheckedMessages, BackingQueue):
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
            self.persistent_count += written
            self.disk_writes += written
            self._engine.disk_writes += written
            self._journalled()

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
        for message in messages:
            if not message.flags & PERSISTENT:
                self.delta_transient_count += 1
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
        self._reach_head(now_ms)
        count = expired_at_head(self.q4 if self.q4.count() > 0 else self.q3, now_ms)
        return (
            []
            if count == 0
            else self.fetch(count if count < max_messages else max_messages, EXPIRED_BYTES_MAX)
        )

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
        if self._mixed_upto > 0:
            file_no = self._begin_pass(file_no)
        done = self._flush(file_no, self._next_seq_id, ALL_CONTENTS, quota)
        if done and self._mixed_upto > 0:
            self._end_pass()
        return done

    def flush_safe(self, quota: i64) -> bool:
        if self._mixed_upto > 0:
            return True  # until that file is retired
        newest = self._engine.journal.current.number
        return self._flush(newest, self._first_unsafe(), self._engine.store.durable_msg_id, quota)

    def _flush(self, file_no: i64, below: i64, durable_msg_id: i64, quota: i64) -> bool:
        """What is below that position, and of a large one the content within that number."""
        if self._deleted:
            return True
        self._settle_left()
        unwritten: list[Message] = []
        upto = self._flushed_seq_id
        done = False
        for run in [self.q4, self.q3, self.tail, self.q2, self.q1]:
            place = run.first_at(self._flushed_seq_id)
            end: i64 = len(run.messages)
            while place < end and quota > 0 and not done:
                message = run.messages[place]
                if message.flags & (LOGGED | INDEXED) == LOGGED:
                    if _may_rest(message, file_no, below, durable_msg_id):
                        unwritten.append(message)
                    elif self._mixed_upto == 0:
                        done = True  # those behind it are younger still
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
                    if message.flags & (LOGGED | INDEXED) == LOGGED
                    and _may_rest(message, file_no, below, durable_msg_id)
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
        return done

    def flushed(self, file_no: i64) -> None:
        self._oldest_file = file_no + 1 if self._newest_file > file_no else 0
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
            self.persistent_count = index.live_count
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


def _mark_delivered(index: QueueIndex | None, messages: list[Message]) -> None:
    if index is None:
        return
    for message in messages:
        if message.flags & INDEXED and message.flags & REDELIVERED:
            index.mark_delivered(message.seq_id)


def _may_rest(message: Message, file_no: i64, below: i64, durable_msg_id: i64) -> bool:
    return (
        message.file_no <= file_no
        and message.seq_id < below
        and (not message.flags & STORED or message.msg_id <= durable_msg_id)
    )


def _fitting(run: MessageDeque, max_messages: i64, max_bytes: i64) -> i64:
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
