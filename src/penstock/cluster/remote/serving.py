"""``PeerServer``: the queues of this node, as one other node uses them.

    requests, decoded ─► ``hear`` ─► queues, like a session's     queues ─► deliveries
    ``collect``, once a turn ─► what is safe by now, what was taken     ``tick`` ─► how queues are
    all of it ─► ``answers`` ─► the link

What a client of the other node does with a queue arrives here as a consumer, a batch of messages
or a question.  A consumer has an outlet of its own: so many bytes may be under way to the other
node, or wait there for a client that does not read.  A get whose message has to come from the disk
is done again in the next turn.

While a queue can confirm nothing (``py``) publishes wait in front of it.  If the queue
moves to another node instead, the link says that it is gone, and the other node decides: it refuses
what clients published, and sends its own messages again.

When the other node is lost its consumers go, and what they held is put back.

``check`` asserts Y1 and Y2 of ``served.py``.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import cast, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.cluster.remote.served import Served, ServedConsumer
from penstock.core import queue_requests as q
from penstock.core.clock_types import WallMs
from penstock.core.errors import BrokerError
from penstock.core.message import Message
from penstock.core.pending import Pending
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer
from penstock.queues.stream_backing import StreamBacking
from penstock.queues.stream_description import describe_stream

NewHolder = Callable[["PeerServer", ServedConsumer], object]
"""Makes what stands for a consumer in this node's turn: where deliveries go."""
Tell = Callable[[list[Consumer]], None]


