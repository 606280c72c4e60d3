"""The firehose's copy of a message, with headers about its route.

In: a content, and what is to be said of its publish or its delivery.  Out: a content with the same
body frames, no properties but headers, and in these

    exchange_name, routing_keys, properties, node,
    [redelivered,] vhost, connection, channel, user [, routed_queues]

in RabbitMQ's order and types.  ``properties`` is the table of those the publisher set, the last
first; integers have 32 bits there, so a timestamp that does not fit becomes one of 64.
"""

from typing import Final, final

from librt.strings import read_i16_be
from mypy_extensions import i64

from penstock.protocols.amqp.codec.header_edit import (
    STRING,
    TABLE,
    Field,
    array_value,
    long_bytes,
    table_payload,
    table_value,
    text_value,
)
from penstock.protocols.amqp.codec.properties import (
    FLAGS_AT,
    HEADERS,
    OCTETS,
    TIMESTAMP,
    after_flags,
    header_end,
    skip,
)

INTEGER: Final = b"I"
LONG: Final = b"l"
I32_MAX: Final = 2**31 - 1
_NAMES: Final = (
    b"content_type", b"content_encoding", b"headers", b"delivery_mode", b"priority",
    b"correlation_id", b"reply_to", b"expiration", b"message_id", b"timestamp", b"type",
    b"user_id", b"app_id", b"cluster_id",
)  # fmt: skip
"""In the order of their flags."""


@final
class Party:
    """Who published or was delivered to."""

    def __init__(self, node: str, vhost: str, connection: str, channel: int, user: str) -> None:
        self.node = node
        self.fields: list[Field] = [
            (b"vhost", text_value(vhost)),
            (b"connection", text_value(connection)),
            (b"channel", number_value(channel)),
            (b"user", text_value(user)),
        ]


def published_copy(
    content: bytes, party: Party, exchange: str, keys: list[str], queues: list[str]
) -> bytes:
    said = [*party.fields, (b"routed_queues", _texts(queues))]
    return _copy(content, party.node, exchange, keys, said)


def delivered_copy(
    content: bytes, party: Party, exchange: str, keys: list[str], redelivered: bool
) -> bytes:
    said = [(b"redelivered", number_value(1 if redelivered else 0)), *party.fields]
    return _copy(content, party.node, exchange, keys, said)


def _copy(content: bytes, node: str, exchange: str, keys: list[str], said: list[Field]) -> bytes:
    fields = [
        (b"exchange_name", text_value(exchange)),
        (b"routing_keys", _texts(keys)),
        (b"properties", table_value(_properties(content))),
        (b"node", text_value(node)),
        *said,
    ]
    headers = long_bytes(table_payload(fields))
    head = content[:3] + (14 + len(headers)).to_bytes(4, "big") + content[7:FLAGS_AT]
    return head + HEADERS.to_bytes(2, "big") + headers + content[header_end(content, 0) :]


def _properties(content: bytes) -> list[Field]:
    end = header_end(content, 0)
    flags = i64(read_i16_be(content, FLAGS_AT)) & 0xFFFF
    position = after_flags(content, FLAGS_AT, end)
    bit: i64 = 0x8000
    found: list[Field] = []
    for name in _NAMES:
        if flags & bit != 0:
            after = skip(content, position, bit, end)
            found.append((name, _value(bit, content[position:after])))
            position = after
        bit >>= 1
    found.reverse()
    return found


def _value(bit: i64, octets: bytes) -> bytes:
    """As a field of a table."""
    if bit & OCTETS != 0:
        return number_value(octets[0])
    if bit == HEADERS:
        return TABLE + octets
    if bit == TIMESTAMP:
        return number_value(int.from_bytes(octets, "big", signed=True))
    return STRING + long_bytes(octets[1:])


def number_value(number: int) -> bytes:
    if -I32_MAX <= number <= I32_MAX:
        return INTEGER + number.to_bytes(4, "big", signed=True)
    return LONG + number.to_bytes(8, "big", signed=True)


def _texts(texts: list[str]) -> bytes:
    return array_value([text_value(text) for text in texts])
