"""What a range connection hands its requests to, by their kinds.

``RangeSession`` takes frames apart, knows who is there, and answers one request after the
other.  What the requests mean is the matter of request handlers, one file each:

    reading      OPEN GROUP WAIT PLAN RANGE ACK ACK_SOME CLOSE
    subscribing  SUBSCRIBE START OFFSET_AT
    staging      STAGE_* TXN_* PUBLISH TARGET
    reporting    REPORT EVENT_FILES EVENT_READ

A handler writes its reply to ``session.out`` and raises what it refuses.  A reply that must wait
(for messages, for the disk) is announced by ``busy``: the session keeps the requests behind it
until that is over.
"""

from typing import TYPE_CHECKING, ClassVar

from penstock.broker.broker import Broker
from penstock.broker.rules.access import User
from penstock.broker.rules.rights import check_enter
from penstock.broker.topology.vhost import Vhost

if TYPE_CHECKING:
    from penstock.protocols.ranges.session import RangeSession


class RequestHandler:
    """One per connection and file; see above."""

    kinds: ClassVar[frozenset[int]] = frozenset()
    """The requests it answers."""
    logs_in: ClassVar[frozenset[int]] = frozenset()
    """Those of them that bring user and password themselves, so need no LOGIN before."""

    def __init__(self, session: "RangeSession", broker: Broker) -> None:
        self.session = session
        self.broker = broker

    @property
    def busy(self) -> bool:
        """A reply is still owed; no further request is handed over."""
        return False

    @property
    def awaits_disk(self) -> bool:
        """Its reply waits for the journal: ``confirm`` is to be called."""
        return False

    def request(self, kind: int, payload: bytes) -> None:
        """Answer it, or raise a BrokerError or MalformedFrame."""
        raise NotImplementedError

    def hurry(self) -> None:
        """The next request is there while this handler is busy."""

    def tick(self) -> None:
        """Some time has passed (see ``session.now_ms``)."""

    def rights_changed(self) -> None:
        """Raises AccessRefused when what it has begun may not go on."""
        user, vhost = self.session.peer()
        check_enter(user, vhost.name)

    def confirm(self, durable_position: int) -> None:
        """The journal is on disk up to here; called while ``session.awaiting_disk``."""

    def failed(self) -> None:
        """The session has refused a request and closes."""

    def lost(self) -> None:
        """The peer is gone."""

    # -- who is there ----------------------------------------------------------------------

    def user(self) -> User:
        return self.session.peer()[0]

    def vhost(self) -> Vhost:
        return self.session.peer()[1]