@final
class PeerServer:
    """Of one link."""

    def __init__(
        self, broker: Broker, node: str, new_holder: NewHolder, tell_cancelled: Tell
    ) -> None:
        self.node = node
        self.answers: list[q.QueueRequest] = []
        self._broker = broker
        self._new_holder = new_holder
        self._tell_cancelled = tell_cancelled
        self._served: dict[int, Served] = {}
        self._open: dict[int, Served] = {}  # publishes of theirs are not all answered
        self._postponed: list[tuple[Served, q.Ask]] = []  # gets that wait for the disk
        self._dropping: list[tuple[Served, int, Pending]] = []  # in shares of a turn, asked for
        self._late: dict[int, Served] = {}  # publishes of theirs wait in front of the queue

    # -- requests --------------------------------------------------------------------------

    def hear(self, requests: list[q.QueueRequest], now_ms: WallMs) -> None:
        for request in requests:
            if isinstance(request, q.Open):
                self._open_queue(request)
                continue
            served = self._served.get(int(request.no))
            if served is None:
                continue  # it was told that the queue is gone
            if served.queue.deleted and not isinstance(request, q.Close):
                self._gone(served)
            else:
                self._do(served, request, now_ms)

    def _do(self, served: Served, request: q.QueueRequest, now_ms: WallMs) -> None:
        if isinstance(request, q.Given):
            self._given(served, request, now_ms)
        elif isinstance(request, q.Settle):
            served.settle(request, now_ms)
        elif isinstance(request, q.Window):
            served.set_window(request)
        elif isinstance(request, q.Ask):
            self._ask(served, request, now_ms)
        elif isinstance(request, q.Subscribe):
            self._subscribe(served, request)
        elif isinstance(request, q.Unsubscribe):
            self._unsubscribe(served, request.consumer, now_ms)
        elif isinstance(request, q.Close):
            self._close(served, now_ms)

    def _open_queue(self, request: q.Open) -> None:
        vhost = self._broker.vhosts.get(request.vhost)
        queue = None if vhost is None else vhost.queues.get(request.name)
        reader = None if vhost is None else vhost.internal_queues.reader(request.name)
        if reader is not None:
            queue = reader.queue
        if vhost is None or queue is None or queue.remote:
            self.answers.append(q.Gone(request.no))
            return
        served = Served(self.node, request.no, vhost, queue, self._broker.flow.book, reader)
        self._served[int(request.no)] = served
        self.answers.append(served.state())

    def queue_gone(self, served: Served) -> None:
        """Its master is elsewhere now; once for all its consumers."""
        if self._served.get(int(served.no)) is served:
            self._gone(served)

    def _gone(self, served: Served) -> None:
        self._forget(served)
        self.answers.append(q.Gone(served.no))

    def _forget(self, served: Served) -> None:
        self._served.pop(int(served.no), None)
        self._open.pop(int(served.no), None)
        self._late.pop(int(served.no), None)
        self._postponed = [one for one in self._postponed if one[0] is not served]
        self._dropping = [one for one in self._dropping if one[0] is not served]
        served.close()

    # -- publishing --------------------------------------------------------------------------

    def _given(self, served: Served, request: q.Given, now_ms: WallMs) -> None:
        if served.is_alone() or served.late:
            served.late.append(request)
            self._late[int(served.no)] = served
        else:
            self._take(served, request, now_ms)

    def _take_late(self, served: Served, now_ms: WallMs) -> None:
        if served.queue.deleted:
            self._gone(served)
        elif not served.is_alone():
            del self._late[int(served.no)]
            for request in served.take_late():
                self._take(served, request, now_ms)

    def _take(self, served: Served, request: q.Given, now_ms: WallMs) -> None:
        messages = request.messages
        ledger = served.ledger
        assert request.first == ledger.last_number + 1, "publishes of a peer are in order"
        count = len(messages)
        position, refused = self._publish(served, request, now_ms)
        waits = self._broker.waits.take()
        for wait in waits:
            wait.relay()
        durable = self._broker.engine.journal.durable_position
        first = ledger.last_number + 1
        if waits:
            ledger.published_away(count, position, durable, now_ms, waits)
        else:
            ledger.published(count, position, durable, now_ms)
        for place in sorted(refused):
            ledger.deny(first + place)
        self._open[int(served.no)] = served

    def _publish(self, served: Served, request: q.Given, now_ms: WallMs) -> tuple[i64, set[int]]:
        queue, vhost, messages = served.queue, served.vhost, request.messages
        store = self._broker.engine.store
        stored = store.unsealed_bytes
        cost = served.cost_of(messages)
        refused: set[int] = set()
        if request.until_ms > 0:
            position = vhost.publish_deferred([queue], messages, request.until_ms, now_ms)
        elif queue.limits.refuses:
            position, refused = vhost.publish_some([queue], messages, now_ms)
        else:
            position = vhost.publish([queue], messages, now_ms)
        stored = store.unsealed_bytes - stored
        flow = self._broker.flow
        if flow.enabled and flow.must_charge([queue], stored):
            flow.charge(served.stage, served.by_queue, [queue], cost, position > 0, stored)
        served.owe(cost)
        return position, refused

    # -- consumers -------------------------------------------------------------------------

    def _subscribe(self, served: Served, request: q.Subscribe) -> None:
        one = ServedConsumer(served, request, partial(self._new_holder, self))
        try:
            served.queue.add_consumer(one.consumer)
        except BrokerError as error:
            if request.question > 0:
                self._refuse(served, request.question, error)
            else:
                self.answers.append(q.Cancelled(served.no, request.consumer))
            return
        served.consumers[int(request.consumer)] = one
        if request.question > 0:
            self._answer(served, request.question, 0, 0)

    def _unsubscribe(self, served: Served, number: i64, now_ms: WallMs) -> None:
        one = served.consumers.get(int(number))
        if one is None:
            return
        queue = served.queue
        queue.remove_consumer(one.consumer)
        served.tidy(one)
        if queue.unused:
            self._tell_cancelled(served.vhost.delete_queue(queue))
        else:
            served.vhost.touch(queue)

    def deliver(self, one: ServedConsumer, delivery: Delivery) -> None:
        """The queue has something for one of them."""
        self.answers.append(one.served.deliver(one, delivery))

    def consumer_lost(self, one: ServedConsumer) -> None:
        """Its queue is gone."""
        self.answers.append(q.Cancelled(one.served.no, one.number))

    # -- questions -------------------------------------------------------------------------

    def _ask(self, served: Served, request: q.Ask, now_ms: WallMs) -> None:
        try:
            self._answer_to(served, request, now_ms)
        except BrokerError as error:
            self._refuse(served, request.question, error)

    def _answer_to(self, served: Served, request: q.Ask, now_ms: WallMs) -> None:
        queue, vhost, verb = served.queue, served.vhost, request.verb
        if verb == q.GET:
            self._get(served, request, now_ms)
            return
        if verb == q.READ:
            messages = [] if served.reader is None else served.reader.read()
            self.answers.append(q.Answered(served.no, request.question, "", "", 0, 0, messages))
            return
        if verb == q.FACTS:
            self._describe(served, request)
            return
        value: int | Pending = 0
        second = 0
        if verb == q.PURGE:
            value = queue.purge()
        elif verb == q.EMPTY:
            value = queue.empty()
        elif verb == q.COUNTS:
            vhost.touch(queue)
            counts = queue.counts()
            assert isinstance(counts, tuple), "it is here"
            value, second = counts
        if isinstance(value, Pending):
            self._dropping.append((served, int(request.question), value))
        else:
            self._answer(served, request.question, value, second)

    def _describe(self, served: Served, request: q.Ask) -> None:
        backing = served.queue.backing
        facts = describe_stream(backing) if isinstance(backing, StreamBacking) else {}
        message = Message(json.dumps(facts).encode(), b"", 0, WallMs(0))
        ready = backing.ready_count()
        self.answers.append(q.Answered(served.no, request.question, "", "", ready, 0, [message]))

    def _get(self, served: Served, request: q.Ask, now_ms: WallMs) -> None:
        queue = served.queue
        served.vhost.touch(queue)
        if not self._broker.queue_turns.may_poll(queue, now_ms):
            self._postponed.append((served, request))
            return
        no_ack = request.flags & q.NO_ACK != 0
        message = queue.get(served.account(no_ack))
        if isinstance(message, Pending):
            self._postponed.append((served, request))
            return
        self._broker.queue_turns.plan(queue)
        first: i64 = 0
        got: list[Message] = []
        if message is not None:
            got.append(message)
            first = 0 if no_ack else served.hold(got)
        left = queue.backing.ready_count()
        self.answers.append(q.Answered(served.no, request.question, "", "", left, first, got))

    def _answer(self, served: Served, question: i64, value: i64, second: i64) -> None:
        self.answers.append(q.Answered(served.no, question, "", "", value, second, []))

    def _refuse(self, served: Served, question: i64, error: BrokerError) -> None:
        kind = type(error).__name__
        if kind not in q.ERRORS:
            kind = BrokerError.__name__
        self.answers.append(q.Answered(served.no, question, kind, str(error), 0, 0, []))

    # -- the turn --------------------------------------------------------------------------

    def awaits_disk(self) -> bool:
        """Does a publisher at the other node wait for this node's journal?"""
        for served in self._open.values():  # noqa: SIM110 - compiled: no cheap generators
            if served.ledger.waiting():
                return True
        return False

    def collect(self, now_ms: WallMs) -> None:
        """Say what has become safe, and what was dealt with."""
        postponed = self._postponed
        self._postponed = []
        for served, request in postponed:
            self._ask(served, request, now_ms)
        dropping = self._dropping
        self._dropping = []
        for served, question, pending in dropping:
            if pending.ticket is None or pending.ticket.done:
                self._answer(served, question, cast(int, pending.resume()), 0)
            else:
                self._dropping.append((served, question, pending))
        for served in list(self._late.values()):
            self._take_late(served, now_ms)
        durable = self._broker.engine.journal.durable_position
        for served in list(self._open.values()):
            self._collect_from(served, durable, now_ms)

    def _collect_from(self, served: Served, durable: i64, now_ms: WallMs) -> None:
        ledger = served.ledger
        ledger.advance(durable, now_ms)
        before = ledger.confirmed
        ledger.take()
        if served.queue.deleted and len(ledger.denied) > 0:
            self._gone(served)  # the next master may have it, or not
            return
        if ledger.confirmed > before or len(ledger.denied) > 0:
            self.answers.append(q.Safe(served.no, ledger.confirmed, ledger.take_denied()))
        if not served.stage.is_blocked() and self._takes(served):
            owed = served.take_owed()
            if owed > 0:
                self.answers.append(q.Taken(served.no, owed))
        if served.is_over():
            del self._open[int(served.no)]

    def _takes(self, served: Served) -> bool:
        """An alarm or a budget of this node holds up publishers at the other one, too."""
        return self._broker.admission.reason_here(served.vhost.name) == ""

    def tick(self) -> None:
        """Now and then: how are the queues?  Only what has changed is said."""
        for served in self._served.values():
            if not served.queue.deleted and served.has_changed():
                self.answers.append(served.state())

    def take_answers(self) -> list[q.QueueRequest]:
        answers = self.answers
        self.answers = []
        return answers

    # -- ends ------------------------------------------------------------------------------

    def _close(self, served: Served, now_ms: WallMs) -> None:
        if not served.queue.deleted:
            self._broker.queue_turns.long_works.start(served.give_back_all(now_ms))
            for number in list(served.consumers):
                self._unsubscribe(served, number, now_ms)
        self._forget(served)

    def lost(self, now_ms: WallMs) -> None:
        """The other member is gone for good."""
        for served in list(self._served.values()):
            self._close(served, now_ms)
        self.answers = []

    def check(self) -> None:
        for served in self._served.values():
            served.check()
