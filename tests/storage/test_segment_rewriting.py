"""Segments that are mostly garbage are written anew: when, how, and what comes between."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import Message
from penstock.storage.common import failpoints
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.engine.resting_queue import FLUSHED
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import Segment
from penstock.storage.index.segment_jobs import SegmentRead
from penstock.storage.index.segment_rewriting import SegmentRename, SegmentRewrite
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import UNLIMITED, SimFileSystem

QUEUE_ID = 7
ENTRIES = 64
DIRECTORY = f"data/queues/{QUEUE_ID}"
EVERYTHING = 1 << 40
STORE_FILE_BYTES = 500
SLACK_BYTES = 2 * STORE_FILE_BYTES


class Rested:
    """A queue whose messages all rest in segments, and in memory as unacknowledged ones."""

    def __init__(self, count: int = 4 * ENTRIES) -> None:
        self.files = SimFileSystem()
        self.now_ms = 1000
        self.open()
        for first in range(0, count, 50):
            batch = [message(b"%d" % i + b"x" * 90) for i in range(first, min(first + 50, count))]
            self.queue.publish(batch, self.now_ms)
        self.contents = [message(b"%d" % i + b"x" * 90).content for i in range(count)]
        self.one.commit()
        while self.queue.flush_file(EVERYTHING, EVERYTHING) != FLUSHED:
            self.one.run_jobs()
        assert self.queue.records.index is not None
        self.queue.records.index.sync()
        self.one.run_jobs()
        self.held: list[Message] = self.queue.fetch(count, EVERYTHING)
        assert len(self.held) == count

    def open(self) -> None:
        self.one = OpenEngine(
            self.files,
            {QUEUE_ID: ENTRIES},
            limits(journal=9000),
            journal_file_bytes=4000,
            store_file_bytes=STORE_FILE_BYTES,
        )
        self.queue: VariableQueue = self.one.queues[QUEUE_ID]

    @property
    def index(self) -> QueueIndex:
        assert self.queue.records.index is not None
        return self.queue.records.index

    def segments(self) -> list[Segment]:
        return [self.index.segments[number] for number in sorted(self.index.segments)]

    def plan_read(self) -> SegmentRead:
        """Of all that is in the first segment."""
        start = self.segments()[0].number * ENTRIES
        job = self.index.plan_read(start, EVERYTHING, EVERYTHING)
        assert job is not None
        return job

    def waste(self, keep: int) -> None:
        """Acknowledge all but every ``keep``-th message."""
        self.end([one for i, one in enumerate(self.held) if i % keep])

    def end(self, messages: list[Message]) -> None:
        ended = {one.seq_id for one in messages}
        self.held = [one for one in self.held if one.seq_id not in ended]
        self.contents = [one.content for one in self.held]
        self.queue.ack(messages)

    def keep_house(self) -> None:
        self.now_ms += 300
        self.one.work(self.now_ms)

    def rewrites(self) -> list[SegmentRewrite]:
        return [job for job in self.one.engine.board.writes if isinstance(job, SegmentRewrite)]

    def copied(self) -> None:
        """Plan, copy and switch; the copies have not got their names."""
        self.one.commit()
        self.keep_house()
        assert self.rewrites()
        self.one.run_jobs(reads=0)
        assert any(isinstance(job, SegmentRename) for job in self.one.engine.board.reads)

    def segment_bytes(self) -> int:
        names = self.files.listdir(DIRECTORY)
        return sum(self.files.size(f"{DIRECTORY}/{name}") for name in names)

    def found(self) -> list[bytes]:
        self.queue.check()
        assert self.queue.ready_count() == len(self.contents)
        everything = self.queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
        return [one.content for one in everything]


def all_is_there(life: Rested) -> None:
    life.queue.requeue(life.held)
    life.held = []
    assert life.found() == life.contents


# -- when ----------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [2, 3, 10, 60])
def test_space_is_bounded_whatever_is_acknowledged(keep: int) -> None:
    life = Rested(20 * ENTRIES)
    random.Random(keep).shuffle(life.held)
    for _ in range(3):
        life.held.sort(key=lambda one: int(one.seq_id))
        life.waste(keep)
        for _ in range(20):
            life.keep_house()
            life.one.commit()
            life.one.run_jobs()
        living = sum(int(segment.record_bytes) for segment in life.index.segments.values())
        marks = 400 * len(life.index.segments)
        assert life.segment_bytes() <= 2 * living + SLACK_BYTES + marks
    assert life.one.engine.account.rewritten > 0
    life.held.sort(key=lambda one: int(one.seq_id))
    life.contents = [one.content for one in life.held]
    all_is_there(life)


def test_a_queue_that_is_being_consumed_is_not_rewritten() -> None:
    """Its first segment is garbage in part, and soon gone."""
    life = Rested(20 * ENTRIES)
    while len(life.held) > 3 * ENTRIES:
        life.end(life.held[:10])
        life.keep_house()
        assert not life.rewrites()
        life.one.commit()
        life.one.run_jobs()
    assert life.one.engine.account.rewritten == 0


def test_a_rewriting_and_a_retirement_take_turns() -> None:
    life = Rested()
    life.waste(30)
    life.keep_house()
    assert life.rewrites()
    while life.one.engine.journal.total_bytes() <= 2 * 9000:
        life.queue.publish([message(b"y" * 90) for _ in range(20)], life.now_ms)
        life.one.commit()
    retired = life.one.engine.journal.files_retired
    for _ in range(5):
        life.keep_house()
        life.one.commit()
    assert life.one.engine.journal.files_retired == retired
    for _ in range(5):
        life.one.run_jobs()
        life.keep_house()
        life.one.commit()
    assert life.one.engine.account.rewriting == 0
    assert life.one.engine.journal.files_retired > retired


# -- what comes between --------------------------------------------------------------------


def test_reads_on_either_side_of_the_switch_find_their_records() -> None:
    life = Rested()
    life.waste(3)
    life.one.commit()
    life.keep_house()
    before = life.plan_read()
    life.one.engine.board.submit_read(before, QUEUE_ID)
    life.one.run_jobs(reads=0)
    after = life.plan_read()
    assert life.segments()[0].renaming
    here_and_now = life.plan_read()
    run_job(here_and_now, life.files)
    life.one.engine.board.submit_read(after, QUEUE_ID)
    life.one.run_jobs()
    assert not life.segments()[0].renaming
    wanted = life.contents[: len(range(0, ENTRIES, 3))]
    for job in (before, here_and_now, after):
        assert job.error is None
        assert [one.content for one in life.index.decode(job)] == wanted


def test_what_dies_while_it_is_copied_stays_dead() -> None:
    life = Rested()
    life.waste(3)
    life.keep_house()
    dying = life.held[::2]
    life.end(dying)
    life.one.commit()
    life.one.run_jobs()
    life.index.check()
    all_is_there(life)
    life.files.kill()
    life.open()
    assert life.found() == life.contents


def test_nothing_is_appended_while_it_is_rewritten() -> None:
    life = Rested(3 * ENTRIES + 20)
    life.waste(10)
    life.keep_house()
    assert life.segments()[3].rewriting
    assert not life.index.can_append(life.queue.records.next_seq_id)
    life.queue.publish([message(b"z" * 90)], life.now_ms)
    life.one.commit()
    assert life.queue.flush_file(EVERYTHING, EVERYTHING) != FLUSHED
    life.one.run_jobs()
    assert life.queue.flush_file(EVERYTHING, EVERYTHING) == FLUSHED
    life.one.run_jobs()
    life.contents.append(b"z" * 90)
    all_is_there(life)


@pytest.mark.parametrize("when", ["planned", "copied", "switched"])
def test_a_segment_that_dies_meanwhile_loses_its_files(when: str) -> None:
    life = Rested(ENTRIES)
    life.waste(3)
    life.keep_house()
    (job,) = life.rewrites()
    if when != "planned":
        run_job(job, life.files)
    if when == "switched":
        life.one.engine.board.writes.remove(job)
        life.one.engine.board.finish(job)
    life.end(life.held)
    life.one.run_jobs()
    life.one.run_jobs()
    assert life.files.listdir(DIRECTORY) == []
    assert life.one.engine.account.rewriting == 0
    assert not life.index.removing


@pytest.mark.parametrize("when", ["planned", "copied", "switched"])
def test_a_queue_that_is_deleted_meanwhile_leaves_nothing(when: str) -> None:
    life = Rested(ENTRIES)
    life.waste(3)
    life.keep_house()
    (job,) = life.rewrites()
    if when != "planned":
        run_job(job, life.files)
    if when == "switched":
        life.one.engine.board.writes.remove(job)
        life.one.engine.board.finish(job)
    life.queue.delete()
    life.one.run_jobs()
    life.one.run_jobs()
    assert not life.files.exists(DIRECTORY)
    assert life.one.engine.account.rewriting == 0
    assert life.one.engine.disk_error() is None


# -- what goes wrong -----------------------------------------------------------------------


def test_a_full_disk_ends_it_until_the_next_time() -> None:
    life = Rested()
    life.waste(3)
    life.one.commit()
    before = life.segment_bytes()
    life.keep_house()
    count = len(life.rewrites())
    life.files.space_left = 1000
    life.one.run_jobs()
    assert life.one.engine.disk_error() is None
    assert not [name for name in life.files.listdir(DIRECTORY) if name.endswith(".idt")]
    assert (count > 0, life.segment_bytes()) == (True, before)
    assert all(segment.marks.dirty for segment in life.index.segments.values())
    life.files.space_left = UNLIMITED
    life.keep_house()
    life.one.run_jobs()
    assert life.one.engine.account.rewritten > 0
    all_is_there(life)


def test_a_damaged_segment_is_left_alone() -> None:
    """What is whole in it stays readable, and the node goes on."""
    life = Rested()
    life.waste(3)
    life.one.commit()
    damaged = life.segments()[1]
    life.files.flip(life.index.path(damaged.number), 8 * 200)
    for _ in range(3):
        life.keep_house()
        life.one.run_jobs()
    assert life.one.engine.disk_error() is None
    assert [segment for segment in life.segments() if segment.left_alone] == [damaged]
    assert life.one.engine.account.rewritten == 3
    assert not [name for name in life.files.listdir(DIRECTORY) if name.endswith(".idt")]


def test_a_copy_that_lacks_something_is_thrown_away() -> None:
    """Should the books ever be wrong, no message is lost for it."""
    life = Rested()
    life.waste(3)
    life.one.commit()
    segment = life.segments()[0]
    segment.record_bytes += 1
    life.keep_house()
    life.one.run_jobs()
    assert segment.left_alone
    segment.record_bytes -= 1
    all_is_there(life)


def test_a_disk_error_ends_the_node() -> None:
    life = Rested()
    life.waste(3)
    life.one.commit()
    life.keep_house()
    life.files.fail("sync", after=0)
    life.one.run_jobs()
    assert isinstance(life.one.engine.disk_error(), OSError)


# -- crashes -------------------------------------------------------------------------------


class Died(Exception):
    """At a fail point."""


def die(_name: str) -> None:
    raise Died


@pytest.fixture
def dying_at() -> object:
    def arm(name: str) -> None:
        failpoints.arm(name, die)

    yield arm
    failpoints.disarm()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ending", ["kill", "power cut"])
@pytest.mark.parametrize("name", ["segment.copied", "segment.renamed", ""])
def test_a_crash_at_every_step(
    name: str, ending: str, seed: int, dying_at: Callable[[str], None]
) -> None:
    life = Rested()
    life.waste(3)
    life.one.commit()
    life.keep_house()
    if name:
        dying_at(name)
    board = life.one.engine.board
    try:
        while board.writes or board.reads:
            job = (board.writes or board.reads).pop(0)
            job.run(life.files)
            job.finish()
    except Died:
        assert name
    failpoints.disarm()
    if ending == "kill":
        life.files.kill()
    else:
        life.files.power_cut(random.Random(seed))
    life.open()
    assert life.found() == life.contents
    assert not [name for name in life.files.listdir(DIRECTORY) if name.endswith(".idt")]


def test_after_a_clean_stop_the_new_files_are_what_the_terms_say() -> None:
    life = Rested()
    life.waste(3)
    life.copied()
    life.one.close_cleanly()
    life.open()
    assert life.one.opening.clean
    assert life.found() == life.contents


def test_what_was_settled_before_a_rewriting_does_not_come_back_from_the_journal() -> None:
    """The record is gone, the acknowledgement perhaps too; the marks have it."""
    life = Rested(ENTRIES)
    life.waste(3)  # never committed: the journal knows nothing of it
    life.keep_house()
    life.one.run_jobs()
    assert life.one.engine.account.rewritten == 1
    life.files.kill()
    life.open()
    assert life.found() == life.contents
