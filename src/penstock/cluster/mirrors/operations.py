"""The bytes of operations on a queue's set of messages, both ways.

A *parcel* is what one queue did in one turn, for all its mirrors.  Everything is
big-endian, nothing is compressed, and a large content is copied once, when ``Pieces`` are joined:

    parcel   'O' version u8 = 1 | term u64 | number u64 | operation*
    P        'P' part u8 | until_ms i64 | first u64 | count u32 | message*      published
    message  flags u8 | priority u8 | address_size u16 | size u32 | counts u32 |
             expires_at_ms i64 | enqueued_at_ms i64 | address | content
    A        'A' part u8 | count u32 | (start u64, end u64)*                    ended
    M        'M' part u8 | count u32 | (start u64, end u64)*                    ended here, lives on
    L        'L' part u8 | until_ms i64 | count u32 | (start u64, end u64)*     not before that time
    E        'E' part u8 | count u32 | (seq_id u64, counts u32)*                handed out so often
    K        'K' part u8 | kind u8 | count u32 | size u32 | rows                marks of a stream

``number`` grows by one with each parcel of a term.  ``part`` is the priority in a queue with
priorities, else 0.  The messages of a 'P' have the numbers from ``first`` on.  Places are told as
half-open ranges, so acknowledging neighbours costs the same whatever their number.  A message
that got another place is a 'P' of the new one and an 'M' of the old.  ``counts`` are attempts and
returns as the disk has them.  The rows of a 'K' are those
of a block (docs/formats/streams.md, 3.5 to 3.7), and are all there are of that kind.

All operations can be applied twice, and in any order that keeps each place's own (replica.py
says why that matters).  u64 values stay below 2**63, u32 values below 2**31, as on disk.

The parser believes nothing: lengths, kinds, ranges that are empty or not ascending, an address
that is not two short strings; what is wrong raises ``Malformed`` before anything was applied.

Rejected: the journal's own records (a position of one node means nothing on another, and they
name no message that is transient); one ring broadcast per operation (a turn has dozens).
"""

from typing import Final, NamedTuple, final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from penstock.core.byte_reader import ByteReader, Malformed
from penstock.core.clock_types import WallMs
from penstock.core.message import (
    PERSISTENT,
    PRIORITY_MASK,
    PRIORITY_SHIFT,
    REDELIVERED,
    Message,
    counts_in,
    flags_of_counts,
)
from penstock.streams.block_codec import MARKS
from penstock.streams.marks import StreamMarks

MAGIC: Final = 0x4F
VERSION: Final = 1
HEADER_BYTES: Final[i64] = 18

PUBLISH: Final = 0x50
END: Final = 0x41
LET_GO: Final = 0x4D
DELAY: Final = 0x4C
ATTEMPTS: Final = 0x45
MARKED: Final = 0x4B

MESSAGE_BYTES: Final[i64] = 28
RANGE_BYTES: Final[i64] = 16
COUNT_BYTES: Final[i64] = 12
ROW_BYTES_MIN: Final[i64] = 17
FLAGS_TOLD: Final[i64] = PERSISTENT | REDELIVERED

SEQ_ID_MAX: Final[i64] = 1 << 62
COUNTS_MAX: Final[i64] = 0x7FFF_FFFF
SPELLED_MAX: Final[i64] = 1 << 24
"""So many places at most are delayed or live on elsewhere: they are gone through one by one."""
OWN_PIECE_BYTES: Final[i64] = 512
"""A content from this size on is a piece of its own."""

Ranges = list[tuple[int, int]]


# -- writing -------------------------------------------------------------------------------


@final
class Pieces:
    """Operations being written.  ``writer``: what comes behind the pieces that are done."""

    def __init__(self) -> None:
        self.writer: BytesWriter = BytesWriter()
        self._done: list[bytes] = []
        self._done_bytes: i64 = 0

    def size(self) -> i64:
        return self._done_bytes + len(self.writer)

    def cut(self) -> i64:
        """What follows begins a piece; returns how many are done."""
        if len(self.writer) > 0:
            self._add(self.writer.getvalue())
            self.writer.truncate(0)
        return len(self._done)

    def add_content(self, content: bytes) -> None:
        if len(content) < OWN_PIECE_BYTES:
            self.writer.write(content)
        else:
            self.cut()
            self._add(content)

    def _add(self, piece: bytes) -> None:
        self._done.append(piece)
        self._done_bytes += len(piece)

    def all(self) -> list[bytes]:
        self.cut()
        return self._done

    def joined(self) -> bytes:
        return b"".join(self.all())


def write_header(writer: BytesWriter, term: i64, number: i64) -> None:
    writer.append(MAGIC)
    writer.append(VERSION)
    write_i64_be(writer, term)
    write_i64_be(writer, number)


