"""An engine on a simulated disk, and the hands that work for it only when told to."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.backing.variable_queue import VariableQueue
from penstock.core.headers import HeaderReader
from penstock.core.message import PERSISTENT, Message
from penstock.queues.stream_backing import StreamBacking
from penstock.runtime.disk.committer import Committer
from penstock.runtime.disk.worker import no_space
from penstock.storage.common.disk_jobs import DiskJob, JobBoard, run_job
from penstock.storage.common.files import FileSystem
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.engine.engine import EngineLimits
from penstock.storage.engine.recovery import STREAM_ENTRIES, Opening, close_engine
from penstock.storage.engine.resting_queue import RestingQueue
from penstock.storage.journal.codec import JournalGroup
from penstock.storage.store.groups import StoreWriter
from penstock.streams.reading import BlockCache
from penstock.streams.streams import Streams
from penstock.streams.writer import StreamWriter

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


class NameReader(HeaderReader):
    """Contents here are no AMQP; a message's headers follow from the number it begins with."""

    def read(self, message: Message, name: str) -> object:
        return value_of(message.content)


def value_of(content: bytes) -> str | None:
    """The filter value of a message of a stream: every other one has none."""
    name = int(content.partition(b":")[0])
    return f"v{name % 5}" if name % 2 else None


def run_serially(files: FileSystem) -> Any:
    def run(jobs: list[DiskJob]) -> None:
        for job in jobs:
            run_job(job, files)

    return run


class OpenEngine:
    """An opened engine with its durable queues; ``queues`` maps ids to segment sizes.

    ``streams``: ids of streams; ``cache_bytes``: of the blocks that their readers share.
    """

    def __init__(
        self,
        files: FileSystem,
        queues: dict[int, int],
        limits_: EngineLimits | None = None,
        *,
        journal_file_bytes: int = 1 << 24,
        store_file_bytes: int = 1 << 24,
        deleted: SeqRanges | None = None,
        directory: str = DIRECTORY,
        streams: Sequence[int] = (),
        cache_bytes: int = 20_000,
    ) -> None:
        self.disk_is_short = False
        self.files = files
        self._directory = directory
        self._cache_bytes = cache_bytes
        self.opening = Opening(
            files,
            directory,
            limits_ or limits(),
            queues | dict.fromkeys(streams, int(STREAM_ENTRIES)),
            journal_file_bytes,
            store_file_bytes,
            deleted,
            set(streams),
            self._make_streams,
        )
        self.opening.run(run_serially(files), lambda _text: None)
        self.engine = self.opening.engine
        self.streams = self._open_streams(streams)
        self.queues: dict[int, VariableQueue] = {}
        for queue_id, entries in queues.items():
            queue = VariableQueue(self.engine, queue_id, True, entries)
            found = self.opening.queues.get(queue_id)
            if found is not None:
                queue.adopt(found.index, found.next_seq_id, found.expiring)
            self.queues[queue_id] = queue
        self.committer = Committer(
            files,
            f"{directory}/journal",
            journal_file_bytes,
            StoreWriter(files, f"{directory}/store/persistent"),
            lambda: None,
            StreamWriter(files),
        )

    def _make_streams(self, board: JobBoard) -> Streams:
        cache = BlockCache(self._cache_bytes, held_limit_bytes=5000)
        self._side = Streams(self._directory, board, cache)
        return self._side

    def _open_streams(self, streams: Sequence[int]) -> dict[int, StreamBacking]:
        known = {one: self.opening.next_seq_id(one) for one in streams}
        jobs = self._side.recoveries(known)
        run_serially(self.files)(jobs)
        self._side.recovered(jobs)
        journal = self.engine.journal
        return {
            one: StreamBacking(self._side, journal, NameReader(), one, False) for one in streams
        }

    def commit(self, *, sync: bool = True) -> None:
        group = self.engine.seal(sync)
        if group is not None:
            self.committer.commit_inline(group)
        for done in self.committer.collect():
            self.engine.committed(done)
        if self.committer.owes_note:
            self.committer.attest()
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
        return self.engine.work(now_ms, idle, self.disk_is_short)

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
        error = self.committer.error or self.engine.disk_error()
        if error is not None:
            raise error
        durable: list[RestingQueue] = list(self.queues.values())
        numbers = {int(q.queue_id): int(q.records.next_seq_id) for q in self.queues.values()}
        close_engine(self.engine, durable, numbers, self.files)


