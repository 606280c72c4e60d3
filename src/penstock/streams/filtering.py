"""The filter of a block: which filter values its messages may have.

A Bloom filter of as many bytes as the stream says.  A message without a value counts as one with
the empty value; a block whose messages all have none has no filter, so a stream that does not use
values pays nothing.  A filter answers *no* or *maybe*: what reads a block looks at its messages.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.checksum import crc32
from penstock.core.headers import HeaderReader
from penstock.core.message import Message

FILTER_BYTES: Final[i64] = 16
"""RabbitMQ's default."""
HASHES: Final[i64] = 3
UNFILTERED: Final = b""
_STEP: Final[i64] = 0x45D9F3B
_MASK: Final[i64] = 0xFFFFFFFF


def make_filter(values: set[bytes], size: i64) -> bytes:
    """Of the values in a block; ``size`` in bytes."""
    if values <= {UNFILTERED}:
        return b""
    bits = bytearray(int(size))
    for value in values:
        first: i64 = crc32(value)
        step = _step(first)
        for i in range(HASHES):
            bit = (first + i * step) % (8 * size)
            bits[bit >> 3] |= 1 << int(bit & 7)
    return bytes(bits)


def _step(first: i64) -> i64:
    return ((first ^ (first >> 16)) * _STEP >> 7) & _MASK | 1


def may_hold(block_filter: bytes, value: bytes) -> bool:
    """May a message of the block have this value?"""
    size: i64 = len(block_filter)
    if size == 0:
        return len(value) == 0
    first: i64 = crc32(value)
    step = _step(first)
    for i in range(HASHES):
        bit = (first + i * step) % (8 * size)
        if not block_filter[bit >> 3] >> int(bit & 7) & 1:
            return False
    return True


@final
class Wanted:
    """The filter of a reader: messages with one of these values; ``unfiltered``: or with none."""

    __slots__ = ("values",)

    def __init__(self, values: list[bytes], unfiltered: bool) -> None:
        self.values: list[bytes] = [*values, UNFILTERED] if unfiltered else values

    def may_match(self, block_filter: bytes) -> bool:
        return any(may_hold(block_filter, value) for value in self.values)


@final
class HeaderFilter:
    """The headers that a reader wants of a message: all of these, or any."""

    __slots__ = ("_all", "_reader", "_wanted")

    def __init__(self, reader: HeaderReader, wanted: list[tuple[str, str]], all_: bool) -> None:
        self._reader: HeaderReader = reader
        self._wanted: list[tuple[str, str]] = wanted
        self._all: bool = all_

    def matches(self, message: Message) -> bool:
        for name, text in self._wanted:
            if (header_text(self._reader.read(message, name)) == text) != self._all:
                return not self._all
        return self._all


def header_text(value: object) -> str | None:
    """A value of a header as a filter compares it; None = it has no such text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None