def write_publish(pieces: Pieces, part: i64, until_ms: WallMs, messages: list[Message]) -> None:
    """Ascending messages with their contents; a 'P' for each run of neighbouring places."""
    writer = pieces.writer
    count: i64 = len(messages)
    first: i64 = 0
    while first < count:
        end = first + 1
        while end < count and messages[end].seq_id == messages[end - 1].seq_id + 1:
            end += 1
        writer.append(PUBLISH)
        writer.append(u8(part))
        write_i64_be(writer, until_ms)
        write_i64_be(writer, messages[first].seq_id)
        write_i32_be(writer, i32(end - first))
        while first < end:
            _write_message(pieces, messages[first])
            first += 1


def _write_message(pieces: Pieces, message: Message) -> None:
    writer = pieces.writer
    address_size: i64 = len(message.address)
    content = message.content
    assert address_size < 32768
    assert len(content) == message.size > 0
    writer.append(u8(message.flags & FLAGS_TOLD))
    writer.append(u8((message.flags & PRIORITY_MASK) >> PRIORITY_SHIFT))
    write_i16_be(writer, i16(address_size))
    write_i32_be(writer, i32(message.size))
    write_i32_be(writer, i32(counts_in(message.flags)))
    write_i64_be(writer, message.expires_at_ms)
    write_i64_be(writer, message.enqueued_at_ms)
    writer.write(message.address)
    pieces.add_content(content)


def write_ranges(
    writer: BytesWriter, kind: i64, part: i64, until_ms: WallMs, ranges: Ranges
) -> None:
    """An 'A', 'M' or 'L'; ``until_ms`` is of the last only."""
    if len(ranges) == 0:
        return
    writer.append(u8(kind))
    writer.append(u8(part))
    if kind == DELAY:
        write_i64_be(writer, until_ms)
    write_i32_be(writer, i32(len(ranges)))
    for start, end in ranges:
        write_i64_be(writer, start)
        write_i64_be(writer, end)


def write_attempts(writer: BytesWriter, part: i64, messages: list[Message]) -> None:
    counts = [(int(message.seq_id), int(counts_in(message.flags))) for message in messages]
    write_counts(writer, part, counts)


def write_counts(writer: BytesWriter, part: i64, counts: list[tuple[int, int]]) -> None:
    """An 'E' of (seq_id, counts)."""
    if len(counts) == 0:
        return
    writer.append(ATTEMPTS)
    writer.append(u8(part))
    write_i32_be(writer, i32(len(counts)))
    for seq_id, both in counts:
        write_i64_be(writer, seq_id)
        write_i32_be(writer, i32(both))


def write_marks(writer: BytesWriter, kind: i64, count: i64, rows: bytes) -> None:
    writer.append(MARKED)
    writer.append(0)
    writer.append(u8(kind))
    write_i32_be(writer, i32(count))
    write_i32_be(writer, i32(len(rows)))
    writer.write(rows)


def ranges_of(seq_ids: list[int]) -> Ranges:
    """Half-open and ascending, of distinct numbers in any order."""
    ranges: Ranges = []
    start: i64 = 0
    end: i64 = -1
    last: i64 = -1
    for number in seq_ids:
        seq_id: i64 = number
        if seq_id < last:
            return ranges_of(sorted(seq_ids))
        last = seq_id
        if seq_id != end:
            if end > start:
                ranges.append((int(start), int(end)))
            start = seq_id
        end = seq_id + 1
    if end > start:
        ranges.append((int(start), int(end)))
    return ranges


def spelled(ranges: Ranges) -> list[int]:
    return [seq_id for start, end in ranges for seq_id in range(start, end)]


def ranges_of_messages(messages: list[Message]) -> Ranges:
    return ranges_of([int(message.seq_id) for message in messages])


# -- reading -------------------------------------------------------------------------------


class Operation(NamedTuple):
    """One of a parcel; what it has not is empty.  Marks of a stream are ``rows`` of a block."""

    kind: int
    part: int
    until_ms: WallMs
    messages: list[Message]
    ranges: Ranges
    counts: list[tuple[int, int]]
    rows: bytes = b""
    row_count: int = 0
    row_kind: int = 0


class Parcel(NamedTuple):
    term: int
    number: int
    operations: list[Operation]


def read_parcel(data: bytes) -> Parcel:
    """All of it, or ``Malformed``."""
    if len(data) < HEADER_BYTES or i64(data[0]) != MAGIC:
        raise Malformed("this is no parcel of operations")
    if i64(data[1]) != VERSION:
        raise Malformed(f"operations of version {data[1]}, this release reads version 1")
    term, number = read_i64_be(data, 2), read_i64_be(data, 10)
    if term < 0 or number < 1:
        raise Malformed("a parcel's term or number is out of bounds")
    return Parcel(term, number, read_operations(data, HEADER_BYTES))


def read_operations(data: bytes, at: i64) -> list[Operation]:
    """From there up to the end."""
    reader = _OperationReader(data, at)
    operations: list[Operation] = []
    while reader.offset < reader.end:
        operations.append(reader.operation())
    return operations


