"""Reads the segments of one queue after a crash, and joins them with what the journal knows.

In: the queue's directory and its part of the journal.  Out: the segments that stay, the
contents in the message store they speak of, and the journal's messages that no segment has.

What a crash can leave in a segment file, and what is done:

    ends in no true block                  cut there; the bytes are counted.  What was lost is in
                                           the journal still, or was transient
    the same, but a later block attests    Corrupt, with file, offset and length
      that place, or the file's first one
    transient messages                     settled: they do not outlive the process
    a message the journal has settled      settled
    no living message                      the file is removed
    a rewriting that did not come to its   removed (``.idt``)
      end

Bytes that no block attests may be only in the page cache (after a mere kill), so they are
made durable before the journal that could replace them goes; names likewise: the
directory is synced.  The journal itself was made durable before (recovery.py): what is done
here because of an acknowledgement stays right whatever happens next.

A record whose content is in the message store is written only when that content is on disk,
so one that lives and whose content is missing is damage.

One job does one queue; queues are read side by side by as many threads as there are.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import Message
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.files import FileSystem
from penstock.storage.common.formats import check_version
from penstock.storage.common.message_record import (
    message_record_end,
    record_content_size,
    record_expires,
    record_is_persistent,
    record_msg_id,
    record_seq_id,
)
from penstock.storage.index.references import (
    are_references,
    read_references,
    referred_file_no,
)
from penstock.storage.index.segment import Block, Segment
from penstock.storage.index.segment_codec import (
    ATTEST,
    FORMAT_VERSION,
    HEADER_BYTES,
    MARKS,
    MESSAGES,
    REFERENCES,
    UNFINISHED_SUFFIX,
    BlockHeader,
    attests_damage,
    cut_short,
    damage,
    first_block,
    marks_size,
    read_block,
    segment_file_name,
    segment_no,
)
from penstock.storage.index.segment_jobs import attest
from penstock.storage.journal.recovery import JournalledQueue


@final
class StoredRecord:
    """A living record whose content is in the message store."""

    __slots__ = ("msg_id", "position", "segment")

    def __init__(self, segment: Segment, position: i64, msg_id: i64) -> None:
        self.segment: Segment = segment
        self.position: i64 = position
        self.msg_id: i64 = msg_id


@final
class IndexScan(DiskJob):
    """``run`` reads and mends; then look at the attributes."""

    def __init__(
        self,
        directory: str,
        queue_id: i64,
        entries: i64,
        journalled: JournalledQueue,
        journal: str,
    ) -> None:
        """``journal``: the directory where what segments refer to is."""
        super().__init__()
        self.directory: str = directory
        self._journal: str = journal
        self.queue_id: i64 = queue_id
        self.entries: i64 = entries
        self.journalled: JournalledQueue = journalled
        self.segments: list[Segment] = []
        self.stored: list[StoredRecord] = []
        self.missing: list[Message] = []  # of the journal, in no segment
        self.bytes_read: i64 = 0
        self.bytes_cut: i64 = 0
        self.expiring: bool = False
        self.next_seq_id: i64 = 0
        self._present: dict[int, bytearray] = {}  # which positions have a record, or had one

    def run(self, files: FileSystem) -> None:
        if files.exists(self.directory):
            numbers: list[int] = []
            for name in files.listdir(self.directory):
                number = segment_no(name)
                if number >= 0:
                    numbers.append(number)
                elif segment_no(name, UNFINISHED_SUFFIX) >= 0:
                    files.remove(f"{self.directory}/{name}")
            for number in sorted(numbers):
                self._read_segment(files, number)
            # For names that were never synced, and for those that were removed, just now or by
            # the process that was killed: the journal that knew of the end goes.
            files.sync_dir(self.directory)
        for message in self.journalled.messages:
            if message.expires_at_ms != 0:
                self.expiring = True
            if not self._has(message.seq_id):
                self.missing.append(message)
        self.journalled.forget_messages()
        self._join_words()

    def _join_words(self) -> None:
        """The journal has the last word on what is delayed until when, and on attempts."""
        segments = {int(segment.number): segment for segment in self.segments}
        entries = int(self.entries)
        for seq_id, until_ms in self.journalled.delays.items():
            segment = segments.get(seq_id // entries)
            if segment is not None:
                due_ms = until_ms if self._has(seq_id) else WallMs(0)
                segment.marks.set_delay(seq_id % entries, due_ms)
        for seq_id, attempts in self.journalled.attempts.items():
            segment = segments.get(seq_id // entries)
            if segment is not None and self._has(seq_id):
                # A word in the marks may be newer than the last one of the journal that is left.
                known = segment.marks.attempts.get(seq_id % entries, 0)
                segment.marks.set_attempts(seq_id % entries, max(attempts, known))
        for segment in self.segments:
            segment.marks.forget_settled()

    def _has(self, seq_id: i64) -> bool:
        present = self._present.get(int(seq_id // self.entries))
        if present is None:
            return False
        position = seq_id % self.entries
        bit: i64 = 1 << (position & 7)
        return bool(present[position >> 3] & bit)

    # -- a file ----------------------------------------------------------------------------

    def _read_segment(self, files: FileSystem, number: int) -> None:
        path = f"{self.directory}/{segment_file_name(number)}"
        data = files.read(path)
        self.bytes_read += len(data)
        segment = Segment(self.queue_id, number, self.entries)
        headers = self._blocks(path, data, number)
        end: i64 = 0
        attested: i64 = 0
        for header in headers:
            end = header.end()
            if header.synced > attested:
                attested = header.synced
        if end < len(data):
            self.bytes_cut += len(data) - end
        self._take_blocks(files, path, data, segment, headers)
        if segment.live_count == 0:
            files.remove(path)
            return
        if end > attested or end < len(data):
            files.secure(path, int(attested), data[attested:end])
            if end < len(data):
                files.truncate(path, int(end))
            self._attest(files, path, segment, end)
        segment.cut_at(end)
        segment.note_synced(end)
        self.segments.append(segment)

    def _attest(self, files: FileSystem, path: str, segment: Segment, size: i64) -> None:
        if segment.is_old:
            return
        handle = files.open_write(path)
        try:
            header = BlockHeader(self.queue_id, segment.number, ATTEST, 0, size)
            attest(files, handle, header)
        finally:
            files.close(handle)

    def _blocks(self, path: str, data: bytes, number: i64) -> list[BlockHeader]:
        headers: list[BlockHeader] = []
        at = first_block(data, self.queue_id, number)
        attested: i64 = 0
        while at < len(data):
            header = read_block(data, at, 0, self.queue_id, number)
            if header is None:
                break
            check_version(path, "segment", data[at + 3], FORMAT_VERSION)
            headers.append(header)
            if header.synced > attested:
                attested = header.synced
            at = header.end()
        if at < len(data) and (attested > at or attests_damage(data, at, self.queue_id, number)):
            raise damage(path, int(at), len(data) - int(at))
        if attested > at:
            raise cut_short(path, int(at), int(attested))
        return headers

    def _take_blocks(
        self,
        files: FileSystem,
        path: str,
        data: bytes,
        segment: Segment,
        headers: list[BlockHeader],
    ) -> None:
        marks: BlockHeader | None = None
        for header in headers:
            if header.kind == MARKS:
                marks = header
                if header.size != marks_size(header, segment.marks.bitmap_bytes):
                    # The checksum is right: written so, by other rules than ours.
                    raise damage(path, int(header.offset), int(header.size))
        if marks is not None:
            payload = data[marks.offset + HEADER_BYTES : marks.end()]
            segment.marks.read(payload, marks.count, marks.first)
        # A rewritten segment has no record of what was settled.
        self._present[int(segment.number)] = bytearray(segment.marks.settled_bytes())
        for header in headers:
            start = header.offset + HEADER_BYTES
            if header.kind == MESSAGES:
                self._take_block(path, data, start, header.end(), segment, header, 0)
            elif header.kind == REFERENCES:
                references = data[start : header.end()]
                if not are_references(references):
                    raise damage(path, int(start), int(header.size))
                records = read_references(files, self._journal, references)
                self.bytes_read += len(records)
                file_no = referred_file_no(references)
                self._take_block(path, records, 0, len(records), segment, header, file_no)
            elif header.kind != MARKS and header.kind != ATTEST:
                raise damage(path, int(header.offset), int(HEADER_BYTES + header.size))

    def _take_block(
        self,
        path: str,
        data: bytes,
        at: i64,
        end: i64,
        segment: Segment,
        header: BlockHeader,
        file_no: i64,
    ) -> None:
        """Its records are from ``at`` to ``end`` of the segment, or of what it refers to."""
        present = self._present[int(segment.number)]
        start = at
        base = segment.number * self.entries
        content_bytes: i64 = 0
        count: i64 = 0
        last: i64 = header.first - 1
        dead_count: i64 = 0
        dead_bytes: i64 = 0
        dead_record_bytes: i64 = 0
        has_stored = False
        while at < end:
            after = message_record_end(data, at, end)
            position = record_seq_id(data, at) - base
            in_order = last < position <= header.last < self.entries
            if after < 0 or not in_order or (count == 0 and position != header.first):
                # The checksum is right: these bytes were written so, by other rules than ours.
                raise damage(path, int(at), int(end - at))
            last = position
            count += 1
            present[position >> 3] |= 1 << (position & 7)
            if base + position >= self.next_seq_id:
                self.next_seq_id = base + position + 1
            size = record_content_size(data, at)
            content_bytes += size
            if self._is_dead(data, at, segment, position):
                dead_count += 1
                dead_bytes += size
                dead_record_bytes += after - at
            elif self._note_living(data, at, segment, position):
                has_stored = True
            at = after
        if count != header.count or last != header.last:
            raise damage(path, int(header.offset), int(HEADER_BYTES + header.size))
        segment.add_block(
            Block(
                header.first,
                header.last,
                header.count,
                header.offset,
                end - start,
                content_bytes,
                file_no,
                header.size,
            )
        )
        segment.count_dead(dead_count, dead_bytes, dead_record_bytes)
        segment.note_kinds(0, has_stored)

    def _is_dead(self, data: bytes, at: i64, segment: Segment, position: i64) -> bool:
        if segment.marks.is_settled(position):
            return True
        seq_id = segment.number * self.entries + position
        if record_is_persistent(data, at) and not self.journalled.acked.contains(seq_id):
            return False
        segment.marks.settle(position)
        return True

    def _note_living(self, data: bytes, at: i64, segment: Segment, position: i64) -> bool:
        """Is its content in the message store?"""
        if record_expires(data, at):
            self.expiring = True
        msg_id = record_msg_id(data, at)
        if msg_id > 0:
            self.stored.append(StoredRecord(segment, position, msg_id))
        return msg_id > 0
