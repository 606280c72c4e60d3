"""``Retirement``: the oldest file of the journal goes, once nothing needs it.

In steps: the file is read, to know where its records lie; every queue that may need it writes to
segments what still lives there, or refers to it (index/references.py); settled marks are written;
the segments are synced; the file goes, or is kept for what refers to it and replayed no more.
Nothing else waits for it, so it may take many slices.

If less than half of the file can live still, all of that is written: a file that is kept takes its
whole room.  Where that is known without reading it, as of messages that pass through, it is not
read.

Invariants:
  E1  a journal file goes, or is kept, only after every queue said it needs nothing of it, and
      after every segment of those queues was synced behind that, or its file was removed for
      good: a sync that was cancelled because the segment died does not count
  E2  at most one retirement is under way, and no segment is rewritten meanwhile
  E3  a file that a segment refers to is there, and counted with what all of them refer to
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.engine.resting_queue import FLUSHED, WAITS_FOR_DISK, RestingQueue
from penstock.storage.index.segment import Segment
from penstock.storage.index.segment_jobs import SegmentSync
from penstock.storage.journal.journal import Journal, JournalFile
from penstock.storage.journal.resting import CutRoom, JournalScan

RECORD_HEAD_BYTES: Final[i64] = 64
"""Of a record of the journal, at most, beside the content."""


@final
class Retirement:
    """``file`` is the one that is being retired."""

    def __init__(self, journal: Journal, queues: dict[int, RestingQueue], board: JobBoard) -> None:
        self.file: JournalFile | None = None
        self._journal: Journal = journal
        self._board: JobBoard = board
        self._scan: JournalScan | None = None
        self._queues: dict[int, RestingQueue] = queues
        self._visiting: list[RestingQueue] = []
        self._visited: list[RestingQueue] = []
        self._syncs: list[SegmentSync] = []
        self._dying: list[Segment] = []  # segments whose files were to go when they were synced

    def begin(self) -> None:
        file = self._journal.oldest()
        self.file = file
        self._visited = []
        self._visiting = [queue for queue in self._queues.values() if queue.needs_file(file.number)]
        if 2 * self._living_at_most() >= file.size:
            scan = scan_of(self._journal, file, self._visiting)
            self._scan = scan
            self._board.writes.append(scan)

    def visits(self) -> bool:
        """Do queues still have to write to segments?"""
        return len(self._visiting) > 0

    def visit(self, quota: i64) -> bool:
        """The next queue writes; False = wait for the disk."""
        assert self.file is not None
        scan = self._scan
        if scan is not None:
            if not scan.done:
                return False
            self._scan = None
            if 2 * self._may_live(scan) >= self.file.size:
                self._journal.resting.know(scan)
        file_no = self.file.number
        queue = self._visiting[-1]
        if int(queue.queue_id) not in self._queues:
            self._visiting.pop()
        else:
            outcome = queue.flush_file(file_no, quota)
            if outcome == WAITS_FOR_DISK:
                return False
            if outcome == FLUSHED:
                self._visiting.pop()
                self._visited.append(queue)
        if self._visiting:
            return True
        self._sync_visited(file_no)
        return False

    def _living_at_most(self) -> i64:
        """Bytes of what these queues have in the journal alone, which is in memory as well."""
        total: i64 = 0
        for queue in self._visiting:
            total += queue.ram_bytes() + RECORD_HEAD_BYTES * queue.journal_only_count()
        return total

    def _may_live(self, scan: JournalScan) -> i64:
        """Bytes of records in the file that live, at most."""
        total: i64 = 0
        for queue in self._visiting:
            found = scan.found.get(int(queue.queue_id))
            if found is not None and found.count > 0:
                living = queue.journal_only_count()
                total += found.size * min(living, found.count) // found.count
        return total

    def _sync_visited(self, file_no: i64) -> None:
        self._journal.resting.forget()
        for queue in self._visited:
            queue.flushed(file_no)
            index = queue.index_or_none()
            if index is not None:
                index.flush_marks()
                self._syncs.extend(index.sync())
                self._dying.extend(index.removing.values())
        self._visited = []

    def end(self) -> bool:
        """Let the file go, if everything that replaces it is on disk."""
        assert self.file is not None
        for job in self._syncs:
            if not job.done or not (job.is_synced() or job.segment.gone):
                return False
        for segment in self._dying:
            if not segment.gone:
                return False
        self._syncs = []
        self._dying = []
        file = self.file
        self._journal.retire(file)
        if int(file.number) in self._journal.resting.sizes:
            self._board.writes.append(CutRoom(self._journal.directory, file.number, file.size))
        self.file = None
        return True


def scan_of(journal: Journal, file: JournalFile, queues: list[RestingQueue]) -> JournalScan:
    """Finds where the records of these queues lie in it."""
    ids = {int(queue.queue_id) for queue in queues}
    return JournalScan(journal.directory, file.number, file.size, ids)
