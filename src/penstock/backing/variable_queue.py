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
comes near, delta's head is read in (resting.py).  A *lazy* queue lets every publish rest in
delta at once and keeps no more than it reads ahead.

Persistent messages have a record in the journal from the start, and large ones their content
in the message store; a segment gets them only when they rest.  So the journal says that a
message exists, and the index only where it rests: RabbitMQ's gammas cost a record at once,
ours cost one when it is useful.

**Why an empty q3 and q4 mean an empty queue.**  When q3 and q4 become empty, ``look_ahead``
runs: with delta empty q1 becomes q4 (q2 is empty, see below), with delta not empty a read of
its head is begun.  So the queue is empty, or a read is under way, or nobody has asked since
the start (``cold``), or it is lazy and the next fetch asks.  RabbitMQ reads at this point and waits; we do not hold up the loop, and
the price is the second and third case.

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

from penstock.backing.interface import BackingQueue
from penstock.backing.paging import TAIL_BYTES, PagedMessages
from penstock.backing.pending import PendingAcks
from penstock.backing.resting import Room
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
from penstock.storage.disk_jobs import run_job
from penstock.storage.engine import Engine
from penstock.storage.queue_index import QueueIndex
from penstock.storage.ram import MESSAGE_OVERHEAD_BYTES

SEQ_IDS_RESERVED: Final[i64] = 1 << 20
"""How many seq_ids a durable queue reserves at once, when half of them are used up.

A reservation must be on disk before the ids are handed out; half of it lasts for longer than
the journal goes unsynced, at any rate a queue takes (see ``Journal.reserve``)."""


