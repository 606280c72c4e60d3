"""Orders that a crash depends on, each a bug once that random lives found, in a few lines."""

from __future__ import annotations

import contextlib
import errno
import random
import sys

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import REDELIVERED
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.engine.resting_queue import FLUSHED
from penstock.storage.index.segment_jobs import SegmentSync, SegmentWrite
from penstock.storage.journal.resting import JournalScan
from penstock.storage.store.compaction import StoreCompaction
from tests.backing.engine_tools import OpenEngine, PatientEngine, limits, message
from tests.helpers.sim_files import UNLIMITED, SimFileSystem

QUEUE_ID = 7
ENTRIES = 16
DIRECTORY = f"data/queues/{QUEUE_ID}"
EVERYTHING = 1 << 40


def opened(files: SimFileSystem, **some_limits: int) -> tuple[OpenEngine, VariableQueue]:
    one = OpenEngine(
        files,
        {QUEUE_ID: ENTRIES},
        limits(embed=200, **some_limits),
        journal_file_bytes=2000,
        store_file_bytes=3000,
    )
    return one, one.queues[QUEUE_ID]


def fill(queue: VariableQueue, count: int, size: int = 50) -> None:
    queue.publish([message(b"x" * size) for _ in range(count)], 1)


def rested(one: OpenEngine, queue: VariableQueue) -> None:
    """All that is there has a record in a segment, synced."""
    one.commit()
    while queue.flush_file(EVERYTHING, EVERYTHING) != FLUSHED:
        one.run_jobs()
    assert queue.records.index is not None
    queue.records.index.flush_marks()
    queue.records.index.sync()
    one.run_jobs()


def held(queue: VariableQueue) -> int:
    return len(queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING))


def test_a_purge_leaves_places_alone_that_get_a_record_later() -> None:
    """The segment of a pending message lives on; what is published into it next is not dead."""
    files = SimFileSystem()
    one, queue = opened(files)
    queue.set_mode(True)
    fill(queue, 5)
    rested(one, queue)
    queue.pager.flush_tail()
    queue.await_head()
    assert len(queue.fetch(1, EVERYTHING)) == 1
    assert queue.purge() == 4
    fill(queue, 5)
    queue.pager.flush_tail()
    queue.check()
    one.run_jobs()
    assert held(queue) == 5


def test_a_failed_write_is_never_attested() -> None:
    """The sync behind it in the lane is the first that could lie."""
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 5)
    one.commit()
    assert queue.flush_file(EVERYTHING, EVERYTHING) == FLUSHED
    assert queue.records.index is not None
    queue.records.index.sync()
    write, sync = one.engine.board.take_writes()
    assert isinstance(write, SegmentWrite)
    assert isinstance(sync, SegmentSync)
    files.fail("pwrite")
    run_job(write, files)
    run_job(sync, files)
    assert isinstance(sync.error, OSError)
    one.engine.board.finish(write)
    one.engine.board.finish(sync)
    assert not sync.is_synced()
    assert one.engine.disk_error() is write.error
    files.kill()
    _, queue = opened(files)
    assert held(queue) == 5


def test_a_deleted_queue_keeps_its_directory_until_its_writes_are_over() -> None:
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 5)
    one.commit()
    assert queue.flush_file(EVERYTHING, EVERYTHING) == FLUSHED
    (write,) = one.engine.board.take_writes()
    queue.delete()
    assert one.engine.board.reads == []
    run_job(write, files)  # it was under way and could not be cancelled in time
    one.engine.board.finish(write)
    one.run_jobs()
    assert not files.exists(DIRECTORY)
    assert one.engine.disk_error() is None


@pytest.mark.parametrize(
    "some_limits", [{"entries": 3}, {"journal": 1}], ids=["impatient", "retired"]
)
def test_a_flush_waits_for_the_removal_of_a_segment(some_limits: dict[str, int]) -> None:
    """The loop sleeps meanwhile: asked again, the queue could not say anything else."""
    one, queue = opened(SimFileSystem(), **some_limits)
    fill(queue, 10)
    rested(one, queue)
    queue.ack(queue.fetch(10, EVERYTHING))
    one.commit()
    for size in (190, 190):
        fill(queue, 3, size)
        one.commit()
    assert queue.records.the_index().removing
    for _ in range(3):
        more = one.work(10_000)
    assert not more
    assert queue.journal_only_count() == 6
    one.run_jobs()
    one.settle(10_000)
    assert queue.journal_only_count() < 6


