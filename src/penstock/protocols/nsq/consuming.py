"""The consuming side of one NSQ connection: its channel, its RDY window, messages in flight.

    SUB ─► a consumer of the channel's queue, with a window of 0
    RDY ─► its window
    Delivery ─► a lease and a frame for each message
    FIN, REQ, TOUCH ─► the lease, by the id of its message

A window is not used up: as many may be in flight at a time.  A message that is not finished within
the client's timeout goes to another consumer, and so does, after that time, what was in flight when
its connection ended, unless the channel's policy or ``nsq_requeue_on_disconnect`` gives it back at
once.  What another node was master of, and is not any more, is not in flight either: the next
master delivers it.

A sampling client gets so many of a hundred messages, and one more, as with nsqd; the others are
finished for the whole channel.
"""

from functools import partial
from typing import cast, final

from mypy_extensions import i64

from penstock.broker.topology.topics import TopicChannel
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.remote.queue_places import subscribe_anew
from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import Traffic
from penstock.core.errors import BrokerError, NotInFlight
from penstock.core.message import Message
from penstock.core.pending import Pending, then
from penstock.protocols.nsq.codec.commands import BadCommand, decimal, text_of
from penstock.protocols.nsq.codec.contents import id_of
from penstock.protocols.nsq.codec.frames import write_message
from penstock.protocols.nsq.codec.identify import Identity
from penstock.protocols.nsq.codec.ids import ID_BYTES
from penstock.protocols.nsq.shared import NsqShared
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer, SharedWindow
from penstock.queues.leases import Leases
from penstock.queues.queue import Queue
from penstock.queues.refusals import check_head
from penstock.runtime.session import Session, Subscriber


