"""Where clients come in: TCP, TCP with TLS, a Unix socket; behind a proxy or not.

In: the settings.  Out: sockets that listen, and for each client a ``Connection`` whose socket does
what its listener asks for.  A plain client has a plain socket; only the others have something in
between (``secure_socket``, ``proxy_protocol``).
"""

import contextlib
import errno
import itertools
import os
import socket
import stat
from collections.abc import Callable, Collection, Mapping
from typing import Final

from penstock.core.clock_types import MonoMs
from penstock.core.errors import SettingInvalid
from penstock.core.events.line_limit import LineLimit
from penstock.runtime.connection import UNIX, Connection
from penstock.runtime.output_budget import KERNEL_UNSENT_BYTES
from penstock.runtime.proxy_protocol import ProxySocket
from penstock.runtime.secure_socket import SecureSocket
from penstock.settings.listener_table import AMQP, AMQP_SSL, LISTENERS, NSQ, listener_of
from penstock.settings.settings import Settings
from penstock.tls.options import TlsOptions, TlsSet

BACKLOG: Final = 1024
LINES_MAX: Final = 5
"""In a minute, of one address."""
KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer whose machine vanished is noticed after a minute, whatever its protocol asks for."""


class Listener:
    """One socket that accepts clients."""

    def __init__(
        self,
        sock: socket.socket,
        tls: TlsOptions | None = None,
        proxied: bool = False,
        protocol: str = "",
        begins_plain: bool = False,
    ) -> None:
        """``begins_plain``: clients ask for TLS in what they say first."""
        self.sock = sock
        self.protocol = protocol or (AMQP if tls is None else AMQP_SSL)
        self.tls = tls
        self._options = None if begins_plain else tls
        self.proxied = proxied
        self._lines = LineLimit(LINES_MAX)  # of the log, about those that are no proxy
        self._is_unix = sock.family == socket.AF_UNIX
        self._numbers = itertools.count(1)
        name = sock.getsockname()
        self.host = name if self._is_unix else name[0]
        self.port = 0 if self._is_unix else int(name[1])
        sock.setblocking(False)

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """Raises what the socket raises."""
        sock, peer = self.sock.accept()
        sock.setblocking(False)
        if self._is_unix:
            return sock, (UNIX, next(self._numbers))
        return sock, (peer[0], peer[1])

    def connection(self, sock: socket.socket, peer: tuple[str, int], now_ms: MonoMs) -> Connection:
        if not self._is_unix:
            tune(sock)
        if self._options is not None and not self.proxied:
            secure = SecureSocket(sock, self._options, peer)
            return Connection(secure, peer, now_ms, self.protocol)
        connection = Connection(sock, peer, now_ms, self.protocol)
        if self.proxied:
            connection.swap(ProxySocket(sock, connection, self._options, self._lines))
        return connection

    def close(self) -> None:
        self.sock.close()
        if self._is_unix:
            with contextlib.suppress(OSError):
                os.unlink(self.host)


def tune(sock: socket.socket) -> None:
    """As every TCP connection of ours is."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES)
    for level, option, value in KEEPALIVE:
        sock.setsockopt(level, option, value)


def tcp_socket(
    address: str, port: int, backlog: int = BACKLOG, *, shared: bool = False
) -> socket.socket:
    """Listening; raises OSError that names the address.

    ``shared``: other processes of the same user may listen there too, and each gets some of the
    connections.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return _listening(sock, f"{address}:{port}", lambda: sock.bind((address, port)), backlog)


def unix_socket(path: str, mode: int) -> socket.socket:
    """Listening on a file that only those whom ``mode`` lets write to it may use."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def bind() -> None:
        _remove_stale(path)
        sock.bind(path)
        os.chmod(path, mode)  # it does not listen yet: no client can be in

    return _listening(sock, path, bind)


def _listening(
    sock: socket.socket, where: str, bind: Callable[[], None], backlog: int = BACKLOG
) -> socket.socket:
    try:
        bind()
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from None
    return sock


def _remove_stale(path: str) -> None:
    """A broker that was killed leaves its file behind; one that lives answers there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    in_use = OSError(errno.EADDRINUSE, "it exists and is no socket")
    if not stat.S_ISSOCK(found.st_mode):
        raise in_use
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def open_listeners(
    settings: Settings, tls: TlsSet, places: Collection[str], ports: Mapping[str, int]
) -> list[Listener]:
    """All that the settings ask for; raises OSError, and none is open.

    ``places``: settings of listeners; others are not opened.  ``ports``: those to have again, by
    protocol.
    """
    listeners: list[Listener] = []
    try:
        for kind in LISTENERS:
            if kind.place_key not in places or not kind.is_open(settings):
                continue
            if kind.is_unix:
                sock = unix_socket(kind.place(settings), socket_mode(settings))
            else:
                place = kind.address(settings), ports.get(kind.protocol, kind.port(settings))
                shared = settings.shares_ports
                sock = tcp_socket(*place, settings.listen_backlog, shared=shared)
            proxied = not kind.is_unix and kind.protocol in settings.proxy_protocol
            options = tls.of(kind)
            listeners.append(Listener(sock, options, proxied, kind.protocol, kind.begins_plain))
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def socket_mode(settings: Settings) -> int:
    """Raises SettingInvalid."""
    text = settings.unix_socket_mode
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise SettingInvalid(f"unix_socket_mode = {text!r}; allowed: octal digits, up to 0777")
    return mode


def check_listeners(settings: Settings, tls: TlsSet) -> None:
    """What would be wrong of the listeners is said before anything else is done."""
    socket_mode(settings)
    if AMQP_SSL in settings.proxy_protocol and tls.of(listener_of(AMQP_SSL)) is None:
        raise SettingInvalid("proxy_protocol names 'amqp/ssl', but ssl_certfile is not set")
    if settings.nsq_tls_required != "no" and tls.of(listener_of(NSQ)) is None:
        raise SettingInvalid(
            "nsq_tls_required is set, but ssl_certfile is not: no client could connect"
        )
