"""Requeue to the tail, and delays: what a crash and a clean stop leave.

Random lives of both, among everything else, are in tests/simulation/engine_lives.py.
"""

from __future__ import annotations

import random

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import ATTEMPTS_SHIFT, REDELIVERED
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

QUEUE_ID = 7
SIZES = (5, 50, 400)
EVERYTHING = 1 << 40


def opened(files: SimFileSystem, *, paging: int = 1 << 40) -> OpenEngine:
    return OpenEngine(
        files,
        {QUEUE_ID: 16},
        limits(embed=200, journal=8000, paging=paging),
        journal_file_bytes=4000,
        store_file_bytes=3000,
    )


def bodies(queue: VariableQueue) -> list[bytes]:
    found = queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
    return [one.content.partition(b":")[0] for one in found]


def fill(queue: VariableQueue, count: int, size: int = 5) -> None:
    queue.publish([message(b"%d:" % i + b"x" * size) for i in range(count)], 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("committed", [False, True])
def test_moved_to_the_tail_it_is_there_once(size: int, committed: bool) -> None:
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 4, size)
    one.commit()
    first = queue.fetch(1, 1)
    first[0].flags += 3 << ATTEMPTS_SHIFT
    queue.rare().moves.requeue_to_tail(first, 2)
    queue.check()
    assert first[0].seq_id == queue.records.next_seq_id - 1
    assert bodies(queue) == [b"1", b"2", b"3", b"0"]
    if committed:
        one.commit()
    one.work(3)
    files.power_cut(random.Random(1))
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    if not committed:
        assert sorted(bodies(queue)) == [b"0", b"1", b"2", b"3"]
        return
    assert bodies(queue) == [b"1", b"2", b"3", b"0"]
    queue.await_head()
    last = queue.fetch(4, EVERYTHING)[-1]
    assert last.flags >> ATTEMPTS_SHIFT == 3
    assert last.flags & REDELIVERED


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ending", ["kill", "power", "clean"])
def test_a_delay_survives(size: int, ending: str) -> None:
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 6, size)
    queue.delay(queue.fetch(4, EVERYTHING)[1:3], 500)
    queue.check()
    one.commit()
    if ending == "clean":
        one.close_cleanly()
    elif ending == "power":
        files.power_cut(random.Random(2))
    else:
        files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    queue.check()
    assert bodies(queue) == [b"0", b"3", b"4", b"5"]
    assert queue.count_delayed() == 2
    assert queue.next_due_ms() == 500
    assert queue.release_due(499, EVERYTHING) == 0
    assert queue.release_due(500, EVERYTHING) == 2
    queue.check()
    assert bodies(queue) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert queue.next_due_ms() == 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize("ending", ["none", "kill", "power", "clean"])
def test_what_is_due_may_go_to_the_tail(size: int, rests: bool, ending: str) -> None:
    """From memory or from a segment; a crash finds it once, behind all others."""
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 6, size)
    queue.delay(queue.fetch(4, EVERYTHING)[1:3], 500)
    one.commit()
    if rests:
        one.close_cleanly()
        one = opened(files)
        queue = one.queues[QUEUE_ID]
    assert queue.delays.release_to_tail(499, EVERYTHING) == 0
    assert queue.delays.release_to_tail(500, EVERYTHING) == 2
    queue.check()
    one.commit()
    assert queue.delays.release_to_tail(queue.next_due_ms(), EVERYTHING) == 0
    queue.check()
    one.commit()
    if ending == "clean":
        one.close_cleanly()
    elif ending == "power":
        files.power_cut(random.Random(2))
    elif ending == "kill":
        files.kill()
    if ending != "none":
        one = opened(files)
        queue = one.queues[QUEUE_ID]
    queue.check()
    there = ["0", "3"] if rests or ending != "none" else []
    assert bodies(queue) == [name.encode() for name in [*there, "4", "5", "1", "2"]]
    assert queue.count_delayed() == 0
    assert queue.next_due_ms() == 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rests", [False, True], ids=["in the journal", "in a segment"])
@pytest.mark.parametrize("committed", [False, True], ids=["lost", "synced"])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_a_crash_right_after_the_release_to_the_tail_finds_each_once(
    size: int, rests: bool, committed: bool, power: bool
) -> None:
    """At the old place with its time, or behind all others (D7 of the review)."""
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 3, size)
    queue.publish_delayed([message(b"%d:" % i + b"x" * size) for i in (8, 9)], 500, 1)
    one.commit()
    if rests:
        one.close_cleanly()
        one = opened(files)
        queue = one.queues[QUEUE_ID]
    assert queue.delays.release_to_tail(500, EVERYTHING) == 2
    assert queue.count_delayed() == 0
    queue.check()
    if committed:
        one.commit()
    if power:
        files.power_cut(random.Random(3))
    else:
        files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    queue.check()
    if committed:
        assert queue.count_delayed() == 0
        assert bodies(queue) == [b"0", b"1", b"2", b"8", b"9"]
        return
    assert [due_ms for due_ms, _, _ in queue.tiers.delayed.page(0, -1, 9)] == [500, 500]
    assert bodies(queue) == [b"0", b"1", b"2"]
    assert queue.delays.release_to_tail(500, EVERYTHING) == 2
    one.commit()
    files.kill()
    one = opened(files)
    assert bodies(one.queues[QUEUE_ID]) == [b"0", b"1", b"2", b"8", b"9"]


def test_what_was_never_handed_out_is_not_marked_at_the_tail() -> None:
    one = opened(SimFileSystem())
    queue = one.queues[QUEUE_ID]
    queue.publish_delayed([message(b"0:x")], 500, 1)
    fill(queue, 1)
    queue.delay(queue.fetch(1, 1), 500)
    assert queue.delays.release_to_tail(500, EVERYTHING) == 2
    assert [bool(one.flags & REDELIVERED) for one in queue.fetch(2, EVERYTHING)] == [False, True]
    queue.check()


