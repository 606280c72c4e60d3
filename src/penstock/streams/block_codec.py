"""The bytes of a stream's segment file ``<first>.stm``, both ways; docs/formats/streams.md.

A file is a row of blocks; everything is big-endian:

    block     magic "PSS" 01 | stream u32 | kind u32 | count u32 | at u64 | synced u64 | floor u64 |
              first u64 | first_ms i64 | last_ms i64 | filter_size u32 | size u32 |
              payload crc u32 | head crc u32 | filter | payload
    kind 1    messages: ``count`` records of offsets from ``first`` on
    kind 2    index, the last block of a finished file: ``count`` rows (first u64, first_ms i64,
              at u64), then its own ``at`` u64
    kind 3    floor: no payload
    kind 4    positions of readers: ``count`` rows (name_size u8, name, offset u64, came_ms i64)
    kind 5    numbers of publishers: the same, (name_size u8, name, number u64, offset u64)
    kind 6    terms of masters: the same, (name_size u8, digits of the term, offset u64, 0 i64)
    record    address_size u16 | size u32 | address | content

``at`` is the place of the block in its file, ``synced`` how many bytes of the file were known to
be on disk when it was sealed, ``floor`` the lowest offset that retention had left by then,
``first`` the offset of the first record, or of the next one.  The checksum of the head covers head
and filter, so that a block without a match is passed over and not read.
"""

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from penstock.core.checksum import crc32
from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt
from penstock.core.message import PERSISTENT, Message
from penstock.storage.common.formats import check_version, numbered_from_0

MAGIC_BYTES: Final = b"PSS\x01"
MAGIC: Final = 0x50535301
FORMAT_VERSION: Final = 1
SEGMENT_SUFFIX: Final = ".stm"
HEAD_BYTES: Final[i64] = 80
CHECKED_BYTES: Final[i64] = 76
"""The head without its last field, the checksum."""
RECORD_HEAD_BYTES: Final[i64] = 6
ROW_BYTES: Final[i64] = 24

MESSAGES: Final[i64] = 1
INDEX: Final[i64] = 2
FLOOR: Final[i64] = 3
POSITIONS: Final[i64] = 4
PUBLISHERS: Final[i64] = 5
TERMS: Final[i64] = 6
MARKS: Final = (int(POSITIONS), int(PUBLISHERS), int(TERMS))


def segment_path(directory: str, first: i64) -> str:
    return f"{directory}/{int(first)}{SEGMENT_SUFFIX}"


def segment_first(name: str) -> int:
    """The offset in the name of a segment file; -1 = some other file."""
    return numbered_from_0(name, SEGMENT_SUFFIX)


@final
class BlockHead:
    """What stands before the payload of a block; never changed.

    ``payload_crc`` is what was read; ``encode`` computes the one it writes.
    """

    __slots__ = (
        "at", "count", "filter", "first", "first_ms", "floor", "kind", "last_ms", "payload_crc",
        "size", "stream", "synced",
    )  # fmt: skip

    def __init__(
        self,
        stream: i64,
        kind: i64,
        count: i64,
        at: i64,
        synced: i64,
        floor: i64,
        first: i64,
        first_ms: i64,
        last_ms: i64,
        block_filter: bytes,
        size: i64,
        payload_crc: i64 = 0,
    ) -> None:
        self.stream: i64 = stream
        self.kind: i64 = kind
        self.count: i64 = count
        self.at: i64 = at
        self.synced: i64 = synced
        self.floor: i64 = floor
        self.first: i64 = first
        self.first_ms: i64 = first_ms
        self.last_ms: i64 = last_ms
        self.filter: bytes = block_filter
        self.size: i64 = size
        self.payload_crc: i64 = payload_crc

    def payload_at(self) -> i64:
        return self.at + HEAD_BYTES + len(self.filter)

    def end(self) -> i64:
        """Where the next block of the file begins."""
        return self.payload_at() + self.size

    def next_offset(self) -> i64:
        """The offset of the first message behind this block."""
        return self.first + self.count if self.kind == MESSAGES else self.first

    def encode(self, payload: bytes) -> bytes:
        """Head and filter; reads all of the payload for a checksum: work for a thread."""
        writer = BytesWriter()
        write_i32_be(writer, MAGIC)
        write_i32_be(writer, i32(self.stream))
        write_i32_be(writer, i32(self.kind))
        write_i32_be(writer, i32(self.count))
        write_i64_be(writer, self.at)
        write_i64_be(writer, self.synced)
        write_i64_be(writer, self.floor)
        write_i64_be(writer, self.first)
        write_i64_be(writer, self.first_ms)
        write_i64_be(writer, self.last_ms)
        write_i32_be(writer, i32(len(self.filter)))
        write_i32_be(writer, i32(self.size))
        writer.write(crc32(payload).to_bytes(4, "big"))
        checked = writer.getvalue()
        crc = crc32(self.filter, crc32(checked))
        return checked + crc.to_bytes(4, "big") + self.filter

    def is_payload(self, payload: bytes) -> bool:
        return len(payload) == self.size and crc32(payload) == self.payload_crc