def test_a_journal_file_waits_for_segments_that_died_before_their_sync() -> None:
    """Their sync is cancelled: only the removal of the file makes the journal's word needless."""
    files = SimFileSystem()
    one, queue = opened(files, journal=1000)
    fill(queue, 10)
    rested(one, queue)
    taken = queue.fetch(10, EVERYTHING)
    queue.ack(taken[:9])
    while len(one.engine.journal.files) < 3:
        fill(queue, 5)
        one.commit()
    retired = one.engine.journal.files_retired
    writes = one.engine.board.writes
    while not any(isinstance(job, SegmentSync) for job in writes):
        one.work(2)
        if isinstance(writes[0], JournalScan):
            one.run_jobs(writes=1, reads=0)
    queue.ack(taken[9:])  # of the first segment only later messages may be left
    queue.purge()
    one.commit()
    assert queue.records.index is not None
    assert queue.records.index.removing
    one.run_jobs(reads=0)
    one.work(3)
    assert one.engine.journal.files_retired == retired
    one.run_jobs()
    one.settle(4)
    assert one.engine.journal.files_retired > retired


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_after_a_kill_takes_nothing_that_recovery_built_on(seed: int) -> None:
    """What the first start found only in the page cache it makes durable before it acts on it."""
    rng = random.Random(seed)
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 6, size=400)
    fill(queue, 6)
    one.commit()
    queue.rare().moves.requeue_to_tail(queue.fetch(4, EVERYTHING), 2)
    fill(queue, 3, size=400)
    one.commit(sync=False)
    files.kill()
    files.fail(rng.choice(["sync", "pwrite", "read_back", "sync_dir", "remove"]), after=seed % 7)
    with contextlib.suppress(OSError):
        opened(files)
    files.power_cut(rng)
    _, queue = opened(files)
    assert 12 <= held(queue) <= 15


@pytest.mark.parametrize("seed", range(100))
def test_starts_that_die_leave_what_was_synced(seed: int) -> None:
    """No start writes over the only place of a message, not even with the same bytes."""
    rng = random.Random(seed)
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 6, size=400)
    fill(queue, 6)
    one.commit()
    files.power_cut(rng)  # what attests the last group was not synced
    for _ in range(3):
        files.fail(rng.choice(["sync", "pwrite", "truncate", "sync_dir"]), after=rng.randrange(9))
        with contextlib.suppress(OSError):
            opened(files)
        files.power_cut(rng)
    _, queue = opened(files)
    assert held(queue) == 12


def test_dropping_below_counts_what_moves_up_when_delta_ends() -> None:
    files = SimFileSystem()
    one, queue = opened(files, paging=3000)
    fill(queue, 200)
    one.settle(1)
    assert queue.tiers.delta_count > 0
    fill(queue, 200)
    queue.pager._push_alphas(50)
    assert queue.tiers.q2.count() > 0
    last = queue.tiers.q2.first().seq_id + 3
    wanted = len(queue.reads.read_range(0, last, EVERYTHING, EVERYTHING))
    assert queue.drop_below(last) == wanted
    queue.check()
    assert queue.tiers.floor_seq_id() == last


def test_nothing_goes_to_segments_before_the_tail_that_is_older() -> None:
    """A large message at the tail waits for the store's disk; small ones behind it do not."""
    files = SimFileSystem()
    one, queue = opened(files, paging=3000)
    fill(queue, 200)
    one.settle(1)
    assert queue.tiers.delta_count > 0
    queue.set_mode(True)
    one.settle(2)
    fill(queue, 3, size=400)  # not committed: it cannot rest
    assert queue.tiers.tail.count() == 3
    queue.set_mode(False)
    fill(queue, 30)
    queue.pager._push_alphas(30)
    assert queue.tiers.q2.count() == 30
    queue.pager._push_betas(1000)
    queue.check()
    one.settle(3)
    assert held(queue) == 233


def test_memory_may_be_short_when_there_is_no_queue_to_page() -> None:
    """What takes it waits for the disk."""
    one, queue = opened(SimFileSystem(), paging=8)
    fill(queue, 200)
    one.commit()
    while not one.engine.board.writes:
        one.work(1)
    queue.delete()
    assert one.engine.ram.must_page()
    assert not one.work(2)
    one.settle(3)
    assert one.engine.ram.used_bytes() == 0


def test_what_is_delayed_twice_is_written_and_freed_once() -> None:
    """Something else is delayed all the time, so what is known of delays is never emptied."""
    one, queue = opened(SimFileSystem())
    fill(queue, 3)
    first, second = queue.fetch(2, EVERYTHING)
    queue.delay([first], 1000)
    queue.delay([second], 10)
    assert queue.release_due(10, EVERYTHING) == 1
    queue.delay(queue.fetch(1, EVERYTHING), 20)
    queue.page(8, EVERYTHING)
    queue.check()
    assert queue.records.index is not None
    assert queue.records.index.live_count == 2
    one.run_jobs()


