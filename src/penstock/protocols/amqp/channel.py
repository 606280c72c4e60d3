"""One AMQP channel: its methods become calls on the virtual host, and replies.

    publishes   PublishRun ─► credit, else publish_buffer ─► publishing
    deliveries  queue.deliver ─► ledger (tags) ─► encoder
    settlements AckRun, nack, reject ─► ledger ─► queue.settle / queue.reject / queue.requeue

Every method of this file may raise a ``BrokerError``; the session turns it into
``channel.close`` or ``connection.close``.
"""

from functools import partial
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.rules.arguments import (
    check_consumer_arguments,
    consumer_priority,
    consumer_timeout,
)
from penstock.broker.transfers.replies import REPLY_TO
from penstock.cluster.remote.queue_places import subscribe_anew
from penstock.core.clock_types import WallMs
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
from penstock.core.pending import Pending, then
from penstock.core.traffic import Traffic
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.encoder import (
    short_bytes,
    write_deliveries,
    write_get_ok,
)
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
from penstock.protocols.amqp.topology import TopologyMethods
from penstock.protocols.amqp.transaction import ACK, FAILED, REJECT, REQUEUE, Transaction
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer, SharedWindow
from penstock.queues.context import queue_type
from penstock.queues.queue import Queue
from penstock.queues.refusals import check_head
from penstock.routing.steps import steps
from penstock.runtime.session import Subscriber
from penstock.runtime.session_events import channel_moved, consumer_moved

ACCOUNTS_MAX: Final = 64
"""Queues a channel polls; above this, those it owes nothing are forgotten."""
WAKE_STEPS: Final[i64] = 4
"""As many of a route (``routing/steps.py``) cost what it costs to let a consumer go on."""


