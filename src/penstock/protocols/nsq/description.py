"""An NSQ connection as management shows it: a connection with one channel, number 1.

In: the loop's connection and its session.  Out: the facts management makes rows of.  A client that
has not identified itself has a user already, so it is shown from its first byte on.
"""

from typing import Final

from penstock.management.facts.sessions import ChannelFacts, ConnectionFacts
from penstock.protocols.nsq.opening import CLOSING
from penstock.protocols.nsq.session import NsqSession
from penstock.runtime.connection import Connection
from penstock.runtime.session import Session

PROTOCOL: Final = "NSQ V2"
CHANNEL: Final = 1


def is_entered(session: NsqSession) -> bool:
    return session.user_name != ""


def connection_facts(connection: Connection, session: NsqSession) -> ConnectionFacts:
    own_host, own_port = connection.own_address()
    peer_host, peer_port = connection.peer
    facts = ConnectionFacts(
        connection.name,
        session.user_name,
        session.vhost_name,
        state_of(session),
        PROTOCOL,
        peer_host,
        peer_port,
        own_host,
        own_port,
        int(session.connected_at_ms),
    )
    identity = session.identity
    facts.auth_mechanism = "AUTH" if session.identified is not None else ""
    facts.client_properties = {
        "product": identity.user_agent,
        "client_id": identity.client_id,
        "hostname": identity.hostname,
    }
    facts.heartbeat_s = int(identity.heartbeat_ms // 1000)
    facts.channel_max = facts.channel_count = CHANNEL
    count_bytes(facts, session)
    facts.flow_s = int(session.reader.flow_s)
    facts.tls_version, facts.tls_cipher = session.tls_version, session.tls_cipher
    return facts


def count_bytes(facts: ConnectionFacts, session: Session) -> None:
    """Whatever the session speaks."""
    facts.received_bytes = int(session.received_bytes)
    facts.sent_bytes = int(session.sent_bytes)
    facts.received_count = int(session.received_count)
    facts.sent_count = int(session.sent_count)
    facts.unsent_bytes = int(session.outlet.unsent_bytes)


def state_of(session: NsqSession) -> str:
    if session.closed or session.state == CLOSING:
        return "closing"
    return "blocked" if session.gate and session.has_published else "running"


def channel_facts(session: NsqSession) -> ChannelFacts:
    facts = ChannelFacts(CHANNEL)
    consuming = session.consuming
    facts.state = state_of(session)
    facts.flow_s = int(session.reader.flow_s)
    facts.consumer_count = 0 if consuming.consumer is None else 1
    facts.prefetch = int(consuming.ready_count)
    facts.unacknowledged_count = int(consuming.in_flight_count)
    facts.traffic = session.traffic.counts()
    facts.confirm = True
    return facts
