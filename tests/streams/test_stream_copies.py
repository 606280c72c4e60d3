"""A copy of a stream: it appends what its master numbered, gives up what its master never had."""

from __future__ import annotations

import random

import pytest

from penstock.core.message import PERSISTENT, Message
from penstock.storage.common.disk_jobs import run_job
from penstock.streams.block_codec import TERMS
from penstock.streams.cursor import FIRST, Start
from penstock.streams.cutting import Cut, cut_of
from penstock.streams.log import StreamLimits
from penstock.streams.marks import Marks, StreamMarks, common_offset
from penstock.streams.recovery import StreamCut, StreamRecovery
from tests.streams.stream_tools import ADDRESS, DIRECTORY, STREAM, Entry, StreamWorld

SMALL = StreamLimits(segment_bytes=400)


def copies(first: int, *contents: bytes, time_ms: int = 5000) -> list[Message]:
    messages = []
    for place, content in enumerate(contents):
        one = Message(content, ADDRESS, PERSISTENT, 0)
        one.place(first + place, time_ms + place)
        messages.append(one)
    return messages


def filled(count: int, limits: StreamLimits = SMALL) -> StreamWorld:
    """A block for each message."""
    world = StreamWorld(limits)
    for number in range(count):
        world.append(b"%d:" % number + b"x" * 60)
        world.flush()
    return world


def cut(world: StreamWorld, offset: int) -> StreamCut:
    """As ``Streams.give_up`` does it, when the writer has left the files."""
    world.writer.close()
    log = world.log
    return StreamCut(DIRECTORY, STREAM, offset, log.next_offset, lambda _: None, lambda: None)


def adopt(world: StreamWorld, job: StreamCut) -> None:
    world.safe = world.floor = 0
    world.adopt(job.found)


def test_copies_keep_the_numbers_and_times_of_the_master() -> None:
    world = StreamWorld(SMALL)
    world.log.append_copies(copies(0, b"a", b"b"), [])
    world.entries += [Entry(b"a", b"", 5000), Entry(b"b", b"", 5001)]
    world.flush()
    found = world.read_from(Start(FIRST))
    assert [(one.seq_id, one.content) for one in found] == [(0, b"a"), (1, b"b")]
    assert [one.enqueued_at_ms for one in found] == [5000, 5001]
    assert world.log.last_ms == 5001
    with pytest.raises(AssertionError, match="no gaps"):
        world.log.append_copies(copies(3, b"d"), [])


def test_a_copy_begins_where_retention_has_left_its_master() -> None:
    world = StreamWorld(SMALL)
    world.log.begin_at(70)
    world.log.append_copies(copies(70, b"a"), [])
    world.flush()
    world.log.check()
    assert world.files.exists(f"{DIRECTORY}/70.stm")
    world.files.kill()
    world.safe = 71
    world.entries = [Entry(b"", b"", 0)] * 70 + [Entry(b"a", b"", 5000)]
    world.recover()
    assert (world.log.first_offset, world.log.next_offset) == (70, 71)


def test_a_copy_lets_go_of_whole_segments_below_the_masters_floor() -> None:
    world = filled(20)
    firsts = [world.log.segments.first(i) for i in range(len(world.log.segments))]
    assert len(firsts) > 3
    assert world.log.retire_below(firsts[2] - 1) == 1
    assert world.log.first_offset == firsts[1]
    assert world.log.retire_below(1 << 40) == len(firsts) - 2, "never the last one"
    world.flush()
    assert not world.files.exists(f"{DIRECTORY}/{firsts[1]}.stm")


def test_readers_see_nothing_that_mirrors_may_not_have() -> None:
    world = filled(4)
    world.log.show_below(2)
    assert [one.seq_id for one in world.read_from(Start(FIRST))] == [0, 1]
    world.append(b"4:")
    world.flush()
    assert world.log.durable_offset == 2
    world.log.show_below(5)
    assert [one.seq_id for one in world.read_from(Start(FIRST))] == [0, 1, 2, 3, 4]
    world.log.show_below(0)
    assert world.log.durable_offset == world.log.first_offset
    world.log.check()


def test_terms_come_before_their_messages_and_in_every_segment() -> None:
    """A message of a term is never found without it."""
    world = filled(3)
    world.log.marks.begin_term(4, world.log.next_offset)
    for number in range(3, 20):
        world.append(b"%d:" % number + b"x" * 60)
    world.seal()
    kinds = [int(piece.head.kind) for piece in world.sealed[0].pieces]
    assert kinds.index(TERMS) < kinds.index(1)
    world.flush()
    world.files.kill()
    world.recover()
    assert world.log.marks.term_begins() == {0: 0, 4: 3}
    world.log.marks.begin_term(4, 99)
    assert world.log.marks.term_begins() == {0: 0, 4: 3}, "a term begins once"


@pytest.mark.parametrize("offset", [0, 1, 7, 10, 19, 20, 25])
def test_what_is_given_up_is_gone_and_comes_again_as_something_else(offset: int) -> None:
    world = filled(20)
    job = cut(world, offset)
    run_job(job, world.files)
    assert job.error is None
    adopt(world, job)
    assert world.log.next_offset == min(offset, 20), "a block has one message"
    world.read_all()
    for number in range(30):
        world.append(b"%d:new" % number)
        world.flush()
    world.files.kill()
    world.recover()
    world.read_all()


def test_a_block_is_given_up_as_a_whole() -> None:
    world = StreamWorld(StreamLimits())
    world.append(b"0:")
    world.flush()
    world.append(b"1:", b"2:", b"3:")
    world.flush()
    job = cut(world, 2)
    run_job(job, world.files)
    assert job.found.next_offset == 1


