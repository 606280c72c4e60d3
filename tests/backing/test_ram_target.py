"""Rates, durations, and which messages leave memory first (rules VQ-21 to VQ-27)."""

from __future__ import annotations

import math

import pytest

from penstock.backing.ram_target import HALF_LIFE_S, Rates
from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import Message
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 64


class Clocked:
    """A queue whose rates are brought up to date once a second."""

    def __init__(self, embed: int = 1 << 20) -> None:
        self.one = OpenEngine(SimFileSystem(), {1: ENTRIES}, limits(embed=embed))
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
        return int(self.queue.tiers.ram_count + self.queue.tiers.pending.ram_count)

    def held(self) -> int:
        return len(self.queue.reads.read_range(0, 1 << 40, 1 << 40, 1 << 40))


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


# -- what the memory monitor asks ------------------------------------------------------------


def test_what_is_handed_out_and_acknowledged_is_what_leaves() -> None:
    """Content and overhead, once on each of the two ways; what comes in does not count."""
    node = Clocked()
    node.publish(1000)
    node.second()
    assert node.queue.byte_rate() == 0
    assert node.queue.tiers.rates.duration_s(node.queue.ram_bytes()) == math.inf
    taken = node.fetch(500)
    node.queue.unfetch(taken[100:])
    assert node.queue.tiers.rates.left_bytes == 100 * 300
    node.queue.ack(taken[:100])
    assert node.queue.tiers.rates.left_bytes == 2 * 100 * 300
    for _ in range(60):
        taken = node.fetch(10)
        node.queue.ack(taken)
        node.second()
    assert node.queue.byte_rate() == pytest.approx(10 * 300, rel=0.01)


def test_how_long_what_is_in_memory_lasts() -> None:
    rates = Rates()
    assert rates.duration_s(1000) == math.inf
    rates.left_rate = 400.0
    assert rates.duration_s(1000) == pytest.approx(5.0)
    rates.left_rate = 1.9
    assert rates.duration_s(1000) == math.inf, "not a byte in a second"


# -- VQ-25 to VQ-28 ------------------------------------------------------------------------


@pytest.mark.parametrize("acks_grow", [True, False])
def test_what_grows_faster_leaves_first(acks_grow: bool) -> None:
    """Net growth decides: acknowledgements due less those given, against in less out."""
    node = Clocked(embed=100)
    node.publish(400)
    node.fetch(200)
    rates = node.queue.tiers.rates
    rates.ack_in_rate, rates.ack_out_rate = (50.0, 10.0) if acks_grow else (50.0, 45.0)
    rates.in_rate, rates.out_rate = 60.0, 50.0
    node.queue.page(node.queue.ram_bytes() - 50 * 100, 50)
    pending = int(node.queue.tiers.pending.ram_count)
    alphas = int(node.queue.tiers.q1.count() + node.queue.tiers.q4.count())
    assert (pending, alphas) == ((150, 200) if acks_grow else (200, 150))
    node.queue.check()


def test_the_youngest_pending_messages_leave_memory_first() -> None:
    node = Clocked()
    node.publish(100)
    taken = node.fetch(100)
    node.queue.page(node.queue.ram_bytes() - 40 * 100, 40)
    assert [len(one.content) > 0 for one in taken] == [True] * 60 + [False] * 40
    node.queue.check()
