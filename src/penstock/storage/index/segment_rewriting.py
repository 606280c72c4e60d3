"""Compaction of segments: a segment that is mostly garbage is written anew.

A segment whose last message is done loses its file without any work (queue_index.py).  But one
message of many may stay, and then the file stays.  So segments are rewritten; the engine says
when: only while a third of what all segments of the node hold is garbage, by the rule of the
message store (compaction.py).  A queue that is just being consumed makes its first segment garbage,
and a moment later that is gone for nothing.

What may be left out is what may be removed with a whole file: settled records, at once.  A crash
may forget their acknowledgement, then the journal has the message itself, or it was none to keep.

**How**, safe to die after any step:

    1  plan     the living, the marks, and the old directory of blocks are taken down.  From here
                to step 5 nothing is appended to the segment (``can_append``)
    2  copy     what lived is copied to ``<N>.idt`` with its marks, and synced; a left-over is
                deleted at start
    3  switch   in the queues' thread the segment gets the directory of the copy
    4  rename   ``<N>.idt`` becomes ``<N>.idx``, the directory is synced
    5           the segment may be appended to again

A read is planned on one directory and runs later in a thread.  Reads planned before the switch
stand in their lane before the rename, which is a job of the same lane: they find the old file.
Those planned after it look for ``<N>.idt``, and if that has its new name by then, for that.

What dies after the plan is copied like the living and stays garbage.  Every block is verified
while it is copied, and a copy must hold exactly what is known to live; else it is thrown away, and
the segment left alone: what is whole in it stays readable, and the damage stays to be seen.  When
the disk is full the copy is thrown away too, and planned again later.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import DiskJob, JobBoard
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import NO_SPACE, FileSystem
from penstock.storage.common.message_record import (
    message_record_end,
    record_content_size,
    record_seq_id,
)
from penstock.storage.index.marks import has_bit
from penstock.storage.index.reading import IndexReading
from penstock.storage.index.references import read_references
from penstock.storage.index.segment import Block, Segment
from penstock.storage.index.segment_codec import (
    ATTEST,
    BLOCK_BYTES,
    HEADER_BYTES,
    MARKS,
    MESSAGES,
    BlockHeader,
    damage,
    read_block,
)
from penstock.storage.index.segment_jobs import JobIsOver, WriteAccount, attest


@final
class SegmentRewrite(DiskJob):
    """Step 2, then 3: copies what lives in one segment."""

    def __init__(self, owner: "IndexRewriting", segment: Segment) -> None:
        super().__init__()
        self.segment: Segment = segment
        self.bytes_before: i64 = segment.total_bytes()
        self.size: i64 = HEADER_BYTES  # of the copy; it begins with its attestation
        self._owner: IndexRewriting = owner
        self._index: IndexReading = owner.index
        self._base: i64 = segment.number * segment.entries
        self._path: str = owner.index.path(segment.number)
        self._unfinished: str = owner.index.unfinished_path(segment.number)
        self._old: list[Block] = list(segment.blocks)
        self._settled: bytes = segment.marks.settled_bytes()
        self._marks: bytes = segment.marks.write_down()
        self._delay_count: i64 = len(segment.marks.delays)
        self._attempts_count: i64 = len(segment.marks.attempts)
        self.references: dict[int, int] = segment.references
        self._expected_count: i64 = segment.live_count
        self._expected_bytes: i64 = segment.record_bytes
        self._new: list[Block] = []
        self._writer: BytesWriter = BytesWriter()
        self._open: Block = Block(0, -1, 0, 0, 0, 0)  # the block being filled
        self._gave_up: bool = False

    # -- the thread ------------------------------------------------------------------------

    def run(self, files: FileSystem) -> None:
        try:
            self._write_copy(files)
        except OSError as error:
            self._throw_away(files)
            if error.errno not in NO_SPACE:
                raise
            self._gave_up = True
            return
        except Corrupt:
            self._throw_away(files)
            raise
        reach("segment.copied")

    def _throw_away(self, files: FileSystem) -> None:
        if files.exists(self._unfinished):
            files.remove(self._unfinished)

    def _write_copy(self, files: FileSystem) -> None:
        self._throw_away(files)
        handle = files.open_write(self._unfinished)
        try:
            for block in self._old:
                self._copy(files, handle, block)
            self._end_block(files, handle)
            self._compare()
            marks = self._header(MARKS, self._attempts_count, 0, self._delay_count)
            self._put(files, handle, marks, self._marks)
            # No reader sees the copy before it is synced: its attestation says so.
            number, queue_id = self.segment.number, self._index.queue_id
            attest(files, handle, BlockHeader(queue_id, number, ATTEST, 0, self.size))
            if self._index.durable:
                files.sync(handle)
        finally:
            files.close(handle)

    def _header(self, kind: i64, first: i64, last: i64, count: i64) -> BlockHeader:
        number = self.segment.number
        return BlockHeader(self._index.queue_id, number, kind, self.size, 0, first, last, count)

    def _put(self, files: FileSystem, handle: int, header: BlockHeader, payload: bytes) -> None:
        files.pwrite_parts(handle, int(self.size), [header.encode(payload), payload])
        self.size += HEADER_BYTES + len(payload)

    def _copy(self, files: FileSystem, handle: int, block: Block) -> None:
        """The living of this block, neighbours in one piece; they come from where they are."""
        size = HEADER_BYTES + block.own_bytes
        data = files.pread(self._path, int(block.offset), int(size))
        header = read_block(data, 0, block.offset, self._index.queue_id, self.segment.number)
        if header is None or header.size != block.own_bytes:
            raise damage(self._path, int(block.offset), int(size))
        at = HEADER_BYTES
        if block.file_no > 0:
            data = read_references(files, self._index.resting.directory, data[at:])
            at = 0
            size = len(data)
        piece: i64 = at  # where the living begin that are not copied yet
        while at < size:
            end = message_record_end(data, at, size)
            if end < 0:
                raise damage(self._path, int(block.offset + at), int(size - at))
            position = record_seq_id(data, at) - self._base
            if has_bit(self._settled, position):
                self._writer.write(data[piece:at])
                piece = end
            else:
                if position < self._open.last or len(self._writer) + at - piece >= BLOCK_BYTES:
                    self._writer.write(data[piece:at])
                    piece = at
                    self._end_block(files, handle)
                self._open.take(position, record_content_size(data, at))
            at = end
        self._writer.write(data[piece:at])

    def _end_block(self, files: FileSystem, handle: int) -> None:
        block = self._open
        if block.count == 0:
            return
        payload = self._writer.getvalue()
        self._writer.truncate(0)
        block.close(self.size, len(payload))
        header = self._header(MESSAGES, block.first, block.last, block.count)
        self._put(files, handle, header, payload)
        self._new.append(block)
        self._open = Block(0, -1, 0, 0, 0, 0)

    def _compare(self) -> None:
        count: i64 = 0
        size: i64 = 0
        for block in self._new:
            count += block.count
            size += block.size
        if count != self._expected_count or size != self._expected_bytes:
            raise Corrupt(
                f"{self._path}: {int(count)} living messages with {int(size)} bytes found,"
                f" {int(self._expected_count)} with {int(self._expected_bytes)} were expected"
            )

    # -- the owner -------------------------------------------------------------------------

    def finish(self) -> None:
        self.done = True
        if self.error is None and not self.cancelled and not self._gave_up:
            self.segment.take_copy(self._new, self.size)
            self._owner.switched(self)
        else:
            damaged = isinstance(self.error, Corrupt)
            self.segment.copy_failed(damaged)
            error = None if damaged or self.cancelled else self.error
            self._owner.ended(self.segment, error)


@final
class SegmentRename(DiskJob):
    """Step 4: the copy gets its name, and what the old file referred to is not needed."""

    def __init__(
        self, owner: "IndexRewriting", segment: Segment, references: dict[int, int]
    ) -> None:
        super().__init__()
        self._owner: IndexRewriting = owner
        self._segment: Segment = segment
        self._references: dict[int, int] = references

    def run(self, files: FileSystem) -> None:
        index = self._owner.index
        number = self._segment.number
        files.rename(index.unfinished_path(number), index.path(number))
        reach("segment.renamed")
        if index.durable:
            files.sync_dir(index.directory)

    def finish(self) -> None:
        self.done = True
        self._segment.renamed()
        if self.error is None:
            self._owner.index.resting.release(self._references)
        self._owner.ended(self._segment, self.error)


@final
class IndexRewriting:
    """Has segments of one queue rewritten; ``jobs`` are under way, up to their renames."""

    def __init__(
        self, index: IndexReading, board: JobBoard, account: WriteAccount, is_over: JobIsOver
    ) -> None:
        self.index: IndexReading = index
        self.jobs: list[SegmentRewrite] = []
        self._board: JobBoard = board
        self._account: WriteAccount = account
        self._is_over: Final = is_over

    def rewrite(self, segment: Segment) -> bool:
        """Step 1; False = it is not what it was when it was found wasteful, or not just now."""
        there = self.index.segments.get(int(segment.number))
        if there is not segment or not segment.is_at_rest():
            return False
        job = SegmentRewrite(self, segment)
        segment.begin_rewriting()
        self.jobs.append(job)
        self._account.begin_rewriting()
        self._board.writes.append(job)
        return True

    def switched(self, job: SegmentRewrite) -> None:
        self._account.copy_taken(job.bytes_before - job.size)
        self._board.reads.append(SegmentRename(self, job.segment, job.references))

    def ended(self, segment: Segment, error: Exception | None) -> None:
        self.jobs = [job for job in self.jobs if job.segment is not segment]
        self._account.end_rewriting()
        segment.end_rewriting()
        self._is_over(segment, error)

    def cancel(self, segment: Segment) -> None:
        for job in self.jobs:
            if job.segment is segment:
                job.cancel()
