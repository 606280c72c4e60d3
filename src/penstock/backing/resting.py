"""Where the messages of a variable queue are, and how they come back from the disk.

This is the ground floor of ``VariableQueue`` (variable_queue.py tells the whole): the
containers and their counters, the load of delta's head, and the fill of contents that are
only on disk.  Both are asked for ahead of the consumer and done by a thread; ``absorb`` takes
what has arrived.  How far ahead begins small and doubles whenever a consumer had to wait.  While
memory is short it is what a consumer takes in a second, and a little in any case; and what was
read stays until it was offered (``_read_kept``), else the pager would take what comes next.

A *load* makes betas of the next stretch of delta; small messages come with their contents,
large ones without.  A *fill* brings the contents of the first betas that lack them.  At most
one of each is under way.  What changed meanwhile is noticed: a load counts only if delta
still begins where it was asked, a content only if its message still waits in q3 without one.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.deferrals import Deferrals
from penstock.backing.message_deque import MessageDeque
from penstock.backing.noting import SetNotes
from penstock.backing.pending import PendingAcks
from penstock.backing.ram_target import Moves, Rates
from penstock.core.message import LOGGED, PENDING, PERSISTENT, SETTLED, STORED, Message
from penstock.storage.common.disk_jobs import DiskJob, run_job
from penstock.storage.engine.engine import Engine
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.engine.resting_queue import INFINITE, RestingQueue
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.reading import EVERYTHING
from penstock.storage.index.segment import NEVER_MS
from penstock.storage.index.segment_jobs import SegmentRead
from penstock.storage.store.message_store import MessageStore, StoreRead

AHEAD_LEAST_BYTES: Final[i64] = 128 * 1024
AHEAD_MOST_BYTES: Final[i64] = 4 * 1024 * 1024
READ_MOST_BYTES: Final[i64] = 1024 * 1024
HEAD_LEAST_MESSAGES: Final[i64] = 64
HEAD_LEAST_BYTES: Final[i64] = 256 * 1024
"""So many messages stay at the head, whatever the target, if they are no more than that: eight
queues with 64 messages of a megabyte each would hold half a gigabyte."""
ROOM_PARTS: Final[i64] = 4
"""A read may take one part in so many of the memory that is left before paging begins."""
OFFERED_WITHIN_MS: Final[i64] = 10_000
"""A queue from which nothing is taken for so long keeps no more than the least."""


class RestingMessages(RestingQueue):
    """q4, q3, delta, q2, q1 and the pending acks of one queue."""

    def __init__(self, engine: Engine, queue_id: i64, durable: bool, entries: i64) -> None:
        super().__init__()
        self.queue_id: i64 = queue_id
        self.durable: bool = durable
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
        self.persistent_count: i64 = 0  # that live here, in whatever state, if the queue is durable
        self.pending: PendingAcks = PendingAcks()
        self.rates: Rates = Rates()
        self.moves: Moves = Moves()
        self.index: QueueIndex | None = None
        self.notes: SetNotes | None = None  # who is told what changes the set of messages
        self.lazy: bool = False
        self.fault: str = ""
        self.disk_reads: i64 = 0  # messages
        self.disk_writes: i64 = 0
        self._engine: Engine = engine
        self._entries: i64 = entries
        self._next_seq_id: i64 = 0
        self._found_count: i64 = -1  # how many there were at the start, if it was there
        self._found_seq_id: i64 = 0
        self._reserved_seq_id: i64 = 0
        self._ready_bytes: i64 = 0
        self._ram_count: i64 = 0  # ready, content in memory, delta's tail not counted
        self._ram_bytes: i64 = 0  # contents and objects, pending and tail too
        self._trimmed_count: i64 = 0  # in q3 and q2, content only on disk
        self._expiring: bool = False  # some message here may have a time to die
        self._deleted: bool = False
        self._cold: bool = False  # nobody asked for one since the start, or the last drop
        self._oldest_file: i64 = 0  # of the journal that may be needed; 0 = none
        self._newest_file: i64 = 0
        self._flushed_seq_id: i64 = 0
        self._pass_file: i64 = 0  # for which file ``flush_file`` is looking at all, if it is
        self._mixed_upto: i64 = 0  # up to that file of the journal a later place may be older
        # Positions in memory, neither ready nor pending: they wait for their time, or were taken
        # out from anywhere and are held until somebody acknowledges them.
        self.delayed: Deferrals = Deferrals()
        self._release_after_ms: i64 = 0  # some could not be released: not again before
        self.counts_bodies: bool = False  # whoever releases wants to know how many bytes of them
        self.released_body_bytes: i64 = 0  # became ready by the last release
        self._unordered: bool = False  # some message expires before one that is ahead of it
        self._latest_ms: i64 = 0  # in the order they came, none expires later
        self._soonest_ms: i64 = NEVER_MS  # of those behind one that expires later
        self._sweep_from: i64 = -1  # where the sweep under way goes on; -1 = none is
        self._sweep_after_ms: i64 = 0
        self._sweep_soonest_ms: i64 = NEVER_MS
        self._sweep_count: i64 = 0
        self._sweep_number: i64 = -1  # of the segment that is being read
        self._segment_soonest_ms: i64 = NEVER_MS
        # Moved to the tail or new for later: (the first of some, the journal's position then).
        self._unsafe: list[tuple[int, int]] = []
        # Their old places in segments, to be settled when the journal is on disk that far.
        self._left: list[tuple[int, list[Message]]] = []
        self._ahead_bytes: i64 = AHEAD_LEAST_BYTES
        self._read_kept: i64 = 0  # of q3: so many were read and not offered yet, at most
        self._taken_count: i64 = 0  # when it was last seen that some were taken, and then:
        self._taken_at_ms: i64 = 0
        self._read: SegmentRead | None = None
        self._read_from: i64 = 0
        self.looked_bytes: i64 = 0  # see ``take_looked_bytes``
        self._fill_read: SegmentRead | None = None
        self._fill_store: StoreRead | None = None
        self._fill_targets: list[Message] = []

    # -- counting --------------------------------------------------------------------------

    def ram_bytes(self) -> i64:
        return self._ram_bytes

    def disk_bytes(self) -> i64:
        """A durable queue's transient messages count as if they were persistent."""
        held = self._ready_bytes + self.pending.bytes + self.delayed.bytes
        if self.durable:
            return held
        objects: i64 = self.delayed.count()
        for run in [self.q1, self.q2, self.q3, self.q4, self.tail]:
            objects += run.count()
        objects += self.pending.count
        elsewhere = held - (self._ram_bytes - objects * MESSAGE_OVERHEAD_BYTES)
        return elsewhere if elsewhere > 0 else 0

    def byte_rate(self) -> i64:
        return self.rates.byte_rate()

    def tick(self, now_ms: i64) -> None:
        self.rates.update(now_ms)
        self.moves.update(now_ms)
        if self.rates.out_count != self._taken_count:
            self._taken_count = self.rates.out_count
            self._taken_at_ms = now_ms
        elif not 0 <= now_ms - self._taken_at_ms < OFFERED_WITHIN_MS:
            self._read_kept = 0

    def is_reading(self) -> bool:
        """Is something on its way back from the disk?"""
        return self._read is not None or self._fill_read is not None or self._fill_store is not None

    def why_stopped(self) -> str:
        return self.fault

    def _account(self, size: i64) -> None:
        """So many bytes more are in memory."""
        self._ram_bytes += size
        self._engine.ram.queued_bytes += size

    def index_or_none(self) -> QueueIndex | None:
        return self.index

    def segment_entries(self) -> i64:
        return self._entries

    def _the_index(self) -> QueueIndex:
        index = self.index
        if index is None:
            index = self._engine.make_index(self.queue_id, self.durable, self._entries)
            self.index = index
        return index

    def _store_of(self, message: Message) -> MessageStore:
        """Which store a STORED message of this queue is in."""
        if self.durable and message.flags & LOGGED:
            return self._engine.store
        return self._engine.transient_store

    def _head(self) -> Message | None:
        """The first ready message, if it is in memory as a position at least."""
        if self.q4.count() > 0:
            return self.q4.first()
        if self.q3.count() > 0:
            return self.q3.first()
        return None

    # -- looking ahead ---------------------------------------------------------------------

    def look_ahead(self) -> None:
        """Ask for what the consumer will want next, unless enough is at hand."""
        if self._deleted or self.fault != "":
            return
        if self.q4.count() == 0 and self.q3.count() == 0 and self.delta_count == 0:
            self._turn_over()
            return
        if self._trimmed_count > 0 and self._fill_read is None and self._fill_store is None:
            self._ask_fill()
        # What is at hand at once may be a stretch of delayed messages only: then the next one.
        while self.delta_count > 0 and self._read is None and self._is_low():
            self._ask_load()

    def _is_low(self) -> bool:
        at_hand: i64 = self.q4.count() + self.q3.count()
        if at_hand == 0:
            return True
        most = self._read_most()
        if most < EVERYTHING:
            return at_hand * 2 < most
        ready = at_hand + self.delta_count + self.q2.count() + self.q1.count()
        return at_hand * (self._ready_bytes // ready) * 2 < self._ahead_bytes

    def _read_most(self) -> i64:
        """How many messages a read may bring; EVERYTHING while there is memory enough."""
        ram = self._engine.ram
        share = (ram.paging_bytes - ram.used_bytes()) // ROOM_PARTS
        if self.target_ram_bytes == INFINITE and share > AHEAD_MOST_BYTES:
            return EVERYTHING
        if share > self._ahead_bytes:
            share = self._ahead_bytes
        most = share // self._size_of_one()
        wanted = i64(int(self.rates.out_rate))
        least = self._head_least()
        most = most if most > wanted else wanted
        return most if most > least else least

    def _head_least(self) -> i64:
        least = HEAD_LEAST_BYTES // self._size_of_one()
        if least < 1:
            return 1
        return least if least < HEAD_LEAST_MESSAGES else HEAD_LEAST_MESSAGES

    def _size_of_one(self) -> i64:
        """Of the messages that are ready, on the average."""
        ready = self.q4.count() + self.q3.count() + self.delta_count
        ready += self.q2.count() + self.q1.count()
        return self._ready_bytes // ready + MESSAGE_OVERHEAD_BYTES if ready > 0 else 1

    def starved(self) -> None:
        """Somebody wanted a message that is still on its way: look further ahead from now on."""
        if self._ahead_bytes < AHEAD_MOST_BYTES:
            self._ahead_bytes *= 2

    def _turn_over(self) -> None:
        """q3 and q4 are empty, delta too: q2 must be, and q1 becomes q4."""
        if self.q1.count() > 0:
            assert self.q2.count() == 0
            self.moves.q1_q4 += self.q1.count()
            empty = self.q4
            self.q4 = self.q1
            self.q1 = empty
        self._ahead_bytes = AHEAD_LEAST_BYTES
        self._read_kept = 0

    def _ask_load(self) -> None:
        """Delta's head: from a segment, or from the tail when the segments have nothing more."""
        index = self.index
        tail_start = self.tail.first().seq_id if self.tail.count() > 0 else self.delta_end
        job: SegmentRead | None = None
        if index is not None and self.delta_start < tail_start:
            size = self._ahead_bytes if self._ahead_bytes < READ_MOST_BYTES else READ_MOST_BYTES
            job = index.plan_read(self.delta_start, tail_start, size)
        if job is None:
            self._load_tail()
            return
        self._read = job
        self._read_from = self.delta_start
        if len(job.missing) == 0:
            job.done = True
            self._absorb_load()
        else:
            self._engine.board.submit_read(job, self.queue_id)

    def _load_tail(self) -> None:
        messages = self.tail.take_all()
        assert len(messages) == self.delta_count
        self._account(-self.tail_bytes - len(messages) * MESSAGE_OVERHEAD_BYTES)
        self.tail_bytes = 0
        self._loaded(messages, self.delta_end)

    def _loaded(self, messages: list[Message], upto: i64) -> None:
        """The next messages of delta, which now begins at ``upto``, become betas."""
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        for message in messages:
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
            if message.expires_at_ms != 0:
                self._expiring = True
            if not message.flags & PERSISTENT:
                self.delta_transient_count -= 1
        count: i64 = len(messages)
        self.moves.delta_q3 += count
        self.q3.append_all(messages)
        self.delta_start = upto
        self.delta_count -= count
        self.delta_bytes -= size
        self._ram_count += ram_count
        self._trimmed_count += count - ram_count
        self._account(ram_bytes + count * MESSAGE_OVERHEAD_BYTES)
        assert self.delta_count >= 0
        if self.delta_count == 0:
            assert self.delta_bytes == 0
            self.delta_start = 0
            self.delta_end = 0
            if self.q2.count() > 0:
                self.moves.q2_q3 += self.q2.count()
                self.q3.append_all(self.q2.take_all())

    def _ask_fill(self) -> None:
        """Contents of the first betas that have none, as many as fit."""
        messages = self.q3.messages
        place = self.q3.head
        end: i64 = len(messages)
        size: i64 = 0
        most = self._read_most()
        last = place + most // 2
        while place < end and len(messages[place].content) > 0:
            size += messages[place].size
            if size > self._ahead_bytes or place >= last:
                return  # far enough away
            place += 1
        if place == end:
            return
        if messages[place].flags & STORED:
            self._ask_stored(place, most)
        else:
            self._ask_embedded(place)

    def _ask_stored(self, place: i64, most: i64) -> None:
        messages = self.q3.messages
        end: i64 = len(messages)
        targets: list[Message] = []
        msg_ids: list[int] = []
        size: i64 = 0
        store = self._store_of(messages[place])
        while place < end and (size < self._ahead_bytes or len(targets) == 0):
            message = messages[place]
            if len(message.content) == 0:
                if not message.flags & STORED or self._store_of(message) is not store:
                    break
                if len(targets) >= most:
                    break
                targets.append(message)
                msg_ids.append(int(message.msg_id))
                size += message.size
            place += 1
        job = store.read(msg_ids)
        self._fill_store = job
        self._fill_targets = targets
        self._engine.board.submit_read(job, self.queue_id)

    def _ask_embedded(self, place: i64) -> None:
        first = self.q3.messages[place]
        job = self._the_index().plan_read(
            first.seq_id, self.q3.last().seq_id + 1, self._ahead_bytes
        )
        assert job is not None
        self._fill_read = job
        self._engine.board.submit_read(job, self.queue_id)

    # -- what has arrived ------------------------------------------------------------------

    def absorb(self) -> None:
        """Take in what the disk has brought since the last time."""
        load = self._read
        if load is not None and load.done:
            self._absorb_load()
        stored = self._fill_store
        if stored is not None and stored.done:
            self._absorb_stored(stored)
        embedded = self._fill_read
        if embedded is not None and embedded.done:
            self._absorb_embedded(embedded)
        self.look_ahead()

    def _absorb_load(self) -> None:
        job = self._read
        assert job is not None
        self._read = None
        if self._failed(job) or self.delta_count == 0 or self._read_from != self.delta_start:
            return
        most = self._read_most()
        messages = self._decode(job, most)
        upto = job.upto
        if len(messages) > most:
            del messages[most:]
            upto = messages[most - 1].seq_id + 1
        self._count_reads(len(messages))
        self._loaded(messages, upto)
        self._read_kept = self.q3.count()

    def _count_reads(self, count: i64) -> None:
        self.disk_reads += count
        self._engine.disk_reads += count

    def _decode(
        self, job: SegmentRead, count: i64 = EVERYTHING, size: i64 = EVERYTHING
    ) -> list[Message]:
        """The ready ones of a stretch of delta, or more than ``count`` or ``size`` bytes of them.

        Delayed ones may lie among them, and old places of what was moved from among them.
        """
        delayed = self.delayed
        if delayed.count() == 0 and not self._left:
            return self._the_index().decode(job, count, size)
        messages = self._the_index().decode(job)
        left = {int(message.seq_id) for message in self._places_left()}
        return [
            message
            for message in messages
            if not delayed.has(int(message.seq_id)) and int(message.seq_id) not in left
        ]

    def _places_left(self) -> list[Message]:
        places: list[Message] = []
        for _, messages in self._left:
            places.extend(messages)
        return places

    def _failed(self, job: DiskJob) -> bool:
        error = job.error
        if error is None:
            return False
        if not self._deleted and not job.cancelled:
            self.fault = str(error)
            self._engine.faults.append(f"queue {int(self.queue_id)} is stopped: {error}")
        return True

    def _absorb_stored(self, job: StoreRead) -> None:
        targets = self._fill_targets
        self._fill_store = None
        self._fill_targets = []
        if self._failed(job):
            return
        self._count_reads(len(targets))
        for i in range(len(targets)):
            self._fill_one(targets[i], job.contents[i])

    def _absorb_embedded(self, job: SegmentRead) -> None:
        self._fill_read = None
        if self._failed(job):
            return
        messages = self._the_index().decode(job, self._read_most())
        self._count_reads(len(messages))
        for message in messages:
            place = self.q3.first_at(message.seq_id)
            if place < len(self.q3.messages):
                target = self.q3.messages[place]
                if target.seq_id == message.seq_id:
                    self._fill_one(target, message.content)

    def _fill_one(self, target: Message, content: bytes) -> None:
        if len(target.content) > 0 or len(content) == 0 or target.flags & (SETTLED | PENDING):
            return
        place = self.q3.first_at(target.seq_id)
        if place < len(self.q3.messages) and self.q3.messages[place] is target:
            target.content = content
            kept = place - self.q3.head + 1
            if kept > self._read_kept:
                self._read_kept = kept
            self._ram_count += 1
            self._trimmed_count -= 1
            self._account(target.size)

    def await_head(self) -> None:
        """Have the first ready message at hand, reading it here and now if need be."""
        board = self._engine.board
        while self.fault == "":
            self.absorb()
            head = self._head()
            if head is not None and len(head.content) > 0:
                return
            if head is None and self.delta_count == 0:
                self._turn_over()
                return
            # Whatever is under way is dropped; the same is asked for again, and run here.
            self._read = None
            self._fill_read = None
            self._fill_store = None
            if head is None:
                self._ask_load()
            else:
                self._ask_fill()
            for job in board.take_back(self.queue_id):
                if isinstance(job, StoreRead):
                    job.run_now(self._engine.files)
                else:
                    run_job(job, self._engine.files)
                    job.finish()
