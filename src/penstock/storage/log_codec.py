"""The bytes of the message log, both ways; docs/formats/message_log.md is their page.

A log file ``<N>.log`` is a row of *blocks*, a block is a header and a row of *records*.
Everything is big-endian.  A block is believed whole or not at all: the checksum covers
header and records, and the header names the file and the offset where the block belongs,
so that a copy of a block (say, inside a message) is never taken for one.

    block     magic "PSL" 01 | file_no u32 | offset u64 | synced u64 | size u64 | crc u32 | records
    P         'P' flags u8 address_size u16 content_size u32 queue u32 seq u64
              expires_at_ms i64 enqueued_at_ms i64 address content          publish
    A         'A' queue u32 seq u64                                         acknowledge one
    R         'R' queue u32 first u64 count u32                             acknowledge a run
    N         'N' queue u32 upto u64                                        reserve seq_ids
    X         'X' queue u32                                                 forget a queue
    F         'F' count u32 (file_no u32 size u64)*                         files before this
    Q         'Q' count u32 (queue u32 next_seq_id u64)*                    queues and numbers
    D         'D' file_no u32                                               file dropped
    E         'E' queue u32 next_seq_id u64 count u32 (first u64 count u32)*  queue at the end
    C         'C'                                                           stopped cleanly

``synced`` says how many bytes of this file were known to be on disk when the block was
sealed: if an older place is damaged all the same, no crash did it (``attests_damage``).

u32 values stay below 2**31 and u64 values below 2**63, so the signed reads and writes of
compiled code serve for them.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from penstock.core.errors import Corrupt
from penstock.core.message import PERSISTENT, Message

FORMAT_VERSION: Final = 1
MAGIC_BYTES: Final = b"PSL\x01"
MAGIC: Final = 0x50534C01
LOG_SUFFIX: Final = ".log"

BLOCK_HEADER_BYTES: Final[i64] = 36
CHECKED_HEADER_BYTES: Final[i64] = 32
"""The header without its last field, the checksum."""

PUBLISH: Final[i64] = 0x50
ACK: Final[i64] = 0x41
ACK_RUN: Final[i64] = 0x52
RESERVE: Final[i64] = 0x4E
FORGET: Final[i64] = 0x58
FILES: Final[i64] = 0x46
QUEUES: Final[i64] = 0x51
DROP: Final[i64] = 0x44
QUEUE_END: Final[i64] = 0x45
CLEAN: Final[i64] = 0x43

PUBLISH_BYTES: Final[i64] = 36
"""A publish record without its address and content."""
ACK_BYTES: Final[i64] = 13
ACK_RUN_BYTES: Final[i64] = 17
RESERVE_BYTES: Final[i64] = 13
FORGET_BYTES: Final[i64] = 5
TABLE_BYTES: Final[i64] = 5
"""'F' or 'Q' without its rows."""
ROW_BYTES: Final[i64] = 12
DROP_BYTES: Final[i64] = 5
QUEUE_END_BYTES: Final[i64] = 17
CLEAN_BYTES: Final[i64] = 1


def log_file_name(file_no: int) -> str:
    return f"{file_no}{LOG_SUFFIX}"


def log_file_no(name: str) -> int:
    """The number in the name of a log file; 0 = some other file."""
    stem = name.removesuffix(LOG_SUFFIX)
    if stem == name or not stem.isascii() or not stem.isdigit() or stem.startswith("0"):
        return 0
    return int(stem)


# -- blocks --------------------------------------------------------------------------------


@final
class LogGroup:
    """What is written with one write: one block, sealed and never changed again.

    ``parts``            the records in pieces, so that large contents are never copied;
                         none = nothing to write, only to sync
    ``size``             bytes of all parts
    ``offset``           where the block begins in its file
    ``synced_offset``    bytes of the file known to be on disk when it was sealed
    ``sync``             the group must be on disk before it is reported as committed
    ``end_position``     the log's position after the group
    ``files_to_remove``  numbers of files to delete, after the sync
    """

    __slots__ = (
        "end_position",
        "file_no",
        "files_to_remove",
        "offset",
        "parts",
        "size",
        "sync",
        "synced_offset",
    )

    def __init__(
        self,
        file_no: i64,
        offset: i64,
        synced_offset: i64,
        parts: list[bytes],
        sync: bool,
        end_position: i64,
        files_to_remove: list[int],
    ) -> None:
        self.file_no: i64 = file_no
        self.offset: i64 = offset
        self.synced_offset: i64 = synced_offset
        self.parts: list[bytes] = parts
        size: i64 = 0
        for part in parts:
            size += len(part)
        self.size: i64 = size
        self.sync: bool = sync
        self.end_position: i64 = end_position
        self.files_to_remove: list[int] = files_to_remove

    def end_offset(self) -> i64:
        """The size of the file once the group is written."""
        if self.size == 0:
            return self.offset
        return self.offset + BLOCK_HEADER_BYTES + self.size

    @property
    def data(self) -> bytes:
        """The records in one piece, for looking at them."""
        return b"".join(self.parts)

    def header(self) -> bytes:
        """The block's header; reads all records, so it is the committer's work."""
        writer = BytesWriter()
        write_i32_be(writer, MAGIC)
        write_i32_be(writer, i32(self.file_no))
        write_i64_be(writer, self.offset)
        write_i64_be(writer, self.synced_offset)
        write_i64_be(writer, self.size)
        checked = writer.getvalue()
        checksum = crc32(checked)
        for part in self.parts:
            checksum = crc32(part, checksum)
        return checked + checksum.to_bytes(4, "big")


def block_end(data: bytes, at: i64, file_no: i64) -> i64:
    """Where the block that begins at ``at`` ends; -1 when no whole, true block is there.

    Of any version: all keep this header, so that a block of a later release is not taken
    for a torn one.
    """
    records = at + BLOCK_HEADER_BYTES
    if records > len(data) or (read_i32_be(data, at) ^ MAGIC) & ~0xFF:
        return -1
    if i64(read_i32_be(data, at + 4)) != file_no or read_i64_be(data, at + 8) != at:
        return -1
    size = read_i64_be(data, at + 24)
    if size < 0 or size > len(data) - records:
        return -1
    end = records + size
    crc = crc32(memoryview(data)[records:end], crc32(data[at : at + CHECKED_HEADER_BYTES]))
    written = i64(read_i32_be(data, at + CHECKED_HEADER_BYTES)) & 0xFFFFFFFF
    return end if crc == written else -1


def synced_offset(data: bytes, at: i64) -> i64:
    """How much of the file the true block at ``at`` says was on disk."""
    return read_i64_be(data, at + 16)


def attests_damage(data: bytes, at: i64, file_no: i64) -> bool:
    """Whether a true block after ``at`` says that the bytes at ``at`` had reached the disk."""
    found: i64 = data.find(MAGIC_BYTES, int(at) + 1)
    while found >= 0:
        if block_end(data, found, file_no) >= 0 and synced_offset(data, found) > at:
            return True
        found = data.find(MAGIC_BYTES, int(found) + 1)
    return False


def refuse_unknown_version(path: str, version: int) -> None:
    if version != FORMAT_VERSION:
        raise Corrupt(
            f"{path}: message log format version {version},"
            f" this release reads version {FORMAT_VERSION}"
        )


def damage(path: str, offset: int, size: int) -> Corrupt:
    return Corrupt(f"{path}: damaged at offset {offset}, {size} bytes")


# -- records, writing ----------------------------------------------------------------------


def publish_size(message: Message) -> i64:
    """Bytes of the publish record of this message."""
    return PUBLISH_BYTES + len(message.address) + len(message.content)


def write_publish_head(writer: BytesWriter, queue_id: i64, message: Message) -> None:
    """The record of a publish up to the content, which must follow."""
    address = message.address
    address_size: i64 = len(address)
    content_size: i64 = len(message.content)
    assert address_size < 32768
    assert content_size < 0x7FFFFFFF
    writer.append(PUBLISH)
    writer.append(message.flags & PERSISTENT)
    write_i16_be(writer, i16(address_size))
    write_i32_be(writer, i32(content_size))
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, message.seq_id)
    write_i64_be(writer, message.expires_at_ms)
    write_i64_be(writer, message.enqueued_at_ms)
    writer.write(address)


def write_ack(writer: BytesWriter, queue_id: i64, start: i64, end: i64) -> None:
    """Acknowledge seq_ids from ``start`` up to and without ``end``."""
    count = end - start
    assert 0 < count < 0x7FFFFFFF
    writer.append(ACK if count == 1 else ACK_RUN)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, start)
    if count > 1:
        write_i32_be(writer, i32(count))


def write_reserve(writer: BytesWriter, queue_id: i64, upto_seq_id: i64) -> None:
    writer.append(RESERVE)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, upto_seq_id)


def write_forget(writer: BytesWriter, queue_id: i64) -> None:
    writer.append(FORGET)
    write_i32_be(writer, i32(queue_id))


def write_drop(writer: BytesWriter, file_no: i64) -> None:
    writer.append(DROP)
    write_i32_be(writer, i32(file_no))


def write_table(writer: BytesWriter, kind: i64, rows: dict[int, int]) -> None:
    """'F' or 'Q': a small number and a large one in each row."""
    writer.append(kind)
    write_i32_be(writer, i32(len(rows)))
    for key, value in rows.items():
        write_i32_be(writer, i32(key))
        write_i64_be(writer, i64(value))


def write_queue_end(
    writer: BytesWriter, queue_id: i64, next_seq_id: i64, starts: list[int], ends: list[int]
) -> None:
    """How a queue stood at a clean stop; the ranges are the seq_ids delivered before."""
    writer.append(QUEUE_END)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, next_seq_id)
    write_i32_be(writer, i32(len(starts)))
    for i in range(len(starts)):
        write_i64_be(writer, i64(starts[i]))
        write_i32_be(writer, i32(ends[i] - starts[i]))


def write_clean(writer: BytesWriter) -> None:
    writer.append(CLEAN)


# -- records, reading ----------------------------------------------------------------------


def record_size(data: bytes, at: i64, end: i64) -> i64:
    """Bytes of the record at ``at``; -1 when it is none or would reach over ``end``."""
    kind = i64(data[at])
    size = _least_size(kind)
    if size < 0 or size > end - at:
        return -1
    if kind == PUBLISH:
        size += _u16(data, at + 2) + _count(data, at + 4)
    elif kind == FILES or kind == QUEUES:
        size += ROW_BYTES * _count(data, at + 1)
    elif kind == QUEUE_END:
        size += ROW_BYTES * _count(data, at + 13)
    return size if size <= end - at else -1


def _least_size(kind: i64) -> i64:
    if kind == PUBLISH:
        return PUBLISH_BYTES
    if kind == ACK or kind == RESERVE:
        return ACK_BYTES
    if kind == ACK_RUN or kind == QUEUE_END:
        return ACK_RUN_BYTES
    if kind == FORGET or kind == DROP or kind == FILES or kind == QUEUES:
        return FORGET_BYTES
    return CLEAN_BYTES if kind == CLEAN else -1


def _u16(data: bytes, at: i64) -> i64:
    return (i64(data[at]) << 8) | i64(data[at + 1])


def _count(data: bytes, at: i64) -> i64:
    """A count; one over 2**31 - 1 becomes too large for any block."""
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF


def read_message(data: bytes, at: i64, size: i64, file_no: i64) -> Message:
    """The message of the publish record at ``at``; flags are the caller's."""
    address_at = at + PUBLISH_BYTES
    content_at = address_at + _u16(data, at + 2)
    message = Message(
        data[content_at : at + size],
        data[address_at:content_at],
        i64(data[at + 1]) & PERSISTENT,
        read_i64_be(data, at + 20),
    )
    message.seq_id = read_i64_be(data, at + 12)
    message.enqueued_at_ms = read_i64_be(data, at + 28)
    message.file_no = file_no
    return message


def read_table(data: bytes, at: i64) -> dict[int, int]:
    rows: dict[int, int] = {}
    row = at + TABLE_BYTES
    for _ in range(_count(data, at + 1)):
        rows[int(read_i32_be(data, row))] = int(read_i64_be(data, row + 4))
        row += ROW_BYTES
    return rows
