"""An engine on a simulated disk, and the hands that work for it only when told to."""

from __future__ import annotations

from typing import Any

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import PERSISTENT, Message
from penstock.server.committer import Committer
from penstock.storage.disk_jobs import DiskJob, run_job
from penstock.storage.engine import EngineLimits, RestingQueue
from penstock.storage.files import FileSystem
from penstock.storage.recovery import Opening, close_engine
from penstock.storage.store_groups import StoreWriter

DIRECTORY = "data"
ADDRESS = b"\x00\x01q"


def limits(
    *,
    embed: int = 4096,
    journal: int = 1 << 26,
    entries: int = 32_768,
    ram: int = 1 << 40,
    paging: int = 1 << 40,
) -> EngineLimits:
    return EngineLimits(embed, journal, entries, ram, paging)


def message(content: bytes, *, persistent: bool = True, expires_at_ms: int = 0) -> Message:
    return Message(content, ADDRESS, PERSISTENT if persistent else 0, expires_at_ms)


def run_serially(files: FileSystem) -> Any:
    def run(jobs: list[DiskJob]) -> None:
        for job in jobs:
            run_job(job, files)

    return run


class OpenEngine:
    """An opened engine with its durable queues; ``queues`` maps ids to segment sizes."""

    def __init__(
        self,
        files: FileSystem,
        queues: dict[int, int],
        limits_: EngineLimits | None = None,
        *,
        journal_file_bytes: int = 1 << 24,
        store_file_bytes: int = 1 << 24,
    ) -> None:
        self.files = files
        self.opening = Opening(
            files,
            DIRECTORY,
            limits_ or limits(),
            queues,
            journal_file_bytes,
            store_file_bytes,
        )
        self.opening.run(run_serially(files), lambda _text: None)
        self.engine = self.opening.engine
        self.queues: dict[int, VariableQueue] = {}
        for queue_id, entries in queues.items():
            queue = VariableQueue(self.engine, queue_id, True, entries)
            found = self.opening.queues.get(queue_id)
            if found is not None:
                queue.adopt(found.index, found.next_seq_id, found.expiring)
            self.queues[queue_id] = queue
        self.committer = Committer(
            files,
            f"{DIRECTORY}/journal",
            journal_file_bytes,
            StoreWriter(files, f"{DIRECTORY}/store/persistent"),
            lambda: None,
        )
        self.taken: list[DiskJob] = []

    def commit(self, *, sync: bool = True) -> None:
        group = self.engine.seal(sync)
        if group is not None:
            self.committer.commit_inline(group)
        for done in self.committer.collect():
            self.engine.committed(done)
        if self.committer.error is not None:
            raise self.committer.error

    def run_jobs(self, *, writes: int = 1 << 30, reads: int = 1 << 30) -> None:
        """Do so many jobs of each lane, in order."""
        board = self.engine.board
        for lane, count in ((board.writes, writes), (board.reads, reads)):
            for job in lane[:count]:
                lane.remove(job)
                if not job.cancelled:
                    run_job(job, self.files)
                board.finish(job)

    def work(self, now_ms: int, *, idle: bool = False) -> bool:
        return self.engine.work(now_ms, idle)

    def settle(self, now_ms: int) -> None:
        """Until there is nothing to do."""
        for _ in range(10_000):
            more = self.work(now_ms)
            self.commit()
            self.run_jobs()
            if not more and not self.engine.board.writes and not self.engine.board.reads:
                return
        raise AssertionError("the engine never comes to rest")

    def close_cleanly(self) -> None:
        self.commit()
        self.run_jobs()
        self.committer.close()
        durable: list[RestingQueue] = list(self.queues.values())
        numbers = {int(q.queue_id): int(q.next_seq_id()) for q in self.queues.values()}
        close_engine(self.engine, durable, numbers, self.files)
