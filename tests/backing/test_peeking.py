"""Looking at a queue that rests on disk: what is read for it, and that the numbers are right."""

from __future__ import annotations

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.storage.common.disk_jobs import run_job
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 2048
EVERYTHING = 1 << 40
COUNT = 5000
SIZE = 1000


class CountingFiles(SimFileSystem):
    reads = 0
    read_bytes = 0

    def pread(self, path: str, offset: int, size: int) -> bytes:
        self.reads += 1
        self.read_bytes += size
        return super().pread(path, offset, size)


class Rested:
    """A lazy queue with 5000 messages of 1000 bytes, all of them only on disk."""

    def __init__(self, embed: int = 4096) -> None:
        self.files = CountingFiles()
        self.one = OpenEngine(self.files, {1: ENTRIES}, limits(embed=embed))
        self.queue: VariableQueue = self.one.queues[1]
        self.queue.set_mode(True)
        self.first = int(self.queue.records.next_seq_id)
        for start in range(0, COUNT, 100):
            bodies = [b"%0*d" % (SIZE, start + n) for n in range(100)]
            self.queue.publish([message(body) for body in bodies], 1000 + start)
            self.one.commit()
        self.one.settle(10_000)

    def measured(
        self, start: int, end: int, max_messages: int, max_bytes: int
    ) -> tuple[int, int, int, bool]:
        """Positions are counted from the first message's."""
        self.files.reads = self.files.read_bytes = 0
        start, end = start + self.first, end + self.first
        found = self.queue.reads.measure_range(start, end, max_messages, max_bytes)
        return int(found.upto) - self.first, int(found.count), int(found.size), found.more

    def bodies(self, start: int, end: int) -> list[int]:
        start, end = start + self.first, end + self.first
        found = self.queue.reads.read_range(start, end, EVERYTHING, EVERYTHING)
        return [int(one.content) for one in found]

    def restarted(self) -> Rested:
        self.one.close_cleanly()
        self.one = OpenEngine(self.files, {1: ENTRIES}, limits())
        self.queue = self.one.queues[1]
        return self


@pytest.fixture
def rested() -> Rested:
    return Rested()


def test_sizes_come_from_the_directory_of_blocks(rested: Rested) -> None:
    assert rested.measured(0, EVERYTHING, EVERYTHING, EVERYTHING) == (5000, 5000, 5_000_000, False)
    assert rested.files.reads == 0
    assert rested.measured(0, 4321, EVERYTHING, EVERYTHING) == (4321, 4321, 4_321_000, False)
    assert rested.files.reads == 1, "the block in which the range ends"
    assert rested.measured(1234, EVERYTHING, 2000, EVERYTHING) == (3234, 2000, 2_000_000, False)
    assert rested.files.reads == 2, "those in which it begins and ends"
    assert rested.measured(7, EVERYTHING, 9000, 1_000_500) == (1007, 1000, 1_000_000, False)
    assert rested.measured(7, EVERYTHING, 9000, 10) == (8, 1, 1000, False)


def test_the_same_after_a_start(rested: Rested) -> None:
    again = rested.restarted()
    assert again.measured(0, EVERYTHING, EVERYTHING, EVERYTHING) == (5000, 5000, 5_000_000, False)
    assert again.files.reads == 0


def test_a_block_with_holes_is_read(rested: Rested) -> None:
    rested.queue.drop_below(rested.first + 100)
    assert rested.measured(0, EVERYTHING, 1000, EVERYTHING) == (1100, 1000, 1_000_000, False)
    assert rested.files.read_bytes <= 3 * 300 * 1024


def test_what_takes_long_is_done_in_pieces(rested: Rested) -> None:
    """Holes in every block: each has to be looked at, some per call."""
    queue = rested.restarted().queue
    taken = queue.fetch(COUNT, EVERYTHING)
    while len(taken) < COUNT:
        rested.one.run_jobs()
        queue.ahead.absorb()
        taken += queue.fetch(COUNT, EVERYTHING)
    queue.ack(taken[::50])
    queue.requeue([one for one in taken if (one.seq_id - rested.first) % 50])
    rested.one.commit()
    queue.set_mode(True)
    rested.one.settle(20_000)
    at, count, size, calls, more = 0, 0, 0, 0, True
    while more:
        at, got, got_size, more = rested.measured(at, EVERYTHING, EVERYTHING, EVERYTHING)
        assert rested.files.read_bytes <= 7 * 300 * 1024
        count, size, calls = count + got, size + got_size, calls + 1
    assert (at, count, size) == (5000, 4900, 4_900_000)
    assert calls > 1


