"""How long messages of a queue took: from being taken until a consumer was done with them."""

from __future__ import annotations

from penstock.core.clock_types import WallMs
from penstock.core.counting.histogram import Histogram
from penstock.core.message import Message
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from tests.helpers.engines import transient_backing
from tests.helpers.queues import local_queue, new_context

TARGETS = [0.5, 1.0]


class Hall:
    def __init__(self) -> None:
        context = new_context()
        self.wakeups = context.wakeups
        backing = transient_backing()
        self.queue = local_queue(backing, context)
        self.queue.statistics.measure_latency(60_000)
        self.consumer = Consumer("c", "c", OutputWindow(), SharedWindow(), False, 0, False, {})
        self.queue.add_consumer(self.consumer)

    def deliver(self, now_ms: int) -> list[Message]:
        self.wakeups.clear()
        return [one for delivery in self.queue.deliver(now_ms) for one in delivery.messages]

    def answer(self, now_ms: int) -> tuple[int, list[int]]:
        total = Histogram()
        assert self.queue.statistics.latency is not None
        self.queue.statistics.latency.times_ms.add_to(total, now_ms)
        return int(total.count), [total.percentile(share) for share in TARGETS]


def test_a_message_took_as_long_as_it_waited_and_was_worked_on() -> None:
    hall = Hall()
    hall.queue.publish([Message(b"x", b"", 0, 0)], 1000)
    messages = hall.deliver(1200)
    hall.queue.settle(hall.consumer, messages)
    assert list(hall.wakeups) == [hall.queue], "the time comes with the next pass"
    hall.deliver(1500)
    assert hall.answer(1500) == (1, [500, 500])


def test_who_acknowledges_nothing_is_done_with_it_at_once() -> None:
    hall = Hall()
    hall.queue.remove_consumer(hall.consumer)
    careless = Consumer("d", "d", OutputWindow(), SharedWindow(), True, 0, False, {})
    hall.queue.publish([Message(b"x", b"", 0, 0), Message(b"y", b"", 0, 0)], 1000)
    assert hall.queue.get(careless) is not None
    hall.queue.add_consumer(careless)
    hall.deliver(1300)
    assert list(hall.wakeups) == [hall.queue]
    hall.deliver(1300)
    assert not hall.wakeups
    assert hall.answer(1300) == (2, [300, 300])


def test_given_back_is_not_done() -> None:
    hall = Hall()
    hall.queue.publish([Message(b"x", b"", 0, 0)], 1000)
    hall.queue.requeue({hall.consumer: hall.deliver(1200)}, True, WallMs(1200))
    again = hall.deliver(1300)
    assert hall.answer(1300) == (0, [0, 0])
    hall.queue.settle(hall.consumer, again)
    hall.deliver(3000)
    assert hall.answer(3000) == (1, [2000, 2000])


def test_a_clock_set_back_makes_no_negative_times() -> None:
    hall = Hall()
    hall.queue.publish([Message(b"x", b"", 0, 0)], 5000)
    hall.queue.settle(hall.consumer, hall.deliver(5000))
    hall.deliver(4000)
    assert hall.answer(4000) == (1, [0, 0])


def test_a_queue_nobody_measures_is_not_asked_again() -> None:
    hall = Hall()
    hall.queue.statistics.latency = None
    hall.queue.publish([Message(b"x", b"", 0, 0)], 1000)
    hall.queue.settle(hall.consumer, hall.deliver(1000))
    assert not hall.wakeups
