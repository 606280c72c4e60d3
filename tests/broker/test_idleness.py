"""``Idleness``: when a queue has been unused for its ``x-expires``."""

from __future__ import annotations

import pytest

from penstock.broker.topology.idleness import EXPIRED_AT_ONCE, Idleness
from penstock.cluster.remote.queue import RemoteQueue
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.limits import QueueLimits
from penstock.queues.queue import Queue
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.queues import identity


class House:
    """A broker and its queues; ``after`` lets so much time pass and deletes what is unused."""

    def __init__(self) -> None:
        self.broker = QuietBroker().broker
        self.vhost = self.broker.vhosts["/"]
        self.idleness: Idleness = self.broker.idleness

    def declare(self, name: str, expires_ms: int) -> Queue:
        return self.vhost.declare_queue(name, False, None, False, {"x-expires": expires_ms})

    def after(self, ms: int) -> set[str]:
        self.idleness.now_ms += ms
        self.broker.delete_unused()
        return set(self.vhost.queues)


@pytest.fixture
def house() -> House:
    return House()


def test_x_expires_starts_again_with_each_use(house: House) -> None:
    queue = house.declare("q", 1000)
    assert house.after(900) == {"q"}
    house.vhost.touch(queue)
    assert house.after(100) == {"q"}
    assert house.after(899) == {"q"}
    assert house.after(1) == set()


def test_a_queue_in_use_does_not_expire(house: House) -> None:
    queue = house.declare("q", 1000)
    taker = Consumer("c", 1, OutputWindow(), SharedWindow(), True, 0, False, {})
    queue.add_consumer(taker)
    assert house.after(5000) == {"q"}
    queue.remove_consumer(taker)
    house.idleness.now_ms += 1000
    house.vhost.touch(queue)
    assert house.after(999) == {"q"}
    assert house.after(1) == set()


def test_of_many_unused_queues_the_first_go_first(house: House) -> None:
    """Deleting them takes its time, and others wait meanwhile."""
    for number in range(EXPIRED_AT_ONCE + 3):
        house.declare(f"q{number}", 1000 + number)
    assert house.after(5000) == {f"q{EXPIRED_AT_ONCE + number}" for number in range(3)}
    assert house.idleness.is_due()
    assert house.after(0) == set()
    assert not house.idleness.is_due()
    assert house.idleness.next_ms() == 0


def test_a_polled_queue_does_not_fill_the_schedule(house: House) -> None:
    """Each use moves the same date; it must not leave an entry for every one of them."""
    queue = house.declare("q", 3_600_000)
    for _ in range(1000):
        house.idleness.now_ms += 1
        house.vhost.touch(queue)
    schedule = house.idleness.schedule
    assert len(schedule.take_due(schedule.next_ms(), 1000)) == 1
    assert schedule.next_ms() == 0


def test_a_date_that_holds_no_more_is_passed_over(house: House) -> None:
    queue = house.declare("q", 1000)
    queue.set_limits(QueueLimits(expires_ms=3000))
    house.idleness.changed(queue)
    assert house.after(1000) == {"q"}
    queue.set_limits(QueueLimits(expires_ms=500))
    house.idleness.changed(queue)
    assert house.after(499) == {"q"}
    assert house.after(1) == set()
    assert house.after(3000) == set()


def test_a_queue_with_its_master_elsewhere_does_not_expire_here(house: House) -> None:
    who = identity("q", arguments={"x-expires": 1000})
    queue = RemoteQueue(who, house.broker.queue_context)
    house.vhost.enter_queue(queue)
    house.vhost.touch(queue)
    assert house.after(1000) == {"q"}
    assert house.idleness.next_ms() == 0


def test_when_it_was_used_last_is_told_by_the_wall_clock(house: House) -> None:
    queue = house.declare("q", 1000)
    house.after(300)
    assert house.idleness.unused_since_ms(queue, 1_700_000_000_000) == 1_700_000_000_000 - 300
    queue.last_used_ms = 0
    assert house.idleness.unused_since_ms(queue, 1_700_000_000_000) == 0
