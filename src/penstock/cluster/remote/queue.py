"""``RemoteQueue``: a queue whose master is on another node, with the verbs of one that is here.

    publish, settle, get, add_consumer ... ─► requests ─► PeerClient ─► the master's node
    deliveries, what is safe, answers      ◄─ ``hear``

    Master               where requests go         (``master.py``)
    RemotePublishing     what is not yet safe      (``publishing.py``)
    RemoteSubscriptions  consumers and deliveries  (``subscriptions.py``)
    Questions            what needs an answer      (``asking.py``)
    RemoteBacking        what the master reports   (``backing.py``)

Every consumer here is a consumer of the master's queue with its own window, so fairness,
priorities, exclusivity and the single active consumer are decided in one place.  What stays here is
what belongs to the client's session: its ledger of tags, the window it shares over several queues,
its outlet, and the leases of NSQ with their deadlines.  A delivery's message has the number of the
delivery as its ``seq_id``: that is the token by which it is settled.

What needs an answer returns ``Pending`` (``core/pending.py``).

**Publishes** have numbers of this queue's watermark.  The master's node says up to where they are
safe and which it had no room for.  When the master is lost, what was sent and not answered is
refused (nacked): it may have arrived, and only its publisher can know whether twice is worse than
not at all (RabbitMQ's channel also nacks what was under way to a queue that
died).  What the broker itself moves (dead letters, delayed and staged messages) is sent again:
twice, never lost.  What was published while there was no master has not been sent, and goes to the
next one.

**A lost master**: deliveries that were not settled belong to the next one, and settling them here
means nothing any more.  Consumers are subscribed anew, silently, unless they asked to be cancelled
(``x-cancel-on-ha-failover``), or read a stream whose position is not kept.
"""

import json
from functools import partial
from typing import Final, final

from mypy_extensions import i64

from penstock.backing.delaying import RELEASED_AT_ONCE
from penstock.cluster.remote.asking import Questions, RemoteTicket
from penstock.cluster.remote.backing import RemoteBacking
from penstock.cluster.remote.master import Master
from penstock.cluster.remote.peer_client import PeerClient
from penstock.cluster.remote.publishing import RemotePublishing
from penstock.cluster.remote.subscriptions import RemoteConsumer, RemoteSubscriptions
from penstock.core import queue_requests as q
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm
from penstock.core.errors import NotFound
from penstock.core.message import Message
from penstock.core.pending import AGAIN, Pending
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import NO_WINDOW, Consumer
from penstock.queues.context import QueueContext, QueueIdentity
from penstock.queues.leases import Leases
from penstock.queues.queue import Queue
from penstock.queues.refusals import not_for_streams
from penstock.queues.stream_start import kept_name

TOLD_BYTES: Final[i64] = 64
"""What a message takes beside its content, when room is counted."""
CANCEL: Final = "x-cancel-on-ha-failover"