@final
class NsqConsuming(Subscriber):
    """Of one session."""

    def __init__(
        self, session: Session, shared: NsqShared, identity: Identity, traffic: Traffic
    ) -> None:
        super().__init__(session, 1)
        self.traffic = traffic
        self.channel: TopicChannel | None = None
        self.consumer: Consumer | None = None
        self.ready_count: i64 = 0
        self.message_count: i64 = 0
        self.finish_count: i64 = 0
        self.requeue_count: i64 = 0
        self._shared = shared
        self._identity = identity
        self._owner: i64 = 0  # the number under which it holds leases

    @property
    def in_flight_count(self) -> i64:
        consumer = self.consumer
        return 0 if consumer is None else consumer.outstanding

    def _queue(self) -> Queue:
        channel = self.channel
        assert channel is not None
        return channel.queue

    def _leases(self) -> Leases:
        leases = self._queue().leases
        assert leases is not None
        return leases

    # -- joining and leaving -----------------------------------------------------------------

    def subscribe(self, vhost: Vhost, topic: str, name: str) -> Pending | None:
        """Raises BrokerError, also for one consumer too many."""
        topics = vhost.topics
        found = then(topics.topic(topic), lambda there: topics.channel(there, name))
        return then(found, partial(self._join, vhost))

    def _join(self, vhost: Vhost, channel: TopicChannel) -> Pending | None:
        queue, topic = channel.queue, channel.topic.name
        queue.check_owner(self.session)
        check_head(queue.backing, queue.name, queue.vhost)
        limit = self._shared.max_channel_consumers
        if 0 < limit <= len(queue.consumers):
            raise BrokerError(f"consumers for {topic}:{channel.name} exceeds limit of {int(limit)}")
        session = self.session
        consumer = Consumer(
            "nsq", self, session.outlet, SharedWindow(), False, 0, False, {}, window=0
        )
        return then(
            queue.add_consumer(consumer),
            lambda _added: self._joined(channel, consumer),
            partial(self.subscribe, vhost, topic, channel.name),
        )

    def _joined(self, channel: TopicChannel, consumer: Consumer) -> None:
        self.channel = channel
        self.consumer = consumer
        self._owner = self._leases().join(consumer)

    def leave(self, vhost: Vhost, now_ms: WallMs) -> list[Consumer]:
        """The connection is over; returns the consumers who lost their queue by that."""
        consumer = self.consumer
        if consumer is None:
            return []
        self.consumer = None
        queue = self._queue()
        if queue.deleted:
            return []
        queue.remove_consumer(consumer)
        choice = queue.limits.on_disconnect
        if choice == "requeue" or (choice == "" and self._shared.requeue_on_disconnect):
            queue.give_back_all(self._owner)
        self._leases().leave(self._owner)
        if queue.unused:
            return vhost.delete_queue(queue)
        vhost.touch(queue)
        return []

    def queue_lost(self, consumer: Consumer) -> None:
        """The channel is gone; as with nsqd its consumers see their connection end."""
        if consumer is self.consumer:
            consumer.cancel()
            self.session.shut_down()

    def send_away(self, consumer: Consumer, why: str) -> None:
        self.queue_lost(consumer)

    def queue_moved(self, consumer: Consumer, queue: Queue) -> None:
        """The channel has another master, who delivers anew what is in flight.

        So nothing is any more, as after a timeout; the window goes on.
        """
        channel = self.channel
        if consumer is not self.consumer or channel is None:
            return
        found = channel.topic.channels.get(channel.name)
        leases = queue.leases
        if found is None or found.queue is not queue or leases is None:
            self.queue_lost(consumer)
            return
        try:
            anew = subscribe_anew(consumer, queue)
        except BrokerError:
            self.queue_lost(consumer)
            return
        self.channel = found
        self.consumer = anew
        self._owner = leases.join(anew)

    # -- deliveries ----------------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        consumer = delivery.consumer
        queue = cast(Queue, consumer.queue)
        leases = queue.leases
        assert leases is not None
        messages = delivery.messages
        if self._identity.sample_rate > 0:
            messages = self._sample(queue, consumer, messages)
        out = self.session.out
        owner = self._owner
        now_ms = queue.statistics.active_at_ms
        timeout_ms = self._identity.message_timeout_ms
        for message in messages:
            key = leases.grant(owner, message, id_of(message), now_ms, timeout_ms)
            write_message(out, message, key)
        self.message_count += len(messages)
        self.traffic.deliver(len(messages), 0, False)

    def _sample(self, queue: Queue, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """Those it gets; the rest is done."""
        percent = self._shared.percent
        rate = self._identity.sample_rate
        taken: list[Message] = []
        dropped: list[Message] = []
        for message in messages:
            if percent() > rate:
                dropped.append(message)
            else:
                taken.append(message)
        if dropped:
            queue.settle(consumer, dropped)
        return taken

    def set_ready(self, count: i64) -> None:
        self.ready_count = count
        consumer = self.consumer
        assert consumer is not None
        consumer.allow(count)
        self.wake()

    def stop(self) -> None:
        """It takes no more; what it has in flight stays so."""
        self.ready_count = 0
        if self.consumer is not None:
            self.consumer.allow(0)

    def wake(self) -> None:
        if self.consumer is not None:
            self._queue().room_came(self.consumer)

    # -- settling ------------------------------------------------------------------------------

    def finish(self, keys: list[bytes]) -> list[tuple[str, str]]:
        """Returns what failed, as the client is to be told; raises BadCommand for what is no id."""
        failed: list[tuple[str, str]] = []
        messages: list[Message] = []
        leases = self._leases()
        wrong: BadCommand | None = None
        for key in keys:
            try:
                messages.append(leases.take(self._owner, key))
            except BrokerError as error:
                if b" " in key or key[ID_BYTES - 1] == 0x0D:
                    wrong = BadCommand("E_INVALID", "invalid message ID")
                    break
                failed.append(("E_FIN_FAILED", _why("FIN", key, error)))
        if messages:
            consumer = self.consumer
            assert consumer is not None
            self._queue().settle(consumer, messages)
            self.finish_count += len(messages)
            self.traffic.ack(len(messages))
        if wrong is not None:
            raise wrong
        return failed

    def requeue(self, params: list[bytes], now_ms: WallMs) -> tuple[str, str] | None:
        """REQ; None = done.  Raises BadCommand."""
        if len(params) < 3:
            raise BadCommand("E_INVALID", "REQ insufficient number of params")
        key = _key(params[1])
        delay_ms = decimal(params[2])
        if delay_ms < 0:
            raise BadCommand("E_INVALID", "REQ could not parse timeout " + text_of(params[2]))
        longest_ms = int(self._shared.reader_limits.delay_ms)
        try:
            message = self._leases().take(self._owner, key)
        except BrokerError as error:
            return "E_REQ_FAILED", _why("REQ", key, error)
        consumer = self.consumer
        assert consumer is not None
        self._queue().give_back(consumer, [message], min(delay_ms, longest_ms), now_ms)
        self.requeue_count += 1
        return None

    def touch(self, params: list[bytes], now_ms: WallMs) -> tuple[str, str] | None:
        """TOUCH; None = done.  Raises BadCommand."""
        if len(params) < 2:
            raise BadCommand("E_INVALID", "TOUCH insufficient number of params")
        key = _key(params[1])
        longest_ms = self._shared.identify_limits.max_message_timeout_ms
        try:
            self._leases().extend(self._owner, key, now_ms, longest_ms)
        except BrokerError as error:
            return "E_TOUCH_FAILED", _why("TOUCH", key, error)
        return None


def _key(param: bytes) -> bytes:
    """Raises BadCommand."""
    if len(param) != ID_BYTES:
        raise BadCommand("E_INVALID", "invalid message ID")
    return param


def _why(verb: str, key: bytes, error: BrokerError) -> str:
    why = "ID not in flight" if isinstance(error, NotInFlight) else "client does not own message"
    return f"{verb} {text_of(key)} failed {why}"
