"""``QueueIndex``: the segments of one queue, where its messages rest on disk.

Positions are seq_ids; segment N holds [N * E, (N + 1) * E).  Small messages lie here whole
(embedded), of large ones the record names the message store's number.

**What it is not.**  RabbitMQ's index writes every publish, deliver and ack of a queue to a
``journal.jif`` of the queue and later to segments.  Here the journal is one for the node
(journal.py), and a segment is written only when a message *rests*: when it is paged out of
memory, or when the journal file that holds it is to be retired.  A message that passes
through costs one journal record and never meets a segment.  If more messages of one queue than
``queue_index_max_journal_entries`` are in the journal alone, all of them are written to segments.
Where the records lie together in the journal file being retired, the segment gets their places
there instead (references.py), and the file is kept (journal/resting.py).

**Write.**  ``append`` takes messages in ascending order, makes blocks of some hundred
kilobytes and puts jobs on the board.  A block that is still being written is read from
memory.  ``settle`` sets a bit; a segment without a living message loses its file at once,
whatever was never flushed to it.  ``flush_marks`` writes the bits down, which is needed
before the journal file with the acknowledgements goes.

**Read.**  ``plan_read`` names the blocks that make the next stretch of positions complete;
a thread reads and checks them; ``decode`` makes messages of what still lives.

**Deliver marks.**  RabbitMQ writes one for each delivery.  After a crash all that survived
is marked redelivered anyhow, so here a mark is written only when a delivered message goes
back to rest on disk, and at a clean stop.

A file that is being removed may not be written again until it is gone (``can_append``):
removals overtake writes, since on a full disk they must; writes to it that still wait are
cancelled.  Nor may one that is being rewritten (segment_rewriting.py).

Invariants (``check``):
  X1  a segment is here exactly while a message lives in it
  X2  live_count, live_bytes and transient_count are the sums over the segments
  X3  segments being removed are not here
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import (
    INDEXED,
    ONE_ATTEMPT,
    PERSISTENT,
    REDELIVERED,
    STORED,
    Message,
    counts_in,
)
from penstock.storage.common.disk_jobs import DiskJob, JobBoard
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.storage.common.message_record import message_record_size, write_message_head
from penstock.storage.index.reading import IndexReading
from penstock.storage.index.references import encode_references, is_worth_it
from penstock.storage.index.segment import Block, Segment
from penstock.storage.index.segment_codec import (
    BLOCK_BYTES,
    HEADER_BYTES,
    MARKS,
    MESSAGES,
    REFERENCES,
    BlockHeader,
)
from penstock.storage.index.segment_jobs import (
    ContentReleaser,
    ReleaseContentsJob,
    RemoveDirectory,
    SegmentSync,
    SegmentWrite,
    WriteAccount,
)
from penstock.storage.index.segment_rewriting import IndexRewriting
from penstock.storage.journal.resting import RestingFiles

READ_ALL_BYTES: Final[i64] = 1 << 50


@final
class _Removal(DiskJob):
    """Removes the file of one segment, for good; then its number may be written again."""

    def __init__(self, index: "QueueIndex", number: i64) -> None:
        super().__init__()
        self._index: QueueIndex = index
        self._number: int = int(number)
        self._path: str = index.path(number)
        self._unfinished: str = index.unfinished_path(number)

    def run(self, files: FileSystem) -> None:
        if files.exists(self._unfinished):
            files.remove(self._unfinished)
        if files.exists(self._path):
            files.remove(self._path)
            reach("segment.removed")
        # Else a power cut could bring it back when the journal has forgotten why it went.
        directory = self._path.rpartition("/")[0]
        if files.exists(directory):
            files.sync_dir(directory)

    def finish(self) -> None:
        self.done = True
        self._index.removed(self._number, self.error)


@final
class QueueIndex(IndexReading):
    """``directory`` is the queue's own; it is made when the first segment is written."""

    def __init__(
        self,
        board: JobBoard,
        account: WriteAccount,
        undertaker: ContentReleaser,
        directory: str,
        queue_id: i64,
        entries: i64,
        durable: bool,
        resting: RestingFiles,
    ) -> None:
        super().__init__(directory, queue_id, entries, durable, resting)
        self.rewriting: IndexRewriting = IndexRewriting(self, board, account, self.job_is_over)
        self._board: JobBoard = board
        self._account: WriteAccount = account
        self.removing: dict[int, Segment] = {}  # dead, their files not surely gone
        self.live_count: i64 = 0
        self.live_bytes: i64 = 0
        self.transient_count: i64 = 0  # living ones that are not to outlive the process
        self._deleted: bool = False
        self._undertaker: ContentReleaser = undertaker
        self._nowhere: Segment = Segment(queue_id, -1, entries)
        self._near: Segment = self._nowhere  # the one used last
        self._syncs: list[SegmentSync] = []
        self._dropping: list[Segment] = []  # dead, with a job still under way
        self._orphans: list[Segment] = []  # their files go with the directory

    def adopt(self, segments: list[Segment], redelivered_below: i64) -> None:
        """What was found at start; messages below that position may have been handed out."""
        self.redelivered_below = redelivered_below
        for segment in segments:
            self.segments[int(segment.number)] = segment
            self.live_count += segment.live_count
            self.live_bytes += segment.live_bytes
            for file_no, size in segment.references.items():
                self.resting.refer(file_no, size)

    # -- writing ---------------------------------------------------------------------------

    def can_append(self, seq_id: i64) -> bool:
        number = int(seq_id // self.entries)
        segment = self.segments.get(number)
        return number not in self.removing and (segment is None or not segment.rewriting)

    def append(self, messages: list[Message]) -> None:
        """Records for these; ascending, not INDEXED, contents at hand; they become INDEXED."""
        count: i64 = len(messages)
        first: i64 = 0
        while first < count:
            number = messages[first].seq_id // self.entries
            end = first + 1
            while end < count and messages[end].seq_id // self.entries == number:
                end += 1
            self._append_to(self._segment(number), messages, first, end)
            first = end

    def note_expiry(self, seq_id: i64, expires_at_ms: WallMs) -> None:
        """A message with a record here is ready again."""
        self.segments[int(seq_id // self.entries)].note_expiry(expires_at_ms)

    def _segment(self, number: i64) -> Segment:
        segment = self.segments.get(int(number))
        if segment is None:
            assert int(number) not in self.removing
            segment = Segment(self.queue_id, number, self.entries)
            self.segments[int(number)] = segment
        return segment

    def _append_to(self, segment: Segment, messages: list[Message], first: i64, end: i64) -> None:
        write = self._write_to(segment)
        while first < end:
            size: i64 = 0
            upto = first
            file_no = messages[first].file_no
            places = self.resting.places(file_no, self.queue_id)
            while upto < end and size < BLOCK_BYTES:
                if places is not None and messages[upto].file_no != file_no:
                    break
                size += message_record_size(messages[upto])
                upto += 1
            rows = b"" if places is None else places.rows(messages, first, upto)
            if size < self.resting.least_bytes or not rows or not is_worth_it(rows):
                file_no = 0
                payload = self._records(messages, first, upto)
            else:
                payload = encode_references(file_no, rows)
            self._add_block(write, messages[first:upto], payload, size, file_no)
            first = upto
        self._submit(write)

    def _records(self, messages: list[Message], first: i64, end: i64) -> bytes:
        writer = BytesWriter()
        for i in range(first, end):
            message = messages[i]
            write_message_head(writer, self.queue_id, message)
            if not message.flags & STORED:
                writer.write(message.content)
        return writer.getvalue()

    def _add_block(
        self,
        write: SegmentWrite,
        messages: list[Message],
        payload: bytes,
        size: i64,
        file_no: i64,
    ) -> None:
        """``size``: of the records, which are in that file of the journal; 0 = in the payload."""
        segment = write.segment
        base = segment.number * self.entries
        count: i64 = len(messages)
        low, high = messages[0].seq_id - base, messages[count - 1].seq_id - base
        kind = REFERENCES if file_no > 0 else MESSAGES
        header = self._header(segment, kind, segment.size, low, high, count)
        content_bytes: i64 = 0
        transient_count: i64 = 0
        has_stored = False
        for message in messages:
            if message.flags & STORED:
                has_stored = True
            if not message.flags & PERSISTENT:
                transient_count += 1
            message.flags |= INDEXED
            content_bytes += message.size
            if message.expires_at_ms > 0:
                segment.note_expiry(message.expires_at_ms)
            if file_no > 0:
                self._mark(segment, message)
        segment.add_block(
            Block(low, high, count, header.offset, size, content_bytes, file_no, len(payload))
        )
        if file_no > 0:
            self.resting.refer(file_no, size)
        segment.note_kinds(transient_count, has_stored)
        self.live_count += count
        self.live_bytes += content_bytes
        self.transient_count += transient_count
        write.add(header, payload)

    def _mark(self, segment: Segment, message: Message) -> None:
        """What the journal's record of it cannot say."""
        position = message.seq_id - segment.number * self.entries
        if message.flags & REDELIVERED:
            segment.marks.mark_delivered(position)
        if message.flags >= ONE_ATTEMPT:
            segment.marks.set_attempts(position, counts_in(message.flags))

    def _write_to(self, segment: Segment) -> SegmentWrite:
        path = self.path(segment.number)
        return SegmentWrite(self.job_is_over, segment, path, self._account, self.resting.directory)

    def _header(
        self, segment: Segment, kind: i64, offset: i64, first: i64, last: i64, count: i64
    ) -> BlockHeader:
        assert not segment.rewriting
        return BlockHeader(
            self.queue_id, segment.number, kind, offset, segment.synced, first, last, count
        )

    def _submit(self, write: SegmentWrite) -> None:
        self._writes.append(write)
        self._board.writes.append(write)

    def mark_delivered(self, seq_id: i64) -> None:
        """It goes back to rest and was handed out before."""
        number = seq_id // self.entries
        self.segments[int(number)].marks.mark_delivered(seq_id - number * self.entries)

    def set_delay(self, seq_id: i64, until_ms: WallMs) -> None:
        """A living message is not to be ready before that time; 0 = it may."""
        number = seq_id // self.entries
        self.segments[int(number)].marks.set_delay(seq_id - number * self.entries, until_ms)

    def set_attempts(self, seq_id: i64, attempts: i64) -> None:
        """A living message was handed out so often; its record may say less."""
        number = seq_id // self.entries
        self.segments[int(number)].marks.set_attempts(seq_id - number * self.entries, attempts)

    def delays(self) -> dict[int, WallMs]:
        """seq_id → not before, of all that are delayed."""
        found: dict[int, WallMs] = {}
        for segment in self.segments.values():
            base = int(segment.number * self.entries)
            for position, until_ms in segment.marks.delays.items():
                found[base + position] = until_ms
        return found

    def flush_marks(self) -> None:
        """Write down what was settled and delivered; segments first, journal last."""
        for segment in self.segments.values():
            if segment.marks.dirty:
                self._write_marks(segment)

    def _write_marks(self, segment: Segment) -> None:
        marks = segment.marks
        payload = marks.write_down()
        offset = segment.claim(HEADER_BYTES + len(payload))
        header = self._header(segment, MARKS, offset, len(marks.attempts), 0, len(marks.delays))
        write = self._write_to(segment)
        write.add(header, payload)
        self._submit(write)

    def sync(self) -> list[SegmentSync]:
        """Bring to the disk all that was written so far; the jobs are on the board."""
        jobs: list[SegmentSync] = []
        for segment in self.segments.values():
            assert not segment.rewriting
            if not segment.is_synced():
                job = SegmentSync(
                    self.job_is_over, segment, self.path(segment.number), self.queue_id
                )
                self._board.writes.append(job)
                self._syncs.append(job)
                jobs.append(job)
        return jobs

    def job_is_over(self, segment: Segment, error: Exception | None) -> None:
        """A write or sync of this segment is done; an error is fatal, like the journal's."""
        if error is not None:
            self._account.note_error(error)
        if segment.writing > 0:
            return
        self._writes = [write for write in self._writes if write.segment is not segment]
        self._syncs = [sync for sync in self._syncs if sync.segment is not segment]
        for i in range(len(self._dropping)):
            if self._dropping[i] is segment:
                del self._dropping[i]
                self._remove(segment)
                break
        if self._deleted:
            self._remove_directory()

    # -- the end of messages ---------------------------------------------------------------

    def settle(self, messages: list[Message]) -> None:
        """Those INDEXED are done; segments in which nothing lives lose their file."""
        entries = self.entries
        segment = self._near
        for message in messages:
            if message.flags & INDEXED:
                seq_id = message.seq_id
                number = seq_id // entries
                if number != segment.number:
                    segment = self.segments[int(number)]
                transient = not message.flags & PERSISTENT
                segment.settle(
                    seq_id - number * entries, message.size, message_record_size(message), transient
                )
                self.live_count -= 1
                self.live_bytes -= message.size
                if transient:
                    self.transient_count -= 1
                if segment.live_count == 0:
                    self._drop(segment)
                    segment = self._nowhere
        self._near = segment

    def _drop(self, segment: Segment) -> None:
        """Nothing lives in it."""
        number = int(segment.number)
        if self._near is segment:
            self._near = self._nowhere
        del self.segments[number]
        self.removing[number] = segment
        if segment.writing == 0:
            self._remove(segment)
            return
        self._dropping.append(segment)
        self._cancel_jobs(segment)

    def _cancel_jobs(self, segment: Segment) -> None:
        for write in self._writes:
            if write.segment is segment:
                write.cancel()
        for sync in self._syncs:
            if sync.segment is segment:
                sync.cancel()  # it must not attest what was not written
        self.rewriting.cancel(segment)

    def _remove(self, segment: Segment) -> None:
        if not self._deleted:
            self._board.reads.append(_Removal(self, segment.number))

    def removed(self, number: int, error: Exception | None) -> None:
        """The file of that segment is gone for good."""
        if error is not None:
            if not self._deleted:
                self._account.note_error(error)
            return
        segment = self.removing.pop(number, None)
        if segment is not None:
            segment.note_gone()
            self.resting.release(segment.take_references())

    def drop_segments(self, start: i64, end: i64, kept: list[Message]) -> i64:
        """All living messages but ``kept`` of the whole segments within [start, end) are done.

        For "everything below": no message is looked at, but for contents in the store.  Returns
        how many are done.
        """
        count = self.live_count
        first = (start + self.entries - 1) // self.entries
        by_segment = self._by_segment(kept)
        for segment in list(self.segments.values()):
            if first <= segment.number and (segment.number + 1) * self.entries <= end:
                self._lose(segment, by_segment.get(int(segment.number), []))
        return count - self.live_count

    def forget_now(self, segment: Segment, files: FileSystem) -> None:
        """Right after a start: its file is removed here and now, and its number may be used again.

        The caller has released all messages that lived in it.
        """
        assert segment.writing == 0
        number = int(segment.number)
        del self.segments[number]
        self._near = self._nowhere
        self.live_count -= segment.live_count
        self.live_bytes -= segment.live_bytes
        self.transient_count -= segment.transient_count
        segment.note_gone()
        files.remove(self.path(number))
        files.sync_dir(self.directory)
        self.resting.release(segment.take_references())

    def clear(self, kept: list[Message]) -> None:
        """Everything is done but these, which may have a record, or get one later."""
        by_segment = self._by_segment(kept)
        for segment in list(self.segments.values()):
            self._lose(segment, by_segment.get(int(segment.number), []))

    def _by_segment(self, messages: list[Message]) -> dict[int, list[Message]]:
        by_segment: dict[int, list[Message]] = {}
        for message in messages:
            number = int(message.seq_id // self.entries)
            by_segment.setdefault(number, []).append(message)
        return by_segment

    def _lose(self, segment: Segment, kept: list[Message]) -> None:
        """Of this segment only these go on living."""
        positions: set[int] = set()
        count: i64 = 0
        size: i64 = 0
        record_bytes: i64 = 0
        transient_count: i64 = 0
        for message in kept:
            positions.add(int(message.seq_id - segment.number * self.entries))
            if message.flags & INDEXED:
                count += 1
                size += message.size
                record_bytes += message_record_size(message)
                if not message.flags & PERSISTENT:
                    transient_count += 1
        if segment.live_count == count:
            return
        if segment.has_stored:
            self._bury(segment, positions)
        self.live_count -= segment.live_count - count
        self.live_bytes -= segment.live_bytes - size
        self.transient_count -= segment.transient_count - transient_count
        segment.settle_all_but(positions, count, size, record_bytes, transient_count)
        if count == 0:
            self._drop(segment)

    def _bury(self, segment: Segment, kept: set[int]) -> None:
        """Contents in the store are to be given up one by one: a thread reads which they are."""
        base = segment.number * self.entries
        job = self._plan_in(segment, base, base + self.entries, READ_ALL_BYTES)
        if job is not None:
            settled = segment.marks.settled_bytes()
            self._board.reads.append(
                ReleaseContentsJob(job, settled, kept, base, self.durable, self._undertaker)
            )

    def delete(self) -> None:
        """The queue is gone, and its directory goes when nothing works in it any more."""
        self._deleted = True
        for segment in self.segments.values():
            if segment.has_stored:
                self._bury(segment, set())
        for segment in [*self.segments.values(), *self.removing.values()]:
            segment.note_gone()
            self._cancel_jobs(segment)
        self._orphans.extend(self.segments.values())
        self._orphans.extend(self.removing.values())
        self.segments = {}
        self._near = self._nowhere
        self.live_count = 0
        self.live_bytes = 0
        self.transient_count = 0
        self._remove_directory()

    def _remove_directory(self) -> None:
        if not self._writes and not self._syncs and not self.rewriting.jobs:
            job = RemoveDirectory(self.directory, self._orphans, self.resting)
            self._board.reads.append(job)

    def shed_transient(self, files: FileSystem) -> None:
        """Before a clean stop: what is not to outlive the process is done.  Reads here and now,
        but only segments that hold both kinds.
        """
        for segment in list(self.segments.values()):
            if segment.transient_count == segment.live_count:
                self._drop(segment)
                self.live_count -= segment.live_count
                self.live_bytes -= segment.live_bytes
                self.transient_count -= segment.transient_count
            elif segment.transient_count > 0:
                base = segment.number * self.entries
                job = self._plan_in(segment, base, base + self.entries, READ_ALL_BYTES)
                assert job is not None
                job.run(files)
                assert job.upto >= base + segment.blocks[len(segment.blocks) - 1].last
                found = self.decode(job)
                self.settle([message for message in found if not message.flags & PERSISTENT])

    # -- looking ---------------------------------------------------------------------------

    def check(self) -> None:
        count: i64 = 0
        size: i64 = 0
        transient_count: i64 = 0
        for number, segment in self.segments.items():
            assert number == segment.number
            assert number not in self.removing, "X3"
            assert segment.live_count > 0, "X1"
            segment.check()
            count += segment.live_count
            size += segment.live_bytes
            transient_count += segment.transient_count
        assert count == self.live_count, "X2"
        assert size == self.live_bytes, "X2"
        assert transient_count == self.transient_count, "X2"
