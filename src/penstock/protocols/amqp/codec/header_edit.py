"""Edits headers and properties inside a message's content, byte by byte.

The broker leaves contents as they came.  Where it must add or take away a header or a property
(dead letters, BCC, direct reply-to), everything else keeps the very octets its publisher chose:
integers their width, strings their encoding, fields their order.  So tables are not decoded and
encoded again, but cut into fields.

In: contents that the decoder has checked (property_scan.py), so they are well formed.
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import Message, attempts_of, returns_of
from penstock.protocols.amqp.codec.properties import (
    CLUSTER_ID,
    CONTENT_TYPE,
    DELIVERY_MODE,
    FLAGS_AT,
    HEADERS,
    REPLY_TO,
    TIMESTAMP,
    after_flags,
    header_end,
    locate,
    skip,
)
from penstock.protocols.amqp.codec.property_scan import after_value
from penstock.protocols.amqp.codec.tables import write_short_bytes

TIMESTAMP_IN_MS: Final = b"timestamp_in_ms"
"""The header RabbitMQ's interceptor ``set_header_timestamp`` writes."""
CC: Final = b"CC"
BCC: Final = b"BCC"
ARRAY: Final = b"A"
TABLE: Final = b"F"
STRING: Final = b"S"
LONG: Final = b"l"
ACQUIRED_COUNT: Final = b"x-acquired-count"
DELIVERY_COUNT: Final = b"x-delivery-count"
STREAM_OFFSET: Final = b"x-stream-offset"
TABLE_OF_OFFSET: Final = b"\0\0\0\x19\x0fx-stream-offsetl"
"""Headers that have nothing else, up to the eight bytes of the offset."""
TRANSIENT: Final = b"\x01"
Field = tuple[bytes, bytes]
"""A key, and its value with the type before it."""


def header_fields(content: bytes) -> list[Field]:
    """The headers in their order; none when there is no table."""
    position = locate(content, 0, HEADERS)
    if position == 0:
        return []
    start = position + 4
    return fields_between(content, start, start + _length(content, position))


def fields_between(data: bytes, start: i64, end: i64) -> list[Field]:
    """The fields of the table whose payload lies there."""
    fields: list[Field] = []
    while start < end:
        key_end = start + 1 + i64(data[start])
        after = after_value(data, key_end, end)
        fields.append((data[start + 1 : key_end], data[key_end:after]))
        start = after
    return fields


def array_items(value: bytes) -> list[bytes]:
    """The typed values of an array (which begins with its type)."""
    items: list[bytes] = []
    start: i64 = 5
    end: i64 = len(value)
    while start < end:
        after = after_value(value, start, end)
        items.append(value[start:after])
        start = after
    return items


def table_payload(fields: list[Field]) -> bytes:
    writer = BytesWriter()
    for key, value in fields:
        write_short_bytes(writer, key)
        writer.write(value)
    return writer.getvalue()


def with_headers(content: bytes, fields: list[Field], dropped: i64) -> bytes:
    """The content with these headers (no table when there are none and were none), and without the
    properties whose flags are in ``dropped``.
    """
    end = header_end(content, 0)
    flags = i64(read_i16_be(content, FLAGS_AT)) & 0xFFFF
    position = FLAGS_AT + 2
    kept: i64 = 0
    properties = BytesWriter()
    bit: i64 = CONTENT_TYPE
    while bit >= CLUSTER_ID:
        after = skip(content, position, bit, end) if flags & bit else position
        if bit == HEADERS:
            if fields or flags & bit:
                payload = table_payload(fields)
                properties.write(len(payload).to_bytes(4, "big"))
                properties.write(payload)
                kept |= bit
        elif flags & bit & ~dropped:
            properties.write(content[position:after])
            kept |= bit
        position = after
        bit >>= 1
    inner = properties.getvalue()
    head = content[:3] + (14 + len(inner)).to_bytes(4, "big") + content[7:FLAGS_AT]
    return head + int(kept).to_bytes(2, "big") + inner + content[end:]


def with_delivery_counts(messages: list[Message]) -> list[Message]:
    """As quorum queues deliver: those that came back or failed say how often; the others stay."""
    shown: list[Message] = []
    for message in messages:
        counts = ((ACQUIRED_COUNT, returns_of(message)), (DELIVERY_COUNT, attempts_of(message)))
        told = [(key, LONG + int(count).to_bytes(8, "big")) for key, count in counts if count > 0]
        if told:
            keys = [key for key, _ in told]
            fields = [one for one in header_fields(message.content) if one[0] not in keys]
            content = with_headers(message.content, sorted(fields + told), 0)
            shown.append(Message(content, message.address, message.flags, message.expires_at_ms))
        else:
            shown.append(message)
    return shown


