"""queueScanLoop: rounds, dirty ones, refreshes and the size of the pool, as nsqd has them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import Message
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.queue import Queue
from penstock.queues.scan_loop import ScanLoop
from tests.helpers.engines import SEGMENT_ENTRIES, quiet_engine
from tests.helpers.queues import local_queue

NOW_MS = 1_000_000
TIMEOUT_MS = 1000
ENGINE = quiet_engine()
DUE_MS = NOW_MS + TIMEOUT_MS


def channel(in_flight: int = 0) -> Queue:
    """With so many messages in flight, all due at ``DUE_MS``."""
    backing = VariableQueue(ENGINE, 1, False, SEGMENT_ENTRIES)
    queue = local_queue(backing)
    assert queue.use_leases()
    leases = queue.leases
    assert leases is not None
    consumer = Consumer("c", None, OutputWindow(), SharedWindow(), False, 0, False, {})
    owner = leases.join(consumer)
    queue.publish([Message(b"x", b"", 0, 0) for _ in range(in_flight)], NOW_MS)
    for message in queue.backing.fetch(in_flight, 1 << 20) if in_flight else []:
        consumer.take(1)
        queue.unacked_count += 1
        leases.grant(owner, message, b"%016x" % message.seq_id, NOW_MS, TIMEOUT_MS)
    return queue


class Lots:
    """Draws as ``random.sample`` does, and counts what it gave."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.drawn: list[list[int]] = []

    def __call__(self, below: int, count: int) -> list[int]:
        self.drawn.append(self.random.sample(range(below), count))
        return self.drawn[-1]


def turns(loop: ScanLoop, now_ms: int) -> int:
    """Until it waits; how many steps that took."""
    for count in range(1, 10_000):
        more = loop.step(now_ms)
        loop.check()
        if not more:
            return count
    raise AssertionError("it never waits")


def test_a_round_looks_at_as_many_as_it_may_and_at_different_ones() -> None:
    lots = Lots()
    loop = ScanLoop(lots, selection_count=3)
    loop.refresh([channel() for _ in range(10)], NOW_MS)
    turns(loop, NOW_MS)
    (drawn,) = lots.drawn
    assert len(set(drawn)) == 3
    assert turns(loop, NOW_MS + 99) == 1, "not before the interval is over"
    assert len(lots.drawn) == 1
    turns(loop, NOW_MS + 100)
    assert len(lots.drawn) == 2


def test_everything_due_at_once_in_few_channels_is_ready_in_one_breath() -> None:
    lots = Lots()
    queues = [channel(in_flight=2) for _ in range(20)]
    loop = ScanLoop(lots)
    loop.refresh(queues, NOW_MS)
    turns(loop, DUE_MS)
    assert [queue.backing.ready_count() for queue in queues] == [2] * 20
    assert [queue.statistics.timed_out_count for queue in queues] == [2] * 20
    assert loop.rounds == 2, "after a dirty round comes another one, which finds nothing"


@pytest.mark.parametrize("dirty, rounds", [(1, 1), (2, 2)])
def test_only_more_than_the_share_makes_a_round_dirty(dirty: int, rounds: int) -> None:
    queues = [channel(in_flight=1) for _ in range(dirty)] + [channel() for _ in range(4 - dirty)]
    loop = ScanLoop(Lots(), dirty_percent=0.25)
    loop.refresh(queues, NOW_MS)
    turns(loop, DUE_MS)
    assert loop.rounds == rounds
    assert loop.last_dirty_share == (dirty / 4 if rounds == 1 else 0), "of the last round"
    assert loop.last_round_ms == 0, "in one breath"


def test_many_channels_due_at_once_leave_some_late() -> None:
    """What the exact way is for."""
    queues = [channel(in_flight=1) for _ in range(400)]
    loop = ScanLoop(Lots())
    loop.refresh(queues, NOW_MS)
    turns(loop, DUE_MS)
    held = sum(1 for queue in queues if queue.backing.ready_count() == 0)
    assert 0 < held < 0.4 * 400, held
    for tick in range(1, 200):
        turns(loop, DUE_MS + 100 * tick)
    assert all(queue.backing.ready_count() == 1 for queue in queues)


def test_a_channel_is_not_known_before_the_next_refresh() -> None:
    late = channel(in_flight=1)
    loop = ScanLoop(Lots())
    loop.refresh([], NOW_MS)
    assert not loop.wants_channels(NOW_MS + 4999)
    turns(loop, NOW_MS + 4999)
    assert late.backing.ready_count() == 0
    assert loop.wants_channels(NOW_MS + 5000)
    loop.refresh([late], NOW_MS + 5000)
    turns(loop, NOW_MS + 5099)
    assert late.backing.ready_count() == 1


@pytest.mark.parametrize(
    "channels, workers",
    [(0, 1), (7, 1), (8, 2), (11, 2), (12, 3), (15, 3), (16, 4), (500, 4)],
)
def test_the_pool_is_a_quarter_of_the_channels(channels: int, workers: int) -> None:
    loop = ScanLoop(Lots())
    loop.refresh([channel()] * channels, NOW_MS)
    assert loop.workers == workers


def test_workers_bound_what_one_turn_looks_at() -> None:
    queues = [channel(in_flight=1) for _ in range(20)]
    loop = ScanLoop(Lots(), worker_pool_max=2)
    loop.refresh(queues, NOW_MS)
    assert loop.step(DUE_MS), "there is more"
    assert sum(queue.backing.ready_count() for queue in queues) == 2


def test_a_deleted_channel_is_left_alone() -> None:
    queue = channel(in_flight=1)
    loop = ScanLoop(Lots())
    loop.refresh([queue], NOW_MS)
    queue.end()
    assert turns(loop, DUE_MS) == 1
    assert queue.statistics.timed_out_count == 0


@given(
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.integers(1, 30),
    st.floats(0.0, 1.0),
    st.integers(1, 8),
)
def test_all_that_is_due_is_found_in_the_end(
    due: list[bool], selection: int, dirty_percent: float, pool: int
) -> None:
    queues = [channel(in_flight=int(one)) for one in due]
    loop = ScanLoop(
        Lots(), selection_count=selection, dirty_percent=dirty_percent, worker_pool_max=pool
    )
    loop.refresh(queues, NOW_MS)
    now_ms = DUE_MS
    while any(queue.leases is not None and queue.leases.count() for queue in queues):
        if loop.wants_channels(now_ms):
            loop.refresh(queues, now_ms)
        turns(loop, now_ms)
        assert loop.next_ms() > now_ms
        now_ms += 100
        assert now_ms < DUE_MS + 1_000_000
    assert [queue.backing.ready_count() for queue in queues] == [int(one) for one in due]
