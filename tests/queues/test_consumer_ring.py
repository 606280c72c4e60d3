"""Consumers in turn: those without room stand aside, and the order of service is kept."""

from __future__ import annotations

import pytest

from penstock.core.message import Message
from penstock.queues.allocator import (
    CROWD,
    DELIVER_BYTES_MAX,
    DELIVERIES_AT_ONCE,
    TOGETHER_MOST,
)
from penstock.queues.consumers import SPARE, Consumer, ConsumerRing, OutputWindow, SharedWindow
from penstock.queues.limits import DROP_HEAD, REJECT_PUBLISH, QueueLimits
from penstock.queues.local import LocalQueue
from tests.helpers.engines import transient_backing
from tests.helpers.queues import identity, new_context
from tests.queues.test_queue import NOW_MS, Hall, consumer, tags


def crowd(hall: Hall, count: int, prefetch: int = 1, **more: object) -> list[Consumer]:
    takers = [consumer(str(number), prefetch, **more) for number in range(count)]
    for taker in takers:
        hall.queue.add_consumer(taker)
    return takers


def test_consumers_without_room_are_out_of_turn_until_they_settle() -> None:
    hall = Hall()
    takers = crowd(hall, 5)
    hall.publish(8)
    dealt = hall.deliveries()
    assert tags(dealt) == list("01234")
    assert [taker.resting for taker in takers] == [True] * 5
    for at in (3, 1):
        hall.queue.settle(takers[at], [dealt[at][1]])
    hall.queue.check()
    assert [taker.resting for taker in takers] == [True, False, True, False, True]
    assert tags(hall.deliveries()) == list("31"), "in the order in which they settled"
    hall.queue.check()


def test_of_more_consumers_than_a_pass_serves_none_gets_two_before_all_had_one() -> None:
    hall = Hall()
    count = DELIVERIES_AT_ONCE + 100
    crowd(hall, count, 3)
    hall.publish(2 * count - 1)
    hall.wakeups.clear()
    first = hall.queue.deliver(NOW_MS)
    assert sum(len(one.messages) for one in first) == DELIVERIES_AT_ONCE
    assert hall.queue in hall.wakeups
    rest = tags(hall.deliveries())
    assert [int(tag) for tag in rest[:100]] == list(range(DELIVERIES_AT_ONCE, count))
    assert [int(tag) for tag in rest[100:]] == list(range(count - 1))


