"""What streams cost does not grow with their length, nor with readers that rest."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from penstock.storage.common.disk_jobs import run_job
from penstock.streams import cursor as at
from penstock.streams.cursor import Start, StreamCursor
from penstock.streams.log import FOLLOWED_MESSAGES, StreamFound, StreamLimits
from penstock.streams.reader import StreamReader
from penstock.streams.recovery import StreamRecovery
from penstock.streams.segments import SegmentTable
from tests.helpers.sim_files import SimFileSystem
from tests.streams.stream_tools import DIRECTORY, STREAM, StreamWorld


class CountingFiles(SimFileSystem):
    """Counts the bytes that were read."""

    read_bytes = 0

    def pread(self, path: str, offset: int, size: int) -> bytes:
        data = super().pread(path, offset, size)
        self.read_bytes += len(data)
        return data


def long_stream(messages: int) -> tuple[StreamWorld, CountingFiles]:
    files = CountingFiles()
    world = StreamWorld(StreamLimits(segment_bytes=400_000), files, cache_bytes=0)
    for _ in range(messages):
        world.now_ms += 10
        world.append(bytes(1000))
        world.flush()
    return world, files


@pytest.mark.parametrize("kind", [at.OFFSET, at.TIME], ids=["offset", "time"])
def test_attaching_reads_no_more_of_a_longer_stream(kind: int) -> None:
    read = []
    for messages in (1000, 4000):
        world, files = long_stream(messages)
        assert len(world.log.segments) >= messages // 400
        most = 0
        for target in range(7, messages, messages // 20):
            value = target if kind == at.OFFSET else world.entries[target].time_ms
            before = files.read_bytes
            cursor = StreamCursor(world.log, Start(kind, value))
            found = world.read(cursor, limit=1)
            assert [one.seq_id for one in found] == [target]
            most = max(most, files.read_bytes - before)
        read.append(most)
    assert read[1] < 1.1 * read[0]
    assert read[1] < 700_000, "one read, and one ahead"


def test_readers_of_one_place_share_one_read_and_its_messages() -> None:
    world, _files = long_stream(1000)
    cursors = [StreamCursor(world.log, Start(at.OFFSET, 500)) for _ in range(10)]
    looked = [cursor.look() for cursor in cursors]
    assert not any(looked)
    assert len(world.board.reads) == 1
    world.run_jobs()
    looked = [cursor.look() for cursor in cursors]
    assert all(looked)
    first = [cursor.take(1)[0] for cursor in cursors]
    assert all(one is first[0] for one in first)


def test_what_readers_use_stays_in_memory_beside_what_is_published() -> None:
    """Readers at one place share a read, though others publish more than the cache has."""
    world, _files = long_stream(100)
    world.cache_bytes = 200_000
    world.open(found_again(world))
    cursor = StreamCursor(world.log, Start(at.FIRST))
    assert [one.seq_id for one in world.read(cursor, limit=1)] == [0]
    used = world.cache.get(STREAM, 0)
    assert used is not None
    for _ in range(200):
        world.append(bytes(1000))
        world.flush()
        again = StreamCursor(world.log, Start(at.FIRST))
        assert again.look()
        assert again.blocks() == [used]
        again.close()


def test_blocks_of_a_group_are_one_write_for_each_file() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=600_000))
    for _ in range(2):
        world.append(*[bytes(1000)] * 900)
        world.flush()
    assert len(world.log.segments) == 3
    assert world.files.calls.count("pwrite") == 4, "each group ends one file and begins the next"


def test_what_follows_is_read_while_a_reader_uses_what_it_has() -> None:
    world, _files = long_stream(1000)
    world.cache_bytes = 1 << 21
    world.open(found_again(world))
    cursor = StreamCursor(world.log, Start(at.FIRST))
    assert not cursor.look()
    world.run_jobs()
    found: list[int] = []
    while cursor.look():
        if not found:
            assert len(world.board.reads) == 1
        found += [one.seq_id for one in cursor.take(1)]
        world.run_jobs()
    assert world.log.segments.first(1) == len(found), "it waited where a segment ends, and once"


def test_nothing_is_read_ahead_while_another_reader_waits() -> None:
    world, _files = long_stream(1000)
    cursors = [StreamCursor(world.log, Start(at.OFFSET, offset)) for offset in (0, 500)]
    assert not cursors[0].look()
    world.run_jobs()
    assert not cursors[1].look()
    assert cursors[0].look()
    assert len(world.board.reads) == 1


def test_a_reader_at_the_end_reads_nothing_from_disk() -> None:
    world = StreamWorld(cache_bytes=100_000)
    cursors = [StreamCursor(world.log, Start(at.NEXT)) for _ in range(3)]
    world.append(b"a", b"b")
    world.flush()
    before = len(world.files.calls)
    for cursor in cursors:
        assert [one.content for one in world.read(cursor)] == [b"a", b"b"]
    assert world.files.calls[before:] == []


def test_what_is_written_takes_no_room_of_readers_that_are_far_behind() -> None:
    world = StreamWorld(cache_bytes=1 << 21)
    for _ in range(int(FOLLOWED_MESSAGES) // 1000 + 1):
        world.append(*[b"x"] * 1000)
        world.flush()
    cache = world.log.cache
    for readers_place, is_cached in ((at.FIRST, False), (at.NEXT, True), (at.FIRST, True)):
        StreamCursor(world.log, Start(readers_place))
        first = world.log.next_offset
        world.append(b"y")
        world.flush()
        assert (cache.get(STREAM, first) is not None) == is_cached


def test_a_thousand_resting_readers() -> None:
    world, _files = long_stream(50)
    gc.collect()
    tracemalloc.start()
    cursors = [StreamCursor(world.log, Start(at.NEXT)) for _ in range(1000)]
    looked = [cursor.look() for cursor in cursors]
    assert not any(looked)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 1000 * 1000


def test_a_reader_with_a_name_keeps_nothing_of_what_it_has_settled() -> None:
    world, _files = long_stream(2000)
    reader = StreamReader("name", StreamCursor(world.log, Start(at.FIRST)))
    messages = world.read(StreamCursor(world.log, Start(at.FIRST)))
    gc.collect()
    tracemalloc.start()
    reader.took(messages)
    reader.settled(messages, back=False)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 1000


def test_a_segment_costs_24_bytes() -> None:
    gc.collect()
    tracemalloc.start()
    table = SegmentTable()
    for number in range(100_000):
        table.add(number, number, 1)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 100_000 * 24 * 1.2
    assert (table.holding(77_777), table.holding_time(77_777)) == (77_777, 77_776)


def test_segments_grow_with_a_stream_of_many() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=1, segments_usual=10))
    for _ in range(400):
        world.append(bytes(100))
        world.flush()
    assert len(world.log.segments) < 50
    world.read_all()


def test_slow_readers_at_many_places_hold_a_bounded_sum() -> None:
    world, _files = long_stream(2000)
    limit = 300_000
    world.held_bytes = limit
    world.open(found_again(world))
    starts = list(range(0, 2000, 50))
    cursors = [StreamCursor(world.log, Start(at.OFFSET, start)) for start in starts]
    found = [world.read(cursor, limit=1) for cursor in cursors]
    most = world.cache.held_bytes
    for cursor, told in zip(cursors, found, strict=True):
        told.extend(world.read(cursor, limit=3))
        most = max(most, world.cache.held_bytes)
        world.cache.check()
    assert [[one.seq_id for one in told] for told in found] == [
        list(range(start, start + 4)) for start in starts
    ]
    assert limit // 2 < most < limit + 600_000, "one read more than the limit"
    for cursor in cursors:
        cursor.close()
    assert world.cache.held_bytes == 0


def found_again(world: StreamWorld) -> StreamFound:
    job = StreamRecovery(DIRECTORY, STREAM, world.safe)
    run_job(job, world.files)
    return job.found
