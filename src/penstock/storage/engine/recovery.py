"""Opens the engine on a data directory, and closes it.

    DIR/journal/N.jif             journal.py
    DIR/queues/<queue>/N.idx      queue_index.py, durable queues
    DIR/transient/<queue>/N.idx   other queues; emptied at every start
    DIR/store/persistent/N.rdq    message_store.py
    DIR/store/transient/N.rdq     emptied at every start
    DIR/terms                     terms.py; only after a clean stop

**After a clean stop** the terms say how everything stood: nothing is read but them.  They are
used up before anything is changed.

**After any other stop**, in this order, each step repeatable:

    1  read the journal; make durable what of it may not be on disk
    2  read the segments of every queue and the store's files; segments are cut and written
       again where a crash may have left them unsafe, and go when nothing in them lives
    3  count the references to each content; make the end of the store durable
    4  what only the journal knows goes into segments, settled marks too; all are synced
    5  contents without a reference go
    6  a new journal file begins, which carries the queues' numbers
    7  the old journal files go

What a step does because of something it read is done only when that is durable: else a power
cut after a kill could take the reason and leave the deed (an old place settled, and the record
of the new one lost).  So after a crash in between the next start finds what this one found,
or more in segments and the same in the journal, which is the same.  All that survived is
marked redelivered.

A queue of which something lives must be in the definitions, unless its deletion is recorded there
or in the journal: else they are damaged, and nothing is removed (``unknown_queues``).

A content that a living record names must be in the store: the store is on disk before the
journal, and both before a segment.  So a missing one is damage and refused, except where the
record is in the end of the journal that was never known to be synced: that one was not
confirmed, and goes.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt, DamagedQueue
from penstock.core.message import STORED, Message, seq_id_of
from penstock.storage.common.disk_jobs import DiskJob, JobBoard, run_job
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import NO_SPACE, FileSystem
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.common.side_log import SideLog
from penstock.storage.engine.engine import Engine, EngineLimits
from penstock.storage.engine.lost_journal import QUEUES, lost_journal
from penstock.storage.engine.resting_queue import FLUSHED, RestingQueue
from penstock.storage.engine.retirement import scan_of
from penstock.storage.engine.terms import QueueTerms, Terms, read_terms, remove_terms, write_terms
from penstock.storage.engine.unknown_queues import QueueDirectories, refusal
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.recovery import IndexScan
from penstock.storage.index.segment_codec import segment_file_name
from penstock.storage.journal.codec import (
    POSITION_IDS,
    SPARE_SUFFIX,
    copy_of_position,
    journal_file_name,
    journal_file_no,
)
from penstock.storage.journal.journal import JOURNAL_FILE_BYTES, Journal
from penstock.storage.journal.recovery import SEQ_ID_STEP, JournalRecovery
from penstock.storage.store.message_store import MessageStore

RunJobs = Callable[[list[DiskJob]], None]
"""Runs jobs, in any order, perhaps several at a time, and returns when all have run."""
Progress = Callable[[str], None]
MakeSideLog = Callable[[JobBoard], SideLog]
WRITES_AT_ONCE: Final[i64] = 64 * 1024 * 1024
STORE_FILE_BYTES: Final[i64] = 16 * 1024 * 1024
STREAM_ENTRIES: Final[i64] = 8
"""Of a queue without an index."""


def _no_side_log(_board: JobBoard) -> SideLog:
    return SideLog()


@final
class FoundQueue:
    """A durable queue as the disk remembers it; without an index it has no messages."""

    __slots__ = ("expiring", "index", "next_seq_id")

    def __init__(self, index: QueueIndex | None, next_seq_id: i64, expiring: bool) -> None:
        self.index: QueueIndex | None = index
        self.next_seq_id: i64 = next_seq_id
        self.expiring: bool = expiring

    def count(self) -> i64:
        return 0 if self.index is None else self.index.live_count


@final
class Opening:
    """One start; ``run`` it, then look at ``engine``, ``queues`` and the counters."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        limits: EngineLimits,
        entries: dict[int, int],
        journal_file_bytes: i64 = JOURNAL_FILE_BYTES,
        store_file_bytes: i64 = STORE_FILE_BYTES,
        deleted: SeqRanges | None = None,
        streams: set[int] | None = None,
        beside: MakeSideLog = _no_side_log,
    ) -> None:
        """``entries``: the durable queues that exist, and their segment sizes.

        ``deleted``: ids of queues whose deletion the definitions have recorded.
        ``streams``: those of ``entries`` that keep their messages in ``beside``.
        """
        self._streams: set[int] = set() if streams is None else streams
        self.queues: dict[int, FoundQueue] = {}
        self.clean: bool = False
        self.new: bool = False  # the data directory had nothing in it
        self.bytes_read: i64 = 0
        self.bytes_cut: i64 = 0
        self.messages: i64 = 0
        self.dropped: i64 = 0  # records never confirmed, whose content had not been written
        self._files: FileSystem = files
        self._directory: str = directory
        self._entries: dict[int, int] = entries
        self._deleted: SeqRanges = SeqRanges() if deleted is None else deleted
        board = JobBoard()
        store = MessageStore(files, f"{directory}/store/persistent", board, store_file_bytes)
        transient = MessageStore(
            files, f"{directory}/store/transient", board, store_file_bytes, durable=False
        )
        journal = Journal(files, f"{directory}/journal", journal_file_bytes, beside(board))
        self.engine: Engine = Engine(
            files, directory, journal, store, transient, board, limits, 2 * store_file_bytes
        )

    def run(self, run_jobs: RunJobs, progress: Progress) -> None:
        files = self._files
        terms = read_terms(files, self._directory)
        known = set(self._entries.keys())
        journal = JournalRecovery(files, self.engine.journal.directory, known, self._deleted)
        left = QueueDirectories(files, self._directory, known)
        if terms is None:
            journal.run()
        lost = lost_journal(journal, terms, self._directory, len(known))
        if lost:
            raise Corrupt(lost)
        if terms is not None:
            left.judge_terms(terms, self._deleted)
        else:
            left.judge_journal(journal.unknown, self._deleted)
        if left.unknown:
            raise Corrupt(refusal(self._directory, left.unknown))
        # Here the changes begin.
        for name in ("journal", "transient", "store/persistent", "store/transient"):
            files.makedirs(f"{self._directory}/{name}")
        for name in files.listdir(f"{self._directory}/transient"):
            files.remove_dir(f"{self._directory}/transient/{name}")
        self.engine.transient_store.clear()
        if terms is not None:
            left.remove_dead(self._deleted)
            self._open_cleanly(terms)
        else:
            remove_terms(files, self._directory)
            journal.secure()
            left.remove_dead(self._deleted)
            self._recover(journal, left.present, run_jobs, progress)
        files.makedirs(f"{self._directory}/{QUEUES}")  # see lost_journal.py
        for found in self.queues.values():
            self.messages += found.count()

    def next_seq_id(self, queue_id: int) -> int:
        """The one that the next message of a queue will not be below, as the journal has it."""
        found = self.queues.get(queue_id)
        return 0 if found is None else int(found.next_seq_id)

    # -- after a clean stop ----------------------------------------------------------------

    def _open_cleanly(self, terms: Terms) -> None:
        self.clean = True
        self.engine.store.load_table(terms.store_table)
        next_seq_ids: dict[int, int] = {}
        for queue in terms.queues:
            if int(queue.queue_id) in self._entries:
                self._open_queue(queue)
            next_seq_ids[int(queue.queue_id)] = int(queue.next_seq_id)
        self._keep_referred(terms.resting)
        remove_terms(self._files, self._directory)
        self._begin_journal(terms.journal_file_no + 1, next_seq_ids)

    def _open_queue(self, terms: QueueTerms) -> None:
        index = self._terms_index(terms) if terms.segments else None
        self.queues[int(terms.queue_id)] = FoundQueue(index, terms.next_seq_id, terms.expiring)

    def _terms_index(self, terms: QueueTerms) -> QueueIndex:
        index = self.engine.make_index(terms.queue_id, True, terms.entries)
        for segment in terms.segments:
            path = index.path(segment.number)
            if not self._files.exists(path) or self._files.size(path) < segment.synced:
                raise DamagedQueue(
                    f"{path}: is missing, or shorter than the {int(segment.synced)} bytes"
                    " that were on disk when the broker stopped",
                    int(terms.queue_id),
                )
            # Behind that is an attestation, not synced itself: it is written over.
            segment.cut_at(segment.synced)
        index.adopt(terms.segments, terms.redelivered_below)
        return index

    def _begin_journal(self, file_no: i64, numbers: dict[int, int]) -> None:
        """The old files are of no use as soon as the new one is on disk.

        ``numbers``: next seq_ids and positions; those of queues that are gone go.
        """
        journal = self.engine.journal
        journal.begin(
            file_no,
            {
                number: upto
                for number, upto in numbers.items()
                if (copy_of_position(number) if number >= POSITION_IDS else number) in self._entries
            },
        )
        for name in self._files.listdir(journal.directory):
            number = journal_file_no(name)
            is_old = 0 < number < file_no and number not in journal.resting.sizes
            if is_old or name.endswith(SPARE_SUFFIX):
                self._files.remove(f"{journal.directory}/{name}")

    def _keep_referred(self, sizes: dict[int, int]) -> None:
        """``sizes``: of the journal's files as far as it knows.

        In a backup a segment may refer to one that was dropped a moment later.
        """
        resting = self.engine.journal.resting
        found: dict[int, int] = {}
        for number in resting.referred:
            path = self.engine.journal.path(number)
            there = self._files.size(path) if self._files.exists(path) else -1
            if there < sizes.get(number, 0):
                raise Corrupt(f"{path}: is missing or too short, and segments refer to it")
            found[number] = sizes.get(number, there)
        resting.adopt(found)

    # -- after a crash ---------------------------------------------------------------------

    def _recover(
        self,
        journal: JournalRecovery,
        present: set[int],
        run_jobs: RunJobs,
        progress: Progress,
    ) -> None:
        """``present``: queues that have a directory."""
        reach("recovery.journal_read")
        self.bytes_read += journal.bytes_read
        self.bytes_cut += journal.bytes_cut
        self.new = self.clean = not journal.numbers
        if journal.numbers:
            progress(
                f"journal: {int(journal.messages_read)} messages in {len(journal.numbers)} files"
            )
        scans: list[IndexScan] = []
        next_seq_ids: dict[int, int] = {}
        for queue_id, entries in self._entries.items():
            journalled = journal.queues[queue_id]
            where = f"{self._directory}/queues/{queue_id}"
            scan = IndexScan(where, queue_id, entries, journalled, journal.directory)
            if queue_id in present or journalled.messages:
                scans.append(scan)
            else:
                next_seq_ids[queue_id] = self._join(scan, [])
        store = self.engine.store
        store_scans = store.scan_jobs()
        jobs: list[DiskJob] = []
        jobs.extend(store_scans)
        jobs.extend(scans)
        if jobs:
            progress(f"reading {len(scans)} queues and {len(store_scans)} store files")
        run_jobs(jobs)
        for job in jobs:
            error = job.error
            if isinstance(job, IndexScan) and isinstance(error, Corrupt):
                raise DamagedQueue(str(error), int(job.queue_id)) from error
            if error is not None:
                raise error
            job.finish()
        journal.must_be_newer_than(_newest_referred(scans))
        store.scanned()
        reach("recovery.segments_read")
        missing = [self._count_references(scan) for scan in scans]
        store.secure()
        for scan, messages in zip(scans, missing, strict=True):
            next_seq_ids[int(scan.queue_id)] = self._join(scan, messages)
        self._settle_segments(progress)
        self._keep_referred(journal.sizes)
        reach("recovery.flushed")
        store.finish_recovery()
        self._begin_journal(journal.last_file_no + 1, next_seq_ids | journal.positions)
        reach("recovery.ready")

    def _count_references(self, scan: IndexScan) -> list[Message]:
        """What lives needs its content; what never was confirmed and has none goes.

        Returns what only the journal has.
        """
        for record in scan.stored:
            if not self.engine.store.count_reference(record.msg_id):
                raise DamagedQueue(
                    f"{scan.directory}/{segment_file_name(int(record.segment.number))}: the"
                    f" content of the message at position {int(record.position)}"
                    f" (message {int(record.msg_id)} of the store) is missing",
                    int(scan.queue_id),
                )
        return [message for message in scan.missing if self._has_content(message, scan.queue_id)]

    def _join(self, scan: IndexScan, missing: list[Message]) -> int:
        """Segments and journal of one queue become its index; its next seq_id."""
        self.bytes_read += scan.bytes_read
        self.bytes_cut += scan.bytes_cut
        next_seq_id = scan.journalled.safe_next_seq_id()
        if int(scan.queue_id) in self._streams:
            next_seq_id = scan.journalled.next_seq_id  # so much of it was on disk, no more
        elif next_seq_id < scan.next_seq_id:
            next_seq_id = (scan.next_seq_id + SEQ_ID_STEP - 1) // SEQ_ID_STEP * SEQ_ID_STEP
        index: QueueIndex | None = None
        if scan.segments or missing:
            index = self.engine.make_index(scan.queue_id, True, scan.entries)
            index.adopt(scan.segments, next_seq_id)
        if index is not None and missing:
            # On a mirror a younger record may be of an older place.
            missing.sort(key=seq_id_of)
            index.append(missing)
            for message in missing:
                until_ms = scan.journalled.delays.get(int(message.seq_id), WallMs(0))
                if until_ms > 0:
                    index.set_delay(message.seq_id, until_ms)
            self._run_writes(WRITES_AT_ONCE)
        self.queues[int(scan.queue_id)] = FoundQueue(index, next_seq_id, scan.expiring)
        return int(next_seq_id)

    def _has_content(self, message: Message, queue_id: i64) -> bool:
        if not message.flags & STORED or self.engine.store.count_reference(message.msg_id):
            return True
        if message.file_no > 0:
            raise DamagedQueue(
                f"{self.engine.journal.directory}/{journal_file_name(int(message.file_no))}: the"
                f" content of message {int(message.seq_id)} of queue {int(queue_id)}"
                f" (message {int(message.msg_id)} of the store) is missing",
                int(queue_id),
            )
        self.dropped += 1
        return False

    def _settle_segments(self, progress: Progress) -> None:
        """What the journal knew is in segments now; bring them to the disk."""
        for found in self.queues.values():
            index = found.index
            if index is not None:
                index.flush_marks()
                index.sync()
        if self.queues:
            progress("writing what only the journal had into segments")
        self._run_writes(0)

    def _run_writes(self, above_bytes: i64) -> None:
        if self.engine.account.waiting_bytes < above_bytes:
            return
        run_waiting(self.engine, self._files)


