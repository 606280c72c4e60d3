"""Who the client of an AMQP connection is: its log-in, and the renewals of its secret.

    start-ok      ─► ``begin`` ─► the session has a user, or LoginRefused
    update-secret ─► ``renew`` ─► the user has the rights that the new secret gives, or NotAllowed

Both raise Undecided while a backend is asked, to be called once more with the same method.
"""

from collections.abc import Callable
from typing import Final, final

from penstock.broker.rules.access import User
from penstock.broker.rules.judges import Inquiry, Source
from penstock.broker.rules.log_ins import NO_CREDENTIALS, LogIn
from penstock.core.counting.traffic import AMQP
from penstock.core.errors import AccessRefused, EntryRefused, LoginRefused, NotAllowed, Undecided
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.handshake import EXTERNAL, KNOWN_MECHANISMS, credentials_in
from penstock.protocols.amqp.link import Link
from penstock.runtime.session_events import connection_name, is_encrypted


@final
class AmqpLogIn:
    """``peer``: its address, and is it this machine?

    ``external``: the user that a certificate names, "" = none; None = EXTERNAL is not offered.
    A user itself has logged in already.
    """

    def __init__(
        self,
        link: Link,
        peer: tuple[str, bool],
        external: str | User | None,
        report: Callable[[str], None],
    ) -> None:
        self.mechanism: str = ""
        self.external: Final = external
        self._link: Final = link
        self._peer: Final = peer
        self._report: Final = report
        self._begun: LogIn | None = None  # while it is under way
        self._renewal: Inquiry | None = None  # of the secret, while it is under way

    def begin(self, method: Method) -> bool:
        """False: mechanism and response name no user."""
        self.mechanism = method.text("mechanism")
        if self._begun is None:
            self._begun = self._log_in(method.raw("response"))
        begun = self._begun
        if begun is None:
            self.failed("bad response to mechanism '" + self.mechanism + "'")
            return False
        user = begun.user()
        self._begun = None
        self._link.session.client.log_in(user, AMQP, self._peer[0])
        return True

    def _log_in(self, response: bytes) -> LogIn | None:
        users, source, external = self._link.broker.users, self._source(), self.external
        if isinstance(external, User):
            return users.done(external, source)
        if self.mechanism == EXTERNAL and external is not None:
            return users.begin(external, None, source)
        credentials = credentials_in(self.mechanism, response)
        if credentials is None:
            users.refuse(source, "", AccessRefused(NO_CREDENTIALS))
            return None
        return users.begin(credentials[0], credentials[1], source)

    def renew(self, method: Method) -> bool:
        """False: passwords of internal users are judged once, at log-in, as RabbitMQ does."""
        user = self._link.session.user
        assert user is not None
        inquiry = self._renewal
        if inquiry is None and user.judge is not None:
            secret = method.raw("new_secret").decode("utf-8", "replace")
            inquiry = self._renewal = user.judge.renew(secret)
        if inquiry is None:
            return False
        if not inquiry.done:
            raise Undecided(inquiry)
        self._renewal = None
        account = inquiry.account
        if account is None or account.name != user.name:
            reason = "another user" if account is not None else inquiry.reason
            self._report(f"secret update was refused for user '{user.name}': {reason}")
            raise NotAllowed("New secret was refused by one of the backends")
        user.renew(account)
        self._link.name_publisher()
        return True

    def refusal(self, error: LoginRefused) -> str:
        """What the client may read of it, as RabbitMQ says it."""
        if isinstance(error, EntryRefused):
            return str(error)
        why = "Login was refused using authentication mechanism " + self.mechanism
        return why + ". For details see the broker logfile."

    def failed(self, reason: str) -> None:
        """For the log: the opening went no further, and why."""
        self._link.broker.users.opening_failed(self._source(), reason)

    def _source(self) -> Source:
        address, is_local = self._peer
        # The log has the words of the node, not of a client.
        mechanism = self.mechanism if self.mechanism in KNOWN_MECHANISMS else "unknown"
        session = self._link.session
        name, secure = connection_name(session), is_encrypted(session)
        return Source(AMQP, mechanism, address, is_local, name, secure)
