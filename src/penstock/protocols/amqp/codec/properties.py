"""The properties of a message, and its content as it rests in the broker.

A *content* is a whole content header frame and the body frames behind it, as published:

    type 2, channel u16, size u32 | class 60 u16, weight u16, body size u64,
    property flags u16, properties | 0xCE          then per body frame
    type 3, channel u16, size u32 | payload | 0xCE

Two ways in.  The hot functions (``delivery_mode``, ``priority``, ``expiration``,
``has_header_key``) step over what lies before the one property they want and build
nothing.  ``decode_properties`` and ``body_of`` build everything, for the features that look
inside a message: headers exchange, HTTP API, Spark.  ``encode_content`` is the way back.

Properties are written in the order of their flags, highest bit first.  The last flag bit
announces a further word of flags; none is defined, so such words are stepped over, and a
peer that sets the bit without sending the word is forgiven, as RabbitMQ does.  Strings
need not be UTF-8 (surrogate escapes keep the bytes).
"""

from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i16_be, read_i32_be
from mypy_extensions import i64

from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp.codec.errors import MalformedArguments
from penstock.protocols.amqp.codec.tables import (
    FieldReader,
    write_short_bytes,
    write_table,
    write_unsigned,
)

FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_END: Final = 0xCE
FRAME_OVERHEAD_BYTES: Final = 8
CLASS_BASIC: Final = 60

FLAGS_AT: Final = 19
"""Offset of the property flags in a content: frame header 7, class, weight, body size."""

CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
TYPE: Final = 0x0020
USER_ID: Final = 0x0010
APP_ID: Final = 0x0008
CLUSTER_ID: Final = 0x0004
MORE_FLAGS: Final = 0x0001
"""Another word of flags follows."""

OCTETS: Final = DELIVERY_MODE | PRIORITY
"""One byte; ``HEADERS`` is a table, ``TIMESTAMP`` eight bytes, the rest short strings."""

EXPIRATION_MAX_MS: Final = 10 * 365 * 86_400_000
"""Ten years, as in RabbitMQ."""


class Properties(NamedTuple):
    """The fourteen basic properties, in the order of the line; None = not set by the publisher."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, object] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The properties that are set, by name, in the order of the line."""
        return {name: value for name, value in self._asdict().items() if value is not None}


# -- looking for one property --------------------------------------------------------------


def locate(content: bytes, offset: i64, wanted: i64) -> i64:
    """Where the property with flag ``wanted`` begins, 0 when the publisher left it out.

    ``offset`` is where the content begins.  The property itself may still be cut short:
    its reader looks at ``header_end``.
    """
    end = header_end(content, offset)
    flags = i64(read_i16_be(content, offset + FLAGS_AT)) & 0xFFFF
    if flags & wanted == 0:
        return 0
    position = after_flags(content, offset + FLAGS_AT, end)
    bit: i64 = CONTENT_TYPE
    while bit != wanted:
        if flags & bit != 0:
            position = skip(content, position, bit, end)
        bit >>= 1
    return position


def header_end(content: bytes, offset: i64) -> i64:
    """Where the end octet of the header frame stands, which is inside ``content``."""
    length: i64 = len(content)
    if offset < 0 or length - offset < FLAGS_AT + 3:
        raise MalformedArguments(f"{length - offset} bytes are no content header")
    size = i64(read_i32_be(content, offset + 3)) & 0xFFFFFFFF
    end = offset + 7 + size
    if end >= length or end < offset + FLAGS_AT + 2:
        raise MalformedArguments(f"content header announces {size} bytes")
    return end


def after_flags(content: bytes, position: i64, end: i64) -> i64:
    """Steps over the flag word at ``position`` and the words it announces."""
    while True:
        word = i64(read_i16_be(content, position))
        position += 2
        if word & MORE_FLAGS == 0 or position + 2 > end:
            return position


