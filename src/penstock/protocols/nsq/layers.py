"""The layers between an NSQ socket and its session: TLS, then snappy or deflate.

    recv: compressed bytes from below ─► plain bytes
    send: plain bytes ─► compressed, all that one turn said at once ─► below

A layer is a ``Carrier`` like the socket under it, so the loop sees no difference.  ``send`` says
that bytes have left when all they became has, as ``SecureSocket`` does.

A few bytes may become very many, so what comes of a read is bounded: snappy makes at most 21 bytes
of one and a chunk never more than 64 KiB; deflate, which makes a thousand, gives ``PLAIN_BYTES`` at
a time and keeps the rest compressed until the session asks for ``more``.
"""

import logging
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from penstock.core.events.line_limit import LineLimit
from penstock.protocols.nsq.layer_stack import SNAPPY, TLS, Layers, LayerStack
from penstock.runtime.connection import Carrier
from penstock.runtime.secure_socket import SecureSocket
from penstock.tls.options import TlsOptions

SEND_BYTES: Final = 128 * 1024
SNAPPY_READ_BYTES: Final = 64 * 1024
DEFLATE_READ_BYTES: Final = 4 * 1024
PLAIN_BYTES: Final = 64 * 1024

IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
COMPRESSED: Final = 0x00
UNCOMPRESSED: Final = 0x01
FIRST_SKIPPED: Final = 0x80
"""Chunks of this kind and above carry nothing, the identifier among them."""
CHUNK_MAX_BYTES: Final = 4 + 32 + 65_536 + 65_536 // 6
"""Checksum, and the most that 64 KiB may become."""

LINES_MAX: Final = 5
"""Of the log in a minute, about what clients of one address sent."""

Failed = Callable[[Exception], None]

logger = logging.getLogger("penstock.nsq")


class Layer:
    """A socket over another one."""

    read_bytes = SNAPPY_READ_BYTES

    def __init__(self, below: Carrier, rest: bytes, failed: Failed | None) -> None:
        self._failed = failed
        self._below = below
        self._rest = rest  # read of ``below`` already
        self._unsent = memoryview(b"")
        self._owed = 0  # plain bytes that have left when this has
        self._at_end = False  # the peer's stream is over, whatever its socket still brings

    def fileno(self) -> int:
        return self._below.fileno()

    def getsockname(self) -> Any:
        return self._below.getsockname()

    def close(self) -> None:
        self._below.close()

    def shutdown(self, how: int) -> None:
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._below.send(self._unsent) :]
        self._below.shutdown(how)

    def recv(self, size: int) -> bytes:
        """Plain bytes, possibly more than asked for; raises as a socket that does not block."""
        if self._at_end:
            return b""
        data, self._rest = self._rest, b""
        if not data:
            data = self._below.recv(min(size, self.read_bytes))
            if not data:
                return data
        plain = self._plain(data)
        if not plain and not self._at_end:
            raise BlockingIOError
        return plain

    def _plain(self, data: bytes) -> bytes:
        try:
            return self._decode(data)
        except (ValueError, zlib.error) as error:
            if self._failed is not None:
                self._failed(error)
            raise ConnectionAbortedError from error

    def send(self, data: memoryview) -> int:
        if not self._owed:
            piece = data[:SEND_BYTES]
            self._unsent = memoryview(self._encode(piece))
            self._owed = len(piece)
        while self._unsent:
            self._unsent = self._unsent[self._below.send(self._unsent) :]
        sent, self._owed = self._owed, 0
        return sent

    def _decode(self, data: bytes) -> bytes:
        raise NotImplementedError

    def _encode(self, data: memoryview) -> bytes:
        raise NotImplementedError