def test_of_a_backlog_for_all_each_of_a_crowd_gets_some_together() -> None:
    """Each delivery is a write; none gets nothing, and none much more than another."""
    hall = Hall()
    takers = crowd(hall, 2 * CROWD, TOGETHER_MOST + 1)
    hall.publish(len(takers) * TOGETHER_MOST, DELIVER_BYTES_MAX // len(takers))
    hall.wakeups.clear()
    first = hall.queue.deliver(NOW_MS)
    assert [len(one.messages) for one in first] == [TOGETHER_MOST] * (len(takers) // TOGETHER_MOST)
    hall.deliveries()
    held = [taker.outstanding for taker in takers]
    assert sum(held) == len(takers) * TOGETHER_MOST
    assert min(held) > 0
    assert max(held) - min(held) <= TOGETHER_MOST
    hall.queue.check()


def test_a_pass_looks_at_no_more_of_a_crowd_than_it_has_messages_for() -> None:
    hall = Hall()
    takers = crowd(hall, 10 * CROWD, 1)
    hall.publish(len(takers), DELIVER_BYTES_MAX // CROWD)
    hall.wakeups.clear()
    first = hall.queue.deliver(NOW_MS)
    assert [one.consumer for one in first] == takers[:CROWD]
    assert [one for one in takers if one.resting] == []
    assert len(tags(hall.deliveries())) == len(takers) - CROWD
    hall.queue.check()


def test_a_pass_for_consumers_of_one_channel_is_short() -> None:
    """They get each message in a delivery of its own."""
    hall = Hall()
    crowd(hall, 2, 0, holder="one")
    hall.publish(DELIVERIES_AT_ONCE + 10)
    hall.wakeups.clear()
    dealt = hall.queue.deliver(NOW_MS)
    assert [int(one.messages[0].seq_id) for one in dealt] == list(range(DELIVERIES_AT_ONCE))
    assert len(hall.deliveries()) == 10


def test_lower_priorities_get_what_higher_ones_cannot_take() -> None:
    hall = Hall()
    takers = []
    for number in range(30):
        taker = Consumer(
            str(number), number, OutputWindow(), SharedWindow(), False, 2, False, {}, number % 10
        )
        takers.append(taker)
        hall.queue.add_consumer(taker)
    hall.publish(25)
    dealt = hall.deliveries()
    by_priority = [int(tag) % 10 for tag in tags(dealt)]
    assert by_priority == sorted(by_priority, reverse=True)
    assert by_priority[:18] == [9] * 6 + [8] * 6 + [7] * 6
    held = next(message for taker, message in dealt if taker is takers[9])
    hall.queue.settle(takers[9], [held])
    hall.queue.check()
    hall.publish(1)
    assert tags(hall.deliveries()) == ["9"], "the highest has room again"
    for taker in takers:
        hall.queue.remove_consumer(taker)
    hall.queue.check()


def test_the_next_single_active_consumer_is_the_first_of_the_highest_priority() -> None:
    context = new_context()
    named = identity(arguments={"x-single-active-consumer": True})
    queue = LocalQueue(named, transient_backing(), context)
    takers = [
        Consumer(str(n), n, OutputWindow(), SharedWindow(), False, 1, False, {}, priority)
        for n, priority in enumerate((0, 5, 3, 5, 0))
    ]
    for taker in takers:
        queue.add_consumer(taker)
    seen = []
    while (active := queue.active_consumer()) is not None:
        seen.append(active.tag)
        queue.remove_consumer(active)
        queue.check()
    assert seen == ["0", "1", "3", "2", "4"]


def test_a_consumer_that_is_left_alone_gets_all() -> None:
    hall = Hall()
    first, second = crowd(hall, 2, 0)
    hall.queue.remove_consumer(first)
    hall.publish(5)
    assert [len(one.messages) for one in hall.queue.deliver(NOW_MS)] == [5]
    hall.queue.add_consumer(consumer("third"))
    hall.publish(4)
    assert tags(hall.deliveries()) == ["1", "third"] * 2
    assert second.outstanding == 7


def test_consumers_that_come_and_go_leave_nothing_in_the_ring() -> None:
    ring = ConsumerRing()
    for number in range(2000):
        taker = consumer(str(number))
        ring.add(taker)
        if number >= 10:
            taker.cancel()
            ring.cancel_one()
    assert len(ring.in_turn()) == 10
    assert len(ring._turns) < 2 * 10 + 2 * SPARE


def test_room_in_a_shared_window_comes_to_consumers_that_found_none() -> None:
    """A drop in between looks for room while there is none yet."""
    hall = Hall()
    hall.queue.set_limits(QueueLimits(max_length=3))
    shared = SharedWindow()
    takers = crowd(hall, 3, 0, shared=shared, holder="one")
    hall.publish(3, 20)
    dealt = hall.deliveries()
    shared.change(1)
    hall.publish(4, 20)
    assert hall.deliveries() == []
    assert hall.queue.backing.ready_count() == 3
    for taker, message in dealt:
        hall.queue.requeue({taker: [message]}, False, NOW_MS)
    for taker in takers:
        hall.queue.room_came(taker)
    assert len(hall.deliveries()) == 1
    hall.queue.check()


@pytest.mark.parametrize("refuses", [True, False])
def test_what_consumers_take_needs_no_room(refuses: bool) -> None:
    hall = Hall()
    overflow = REJECT_PUBLISH if refuses else DROP_HEAD
    hall.queue.set_limits(QueueLimits(max_length=2, overflow=overflow))
    crowd(hall, 3, 2)
    messages = [Message(b"x" * 20, b"", 0, 0) for _ in range(10)]
    if refuses:
        assert hall.queue.overflowing(messages) == {8, 9}
        del messages[8:]
    hall.queue.publish(messages, NOW_MS)
    assert not refuses or hall.queue.overflowing(messages[:1]) == {0}, "they are taken already"
    assert tags(hall.deliveries()) == list("012012")
    assert hall.queue.backing.ready_count() == 2
    assert hall.queue.dropped_count() == (0 if refuses else 2)
