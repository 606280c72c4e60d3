"""The range protocol: how Spark reads a queue, as frames; no socket here.

AMQP pushes messages one by one and forgets who asked.  Spark wants to *name* a slice of a
queue ("messages 400 to 900"), read it, read it again after a crash, and acknowledge it
later as a whole.  So a range client speaks this protocol on the broker's AMQP port; the
first eight bytes choose::

    client  MAGIC                        "PSTK" 0 0 0 1
    client  frame*                       requests, answered one by one and in order
    broker  frame*                       replies
    frame = u32 length, u8 kind, payload length counts kind and payload

Numbers are big-endian, strings are u16 length + UTF-8.  Requests and their replies::

    OPEN   user, password, vhost, queue strings; u8 mode; u64 token; u8 force
           -> OPENED   string incarnation; i64 floor, acked, next, ready; u64 token
    WAIT   i64 from; u32 timeout_ms
           -> HEAD     i64 floor, acked, next, ready     once next > from, or in time
    PLAN   i64 start, end, max_messages, max_bytes
           -> PLANNED  i64 end, count, bytes; u8 more
    RANGE  i64 start, end; u32 max_bytes; u8 with_body
           -> BLOCK    see ``encode_block``
    ACK    i64 upto
           -> ACKED    i64 count
    CLOSE  -> CLOSED
    any    -> ERROR    u16 code; string text        and the broker closes

``floor`` is the lowest message that can still be read, ``next`` the number the next message
will get, ``ready`` how many can be read.  Everything below ``acked`` was acknowledged by a
range reader since the broker started; ``floor`` may be higher, because messages expire, are
consumed or purged, and because a restarted broker leaves a gap in the numbers.

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

from penstock.core.errors import PenstockError
from penstock.core.message import Message

MAGIC: Final = b"PSTK\x00\x00\x00\x01"

OPEN: Final = 1
WAIT: Final = 2
PLAN: Final = 3
RANGE: Final = 4
ACK: Final = 5
CLOSE: Final = 6
REPLY: Final = 64
"""A reply's kind is its request's kind plus this."""
OPENED: Final = 65
HEAD: Final = 66
PLANNED: Final = 67
BLOCK: Final = 68
ACKED: Final = 69
CLOSED: Final = 70
ERROR: Final = 127

BROWSE: Final = 0
READ: Final = 1
JOIN: Final = 2

MALFORMED: Final = 1
ACCESS_REFUSED: Final = 2
NOT_FOUND: Final = 3
LOCKED: Final = 4
"""Somebody else reads the queue: a consumer or another range reader."""
FENCED: Final = 5
"""A newer reader took the lease over; the old one must stop."""
LEASE_GONE: Final = 6
"""Nobody holds the lease (broker restarted, owner away too long): open again."""
REFUSED: Final = 7
"""Any other request the broker cannot grant."""

REQUEST_MAX_BYTES: Final = 1 << 20
REPLY_MAX_BYTES: Final = 0xFFFFFFFF

_FRAME = Struct(">IB")
_U16 = Struct(">H")
_U32 = Struct(">I")
_I64 = Struct(">q")
_U64 = Struct(">Q")
_WAIT = Struct(">qI")
_HEAD = Struct(">qqqq")
_PLAN = Struct(">qqqq")
_PLANNED = Struct(">qqqB")
_RANGE = Struct(">qqIB")
_BLOCK = Struct(">Iq")
_ROW_BYTES: Final = 8 + 8 + 4 + 2 + 1
_FRAME_OVERHEAD: Final = 8
"""Bytes of an AMQP frame around its payload: type, channel, size, end mark."""


class MalformedFrame(PenstockError):
    """The peer broke the grammar above."""


@final
class FrameSplitter:
    """Bytes in, whole frames out; what is left of a frame waits here."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes: int = max_bytes
        self._rest: list[bytes] = []
        self._rest_bytes: int = 0
        self._needed_bytes: int = 4

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames completed by ``data`` as (kind, payload)."""
        self._rest.append(data)
        self._rest_bytes += len(data)
        if self._rest_bytes < self._needed_bytes:
            return []  # joined only when a frame is complete: no copying piece by piece
        buffer = b"".join(self._rest)
        self._needed_bytes = 4
        frames: list[tuple[int, bytes]] = []
        at = 0
        while len(buffer) - at >= 4:
            length: int = _U32.unpack_from(buffer, at)[0]
            if length == 0 or length > self._max_bytes:
                raise MalformedFrame(f"frame of {length} bytes, allowed are 1 to {self._max_bytes}")
            if len(buffer) - at - 4 < length:
                self._needed_bytes = 4 + length
                break
            frames.append((buffer[at + 4], buffer[at + 5 : at + 4 + length]))
            at += 4 + length
        self._rest = [buffer[at:]]
        self._rest_bytes = len(buffer) - at
        return frames


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
    parts = [_string(name) for name in names]
    parts.append(bytes((request.mode,)))
    parts.append(_U64.pack(request.token))
    parts.append(bytes((1 if request.force else 0,)))
    return _frame(OPEN, b"".join(parts))


def decode_open(payload: bytes) -> OpenRequest:
    user, at = _take_string(payload, 0)
    password, at = _take_string(payload, at)
    vhost, at = _take_string(payload, at)
    queue, at = _take_string(payload, at)
    if len(payload) - at != 10:
        raise MalformedFrame(f"OPEN has {len(payload) - at} bytes after its names, not 10")
    mode = payload[at]
    if mode > JOIN:
        raise MalformedFrame(f"OPEN with unknown mode {mode}")
    token: int = _U64.unpack_from(payload, at + 1)[0]
    return OpenRequest(user, password, vhost, queue, mode, token, payload[at + 9] != 0)


def encode_wait(start: int, timeout_ms: int) -> bytes:
    return _frame(WAIT, _WAIT.pack(start, timeout_ms))


def decode_wait(payload: bytes) -> tuple[int, int]:
    """(from, timeout_ms)"""
    _check_size("WAIT", payload, _WAIT.size)
    start, timeout_ms = _WAIT.unpack(payload)
    return start, timeout_ms


def encode_plan(start: int, end: int, max_messages: int, max_bytes: int) -> bytes:
    return _frame(PLAN, _PLAN.pack(start, end, max_messages, max_bytes))


def decode_plan(payload: bytes) -> tuple[int, int, int, int]:
    """(start, end, max_messages, max_bytes)"""
    _check_size("PLAN", payload, _PLAN.size)
    start, end, max_messages, max_bytes = _PLAN.unpack(payload)
    return start, end, max_messages, max_bytes


def encode_range(start: int, end: int, max_bytes: int, with_body: bool) -> bytes:
    return _frame(RANGE, _RANGE.pack(start, end, max_bytes, 1 if with_body else 0))


def decode_range(payload: bytes) -> tuple[int, int, int, bool]:
    """(start, end, max_bytes, with_body)"""
    _check_size("RANGE", payload, _RANGE.size)
    start, end, max_bytes, with_body = _RANGE.unpack(payload)
    return start, end, max_bytes, with_body != 0


def encode_ack(upto: int) -> bytes:
    return _frame(ACK, _I64.pack(upto))


def decode_ack(payload: bytes) -> int:
    _check_size("ACK", payload, 8)
    upto: int = _I64.unpack(payload)[0]
    return upto


def encode_close() -> bytes:
    return _frame(CLOSE, b"")


# -- replies ---------------------------------------------------------------------------------


def encode_opened(incarnation: str, head: Head, token: int) -> bytes:
    return _frame(OPENED, _string(incarnation) + _pack_head(head) + _U64.pack(token))


def decode_opened(payload: bytes) -> tuple[str, Head, int]:
    """(incarnation, head, token)"""
    incarnation, at = _take_string(payload, 0)
    _check_size("OPENED", payload[at:], _HEAD.size + 8)
    token: int = _U64.unpack_from(payload, at + _HEAD.size)[0]
    return incarnation, decode_head(payload[at : at + _HEAD.size]), token


def encode_head(head: Head) -> bytes:
    return _frame(HEAD, _pack_head(head))


def decode_head(payload: bytes) -> Head:
    _check_size("HEAD", payload, _HEAD.size)
    floor, acked, next_seq, ready = _HEAD.unpack(payload)
    return Head(floor, acked, next_seq, ready)


def encode_planned(end: int, count: int, content_bytes: int, more: bool) -> bytes:
    return _frame(PLANNED, _PLANNED.pack(end, count, content_bytes, 1 if more else 0))


def decode_planned(payload: bytes) -> tuple[int, int, int, bool]:
    """(end, count, bytes, more)"""
    _check_size("PLANNED", payload, _PLANNED.size)
    end, count, content_bytes, more = _PLANNED.unpack(payload)
    return end, count, content_bytes, more != 0


def encode_acked(count: int) -> bytes:
    return _frame(ACKED, _I64.pack(count))


def decode_acked(payload: bytes) -> int:
    _check_size("ACKED", payload, 8)
    count: int = _I64.unpack(payload)[0]
    return count


def encode_closed() -> bytes:
    return _frame(CLOSED, b"")


def encode_error(code: int, text: str) -> bytes:
    return _frame(ERROR, _U16.pack(code) + _string(text))


def decode_error(payload: bytes) -> tuple[int, str]:
    """(code, text)"""
    if len(payload) < 4:
        raise MalformedFrame("ERROR is cut short")
    code: int = _U16.unpack_from(payload, 0)[0]
    text, at = _take_string(payload, 2)
    _check_size("ERROR", payload[at:], 0)
    return code, text


def encode_block(messages: list[Message], next_start: int, with_body: bool) -> bytes:
    """One BLOCK; without bodies a content is cut after its header frame."""
    contents = [m.content if with_body else _header_frame(m.content) for m in messages]
    addresses = [m.address for m in messages]
    flags = bytes([m.flags & 0xFF for m in messages])
    return _frame(
        BLOCK,
        b"".join(
            (
                _BLOCK.pack(len(messages), next_start),
                _little_endian(array("q", [m.seq_id for m in messages])),
                _little_endian(array("q", [m.enqueued_at_ms for m in messages])),
                _little_endian(array("I", [len(content) for content in contents])),
                _little_endian(array("H", [len(address) for address in addresses])),
                flags,
                b"".join(addresses),
                b"".join(contents),
            )
        ),
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


def _frame(kind: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) + 1, kind) + payload


def _pack_head(head: Head) -> bytes:
    return _HEAD.pack(head.floor, head.acked, head.next_seq, head.ready)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0xFFFF:
        raise MalformedFrame(f"string of {len(data)} bytes, at most 65535 fit")
    return _U16.pack(len(data)) + data


def _take_string(payload: bytes, at: int) -> tuple[str, int]:
    """(text, position after it)"""
    if len(payload) - at < 2:
        raise MalformedFrame("string is cut short")
    length: int = _U16.unpack_from(payload, at)[0]
    at += 2
    if len(payload) - at < length:
        raise MalformedFrame("string is cut short")
    try:
        return payload[at : at + length].decode(), at + length
    except UnicodeDecodeError:
        raise MalformedFrame("string is not UTF-8") from None


def _check_size(name: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise MalformedFrame(f"{name} has {len(payload)} bytes where {size} belong")


def _header_frame(content: bytes) -> bytes:
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
