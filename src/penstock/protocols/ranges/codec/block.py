"""The reply BLOCK of ``penstock_ranges.ranges``, made of messages; compiled, as it is megabytes."""

import sys
from array import array
from struct import Struct
from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from penstock.core.message import PERSISTENT, Message
from penstock_ranges.ranges import BLOCK, BLOCK_HEAD, BLOCK_ROW_BYTES

_U32 = Struct(">I")
_FRAME = Struct(">IB")
_FRAME_OVERHEAD: Final = 8
"""Bytes of an AMQP frame around its payload: type, channel, size, end mark."""


def encode_block(messages: list[Message], next_start: int, with_body: bool) -> bytes:
    """One BLOCK; without bodies a content is cut after its header frame.

    All pieces are joined once: a block is megabytes, and every copy of it would show.
    """
    contents = [message.content for message in messages]
    if not with_body:
        contents = [_headerframe(content) for content in contents]
    return _joined(
        next_start,
        array("q", [message.seq_id for message in messages]),
        array("q", [int(message.enqueued_at_ms) for message in messages]),
        bytes([message.flags & 0xFF for message in messages]),
        [message.address for message in messages],
        contents,
    )


@final
class BlockColumns:
    """The same of records as a stream stores them: ``docs/formats/streams.md``, clause 3.1.

    At most so many messages and bytes, but at least one message.
    """

    def __init__(self, with_body: bool, most_messages: i64, most_bytes: i64) -> None:
        self._with_body: bool = with_body
        self._messages_left: i64 = most_messages
        self._bytes_left: i64 = most_bytes
        self._seq_ids: array[int] = array("q")
        self._times: array[int] = array("q")
        self._addresses: list[bytes] = []
        self._contents: list[bytes] = []

    def add(self, payload: bytes, first: i64, time_ms: i64, start: i64, end: i64) -> i64:
        """Take the records from ``start`` to ``end`` of a payload that begins with ``first``.

        All have come at ``time_ms``.  Returns the offset behind the last one that was taken.
        """
        at: i64 = 0
        size: i64 = len(payload)
        offset = first
        begun: i64 = len(self._contents)
        while at < size and offset < end:
            content_at = at + 6 + ((i64(payload[at]) << 8) | i64(payload[at + 1]))
            behind = content_at + i64(read_i32_be(payload, at + 2))
            if offset >= start:
                if len(self._contents) > 0 and self._is_full(behind - at):
                    break
                self._messages_left -= 1
                self._bytes_left -= behind - at
                self._addresses.append(payload[at + 6 : content_at])
                content = payload[content_at:behind]
                self._contents.append(content if self._with_body else _headerframe(content))
            at = behind
            offset += 1
        taken: i64 = len(self._contents) - begun
        self._seq_ids.extend(range(int(offset - taken), int(offset)))
        self._times.extend([int(time_ms)] * int(taken))
        return offset

    def _is_full(self, size: i64) -> bool:
        return self._messages_left <= 0 or size > self._bytes_left

    def frame(self, next_start: int) -> bytes:
        """The BLOCK of what was taken."""
        flags = bytes([PERSISTENT]) * len(self._contents)
        return _joined(
            next_start, self._seq_ids, self._times, flags, self._addresses, self._contents
        )


def _joined(
    next_start: int,
    seq_ids: "array[int]",
    times: "array[int]",
    flags: bytes,
    addresses: list[bytes],
    contents: list[bytes],
) -> bytes:
    sizes = array("I", map(len, contents))
    lengths = array("H", map(len, addresses))
    size = BLOCK_HEAD.size + len(contents) * BLOCK_ROW_BYTES + sum(sizes) + sum(lengths)
    return b"".join(
        (
            _FRAME.pack(size + 1, BLOCK),
            BLOCK_HEAD.pack(len(contents), next_start),
            _little_endian(seq_ids),
            _little_endian(times),
            _little_endian(sizes),
            _little_endian(lengths),
            flags,
            *addresses,
            *contents,
        )
    )


def _headerframe(content: bytes) -> bytes:
    size: int = _U32.unpack_from(content, 3)[0]
    return content[: size + _FRAME_OVERHEAD]


def _little_endian(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
