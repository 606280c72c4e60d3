"""Reading a queue by ranges: the frames of it, as bytes; no socket here.

AMQP pushes messages one by one and forgets who asked.  Spark wants to *name* a slice of a
queue ("messages 400 to 900"), read it, read it again after a crash, and acknowledge it
later as a whole.  How a frame looks and what there is besides is in ``codec.frames``; requests
and their replies here are::

    OPEN   user, password, vhost, queue strings; u8 mode; u64 token; u8 force
           -> OPENED   string incarnation; i64 floor, acked, next, ready; u64 token
    WAIT   i64 from; u32 timeout_ms
           -> HEAD     i64 floor, acked, next, ready     once next > from, or in time
    PLAN   i64 start, end, max_messages, max_bytes
           -> PLANNED  i64 end, count, bytes; u8 more
    RANGE  i64 start, end; u32 max_bytes; u8 with_body
           -> BLOCK    see ``encode_block``
    ACK    i64 upto; u8 1, if the answer is to come at once, with 0
           -> ACKED    i64 count
    ACK_SOME  i64 seq_id, ascending, 1 to ACK_SOME_MAX of them
           -> ACKED_SOME  i64 count
    CLOSE  -> CLOSED

``floor`` is the lowest message that can still be read, ``next`` the number the next message
will get, ``ready`` how many can be read.  Everything below ``acked`` was acknowledged by a
range reader since the broker started; ``floor`` may be higher, because messages expire, are
consumed or purged, and because a restarted broker leaves a gap in the numbers.

An ACK that is answered at once holds all the same, unless the broker is killed in the next seconds:
then the reader, which comes back with its last position, acknowledges again.

ACK_SOME leaves the messages in between where they are; those that are gone already count for
nothing, so it may be repeated.

Modes: BROWSE looks and cannot acknowledge; READ owns the queue's lease (at most one reader
does) and may ACK; JOIN reads for the owner of the lease and shows its token.

A BLOCK is columnar because that is what costs least at both ends: the broker joins bytes
it already has, and the reader wraps the columns as Arrow buffers.  Columns are therefore
little-endian, as Arrow is::

    u32 count; i64 next_start                  big-endian like everything else
    i64 seq_id[count]
    i64 enqueued_at_ms[count]
    u32 content_length[count]
    u16 address_length[count]
    u8  flags[count]                           bits of ``core.message``
    addresses, joined                          short string exchange, short string key
    contents, joined                           AMQP header frame, then body frames

A range with holes (expired, dropped or consumed messages) simply has fewer rows.
``next_start`` is where the next RANGE must begin; the range is done when it is the end.
"""

import sys
from array import array
from struct import Struct
from typing import Final, final

from penstock.core.message import Message
from penstock.protocols.ranges.codec.frames import (
    MalformedFrame,
    check_size,
    frame,
    string,
    take_string,
)

OPEN: Final = 1
WAIT: Final = 2
PLAN: Final = 3
RANGE: Final = 4
ACK: Final = 5
CLOSE: Final = 6
ACK_SOME: Final = 7
OPENED: Final = 65
HEAD: Final = 66
PLANNED: Final = 67
BLOCK: Final = 68
ACKED: Final = 69
CLOSED: Final = 70
ACKED_SOME: Final = 71

BROWSE: Final = 0
READ: Final = 1
JOIN: Final = 2

ACK_SOME_MAX: Final = 512
"""Each may cost reading a block of a segment."""

_U32 = Struct(">I")
_I64 = Struct(">q")
_U64 = Struct(">Q")
_WAIT = Struct(">qI")
_HEAD = Struct(">qqqq")
_PLAN = Struct(">qqqq")
_PLANNED = Struct(">qqqB")
_RANGE = Struct(">qqIB")
_BLOCK = Struct(">Iq")
_FRAME = Struct(">IB")
_ROW_BYTES: Final = 8 + 8 + 4 + 2 + 1
_FRAME_OVERHEAD: Final = 8
"""Bytes of an AMQP frame around its payload: type, channel, size, end mark."""


@final
class OpenRequest:
    """Who wants which queue, and how."""

    def __init__(
        self,
        user: str,
        password: str,
        vhost: str,
        queue: str,
        mode: int,
        token: int = 0,
        force: bool = False,
    ) -> None:
        self.user: str = user
        self.password: str = password
        self.vhost: str = vhost
        self.queue: str = queue
        self.mode: int = mode
        self.token: int = token
        self.force: bool = force


