"""``PROTOCOLS``: the table of protocols; ``Sessions``: makes a session for each client that comes.

In: the first bytes, the peer, and the user whom a certificate names.  Out: the session that goes on
with them, told once and for all whether the peer sits on this machine.

Another protocol is one package in ``protocols`` and one row here: the sockets to listen on, the
sessions of the clients that come, and what management shows of them follow from the row.
"""

import logging
import platform
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.oauth.tokens import TOKEN_MAX_CHARS
from penstock.broker.rules.access import User
from penstock.broker.rules.judges import Source
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.counting.traffic import AMQP, NSQ
from penstock.protocols.amqp.description import AmqpDescription
from penstock.protocols.amqp.handshake import FRAME_MIN_BYTES, Limits
from penstock.protocols.amqp.link import CancelSink
from penstock.protocols.amqp.session import AmqpSession
from penstock.protocols.description import SessionDescription
from penstock.protocols.nsq.codec.reader import MAGIC as NSQ_MAGIC
from penstock.protocols.nsq.description import NsqDescription
from penstock.protocols.nsq.session import NsqSession
from penstock.protocols.nsq.shared import NsqShared
from penstock.protocols.peers.peers import Peers
from penstock.protocols.peers.session import PeerSession
from penstock.protocols.ranges.description import RangeDescription
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.session import RangeSession
from penstock.runtime.connection import UNIX, Connection
from penstock.runtime.session import Session
from penstock.settings.listener_table import AMQP as AMQP_LISTENER
from penstock.settings.listener_table import is_loopback, listener_at
from penstock.settings.settings import Settings
from penstock_ranges.frames import MAGIC as RANGES_MAGIC

PEER_PRODUCT: Final = "RabbitMQ"
PEER_VERSION: Final = "3.10.8"
"""The RabbitMQ release whose behaviour AMQP clients find here.  Some look at it: to any other
product kombu says ``basic.qos`` as the specification has it, and Celery's workers then never
get more room for tasks that are not due.  Who we are stands in ``information``."""

logger = logging.getLogger("penstock.connection")


def new_name(prefix: str) -> str:
    """22 random characters behind a prefix, as RabbitMQ names what clients leave unnamed."""
    return prefix + urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()


class Arrival(NamedTuple):
    """A client whose first bytes have come."""

    peer: tuple[str, int]
    is_here: bool
    """It is on this machine."""
    now_ms: WallMs
    login: str | None
    """The user whom its certificate names, "" = none; None: none was asked for."""


