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
comes near, delta's head is read in (read_ahead.py).  Messages end in ending.py and come back in
returning.py; what is delayed (delaying.py) is neither ready nor pending.  A *lazy* queue lets every
publish rest in delta at once and keeps no more than it reads ahead.

Persistent messages have a record in the journal from the start, and large ones their content
in the message store; a segment gets them only when they rest.  So the journal says that a
message exists, and the index only where it rests: RabbitMQ's gammas cost a record at once,
ours cost one when it is useful.

**Why an empty q3 and q4 mean an empty queue.**  When q3 and q4 become empty, ``look_ahead``
runs: with delta empty q1 becomes q4 (q2 is empty, see below), with delta not empty a read of
its head is begun.  So the queue is empty, or a read is under way, or no consumer has asked
since the start (``cold``), or it is lazy and the next fetch asks.  RabbitMQ reads at this point and
waits; we do not hold up the loop, and the price is the other cases.

**Why an empty q3 and delta mean an empty q2.**  Betas go to q2 only while delta is not empty
(else to q3), and when the last of delta is loaded, q2 is joined to q3 at that moment.

The engine's tick visits a queue that moves: ``_moving`` is its parts then, and None at rest.  What
changes a queue takes its parts from there, or by ``_made``, which wakes it; what only looks at it
takes them from ``_parts``.

Always true, and asserted by ``check``:
  V10 a queue that the engine does not visit has nothing that changes with time

The queue is made of parts.  ``Tiers`` (tiers.py) owns the messages in memory, the bounds of delta
and every counter, and has the invariants; ``DiskRecords`` (disk_records.py) owns what the disk has.
The other parts use the verbs of these two and of parts before them in this list.  A queue that
never had a message has its ``DiskRecords`` only; the parts behind ``ReadAhead`` are made when the
first of them is used (queue_parts.py):

    DiskRecords ExpiryTimes Tiers ReadAhead · RangeReader Pager · QueueSettlement TailMoves
    QueueDelays Expiry Checkpoint · ReplicaReader ReplicaWriter
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.copying import ReplicaReader
from penstock.backing.delaying import QueueDelays
from penstock.backing.disk_records import DiskRecords, old_place
from penstock.backing.ending import expired_at_head
from penstock.backing.expiring import Expiry
from penstock.backing.expiry_times import ExpiryTimes
from penstock.backing.interface import BackingQueue
from penstock.backing.paging import Pager
from penstock.backing.peeking import RangeReader
from penstock.backing.placing import ReplicaWriter
from penstock.backing.queue_parts import QueueParts, RareParts
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.tiers import OUT, Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import INDEXED, LOGGED, STORED, Message
from penstock.storage.engine.engine import Engine
from penstock.storage.engine.resting_queue import FLUSHED, RestingQueue
from penstock.storage.index.queue_index import QueueIndex

EXPIRED_BYTES_MAX: Final[i64] = 4 * 1024 * 1024


