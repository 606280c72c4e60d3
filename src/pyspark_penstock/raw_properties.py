"""Property bytes as a publisher wrote them, sent again with other headers.

In: ``properties_raw`` of a message (flags and properties) and headers to add.  Out: the same
bytes but for the table of headers: those of the same names are replaced, and CC and BCC are left
out, since they would send copies of a message to whom it went the first time.  So is ``user_id``:
a broker accepts only the name of the publisher.  Every other value keeps its type, which columns of
text cannot do.

Bytes that cannot be decoded are sent as they are, as the broker took them the first time.
"""

import struct
from collections.abc import Sequence

from pyspark_penstock.properties import (
    FIRST_FLAG,
    FIXED_SIZES,
    KINDS,
    Properties,
    Unreadable,
    _short_text,
    fields_of,
    set_in,
)

HEADERS, USER_ID = Properties._fields.index("headers"), Properties._fields.index("user_id")
COPIES = ("CC", "BCC")
Headers = Sequence[tuple[str, str | bytes | None]]


def with_headers(raw: bytes, added: Headers) -> bytes:
    try:
        return _with_headers(raw, added)
    except (Unreadable, struct.error, IndexError, RecursionError):
        return raw


def _with_headers(raw: bytes, added: Headers) -> bytes:
    (flags,) = struct.unpack_from(">H", raw)
    at, word = 2, flags
    while word & 1:  # more flags, of properties that AMQP does not have
        (word,) = struct.unpack_from(">H", raw, at)
        at += 2
    more_flags = raw[2:at]
    parts = [b""] * len(KINDS)
    for place, kind in set_in(flags):
        begin, at = at, _end_of(kind, raw, at)
        parts[place] = raw[begin:at]
    kept = _kept(parts[HEADERS], added) if parts[HEADERS] else b""
    table = kept + b"".join(header_field(*one) for one in added)
    if table or parts[HEADERS]:
        parts[HEADERS] = struct.pack(">I", len(table)) + table
        flags |= FIRST_FLAG >> HEADERS
    parts[USER_ID] = b""
    flags &= ~(FIRST_FLAG >> USER_ID)
    return b"".join([struct.pack(">H", flags), more_flags, *parts, raw[at:]])


def _end_of(kind: str, raw: bytes, at: int) -> int:
    """Of the property of this kind that begins at ``at``."""
    if kind == "s":
        return _short_text(raw, at)[1]
    if kind != "T":
        return at + FIXED_SIZES[kind]
    (size,) = struct.unpack_from(">I", raw, at)
    if at + 4 + size > len(raw):
        raise Unreadable("the headers are cut short")
    return int(at + 4 + size)


def _kept(table: bytes, added: Headers) -> bytes:
    """The fields that stay, as they are."""
    dropped = {*COPIES, *(name for name, _ in added)}
    fields = []
    begin = 4  # behind the table's length
    for name, _, _, end in fields_of(table, begin, len(table), 0):
        if name not in dropped:
            fields.append(table[begin:end])
        begin = end
    return b"".join(fields)


def header_field(name: str, value: str | bytes | None) -> bytes:
    """A field of a table, with its name.  Raises ValueError."""
    key = name.encode()
    if len(key) > 255:
        raise ValueError(f"penstock: the header '{name[:40]}…' has a name of {len(key)} bytes")
    head = bytes((len(key),)) + key
    if value is None:
        return head + b"V"
    data = value.encode() if isinstance(value, str) else value
    return head + b"S" + struct.pack(">I", len(data)) + data