def _newest_referred(scans: list[IndexScan]) -> int:
    """The newest file of the journal that a segment refers to; 0 = none does."""
    numbers: list[int] = [0]
    for scan in scans:
        for segment in scan.segments:
            numbers.extend(segment.references)
    return max(numbers)


def run_waiting(engine: Engine, files: FileSystem) -> None:
    """Do all work on the board here and now; raises what goes wrong."""
    board = engine.board
    while board.writes or board.reads:
        for job in board.take_writes() + board.take_reads():
            if not job.cancelled:
                run_job(job, files)
            board.finish(job)
            if job.error is not None and not job.cancelled:
                raise job.error


def close_engine(
    engine: Engine, queues: list[RestingQueue], next_seq_ids: dict[int, int], files: FileSystem
) -> None:
    """After the last group was committed and no job is under way: write everything down.

    ``queues``: the backings of durable queues.
    """
    everything: i64 = engine.journal.current.number
    terms_queues: list[QueueTerms] = []
    run_waiting(engine, files)
    for queue in queues:
        queue.note_delivered()
    if any(queue.needs_file(everything) for queue in queues):
        _refer_to_journal(engine, queues, files)
    for queue in queues:
        while queue.flush_file(everything, 4096) != FLUSHED:
            run_waiting(engine, files)
        run_waiting(engine, files)
    for queue in queues:
        index = queue.index_or_none()
        if index is not None:
            index.shed_transient(files)
            index.flush_marks()
            index.sync()
    run_waiting(engine, files)
    for queue in queues:
        queue_id = int(queue.queue_id)
        index = queue.index_or_none()
        terms_queues.append(
            QueueTerms(
                queue_id,
                queue.segment_entries(),
                next_seq_ids[queue_id],
                0 if index is None else index.redelivered_below,
                index is not None and queue.may_expire(),
                [] if index is None else list(index.segments.values()),
            )
        )
    numbers = engine.journal.side.next_offsets() | engine.journal.positions()
    for number, upto in numbers.items():
        terms_queues.append(QueueTerms(number, STREAM_ENTRIES, upto, 0, False, []))
    resting = dict(engine.journal.resting.sizes)
    for file in engine.journal.files:
        if engine.journal.resting.referred.get(int(file.number), 0) > 0:
            resting[int(file.number)] = int(file.size)
    terms = Terms(engine.journal.current.number, resting, engine.store.save_table(), terms_queues)
    write_terms(files, engine.directory, terms)


def _refer_to_journal(engine: Engine, queues: list[RestingQueue], files: FileSystem) -> None:
    """As a retirement of each file would, however little lives; what is left goes to segments."""
    journal = engine.journal
    try:
        journal.roll()
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return
    for file in journal.files:
        visited = [queue for queue in queues if queue.needs_file(file.number)]
        if not visited or file is journal.current:
            continue
        scan = scan_of(journal, file, visited)
        run_job(scan, files)
        scan.finish()
        journal.resting.know(scan)
        for queue in visited:
            while queue.flush_file(file.number, 4096) != FLUSHED:
                run_waiting(engine, files)
            queue.flushed(file.number)
        run_waiting(engine, files)
        journal.resting.forget()