def skip(content: bytes, position: i64, bit: i64, end: i64) -> i64:
    """Where the property after the one with flag ``bit`` begins."""
    if bit & OCTETS != 0:
        position += 1
    elif bit == HEADERS:
        if position + 4 > end:
            raise MalformedArguments("headers are cut short")
        position += 4 + (i64(read_i32_be(content, position)) & 0xFFFFFFFF)
    elif bit == TIMESTAMP:
        position += 8
    else:
        if position >= end:
            raise MalformedArguments("properties are cut short")
        position += 1 + i64(content[position])
    if position > end:
        raise MalformedArguments("properties are cut short")
    return position


def delivery_mode(content: bytes, offset: i64) -> i64:
    """1 transient, 2 persistent, 0 not said."""
    return octet_property(content, offset, DELIVERY_MODE, 0)


def priority(content: bytes, offset: i64 = 0) -> i64:
    """The priority asked for, -1 when none is."""
    return octet_property(content, offset, PRIORITY, -1)


def octet_property(content: bytes, offset: i64, bit: i64, absent: i64) -> i64:
    position = locate(content, offset, bit)
    if position == 0:
        return absent
    skip(content, position, bit, header_end(content, offset))
    return i64(content[position])


def expiration(content: bytes, offset: i64 = 0) -> str | None:
    """The expiration as the publisher spelled it; ``parse_expiration`` judges it."""
    position = locate(content, offset, EXPIRATION)
    if position == 0:
        return None
    end = skip(content, position, EXPIRATION, header_end(content, offset))
    return content[position + 1 : end].decode("utf-8", "surrogateescape")


def has_header_key(content: bytes, key: bytes, offset: i64 = 0) -> bool:
    """False: the headers have no field ``key``.  True: they may have, look inside.

    A search for the field's length octet and name; a value that contains the same bytes
    is taken for it, which costs one needless look.
    """
    position = locate(content, offset, HEADERS)
    if position == 0:
        return False
    end = skip(content, position, HEADERS, header_end(content, offset))
    return content.find(bytes([len(key)]) + key, position + 4, end) >= 0


def parse_expiration(text: str) -> int:
    """Milliseconds; ``PreconditionFailed`` with RabbitMQ's reason when it is no such number.

    The rules are those of Erlang's ``string:to_integer``: one sign, then digits.
    """
    size = 1 if text[:1] in ("+", "-") else 0
    first_digit = size
    while size < len(text) and "0" <= text[size] <= "9":
        size += 1
    if size == first_digit:
        raise PreconditionFailed(f"invalid expiration '{text}': no_integer")
    if size < len(text):
        rest = quoted(text[size:])
        raise PreconditionFailed(f"invalid expiration '{text}': {{leftover_string,{rest}}}")
    value = int(text)
    if value < 0:
        raise PreconditionFailed(f"invalid expiration '{text}': {{value_negative,{value}}}")
    if value > EXPIRATION_MAX_MS:
        raise PreconditionFailed(f"invalid expiration '{text}': {{value_too_large,{value}}}")
    return value


def quoted(text: str) -> str:
    """Text as Erlang prints a list of octets: in quotes when it can be read."""
    if text.isascii() and text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(list(text.encode("utf-8", "surrogateescape"))).replace(" ", "")


# -- everything at once --------------------------------------------------------------------


def decode_properties(content: bytes) -> Properties:
    """All properties of a content."""
    end = header_end(content, 0)
    flags = i64(read_i16_be(content, FLAGS_AT)) & 0xFFFF
    reader = FieldReader(content, after_flags(content, FLAGS_AT, end), end)
    found = Properties(
        optional_string(reader, flags & CONTENT_TYPE),
        optional_string(reader, flags & CONTENT_ENCODING),
        reader.table(0) if flags & HEADERS != 0 else None,
        reader.octet() if flags & DELIVERY_MODE != 0 else None,
        reader.octet() if flags & PRIORITY != 0 else None,
        optional_string(reader, flags & CORRELATION_ID),
        optional_string(reader, flags & REPLY_TO),
        optional_string(reader, flags & EXPIRATION),
        optional_string(reader, flags & MESSAGE_ID),
        reader.long_long() if flags & TIMESTAMP != 0 else None,
        optional_string(reader, flags & TYPE),
        optional_string(reader, flags & USER_ID),
        optional_string(reader, flags & APP_ID),
        optional_string(reader, flags & CLUSTER_ID),
    )
    if reader.offset != end:
        raise MalformedArguments(f"{end - reader.offset} bytes follow the properties")
    return found


