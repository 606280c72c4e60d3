"""How programs for Spark talk to the broker: frames, names, refusals; no socket here.

A connection to the broker's AMQP port that begins with MAGIC speaks this protocol::

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

import re
from collections.abc import Callable
from itertools import islice
from struct import Struct
from typing import Any, Final, Generic, TypeVar, final

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
"""The queue is read already: by a consumer or another range reader."""
FENCED: Final = 5
"""A newer reader took the lease over; the old one must stop."""
LEASE_GONE: Final = 6
"""The lease has ended (broker restarted, owner away too long): open again."""
REFUSED: Final = 7
"""Any other request the broker cannot grant."""
ELSEWHERE: Final = 8
"""The queue's master is on another node of the cluster (the text names it): ask that."""
NO_MASTER: Final = 9
"""The queue's master is lost, and its next is not there yet: ask again."""

GONE: Final = 10
"""Retention has taken what is asked for of a stream."""

REQUEST_MAX_BYTES: Final = 1 << 20
REPLY_MAX_BYTES: Final = 0xFFFFFFFF
ERROR_TEXT_MAX_BYTES: Final = 4096
"""It may quote what the peer said, which may be long, or no text at all."""

STRINGS_MAX: Final = 10_000
"""That one frame may name."""

_FRAME = Struct(">IB")
_U16 = Struct(">H")
_U32 = Struct(">I")

Content = TypeVar("Content")


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

    def allow(self, max_bytes: int) -> None:
        """The frames that follow may be as large."""
        self.max_bytes = max_bytes

    def feed(self, data: bytes, most: int = 1 << 30) -> list[tuple[int, bytes]]:
        """The frames completed by ``data`` as (kind, payload); those after ``most`` wait here."""
        self._rest.append(data)
        self.rest_bytes += len(data)
        if self.rest_bytes < self._needed_bytes:
            return []  # joined only when a frame is complete: no copying piece by piece
        buffer = b"".join(self._rest)
        self._needed_bytes = 4
        frames: list[tuple[int, bytes]] = []
        at = 0
        while len(buffer) - at >= 4 and len(frames) < most:
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


class Form(Generic[Content]):
    """One kind of frame: its payload field by field, written and read.

    ``fields`` has a letter for each: ``? B H I q Q`` as in ``struct``, ``s`` a string, ``n`` and
    ``N`` strings behind their count (u16, u32), ``r`` all the bytes that are left.  What is decoded
    is the value of the one field, else ``make`` of the values, else a tuple of them.
    """

    def __init__(
        self, kind: int, name: str, fields: str, make: Callable[..., Content] | None = None
    ) -> None:
        self._kind = kind
        self._name = name
        self._make = make
        parts = re.findall(r"[?BHIqQ]+|[snNr]", fields)
        self._parts: list[str | Struct] = [
            part if part in "snNr" else Struct(f">{part}") for part in parts
        ]
        self._is_single = len(fields) == 1

    def encode(self, *values: Any) -> bytes:
        """The whole frame."""
        rest = iter(values)
        payload = []
        for part in self._parts:
            if isinstance(part, Struct):
                count = len(part.format) - 1
                payload.append(part.pack(*islice(rest, count)))
            elif part == "s":
                payload.append(string(next(rest)))
            elif part == "r":
                payload.append(next(rest))
            else:
                texts = next(rest)
                payload.append((_U16 if part == "n" else _U32).pack(len(texts)))
                payload += [string(text) for text in texts]
        return frame(self._kind, b"".join(payload))

    def decode(self, payload: bytes) -> Content:
        """Raises MalformedFrame where the payload has another form."""
        values: list[Any] = []
        at = 0
        for part in self._parts:
            if isinstance(part, Struct):
                values += self._numbers(part, payload, at)
                at += part.size
            elif part == "s":
                text, at = take_string(payload, at)
                values.append(text)
            elif part == "r":
                values.append(payload[at:])
                at = len(payload)
            else:
                texts, at = self._strings(_U16 if part == "n" else _U32, payload, at)
                values.append(texts)
        if at != len(payload):
            raise MalformedFrame(f"{self._name} has {len(payload) - at} bytes too many")
        if self._make is not None:
            return self._make(*values)
        content: Content = values[0] if self._is_single else tuple(values)  # type: ignore[assignment]
        return content

    def _numbers(self, part: Struct, payload: bytes, at: int) -> tuple[Any, ...]:
        if len(payload) - at < part.size:
            raise MalformedFrame(f"{self._name} is cut short")
        return part.unpack_from(payload, at)

    def _strings(self, count_of: Struct, payload: bytes, at: int) -> tuple[list[str], int]:
        (count,) = self._numbers(count_of, payload, at)
        if count > STRINGS_MAX:
            raise MalformedFrame(f"{self._name} names {count}, at most {STRINGS_MAX} are allowed")
        texts = []
        at += count_of.size
        for _ in range(count):
            text, at = take_string(payload, at)
            texts.append(text)
        return texts, at


# -- the frames of every connection ----------------------------------------------------------

_LOGIN = Form[tuple[str, str, str]](LOGIN, "LOGIN", "sss")  # user, password, vhost
encode_login, decode_login = _LOGIN.encode, _LOGIN.decode
_WELCOME = Form[str](WELCOME, "WELCOME", "s")
encode_welcome, decode_welcome = _WELCOME.encode, _WELCOME.decode
_ERROR = Form[tuple[int, str]](ERROR, "ERROR", "Hs")  # code, text
decode_error = _ERROR.decode


def encode_error(code: int, text: str) -> bytes:
    short = text.encode(errors="replace")[:ERROR_TEXT_MAX_BYTES].decode(errors="ignore")
    return _ERROR.encode(code, short)
