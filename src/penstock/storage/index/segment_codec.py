"""The bytes of a segment file ``<N>.idx``, both ways; docs/formats/segment.md is the page.

A segment holds the positions N * E up to (N + 1) * E of one queue (E = the virtual host's
segment size).  The file is a row of blocks; everything is big-endian:

    block     magic "PSX" 01 | queue u32 | segment u32 | kind u32 | offset u64 | synced u64 |
              first u32 | last u32 | count u32 | size u64 | crc u32 | payload
    kind 1    messages: ``count`` message records (message_record.py), ascending
    kind 2    marks: bitmap of settled positions, bitmap of delivered ones (E / 8 bytes each,
              bit p % 8 of byte p / 8), then ``count`` rows (position u32, not before u64), then
              ``first`` rows (position u32, attempts u32)
    kind 3    attestation: no payload, says that ``synced`` bytes of the file are on disk
    kind 4    references: as kind 1, but the records are in a file of the journal (references.py);
              a block of this kind has version 2

Of the segment's number a block has the low 31 bits.  Of messages and references ``first``
and ``last`` are the positions within the segment that it spans.  The checksum covers header and
payload, so every record is under one.  Blocks may be in any order of positions, and may overlap; a
position is in at most one of them.  The last marks count.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from penstock.core.checksum import crc32
from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt
from penstock.storage.common.formats import numbered_from_0

MAGIC_BYTES: Final = b"PSX"
MAGIC: Final = 0x50535801
FORMAT_VERSION: Final = 2
SEGMENT_SUFFIX: Final = ".idx"
UNFINISHED_SUFFIX: Final = ".idt"
HEADER_BYTES: Final[i64] = 56
SEGMENT_BITS: Final[i64] = 0x7FFF_FFFF
"""Of a segment's number in its blocks: the file's name has all of it, a block only attests that it
belongs there, and numbers of a mirrored queue grow by 2**40 with each term."""
BLOCK_BYTES: Final[i64] = 256 * 1024
"""A messages block is closed when its payload is so large."""
CHECKED_BYTES: Final[i64] = 52

MESSAGES: Final[i64] = 1
MARKS: Final[i64] = 2
ATTEST: Final[i64] = 3
REFERENCES: Final[i64] = 4
DELAY_ROW_BYTES: Final[i64] = 12
ATTEMPTS_ROW_BYTES: Final[i64] = 8


def segment_file_name(number: int) -> str:
    return f"{number}{SEGMENT_SUFFIX}"


def unfinished_segment_name(number: int) -> str:
    return f"{number}{UNFINISHED_SUFFIX}"


def segment_no(name: str, suffix: str = SEGMENT_SUFFIX) -> int:
    """The number in the name of a segment file; -1 = some other file."""
    return numbered_from_0(name, suffix)


@final
class BlockHeader:
    """What stands before the payload of a block that begins at ``offset``; never changed.

    ``size`` of the payload is there only when it was read.
    """

    __slots__ = (
        "count", "first", "kind", "last", "offset", "queue_id", "segment", "size", "synced",
    )  # fmt: skip

    def __init__(
        self,
        queue_id: i64,
        segment: i64,
        kind: i64,
        offset: i64,
        synced: i64,
        first: i64 = 0,
        last: i64 = 0,
        count: i64 = 0,
        size: i64 = 0,
    ) -> None:
        self.queue_id: i64 = queue_id
        self.segment: i64 = segment
        self.kind: i64 = kind
        self.offset: i64 = offset
        self.synced: i64 = synced
        self.first: i64 = first
        self.last: i64 = last
        self.count: i64 = count
        self.size: i64 = size

    def end(self) -> i64:
        return self.offset + HEADER_BYTES + self.size

    def encode(self, payload: bytes) -> bytes:
        """The header of this payload; reads all of it, so it is a thread's work."""
        writer = BytesWriter()
        write_i32_be(writer, MAGIC + 1 if self.kind == REFERENCES else MAGIC)
        write_i32_be(writer, i32(self.queue_id))
        write_i32_be(writer, i32(self.segment & SEGMENT_BITS))
        write_i32_be(writer, i32(self.kind))
        write_i64_be(writer, self.offset)
        write_i64_be(writer, self.synced)
        write_i32_be(writer, i32(self.first))
        write_i32_be(writer, i32(self.last))
        write_i32_be(writer, i32(self.count))
        write_i64_be(writer, i64(len(payload)))
        checked = writer.getvalue()
        return checked + crc32(payload, crc32(checked)).to_bytes(4, "big")


