"""The state that all NSQ sessions of a node share: the broker, the limits, the authority.

Made once, of the settings.  Sessions know no chance, threads and sockets: ``percent`` draws for
samples, ``authority`` asks who a client is, ``layers`` puts TLS and compression on its socket.
"""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64, mypyc_attr

from penstock.broker.broker import Broker
from penstock.broker.rules.access import User
from penstock.broker.rules.judges import Source
from penstock.broker.rules.log_ins import LogIn, LogIns
from penstock.core.counting.traffic import NSQ
from penstock.core.errors import AccessRefused, AuthRequired
from penstock.protocols.nsq.codec.identify import IdentifyLimits
from penstock.protocols.nsq.codec.ids import IdFactory
from penstock.protocols.nsq.codec.reader import ReaderLimits
from penstock.protocols.nsq.layer_stack import Layers
from penstock.protocols.nsq.rights import AuthRequest
from penstock.queues.consumers import Consumer
from penstock.runtime.session import Session
from penstock.settings.settings import Settings


@mypyc_attr(allow_interpreted_subclasses=True)
class Authority:
    """Asks what clients with a secret may do; asked elsewhere, answered later."""

    def ask(self, remote_ip: str, tls: bool, secret: str, common_name: str) -> AuthRequest:
        raise NotImplementedError

    def close(self) -> None:
        """The node stops: what has not been asked is not asked any more."""


@final
class NsqClient:
    """An NSQ client before its log-in: its address, and the name and password it sends, if any.

    ``certified``: the user that its certificate names, "" = none.
    """

    __slots__ = ("certified", "is_local", "log_in", "name", "password", "source")

    def __init__(
        self,
        address: str,
        is_local: bool,
        name: str = "",
        password: str = "",
        certified: str = "",
        is_encrypted: bool = False,
    ) -> None:
        self.source: Source = Source(NSQ, NSQ, address, is_local, "", is_encrypted)
        self.is_local: bool = is_local
        self.name: str = name
        self.password: str = password
        self.certified: str = certified
        self.log_in: LogIn | None = None  # once it has begun

    def begin(self, users: LogIns) -> LogIn:
        """Its log-in, by name and password or by its certificate; one, however often asked for."""
        if self.log_in is None:
            is_named = self.name != ""
            self.log_in = users.begin(
                self.name if is_named else self.certified,
                self.password if is_named else None,
                self.source,
            )
        return self.log_in


class NsqShared:
    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        reader_limits: ReaderLimits,
        identify_limits: IdentifyLimits,
        ids: IdFactory,
        layers: Layers,
        authority: Authority | None,
        tell_cancelled: Callable[[list[Consumer]], None],
        percent: Callable[[], int],
    ) -> None:
        self.broker = broker
        self.reader_limits = reader_limits
        self.identify_limits = identify_limits
        self.ids = ids
        self.tell_cancelled = tell_cancelled
        self.percent = percent  # 0 to 99, at random
        self.layers: Layers = layers
        self.authority: Authority | None = authority
        self.vhost_name: str = settings.nsq_vhost
        # Of clients that do not log in: named by a setting, else the broker's default user.
        self.user_name: str = settings.nsq_user or settings.default_user
        self.is_user_named: bool = settings.nsq_user != ""
        # Until AUTH, of clients that must log in.
        self.opening_timeout_ms: i64 = settings.handshake_timeout_ms
        self.fast: bool = settings.nsq_publish_mode == "fast"
        self.requeue_on_disconnect: bool = settings.nsq_requeue_on_disconnect
        self.tls_required: bool = settings.nsq_tls_required != "no"
        self.max_channel_consumers: i64 = settings.nsq_max_channel_consumers
        self.sessions: dict[Session, None] = {}  # in the order they came

    def user_of(self, visitor: NsqClient) -> User:
        """The user whose rights hold, over TCP and HTTP alike.  Raises AccessRefused, and logs it.

        A client that does not log in acts as ``nsq_user``.  Where no setting names that user, a
        client of this machine acts as the default user, and one of another machine is refused: a
        listener on a public address is no decision to serve anonymous clients.

        Raises Undecided: call it again with the same visitor.
        """
        users = self.broker.users
        source = visitor.source
        if visitor.name != "" or visitor.certified != "":
            return visitor.begin(users).user()
        try:
            self._check_without_log_in(visitor)
        except AccessRefused as error:
            users.refuse(source, "", error)
            raise
        return users.trust(self.user_name, source)

    def _check_without_log_in(self, visitor: NsqClient) -> None:
        """Is a client that does not log in served at all?  Raises AccessRefused."""
        # A callback that says what TCP clients may do says nothing of HTTP, as with nsqd.
        asks_only_tcp = self.authority is not None and visitor.is_local
        if self.identify_limits.auth_required and not asks_only_tcp:
            raise AuthRequired("authentication is required")
        if not self.is_user_named and not visitor.is_local:
            raise AccessRefused(
                "NSQ clients of other machines must authenticate, or act as a user that"
                " nsq_user names"
            )
