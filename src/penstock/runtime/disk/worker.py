"""``DiskWorker``: does the disk work that is not the journal's, in two threads.

In: the jobs of a board, in order (``submit_writes``, ``submit_reads``; the first job of a lane
starts its thread).  Out: the same jobs, done (``collect``, which has them finished in
the calling thread, that of the loop); ``wake`` is called, from the threads, when there is
something to collect and when ``stalled`` changes.  The threads touch files, jobs and nothing
else of the broker, and sleep while there is nothing to do.

    writes ──► thread ──┐
                        ├──► done ──► collect: finish() of each, in the order they were done
    reads  ──► thread ──┘

Always true:

    1   jobs of one lane run one after the other, in the order they were submitted, and come
        back in that order; nothing is said about the order between the lanes
    2   every job submitted is collected once, whatever happened to it; a cancelled one was
        not run, if the cancelling came in time
    3   a write that found no space stays at the head of its lane and is run again until it
        works; nothing behind it is run before that
    4   ``stalled`` is empty except while 3 waits, and then says why in a sentence

Reads and removals have a lane of their own because a removal may be what makes the room that
a write waits for, and because a consumer should not wait behind megabytes of paging.

Closing does what waits.  On a full disk it tries the head once more; if that fails, the head
*and all behind it* come back with that error, not run: a sync that follows a write which never
happened would attest bytes that are not there.

What goes wrong in a job is the job's affair (``error``).  What gets past that, a bug, ends the
lane: ``error`` of the worker says so, the loop must stop, and every job of the lane, also one
submitted later, comes back with it.  So nothing waits for a thread that is dead.

Rejected: one pool for both lanes (order would need a lock per file); ``asyncio`` or
``concurrent.futures`` (a future per job, and its callback in the wrong thread).
"""

import errno
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.storage.common.disk_jobs import DiskJob, run_job
from penstock.storage.common.files import FileSystem

RETRY_MS: Final = 500
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


def finish_job(job: DiskJob) -> None:
    job.finish()


class DiskWorker:
    """All methods belong to the loop.

    ``directory`` is where the words of ``stalled`` look; ``finish`` finishes a job that is
    collected (a board that keeps account of its jobs has a way of its own).
    """

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        wake: Callable[[], None],
        finish: Callable[[DiskJob], None] = finish_job,
    ) -> None:
        self.stalled = ""
        self.error: OSError | None = None
        self._directory = directory
        self._wake = wake
        self._finish = finish
        self._done: deque[DiskJob] = deque()
        self._writes = Lane(self, files, "disk-writes", patient=True)
        self._reads = Lane(self, files, "disk-reads", patient=False)

    def submit_writes(self, jobs: list[DiskJob]) -> None:
        if jobs:
            self._writes.submit(jobs)

    def submit_reads(self, jobs: list[DiskJob]) -> None:
        if jobs:
            self._reads.submit(jobs)

    def collect(self) -> list[DiskJob]:
        """Finish what was done since the last time; returns it, in order.

        If ``finish`` raises, that comes through; the jobs behind are left for the next time.
        """
        finished: list[DiskJob] = []
        for _ in range(len(self._done)):
            job = self._done.popleft()
            self._finish(job)
            finished.append(job)
        return finished

    def idle(self) -> bool:
        """Nothing waits and nothing is under way (there may be something to collect)."""
        return self._writes.size() == 0 and self._reads.size() == 0

    def close(self) -> None:
        """Do what waits, then end; what was done may still be collected afterwards."""
        lanes = (self._writes, self._reads)
        for lane in lanes:
            lane.end()
        for lane in lanes:
            lane.join()

    # -- called by the lanes, in their threads -----------------------------------------------

    def over(self, jobs: list[DiskJob]) -> None:
        self._done.extend(jobs)

    def wake(self) -> None:
        self._wake()

    def broken(self, bug: BaseException) -> OSError:
        self.error = OSError(errno.EIO, f"a disk worker failed: {bug!r}")
        return self.error

    def stall(self, error: OSError) -> None:
        first = not self.stalled
        self.stalled = space_text(error, self._directory)
        if first:
            self.wake()

    def go_on(self) -> None:
        self.stalled = ""  # the job that waited is reported next, which wakes


class Lane:
    """One queue of jobs and the thread that does them."""

    def __init__(self, worker: DiskWorker, files: FileSystem, name: str, *, patient: bool) -> None:
        self._worker = worker
        self._files = files
        self._name = name
        self._patient = patient
        self._waiting: deque[DiskJob] = deque()
        self._busy = False
        self._closing = False
        self._error: OSError | None = None  # for all that is still to come: none of it is run
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    # -- the loop's side ---------------------------------------------------------------------

    def submit(self, jobs: list[DiskJob]) -> None:
        with self._changed:
            assert not self._closing
            broken = self._error is not None
            if broken:
                self._give_back(jobs)
            else:
                self._waiting.extend(jobs)
                self._changed.notify()
        if broken:
            self._worker.wake()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def size(self) -> int:
        with self._changed:
            return len(self._waiting) + self._busy

    def end(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            job = self._next_job()
            if job is None:
                return
            try:
                self._do(job)
            except BaseException as bug:
                # This thread ends here: its bug must reach those that wait for its jobs.
                with self._changed:
                    self._error = self._worker.broken(bug)
                    self._busy = False
                    self._give_back([job, *self._waiting])
                    self._waiting.clear()
                self._worker.wake()
                raise
            with self._changed:
                self._busy = False
                self._worker.over([job])
            self._worker.wake()

    def _next_job(self) -> DiskJob | None:
        """Wait for work; None = there will be no more."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            self._busy = True
            return self._waiting.popleft()

    def _do(self, job: DiskJob) -> None:
        if job.cancelled:
            return
        if self._error is not None:
            job.ran(self._error)
            return
        run_job(job, self._files)
        if self._patient and no_space(job.error) is not None:
            self._persist(job)
            self._worker.go_on()

    def _persist(self, job: DiskJob) -> None:
        """The disk is full: try again until it works, or it is cancelled."""
        last = False
        while (error := no_space(job.error)) is not None:
            if last:
                self._error = error
                return
            self._worker.stall(error)
            last = self._pause()
            if job.cancelled:
                job.ran(None)
                return
            run_job(job, self._files)

    def _pause(self) -> bool:
        """True: the worker is being closed, so the next try is the last."""
        until = time.monotonic() + RETRY_MS / 1000
        with self._changed:
            while not self._closing:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            return self._closing

    def _give_back(self, jobs: list[DiskJob]) -> None:
        """They come back as they are."""
        for job in jobs:
            if not job.cancelled:
                job.ran(self._error)
        self._worker.over(jobs)


def no_space(error: Exception | None) -> OSError | None:
    """The error, if it says that the disk (or the share of it) is full."""
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return error
    return None


def space_text(error: OSError, directory: str) -> str:
    """What ``stalled`` says, here and at the committer."""
    kind = os.strerror(error.errno or errno.ENOSPC).lower()
    where = error.filename or directory
    return f"{kind}: {where}; {free_space(directory)}writing is tried again every {RETRY_MS} ms"


def free_space(directory: str) -> str:
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return ""
    return f"{free:,} bytes are free, "
