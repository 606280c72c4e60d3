"""What the engine's housekeeping visits: queues that move, and a bounded slice of all others."""

from __future__ import annotations

import pytest

from penstock.backing.ram_target import Rates
from penstock.backing.variable_queue import VariableQueue
from penstock.storage.engine.engine import HOUSEKEEPING_MS
from penstock.storage.engine.garbage import LOOKED_AT_ONCE
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

QUEUES = 10_000
STEP_MS = int(HOUSEKEEPING_MS)
SOON_MS = 600_000
"""In that time every rate has come to 0."""


class Housed:
    """An engine of many queues, and how many of them its ticks visit."""

    def __init__(self, queues: int = QUEUES, entries: int = 32_768) -> None:
        numbers = dict.fromkeys(range(1, queues + 1), 64)
        self.one = OpenEngine(SimFileSystem(), numbers, limits(entries=entries))
        self.engine = self.one.engine
        self.queues = self.one.queues
        self.now_ms = 1_000_000

    def tick(self) -> list[int]:
        """One; the ids of those it visited."""
        visited = list(self.engine.moving.by_id)
        self.now_ms += STEP_MS
        self.one.work(self.now_ms)
        self.one.commit()
        self.one.run_jobs()
        self.engine.check()
        return visited

    def rest(self) -> None:
        """Until no queue moves."""
        until_ms = self.now_ms + SOON_MS
        while self.tick():
            assert self.now_ms < until_ms
        for queue in self.queues.values():
            queue.check()

    def publish(self, number: int, count: int = 1) -> None:
        self.queues[number].publish([message(b"x" * 100) for _ in range(count)], self.now_ms)

    def consume(self, number: int, count: int = 1) -> None:
        queue = self.queues[number]
        queue.ack(queue.fetch(count, 1 << 30))


def rates_of(queue: VariableQueue) -> Rates:
    assert queue._parts is not None
    return queue._parts.tiers.rates


def test_a_tick_visits_no_idle_queue_whether_it_was_used_or_not() -> None:
    house = Housed()
    house.rest()
    for number in range(1, 2001):
        house.publish(number, 2)
        house.consume(number)
    assert len(house.tick()) == 2000
    house.rest()
    house.publish(7)
    assert house.tick() == [7]


def test_segments_are_looked_at_in_bounded_slices_and_all_are_counted() -> None:
    house = Housed()
    for number in (1, 5000, QUEUES):
        house.publish(number, 100)
        house.queues[number].flush_safe(1 << 30)
    house.tick()
    house.queues[5000].flush_safe(1 << 30)
    looked = 0
    for _ in range(QUEUES // int(LOOKED_AT_ONCE) + 1):
        before = len(house.engine.garbage._round.queues)
        house.tick()
        after = len(house.engine.garbage._round.queues)
        assert (before or QUEUES) - after <= LOOKED_AT_ONCE
        looked += (before or QUEUES) - after
    assert looked >= QUEUES
    indexes = [queue.index_or_none() for queue in house.queues.values()]
    assert house.engine.garbage.count == sum(len(one.segments) for one in indexes if one) > 0


def test_rates_of_a_queue_that_comes_to_rest_reach_zero() -> None:
    house = Housed(2)
    house.publish(1, 1000)
    house.tick()
    house.consume(1, 900)
    house.tick()
    assert rates_of(house.queues[1]).in_rate > 0
    assert house.queues[1].byte_rate() > 0
    house.rest()
    rates = rates_of(house.queues[1])
    assert (rates.in_rate, rates.out_rate, rates.left_rate) == (0, 0, 0)
    assert (rates.ack_in_rate, rates.ack_out_rate) == (0, 0)
    assert house.queues[1].ready_count() == 100


def test_a_queue_that_moves_again_has_the_rates_of_one_that_was_visited_all_along() -> None:
    house = Housed(2)
    for number in (1, 2):
        house.publish(number, 10)
    house.rest()
    for _ in range(40):
        house.queues[2].tiers  # noqa: B018 -- what only looks may wake it, and changes nothing
        house.tick()
    for _ in range(4):
        for number in (1, 2):
            house.publish(number, 50)
            house.consume(number, 30)
        house.tick()
    one, other = (rates_of(house.queues[number]) for number in (1, 2))
    assert one.in_rate > 10
    assert one.in_rate == pytest.approx(other.in_rate)
    assert one.left_rate == pytest.approx(other.left_rate)


def test_a_queue_with_too_much_in_the_journal_is_visited_until_it_rests_in_segments() -> None:
    house = Housed(2, entries=50)
    house.publish(1, 200)
    assert house.queues[1].journal_only_count() == 200
    house.rest()
    assert house.queues[1].journal_only_count() <= 50
