"""``PeerLink``: the way to one other member, as long as both live; connections come and go.

    owner ─► send ─► LinkSession ─► the connection of the moment
    the connection ─► came ─► (held while the owner may not take) ─► LinkSession ─► owner

One of two nodes calls the other, the one whose name is lower.  So two connections of one pair can
only mean that the caller has given up on the first one, and the newer one always wins: with both
calling, each could take the other's for the newer one and end its own.  The price is that a
node which can be called, and cannot call, is reached only by nodes with lower names; nodes of a
cluster are expected to reach each other both ways.

What its owner cannot take yet waits here as frames, not received as far as the session goes: it is
not acknowledged, so the other side's session fills up and says so, while acknowledgements and
heartbeats go on.  Above ``HELD_MAX_BYTES``, which only a peer reaches that ignores its own limit,
the connection is not read at all.

Invariants (``check``):
  W1  frames wait here only while there is a connection
  W2  the bytes held are the sum over the frames that wait
  W3  a connection belongs to the link exactly while the link's session says it is connected
"""

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.clocks import wall_ms
from penstock.cluster.remote.link_session import Delivery, LinkFault, LinkSession
from penstock.core.clock_types import MonoMs, WallMs
from penstock.protocols.peers.codec.frames import (
    MALFORMED,
    NOT_A_MEMBER,
    PARCEL_MAX_BYTES,
    STREAM_MAX,
    Parcels,
    Wrong,
    encode_parcels,
)
from penstock.protocols.peers.codec.hello import Hello
from penstock.protocols.peers.session import PeerSession
from penstock.runtime.connection import Connection

if TYPE_CHECKING:
    from penstock.protocols.peers.peers import PeerOwner, Peers

HELD_MAX_BYTES: Final = 64 * 1024 * 1024
DELIVER_BYTES: Final = 1024 * 1024
"""Of frames that wait, so much goes to the owner in one turn."""


class Member(NamedTuple):
    """One life of a node, and where it can be called: host and port, or a Unix socket's path."""

    name: str
    incarnation: str
    host: str = ""
    port: int = 0
    unix_path: str = ""

    def __str__(self) -> str:
        return f"{self.name}/{self.incarnation}"

    def life(self) -> tuple[str, str]:
        return self.name, self.incarnation

    def address(self) -> str:
        return self.unix_path or f"{self.host}:{self.port}"


class LinkFacts(NamedTuple):
    """For operators and for metrics; times are the wall clock's.

    ``is_caller``: it is this node that calls.  ``connections``: in all.
    """

    name: str
    incarnation: str
    address: str
    is_connected: bool
    is_caller: bool
    connected_at_ms: WallMs
    connections: int
    last_error: str
    bytes_in: int
    bytes_out: int
    waiting_bytes: int
    held_bytes: int
    resent_count: int
    is_full: bool


