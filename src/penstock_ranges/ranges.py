"""Reading a queue by ranges: the frames of it, as bytes; no socket here.

AMQP pushes messages one by one and forgets who asked.  Spark wants to *name* a slice of a
queue ("messages 400 to 900"), read it, read it again after a crash, and acknowledge it
later as a whole.  How a frame looks and what there is besides is in ``frames``; requests
and their replies here are::

    OPEN   user, password, vhost, queue strings; u8 mode; u64 token; u8 force
           -> OPENED   string incarnation; i64 floor, acked, next, ready; u64 token
    GROUP  string name
           -> GROUPED  i64 position
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

A *stream* is opened by BROWSE, by any number of readers: its messages stay, and each keeps its
number until retention takes it; a request for one that is taken is answered by the error GONE.  A
reader with a GROUP has its place kept by the broker: START and ACK are those of the group from then
on, retention is held back for it (within bounds), and ``position`` is what is next for it, -1 if
the broker knows nothing of it.  PLAN goes by mean sizes there.

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
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from penstock_ranges.frames import Form, MalformedFrame, frame

OPEN: Final = 1
WAIT: Final = 2
PLAN: Final = 3
RANGE: Final = 4
ACK: Final = 5
CLOSE: Final = 6
ACK_SOME: Final = 7
GROUP: Final = 8
OPENED: Final = 65
HEAD: Final = 66
PLANNED: Final = 67
BLOCK: Final = 68
ACKED: Final = 69
CLOSED: Final = 70
ACKED_SOME: Final = 71
GROUPED: Final = 72

BROWSE: Final = 0
READ: Final = 1
JOIN: Final = 2

ACK_SOME_MAX: Final = 512
"""Each may cost reading a block of a segment."""

BLOCK_HEAD: Final = Struct(">Iq")
BLOCK_ROW_BYTES: Final = 8 + 8 + 4 + 2 + 1
"""Of the columns, for each message."""


class OpenRequest(NamedTuple):
    """User, queue, mode and lease of a reader."""

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

_OPEN = Form[OpenRequest](OPEN, "OPEN", "ssssBQ?", OpenRequest)
_GROUP = Form[str](GROUP, "GROUP", "s")
encode_group, decode_group = _GROUP.encode, _GROUP.decode
_WAIT = Form[tuple[int, int]](WAIT, "WAIT", "qI")  # from, timeout_ms
encode_wait, decode_wait = _WAIT.encode, _WAIT.decode
# start, end, max_messages, max_bytes
_PLAN = Form[tuple[int, int, int, int]](PLAN, "PLAN", "qqqq")
encode_plan, decode_plan = _PLAN.encode, _PLAN.decode
# start, end, max_bytes, with_body
_RANGE = Form[tuple[int, int, int, bool]](RANGE, "RANGE", "qqI?")
encode_range, decode_range = _RANGE.encode, _RANGE.decode
_ACK = Form[int](ACK, "ACK", "q")
_ACK_LATER = Form[tuple[int, bool]](ACK, "ACK", "q?")
_CLOSE = Form[tuple[()]](CLOSE, "CLOSE", "")
encode_close = _CLOSE.encode


def encode_open(request: OpenRequest) -> bytes:
    return _OPEN.encode(*request)


def decode_open(payload: bytes) -> OpenRequest:
    request = _OPEN.decode(payload)
    if request.mode > JOIN:
        raise MalformedFrame(f"OPEN with unknown mode {request.mode}")
    return request


def encode_ack(upto: int, *, later: bool = False) -> bytes:
    """``later``: the answer comes at once, with 0; the messages go in the next turns."""
    return _ACK_LATER.encode(upto, True) if later else _ACK.encode(upto)


def decode_ack(payload: bytes) -> tuple[int, bool]:
    """(upto, later)"""
    if payload[8:] == b"\x01":
        return _ACK_LATER.decode(payload)
    return _ACK.decode(payload), False


def encode_ack_some(seq_ids: list[int]) -> bytes:
    return frame(ACK_SOME, Struct(f">{len(seq_ids)}q").pack(*seq_ids))


def decode_ack_some(payload: bytes) -> list[int]:
    count, rest = divmod(len(payload), 8)
    if rest or count < 1 or count > ACK_SOME_MAX:
        raise MalformedFrame(f"ACK_SOME of {count} messages, allowed are 1 to {ACK_SOME_MAX}")
    seq_ids = list(Struct(f">{count}q").unpack(payload))
    if any(later <= earlier for earlier, later in pairwise(seq_ids)):
        raise MalformedFrame("ACK_SOME whose numbers do not ascend")
    return seq_ids


# -- replies ---------------------------------------------------------------------------------

_OPENED = Form[tuple[str, int, int, int, int, int]](OPENED, "OPENED", "sqqqqQ")
_GROUPED = Form[int](GROUPED, "GROUPED", "q")
encode_grouped, decode_grouped = _GROUPED.encode, _GROUPED.decode
_HEAD = Form[Head](HEAD, "HEAD", "qqqq", Head)
decode_head = _HEAD.decode
# end, count, content_bytes, more
_PLANNED = Form[tuple[int, int, int, bool]](PLANNED, "PLANNED", "qqq?")
encode_planned, decode_planned = _PLANNED.encode, _PLANNED.decode
_ACKED = Form[int](ACKED, "ACKED", "q")
encode_acked, decode_acked = _ACKED.encode, _ACKED.decode
_ACKED_SOME = Form[int](ACKED_SOME, "ACKED_SOME", "q")
encode_acked_some, decode_acked_some = _ACKED_SOME.encode, _ACKED_SOME.decode
_CLOSED = Form[tuple[()]](CLOSED, "CLOSED", "")
encode_closed = _CLOSED.encode


def encode_opened(incarnation: str, head: Head, token: int) -> bytes:
    return _OPENED.encode(incarnation, *head, token)


def decode_opened(payload: bytes) -> Opened:
    incarnation, *head, token = _OPENED.decode(payload)
    return Opened(incarnation, Head(*head), token)


def encode_head(head: Head) -> bytes:
    return _HEAD.encode(*head)


# -- helpers ---------------------------------------------------------------------------------


def _numbers(code: str, data: bytes | memoryview) -> list[int]:
    """A little-endian column."""
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()
