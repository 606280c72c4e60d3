"""Snappy and deflate over a socket: whole whatever the pieces, bounded whatever comes."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.nsq.layer_stack import DEFLATE, SNAPPY, LayerStack
from penstock.protocols.nsq.layers import (
    DEFLATE_READ_BYTES,
    IDENTIFIER,
    LINES_MAX,
    PLAIN_BYTES,
    DeflateLayer,
    Layer,
    SnappyLayer,
    SocketLayers,
)


class Below:
    """A socket: what is to be read, in these pieces, and what was sent."""

    def __init__(self, pieces: list[bytes], takes: int = 1 << 30) -> None:
        self.pieces = pieces
        self.takes = takes
        self.sent = b""
        self.asked: list[int] = []

    def recv(self, size: int) -> bytes:
        self.asked.append(size)
        if not self.pieces:
            raise BlockingIOError
        return self.pieces.pop(0)

    def send(self, data: memoryview) -> int:
        if self.takes == 0:
            raise BlockingIOError
        count = min(len(data), self.takes)
        self.takes -= count
        self.sent += data[:count]
        return count

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        pass

    def fileno(self) -> int:
        return -1

    def getsockname(self) -> Any:
        return ("", 0)


def layer_over(kind: str, below: Below, rest: bytes = b"") -> Layer:
    return SnappyLayer(below, rest) if kind == "snappy" else DeflateLayer(below, rest, 6)


def compressed(kind: str, parts: list[bytes]) -> bytes:
    """Each part flushed by itself; with snappy as pynsq sends them, a new stream each."""
    if kind == "snappy":
        return b"".join(bytes(cramjam.snappy.compress(part)) for part in parts)
    compressor = zlib.compressobj(wbits=-15)
    return b"".join(
        compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH) for part in parts
    )


def read_all(layer: Layer, below: Below) -> bytes:
    plain = []
    while below.pieces:
        with contextlib.suppress(BlockingIOError):
            plain.append(layer.recv(1 << 16))
        while isinstance(layer, DeflateLayer) and (more := layer.more()):
            plain.append(more)
    return b"".join(plain)


@pytest.mark.parametrize("kind", ["snappy", "deflate"])
@given(
    parts=st.lists(st.binary(min_size=1, max_size=200), max_size=5),
    cuts=st.lists(st.integers(0, 1000), max_size=6),
)
def test_pieces_make_no_difference(kind: str, parts: list[bytes], cuts: list[int]) -> None:
    data = compressed(kind, parts)
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    below = Below(pieces)
    assert read_all(layer_over(kind, below), below) == b"".join(parts)


@pytest.mark.parametrize("kind", ["snappy", "deflate"])
def test_what_came_early_is_read_first(kind: str) -> None:
    layer = layer_over(kind, Below([]), compressed(kind, [b"early"]))
    assert layer.recv(100) == b"early"
    with pytest.raises(BlockingIOError):
        layer.recv(100)


@pytest.mark.parametrize("kind", ["snappy", "deflate"])
def test_bytes_have_left_when_all_they_became_has(kind: str) -> None:
    below = Below([], takes=5)
    layer = layer_over(kind, below)
    said = memoryview(b"hello " * 100)
    with pytest.raises(BlockingIOError):
        layer.send(said)
    below.takes = 1 << 30
    assert layer.send(said) == len(said)
    assert layer.send(said[:6]) == 6
    if kind == "snappy":
        assert bytes(cramjam.snappy.decompress(below.sent)) == b"hello " * 101
        assert below.sent.count(IDENTIFIER) == 1
    else:
        assert zlib.decompressobj(-15).decompress(below.sent) == b"hello " * 101


def test_chunks_that_carry_nothing_are_skipped() -> None:
    padding = b"\xfe\x03\x00\x00abc"
    data = padding + IDENTIFIER + compressed("snappy", [b"x"]) + b"\x80\xff\x00\x00" + b"y" * 255
    below = Below([data[:2], data[2:30], data[30:], compressed("snappy", [b"z"])])
    assert read_all(SnappyLayer(below, b""), below) == b"xz"


@pytest.mark.parametrize(
    "data",
    [
        b"\x02\x00\x00\x00",  # a kind nobody knows
        b"\x00\xff\xff\xff",  # a chunk of 16 MiB
        IDENTIFIER + b"\x01\x05\x00\x00\0\0\0\0x",  # a wrong checksum
        IDENTIFIER + b"\x00\x06\x00\x00\0\0\0\0\xff\xff",  # no snappy
        IDENTIFIER + b"\x00\x09\x00\x00\0\0\0\0\xff\xff\xff\xff\x0f",  # says it is 4 GiB
    ],
)
def test_what_is_no_snappy_ends_the_connection(data: bytes) -> None:
    with pytest.raises(ConnectionAbortedError):
        SnappyLayer(Below([data]), b"").recv(1000)


@pytest.mark.parametrize("kind", [SNAPPY, DEFLATE])
def test_what_is_not_compressed_is_a_line_within_bounds(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    layers = SocketLayers(None)
    stack = SimpleNamespace(
        peer=("192.0.2.1", 1), deflate_level=6, layer_is_up=Mock(), draw_from=Mock()
    )
    for _ in range(LINES_MAX + 5):
        layer = cast(Layer, layers.over(kind, Below([b"\x07" * 9]), b"", cast(LayerStack, stack)))
        with pytest.raises(ConnectionAbortedError):
            layer.recv(1000)
    assert caplog.text.count("192.0.2.1 sent is not compressed") == LINES_MAX


@given(st.binary(min_size=1, max_size=100), st.sampled_from(["snappy", "deflate"]))
def test_random_bytes_only_end_the_connection(data: bytes, kind: str) -> None:
    with contextlib.suppress(ConnectionAbortedError, BlockingIOError):
        layer_over(kind, Below([data])).recv(1000)


@pytest.mark.parametrize("size", [10 * PLAIN_BYTES + 1, 10 * PLAIN_BYTES])
def test_a_bomb_is_inflated_a_little_at_a_time(size: int) -> None:
    below = Below([compressed("deflate", [bytes(size)])])
    layer = DeflateLayer(below, b"", 6)
    assert layer.recv(1 << 18) == bytes(PLAIN_BYTES)
    assert below.asked == [DEFLATE_READ_BYTES]
    rest = list(iter(layer.more, b""))
    assert max(map(len, rest)) == PLAIN_BYTES
    assert b"".join(rest) == bytes(size - PLAIN_BYTES)


def test_what_is_no_deflate_behind_a_bomb_ends_the_connection() -> None:
    below = Below([compressed("deflate", [bytes(2 * PLAIN_BYTES)]) + b"\xff" * 9])
    layer = DeflateLayer(below, b"", 6)
    assert layer.recv(1 << 18) == bytes(PLAIN_BYTES)
    with pytest.raises(ConnectionAbortedError):
        list(iter(layer.more, b""))


def test_a_stream_that_ends_properly_is_read_to_its_end() -> None:
    compressor = zlib.compressobj(wbits=-15)
    layer = layer_over("deflate", Below([compressor.compress(b"last") + compressor.flush(), b"x"]))
    assert layer.recv(100) == b"last"
    assert layer.recv(100) == b""


def test_an_end_with_nothing_before_it_is_the_end() -> None:
    for end in (zlib.compressobj(wbits=-15).flush(), b""):
        assert layer_over("deflate", Below([end])).recv(100) == b""
