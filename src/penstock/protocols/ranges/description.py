"""A connection of Spark's range protocol as management shows it: a connection without channels.

It is closed without a word: an error would be the answer to the client's next request.
"""

from penstock.management.facts.sessions import ConnectionFacts, ConnectionTerms
from penstock.protocols.description import SessionDescription, connection_facts
from penstock.protocols.ranges.session import PROTOCOL, RangeSession
from penstock.runtime.connection import Connection


class RangeDescription(SessionDescription):
    """Of one session."""

    def __init__(self, session: RangeSession) -> None:
        super().__init__(session)
        self._session = session

    def is_entered(self) -> bool:
        return self._session.vhost_name != ""

    def state(self) -> str:
        return "closing" if self._session.closed else "running"

    def vhost_name(self) -> str | None:
        return self._session.vhost_name or None

    def facts(self, connection: Connection) -> ConnectionFacts:
        session = self._session
        user, vhost = session.peer()
        names = (user.name, vhost.name, self.state(), PROTOCOL)
        terms = ConnectionTerms("PLAIN", {})
        return connection_facts(connection, names, session.connected_at_ms, terms)
