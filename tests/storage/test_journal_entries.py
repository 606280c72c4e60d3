"""``queue_index_max_journal_entries``: the journal alone has no more messages of a queue (B10)."""

from __future__ import annotations

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.storage.engine.engine import HOUSEKEEPING_MS
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

QUEUE_ID = 7
MOST = 64
EVERYTHING = 1 << 40


def opened(files: SimFileSystem) -> tuple[OpenEngine, VariableQueue]:
    one = OpenEngine(files, {QUEUE_ID: 16}, limits(embed=200, entries=MOST))
    return one, one.queues[QUEUE_ID]


def fill(queue: VariableQueue, count: int, size: int = 50) -> None:
    queue.publish([message(b"x" * size) for _ in range(count)], 1)


def held(queue: VariableQueue) -> int:
    return len(queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING))


def test_more_than_the_limit_are_written_to_segments() -> None:
    """The file of the journal that has them is far from full."""
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, MOST)
    one.settle(HOUSEKEEPING_MS)
    assert queue.journal_only_count() == MOST
    taken = queue.fetch(10, EVERYTHING)
    fill(queue, 1)
    one.settle(2 * HOUSEKEEPING_MS)
    assert len(one.engine.journal.files) == 1
    assert queue.journal_only_count() == 0
    assert queue.records.index is not None
    assert queue.records.index.live_count == MOST + 1
    queue.check()
    queue.requeue(taken)
    queue.ack(queue.fetch(20, EVERYTHING))
    one.commit()
    files.kill()
    _, queue = opened(files)
    assert held(queue) == MOST + 1 - 20


def test_nothing_is_written_while_the_disk_is_short() -> None:
    one, queue = opened(SimFileSystem())
    one.disk_is_short = True
    fill(queue, MOST + 1)
    one.settle(HOUSEKEEPING_MS)
    assert queue.journal_only_count() == MOST + 1
    one.disk_is_short = False
    one.settle(2 * HOUSEKEEPING_MS)
    assert queue.journal_only_count() == 0


def test_what_has_ended_does_not_count() -> None:
    one, queue = opened(SimFileSystem())
    for time in range(1, 6):
        fill(queue, MOST)
        queue.ack(queue.fetch(MOST - 1, EVERYTHING))
        one.settle(time * HOUSEKEEPING_MS)
    assert queue.journal_only_count() == 5


@pytest.mark.parametrize("pending", [False, True])
def test_a_segment_names_no_content_that_is_not_on_the_disk(pending: bool) -> None:
    one, queue = opened(SimFileSystem())
    fill(queue, MOST)
    fill(queue, MOST, size=400)  # their contents go to the message store
    fill(queue, MOST)
    if pending:
        assert len(queue.fetch(3 * MOST, EVERYTHING)) == 3 * MOST
    one.work(HOUSEKEEPING_MS)
    assert queue.journal_only_count() >= MOST
    one.run_jobs()
    one.commit()
    one.settle(2 * HOUSEKEEPING_MS)
    assert queue.journal_only_count() <= MOST
    queue.check()


def test_what_moved_to_the_tail_is_there_once_after_a_kill() -> None:
    """No segment has the new place before the journal says that the old one has ended."""
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 2 * MOST)
    one.settle(HOUSEKEEPING_MS)
    queue.rare().moves.requeue_to_tail(queue.fetch(MOST, EVERYTHING), 2)
    fill(queue, 1)
    one.work(2 * HOUSEKEEPING_MS)
    one.run_jobs()
    files.kill()
    _, queue = opened(files)
    assert held(queue) == 2 * MOST
    queue.check()
