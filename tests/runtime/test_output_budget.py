"""The share of what may wait for sockets that are not read, and a broker with many of those."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queues.consumers import OutputWindow
from penstock.runtime.output_budget import (
    BUDGET_MOST_BYTES,
    LIMIT_PART,
    READER_LEAST_BYTES,
    SHARE_LEAST_BYTES,
    SHARE_MOST_BYTES,
    OutputBudget,
)
from penstock.storage.engine.ram import RamAccount
from penstock.storage.index.segment_jobs import WriteAccount
from tests.helpers.live_broker import LiveBroker
from tests.helpers.raw_amqp import RawClient
from tests.helpers.slow_consumers import (
    Traffic,
    allow_sockets,
    enter,
    fill,
    publishes,
    resident_bytes,
    sleepers,
)

MB = 1024 * 1024


def budget_of(limit_bytes: int) -> OutputBudget:
    return OutputBudget(RamAccount(limit_bytes, limit_bytes, WriteAccount()))


class Room:
    """Sessions as the queues see them: they deliver while the outlet is open."""

    def __init__(self, count: int, limit_bytes: int) -> None:
        self.ram = RamAccount(limit_bytes, limit_bytes, WriteAccount())
        self.budget = OutputBudget(self.ram)
        self.outlets = [OutputWindow() for _ in range(count)]
        for outlet in self.outlets:
            self.budget.wrote(outlet, 0)  # words of welcome

    def deliver(self, outlet: OutputWindow) -> int:
        """As much as a pass brings, as AmqpChannel counts it."""
        if not outlet.open:
            return 0
        brought = int(min(256 * 1024, outlet.room_bytes()))
        outlet.delivered(brought)
        return brought

    def turn(self, readers: set[int]) -> list[int]:
        """Everybody is delivered to, and written; what readers were brought."""
        brought = [self.deliver(outlet) for outlet in self.outlets]
        for place, outlet in enumerate(self.outlets):
            left = 0 if place in readers else int(outlet.unsent_bytes) + brought[place]
            self.budget.wrote(outlet, left)
            if left == 0:
                outlet.open = True
        self.budget.check(self.outlets)
        return [brought[place] for place in sorted(readers)]

    def tick(self) -> None:
        self.budget.tick()
        for outlet in self.outlets:
            self.budget.limit(outlet)


def test_a_few_have_the_full_share() -> None:
    room = Room(4, 1024 * MB)
    for turn in range(20):
        room.turn({0, 1, 2, 3} if turn < 3 else set())
        room.tick()
    assert room.budget.share_bytes == SHARE_MOST_BYTES
    assert max(outlet.unsent_bytes for outlet in room.outlets) <= SHARE_MOST_BYTES
    assert min(outlet.unsent_bytes for outlet in room.outlets) > SHARE_LEAST_BYTES


@pytest.mark.parametrize("limit_mb", [64, 1024])
@pytest.mark.parametrize("turns_a_tick", [1, 10, 100])
def test_very_many_share_the_budget_and_readers_get_back_to_the_full(
    limit_mb: int, turns_a_tick: int
) -> None:
    room = Room(1000, limit_mb * MB)
    budget = int(room.budget.budget_bytes())
    assert budget == min(BUDGET_MOST_BYTES, limit_mb * MB // LIMIT_PART)
    readers = {3, 500, 999}
    brought = []
    for _ in range(10):
        for _ in range(turns_a_tick):
            brought = room.turn(readers)
        room.tick()
    assert room.budget.unsent_bytes <= budget + 1000 * SHARE_LEAST_BYTES
    assert room.ram.output_bytes == room.budget.unsent_bytes
    assert min(brought) >= SHARE_LEAST_BYTES
    assert min(brought) >= READER_LEAST_BYTES, "they have read for long"


def test_those_who_were_idle_begin_small() -> None:
    room = Room(1000, 1024 * MB)
    everybody = set(range(1000))
    for _ in range(5):
        room.turn({0})
        room.tick()
    for outlet in room.outlets:
        room.budget.wrote(outlet, 0)
        outlet.open = True
    for _ in range(3):
        room.tick()
    assert sum(room.turn(everybody)) == 1000 * SHARE_LEAST_BYTES


@given(
    limit_mb=st.sampled_from([0, 1, 64, 4096]),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3 * MB), st.booleans(), st.booleans()),
        max_size=60,
    ),
)
def test_the_sum_is_kept(limit_mb: int, steps: list[tuple[int, int, bool, bool]]) -> None:
    outlets = [OutputWindow() for _ in range(6)]
    budget = budget_of(limit_mb * MB)
    for place, left, busy, tick in steps:
        outlets[place].busy = busy
        budget.wrote(outlets[place], left)
        budget.check(outlets)
        if busy:
            assert outlets[place].limit_bytes >= budget.share_bytes
        if tick:
            budget.tick()
            budget.check(outlets)


def test_sessions_that_only_get_confirms_take_no_share() -> None:
    budget = budget_of(1024 * MB)
    for _ in range(5000):
        budget.wrote(OutputWindow(), 0)
    budget.tick()
    assert budget.share_bytes == SHARE_MOST_BYTES


# -- on a running broker ---------------------------------------------------------------------

SLOW = 200
FILLED_BYTES = 60_000_000


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    allow_sockets()
    with LiveBroker(tmp_path / "broker", ("--vm-memory-high-watermark", str(384 * MB))) as own:
        yield own


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param(1000, marks=pytest.mark.long), 100_000])
def test_consumers_that_never_read_cost_little_and_nobody_else_anything(
    live: LiveBroker, size: int
) -> None:
    """They share a full queue; the growth is bounded by the budget, an eighth of the limit, and
    64 KiB or one message for each.  It was 512 KiB and more.
    """
    fill(live.url, "full", FILLED_BYTES // size, size)
    with Traffic(live.url, 4, 1000) as traffic:
        traffic.rate(0.5)
        alone = traffic.per_processor_second(2.0, live.pid)
        before = resident_bytes(live.pid)
        with sleepers(live.url, ["full"] * SLOW):
            time.sleep(1.0)
            beside = max(traffic.per_processor_second(1.0, live.pid) for _ in range(3))
            grown = resident_bytes(live.pid) - before
    assert grown <= 32 * MB + SLOW * (64 * 1024 + size) + 24 * MB
    assert beside >= 0.5 * alone


AT_REST = 100
BURST_BYTES = 300_000


def test_connections_at_rest_keep_nothing_of_their_bursts(live: LiveBroker) -> None:
    """Each kept what it was sent last, and the buffer this was written to: 60 MB of a hundred.

    Two hundred, one half after the other: what the first let go, which the allocator may keep, is
    enough for the second.
    """
    publisher = enter(live.url)
    publisher.call(1, "queue.declare", queue="burst")
    resting: list[RawClient] = []

    def took_one() -> RawClient:
        client = enter(live.url)
        publisher.sock.sendall(publishes("burst", 1, BURST_BYTES))
        publisher.call(1, "queue.declare", queue="burst", passive=True)
        client.send(1, "basic.get", queue="burst", no_ack=True)
        assert len(client.receive_quietly().body) == BURST_BYTES
        return client

    def resident_with_more() -> int:
        resting.extend(took_one() for _ in range(AT_REST))
        time.sleep(3.0)  # a buffer goes at the second look that finds it unused
        return resident_bytes(live.pid)

    before = resident_with_more()
    grown = resident_with_more() - before
    for client in (publisher, *resting):
        client.close_socket()
    assert grown < 30 * MB, grown
