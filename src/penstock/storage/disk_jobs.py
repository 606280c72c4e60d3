"""Disk work that is not the journal's: asked for here, done by threads, finished here again.

A quiet room cannot have a thread.  What takes time on the disk it writes down as a
``DiskJob`` and puts on the ``JobBoard``; whoever owns the threads takes the jobs off, lets
``run`` happen in one of them and calls ``finish`` back in the thread of the queues.

Two lanes, each in order:

    writes   segment blocks, syncs, store files, compaction
    reads    what consumers wait for, and removals: they never wait behind a write

A job that fails for want of space (ENOSPC) is run again later: ``run`` must therefore write
to places, not append.  Any other ``OSError``, and ``Corrupt``, is kept in ``error``; then
``finish`` is called all the same and must look at it.
"""

from typing import final

from mypy_extensions import mypyc_attr

from penstock.storage.files import FileSystem


@mypyc_attr(allow_interpreted_subclasses=True)
class DiskJob:
    """One piece of work.  ``run`` touches files and the job's own fields, nothing else."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.cancelled: bool = False
        self.done: bool = False

    def run(self, files: FileSystem) -> None:
        """In a worker's thread; may run again after ENOSPC."""
        raise NotImplementedError

    def finish(self) -> None:
        """In the owner's thread, once, after ``run``."""
        self.done = True


@final
class JobBoard:
    """Jobs asked for and not yet taken."""

    def __init__(self) -> None:
        self.writes: list[DiskJob] = []
        self.reads: list[DiskJob] = []

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
                job.finish()


def run_job(job: DiskJob, files: FileSystem) -> None:
    """``run``, with what goes wrong kept in ``error`` (ENOSPC too)."""
    try:
        job.error = None
        job.run(files)
    except Exception as error:  # noqa: BLE001 - the owner looks at it in ``finish``
        job.error = error
