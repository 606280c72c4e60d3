"""What readers of ranges ask of a log: retention that waits, estimates, blocks as stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams import cursor as at
from penstock.streams.block_codec import read_records
from penstock.streams.cursor import Start, StreamCursor
from penstock.streams.log import StreamLimits
from tests.streams.stream_tools import StreamWorld


def world_of(segments: int, **limits: int) -> StreamWorld:
    """Ten messages of a second each in a segment; the last one is begun."""
    world = StreamWorld(StreamLimits(segment_bytes=10 * 200, **limits))
    for _ in range(10 * segments + 1):
        world.now_ms += 1000
        world.append(bytes(111))
        world.flush()
    assert len(world.log.segments) == segments + 1
    return world


def firsts(world: StreamWorld) -> list[int]:
    return [world.log.segments.first(number) for number in range(len(world.log.segments))]


def test_retention_waits_for_what_is_held_and_goes_on_when_it_is_let_go() -> None:
    world = world_of(5, max_bytes=3000)
    world.log.hold(25, 1 << 20)
    assert world.log.retire(world.now_ms) == 2
    assert firsts(world) == [20, 30, 40, 50]
    assert world.log.held_bytes() == sum(world.log.segments.size(n) for n in range(2))
    assert world.log.retire(world.now_ms) == 0
    world.log.hold(31, 1 << 20)
    assert world.log.retire(world.now_ms) == 1
    world.log.hold(-1, 0)
    assert world.log.retire(world.now_ms) == 1
    assert firsts(world) == [40, 50]
    assert world.log.held_bytes() == 0
    world.log.check()


def test_the_last_messages_stay_although_their_segment_is_above_the_limit() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=500, max_bytes=400))
    for body in (b"1" * 600, b"2" * 600):
        world.append(body)
        world.flush()
    assert world.log.retire(world.now_ms) == 1
    world.flush()  # the floor is told in a segment that begins with it
    assert firsts(world) == [1, 2]
    assert world.log.retire(world.now_ms) == 0, "or the stream had no message"
    world.append(b"3")
    world.flush()
    assert world.log.retire(world.now_ms) == 1
    world.log.check()


def test_no_more_is_held_than_the_bound_and_the_newest_first() -> None:
    world = world_of(5, max_bytes=3000)
    bound = world.log.segments.size(2) + world.log.segments.size(3)
    world.log.hold(0, bound)
    world.log.retire(world.now_ms)
    assert firsts(world)[0] == 20
    assert world.log.held_bytes() <= bound
    world.log.hold(0, bound - 1)
    world.log.retire(world.now_ms)
    assert firsts(world)[0] == 30


def test_what_is_held_for_its_age_is_not_due_again_and_again() -> None:
    world = world_of(3, max_age_ms=15_000)
    world.log.hold(0, 1 << 20)
    assert world.log.retire(world.now_ms) == 0
    assert world.log.held_bytes() > 0
    due_ms = world.log.next_retirement_ms()
    assert due_ms > world.now_ms
    held = world.log.held_bytes()
    world.log.retire(due_ms)
    assert world.log.held_bytes() > held


def test_a_group_at_the_end_holds_nothing() -> None:
    world = world_of(4, max_bytes=3000)
    world.log.hold(world.log.durable_offset, 1 << 20)
    assert world.log.retire(world.now_ms) == 3
    assert world.log.held_bytes() == 0


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=60),
    st.data(),
)
def test_an_estimate_goes_as_far_as_the_mean_size_says(
    sizes: list[int], data: st.DataObject
) -> None:
    world = StreamWorld(StreamLimits(segment_bytes=1000))
    for size in sizes:
        world.append(bytes(size))
        world.flush()
    log = world.log
    start = data.draw(st.integers(0, len(sizes) - 1))
    end = data.draw(st.integers(start + 1, len(sizes)))
    most = data.draw(st.integers(1, 20_000))
    upto, size = log.estimate(start, end, most)
    assert start < upto <= end
    assert size <= most or upto == start + 1
    if most >= 1 << 14 and end - start < 10:
        assert upto == end
    # What was left out would not have fitted.
    if upto < end:
        number = log.segments.holding(upto)
        last = number + 1 == len(log.segments)
        behind = log.durable_offset if last else log.segments.first(number + 1)
        mean = log.segments.size(number) // (behind - log.segments.first(number))
        assert size + mean > most


@pytest.mark.parametrize("start", [0, 7, 23, 40, 41])
def test_stored_blocks_are_those_that_were_written(start: int) -> None:
    world = world_of(4)
    cursor = StreamCursor(world.log, Start(at.OFFSET, start), stored=True)
    kept = dict(world.cache._blocks)
    found: list[tuple[int, bytes]] = []
    while cursor.look() or world.board.reads:
        world.run_jobs()
        for block in cursor.blocks():
            messages = read_records(block.payload, block.head)
            assert messages is not None
            found += [(one.seq_id, one.content) for one in messages if one.seq_id >= start]
        if cursor.blocks():
            cursor.pass_to(cursor.blocks()[-1].next_offset())
    assert found == [(n, world.entries[n].content) for n in range(start, len(world.entries))]
    assert world.cache._blocks == kept, "a stored read leaves the blocks of consumers alone"


def test_a_reader_whose_file_goes_before_it_is_read_goes_on_at_the_floor() -> None:
    world = world_of(5, max_bytes=3000)
    cursor = StreamCursor(world.log, Start(at.FIRST))
    assert not cursor.look()  # it has asked for the first file
    assert world.log.retire(world.now_ms) > 0
    world.seal()
    world.commit()
    world.board.reads.reverse()  # the removal comes first
    world.run_jobs()
    found = world.read(cursor)
    assert cursor.error is None
    world.judge(found, world.log.first_offset)
    assert cursor.overtaken == world.log.first_offset > 0
