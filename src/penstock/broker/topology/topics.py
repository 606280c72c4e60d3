"""Topics and channels: NSQ's two nouns, made of an exchange, its internal queue and others.

    topic T        exchange ``nsq.T`` of the type x-nsq-topic; its backlog is that internal queue
    channel C      queue ``nsq.T:C`` bound to it; deliveries have deadlines and count attempts

A topic **holds** what is published, in its backlog, while it is paused, or nothing is bound to it,
or the backlog is not empty yet; else its messages go where bindings lead, like those of a fanout
exchange.  So nothing is lost before the first channel, the order stays, and every publisher goes
the same way, whatever it speaks.  A new topic also holds while it is **prepared**: other nodes are
asked which channels it is to have (``on_new``), so that none of them misses the first messages.
``move`` empties the backlog some messages at a time, as far as routing them is not too dear in a
turn; a message is let go there when it is on disk where it went.

A topic may be a stream, of which all channels take (``topic_streams.py``).

Any queue bound to the exchange gets the messages.  It is a channel when its name says so and its
backing can delay messages; colons are in no NSQ name, so names cannot be taken for each other.
A topic and its channels are all in the definitions of exchanges, queues and bindings: here is
only what one can look up, made anew at each start (``attach``, ``binding_changed``).  A channel
costs the same to make or delete however many the topic has.

An ephemeral topic is a transient exchange that goes with its last binding, and all its channels are
transient queues; an ephemeral channel is one of bounded length that goes with its last consumer,
and drops what comes when it is full.

Invariants (``check``):
  T1  a topic that does not hold is not paused or prepared, has a binding and an empty backlog
      (of a stream: but for what is deferred)
  T2  ``channels`` are the bound queues that are called so, and all of them have leases
  T3  of a stream, all of them take from it, and nothing is routed to them
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

from mypy_extensions import i64

from penstock.broker.topology.changes import Ask
from penstock.broker.topology.routes import COPIES_AT_ONCE, any_refuses, record_of
from penstock.broker.topology.topic_streams import TopicStream, check_alone
from penstock.core.clock_types import WallMs
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.letters import HeaderWriter
from penstock.core.message import Message
from penstock.core.pending import Pending, then
from penstock.queues.consumers import Consumer
from penstock.queues.context import STREAM
from penstock.queues.latency import PublishTime, enqueue_time
from penstock.queues.limits import REJECT_PUBLISH, QueueLimits
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.routing.exchanges import NSQ_TOPIC, Exchange, route
from penstock.routing.matcher import RoutingContext
from penstock.routing.steps import RouteUnfinished, RoutingShare

if TYPE_CHECKING:
    from penstock.broker.topology.vhost import Vhost

PREFIX: Final = "nsq."
SEPARATOR: Final = ":"
EPHEMERAL: Final = "#ephemeral"
NAME_MAX: Final = 64
PAUSED: Final = "x-nsq-paused"
"""Argument of a topic's exchange that says it is."""
FAST: Final = "fast"
EPHEMERAL_MAX_LENGTH: Final = 10_000
MOVED_AT_ONCE: Final[i64] = 1024
MOVED_BYTES_MAX: Final[i64] = 4 * 1024 * 1024
_NAME: Final = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")

SettleLater = Callable[[i64, Queue, list[Message]], None]
"""(position, queue, messages): acknowledge them when the journal is on disk so far."""


def is_name(text: str) -> bool:
    """May a topic or a channel be called so?  (nsqd, ``protocol/names.go``)"""
    return 1 <= len(text) <= NAME_MAX and _NAME.fullmatch(text) is not None


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL)


def exchange_name(topic: str) -> str:
    return PREFIX + topic


def queue_name(topic: str, channel: str) -> str:
    return f"{PREFIX}{topic}{SEPARATOR}{channel}"


def check_topic_exchange(name: str) -> None:
    """Raises PreconditionFailed when no topic may have an exchange of that name."""
    if not name.startswith(PREFIX) or not is_name(name[len(PREFIX) :]):
        raise PreconditionFailed(
            f"an exchange of type '{NSQ_TOPIC}' is called 'nsq.' and the name of a topic: letters,"
            f" digits, '.', '_' and '-', {NAME_MAX} at most; '{name}' is not"
        )


