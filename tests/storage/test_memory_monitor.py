"""One duration for all queues: against brute force, and on an engine with busy and idle ones."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.message import Message
from penstock.storage.engine.memory_monitor import (
    INTERVAL_MS,
    LEAST_TARGET_BYTES,
    MemoryMonitor,
    QueueMemory,
    duration_for,
    least_target,
)
from penstock.storage.engine.resting_queue import RestingQueue
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem


def holding(held_bytes: int, byte_rate: int) -> QueueMemory:
    return QueueMemory(RestingQueue(), held_bytes, byte_rate)


def kept_within(duration: Fraction, queues: list[tuple[int, int]], least: int) -> Fraction:
    return sum(
        (
            min(Fraction(held), max(Fraction(least), duration * max(rate, 1)))
            for held, rate in queues
        ),
        Fraction(0),
    )


def exact_duration(queues: list[tuple[int, int]], kept: int, least: int) -> Fraction:
    """Bends of the sum, all tried; between two of them it is a straight line."""
    bends = {Fraction(part, max(rate, 1)) for held, rate in queues for part in (held, least)}
    before = Fraction(0)
    for bend in sorted(bends):
        if kept_within(bend, queues, least) >= kept:
            low, high = (kept_within(at, queues, least) for at in (before, bend))
            return before + (bend - before) * (kept - low) / (high - low) if high > low else bend
        before = bend
    raise AssertionError("they hold no more")


QUEUES = st.lists(
    st.tuples(st.integers(1, 10**9), st.sampled_from([0, 0, 1, 7, 1000]) | st.integers(0, 10**8)),
    min_size=1,
    max_size=30,
)


@given(queues=QUEUES, share=st.integers(1, 120), paging=st.sampled_from([8, 10**5, 10**10]))
def test_one_duration_for_all(queues: list[tuple[int, int]], share: int, paging: int) -> None:
    monitor = MemoryMonitor()
    total = sum(held for held, _ in queues)
    kept = total * share // 100
    here = [holding(held, rate) for held, rate in queues]
    over = monitor.look(here, kept, paging, 1)
    monitor.check()
    if total <= kept:
        assert over == []
        assert monitor.duration_s == math.inf
        return
    least = least_target(paging, kept, len(queues))
    wanted = exact_duration(queues, kept, least)
    told = Fraction(monitor.duration_s)
    assert abs(kept_within(told, queues, least) - kept) <= Fraction(kept, 10**9) + 1
    assert abs(told - wanted) <= wanted / 10**6 or kept_within(wanted, queues, least) == kept
    excesses = [int(one.excess()) for one in over]
    assert excesses == sorted(excesses), "the furthest over comes last"
    assert all(excess > 0 for excess in excesses)
    assert sum(excesses) >= total - kept - len(queues)


def test_what_moves_keeps_more_than_what_stands_still() -> None:
    busy, slow, idle = holding(1000, 900), holding(1000, 100), holding(1000, 0)
    # 1000 of the busy one, a ninth of it of the slow one: 1.11 s; nothing of the idle one.
    duration_s = duration_for([busy, slow, idle], 1000 + 111 + 1, 0)
    assert 1.1 < duration_s < 1.2


def test_still_ones_share_evenly_what_the_moving_ones_leave() -> None:
    held = [900, 800, 100, 500]
    queues = [holding(each, 0) for each in held]
    queues.append(holding(1000, 10**6))
    monitor = MemoryMonitor()
    over = monitor.look(queues, 2000, 8, 1)
    assert sorted(int(one.target_bytes) for one in over) == [300, 300, 300]
    monitor.check()


def test_the_least_target_fits_however_many_there_are() -> None:
    assert least_target(1 << 30, 1 << 29, 1) == LEAST_TARGET_BYTES
    assert least_target(1 << 20, 1 << 19, 1) == (1 << 20) // 8
    assert least_target(1 << 30, 1 << 29, 100_000) * 100_000 <= (1 << 29) // 4
    assert least_target(1 << 30, 0, 0) == LEAST_TARGET_BYTES


def test_when_somebody_looks() -> None:
    monitor = MemoryMonitor()
    assert monitor.is_due(10_000, False, 3)
    monitor.look([], 1, 1, 10_000)
    assert monitor.is_due(10_000, False, 3), "a few queues at once"
    assert not monitor.is_due(10_000, False, 10_000), "many not"
    assert monitor.is_due(10_700, False, 10_000)
    assert not monitor.is_due(10_000 + INTERVAL_MS - 1, True, 3)
    assert monitor.is_due(10_000 + INTERVAL_MS, True, 3)
    assert monitor.is_due(9000, True, 3), "a clock that went back"


def test_products_of_large_numbers_do_not_run_over() -> None:
    """100 GB of memory, all of it taken."""
    monitor = MemoryMonitor()
    size = 100 * 10**9
    (over,) = monitor.look([holding(size, 10**10)], size * 9 // 10, size, 1)
    assert over.target_bytes == size * 9 // 10


# -- on an engine --------------------------------------------------------------------------

CONTENT = b"x" * 1000
EACH = len(CONTENT) + 200


class Traffic:
    """Queue 0 is busy; the others are filled once and left alone."""

    def __init__(self, idle: int, paging: int) -> None:
        self.node = OpenEngine(
            SimFileSystem(), dict.fromkeys(range(idle + 1), 64), limits(embed=1 << 20)
        )
        self.engine = self.node.engine
        self.engine.ram.paging_bytes = paging
        self.busy = self.node.queues[0]
        self.idle = [self.node.queues[each] for each in range(1, idle + 1)]
        self.now_ms = 1000
        self.taken: list[Message] = []

    def fill(self, queue_id: int, count: int) -> None:
        for start in range(0, count, 50):
            size = min(50, count - start)
            self.node.queues[queue_id].publish([message(CONTENT) for _ in range(size)], self.now_ms)
            self.node.commit()

    def quarter(self, count: int) -> None:
        """A quarter of a second: so many come to the busy queue, and so many are done there."""
        self.now_ms += 250
        self.fill(0, count)
        found = self.busy.fetch(count, 1 << 30)
        self.busy.ack(self.taken)
        self.taken = found
        self.node.settle(self.now_ms)


def test_idle_queues_page_first_and_a_busy_one_stays_in_memory() -> None:
    """A share of the excess for each, by what it holds, would have the busy one page most."""
    traffic = Traffic(10, paging=1 << 40)
    traffic.fill(0, 600)
    for queue_id in range(1, 11):
        traffic.fill(queue_id, 150)
    for _ in range(40):
        traffic.quarter(200)
    held = int(traffic.busy.ram_bytes())
    idle = [int(queue.ram_bytes()) for queue in traffic.idle]
    assert held > 3 * max(idle)
    paging = (held + sum(idle)) * 3 // 4
    traffic.engine.ram.paging_bytes = paging
    for _ in range(40):
        traffic.quarter(200)
        assert traffic.engine.ram.used_bytes() <= paging
        assert traffic.busy.tiers.delta_count == 0
        assert traffic.busy.tiers.q3.count() == 0
    assert int(traffic.busy.ram_bytes()) == held
    paged = [int(queue.tiers.delta_count) for queue in traffic.idle]
    assert sum(paged) * EACH >= held + sum(idle) - paging
    traffic.engine.check()
    traffic.engine.monitor.check()


def test_a_queue_that_only_fills_up_is_not_busy() -> None:
    traffic = Traffic(1, paging=1 << 40)
    traffic.fill(0, 300)
    for _ in range(40):
        traffic.quarter(100)
    held = int(traffic.busy.ram_bytes())
    traffic.engine.ram.paging_bytes = paging = 2 * held
    for _ in range(20):
        traffic.fill(1, 200)
        traffic.quarter(100)
        assert traffic.engine.ram.used_bytes() <= paging
    assert traffic.busy.tiers.delta_count == 0
    assert traffic.idle[0].tiers.delta_count > 0


def test_targets_end_with_the_shortness() -> None:
    traffic = Traffic(1, paging=100_000)
    traffic.fill(1, 500)
    queue = traffic.idle[0]
    for _ in range(20):  # each publish is paged at once, so there is room most of the time
        traffic.node.settle(traffic.now_ms)
        assert traffic.engine.ram.used_bytes() <= 100_000
        assert 80_000 < queue.tiers.target_ram_bytes < 100_000
        traffic.fill(1, 10)
    queue.ack(queue.fetch(30, 1 << 30))
    traffic.node.settle(traffic.now_ms)
    assert traffic.engine.ram.used_bytes() < 80_000
    assert queue.tiers.target_ram_bytes == -1
    assert traffic.engine.monitor.duration_s == math.inf


def test_a_target_follows_what_the_queue_may_keep() -> None:
    """Also that of a queue that holds less than at the look before, and is not paged again."""
    traffic = Traffic(3, paging=100_000)
    first = traffic.idle[0]
    traffic.fill(1, 40)
    traffic.fill(2, 45)
    traffic.node.settle(traffic.now_ms)
    before = first.tiers.target_ram_bytes
    first.ack(first.fetch(15, 1 << 30))
    traffic.fill(3, 30)
    traffic.node.settle(traffic.now_ms)
    (holding,) = [one for one in traffic.engine.monitor._holdings if one.queue is first]
    assert holding.excess() <= 0
    assert first.tiers.target_ram_bytes == holding.target_bytes != before
