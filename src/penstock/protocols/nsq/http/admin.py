"""Topics and channels for NSQ's HTTP API, on the data loop.

In: names and bodies of one request, and the visitor.  Out: the answer; of a publish, a future
that is done when the disk has the messages.  The rights are those of the visitor's user
(``NsqShared.user_of``) in the virtual host ``nsq_vhost``; alarms and the budget of the virtual
host refuse a publish with 503.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

from penstock.broker.rules.rights import Rights, check_enter
from penstock.broker.topology.topics import Topic, TopicChannel, exchange_name, is_name, queue_name
from penstock.broker.topology.vhost import Vhost
from penstock.clocks import wall_ms
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import all_done
from penstock.core.counting.traffic import NSQ
from penstock.core.errors import AccessRefused, AuthRequired, NotFound
from penstock.core.events.book import Actor
from penstock.core.message import PERSISTENT, Message
from penstock.core.pending import Pending, then
from penstock.protocols.nsq.codec.contents import PERSISTENT_MODE, TRANSIENT_MODE, ContentMaker
from penstock.protocols.nsq.codec.ids import SUFFIXES
from penstock.protocols.nsq.http.answers import HttpRefused
from penstock.protocols.nsq.publishing import count_published
from penstock.protocols.nsq.shared import NsqClient, NsqShared
from penstock.runtime.disk_waiters import DiskWaiters
from penstock.runtime.turn import Turn

T = TypeVar("T")

EVERYTHING: Final = ".*"
"""The pattern of a user who may configure whatever there is."""


class NsqAdmin:
    """See the head of this file; every method is called on the data loop."""

    def __init__(self, nsq: NsqShared, turn: Turn) -> None:
        self.turn = turn
        self._nsq = nsq
        self._broker = nsq.broker
        self._ids = nsq.ids
        self._maker = ContentMaker()
        self._waiters = DiskWaiters(turn)

    def change(self, visitor: NsqClient, function: Callable[[], T | Pending]) -> T | Pending:
        """Run it; ``Pending``: a cluster has to agree on it.  Raises AccessRefused."""
        user = self._nsq.user_of(visitor)
        actor = Actor(user.name, NSQ, visitor.source.address)
        return self._broker.changes.ask(actor).run(function)

    def note(self, visitor: NsqClient, values: tuple[object, ...]) -> None:
        """A request that was answered.  Raises AccessRefused."""
        user = self._nsq.user_of(visitor)
        actor = Actor(user.name, NSQ, visitor.source.address)
        self._broker.events.note("request_answered", values, actor)

    # -- who asks, and where -----------------------------------------------------------------

    def vhost(self) -> Vhost:
        try:
            return self._broker.vhost(self._nsq.vhost_name)
        except NotFound as error:
            raise HttpRefused(503, f"VHOST_NOT_FOUND {error}") from error

    def find_vhost(self) -> Vhost | None:
        return self._broker.vhosts.get(self._nsq.vhost_name)

    def rights(self, visitor: NsqClient) -> Rights:
        """Raises AccessRefused."""
        user = self._nsq.user_of(visitor)
        vhost = self.vhost()
        check_enter(user, vhost.name)
        return Rights(user, vhost.name)

    def check_manager(self, visitor: NsqClient) -> None:
        """May it change how the node works?  Raises AccessRefused."""
        rights = self.rights(visitor)
        user = rights.user
        if visitor.name == "" and not visitor.is_local:
            raise AuthRequired("an administrator must log in to change options of the node")
        if "administrator" in user.tags:
            return
        patterns = user.vhosts.get(rights.vhost)  # a user of another backend has none
        if patterns is None or patterns[0] != EVERYTHING:
            raise AccessRefused(f"user '{user.name}' may not change options of the node")

    def topic(self, name: str) -> Topic:
        """Raises HttpRefused."""
        topic = self.vhost().topics.topics.get(name)
        if topic is None:
            raise HttpRefused(404, "TOPIC_NOT_FOUND")
        return topic

    def channel(self, topic: str, name: str) -> TopicChannel:
        """Raises HttpRefused."""
        channel = self.topic(topic).channels.get(name)
        if channel is None:
            raise HttpRefused(404, "CHANNEL_NOT_FOUND")
        return channel

    # -- topics and channels -----------------------------------------------------------------

    def create_topic(self, name: str, visitor: NsqClient) -> Topic | Pending:
        """Raises HttpRefused for what is no name."""
        rights = self.rights(visitor)
        if not is_name(name):
            raise HttpRefused(400, "INVALID_TOPIC")
        topics = self.vhost().topics
        if name not in topics.topics:
            rights.configure("exchange", exchange_name(name))
        return topics.topic(name)

    def create_channel(
        self, topic: str, name: str, start: str, visitor: NsqClient
    ) -> TopicChannel | Pending:
        """``start``: where in a topic that is a stream a new one begins, "" = as usual."""
        rights = self.rights(visitor)
        found = self.topic(topic)
        if start and found.stream.log is None:
            raise HttpRefused(400, "TOPIC_NOT_A_STREAM")
        if start and name in found.channels:
            raise HttpRefused(400, "CHANNEL_EXISTS")
        if name not in found.channels:
            queue = queue_name(topic, name)
            rights.configure("queue", queue)
            rights.bind("queue", queue, found.exchange.name)
        return self.vhost().topics.channel(found, name, start)

    def delete_topic(self, name: str, visitor: NsqClient) -> None:
        rights = self.rights(visitor)
        topic = self.topic(name)
        rights.configure("exchange", topic.exchange.name)
        for channel in topic.channels.values():
            rights.configure("queue", channel.queue.name)
        if topic.stream.log is not None:
            rights.configure("queue", topic.stream.log.name)
        self.turn.cancelled(self.vhost().topics.delete(topic))

    def delete_channel(self, topic: str, name: str, visitor: NsqClient) -> None:
        rights = self.rights(visitor)
        channel = self.channel(topic, name)
        rights.configure("queue", channel.queue.name)
        self.turn.cancelled(self.vhost().topics.delete_channel(channel))

    def empty_topic(self, name: str, visitor: NsqClient) -> Pending | None:
        rights = self.rights(visitor)
        topic = self.topic(name)
        rights.read("queue", topic.exchange.name)
        return self.vhost().topics.empty(topic)

    def empty_channel(self, topic: str, name: str, visitor: NsqClient) -> int | Pending:
        """Returns how many messages it had."""
        rights = self.rights(visitor)
        channel = self.channel(topic, name)
        rights.read("queue", channel.queue.name)
        again = partial(self.empty_channel, topic, name, visitor)
        return then(channel.queue.empty(), int, again)

    def pause_topic(self, name: str, paused: bool, visitor: NsqClient) -> None:
        rights = self.rights(visitor)
        topic = self.topic(name)
        rights.configure("exchange", topic.exchange.name)
        self.vhost().topics.pause(topic, paused)

    def pause_channel(self, topic: str, name: str, paused: bool, visitor: NsqClient) -> None:
        rights = self.rights(visitor)
        channel = self.channel(topic, name)
        rights.configure("queue", channel.queue.name)
        self.vhost().topics.pause_channel(channel, paused)

    # -- what waits for its time -------------------------------------------------------------

    def deferred(
        self, topic: str, name: str, after: tuple[int, int], limit: int, visitor: NsqClient
    ) -> list[tuple[int, int, int]]:
        """(due in ms, place, bytes) of the first behind that due and place."""
        rights = self.rights(visitor)
        queue = self.channel(topic, name).queue
        rights.read("queue", queue.name)
        (backing,) = queue.backing.parts()
        return backing.tiers.delayed.page(WallMs(after[0]), after[1], limit)

    def cancel_deferred(self, topic: str, name: str, place: int, visitor: NsqClient) -> None:
        """Raises HttpRefused when there is none at that place."""
        rights = self.rights(visitor)
        queue = self.channel(topic, name).queue
        rights.read("queue", queue.name)
        (backing,) = queue.backing.parts()
        if not backing.delays.cancel_delayed(place):
            raise HttpRefused(404, "DEFERRED_NOT_FOUND")

    # -- publishing --------------------------------------------------------------------------

    def check_open(self, visitor: NsqClient) -> Vhost:
        """May he publish at all for now?  Raises HttpRefused or AccessRefused."""
        vhost = self.vhost()
        self.rights(visitor)
        self.turn.blocked_reason()  # looks anew at the alarms
        reason = self.turn.admission.reason(vhost.name)
        if reason:
            raise HttpRefused(503, f"BLOCKED {reason}")
        return vhost

    def publish(
        self, name: str, bodies: list[bytes], defer_ms: int, visitor: NsqClient
    ) -> Future[None] | Pending | None:
        """Returns what is to be waited for before it is safe; None = nothing.

        Raises HttpRefused or AccessRefused.
        """
        vhost = self.check_open(visitor)
        there = self.create_topic(name, visitor)
        return then(there, partial(self._publish, vhost, bodies, defer_ms, visitor))

    def _publish(
        self, vhost: Vhost, bodies: list[bytes], defer_ms: int, visitor: NsqClient, topic: Topic
    ) -> Future[None] | None:
        self.rights(visitor).write("exchange", topic.exchange.name)
        if not bodies:
            return None
        now_ms = wall_ms()
        messages, size = self._messages(topic, bodies)
        if defer_ms > 0:
            until_ms = WallMs(now_ms + defer_ms)
            position = vhost.topics.publish_deferred(topic, messages, size, until_ms, now_ms)
        else:
            position = vhost.topics.publish(topic, messages, size, now_ms)
        traffic = self._broker.traffic.of(vhost.name, NSQ)
        count_published(traffic, topic, len(messages), len(vhost.topics.route(topic)))
        self._broker.budgets.spend(vhost, len(messages))
        waits = self._broker.waits.take()
        if topic.is_fast(self._nsq.fast):
            return None
        if position <= self._broker.engine.journal.durable_position and all_done(waits):
            return None
        return self._waiters.wait(position, waits)

    def _messages(self, topic: Topic, bodies: list[bytes]) -> tuple[list[Message], int]:
        """Each with an id and the time of now."""
        name = topic.exchange.name.encode()
        address = bytes([len(name)]) + name + b"\0"
        flags = 0 if topic.ephemeral else PERSISTENT
        mode = TRANSIENT_MODE if topic.ephemeral else PERSISTENT_MODE
        now_ns = time.time_ns()
        messages: list[Message] = []
        while len(messages) < len(bodies):
            taken = int(self._ids.take(len(bodies) - len(messages), now_ns))
            self._maker.begin(now_ns, mode, self._ids.prefix)
            for number in range(taken):
                suffix = SUFFIXES[int(self._ids.first) + number]
                content = self._maker.make(suffix, bodies[len(messages)])
                messages.append(Message(content, address, flags, WallMs(0)))
        return messages, sum(len(body) for body in bodies)