@final
class VariableQueue(RestingQueue, BackingQueue):
    """The backing of one queue; ``entries`` is its virtual host's segment size."""

    def __init__(self, engine: Engine, queue_id: i64, durable: bool, entries: i64) -> None:
        super().__init__()
        self.queue_id: i64 = queue_id
        self.records: Final = DiskRecords(engine, queue_id, durable, entries)
        self._parts: QueueParts | None = None
        self._moving: QueueParts | None = None
        engine.add_queue(self)

    # -- parts that are made when they are needed ------------------------------------------

    def _made(self) -> QueueParts:
        """For what may change the queue."""
        parts = self._moving
        if parts is None:
            moving = self.records.engine.moving
            parts = self._parts
            if parts is None:
                parts = QueueParts(self.records)
                self._parts = parts
            else:
                parts.tiers.stood_until(moving.ticked_at_ms)
            self._moving = parts
            moving.wake(self.queue_id)
        return parts

    @property
    def times(self) -> ExpiryTimes:
        return self._made().times

    @property
    def tiers(self) -> Tiers:
        return self._made().tiers

    @property
    def ahead(self) -> ReadAhead:
        return self._made().ahead

    def rare(self) -> RareParts:
        return self._made().rare()

    @property
    def reads(self) -> RangeReader:
        return self.rare().reads

    @property
    def delays(self) -> QueueDelays:
        return self.rare().delays

    @property
    def pager(self) -> Pager:
        return self.rare().pager

    @property
    def expiry(self) -> Expiry:
        return self.rare().expiry

    @property
    def copies(self) -> ReplicaReader:
        return self.rare().copies

    @property
    def replica(self) -> ReplicaWriter:
        return self.rare().replica

    # -- as one of several -----------------------------------------------------------------

    def sibling(self, place: i64) -> "VariableQueue":
        """One without messages, kept as this one, whose queue id is so much higher."""
        records = self.records
        return VariableQueue(
            records.engine, self.queue_id + place, records.durable, records.entries
        )

    def parts(self) -> "list[VariableQueue]":
        return [self]

    def positions(self) -> "VariableQueue":
        return self

    def plain(self) -> "VariableQueue | None":
        return self

    # -- in --------------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        parts = self._moving
        if parts is None:
            parts = self._made()
        size = self._take_in(parts, messages, now_ms)
        if self.records.notes is not None:
            self.records.notes.published(messages, WallMs(0))
        if parts.tiers.add(messages, size):
            self.pager.flush_tail()

    def publish_delayed(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        size = self._take_in(self._made(), messages, now_ms)
        if self.records.notes is not None:
            self.records.notes.published(messages, until_ms)
        self.delays.defer_new(messages, size, until_ms)

    def _take_in(self, parts: QueueParts, messages: list[Message], now_ms: WallMs) -> i64:
        """New ones get their numbers and are written; returns the bytes of their contents."""
        seq_id = self.records.next_seq_id
        flags: i64 = 0
        size: i64 = 0
        largest: i64 = 0
        expiring = parts.times.expiring
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
            parts.times.note_new(messages, parts.tiers.living_count())
        self.records.write(messages, flags, largest, seq_id)
        return size

    # -- out -------------------------------------------------------------------------------

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        parts = self._moving
        if parts is None:
            if self._parts is None:
                return []
            parts = self._made()
        ahead, tiers = parts.ahead, parts.tiers
        if ahead.is_reading():
            ahead.absorb()
        if tiers.q4.count() == 0 and tiers.q3.count() == 0:
            ahead.look_ahead()
        taken = tiers.fetch(max_messages, max_bytes)
        if len(taken) == 0:
            if max_messages > 0 and tiers.ready_count() > 0:
                ahead.starved()
                ahead.look_ahead()
        elif tiers.q4.count() == 0:
            ahead.look_ahead()
        return taken

    def absorb(self) -> None:
        """What the disk has brought is taken in, though nothing is fetched."""
        if self._parts is not None and self._parts.ahead.is_reading():
            self.ahead.absorb()

    def unfetch(self, messages: list[Message]) -> None:
        if messages:
            self.tiers.unfetch(messages)

    def requeue(self, messages: list[Message]) -> None:
        if messages:
            self.tiers.requeue(messages)
            self.ahead.look_ahead()

    def ack(self, messages: list[Message]) -> None:
        parts = self._moving
        if parts is None:
            parts = self._made()
        tiers = parts.tiers
        if tiers.delayed.held_count > 0:
            messages = self.rare().settlement.bury(messages)
            if len(messages) == 0:
                return
        flags = tiers.end(messages, OUT)
        if self.records.notes is not None:
            self.records.notes.ended(messages)
        if flags & (LOGGED | INDEXED | STORED):
            self.records.release(messages, flags)

    def ack_behind(self, messages: list[Message]) -> None:
        left = [old_place(message) for message in messages if message.flags & INDEXED]
        for message in messages:
            message.flags &= ~INDEXED
        notes = self.records.notes
        if notes is not None:
            notes.let_go([int(message.seq_id) for message in messages])
        self.records.set_notes(None)  # they are not told again
        self.ack(messages)
        self.records.set_notes(notes)
        self.records.leave_places(left)

    def purge(self) -> i64:
        return self.rare().settlement.purge()

    def drop_below(self, seq_id: i64) -> i64:
        return self.rare().settlement.drop_below(seq_id)

    def drop_step(self, below: i64, most: i64) -> i64:
        return self.rare().settlement.drop_step(below, most)

    def drop_some(self, seq_ids: list[int]) -> i64:
        return self.rare().settlement.drop_some(seq_ids)

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        return self.rare().settlement.take_chosen(seq_ids)

    def purge_step(self, most: i64) -> i64:
        return self.rare().settlement.drop_step(self.records.next_seq_id, most)

    def delete(self) -> list[list[Message]]:
        return self.rare().settlement.delete()

    def note_attempts(self, messages: list[Message]) -> None:
        self.records.note_attempts(messages)

    # -- time ------------------------------------------------------------------------------

    def delay(self, messages: list[Message], until_ms: WallMs) -> None:
        self.delays.delay(messages, until_ms)

    def count_delayed(self) -> i64:
        return 0 if self._parts is None else self._parts.tiers.delayed.waiting_count()

    def next_due_ms(self) -> WallMs:
        if self._parts is None or self._parts.tiers.delayed.waiting_count() == 0:
            return WallMs(0)
        return self.delays.next_due_ms()

    def release_due(self, now_ms: WallMs, at_most: i64) -> i64:
        return 0 if self.count_delayed() == 0 else self.delays.release_due(now_ms, at_most)

    def drop_delayed(self) -> i64:
        """Those that are delayed are gone; returns how many."""
        return self.delays.drop_delayed() if self.tiers.delayed.count() > 0 else 0

    def expire(self, now_ms: WallMs, at_most: i64) -> i64:
        return self.expiry.expire(now_ms, at_most)

    def fetch_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        if not self.times.expiring:
            return []
        self.expiry.reach_head(now_ms)
        run = self.tiers.q4 if self.tiers.q4.count() > 0 else self.tiers.q3
        count = expired_at_head(run, now_ms, max_messages)
        return [] if count == 0 else self.fetch(count, EXPIRED_BYTES_MAX)

    def sweep_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        return self.expiry.sweep_expired(now_ms, max_messages)

    def next_sweep_ms(self) -> WallMs:
        if self._parts is None or not self._parts.times.want_sweep():
            return WallMs(0)
        return self.expiry.next_sweep_ms()

    def next_expiry_ms(self) -> WallMs:
        if self._parts is None or not self._parts.times.expiring:
            return WallMs(0)
        return self.expiry.next_expiry_ms()

    def may_expire(self) -> bool:
        return self._parts is not None and self._parts.times.expiring

    # -- looking ---------------------------------------------------------------------------

    def ready_count(self) -> i64:
        return 0 if self._parts is None else self._parts.tiers.ready_count()

    def ready_bytes(self) -> i64:
        return 0 if self._parts is None else self._parts.tiers.ready_bytes

    def disk_count(self) -> i64:
        return self.tiers.disk_count()

    def whole(self, message: Message) -> Message | None:
        return self.reads.whole(message)

    def await_head(self) -> None:
        self.ahead.await_head()

    def why_stopped(self) -> str:
        return self.records.fault

    def call_reader(self) -> None:
        """The queue is to be woken in the next turn."""
        self.records.engine.board.announce(self.queue_id)

    def set_mode(self, lazy: bool) -> None:
        """Change at once for what comes; what is here follows in slices (``page``)."""
        if lazy == (self._parts is not None and self.tiers.lazy):
            return
        self.tiers.set_lazy(lazy)
        if self.tiers.converting():
            self.records.engine.begin_conversion(self)
        if not lazy:
            self.ahead.look_ahead()

    def check(self) -> None:
        """Assert the invariants of ``Tiers`` and ``ReadAhead``, and V10."""
        assert self._is_still() or int(self.queue_id) in self.records.engine.moving.by_id, "V10"
        if self._parts is not None:
            self._parts.tiers.check()
            self._parts.ahead.check()

    # -- the set of messages, as mirrors have it -------------------------------------------

    def let_go_at(self, ranges: list[tuple[int, int]]) -> None:
        """As ``ReplicaWriter.end_at``; none of their marks reaches the disk before the journal."""
        messages = self.replica.taken_at(ranges)
        if messages:
            self.ack_behind(messages)

    # -- what the engine asks --------------------------------------------------------------

    def needs_file(self, file_no: i64) -> bool:
        return 0 < self.records.oldest_file <= file_no

    def flush_file(self, file_no: i64, quota: i64) -> i64:
        return FLUSHED if self._parts is None else self.rare().checkpoint.flush_file(file_no, quota)

    def flush_safe(self, quota: i64) -> i64:
        return self.rare().checkpoint.flush_safe(quota)

    def flushed(self, file_no: i64) -> None:
        self.rare().checkpoint.flushed(file_no)

    def journal_only_count(self) -> i64:
        return self.records.journal_only_count()

    def ram_bytes(self) -> i64:
        return 0 if self._parts is None else self._parts.tiers.ram_bytes

    def byte_rate(self) -> i64:
        return self.tiers.rates.byte_rate()

    def set_target(self, target_bytes: i64) -> None:
        self.tiers.set_target(target_bytes)

    def page(self, target_bytes: i64, quota: i64) -> bool:
        return self.pager.page(target_bytes, quota)

    def tick(self, now_ms: WallMs) -> bool:
        parts = self._moving
        if parts is not None:
            parts.tiers.tick(now_ms)
            parts.ahead.tick(now_ms)
        self.records.settle_left()
        if self.records.retry(now_ms):
            self.ahead.look_ahead()
        if self._is_still():
            self._moving = None
            return False
        return True

    def _is_still(self) -> bool:
        parts = self._parts
        idle = parts is None or (parts.tiers.is_still() and parts.ahead.is_still())
        return idle and self.records.is_still()

    def converting(self) -> bool:
        return self.tiers.converting()

    def index_or_none(self) -> QueueIndex | None:
        return self.records.index

    def segment_entries(self) -> i64:
        return self.records.entries

    def note_delivered(self) -> None:
        if self._parts is not None and (self.tiers.living_count() > 0 or self.records.has_left()):
            self.rare().checkpoint.note_delivered()

    def adopt(self, index: QueueIndex | None, next_seq_id: i64, may_expire: bool) -> None:
        """Start from what was found on disk: all of it is delta."""
        self.records.adopt(index, next_seq_id)
        if index is None:
            self.records.note_found(0)
            return
        self.tiers.adopt(index, next_seq_id)
        self.times.adopt(index, may_expire)
        if index.live_count > 0:
            self.delays.adopt(index)
        self.records.note_found(self.tiers.delta_count + self.tiers.delayed.count())
