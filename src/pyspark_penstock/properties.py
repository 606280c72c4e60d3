r"""Reads what an AMQP publisher wrote beside the body: content header and field tables.

In: a message's content as the broker keeps it (header frame, then body frames).  Out: plain
values for DataFrame columns.  Reading only, and forgiving: the broker passes properties on
unread, so what a publisher sent arrives here, and one message that cannot be decoded must not
stop a pipeline.  Such a message has ``None`` in all its property columns; its bytes are in
``properties_raw``.

Text that is not UTF-8 keeps its bytes visible as ``\xNN``.  A header's value becomes text:
strings as they are, numbers in decimal, booleans ``true``/``false``, timestamps as seconds,
nested tables and arrays as JSON.  Of two headers with one name the first counts, but in
``header_list``.
"""

import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

FRAME_HEAD_BYTES = 7
FRAME_END_BYTES = 1
FIXED_BYTES = 12
"""Class, weight and body size stand before the property flags."""
DEPTH_MAX = 128
YEAR_10000_S = 253_402_300_800
"""Spark's and Python's calendars end here; a later time is no timestamp."""
PERSISTENT_MODE = 2


class Properties(NamedTuple):
    """The properties of basic; None = the publisher did not set it."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Any = None
    """As the reader makes them: ``header_texts`` or ``header_list``."""
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp_s: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


KINDS = "ssToossssLssss"
"""How each property is spelled, in the order of ``Properties`` and of the flag bits."""

FIXED_SIZES = {"o": 1, "L": 8}
FIRST_FLAG = 0x8000
"""That of the first property; the others follow bit by bit."""

UNREADABLE = Properties()


class Unreadable(ValueError):
    """Not what AMQP 0-9-1 says a content header looks like."""


def split_content(payload: bytes, at: int, end: int) -> tuple[bytes, bytes]:
    """(flags and properties, body) of the content that lies in ``payload[at:end]``."""
    (header_size,) = struct.unpack_from(">I", payload, at + 3)
    properties_at = at + FRAME_HEAD_BYTES + FIXED_BYTES
    header_end = at + FRAME_HEAD_BYTES + header_size + FRAME_END_BYTES
    properties = payload[properties_at : header_end - FRAME_END_BYTES]
    if header_end >= end:
        return properties, b""
    (size,) = struct.unpack_from(">I", payload, header_end + 3)
    body_at = header_end + FRAME_HEAD_BYTES
    if body_at + size + FRAME_END_BYTES == end:  # nearly always: one frame
        return properties, payload[body_at : body_at + size]
    pieces = []
    while header_end < end:
        (size,) = struct.unpack_from(">I", payload, header_end + 3)
        body_at = header_end + FRAME_HEAD_BYTES
        pieces.append(payload[body_at : body_at + size])
        header_end = body_at + size + FRAME_END_BYTES
    return properties, b"".join(pieces)


def split_address(address: bytes) -> tuple[str, str]:
    """(exchange, routing key) of two short strings."""
    exchange, at = _short_text(address, 0)
    routing_key, _ = _short_text(address, at)
    return exchange, routing_key


def decode_properties(data: bytes, headers: "Reader | None" = None) -> Properties:
    """All properties, or ``UNREADABLE``; ``headers``: ``header_texts`` if it is not given."""
    try:
        return _decode(data, headers or header_texts)
    except (Unreadable, struct.error, IndexError, RecursionError):
        return UNREADABLE


def _decode(data: bytes, headers: "Reader") -> Properties:
    (flags,) = struct.unpack_from(">H", data, 0)
    at = 2
    word = flags
    while word & 1 and at + 2 <= len(data):  # more flags, of properties AMQP does not have
        (word,) = struct.unpack_from(">H", data, at)
        at += 2
    values: list[Any] = [None] * len(KINDS)
    for place, kind in set_in(flags):
        value: Any
        if kind == "s":
            value, at = _short_text(data, at)
        elif kind == "o":
            value, at = data[at], at + 1
        elif kind == "L":
            value, at = struct.unpack_from(">Q", data, at)[0], at + 8
        else:
            value, at = headers(data, at)
        values[place] = value
    if at != len(data):
        raise Unreadable(f"{len(data) - at} bytes after the last property")
    return Properties._make(values)


@cache
def set_in(flags: int) -> list[tuple[int, str]]:
    """Place and kind of the properties that are there; the same few flags come all the time."""
    return [(place, kind) for place, kind in enumerate(KINDS) if flags & (FIRST_FLAG >> place)]


# -- headers ---------------------------------------------------------------------------------

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Of the table that lies there; it returns as well where the table ends."""