class SnappyLayer(Layer):
    """Snappy's framing format; a peer may begin a new stream whenever it likes."""

    def __init__(self, below: Carrier, rest: bytes, failed: Failed | None = None) -> None:
        # Only a node with such clients pays for the library.
        import cramjam  # noqa: PLC0415

        super().__init__(below, rest, failed)
        self._snappy = cramjam.snappy
        self._error = cramjam.DecompressionError
        self._compressor = cramjam.snappy.Compressor()
        self._unfinished = b""
        self._skipped = 0  # bytes of a chunk that carries nothing, still to come

    def _encode(self, data: memoryview) -> bytes:
        self._compressor.compress(bytes(data))
        return bytes(self._compressor.flush())

    def _decode(self, data: bytes) -> bytes:
        data = self._unfinished + data
        chunks = [IDENTIFIER]
        position = 0
        while True:
            skipped = min(self._skipped, len(data) - position)
            position += skipped
            self._skipped -= skipped
            if len(data) - position < 4:
                break
            kind = data[position]
            size = int.from_bytes(data[position + 1 : position + 4], "little")
            if kind >= FIRST_SKIPPED:
                self._skipped = 4 + size
                continue
            if kind not in (COMPRESSED, UNCOMPRESSED) or size > CHUNK_MAX_BYTES:
                raise ValueError(f"a chunk of type {kind} and {size} bytes")
            end = position + 4 + size
            if end > len(data):
                break
            chunks.append(data[position:end])
            position = end
        self._unfinished = data[position:]
        if len(chunks) == 1:
            return b""
        try:
            return bytes(self._snappy.decompress(b"".join(chunks)))
        except self._error as error:
            raise ValueError(str(error)) from None


class DeflateLayer(Layer):
    """Raw deflate; what a turn said is flushed so that the peer can read all of it."""

    read_bytes = DEFLATE_READ_BYTES

    def __init__(
        self, below: Carrier, rest: bytes, level: int, failed: Failed | None = None
    ) -> None:
        super().__init__(below, rest, failed)
        self._is_full = False
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._decompressor = zlib.decompressobj(-zlib.MAX_WBITS)

    def _encode(self, data: memoryview) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def _decode(self, data: bytes) -> bytes:
        plain = self._decompressor.decompress(data, PLAIN_BYTES)
        self._rest = self._decompressor.unconsumed_tail
        # A full piece without a tail: the library may have more of what it was given.
        self._is_full = len(plain) == PLAIN_BYTES
        self._at_end = self._decompressor.eof
        return plain

    def more(self) -> bytes:
        """More of what was read, b"" at its end; raises ConnectionAbortedError."""
        if self._at_end or not (self._rest or self._is_full):
            return b""
        data, self._rest = self._rest, b""
        return self._plain(data)


class SocketLayers(Layers):
    """Those of one node, with its certificate."""

    def __init__(self, tls: TlsOptions | None) -> None:
        self._tls = tls
        self._lines = LineLimit(LINES_MAX)

    def over(self, kind: str, sock: object, rest: bytes, stack: LayerStack) -> object:
        below = cast(Carrier, sock)
        if kind == TLS:
            return self._secure(cast(socket.socket, sock), rest, stack)
        if kind == SNAPPY:
            layer: Layer = SnappyLayer(below, rest, partial(self._failed, stack.peer[0]))
        else:
            failed = partial(self._failed, stack.peer[0])
            layer = deflate = DeflateLayer(below, rest, int(stack.deflate_level), failed)
            stack.draw_from(deflate.more)
        stack.layer_is_up()
        return layer

    def _failed(self, host: str, error: Exception) -> None:
        if self._lines.allows(host, time.monotonic()):
            logger.warning("what an NSQ client at %s sent is not compressed: %s", host, error)

    def _secure(self, sock: socket.socket, rest: bytes, stack: LayerStack) -> SecureSocket:
        assert self._tls is not None

        def up() -> None:
            version = secure.version.replace("tlsv", "TLS")
            stack.describe_tls(version, secure.cipher, secure.common_name, secure.login or "")
            stack.layer_is_up()

        secure = SecureSocket(sock, self._tls, stack.peer, rest, up)
        return secure
