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
    BY_STREAM    a stream
    BY_PATTERN   a regular expression: queues whose whole name matches it, but for streams and
                 exclusive ones; there may be none

With ``make`` the broker makes what is missing, else that is an error.  Then streams are
refused among queues: messages are taken from those that are read with ``make``.

START and OFFSET_AT come after OPEN.  START keeps, until something beyond it is acknowledged, where
the reader of this queue begins: ``request`` is what the user asked for, and the same request gets
the position it got the first time.  The empty request forgets it and is answered with ``seq``.

OFFSET_AT looks for the first message that came at or after a time, a few steps per request: the
answer is between ``low`` and ``high``; when they are equal, it is found.
"""

from typing import Final

from penstock_ranges.frames import Form, MalformedFrame

SUBSCRIBE: Final = 32
START: Final = 33
OFFSET_AT: Final = 34
SUBSCRIBED: Final = 96
STARTED: Final = 97
OFFSET: Final = 98

BY_QUEUES: Final = 0
BY_EXCHANGE: Final = 1
BY_TOPIC: Final = 2
BY_STREAM: Final = 3
BY_PATTERN: Final = 4

NAMES_MAX: Final = 1000
NAMES_OF: Final = (
    *((1, NAMES_MAX), (2, NAMES_MAX), (2, 2)),  # queues, exchange, topic
    *((1, NAMES_MAX), (1, 1)),  # stream, pattern
)
"""By kind the fewest and the most names."""
REQUEST_MAX: Final = 100

_SUBSCRIBE = Form[tuple[bool, int, list[str]]](SUBSCRIBE, "SUBSCRIBE", "?Bn")
encode_subscribe = _SUBSCRIBE.encode
_SUBSCRIBED = Form[list[str]](SUBSCRIBED, "SUBSCRIBED", "n")
encode_subscribed, decode_subscribed = _SUBSCRIBED.encode, _SUBSCRIBED.decode
_START = Form[tuple[str, int]](START, "START", "sq")
encode_start = _START.encode
_STARTED = Form[int](STARTED, "STARTED", "q")
encode_started, decode_started = _STARTED.encode, _STARTED.decode
# timestamp_ms, low, high
_OFFSET_AT = Form[tuple[int, int, int]](OFFSET_AT, "OFFSET_AT", "qqq")
encode_offset_at, decode_offset_at = _OFFSET_AT.encode, _OFFSET_AT.decode
_OFFSET = Form[tuple[int, int]](OFFSET, "OFFSET", "qq")  # low, high
encode_offset, decode_offset = _OFFSET.encode, _OFFSET.decode


def decode_subscribe(payload: bytes) -> tuple[bool, int, list[str]]:
    """(make, by, names)"""
    make, by, names = _SUBSCRIBE.decode(payload)
    if payload[0] > 1 or by > BY_PATTERN:
        raise MalformedFrame(f"SUBSCRIBE with unknown flags {payload[0]}, {by}")
    if len(names) > NAMES_MAX:
        raise MalformedFrame(f"SUBSCRIBE to {len(names)} names, at most {NAMES_MAX} are allowed")
    least, most = NAMES_OF[by]
    if not least <= len(names) <= most:
        raise MalformedFrame(f"SUBSCRIBE of kind {by} with {len(names)} names")
    return make, by, names


def decode_start(payload: bytes) -> tuple[str, int]:
    """(request, seq)"""
    request, seq_id = _START.decode(payload)
    if len(request) > REQUEST_MAX:
        raise MalformedFrame(f"START for a request of {len(request)} letters")
    return request, seq_id
