"""How programs for Spark talk to the broker: frames, names, refusals; no socket here.

Whoever opens a connection to the broker's AMQP port with MAGIC speaks this protocol::

    client  MAGIC                        "PSTK" 0 0 0 1
    client  frame*                       requests, answered one by one and in order
    broker  frame*                       replies
    frame = u32 length, u8 kind, payload length counts kind and payload

Numbers are big-endian, strings are u16 length + UTF-8.  A reply's kind is its request's plus
REPLY.  Any request may be answered by

    ERROR  u16 code; string text         and the broker closes

A connection begins with OPEN (``ranges``: it reads one queue) or with

    LOGIN  user, password, vhost strings
           -> WELCOME  string node version

and then does anything else but read.  Kinds of requests: 1 to 15 reading (``ranges``), 16 to 31
everybody's, 32 to 63 for the files beside this one.
"""

from struct import Struct
from typing import Final, final

MAGIC: Final = b"PSTK\x00\x00\x00\x01"

REPLY: Final = 64
"""A reply's kind is its request's kind plus this."""
LOGIN: Final = 16
WELCOME: Final = 80
ERROR: Final = 127

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
ELSEWHERE: Final = 8
"""The queue's master is on another node of the cluster (the text names it): ask that."""
NO_MASTER: Final = 9
"""The queue's master is lost, and its next is not there yet: ask again."""

REQUEST_MAX_BYTES: Final = 1 << 20
REPLY_MAX_BYTES: Final = 0xFFFFFFFF
ERROR_TEXT_MAX_BYTES: Final = 4096
"""It may quote what the peer said, which may be long, or no text at all."""

_FRAME = Struct(">IB")
_U16 = Struct(">H")
_U32 = Struct(">I")
_I64 = Struct(">q")


class MalformedFrame(Exception):
    """The peer broke the grammar above."""


@final
class FrameSplitter:
    """Bytes in, whole frames out; what is left of a frame waits here."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: int = max_bytes  # of the frames that follow
        self._rest: list[bytes] = []
        self.rest_bytes: int = 0  # of a frame that has come in part
        self._needed_bytes: int = 4

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames completed by ``data`` as (kind, payload)."""
        self._rest.append(data)
        self.rest_bytes += len(data)
        if self.rest_bytes < self._needed_bytes:
            return []  # joined only when a frame is complete: no copying piece by piece
        buffer = b"".join(self._rest)
        self._needed_bytes = 4
        frames: list[tuple[int, bytes]] = []
        at = 0
        while len(buffer) - at >= 4:
            length: int = _U32.unpack_from(buffer, at)[0]
            if length == 0 or length > self.max_bytes:
                raise MalformedFrame(f"frame of {length} bytes, allowed are 1 to {self.max_bytes}")
            if len(buffer) - at - 4 < length:
                self._needed_bytes = 4 + length
                break
            frames.append((buffer[at + 4], buffer[at + 5 : at + 4 + length]))
            at += 4 + length
        self._rest = [buffer[at:]]
        self.rest_bytes = len(buffer) - at
        return frames


def encode_login(user: str, password: str, vhost: str) -> bytes:
    return frame(LOGIN, string(user) + string(password) + string(vhost))


def decode_login(payload: bytes) -> tuple[str, str, str]:
    """(user, password, vhost)"""
    user, at = take_string(payload, 0)
    password, at = take_string(payload, at)
    vhost, at = take_string(payload, at)
    check_size("LOGIN", payload[at:], 0)
    return user, password, vhost


def encode_welcome(version: str) -> bytes:
    return frame(WELCOME, string(version))


def decode_welcome(payload: bytes) -> str:
    version, at = take_string(payload, 0)
    check_size("WELCOME", payload[at:], 0)
    return version


def encode_error(code: int, text: str) -> bytes:
    short = text.encode(errors="replace")[:ERROR_TEXT_MAX_BYTES].decode(errors="ignore")
    return frame(ERROR, _U16.pack(code) + string(short))


def decode_error(payload: bytes) -> tuple[int, str]:
    """(code, text)"""
    if len(payload) < 4:
        raise MalformedFrame("ERROR is cut short")
    code: int = _U16.unpack_from(payload, 0)[0]
    text, at = take_string(payload, 2)
    check_size("ERROR", payload[at:], 0)
    return code, text


# -- what frames are made of -----------------------------------------------------------------


def frame(kind: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) + 1, kind) + payload


def string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0xFFFF:
        raise MalformedFrame(f"string of {len(data)} bytes, at most 65535 fit")
    return _U16.pack(len(data)) + data


def take_string(payload: bytes, at: int) -> tuple[str, int]:
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


def number(kind: int, value: int) -> bytes:
    """A frame of one i64."""
    return frame(kind, _I64.pack(value))


def take_number(name: str, payload: bytes) -> int:
    """The i64 that is all of the payload of a frame called ``name``."""
    check_size(name, payload, _I64.size)
    value: int = _I64.unpack(payload)[0]
    return value


def check_size(name: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise MalformedFrame(f"{name} has {len(payload)} bytes where {size} belong")
