"""A message store with everything around it that moves in steps: committer, threads, journal.

Each step of a group's way to the disk, and of a job's, can be taken alone, so that anything may
happen in between.  ``ModelStore`` says what must be true.
"""

from __future__ import annotations

import random
from collections import deque

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import DiskJob, JobBoard, run_job
from penstock.storage.store.message_store import MessageStore, StoreGroup, StoreRead, StoreWriter
from tests.helpers.sim_files import SimFileSystem
from tests.models.model_store import ModelStore

DIRECTORY = "store/persistent"
LIMIT_BYTES = 600


class Sealed:
    """A group on its way, with the journal's position when it was sealed."""

    def __init__(self, group: StoreGroup, position: int) -> None:
        self.group = group
        self.position = position
        self.steps = ["write", "sync", "journal_written", "journal_durable", "committed"]
        if not group.sync:
            self.steps = ["write", "journal_written", "committed"]


class Lane:
    """Jobs of one kind, in order; the first may have run and not yet finished."""

    def __init__(self) -> None:
        self.jobs: deque[DiskJob] = deque()
        self.ran = False

    def step(self, files: SimFileSystem) -> None:
        if not self.jobs:
            return
        if not self.ran:
            run_job(self.jobs[0], files)
            self.ran = True
        else:
            self.ran = False
            self.jobs.popleft().finish()


class StoreWorld:
    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.files = SimFileSystem()
        self.model = ModelStore()
        self.limit_bytes = limit_bytes
        self.safe_msg_id = 0  # what the store said was durable, when it crashed
        self.is_open = False
        self.recover()

    # -- start and stop --------------------------------------------------------------------

    def _new(self) -> None:
        self.board = JobBoard()
        self.store = MessageStore(self.files, DIRECTORY, self.board, self.limit_bytes)
        self.writer = StoreWriter(self.files, DIRECTORY)
        self.sealed: deque[Sealed] = deque()
        self.writes = Lane()
        self.reads = Lane()
        self.asked: list[tuple[StoreRead, list[int]]] = []

    def recover(self) -> list[int]:
        """Read the files again; the messages alive that are gone.

        Only what was never synced may be: the journal's record of it survived by chance.
        """
        self.is_open = False
        self._new()
        for job in self.store.scan_jobs():
            run_job(job, self.files)
            job.finish()
        self.store.scanned()
        lost = []
        for msg_id in self.model.alive():
            for _ in range(self.model.references[msg_id]):
                if not self.store.count_reference(msg_id):
                    lost.append(msg_id)
                    break
        self.store.finish_recovery()
        self.store.check()
        self.is_open = True
        for msg_id in lost:
            self.model.change(msg_id, -self.model.references[msg_id])
        self.model.durable = self.model.position
        return [msg_id for msg_id in lost if msg_id <= self.safe_msg_id]

    def crash(self, rng: random.Random, *, power: bool) -> None:
        if self.is_open:
            self.safe_msg_id = int(self.store.durable_msg_id)
            self.is_open = False
        if power:
            self.files.power_cut(rng)
        else:
            self.files.kill()
        self.model.crash(rng)

    def stop_cleanly(self) -> bytes:
        self.seal()
        while self.sealed:
            self.commit_step()
        self.seal()  # acknowledgements that came after the last group
        self.run_all()
        table = self.store.save_table()
        self.safe_msg_id = int(self.store.durable_msg_id)
        assert self.safe_msg_id == self.store.next_msg_id - 1
        self.files.kill()
        return table

    def load(self, table: bytes) -> None:
        self._new()
        self.store.load_table(table)
        self.is_open = True
        self.store.check()

    # -- messages --------------------------------------------------------------------------

    def write(self, size: int, references: int) -> int:
        number = len(self.model.contents)
        content = (b"%d " % number * (size // 2 + 1))[:size]
        msg_id = int(self.store.write(content, references))
        self.model.write(msg_id, content, references)
        assert self.store.cached(msg_id) == content
        return msg_id

    def refer(self, msg_id: int, count: int) -> None:
        self.store.refer(msg_id, count)
        self.model.change(msg_id, count)

    def remove(self, msg_id: int) -> None:
        self.model.change(msg_id, -1)
        self.store.remove(msg_id, self.model.position)

    def read(self, msg_ids: list[int]) -> None:
        read = self.store.read(msg_ids)
        self.board.reads.append(read)
        self.asked.append((read, msg_ids))

    def read_all(self) -> None:
        """Everything alive is as it was written."""
        self.read(self.model.alive())
        self.run_all()
        assert not self.asked

    def judge_reads(self, *, damage: bool = False) -> None:
        """What came back is right; gone is only what nobody needs any more."""
        left = []
        for read, msg_ids in self.asked:
            if not read.done:
                left.append((read, msg_ids))
                continue
            assert damage or read.error is None, read.error
            assert read.error is None or isinstance(read.error, Corrupt)
            for msg_id, content in zip(msg_ids, read.contents, strict=True):
                if content != self.model.contents[msg_id]:
                    assert content == b""
                    assert read.error is not None or msg_id not in self.model.references
        self.asked = left

    # -- steps -----------------------------------------------------------------------------

    def seal(self, *, sync: bool = True) -> None:
        group = self.store.seal(sync)
        if group is not None:
            self.sealed.append(Sealed(group, self.model.position))
        elif sync and not self.sealed:  # the journal alone is written
            self.model.durable = self.model.position
            self.store.note_durable(self.model.position)

    def commit_step(self) -> None:
        """One step of the oldest group."""
        first = self.sealed[0]
        step = first.steps[0]
        if step == "write":
            self.writer.write(first.group)
        elif step == "sync":
            self.writer.sync()
        elif step == "journal_written":
            self.model.written.append(first.position)
        elif step == "journal_durable":
            self.model.durable = first.position
        else:
            self.store.committed(first.group)
            if first.group.sync:
                self.store.note_durable(first.position)
                assert self.store.durable_msg_id >= first.group.end_msg_id
            self.sealed.popleft()
        first.steps.pop(0)

    def write_ahead(self) -> None:
        """Groups that wait together are written together, before their one sync."""
        for waiting in self.sealed:
            if waiting.steps[0] == "write":
                self.writer.write(waiting.group)
                waiting.steps.pop(0)

    def take_jobs(self) -> None:
        self.writes.jobs.extend(self.board.take_writes())
        self.reads.jobs.extend(self.board.take_reads())

    def job_step(self, lane: Lane) -> None:
        self.take_jobs()
        lane.step(self.files)
        assert self.store.disk_error() is None
        self.judge_reads()

    def run_all(self) -> None:
        self.take_jobs()
        while self.writes.jobs or self.reads.jobs:
            self.job_step(self.reads if self.reads.jobs else self.writes)
            self.take_jobs()
