"""``LogIns``: judges, counts and logs the log-ins of every listener.

    name, password, where from ─► LogIn ─► the chain of backends ─► User
                                                                  └► LoginRefused: an event, and
                                                                     how long the answer waits;
                                                                     perhaps a lock-out

The answer to a refused log-in is always the same; the event says more.  Of one address in one
minute the first ``FREE_MAX`` wrong passwords are answered at once, the others after ``DELAY_MS``.
Refusals, and connections that end before they are open, are events within bounds (``strangers``).
"""

from functools import partial
from typing import Final, NamedTuple, final

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.broker.rules.bounded_events import EXAMPLE_MAX_CHARS, BoundedEvents, EventCount
from penstock.broker.rules.entry import LOCKOUT, EntryRules
from penstock.broker.rules.judges import NAMELESS, Account, Backend, Credentials, Inquiry, Source
from penstock.broker.rules.lockouts import NO_LOCKOUT, Lockout, LockoutRule, Lockouts, News
from penstock.broker.rules.passwords import Passwords
from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import AMQP, NSQ
from penstock.core.errors import AccessRefused, EntryRefused, LoginRefused, Undecided
from penstock.core.events.book import EventBook
from penstock.settings.entry import AddressRules

HTTP: Final = "http"
RANGES: Final = "ranges"
PROTOCOLS: Final = (HTTP, AMQP, NSQ, RANGES)
"""As RabbitMQ names them where it has them."""

INTERNAL: Final = "internal"
INTERNAL_LOOPBACK: Final = "internal_loopback"
"""As RabbitMQ's ``auth_backends`` calls the backend of the broker's own users."""

FREE_MAX: Final[i64] = 5
DELAY_MS: Final[i64] = 3000

REFUSED: Final = "Login was refused"
WRONG: Final = "invalid credentials"
NO_CREDENTIALS: Final = "no credentials, or none that this listener knows"
BUSY: Final = "too many passwords wait to be checked"
LOCKED_OUT: Final = "locked out after too many wrong passwords"
FAR: Final = "can only log in via localhost"


@final
class InternalBackend(Backend):
    """The broker's own users; ``users`` by name."""

    def __init__(
        self, users: dict[str, User], passwords: Passwords, loopback_only: bool = False
    ) -> None:
        self._passwords: Final = passwords
        self.name = INTERNAL_LOOPBACK if loopback_only else INTERNAL
        self._users: Final = users
        self._loopback_only: Final = loopback_only

    def authenticate(self, asked: Credentials) -> Inquiry:
        inquiry = Inquiry()
        user = self._users.get(asked.name)
        is_checked = asked.vouched or asked.password is None
        if self._loopback_only and not asked.source.is_local:
            inquiry.deny(FAR)
        elif is_checked:
            _tell(inquiry, user, user is not None)
        else:
            password = asked.password or ""
            self._passwords.verify(user, password, partial(_tell, inquiry, user))
        return inquiry


def _tell(inquiry: Inquiry, user: User | None, is_right: bool | None) -> None:
    if is_right is None:
        inquiry.give_up(BUSY)
    elif user is None:
        inquiry.unknown(WRONG)
    elif not is_right:
        inquiry.deny(WRONG)
    else:
        inquiry.allow(Account(user.name, user.tags, None, WallMs(0), user))


class Link(NamedTuple):
    """Of the chain: ``authn`` checks a password, ``authz`` has tags and rights."""

    authn: Backend
    authz: Backend


@final
class LogIn:
    """One log-in: the links of the chain are tried in order, until one knows the user."""

    def __init__(
        self, users: "LogIns", chain: list[Link], asked: Credentials, user: User | None = None
    ) -> None:
        # ``user``: who it is, if that is known.
        self._users: Final = users
        self._chain: Final = chain
        self._asked: Final = asked
        self._place: int = 0
        self._checked: Account | None = None  # by the link's first backend, if it has two
        self._inquiry: Inquiry | None = None
        self._reasons: list[str] = []
        self._told: str = ""  # of these, the first that the client may read
        self._is_wrong: bool = False  # some backend has refused the secret
        self._is_open: bool = False  # some backend could not say
        self._user = user

    def user(self) -> User:
        """Raises LoginRefused, which never tells which of name, password and place was wrong.

        Raises Undecided while a backend has not answered; call it again then.
        """
        if self._user is None:
            asked = self._asked
            self._users.check_entry(asked.name, asked.source, asked.password is not None)
            user = self._found()
            is_open = self._is_open and not self._is_wrong
            self._user = self._users.judged(asked, user, self._reasons, self._told, is_open)
        return self._user

    def _found(self) -> User | None:
        asked = self._asked
        if not self._users.may_come(asked.name, asked.source):
            self._reasons.append(FAR)
            return None
        if asked.password is not None and self._users.is_locked_out(asked):
            self._reasons.append(LOCKED_OUT)
            return None
        while self._place < len(self._chain):
            link = self._chain[self._place]
            account = self._answer_of(link)
            if account is None:
                self._place += 1
                self._checked = None
            elif link.authn is not link.authz and self._checked is None:
                self._checked = account
            else:
                return self._user_of(account)
        return None

    def _answer_of(self, link: Link) -> Account | None:
        checked, inquiry = self._checked, self._inquiry
        if inquiry is None:
            backend, asked = link.authn, self._asked
            if checked is not None:
                backend, asked = link.authz, asked._replace(name=checked.name, vouched=True)
            inquiry = self._inquiry = backend.authenticate(asked)
        if not inquiry.done:
            raise Undecided(inquiry)
        self._inquiry = None
        self._is_wrong = self._is_wrong or inquiry.is_wrong
        self._is_open = self._is_open or inquiry.is_open
        if inquiry.account is None and inquiry.reason not in self._reasons:
            self._reasons.append(inquiry.reason)
            if inquiry.is_told and self._told == "":
                self._told = inquiry.reason
        return inquiry.account

    def _user_of(self, account: Account) -> User | None:
        checked, source = self._checked, self._asked.source
        if not self._users.may_come(account.name, source):
            self._reasons.append(FAR)
            return None
        self._users.check_entry(account.name, source, False)
        if checked is None and account.user is not None:
            return account.user
        if checked is not None:
            account = _both(checked, account)
        return User(account.name, "", account.tags, account=account, address=source.address)


