"""``ReadAhead``: how the messages of a variable queue come back from the disk.

It loads the head of delta and fills in contents that are only on disk. Both are asked for ahead of
the consumer and done by a thread; ``absorb`` takes what has arrived. How far ahead begins small and
doubles whenever a consumer had to wait. While memory is short it is what a consumer takes in a
second, and a little in any case; and what was read stays until it was offered (``_read_kept``),
else the pager would take what comes next.

A *load* makes betas of the next stretch of delta; small messages come with their contents,
large ones without.  A *fill* brings the contents of the first betas that lack them.  At most
one of each is under way.  What changed meanwhile is noticed: a load counts only if delta
still begins where it was asked, a content only if its message still waits in q3 without one.

Always true, and asserted by ``check``:
  V4  q3 and q4 empty => the queue is empty, or a read is under way, or it is cold, lazy, a copy
      or faulty
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.backing.message_deque import NO_MESSAGES
from penstock.backing.tiers import Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import PENDING, SETTLED, STORED, Message
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.engine.resting_queue import INFINITE
from penstock.storage.index.reading import EVERYTHING
from penstock.storage.index.segment_jobs import SegmentRead
from penstock.storage.store.message_store import StoreRead

AHEAD_LEAST_BYTES: Final[i64] = 128 * 1024
AHEAD_MOST_BYTES: Final[i64] = 4 * 1024 * 1024
READ_MOST_BYTES: Final[i64] = 1024 * 1024
ROOM_PARTS: Final[i64] = 4
"""A read may take one part in so many of the memory that is left before paging begins."""
OFFERED_WITHIN_MS: Final[i64] = 10_000
"""A queue from which nothing is taken for so long keeps no more than the least."""


@final
class ReadAhead:
    """Of one queue."""

    def __init__(self, records: DiskRecords, tiers: Tiers) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self.read_kept: i64 = 0  # of q3: so many were read and not offered yet, at most
        self._ahead_bytes: i64 = AHEAD_LEAST_BYTES
        self._taken_count: i64 = 0  # when it was last seen that some were taken, and then:
        self._taken_at_ms = WallMs(0)
        self._read: SegmentRead | None = None
        self._read_from: i64 = 0
        self._fill_read: SegmentRead | None = None
        self._fill_store: StoreRead | None = None
        self._fill_targets: list[Message] = NO_MESSAGES
        self._rests: bool = False

    def rest(self, rests: bool) -> None:
        """Of a copy: from now on nothing is read, for no client takes it."""
        self._rests = rests

    def is_reading(self) -> bool:
        """Is something on its way back from the disk?"""
        return self._read is not None or self._fill_read is not None or self._fill_store is not None

    def look_ahead(self) -> None:
        """Ask for what the consumer will want next, unless enough is at hand."""
        if self._records.deleted:
            return
        if (
            self._tiers.q4.count() == 0
            and self._tiers.q3.count() == 0
            and self._tiers.delta_count == 0
        ):
            self._turn_over()  # in a stopped queue too: what comes next goes behind q1
            return
        if self._rests or self._records.fault != "":
            return
        if self._tiers.trimmed_count > 0 and self._fill_read is None and self._fill_store is None:
            self._ask_fill()
        # What is at hand at once may be a stretch of delayed messages only: then the next one.
        while self._tiers.delta_count > 0 and self._read is None and self._is_low():
            self._ask_load()

    def _turn_over(self) -> None:
        self._tiers.turn_over()
        self._ahead_bytes = AHEAD_LEAST_BYTES
        self.read_kept = 0

    def _is_low(self) -> bool:
        at_hand: i64 = self._tiers.q4.count() + self._tiers.q3.count()
        if at_hand == 0:
            return True
        most = self._read_most()
        if most < EVERYTHING:
            return at_hand * 2 < most
        return (
            at_hand * (self._tiers.ready_bytes // self._tiers.ready_count()) * 2 < self._ahead_bytes
        )

    def _read_most(self) -> i64:
        """How many messages a read may bring; EVERYTHING while there is memory enough."""
        ram = self._records.engine.ram
        share = (ram.paging_bytes - ram.used_bytes()) // ROOM_PARTS
        if self._tiers.target_ram_bytes == INFINITE and share > AHEAD_MOST_BYTES:
            return EVERYTHING
        if share > self._ahead_bytes:
            share = self._ahead_bytes
        most = share // self._tiers.size_of_one()
        wanted = i64(int(self._tiers.rates.out_rate))
        least = self._tiers.head_least()
        most = most if most > wanted else wanted
        return most if most > least else least

    def starved(self) -> None:
        """A consumer waits for a message that is on its way: look further ahead from now on."""
        if self._ahead_bytes < AHEAD_MOST_BYTES:
            self._ahead_bytes *= 2

    def cancel_load(self) -> None:
        """Delta has changed: a load under way would bring what has ended, or miss what has come."""
        self._read = None

    def cancel_load_over(self, seq_id: i64) -> None:
        """A record has come there, perhaps behind the plan of a load under way."""
        read = self._read
        if read is not None and seq_id < read.upto:
            self._read = None

    def is_loading(self) -> bool:
        return self._read is not None

    def tick(self, now_ms: WallMs) -> None:
        """What was read and not offered for long may be paged out."""
        if self._tiers.rates.out_count != self._taken_count:
            self._taken_count = self._tiers.rates.out_count
            self._taken_at_ms = now_ms
        elif not 0 <= now_ms - self._taken_at_ms < OFFERED_WITHIN_MS:
            self.read_kept = 0

    def is_still(self) -> bool:
        """Would ``tick`` change nothing?"""
        return self.read_kept == 0

    def _ask_load(self) -> None:
        """Delta's head: from a segment, or from the tail when the segments have nothing more."""
        index = self._records.index
        tail_start = self._tiers.segments_end(self._tiers.delta_end)
        job: SegmentRead | None = None
        if index is not None and self._tiers.delta_start < tail_start:
            size = self._ahead_bytes if self._ahead_bytes < READ_MOST_BYTES else READ_MOST_BYTES
            job = index.plan_read(self._tiers.delta_start, tail_start, size)
        if job is None:
            self._tiers.load_tail()
            return
        self._read = job
        self._read_from = self._tiers.delta_start
        if job.is_at_hand():
            job.finish()
            self._absorb_load()
        else:
            self._records.engine.board.submit_read(job, self._records.queue_id)

    def _ask_fill(self) -> None:
        """Contents of the first betas that have none, as many as fit."""
        messages = self._tiers.q3.messages
        place = self._tiers.q3.head
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
        messages = self._tiers.q3.messages
        end: i64 = len(messages)
        targets: list[Message] = []
        msg_ids: list[int] = []
        size: i64 = 0
        store = self._records.store_of(messages[place])
        while place < end and (size < self._ahead_bytes or len(targets) == 0):
            message = messages[place]
            if len(message.content) == 0:
                if not message.flags & STORED or self._records.store_of(message) is not store:
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
        self._records.engine.board.submit_read(job, self._records.queue_id)

    def _ask_embedded(self, place: i64) -> None:
        first = self._tiers.q3.messages[place]
        job = self._records.the_index().plan_read(
            first.seq_id, self._tiers.q3.last().seq_id + 1, self._ahead_bytes
        )
        assert job is not None
        self._fill_read = job
        self._records.engine.board.submit_read(job, self._records.queue_id)

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
        if (
            self._records.failed(job)
            or self._tiers.delta_count == 0
            or self._read_from != self._tiers.delta_start
        ):
            return
        most = self._read_most()
        messages = self._tiers.decode(job, most)
        upto = job.upto
        if len(messages) > most:
            del messages[most:]
            upto = messages[most - 1].seq_id + 1
        self._records.count_reads(len(messages))
        self._tiers.load(messages, upto)
        self.read_kept = self._tiers.q3.count()

    def _absorb_stored(self, job: StoreRead) -> None:
        targets = self._fill_targets
        self._fill_store = None
        self._fill_targets = NO_MESSAGES
        if self._records.failed(job):
            return
        self._records.count_reads(len(targets))
        for i in range(len(targets)):
            self._fill_one(targets[i], job.contents[i])

    def _absorb_embedded(self, job: SegmentRead) -> None:
        self._fill_read = None
        if self._records.failed(job):
            return
        messages = self._records.the_index().decode(job, self._read_most())
        self._records.count_reads(len(messages))
        for message in messages:
            place = self._tiers.q3.first_at(message.seq_id)
            if place < len(self._tiers.q3.messages):
                target = self._tiers.q3.messages[place]
                if target.seq_id == message.seq_id:
                    self._fill_one(target, message.content)

    def _fill_one(self, target: Message, content: bytes) -> None:
        if len(target.content) > 0 or len(content) == 0 or target.flags & (SETTLED | PENDING):
            return
        place = self._tiers.q3.first_at(target.seq_id)
        if place < len(self._tiers.q3.messages) and self._tiers.q3.messages[place] is target:
            self._tiers.regain(target, content)
            kept = place - self._tiers.q3.head + 1
            if kept > self.read_kept:
                self.read_kept = kept

    def await_head(self) -> None:
        """Have the first ready message at hand, reading it here and now if need be."""
        board = self._records.engine.board
        while self._records.fault == "":
            self.absorb()
            head = self._tiers.head()
            if head is not None and len(head.content) > 0:
                return
            if head is None and self._tiers.delta_count == 0:
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
            for job in board.take_back(self._records.queue_id):
                if isinstance(job, StoreRead):
                    job.run_now(self._records.engine.files)
                else:
                    run_job(job, self._records.engine.files)
                    job.finish()

    def check(self) -> None:
        """Assert V4."""
        tiers = self._tiers
        if tiers.q3.count() + tiers.q4.count() == 0 and tiers.ready_count() > 0 and not tiers.lazy:
            is_idle = tiers.cold or self._rests or self._records.fault != ""
            assert self._read is not None or is_idle, "V4"