@final
class RemoteQueue(Queue):
    """See the head of this file; ``home`` is the node of its last master, "" = not known."""

    def __init__(
        self, identity: QueueIdentity, context: QueueContext, owner: object = None
    ) -> None:
        master = Master()
        reported = RemoteBacking(master)
        super().__init__(identity, reported, context)
        self.owner = owner
        self.home: str = ""
        self.publishing = RemotePublishing(self, master, context)
        self._master = master
        self._reported = reported
        self._subscriptions = RemoteSubscriptions(master)
        self._questions = Questions(master, self._subscriptions)

    # -- where the master is ---------------------------------------------------------------

    @property
    def remote(self) -> bool:
        return True

    @property
    def way(self) -> PeerClient | None:
        """The link to the master; None = there is none at present."""
        return self._master.way

    def master_node(self) -> str:
        return self.home

    def move(self, node: str) -> None:
        """The master is there, or will be."""
        self.home = node

    def why_down(self) -> str:
        return self._master.down

    def is_forsaken(self) -> bool:
        return self._master.no_mirror

    def unacked_anywhere(self) -> i64:
        return self._reported.reported_unacked

    def consumers_anywhere(self) -> i64:
        return self._reported.reported_consumers

    def follow(self, way: PeerClient) -> list[Consumer]:
        """The master is there from now on; returns the consumers that asked to be cancelled."""
        if not way.alive:
            return []  # it is gone already; there will be another one
        if self._master.way is not None:
            self._master.close()
            self.lost_way()
        self._master.open(way, self)
        cancelled = [one for one in self.consumers if wants_cancel(one, self)]
        for consumer in cancelled:
            del self.consumers[consumer]
        self._subscriptions.renew(self.consumers)
        self.publishing.follow(way)
        self._questions.ask_again()
        return cancelled

    def unfollow(self) -> None:
        """The master is none any more; there will be another one."""
        if self._master.way is not None:
            self._master.close()
            self.lost_way()
        self._master.expect()

    def connected(self) -> None:
        """The connection to the master's node is back."""
        self.publishing.connected()

    def lost_way(self) -> None:
        """The master's node is gone, or is not the master's: wait for the next one."""
        self._master.lose()
        self.publishing.lose()
        self._subscriptions.lose()
        self._end_leases()
        self._reported.forget()
        self._questions.lose()

    def give_up(self, why: str, *, no_mirror: bool = False, elsewhere: bool = False) -> None:
        """There will be no master for some time: requests that wait are refused with ``why``.

        ``no_mirror``: it has copies, and none of them may become master.
        ``elsewhere``: it has a master that other nodes may reach: clients are to go there.
        """
        self._master.give_up(why, no_mirror=no_mirror, elsewhere=elsewhere)
        self.publishing.refuse_unsent()
        self._questions.fail_unasked(self._master.refusal())

    def retire(self) -> list[Consumer]:
        self.deleted = True
        self._master.close()
        self.lost_way()
        self._questions.ask_again()
        return super().retire()

    def take_unsent(self) -> list[PendingConfirm]:
        """What is still to be published, when the next master is not elsewhere."""
        return self.publishing.watermark.take_open()

    def end(self) -> list[Consumer]:
        why = f"no queue '{self.name}' in vhost '{self.vhost}'"
        self._master.give_up(why)
        self._questions.fail_all(NotFound(why))
        consumers = self.retire()
        self.publishing.give_up()
        return consumers

    # -- publishing ------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        self.publish_deferred(messages, WallMs(0), now_ms)

    def publish_deferred(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        if until_ms > 0 and self.is_stream:
            raise not_for_streams("delays are", self.name, self.vhost)
        self.statistics.published(len(messages), now_ms)
        if not self.publishing.publish(messages, until_ms):
            self.wake()  # if it is known that there will be none for long, they are refused then

    # -- deliveries ------------------------------------------------------------------------

    def deliver(self, now_ms: WallMs) -> list[Delivery]:
        """What has arrived, as far as those it is for have room; and tells what room that is."""
        self.begin_turn()
        deliveries: list[Delivery] = []
        if self.deleted:
            return deliveries
        if self._master.down != "" and self.publishing.watermark.has_open():
            self.publishing.refuse_unsent()
        for consumer in self.consumers:
            remote = self._subscriptions.by_consumer[consumer]
            if len(remote.arrived) > 0:
                delivery = self._hand_on(remote, consumer, now_ms)
                if delivery is not None:
                    deliveries.append(delivery)
            self._subscriptions.tell_window(remote, consumer)
        return deliveries

    def _hand_on(
        self, remote: RemoteConsumer, consumer: Consumer, now_ms: WallMs
    ) -> Delivery | None:
        room = consumer.room()
        if consumer.window != NO_WINDOW and not consumer.no_ack and consumer.outlet.open:
            room = consumer.shared.room()  # its window may have become smaller meanwhile
        room_bytes = consumer.outlet.room_bytes()
        messages: list[Message] = []
        size: i64 = 0
        while room > 0 and len(remote.arrived) > 0:
            message = remote.arrived[0]
            if messages and size + message.size > room_bytes:
                self.wake()
                break
            messages.append(remote.arrived.popleft())
            size += message.size + TOLD_BYTES
            room -= 1
        if not messages:
            return None
        self.statistics.delivered(consumer, len(messages), now_ms)
        if not consumer.no_ack:
            consumer.take(len(messages))
            self.unacked_count += len(messages)
        delivery = Delivery(consumer, messages, self.statistics.again(messages))
        self._subscriptions.tell_room(remote, size)
        return delivery

    def get(self, account: Consumer) -> Pending:
        return self._questions.ask(q.GET, partial(self._got, account), account.no_ack)

    def _got(self, account: Consumer, ticket: RemoteTicket) -> object:
        message = ticket.got
        if message is None:
            self.statistics.found_nothing()
            return None
        if not account.no_ack:
            if self.deleted or not self._master.delivered(message):
                return AGAIN  # another master has it by now
            account.take(1)
            self.unacked_count += 1
        self.statistics.got(account)
        self.statistics.again([message])
        return message

    # -- settling --------------------------------------------------------------------------

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        self.statistics.acked(consumer, messages)
        self._settle(consumer, q.ACK, messages, 0)

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        self._settle(consumer, q.REJECT, messages, 0)

    def requeue(self, given: dict[Consumer, list[Message]], failed: bool, now_ms: WallMs) -> None:
        for consumer, messages in given.items():
            self.statistics.redelivered(messages)
            self._settle(consumer, q.REQUEUE, messages, 0)

    def give_back(
        self, consumer: Consumer, messages: list[Message], delay_ms: i64, now_ms: WallMs
    ) -> None:
        self.statistics.requeued(messages)
        self._settle(consumer, q.GIVE_BACK, messages, delay_ms)

    def give_back_all(self, owner: i64) -> None:
        leases = self.leases
        assert leases is not None
        for consumer, message in leases.release(owner):
            self._settle(consumer, q.REQUEUE, [message], 0)

    def _settle(
        self, consumer: Consumer, kind: i64, messages: list[Message], delay_ms: i64
    ) -> None:
        self._let_go_of(consumer, len(messages))
        if not self.deleted:
            remote = self._subscriptions.by_consumer.get(consumer)
            number: i64 = 0 if remote is None else remote.number
            self._subscriptions.settle(number, kind, messages, delay_ms)

    def _let_go_of(self, consumer: Consumer, count: i64) -> None:
        consumer.release(count)
        self.unacked_count -= count
        if consumer.cancelled and consumer not in self.consumers:
            self._subscriptions.forget_settled(consumer)
        self.wake()

    # -- consumers -------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> Pending:
        return self._questions.ask_to_consume(consumer, partial(self._added, consumer))

    def _added(self, consumer: Consumer, ticket: RemoteTicket) -> object:
        remote = ticket.remote
        assert remote is not None
        if self.deleted or self._subscriptions.find(remote.number) is not remote:
            return AGAIN  # its answer is of a master that was lost since
        self._subscriptions.bind(remote, consumer)
        self._enter(consumer)
        self.wake()
        return None

    def adopt_consumer(self, consumer: Consumer) -> None:
        """One that was there before; if the master refuses it, it is cancelled."""
        self._enter(consumer)
        self._subscriptions.adopt(consumer)

    def _enter(self, consumer: Consumer) -> None:
        consumer.join(self)
        self.consumers[consumer] = None
        self.had_consumer = True

    def remove_consumer(self, consumer: Consumer) -> None:
        consumer.cancel()
        remote = self._subscriptions.by_consumer.get(consumer)
        if remote is None or consumer not in self.consumers:
            return
        del self.consumers[consumer]
        self._subscriptions.unsubscribe(remote)
        self._subscriptions.forget_settled(consumer)

    @property
    def unused(self) -> bool:
        """The master says whether it goes."""
        return False

    # -- time ------------------------------------------------------------------------------

    def use_leases(self) -> bool:
        if self.leases is None:
            self.leases = Leases()
        return True

    def expire(self, now_ms: WallMs) -> i64:
        return 0  # the master does that

    def release_due(self, now_ms: WallMs) -> i64:
        """What is over its deadline goes back; what is delayed is the master's business."""
        leases = self.leases
        if leases is None:
            return 0
        late = leases.expired(now_ms, RELEASED_AT_ONCE)
        self.statistics.timed_out([message for _, message in late])
        for consumer, message in late:
            self._settle(consumer, q.GIVE_BACK, [message], 0)
        return len(late)

    def next_due_ms(self) -> WallMs:
        leases = self.leases
        return WallMs(0) if leases is None or self.scanned else leases.first_ms()

    def _end_leases(self) -> None:
        """The node that delivered them is the master no more: the next one delivers them anew."""
        leases = self.leases
        if leases is not None:
            for consumer, _ in leases.clear():
                self._let_go_of(consumer, 1)

    # -- questions -------------------------------------------------------------------------

    def purge(self) -> Pending:
        return self._questions.ask(q.PURGE, _value)

    def empty(self) -> Pending:
        return self._questions.ask(q.EMPTY, _value)

    def counts(self) -> Pending:
        return self._questions.ask(q.COUNTS, _two_values)

    def facts(self) -> Pending:
        """Of a stream, what ``describe_stream`` says at the master."""
        return self._questions.ask(q.FACTS, _facts, True)

    # -- what is heard -----------------------------------------------------------------------

    def hear(self, answer: q.QueueRequest, now_ms: WallMs) -> None:
        if isinstance(answer, q.Delivered):
            if self._subscriptions.deliver(answer):
                self.wake()
        elif isinstance(answer, q.Safe):
            self.publishing.safe(answer.upto, answer.refused)
        elif isinstance(answer, q.Taken):
            self.publishing.taken(answer.cost)
        elif isinstance(answer, q.Answered):
            if len(answer.messages) > 0:
                self._reported.left(answer.value)
            self._questions.answered(answer)
        elif isinstance(answer, q.State):
            self._master.opened()
            self._reported.take(answer)
        elif isinstance(answer, q.Cancelled):
            self._cancelled(answer.consumer)
        elif isinstance(answer, q.Gone):
            self._master.forget()
            if not self._master.is_open:
                self.publishing.watermark.hold()  # all was refused with the opening
            self.lost_way()

    def _cancelled(self, number: i64) -> None:
        remote = self._subscriptions.find(number)
        if remote is None:
            return
        self._subscriptions.forget(remote)
        consumer = remote.consumer
        way = self._master.way
        if consumer is not None and way is not None and consumer in self.consumers:
            del self.consumers[consumer]
            way.cancelled.append(consumer)

    def check(self) -> None:
        super().check()
        self.publishing.watermark.check()
        self._subscriptions.check(self.consumers)


def _facts(ticket: RemoteTicket) -> object:
    return {} if ticket.got is None else json.loads(ticket.got.content)


def wants_cancel(consumer: Consumer, queue: Queue) -> bool:
    """When the master is another one: if it asked for that.

    So is a consumer of a stream: its arguments say where it began, and not where it is.  But with
    a position that is kept it goes on there.
    """
    if consumer.arguments.get(CANCEL) is True:
        return True
    return queue.is_stream and not kept_name(consumer.tag, consumer.arguments)


def _value(ticket: RemoteTicket) -> object:
    return int(ticket.value)


def _two_values(ticket: RemoteTicket) -> object:
    return int(ticket.value), int(ticket.second_value)
