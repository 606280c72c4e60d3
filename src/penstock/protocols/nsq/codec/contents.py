"""The content of a message published by NSQ: an AMQP content of a fixed layout.

    body ─► ``ContentMaker.begin``, ``make`` ─► content
    content ─► ``id_of``, ``timestamp_ns``, ``body`` ─► message frame

A message of NSQ is an id, a time and a body.  It rests as an AMQP content like any other, so it
can be consumed by AMQP, dead-lettered, browsed and read by Spark: the id is ``message-id``, the
time ``timestamp`` in seconds and the header ``x-nsq-timestamp-ns`` exactly.  The layout is fixed,
so NSQ consumers get all three by slicing:

      0  frame 2, channel 1, size          45  time, 8 bytes
     11  size of the body, 8 bytes         53  delivery mode
     19  flags of the properties           54  short string of 16 bytes: the id at 55
     21  table of one header               71  timestamp in seconds, frame end
     25  its name, and 'l'                 80  frame 3, channel 1, size, the body at 87, frame end

Of that only the id, the two sizes and the body differ within a run, and the sizes are made anew
only when they change: a message costs one slice and one join.

A content that AMQP published looks like anything.  Its id is made of its place in its queue, the
same at each delivery; its time is when the queue took it; its body may be in several frames.
"""

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from penstock.core.message import Message, body_size
from penstock.protocols.nsq.codec.ids import ID_BYTES

TIME_AT: Final[i64] = 45
ID_AT: Final[i64] = 55
ID_END: Final[i64] = 71
BODY_FRAME_SIZE_AT: Final[i64] = 83
BODY_AT: Final[i64] = 87
OUTSIDE_BODY_BYTES: Final[i64] = 88
"""Bytes of a content that are not its body."""
PERSISTENT_MODE: Final = 2
TRANSIENT_MODE: Final = 1

_FRAME: Final = b"\x02\x00\x01\x00\x00\x00\x48\x00\x3c\x00\x00"
_HEADERS: Final = b"\x30\xc0\x00\x00\x00\x1c\x12x-nsq-timestamp-nsl"
_FRAME_START: Final[i64] = 0x020001000000_4800
_FRAME_REST: Final[i64] = 0x3C0000
_HEADERS_1: Final[i64] = 0x30C0_0000001C_12_78
_HEADERS_2: Final[i64] = 0x2D6E73712D74696D
_HEADERS_3: Final[i64] = 0x657374616D702D6E
_HEADERS_4: Final[i64] = 0x736C
"""The same two, as the numbers that are found at 0, 7, 19, 27, 35 and 43: asked of every message,
and comparing numbers costs nothing."""
_BODY_FRAME: Final = b"\xce\x03\x00\x01"
_END: Final = b"\xce"


@final
class ContentMaker:
    """For messages of one run: ``begin``, then ``make`` each."""

    def __init__(self) -> None:
        self._size: i64 = -1
        self._to_id: bytes = b""
        self._from_id: bytes = b""
        self._properties: bytes = b""
        self._seconds: bytes = b""
        self._prefix: bytes = b""

    def begin(self, now_ns: i64, mode: int, id_prefix: bytes) -> None:
        """All are of this time and delivery mode, and their ids begin so."""
        self._prefix = id_prefix
        self._properties = b"%b%b%c\x10" % (_HEADERS, int(now_ns).to_bytes(8, "big"), mode)
        self._seconds = int(now_ns // 1_000_000_000).to_bytes(8, "big") + _BODY_FRAME
        self._size = -1

    def make(self, id_suffix: bytes, body: bytes) -> bytes:
        size: i64 = len(body)
        if size != self._size:
            self._size = size
            self._to_id = b"%b%b%b%b" % (
                _FRAME,
                int(size).to_bytes(8, "big"),
                self._properties,
                self._prefix,
            )
            self._from_id = self._seconds + int(size).to_bytes(4, "big")
        return b"".join([self._to_id, id_suffix, self._from_id, body, _END])


def is_ours(content: bytes) -> bool:
    """Is it in the layout above?"""
    size: i64 = len(content) - OUTSIDE_BODY_BYTES
    return (
        size > 0
        and read_i64_be(content, 19) == _HEADERS_1
        and read_i64_be(content, 27) == _HEADERS_2
        and read_i64_be(content, 35) == _HEADERS_3
        and i64(read_i16_be(content, 43)) == _HEADERS_4
        and read_i64_be(content, 0) == _FRAME_START
        and i64(read_i32_be(content, 7)) == _FRAME_REST
        and content[54] == ID_BYTES
        and i64(read_i32_be(content, BODY_FRAME_SIZE_AT)) == size
        and body_size(content) == size
    )


def foreign_id(message: Message) -> bytes:
    """Of a message AMQP published: the same whenever this queue delivers it."""
    # Times of ids leave the highest bit alone until the year 2159: it keeps both kinds apart.
    number = int(message.enqueued_at_ms & 0xFFFFFFFFFF) << 20 | int(message.seq_id & 0xFFFFF)
    return b"%016x" % (1 << 63 | number)


def id_of(message: Message) -> bytes:
    content = message.content
    return content[ID_AT:ID_END] if is_ours(content) else foreign_id(message)


def timestamp_ns(message: Message) -> i64:
    content = message.content
    if is_ours(content):
        return read_i64_be(content, TIME_AT)
    return message.enqueued_at_ms * 1_000_000


def publish_time_ms(message: Message) -> int:
    return int(timestamp_ns(message) // 1_000_000)


def body(content: bytes) -> bytes:
    """The body, published by an NSQ or an AMQP client."""
    if is_ours(content):
        return content[BODY_AT : len(content) - 1]
    return foreign_body(content)


def foreign_body(content: bytes) -> bytes:
    """Of any content: its body frames, joined."""
    parts: list[bytes] = []
    length: i64 = len(content)
    position = 8 + i64(read_i32_be(content, 3))
    while position < length:
        size = i64(read_i32_be(content, position + 3))
        parts.append(content[position + 7 : position + 7 + size])
        position += size + 8
    return parts[0] if len(parts) == 1 else b"".join(parts)
