"""``Retirement``: the oldest file of the journal goes, once nothing needs it.

In steps: every queue that may need the file writes to segments what still lives there; settled
marks are written; the segments are synced; the file goes.  Nothing else waits for it, so it may
take many slices.

Invariants:
  E1  a journal file goes only after every queue said it needs nothing of it, and after every
      segment of those queues was synced behind that, or its file was removed for good: a sync
      that was cancelled because the segment died does not count
  E2  at most one retirement is under way, and no segment is rewritten meanwhile
"""

from typing import final

from mypy_extensions import i64

from penstock.storage.engine.resting_queue import FLUSHED, WAITS_FOR_DISK, RestingQueue
from penstock.storage.index.segment import Segment
from penstock.storage.index.segment_jobs import SegmentSync
from penstock.storage.journal.journal import Journal, JournalFile


@final
class Retirement:
    """``file`` is the one that is being retired."""

    def __init__(self, journal: Journal, queues: dict[int, RestingQueue]) -> None:
        self.file: JournalFile | None = None
        self._journal: Journal = journal
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

    def visits(self) -> bool:
        """Do queues still have to write to segments?"""
        return len(self._visiting) > 0

    def visit(self, quota: i64) -> bool:
        """The next queue writes; False = wait for the disk."""
        assert self.file is not None
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

    def _sync_visited(self, file_no: i64) -> None:
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
        self._journal.retire(self.file)
        self.file = None
        return True
