"""``SessionDescription``: what a session tells of itself to management, event log and flow view.

Each protocol has its own, in its ``description``; the table of protocols (``node/sessions.py``)
names it.  The base is that of a session management does not show: links between nodes are such.
"""

from collections.abc import Iterator, Sequence

from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import Traffic
from penstock.core.events.book import EventBook
from penstock.management.facts.sessions import (
    ChannelFacts,
    ConnectionFacts,
    ConnectionTerms,
    TlsFacts,
)
from penstock.queues.consumers import Consumer
from penstock.runtime.connection import Carrier, Connection
from penstock.runtime.publish_credit import PublishCredit
from penstock.runtime.secure_socket import SecureSocket
from penstock.runtime.session import Session


class SessionDescription:
    """Of one session, as it is now; made anew for each question."""

    def __init__(self, session: Session) -> None:
        self.session = session

    # -- the connection --------------------------------------------------------------------

    def is_entered(self) -> bool:
        """Has a user logged in on it?  Else it is not shown."""
        return False

    def state(self) -> str:
        """As management names it: running, blocked, closing …"""
        return "running"

    def vhost_name(self) -> str | None:
        """The virtual host it works in; None: none yet, or not any more."""
        return None

    def given_name(self) -> str:
        """The connection's name as its client has it; "" = none."""
        return ""

    def facts(self, connection: Connection) -> ConnectionFacts:
        """Only of one that is entered."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Ends it; the peer is told the reason where the protocol has words for it."""
        self.session.shut_down()

    def note_entered(self, book: EventBook) -> None:
        """Notes a log-in that no byte of the client has told."""

    # -- its channels ----------------------------------------------------------------------

    def channel_numbers(self) -> list[int]:
        return []

    def channels(self, numbers: Sequence[int]) -> list[ChannelFacts]:
        """Of those that are still there."""
        return []

    def traffics(self, numbers: Sequence[int]) -> list[tuple[int, Traffic]]:
        """The same: number and counts."""
        return []

    def channel_states(self) -> Iterator[tuple[int, object, str]]:
        """Of each open channel the number, the channel and its state."""
        return iter(())

    def consumers(self, number: int) -> list[Consumer]:
        return []

    def publishers(self) -> Iterator[PublishCredit]:
        """Credit of the channels that have published."""
        return iter(())


def connection_facts(
    connection: Connection,
    names: tuple[str, str, str, str],
    connected_at_ms: WallMs,
    terms: ConnectionTerms,
    channel_count: int = 0,
    tls: TlsFacts | None = None,
) -> ConnectionFacts:
    """``names``: user, virtual host, state and protocol; ``tls``: if the socket does not tell."""
    session = connection.session
    assert session is not None
    peer_host, peer_port = connection.peer
    own_host, own_port = connection.own_address()
    return ConnectionFacts(
        connection.name,
        *names,
        peer_host,
        peer_port,
        own_host,
        own_port,
        connected_at_ms,
        received_bytes=int(session.received_bytes),
        sent_bytes=int(session.sent_bytes),
        received_count=int(session.received_count),
        sent_count=int(session.sent_count),
        unsent_bytes=int(session.outlet.unsent_bytes),
        flow_s=int(session.reader.flow_s),
        channel_count=channel_count,
        terms=terms,
        tls=_encryption(connection.sock) if tls is None else tls,
    )


def _encryption(sock: Carrier) -> TlsFacts:
    if isinstance(sock, SecureSocket):
        return TlsFacts(sock.version, sock.cipher, sock.subject)
    return TlsFacts()