@final
class Head:
    """Where a queue begins and ends; see ``floor``, ``acked``, ``next``, ``ready`` above."""

    def __init__(self, floor: int, acked: int, next_seq: int, ready: int) -> None:
        self.floor: int = floor
        self.acked: int = acked
        self.next_seq: int = next_seq
        self.ready: int = ready


@final
class RangeBlock:
    """A decoded BLOCK; parallel lists, one entry per message."""

    def __init__(self, next_start: int) -> None:
        self.next_start: int = next_start
        self.seq_ids: list[int] = []
        self.enqueued_at_ms: list[int] = []
        self.flags: list[int] = []
        self.addresses: list[bytes] = []
        self.contents: list[bytes] = []


# -- requests --------------------------------------------------------------------------------


def encode_open(request: OpenRequest) -> bytes:
    names = (request.user, request.password, request.vhost, request.queue)
    parts = [string(name) for name in names]
    parts.append(bytes((request.mode,)))
    parts.append(_U64.pack(request.token))
    parts.append(bytes((1 if request.force else 0,)))
    return frame(OPEN, b"".join(parts))


def decode_open(payload: bytes) -> OpenRequest:
    user, at = take_string(payload, 0)
    password, at = take_string(payload, at)
    vhost, at = take_string(payload, at)
    queue, at = take_string(payload, at)
    if len(payload) - at != 10:
        raise MalformedFrame(f"OPEN has {len(payload) - at} bytes after its names, not 10")
    mode = payload[at]
    if mode > JOIN:
        raise MalformedFrame(f"OPEN with unknown mode {mode}")
    token: int = _U64.unpack_from(payload, at + 1)[0]
    return OpenRequest(user, password, vhost, queue, mode, token, payload[at + 9] != 0)


def encode_wait(start: int, timeout_ms: int) -> bytes:
    return frame(WAIT, _WAIT.pack(start, timeout_ms))


def decode_wait(payload: bytes) -> tuple[int, int]:
    """(from, timeout_ms)"""
    check_size("WAIT", payload, _WAIT.size)
    start, timeout_ms = _WAIT.unpack(payload)
    return start, timeout_ms


def encode_plan(start: int, end: int, max_messages: int, max_bytes: int) -> bytes:
    return frame(PLAN, _PLAN.pack(start, end, max_messages, max_bytes))


def decode_plan(payload: bytes) -> tuple[int, int, int, int]:
    """(start, end, max_messages, max_bytes)"""
    check_size("PLAN", payload, _PLAN.size)
    start, end, max_messages, max_bytes = _PLAN.unpack(payload)
    return start, end, max_messages, max_bytes


def encode_range(start: int, end: int, max_bytes: int, with_body: bool) -> bytes:
    return frame(RANGE, _RANGE.pack(start, end, max_bytes, 1 if with_body else 0))


def decode_range(payload: bytes) -> tuple[int, int, int, bool]:
    """(start, end, max_bytes, with_body)"""
    check_size("RANGE", payload, _RANGE.size)
    start, end, max_bytes, with_body = _RANGE.unpack(payload)
    return start, end, max_bytes, with_body != 0


def encode_ack(upto: int, *, later: bool = False) -> bytes:
    """``later``: the answer comes at once, with 0; the messages go in the next turns."""
    return frame(ACK, _I64.pack(upto) + (b"\x01" if later else b""))


def decode_ack(payload: bytes) -> tuple[int, bool]:
    later = payload[8:] == b"\x01"
    check_size("ACK", payload, 9 if later else 8)
    upto: int = _I64.unpack_from(payload)[0]
    return upto, later


def encode_ack_some(seq_ids: list[int]) -> bytes:
    return frame(ACK_SOME, b"".join([_I64.pack(seq_id) for seq_id in seq_ids]))


def decode_ack_some(payload: bytes) -> list[int]:
    count = len(payload) // 8
    check_size("ACK_SOME", payload, 8 * count)
    if count < 1 or count > ACK_SOME_MAX:
        raise MalformedFrame(f"ACK_SOME of {count} messages, allowed are 1 to {ACK_SOME_MAX}")
    seq_ids: list[int] = [_I64.unpack_from(payload, 8 * place)[0] for place in range(count)]
    for place in range(1, count):
        if seq_ids[place] <= seq_ids[place - 1]:
            raise MalformedFrame("ACK_SOME whose numbers do not ascend")
    return seq_ids