def test_a_purge_goes_around_what_is_delayed() -> None:
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 40)
    queue.delay(queue.fetch(8, EVERYTHING)[4:6], 500)
    one.commit()
    files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    assert queue.purge() == 38
    queue.check()
    one.commit()
    files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    assert queue.ready_count() == 0
    assert queue.release_due(500, EVERYTHING) == 2
    assert bodies(queue) == [b"4", b"5"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ending", ["none", "kill", "power", "clean"])
def test_published_for_later_it_is_not_ready_before(size: int, ending: str) -> None:
    """Its place and its time are in one group: a crash finds both or neither."""
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 2, size)
    place = queue.records.next_seq_id
    queue.publish_delayed([message(b"9:" + b"x" * size)], 500, 1)
    queue.publish([message(b"2:" + b"x" * size)], 2)
    queue.check()
    one.commit()
    if ending == "clean":
        one.close_cleanly()
    elif ending == "power":
        files.power_cut(random.Random(2))
    elif ending == "kill":
        files.kill()
    if ending != "none":
        one = opened(files)
        queue = one.queues[QUEUE_ID]
    assert bodies(queue) == [b"0", b"1", b"2"]
    assert queue.tiers.delayed.page(0, -1, 9) == [(500, place, size + 2)]
    assert queue.tiers.delayed.page(500, place, 9) == []
    assert queue.release_due(500, EVERYTHING) == 1
    queue.check()
    assert bodies(queue) == [b"0", b"1", b"9", b"2"]
    queue.await_head()
    seen = [bool(one.flags & REDELIVERED) for one in queue.fetch(4, EVERYTHING)]
    assert seen == [ending in ("kill", "power")] * len(seen)


def test_many_are_released_some_at_a_time() -> None:
    one = opened(SimFileSystem())
    queue = one.queues[QUEUE_ID]
    for i in range(10):
        queue.publish_delayed([message(b"%d:" % i)], 100 - i, 1)
    assert queue.release_due(200, 4) == 4
    assert bodies(queue) == [b"6", b"7", b"8", b"9"]
    assert queue.next_due_ms() == 95
    assert queue.release_due(200, EVERYTHING) == 6
    assert queue.next_due_ms() == 0


@pytest.mark.parametrize("size", SIZES)
def test_what_was_cancelled_or_dropped_never_comes_back(size: int) -> None:
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    first = queue.records.next_seq_id
    queue.publish_delayed([message(b"%d:" % i + b"x" * size) for i in range(4)], 500, 1)
    one.commit()
    assert queue.delays.cancel_delayed(first + 1)
    assert not queue.delays.cancel_delayed(first + 1)
    one.commit()
    files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    assert [seq_id for _, seq_id, _ in queue.tiers.delayed.page(0, -1, 9)] == [
        first,
        first + 2,
        first + 3,
    ]
    assert queue.drop_delayed() == 3
    queue.check()
    one.settle(1)
    assert one.engine.store.statistics()["references"] == 0
    assert one.engine.ram.used_bytes() == 0
    files.kill()
    one = opened(files)
    assert one.queues[QUEUE_ID].count_delayed() == 0


@pytest.mark.parametrize("size", SIZES)
def test_what_was_taken_is_delayed_again_after_a_crash(size: int) -> None:
    """Until it is acknowledged; a start has read nothing of it, taking it does."""
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    queue.publish_delayed([message(b"%d:" % i + b"x" * size) for i in range(4)], 500, 1)
    one.commit()
    for left in (4, 3):
        files.kill()
        one = opened(files)
        queue = one.queues[QUEUE_ID]
        taken = queue.delays.take_delayed(9, EVERYTHING)
        assert len(taken) == left
        assert all(len(one.content) == size + 2 and until == 500 for one, until in taken)
        assert queue.count_delayed() == 0
        queue.check()
        queue.ack([taken[0][0]])
        queue.check()
        one.commit()


def test_what_is_published_for_later_rests_only_when_its_time_is_on_disk() -> None:
    """Else a kill would find it ready: the segment has it, and the journal knows of no delay."""
    files = SimFileSystem()
    one = opened(files, paging=8)
    queue = one.queues[QUEUE_ID]
    queue.publish_delayed([message(b"%d:" % i) for i in range(4)], 500, 1)
    for _ in range(5):
        one.work(1)
        one.run_jobs()
    files.kill()
    one = opened(files, paging=8)
    queue = one.queues[QUEUE_ID]
    assert bodies(queue) == []
    queue.publish_delayed([message(b"%d:" % i) for i in range(4)], 500, 1)
    one.commit()
    one.settle(1)
    queue.check()
    assert one.engine.ram.queued_bytes == 4 * MESSAGE_OVERHEAD_BYTES, "now it rests"
    files.kill()
    queue = opened(files).queues[QUEUE_ID]
    assert queue.count_delayed() == 4


def test_what_is_delayed_holds_up_no_paging() -> None:
    """One that is due in a year, behind a long backlog: the backlog rests all the same."""
    one = opened(SimFileSystem())
    queue = one.queues[QUEUE_ID]
    fill(queue, 300)
    queue.publish_delayed([message(b"900:")], 500, 1)
    fill(queue, 300)
    one.commit()
    one.engine.ram.paging_bytes = 8
    one.settle(1)
    queue.check()
    assert queue.tiers.delta_count > 400
    assert queue.release_due(500, EVERYTHING) == 1
    queue.check()
    found = bodies(queue)
    assert (len(found), found[300]) == (601, b"900")
