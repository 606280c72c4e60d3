"""The properties and headers of a message that may decide its route.

In: its content.  Out: its headers and, for exchanges that look at them, some of its properties, in
one table; the routing keys in CC and BCC; the content without BCC, which receivers must not see.

Only messages for exchanges that look inside are decoded, or those that property_scan.py flagged as
having CC or BCC.
"""

from typing import Final

from librt.strings import read_i16_be
from mypy_extensions import i64

from penstock.core.message import PROPERTY_PREFIX
from penstock.protocols.amqp.codec.header_edit import header_fields, with_headers
from penstock.protocols.amqp.codec.properties import (
    CORRELATION_ID,
    FLAGS_AT,
    MESSAGE_ID,
    TIMESTAMP,
    decode_properties,
    headers_of,
)

CC: Final = "CC"
BCC: Final = "BCC"
HASHABLE: Final = CORRELATION_ID | MESSAGE_ID | TIMESTAMP


def routing_facts(content: bytes) -> dict[str, object]:
    """The headers, and the properties that can be hashed under names no header has."""
    facts = headers_of(content)
    if facts is None:
        facts = {}
    add_properties(facts, content)
    return facts


def add_properties(facts: dict[str, object], content: bytes) -> None:
    flags = i64(read_i16_be(content, FLAGS_AT)) & 0xFFFF
    if flags & HASHABLE == 0:
        return
    properties = decode_properties(content)
    if properties.message_id is not None:
        facts[PROPERTY_PREFIX + "message_id"] = properties.message_id
    if properties.correlation_id is not None:
        facts[PROPERTY_PREFIX + "correlation_id"] = properties.correlation_id
    if properties.timestamp is not None:
        facts[PROPERTY_PREFIX + "timestamp"] = properties.timestamp


def without_bcc(content: bytes) -> bytes:
    """Everything else to the octet."""
    kept = [field for field in header_fields(content) if field[0] != b"BCC"]
    return with_headers(content, kept, 0)
