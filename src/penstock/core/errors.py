"""The errors that packages raise at each other: one tree of kinds, without codes of a protocol.

``protocols.amqp.codec.errors`` has the one table that turns a kind into an AMQP reply code;
``management`` turns it into an HTTP status.  The message of an error is the text a
client may read after the code's name (``NOT_FOUND - no queue 'x' in vhost '/'``).

Whose fault it is decides the class: a peer's mistake is a ``BrokerError``; ours is
an ``AssertionError`` and ends that session only; the disk's is ``Corrupt``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.pending import Ticket


class PenstockError(Exception):
    """Everything the broker raises on purpose."""


class Undecided(PenstockError):
    """A backend of users was asked and has not answered: run the verb again from its beginning
    when ``ticket`` is done.

    No ``BrokerError``: the verb runs again later, and the client gets no error.  Rights are checked
    before anything is changed, and an answer is remembered, so the next run comes further.
    """

    def __init__(self, ticket: "Ticket") -> None:
        super().__init__("a backend has not answered yet")
        self.ticket = ticket


class BrokerError(PenstockError):
    """A request that cannot be granted; closes the channel unless a kind says more."""


class NotFound(BrokerError):
    """The exchange, queue or virtual host does not exist (AMQP 404)."""


class AccessRefused(BrokerError):
    """The user may not do this (AMQP 403)."""


class LoginRefused(AccessRefused):
    """Wrong name or password; ``delay_ms``: for how long the answer waits.

    ``told``: why, where a client that shows a token may read it.
    """

    def __init__(self, text: str, delay_ms: int = 0, told: str = "") -> None:
        super().__init__(text)
        self.delay_ms = delay_ms
        self.told = told


class EntryRefused(LoginRefused):
    """The user may not log in from that address; the refusal gives the client the reason."""


class AuthRequired(AccessRefused):
    """This needs a log-in."""


class ResourceLocked(BrokerError):
    """The queue belongs to another connection (AMQP 405)."""


class PreconditionFailed(BrokerError):
    """Arguments or state contradict the request (AMQP 406)."""


class QueueElsewhere(PreconditionFailed):
    """The queue's master is on another node, and this can only be asked there (AMQP 406)."""


class NoMaster(QueueElsewhere):
    """The queue has no master at present."""


class ConnectionError_(BrokerError):
    """A request so wrong that the whole connection is closed."""


class NotAllowed(ConnectionError_):
    """Forbidden whatever the permissions (AMQP 530)."""


class CommandInvalid(ConnectionError_):
    """A known thing was asked in a way that makes no sense (AMQP 503)."""


class NotImplementedYet(ConnectionError_):
    """A feature RabbitMQ has and this release refuses (AMQP 540)."""


class Unavailable(ConnectionError_):
    """The cluster cannot decide at present, so nothing may be declared here (AMQP 541)."""


class Blocked(BrokerError):
    """Memory, disk or a budget is used up: no publish for now, or nothing new (AMQP 406)."""


class NotInFlight(BrokerError):
    """No delivery of that id waits to be settled."""


class NotOwner(BrokerError):
    """The delivery belongs to another consumer."""


class SettingInvalid(PenstockError):
    """A configuration value is unknown, mistyped or out of bounds."""


class DataDirLocked(PenstockError):
    """Another process uses the data directory."""


class DataDirOutdated(PenstockError):
    """The data directory was written by a release whose files this one does not read."""


class ForeignData(PenstockError):
    """The data directory belongs to another cluster than the one that was to be joined."""


class HistoryLost(PenstockError):
    """The coordinator came back empty, with older data, or with that of another cluster."""


class Corrupt(PenstockError):
    """Bytes on disk that no crash can explain; the text names file, offset and length."""


class DamagedQueue(Corrupt):
    """Those of one queue; all that others have may be whole."""

    def __init__(self, text: str, queue_id: int) -> None:
        super().__init__(text)
        self.queue_id = queue_id


class CopyGivenUp(PenstockError):
    """A damaged copy of a queue, which the next start fetches anew from another node."""