@final
class TopicChannel:
    """One channel of a topic, and its queue."""

    def __init__(self, topic: "Topic", name: str, queue: Queue) -> None:
        self.topic = topic
        self.name = name
        self.queue = queue

    def forget(self) -> None:
        """It is no channel any more: its queue is not scanned for what is due."""
        self.queue.scanned = False
        self.queue.wake()

    def behind(self) -> i64:
        """Of its ready messages, those that are in the stream only."""
        return self.queue.behind() if isinstance(self.queue, LocalQueue) else 0

    def depth(self) -> i64:
        return self.queue.backing.ready_count() + self.behind()

    def backend_depth(self) -> i64:
        """Of its ready messages, those that are not in memory."""
        return self.queue.backing.disk_count() + self.behind()


@final
class Topic:
    """One topic.

    ``changed``  whom to tell that messages go another way from now on
    ``scanned``  does a scan loop find the deadlines of its channels?
    """

    def __init__(
        self,
        exchange: Exchange,
        changed: Callable[[], None],
        scanned: bool,
        start_of: Callable[[Queue], str],
    ) -> None:
        self.exchange = exchange
        self.name = exchange.name[len(PREFIX) :]
        self.reached: list[Queue] = []  # from its bindings on, as of ``reached_epoch``
        self.reached_epoch: i64 = -1
        self.channels: dict[str, TopicChannel] = {}
        self.paused: bool = exchange.arguments.get(PAUSED) is True
        self.preparing: bool = False
        self._changed = changed
        self._scanned: bool = scanned
        self.stream = TopicStream(exchange, self.paused, start_of)

    def remember(self, reached: list[Queue], epoch: i64) -> None:
        """Messages without a key reach these queues, as long as the epoch lasts."""
        self.reached = reached
        self.reached_epoch = epoch

    @property
    def ephemeral(self) -> bool:
        return is_ephemeral(self.name)

    @property
    def backlog(self) -> Queue:
        return cast(Queue, self.exchange.internal_queue)

    @property
    def message_count(self) -> i64:
        return self.exchange.published_count

    @property
    def message_bytes(self) -> i64:
        return self.exchange.published_bytes

    def is_fast(self, by_default: bool) -> bool:
        """Are publishers answered before the disk has their messages?"""
        mode = self.exchange.publish_mode
        return by_default if mode == "" else mode == FAST

    def depth(self) -> i64:
        """Messages no channel has got yet, deferred ones too."""
        return self.backlog.backing.ready_count() + self.backlog.deferred_count()

    def backend_depth(self) -> i64:
        return self.backlog.backing.disk_count()

    def _waiting(self) -> i64:
        """Messages of the backlog that newer ones wait behind."""
        return self.depth() if self.stream.log is None else self.backlog.backing.ready_count()

    def prepare(self, preparing: bool) -> None:
        """Its channels are being made: messages stay until they are there."""
        self.preparing = preparing

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.stream.pause(paused, self._queues())

    def _queues(self) -> list[Queue]:
        return [channel.queue for channel in self.channels.values()]

    def may_move(self) -> bool:
        """Do messages leave the backlog?"""
        return not self.paused and not self.preparing and self.exchange.has_bindings()

    def look(self) -> None:
        """Something has changed: does it hold, and is something to be moved?"""
        if self.stream.log is not None:
            cast(LocalQueue, self.backlog).defer_what_is_delayed()
        self.moved(self.may_move() and self._waiting() > 0)

    def moved(self, more: bool) -> None:
        """Does it still hold?  ``more``: messages are at hand, so the backlog moves on."""
        holds = not self.may_move() or self._waiting() > 0
        if holds != self.exchange.holds:
            self.exchange.hold(holds)
            self._changed()
        if more:
            self.backlog.wake()

    def may_call(self, queue: str) -> bool:
        """Is it the name of a channel's queue?"""
        prefix = self.exchange.name + SEPARATOR
        return queue.startswith(prefix) and is_name(queue[len(prefix) :])

    def follow(self, queue: Queue) -> TopicChannel | None:
        """A binding of the queue came or went; returns the channel if that made one."""
        if queue.name == self.exchange.name:
            self.stream.follow(queue, self._queues())
            return None
        if not self.may_call(queue.name):
            return None
        name = queue.name[len(self.exchange.name + SEPARATOR) :]
        known = self.channels.get(name)
        bound = self.exchange.leads_to(queue)
        if known is not None and known.queue is queue:
            if not bound:
                del self.channels[name]
                self.stream.end_feed(queue)
                known.forget()
            return None
        if not bound or not queue.use_leases():
            return None
        queue.scanned = self._scanned
        self.channels[name] = TopicChannel(self, name, queue)
        self.stream.feed(queue, len(self.channels) == 1)
        return self.channels[name]

    def check(self) -> None:
        """Assert T1 to T3."""
        if not self.exchange.holds:
            assert self.may_move(), "T1"
            assert self._waiting() == 0, "T1"
        for name, channel in self.channels.items():
            queue = channel.queue
            assert self.exchange.leads_to(queue), "T2"
            assert queue.name == queue_name(self.name, name), "T2"
            assert queue.leases is not None, "T2"
            assert self.stream.log is None or self.stream.feeds(queue), "T3"