class Sessions:
    """Of one node."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        tell_cancelled: CancelSink,
        nsq: NsqShared | None = None,
    ) -> None:
        self.peers: Peers | None = None  # of a node of a cluster
        self._broker = broker
        self._tell_cancelled = tell_cancelled
        self._nsq = nsq
        self._leases = RangeLeases(
            settings.range_lease_grace_ms,
            broker.letting_go,
            broker.idleness,
            settings.stream_hold_max_bytes,
        )
        self._leases.adopt(broker)  # it has its queues again, and no reader is there yet
        self._limits = Limits(
            settings.channel_max,
            settings.frame_max,
            settings.heartbeat_s,
            settings.handshake_timeout_ms,
            settings.max_message_size_bytes,
            settings.initial_frame_max_bytes
            or (2 * TOKEN_MAX_CHARS if settings.auth_oauth2 else FRAME_MIN_BYTES),
        )
        self._properties = server_properties()

    def join(self, peers: Peers) -> None:
        """From now on other nodes are let in."""
        self.peers = peers

    def choose(
        self,
        first: bytes,
        peer: tuple[str, int],
        now_ms: WallMs,
        login: str | None = None,
        protocol: str = AMQP_LISTENER,
    ) -> Session | None:
        row = choose_protocol(first, protocol)
        if row is None:
            return None
        return row.open(self, Arrival(peer, _is_here(peer), now_ms, login))

    def is_overdue(self, connection: Connection, now_ms: MonoMs) -> bool:
        if now_ms - connection.opened_at_ms <= self._limits.handshake_timeout_ms:
            return False
        kind = _AT_LISTENERS[connection.protocol][-1].log_in_kind
        if kind:
            peer = connection.peer
            source = Source(kind, kind, peer[0], _is_here(peer), connection.name)
            self._broker.users.opening_failed(source, "handshake timeout in state starting")
        return True

    # -- the factories of the table ----------------------------------------------------------

    def open_peer(self, arrival: Arrival) -> PeerSession | None:
        return None if self.peers is None else self.peers.called_by(arrival.peer)

    def open_nsq(self, arrival: Arrival) -> NsqSession | None:
        if self._nsq is None:
            return None
        return NsqSession(self._nsq, arrival.peer, arrival.is_here, arrival.now_ms)

    def open_ranges(self, arrival: Arrival) -> RangeSession:
        peer = (arrival.peer[0], arrival.is_here)
        return RangeSession(self._broker, self._leases, peer, WallMs(arrival.now_ms))

    def open_amqp(self, arrival: Arrival) -> AmqpSession:
        host, port = arrival.peer
        name = f"{host}:{port}"
        if arrival.login:
            logger.info("connection %s: its certificate names user '%s'", name, arrival.login)
        return self._amqp(name, (host, arrival.is_here), arrival.now_ms, arrival.login)

    def inside(self, user: str | User, now_ms: WallMs) -> AmqpSession:
        """One without a socket, for a user whose log-in was checked elsewhere."""
        name = user if isinstance(user, str) else user.name
        return self._amqp(f"of '{name}' over HTTP", ("", True), now_ms, user)

    def _amqp(
        self, name: str, peer: tuple[str, bool], now_ms: WallMs, login: str | User | None
    ) -> AmqpSession:
        self._properties["cluster_name"] = self._broker.cluster_name()
        return AmqpSession(
            self._broker,
            self._limits,
            self._properties,
            new_name,
            self._tell_cancelled,
            lambda text: logger.error("connection %s: %s", name, text),
            peer,
            now_ms,
            login,
        )

    def tick(self, now_ms: WallMs) -> None:
        self._leases.tick()
        self._broker.users.look()
        self._broker.budgets.tick(now_ms)
        if self.peers is not None:
            self.peers.tick(now_ms)


def _is_here(peer: tuple[str, int]) -> bool:
    return peer[0] == UNIX or is_loopback(peer[0])


def server_properties() -> dict[str, object]:
    """What ``connection.start`` tells a client about us."""
    return {
        "capabilities": {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
            "consumer_priorities": True,
            "per_consumer_qos": True,
            "direct_reply_to": True,
        },
        "cluster_name": "",  # each client is told today's
        "copyright": "Copyright Penstock contributors",
        "information": f"Penstock {__version__}, licensed under the Apache License 2.0",
        "platform": f"Python {platform.python_version()}",
        "product": PEER_PRODUCT,
        "version": PEER_VERSION,
    }


class Protocol(NamedTuple):
    """A row."""

    open: Callable[[Sessions, Arrival], Session | None]
    """None: this node does not let them in."""
    session: type[Session]
    describe: Callable[[Any], SessionDescription]
    """Takes a session of that type."""
    places: tuple[str, ...]
    """Settings of its listeners (``settings/listener_table``)."""
    first_bytes: bytes = b""
    """Those of its clients; empty: all that no row above has, at the same listener."""
    least_bytes: int = 1
    """So many have to be there before a session is made."""
    log_in_kind: str = ""
    """A client that says nothing counts as a failed log-in of this kind; "": as none."""


AMQP_PLACES: Final = ("amqp_port", "ssl_port", "unix_socket")
NSQ_PLACES: Final = ("nsq_port", "nsq_unix_socket")
PEER_PLACES: Final = ("cluster_port", "cluster_unix_socket")

# fmt: off
PROTOCOLS: Final = (
    Protocol(Sessions.open_ranges, RangeSession, RangeDescription, AMQP_PLACES, RANGES_MAGIC),
    Protocol(Sessions.open_amqp, AmqpSession, AmqpDescription, AMQP_PLACES, log_in_kind=AMQP),
    Protocol(Sessions.open_nsq, NsqSession, NsqDescription, NSQ_PLACES,
             least_bytes=len(NSQ_MAGIC), log_in_kind=NSQ),
    Protocol(Sessions.open_peer, PeerSession, SessionDescription, PEER_PLACES),
)
# fmt: on

CLIENT_PLACES: Final = {place for row in PROTOCOLS for place in row.places} - {*PEER_PLACES}
"""Settings of the listeners whose clients are served by the data loop."""
_AT_LISTENERS: Final = {
    listener_at(place).protocol: tuple(row for row in PROTOCOLS if place in row.places)
    for row in PROTOCOLS
    for place in row.places
}
_DESCRIBE: Final = {row.session: row.describe for row in PROTOCOLS}


def choose_protocol(first: bytes, listener: str) -> Protocol | None:
    """``listener``: its protocol.  None = the first bytes do not tell yet."""
    for row in _AT_LISTENERS[listener]:
        if first.startswith(row.first_bytes) and len(first) >= row.least_bytes:
            return row
        if row.first_bytes.startswith(first):
            return None
    return None


def describe(session: Session) -> SessionDescription:
    """What it tells of itself; that of a type without a row is not shown."""
    return _DESCRIBE.get(type(session), SessionDescription)(session)
