"""The PROXY protocol: what a proxy says of its client before the client's own bytes come.

In: the first bytes of a connection from a proxy.  Out: whom it stands for, and what is behind its
header; the connection goes on with that.  Versions 1 (a line of text) and 2 (binary) as HAProxy's
specification has them:

    PROXY TCP4 192.0.2.1 198.51.100.1 56324 5672 <CR> <LF>
    <12 octets> 2|command  family  length  addresses, extensions

A proxy that only looks whether we live (LOCAL), or cannot say whom it stands for (UNKNOWN), is
taken for itself; so is one of another machine whose client is on that machine (127.0.0.1), since
clients of this machine may do more.  A connection without such a header is refused.  Which
addresses may be proxies is a rule of ``address_rules``.
"""

import ipaddress
import logging
import socket
import struct
import time
from typing import Any, Final, NamedTuple

from penstock.core.events.line_limit import LineLimit
from penstock.runtime.connection import Connection
from penstock.runtime.secure_socket import SecureSocket
from penstock.settings.listener_table import is_loopback
from penstock.tls.options import TlsOptions

Address = tuple[str, int]

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
LINE_MAX_BYTES: Final = 107
_FIXED_BYTES: Final = 16
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_UNNAMED: Final = (0x00, 0x31, 0x32)  # unspecified, and Unix sockets on the proxy's machine
_PORT_MAX: Final = 65535

logger = logging.getLogger("penstock.proxy")


class NoProxyHeader(ValueError):
    """These bytes do not begin with what a proxy says."""


class Header(NamedTuple):
    """Client and own address as the proxy says, None = its own; and how long the header is."""

    client: Address | None
    own: Address | None
    size: int


def read_header(data: bytes) -> Header | None:
    """None = there is more to come; raises NoProxyHeader."""
    if data.startswith(SIGNATURE[: len(data)]):
        return _read_binary(data) if len(data) >= _FIXED_BYTES else None
    if data.startswith(b"PROXY "[: len(data)]):
        return _read_line(data)
    raise NoProxyHeader("it does not begin with a PROXY header")


def _read_binary(data: bytes) -> Header | None:
    command, family, length = struct.unpack_from(">BBH", data, len(SIGNATURE))
    size = _FIXED_BYTES + length
    if command not in (_LOCAL, _PROXY):
        raise NoProxyHeader(f"version and command {command:#04x} are unknown")
    if len(data) < size:
        return None
    if command == _LOCAL or family in _UNNAMED:
        return Header(None, None, size)
    kinds: dict[int, type[ipaddress.IPv4Address | ipaddress.IPv6Address]] = {
        _TCP4: ipaddress.IPv4Address,
        _TCP6: ipaddress.IPv6Address,
    }
    kind = kinds.get(family)
    if kind is None:
        raise NoProxyHeader(f"address family {family:#04x} is unknown")
    width = 4 if family == _TCP4 else 16
    if length < 2 * width + 4:
        raise NoProxyHeader("its addresses are cut off")
    addresses = data[_FIXED_BYTES : _FIXED_BYTES + 2 * width]
    client_port, own_port = struct.unpack_from(">HH", data, _FIXED_BYTES + 2 * width)
    client, own = str(kind(addresses[:width])), str(kind(addresses[width:]))
    return Header((client, client_port), (own, own_port), size)


def _read_line(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, LINE_MAX_BYTES)
    if end < 0:
        if len(data) >= LINE_MAX_BYTES:
            raise NoProxyHeader("its line does not end")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return Header(None, None, end + 2)
    try:
        _, kind, client, own, client_port, own_port = words
        version = {"TCP4": 4, "TCP6": 6}[kind]
        if {ipaddress.ip_address(client).version, ipaddress.ip_address(own).version} != {version}:
            raise NoProxyHeader("its addresses are not of its family")
        return Header((client, _port(client_port)), (own, _port(own_port)), end + 2)
    except (KeyError, ValueError) as error:
        raise NoProxyHeader(f"its line is malformed: {error}") from error


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _PORT_MAX:
        raise NoProxyHeader("its port is none")
    return int(text)


class ProxySocket:
    """Stands where the socket will stand until the header has come; nothing is sent before."""

    def __init__(
        self,
        sock: socket.socket,
        connection: Connection,
        tls: TlsOptions | None,
        lines: LineLimit,
    ) -> None:
        """``lines``: of the log, about those that are no proxy."""
        self._lines = lines
        self._sock = sock
        self._connection = connection
        self._options = tls
        self._read = b""

    def recv(self, size: int) -> bytes:
        data = self._sock.recv(size)
        if not data:
            return data
        self._read += data
        try:
            header = read_header(self._read)
        except NoProxyHeader as error:
            host, port = self._connection.peer
            if self._lines.allows(host, time.monotonic()):
                logger.warning("refused %s:%d, which is no proxy: %s", host, port, error)
            raise ConnectionAbortedError from error
        if header is None:
            raise BlockingIOError
        return self._go_on(header, size)

    def _go_on(self, header: Header, size: int) -> bytes:
        connection = self._connection
        client, own = header.client, header.own
        if client is None or (is_loopback(client[0]) and not is_loopback(connection.peer[0])):
            client, own = connection.peer, self.getsockname()[:2]
        connection.introduce(client, own)
        rest = self._read[header.size :]
        if self._options is None:
            connection.swap(self._sock)
        else:
            secure = SecureSocket(self._sock, self._options, connection.peer, rest)
            connection.swap(secure)
            if rest:
                return secure.recv(size)
        if not rest:
            raise BlockingIOError
        return rest

    def send(self, _data: memoryview) -> int:
        raise BlockingIOError

    def fileno(self) -> int:
        return self._sock.fileno()

    def getsockname(self) -> Any:
        return self._sock.getsockname()

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()
