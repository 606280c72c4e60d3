"""The checksum of what is stored: releases before had it from ``zlib``, and others may."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.checksum import crc32


@given(st.lists(st.binary(max_size=5000), max_size=5))
def test_the_checksum_of_pieces_is_that_of_zlib(pieces: list[bytes]) -> None:
    checksum = 0
    for piece in pieces:
        checksum = crc32(piece, checksum)
        assert crc32(memoryview(piece)) == zlib.crc32(piece)
    assert checksum == zlib.crc32(b"".join(pieces))


def test_large_blocks_have_the_checksum_of_zlib() -> None:
    block = bytes(range(256)) * 4097
    assert crc32(block, 7) == zlib.crc32(block, 7)
