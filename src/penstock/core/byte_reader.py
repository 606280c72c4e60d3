"""``ByteReader``: big-endian fields, one behind the other, of bytes from a peer or a file."""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from penstock.core.errors import PenstockError

NUMBER_MAX: Final[i64] = 1 << 62


class Malformed(PenstockError):
    """Bytes that break the format they should have; a peer's link ends."""


class ByteReader:
    """``offset`` moves forward to ``end``; a field that goes beyond is refused.

    Every method raises what ``refusal`` returns: ``Malformed``, or a codec's own error.
    """

    __slots__ = ("data", "end", "offset")

    def __init__(self, data: bytes, offset: i64, end: i64) -> None:
        self.data: bytes = data
        self.offset: i64 = offset
        self.end: i64 = end

    def refusal(self, text: str) -> Exception:
        return Malformed(text)

    def take(self, size: i64) -> i64:
        """Step over ``size`` bytes; returns where they begin."""
        start = self.offset
        if size > self.end - start:
            raise self.refusal(
                f"{int(size)} bytes wanted at {int(start)}, {int(self.end - start)} are there"
            )
        self.offset = start + size
        return start

    def octet(self) -> i64:
        return i64(self.data[self.take(1)])

    def short(self) -> i64:
        """Two bytes, unsigned."""
        return i64(read_i16_be(self.data, self.take(2))) & 0xFFFF

    def long(self) -> i64:
        """Four bytes, unsigned."""
        return i64(read_i32_be(self.data, self.take(4))) & 0xFFFFFFFF

    def signed(self) -> i64:
        """Eight bytes."""
        return read_i64_be(self.data, self.take(8))

    def number(self) -> i64:
        """Eight bytes, of 0 to ``NUMBER_MAX``."""
        value = self.signed()
        if value < 0 or value > NUMBER_MAX:
            raise self.refusal(f"a number of more than 2**62 before byte {int(self.offset)}")
        return value

    def count(self, item_bytes: i64) -> i64:
        """Four bytes: of items that take at least so many bytes each, and can all be there."""
        count = self.long()
        if count * item_bytes > self.end - self.offset:
            raise self.refusal(f"{int(count)} items cannot follow byte {int(self.offset)}")
        return count

    def raw(self, size: i64) -> bytes:
        start = self.take(size)
        return self.data[start : start + size]

    def text(self) -> str:
        """Two bytes of length, then UTF-8; what is none becomes surrogate escapes."""
        return self.raw(self.short()).decode("utf-8", "surrogateescape")