@final
class VariableQueue(PagedMessages, BackingQueue):
    """The backing of one queue; ``entries`` is its virtual host's segment size."""

    def __init__(self, engine: Engine, queue_id: i64, durable: bool, entries: i64) -> None:
        super().__init__(engine, queue_id, durable, entries)
        self._cold: bool = False  # started with messages, and nobody has asked for one
        self._oldest_file: i64 = 0  # of the journal that may be needed; 0 = none
        self._newest_file: i64 = 0
        self._flushed_seq_id: i64 = 0
        engine.add_queue(self)

    # -- in --------------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: i64) -> None:
        seq_id = self._next_seq_id
        flags: i64 = 0
        size: i64 = 0
        largest: i64 = 0
        for message in messages:
            message.seq_id = seq_id
            message.enqueued_at_ms = now_ms
            seq_id += 1
            flags |= message.flags
            size += message.size
            if message.size > largest:
                largest = message.size
            if message.expires_at_ms != 0:
                self._expiring = True
        self._next_seq_id = seq_id
        if largest >= self._engine.limits.embed_below_bytes:
            self._store_large(messages)
        if self.durable:
            self._journal_publish(messages, flags, seq_id)
        count: i64 = len(messages)
        self.rates.in_count += count
        self._ready_bytes += size
        self._account(size + count * MESSAGE_OVERHEAD_BYTES)
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
        journal = self._engine.journal
        if next_seq_id > self._reserved_seq_id - SEQ_IDS_RESERVED // 2:
            self._reserved_seq_id = next_seq_id + SEQ_IDS_RESERVED
            journal.reserve(self.queue_id, self._reserved_seq_id)
        if flags & PERSISTENT:
            self._journalled(journal.publish(self.queue_id, messages))

    def _journalled(self, count: i64) -> None:
        """So many records more of this queue are in the journal."""
        file_no = self._engine.journal.current.number
        self._newest_file = file_no
        if self._oldest_file == 0:
            self._oldest_file = file_no
        index = self.index
        if index is not None:
            index.dirty_count += count
            if index.dirty_count > self._engine.limits.journal_entries:
                index.dirty_count = 0
                self._engine.impatient.append(self)

    def _publish_lazy(self, messages: list[Message], size: i64) -> None:
        if self.delta_count == 0:
            self.delta_start = messages[0].seq_id
        count: i64 = len(messages)
        self.delta_end = messages[count - 1].seq_id + 1
        self.delta_count += count
        self.delta_bytes += size
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
        if self.q4.count() == 0:
            self.look_ahead()
        return taken

    def unfetch(self, messages: list[Message]) -> None:
        if messages:
            self._came_back(messages)
            self.rates.out_count -= len(messages)
            self.rates.ack_in_count -= len(messages)
            self._put(messages)

    def requeue(self, messages: list[Message]) -> None:
        if messages:
            self._came_back(messages)
            for message in messages:
                message.flags |= REDELIVERED
            self._put(ascending(messages))
            self.look_ahead()

    def _came_back(self, messages: list[Message]) -> None:
        """From pending to ready, as far as counters go."""
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        for message in messages:
            message.flags &= ~PENDING
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        count: i64 = len(messages)
        self.pending.remove(count, size, ram_count, ram_bytes)
        self.pending.came_back()
        self._ready_bytes += size
        self._ram_count += ram_count
        self._trimmed_count += count - ram_count

    def _put(self, messages: list[Message]) -> None:
        """Ascending messages to their original places; all of them are before delta."""
        if messages[0].seq_id < self._flushed_seq_id:
            self._flushed_seq_id = messages[0].seq_id
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
        limit: i64 = self.q3.first().seq_id if self.q3.count() > 0 else self._next_seq_id
        while place < count:
            message = messages[place]
            if message.seq_id > limit or len(message.content) == 0:
                break
            place += 1
        return place

    # -- the end ---------------------------------------------------------------------------

    def ack(self, messages: list[Message]) -> None:
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        flags: i64 = 0
        for message in messages:
            flags |= message.flags
            message.flags = (message.flags | SETTLED) & ~PENDING
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        count: i64 = len(messages)
        self.pending.remove(count, size, ram_count, ram_bytes)
        self.rates.ack_out_count += count
        self._account(-ram_bytes - count * MESSAGE_OVERHEAD_BYTES)
        if flags & (LOGGED | INDEXED | STORED):
            self._forget(messages, flags)

    def _forget(self, messages: list[Message], flags: i64) -> None:
        """What the disk has of them may go."""
        kept: list[Message] = []
        lost: list[Message] = []
        if flags & STORED:
            for message in messages:
                if message.flags & STORED:
                    if self.durable and message.flags & LOGGED:
                        kept.append(message)
                    else:
                        lost.append(message)
        if flags & LOGGED:
            self._journalled(self._engine.journal.ack(self.queue_id, messages))
        if flags & INDEXED:
            self._the_index().settle(messages)
        position = self._engine.journal.position
        for message in kept:
            self._engine.store.remove(message.msg_id, position)
        for message in lost:
            self._engine.transient_store.remove(message.msg_id, 0)

    def _drop(self, messages: list[Message]) -> i64:
        """Ready messages, taken out of their run, are gone."""
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        flags: i64 = 0
        for message in messages:
            flags |= message.flags
            message.flags |= SETTLED
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        count: i64 = len(messages)
        self._ready_bytes -= size
        self._ram_count -= ram_count
        self._trimmed_count -= count - ram_count
        self.rates.out_count += count
        self._account(-ram_bytes - count * MESSAGE_OVERHEAD_BYTES)
        if flags & (LOGGED | INDEXED | STORED):
            self._forget(messages, flags)
        return count

    def purge(self) -> i64:
        """Delta goes by whole segments, without being read."""
        count: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
            count += self._drop(run.take_all())
        if self.delta_count > 0:
            count += self._drop_tail(self.delta_end)
            count += self.delta_count
            self._ack_range(self.delta_start, self.delta_end)
            if self.index is not None:
                # All else that has a record is pending.
                self.index.clear(self.pending.live())
            self._forget_delta()
        return count

    def drop_below(self, seq_id: i64) -> i64:
        count: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
            count += self._drop(run.take(run.first_at(seq_id) - run.head))
        # Last, because with the end of delta q2 is joined to q3.
        if self.delta_count > 0 and self.delta_start < seq_id:
            count += self._drop_delta_below(seq_id)
        self.look_ahead()
        return count

    def _ack_range(self, start: i64, end: i64) -> None:
        if self.durable and start < end:
            self._engine.journal.ack_run(self.queue_id, start, end)
            self._journalled(1)

    def _forget_delta(self) -> None:
        self._ready_bytes -= self.delta_bytes
        self.delta_start = 0
        self.delta_end = 0
        self.delta_count = 0
        self.delta_bytes = 0
        self._read = None  # what is under way is for a delta that is no more

    def _drop_tail(self, upto: i64) -> i64:
        """Of delta's unwritten end, what is below ``upto``."""
        messages = self.tail.take(self.tail.first_at(upto) - self.tail.head)
        size: i64 = 0
        for message in messages:
            size += message.size
        count: i64 = len(messages)
        self.tail_bytes -= size
        self.delta_bytes -= size
        self.delta_count -= count
        self._ram_count += count  # as ``_drop`` expects of ready messages
        return self._drop(messages)

    def _drop_delta_below(self, seq_id: i64) -> i64:
        """Whole segments unread; the last one, if it goes in part, is read."""
        if seq_id >= self.delta_end:
            seq_id = self.delta_end
        count = self._drop_tail(seq_id)
        if self.delta_count == 0:
            self._forget_delta()
            return count
        index = self.index
        if index is None:
            return count
        self._ack_range(self.delta_start, seq_id)
        self._read = None
        entries = self._entries
        first_whole = (self.delta_start + entries - 1) // entries * entries
        if first_whole < seq_id:
            count += self._drop_read(self.delta_start, first_whole)
            live_bytes = index.live_bytes
            dropped = index.drop_segments(first_whole, seq_id)
            count += dropped
            self.delta_count -= dropped
            self.delta_bytes -= live_bytes - index.live_bytes
            self._ready_bytes -= live_bytes - index.live_bytes
        count += self._drop_read(self.delta_start, seq_id)
        if self.delta_count == 0:
            self._forget_delta()
            if self.q2.count() > 0:
                self.q3.append_all(self.q2.take_all())
        elif self.fault == "":
            self.delta_start = seq_id
        return count

    def _drop_read(self, start: i64, upto: i64) -> i64:
        """Messages of delta in [start, upto), by reading them."""
        count: i64 = 0
        index = self._the_index()
        while start < upto:
            job = index.plan_read(start, upto, TAIL_BYTES)
            if job is None:
                return count
            start = job.upto
            run_job(job, self._engine.files)
            if self._failed(job):
                return count
            messages = index.decode(job)
            size: i64 = 0
            for message in messages:
                size += message.size
                message.flags &= ~LOGGED  # the range is in the journal already
            self.delta_count -= len(messages)
            self.delta_bytes -= size
            self._ready_bytes -= size
            self._forget_kept(messages)
            count += len(messages)
        return count

    def _forget_kept(self, messages: list[Message]) -> None:
        """As ``_forget``, for messages read from segments whose end is journalled already."""
        position = self._engine.journal.position
        for message in messages:
            if message.flags & STORED:
                if self.durable and message.flags & PERSISTENT:
                    self._engine.store.remove(message.msg_id, position)
                else:
                    self._engine.transient_store.remove(message.msg_id, 0)
        self._the_index().settle(messages)

    def delete(self) -> None:
        if self._deleted:
            return
        self._deleted = True
        if self.durable:
            self._engine.journal.forget_queue(self.queue_id)
        for run in [self.q4, self.q3, self.q2, self.q1]:
            self._forget_stored(run.take_all())
        self._forget_stored(self.tail.take_all())
        self._forget_stored(self.pending.live())
        if self.index is not None:
            self.index.delete()
            self.index = None
        self._account(-self._ram_bytes)
        self._engine.remove_queue(self.queue_id)
        self.pending = PendingAcks()
        self._forget_delta()
        self._ready_bytes = 0
        self._ram_count = 0
        self._trimmed_count = 0
        self.tail_bytes = 0

    def _forget_stored(self, messages: list[Message]) -> None:
        """The index counts what is only there; these are counted here."""
        for message in messages:
            message.flags = (message.flags | SETTLED) & ~PENDING
            if message.flags & STORED:
                if message.flags & INDEXED:
                    self._the_index().settle([message])
                if self.durable and message.flags & LOGGED:
                    self._engine.store.remove(message.msg_id, self._engine.journal.position)
                else:
                    self._engine.transient_store.remove(message.msg_id, 0)

    # -- expiry ----------------------------------------------------------------------------

    def expire(self, now_ms: i64) -> i64:
        if not self._expiring:
            return 0
        count = self._drop(self.q4.take(_expired(self.q4, now_ms)))
        if self.q4.count() == 0:
            count += self._drop(self.q3.take(_expired(self.q3, now_ms)))
        if count > 0:
            self.look_ahead()
        return count

    def next_expiry_ms(self) -> i64:
        """0 as well while the head is only on disk: it is asked again when that has arrived."""
        if not self._expiring:
            return 0
        head = self._head()
        return 0 if head is None else head.expires_at_ms

    def may_expire(self) -> bool:
        return self._expiring

    # -- looking ---------------------------------------------------------------------------

    def ready_bytes(self) -> i64:
        return self._ready_bytes

    def next_seq_id(self) -> i64:
        return self._next_seq_id

    def floor_seq_id(self) -> i64:
        head = self._head()
        if head is not None:
            return head.seq_id
        if self.delta_count > 0:
            return self.delta_start
        if self.q1.count() > 0:
            return self.q1.first().seq_id
        return self._next_seq_id

    def read_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        found: list[Message] = []
        room = Room(max_messages, max_bytes)
        self._peek_run(self.q4, start, end, found, room)
        self._peek_run(self.q3, start, end, found, room)
        if self.delta_count > 0 and start < self.delta_end and not room.full:
            self._peek_delta(start, end, found, room)
        self._peek_run(self.q2, start, end, found, room)
        self._peek_run(self.q1, start, end, found, room)
        return self._with_contents(found)

    def _peek_run(self, run: Run, start: i64, end: i64, found: list[Message], room: Room) -> None:
        place = run.first_at(start)
        while place < len(run.messages) and not room.full:
            message = run.messages[place]
            if message.seq_id >= end or not room.take(message):
                return
            found.append(message)
            place += 1

    # -- the journal's files ---------------------------------------------------------------

    def needs_file(self, file_no: i64) -> bool:
        return 0 < self._oldest_file <= file_no

    def flush_file(self, file_no: i64, quota: i64) -> bool:
        if self._deleted:
            return True
        unwritten: list[Message] = []
        upto = self._flushed_seq_id
        done = False
        for run in [self.q4, self.q3, self.tail, self.q2, self.q1]:
            place = run.first_at(self._flushed_seq_id)
            end: i64 = len(run.messages)
            while place < end and quota > 0 and not done:
                message = run.messages[place]
                if message.flags & (LOGGED | INDEXED) == LOGGED:
                    if message.file_no > file_no:
                        done = True  # and so are all behind it
                        break
                    unwritten.append(message)
                upto = message.seq_id + 1
                place += 1
                quota -= 1
        done = done or quota > 0
        if done:
            # In the same step, for what was handed out meanwhile.
            for message in self.pending.live():
                if message.flags & (LOGGED | INDEXED) == LOGGED and message.file_no <= file_no:
                    unwritten.append(message)
        for message in unwritten:
            if not self._the_index().can_append(message.seq_id):
                return False
        if unwritten:
            self._the_index().append(ascending(unwritten))
        self._flushed_seq_id = upto
        return done

    def flushed(self, file_no: i64) -> None:
        self._oldest_file = file_no + 1 if self._newest_file > file_no else 0
        if self.index is not None:
            self.index.dirty_count = 0

    # -- start and stop --------------------------------------------------------------------

    def adopt(self, index: QueueIndex | None, next_seq_id: i64, may_expire: bool) -> None:
        """Start from what was found on disk: all of it is delta."""
        self._next_seq_id = next_seq_id
        self._reserved_seq_id = next_seq_id
        self._flushed_seq_id = next_seq_id
        self._expiring = may_expire
        self.index = index
        if index is not None and index.live_count > 0:
            self.delta_start = index.first_seq_id()
            self.delta_end = next_seq_id
            self.delta_count = index.live_count
            self.delta_bytes = index.live_bytes
            self._ready_bytes = index.live_bytes
            self._cold = True

    def note_delivered(self) -> None:
        """Before a clean stop: what was handed out is to be marked so after the start."""
        index = self.index
        for run in [self.q4, self.q3, self.tail, self.q2, self.q1]:
            _mark_delivered(index, run.live())
        pending = self.pending.live()
        for message in pending:
            message.flags |= REDELIVERED
        _mark_delivered(index, pending)

    def expiring(self) -> bool:
        return self._expiring

    # -- people look -----------------------------------------------------------------------

    def describe(self) -> dict[str, object]:
        """What ``penstock queue show`` prints; sizes in bytes, rates per second."""
        delta: dict[str, object] = {
            "messages": int(self.delta_count),
            "bytes": int(self.delta_bytes),
            "ram_messages": int(self.tail.count()),
            "start": int(self.delta_start),
            "end": int(self.delta_end),
        }
        index = self.index
        return {
            "mode": "lazy" if self.lazy else "default",
            "converting": self.converting(),
            "q1": _describe_run(self.q1),
            "q2": _describe_run(self.q2),
            "delta": delta,
            "q3": _describe_run(self.q3),
            "q4": _describe_run(self.q4),
            "pending": {
                "messages": int(self.pending.count),
                "bytes": int(self.pending.bytes),
                "ram_messages": int(self.pending.ram_count),
                "ram_bytes": int(self.pending.ram_bytes),
            },
            "ram_messages": int(self._ram_count),
            "ram_bytes": int(self._ram_bytes),
            "target_ram_count": int(self.target_ram_count),
            "target_ram_bytes": int(self.target_ram_bytes),
            "rates": self.rates.describe(),
            "next_seq_id": int(self._next_seq_id),
            "fault": self.fault,
            "dirty_count": 0 if index is None else int(index.dirty_count),
            "segments": [] if index is None else index.describe(),
        }

    def check(self) -> None:
        self._check_order()
        self._check_counts()
        self.pending.check()
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
            for message in self.tail.live():
                assert self.delta_start <= message.seq_id < self.delta_end, "V1"
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
        objects: i64 = self.pending.count + self.tail.count()
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
        for message in self.tail.live() + self.pending.live():
            self._check_message(message)
        assert size == self._ready_bytes, "V9"
        assert ram_count == self._ram_count, "V9"
        assert trimmed == self._trimmed_count, "V9"
        assert ram_bytes + objects * MESSAGE_OVERHEAD_BYTES == self._ram_bytes, "V9"
        assert 0 <= self._ram_count <= self.ready_count(), "V12"
        assert self.delta_count >= 0 and self.delta_bytes >= 0 and self.tail_bytes >= 0, "V12"

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
        known: i64 = 0
        in_tail: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
            for message in run.live():
                if message.flags & INDEXED:
                    known += 1
        for message in self.pending.live():
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


def _describe_run(run: Run) -> dict[str, object]:
    size: i64 = 0
    ram_count: i64 = 0
    for message in run.messages[run.head :]:
        size += message.size
        if len(message.content) > 0:
            ram_count += 1
    return {"messages": int(run.count()), "bytes": int(size), "ram_messages": int(ram_count)}


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


def _expired(run: Run, now_ms: i64) -> i64:
    """How many of the first messages are over their time."""
    count: i64 = 0
    while count < run.count():
        expires_at_ms = run.messages[run.head + count].expires_at_ms
        if expires_at_ms == 0 or expires_at_ms > now_ms:
            break
        count += 1
    return count
