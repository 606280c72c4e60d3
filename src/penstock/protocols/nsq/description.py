"""An NSQ connection as management shows it: a connection with one channel, number 1.

In: the loop's connection and its session.  Out: the facts management makes rows of.  A client that
has not identified itself has a user already, so it is shown from its first byte on.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.core.counting.traffic import Traffic
from penstock.core.events.book import EventBook
from penstock.management.facts.sessions import (
    ChannelFacts,
    ConnectionFacts,
    ConnectionTerms,
    TlsFacts,
)
from penstock.protocols.description import SessionDescription, connection_facts
from penstock.protocols.nsq.session import CLOSING, NsqSession
from penstock.queues.consumers import Consumer
from penstock.runtime.connection import Connection
from penstock.runtime.publish_credit import PublishCredit
from penstock.runtime.session_events import entered

PROTOCOL: Final = "NSQ V2"
CHANNEL: Final = 1


class NsqDescription(SessionDescription):
    """Of one session."""

    def __init__(self, session: NsqSession) -> None:
        super().__init__(session)
        self._session = session

    def is_entered(self) -> bool:
        return self._session.log_in.user_name != ""

    def state(self) -> str:
        session = self._session
        if session.closed or session.state == CLOSING:
            return "closing"
        return "blocked" if session.gate and session.has_published else "running"

    def vhost_name(self) -> str | None:
        return self._session.log_in.vhost_name or None

    def facts(self, connection: Connection) -> ConnectionFacts:
        session = self._session
        log_in, layers = session.log_in, session.layers
        names = (log_in.user_name, log_in.vhost_name, self.state(), PROTOCOL)
        identity = session.identity
        terms = ConnectionTerms(
            "AUTH" if log_in.identified is not None else "",
            {
                "product": identity.user_agent,
                "client_id": identity.client_id,
                "hostname": identity.hostname,
            },
            heartbeat_s=int(identity.heartbeat_ms // 1000),
            channel_max=CHANNEL,
        )
        tls = TlsFacts(layers.tls_version, layers.tls_cipher)
        connected_at_ms = session.connected_at_ms
        return connection_facts(connection, names, connected_at_ms, terms, CHANNEL, tls)

    def note_entered(self, book: EventBook) -> None:
        session = self._session
        if session.client.entered_at_ms == 0 and self.is_entered() and not session.closed:
            log_in = session.log_in
            entered(book, session, log_in.user_name, log_in.vhost_name, PROTOCOL)

    def channel_numbers(self) -> list[int]:
        return [CHANNEL] if self.is_entered() else []

    def channels(self, numbers: Sequence[int]) -> list[ChannelFacts]:
        return [self._channel_facts() for _ in numbers] if self.is_entered() else []

    def traffics(self, numbers: Sequence[int]) -> list[tuple[int, Traffic]]:
        return [(number, self._session.traffic) for number in numbers]

    def consumers(self, number: int) -> list[Consumer]:
        consumer = self._session.consuming.consumer
        return [] if consumer is None else [consumer]

    def publishers(self) -> Iterator[PublishCredit]:
        if self._session.has_published:
            yield self._session.publishing

    def _channel_facts(self) -> ChannelFacts:
        session = self._session
        consuming = session.consuming
        return ChannelFacts(
            CHANNEL,
            self.state(),
            session.traffic.counts(),
            consumer_count=0 if consuming.consumer is None else 1,
            prefetch=int(consuming.ready_count),
            unacknowledged_count=int(consuming.in_flight_count),
            flow_s=int(session.reader.flow_s),
            confirm=True,
        )
