"""One AMQP channel: its methods become calls on the virtual host, and replies.

    publishes   PublishRun ─► credit, else publish_buffer ─► publishing
    deliveries  queue.deliver ─► ledger (tags) ─► encoder
    settlements AckRun, nack, reject ─► ledger ─► settlements ─► queue.settle, reject, requeue

Every method of this file may raise a ``BrokerError``; the session turns it into
``channel.close`` or ``connection.close``.
"""

from collections import deque
from functools import partial
from itertools import islice
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.rules.arguments import (
    check_consumer_arguments,
    consumer_priority,
    consumer_timeout,
)
from penstock.broker.rules.judges import READ
from penstock.broker.transfers.replies import REPLY_TO
from penstock.cluster.remote.queue_places import subscribe_anew
from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import Traffic
from penstock.core.credit import cost_of
from penstock.core.errors import (
    BrokerError,
    CommandInvalid,
    NotAllowed,
    NotImplementedYet,
    PreconditionFailed,
    Unavailable,
)
from penstock.core.message import REDELIVERED, Message
from penstock.core.pending import Pending, Ticket, after, then
from penstock.core.steps import steps
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.encoder import short_bytes, write_deliveries, write_get_ok
from penstock.protocols.amqp.codec.events import AckRun, PublishRun
from penstock.protocols.amqp.codec.header_edit import with_delivery_counts
from penstock.protocols.amqp.codec.ledger import ALL_OPEN, DeliveryLedger, Settlement
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.deadlines import Deadlines
from penstock.protocols.amqp.firehose import trace_deliveries
from penstock.protocols.amqp.link import Link
from penstock.protocols.amqp.publish_buffer import PublishBuffer
from penstock.protocols.amqp.publishing import Publishing
from penstock.protocols.amqp.replies import ReplyChannel
from penstock.protocols.amqp.settlements import ACK, FAILED, LEFT, REJECT, REQUEUE, Settlements
from penstock.protocols.amqp.spans import follow_deliveries
from penstock.protocols.amqp.topology import TopologyMethods
from penstock.protocols.amqp.transaction import Transaction
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer, SharedWindow
from penstock.queues.context import queue_type
from penstock.queues.queue import Queue
from penstock.queues.refusals import check_head
from penstock.runtime.session import Subscriber
from penstock.runtime.session_events import channel_moved, consumer_moved
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES

ACCOUNTS_MAX: Final = 64
"""Queues a channel polls; above this, those it owes nothing are forgotten."""
WAKE_STEPS: Final[i64] = 4
"""As many of a route (``routing/steps.py``) cost what it costs to let a consumer go on."""
CONSUMER_STEPS: Final[i64] = 200
CONSUMERS_AT_ONCE: Final = 32
"""Of a channel that ends; each costs as many."""
PLACE_BYTES: Final[i64] = 16
"""Of one delivery in the ledger."""


