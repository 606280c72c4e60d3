"""A socket and the session behind it, as the loop keeps them."""

import contextlib
import select
import socket
from typing import Any, Final, Protocol, cast

from penstock.core.clock_types import MonoMs, WallMs
from penstock.runtime.secure_socket import SecureSocket
from penstock.runtime.session import Session
from penstock.settings.listener_table import AMQP, PEER

READ_MIN_BYTES: Final = 16 * 1024
OUTPUT_KEPT_BYTES: Final = 1024 * 1024
"""An output buffer that grew larger is not kept for the next turn."""
OUTPUT_AT_REST_BYTES: Final = 16 * 1024
"""One that grew larger is not kept while it is not needed."""
PARTS_MAX: Final = 1024
"""Buffers in one write: IOV_MAX of Linux."""
NOTHING: Final = memoryview(b"")
LAST_READS_MAX: Final = 64
LAST_READ_BYTES: Final = 256 * 1024
UNIX: Final = "unix"
"""As a peer's host: it is on this machine, and its port is only a number of ours."""


class Carrier(Protocol):
    """What the loop asks of a socket; ``socket.socket`` has all of it."""

    def recv(self, size: int, /) -> bytes: ...

    def send(self, data: memoryview, /) -> int: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...

    def fileno(self) -> int: ...

    def getsockname(self) -> Any: ...


class SessionFactory(Protocol):
    """Makes the session once the first bytes tell which protocol it is."""

    def choose(
        self,
        first: bytes,
        peer: tuple[str, int],
        now_ms: WallMs,
        login: str | None = None,
        protocol: str = AMQP,
    ) -> Session | None:
        """None = not enough bytes yet to tell.

        ``login``: whom a certificate names, if asked; ``protocol``: its listener's.
        """

    def is_overdue(self, connection: "Connection", now_ms: MonoMs) -> bool:
        """The bytes that tell its protocol have not come in time; that is noted."""

    def tick(self, now_ms: WallMs) -> None:
        """Some time has passed: end what has no owner any more."""


