"""A socket and the session behind it, as the loop keeps them."""

import select
import socket
from typing import Final, Protocol

from penstock.server.session import Session

READ_MIN_BYTES: Final = 16 * 1024


class SessionFactory(Protocol):
    """Makes the session once the first bytes tell which protocol it is."""

    def choose(self, first: bytes, peer: tuple[str, int], now_ms: int) -> Session | None:
        """None = not enough bytes yet to tell."""

    def tick(self, now_ms: int) -> None:
        """Some time has passed: end what nobody stands behind any more."""


class Connection:
    """A socket and the session behind it."""

    __slots__ = (
        "closed_at_ms",
        "fd",
        "first",
        "gone",
        "mask",
        "opened_at_ms",
        "paused",
        "peer",
        "read_bytes",
        "session",
        "sock",
        "unsent",
    )

    def __init__(self, sock: socket.socket, peer: tuple[str, int], now_ms: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.opened_at_ms = now_ms
        self.session: Session | None = None
        self.first = b""
        self.unsent: memoryview = memoryview(b"")
        self.mask = select.EPOLLIN
        self.read_bytes = READ_MIN_BYTES
        self.paused = False
        self.gone = False
        self.closed_at_ms = 0  # when the session was first seen closed
