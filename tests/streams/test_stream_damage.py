"""True blocks in wrong places are damage, and bytes of a stream that is gone are not counted."""

from __future__ import annotations

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import JobBoard, run_job
from penstock.streams.block_codec import MESSAGES, BlockHead
from penstock.streams.cursor import FIRST, Start, StreamCursor
from penstock.streams.log import StreamLimits
from penstock.streams.reading import BlockCache
from penstock.streams.recovery import StreamRecovery
from penstock.streams.streams import Streams
from tests.streams.stream_tools import DIRECTORY, STREAM, StreamWorld, message


def segments(count: int) -> tuple[StreamWorld, str, str]:
    """A block for each message; the paths of the first two files."""
    world = StreamWorld(StreamLimits(segment_bytes=500), cache_bytes=0)
    while len(world.log.segments) < count:
        world.append(bytes(200))
        world.flush()
    first, second = (f"{DIRECTORY}/{world.log.segments.first(place)}.stm" for place in (0, 1))
    return world, first, second


def test_a_file_that_begins_behind_the_offset_looked_for_is_damage() -> None:
    """Its blocks are true, and are those of another file: messages would be left out in silence."""
    world, first, second = segments(3)
    world.files.names[first].cache[:] = world.files.names[second].cache
    cursor = StreamCursor(world.log, Start(FIRST))
    assert world.read(cursor) == []
    assert isinstance(cursor.error, Corrupt)
    assert f"{first}: damaged at offset 0" in str(cursor.error)


def test_what_cannot_be_read_is_not_read_again_before_the_reader_is_told() -> None:
    world, first, _ = segments(2)
    sound = bytes(world.files.names[first].cache)
    world.files.names[first].cache[100] ^= 1
    cursor = StreamCursor(world.log, Start(FIRST))
    assert world.read(cursor) == []
    assert isinstance(cursor.error, Corrupt)
    assert not cursor.is_reading()
    world.files.names[first].cache[:] = sound
    assert world.read(cursor) == []
    cursor.read_again()
    assert world.read(cursor) != []


def test_a_true_block_behind_the_index_of_a_file_is_damage() -> None:
    world, first, second = segments(2)
    begin = int(world.log.segments.first(1))
    world.files.remove(second)
    data = world.files.names[first].cache
    end = len(data)
    payload = b"\x00\x03\x00\x00\x00\x01\x00\x01qx"
    head = BlockHead(STREAM, MESSAGES, 1, end, 0, 0, begin, 5, 5, b"", len(payload))
    data += head.encode(payload) + payload
    start = StreamRecovery(DIRECTORY, STREAM, 0)
    run_job(start, world.files)
    assert isinstance(start.error, Corrupt)
    assert f"{first}: damaged at offset {end}" in str(start.error)


def test_what_a_deleted_stream_had_not_sealed_counts_no_more() -> None:
    streams = Streams("data", JobBoard(), BlockCache(0))
    kept, gone = streams.open(1), streams.open(2)
    for log in (kept, gone):
        log.append([message(bytes(100))], [], 5)
        streams.note(log, log.pending_bytes())
    streams.delete(2)
    assert streams.unsealed_bytes == kept.pending_bytes()