@final
class AmqpChannel(Subscriber):
    """An open channel."""

    def __init__(self, link: Link, number: i64) -> None:
        super().__init__(link.session, number)
        self.link = link
        self.closing: bool = False
        self.closed: bool = False  # and nothing is left of it
        self.active_at_ms: WallMs = link.now_ms  # when it last carried messages or settlements
        self.consumers: dict[str, Consumer] = {}
        self.ledger = DeliveryLedger()
        self.shared = SharedWindow()
        self.traffic = Traffic(link.traffic)
        self.settlements = Settlements(link, self.ledger, self._carry_out)
        self.prefetch: i64 = 0
        self.replies = ReplyChannel(link, number, self.ledger)
        self.deadlines = Deadlines(self.ledger)
        self.intake = PublishBuffer(link, self)
        self.publishing = Publishing(
            link, number, self.intake, self.replies, self.deadlines, self.traffic
        )
        self.transaction: Transaction | None = None
        self._ending_bytes: i64 = 0
        self._tag_bytes: dict[str, bytes] = {}
        self._accounts: dict[str, Consumer] = {}  # unsettled basic.get, by queue
        self.topology = TopologyMethods(link, number)
        link.count_channel(1)
        channel_moved(link.broker.events, "channel_opened", link.session, int(number))

    # -- delivering ----------------------------------------------------------------------

    def answer(self, answers: list[Message]) -> None:
        self.replies.deliver(answers)

    def deliver(self, delivery: Delivery) -> None:
        """Number, remember and encode what a queue hands to one of our consumers."""
        link = self.link
        self.active_at_ms = link.now_ms
        consumer = delivery.consumer
        messages = delivery.messages
        self.traffic.deliver(len(messages), delivery.again_count, consumer.no_ack)
        if self.publishing.spans.on:
            follow_deliveries(link, cast(Queue, consumer.queue), delivery)
        if consumer.no_ack:
            first_tag = self.ledger.skip(len(messages))
        else:
            self.deadlines.stamp(link.broker.idleness.now_ms)
            first_tag = self.ledger.add(consumer, delivery.kept)
        if len(self.consumers) > 1 and consumer.tag in self.consumers:  # in order of turns
            self.consumers[consumer.tag] = self.consumers.pop(consumer.tag)
        tag_bytes = self._tag_bytes.get(consumer.tag)
        if tag_bytes is None:
            tag_bytes = short_bytes(consumer.tag)
            self._tag_bytes[consumer.tag] = tag_bytes
        if self.publishing.vhost.tracing:
            trace_deliveries(link, self.number, cast(Queue, consumer.queue).name, messages)
        if delivery.again_count > 0 and cast(Queue, consumer.queue).is_quorum:
            messages = with_delivery_counts(messages)
        out, outlet, frame_max = link.session.out, link.outlet, link.decoder.frame_max
        ahead = outlet.ahead if outlet.gathers else None
        ahead_bytes = write_deliveries(
            out, self.number, tag_bytes, first_tag, messages, frame_max, ahead
        )
        outlet.delivered(len(out), ahead_bytes)

    # -- publishing ----------------------------------------------------------------------

    def publish(self, run: PublishRun) -> bool:
        """True when confirms may now be written."""
        self.active_at_ms = self.link.now_ms
        route = self.link.route(run.address)
        if not run.resumed:
            self.intake.take(cost_of(len(run.messages), run.size_bytes))
        return self.publishing.publish(run, route)

    # -- settling ------------------------------------------------------------------------

    def ack(self, run: AckRun) -> Ticket | None:
        """None: it is done."""
        self.active_at_ms = self.link.now_ms
        if self.transaction is not None:
            return self._note(self.transaction, ACK, run.first_tag, run.last_tag, run.multiple)
        if run.multiple:
            return self.settlements.through(ACK, self._last_of_multiple(run.last_tag))
        settled, unknown = self.ledger.take(run.first_tag, run.last_tag)
        self._carry_out(ACK, settled)
        if unknown != ALL_OPEN or run.first_tag == ALL_OPEN:
            raise _unknown_tag(unknown)
        return None

    def _nack(self, tag: i64, multiple: bool, requeue: bool, failed: bool) -> Ticket | None:
        """``failed``: of RabbitMQ's two methods, the one that says that the consumer failed."""
        kind = REJECT
        if requeue:
            kind = FAILED if failed else REQUEUE
        if self.transaction is not None:
            return self._note(self.transaction, kind, tag, tag, multiple)
        if multiple:
            return self.settlements.through(kind, self._last_of_multiple(tag))
        settled, unknown = self.ledger.take(tag, tag)
        if unknown != ALL_OPEN or tag == ALL_OPEN:
            raise _unknown_tag(unknown)
        self._carry_out(kind, settled)
        return None

    def _carry_out(self, kind: int, settled: list[Settlement]) -> None:
        was_full = self.shared.limit > 0 and self.shared.room() == 0
        if kind >= REQUEUE:
            self._give_back(settled, kind)
            settled = []
        for settlement in settled:
            consumer = cast(Consumer, settlement.holder)
            queue = cast(Queue, consumer.queue)
            if kind == ACK:
                self.traffic.ack(len(settlement.messages))
                queue.settle(consumer, settlement.messages)
            else:
                queue.reject(consumer, settlement.messages)
        if was_full:
            self._room_came()

    def _give_back(self, settled: list[Settlement], kind: int) -> None:
        """All of one queue together: their places there are looked for once."""
        by_queue: dict[Queue, dict[Consumer, list[Message]]] = {}
        for settlement in settled:
            consumer = cast(Consumer, settlement.holder)
            given = by_queue.setdefault(cast(Queue, consumer.queue), {})
            given.setdefault(consumer, []).extend(settlement.messages)
            if kind == LEFT:
                consumer.cancel()
        for queue, given in by_queue.items():
            queue.requeue(given, kind != REQUEUE, self.link.now_ms)

    def _last_of_multiple(self, tag: i64) -> i64:
        if tag == 0:
            return self.ledger.next_tag - 1
        if not self.ledger.is_open(tag):
            raise _unknown_tag(tag)
        return tag

    def _room_came(self) -> None:
        """With room in the shared window, any of our consumers may go on."""
        self.wake_queues()
        steps.count(WAKE_STEPS * len(self.consumers))

    def wake_queues(self) -> None:
        """In turn: the queue of the consumer that was served last is the last one."""
        turns = self.link.broker.queue_turns
        for consumer in self.consumers.values():
            turns.wake_behind(cast(Queue, consumer.queue), consumer)

    # -- transactions --------------------------------------------------------------------

    def _tx_method(self, method: Method) -> Pending | None:
        if method.key == m.TX_SELECT:
            self.publishing.select_transactions()
            if self.transaction is None:
                self.transaction = Transaction(self.ledger)
            self.link.send(self.number, m.TX_SELECT_OK, [])
            return None
        if method.key != m.TX_ROLLBACK:
            raise CommandInvalid("unimplemented method")
        transaction = self._the_transaction()
        self.publishing.rollback()
        transaction.roll_back()
        ticket = self.link.broker.queue_turns.long_works.start(transaction)
        return after(ticket, partial(self.link.send, self.number, m.TX_ROLLBACK_OK, []))

    def _the_transaction(self) -> Transaction:
        transaction = self.transaction
        if transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return transaction

    def _note(
        self, transaction: Transaction, kind: int, first_tag: i64, last_tag: i64, multiple: bool
    ) -> Ticket | None:
        if not multiple:
            unknown = transaction.note(kind, first_tag, last_tag)
            if unknown <= last_tag:
                raise _unknown_tag(unknown)
            return None
        if last_tag == 0:
            transaction.note_through(kind, self.ledger.next_tag)
        elif transaction.is_open(last_tag):
            transaction.note_through(kind, last_tag)
        else:
            raise _unknown_tag(last_tag)
        return self.link.broker.queue_turns.long_works.start(transaction)

    def commit(self) -> Pending | None:
        """Publish; what was settled follows when the publishes are safe (``_end_commits``)."""
        transaction = self._the_transaction()
        before = int(self.link.broker.engine.journal.position)
        return then(self.publishing.commit(), partial(self._published, transaction, before))

    def _published(self, transaction: Transaction, before: int, all_taken: bool) -> None:
        if not all_taken:
            raise PreconditionFailed("partial tx completion")
        after = self.link.broker.engine.journal.position
        waits = self.publishing.take_commit_waits()
        transaction.commit(after if after != before else 0, waits)
        self._end_commits(transaction)

    def _end_commits(self, transaction: Transaction) -> None:
        """Settle what commits with safe publishes judged; commit-ok leaves when that is safe."""
        journal = self.link.broker.engine.journal
        while True:
            commit = transaction.take_safe(journal.durable_position)
            if commit is None:
                return
            done = partial(self._settled, int(journal.position))
            self.settlements.carry_out(commit.verdicts, done)

    def _settled(self, before: int) -> None:
        """All that a commit judged is: commit-ok may leave when that is on disk."""
        after = self.link.broker.engine.journal.position
        self.publishing.committed(after if after != before else 0)
        if not self.closing:
            self.publishing.write_confirms()
            self.link.broker.waits.move()  # though the journal may not

    def awaits_disk(self) -> bool:
        """Is something to be confirmed, or a commit to be ended, when the journal moves?"""
        transaction = self.transaction
        if transaction is not None and not self.closing and self._ends_commits(transaction):
            return True
        confirms = self.publishing.confirms
        return confirms is not None and confirms.waiting()

    def _ends_commits(self, transaction: Transaction) -> bool:
        return len(transaction.commits) > 0 or self.settlements.under_way()

    def advance(self, durable_position: i64) -> None:
        """The journal is on disk so far.

        Raises ``PreconditionFailed`` for a commit that is not safe: another node had no room for
        some of it, or was lost.
        """
        transaction = self.transaction
        if transaction is not None and not self.closing:
            self._end_commits(transaction)
        self.publishing.advance(durable_position)

    def _recover(self) -> Ticket | None:
        """Put back what is unsettled; what the open transaction judged is its affair."""
        if self.transaction is None:
            return self.settlements.through(REQUEUE, self.ledger.next_tag - 1)
        ticket = Ticket()
        verdicts = deque([self.transaction.spare_judged(REQUEUE)])
        self.settlements.carry_out(verdicts, ticket.answer)
        return None if ticket.done else ticket

    # -- methods -------------------------------------------------------------------------

    def ask_queue(self, method: Method) -> Pending | None:
        """``basic.get`` and ``basic.consume``; None: it is answered."""
        return self._get(method) if method.key == m.BASIC_GET else self._consume(method)

    def handle(self, method: Method) -> Pending | None:
        """All but publish, ack, commit, close, what a queue is asked for, and the topology's."""
        class_id = method.key >> 16
        if class_id == 60:
            return self._basic(method)
        if class_id == 90:
            return self._tx_method(method)
        if method.key == m.CONFIRM_SELECT:
            self.publishing.select_confirms()
            self._reply(method, m.CONFIRM_SELECT_OK, [])
        elif method.key == m.CHANNEL_FLOW:
            if not method.flag("active"):
                raise NotImplementedYet("active=false")
            self._reply(method, m.CHANNEL_FLOW_OK, [True])
        elif method.key == m.ACCESS_REQUEST:
            self._reply(method, m.ACCESS_REQUEST_OK, [1])
        else:
            raise CommandInvalid("unimplemented method")
        return None

    def _reply(self, method: Method, key: i64, values: list[object]) -> None:
        if method.fields.get("nowait") is not True:
            self.link.send(self.number, key, values)

    # -- basic ---------------------------------------------------------------------------

    def _basic(self, method: Method) -> Pending | None:
        key = method.key
        ticket: Ticket | None = None
        if key == m.BASIC_CANCEL:
            self._cancel(method)
        elif key == m.BASIC_QOS:
            self._qos(method)
        elif key == m.BASIC_REJECT:
            ticket = self._nack(_tag_in(method), False, method.flag("requeue"), True)
        elif key == m.BASIC_NACK:
            flags = method.flag("multiple"), method.flag("requeue")
            ticket = self._nack(_tag_in(method), *flags, False)
        elif key == m.BASIC_RECOVER or key == m.BASIC_RECOVER_ASYNC:
            if not method.flag("requeue"):
                raise NotImplementedYet("requeue=false")
            ticket = self._recover()
            if key == m.BASIC_RECOVER:
                return after(ticket, partial(self._reply, method, m.BASIC_RECOVER_OK, []))
        elif key == m.BASIC_ACK:
            tag = _tag_in(method)
            ticket = self.ack(AckRun(self.number, tag, tag, method.flag("multiple")))
        else:
            raise CommandInvalid("unimplemented method")
        return after(ticket, _nothing)

    def _qos(self, method: Method) -> None:
        if method.number("prefetch_size") != 0:
            raise NotImplementedYet(f"prefetch_size!=0 ({method.number('prefetch_size')})")
        if method.flag("global"):
            self.shared.change(method.number("prefetch_count"))
            self._room_came()
        else:
            self.prefetch = method.number("prefetch_count")
            if self.shared.limit > 0:  # as in RabbitMQ, the later one does away with it
                self.shared.change(0)
                self._room_came()
        self._reply(method, m.BASIC_QOS_OK, [])

    def _consume(self, method: Method) -> Pending | None:
        tag = method.text("consumer_tag")
        if tag == "":
            tag = self.link.new_name("amq.ctag-")
        elif tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        if self.topology.meant_queue(method) == REPLY_TO:
            self.replies.consume(self, tag, method.flag("no_ack"))
            self._reply(method, m.BASIC_CONSUME_OK, [tag])
            return None
        queue = self.topology.readable_queue(method)
        check_head(queue.backing, queue.name, queue.vhost)
        arguments = method.table("arguments")
        what = self.link.vhost.queue_text(queue.name)
        check_consumer_arguments(arguments, what, queue_type(queue.arguments))
        priority = consumer_priority(arguments, what)
        self.link.vhost.changes.check_consumer(arguments, self.link.consumer_count)
        no_ack = method.flag("no_ack")
        consumer = Consumer(
            tag,
            self,
            self.link.outlet,
            self.shared,
            no_ack,
            0 if no_ack and not queue.is_stream else self.prefetch,
            method.flag("exclusive"),
            arguments,
            priority,
            timeout_ms=consumer_timeout(arguments, what),
        )
        return then(
            queue.add_consumer(consumer),
            lambda _added: self._consuming(method, consumer),
            partial(self._consume, method),
        )

    def _consuming(self, method: Method, consumer: Consumer) -> None:
        self.consumers[consumer.tag] = consumer
        self._count_consumer(consumer, True)
        self.deadlines.note(consumer)
        self._reply(method, m.BASIC_CONSUME_OK, [consumer.tag])

    def _cancel(self, method: Method) -> None:
        tag = method.text("consumer_tag")
        if not self.replies.cancel(tag):
            consumer = self.consumers.pop(tag, None)
            if consumer is not None:
                self._count_consumer(consumer, False)
                self._tag_bytes.pop(tag, None)
                self._remove_consumer(consumer)
        self._reply(method, m.BASIC_CANCEL_OK, [tag])

    def _count_consumer(self, consumer: Consumer, added: bool) -> None:
        self.link.count_consumers(1 if added else -1)
        consumer_moved(
            self.link.broker.events, self.link.session, int(self.number), consumer, added
        )

    def _remove_consumer(self, consumer: Consumer) -> None:
        queue = cast(Queue, consumer.queue)
        if queue.deleted:
            return
        queue.remove_consumer(consumer)
        if queue.unused:
            self.topology.delete_queue(queue)
        else:
            self.link.vhost.touch(queue)

    def _get(self, method: Method) -> Pending | None:
        link = self.link
        queue = self.topology.readable_queue(method)
        link.vhost.touch(queue)
        if not link.broker.queue_turns.may_poll(queue, link.now_ms):
            return Pending(None, partial(self._get, method))
        no_ack = method.flag("no_ack")
        account = self._accounts.get(queue.incarnation)
        if account is None or account.no_ack != no_ack or account.queue is not queue:
            account = Consumer("", self, link.outlet, SharedWindow(), no_ack, 0, False, {})
            account.join(queue)
            if not no_ack:
                self._remember(queue.incarnation, account)
        found = queue.get(account)
        if isinstance(found, Pending):
            got = partial(self._got, method, account)
            return then(found, got, partial(self._get, method))
        self._got(method, account, found)
        return None

    def _got(self, method: Method, account: Consumer, message: Message | None) -> None:
        link, no_ack = self.link, account.no_ack
        queue = cast(Queue, account.queue)
        # A new head may have a time to die.
        link.broker.queue_turns.plan(queue)
        if message is None:
            self.traffic.get(0, 0, no_ack)
            self._reply(method, m.BASIC_GET_EMPTY, [""])
            return
        self.traffic.get(1, 1 if message.flags & REDELIVERED else 0, no_ack)
        self.deadlines.stamp(link.broker.idleness.now_ms)
        tag = self.ledger.skip(1) if no_ack else self.ledger.add(account, [message])
        if link.vhost.tracing:
            trace_deliveries(link, self.number, queue.name, [message])
        if self.publishing.spans.on:
            follow_deliveries(link, queue, Delivery(account, [message]))
        shown = with_delivery_counts([message])[0] if queue.is_quorum else message
        out, frame_max = link.session.out, link.decoder.frame_max
        write_get_ok(out, self.number, tag, shown, queue.backing.ready_count(), frame_max)

    def _remember(self, incarnation: str, account: Consumer) -> None:
        if len(self._accounts) >= ACCOUNTS_MAX:
            known = self._accounts
            self._accounts = {key: known[key] for key in known if known[key].outstanding > 0}
        self._accounts[incarnation] = account

    # -- time ----------------------------------------------------------------------------

    def check_deadlines(self) -> None:
        """Raises PreconditionFailed when a delivery was open for too long."""
        if self.ledger.open_count > 0 and not self.settlements.under_way():
            consumers = [*self.consumers.values(), *self._accounts.values()]
            broker = self.link.broker
            default_ms = broker.options.consumer_timeout_ms
            self.deadlines.check(broker.idleness.now_ms, default_ms, consumers, self.number)

    # -- ends ----------------------------------------------------------------------------

    def queue_lost(self, consumer: Consumer) -> None:
        """A queue went away under one of our consumers."""
        if self.consumers.get(consumer.tag) is not consumer:
            return
        del self.consumers[consumer.tag]
        self._count_consumer(consumer, False)
        self._tag_bytes.pop(consumer.tag, None)
        consumer.cancel()
        if self.link.cancel_notify and not self.closing:
            self.link.send(self.number, m.BASIC_CANCEL, [consumer.tag, True])

    def rights_changed(self) -> None:
        """Cancel the consumers of queues that the user may not read any more."""
        for consumer in list(self.consumers.values()):
            if not self.link.rights.may(READ, "queue", cast(Queue, consumer.queue).name):
                self._remove_consumer(consumer)
                self.queue_lost(consumer)

    def send_away(self, consumer: Consumer, why: str) -> None:
        self.link.session.channel_failed(self.number, Unavailable(why), 0)

    def queue_moved(self, consumer: Consumer, queue: Queue) -> None:
        if self.closing or self.consumers.get(consumer.tag) is not consumer:
            return
        try:
            anew = subscribe_anew(consumer, queue)
        except BrokerError:
            self.queue_lost(consumer)
            return
        self.consumers[consumer.tag] = anew
        self.deadlines.note(anew)

    def close(self) -> None:
        """Its end begins: it takes nothing more.  ``end_step`` does the rest."""
        self.closing = True
        self.shared.close()
        self.intake.close()
        self.publishing.rollback()
        if self.transaction is not None:
            self.transaction.abandon()
        self.replies.close()
        self.settlements.end()
        self._ending_bytes = self._open_bytes()
        self.link.broker.engine.ram.count_ending(self._ending_bytes)

    def _open_bytes(self) -> i64:
        """Of open deliveries: their places, and messages of streams, which queues do not count."""
        size = self.ledger.open_count * PLACE_BYTES
        for consumer in self.consumers.values():
            if cast(Queue, consumer.queue).is_stream:
                size += consumer.outstanding * MESSAGE_OVERHEAD_BYTES
        return size

    def end_step(self) -> bool:
        """Give back some of what is unsettled, and then stop consuming; False = it is over."""
        if self.closed:
            return False
        transaction = self.transaction
        if self.settlements.step() or (transaction is not None and transaction.step()):
            return True
        for consumer in list(islice(self.consumers.values(), CONSUMERS_AT_ONCE)):
            del self.consumers[consumer.tag]
            self._count_consumer(consumer, False)
            self._remove_consumer(consumer)
            steps.count(CONSUMER_STEPS)
        if len(self.consumers) > 0:
            return True
        self.closed = True
        self.link.broker.engine.ram.count_ending(-self._ending_bytes)
        self.link.count_channel(-1)
        channel_moved(
            self.link.broker.events, "channel_closed", self.link.session, int(self.number)
        )
        return False


def _nothing() -> None:
    """Is left to be done."""


def _tag_in(method: Method) -> i64:
    """Tags are unsigned on the wire; those we gave out all fit in 63 bits."""
    tag = method.number("delivery_tag")
    return tag if tag < 1 << 63 else tag - (1 << 64)


def _unknown_tag(tag: i64) -> BrokerError:
    # Tags are unsigned on the wire; ours are signed.
    return PreconditionFailed(f"unknown delivery tag {int(tag) & 0xFFFFFFFFFFFFFFFF}")
