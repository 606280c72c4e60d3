"""The record of one message, as the journal and the segments both write it.

    P   'P' flags u8 | address_size u16 | size u32 | queue u32 | counts u32 | seq u64
        expires_at_ms i64 | enqueued_at_ms i64 | address | content, or msg_id u64

Everything is big-endian.  ``size`` is that of the content wherever it lies: with the flag
STORED the record ends with the content's number in the message store instead.  There is no
checksum here: records travel in blocks, and a block's checksum covers all of it.

u32 values stay below 2**31 and u64 values below 2**63, so the signed reads and writes of
compiled code serve for them.  docs/formats/message_record.md is the page.
"""

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from penstock.core.clock_types import WallMs
from penstock.core.message import (
    ONE_ATTEMPT,
    PERSISTENT,
    REDELIVERED,
    STORED,
    Message,
    counts_in,
    flags_of_counts,
)

MESSAGE: Final = 0x50
MESSAGE_BYTES: Final[i64] = 40
"""A message record without its address and content."""
MSG_ID_BYTES: Final[i64] = 8
FLAGS_KEPT: Final[i64] = PERSISTENT | REDELIVERED | STORED


def message_record_size(message: Message) -> i64:
    """Bytes of the record of this message."""
    end = MSG_ID_BYTES if message.flags & STORED else message.size
    return MESSAGE_BYTES + len(message.address) + end


def write_message_head(writer: BytesWriter, queue_id: i64, message: Message) -> None:
    """The record up to the content, which must follow unless the message is STORED."""
    address = message.address
    address_size: i64 = len(address)
    flags = message.flags
    counts: i64 = 0  # a conditional expression would be an object, and i32 a call
    if flags >= ONE_ATTEMPT:
        counts = counts_in(flags)
    assert address_size < 32768
    assert message.size < 0x7FFFFFFF
    writer.append(MESSAGE)
    writer.append(u8(flags & FLAGS_KEPT))
    write_i16_be(writer, i16(address_size))
    write_i32_be(writer, i32(message.size))
    write_i32_be(writer, i32(queue_id))
    write_i32_be(writer, i32(counts))
    write_i64_be(writer, message.seq_id)
    write_i64_be(writer, message.expires_at_ms)
    write_i64_be(writer, message.enqueued_at_ms)
    writer.write(address)
    if flags & STORED:
        write_i64_be(writer, message.msg_id)


def message_record_end(data: bytes, at: i64, end: i64) -> i64:
    """Where the message record at ``at`` ends; -1 when it is none or reaches over ``end``."""
    if end - at < MESSAGE_BYTES or i64(data[at]) != MESSAGE:
        return -1
    size = _u32(data, at + 4)
    if i64(data[at + 1]) & STORED:
        size = MSG_ID_BYTES
    after = at + MESSAGE_BYTES + _u16(data, at + 2) + size
    return after if after <= end else -1


def record_queue_id(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at + 8))


def record_seq_id(data: bytes, at: i64) -> i64:
    return read_i64_be(data, at + 16)


def record_is_persistent(data: bytes, at: i64) -> bool:
    return bool(i64(data[at + 1]) & PERSISTENT)


def record_expires(data: bytes, at: i64) -> bool:
    return read_i64_be(data, at + 24) != 0


def record_content_size(data: bytes, at: i64) -> i64:
    return _u32(data, at + 4)


def record_msg_id(data: bytes, at: i64) -> i64:
    """Its number in the message store; 0 = the content is in the record."""
    if not i64(data[at + 1]) & STORED:
        return 0
    return read_i64_be(data, at + MESSAGE_BYTES + _u16(data, at + 2))


def read_message(data: bytes, at: i64, end: i64) -> Message:
    """The message of the record from ``at`` to ``end``, as the flags on disk say."""
    flags = i64(data[at + 1]) & FLAGS_KEPT
    address_at = at + MESSAGE_BYTES
    content_at = address_at + _u16(data, at + 2)
    content = b"" if flags & STORED else data[content_at:end]
    flags |= flags_of_counts(i64(read_i32_be(data, at + 12)))
    expires_at_ms = WallMs(read_i64_be(data, at + 24))
    message = Message(content, data[address_at:content_at], flags, expires_at_ms)
    message.seq_id = read_i64_be(data, at + 16)
    message.enqueued_at_ms = WallMs(read_i64_be(data, at + 32))
    if flags & STORED:
        message.msg_id = read_i64_be(data, content_at)
        message.size = _u32(data, at + 4)
    return message


def _u16(data: bytes, at: i64) -> i64:
    return (i64(data[at]) << 8) | i64(data[at + 1])


def _u32(data: bytes, at: i64) -> i64:
    """One over 2**31 - 1 becomes too large for any block."""
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF
