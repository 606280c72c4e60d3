"""TLS: a socket that the loop reads and writes like a plain one.

    recv: ciphertext from the socket ─► incoming ─► plain bytes
    send: plain bytes ─► outgoing ─► ciphertext to the socket

Only a connection of the TLS listener has one of these, so plain connections pay nothing for it.

- ``recv`` takes out all that can be decrypted: nothing waits inside that no event would announce.
- ``send`` says that bytes have left only when their last byte of ciphertext has: until then it
  blocks, and the loop comes again with the same bytes, as it does with a plain socket.
- The handshake happens inside ``recv``.  One that fails is a line in the log and the end of that
  connection only.  Handshakes are dear, and a thousand clients may come back at once: all of them
  together get half of the time, and who is logged in goes on meanwhile.
- Who calls (``server_name``) says ``begin``, and sends nothing before it is told: it is ``up``.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.tls.names import Subject, common_name, distinguished_name
from penstock.tls.options import TlsOptions

RECORD_BYTES: Final = 16 * 1024
"""What TLS encrypts in one go; larger pieces would only make its buffers grow."""
SEND_BYTES: Final = 8 * RECORD_BYTES
RECEIVE_BYTES: Final = 4 * RECORD_BYTES


class SecureSocket:
    def __init__(
        self,
        sock: socket.socket,
        tls: TlsOptions,
        peer: tuple[str, int],
        received: bytes = b"",
        up: Callable[[], None] | None = None,
        server_name: str | None = None,
    ) -> None:
        """``received``: what was read of the socket already; ``up``: told after the handshake.

        ``server_name``: we are the one who calls, and that is whom.
        """
        self._sock = sock
        self._options = tls
        self._peer = peer
        self._received = received
        self._up = up
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self._unsent = memoryview(b"")  # ciphertext
        self._owed = 0  # plain bytes that have left when this has
        self._ended = False
        self.established = False
        self.login: str | None = None
        self.subject = ""
        self.common_name = ""

    @property
    def version(self) -> str:
        return (self._tls.version() or "").lower()

    @property
    def cipher(self) -> str:
        cipher = self._tls.cipher()
        return "" if cipher is None else cipher[0]

    def begin(self) -> None:
        """The first word of the one who calls."""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self._flush()

    def fileno(self) -> int:
        return self._sock.fileno()

    def getsockname(self) -> Any:
        return self._sock.getsockname()

    def close(self) -> None:
        self._sock.close()

    # -- in ------------------------------------------------------------------------------

    def recv(self, _size: int) -> bytes:
        """Plain bytes, possibly more than asked for; raises as a socket that does not block."""
        data, self._received = self._received, b""
        if not data:
            if not self.established and not self._options.budget.is_left():
                raise BlockingIOError  # nothing was read: the loop will be told again
            data = self._sock.recv(RECEIVE_BYTES)
            if not data or self._ended:
                return data
        try:
            plain = self._decrypt(data)
        finally:
            self._flush()  # an alert too
        if not plain and not self._ended:
            raise BlockingIOError
        return plain

    def _decrypt(self, data: bytes) -> bytes:
        plain: list[bytes] = []
        for start in range(0, len(data), RECORD_BYTES):
            self._incoming.write(data[start : start + RECORD_BYTES])
            if not self.established:
                self._shake_hands()
            with suppress(ssl.SSLWantReadError):
                while self.established and not self._ended:
                    some = self._tls.read(RECORD_BYTES)
                    plain.append(some)
                    self._ended = not some  # the peer said goodbye
        return b"".join(plain)

    def _shake_hands(self) -> None:
        began_s = self._options.budget.clock()
        try:
            self._tls.do_handshake()
            self.login = self._options.login(self._tls)
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, ValueError) as error:
            host, _ = self._peer
            self._options.failed(host, error)
            raise ConnectionAbortedError from error
        finally:
            self._options.budget.count(began_s)
        self.established = True
        certificate = self._tls.getpeercert()
        if certificate:
            subject: Subject = certificate.get("subject", ())  # type: ignore[assignment]
            self.subject = distinguished_name(subject)
            self.common_name = common_name(subject)
        if self._up is not None:
            self._up()

    # -- out -----------------------------------------------------------------------------

    def send(self, data: memoryview) -> int:
        """How many plain bytes have left, in full; raises as a socket that does not block."""
        self._flush()
        if self._unsent:
            raise BlockingIOError
        if not self._owed:
            self._owed = self._encrypt(data[:SEND_BYTES])
            self._flush()
            if self._unsent:
                raise BlockingIOError
        sent, self._owed = self._owed, 0
        return sent

    def _encrypt(self, data: memoryview) -> int:
        ciphertext: list[bytes] = []
        done = 0
        while done < len(data):
            done += self._tls.write(data[done : done + RECORD_BYTES])
            ciphertext.append(self._outgoing.read())
        self._unsent = memoryview(b"".join(ciphertext))
        return done

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]

    def shutdown(self, how: int) -> None:
        """Say goodbye; what comes from now on is not decrypted any more."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._ended = True
        self._flush()
        self._sock.shutdown(how)
