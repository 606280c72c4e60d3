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

import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.core.errors import SettingInvalid
from penstock.runtime.certificate import Subject, common_name, distinguished_name
from penstock.runtime.certificate_dates import expiry_dates
from penstock.settings.settings import Settings

RECORD_BYTES: Final = 16 * 1024
"""What TLS encrypts in one go; larger pieces would only make its buffers grow."""
SEND_BYTES: Final = 8 * RECORD_BYTES
RECEIVE_BYTES: Final = 4 * RECORD_BYTES
ROUND_S: Final = 0.010
HANDSHAKES_S: Final = 0.005
"""So much of each round is for handshakes; those that are left over come in the next one."""

logger = logging.getLogger("penstock.tls")


class TlsOptions:
    """What a TLS listener offers, and how it names those who show a certificate."""

    def __init__(
        self,
        context: ssl.SSLContext,
        login_from: str,
        clock: Callable[[], float] = time.monotonic,
        expiry_dates: dict[str, list[int]] | None = None,
    ) -> None:
        """``expiry_dates``: of the certificates that were loaded, by their setting."""
        self.context = context
        self.expiry_dates = expiry_dates or {}
        self.login_from = login_from
        self.clock = clock
        self._round_over_s = 0.0
        self._spent_s = 0.0

    def renew(self, other: "TlsOptions") -> None:
        """From now on with the certificates of the other."""
        self.context = other.context
        self.expiry_dates = other.expiry_dates

    def may_shake_hands(self) -> bool:
        """Is there time left for it in this round?"""
        now_s = self.clock()
        if not 0 < self._round_over_s - now_s <= ROUND_S:
            self._round_over_s = now_s + ROUND_S
            self._spent_s = 0.0
        return self._spent_s < HANDSHAKES_S

    def count_handshake(self, began_s: float) -> None:
        self._spent_s += self.clock() - began_s

    def login(self, certificate: dict[str, Any] | None) -> str | None:
        """The user whom the certificate names, "" when it names none; None = not asked for."""
        if not self.login_from:
            return None
        subject: Subject = (certificate or {}).get("subject", ())
        if self.login_from == "common_name":
            return common_name(subject)
        return distinguished_name(subject)


class SecureSocket:
    """See the head of this file."""

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
            if not self.established and not self._options.may_shake_hands():
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
        began_s = self._options.clock()
        try:
            self._tls.do_handshake()
            certificate = self._tls.getpeercert()
            self.login = self._options.login(certificate)
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, ValueError) as error:
            host, port = self._peer
            logger.warning("TLS handshake with %s:%d failed: %s", host, port, error)
            raise ConnectionAbortedError from error
        finally:
            self._options.count_handshake(began_s)
        self.established = True
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


# -- what a listener needs ---------------------------------------------------------------


OLDEST: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def tls_options(settings: Settings) -> TlsOptions | None:
    """None = no TLS was asked for; raises SettingInvalid for what cannot work."""
    if not settings.ssl_certfile:
        _refuse_half_of_it(settings)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = OLDEST[settings.ssl_min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_certificate(context, settings)
    if settings.ssl_cacertfile:
        _load_authorities(context, settings.ssl_cacertfile)
    if settings.ssl_verify == "verify_peer":
        if not settings.ssl_cacertfile:
            raise SettingInvalid("ssl_verify = 'verify_peer' needs ssl_cacertfile: whom to trust")
        strict = settings.ssl_fail_if_no_peer_cert
        context.verify_mode = ssl.CERT_REQUIRED if strict else ssl.CERT_OPTIONAL
    else:
        for key in ("ssl_fail_if_no_peer_cert", "ssl_cert_login_from"):
            if settings.value_of(key):
                raise SettingInvalid(f"{key} needs ssl_verify = 'verify_peer'")
    dates = {
        key: expiry_dates(str(settings.value_of(f"ssl_{key}")))
        for key in ("cacertfile", "certfile")
        if settings.value_of(f"ssl_{key}")
    }
    return TlsOptions(context, settings.ssl_cert_login_from, expiry_dates=dates)


def _refuse_half_of_it(settings: Settings) -> None:
    """An operator who names a key believes that there is TLS."""
    keys = ("ssl_keyfile", "ssl_cacertfile", "ssl_fail_if_no_peer_cert", "ssl_cert_login_from")
    for key in keys:
        if settings.value_of(key):
            raise SettingInvalid(f"{key} is set, but ssl_certfile is not: there would be no TLS")
    if settings.ssl_verify == "verify_peer":
        raise SettingInvalid("ssl_verify is set, but ssl_certfile is not: there would be no TLS")


def _load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    _check_readable("ssl_certfile", settings.ssl_certfile)
    if not settings.ssl_keyfile:
        raise SettingInvalid("ssl_certfile needs ssl_keyfile: the private key of the certificate")
    _check_readable("ssl_keyfile", settings.ssl_keyfile)
    try:
        # Without a password of ours the library would ask for one at the terminal.
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise SettingInvalid(
            f"ssl_certfile = {settings.ssl_certfile!r} and ssl_keyfile = {settings.ssl_keyfile!r}"
            f" are no certificate and its unencrypted key in PEM: {_reason(error)}"
        ) from error


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_readable("ssl_cacertfile", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingInvalid(
            f"ssl_cacertfile = {path!r} holds no certificates in PEM: {_reason(error)}"
        ) from error


def _check_readable(key: str, path: str) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise SettingInvalid(f"{key} = {path!r}: {error.strerror}") from error


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else ""
    return (reason or str(error)).lower().replace("_", " ")
