"""``SessionInspector``: describes connections and channels for management.

Runs on the data loop, for management's requests only.  The tokens are the loop's
connections; one that has closed since is described as None.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, cast

from penstock.core.confirm_watermark import PendingConfirm, all_done
from penstock.core.errors import NotFound
from penstock.core.message import Message
from penstock.core.traffic import Traffic
from penstock.management.facts.portions import Part
from penstock.management.facts.sessions import (
    ChannelFacts,
    ConnectionFacts,
    ListenerFacts,
    ManagementClient,
    OpenDelivery,
    SessionInspector,
    SessionTally,
)
from penstock.management.facts.storage_view import DiskFacts
from penstock.node.inspection.flow_chain import chain_row
from penstock.node.inspection.flow_view import flow_row
from penstock.protocols.amqp.channel import AmqpChannel
from penstock.protocols.amqp.codec.properties import body_of, decode_properties
from penstock.protocols.amqp.description import open_deliveries
from penstock.protocols.amqp.loopback_client import LoopbackClient
from penstock.protocols.amqp.opening import RUNNING
from penstock.protocols.amqp.session import AmqpSession
from penstock.protocols.nsq import description as nsq_watch
from penstock.protocols.nsq.description import count_bytes
from penstock.protocols.nsq.session import NsqSession
from penstock.protocols.ranges.session import RangeSession
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.connection import Connection
from penstock.runtime.disk_waiters import DiskWaiters
from penstock.runtime.loop import Loop
from penstock.runtime.secure_socket import SecureSocket
from penstock.runtime.session import Session, Subscriber

PROTOCOL: Final = "AMQP 0-9-1"
SHOWN: Final = 11
"""Of the counts of a channel, those that are shown."""


class NodeSessionInspector(SessionInspector):
    """The connections of one loop."""

    elsewhere: Callable[[], list[tuple[str, str, int]]] = list
    """Listeners that are not the loop's: protocol, host and port."""
    cluster_facts: Callable[[], dict[str, object]] = dict  # of a node that is one of several
    forget_in_cluster: Callable[[str], None] | None = None  # the same

    def __init__(self, loop: Loop, inside: Callable[[str, int], AmqpSession]) -> None:
        """``inside`` makes a session without a socket, for a user who has logged in over HTTP."""
        self._loop = loop
        self._inside = inside
        self._waiters = DiskWaiters(loop.turn)

    def sessions(self) -> list[object]:
        return list(self._loop.connections.values())

    def connection(self, session: object) -> ConnectionFacts | None:
        assert isinstance(session, Connection)
        if session.gone or not _is_entered(session):
            return None
        amqp = session.session
        if isinstance(amqp, NsqSession):
            return nsq_watch.connection_facts(session, amqp)
        assert isinstance(amqp, AmqpSession)
        user = amqp.link.user
        assert user is not None
        own_host, own_port = session.own_address()
        peer_host, peer_port = session.peer
        facts = ConnectionFacts(
            session.name,
            user.name,
            amqp.link.vhost.name,
            amqp.state_name,
            PROTOCOL,
            peer_host,
            peer_port,
            own_host,
            own_port,
            int(amqp.connected_at_ms),
        )
        facts.auth_mechanism = amqp.mechanism
        facts.client_properties = amqp.client_properties
        facts.heartbeat_s = int(amqp.heartbeat.interval_ms // 1000)
        facts.frame_max = int(amqp.link.frame_max)
        facts.channel_max = int(amqp.channel_max)
        count_bytes(facts, amqp)
        facts.channel_count = len(amqp.channels)
        facts.flow_s = int(amqp.reader.flow_s)
        sock = session.sock
        if isinstance(sock, SecureSocket):
            facts.tls_version = sock.version
            facts.tls_cipher = sock.cipher
            facts.tls_subject = sock.subject
        return facts

    def find(self, name: str) -> object | None:
        for connection in self._loop.connections.values():
            # Its own end of the name costs a system call: asked of one only.
            if not name.startswith(f"{connection.peer[0]}:{connection.peer[1]} -> "):
                continue
            if _is_entered(connection) and connection.name == name:
                return connection
        return None

    def close(self, session: object, reason: str) -> None:
        assert isinstance(session, Connection)
        there = session.session
        assert isinstance(there, AmqpSession | NsqSession)
        if isinstance(there, AmqpSession):
            there.force_close(reason)
        else:
            there.shut_down()  # NSQ has no words for it
        self._loop.turn.touch(there)

    def channel_numbers(self, session: object) -> list[int]:
        assert isinstance(session, Connection)
        there = session.session
        if isinstance(there, NsqSession) and _is_entered(session):
            return [nsq_watch.CHANNEL]
        return sorted(there.channels) if isinstance(there, AmqpSession) else []

    def channels(self, session: object, numbers: Sequence[int]) -> list[ChannelFacts]:
        assert isinstance(session, Connection)
        there = session.session
        if isinstance(there, NsqSession) and _is_entered(session):
            return [nsq_watch.channel_facts(there) for _ in numbers]
        if not isinstance(there, AmqpSession):
            return []
        channels = there.channels
        return [_channel_facts(one, channels[one]) for one in numbers if one in channels]

    def consumers(self, session: object, number: int) -> list[Consumer]:
        assert isinstance(session, Connection)
        there = session.session
        if isinstance(there, NsqSession):
            consumer = there.consuming.consumer
            return [] if consumer is None else [consumer]
        channel = there.channels.get(number) if isinstance(there, AmqpSession) else None
        return [] if channel is None else list(channel.consumers.values())

    def tallies(self, parts: Sequence[Part]) -> list[SessionTally]:
        found: list[SessionTally] = []
        for one, numbers, is_first in parts:
            assert isinstance(one, Connection)
            session = one.session
            if session is None or one.gone or not _is_entered(one):
                continue
            channels = [
                (int(number), traffic.counts()[:SHOWN])
                for number, traffic in _traffics(session, numbers)
            ]
            octets = (int(session.received_bytes), int(session.sent_bytes))
            found.append(SessionTally(one.name, is_first, octets, channels))
        return found

    def place_of(self, consumer: Consumer) -> tuple[object, int] | None:
        subscriber = cast(Subscriber, consumer.holder)
        carrier = subscriber.session.carrier
        return None if carrier is None else (carrier, int(subscriber.number))

    def listeners(self) -> list[ListenerFacts]:
        own = [
            ListenerFacts(one.protocol, one.host, one.port, one.expiry_dates)
            for one in self._loop.listeners.values()
        ]
        return own + [ListenerFacts(*one) for one in self.elsewhere()]

    def opened(self, message: Message) -> tuple[dict[str, object], bytes]:
        return decode_properties(message.content).as_dict(), body_of(message.content)

    def enter(self, user: str, vhost: str, now_ms: int) -> ManagementClient:
        session = self._inside(user, now_ms)
        return LoopbackClient(session, self._loop.turn, vhost, now_ms)

    def close_some(self, vhost: str, at_most: int) -> bool:
        found = False
        for connection in self._loop.connections.values():
            session = connection.session
            if session is None or session.closed or _vhost_name(session) != vhost:
                continue
            found = True
            if isinstance(session, AmqpSession):
                session.force_close(f"vhost '{vhost}' is deleted")
            else:
                session.shut_down()
            self._loop.turn.touch(session)
            at_most -= 1
            if at_most == 0:
                break
        return found

    def cancelled(self, consumers: list[Consumer]) -> None:
        self._loop.turn.cancelled(consumers)

    def when_safe(self, position: int, waits: list[PendingConfirm] | None = None) -> Future[None]:
        if position <= self._loop.turn.durable_position() and all_done(waits or []):
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._waiters.wait(position, waits)

    def flow(self) -> dict[str, object]:
        return flow_row(self._loop)

    def chain(self) -> dict[str, object]:
        return chain_row(self._loop)

    def open_deliveries(self, queue: Queue, at_most: int) -> list[OpenDelivery]:
        return open_deliveries(queue, at_most)

    def cluster(self) -> dict[str, object]:
        return {"coordinator": "", "why_not": "", "nodes": []} | self.cluster_facts()

    def forget_node(self, name: str) -> None:
        if self.forget_in_cluster is None:
            raise NotFound(f"{name} is not a node of this cluster")
        self.forget_in_cluster(name)

    def disk(self) -> DiskFacts:
        turn = self._loop.turn
        return DiskFacts(
            turn.disk_stalled(),
            publishers_wait=turn.publishers_wait(),
            reason=turn.blocked_reason(),
        )


def _vhost_name(session: Session) -> str | None:
    """Where somebody is at work; None = nowhere, not yet or not any more."""
    if isinstance(session, AmqpSession):
        return session.link.vhost.name if session.state == RUNNING else None
    if isinstance(session, NsqSession | RangeSession):
        return session.vhost_name or None
    return None


def _is_entered(connection: Connection) -> bool:
    """Has somebody logged in on it?"""
    session = connection.session
    if isinstance(session, NsqSession):
        return nsq_watch.is_entered(session)
    return isinstance(session, AmqpSession) and session.decoder.opened


def _traffics(session: Session, numbers: Sequence[int]) -> list[tuple[int, Traffic]]:
    if isinstance(session, NsqSession):
        return [(number, session.traffic) for number in numbers]
    assert isinstance(session, AmqpSession)
    channels = session.channels
    return [(number, channels[number].traffic) for number in numbers if number in channels]


def _channel_facts(number: int, channel: AmqpChannel) -> ChannelFacts:
    facts = ChannelFacts(number)
    stage = channel.intake.stage
    facts.state = "closing" if channel.closing else stage.state(channel.active_at_ms)
    facts.active_at_ms = int(channel.active_at_ms)
    facts.flow_s = int(stage.flow_s)
    facts.consumer_count = len(channel.consumers)
    facts.prefetch = int(channel.prefetch)
    facts.shared_prefetch = int(channel.shared.limit)
    facts.unacknowledged_count = int(channel.ledger.open_count)
    facts.traffic = channel.traffic.counts()
    confirms = channel.publishing.confirms
    if channel.transaction is not None:
        facts.transactional = True
        facts.uncommitted_count = channel.publishing.held_count()
        facts.uncommitted_ack_count = channel.transaction.noted_count()
    elif confirms is not None:
        facts.confirm = True
        facts.unconfirmed_count = int(confirms.unconfirmed_count())
    return facts
