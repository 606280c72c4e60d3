"""``Engine``: what the queues of a node share on their way to the disk.

    journal           every durable event, one sync for all queues
    segments          per queue, where messages rest (queue_index.py)
    stores            large contents: one that lasts, one for transient messages
    board             disk work that threads do
    ram               how much of it all is in memory

``work`` is one slice of what has to be done beside the messages themselves; the broker's
turn calls it as long as it says there is more.  Each slice is bounded by messages, so that
the loop is held for a few milliseconds at most.

**Paging.**  Over ``ram.paging_bytes`` the memory monitor (memory_monitor.py) finds out what each
queue may keep, and those that hold more write to segments what is over it, the furthest over
first.  Nothing more is paged while ``WRITES_WAITING_MAX_BYTES`` wait for the disk: they are in
memory all the same.  A target lasts until a fifth of ``ram.paging_bytes`` is free: between two
slices there is always a little room, and memory is short all the same.

**Retirement** of the oldest journal file, in steps: every queue that may need it writes to
segments what still lives there; settled marks are written; the segments are synced; the file
goes.  Nothing else waits for it, so it may take many slices.

**Rewriting** of segments, when more than a third of all they hold is garbage and more than two
files' worth of the message store: those that are garbage by more than half, the worst first, some
megabytes at a time.  So in all they are never larger than twice what lives, and that slack.
It and a retirement take turns, since a segment that is being rewritten takes no marks.

Invariants:
  E1  a journal file goes only after every queue said it needs nothing of it, and after every
      segment of those queues was synced behind that, or its file was removed for good: a sync
      that was cancelled because the segment died does not count
  E2  at most one retirement is under way, and no segment is rewritten meanwhile
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.event_book import EventBook
from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.common.files import FileSystem
from penstock.storage.engine.memory_monitor import ENDLESS, Holding, MemoryMonitor, holdings_of
from penstock.storage.engine.ram import RamAccount
from penstock.storage.engine.resting_queue import (
    FLUSHED,
    INFINITE,
    WAITS_FOR_DISK,
    RestingQueue,
)
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import Segment
from penstock.storage.index.segment_jobs import ContentReleaser, SegmentSync, WriteAccount
from penstock.storage.journal.codec import JournalGroup
from penstock.storage.journal.journal import Journal, JournalFile
from penstock.storage.store.message_store import MessageStore

SLICE_MESSAGES: Final[i64] = 2048
WRITES_WAITING_MAX_BYTES: Final[i64] = 32 * 1024 * 1024
IDLE_FLUSH_MS: Final[i64] = 1000
HOUSEKEEPING_MS: Final[i64] = 250
TRANSIENT_BATCH_BYTES: Final[i64] = 1024 * 1024
"""The transient store writes so much at a time, and what is left a few times a second."""
REWRITTEN_AT_ONCE_BYTES: Final[i64] = 32 * 1024 * 1024
"""Segments of so many bytes are rewritten in one turn, before a retirement may have its own."""


@final
class EngineLimits:
    """The settings of the engine, see settings/settings.py."""

    def __init__(
        self,
        embed_below_bytes: i64,
        journal_bytes: i64,
        journal_entries: i64,
        ram_bytes: i64,
        paging_bytes: i64,
    ) -> None:
        self.embed_below_bytes: i64 = embed_below_bytes
        self.journal_bytes: i64 = journal_bytes
        self.journal_entries: i64 = journal_entries
        self.ram_bytes: i64 = ram_bytes
        self.paging_bytes: i64 = paging_bytes


@final
class StoreUndertaker(ContentReleaser):
    """Gives contents up as of now: what ended their messages is in the journal already."""

    def __init__(self, journal: Journal, store: MessageStore, transient: MessageStore) -> None:
        super().__init__()
        self._journal: Journal = journal
        self._store: MessageStore = store
        self._transient: MessageStore = transient

    def give_up(self, msg_id: i64, persistent: bool) -> None:
        if persistent:
            self._store.remove(msg_id, self._journal.position)
        else:
            self._transient.remove(msg_id, 0)


@final
class Engine:
    """Made by ``recovery.Opening``; ``directory`` is the data directory."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        journal: Journal,
        store: MessageStore,
        transient_store: MessageStore,
        board: JobBoard,
        limits: EngineLimits,
        segment_slack_bytes: i64,
    ) -> None:
        """``segment_slack_bytes``: so much garbage in segments is nothing to work for."""
        self.files: FileSystem = files
        self.directory: str = directory
        self.journal: Journal = journal
        self.store: MessageStore = store
        self.transient_store: MessageStore = transient_store
        self.board: JobBoard = board
        self.limits: EngineLimits = limits
        self.account: WriteAccount = WriteAccount()
        self.ram: RamAccount = RamAccount(limits.ram_bytes, limits.paging_bytes, self.account)
        self.undertaker: StoreUndertaker = StoreUndertaker(journal, store, transient_store)
        self.queues: dict[int, RestingQueue] = {}
        self.disk_is_short: bool = False  # an alarm: nothing is paged to where there is no room
        self.faults: list[str] = []  # for the log: queues that met damage
        self.paging_is_behind: bool = False
        """Memory fills faster than the disk takes from it: publishers to disk should wait."""
        self._impatient: list[RestingQueue] = []  # too many messages are in the journal alone
        self._retiring: JournalFile | None = None
        self._visiting: list[RestingQueue] = []
        self._visited: list[RestingQueue] = []
        self._syncs: list[SegmentSync] = []
        self._dying: list[Segment] = []  # segments whose files were to go when they were synced
        self.monitor: MemoryMonitor = MemoryMonitor()
        self._paging: list[Holding] = []  # over their targets, the furthest last
        self._paged: dict[int, RestingQueue] = {}  # since memory became short
        self._converting: list[RestingQueue] = []
        self._slack_bytes: i64 = segment_slack_bytes
        self._wasteful: list[Segment] = []  # the most garbage last
        self.disk_reads: i64 = 0  # messages, of all queues since the start
        self.disk_writes: i64 = 0
        self.segment_count: i64 = 0  # these three as of the last look
        self.segment_bytes: i64 = 0
        self.segment_living_bytes: i64 = 0
        self._busy_at_ms: i64 = 0
        self._kept_at_ms: i64 = 0
        self.paged_slices: i64 = 0
        self.events: EventBook = EventBook()  # the broker gives its own

    def make_index(self, queue_id: i64, durable: bool, entries: i64) -> QueueIndex:
        kind = "queues" if durable else "transient"
        directory = f"{self.directory}/{kind}/{int(queue_id)}"
        return QueueIndex(
            self.board, self.account, self.undertaker, directory, queue_id, entries, durable
        )

    def add_queue(self, queue: RestingQueue) -> None:
        self.queues[int(queue.queue_id)] = queue

    def remove_queue(self, queue_id: i64) -> None:
        self.queues.pop(int(queue_id), None)

    def take_readers(self) -> list[object]:
        """Readers for whom something has arrived since the last time."""
        readers: list[object] = []
        for queue_id in self.board.take_arrived():
            queue = self.queues.get(queue_id)
            if queue is not None and queue.reader is not None:
                readers.append(queue.reader)
        return readers

    def take_faults(self) -> list[str]:
        """What was found damaged since the last time, in a sentence each."""
        faults = self.faults
        self.faults = []
        return faults

    def disk_error(self) -> Exception | None:
        """What a disk job met that the node cannot go on with."""
        error = self.store.disk_error()
        if error is None:
            error = self.transient_store.disk_error()
        if error is None:
            error = self.account.error
        return error

    def begin_conversion(self, queue: RestingQueue) -> None:
        self._converting.append(queue)

    # -- groups ----------------------------------------------------------------------------

    def seal(self, sync: bool) -> JournalGroup | None:
        """The journal's next group, with the contents it speaks of."""
        group = self.journal.seal(sync)
        if group is not None:
            group.join(self.store.seal(sync))
        return group

    def committed(self, group: JournalGroup) -> None:
        store = group.store
        if store is not None:
            self.store.committed(store)
        self.journal.committed(group)
        self.store.note_durable(self.journal.durable_position)

    def pending_bytes(self) -> i64:
        """Appended and not yet sealed."""
        journal = self.journal
        return journal.position - journal.sealed_position + self.store.unsealed_bytes

    def is_retiring(self, file: JournalFile) -> bool:
        """Is what lives in it being written elsewhere, so that it can go?"""
        return file is self._retiring

    # -- work ------------------------------------------------------------------------------

    def work(self, now_ms: i64, idle: bool) -> bool:
        """One slice; True = call again soon."""
        if not idle:
            self._busy_at_ms = now_ms
        elif not 0 <= now_ms - self._busy_at_ms < IDLE_FLUSH_MS:
            self._busy_at_ms = now_ms
            self._retire_soon(True)
        if not 0 <= now_ms - self._kept_at_ms < HOUSEKEEPING_MS:
            self._kept_at_ms = now_ms
            self._keep_house(now_ms)
        if self.transient_store.unsealed_bytes > TRANSIENT_BATCH_BYTES:
            self.transient_store.flush_job()
        self.ram.note_cached(self.store.cached_bytes + self.transient_store.cached_bytes)
        more = False
        if self.ram.is_short():
            more = self._page(now_ms)
            self.paging_is_behind = self._is_paging_behind()
        else:
            self.paging_is_behind = False
            if self._paged or self.monitor.duration_s != ENDLESS:
                self._end_paging()
        if self._converting and self._convert():
            more = True
        if self._impatient and self._flush_impatient():
            more = True
        if self._wasteful:
            self._rewrite()
        if len(self.journal.files) > 1:
            self._retire_soon(False)
        if self._retiring is not None and self._retire():
            more = True
        return more

    def _keep_house(self, now_ms: i64) -> None:
        """A few times a second, busy or not."""
        self.store.collect_garbage()
        self.transient_store.collect_garbage()
        if self.transient_store.unsealed_bytes > 0:
            self.transient_store.flush_job()
        entries_max = self.limits.journal_entries
        looks = len(self._impatient) == 0
        for queue in self.queues.values():
            queue.tick(now_ms)
            if looks and queue.journal_only_count() > entries_max:
                self._impatient.append(queue)
        if self.account.rewriting == 0:
            self._wasteful = self._find_wasteful()

    def _disk_is_busy(self) -> bool:
        """So much waits for it that more would only be more in memory; its end wakes the loop."""
        return self.account.waiting_bytes + self.ram.cached_bytes > WRITES_WAITING_MAX_BYTES

    def _page(self, now_ms: i64) -> bool:
        if self.disk_is_short:
            self._end_paging()
            return False
        if not self.ram.must_page():
            self._paging = []  # the targets last
            return False
        if self._disk_is_busy():
            return False
        if self.monitor.is_due(now_ms, len(self._paging) > 0, len(self.queues)):
            self._set_targets(now_ms)
        if not self._paging:
            return False  # all that takes memory waits for the disk
        over = self._paging.pop()
        queue = over.queue
        if int(queue.queue_id) in self.queues:
            self.paged_slices += 1
            before = queue.ram_bytes()
            if queue.page(over.target_bytes, SLICE_MESSAGES):
                self._paging.append(over)
            queue.note_paged(before - queue.ram_bytes())
        return len(self._paging) > 0

    def _set_targets(self, now_ms: i64) -> None:
        """The queues may keep nine tenths of what starts paging.

        What waits for the disk leaves memory by itself: no queue has to page in its place.
        """
        paging = self.ram.paging_bytes
        holdings = holdings_of(list(self.queues.values()))
        self._paging = self.monitor.look(holdings, paging - paging // 10, paging, now_ms)
        for over in self._paging:
            queue = over.queue
            if int(queue.queue_id) not in self._paged:
                self._paged[int(queue.queue_id)] = queue
                queue.note_paging(now_ms)
                held, target = int(over.held_bytes), int(over.target_bytes)
                if queue.reader is not None:  # else the queue has no name here
                    self.events.note("paging_begun", (queue.reader, None, held, target))
        for holding in holdings:
            if holding.target_bytes != INFINITE and int(holding.queue.queue_id) in self._paged:
                holding.queue.set_target(holding.target_bytes)

    def _end_paging(self) -> None:
        for queue in self._paged.values():
            queue.set_target(INFINITE)
            lasted_ms = int(self.events.now_ms - queue.paging_since_ms)
            held, paged = int(queue.ram_bytes()), int(queue.paged_bytes)
            if queue.reader is not None:
                self.events.note("paging_ended", (queue.reader, None, held, paged, lasted_ms))
        if self._paged:
            self._paged = {}
            self._paging = []
        self.monitor.rest()

    def _convert(self) -> bool:
        if self._converting and not self._disk_is_busy():
            queue = self._converting.pop()
            if int(queue.queue_id) in self.queues and queue.converting():
                self._converting.insert(0, queue)
                return queue.page(0, SLICE_MESSAGES)
            queue.set_target(INFINITE)
        return False

    def _flush_impatient(self) -> bool:
        """What cannot rest yet is looked at again with the next look after all queues."""
        if not self._impatient or self.disk_is_short or self._disk_is_busy():
            return False
        queue = self._impatient[-1]
        outcome = FLUSHED
        if int(queue.queue_id) in self.queues:
            outcome = queue.flush_safe(SLICE_MESSAGES)
        if outcome == FLUSHED:
            self._impatient.pop()
        return outcome != WAITS_FOR_DISK and len(self._impatient) > 0

    # -- rewriting -------------------------------------------------------------------------

    def _find_wasteful(self) -> list[Segment]:
        """The segments to rewrite, if the node has too much garbage."""
        count: i64 = 0
        total: i64 = 0
        living: i64 = 0
        wasteful: list[Segment] = []
        for queue in self.queues.values():
            index = queue.index_or_none()
            if index is not None:
                count += len(index.segments)
                for segment in index.segments.values():
                    total += segment.size
                    living += segment.record_bytes
                    if segment.is_wasteful():
                        wasteful.append(segment)
        self.segment_count = count
        self.segment_bytes = total
        self.segment_living_bytes = living
        if 2 * total <= 3 * living + 2 * self._slack_bytes:
            return []
        wasteful.sort(key=_garbage_bytes)
        return wasteful

    def _rewrite(self) -> None:
        if self._retiring is not None or self.account.rewriting > 0 or self._disk_is_busy():
            return
        quota = REWRITTEN_AT_ONCE_BYTES
        while self._wasteful and quota > 0:
            segment = self._wasteful.pop()
            queue = self.queues.get(int(segment.queue_id))
            index = None if queue is None else queue.index_or_none()
            if index is not None and index.rewriting.rewrite(segment):
                quota -= segment.size

    # -- retirement ------------------------------------------------------------------------

    def _retire_soon(self, now: bool) -> None:
        """Begin a retirement when the journal is too large, or (``now``) when it may."""
        journal = self.journal
        if self._retiring is not None or self.account.rewriting > 0:
            return
        if not journal.is_finished(journal.files[0]):
            return
        if not now and journal.total_bytes() <= self.limits.journal_bytes:
            return
        file = journal.files[0]
        self._retiring = file
        self._visited = []
        self._visiting = []
        for queue in self.queues.values():
            if queue.needs_file(file.number):
                self._visiting.append(queue)

    def _retire(self) -> bool:
        file = self._retiring
        assert file is not None
        if self._visiting:
            if self._disk_is_busy():
                return False
            queue = self._visiting[-1]
            if int(queue.queue_id) not in self.queues:
                self._visiting.pop()
            else:
                outcome = queue.flush_file(file.number, SLICE_MESSAGES)
                if outcome == WAITS_FOR_DISK:
                    return False
                if outcome == FLUSHED:
                    self._visiting.pop()
                    self._visited.append(queue)
            if self._visiting:
                return True
            self._sync_visited(file.number)
            return False
        return self._end_retirement(file)

    def _sync_visited(self, file_no: i64) -> None:
        for queue in self._visited:
            queue.flushed(file_no)
            index = queue.index_or_none()
            if index is not None:
                index.flush_marks()
                self._syncs.extend(index.sync())
                self._dying.extend(index.removing.values())
        self._visited = []

    def _end_retirement(self, file: JournalFile) -> bool:
        for job in self._syncs:
            if not job.done or not (job.is_synced() or job.segment.gone):
                return False
        for segment in self._dying:
            if not segment.gone:
                return False
        self._syncs = []
        self._dying = []
        self._retiring = None
        self.journal.retire(file)
        return self.journal.total_bytes() > self.limits.journal_bytes

    def journal_is_behind(self) -> bool:
        """Retirement does not keep up: publishers should pause."""
        return self.journal.total_bytes() > 2 * self.limits.journal_bytes

    def _is_paging_behind(self) -> bool:
        ram = self.ram
        return 2 * ram.used_bytes() > ram.limit_bytes + ram.paging_bytes and self._disk_is_busy()

    def check(self) -> None:
        self.journal.check()
        total: i64 = 0
        for queue in self.queues.values():
            total += queue.ram_bytes()
        assert total == self.ram.queued_bytes


def _garbage_bytes(segment: Segment) -> int:
    return int(segment.size - segment.record_bytes)
