"""Property bytes as a publisher wrote them, sent again with other headers.

In: ``properties_raw`` of a message (flags and properties) and headers to add.  Out: the same
bytes but for the table of headers: those of the same names are replaced, and CC and BCC are left
out, since they would send copies of a message to whom it went the first time.  So is ``user_id``:
a broker accepts only the name of who publishes.  Every other value keeps its type, which columns of
text cannot do.

Bytes nobody can decode are sent as they are, as the broker took them the first time.
"""

import struct
from collections.abc import Mapping

from pyspark_penstock.properties import Unreadable, _field, _short_text

CONTENT_TYPE, CONTENT_ENCODING, HEADERS = 0x8000, 0x4000, 0x2000
USER_ID = 0x0010
BETWEEN = (
    *((0x1000, 1), (0x0800, 1), (0x0400, 0), (0x0200, 0)),
    *((0x0100, 0), (0x0080, 0), (0x0040, 8), (0x0020, 0)),
)
"""Properties behind the headers and before the user, with their size; 0 = a short string."""
COPIES = ("CC", "BCC")
DEPTH = 1
"""Of the values in a message's own table."""


def with_headers(raw: bytes, added: Mapping[str, str | None]) -> bytes:
    try:
        return _with_headers(raw, added)
    except (Unreadable, struct.error, IndexError, RecursionError):
        return raw


def _with_headers(raw: bytes, added: Mapping[str, str | None]) -> bytes:
    (flags,) = struct.unpack_from(">H", raw)
    at, word = 2, flags
    while word & 1:  # more flags, of properties nobody has
        (word,) = struct.unpack_from(">H", raw, at)
        at += 2
    for flag in (CONTENT_TYPE, CONTENT_ENCODING):
        if flags & flag:
            _, at = _short_text(raw, at)
    kept, end = b"", at
    if flags & HEADERS:
        (size,) = struct.unpack_from(">I", raw, at)
        end = at + 4 + size
        if end > len(raw):
            raise Unreadable("the headers are cut short")
        kept = _kept(raw, at + 4, end, added)
    table = kept + b"".join(_text_field(name, text) for name, text in added.items())
    rest = raw[end:]
    if flags & USER_ID:
        rest = _without_user(rest, flags)
    if not table and not flags & HEADERS:
        return struct.pack(">H", flags & ~USER_ID) + raw[2:at] + rest
    head = struct.pack(">H", (flags | HEADERS) & ~USER_ID) + raw[2:at]
    return head + struct.pack(">I", len(table)) + table + rest


def _without_user(rest: bytes, flags: int) -> bytes:
    """``rest`` begins behind the headers."""
    at = 0
    for flag, size in BETWEEN:
        if flags & flag:
            at = at + size if size else _short_text(rest, at)[1]
    _, end = _short_text(rest, at)
    return rest[:at] + rest[end:]


def _kept(raw: bytes, at: int, end: int, added: Mapping[str, str | None]) -> bytes:
    """The fields that stay, as they are."""
    fields = []
    while at < end:
        begin = at
        name, at = _short_text(raw, at)
        _, at = _field(raw, at, DEPTH)
        if name not in added and name not in COPIES:
            fields.append(raw[begin:at])
    if at != end:
        raise Unreadable("a table disagrees with its length")
    return b"".join(fields)


def _text_field(name: str, text: str | None) -> bytes:
    key = name.encode()
    if len(key) > 255:
        raise ValueError(f"penstock: the header '{name[:40]}…' has a name of {len(key)} bytes")
    head = bytes((len(key),)) + key
    if text is None:
        return head + b"V"
    data = text.encode()
    return head + b"S" + struct.pack(">I", len(data)) + data
