"""``LogIns``: judges, counts and logs the log-ins of every listener.

    name, password, where from ─► User
                               └► LoginRefused: an event, and how long the answer waits

The answer to a refused log-in is always the same; the event says more.  Of one address in one
minute the first ``FREE_MAX`` wrong passwords are answered at once, the others after ``DELAY_MS``.
Refusals, and connections that end before they are open, are events within bounds (``strangers``).
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.broker.rules.bounded_events import EXAMPLE_MAX_CHARS, BoundedEvents, EventCount
from penstock.core.errors import AccessRefused, LoginRefused
from penstock.core.event_book import EventBook
from penstock.core.traffic import AMQP, NSQ

HTTP: Final = "http"
RANGES: Final = "ranges"
PROTOCOLS: Final = (HTTP, AMQP, NSQ, RANGES)
"""As RabbitMQ names them where it has them."""

FREE_MAX: Final[i64] = 5
DELAY_MS: Final[i64] = 3000

REFUSED: Final = "Login was refused"
WRONG: Final = "invalid credentials"
NO_CREDENTIALS: Final = "no credentials, or none that this listener knows"
FAR: Final = "can only log in via localhost"


@final
class Source:
    """Where a log-in comes from.  ``mechanism``: AMQP's, or the protocol once more."""

    __slots__ = ("address", "is_local", "mechanism", "name", "protocol")

    def __init__(
        self, protocol: str, mechanism: str, address: str, is_local: bool, name: str = ""
    ) -> None:
        self.protocol: str = protocol
        self.mechanism: str = mechanism
        self.address: str = address  # without the port
        self.is_local: bool = is_local
        self.name: str = name if name != "" else address  # of the connection


@final
class LogIns:
    """Of one node."""

    def __init__(self, events: EventBook, loopback_users: list[str]) -> None:
        self.users: dict[str, User] = {}
        self.attempts: dict[str, i64] = dict.fromkeys(PROTOCOLS, 0)
        self.failures: dict[str, i64] = dict.fromkeys(PROTOCOLS, 0)  # of these
        self._loopback_users = loopback_users
        self._refusals = BoundedEvents(events, "login_refused", "logins_refused")
        self._openings = BoundedEvents(events, "opening_failed", "openings_failed")

    def forget_attempts(self) -> None:
        self.attempts = dict.fromkeys(PROTOCOLS, 0)
        self.failures = dict.fromkeys(PROTOCOLS, 0)

    def counts(self) -> dict[str, tuple[int, int]]:
        """By protocol: attempts, and those that failed."""
        return {name: (int(self.attempts[name]), int(self.failures[name])) for name in PROTOCOLS}

    def authenticate(self, name: str, password: str, source: Source) -> User:
        """Raises LoginRefused, which never tells which of name, password and place was wrong."""
        user = self.users.get(name)
        if user is not None and not self._may_come(user, source):
            return self._judged(name, None, FAR, source)
        if user is not None and not user.has_password(password):
            user = None
        return self._judged(name, user, WRONG, source)

    def trust(self, name: str, source: Source) -> User:
        """A user that was authenticated elsewhere; raises LoginRefused all the same."""
        user = self.users.get(name)
        if user is not None and not self._may_come(user, source):
            return self._judged(name, None, FAR, source)
        return self._judged(name, user, WRONG, source)

    def refuse(self, source: Source, name: str, why: AccessRefused) -> None:
        """Note a refusal for another reason than a wrong name or password."""
        self._note(source, name, str(why))

    def opening_failed(self, source: Source, reason: str) -> None:
        """A connection ends before it is open; not for a refused log-in."""
        self._openings.note(source.address, reason, (source.name, source.protocol, reason))

    def look(self) -> None:
        """Call it once a second: the minute may be over."""
        self._refusals.look()
        self._openings.look()

    def _may_come(self, user: User, source: Source) -> bool:
        return source.is_local or user.name not in self._loopback_users

    def _judged(self, name: str, user: User | None, why: str, source: Source) -> User:
        self.attempts[source.protocol] += 1
        if user is not None:
            return user
        self.failures[source.protocol] += 1
        guesses = self._note(source, name, why).guess()
        raise LoginRefused(REFUSED, 0 if guesses <= FREE_MAX else int(DELAY_MS))

    def _note(self, source: Source, name: str, why: str) -> EventCount:
        name = name[:EXAMPLE_MAX_CHARS]
        return self._refusals.note(source.address, name, (source.name, name, source.mechanism, why))
