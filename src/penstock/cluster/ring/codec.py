"""``RingMessage``: the message between neighbours of a ring, and its bytes.

An ``RingEntry`` is a sentence about one member's broadcasts: "up to ``last`` I have them, up to
``ack`` all members have; here are those from ``first`` on".  An item is the payload of a broadcast;
empty, it is a sweep of the ring's own; None (END) is the last item of a dead member, which its
right neighbour adds in its name.  An entry without items says numbers only.

    message   kind u8 · version u64 · names: count u16, name … · entries: count u32, entry …
    name      length u16 (not 0) · UTF-8
    entry     name of the origin · first u64 (not 0) · ack u64 (not above last) · items: count u32
              then per item length u32 (0xFFFFFFFF = END, only as the last) · payload

Kinds: 1 activity (no names), 2 catch-up (names: whose end the sender is unsure of), 3 blank (one
name, no entries).  All numbers are big-endian.  Every message has exactly one spelling; ``decode``
raises ``Malformed`` on anything else.
"""

from struct import Struct
from typing import Final, final

from mypy_extensions import i64

from penstock.core.byte_reader import ByteReader, Malformed

ACTIVITY: Final = 1
CATCH_UP: Final = 2
BLANK: Final = 3

END: Final = None
_END_LENGTH: Final = 0xFFFFFFFF
_LARGEST: Final = (1 << 63) - 1

_HEAD: Final = Struct(">BQH")
_NUMBERS: Final = Struct(">QQI")
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")


@final
class RingEntry:
    """What the sender knows of ``origin``'s broadcasts."""

    def __init__(self, origin: str, first: i64, items: list[bytes | None], ack: i64) -> None:
        self.origin = origin
        self.first: i64 = first
        self.items = items
        self.ack: i64 = ack

    def last(self) -> i64:
        return self.first + len(self.items) - 1


@final
class RingMessage:
    """``version``: of the view that the sender had."""

    def __init__(self, kind: i64, version: i64, names: list[str], entries: list[RingEntry]) -> None:
        self.kind: i64 = kind
        self.version: i64 = version
        self.names = names
        self.entries = entries


def encode(message: RingMessage) -> list[bytes]:
    """Pieces, to be joined by what carries them: payloads are copied once."""
    parts: list[bytes] = [_HEAD.pack(message.kind, message.version, len(message.names))]
    for name in message.names:
        _put_name(parts, name)
    parts.append(_U32.pack(len(message.entries)))
    for entry in message.entries:
        _put_name(parts, entry.origin)
        parts.append(_NUMBERS.pack(entry.first, entry.ack, len(entry.items)))
        for item in entry.items:
            if item is None:
                parts.append(_U32.pack(_END_LENGTH))
            else:
                parts.append(_U32.pack(len(item)))
                parts.append(item)
    return parts


def _put_name(parts: list[bytes], name: str) -> None:
    raw = name.encode()
    parts.append(_U16.pack(len(raw)))
    parts.append(raw)


def decode(data: bytes, at: int = 0) -> RingMessage:
    """All that begins there."""
    reader = _RingReader(data, at, len(data))
    kind, version, name_count = reader.head()
    names = reader.names(name_count)
    entries = reader.entries()
    if reader.offset != reader.end:
        raise Malformed(f"{int(reader.end - reader.offset)} bytes too many")
    _require_kind(kind, names, entries)
    return RingMessage(kind, version, names, entries)


def _require_kind(kind: i64, names: list[str], entries: list[RingEntry]) -> None:
    if kind == ACTIVITY:
        good = len(names) == 0
    elif kind == BLANK:
        good = len(names) == 1 and len(entries) == 0
    else:
        good = kind == CATCH_UP
    if not good:
        raise Malformed(f"kind {kind} with {len(names)} names, {len(entries)} entries")


@final
class _RingReader(ByteReader):
    __slots__ = ()

    def head(self) -> tuple[int, int, int]:
        kind, version, count = _HEAD.unpack_from(self.data, self.take(_HEAD.size))
        if not 0 < version <= _LARGEST:
            raise Malformed(f"version {version}")
        return kind, version, count

    def _name(self) -> str:
        raw = self.raw(self.short())
        try:
            name = raw.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a name is no UTF-8: {error}") from None
        if not name:
            raise Malformed("a name is empty")
        return name

    def names(self, count: int) -> list[str]:
        found: list[str] = []
        for _ in range(count):
            name = self._name()
            if name in found:
                raise Malformed(f"{name} twice")
            found.append(name)
        return found

    def entries(self) -> list[RingEntry]:
        found: list[RingEntry] = []
        origins: set[str] = set()
        for _ in range(self.long()):
            entry = self._entry()
            if entry.origin in origins:
                raise Malformed(f"two entries of {entry.origin}")
            origins.add(entry.origin)
            found.append(entry)
        return found

    def _entry(self) -> RingEntry:
        origin = self._name()
        first, ack, count = _NUMBERS.unpack_from(self.data, self.take(_NUMBERS.size))
        if not 0 < first <= _LARGEST - count or ack >= first + count:
            raise Malformed(f"{origin}: {count} items from {first}, {ack} acknowledged")
        return RingEntry(origin, first, self._items(count), ack)

    def _items(self, count: i64) -> list[bytes | None]:
        found: list[bytes | None] = []
        left = count
        while left > 0:
            left -= 1
            length = self.long()
            if length == _END_LENGTH:
                if left > 0:
                    raise Malformed("something follows an end")
                found.append(END)
            else:
                found.append(self.raw(length))
        return found