def read_block(data: bytes, at: i64, base: i64, queue_id: i64, segment: i64) -> BlockHeader | None:
    """The block at ``at`` of ``data``, which begins at ``base`` of the file; None = no true one."""
    payload = at + HEADER_BYTES
    if payload > len(data) or (read_i32_be(data, at) ^ MAGIC) & ~0xFF:
        return None
    if i64(read_i32_be(data, at + 4)) != queue_id:
        return None
    if i64(read_i32_be(data, at + 8)) != segment & SEGMENT_BITS:
        return None
    size = read_i64_be(data, at + 44)
    if read_i64_be(data, at + 16) != base + at or size < 0 or size > len(data) - payload:
        return None
    end = payload + size
    crc = crc32(memoryview(data)[payload:end], crc32(data[at : at + CHECKED_BYTES]))
    if crc != i64(read_i32_be(data, at + CHECKED_BYTES)) & 0xFFFFFFFF:
        return None
    return BlockHeader(
        queue_id,
        segment,
        i64(read_i32_be(data, at + 12)),
        base + at,
        read_i64_be(data, at + 24),
        i64(read_i32_be(data, at + 32)),
        i64(read_i32_be(data, at + 36)),
        i64(read_i32_be(data, at + 40)),
        size,
    )


def first_block(data: bytes, queue_id: i64, segment: i64) -> i64:
    """Where reading begins: behind an attestation that a crash has torn, or that was not written.

    Whatever stands at the beginning if no true block is behind it.
    """
    if read_block(data, 0, 0, queue_id, segment) is not None:
        return 0
    is_torn = read_block(data, HEADER_BYTES, 0, queue_id, segment) is not None
    return HEADER_BYTES if is_torn else 0


def attests_damage(data: bytes, at: i64, queue_id: i64, segment: i64) -> bool:
    """Whether a true block after ``at`` says that the bytes at ``at`` had reached the disk."""
    found: i64 = data.find(MAGIC_BYTES, int(at) + 1)
    while found >= 0:
        header = read_block(data, found, 0, queue_id, segment)
        if header is not None and header.synced > at:
            return True
        found = data.find(MAGIC_BYTES, int(found) + 1)
    return False


def damage(path: str, offset: int, size: int) -> Corrupt:
    return Corrupt(
        f"{path}: damaged at offset {offset}, {size} bytes;"
        " `penstock audit` with the data directory shows all of it"
    )


def cut_short(path: str, end: int, size: int) -> Corrupt:
    return Corrupt(
        f"{path}: ends at offset {end}, although {size} bytes of it were on disk: it was cut"
        " short; `penstock audit` with the data directory shows all that is damaged"
    )


def marks_size(header: BlockHeader, bitmap_bytes: i64) -> i64:
    """Bytes of the payload that the header promises."""
    return 2 * bitmap_bytes + DELAY_ROW_BYTES * header.count + ATTEMPTS_ROW_BYTES * header.first


def encode_marks(
    settled: bytes, delivered: bytes, delays: dict[int, WallMs], attempts: dict[int, int]
) -> bytes:
    """The header's ``count`` and ``first`` say how many rows there are of each kind."""
    writer = BytesWriter()
    writer.write(settled)
    writer.write(delivered)
    for position, until_ms in delays.items():
        write_i32_be(writer, i32(position))
        write_i64_be(writer, until_ms)
    for position, count in attempts.items():
        write_i32_be(writer, i32(position))
        write_i32_be(writer, i32(count))
    return writer.getvalue()


def decode_delays(data: bytes, at: i64, count: i64) -> dict[int, WallMs]:
    """The rows that begin at ``at``."""
    delays: dict[int, WallMs] = {}
    for _ in range(count):
        delays[int(read_i32_be(data, at))] = WallMs(read_i64_be(data, at + 4))
        at += DELAY_ROW_BYTES
    return delays


def decode_attempts(data: bytes, at: i64, count: i64) -> dict[int, int]:
    """The rows that begin at ``at``."""
    attempts: dict[int, int] = {}
    for _ in range(count):
        attempts[int(read_i32_be(data, at))] = int(read_i32_be(data, at + 4))
        at += ATTEMPTS_ROW_BYTES
    return attempts
