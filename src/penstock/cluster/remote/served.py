"""``Served``: one queue of this node, as one other node uses it.

It remembers what was delivered there and is not settled, by number, and its consumers; it
knows neither requests' order nor the link (``serving.py``).

Invariants (``check``):
  Y1  what is held of a queue was delivered to one of its consumers here, or got
  Y2  a consumer's outstanding deliveries are those it holds
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from penstock.broker.rules.confirms import ConfirmLedger
from penstock.broker.topology.histories import HistoryReader
from penstock.broker.topology.vhost import Vhost
from penstock.core import queue_requests as q
from penstock.core.clock_types import WallMs
from penstock.core.credit import NODE, Credit, FlowBook, FlowPeer, cost_of
from penstock.core.long_work import AT_ONCE, DELIVERY_STEPS, LongWork
from penstock.core.message import Message
from penstock.core.steps import steps
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.queue import Queue

OUTLET_BYTES: Final[i64] = 1024 * 1024
"""So much is on its way to one consumer, or waits there for a client that does not read."""
TOLD_BYTES: Final[i64] = 64
"""What a message takes beside its content, when room is counted."""


@final
class ServedConsumer:
    """A consumer at the other node, and the one that stands for it here."""

    def __init__(self, served: "Served", request: q.Subscribe, make_holder: "MakeHolder") -> None:
        self.served = served
        self.number: i64 = request.consumer
        self.consumer = Consumer(
            request.tag,
            make_holder(self),
            OutputWindow(OUTLET_BYTES),
            SharedWindow(),
            request.no_ack,
            0,
            request.exclusive,
            request.arguments,
            request.priority,
            request.window,
        )


MakeHolder: TypeAlias = Callable[[ServedConsumer], object]
"""See ``NewHolder`` in ``serving.py``, of one link."""


@final
class Served:
    """See the head of this file; ``no`` is its number at the link."""

    def __init__(
        self,
        node: str,
        no: i64,
        vhost: Vhost,
        queue: Queue,
        book: FlowBook,
        reader: HistoryReader | None = None,
    ) -> None:
        """``reader``: of a history."""
        self.no: i64 = no
        self.vhost = vhost
        self.queue = queue
        self.reader = reader
        self.ledger = ConfirmLedger()
        self.consumers: dict[int, ServedConsumer] = {}
        self.stage = FlowPeer(book, NODE, node)  # the other node, as a publisher
        self.by_queue: dict[FlowPeer, Credit] = {}
        self._owed: i64 = 0  # cost of what was dealt with, and not said
        self.late: list[q.Given] = []  # in front of the queue
        self._held: dict[int, Message] = {}
        self._holders: dict[int, Consumer] = {}
        self._last_delivery: i64 = 0
        self._accounts: list[Consumer] = []  # of those that acknowledge, and of the others
        self._told: tuple[int, int, int, int] = (-1, 0, 0, 0)
        for no_ack in (False, True):
            account = Consumer("", None, OutputWindow(), SharedWindow(), no_ack, 0, False, {})
            account.join(queue)
            self._accounts.append(account)

    def close(self) -> None:
        """The other node publishes no more: no stage waits for it, and it for none."""
        for credit in self.by_queue.values():
            credit.close()
        self.stage.lost()

    def is_alone(self) -> bool:
        mirrors = self.queue.mirrors
        return mirrors is not None and mirrors.is_alone()

    def account(self, no_ack: bool) -> Consumer:
        return self._accounts[1 if no_ack else 0]

    def cost_of(self, messages: list[Message]) -> i64:
        size: i64 = 0
        for message in messages:
            size += len(message.content)
        return cost_of(len(messages), size)

    def take_late(self) -> list[q.Given]:
        late = self.late
        self.late = []
        return late

    def owe(self, cost: i64) -> None:
        self._owed += cost

    def take_owed(self) -> i64:
        owed = self._owed
        self._owed = 0
        return owed

    def is_over(self) -> bool:
        """Nothing is to be said about publishes."""
        return self._owed == 0 and not self.ledger.waiting()

    # -- deliveries ------------------------------------------------------------------------

    def hold(self, messages: list[Message], consumer: Consumer | None = None) -> i64:
        """They wait for their settlement; returns the number of the first."""
        first = self._last_delivery + 1
        holder = self._accounts[0] if consumer is None else consumer
        number = int(first)
        for message in messages:
            self._held[number] = message
            self._holders[number] = holder
            number += 1
        self._last_delivery += len(messages)
        return first

    def deliver(self, one: ServedConsumer, delivery: Delivery) -> q.Delivered:
        messages = delivery.messages
        consumer = one.consumer
        first: i64 = 0 if consumer.no_ack else self.hold(delivery.kept, consumer)
        size: i64 = 0
        for message in messages:
            size += message.size + TOLD_BYTES
        consumer.outlet.sent(size)
        return q.Delivered(self.no, one.number, first, delivery.again_count, messages)

    def set_window(self, request: q.Window) -> None:
        one = self.consumers.get(int(request.consumer))
        if one is None:
            return
        one.consumer.allow(request.window)
        one.consumer.outlet.has_left(request.taken_bytes)
        self.queue.room_came(one.consumer)

    # -- settling --------------------------------------------------------------------------

    def settle(self, request: q.Settle, now_ms: WallMs) -> None:
        """What they say of deliveries; of one run all were to the same consumer."""
        by_consumer: dict[Consumer, list[Message]] = {}
        for first, last in request.runs:
            for number in range(first, last + 1):
                message = self._held.pop(number, None)
                if message is not None:
                    by_consumer.setdefault(self._holders.pop(number), []).append(message)
        if request.kind == q.REQUEUE:
            self.queue.requeue(by_consumer, True, now_ms)
            by_consumer = {}
        for consumer, messages in by_consumer.items():
            if request.kind == q.ACK:
                self.queue.settle(consumer, messages)
            elif request.kind == q.REJECT:
                self.queue.reject(consumer, messages)
            else:
                self.queue.give_back(consumer, messages, request.delay_ms, now_ms)
        one = self.consumers.get(int(request.consumer))
        if one is not None:
            self.tidy(one)

    def tidy(self, one: ServedConsumer) -> None:
        """It may have been cancelled, and be done with all it had."""
        if one.consumer.cancelled and one.consumer.outstanding == 0:
            self.consumers.pop(int(one.number), None)

    def give_back_all(self, now_ms: WallMs) -> LongWork:
        """The other node is none any more, or has other plans with the queue."""
        work = HeldDeliveries(self.queue, self._held, self._holders, now_ms)
        self._held = {}
        self._holders = {}
        return work

    # -- how it is ---------------------------------------------------------------------------

    def _now(self) -> tuple[int, int, int, int]:
        queue = self.queue
        backing = queue.backing
        return (
            int(backing.ready_count()),
            int(backing.ready_bytes()),
            int(queue.unacked_count),
            len(queue.consumers),
        )

    def has_changed(self) -> bool:
        return self._now() != self._told

    def state(self) -> q.State:
        self._told = self._now()
        ready, size, unacked, consumers = self._told
        return q.State(self.no, ready, size, unacked, consumers)

    def check(self) -> None:
        held: dict[Consumer, int] = {}
        for number in self._held:
            holder = self._holders[number]
            held[holder] = held.get(holder, 0) + 1
        known = [one.consumer for one in self.consumers.values()]
        for consumer in held:
            assert consumer is self._accounts[0] or consumer in known, "Y1"
        for consumer in known:
            assert consumer.outstanding == held.get(consumer, 0), "Y2"


@final
class HeldDeliveries(LongWork):
    """Of a node that is gone: they go back to the queue, by number."""

    def __init__(
        self, queue: Queue, held: dict[int, Message], holders: dict[int, Consumer], now_ms: WallMs
    ) -> None:
        self._queue = queue
        self._held = held
        self._holders = holders
        self._now_ms = now_ms
        self._numbers = iter(held)
        self._is_holding: bool = False

    def step(self) -> bool:
        given: dict[Consumer, list[Message]] = {}
        numbers = list(islice(self._numbers, AT_ONCE))
        for number in numbers:
            given.setdefault(self._holders[number], []).append(self._held[number])
        steps.count(len(numbers) * DELIVERY_STEPS)
        more = len(numbers) == AT_ONCE
        if more != self._is_holding:
            self._is_holding = more
            self._queue.hold(more)
        for consumer in given:
            consumer.cancel()
        self._queue.requeue(given, True, self._now_ms)
        return more
