"""A stream on a simulated disk, beside a list that does the same slowly."""

from __future__ import annotations

import random
from typing import NamedTuple

from penstock.core.message import PERSISTENT, Message
from penstock.storage.common.disk_jobs import JobBoard, run_job
from penstock.streams.cursor import Start, StreamCursor
from penstock.streams.filtering import Wanted
from penstock.streams.log import StreamFound, StreamLimits, StreamLog
from penstock.streams.reading import BlockCache
from penstock.streams.recovery import StreamRecovery
from penstock.streams.writer import StreamGroup, StreamGroups, StreamWriter
from tests.helpers.sim_files import SimFileSystem

DATA = "data"
DIRECTORY = f"{DATA}/streams/7"
STREAM = 7
ADDRESS = b"\x00\x01q"


class Entry(NamedTuple):
    content: bytes
    value: bytes
    time_ms: int


def message(content: bytes) -> Message:
    return Message(content, ADDRESS, PERSISTENT, 0)


class StreamWorld:
    """The log and what belongs to it; ``entries[offset]`` is what was appended."""

    def __init__(
        self,
        limits: StreamLimits | None = None,
        files: SimFileSystem | None = None,
        cache_bytes: int = 2000,
        held_bytes: int = 1 << 20,
    ) -> None:
        self.files = files or SimFileSystem()
        self.limits = limits or StreamLimits(segment_bytes=1000)
        self.cache_bytes = cache_bytes
        self.held_bytes = held_bytes
        self.now_ms = 1000
        self.entries: list[Entry] = []
        self.sealed: list[StreamGroup] = []
        self.safe = 0
        """Messages below it were reported as on disk."""
        self.floor = 0
        """No message below it can come back."""
        self.open(StreamFound())

    def open(self, found: StreamFound) -> None:
        self.board = JobBoard()
        self.cache = BlockCache(self.cache_bytes, held_limit_bytes=self.held_bytes)
        self.log = StreamLog(self.board, self.cache, DIRECTORY, STREAM, self.limits, found)
        self.writer = StreamWriter(self.files)

    # -- writing ---------------------------------------------------------------------------

    def append(self, *contents: bytes, values: list[bytes] | None = None) -> None:
        messages = [message(content) for content in contents]
        self.log.append(messages, values or [], self.now_ms)
        for place, content in enumerate(contents):
            value = values[place] if values else b""
            self.entries.append(Entry(content, value, messages[place].enqueued_at_ms))

    def seal(self) -> None:
        group = self.log.seal()
        if group is not None:
            self.sealed.append(group)

    def commit(self) -> None:
        """The oldest sealed group is written, synced and reported."""
        self.writer.write(StreamGroups([self.sealed[0]], []))
        self.writer.sync()
        group = self.sealed.pop(0)
        self.safe = group.end
        self.floor = group.floor
        self.log.committed(group)

    def flush(self) -> None:
        self.seal()
        while self.sealed:
            self.commit()
        self.run_jobs()

    def run_jobs(self) -> None:
        self.board.run_all(self.files)

    # -- ends ------------------------------------------------------------------------------

    def recover(self) -> None:
        job = StreamRecovery(DIRECTORY, STREAM, self.safe)
        run_job(job, self.files)
        if job.error is not None:
            raise job.error
        self.adopt(job.found)

    def adopt(self, found: StreamFound) -> None:
        """What a start found is judged, and is what there is from now on."""
        assert self.safe <= found.next_offset <= len(self.entries)
        assert self.floor <= found.first_offset
        del self.entries[found.next_offset :]
        self.safe = found.next_offset
        self.floor = found.first_offset
        self.open(found)
        self.log.check()

    def crash(self, rng: random.Random, power: bool) -> None:
        """Whatever was under way is gone."""
        self.sealed = []
        if power:
            self.files.power_cut(rng)
        else:
            self.files.kill()

    # -- reading ---------------------------------------------------------------------------

    def read(self, cursor: StreamCursor, most: int = 3, limit: int = 1 << 30) -> list[Message]:
        """What the cursor gives until it would wait, or so many."""
        found: list[Message] = []
        while len(found) < limit:
            if not cursor.look():
                if not (self.board.reads or self.board.writes or cursor.passing):
                    break
                self.run_jobs()
                continue
            cursor.check()
            found += cursor.take(min(most, limit - len(found)))
        return found

    def read_from(self, start: Start, wanted: Wanted | None = None) -> list[Message]:
        cursor = StreamCursor(self.log, start, wanted)
        found = self.read(cursor)
        if cursor.error is not None:
            raise cursor.error
        return found

    def judge(self, found: list[Message], first: int) -> None:
        """These are all messages from that offset up to the durable end."""
        assert [one.seq_id for one in found] == list(range(first, self.log.durable_offset))
        for one in found:
            entry = self.entries[one.seq_id]
            assert (one.content, one.address) == (entry.content, ADDRESS)
            assert one.enqueued_at_ms >= entry.time_ms

    def read_all(self) -> None:
        self.judge(self.read_from(Start(1)), self.log.first_offset)
