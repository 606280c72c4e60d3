"""How much of the time a queue could deliver what it had."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.queues.capacity import Capacity
from penstock.queues.queue import Queue
from tests.helpers.connection_pair import QuietBroker


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.booleans()), min_size=1))
def test_it_is_the_time_in_which_nothing_waited(steps: list[tuple[bool, int, bool]]) -> None:
    """Against the same, millisecond by millisecond; ``looks`` ends an interval."""
    capacity = Capacity()
    now_ms = 1000
    free: list[bool] = []
    whole: float | None = None
    for waits, lasts_ms, looks in steps:
        capacity.note(waits, now_ms)
        now_ms += lasts_ms
        free += [not waits] * lasts_ms
        if looks and free:
            capacity.look(now_ms)
            whole, free = sum(free) / len(free), []
        expected = whole
        if expected is None:
            expected = sum(free) / len(free) if free else float(not waits)
        assert abs(capacity.share(now_ms) - expected) < 1e-9


def test_before_it_had_a_turn() -> None:
    capacity = Capacity()
    capacity.look(1000)
    assert capacity.share(2000) == 1.0


def test_a_clock_that_was_set_back_does_no_harm() -> None:
    capacity = Capacity()
    capacity.note(True, 5000)
    capacity.look(4000)
    assert 0.0 <= capacity.share(3000) <= 1.0
    capacity.note(False, 2000)
    assert 0.0 <= capacity.share(6000) <= 1.0


def share_of(node: QuietBroker, ms: int) -> float:
    """Over so long from now on."""
    queue = node.broker.vhosts["/"].queues["q"]
    assert isinstance(queue, Queue)
    queue.measure_capacity(node.now_ms)
    node.tick(ms)
    queue.measure_capacity(node.now_ms)
    return queue.statistics.capacity.share(node.now_ms)


def test_of_a_queue() -> None:
    node = QuietBroker()
    client, consumer = node.client(), node.client()
    client.call("queue.declare", queue="q")
    node.tick(1000)
    assert share_of(node, 1000) == 1.0  # nobody waits for anything
    client.publish("", "q", b"1")
    assert share_of(node, 1000) == 0.0  # for somebody to come
    consumer.call("basic.qos", prefetch_count=1)
    consumer.consume("q")
    assert share_of(node, 1000) == 1.0  # the one that is there is delivered
    client.publish("", "q", b"2")
    assert share_of(node, 1000) == 0.0
    consumer.method(1, "basic.ack", delivery_tag=1, multiple=False)
    assert share_of(node, 1000) == 1.0
    client.publish("", "q", b"3")
    client.call("queue.purge", queue="q")
    assert share_of(node, 1000) == 1.0
