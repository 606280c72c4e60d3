"""``RemoteQueue``: a queue whose master is on another node, with the verbs of one that is here.

    publish, settle, get, add_consumer ... ─► requests ─► PeerClient ─► the master's node
    deliveries, what is safe, answers      ◄─ ``hear``

Every consumer here is a consumer of the master's queue with its own window, so fairness,
priorities, exclusivity and the single active consumer are decided in one place.  What stays here is
what belongs to the client's session: its ledger of tags, the window it shares over several queues,
its outlet, and the leases of NSQ with their deadlines.  A delivery's message has the number of the
delivery as its ``seq_id``: that is the token by which it is settled.

What needs an answer is *away* (``core/away.py``).

**Publishes** are numbered on a frontier of this queue.  The master's node says up to where they are
safe and which it had no room for.  When the master is lost, what was sent and not answered is lost
for its publisher, who is told no: it may have arrived, and only its publisher can know whether
twice is worse than not at all (RabbitMQ's channel also nacks what was under way to a queue that
died).  What the broker itself moves (dead letters, delayed and poured messages) is sent again:
twice, never lost.  What was published while there was no master has not been sent, and goes to the
next one.

**A lost master**: deliveries that were not settled belong to the next one, and settling them here
means nothing any more.  Consumers are subscribed anew, silently, unless they asked to be cancelled
(``x-cancel-on-ha-failover``).

Invariants (``check``, beside those of a queue):
  E1  every consumer has a number, and every number but that of a question its consumer
  E2  only what came from this master is held for consumers
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.cluster.remote.asking import RemoteAsking, RemoteConsumer, RemoteTicket, window_of
from penstock.cluster.remote.peer_client import MasterElsewhere, PeerClient
from penstock.core import queue_requests as q
from penstock.core.away import Away
from penstock.core.confirm_watermark import PendingConfirm
from penstock.core.errors import BrokerError, NotFound
from penstock.core.message import Message
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import NO_WINDOW, Consumer
from penstock.queues.context import QueueContext, QueueIdentity

BASE_SHIFT: Final[i64] = 40
"""Deliveries of the n-th master this queue follows are numbered from ``n << 40``."""
TOLD_BYTES: Final[i64] = 64
"""What a message takes beside its content, when room is counted."""
CANCEL: Final = "x-cancel-on-ha-failover"


@final
class RemoteQueue(RemoteAsking):
    """See the head of this file."""

    def __init__(self, identity: QueueIdentity, context: QueueContext) -> None:
        super().__init__(identity, context)
        self.link = _Link(self)
        self._last_number: i64 = 0  # of consumers
        self._is_open: bool = False  # the master has answered as one
        self._remotes: dict[int, RemoteConsumer] = {}

    # -- where the master is ---------------------------------------------------------------

    def follow(self, way: PeerClient) -> list[Consumer]:
        """The master is there from now on; returns the consumers who asked to be cancelled."""
        if not way.alive:
            return []  # it is gone already; there will be another one
        if self.way is not None:
            old = self.way
            old.send(q.Close(self._no))
            old.forget(self._no)
            self._leave()
        self._down = self._away_text = self.reported.down = ""
        self.forsaken = False
        self.way = way
        self.reported.master = way.node
        self._no = way.open(self.link)
        self._is_open = False
        self._base = ((self._base >> BASE_SHIFT) + 1) << BASE_SHIFT
        way.send(q.Open(self._no, self.vhost, self.name))
        self._open_credit(way.stage)
        cancelled = self._subscribe_anew()
        self._send_again()
        tickets = self._unasked
        self._unasked = []
        for ticket in tickets:
            ticket.lose()
        return cancelled

    def unfollow(self) -> None:
        """Who was master is none any more; there will be another one."""
        way = self.way
        if way is not None:
            way.send(q.Close(self._no))
            way.forget(self._no)
            self._leave()
        self._down = self._away_text = self.reported.down = ""

    def _leave(self) -> None:
        """The master is none any more."""
        self.way = None
        self.reported.master = ""
        self._open_credit(self._nobody)
        self._hold_back(self.frontier.lose())
        for remote in self._remotes.values():
            remote.arrived.clear()
        self._end_leases()
        self._forget_reports()
        tickets = list(self._asked.values())
        self._asked = {}
        for ticket in tickets:
            if ticket.remote is not None:
                self._remotes.pop(int(ticket.remote.number), None)
            ticket.lose()

    def lost_way(self) -> None:
        """The master's node is gone, or is not the master's: wait for the next one."""
        self._leave()

    def give_up(self, why: str, *, forsaken: bool = False, elsewhere: bool = False) -> None:
        """There will be no master for some time: whoever waits is told no, with ``why``.

        ``forsaken``: it has copies, and none of them may become master; see ``Queue``.
        ``elsewhere``: it has a master whom other nodes may reach: whoever comes is sent there.
        """
        self._down = self.reported.down = why
        self._away_text = why if elsewhere else ""
        self.forsaken = forsaken
        self._refuse_unsent()
        tickets = self._unasked
        self._unasked = []
        for ticket in tickets:
            ticket.fail(self._refusal())

    def _subscribe_anew(self) -> list[Consumer]:
        cancelled: list[Consumer] = []
        for consumer in self.consumers[:]:
            if consumer.arguments.get(CANCEL) is True:
                self._forget_consumer(consumer)
                cancelled.append(consumer)
        self._remotes = {}
        self._by_consumer = {}
        for consumer in self.consumers:
            remote = self._new_remote(consumer.no_ack)
            self._bind(remote, consumer)
            self._send_subscribe(remote, consumer, 0)
        return cancelled

    # -- deliveries ------------------------------------------------------------------------

    def deliver(self, now_ms: i64) -> list[Delivery]:
        """What has arrived, as far as those it is for have room; and tells what room that is."""
        self.awake = False
        deliveries: list[Delivery] = []
        if self.deleted:
            return deliveries
        if self._down != "" and self.frontier.has_open():
            self._refuse_unsent()
        for consumer in self.consumers:
            remote = self._by_consumer[consumer]
            if len(remote.arrived) > 0:
                delivery = self._hand_on(remote, consumer)
                if delivery is not None:
                    deliveries.append(delivery)
            self._tell_window(remote, consumer)
        if deliveries:
            self.active_at_ms = now_ms
        return deliveries

    def _hand_on(self, remote: RemoteConsumer, consumer: Consumer) -> Delivery | None:
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
        self._count_out(consumer, len(messages))
        if not consumer.no_ack:
            consumer.take(len(messages))
            self.unacked_count += len(messages)
        delivery = Delivery(consumer, messages)
        delivery.again_count = self._count_again(messages)
        self._send(q.Window(self._no, remote.number, remote.told_window, size))
        return delivery

    def _tell_window(self, remote: RemoteConsumer, consumer: Consumer) -> None:
        window = window_of(consumer)
        if window != remote.told_window:
            remote.told_window = window
            self._send(q.Window(self._no, remote.number, window, 0))

    # -- one by one -----------------------------------------------------------------------

    def get(self, account: Consumer) -> Message | None:
        ticket = self._claim("get")
        if ticket is None:
            flags = q.NO_ACK if account.no_ack else 0
            raise self._ask(RemoteTicket("get", self, account.no_ack), q.GET, flags)
        message = ticket.got
        if message is None or (not account.no_ack and message.seq_id <= self._base):
            self.empty_count += 1
            return None
        if not account.no_ack:
            account.take(1)
            self.unacked_count += 1
        self._count_out(account, 1)
        self._count_get(account)
        self._count_again([message])
        return message

    # -- consumers -------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        ticket = self._claim("consume")
        if ticket is None:
            self._ask_to_consume(consumer)
        else:
            remote = ticket.remote
            assert remote is not None
            self._bind(remote, consumer)
            consumer.queue = self
            self.consumers.append(consumer)
            self.had_consumer = True
            self.wake()

    def adopt_consumer(self, consumer: Consumer) -> None:
        """One that was there before; if the master refuses it, it is cancelled."""
        consumer.queue = self
        self.consumers.append(consumer)
        self.had_consumer = True
        remote = self._new_remote(consumer.no_ack)
        self._bind(remote, consumer)
        self._send_subscribe(remote, consumer, 0)

    def _ask_to_consume(self, consumer: Consumer) -> None:
        if self._down != "":
            raise self._refusal()
        ticket = RemoteTicket("consume", self)
        if self.way is None:
            self._unasked.append(ticket)
        else:
            remote = self._new_remote(consumer.no_ack)
            ticket.remote = remote
            self._send_subscribe(remote, consumer, self._question(ticket))
        raise Away(ticket)

    def _send_subscribe(self, remote: RemoteConsumer, consumer: Consumer, question: i64) -> None:
        remote.told_window = window_of(consumer)
        self._send(
            q.Subscribe(
                self._no,
                remote.number,
                question,
                consumer.tag,
                consumer.no_ack,
                consumer.exclusive,
                consumer.priority,
                remote.told_window,
                consumer.arguments,
            )
        )

    def _new_remote(self, no_ack: bool) -> RemoteConsumer:
        self._last_number += 1
        remote = RemoteConsumer(self._last_number, no_ack)
        self._remotes[int(remote.number)] = remote
        return remote

    def _bind(self, remote: RemoteConsumer, consumer: Consumer) -> None:
        remote.consumer = consumer
        self._by_consumer[consumer] = remote

    def remove_consumer(self, consumer: Consumer) -> None:
        consumer.cancelled = True
        remote = self._by_consumer.get(consumer)
        if remote is None or consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self._unsubscribe(remote)
        if consumer.outstanding == 0:
            del self._by_consumer[consumer]  # else its deliveries are still to be settled

    def _unsubscribe(self, remote: RemoteConsumer) -> None:
        """What has arrived for it and was not handed on goes back."""
        self._remotes.pop(int(remote.number), None)
        self._send(q.Unsubscribe(self._no, remote.number))
        self._return_arrived(remote)

    def _return_arrived(self, remote: RemoteConsumer) -> None:
        numbers = [int(one.seq_id - self._base) for one in remote.arrived]
        remote.arrived.clear()
        if numbers and not remote.no_ack:
            self._send(q.Settle(self._no, remote.number, q.REQUEUE, 0, q.in_runs(numbers)))

    def _forget_consumer(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        remote = self._by_consumer.pop(consumer, None)
        if remote is not None:
            self._remotes.pop(int(remote.number), None)

    def dropped(self, ticket: RemoteTicket) -> None:
        """Who asked has left."""
        if not ticket.done or ticket.again:
            return
        if ticket.got is not None and not ticket.no_ack and ticket.got.seq_id > self._base:
            number = int(ticket.got.seq_id - self._base)
            self._send(q.Settle(self._no, 0, q.REQUEUE, 0, [(number, number)]))
            ticket.got = None
        if ticket.remote is not None and ticket.error is None:
            self._unsubscribe(ticket.remote)

    @property
    def unused(self) -> bool:
        """The master says whether it goes."""
        return False

    def retire(self) -> list[Consumer]:
        """It is none any more, here or at all; returns whose queue it was."""
        self.deleted = True
        way = self.way
        if way is not None:
            way.send(q.Close(self._no))
            way.forget(self._no)
        self._leave()
        tickets = self._unasked
        self._unasked = []
        for ticket in tickets:
            ticket.lose()
        if self.flow is not None:
            self.flow.lost()
        consumers = self.consumers
        self.consumers = []
        return consumers

    def take_unsent(self) -> list[PendingConfirm]:
        """What is still to be published, when the next master is not elsewhere."""
        return self.frontier.take_open()

    def end(self) -> list[Consumer]:
        self._down = f"no queue '{self.name}' in vhost '{self.vhost}'"
        self._fail_questions(NotFound(self._down))
        consumers = self.retire()
        self.frontier.give_up(self.frontier.take_open())
        return consumers

    # -- what is heard -----------------------------------------------------------------------

    def hear(self, answer: q.QueueRequest, now_ms: i64) -> None:
        if isinstance(answer, q.Delivered):
            self._delivered(answer)
        elif isinstance(answer, q.Safe):
            for number in answer.refused:
                self.frontier.refuse(self._given_base + number)
            self.frontier.advance(self._given_base + answer.upto)
        elif isinstance(answer, q.Taken):
            if self._credit is not None:
                self._credit.ack(answer.cost)
        elif isinstance(answer, q.Answered):
            self._answered(answer)
        elif isinstance(answer, q.State):
            self._is_open = True
            self.reported.reported_count = answer.ready_count
            self.reported.reported_bytes = answer.ready_bytes
            self.reported_unacked = answer.unacked_count
            self.reported_consumers = answer.consumer_count
        elif isinstance(answer, q.Cancelled):
            self._cancelled(answer.consumer)
        elif isinstance(answer, q.Gone):
            way = self.way
            if way is not None:
                way.forget(self._no)
            if not self._is_open:
                self.frontier.hold()  # it is not master yet: all was refused with the opening
            self._leave()

    def _delivered(self, answer: q.Delivered) -> None:
        remote = self._remotes.get(int(answer.consumer))
        if remote is None:  # it left meanwhile
            if answer.first > 0:
                last = answer.first + len(answer.messages) - 1
                runs = [(int(answer.first), int(last))]
                self._send(q.Settle(self._no, answer.consumer, q.REQUEUE, 0, runs))
            return
        number = answer.first + self._base
        for message in answer.messages:
            message.seq_id = number
            number += 1
            remote.arrived.append(message)
        self._returned += answer.again_count
        self.wake()

    def _answered(self, answer: q.Answered) -> None:
        ticket = self._asked.pop(int(answer.question), None)
        if ticket is None:
            return
        if answer.error != "":
            if ticket.remote is not None:
                self._remotes.pop(int(ticket.remote.number), None)
            ticket.fail(q.ERRORS.get(answer.error, BrokerError)(answer.text))
            return
        ticket.value = answer.value
        ticket.second_value = answer.first
        if len(answer.messages) > 0:
            ticket.got = answer.messages[0]
            ticket.got.seq_id = answer.first + self._base
            self.reported.reported_count = answer.value
        ticket.answer(None)
        if ticket.dropped:
            self.dropped(ticket)

    def _cancelled(self, number: i64) -> None:
        remote = self._remotes.pop(int(number), None)
        consumer = None if remote is None else remote.consumer
        way = self.way
        if consumer is not None and way is not None and consumer in self.consumers:
            self.consumers.remove(consumer)
            way.cancelled.append(consumer)

    def check(self) -> None:
        super().check()
        self.frontier.check()
        for consumer in self.consumers:
            remote = self._by_consumer[consumer]
            assert self._remotes[int(remote.number)] is remote, "E1"
            assert remote.consumer is consumer, "E1"
        for remote in self._remotes.values():
            for message in remote.arrived:
                assert remote.no_ack or message.seq_id > self._base, "E2"


@final
class _Link(MasterElsewhere):
    """The queue, as its ``PeerClient`` knows it (a compiled class has one base)."""

    def __init__(self, queue: RemoteQueue) -> None:
        self._queue = queue

    def hear(self, answer: q.QueueRequest, now_ms: i64) -> None:
        self._queue.hear(answer, now_ms)

    def lost_way(self) -> None:
        self._queue.lost_way()
