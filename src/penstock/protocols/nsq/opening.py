"""The opening of an NSQ connection: the client, the negotiated options, its user.

    IDENTIFY ─► limits and texts (codec) ─► layers: TLS, then snappy or deflate
    AUTH ─► a user of this broker, or the permissions an authority grants

After IDENTIFY the connection may go on behind TLS, and then behind snappy or deflate: the loop asks
for the ``next_carrier`` when what was said before has left, and each layer begins with an ``OK`` of
its own.  Nothing is read meanwhile.

A callback is asked elsewhere; ``waiting_head`` until it has answered, and again when its answer
has become too old.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.broker.rules.log_ins import Source
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.topics import is_name
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import BrokerError, LoginRefused
from penstock.core.traffic import NSQ, Traffic
from penstock.protocols.nsq.codec.commands import Command, Invalid, Request, quoted, text_of
from penstock.protocols.nsq.codec.frames import OK, error_frame, response_frame
from penstock.protocols.nsq.codec.identify import Identity
from penstock.protocols.nsq.codec.reader import NsqReader
from penstock.protocols.nsq.consuming import NsqConsuming
from penstock.protocols.nsq.publishing import NsqPublishing
from penstock.protocols.nsq.rights import Identified, Inquiry
from penstock.protocols.nsq.shared import DEFLATE, SNAPPY, TLS, NsqShared, Visitor
from penstock.runtime.session import Session
from penstock.runtime.session_events import connection_name

INIT: Final = 0
SUBSCRIBED: Final = 3
CLOSING: Final = 4
TOPICS_SHARE: Final[i64] = 100
"""New topics one connection may make in a turn; the rest waits for the next one."""


class NsqOpening(Session):
    """See the head of this file."""

    def __init__(
        self, shared: NsqShared, peer: tuple[str, int], peer_is_loopback: bool, now_ms: WallMs
    ) -> None:
        super().__init__(shared.broker.flow.book)
        self.shared = shared
        self.peer = peer
        self.state: i64 = INIT
        self.identity = Identity(shared.identify_limits, peer[0])
        self.traffic = Traffic(None)
        self.publishing = NsqPublishing(self, shared, self.traffic)
        self.consuming = NsqConsuming(self, shared, self.identity, self.traffic)
        self.connected_at_ms: WallMs = now_ms
        self.tls_version: str = ""
        self.tls_cipher: str = ""
        self.layers: list[str] = []  # those that are up
        self._inflate: Callable[[], bytes] | None = None
        self.identified: Identified | None = None  # by AUTH
        self._line = NsqReader(
            shared.reader_limits, shared.ids, is_name, shared.identify_limits.auth_required
        )
        self._magic_due: bool = True
        self._now_ms: WallMs = now_ms
        self._ended: bool = False  # the last word is in the queue of answers, or was said
        self._is_lost: bool = False
        self._has_hung_up: bool = False
        self._layers_due: list[str] = []
        self._touch: Callable[[], None] | None = None  # tells the loop that there is output
        self._postponed: list[Command] = []
        self._share: i64 = TOPICS_SHARE
        self._peer_is_loopback = peer_is_loopback
        self._ticked_at_ms: MonoMs = shared.broker.idleness.now_ms
        self._silent_ms: i64 = 0
        self._beat_ms: i64 = 0  # since the last heartbeat
        self._unknown_ms: i64 = 0  # without a log-in, where one is due
        # whose rights hold, and what is known of them
        self._vhost: Vhost | None = None
        self._rights: Rights | None = None
        self._allowed: set[str] = set()  # topics it may publish to, as long as the epoch lasts
        self._allowed_epoch: i64 = -1
        self._common_name: str = ""
        self._secret: str = ""
        self._asks_first: bool = False  # AUTH is being answered
        self._inquiry: Inquiry | None = None
        self._expires_ms: MonoMs = MonoMs(0)
        self._enter()
        shared.sessions[self] = None

    def _end(self) -> None:
        """Nothing it says counts any more, and it takes no more messages."""
        self._ended = True
        self.consuming.stop()

    def _fault(self, wrong: Invalid) -> None:
        self._end()
        self._postponed = []
        if wrong.code == "":
            self.closed = True
        else:
            self.publishing.finish(error_frame(wrong.code, wrong.text))

    def _wait_with(self, command: Command) -> None:
        self.waiting_head = True
        self._postponed.append(command)

    def _check_tls(self, verb: bytes) -> None:
        if self.shared.tls_required and TLS not in self.layers:
            raise Invalid("E_INVALID", f"cannot {text_of(verb)} in current state (TLS required)")

    def look_at_gate(self) -> None:
        vhost = self._vhost
        if vhost is None:
            return
        self.gate = self.shared.broker.admission.reason(vhost.name)
        if self.gate == "" and self.publishing.has_held():
            self.shared.broker.flow.book.freed.append(self.reader)

    # -- who it is ---------------------------------------------------------------------------

    def _enter(self) -> None:
        """As the user for those who do not say who they are; AUTH may come later."""
        shared = self.shared
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

    def _visitor(self, name: str, password: str) -> Visitor:
        return Visitor(self.peer[0], self._peer_is_loopback, name, password)

    def _opening_failed(self, reason: str) -> None:
        address, local = self.peer[0], self._peer_is_loopback
        source = Source(NSQ, NSQ, address, local, connection_name(self))
        self.shared.broker.users.opening_failed(source, reason)

    def _must_log_in(self) -> bool:
        """Is there no user whose rights hold?  It is sent away then, after some time."""
        required = self.shared.identify_limits.auth_required
        return self.user is None or (required and self.identified is None)

    @property
    def user_name(self) -> str:
        """The user whose permissions apply; "" = none yet."""
        return "" if self.user is None else self.user.name

    @property
    def vhost_name(self) -> str:
        return "" if self._vhost is None else self._vhost.name

    def _enter_as(self, user: User) -> None:
        """Raises BrokerError."""
        broker = self.shared.broker
        vhost = broker.enter(user, self.shared.vhost_name)
        self.client.log_in(user)
        self._vhost = vhost
        self._rights = Rights(user, vhost.name)
        self.traffic.add_to(broker.traffic.of(vhost.name, NSQ))
        broker.count_connection(user, vhost, 1)
        self.look_at_gate()

    def _is_authorized(self, command: Command, verb: str, topic: str, channel: str) -> bool:
        """As far as AUTH goes; False: the authority is being asked.  Raises Invalid."""
        limits = self.shared.identify_limits
        if limits.auth_required:
            identified = self.identified
            if identified is None:
                raise Invalid("E_AUTH_FIRST", f"AUTH required before {verb}")
            if self._expires_ms > 0:
                if self._is_expired(command):
                    return False
                if not identified.allows(topic, channel):
                    raise unauthorized(verb, topic, channel)
        if self._rights is None or self.shared.broker.vhosts.get(self._rights.vhost) is None:
            raise unauthorized(verb, topic, channel)
        return True

    def _is_expired(self, command: Command) -> bool:
        """Is what the callback said too old?  Then it is asked again, and the command waits."""
        if self.shared.broker.idleness.now_ms < self._expires_ms:
            return False
        self._ask()
        self._wait_with(command)
        return True

    def _ask(self) -> None:
        authority = self.shared.authority
        assert authority is not None
        self.waiting_head = True
        self._inquiry = authority.ask(
            self.peer[0], TLS in self.layers, self._secret, self._common_name
        )

    def _auth(self, request: Request) -> None:
        if self.state != INIT:
            raise Invalid("E_INVALID", "cannot AUTH in current state")
        if len(request.params) != 1:
            raise Invalid("E_INVALID", "AUTH invalid number of parameters")
        if self.identified is not None:
            raise Invalid("E_INVALID", "AUTH already set")
        shared = self.shared
        if not shared.identify_limits.auth_required:
            raise Invalid("E_AUTH_DISABLED", "AUTH disabled")
        self._secret = text_of(request.body)
        if shared.authority is not None:
            self._asks_first = True
            self._ask()
            return
        name, _, password = self._secret.partition(":")
        self._secret = ""
        try:
            user = shared.user_of(self._visitor(name, password))
            self._enter_as(user)
        except BrokerError as error:
            if isinstance(error, LoginRefused):
                self.mute(MonoMs(shared.broker.idleness.now_ms + error.delay_ms))
            raise Invalid("E_AUTH_FAILED", "AUTH failed") from None
        self._welcome(Identified(user.name, "", [], 0), 1)

    def _answered(self, identified: Identified | None) -> None:
        """What a callback said."""
        self.waiting_head = False
        first = self._asks_first
        self._asks_first = False
        self._allowed.clear()
        if identified is None:
            self._postponed = []
            self._fault(Invalid("E_AUTH_FAILED", "AUTH failed"))
        elif first and len(identified.grants) == 0:
            self._fault(Invalid("E_UNAUTHORIZED", "AUTH no authorizations found"))
        else:
            now_ms = self.shared.broker.idleness.now_ms
            self._expires_ms = MonoMs(now_ms + identified.ttl_ms)
            if first:
                self._welcome(identified, len(identified.grants))
            else:
                self.identified = identified

    def _welcome(self, identified: Identified, permissions: int) -> None:
        self.identified = identified
        self._line.logged_in()
        self.publishing.answer(0, response_frame(identified.welcome(permissions)))

    # -- what it speaks ------------------------------------------------------------------------

    def _identify(self, body: bytes) -> None:
        if self.state != INIT:
            raise Invalid("E_INVALID", "cannot IDENTIFY in current state")
        identity = self.identity
        identity.take(body)
        self._beat_ms = 0
        if not identity.negotiates:
            self.publishing.answer(0, OK)
            return
        due: list[str] = []
        for wanted, layer in (
            (identity.tls, TLS),
            (identity.snappy, SNAPPY),
            (identity.deflate, DEFLATE),
        ):
            if wanted and layer in self.layers:
                raise Invalid("E_IDENTIFY_FAILED", f"IDENTIFY failed {layer} is on already")
            if wanted:
                due.append(layer)
        self.publishing.answer(0, response_frame(identity.response()))
        self._layers_due = due

    def next_carrier(self, sock: object, touch: Callable[[], None]) -> object:
        """All that was said has left: what is said from now on goes through one more layer."""
        self.swaps_carrier = False
        kind = self._layers_due[0]
        rest = self._line.take_rest()
        self._touch = touch
        return self.shared.layers.over(kind, sock, rest, self)

    def layer_is_up(self) -> None:
        """A layer works: say so through it, and go on."""
        self.layers.append(self._layers_due.pop(0))
        self.out.write(OK)
        self.swaps_carrier = len(self._layers_due) > 0
        touch = self._touch
        if touch is not None:
            touch()

    def draw_from(self, inflate: Callable[[], bytes]) -> None:
        """``inflate``: more plain bytes of what a layer has read; b"" = there are none.

        It may raise ConnectionAbortedError.
        """
        self._inflate = inflate

    def _draw(self) -> bytes:
        """More plain bytes of what came in already; b"" = there are none."""
        inflate = self._inflate
        if inflate is None:
            return b""
        try:
            return inflate()
        except ConnectionAbortedError:
            self.closed = True
            return b""

    def describe_tls(self, version: str, cipher: str, common_name: str) -> None:
        """What TLS agreed on."""
        self.tls_version = version
        self.tls_cipher = cipher
        self._common_name = common_name


def unauthorized(verb: str, topic: str, channel: str) -> Invalid:
    names = f"{quoted(topic.encode())} {quoted(channel.encode())}"
    return Invalid("E_UNAUTHORIZED", f"AUTH failed for {verb} on {names}")
