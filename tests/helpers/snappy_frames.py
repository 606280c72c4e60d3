"""Snappy's framing format for tests: what a client needs, and nothing of the broker's.

What is written are uncompressed chunks, which the format allows; what is read may be compressed,
so here is a decompressor.  Both are written from the public description of the format.
"""

from __future__ import annotations

STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _PLAIN, _IDENTIFIER = 0x00, 0x01, 0xFF
_CHUNK_MAX = 65_536


def _table() -> list[int]:
    table = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def masked_checksum(data: bytes) -> int:
    """CRC-32C, turned and shifted so that a checksum of a checksum is no trap."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def plain_chunks(data: bytes) -> bytes:
    """The data as uncompressed chunks."""
    out = bytearray()
    for at in range(0, len(data), _CHUNK_MAX):
        part = data[at : at + _CHUNK_MAX]
        out += bytes([_PLAIN]) + (len(part) + 4).to_bytes(3, "little")
        out += masked_checksum(part).to_bytes(4, "little") + part
    return bytes(out)


def _length(data: bytes) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return value, at + 1
    raise ValueError("a length without end")


def decompress(data: bytes) -> bytes:
    """One block of Snappy: literals, and copies of what stands before."""
    wanted, at = _length(data)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            size = (tag >> 2) + 1
            if size > 60:
                extra = size - 60
                size = int.from_bytes(data[at : at + extra], "little") + 1
                at += extra
            out += data[at : at + size]
            at += size
            continue
        if kind == 1:
            size, width, high = (tag >> 2 & 7) + 4, 1, (tag >> 5) << 8
        else:
            size, width, high = (tag >> 2) + 1, 2 if kind == 2 else 4, 0
        back = high | int.from_bytes(data[at : at + width], "little")
        at += width
        for _ in range(size):
            out.append(out[-back])
    if len(out) != wanted:
        raise ValueError(f"a block of {len(out)} bytes that promised {wanted}")
    return bytes(out)


class SnappyReader:
    """Bytes in, bytes out; chunks may come in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        self._rest += data
        out = bytearray()
        while len(self._rest) >= 4:
            size = int.from_bytes(self._rest[1:4], "little")
            if len(self._rest) < 4 + size:
                break
            out += self._chunk(self._rest[0], self._rest[4 : 4 + size])
            self._rest = self._rest[4 + size :]
        return bytes(out)

    @staticmethod
    def _chunk(kind: int, content: bytes) -> bytes:
        if kind == _IDENTIFIER or kind >= 0x80:
            return b""
        if kind not in (_COMPRESSED, _PLAIN):
            raise ValueError(f"chunk of kind {kind}")
        data = content[4:] if kind == _PLAIN else decompress(content[4:])
        if masked_checksum(data) != int.from_bytes(content[:4], "little"):
            raise ValueError("wrong checksum")
        return data