@final
class AmqpChannel(Subscriber):
    """An open channel."""

    def __init__(self, link: Link, number: i64) -> None:
        super().__init__(link.session, number)
        self.link = link
        self.closing: bool = False
        self.active_at_ms: WallMs = link.now_ms  # when it last carried messages or settlements
        self.consumers: dict[str, Consumer] = {}
        self.ledger = DeliveryLedger()
        self.shared = SharedWindow()
        self.prefetch: i64 = 0
        self.replies = ReplyChannel(link, number, self.ledger)
        self.deadlines = Deadlines(self.ledger)
        self.intake = PublishBuffer(link, self)
        self.traffic = Traffic(link.traffic)
        self.publishing = Publishing(
            link, number, self.intake, self.replies, self.deadlines, self.traffic
        )
        self.transaction: Transaction | None = None
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
        if consumer.no_ack:
            first_tag = self.ledger.skip(len(messages))
        else:
            self.deadlines.stamp(link.broker.idleness.now_ms)
            first_tag = self.ledger.add(consumer, messages)
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
        out, frame_max = link.session.out, link.decoder.frame_max
        write_deliveries(out, self.number, tag_bytes, first_tag, messages, frame_max)
        link.outlet.delivered(len(out))

    # -- publishing ----------------------------------------------------------------------

    def publish(self, run: PublishRun) -> bool:
        """True when confirms may now be written."""
        self.active_at_ms = self.link.now_ms
        if not run.resumed:
            self.intake.take(cost_of(len(run.messages), run.size_bytes))
        return self.publishing.publish(run)

    # -- settling ------------------------------------------------------------------------

    def ack(self, run: AckRun) -> None:
        self.active_at_ms = self.link.now_ms
        if self.transaction is not None:
            self._note(self.transaction, ACK, run.first_tag, run.last_tag, run.multiple)
            return
        if run.multiple:
            self._settle(self._take_multiple(run.last_tag))
            return
        settled, unknown = self.ledger.take(run.first_tag, run.last_tag)
        self._settle(settled)
        if unknown != ALL_OPEN or run.first_tag == ALL_OPEN:
            raise _unknown_tag(unknown)

    def _nack(self, tag: i64, multiple: bool, requeue: bool, failed: bool) -> None:
        """``failed``: of RabbitMQ's two methods, the one that says that the consumer failed."""
        if self.transaction is not None:
            back = FAILED if failed else REQUEUE
            self._note(self.transaction, back if requeue else REJECT, tag, tag, multiple)
            return
        if multiple:
            settled = self._take_multiple(tag)
        else:
            settled, unknown = self.ledger.take(tag, tag)
            if unknown != ALL_OPEN or tag == ALL_OPEN:
                raise _unknown_tag(unknown)
        if requeue:
            self._requeue(settled, failed)
        else:
            self._reject(settled)

    def _take_multiple(self, tag: i64) -> list[Settlement]:
        if tag == 0:
            return self.ledger.take_all()
        if not self.ledger.is_open(tag):
            raise _unknown_tag(tag)
        return self.ledger.take_through(tag)

    def _settle(self, settlements: list[Settlement]) -> None:
        was_full = self._is_full()
        for settlement in settlements:
            consumer = cast(Consumer, settlement.holder)
            self.traffic.ack(len(settlement.messages))
            cast(Queue, consumer.queue).settle(consumer, settlement.messages)
        if was_full:
            self._room_came()

    def _reject(self, settlements: list[Settlement]) -> None:
        was_full = self._is_full()
        for settlement in settlements:
            consumer = cast(Consumer, settlement.holder)
            cast(Queue, consumer.queue).reject(consumer, settlement.messages)
        if was_full:
            self._room_came()

    def _requeue(self, settlements: list[Settlement], failed: bool) -> None:
        was_full = self._is_full()
        for settlement in settlements:
            consumer = cast(Consumer, settlement.holder)
            cast(Queue, consumer.queue).requeue(
                consumer, settlement.messages, failed, self.link.now_ms
            )
        if was_full:
            self._room_came()

    def _is_full(self) -> bool:
        return self.shared.limit > 0 and self.shared.room() == 0

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

    def _tx_method(self, method: Method) -> None:
        if method.key == m.TX_SELECT:
            self.publishing.select_transactions()
            if self.transaction is None:
                self.transaction = Transaction(self.ledger)
            self.link.send(self.number, m.TX_SELECT_OK, [])
            return
        if method.key != m.TX_ROLLBACK:
            raise CommandInvalid("unimplemented method")
        transaction = self._the_transaction()
        self.publishing.rollback()
        transaction.roll_back()
        self.link.send(self.number, m.TX_ROLLBACK_OK, [])

    def _the_transaction(self) -> Transaction:
        transaction = self.transaction
        if transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return transaction

    def _note(
        self, transaction: Transaction, kind: int, first_tag: i64, last_tag: i64, multiple: bool
    ) -> None:
        if not multiple:
            unknown = transaction.note(kind, first_tag, last_tag)
            if unknown <= last_tag:
                raise _unknown_tag(unknown)
        elif last_tag == 0:
            transaction.note_through(kind, self.ledger.next_tag)
        elif transaction.is_open(last_tag):
            transaction.note_through(kind, last_tag)
        else:
            raise _unknown_tag(last_tag)

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
        for commit in transaction.take_safe(journal.durable_position):
            before = journal.position
            for verdict in commit.verdicts:
                settled, _ = self.ledger.take(verdict.first_tag, verdict.last_tag)
                if verdict.kind == ACK:
                    self._settle(settled)
                elif verdict.kind == REJECT:
                    self._reject(settled)
                else:
                    self._requeue(settled, verdict.kind == FAILED)
            after = journal.position
            self.publishing.committed(after if after != before else 0)

    def awaits_disk(self) -> bool:
        """Is something to be confirmed, or a commit to be ended, when the journal moves?"""
        transaction = self.transaction
        if transaction is not None and transaction.commits and not self.closing:
            return True
        confirms = self.publishing.confirms
        return confirms is not None and confirms.waiting()

    def advance(self, durable_position: i64) -> None:
        """The journal is on disk so far.

        Raises ``PreconditionFailed`` for a commit that is not safe: another node had no room for
        some of it, or was lost.
        """
        transaction = self.transaction
        if transaction is not None and not self.closing:
            self._end_commits(transaction)
        self.publishing.advance(durable_position)

    def _recover(self) -> None:
        """Put back what is unsettled; what the open transaction judged is its affair."""
        if self.transaction is None:
            self._requeue(self.ledger.take_all(), False)
            return
        for tag in self.transaction.open_tags(self.ledger.next_tag):
            settled, _ = self.ledger.take(tag, tag)
            self._requeue(settled, False)

    # -- methods -------------------------------------------------------------------------

    def ask_queue(self, method: Method) -> Pending | None:
        """``basic.get`` and ``basic.consume``; None: it is answered."""
        return self._get(method) if method.key == m.BASIC_GET else self._consume(method)

    def handle(self, method: Method) -> None:
        """All but publish, ack, commit, close, what a queue is asked for, and the topology's."""
        class_id = method.key >> 16
        if class_id == 60:
            self._basic(method)
        elif class_id == 90:
            self._tx_method(method)
        elif method.key == m.CONFIRM_SELECT:
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

    def _reply(self, method: Method, key: i64, values: list[object]) -> None:
        if method.fields.get("nowait") is not True:
            self.link.send(self.number, key, values)

    # -- basic ---------------------------------------------------------------------------

    def _basic(self, method: Method) -> None:
        key = method.key
        if key == m.BASIC_CANCEL:
            self._cancel(method)
        elif key == m.BASIC_QOS:
            self._qos(method)
        elif key == m.BASIC_REJECT:
            self._nack(_tag_in(method), False, method.flag("requeue"), True)
        elif key == m.BASIC_NACK:
            flags = method.flag("multiple"), method.flag("requeue")
            self._nack(_tag_in(method), *flags, False)
        elif key == m.BASIC_RECOVER or key == m.BASIC_RECOVER_ASYNC:
            if not method.flag("requeue"):
                raise NotImplementedYet("requeue=false")
            self._recover()
            if key == m.BASIC_RECOVER:
                self._reply(method, m.BASIC_RECOVER_OK, [])
        elif key == m.BASIC_ACK:
            tag = _tag_in(method)
            self.ack(AckRun(self.number, tag, tag, method.flag("multiple")))
        else:
            raise CommandInvalid("unimplemented method")

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
        if self.ledger.open_count > 0:
            consumers = [*self.consumers.values(), *self._accounts.values()]
            broker = self.link.broker
            default_ms = broker.options.consumer_timeout_ms
            self.deadlines.check(broker.idleness.now_ms, default_ms, consumers, self.number)

    # -- ends ----------------------------------------------------------------------------

    def queue_lost(self, consumer: Consumer) -> None:
        """A queue went away under one of our consumers."""
        if self.consumers.pop(consumer.tag, None) is None or self.closing:
            return
        self._count_consumer(consumer, False)
        self._tag_bytes.pop(consumer.tag, None)
        consumer.cancel()
        if self.link.cancel_notify:
            self.link.send(self.number, m.BASIC_CANCEL, [consumer.tag, True])

    def rights_changed(self) -> None:
        """Cancel the consumers of queues that the user may not read any more."""
        for consumer in list(self.consumers.values()):
            if not self.link.rights.may_read("queue", cast(Queue, consumer.queue).name):
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
        """Stop consuming, give back everything unsettled; the object is of no use afterwards."""
        self.closing = True
        self.link.count_channel(-1)
        channel_moved(
            self.link.broker.events, "channel_closed", self.link.session, int(self.number)
        )
        self.intake.close()
        self.publishing.rollback()
        self.replies.close()
        consumers = list(self.consumers.values())
        self.consumers = {}
        settlements = self.ledger.take_all()
        for settlement in settlements:
            consumer = cast(Consumer, settlement.holder)
            consumer.cancel()
            queue = cast(Queue, consumer.queue)
            queue.requeue(consumer, settlement.messages, True, self.link.now_ms)
        for consumer in consumers:
            self._count_consumer(consumer, False)
            self._remove_consumer(consumer)


def _tag_in(method: Method) -> i64:
    """Tags are unsigned on the wire; those we gave out all fit in 63 bits."""
    tag = method.number("delivery_tag")
    return tag if tag < 1 << 63 else tag - (1 << 64)


def _unknown_tag(tag: i64) -> BrokerError:
    # Tags are unsigned on the wire; ours are signed.
    return PreconditionFailed(f"unknown delivery tag {int(tag) & 0xFFFFFFFFFFFFFFFF}")