def read_head(data: bytes, at: i64, base: i64, stream: i64, path: str) -> BlockHead | None:
    """The head at ``at`` of ``data``, which begins at ``base`` of the file; None = no true one.

    Of any version: all keep this head, so that a block of a later release is not taken for a
    torn one.  Raises Corrupt for such a block.
    """
    filter_at = at + HEAD_BYTES
    if filter_at > len(data) or (read_i32_be(data, at) ^ MAGIC) & ~0xFF:
        return None
    if read_i64_be(data, at + 16) != base + at or i64(read_i32_be(data, at + 4)) != stream:
        return None
    filter_size: i64 = i64(read_i32_be(data, at + 64))
    size: i64 = i64(read_i32_be(data, at + 68))
    if size < 0 or filter_size < 0 or filter_size > len(data) - filter_at:
        return None
    block_filter = data[filter_at : filter_at + filter_size]
    crc = crc32(block_filter, crc32(data[at : at + CHECKED_BYTES]))
    if crc != i64(read_i32_be(data, at + CHECKED_BYTES)) & 0xFFFFFFFF:
        return None
    check_version(path, "stream", data[at + 3], FORMAT_VERSION)
    return BlockHead(
        stream,
        i64(read_i32_be(data, at + 8)),
        i64(read_i32_be(data, at + 12)),
        base + at,
        read_i64_be(data, at + 24),
        read_i64_be(data, at + 32),
        read_i64_be(data, at + 40),
        read_i64_be(data, at + 48),
        read_i64_be(data, at + 56),
        block_filter,
        size,
        i64(read_i32_be(data, at + 72)) & 0xFFFFFFFF,
    )


def damage(path: str, at: int, size: int) -> Corrupt:
    return Corrupt(f"{path}: damaged at offset {at}, {size} bytes")


# -- records -------------------------------------------------------------------------------


def write_record(writer: BytesWriter, message: Message) -> None:
    """Address and content, which must be in memory."""
    write_i16_be(writer, i16(len(message.address)))
    write_i32_be(writer, i32(len(message.content)))
    writer.write(message.address)
    writer.write(message.content)


def read_records(payload: bytes, head: BlockHead) -> list[Message] | None:
    """The messages of a block; None = the payload holds something else."""
    messages: list[Message] = []
    last_address = b""
    at: i64 = 0
    end: i64 = len(payload)
    offset = head.first
    while at < end:
        if end - at < RECORD_HEAD_BYTES:
            return None
        address_at = at + RECORD_HEAD_BYTES
        content_at = address_at + ((i64(payload[at]) << 8) | i64(payload[at + 1]))
        size: i64 = i64(read_i32_be(payload, at + 2))
        at = content_at + size
        if size < 0 or at > end:
            return None
        address = payload[address_at:content_at]
        if address == last_address:
            address = last_address  # one object for all that share it
        last_address = address
        message = Message(payload[content_at:at], address, PERSISTENT, WallMs(0))
        message.place(offset, WallMs(head.last_ms))
        messages.append(message)
        offset += 1
    return messages if 0 < len(messages) == head.count else None


# -- the index of a finished file ----------------------------------------------------------


@final
class IndexRows:
    """Rows (first, first_ms, at) of blocks of one file.

    Invariant (``check``):
      R1  offsets and places ascend, times do not descend, and places are within the file
    """

    __slots__ = ("_data",)

    def __init__(self, data: bytes = b"") -> None:
        self._data: bytes = data

    def add(self, first: i64, first_ms: i64, at: i64) -> None:
        writer = BytesWriter()
        write_i64_be(writer, first)
        write_i64_be(writer, first_ms)
        write_i64_be(writer, at)
        self._data += writer.getvalue()

    def __len__(self) -> int:
        return len(self._data) // int(ROW_BYTES)

    def last_at(self) -> i64:
        """Where the block of the last row is; -1 = there is none."""
        return self._field(len(self) - 1, 16) if self._data else -1

    def payload(self, at: i64) -> bytes:
        """Of the index block at that place."""
        return self._data + int(at).to_bytes(8, "big")

    def at_offset(self, offset: i64) -> i64:
        """Where the last block is that a row names and that begins at or below ``offset``."""
        return self._at(offset + 1, 0)

    def at_time(self, time_ms: i64) -> i64:
        """Where the last block is that a row names and that begins before ``time_ms``."""
        return self._at(time_ms, 8)

    def _at(self, bound: i64, column: i64) -> i64:
        low: i64 = 0
        high: i64 = len(self)
        while low < high:
            middle = (low + high) // 2
            if self._field(middle, column) < bound:
                low = middle + 1
            else:
                high = middle
        return self._field(low - 1, 16) if low > 0 else 0

    def _field(self, row: i64, column: i64) -> i64:
        return read_i64_be(self._data, row * ROW_BYTES + column)

    def check(self, end: i64) -> None:
        """Assert the numbered invariant, within a file of that size."""
        for row in range(len(self)):
            assert 0 <= self._field(row, 16) < end, "R1"
            for column in (0, 16):
                assert row == 0 or self._field(row - 1, column) < self._field(row, column), "R1"
            assert row == 0 or self._field(row - 1, 8) <= self._field(row, 8), "R1"


def index_place(tail: bytes) -> i64:
    """Where the index of a finished file begins, by the file's last 8 bytes; below 0 = nowhere."""
    return read_i64_be(tail, 0) if len(tail) == 8 else -1


def read_index(payload: bytes, head: BlockHead) -> IndexRows | None:
    """The rows of an index block; None = the payload holds something else."""
    rows = payload[: head.count * ROW_BYTES]
    if len(payload) != head.count * ROW_BYTES + 8 or read_i64_be(payload, len(rows)) != head.at:
        return None
    return IndexRows(rows)