class Connection:
    """A socket and the session behind it."""

    def __init__(
        self,
        sock: Carrier,
        peer: tuple[str, int],
        now_ms: MonoMs,
        protocol: str = AMQP,
        own: tuple[str, int] | None = None,
    ) -> None:
        """``own``: our address, where the socket would say another."""
        self.sock = sock
        self.protocol = protocol
        self.fd = sock.fileno()
        self.peer = peer
        self.own = own
        self.opened_at_ms = now_ms
        self.session: Session | None = None
        self.known_name = ""  # once it has a session: to ask again costs a system call
        self.first = b""
        self.unsent: memoryview = NOTHING
        self._behind: list[bytes] = []  # to be sent behind that; none while that is empty
        self.left_bytes = 0  # taken from its session, and not yet sent
        self._buffer_bytes = 0  # the most that its session's output buffer has had
        self._needed_bytes = 0  # and since the last look
        self.mask = select.EPOLLIN
        self.read_bytes = READ_MIN_BYTES
        self.paused = False
        self.gone = False
        self.closed_at_ms = MonoMs(0)  # when the session was first seen closed

    def carry(self, session: Session) -> None:
        """From now on what comes in is for this session."""
        session.ride_on(self)
        session.outlet.gather(isinstance(self.sock, socket.socket))
        self.session = session

    def add_first(self, data: bytes) -> bytes:
        """All that came before its protocol was known."""
        self.first += data
        return self.first

    def take_first(self) -> bytes:
        """For the session, now that there is one."""
        first = self.first
        self.first = b""
        return first

    def introduce(self, peer: tuple[str, int], own: tuple[str, int] | None) -> None:
        """A proxy has said between whom it is."""
        self.peer = peer
        self.own = own

    def swap(self, sock: Carrier) -> None:
        """From now on bytes come and go by this one."""
        self.sock = sock
        if self.session is not None:
            self.session.outlet.gather(isinstance(sock, socket.socket))

    def pause(self) -> None:
        """It is not read for the time being."""
        self.paused = True

    def unpause(self) -> None:
        self.paused = False

    def read_at_once(self, size_bytes: int) -> None:
        """So many bytes at most."""
        self.read_bytes = size_bytes

    def watched(self, mask: int) -> None:
        """The loop waits for these events."""
        self.mask = mask

    def closed_for_ms(self, now_ms: MonoMs) -> int:
        """How long ago its session was first seen closed."""
        if self.closed_at_ms == 0:
            self.closed_at_ms = now_ms
        return now_ms - self.closed_at_ms

    def drop(self) -> None:
        """It is over; its session does not know it any more."""
        self.gone = True
        self.sock.close()
        if self.session is not None:
            self.session.ride_on(None)

    def is_stranger(self) -> bool:
        """No user has logged in on it yet; links between nodes have a bound of their own."""
        session = self.session
        return self.protocol != PEER and (session is None or session.user is None)

    @property
    def login(self) -> str | None:
        """The user whom the client's certificate names, "" = none; None: it was not asked for."""
        sock = self.sock
        return sock.login if isinstance(sock, SecureSocket) else None

    def take_output(self, session: Session) -> bool:
        """What its session has to say is to be sent next; False = it has nothing."""
        out, outlet = session.out, session.outlet
        size = len(out)
        self.left_bytes = size + int(outlet.ahead_bytes)
        parts = outlet.take_ahead() if outlet.ahead_bytes > 0 else []
        if size > 0:
            parts.append(out.getvalue())
            if size > OUTPUT_KEPT_BYTES:
                session.renew_output()
            else:
                out.truncate(0)
                self._needed_bytes = max(self._needed_bytes, size)
        if not parts:
            return False
        self.unsent = memoryview(parts[0])
        if len(parts) > 1:
            self._behind = parts[1:]
        return True

    def send(self) -> int:
        """As much as the socket takes; raises what the socket raises."""
        if not self._behind:
            return self.sock.send(self.unsent)
        parts: list[bytes | memoryview] = [self.unsent, *self._behind[: PARTS_MAX - 1]]
        return cast(socket.socket, self.sock).sendmsg(parts)

    def sent(self, count: int) -> None:
        """So many bytes have left; a view of none would keep all of them."""
        self.left_bytes -= count
        left = len(self.unsent)
        whole = 0
        while count >= left and whole < len(self._behind):
            count -= left
            part = self._behind[whole]
            left = len(part)
            self.unsent = memoryview(part)
            whole += 1
        if whole > 0:
            del self._behind[:whole]
        self.unsent = self.unsent[count:] if count < left else NOTHING

    def slim(self) -> None:
        """Now and then: keep what the peer has not read, and no buffer that is not needed."""
        session = self.session
        if session is None:
            return
        if 2 * self.unsent.nbytes < memoryview(self.unsent.obj).nbytes:
            self.unsent = memoryview(bytes(self.unsent))
        needed = self._needed_bytes
        self._needed_bytes = 0
        self._buffer_bytes = max(self._buffer_bytes, needed)
        is_large = self._buffer_bytes > max(4 * needed, OUTPUT_AT_REST_BYTES)
        if len(session.out) == 0 and (self.unsent or is_large):
            session.renew_output()  # its buffer is as large as it ever was
            self._buffer_bytes = 0

    def say_goodbye(self) -> None:
        """Unread input would turn our close into a reset and destroy our last words.

        A peer that goes on sending gets the reset: it is not worth the loop's time.
        """
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
            for _ in range(LAST_READS_MAX):
                if not self.sock.recv(LAST_READ_BYTES):
                    break

    def own_address(self) -> tuple[str, int]:
        """Where the client came in."""
        if self.own is not None:
            return self.own
        name = self.sock.getsockname()
        return (name, 0) if isinstance(name, str) else (name[0], name[1])

    @property
    def name(self) -> str:
        """As RabbitMQ names connections."""
        if self.known_name:
            return self.known_name
        name = self._make_name()
        if self.session is not None:
            self.known_name = name
        return name

    def _make_name(self) -> str:
        peer_host, peer_port = self.peer
        host, port = self.own_address()
        if peer_host == UNIX:
            return f"{peer_host}:{peer_port} -> {host}"
        return f"{peer_host}:{peer_port} -> {host}:{port}"
