"""``Streams``: all streams of a node, in front of the group commit.

In: logs as queues open them; what was appended, retired, given up or deleted (``note``, ...).  Out:
one group of all of them (``seal``), and which queues have something new to read (``reader``).
"""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from penstock.core.errors import Corrupt, DamagedQueue
from penstock.storage.common.disk_jobs import DiskJob, JobBoard
from penstock.storage.common.side_log import SideGroup, SideLog
from penstock.streams.log import StreamFound, StreamLimits, StreamLog
from penstock.streams.reading import BlockCache
from penstock.streams.recovery import StreamCut, StreamRecovery
from penstock.streams.removal import StreamDeletion
from penstock.streams.writer import StreamGroup, StreamGroups


@final
class Streams(SideLog):
    """``directory``: of the node's data."""

    def __init__(self, directory: str, board: JobBoard, cache: BlockCache) -> None:
        super().__init__()
        self.cache: BlockCache = cache
        self._directory: str = f"{directory}/streams"
        self._board: JobBoard = board
        self._logs: dict[int, StreamLog] = {}
        self._readers: dict[int, object] = {}
        self._found: dict[int, StreamFound] = {}
        self._noted: dict[int, StreamLog] = {}  # with something to seal
        self._deleted: list[int] = []
        self._cuts: dict[int, StreamCut] = {}  # to be done when the writer has left the files

    def directory_of(self, stream: i64) -> str:
        return f"{self._directory}/{int(stream)}"

    # -- start -----------------------------------------------------------------------------

    def recoveries(self, known: dict[int, int]) -> list[DiskJob]:
        """Jobs that read what is there; then ``recovered``.

        ``known``: streams that exist, and up to where each was on disk.
        """
        jobs: list[DiskJob] = []
        for stream, offset in known.items():
            jobs.append(StreamRecovery(self.directory_of(stream), stream, offset))
        return jobs

    def recovered(self, jobs: list[DiskJob]) -> i64:
        """They have run; raises what they found wrong.  Returns how many messages there are."""
        count: i64 = 0
        for job in jobs:
            assert isinstance(job, StreamRecovery)
            error = job.error
            if isinstance(error, Corrupt):
                raise DamagedQueue(str(error), int(job.stream)) from error
            if error is not None:
                raise error
            self._found[int(job.stream)] = job.found
            count += job.found.next_offset - job.found.first_offset
        return count

    def open(self, stream: i64) -> StreamLog:
        """A stream that was found at the start, or a new one."""
        found = self._found.pop(int(stream), None)
        log = StreamLog(
            self._board,
            self.cache,
            self.directory_of(stream),
            stream,
            StreamLimits(),
            StreamFound() if found is None else found,
        )
        self._logs[int(stream)] = log
        return log

    def read_by(self, stream: i64, reader: object) -> None:
        """The queue to be woken when there is something new to read."""
        self._readers[int(stream)] = reader

    # -- groups ----------------------------------------------------------------------------

    def note(self, log: StreamLog, size: i64) -> None:
        """It has something to seal; so many bytes of it are new."""
        self._noted[int(log.stream)] = log
        self.unsealed_bytes += size
        self.dirty = True

    def delete(self, stream: i64) -> None:
        """Its files go, with the next group."""
        self.unsealed_bytes -= self._logs.pop(int(stream)).pending_bytes()
        self.dirty = True
        self._readers.pop(int(stream), None)
        self._noted.pop(int(stream), None)
        self._deleted.append(int(stream))

    def give_up(self, log: StreamLog, offset: i64, done: Callable[[], None]) -> None:
        """Messages from the offset on go, and maybe some before it; ``done`` opens what is left.

        Until then nothing is to be appended to the log.
        """
        self.dirty = True
        stream = int(log.stream)
        self._cuts[stream] = StreamCut(
            self.directory_of(stream), stream, offset, log.next_offset, self._was_cut, done
        )

    def _was_cut(self, cut: StreamCut) -> None:
        """Its log is gone; ``open`` gives the one that was found."""
        if int(cut.stream) not in self._logs:
            return
        if cut.error is not None:
            self.stopped(cut.stream, f"what it is to give up stays: {cut.error}")
            return
        self.cache.forget(cut.stream)
        self._found[int(cut.stream)] = cut.found
        cut.tell()

    def seal(self) -> SideGroup | None:
        groups: list[StreamGroup] = []
        for log in self._noted.values():
            group = log.seal()
            if group is not None:
                groups.append(group)
        sealed = StreamGroups(groups, self._deleted, list(self._cuts))
        self._noted = {}
        self._deleted = []
        self.dirty = False
        self.unsealed_bytes = 0
        return sealed

    def committed(self, group: SideGroup) -> None:
        assert isinstance(group, StreamGroups)
        for one in group.groups:
            log = self._logs.get(int(one.stream))
            if log is not None:
                log.committed(one)
                fault = log.take_fault()
                if fault != "":
                    self._faults.append(fault)
        for stream in group.left:
            cut = self._cuts.pop(stream, None)
            if cut is not None:
                self._board.reads.append(cut)
        for stream in group.deleted:
            self._board.reads.append(StreamDeletion(self.directory_of(stream)))

    def reader(self, queue_id: i64) -> object:
        return self._readers.get(int(queue_id))

    def memory_bytes(self, limit_bytes: i64) -> i64:
        self.cache.stay_within(limit_bytes)
        return self.cache.bytes + self.cache.held_bytes

    def next_offsets(self) -> dict[int, int]:
        return {stream: int(log.next_offset) for stream, log in self._logs.items()}
