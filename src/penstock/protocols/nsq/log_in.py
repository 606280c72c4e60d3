"""The log-in of an NSQ connection: the user whose rights hold, and what is known of them.

    the connection begins ─► the user of those that do not log in, if there is one
    AUTH ─► a user of this broker, or what an authority says that the client may do

An authority answers later, and is asked again when its answer has become too old; meanwhile the
session's commands wait.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.broker.rules.judges import NAMELESS, READ, Source
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import MonoMs
from penstock.core.counting.traffic import NSQ, Traffic
from penstock.core.errors import AccessRefused, BrokerError, EntryRefused, LoginRefused
from penstock.protocols.nsq.codec.commands import BadCommand, quoted, text_of
from penstock.protocols.nsq.layer_stack import TLS, LayerStack
from penstock.protocols.nsq.rights import AuthRequest, Identified, check_publish, check_subscribe
from penstock.protocols.nsq.shared import NsqClient, NsqShared
from penstock.runtime.session import Session
from penstock.runtime.session_events import connection_name

EXTERNAL: Final = "EXTERNAL"
"""The secret of a client whose certificate names its user."""
ALLOWED_MAX: Final = 1024
"""Topics that are remembered as allowed."""


@final
class NsqLogIn:
    """Of one session; ``is_local``: the client is on this machine."""

    def __init__(
        self,
        session: Session,
        shared: NsqShared,
        traffic: Traffic,
        layers: LayerStack,
        is_local: bool,
    ) -> None:
        self.vhost: Vhost | None = None  # once there is a user
        self.identified: Identified | None = None  # by AUTH
        self._rights: Rights | None = None
        self._session: Final = session
        self._shared: Final = shared
        self._traffic: Final = traffic
        self._layers: Final = layers
        self._is_local: Final = is_local
        self._allowed: set[str] = set()  # topics it may publish to, as long as the epoch lasts
        self._allowed_epoch: i64 = -1
        self._secret: str = ""
        self._asks_first: bool = False  # AUTH is being answered
        self._asking: NsqClient | None = None  # its AUTH is under way
        self._inquiry: AuthRequest | None = None
        self._expires_ms: MonoMs = MonoMs(0)
        self._unknown_ms: i64 = 0  # without a log-in, where one is due

    def _now_ms(self) -> MonoMs:
        return self._shared.broker.idleness.now_ms

    @property
    def user_name(self) -> str:
        """The user whose permissions apply; "" = none yet."""
        user = self._session.user
        return "" if user is None else user.name

    @property
    def vhost_name(self) -> str:
        return "" if self.vhost is None else self.vhost.name

    # -- the user ----------------------------------------------------------------------------

    def enter(self) -> None:
        """As the user for those who do not say who they are; AUTH may come later."""
        shared = self._shared
        try:
            if shared.authority is not None:  # it says of each client what that may
                user = shared.broker.users.trust(shared.user_name, self._visitor("", "").source)
            elif shared.identify_limits.auth_required:
                return
            else:
                user = shared.user_of(self._visitor("", ""))
            self._enter_as(user)
        except BrokerError:
            return  # said at the first command that needs rights

    def leave(self) -> None:
        """The connection is over."""
        if self._inquiry is not None:
            self._inquiry.drop()
        user = self._session.user
        if user is not None and self.vhost is not None:
            self._shared.broker.count_connection(user, self.vhost, -1)

    def failed(self, reason: str) -> None:
        """For the log: there was no log-in, and why."""
        name = connection_name(self._session)
        source = Source(NSQ, NSQ, self._layers.peer[0], self._is_local, name)
        self._shared.broker.users.opening_failed(source, reason)

    def is_overdue(self, elapsed_ms: i64) -> bool:
        """So much more time has passed: too much without a user whose rights hold?"""
        required = self._shared.identify_limits.auth_required
        if self._session.user is not None and not (required and self.identified is None):
            return False
        self._unknown_ms += elapsed_ms
        return self._unknown_ms > self._shared.opening_timeout_ms

    def _visitor(self, name: str, password: str, certified: str = "") -> NsqClient:
        secure = TLS in self._layers.up
        return NsqClient(self._layers.peer[0], self._is_local, name, password, certified, secure)

    def _enter_as(self, user: User) -> None:
        """Raises BrokerError."""
        broker = self._shared.broker
        vhost = broker.enter(user, self._shared.vhost_name)
        self._session.client.log_in(user, NSQ, self._layers.peer[0])
        self.vhost = vhost
        self._rights = Rights(user, vhost.name)
        self._traffic.add_to(broker.traffic.of(vhost.name, NSQ))
        broker.count_connection(user, vhost, 1)

    # -- AUTH --------------------------------------------------------------------------------

    def auth(self, params: list[bytes], secret: bytes) -> bytes | None:
        """The welcome that it is answered with; None: an authority is asked.  Raises BadCommand.

        Raises Undecided, to be called once more.
        """
        if len(params) != 1:
            raise BadCommand("E_INVALID", "AUTH invalid number of parameters")
        if self.identified is not None:
            raise BadCommand("E_INVALID", "AUTH already set")
        shared = self._shared
        if not shared.identify_limits.auth_required:
            raise BadCommand("E_AUTH_DISABLED", "AUTH disabled")
        text = text_of(secret)
        if shared.authority is not None:
            self._check_entry(text)
            self._secret = text
            self._asks_first = True
            self._ask()
            return None
        certified = self._layers.login if text == EXTERNAL else ""
        name, colon, password = text.partition(":")
        if certified != "":
            name = ""
        elif not colon:
            name, password = NAMELESS, text
        visitor = self._asking or self._visitor(name, password, certified)
        self._asking = visitor
        try:
            user = shared.user_of(visitor)
            self._enter_as(user)
        except EntryRefused as error:
            raise BadCommand("E_AUTH_FAILED", "AUTH failed: " + str(error)) from None
        except BrokerError as error:
            if isinstance(error, LoginRefused):
                self._session.mute(MonoMs(self._now_ms() + error.delay_ms))
            raise BadCommand("E_AUTH_FAILED", "AUTH failed") from None
        self._asking = None
        identified = Identified(user.name, "", [], 0)
        self.identified = identified
        return identified.welcome(1)

    def _check_entry(self, secret: str) -> None:
        """Of a client whose secret an authority judges.  Raises BadCommand."""
        user = self._shared.user_name
        try:
            source = self._visitor("", "").source
            self._shared.broker.users.check_entry(user, source, secret != "")
        except EntryRefused as error:
            raise BadCommand("E_AUTH_FAILED", "AUTH failed: " + str(error)) from None

    def _ask(self) -> None:
        authority = self._shared.authority
        assert authority is not None
        layers = self._layers
        self._inquiry = authority.ask(
            layers.peer[0], TLS in layers.up, self._secret, layers.common_name
        )

    def is_asking(self) -> bool:
        """Has an authority been asked whose answer was not taken yet?"""
        return self._inquiry is not None

    def has_answer(self) -> bool:
        inquiry = self._inquiry
        return inquiry is not None and inquiry.done

    def take_answer(self) -> bytes | None:
        """What the authority said: the welcome that AUTH is answered with, if it waits for one.

        Raises BadCommand.
        """
        inquiry = self._inquiry
        assert inquiry is not None
        self._inquiry = None
        identified = inquiry.answer
        first = self._asks_first
        self._asks_first = False
        self._allowed.clear()
        if identified is None:
            self._refuse(inquiry.reason)
            raise BadCommand("E_AUTH_FAILED", "AUTH failed")
        if first and len(identified.grants) == 0:
            self._refuse("no authorizations")
            raise BadCommand("E_UNAUTHORIZED", "AUTH no authorizations found")
        self._expires_ms = MonoMs(self._now_ms() + identified.ttl_ms)
        self.identified = identified
        return identified.welcome(len(identified.grants)) if first else None

    def _refuse(self, why: str) -> None:
        """An authority did not know the secret."""
        source = self._visitor("", "").source
        delay_ms = self._shared.broker.users.refuse_guess(source, "", why)
        self._session.mute(MonoMs(self._now_ms() + delay_ms))

    # -- rights ------------------------------------------------------------------------------

    def allowed(self, topic: str) -> Vhost | None:
        """The virtual host, if it is known that the client may publish to that topic there."""
        vhost = self.vhost
        if vhost is None or vhost.epoch != self._allowed_epoch or topic not in self._allowed:
            return None
        return None if 0 < self._expires_ms <= self._now_ms() else vhost

    def allow(self, vhost: Vhost, topic: str) -> None:
        """``check_publish`` had no objection, and the topic is there."""
        if vhost.epoch != self._allowed_epoch or len(self._allowed) > ALLOWED_MAX:
            self._allowed.clear()
            self._allowed_epoch = vhost.epoch
        self._allowed.add(topic)

    def check_publish(self, verb: str, topic: str) -> Vhost | None:
        """None: the authority is being asked again.  Raises BadCommand."""
        return self._check(verb, topic, "")

    def check_subscribe(self, topic: str, channel: str) -> Vhost | None:
        """As ``check_publish``."""
        return self._check("SUB", topic, channel)

    def _check(self, verb: str, topic: str, channel: str) -> Vhost | None:
        vhost = self._authorized(verb, topic, channel)
        if vhost is not None:
            try:
                if channel == "":
                    check_publish(self._known_rights(), vhost, topic)
                else:
                    check_subscribe(self._known_rights(), vhost, topic, channel)
            except AccessRefused:
                raise unauthorized(verb, topic, channel) from None
        return vhost

    def forget_allowed(self) -> None:
        """The user may have lost rights."""
        self._allowed.clear()

    def may_read(self, queue: str) -> bool:
        return self._rights is None or self._rights.may(READ, "queue", queue)

    def _known_rights(self) -> Rights:
        rights = self._rights
        assert rights is not None
        return rights

    def _authorized(self, verb: str, topic: str, channel: str) -> Vhost | None:
        """The virtual host, for AUTH; None: an authority is asked.  Raises BadCommand."""
        if self._shared.identify_limits.auth_required:
            identified = self.identified
            if identified is None:
                why = f"AUTH required before {verb}"
                self.failed(why)
                raise BadCommand("E_AUTH_FIRST", why)
            if 0 < self._expires_ms <= self._now_ms():
                self._ask()
                return None
            if self._expires_ms > 0 and not identified.allows(topic, channel):
                raise unauthorized(verb, topic, channel)
        vhost = self.vhost
        if vhost is None or self._shared.broker.vhosts.get(vhost.name) is None:
            raise unauthorized(verb, topic, channel)
        return vhost


def unauthorized(verb: str, topic: str, channel: str) -> BadCommand:
    names = f"{quoted(topic.encode())} {quoted(channel.encode())}"
    return BadCommand("E_UNAUTHORIZED", f"AUTH failed for {verb} on {names}")
