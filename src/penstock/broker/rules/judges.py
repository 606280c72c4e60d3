"""Backends: where users come from and who says what they may.

    LogIn ─► Backend.authenticate ─► Inquiry ─► Account, with a Judge
    Rights ─► Judge.check(Question) ─► allowed, AccessRefused, or Undecided

The broker's own users have no judge: their rights are tables (``rights``).  Of another backend each
log-in has an account and a judge of its own.  A backend may answer later, from any thread: it
finishes the inquiry and wakes the data loop.  A judge that has to ask raises ``Undecided``, and
remembers the answer for the second run of the verb.
"""

from typing import TYPE_CHECKING, Final, NamedTuple, final

from mypy_extensions import mypyc_attr

from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import AccessRefused
from penstock.core.events.book import Actor
from penstock.core.pending import Ticket

if TYPE_CHECKING:
    from penstock.broker.rules.access import User

NAMELESS: Final = "(token)"
"""The name of a log-in whose client shows a token and gives no name."""
CONFIGURE: Final = 0
WRITE: Final = 1
READ: Final = 2

VHOST: Final = "vhost"
EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
TOPIC: Final = "topic"


@final
class Source:
    """Where a log-in comes from.  ``mechanism``: AMQP's, or the protocol once more."""

    __slots__ = ("address", "is_encrypted", "is_local", "mechanism", "name", "protocol")

    def __init__(
        self,
        protocol: str,
        mechanism: str,
        address: str,
        is_local: bool,
        name: str = "",
        is_encrypted: bool = False,
    ) -> None:
        self.protocol: str = protocol
        self.mechanism: str = mechanism
        self.address: str = address  # without the port
        self.is_local: bool = is_local
        self.name: str = name if name != "" else address  # of the connection
        self.is_encrypted: bool = is_encrypted

    def actor(self, user: str) -> Actor:
        """``user``: the name that is given here."""
        return Actor(user, self.protocol, self.address)


class Credentials(NamedTuple):
    """What a client says of itself.

    ``password``  None: the user was authenticated elsewhere, by a certificate for example
    ``vouched``   another backend has checked the password: only tags and rights are asked for
    """

    name: str
    password: str | None
    source: Source
    vouched: bool = False


class Question(NamedTuple):
    """May a user do that?

    ``kind``         VHOST: enter it, from ``address``; TOPIC: use ``routing_key`` of an exchange
    ``name``         of the exchange or queue; the default exchange is ``amq.default``
    ``permission``   CONFIGURE, WRITE or READ; of a topic WRITE to publish, READ to bind
    """

    kind: str
    vhost: str
    name: str = ""
    permission: int = READ
    routing_key: str = ""
    address: str = ""


@mypyc_attr(allow_interpreted_subclasses=True)
class Judge:
    """The rights of one log-in, as its backend has them; this class refuses every question."""

    def check(self, question: Question) -> None:
        """Return if it is allowed.

        Raises AccessRefused, with what is appended to the refusal that the client gets ("" =
        nothing); Undecided.
        """
        raise AccessRefused("")

    def look(self, now_ms: MonoMs) -> bool:
        """Called once a second by each session: ask anew what was answered long ago.

        True when something that was allowed is not allowed any more.
        """
        return False

    def renew(self, secret: str) -> "Inquiry | None":
        """The client has a new secret; None: nothing of this backend ages."""
        return None


@final
class Account:
    """A user as a backend knows it; ``name`` may differ from the one that logged in.

    ``judge``          None: the tables of ``user``
    ``expires_at_ms``  0 = never
    ``user``           the broker's own user, if it is one
    ``issuer``         of the token that it showed, "" = none
    """

    def __init__(
        self,
        name: str,
        tags: list[str],
        judge: Judge | None,
        expires_at_ms: WallMs = WallMs(0),
        user: "User | None" = None,
        issuer: str = "",
    ) -> None:
        self.name: Final = name
        self.tags: Final = tags
        self.judge: Final = judge
        self.expires_at_ms: Final = expires_at_ms
        self.user: Final = user
        self.issuer: Final = issuer


@mypyc_attr(allow_interpreted_subclasses=True)
class Inquiry(Ticket):
    """A question to a backend about a log-in; exactly one of its methods ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.account: Account | None = None  # None: refused
        self.reason: str = ""  # for the log
        self.is_told: bool = False  # the client may read it, too
        self.is_wrong: bool = False  # the backend has refused the secret
        self.is_open: bool = False  # the backend could not say

    def allow(self, account: Account) -> None:
        self.account = account
        self.answer()

    def deny(self, reason: str, is_told: bool = False) -> None:
        """The backend refuses the log-in."""
        self.is_wrong = True
        self.is_told = is_told
        self._refuse(reason)

    def unknown(self, reason: str) -> None:
        """The backend has no such user: to the client it is the same, another may have one."""
        self._refuse(reason)

    def give_up(self, reason: str) -> None:
        """The backend cannot say: to the client it is the same, but no password was wrong."""
        self.is_open = True
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        self.reason = reason
        self.answer()


@mypyc_attr(allow_interpreted_subclasses=True)
class Backend:
    """``name``: as ``auth_backends`` and the log have it."""

    name: str = ""

    def authenticate(self, asked: Credentials) -> Inquiry:
        """Whose credentials are these?  Raises nothing; done at once if that is known at once."""
        raise NotImplementedError

    def requests(self) -> tuple[int, int] | None:
        """To servers so far: how many were answered, and were not; None: it asks no server."""
        return None

    def forget(self) -> None:
        """Answers that are kept for all log-ins are asked for anew."""
