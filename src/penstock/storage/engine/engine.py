"""``Engine``: what the queues of a node share on their way to the disk.

    journal           every durable event, one sync for all queues
    segments          per queue, where messages rest (queue_index.py)
    stores            large contents: one that lasts, one for transient messages
    board             disk work that threads do
    ram               how much of it all is in memory

``work`` is one slice of what has to be done beside the messages themselves; the broker's
turn calls it as long as it says there is more.  Each slice is bounded by messages, so that
the loop is held for a few milliseconds at most.  Queues page (node_paging.py), the oldest journal
file is retired (retirement.py), and segments that are mostly garbage are rewritten (garbage.py).
These two take turns, since a segment that is being rewritten takes no marks.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.events.book import EventBook
from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.common.files import FileSystem
from penstock.storage.engine.garbage import SegmentGarbage
from penstock.storage.engine.memory_monitor import ENDLESS, MemoryMonitor
from penstock.storage.engine.moving_queues import MovingQueues
from penstock.storage.engine.node_paging import NodePaging
from penstock.storage.engine.ram import RamAccount
from penstock.storage.engine.resting_queue import FLUSHED, INFINITE, WAITS_FOR_DISK, RestingQueue
from penstock.storage.engine.retirement import Retirement
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment_jobs import ContentReleaser, WriteAccount
from penstock.storage.journal.codec import JournalGroup
from penstock.storage.journal.journal import Journal, JournalFile
from penstock.storage.journal.resting import RemoveKept
from penstock.storage.store.message_store import MessageStore

SLICE_MESSAGES: Final[i64] = 2048
IDLE_FLUSH_MS: Final[i64] = 1000
HOUSEKEEPING_MS: Final[i64] = 250
TRANSIENT_BATCH_BYTES: Final[i64] = 1024 * 1024
"""The transient store writes so much at a time, and what is left a few times a second."""


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
        self.moving: MovingQueues = MovingQueues(self.queues)
        self._disk_is_short: bool = False  # in this slice
        self.faults: list[str] = []  # for the log: queues that met damage
        self.paging_is_behind: bool = False
        """Memory fills faster than the disk takes from it: publishers to disk should wait."""
        self._impatient: list[RestingQueue] = []  # too many messages are in the journal alone
        self._retirement: Retirement = Retirement(journal, self.queues, board)
        self.monitor: MemoryMonitor = MemoryMonitor()
        self.paging: NodePaging = NodePaging(self.ram, self.queues, self.monitor)
        self._converting: list[RestingQueue] = []
        self.garbage: SegmentGarbage = SegmentGarbage(
            self.queues, journal.resting, segment_slack_bytes
        )
        self.disk_reads: i64 = 0  # messages, of all queues since the start
        self.disk_writes: i64 = 0
        self._busy_at_ms = WallMs(0)
        self.events: EventBook = EventBook()  # the broker gives its own

    def make_index(self, queue_id: i64, durable: bool, entries: i64) -> QueueIndex:
        kind = "queues" if durable else "transient"
        directory = f"{self.directory}/{kind}/{int(queue_id)}"
        return QueueIndex(
            self.board,
            self.account,
            self.undertaker,
            directory,
            queue_id,
            entries,
            durable,
            self.journal.resting,
        )

    def add_queue(self, queue: RestingQueue) -> None:
        self.queues[int(queue.queue_id)] = queue

    def remove_queue(self, queue_id: i64) -> None:
        self.queues.pop(int(queue_id), None)
        self.moving.remove(queue_id)

    def take_readers(self) -> list[object]:
        """Readers for whom something has arrived since the last time."""
        readers: list[object] = []
        for queue_id in self.board.take_arrived():
            queue = self.queues.get(queue_id)
            reader = self.journal.side.reader(queue_id) if queue is None else queue.reader
            if reader is not None:
                readers.append(reader)
        return readers

    def take_faults(self) -> list[str]:
        """What was found damaged since the last time, in a sentence each."""
        faults = self.faults + self.journal.side.take_faults()
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
            group.store = self.store.seal(group.sync)
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
        beside = self.store.unsealed_bytes + journal.side.unsealed_bytes
        return journal.position - journal.sealed_position + beside

    def is_retiring(self, file: JournalFile) -> bool:
        """Is what lives in it being written elsewhere, so that it can go?"""
        return file is self._retirement.file

    # -- work ------------------------------------------------------------------------------

    def work(self, now_ms: WallMs, idle: bool, disk_is_short: bool = False) -> bool:
        """One slice; True = call again soon.

        ``disk_is_short``: an alarm; nothing is paged to where there is no room.
        """
        self._disk_is_short = disk_is_short
        if not idle:
            self._busy_at_ms = now_ms
        elif not 0 <= now_ms - self._busy_at_ms < IDLE_FLUSH_MS:
            self._busy_at_ms = now_ms
            self._retire_soon(True)
        if not 0 <= now_ms - self.moving.ticked_at_ms < HOUSEKEEPING_MS:
            self._keep_house(now_ms)
        if self.transient_store.unsealed_bytes > TRANSIENT_BATCH_BYTES:
            self.transient_store.flush_job()
        self.ram.cached_bytes = self.store.cached_bytes + self.transient_store.cached_bytes
        more = False
        if self.ram.is_short():
            if disk_is_short:
                self.paging.end(self.events)
            else:
                more = self.paging.page(now_ms, SLICE_MESSAGES, self.events)
            self.paging_is_behind = self._is_paging_behind()
        else:
            self.paging_is_behind = False
            if self.paging.paged or self.monitor.duration_s != ENDLESS:
                self.paging.end(self.events)
        if self._converting and self._convert():
            more = True
        if self._impatient and not self._disk_is_short:
            if self._has_finished_file():
                self._retire_soon(True)
            elif self._flush_impatient():
                more = True
        if self.journal.resting.going:
            for file_no in self.journal.resting.take_removable(self.journal.durable_position):
                self.board.reads.append(RemoveKept(self.journal.directory, file_no))
        if self.garbage.wasteful and self._may_rewrite():
            self.garbage.rewrite()
        if len(self.journal.files) > 1:
            self._retire_soon(False)
        if self._retirement.file is not None and self._retire():
            more = True
        return more

    def _has_finished_file(self) -> bool:
        """Then what a queue has too much of in the journal is retired, and not written again."""
        journal = self.journal
        return len(journal.files) > 1 and journal.is_finished(journal.oldest())

    def _may_rewrite(self) -> bool:
        busy = self._retirement.file is not None or self.account.rewriting > 0
        return not busy and not self.ram.disk_is_busy()

    def _retire_soon(self, now: bool) -> None:
        """Begin a retirement when the journal is too large, or (``now``) when it may."""
        journal = self.journal
        if self._retirement.file is not None or self.account.rewriting > 0:
            return
        if not journal.is_finished(journal.oldest()):
            return
        if now or journal.total_bytes() > self.limits.journal_bytes:
            self._retirement.begin()

    def _retire(self) -> bool:
        if self._retirement.visits():
            return not self.ram.disk_is_busy() and self._retirement.visit(SLICE_MESSAGES)
        if not self._retirement.end():
            return False
        if not self._has_finished_file():
            self._impatient = []  # they are looked at anew
        return self.journal.total_bytes() > self.limits.journal_bytes

    def _keep_house(self, now_ms: WallMs) -> None:
        """A few times a second, busy or not."""
        self.ram.count_streams(self.journal.side.memory_bytes(self.ram.limit_bytes))
        self.store.collect_garbage()
        self.transient_store.collect_garbage()
        if self.transient_store.unsealed_bytes > 0:
            self.transient_store.flush_job()
        impatient = self.moving.tick(now_ms, self.limits.journal_entries)
        if not self._impatient:
            self._impatient = impatient
        if self.account.rewriting == 0:
            self.garbage.look()

    def _convert(self) -> bool:
        if self._converting and not self.ram.disk_is_busy():
            queue = self._converting.pop()
            if int(queue.queue_id) in self.queues and queue.converting():
                self._converting.insert(0, queue)
                return queue.page(0, SLICE_MESSAGES)
            queue.set_target(INFINITE)
        return False

    def _flush_impatient(self) -> bool:
        """What cannot rest yet is looked at again with the next look after all queues."""
        if self.ram.disk_is_busy():
            return False
        queue = self._impatient[-1]
        outcome = FLUSHED
        if int(queue.queue_id) in self.queues:
            outcome = queue.flush_safe(SLICE_MESSAGES)
        if outcome == FLUSHED:
            self._impatient.pop()
        return outcome != WAITS_FOR_DISK and len(self._impatient) > 0

    def journal_is_behind(self) -> bool:
        """Retirement does not keep up: publishers should pause."""
        return self.journal.total_bytes() > 2 * self.limits.journal_bytes

    def _is_paging_behind(self) -> bool:
        ram = self.ram
        return 2 * ram.used_bytes() > ram.limit_bytes + ram.paging_bytes and self.ram.disk_is_busy()

    def check(self) -> None:
        self.journal.check()
        total: i64 = 0
        referred: dict[int, int] = {}
        for queue in self.queues.values():
            total += queue.ram_bytes()
            index = queue.index_or_none()
            for segment in [] if index is None else index.segments.values():
                for number, size in segment.references.items():
                    referred[number] = referred.get(number, 0) + size
        for number, size in referred.items():
            assert size <= self.journal.resting.referred[number], "E3"
        assert total == self.ram.queued_bytes
        self.moving.check()
