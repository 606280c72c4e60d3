"""What an AMQP session and its channels share: the way out, the user, the vhost, the clock.

``now_ms`` is set by the session at each call, so that channels need no clock.
"""

from collections.abc import Callable
from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.broker.access import User
from penstock.broker.broker import Broker
from penstock.broker.vhost import Vhost
from penstock.core.errors import BrokerError
from penstock.queues.consumers import Consumer, Outlet
from penstock.queues.queue import Queue
from penstock.server.session import Session
from penstock.wire.amqp import methods as m
from penstock.wire.amqp.decoder import AmqpDecoder
from penstock.wire.amqp.methods import encode_method

NameSource = Callable[[str], str]
"""Prefix in, random name out: for server-named queues and consumer tags."""
CancelSink = Callable[[list[Consumer]], None]
"""Is told which consumers lost their queue, whosever they are."""


@final
class Link:
    """One connection, seen from its channels."""

    def __init__(
        self,
        session: Session,
        broker: Broker,
        decoder: AmqpDecoder,
        new_name: NameSource,
        tell_cancelled: CancelSink,
    ) -> None:
        self.session = session
        self.broker = broker
        self.decoder = decoder
        self.new_name = new_name
        self.tell_cancelled = tell_cancelled
        self.out: BytesWriter = session.out
        self.outlet: Outlet = session.outlet
        self.frame_max: i64 = decoder.frame_max
        self.now_ms: i64 = 0
        self.user: User | None = None
        self._vhost: Vhost | None = None
        self.owned: dict[str, Queue] = {}  # exclusive queues: they end with the connection
        self.cancel_notify: bool = False  # the client understands basic.cancel from us
        self.blocked_notify: bool = False  # and connection.blocked
        self._blocked_reason: str = ""

    @property
    def vhost(self) -> Vhost:
        vhost = self._vhost
        assert vhost is not None
        return vhost

    def enter(self, vhost: Vhost) -> None:
        self._vhost = vhost

    def delete_owned(self) -> None:
        """Exclusive queues go with their connection."""
        for queue in self.owned.values():
            if not queue.deleted:
                self.tell_cancelled(self.vhost.delete_queue(queue))
        self.owned = {}

    def tell_blocked(self, reason: str) -> None:
        """The client is held for that reason; "" = not any more.  Said when it changes."""
        was = self._blocked_reason
        self._blocked_reason = reason
        if not self.blocked_notify or was == reason:
            return
        if reason != "":
            self.send(0, m.CONNECTION_BLOCKED, [reason])
        else:
            self.send(0, m.CONNECTION_UNBLOCKED, [])

    def send(self, channel: i64, key: i64, values: list[object]) -> None:
        self.out.write(encode_method(int(channel), int(key), values))


@final
class ChannelError(Exception):
    """A ``BrokerError`` on its way to the session, with the method that caused it."""

    def __init__(self, error: BrokerError, method_key: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.method_key = method_key