def with_stream_offsets(messages: list[Message]) -> list[Message]:
    """As RabbitMQ's streams deliver: each says its offset, and is transient if it says nothing."""
    shown: list[Message] = []
    for message in messages:
        content = _with_stream_offset(message.content, message.seq_id)
        copy = Message(content, message.address, message.flags, message.expires_at_ms)
        copy.place(message.seq_id, WallMs(message.enqueued_at_ms))
        shown.append(copy)
    return shown


def _with_stream_offset(content: bytes, offset: i64) -> bytes:
    """Without headers of its publisher's nothing is taken apart."""
    flags = i64(read_i16_be(content, FLAGS_AT))
    missing = DELIVERY_MODE & ~flags
    mode = TRANSIENT if missing else b""
    value = int(offset).to_bytes(8, "big")
    if flags & HEADERS == 0:
        return _with_properties(content, HEADERS | missing, TABLE_OF_OFFSET + value + mode)
    fields = [one for one in header_fields(content) if one[0] != STREAM_OFFSET]
    fields.append((STREAM_OFFSET, LONG + value))
    content = with_headers(content, sorted(fields), 0)
    return _with_properties(content, missing, mode) if missing else content


def with_reply_to(content: bytes, name: bytes) -> bytes:
    """The content, which has a ``reply_to``, with this one instead."""
    end = header_end(content, 0)
    position = locate(content, 0, REPLY_TO)
    after = position + 1 + i64(content[position])
    size = end - 7 + len(name) - i64(content[position])
    head = content[:3] + int(size).to_bytes(4, "big") + content[7:position]
    return head + bytes([len(name)]) + name + content[after:]


def with_timestamp(content: bytes, now_ms: WallMs, overwrite: bool) -> bytes:
    """The content with the property ``timestamp`` (seconds) and a header with the milliseconds.

    Each of them that the publisher has set stays, or not, as ``overwrite`` says.
    """
    value = b"l" + int(now_ms).to_bytes(8, "big")
    fields = header_fields(content)
    place = _place_of(fields, TIMESTAMP_IN_MS)
    if place < 0:
        content = with_headers(content, [*fields, (TIMESTAMP_IN_MS, value)], 0)
    elif overwrite:
        fields[place] = (TIMESTAMP_IN_MS, value)
        content = with_headers(content, fields, 0)
    seconds = int(now_ms // 1000).to_bytes(8, "big")
    position = locate(content, 0, TIMESTAMP)
    if position == 0:
        return _with_properties(content, TIMESTAMP, seconds)
    if overwrite:
        return content[:position] + seconds + content[position + 8 :]
    return content


def _place_of(fields: list[Field], key: bytes) -> i64:
    for place in range(len(fields)):
        if fields[place][0] == key:
            return place
    return -1


def _with_properties(content: bytes, wanted: i64, octets: bytes) -> bytes:
    """The content with a property that it does not have, or with neighbours."""
    end = header_end(content, 0)
    flags = i64(read_i16_be(content, FLAGS_AT)) & 0xFFFF
    position = after_flags(content, FLAGS_AT, end)
    bit: i64 = CONTENT_TYPE
    while not wanted & bit:
        if flags & bit:
            position = skip(content, position, bit, end)
        bit >>= 1
    head = content[:3] + int(end - 7 + len(octets)).to_bytes(4, "big") + content[7:FLAGS_AT]
    head += int(flags | wanted).to_bytes(2, "big") + content[FLAGS_AT + 2 : position]
    return head + octets + content[position:]


def _length(data: bytes, position: i64) -> i64:
    return i64(read_i32_be(data, position)) & 0xFFFFFFFF


# -- fields made here ----------------------------------------------------------------------


def text_value(text: str) -> bytes:
    return STRING + long_bytes(text.encode("utf-8", "surrogateescape"))


def table_value(fields: list[Field]) -> bytes:
    return TABLE + long_bytes(table_payload(fields))


def array_value(items: list[bytes]) -> bytes:
    writer = BytesWriter()
    for item in items:
        writer.write(item)
    return ARRAY + long_bytes(writer.getvalue())


def long_bytes(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


# -- names ---------------------------------------------------------------------------------


def keys_in(fields: list[Field], header: bytes) -> list[str]:
    """The routing keys in CC or BCC."""
    for key, value in fields:
        if key == header and value[:1] == ARRAY:
            return [_text(item[5:]) for item in array_items(value) if item[:1] == STRING]
    return []


def names_in(address: bytes) -> tuple[str, str]:
    """Exchange and routing key."""
    end = 1 + address[0]
    return _text(address[1:end]), _text(address[end + 1 :])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
