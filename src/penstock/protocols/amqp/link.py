"""What an AMQP session and its channels share: the way out, the user, the vhost, the clock.

``now_ms`` is set by the session at each call, so that channels need no clock.

What changes the topology costs more than anything else a client may ask for.  So a connection
does ``TOPOLOGY_SHARE`` such things in a turn, and looks for routes for ``ROUTING_SHARE_NS`` or a
little longer; what it sent behind them waits for the next one.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.rules.entry import LIMIT
from penstock.broker.rules.judges import WRITE
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.changes import NO_MEMORY, Ask
from penstock.broker.topology.routes import Route
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import AMQP, Traffic
from penstock.core.message import Address
from penstock.core.pending import Pending
from penstock.core.steps import STEPS_MAX, steps
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.decoder import AmqpDecoder
from penstock.protocols.amqp.codec.errors import NOT_ALLOWED, RESOURCE_ERROR, ProtocolViolation
from penstock.protocols.amqp.codec.events import Event
from penstock.protocols.amqp.codec.methods import Method, encode_method
from penstock.protocols.amqp.codec.property_scan import ANYBODY
from penstock.queues.consumers import Consumer, OutputWindow
from penstock.queues.queue import Queue
from penstock.routing.matcher import RoutingContext
from penstock.runtime.session import Session
from penstock.runtime.session_events import left

TOPOLOGY_SHARE: Final[i64] = 100
QUEUE_STEPS: Final[i64] = STEPS_MAX // TOPOLOGY_SHARE
ROUTING_SHARE_NS: Final[i64] = 5_000_000

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
        self.stamping: Final[i64] = broker.options.stamping
        self.outlet: OutputWindow = session.outlet
        self.now_ms = WallMs(0)
        self.share: i64 = TOPOLOGY_SHARE  # changes of the topology that are left in this turn
        self._routing_ns: i64 = 0  # in this turn, over routes that were not known
        self._routing_steps: i64 = 0  # what ``steps`` had counted when it began
        self.traffic = Traffic(None)  # of its virtual host, once that is known
        self._vhost: Vhost | None = None
        self._rights: Rights | None = None
        self._ask: Ask | None = None
        self.owned: dict[str, Queue] = {}  # exclusive queues: they end with the connection
        self.cancel_notify: bool = False  # the client understands basic.cancel from us
        self.blocked_notify: bool = False  # and connection.blocked
        self._blocked_reason: str = ""
        self._channel_count: i64 = 0
        self.consumer_count: i64 = 0

    @property
    def vhost(self) -> Vhost:
        vhost = self._vhost
        assert vhost is not None
        return vhost

    @property
    def who(self) -> tuple[str, str]:
        """User and virtual host; "" before the client has named it."""
        user, vhost = self.session.user, self._vhost
        return "" if user is None else user.name, "" if vhost is None else vhost.name

    @property
    def rights(self) -> Rights:
        rights = self._rights
        assert rights is not None
        return rights

    def begin(self, now_ms: WallMs) -> None:
        """A turn: it is that late, and everything may be asked for again."""
        self.now_ms = now_ms
        self.share = TOPOLOGY_SHARE
        self._routing_ns = 0
        self._routing_steps = steps.taken

    def set_now(self, now_ms: WallMs) -> None:
        """It is that late, in the same turn."""
        self.now_ms = now_ms

    def take_share(self) -> bool:
        """For one change of the topology; False: it is for the next turn."""
        if self.share == 0 or self.has_routed_enough():
            return False
        self.share -= 1
        return True

    def has_routed_enough(self) -> bool:
        """Finding routes took so long that what is left is for the next turn.

        Those of copies for the firehose too, which may still be under way.
        """
        if self.broker.traces.behind and self.awaits_copies():
            return True
        if steps.taken - self._routing_steps >= STEPS_MAX:
            return True
        return self._routing_ns > ROUTING_SHARE_NS

    def steps_left(self) -> i64:
        """Of this turn."""
        return max(0, STEPS_MAX - (steps.taken - self._routing_steps))

    def awaits_copies(self) -> bool:
        """Has the firehose copies of earlier messages left?"""
        vhost = self._vhost
        return self.broker.traces.behind and vhost is not None and vhost.tracing

    def ask(self) -> Ask:
        """For what a cluster has to agree on, one thing at a time."""
        ask = self._ask
        if ask is None:
            ask = self._ask = self.broker.changes.ask(self.session.client.actor)
        return ask

    def learn(self, capabilities: dict[str, object]) -> None:
        """What the client understands, in its own words."""
        self.cancel_notify = capabilities.get("consumer_cancel_notify") is True
        self.blocked_notify = capabilities.get("connection.blocked") is True

    def enter(self, vhost: Vhost) -> None:
        """The connection is open: channels may speak, it counts, its user's rights hold."""
        user = self.session.user
        assert user is not None
        self._vhost = vhost
        self._rights = Rights(user, vhost.name, self.broker.options.types.newer)
        self.traffic = self.broker.traffic.of(vhost.name, AMQP)
        self.broker.count_connection(user, vhost, 1)
        self.name_publisher()

    def name_publisher(self) -> None:
        """In whose name messages may be published."""
        user = self.rights.user
        self.decoder.open(ANYBODY if user.may_impersonate else user.name.encode())

    def leave_step(self) -> bool:
        """The connection is over: its exclusive queues go with it; False = they have gone."""
        if len(self.owned) > 0:
            _, queue = self.owned.popitem()
            if not queue.deleted:
                self.tell_cancelled(self.vhost.delete_queue(queue))
            steps.count(QUEUE_STEPS)
            return True
        left(self.broker.events, self.session)
        user = self.session.user
        if user is not None and self._vhost is not None:
            self.broker.count_connection(user, self._vhost, -1)
        return False

    def route(self, address: Address) -> Route:
        """Where a publish goes, if it may: found and judged once per address and epoch."""
        vhost = self._vhost
        assert vhost is not None
        if address.route_epoch != vhost.epoch:
            exchange = vhost.exchanges.get(address.exchange)
            since = perf_counter_ns()
            self.rights.publish(exchange, address.exchange, address.routing_key)
            steps.limit()
            try:
                return vhost.route(address)
            finally:
                steps.unlimit()
                self._routing_ns += perf_counter_ns() - since
        return cast(Route, address.route)

    def reached(self, address: Address, context: RoutingContext, copies: list[str]) -> list[Queue]:
        """The queues of a message whose headers say where it goes.

        Raises AccessRefused for a key of ``copies``, PreconditionFailed for a route that needs too
        many steps.
        """
        vhost = self.vhost
        for key in copies:
            self.rights.topic(WRITE, vhost.exchanges.get(address.exchange), key)
        steps.limit()
        try:
            return vhost.reached(address.exchange, address.routing_key, context, copies)
        finally:
            steps.unlimit()

    def count_consumers(self, more: i64) -> None:
        """So many more, of all channels; below zero: they are gone."""
        self.consumer_count += more

    def count_channel(self, more: i64) -> None:
        """One more channel is open, or one less; raises ProtocolViolation for one too many."""
        user = self.session.user
        assert user is not None
        user, budget, churn = user.counted, self.vhost.budget, self.broker.traffic.churn
        if more > 0:
            of_user, of_node = f"for user '{user.name}'", self.broker.options.channel_max
            of_vhost = f"in vhost '{self.vhost.name}'"
            self._check_channels(of_user, "user limit", user.max_channels, user.channel_count)
            self._check_channels(of_vhost, "limit", budget.max_channels, budget.channel_count)
            self._check_channels("on this node", "limit", of_node, churn.open_channels())
            if not self.vhost.changes.has_memory_for_channel(self._channel_count):
                raise ProtocolViolation(RESOURCE_ERROR, NO_MEMORY, m.CHANNEL_OPEN)
        self._channel_count += more
        user.count_channel(more)
        budget.count_channel(more)
        churn.count_channel(more)

    def _check_channels(self, whose: str, limit: str, most: i64, count: i64) -> None:
        if 0 <= most <= count:
            self.broker.users.entry.count(LIMIT)
            raise ProtocolViolation(
                NOT_ALLOWED,
                f"number of channels opened {whose} has reached the maximum allowed {limit} of"
                f" ({int(most)})",
            )

    def tell_blocked(self, reason: str) -> None:
        """The client is held for that reason; "" = not any more.

        As RabbitMQ says it: once, with the reason of that moment, and that it is over when
        no reason is left.  A second ``blocked`` confuses clients that start a timer at it.
        """
        was = self._blocked_reason
        self._blocked_reason = reason
        if not self.blocked_notify or (was == "") == (reason == ""):
            return
        if reason != "":
            self.send(0, m.CONNECTION_BLOCKED, [reason])
        else:
            self.send(0, m.CONNECTION_UNBLOCKED, [])

    def send(self, channel: i64, key: i64, values: list[object]) -> None:
        self.session.out.write(encode_method(int(channel), int(key), values))


@final
class Suspended(Event):
    """A method that was begun, and is answered when its outcome has been resumed."""

    def __init__(self, channel: i64, method: Method, pending: Pending) -> None:
        self.channel = channel
        self.method = method
        self.pending = pending