class PatientEngine(OpenEngine):
    """As on a node, where threads work and the loop hears of it later.

    Groups and jobs go three steps, each when told: asked for, done on the disk, heard of.  Lack
    of space is waited for, as by runtime/disk/committer.py and runtime/disk/worker.py: what met it
    stays first in its lane and is tried again, and nothing behind it is done before.
    """

    def __init__(
        self,
        files: FileSystem,
        queues: dict[int, int],
        limits_: EngineLimits | None = None,
        *,
        journal_file_bytes: int = 1 << 24,
        store_file_bytes: int = 1 << 24,
        streams: Sequence[int] = (),
        cache_bytes: int = 20_000,
    ) -> None:
        super().__init__(
            files,
            queues,
            limits_,
            journal_file_bytes=journal_file_bytes,
            store_file_bytes=store_file_bytes,
            streams=streams,
            cache_bytes=cache_bytes,
        )
        self.stalls = 0  # tries that met a full disk
        self._sealed: deque[JournalGroup] = deque()
        self._batch: list[JournalGroup] = []  # under way, and again if there was no space
        self._written: list[JournalGroup] = []
        self._writes: deque[DiskJob] = deque()
        self._reads: deque[DiskJob] = deque()
        self._done: deque[DiskJob] = deque()

    # -- groups ----------------------------------------------------------------------------

    def seal(self, *, sync: bool = True) -> bool:
        """A group was made of what is new; False = there was nothing, or nothing to sync."""
        group = self.engine.seal(sync)
        if group is not None:
            self._sealed.append(group)
        return group is not None

    def write_groups(self) -> None:
        """All that wait in one batch, or again the batch that met a full disk."""
        if not self._batch:
            self._batch = list(self._sealed)
            self._sealed.clear()
        if self._batch and self.committer._try_commit(self._batch):
            self._written += self._batch
            self._batch = []
        elif self.committer.stalled:
            self.stalls += 1

    def hear_groups(self) -> list[JournalGroup]:
        """Those written since the last time; the engine is told."""
        heard = self._written
        self._written = []
        for group in heard:
            self.engine.committed(group)
        if heard and self.committer.owes_note:
            self.committer.attest()
        return heard

    def groups_wait(self) -> bool:
        return bool(self._sealed or self._batch or self._written)

    def commit(self, *, sync: bool = True) -> None:
        self.seal(sync=sync)
        while self._sealed or self._batch:
            self.write_groups()
            if self.committer.error is not None:
                raise self.committer.error
            if self._batch:
                raise OSError(errno.ENOSPC, self.committer.stalled)
        self.hear_groups()

    # -- jobs ------------------------------------------------------------------------------

    def run_write(self) -> bool:
        """The next job of the lane is done; False = there is none, or no space for it."""
        self._writes.extend(self.engine.board.take_writes())
        if not self._writes:
            return False
        job = self._writes[0]
        if not job.cancelled:
            run_job(job, self.files)
        elif no_space(job.error) is not None:
            job.error = None
        if no_space(job.error) is not None:
            self.stalls += 1
            return False
        self._done.append(self._writes.popleft())
        return True

    def run_read(self) -> bool:
        self._reads.extend(self.engine.board.take_reads())
        if not self._reads:
            return False
        job = self._reads.popleft()
        if not job.cancelled:
            run_job(job, self.files)
        self._done.append(job)
        return True

    def run_reads(self) -> bool:
        """All reads are done and heard of; False = there were none."""
        some = False
        while self.run_read() or self.hear_job():
            some = True
        return some

    def hear_job(self) -> bool:
        """The next of those done, of both lanes, is finished."""
        if not self._done:
            return False
        self.engine.board.finish(self._done.popleft())
        return True

    def jobs_wait(self) -> bool:
        board = self.engine.board
        return bool(board.writes or board.reads or self._writes or self._reads or self._done)

    def run_jobs(self, *, writes: int = 1 << 30, reads: int = 1 << 30) -> None:
        while writes > 0 and self.run_write():
            writes -= 1
        while reads > 0 and self.run_read():
            reads -= 1
        while self.hear_job():
            pass

    def close_cleanly(self) -> None:
        """Raises OSError if the disk is full or failed; then it is no clean stop."""
        self.commit()
        self.run_jobs()
        if self._writes:
            raise OSError(errno.ENOSPC, "a write finds no space")
        super().close_cleanly()
