"""What all NSQ sessions of a node share: the broker, the limits, and how to do what they cannot.

Made once, of the settings.  Sessions know no dice, threads and sockets: ``dice`` throws for
samples, ``authority`` asks who a client is, ``layers`` puts TLS and compression on its socket.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.broker.broker import Broker
from penstock.queues.consumers import Consumer
from penstock.server.nsq_rights import Inquiry
from penstock.server.session import Session
from penstock.wire.nsq.identify import IdentifyLimits
from penstock.wire.nsq.ids import IdFactory
from penstock.wire.nsq.reader import ReaderLimits

TLS: Final = "tls"
SNAPPY: Final = "snappy"
DEFLATE: Final = "deflate"


@mypyc_attr(allow_interpreted_subclasses=True)
class Authority:
    """Whoever knows what clients with a secret may do; asked elsewhere, answered later."""

    def ask(self, remote_ip: str, tls: bool, secret: str, common_name: str) -> Inquiry:
        raise NotImplementedError

    def close(self) -> None:
        """The node stops: what has not been asked is not asked any more."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Layers:
    """Puts a layer on a session's socket, and tells the session once it is up."""

    def over(self, kind: str, sock: object, rest: bytes, session: Session) -> object:
        """``rest``: what was read of the socket already."""
        raise NotImplementedError


class NsqShared:
    """See the head of this file."""

    def __init__(
        self,
        broker: Broker,
        reader_limits: ReaderLimits,
        identify_limits: IdentifyLimits,
        ids: IdFactory,
        tell_cancelled: Callable[[list[Consumer]], None],
        dice: Callable[[], int],
    ) -> None:
        self.broker = broker
        self.reader_limits = reader_limits
        self.identify_limits = identify_limits
        self.ids = ids
        self.tell_cancelled = tell_cancelled
        self.dice = dice  # 0 to 99
        self.layers: Layers = Layers()
        self.authority: Authority | None = None
        self.vhost_name: str = "/"
        self.user_name: str = "guest"
        self.fast: bool = False
        self.requeue_on_disconnect: bool = False
        self.tls_required: bool = False
        self.max_channel_consumers: i64 = 0
        self.sessions: dict[Session, None] = {}  # in the order they came
