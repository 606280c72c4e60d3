"""Jobs on segment files, run by worker threads: write blocks, sync, read, remove.

Each job carries all it needs; ``finish`` tells the segment, in the queues' thread.
A sync is followed by a small attestation block, not synced itself: damage before the place
it names cannot come from a crash, nor can a file that ends before it.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.storage.common.message_record import (
    message_record_end,
    record_is_persistent,
    record_msg_id,
    record_seq_id,
)
from penstock.storage.index.marks import has_bit
from penstock.storage.index.references import are_references, read_references, with_checksum
from penstock.storage.index.segment import Block, Segment
from penstock.storage.index.segment_codec import (
    ATTEST,
    HEADER_BYTES,
    REFERENCES,
    BlockHeader,
    damage,
    read_block,
)
from penstock.storage.journal.resting import RestingFiles

JobIsOver = Callable[[Segment, Exception | None], None]
"""(segment, what went wrong): a job on the file of a segment has ended."""
READ_GAP_BYTES: Final[i64] = 64 * 1024
"""Blocks this near to each other are read in one go."""


@final
class WriteAccount:
    """Bytes that wait for the disk in segment writes, over all queues: they are memory too.

    ``error`` is what a write, sync or removal met; the node cannot go on.  ``rewriting`` counts
    segments that are being rewritten, ``rewritten`` and ``bytes_reclaimed`` what came of it.
    """

    def __init__(self) -> None:
        self.waiting_bytes: i64 = 0
        self.rewriting: i64 = 0
        self.rewritten: i64 = 0
        self.bytes_reclaimed: i64 = 0
        self.error: Exception | None = None

    def block_waits(self, size: i64) -> None:
        self.waiting_bytes += size

    def blocks_done(self, size: i64) -> None:
        self.waiting_bytes -= size

    def begin_rewriting(self) -> None:
        self.rewriting += 1

    def end_rewriting(self) -> None:
        self.rewriting -= 1

    def copy_taken(self, reclaimed_bytes: i64) -> None:
        self.rewritten += 1
        self.bytes_reclaimed += reclaimed_bytes

    def note_error(self, error: Exception) -> None:
        if self.error is None:
            self.error = error


@final
class SegmentWrite(DiskJob):
    """Puts blocks of one segment to their places."""

    def __init__(
        self, is_over: JobIsOver, segment: Segment, path: str, account: WriteAccount, journal: str
    ) -> None:
        """``journal``: the directory where what it refers to is."""
        super().__init__()
        self.segment: Segment = segment
        self._is_over: Final = is_over
        self.path: str = path
        self._journal: str = journal
        self.headers: list[BlockHeader] = []
        self.payloads: list[bytes] = []
        self.waiting_bytes: i64 = 0
        self._account: WriteAccount = account
        segment.begin_job()

    def add(self, header: BlockHeader, payload: bytes) -> None:
        self.headers.append(header)
        self.payloads.append(payload)
        self.waiting_bytes += len(payload)
        self._account.block_waits(len(payload))

    def payload_at(self, offset: i64) -> bytes | None:
        """A block that may not be on disk yet, by its place."""
        for i in range(len(self.headers)):
            if self.headers[i].offset == offset:
                return self.payloads[i]
        return None

    def run(self, files: FileSystem) -> None:
        self.segment.must_be_whole(self.path)
        try:
            files.makedirs(self.path.rpartition("/")[0])
            handle = files.open_write(self.path)
            try:
                self._write(files, handle)
            finally:
                files.close(handle)
        except OSError as error:
            self.segment.note_failure(error)
            raise
        reach("segment.written")

    def _write(self, files: FileSystem, handle: int) -> None:
        for i in range(len(self.headers)):
            header = self.headers[i]
            payload = self.payloads[i]
            if header.kind == REFERENCES:
                payload = with_checksum(files, self._journal, payload)
            files.pwrite_parts(handle, int(header.offset), [header.encode(payload), payload])

    def finish(self) -> None:
        self.done = True
        self.segment.end_job()
        self._account.blocks_done(self.waiting_bytes)
        self._is_over(self.segment, None if self.cancelled else self.error)


@final
class SegmentSync(DiskJob):
    """Brings a segment to the disk as far as it was written before this job."""

    def __init__(self, is_over: JobIsOver, segment: Segment, path: str, queue_id: i64) -> None:
        super().__init__()
        self.segment: Segment = segment
        self.path: str = path
        self._is_over: Final = is_over
        self.size: i64 = segment.size
        self._named: bool = segment.named
        self._header: BlockHeader = BlockHeader(
            queue_id, segment.number, ATTEST, segment.claim_attestation(), self.size
        )
        segment.begin_job()

    def run(self, files: FileSystem) -> None:
        self.segment.must_be_whole(self.path)
        try:
            handle = files.open_write(self.path)
            try:
                files.sync(handle)
                if not self._named:
                    files.sync_dir(self.path.rpartition("/")[0])
                reach("segment.synced")
                attest(files, handle, self._header)
            finally:
                files.close(handle)
        except OSError as error:
            self.segment.note_failure(error)
            raise

    def finish(self) -> None:
        self.done = True
        self.segment.end_job()
        if self.error is None and not self.cancelled:
            self.segment.note_synced(self.size)
        self._is_over(self.segment, None if self.cancelled else self.error)

    def is_synced(self) -> bool:
        return self.done and self.error is None and not self.cancelled


def attest(files: FileSystem, handle: int, header: BlockHeader) -> None:
    """Not synced: until a later sync the one before may count."""
    files.pwrite_parts(handle, int(header.offset), [header.encode(b"")])


@final
class SegmentRead(DiskJob):
    """Brings some blocks of one segment, checked.

    ``start`` and ``upto`` are the seq_ids [start, upto) for which the blocks are complete:
    every living message of the segment in between is in ``payloads``.  ``unfinished``: the
    name the file may have still, see segment_rewriting.py.  ``journal``: the directory where what
    they refer to is.
    """

    def __init__(
        self,
        segment: Segment,
        path: str,
        unfinished: str,
        queue_id: i64,
        start: i64,
        upto: i64,
        journal: str,
    ) -> None:
        super().__init__()
        self.segment: Segment = segment
        self.start: i64 = start
        self.upto: i64 = upto
        self.payloads: list[bytes] = []
        self.missing: list[int] = []  # places in payloads that are to be read
        self.size: i64 = 0
        self._path: str = path
        self._unfinished: str = unfinished
        self._journal: str = journal
        self._queue_id: i64 = queue_id
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._references: dict[int, bytes] = {}  # by place; still being written

    def add_known(self, block: Block, payload: bytes) -> None:
        """One that is still being written."""
        if block.file_no > 0:
            self._references[len(self.payloads)] = payload
        self.payloads.append(payload)
        self.size += block.size

    def add_block(self, block: Block) -> None:
        self.missing.append(len(self.payloads))
        self.payloads.append(b"")
        self._offsets.append(int(block.offset))
        self._sizes.append(int(HEADER_BYTES + block.own_bytes))
        self.size += block.size

    def is_at_hand(self) -> bool:
        """Need nothing be read?"""
        return not self.missing and not self._references

    def run(self, files: FileSystem) -> None:
        for place, references in self._references.items():
            self.payloads[place] = read_references(files, self._journal, references, False)
        i = 0
        while i < len(self.missing):
            # Neighbours are read together.
            first = i
            end = self._offsets[i] + self._sizes[i]
            while i + 1 < len(self.missing) and 0 <= self._offsets[i + 1] - end <= READ_GAP_BYTES:
                i += 1
                end = self._offsets[i] + self._sizes[i]
            i += 1
            start = self._offsets[first]
            data = self._pread(files, start, end - start)
            for place in range(first, i):
                self._take(files, place, data, self._offsets[place] - start, start)

    def _pread(self, files: FileSystem, start: int, size: int) -> bytes:
        if self._unfinished:
            try:
                return files.pread(self._unfinished, start, size)
            except FileNotFoundError:
                self._unfinished = ""
        return files.pread(self._path, start, size)

    def _take(self, files: FileSystem, place: i64, data: bytes, at: i64, base: i64) -> None:
        header = read_block(data, at, base, self._queue_id, self.segment.number)
        size = self._sizes[place]
        if header is None or header.size + HEADER_BYTES != size:
            raise self._damage(self._offsets[place], size)
        payload = data[at + HEADER_BYTES : at + size]
        if header.kind == REFERENCES:
            if not are_references(payload):
                raise self._damage(self._offsets[place], size)
            payload = read_references(files, self._journal, payload)
        self.payloads[self.missing[place]] = payload

    def _damage(self, offset: int, size: int) -> Corrupt:
        return damage(self._path, offset, size)


class ContentReleaser:
    """Gives up contents of the message store for messages that no consumer will get."""

    def give_up(self, msg_id: i64, persistent: bool) -> None:
        raise NotImplementedError


@final
class ReleaseContentsJob(DiskJob):
    """Reads which contents in the store belonged to the messages of a segment, and gives
    them up.  The file may be removed only behind this, which the order of the lane sees to.
    """

    def __init__(
        self,
        read: SegmentRead,
        settled: bytes,
        kept: set[int],
        base: i64,
        durable: bool,
        undertaker: ContentReleaser,
    ) -> None:
        super().__init__()
        self._durable: bool = durable  # the queue; else all its contents are transient
        self._read: SegmentRead = read
        self._settled: bytes = settled  # as it was
        self._kept: set[int] = kept  # positions that go on living
        self._base: i64 = base
        self._undertaker: ContentReleaser = undertaker

    def run(self, files: FileSystem) -> None:
        self._read.run(files)

    def finish(self) -> None:
        self.done = True
        if self.error is not None:
            return  # what is damaged keeps its contents until the next start counts again
        for payload in self._read.payloads:
            at: i64 = 0
            size: i64 = len(payload)
            while at < size:
                end = message_record_end(payload, at, size)
                msg_id = record_msg_id(payload, at)
                position = record_seq_id(payload, at) - self._base
                if msg_id > 0 and self._dies(position):
                    durable = self._durable and record_is_persistent(payload, at)
                    self._undertaker.give_up(msg_id, durable)
                at = end

    def _dies(self, position: i64) -> bool:
        if int(position) in self._kept:
            return False
        return not has_bit(self._settled, position)


@final
class RemoveDirectory(DiskJob):
    """Removes the directory of a queue that is no more; nothing else may work in it then.

    Not made durable: what comes back is of a queue recorded as deleted; the next start removes it.
    So nothing refers to the journal for ``segments`` any more, which are those that were there.
    """

    def __init__(self, directory: str, segments: list[Segment], resting: RestingFiles) -> None:
        super().__init__()
        self._directory: str = directory
        self._segments: list[Segment] = segments
        self._resting: RestingFiles = resting

    def run(self, files: FileSystem) -> None:
        if files.exists(self._directory):
            files.remove_dir(self._directory)
            reach("queue.removed")

    def finish(self) -> None:
        self.done = True
        for segment in self._segments:
            self._resting.release(segment.take_references())
