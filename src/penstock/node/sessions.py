"""Who comes: the listener or the first bytes tell the protocol, the peer where it comes from.

In: the first bytes, the peer, and the user whom a certificate names.  Out: the session that goes on
with them, told once and for all whether the peer sits on this machine.
"""

import logging
import platform
import secrets
from base64 import urlsafe_b64encode
from typing import Final

from penstock import __version__
from penstock.broker.administration import CLUSTER_NAME
from penstock.broker.broker import Broker
from penstock.broker.rules.log_ins import Source
from penstock.core.traffic import AMQP
from penstock.protocols.amqp.handshake import Limits
from penstock.protocols.amqp.link import CancelSink
from penstock.protocols.amqp.session import AmqpSession
from penstock.protocols.nsq.codec.reader import MAGIC
from penstock.protocols.nsq.session import NsqSession
from penstock.protocols.nsq.shared import NsqShared
from penstock.protocols.peers.peers import Peers
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.session import RangeSession
from penstock.runtime.connection import UNIX, Connection
from penstock.runtime.session import Session
from penstock.settings.listener_table import NSQ, PEER, is_loopback
from penstock.settings.settings import Settings
from penstock_ranges import frames as range_frames

PEER_PRODUCT: Final = "RabbitMQ"
PEER_VERSION: Final = "3.10.8"
"""The RabbitMQ release whose behaviour AMQP clients find here.  Some look at it: to any other
product kombu says ``basic.qos`` as the specification has it, and Celery's workers then never
get more room for tasks that are not due.  Who we are stands in ``information``."""
"""Hosts of peers on this machine, besides those of 127.0.0.0/8."""

logger = logging.getLogger("penstock.connection")


def new_name(prefix: str) -> str:
    """22 random characters behind a prefix, as RabbitMQ names what clients leave unnamed."""
    return prefix + urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()


class Sessions:
    """Chooses the protocol by the first bytes."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        tell_cancelled: CancelSink,
        nsq: NsqShared | None = None,
    ) -> None:
        self._broker = broker
        self._tell_cancelled = tell_cancelled
        self._nsq = nsq
        self.peers: Peers | None = None  # of a node of a cluster
        self._leases = RangeLeases(
            settings.range_lease_grace_ms, broker.letting_go, broker.idleness
        )
        self._limits = Limits(
            settings.channel_max,
            settings.frame_max,
            settings.heartbeat_s,
            settings.handshake_timeout_ms,
            settings.max_message_size_bytes,
        )
        self._properties = server_properties()
        self._unnamed = self._properties["cluster_name"]

    def recovered(self) -> None:
        """The broker has its queues again, and nobody is there yet."""
        self._leases.adopt(self._broker)

    def choose(
        self,
        first: bytes,
        peer: tuple[str, int],
        now_ms: int,
        login: str | None = None,
        protocol: str = "",
    ) -> Session | None:
        if protocol == PEER:
            return None if self.peers is None else self.peers.guest(peer)
        is_here = _is_here(peer)
        if protocol == NSQ:
            if len(first) < len(MAGIC) or self._nsq is None:
                return None
            return NsqSession(self._nsq, peer, is_here, now_ms)
        if first.startswith(range_frames.MAGIC):
            return RangeSession(self._broker, self._leases, (peer[0], is_here))
        if range_frames.MAGIC.startswith(first):
            return None
        name = f"{peer[0]}:{peer[1]}"
        if login:
            logger.info("connection %s: its certificate names user '%s'", name, login)
        return self._amqp(name, (peer[0], is_here), now_ms, login)

    def is_overdue(self, connection: Connection, now_ms: int) -> bool:
        if now_ms - connection.opened_at_ms <= self._limits.handshake_timeout_ms:
            return False
        if connection.protocol != PEER:
            kind = NSQ if connection.protocol == NSQ else AMQP
            peer = connection.peer
            source = Source(kind, kind, peer[0], _is_here(peer), connection.name)
            self._broker.users.opening_failed(source, "handshake timeout in state starting")
        return True

    def inside(self, user: str, now_ms: int) -> AmqpSession:
        """One without a socket, for somebody who has logged in elsewhere already."""
        return self._amqp(f"of '{user}' over HTTP", ("", True), now_ms, user)

    def _amqp(
        self, name: str, peer: tuple[str, bool], now_ms: int, login: str | None
    ) -> AmqpSession:
        named = self._broker.global_parameters.get(CLUSTER_NAME, self._unnamed)
        self._properties["cluster_name"] = named
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

    def tick(self, now_ms: int) -> None:
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
        "cluster_name": f"penstock@{platform.node()}",
        "copyright": "Copyright Penstock contributors",
        "information": f"Penstock {__version__}, licensed under the Apache License 2.0",
        "platform": f"Python {platform.python_version()}",
        "product": PEER_PRODUCT,
        "version": PEER_VERSION,
    }