@final
class Topics:
    """Those of one virtual host; ``scanned``: does a scan loop find their deadlines?"""

    def __init__(self, vhost: "Vhost", scanned: bool) -> None:
        self.topics: dict[str, Topic] = {}
        self.version: i64 = 0  # moves when a topic or channel comes or goes
        self._on_change: Callable[[], None] | None = None
        self._on_new: Callable[[str], bool] | None = None
        self.latency_targets: list[float] = []  # quantiles of its channels; none = not measured
        self.latency_window_ms: i64 = 0
        self.publish_time: PublishTime = enqueue_time
        self._vhost = vhost
        self._scanned: bool = scanned

    def measure(self, targets: list[float], window_ms: i64, publish_time: PublishTime) -> None:
        """``targets``: quantiles of the end-to-end latency of its channels; none = no measuring."""
        self.latency_targets = targets
        self.latency_window_ms = window_ms
        self.publish_time = publish_time

    def report_to(
        self, on_change: Callable[[], None] | None, on_new: Callable[[str], bool] | None
    ) -> None:
        """``on_change`` is called when ``version`` has moved, ``on_new`` with the name of each new
        topic: True = it will say what channels to make (``prepared``).
        """
        self._on_change = on_change
        self._on_new = on_new

    def new_ask(self) -> Ask:
        """For what a cluster has to agree on."""
        return self._vhost.changes.ask()

    # -- names -----------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | Pending:
        """The topic of that (valid) name, made if there is none; a stream if a policy says so."""
        vhost, full_name, ephemeral = self._vhost, exchange_name(name), is_ephemeral(name)
        topic = self.topics.get(name)
        streams = not ephemeral and vhost.policies.wants_stream(full_name)
        if topic is not None and (topic.stream.log is not None or not streams):
            return topic
        if streams:
            check_alone(vhost.changes.follows)
            vhost.declare_queue(full_name, True, None, False, {"x-queue-type": STREAM})
        vhost.declare_exchange(full_name, NSQ_TOPIC, not ephemeral, ephemeral, False, {})
        if streams:
            vhost.bind_queue(vhost.queue(full_name), full_name, "", {})
        return vhost.changes.then(partial(self._topic, name))

    def check_binding(self, exchange: Exchange, queue: Queue) -> None:
        """To one of ours; raises NotImplementedYet or PreconditionFailed."""
        topic = self.topics[exchange.name[len(PREFIX) :]]
        if queue.is_stream or topic.may_call(queue.name):
            topic.stream.check_binding(queue, len(topic.channels), self._vhost.changes.follows)

    def _topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise NotFound(f"topic '{name}' is gone")
        return topic

    def _start_of(self, queue: Queue) -> str:
        return self._vhost.policies.queue_settings(queue.name, queue.arguments).channel_start

    def channel(self, topic: Topic, name: str, start: str = "") -> TopicChannel | Pending:
        """The channel of that (valid) name, made if there is none.

        ``start``: as the policy ``nsq-start``; "" = what that says.
        """
        channel = topic.channels.get(name)
        if channel is not None:
            return channel
        ephemeral = is_ephemeral(name)
        arguments: dict[str, object] = {}
        if ephemeral:
            arguments = {"x-max-length": EPHEMERAL_MAX_LENGTH, "x-overflow": "reject-publish"}
        if start:
            arguments["x-nsq-start"] = start
        durable = not ephemeral and not topic.ephemeral  # no start would find its topic
        full_name = queue_name(topic.name, name)
        self._vhost.declare_queue(full_name, durable, None, ephemeral, arguments)
        return self._vhost.changes.then(partial(self._bind, topic.name, name))

    def _bind(self, topic: str, name: str) -> TopicChannel | Pending:
        queue = self._vhost.queue(queue_name(topic, name))
        self._vhost.bind_queue(queue, exchange_name(topic), "", {})
        return self._vhost.changes.then(partial(self._channel, topic, name))

    def _channel(self, topic: str, name: str) -> TopicChannel:
        channel = self._topic(topic).channels.get(name)
        if channel is None:
            raise PreconditionFailed(
                f"{self._vhost.queue_text(queue_name(topic, name))} cannot be a channel: it has"
                " priorities or drops duplicates"
            )
        return channel

    def channel_queues(self) -> list[Queue]:
        """Of all channels there are."""
        found: list[Queue] = []
        for topic in self.topics.values():
            found.extend([channel.queue for channel in topic.channels.values()])
        return found

    # -- what the virtual host tells ---------------------------------------------------------

    def attach(self, exchange: Exchange) -> None:
        """An exchange of ours is there, and has its internal queue."""
        topic = Topic(exchange, self._vhost.forget_routes, self._scanned, self._start_of)
        self.topics[topic.name] = topic
        if topic.ephemeral:
            topic.backlog.set_limits(QueueLimits(EPHEMERAL_MAX_LENGTH, overflow=REJECT_PUBLISH))
        if self._on_new is not None:
            topic.prepare(self._on_new(topic.name))
        topic.look()
        self._changed()

    def detach(self, exchange: Exchange) -> None:
        """It is deleted."""
        topic = self.topics.pop(exchange.name[len(PREFIX) :])
        for channel in topic.channels.values():
            channel.forget()
        self._changed()

    def prepared(self, name: str) -> None:
        """The channels that ``on_new`` has found are there."""
        topic = self.topics.get(name)
        if topic is not None and topic.preparing:
            topic.prepare(False)
            topic.look()

    def _changed(self) -> None:
        self.version += 1
        if self._on_change is not None:
            self._on_change()

    def binding_changed(self, exchange: Exchange, destination: object) -> None:
        """A queue or exchange was bound to one of ours, or is not any more."""
        topic = self.topics[exchange.name[len(PREFIX) :]]
        channel = topic.follow(destination) if isinstance(destination, Queue) else None
        if channel is not None and self.latency_targets:
            channel.queue.statistics.measure_latency(self.latency_window_ms, self.publish_time)
        topic.look()
        self._changed()

    # -- what operators do -------------------------------------------------------------------

    def pause(self, topic: Topic, paused: bool) -> None:
        """A paused topic takes messages and passes none on to its channels."""
        exchange = topic.exchange
        arguments = {**exchange.arguments, PAUSED: paused}
        if self._vhost.changes.proposes:
            self._vhost.changes.put_exchange(exchange, arguments)
            return
        topic.pause(paused)
        exchange.arguments = arguments
        if exchange.durable:
            self._vhost.definitions.put_exchange(record_of(exchange))
        topic.look()

    def pause_channel(self, channel: TopicChannel, paused: bool) -> None:
        queue = channel.queue
        if self._vhost.changes.proposes:
            self._vhost.changes.pause_queue(queue, paused)
            return
        queue.set_paused(paused)
        if queue.durable:
            self._vhost.definitions.pause_queue(queue.vhost, queue.name, paused)

    def empty(self, topic: Topic) -> Pending | None:
        """Let go of its backlog; what channels have stays."""
        return then(topic.backlog.empty(), lambda _count: topic.look())

    def delete(self, topic: Topic) -> list[Consumer]:
        """With its channels; returns the consumers who lost theirs."""
        lost: list[Consumer] = []
        for channel in list(topic.channels.values()):
            lost.extend(self._vhost.delete_queue(channel.queue))
        log = topic.stream.log
        if log is not None:
            lost.extend(self._vhost.delete_queue(log))
        if topic.name in self.topics:  # an ephemeral one has gone with its last channel
            self._vhost.delete_exchange(topic.exchange.name, False)
        return lost

    def delete_channel(self, channel: TopicChannel) -> list[Consumer]:
        return self._vhost.delete_queue(channel.queue)

    # -- messages ----------------------------------------------------------------------------

    def publish(self, topic: Topic, messages: list[Message], size: i64, now_ms: WallMs) -> i64:
        """Returns the journal position that makes them safe, 0 = nothing went there.

        ``size`` is that of all bodies, for those who count.
        """
        topic.exchange.count(len(messages), size)
        queues = self.route(topic)
        if len(messages) * len(queues) > COPIES_AT_ONCE and topic.stream.log is None:
            # They go on from there in shares, and what is published meanwhile behind them.
            position = self._vhost.publish([topic.backlog], messages, now_ms)
            topic.look()
            return position
        if len(queues) == 0:
            return 0  # bound only to exchanges that lead nowhere
        if not any_refuses(queues):
            return self._vhost.publish(queues, messages, now_ms)
        position, _ = self._vhost.publish_some(queues, messages, now_ms)
        return position

    def publish_deferred(
        self, topic: Topic, messages: list[Message], size: i64, until_ms: WallMs, now_ms: WallMs
    ) -> i64:
        """As ``publish``; no consumer gets them before that time."""
        topic.exchange.count(len(messages), size)
        queues = self.route(topic) if topic.stream.log is None else [topic.backlog]
        return self._vhost.publish_deferred(queues, messages, until_ms, now_ms)

    def route(self, topic: Topic) -> list[Queue]:
        """Where its messages go now; those of NSQ, which have no key and no headers."""
        if topic.exchange.holds:
            return [topic.backlog]
        if topic.reached_epoch != self._vhost.epoch:
            topic.remember(self._reached(topic, [""], None), self._vhost.epoch)
        return topic.reached

    def _reached(
        self, topic: Topic, keys: list[str], context: RoutingContext | None
    ) -> list[Queue]:
        """The queues a message gets to that does not stay in the backlog, each once."""
        exchange = topic.exchange
        hops: list[object] = []
        for key in keys:
            exchange.match(key, context, hops)
        found: dict[Queue, bool] = {}
        for hop in hops:
            if isinstance(hop, Exchange):
                for queue in route(hop, keys[0], context, self._vhost.exchanges, keys[1:]):
                    found[cast(Queue, queue)] = True
            else:
                found[cast(Queue, hop)] = True
        found.pop(topic.backlog, None)  # a way that leads back here
        return list(found)

    def _pass_on(
        self,
        topic: Topic,
        messages: list[Message],
        until_ms: WallMs,
        letters: HeaderWriter,
        share: RoutingShare,
        now_ms: WallMs,
    ) -> tuple[i64, int]:
        """To where each would have gone, had it not been held.

        ``until_ms``: 0 = it was not deferred.  Returns the position as ``publish``, and how many of
        them this turn had time for.
        """
        if not topic.exchange.bound_exchanges:
            queues = self._reached(topic, [""], None)
            some = messages[: 1 + COPIES_AT_ONCE // (1 + len(queues))]
            return self._publish_to(queues, some, until_ms, now_ms), len(some)
        position: i64 = 0
        for done, message in enumerate(messages):
            if share.is_over():
                return position, done
            letter = letters.release(message)
            owner = (id(topic), message.seq_id)
            context = RoutingContext(letter.headers, now_ms, share.of(owner))
            try:
                queues = self._reached(topic, letter.keys, context)
            except RouteUnfinished:
                return position, done
            context.remember()
            at = self._publish_to(queues, [message], until_ms, now_ms)
            position = at if at > 0 else position
        return position, len(messages)

    def _publish_to(
        self, queues: list[Queue], messages: list[Message], until_ms: WallMs, now_ms: WallMs
    ) -> i64:
        copies = [message.copy_for_queue() for message in messages]
        if until_ms > 0:
            return self._vhost.publish_deferred(queues, copies, until_ms, now_ms)
        position, _ = self._vhost.publish_some(queues, copies, now_ms)
        return position

    def move(
        self,
        exchange: Exchange,
        letters: HeaderWriter,
        settle_later: SettleLater,
        share: RoutingShare,
        now_ms: WallMs,
    ) -> None:
        """Some of the backlog goes on to where bindings lead now."""
        topic = self.topics[exchange.name[len(PREFIX) :]]
        if not topic.may_move():
            return
        backlog = topic.backlog
        backing = backlog.backing
        if topic.stream.log is not None:
            backlog.release_due(now_ms)
        messages = backing.fetch(MOVED_AT_ONCE, MOVED_BYTES_MAX)
        if messages:
            position, count = self._pass_on(topic, messages, WallMs(0), letters, share, now_ms)
            settle_later(position, backlog, messages[:count])
            backing.unfetch(messages[count:])
        more = len(messages) > 0
        if backing.ready_count() == 0 and topic.stream.log is None:
            more = self._move_deferred(topic, letters, settle_later, share, now_ms)
        topic.moved(more)

    def _move_deferred(
        self,
        topic: Topic,
        letters: HeaderWriter,
        settle_later: SettleLater,
        share: RoutingShare,
        now_ms: WallMs,
    ) -> bool:
        """Some of them; those that were due long ago are due in their channels at once.

        Are there more?
        """
        backlog = topic.backlog
        (backing,) = backlog.backing.parts()
        taken = backing.delays.take_delayed(MOVED_AT_ONCE, MOVED_BYTES_MAX)
        for place, (message, until_ms) in enumerate(taken):
            position, count = self._pass_on(topic, [message], until_ms, letters, share, now_ms)
            if count == 0:
                backing.delays.untake([message for message, _ in taken[place:]])
                break
            settle_later(position, backlog, [message])
        return len(taken) > 0 and backing.count_delayed() > 0

    # -- invariants --------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants."""
        for topic in self.topics.values():
            topic.check()