def optional_string(reader: FieldReader, present: i64) -> str | None:
    return reader.loose_string() if present != 0 else None


def headers_of(content: bytes) -> dict[str, object] | None:
    """Only the headers, for routing by them; ``None`` when there are none."""
    position = locate(content, 0, HEADERS)
    if position == 0:
        return None
    return FieldReader(content, position, header_end(content, 0)).table(0)


def body_of(content: bytes) -> bytes:
    """The payloads of the body frames, joined."""
    length: i64 = len(content)
    position = header_end(content, 0) + 1
    parts: list[bytes] = []
    while position < length:
        if length - position < FRAME_OVERHEAD_BYTES or content[position] != FRAME_BODY:
            raise MalformedArguments(f"no body frame at {position}")
        start = position + 7
        position = start + (i64(read_i32_be(content, position + 3)) & 0xFFFFFFFF)
        if position >= length:
            raise MalformedArguments(f"body frame at {start - 7} is cut short")
        parts.append(content[start:position])
        position += 1
    return parts[0] if len(parts) == 1 else b"".join(parts)


# -- the way back --------------------------------------------------------------------------


def encode_content(properties: Properties, body: bytes, channel: int, frame_max: int) -> bytes:
    """Header frame and body frames of at most ``frame_max`` bytes (0 = no limit)."""
    return encode_written(encode_properties(properties), body, channel, frame_max)


def encode_written(payload: bytes, body: bytes, channel: int, frame_max: int) -> bytes:
    """The same; ``payload`` is what ``encode_properties`` makes, or what a peer has sent."""
    writer = BytesWriter()
    size = len(payload) + 12
    if frame_max and size + FRAME_OVERHEAD_BYTES > frame_max:
        raise ValueError(f"properties of {size} bytes do not fit frames of {frame_max}")
    write_frame_head(writer, FRAME_HEADER, channel, size)
    write_unsigned(writer, CLASS_BASIC, 2)
    write_unsigned(writer, 0, 2)
    write_unsigned(writer, len(body), 8)
    writer.write(payload)
    writer.append(FRAME_END)
    step = frame_max - FRAME_OVERHEAD_BYTES if frame_max else max(1, len(body))
    for start in range(0, len(body), step):
        part = body[start : start + step]
        write_frame_head(writer, FRAME_BODY, channel, len(part))
        writer.write(part)
        writer.append(FRAME_END)
    return writer.getvalue()


def write_frame_head(writer: BytesWriter, frame_type: int, channel: int, size: int) -> None:
    writer.append(frame_type)
    write_unsigned(writer, channel, 2)
    write_unsigned(writer, size, 4)


def encode_properties(properties: Properties) -> bytes:
    """Flags and properties, as they end the payload of a header frame."""
    flags = 0
    bit: int = CONTENT_TYPE
    inner = BytesWriter()
    for name, value in properties._asdict().items():
        if value is not None:
            flags |= bit
            write_property(inner, bit, name, value)
        bit >>= 1
    writer = BytesWriter()
    write_unsigned(writer, flags, 2)
    writer.write(inner.getvalue())
    return writer.getvalue()


def write_property(writer: BytesWriter, bit: int, name: str, value: object) -> None:
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        if len(data) > 255:
            raise ValueError(f"{name} has {len(data)} bytes, at most 255 are possible")
        write_short_bytes(writer, data)
    elif isinstance(value, dict):
        write_table(writer, value, 0)
    else:
        assert isinstance(value, int), name
        write_unsigned(writer, value, 1 if bit & OCTETS else 8)
