"""Disk jobs: work on files other than the journal, described here and run by worker threads.

A quiet package cannot have a thread.  It describes slow work on the disk as a ``DiskJob`` and
puts that on the ``JobBoard``; the owner of the threads (``runtime/disk``) takes the jobs off,
calls ``run`` in one of them and ``finish`` in the thread of the queues.

Two lanes, each in order:

    writes   segment blocks, syncs, store files, compaction
    reads    what consumers wait for, and removals: they never wait behind a write

A job that fails for want of space (ENOSPC) is run again later: ``run`` must therefore write
to places, not append.  Any other ``OSError``, and ``Corrupt``, is kept in ``error``; then
``finish`` is called all the same and must look at it.
"""

from typing import final

from mypy_extensions import i64, mypyc_attr

from penstock.storage.common.files import FileSystem


@mypyc_attr(allow_interpreted_subclasses=True)
class DiskJob:
    """One piece of work.  ``run`` touches files and the job's own fields, nothing else."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.cancelled: bool = False
        self.done: bool = False
        self.reader_id: int = -1

    def cancel(self) -> None:
        """It is not to be run, if it has not begun."""
        self.cancelled = True

    def run(self, files: FileSystem) -> None:
        """In a worker's thread; may run again after ENOSPC."""
        raise NotImplementedError

    def arrives_for(self, reader_id: i64) -> None:
        """The queue that waits for it."""
        self.reader_id = int(reader_id)

    def ran(self, error: Exception | None) -> None:
        """``run`` is over, or does not come about because of an error that came before it."""
        self.error = error

    def finish(self) -> None:
        """In the owner's thread, once, after ``run``."""
        self.done = True


@final
class JobBoard:
    """Jobs asked for and not yet taken; queues whose reads have arrived."""

    def __init__(self) -> None:
        self.writes: list[DiskJob] = []
        self.reads: list[DiskJob] = []
        self.arrived: list[int] = []

    def submit_read(self, job: DiskJob, reader_id: i64) -> None:
        """A read for that queue, which is on ``arrived`` when it is done."""
        job.arrives_for(reader_id)
        self.reads.append(job)

    def take_back(self, reader_id: i64) -> list[DiskJob]:
        """Reads for that queue that no thread has taken off yet."""
        mine = [job for job in self.reads if job.reader_id == reader_id]
        if mine:
            self.reads = [job for job in self.reads if job.reader_id != reader_id]
        return mine

    def take_arrived(self) -> list[int]:
        """Queues for which something was read since the last time."""
        arrived = self.arrived
        self.arrived = []
        return arrived

    def announce(self, reader_id: i64) -> None:
        """That queue is to look again, as if something had been read for it."""
        self.arrived.append(int(reader_id))

    def finish(self, job: DiskJob) -> None:
        """The job has run: tell its owner."""
        job.finish()
        if job.reader_id >= 0 and job.done:
            self.announce(job.reader_id)

    def take_writes(self) -> list[DiskJob]:
        jobs = self.writes
        self.writes = []
        return jobs

    def take_reads(self) -> list[DiskJob]:
        jobs = self.reads
        self.reads = []
        return jobs

    def run_all(self, files: FileSystem) -> None:
        """Do everything here and now: for stops, recovery and tests."""
        while self.writes or self.reads:
            for job in self.take_writes() + self.take_reads():
                if not job.cancelled:
                    run_job(job, files)
                self.finish(job)


def run_job(job: DiskJob, files: FileSystem) -> None:
    """``run``, with what goes wrong kept in ``error`` (ENOSPC too)."""
    error: Exception | None = None
    try:
        job.run(files)
    except Exception as failure:  # noqa: BLE001 - the owner looks at it in ``finish``
        error = failure
    job.ran(error)
