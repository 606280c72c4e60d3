"""Field values and field tables, both ways.

In: bytes of a table (u32 length, then name/tag/value triples) as AMQP 0-9-1 spells it
with RabbitMQ's tags.  Out: a dict of plain Python values, and back.

    tag  read as                       written for
    S    str; bytes if not UTF-8       str
    x    bytes                         bytes
    t    bool                          bool
    b B s u I i l L   int              int: I when it fits 32 bits, else l
    f d  float                         float (d)
    D    decimal.Decimal               Decimal
    T    Timestamp                     Timestamp
    A F  list, dict                    list, dict
    V    None                          None

So a value keeps its meaning through here, but not the width of its integer; a table that must be
passed on byte by byte is passed on as bytes (``protocols.amqp.codec.properties`` does).

Names that are not UTF-8 are legal on the line; they become surrogate escapes and turn
back into the same bytes.  Of two fields with one name the first counts, as in RabbitMQ.

The bytes come from strangers: reading is one pass, never copies a nested table before
reading it, nests at most ``DEPTH_MAX`` deep and fails with ``MalformedArguments`` only.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    write_f64_be,
)
from mypy_extensions import i64, mypyc_attr

from penstock.core.byte_reader import ByteReader
from penstock.protocols.amqp.codec.errors import MalformedArguments, MalformedText

DEPTH_MAX: Final = 128
"""Tables and arrays inside each other; no known client goes beyond five."""

SHORT_STRING_MAX_BYTES: Final = 255
I32_MIN: Final = -(2**31)
I32_MAX: Final = 2**31 - 1
I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1

TAG_ARRAY: Final = 0x41
TAG_UNSIGNED_BYTE: Final = 0x42
TAG_DECIMAL: Final = 0x44
TAG_TABLE: Final = 0x46
TAG_INT: Final = 0x49
TAG_LONG_ALIAS: Final = 0x4C
TAG_LONG_STRING: Final = 0x53
TAG_TIMESTAMP: Final = 0x54
TAG_VOID: Final = 0x56
TAG_BYTE: Final = 0x62
TAG_DOUBLE: Final = 0x64
TAG_FLOAT: Final = 0x66
TAG_UNSIGNED_INT: Final = 0x69
TAG_LONG: Final = 0x6C
TAG_SHORT: Final = 0x73
TAG_BOOL: Final = 0x74
TAG_UNSIGNED_SHORT: Final = 0x75
TAG_BINARY: Final = 0x78


@mypyc_attr(native_class=False)
class Timestamp(int):
    """Seconds since 1970, UTC; a class of its own so that it is written as one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Timestamp({int(self)})"


@final
class FieldReader(ByteReader):
    """Typed fields of AMQP; what cannot be read is ``MalformedArguments``."""

    __slots__ = ()

    def refusal(self, text: str) -> Exception:
        return MalformedArguments(text)

    def long_long(self) -> int:
        """Unsigned, so it may be more than an ``i64`` holds."""
        value: int = self.signed()
        return value if value >= 0 else value + U64_MAX + 1

    def short_bytes(self) -> bytes:
        return self.raw(self.octet())

    def long_bytes(self) -> bytes:
        return self.raw(self.long())

    def short_string(self) -> str:
        """A short string that has to be UTF-8."""
        try:
            return self.short_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedText("Malformed UTF-8 in shortstr") from None

    def loose_string(self) -> str:
        """A short string of any bytes: what is not UTF-8 becomes surrogate escapes."""
        return self.short_bytes().decode("utf-8", "surrogateescape")

    def table(self, depth: i64) -> dict[str, object]:
        fields = self.enter(depth)
        found: dict[str, object] = {}
        while fields.offset < fields.end:
            name = fields.loose_string()
            value = fields.value(depth + 1)
            if name not in found:
                found[name] = value
        return found

    def array(self, depth: i64) -> list[object]:
        items = self.enter(depth)
        found: list[object] = []
        while items.offset < items.end:
            found.append(items.value(depth + 1))
        return found

    def enter(self, depth: i64) -> "FieldReader":
        """A reader of the table or array that begins here; this one steps over it."""
        if depth >= DEPTH_MAX:
            raise MalformedArguments(f"tables are nested more than {DEPTH_MAX} deep")
        size = self.long()
        start = self.take(size)
        return FieldReader(self.data, start, start + size)

    def value(self, depth: i64) -> object:
        """One tagged value; the commonest tags are asked for first."""
        tag = self.octet()
        if tag == TAG_LONG_STRING:
            return text_or_bytes(self.long_bytes())
        if tag == TAG_INT:
            return int(read_i32_be(self.data, self.take(4)))
        if tag == TAG_BOOL:
            return self.octet() != 0
        if tag == TAG_LONG or tag == TAG_LONG_ALIAS:
            return int(self.signed())
        if tag == TAG_TABLE:
            return self.table(depth)
        if tag == TAG_ARRAY:
            return self.array(depth)
        if tag == TAG_VOID:
            return None
        if tag == TAG_TIMESTAMP:
            return Timestamp(self.long_long())
        if tag == TAG_BINARY:
            return self.long_bytes()
        return self.rare_value(tag)

    def rare_value(self, tag: i64) -> object:
        if tag == TAG_DOUBLE:
            return read_f64_be(self.data, self.take(8))
        if tag == TAG_FLOAT:
            return read_f32_be(self.data, self.take(4))
        if tag == TAG_BYTE:
            octet = self.octet()
            return int(octet - 256 if octet > 127 else octet)
        if tag == TAG_UNSIGNED_BYTE:
            return int(self.octet())
        if tag == TAG_SHORT:
            return int(read_i16_be(self.data, self.take(2)))
        if tag == TAG_UNSIGNED_SHORT:
            return int(self.short())
        if tag == TAG_UNSIGNED_INT:
            return int(self.long())
        if tag == TAG_DECIMAL:
            scale = self.octet()
            return Decimal(f"{self.long()}E-{scale}")
        raise MalformedArguments(f"unknown field type {int(tag)} at {int(self.offset) - 1}")