def encode_close() -> bytes:
    return frame(CLOSE, b"")


# -- replies ---------------------------------------------------------------------------------


def encode_opened(incarnation: str, head: Head, token: int) -> bytes:
    return frame(OPENED, string(incarnation) + _pack_head(head) + _U64.pack(token))


def decode_opened(payload: bytes) -> tuple[str, Head, int]:
    """(incarnation, head, token)"""
    incarnation, at = take_string(payload, 0)
    check_size("OPENED", payload[at:], _HEAD.size + 8)
    token: int = _U64.unpack_from(payload, at + _HEAD.size)[0]
    return incarnation, decode_head(payload[at : at + _HEAD.size]), token


def encode_head(head: Head) -> bytes:
    return frame(HEAD, _pack_head(head))


def decode_head(payload: bytes) -> Head:
    check_size("HEAD", payload, _HEAD.size)
    floor, acked, next_seq, ready = _HEAD.unpack(payload)
    return Head(floor, acked, next_seq, ready)


def encode_planned(end: int, count: int, content_bytes: int, more: bool) -> bytes:
    return frame(PLANNED, _PLANNED.pack(end, count, content_bytes, 1 if more else 0))


def decode_planned(payload: bytes) -> tuple[int, int, int, bool]:
    """(end, count, bytes, more)"""
    check_size("PLANNED", payload, _PLANNED.size)
    end, count, content_bytes, more = _PLANNED.unpack(payload)
    return end, count, content_bytes, more != 0


def encode_acked(count: int) -> bytes:
    return frame(ACKED, _I64.pack(count))


def decode_acked(payload: bytes) -> int:
    check_size("ACKED", payload, 8)
    count: int = _I64.unpack(payload)[0]
    return count


def encode_acked_some(count: int) -> bytes:
    return frame(ACKED_SOME, _I64.pack(count))


def decode_acked_some(payload: bytes) -> int:
    check_size("ACKED_SOME", payload, 8)
    count: int = _I64.unpack(payload)[0]
    return count


def encode_closed() -> bytes:
    return frame(CLOSED, b"")


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
    size = _BLOCK.size + len(messages) * _ROW_BYTES + sum(sizes) + sum(lengths)
    return b"".join(
        (
            _FRAME.pack(size + 1, BLOCK),
            _BLOCK.pack(len(messages), next_start),
            _little_endian(array("q", [message.seq_id for message in messages])),
            _little_endian(array("q", [message.enqueued_at_ms for message in messages])),
            _little_endian(sizes),
            _little_endian(lengths),
            bytes([message.flags & 0xFF for message in messages]),
            *addresses,
            *contents,
        )
    )


def decode_block(payload: bytes) -> RangeBlock:
    if len(payload) < _BLOCK.size:
        raise MalformedFrame("BLOCK is cut short")
    count, next_start = _BLOCK.unpack_from(payload, 0)
    at: int = _BLOCK.size
    if len(payload) - at < count * _ROW_BYTES:
        raise MalformedFrame(f"BLOCK of {count} messages is cut short in its columns")
    block = RangeBlock(next_start)
    block.seq_ids = _column("q", payload[at : at + 8 * count])
    at += 8 * count
    block.enqueued_at_ms = _column("q", payload[at : at + 8 * count])
    at += 8 * count
    content_lengths = _column("I", payload[at : at + 4 * count])
    at += 4 * count
    address_lengths = _column("H", payload[at : at + 2 * count])
    at += 2 * count
    block.flags = list(payload[at : at + count])
    at += count
    if len(payload) - at != sum(address_lengths) + sum(content_lengths):
        raise MalformedFrame(f"BLOCK of {count} messages disagrees with its lengths")
    block.addresses = _cut(payload, at, address_lengths)
    block.contents = _cut(payload, at + sum(address_lengths), content_lengths)
    return block


# -- helpers ---------------------------------------------------------------------------------


def _pack_head(head: Head) -> bytes:
    return _HEAD.pack(head.floor, head.acked, head.next_seq, head.ready)


def _headerframe(content: bytes) -> bytes:
    size: int = _U32.unpack_from(content, 3)[0]
    return content[: size + _FRAME_OVERHEAD]


def _little_endian(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _column(code: str, data: bytes) -> list[int]:
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()


def _cut(payload: bytes, at: int, lengths: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for length in lengths:
        pieces.append(payload[at : at + length])
        at += length
    return pieces