@pytest.mark.parametrize("embed", [4096, 100])
def test_contents_of_neighbours_are_read_together(embed: int) -> None:
    rested = Rested(embed)
    rested.files.reads = 0
    assert rested.bodies(500, 1500) == list(range(500, 1500))
    assert rested.files.reads <= 12


def test_betas_get_their_contents_without_a_read_for_each(rested: Rested) -> None:
    queue = rested.queue
    queue.set_mode(False)
    rested.one.settle(20_000)
    queue.ahead.look_ahead()
    rested.one.run_jobs()
    queue.ahead.absorb()
    for one in queue.tiers.q3.live():
        one.content = b""  # as paging does with what is on disk
    rested.files.reads = 0
    assert rested.bodies(0, 100) == list(range(100))
    assert rested.files.reads <= 2


def test_contents_of_store_and_segments_do_not_hide_each_other() -> None:
    """Their records share a block, and that of a stored one has no content."""
    files = SimFileSystem()
    opened = OpenEngine(files, {7: 64}, limits(embed=100))
    contents = [b"small", b"large" * 100, b"x", b"y" * 200]
    opened.queues[7].publish([message(content) for content in contents], 1)
    opened.commit()
    files.kill()
    queue = OpenEngine(files, {7: 64}, limits(embed=100)).queues[7]
    queue.await_head()
    for resting in queue.tiers.q3.live() + queue.tiers.q4.live():
        resting.content = b""  # as when memory is short
    found = queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
    assert [one.content for one in found] == contents


@pytest.mark.parametrize("size,embed", [(SIZE, 4096), (SIZE, 100)])
def test_reading_on_and_on_reads_hardly_anything_twice(size: int, embed: int) -> None:
    rested = Rested(embed)
    rested.files.read_bytes = 0
    at = rested.first
    found: list[int] = []
    while True:
        some = rested.queue.reads.read_some(at, EVERYTHING, 8192, 1 << 20)
        if not some:
            break
        found += [int(one.content) for one in some]
        at = some[-1].seq_id + 1
    assert found == list(range(COUNT))
    stored = COUNT * size
    assert rested.files.read_bytes <= (1.1 if embed > size else 1.5) * stored


def test_no_more_of_a_block_is_decoded_than_is_wanted(rested: Rested) -> None:
    index = rested.queue.index_or_none()
    assert index is not None
    job = index.plan_read(rested.first + 300, rested.first + COUNT, 1)
    assert job is not None
    run_job(job, rested.files)
    all_of_it = [one.seq_id for one in index.decode(job)]
    assert len(all_of_it) > 50
    assert [one.seq_id for one in index.decode(job, 1)] == all_of_it[:2]
    assert [one.seq_id for one in index.decode(job, 50, 2500)] == all_of_it[:3]


def test_what_is_read_for_chosen_messages_is_known_before(rested: Rested) -> None:
    """A message of each block: reading all of them in one turn would take long."""
    sparse = [rested.first + place for place in range(0, COUNT, 300)]
    left, rounds = sparse, 0
    rested.queue.records.take_looked_bytes()
    while left:
        rested.files.reads = rested.files.read_bytes = 0
        taken = int(rested.queue.rare().settlement.few_reads(left, 3))
        assert taken == 3 or len(left) < 3
        assert rested.queue.drop_some(left[:taken]) == taken
        assert rested.files.reads <= 3
        looked = int(rested.queue.records.take_looked_bytes())
        assert looked == pytest.approx(rested.files.read_bytes, rel=0.01)
        left, rounds = left[taken:], rounds + 1
    assert rounds == -(-len(sparse) // 3)
    assert rested.queue.ready_count() == COUNT - len(sparse)
    rested.queue.check()


def test_neighbours_are_chosen_with_one_read(rested: Rested) -> None:
    near = [rested.first + place for place in range(100)]
    assert rested.queue.rare().settlement.few_reads(near, 1) == 100
    rested.files.reads = 0
    assert rested.queue.drop_some(near) == 100
    assert rested.files.reads == 1