def header_texts(data: bytes, at: int) -> tuple[dict[str, str | None], int]:
    table, at = _table(data, at, 0)
    return {name: as_text(value) for name, value in table.items()}, at


def header_list(data: bytes, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """All headers in their order, also those of one name: octets of strings, else of the text."""
    at, end = _bounds(data, at, 0)
    return [
        (name, data[begin + 5 : stop] if data[begin] in b"Sx" else _octets(value))
        for name, begin, value, stop in fields_of(data, at, end, 0)
    ], end


def _octets(value: Any) -> bytes | None:
    text = as_text(value)
    return None if text is None else text.encode()


# -- field tables ----------------------------------------------------------------------------


class Seconds(int):
    """A field of type timestamp."""


_FIXED: dict[int, struct.Struct] = {
    ord("t"): struct.Struct(">?"),
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): struct.Struct(">i"),
    ord("i"): struct.Struct(">I"),
    ord("l"): struct.Struct(">q"),
    ord("L"): struct.Struct(">q"),
    ord("f"): struct.Struct(">f"),
    ord("d"): struct.Struct(">d"),
}


def _table(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    at, end = _bounds(data, at, depth)
    table: dict[str, Any] = {}
    for name, _, value, _ in fields_of(data, at, end, depth):
        table.setdefault(name, value)
    return table, end


def fields_of(data: bytes, at: int, end: int, depth: int) -> Iterator[tuple[str, int, Any, int]]:
    """Of a table: names, where each value begins (with its type), values, and where each ends."""
    while at < end:
        name, begin = _short_text(data, at)
        value, at = _field(data, begin, depth + 1)
        yield name, begin, value, at
    if at != end:
        raise Unreadable("a table disagrees with its length")


def _array(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    at, end = _bounds(data, at, depth)
    items = []
    while at < end:
        value, at = _field(data, at, depth + 1)
        items.append(value)
    if at != end:
        raise Unreadable("an array disagrees with its length")
    return items, at


def _bounds(data: bytes, at: int, depth: int) -> tuple[int, int]:
    if depth > DEPTH_MAX:
        raise Unreadable("tables nested too deep")
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 4 + length
    if end > len(data):
        raise Unreadable("a table is cut short")
    return at + 4, end


def _field(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    fixed = _FIXED.get(tag)
    if fixed is not None:
        return fixed.unpack_from(data, at)[0], at + fixed.size
    if tag == ord("S") or tag == ord("x"):
        return _long_bytes(data, at)
    if tag == ord("F"):
        return _table(data, at, depth)
    if tag == ord("A"):
        return _array(data, at, depth)
    if tag == ord("T"):
        return Seconds(struct.unpack_from(">Q", data, at)[0]), at + 8
    if tag == ord("D"):
        scale, unscaled = struct.unpack_from(">BI", data, at)
        return Decimal(f"{unscaled}E-{scale}"), at + 5
    if tag == ord("V"):
        return None, at
    raise Unreadable(f"unknown field type {tag}")


def _short_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    if end > len(data):
        raise Unreadable("a short string is cut short")
    return _text(data[at + 1 : end]), end


def _long_bytes(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 4 + length
    if end > len(data):
        raise Unreadable("a long string is cut short")
    return _text(data[at + 4 : end]), end


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def as_text(value: Any) -> str | None:
    """A header's value in its column."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return str(value)
