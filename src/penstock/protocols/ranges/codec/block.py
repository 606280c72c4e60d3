"""The reply BLOCK of ``penstock_ranges.ranges``, made of messages; compiled, as it is megabytes."""

import sys
from array import array
from struct import Struct
from typing import Final

from penstock.core.message import Message
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
    addresses = [message.address for message in messages]
    sizes = array("I", map(len, contents))
    lengths = array("H", map(len, addresses))
    size = BLOCK_HEAD.size + len(messages) * BLOCK_ROW_BYTES + sum(sizes) + sum(lengths)
    return b"".join(
        (
            _FRAME.pack(size + 1, BLOCK),
            BLOCK_HEAD.pack(len(messages), next_start),
            _little_endian(array("q", [message.seq_id for message in messages])),
            _little_endian(array("q", [int(message.enqueued_at_ms) for message in messages])),
            _little_endian(sizes),
            _little_endian(lengths),
            bytes([message.flags & 0xFF for message in messages]),
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