class PeerLink:
    def __init__(self, peers: "Peers", member: Member, owner: "PeerOwner") -> None:
        self.member = member
        self.session = LinkSession(peers.clock(), peers.limits.waiting_bytes)
        self.connection: PeerSession | None = None
        self.calls = peers.own.name < member.name
        self._calling: object = None  # while a call is under way: which
        self._call_at_ms = MonoMs(0)  # not before this
        self._delay_ms = 0
        self._peers = peers
        self._owner = owner
        self._held: deque[Parcels] = deque()
        self._held_bytes = 0
        self._connected_at_ms = WallMs(0)
        self._connections = 0
        self._last_error = ""
        self._bytes_in = 0  # of connections that have ended
        self._bytes_out = 0

    def moved(self, member: Member) -> None:
        """The same life; it may have another address."""
        if member.address() != self.member.address():
            self._call_at_ms, self._delay_ms = MonoMs(0), 0
        self.member = member

    # -- calling -------------------------------------------------------------------------

    def is_call_due(self, now_ms: MonoMs) -> bool:
        free = self.connection is None and self._calling is None
        return self.calls and free and now_ms >= self._call_at_ms

    def begin_call(self) -> object:
        """Returns which call it is."""
        self._calling = object()
        return self._calling

    def is_calling(self, call: object) -> bool:
        return self._calling is call

    def call_later(self, reason: str) -> None:
        """The call has failed, or what came of it has ended."""
        limits = self._peers.limits
        self._calling = None
        self._delay_ms = min(max(2 * self._delay_ms, limits.retry_min_ms), limits.retry_max_ms)
        delay_ms = int(self._delay_ms * (0.5 + self._peers.chance() / 2))
        self._call_at_ms = MonoMs(self._peers.clock() + delay_ms)
        self.failed(reason)

    # -- connections ---------------------------------------------------------------------

    def check_answer(self, hello: Hello) -> None:
        """Is it the one we called?"""
        if (hello.name, hello.incarnation) != self.member.life():
            text = f"{hello.name}/{hello.incarnation} answers, called was {self.member}"
            raise Wrong(text, NOT_A_MEMBER)

    def received(self) -> int:
        """The last parcel that need not be sent again."""
        return int(self.session.last_received)

    def connected(self, connection: PeerSession, their_received: int) -> None:
        assert self.connection is None
        try:
            self.session.connected(their_received)
        except LinkFault as fault:
            raise Wrong(str(fault)) from None
        self.connection = connection
        self._connected_at_ms = wall_ms()
        self._connections += 1

    def disconnected(self, connection: PeerSession, reason: str) -> None:
        assert connection is self.connection
        self._bytes_in += int(connection.received_bytes)
        self._bytes_out += int(connection.sent_bytes)
        if connection.age_ms() > self._peers.limits.retry_max_ms:
            self._delay_ms = 0
        self.connection = None
        self._held.clear()
        self._held_bytes = 0
        self.session.disconnected()
        self.failed(reason)

    def let_go(self, code: int, reason: str) -> None:
        if self.connection is not None:
            self.connection.leave(code, reason)

    def failed(self, reason: str) -> None:
        """Why it is not connected, in words."""
        self._last_error = reason

    # -- in ------------------------------------------------------------------------------

    def came(self, frame: Parcels) -> None:
        """A batch, while the sockets are read; handed on in the turn."""
        if self._held and frame.parcels[0][0] == 0:
            self._receive(frame)  # a mere acknowledgement does not wait behind the others
            return
        self._held.append(frame)
        self._held_bytes += frame.size_bytes
        if self.is_overfull():
            assert self.connection is not None
            self.connection.look_at_link()

    def is_overfull(self) -> bool:
        return self._held_bytes > HELD_MAX_BYTES

    def has_deliveries(self) -> bool:
        return len(self._held) > 0 and self._owner.may_take(self.member)

    def deliver(self) -> None:
        """To the owner, as much as it may take in a turn."""
        left = DELIVER_BYTES
        while left > 0 and self._held and self._owner.may_take(self.member):
            frame = self._held.popleft()
            self._held_bytes -= frame.size_bytes
            left -= frame.size_bytes
            deliveries = self._receive(frame)
            if deliveries:
                self._owner.arrived(self.member, deliveries)

    def _receive(self, frame: Parcels) -> list[Delivery]:
        deliveries = self.session.receive(frame.parcels)
        if self.session.fault and self.connection is not None:
            self.connection.refuse(MALFORMED, self.session.fault)
        return deliveries

    # -- out -----------------------------------------------------------------------------

    def send(self, stream: int, payload: bytes) -> None:
        assert 0 <= stream <= STREAM_MAX
        assert len(payload) <= PARCEL_MAX_BYTES
        self.session.send(stream, payload)

    def has_outgoing(self) -> bool:
        return self.session.has_outgoing()

    def take_outgoing(self, max_bytes: int) -> list[bytes]:
        return encode_parcels(self.session.take_outgoing(max_bytes))

    def flush(self) -> None:
        """At the end of a turn."""
        connection = self.connection
        if connection is not None and self.session.has_outgoing():
            connection.fill()
            self._peers.touch(connection)

    def can_flush(self) -> bool:
        connection = self.connection
        return connection is not None and self.session.has_outgoing() and connection.is_idle()

    # -- for operators -------------------------------------------------------------------

    def describe(self) -> LinkFacts:
        connection, session = self.connection, self.session
        return LinkFacts(
            self.member.name,
            self.member.incarnation,
            self.member.address(),
            connection is not None,
            self.calls,
            self._connected_at_ms,
            self._connections,
            self._last_error,
            self._bytes_in + (0 if connection is None else int(connection.received_bytes)),
            self._bytes_out + (0 if connection is None else int(connection.sent_bytes)),
            int(session.waiting_bytes),
            self._held_bytes,
            int(session.resent_count),
            session.is_full(),
        )

    def check(self) -> None:
        assert not self._held or self.connection is not None, "W1"
        assert self._held_bytes == sum(frame.size_bytes for frame in self._held), "W2"
        assert self.session.is_connected == (self.connection is not None), "W3"
        carrier = None if self.connection is None else self.connection.carrier
        assert carrier is None or isinstance(carrier, Connection)
        self.session.check()
