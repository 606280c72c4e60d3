"""What a pipeline reads, and from where: the frames of it, as bytes; no socket here.

How a frame looks is in ``frames``; requests and their replies here are::

    SUBSCRIBE  u8 make; u8 by; u16 count; string[count]
               -> SUBSCRIBED  u16 count; string[count]     names of queues
    START      string request; i64 seq
               -> STARTED     i64 seq
    OFFSET_AT  i64 timestamp_ms, low, high
               -> OFFSET      i64 low, high

SUBSCRIBE comes after LOGIN and says which queues are meant::

    BY_QUEUES    the queues themselves
    BY_EXCHANGE  exchange, group, binding keys; the group has a queue of its own
    BY_TOPIC     topic, channel, as NSQ has them

With ``make`` the broker makes what is missing, else that is an error.

START and OFFSET_AT come after OPEN.  START keeps, until something beyond it is acknowledged, where
the reader of this queue begins: ``request`` is what the user asked for, and the same request gets
the position it got the first time.  The empty request forgets it and is answered with ``seq``.

OFFSET_AT looks for the first message that came at or after a time, a few steps per request: the
answer is between ``low`` and ``high``; when they are equal, it is found.
"""

from struct import Struct
from typing import Final

from penstock_ranges.frames import (
    MalformedFrame,
    check_size,
    frame,
    number,
    string,
    take_number,
    take_string,
)

SUBSCRIBE: Final = 32
START: Final = 33
OFFSET_AT: Final = 34
SUBSCRIBED: Final = 96
STARTED: Final = 97
OFFSET: Final = 98

BY_QUEUES: Final = 0
BY_EXCHANGE: Final = 1
BY_TOPIC: Final = 2

NAMES_MAX: Final = 1000
REQUEST_MAX: Final = 100

_U16 = Struct(">H")
_I64 = Struct(">q")
_OFFSET_AT = Struct(">qqq")
_OFFSET = Struct(">qq")


def encode_subscribe(make: bool, by: int, names: list[str]) -> bytes:
    return frame(SUBSCRIBE, bytes((int(make), by)) + _strings(names))


def decode_subscribe(payload: bytes) -> tuple[bool, int, list[str]]:
    """(make, by, names)"""
    if len(payload) < 4:
        raise MalformedFrame("SUBSCRIBE is cut short")
    if payload[0] > 1 or payload[1] > BY_TOPIC:
        raise MalformedFrame(f"SUBSCRIBE with unknown flags {payload[0]}, {payload[1]}")
    names = _take_strings("SUBSCRIBE", payload[2:])
    if len(names) > NAMES_MAX:
        raise MalformedFrame(f"SUBSCRIBE to {len(names)} names, at most {NAMES_MAX} are allowed")
    least = 1 if payload[1] == BY_QUEUES else 2
    if len(names) < least or (payload[1] == BY_TOPIC and len(names) != 2):
        raise MalformedFrame(f"SUBSCRIBE of kind {payload[1]} with {len(names)} names")
    return payload[0] == 1, payload[1], names


def encode_subscribed(queues: list[str]) -> bytes:
    return frame(SUBSCRIBED, _strings(queues))


def decode_subscribed(payload: bytes) -> list[str]:
    return _take_strings("SUBSCRIBED", payload)


def encode_start(request: str, seq_id: int) -> bytes:
    return frame(START, string(request) + _I64.pack(seq_id))


def decode_start(payload: bytes) -> tuple[str, int]:
    """(request, seq)"""
    request, at = take_string(payload, 0)
    if len(request) > REQUEST_MAX:
        raise MalformedFrame(f"START for a request of {len(request)} letters")
    return request, take_number("START", payload[at:])


def encode_started(seq_id: int) -> bytes:
    return number(STARTED, seq_id)


def decode_started(payload: bytes) -> int:
    return take_number("STARTED", payload)


def encode_offset_at(timestamp_ms: int, low: int, high: int) -> bytes:
    return frame(OFFSET_AT, _OFFSET_AT.pack(timestamp_ms, low, high))


def decode_offset_at(payload: bytes) -> tuple[int, int, int]:
    """(timestamp_ms, low, high)"""
    check_size("OFFSET_AT", payload, _OFFSET_AT.size)
    timestamp_ms, low, high = _OFFSET_AT.unpack(payload)
    return timestamp_ms, low, high


def encode_offset(low: int, high: int) -> bytes:
    return frame(OFFSET, _OFFSET.pack(low, high))


def decode_offset(payload: bytes) -> tuple[int, int]:
    """(low, high)"""
    check_size("OFFSET", payload, _OFFSET.size)
    low, high = _OFFSET.unpack(payload)
    return low, high


# -- helpers ---------------------------------------------------------------------------------


def _strings(texts: list[str]) -> bytes:
    return _U16.pack(len(texts)) + b"".join([string(text) for text in texts])


def _take_strings(name: str, payload: bytes) -> list[str]:
    if len(payload) < 2:
        raise MalformedFrame(f"{name} is cut short")
    count: int = _U16.unpack_from(payload, 0)[0]
    at = 2
    texts: list[str] = []
    for _ in range(count):
        text, at = take_string(payload, at)
        texts.append(text)
    check_size(name, payload[at:], 0)
    return texts
