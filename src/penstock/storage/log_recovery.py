"""Reads the message log at start and mends what a crash left.

In: a directory of log files and the ids of the queues that exist.  Out: each queue's
messages in order and its next seq_id, and what ``MessageLog`` must know of the files that
stay.  Files are read from the newest to the oldest: an acknowledgement always lies in the
file of its message or in a newer one, so when a publish record is met everything that
could have killed it has been read, and no object is made for a dead message.

The *tail* is the newest file with a true first block.  Its first block names the files
that were there when it began, with their sizes; a ``D`` record in it takes a name off that
list.  So a file that is missing, short or damaged is noticed, and a file that is not
listed is garbage whose removal the crash undid.

What a crash can leave, and what is done:

    tail ends in no true block             cut there; the bytes are counted
    the same, but a later block of the     Corrupt: those bytes had been on disk
      file attests that place
    newest file without a true first       cut to nothing: a file is begun only after the
      block                                one before it was synced, so that one is whole
    tail ends with 'C'                     clean stop: exact numbers and redelivered marks
    anything else wrong                    Corrupt, with file, offset and length

Running again after a crash in the middle finds the same or an already mended state: files
are mended before the next file is begun, and the clean mark counts until that file, which
outdates it, is on disk.  What may not have been on disk (the tail from the place its last block
attests) is written again and synced before anything is built on it: after a mere kill it may
be only in the page cache, and after a failed sync even a sync would not bring it down.
"""

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from penstock.core.message import LOGGED, PERSISTENT, REDELIVERED, Message
from penstock.storage.files import FileSystem
from penstock.storage.log_codec import (
    ACK,
    ACK_RUN,
    BLOCK_HEADER_BYTES,
    CLEAN,
    DROP,
    FILES,
    FORGET,
    PUBLISH,
    QUEUE_END,
    QUEUE_END_BYTES,
    QUEUES,
    RESERVE,
    ROW_BYTES,
    attests_damage,
    block_end,
    damage,
    log_file_name,
    log_file_no,
    read_message,
    read_table,
    record_size,
    refuse_unknown_version,
    synced_offset,
)
from penstock.storage.log_files import LogFile
from penstock.storage.seq_ranges import SeqRanges

SEQ_ID_STEP: Final[i64] = 16_384
"""After an unclean stop numbering goes on at the next multiple of this."""


@final
class RecoveredQueue:
    """One durable queue as the log remembers it."""

    __slots__ = ("messages", "next_seq_id")

    def __init__(self, next_seq_id: i64, messages: list[Message]) -> None:
        self.next_seq_id: i64 = next_seq_id
        self.messages: list[Message] = messages


@final
class _QueueScan:
    """What was read of one queue so far."""

    __slots__ = (
        "acked",
        "chunks",
        "delivered",
        "end_seq_id",
        "forgotten",
        "messages",
        "next_seq_id",
    )

    def __init__(self) -> None:
        self.next_seq_id: i64 = 0  # above every seq_id seen or reserved
        self.end_seq_id: i64 = -1  # exact, from a clean stop
        self.forgotten: bool = False
        self.acked: SeqRanges = SeqRanges()
        self.delivered: SeqRanges = SeqRanges()
        self.messages: list[Message] = []  # of the file being read
        self.chunks: list[list[Message]] = []  # of the files read, newest first

    def saw(self, next_seq_id: i64) -> None:
        if next_seq_id > self.next_seq_id:
            self.next_seq_id = next_seq_id


