"""Rates, durations and what a duration target makes of memory (rules VQ-21 to VQ-30)."""

from __future__ import annotations

import math

import pytest

from penstock.backing.paging import IO_BATCH_MESSAGES
from penstock.backing.ram_target import HALF_LIFE_S, INFINITE, Rates
from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import Message
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 64


class Clocked:
    """A queue whose rates are brought up to date once a second."""

    def __init__(self) -> None:
        self.one = OpenEngine(SimFileSystem(), {1: ENTRIES}, limits(embed=1 << 20))
        self.queue: VariableQueue = self.one.queues[1]
        self.now_ms = 1000
        self.queue.tick(self.now_ms)

    def second(self) -> None:
        self.now_ms += 1000
        self.queue.tick(self.now_ms)

    def publish(self, count: int) -> None:
        self.queue.publish([message(b"x" * 100) for _ in range(count)], self.now_ms)
        self.one.commit()

    def fetch(self, count: int) -> list[Message]:
        return self.queue.fetch(count, 1 << 30)

    def in_ram(self) -> int:
        return int(self.queue._ram_count + self.queue.pending.ram_count)

    def held(self) -> int:
        return len(self.queue.read_range(0, 1 << 40, 1 << 40, 1 << 40))


# -- VQ-21 ---------------------------------------------------------------------------------


def test_a_rate_has_gone_half_of_the_way_after_a_half_life() -> None:
    rates = Rates()
    rates.update(1000)
    rates.in_count = 500
    rates.update(1000 + int(HALF_LIFE_S * 1000))
    assert rates.in_rate == pytest.approx(500 / HALF_LIFE_S / 2)
    rates.update(1000 + int(2 * HALF_LIFE_S * 1000))
    assert rates.in_rate == pytest.approx(500 / HALF_LIFE_S / 4)


def test_how_often_somebody_looks_does_not_matter_much() -> None:
    rare, often = Rates(), Rates()
    for rates, step_ms in ((rare, 2500), (often, 250)):
        for now_ms in range(1000, 11_001, step_ms):
            rates.out_count = (now_ms - 1000) // 10
            rates.update(now_ms)
    assert rare.out_rate == pytest.approx(often.out_rate, rel=0.01)
    assert often.out_rate == pytest.approx(75, rel=0.01)


def test_a_clock_that_goes_back_spoils_no_rate() -> None:
    rates = Rates()
    rates.update(10_000)
    rates.in_count = 100
    rates.update(5000)
    rates.update(6000)
    assert 0 < rates.in_rate <= 100


# -- VQ-22, VQ-23 --------------------------------------------------------------------------


def test_how_long_what_is_in_memory_lasts() -> None:
    """Twice the messages over the sum of the rates: half of it leaves, half of it comes."""
    rates = Rates()
    assert rates.duration_s(1000) == math.inf
    rates.in_rate = rates.out_rate = 100.0
    assert rates.duration_s(1000) == pytest.approx(10.0)
    rates.ack_in_rate = rates.ack_out_rate = 100.0
    assert rates.duration_s(1000) == pytest.approx(5.0)
    rates.in_rate = rates.out_rate = rates.ack_in_rate = rates.ack_out_rate = 0.009
    assert rates.duration_s(1000) == math.inf


def test_a_target_is_the_duration_times_the_rates() -> None:
    rates = Rates()
    rates.in_rate, rates.out_rate = 30.0, 20.5
    assert rates.target_for(2.0) == 101
    assert rates.target_for(0.0) == 0
    assert rates.target_for(math.inf) == INFINITE


def test_a_lower_target_reduces_memory_at_once() -> None:
    node = Clocked()
    node.publish(3 * IO_BATCH_MESSAGES)
    node.second()
    before = node.in_ram()
    node.queue.set_duration_target(1.0)
    target = int(node.queue.target_ram_count)
    assert 0 < target < before
    reached = node.in_ram()
    assert reached <= before - IO_BATCH_MESSAGES
    node.queue.check()
    node.queue.set_duration_target(0.0)
    assert node.queue.target_ram_count == 0
    assert node.in_ram() < reached
    node.queue.check()
    node.one.settle(node.now_ms)
    assert node.held() == 3 * IO_BATCH_MESSAGES


def test_a_higher_target_brings_nothing_back_and_takes_nothing_away() -> None:
    node = Clocked()
    node.publish(1000)
    node.second()
    node.queue.set_duration_target(1.0)
    kept = node.in_ram()
    node.queue.set_duration_target(3.0)
    assert node.in_ram() == kept
    node.queue.set_duration_target(math.inf)
    assert node.queue.target_ram_count == INFINITE
    assert node.in_ram() == kept
    node.publish(500)
    assert node.in_ram() == kept + 500


# -- VQ-25 to VQ-28 ------------------------------------------------------------------------


@pytest.mark.parametrize("acks_grow", [True, False])
def test_what_grows_faster_leaves_first(acks_grow: bool) -> None:
    """Net growth decides: acknowledgements due less those given, against in less out."""
    node = Clocked()
    node.publish(400)
    node.fetch(200)
    rates = node.queue.rates
    rates.ack_in_rate, rates.ack_out_rate = (50.0, 10.0) if acks_grow else (50.0, 45.0)
    rates.in_rate, rates.out_rate = 60.0, 50.0
    node.queue.target_ram_count = 350
    node.queue.reduce_memory_use(10_000)
    pending = int(node.queue.pending.ram_count)
    alphas = int(node.queue.q1.count() + node.queue.q4.count())
    assert (pending, alphas) == ((150, 200) if acks_grow else (200, 150))
    node.queue.check()


def test_the_youngest_pending_messages_leave_memory_first() -> None:
    node = Clocked()
    node.publish(100)
    taken = node.fetch(100)
    node.queue.target_ram_count = 60
    node.queue.reduce_memory_use(10_000)
    assert [len(one.content) > 0 for one in taken] == [True] * 60 + [False] * 40
    node.queue.check()


def test_permitted_betas() -> None:
    node = Clocked()
    queue = node.queue
    assert queue.permitted_betas() == INFINITE, "no target"
    node.publish(1000)
    queue._push_alphas(1000 - 64)
    betas = int(queue.ready_count() - queue.q1.count() - queue.q4.count())
    queue.target_ram_count = 100
    assert queue.permitted_betas() == betas - betas * betas // (betas + 100)
    queue.target_ram_count = 1
    assert queue.permitted_betas() == ENTRIES, "a segment at least"
    queue.target_ram_count = 0
    assert queue.permitted_betas() == min(int(queue.q3.count()), ENTRIES)
    queue.set_mode(True)
    queue.target_ram_count = 100
    assert queue.permitted_betas() == 100, "lazy: the target itself"


def test_betas_become_delta_in_batches_only() -> None:
    node = Clocked()
    queue = node.queue
    node.publish(IO_BATCH_MESSAGES - 10)
    queue.target_ram_count = 1
    queue.reduce_memory_use(1 << 30)
    assert queue.delta_count == 0
    assert queue.q3.count() > 0
    node.publish(2 * IO_BATCH_MESSAGES)
    queue.reduce_memory_use(1 << 30)
    assert queue.delta_count > 0
    assert queue.q3.count() >= 64, "the head stays"
    queue.check()
    node.one.settle(node.now_ms)
    assert node.held() == 3 * IO_BATCH_MESSAGES - 10
