"""An engine for tests that need a queue and do not care where its messages rest."""

from __future__ import annotations

from penstock.backing.variable_queue import VariableQueue
from penstock.storage.common.disk_jobs import DiskJob, run_job
from penstock.storage.common.files import FileSystem
from penstock.storage.engine.engine import Engine, EngineLimits
from penstock.storage.engine.recovery import Opening
from tests.helpers.sim_files import SimFileSystem

EVERYTHING = 1 << 40
SEGMENT_ENTRIES = 16_384
JOURNAL_FILE_BYTES = 64 * 1024
"""Allocated whole, so a small one makes a new engine cheap."""


def quiet_engine(files: FileSystem | None = None, directory: str = "data") -> Engine:
    """New, with room for everything in memory."""
    disk = files or SimFileSystem()

    def run(jobs: list[DiskJob]) -> None:
        for job in jobs:
            run_job(job, disk)

    limits = EngineLimits(4096, EVERYTHING, 32_768, EVERYTHING, EVERYTHING)
    opening = Opening(disk, directory, limits, {}, JOURNAL_FILE_BYTES)
    opening.run(run, lambda _text: None)
    return opening.engine


def transient_backing(queue_id: int = 1) -> VariableQueue:
    """Of a queue that is not durable."""
    return VariableQueue(quiet_engine(), queue_id, False, SEGMENT_ENTRIES)