@final
class _OperationReader(ByteReader):
    __slots__ = ("_address",)

    def __init__(self, data: bytes, offset: i64) -> None:
        super().__init__(data, offset, len(data))
        # Of the message before: most have the same, and share its bytes.
        self._address: bytes = b"\x00\x00"

    def operation(self) -> Operation:
        at = self.take(2)
        kind = i64(self.data[at])
        part = i64(self.data[at + 1])
        until_ms = WallMs(0)
        if kind == PUBLISH or kind == DELAY:
            until_ms = WallMs(self.number())
        if kind == DELAY and until_ms == 0:
            raise Malformed(f"a delay without a time before byte {int(self.offset)}")
        if kind == PUBLISH:
            return Operation(kind, part, until_ms, self._messages(), [], [])
        if kind == END or kind == LET_GO or kind == DELAY:
            ranges = self._ranges(SEQ_ID_MAX if kind == END else SPELLED_MAX)
            return Operation(kind, part, until_ms, [], ranges, [])
        if kind == ATTEMPTS:
            return Operation(kind, part, until_ms, [], [], self._counts())
        if kind == MARKED:
            return self._marks(part)
        raise Malformed(f"operation {int(kind)} at byte {int(at)} is of no known kind")

    def _some(self, item_bytes: i64) -> i64:
        """A count that is not 0, of items that can all be there."""
        count = self.count(item_bytes)
        if count == 0:
            raise Malformed(f"no items before byte {int(self.offset)}")
        return count

    def _messages(self) -> list[Message]:
        seq_id = self.number()
        count = self._some(MESSAGE_BYTES)
        if seq_id > SEQ_ID_MAX - count:
            raise Malformed(f"a place out of bounds before byte {int(self.offset)}")
        messages: list[Message] = []
        while count > 0:
            messages.append(self._message(seq_id))
            seq_id += 1
            count -= 1
        return messages

    def _message(self, seq_id: i64) -> Message:
        data = self.data
        at = self.take(MESSAGE_BYTES)
        flags = i64(data[at])
        address_size = i64(read_i16_be(data, at + 2))
        size = i64(read_i32_be(data, at + 4))
        counts = i64(read_i32_be(data, at + 8))
        expires_at_ms = WallMs(read_i64_be(data, at + 12))
        enqueued_at_ms = WallMs(read_i64_be(data, at + 20))
        if flags & ~FLAGS_TOLD or address_size < 0 or size <= 0:
            raise Malformed(f"no message at byte {int(at)}")
        if counts < 0 or expires_at_ms < 0 or enqueued_at_ms < 0:
            raise Malformed(f"a message's numbers are out of bounds at byte {int(at)}")
        address_at = self.take(address_size + size)
        content_at = address_at + address_size
        address = data[address_at:content_at]
        if address != self._address:
            if not _is_address(address):
                raise Malformed(f"no exchange and routing key at byte {int(address_at)}")
            self._address = address
        flags |= i64(data[at + 1]) << PRIORITY_SHIFT | flags_of_counts(counts)
        message = Message(data[content_at : self.offset], self._address, flags, expires_at_ms)
        message.place(seq_id, enqueued_at_ms)
        return message

    def _ranges(self, places_max: i64) -> Ranges:
        count = self._some(RANGE_BYTES)
        ranges: Ranges = []
        last: i64 = -1
        while count > 0:
            start = self.number()
            end = self.number()
            if start <= last or end <= start:
                raise Malformed(f"ranges do not ascend before byte {int(self.offset)}")
            if end - start > places_max:
                raise Malformed(f"too many places before byte {int(self.offset)}")
            places_max -= end - start
            ranges.append((int(start), int(end)))
            last = end
            count -= 1
        return ranges

    def _marks(self, part: i64) -> Operation:
        kind = self.octet()
        count = self.count(ROW_BYTES_MIN)
        rows = self.raw(self.count(1))
        if int(kind) not in MARKS or not StreamMarks().of_kind(kind).read(rows, count):
            raise Malformed(f"no marks of a stream before byte {int(self.offset)}")
        return Operation(MARKED, part, WallMs(0), [], [], [], rows, count, kind)

    def _counts(self) -> list[tuple[int, int]]:
        count = self._some(COUNT_BYTES)
        counts: list[tuple[int, int]] = []
        while count > 0:
            seq_id = self.number()
            both = self.long()
            if both > COUNTS_MAX:
                raise Malformed(f"counts out of bounds before byte {int(self.offset)}")
            counts.append((int(seq_id), int(both)))
            count -= 1
        return counts


def _is_address(address: bytes) -> bool:
    """Two short strings and nothing else."""
    size: i64 = len(address)
    if size < 2:
        return False
    key_at = 1 + i64(address[0])
    return key_at < size and key_at + 1 + i64(address[key_at]) == size
