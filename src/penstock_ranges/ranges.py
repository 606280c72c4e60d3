"""Reading a queue by ranges: the frames of it, as bytes; no socket here.

AMQP pushes messages one by one and forgets who asked.  Spark wants to *name* a slice of a
queue ("messages 400 to 900"), read it, read it again after a crash, and acknowledge it
later as a whole.  How a frame looks and what there is besides is in ``frames``; requests
and their replies here are::

    OPEN   user, password, vhost, queue strings; u8 mode; u64 token; u8 force
           -> OPENED   string incarnation; i64 floor, acked, next, ready; u64 token
    WAIT   i64 from; u32 timeout_ms
           -> HEAD     i64 floor, acked, next, ready     once next > from, or in time
    PLAN   i64 start, end, max_messages, max_bytes
           -> PLANNED  i64 end, count, bytes; u8 more
    RANGE  i64 start, end; u32 max_bytes; u8 with_body
           -> BLOCK    see below
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
    u8  flags[count]                           bits of the broker's ``core.message``
    addresses, joined                          short string exchange, short string key
    contents, joined                           AMQP header frame, then body frames

A range with holes (expired, dropped or consumed messages) simply has fewer rows.
``next_start`` is where the next RANGE must begin; the range is done when it is the end.
"""

import sys
from array import array
from struct import Struct
from typing import Final, NamedTuple

from penstock_ranges.frames import (
    MalformedFrame,
    check_size,
    frame,
    number,
    string,
    take_number,
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

_I64 = Struct(">q")
_U64 = Struct(">Q")
_WAIT = Struct(">qI")
_HEAD = Struct(">qqqq")
_PLAN = Struct(">qqqq")
_PLANNED = Struct(">qqqB")
_RANGE = Struct(">qqIB")
BLOCK_HEAD: Final = Struct(">Iq")
BLOCK_ROW_BYTES: Final = 8 + 8 + 4 + 2 + 1
"""Of the columns, for each message."""


class OpenRequest(NamedTuple):
    """Who wants which queue, and how."""

    user: str
    password: str
    vhost: str
    queue: str
    mode: int
    token: int = 0
    force: bool = False


class Head(NamedTuple):
    """Where a queue begins and ends; see ``floor``, ``acked``, ``next``, ``ready`` above."""

    floor: int
    acked: int
    next_seq: int
    ready: int


class Opened(NamedTuple):
    incarnation: str
    head: Head
    token: int


class Block:
    """A BLOCK in columns.  ``payload`` has the addresses and contents that the lengths cut up.

    ``seq_ids`` and ``enqueued_at_ms`` are little-endian i64, as in the payload.  Raises
    MalformedFrame where the payload disagrees with its own lengths.
    """

    def __init__(self, payload: bytes | memoryview) -> None:
        if len(payload) < BLOCK_HEAD.size:
            raise MalformedFrame("BLOCK is cut short")
        self.count, self.next_start = BLOCK_HEAD.unpack_from(payload)
        count: int = self.count
        at = BLOCK_HEAD.size
        if len(payload) - at < count * BLOCK_ROW_BYTES:
            raise MalformedFrame(f"BLOCK of {count} messages is cut short in its columns")
        self.seq_ids = bytes(payload[at : at + 8 * count])
        at += 8 * count
        self.enqueued_at_ms = bytes(payload[at : at + 8 * count])
        at += 8 * count
        self.content_lengths = _numbers("I", payload[at : at + 4 * count])
        at += 4 * count
        self.address_lengths = _numbers("H", payload[at : at + 2 * count])
        at += 2 * count
        self.flags = bytes(payload[at : at + count])
        self.addresses_at = at + count
        self.contents_at = self.addresses_at + sum(self.address_lengths)
        self.payload = payload
        if self.contents_at + sum(self.content_lengths) != len(payload):
            raise MalformedFrame(f"BLOCK of {count} messages disagrees with its lengths")


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
    return frame(OPENED, string(incarnation) + _HEAD.pack(*head) + _U64.pack(token))


def decode_opened(payload: bytes) -> Opened:
    incarnation, at = take_string(payload, 0)
    check_size("OPENED", payload[at:], _HEAD.size + 8)
    token: int = _U64.unpack_from(payload, at + _HEAD.size)[0]
    return Opened(incarnation, decode_head(payload[at : at + _HEAD.size]), token)


def encode_head(head: Head) -> bytes:
    return frame(HEAD, _HEAD.pack(*head))


def decode_head(payload: bytes) -> Head:
    check_size("HEAD", payload, _HEAD.size)
    return Head._make(_HEAD.unpack(payload))


def encode_planned(end: int, count: int, content_bytes: int, more: bool) -> bytes:
    return frame(PLANNED, _PLANNED.pack(end, count, content_bytes, 1 if more else 0))


def decode_planned(payload: bytes) -> tuple[int, int, int, bool]:
    """(end, count, bytes, more)"""
    check_size("PLANNED", payload, _PLANNED.size)
    end, count, content_bytes, more = _PLANNED.unpack(payload)
    return end, count, content_bytes, more != 0


def encode_acked(count: int) -> bytes:
    return number(ACKED, count)


def decode_acked(payload: bytes) -> int:
    return take_number("ACKED", payload)


def encode_acked_some(count: int) -> bytes:
    return number(ACKED_SOME, count)


def decode_acked_some(payload: bytes) -> int:
    return take_number("ACKED_SOME", payload)


def encode_closed() -> bytes:
    return frame(CLOSED, b"")


# -- helpers ---------------------------------------------------------------------------------


def _numbers(code: str, data: bytes | memoryview) -> list[int]:
    """A little-endian column."""
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()