@final
class LogRecovery:
    """One reading of a log directory; ``run`` it, then look at the attributes.

    ``queues``         id → RecoveredQueue, for every id asked for
    ``log_files``      the files that stay, oldest first
    ``last_file_no``   highest number in use or used up
    ``clean``          the log was closed by ``close_cleanly``, or has never been used
    """

    def __init__(self, files: FileSystem, directory: str, queue_ids: set[int]) -> None:
        self.files: FileSystem = files
        self.directory: str = directory
        self.queues: dict[int, RecoveredQueue] = {}
        self.log_files: list[LogFile] = []
        self.last_file_no: i64 = 0
        self.clean: bool = False
        self.bytes_cut: i64 = 0
        self.files_removed: i64 = 0
        self.messages_recovered: i64 = 0
        self._by_number: dict[int, LogFile] = {}
        self._scans: dict[int, _QueueScan] = {}
        for queue_id in queue_ids:
            self._scans[queue_id] = _QueueScan()
        self._unknown: _QueueScan = _QueueScan()  # queues that are no more
        self._unknown.forgotten = True
        self._listed: dict[int, int] = {}
        self._dropped: set[int] = set()
        self._last_kind: i64 = 0
        self._has_acks: bool = False
        self._tail_no: i64 = 0
        self._again: bytes = b""  # end of the tail that may not be on disk
        self._again_offset: i64 = 0
        self._emptied: list[int] = []  # newer files, begun and not more
        self._touched: list[_QueueScan] = []  # queues with messages in the file being read

    def run(self) -> None:
        numbers = self._numbers()
        self.last_file_no = numbers[-1] if numbers else 0
        self.clean = not numbers and not self._scans
        self._read_all(numbers)
        self._build_queues()
        self._mend(numbers)

    def path(self, number: i64) -> str:
        return f"{self.directory}/{log_file_name(int(number))}"

    def _numbers(self) -> list[int]:
        numbers = [log_file_no(name) for name in self.files.listdir(self.directory)]
        return sorted([number for number in numbers if number > 0])

    # -- which files, and how far ----------------------------------------------------------

    def _read_all(self, numbers: list[int]) -> None:
        """Read from the newest to the oldest."""
        kept: list[LogFile] = []
        for number in reversed(numbers):
            data = self.files.read(self.path(number))
            if block_end(data, 0, number) >= 0:
                kept.append(self._read_tail(number, data, number == numbers[-1]))
                break
            self._must_be_torn(number, data, number == numbers[-1])
            self._emptied.append(number)
            kept.append(LogFile(number, 0))
        listed = [number for number in self._listed if number not in self._dropped]
        for number in sorted(listed, reverse=True):
            file = self._read_listed(number, self._listed[number], numbers)
            kept.append(file)
        kept.reverse()
        self._link(kept)

    def _must_be_torn(self, number: i64, data: bytes, newest: bool) -> None:
        """A file without a true first block: begun by the crash, or damaged?"""
        if data and (not newest or attests_damage(data, 0, number)):
            raise damage(self.path(number), 0, len(data))
        self.bytes_cut += len(data)

    def _read_tail(self, number: i64, data: bytes, may_be_torn: bool) -> LogFile:
        blocks: list[int] = []
        file = LogFile(number, self._note_blocks(number, data, blocks, True))
        size: i64 = len(data)
        if file.size < size:
            if not may_be_torn or attests_damage(data, file.size, number):
                raise damage(self.path(number), int(file.size), int(size - file.size))
            self.bytes_cut += size - file.size
        self.clean = file.size == size and self._last_kind == CLEAN
        self._collect(file, data, blocks)
        self._tail_no = number
        self._again_offset = synced_offset(data, blocks[-2])
        self._again = data[self._again_offset : file.size]
        return file

    def _read_listed(self, number: int, size: int, present: list[int]) -> LogFile:
        path = self.path(number)
        if number not in present:
            raise damage(path, 0, size)
        data = self.files.read(path)
        blocks: list[int] = []
        end = self._note_blocks(number, data, blocks, False)
        if end != size or len(data) != size:
            raise damage(path, int(end), abs(size - int(end)))
        file = LogFile(number, end)
        self._collect(file, data, blocks)
        return file

    def _link(self, kept: list[LogFile]) -> None:
        """Which messages a recovered file's acks belong to is not known: all older files."""
        older: set[int] = set()
        for file in kept:
            if file.needs:
                file.needs = set(older)
            older.add(int(file.number))
            self._by_number[int(file.number)] = file
        self.log_files = kept

    # -- first pass over a file: everything but messages -----------------------------------

    def _note_blocks(self, number: i64, data: bytes, blocks: list[int], tail: bool) -> i64:
        """Check the blocks and note what is no message; returns the end of the last true one."""
        at: i64 = 0
        size: i64 = len(data)
        self._has_acks = False
        while at < size:
            end = block_end(data, at, number)
            if end < 0:
                break
            refuse_unknown_version(self.path(number), data[at + 3])
            blocks.append(int(at))
            self._note_records(number, data, at + BLOCK_HEADER_BYTES, end, tail)
            at = end
        blocks.append(int(at))
        return at

    def _note_records(self, number: i64, data: bytes, at: i64, end: i64, tail: bool) -> None:
        while at < end:
            size = record_size(data, at, end)
            if size < 0:
                # The checksum is right: these bytes were written so, by other rules than ours.
                raise damage(self.path(number), int(at), int(end - at))
            kind = i64(data[at])
            self._last_kind = kind
            if kind != PUBLISH:
                self._note(kind, data, at, tail)
            at += size

    def _note(self, kind: i64, data: bytes, at: i64, tail: bool) -> None:
        if kind == ACK or kind == ACK_RUN:
            first = read_i64_be(data, at + 5)
            count = i64(read_i32_be(data, at + 13)) if kind == ACK_RUN else 1
            self._has_acks = True
            scan = self._scan(i64(read_i32_be(data, at + 1)))
            if not scan.forgotten:
                scan.acked.add(first, first + count)
        elif kind == RESERVE:
            self._scan(i64(read_i32_be(data, at + 1))).saw(read_i64_be(data, at + 5))
        elif kind == FORGET:
            self._has_acks = True
            self._scan(i64(read_i32_be(data, at + 1))).forgotten = True
        elif kind == QUEUES:
            for queue_id, next_seq_id in read_table(data, at).items():
                self._scan(queue_id).saw(next_seq_id)
        elif kind == QUEUE_END:
            self._note_queue_end(data, at, tail)
        elif kind == FILES and tail:
            self._listed.update(read_table(data, at))
        elif kind == DROP and tail:
            self._dropped.add(int(read_i32_be(data, at + 1)))

    def _note_queue_end(self, data: bytes, at: i64, tail: bool) -> None:
        scan = self._scan(i64(read_i32_be(data, at + 1)))
        scan.saw(read_i64_be(data, at + 5))
        if not tail:
            return
        scan.end_seq_id = read_i64_be(data, at + 5)
        row = at + QUEUE_END_BYTES
        for _ in range(i64(read_i32_be(data, at + 13))):
            first = read_i64_be(data, row)
            scan.delivered.add(first, first + i64(read_i32_be(data, row + 8)))
            row += ROW_BYTES

    def _scan(self, queue_id: i64) -> _QueueScan:
        scan = self._scans.get(int(queue_id))
        return self._unknown if scan is None else scan

    # -- second pass over a file: the messages that live -----------------------------------

    def _collect(self, file: LogFile, data: bytes, blocks: list[int]) -> None:
        if self._has_acks:
            file.needs.add(0)  # ``_link`` puts the older files in its place
        for i in range(len(blocks) - 1):
            self._collect_block(file, data, blocks[i] + BLOCK_HEADER_BYTES, blocks[i + 1])
        for scan in self._touched:
            scan.chunks.append(scan.messages)
            scan.messages = []
        self._touched = []

    def _collect_block(self, file: LogFile, data: bytes, at: i64, end: i64) -> None:
        scan = self._unknown
        scan_id: i64 = -1
        number = file.number
        while at < end:
            size = record_size(data, at, end)
            if i64(data[at]) == PUBLISH:
                queue_id = i64(read_i32_be(data, at + 8))
                if queue_id != scan_id:
                    scan = self._scan(queue_id)
                    scan_id = queue_id
                seq_id = read_i64_be(data, at + 12)
                scan.saw(seq_id + 1)
                if not scan.forgotten and not scan.acked.contains(seq_id):
                    if not scan.messages:
                        self._touched.append(scan)
                    scan.messages.append(read_message(data, at, size, number))
            at += size

    # -- results ---------------------------------------------------------------------------

    def _build_queues(self) -> None:
        for queue_id, scan in self._scans.items():
            messages = self._joined(scan)
            for message in messages:
                message.flags |= PERSISTENT | LOGGED
                if not self.clean or scan.delivered.contains(message.seq_id):
                    message.flags |= REDELIVERED
            self.messages_recovered += len(messages)
            self.queues[queue_id] = RecoveredQueue(self._next_seq_id(scan), messages)
            scan.chunks = []

    def _next_seq_id(self, scan: _QueueScan) -> i64:
        if self.clean:
            return scan.next_seq_id if scan.end_seq_id < 0 else scan.end_seq_id
        # Transient messages leave no record: ids above the last one seen may have been used.
        return (scan.next_seq_id // SEQ_ID_STEP + 1) * SEQ_ID_STEP

    def _joined(self, scan: _QueueScan) -> list[Message]:
        """The chunks, oldest first; sorted and rid of copies if something was relocated."""
        messages: list[Message] = []
        for chunk in reversed(scan.chunks):
            messages.extend(chunk)
        last: i64 = -1
        for message in messages:
            if message.seq_id <= last:
                return self._without_copies(scan)
            last = message.seq_id
        return messages

    def _without_copies(self, scan: _QueueScan) -> list[Message]:
        """The newest copy counts, as it did before the stop."""
        newest: dict[int, Message] = {}
        for chunk in scan.chunks:
            for message in chunk:
                known = newest.get(int(message.seq_id))
                if known is None:
                    newest[int(message.seq_id)] = message
                elif known.file_no != message.file_no:
                    self._by_number[int(known.file_no)].copies_of.add(int(message.file_no))
        return [newest[seq_id] for seq_id in sorted(newest)]

    # -- the disk --------------------------------------------------------------------------

    def _mend(self, numbers: list[int]) -> None:
        """Cut, sync what was read, then remove what the log no longer names.

        If the removal is undone by a crash, the next recovery does it again.
        """
        if self._tail_no > 0:
            self.files.rewrite(self.path(self._tail_no), int(self._again_offset), self._again)
        for number in self._emptied:
            self.files.truncate(self.path(number), 0)
        self.files.sync_dir(self.directory)
        for number in numbers:
            if number not in self._by_number:
                self.files.remove(self.path(number))
                self.files_removed += 1