def _both(checked: Account, account: Account) -> Account:
    """Of two backends: the tags of both, the rights of the second, and the earlier end."""
    tags = checked.tags + [tag for tag in account.tags if tag not in checked.tags]
    ends = [one.expires_at_ms for one in (checked, account) if one.expires_at_ms > 0]
    end_ms = min(ends) if ends else WallMs(0)
    issuer = checked.issuer or account.issuer
    return Account(account.name, tags, account.judge, end_ms, account.user, issuer)


@final
class LogIns:
    """Of one node."""

    def __init__(
        self,
        events: EventBook,
        loopback_users: list[str],
        entry: EntryRules | None = None,
        passwords: Passwords | None = None,
        lockouts: LockoutRule = NO_LOCKOUT,
    ) -> None:
        """``entry``: from where users may log in at all; None: from everywhere."""
        self._lockouts: Final = Lockouts(lockouts)
        self.entry: Final = entry or EntryRules(True, AddressRules(()))
        self.users: Final[dict[str, User]] = {}
        self.passwords: Final = passwords or Passwords()
        own = InternalBackend(self.users, self.passwords)
        self._own: Final = [Link(own, own)]
        self._chain = self._own
        self.attempts: dict[str, i64] = dict.fromkeys(PROTOCOLS, 0)
        self.failures: dict[str, i64] = dict.fromkeys(PROTOCOLS, 0)  # of these
        self._loopback_users = loopback_users
        self._events = events
        self._accepted = BoundedEvents(events, "login_accepted", "logins_accepted")
        self._refusals = BoundedEvents(events, "login_refused", "logins_refused")
        self._openings = BoundedEvents(events, "opening_failed", "openings_failed")

    def forget_attempts(self) -> None:
        self.attempts = dict.fromkeys(PROTOCOLS, 0)
        self.failures = dict.fromkeys(PROTOCOLS, 0)

    def counts(self) -> dict[str, tuple[int, int]]:
        """By protocol: attempts, and those that failed."""
        return {name: (int(self.attempts[name]), int(self.failures[name])) for name in PROTOCOLS}

    def form(self, chain: list[Link]) -> None:
        """Which backends are asked, in this order."""
        self._chain = chain

    def backends(self) -> list[Backend]:
        """Of the chain, each once."""
        found: list[Backend] = []
        for link in self._chain:
            found += [one for one in link if one not in found]
        return found

    def begin(self, name: str, password: str | None, source: Source) -> LogIn:
        """``password`` None: the user was authenticated elsewhere, by a certificate for example."""
        return LogIn(self, self._chain, Credentials(name, password, source))

    def authenticate(self, name: str, password: str | None, source: Source) -> User:
        """As ``LogIn.user``, where all backends answer at once."""
        return self.begin(name, password, source).user()

    def trust(self, name: str, source: Source) -> User:
        """One of the broker's own users, authenticated elsewhere; raises LoginRefused."""
        return LogIn(self, self._own, Credentials(name, None, source)).user()

    def resume(self, name: str, source: Source) -> User:
        """One of the broker's own users whose log-in goes on; raises LoginRefused."""
        self.check_place(name, source)
        user = self.users.get(name)
        if user is None:
            raise LoginRefused(REFUSED)
        return user

    def check_place(self, name: str, source: Source) -> None:
        """Of a log-in that goes on, by whatever backend; raises LoginRefused, and EntryRefused."""
        self.check_entry(name, source, False)
        if not self.may_come(name, source):
            raise LoginRefused(REFUSED)

    def done(self, user: User, source: Source) -> LogIn:
        """The log-in of a user that has logged in already."""
        return LogIn(self, [], Credentials(user.name, None, source), user)

    def may_come(self, name: str, source: Source) -> bool:
        """From where that log-in comes."""
        return source.is_local or name not in self._loopback_users

    def check_entry(self, name: str, source: Source, has_password: bool) -> None:
        """Raises EntryRefused, and notes it.  ``has_password``: that, or another secret, came."""
        why = self.entry.why_not(name, source, has_password)
        if why != "":
            error = EntryRefused(why)
            self.refuse(source, name, error)
            raise error

    def is_locked_out(self, asked: Credentials) -> bool:
        """And counted, if it is."""
        now_ms = self._events.now_ms
        is_locked = self._lockouts.is_locked(asked.name, asked.source.address, now_ms)
        if is_locked:
            self.entry.count(LOCKOUT)
        return is_locked

    def lockouts(self) -> list[Lockout]:
        """Those in force."""
        return self._lockouts.all(self._events.now_ms)

    def end_lockouts(self, name: str) -> int:
        """Of a user; returns how many there were."""
        ended = self._lockouts.end(name, self._events.now_ms)
        self._note_ended(ended)
        return len(ended)

    def take_news(self) -> list[News]:
        """Of wrong passwords and lock-outs, for the other nodes of a cluster."""
        return self._lockouts.take_news()

    def hear(self, news: list[News]) -> None:
        """What another node counted, which counts here as well."""
        for one in news:
            begun, ended = self._lockouts.hear(one, self._events.now_ms)
            if begun is not None:
                self._note_begun(begun, None)
            self._note_ended(ended)

    def _note_ended(self, ended: list[Lockout]) -> None:
        for one in ended:
            self._events.note("login_unlocked", (one.user, one.address or None))

    def _note_begun(self, begun: Lockout, source: Source | None) -> None:
        """``source``: of the log-in; None: it was at another node."""
        values = (begun.user, begun.address or None, self._lockouts.rule.lasts_ms // 1000)
        if source is None:
            self._events.note("login_locked_out", values)
        else:
            self._events.note("login_locked_out", values, source.actor(begun.user))

    def refuse(self, source: Source, name: str, why: AccessRefused) -> None:
        """Note a refusal for another reason than a wrong name or password."""
        self._note(source, name, str(why))

    def opening_failed(self, source: Source, reason: str) -> None:
        """A connection ends before it is open; not for a refused log-in."""
        values = (source.name, source.protocol, reason)
        self._openings.note(source.actor(""), reason, values)

    def look(self) -> None:
        """Call it once a second: the minute may be over."""
        self._accepted.look()
        self._refusals.look()
        self._openings.look()

    def judged(
        self,
        asked: Credentials,
        user: User | None,
        reasons: list[str],
        told: str = "",
        is_open: bool = False,
    ) -> User:
        """Count it, and note a refusal; raises LoginRefused if there is no user.

        ``is_open``: no backend has refused the password, and some could not say.
        """
        source = asked.source
        self.attempts[source.protocol] += 1
        if user is not None:
            self._lockouts.accepted(asked.name, source.address)
            if asked.password is not None and user.judge is None and user.own is None:
                used = self.passwords.used(user, asked.password)
                user.use_password(used, self._events.now_ms)
            self._note_accepted(user, source)
            return user
        delay_ms = self.refuse_guess(source, asked.name, "; ".join(reasons))
        if asked.password is not None and not is_open and LOCKED_OUT not in reasons:
            self._count_failure(asked)
        raise LoginRefused(REFUSED, int(delay_ms), told)

    def refuse_guess(self, source: Source, name: str, why: str) -> i64:
        """Count and note a wrong secret; returns how long the answer to it waits, in ms."""
        self.failures[source.protocol] += 1
        return 0 if self._note(source, name, why).guess() <= FREE_MAX else DELAY_MS

    def _count_failure(self, asked: Credentials) -> None:
        """A name without a user's is none: tokens have a name of their own."""
        name, source = asked.name, asked.source
        if name == NAMELESS:
            return
        begun = self._lockouts.failed(name, source.address, self._events.now_ms)
        if begun is not None:
            self._note_begun(begun, source)

    def _note_accepted(self, user: User, source: Source) -> None:
        """Each of AMQP, as RabbitMQ has it; others log in with each request, and are bounded."""
        values = (source.name, user.name, source.mechanism, user.issuer or None)
        if source.protocol == AMQP:
            self._events.note("login_accepted", values, source.actor(user.name))
        else:
            self._accepted.note(source.actor(user.name), user.name, values)

    def _note(self, source: Source, name: str, why: str) -> EventCount:
        name = name[:EXAMPLE_MAX_CHARS]
        values = (source.name, name, source.mechanism, why)
        return self._refusals.note(source.actor(name), name, values)
