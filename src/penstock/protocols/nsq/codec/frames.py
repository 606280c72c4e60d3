"""Frames to an NSQ client (hot): answers, errors and messages.

size 4 | type 4 | data          size counts type and data; everything is big-endian
message: time 8 | attempts 2 | id 16 | body
"""

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from penstock.core.message import ATTEMPTS_MAX, ATTEMPTS_SHIFT, Message
from penstock.protocols.nsq.codec.contents import (
    BODY_AT,
    OUTSIDE_BODY_BYTES,
    TIME_AT,
    foreign_body,
    is_ours,
)

RESPONSE: Final = 0
ERROR: Final = 1
MESSAGE: Final = 2
_OUTSIDE_BODY: Final[i64] = 4 + 8 + 2 + 16


def response_frame(data: bytes) -> bytes:
    return _frame(RESPONSE, data)


def error_frame(code: str, text: str) -> bytes:
    """As nsqd writes them: the code, a space, the reason."""
    return _frame(ERROR, f"{code} {text}".encode("utf-8", "surrogateescape"))


def _frame(kind: int, data: bytes) -> bytes:
    return (4 + len(data)).to_bytes(4, "big") + kind.to_bytes(4, "big") + data


OK: Final = response_frame(b"OK")
HEARTBEAT: Final = response_frame(b"_heartbeat_")
CLOSE_WAIT: Final = response_frame(b"CLOSE_WAIT")
BAD_PROTOCOL: Final = _frame(ERROR, b"E_BAD_PROTOCOL")


def write_message(out: BytesWriter, message: Message, key: bytes) -> None:
    """Append the frame of a message that is in flight under that id."""
    content = message.content
    attempts = (message.flags >> ATTEMPTS_SHIFT) & ATTEMPTS_MAX
    short = i16(attempts if attempts < 0x8000 else attempts - 0x10000)
    if is_ours(content):
        size: i64 = len(content) - OUTSIDE_BODY_BYTES
        write_i32_be(out, i32(_OUTSIDE_BODY + size))
        write_i32_be(out, MESSAGE)
        out.write(content[TIME_AT : TIME_AT + 8])
        write_i16_be(out, short)
        out.write(key)
        out.write(content[BODY_AT : BODY_AT + size])
        return
    body = foreign_body(content)
    write_i32_be(out, i32(_OUTSIDE_BODY + len(body)))
    write_i32_be(out, MESSAGE)
    write_i64_be(out, message.enqueued_at_ms * 1_000_000)
    write_i16_be(out, short)
    out.write(key)
    out.write(body)