def test_a_start_does_not_miss_what_was_given_up() -> None:
    """The journal knows that it was on disk; what came after it is still missed."""
    world = filled(20)
    job = cut(world, 10)
    run_job(job, world.files)
    assert world.files.exists(f"{DIRECTORY}/20.gone")
    for known, is_missed in ((20, False), (21, True)):
        start = StreamRecovery(DIRECTORY, STREAM, known)
        run_job(start, world.files)
        assert (start.error is not None) == is_missed


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_in_the_middle_gives_up_the_rest_at_the_start(seed: int) -> None:
    rng = random.Random(seed)
    world = filled(20)
    offset = rng.randint(0, 20)
    verb = rng.choice(["remove", "pwrite", "sync", "sync_dir", "rename", "open_write"])
    world.files.fail(verb, after=rng.randint(0, 4))
    job = cut(world, offset)
    run_job(job, world.files)
    world.files.heal()
    noted = any(cut_of(name) for name in world.files.listdir(DIRECTORY))
    world.crash(rng, power=rng.random() < 0.7)
    noted = any(cut_of(name) for name in world.files.listdir(DIRECTORY))
    assert noted or job.error is not None
    if not noted:
        offset = 20
    again = StreamCut(DIRECTORY, STREAM, offset, 20, lambda _: None, lambda: None)
    run_job(again, world.files)
    assert again.error is None
    adopt(world, again)
    assert world.log.next_offset == offset
    world.read_all()
    assert not any(name.endswith(".new") for name in world.files.names)


def test_no_byte_of_a_file_that_a_backup_may_have_linked_changes() -> None:
    world = filled(20)
    first = world.log.segments.first(world.log.segments.holding(10))
    path = f"{DIRECTORY}/{first}.stm"
    linked = world.files.names[path]
    before = bytes(linked.cache)
    job = cut(world, 10)
    run_job(job, world.files)
    adopt(world, job)
    assert first < 10 == world.log.next_offset
    world.append(b"10:other")
    world.flush()
    assert world.files.names[path] is not linked
    assert bytes(linked.cache) == before


def test_names_of_notes() -> None:
    assert cut_of("12-40.cut") == Cut(12, 40)
    assert cut_of("40.gone") == Cut(-1, 40)
    for name in ("40.cut", "12-40.gone", "x-1.cut", "7.stm", "1-2.cut~", ""):
        assert cut_of(name) is None, name


@pytest.mark.parametrize(
    "one, one_end, other, other_end, common",
    [
        ({0: 0}, 7, {0: 0}, 9, 7),  # a shorter one
        ({0: 0, 1: 0}, 7, {0: 0, 1: 0, 2: 5}, 9, 5),  # the dead master had two more
        ({0: 0, 1: 0}, 5, {0: 0, 1: 0, 2: 5}, 9, 5),
        ({0: 0, 1: 0, 2: 5}, 8, {0: 0, 1: 0, 3: 4}, 9, 4),  # term 2 was heard of by one copy only
        ({0: 0, 1: 0, 2: 5}, 8, {0: 0, 1: 0, 2: 5, 3: 6}, 6, 6),
        ({0: 0}, 7, {0: 0, 5: 30}, 90, 7),  # older terms are forgotten
        ({0: 0, 2: 9}, 9, {0: 0, 2: 9, 3: 6}, 8, 6),  # the master of term 2 lost its own end
    ],
)
def test_what_two_copies_have_in_common(
    one: dict[int, int], one_end: int, other: dict[int, int], other_end: int, common: int
) -> None:
    assert common_offset(one, one_end, other, other_end) == common
    assert common_offset(other, other_end, one, one_end) == common


def test_marks_of_a_master_are_taken_over() -> None:
    mine, theirs = StreamMarks().positions, StreamMarks().positions
    mine.move("gone", 3, 0)
    mine.move("back", 9, 0)
    theirs.move("back", 4, 0)
    theirs.move("new", 1, 0)
    mine.seal()
    mine.add(theirs.rows(), len(theirs))
    assert told(mine) == {"gone": 3, "back": 9, "new": 1}
    assert mine.changed
    mine.replace(theirs.rows(), len(theirs))
    assert told(mine) == {"back": 4, "new": 1}


def told(marks: Marks) -> dict[str, int]:
    return {name: int(mark.number) for name in marks.names() if (mark := marks.find(name))}


@pytest.mark.parametrize("seed", range(60))
def test_a_copy_follows_two_masters_and_is_equal_to_the_second(seed: int) -> None:
    """The model: lists.  Crashes and cuts come as they like."""
    rng = random.Random(seed)
    world = StreamWorld(StreamLimits(segment_bytes=rng.choice([200, 900])))
    truth: list[bytes] = []
    for term in range(1, 6):
        shared = rng.randint(max(world.floor, 0), len(truth)) if truth else 0
        del truth[shared:]
        if world.log.next_offset > shared:
            world.flush()
            job = cut(world, shared)
            run_job(job, world.files)
            assert job.error is None
            adopt(world, job)
            assert world.log.next_offset <= shared
        world.log.marks.begin_term(term, shared)
        for _ in range(rng.randint(0, 12)):
            truth += [rng.randbytes(rng.choice([1, 90])) for _ in range(rng.randint(1, 3))]
            next_offset = int(world.log.next_offset)
            world.log.append_copies(copies(next_offset, *truth[next_offset:], time_ms=9000), [])
            world.entries = [Entry(content, b"", 9000) for content in truth]
            if rng.random() < 0.7:
                world.flush()
            if rng.random() < 0.15:
                world.flush()
                world.crash(rng, power=True)
                world.recover()
        next_offset = int(world.log.next_offset)
        world.log.append_copies(copies(next_offset, *truth[next_offset:], time_ms=9000), [])
        world.entries = [Entry(content, b"", 9000) for content in truth]
        world.flush()
        world.read_all()