def text_or_bytes(data: bytes) -> object:
    """A long string has no character set of its own: text when it can be."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def decode_table(data: bytes, offset: int) -> tuple[dict[str, object], int]:
    """The table that begins at ``offset``, and the offset after it."""
    reader = FieldReader(data, offset, len(data))
    table = reader.table(0)
    return table, reader.offset


def encode_table(table: dict[str, object]) -> bytes:
    """The table with its length in front; ``ValueError`` for what AMQP cannot say."""
    writer = BytesWriter()
    write_table(writer, table, 0)
    return writer.getvalue()


def write_table(writer: BytesWriter, table: dict[str, object], depth: int) -> None:
    inner = BytesWriter()
    for name, value in table.items():
        write_short_bytes(inner, name.encode("utf-8", "surrogateescape"))
        write_value(inner, value, depth + 1)
    write_long_bytes(writer, inner.getvalue())


def write_array(writer: BytesWriter, items: Sequence[object], depth: int) -> None:
    inner = BytesWriter()
    for value in items:
        write_value(inner, value, depth + 1)
    write_long_bytes(writer, inner.getvalue())


def write_short_bytes(writer: BytesWriter, data: bytes) -> None:
    if len(data) > SHORT_STRING_MAX_BYTES:
        raise ValueError(f"a short string has at most 255 bytes, this one has {len(data)}")
    writer.append(len(data))
    writer.write(data)


def write_long_bytes(writer: BytesWriter, data: bytes) -> None:
    writer.write(len(data).to_bytes(4, "big"))
    writer.write(data)


def write_value(writer: BytesWriter, value: object, depth: int) -> None:
    """One tagged value.  ``bool`` and ``Timestamp`` come before ``int``: they are ints."""
    if depth > DEPTH_MAX:
        raise ValueError(f"tables are nested more than {DEPTH_MAX} deep")
    if isinstance(value, str):
        writer.append(TAG_LONG_STRING)
        write_long_bytes(writer, value.encode("utf-8", "surrogateescape"))
    elif isinstance(value, bool):
        writer.append(TAG_BOOL)
        writer.append(1 if value else 0)
    elif isinstance(value, Timestamp):
        writer.append(TAG_TIMESTAMP)
        write_unsigned(writer, value, 8)
    elif isinstance(value, int):
        write_int(writer, value)
    elif isinstance(value, dict):
        writer.append(TAG_TABLE)
        write_table(writer, value, depth)
    elif isinstance(value, (list, tuple)):
        writer.append(TAG_ARRAY)
        write_array(writer, value, depth)
    else:
        write_rare_value(writer, value)


def write_rare_value(writer: BytesWriter, value: object) -> None:
    if value is None:
        writer.append(TAG_VOID)
    elif isinstance(value, (bytes, bytearray)):
        writer.append(TAG_BINARY)
        write_long_bytes(writer, bytes(value))
    elif isinstance(value, float):
        writer.append(TAG_DOUBLE)
        write_f64_be(writer, value)
    elif isinstance(value, Decimal):
        write_decimal(writer, value)
    else:
        raise ValueError(f"a field table cannot hold a {type(value).__name__}")


def write_int(writer: BytesWriter, value: int) -> None:
    if I32_MIN <= value <= I32_MAX:
        writer.append(TAG_INT)
        writer.write(value.to_bytes(4, "big", signed=True))
    elif I64_MIN <= value <= I64_MAX:
        writer.append(TAG_LONG)
        writer.write(value.to_bytes(8, "big", signed=True))
    else:
        raise ValueError(f"a field table cannot hold {value}: over 64 bits")


def write_unsigned(writer: BytesWriter, value: int, size: int) -> None:
    if value < 0 or value >= 1 << (8 * size):
        raise ValueError(f"{value} does not fit {size} unsigned bytes")
    writer.write(value.to_bytes(size, "big"))


def write_decimal(writer: BytesWriter, value: Decimal) -> None:
    """AMQP's decimal: how many digits follow the point, and an unsigned 32-bit number."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or sign or exponent < -255:
        raise ValueError(f"a field table cannot hold the decimal {value}")
    unscaled = 0
    for digit in digits:
        unscaled = unscaled * 10 + digit
    scale = max(0, -exponent)
    if exponent > 0:
        unscaled *= 10**exponent if exponent < 10 else U32_MAX + 1
    if unscaled > U32_MAX:
        raise ValueError(f"a field table cannot hold the decimal {value}: over 32 bits")
    writer.append(TAG_DECIMAL)
    writer.append(scale)
    writer.write(unscaled.to_bytes(4, "big"))