def test_what_was_delayed_once_is_not_held_for_ever() -> None:
    """Though something else is still delayed, and memory never short."""
    _, queue = opened(SimFileSystem())
    fill(queue, 2)
    first, second = queue.fetch(2, EVERYTHING)
    queue.delay([first], 1000)
    queue.delay([second], 10)
    queue.release_due(10, EVERYTHING)
    queue.ack(queue.fetch(1, EVERYTHING))
    assert sys.getrefcount(second) == 2
    assert [one.message for one in queue.tiers.delayed.take_in_ram(EVERYTHING)] == [first]


def test_starts_in_vain_leave_nothing_that_looks_like_damage() -> None:
    """Each begins a journal file on a full disk; only the newest one may have no first block."""
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 5)
    one.commit()
    files.kill()
    for _ in range(3):
        files.fail("allocate", errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            opened(files)
        files.kill()
    _, queue = opened(files)
    assert held(queue) == 5


def test_a_first_start_in_vain_is_tried_again() -> None:
    files = SimFileSystem()
    for _ in range(3):
        files.fail("allocate", errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            opened(files)
        files.kill()
    _, queue = opened(files)
    assert held(queue) == 0


@pytest.mark.parametrize("seed", range(10))
def test_terms_once_used_up_never_come_back(seed: int) -> None:
    """The start that used them up died before that was on disk; the next one sees none."""
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 5)
    one.close_cleanly()
    files.fail("sync_dir")
    with contextlib.suppress(OSError):
        opened(files)
    assert not files.exists("data/terms")
    files.kill()
    one, queue = opened(files)
    fill(queue, 5)
    one.commit()
    files.power_cut(random.Random(seed))
    one, queue = opened(files)
    assert held(queue) == 10


@pytest.mark.parametrize("seed", range(20))
def test_a_group_tried_again_is_not_written_over_in_files_left_behind(seed: int) -> None:
    """Recovery takes a hole in any file but the newest for damage."""
    files = SimFileSystem()
    one = PatientEngine(files, {QUEUE_ID: ENTRIES}, limits(embed=200), store_file_bytes=500)
    fill(one.queues[QUEUE_ID], 3, size=400)  # a file of the store for each
    one.commit()
    fill(one.queues[QUEUE_ID], 3, size=400)
    one.seal()
    files.space_left = 1000
    one.write_groups()
    assert one.stalls == 1
    files.fail("pwrite")  # the next try dies in its first write
    one.write_groups()
    files.space_left = UNLIMITED
    files.power_cut(random.Random(seed))
    one = PatientEngine(files, {QUEUE_ID: ENTRIES}, limits(embed=200), store_file_bytes=500)
    assert held(one.queues[QUEUE_ID]) == 3


@pytest.mark.parametrize("head", [False, True])
def test_a_read_here_and_now_does_not_wait_for_a_compaction_to_be_heard_of(head: bool) -> None:
    """The one who would hear of it is the one who reads."""
    files = SimFileSystem()
    one, queue = opened(files)
    for _ in range(3):
        fill(queue, 30, size=400)
        one.commit()
    taken = queue.fetch(85, EVERYTHING)
    queue.ack([message for place, message in enumerate(taken) if place % 5])
    queue.requeue([message for place, message in enumerate(taken) if place % 5 == 0])
    one.commit()
    wanted = held(queue)
    while queue.tiers.q4.count() > 0:  # their contents leave memory
        queue.tiers.trim_stored(queue.tiers.spill_q4(100))
    one.engine.store.collect_garbage()
    (job,) = [job for job in one.engine.board.writes if isinstance(job, StoreCompaction)]
    run_job(job, files)  # and nobody has called its ``finish`` yet
    if head:
        queue.await_head()
        assert len(queue.fetch(1, EVERYTHING)) == 1
    else:
        assert held(queue) == wanted
    queue.check()
    assert queue.records.fault == ""


@pytest.mark.parametrize("killed", [False, True])
def test_a_queue_that_the_start_finds_empty_has_no_index_and_goes_on_in_order(
    killed: bool,
) -> None:
    """A node may have a hundred thousand of them: each is as small as one that is new."""
    files = SimFileSystem()
    one, queue = opened(files)
    fill(queue, 5)
    queue.ack(queue.fetch(5, EVERYTHING))
    one.commit()
    before = queue.records.next_seq_id
    if killed:
        files.kill()
    else:
        one.close_cleanly()
    one, queue = opened(files)
    assert one.opening.queues[QUEUE_ID].index is None
    assert queue.records.index is None
    assert queue.records.next_seq_id >= before
    assert queue.ready_count() == 0
    fill(queue, 3)
    one.commit()
    files.kill()
    one, queue = opened(files)
    assert queue.ready_count() == 3
    assert one.opening.queues[QUEUE_ID].index is not None
    assert all(one.flags & REDELIVERED for one in queue.fetch(3, EVERYTHING))
