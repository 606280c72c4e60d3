"""Clauses of docs/formats/streams.md, by a reader written from that page alone."""

from __future__ import annotations

import copy
import random
import struct
import zlib
from typing import NamedTuple

import pytest

from penstock.core.errors import Corrupt
from penstock.streams import cursor as at
from penstock.streams.block_codec import read_head, segment_first, segment_path
from penstock.streams.cursor import Start, StreamCursor
from penstock.streams.filtering import may_hold
from penstock.streams.log import StreamLimits
from penstock.streams.recovery import StreamRecovery
from penstock.streams.writer import StreamGroups
from tests.helpers.sim_files import SimFileSystem
from tests.storage.record_reader import examples
from tests.streams.stream_tools import DIRECTORY, STREAM, StreamWorld

FIRST = f"{DIRECTORY}/0.stm"
SECOND = f"{DIRECTORY}/3.stm"


class Block(NamedTuple):
    kind: int
    count: int
    at: int
    synced: int
    floor: int
    first: int
    first_ms: int
    last_ms: int
    filter: bytes
    payload: bytes


def read_file(data: bytes, stream: int = STREAM) -> list[Block]:
    """Clauses 2.1 and 2.2: all true blocks from the first on."""
    blocks: list[Block] = []
    place = 0
    while place + 80 <= len(data):
        fields = struct.unpack_from(">3sBIIIQQQQqqIIII", data, place)
        magic, version, of_stream, kind, count, own, synced, floor, first = fields[:9]
        first_ms, last_ms, filter_size, size, payload_crc, head_crc = fields[9:]
        block_filter = data[place + 80 : place + 80 + filter_size]
        payload = data[place + 80 + filter_size : place + 80 + filter_size + size]
        if (magic, version, of_stream, own) != (b"PSS", 1, stream, place) or len(payload) < size:
            break
        if head_crc != zlib.crc32(data[place : place + 76] + block_filter):
            break
        if payload_crc != zlib.crc32(payload):
            break
        times = (first_ms, last_ms)
        blocks.append(Block(kind, count, own, synced, floor, first, *times, block_filter, payload))
        place += 80 + filter_size + size
    return blocks


def read_records(block: Block) -> list[tuple[bytes, bytes]]:
    """Clause 3.1: address and content of each."""
    found = []
    place = 0
    while place < len(block.payload):
        address_size, size = struct.unpack_from(">HI", block.payload, place)
        place += 6
        address = block.payload[place : place + address_size]
        place += address_size
        found.append((address, block.payload[place : place + size]))
        place += size
    assert (place, len(found)) == (len(block.payload), block.count)
    return found


def read_rows(block: Block) -> list[tuple[int, int, int]]:
    """Clause 3.3."""
    assert struct.unpack_from(">Q", block.payload, 24 * block.count) == (block.at,)
    assert len(block.payload) == 24 * block.count + 8
    return [struct.unpack_from(">QqQ", block.payload, 24 * i) for i in range(block.count)]


def filter_bits(value: bytes, size: int) -> set[int]:
    """Clause 4.2."""
    first = zlib.crc32(value)
    step = ((first ^ first >> 16) * 73_244_475 >> 7) % 2**32 | 1
    return {(first + i * step) % (8 * size) for i in range(3)}


def bits_set(block_filter: bytes) -> set[int]:
    return {i for i in range(8 * len(block_filter)) if block_filter[i // 8] >> i % 8 & 1}


def example() -> StreamWorld:
    """The one of clause 9, up to its last block."""
    world = StreamWorld(StreamLimits(segment_bytes=150, max_bytes=1, filter_bytes=16))
    world.append(b"hi!", b"yo", values=[b"eu", b""])
    world.flush()
    world.now_ms = 2000
    world.append(b"x")
    world.flush()
    world.append(b"z")
    world.flush()
    return world


def test_clause_1_1_names_and_numbers() -> None:
    for number in (0, 1, 17):
        assert segment_first(segment_path("x", number).rpartition("/")[2]) == number
    for other in ("00.stm", "01.stm", "x.stm", "1.stms", ".stm", "1", "٣.stm", "-1.stm"):
        assert segment_first(other) == -1


def test_clause_1_2_segments_follow_each_other() -> None:
    world = example()
    assert sorted(world.files.names) == [FIRST, SECOND]
    assert [block.first for block in read_file(world.files.read(FIRST))] == [0, 2, 3]


def test_clause_1_3_a_file_is_synced_before_the_next_is_begun() -> None:
    calls = example().files.calls
    begun = calls.index(f"open_write {SECOND}")
    assert "sync" in calls[calls.index(f"open_write {FIRST}") : begun][-3:]
    assert calls[begun:][1] == f"sync_dir {DIRECTORY}"


def test_clause_2_2_every_cut_and_every_flip_is_no_true_block() -> None:
    data = example().files.read(FIRST)[:119]
    for size in range(96):
        assert read_head(data[:size], 0, 0, STREAM, "") is None
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert read_file(bytes(flipped)) == []
        head = None
        if bit // 8 != 3:  # of another version the page says nothing but that it is refused
            head = read_head(bytes(flipped), 0, 0, STREAM, "")
        assert (head is not None) == (bit >= 8 * 96)
        assert head is None or not head.is_payload(bytes(flipped[96:]))


def test_clause_2_2_a_block_elsewhere_is_not_true() -> None:
    data = example().files.read(FIRST)
    assert read_head(data, 0, 0, STREAM + 1, "") is None
    assert read_head(b"x" + data, 1, 0, STREAM, "") is None
    assert read_head(data, 119, 0, STREAM, "") is not None


def read_positions(block: Block) -> dict[bytes, tuple[int, int]]:
    """Clause 3.5."""
    found: dict[bytes, tuple[int, int]] = {}
    place = 0
    while place < len(block.payload):
        end = place + 1 + block.payload[place]
        offset, came_ms = struct.unpack_from(">Qq", block.payload, end)
        found[block.payload[place + 1 : end]] = (offset, came_ms)
        place = end + 16
    assert (place, len(found)) == (len(block.payload), block.count)
    return found


def test_clause_3_5_positions_come_behind_messages_and_first_in_a_segment() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=150))
    world.append(b"one", b"two")
    world.seal()
    world.log.marks.positions.move("a", 1, 1000)
    world.log.marks.positions.move("b" * 255, 0, 0)
    world.flush()
    world.append(b"three")
    world.flush()
    first = read_file(world.files.read(FIRST))
    second = read_file(world.files.read(f"{DIRECTORY}/2.stm"))
    assert [block.kind for block in first] == [1, 4, 2]
    assert [block.kind for block in second] == [4, 1]
    expected = {b"a": (1, 1000), b"b" * 255: (0, 0)}
    assert read_positions(first[1]) == read_positions(second[0]) == expected
    assert [block.first for block in (*first, *second)] == [0, 2, 2, 2, 2]


def test_clause_3_5_the_last_block_counts() -> None:
    world = StreamWorld()
    world.append(b"one", b"two")
    for offset in (0, 1, 2):
        world.log.marks.positions.move("a", offset, 1000)
        world.log.marks.positions.move(f"once-{offset}", offset, 1000)
        world.log.marks.positions.forget(f"once-{offset - 1}")
        world.flush()
    world.recover()
    positions = world.log.marks.positions
    assert positions.names() == ["a", "once-2"]
    marks = [positions.find(name) for name in positions.names()]
    assert [mark.number for mark in marks if mark is not None] == [2, 2]
    assert not positions.changed


def test_clause_3_6_numbers_follow_their_group_and_are_first_in_a_segment() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=300))
    world.log.marks.number_publishers()
    for number in range(4):
        world.append(b"x" * 90, b"y" * 90)
        world.log.marks.publishers.move("p", number, 2 * number + 1)
        world.flush()
    first = read_file(world.files.read(FIRST))
    second = read_file(world.files.read(f"{DIRECTORY}/2.stm"))
    assert [block.kind for block in first] == [5, 1, 5, 2]
    assert [block.kind for block in second] == [5, 1, 5, 2]
    assert [read_positions(block) for block in first[:3:2]] == [{}, {b"p": (0, 1)}]
    assert [read_positions(block) for block in second[:3:2]] == [{b"p": (0, 1)}, {b"p": (1, 3)}]


def test_clause_3_6_a_segment_is_not_begun_within_a_group() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=300_000))
    world.log.marks.number_publishers()
    world.append(*[b"x" * 100_000] * 9)
    world.log.marks.publishers.move("p", 8, 8)
    world.flush()
    assert [block.kind for block in read_file(world.files.read(FIRST))] == [5, 1, 1, 1, 5]


def test_clause_3_7_terms_come_before_messages_and_first_in_a_segment() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=250))
    world.append(b"one")
    world.flush()
    world.log.marks.begin_term(7, 1)
    world.append(b"two")
    world.flush()
    world.append(b"three" * 9)
    world.flush()
    first = read_file(world.files.read(FIRST))
    second = read_file(world.files.read(f"{DIRECTORY}/2.stm"))
    assert [block.kind for block in first] == [1, 6, 1, 2]
    assert [block.kind for block in second] == [6, 1]
    assert read_positions(first[1]) == read_positions(second[0]) == {b"7": (1, 0)}
    assert [block.first for block in (*first, *second)] == [0, 1, 1, 2, 2, 2]


def test_clause_6_4_what_is_given_up_is_named_first() -> None:
    world = StreamWorld(StreamLimits())
    for content in (b"one", b"two", b"three"):
        world.append(content)
        world.flush()
    world.writer.close()
    world.files.close(world.files.open_write(f"{DIRECTORY}/1-3.cut"))
    world.safe, world.entries = 0, world.entries[:1]
    world.recover()
    assert [block.first for block in read_file(world.files.read(FIRST))] == [0]
    assert world.files.listdir(DIRECTORY).count("3.gone") == 1
    world.read_all()


def test_clause_6_2_d_damage_to_the_last_positions_is_named() -> None:
    world = StreamWorld()
    world.append(b"one")
    world.log.marks.positions.move("a", 1, 1000)
    world.flush()
    world.append(b"two")
    world.flush()
    positions = read_file(world.files.read(FIRST))[0]
    world.files.flip(FIRST, 8 * (positions.at + 80))
    with pytest.raises(Corrupt, match=f"damaged at offset {positions.at}"):
        world.recover()


def test_clause_4_1_without_values_there_is_no_filter() -> None:
    world = StreamWorld()
    world.append(b"a", b"b")
    world.append(b"c", values=[b""])
    world.flush()
    assert [block.filter for block in read_file(world.files.read(FIRST))] == [b""]
    assert may_hold(b"", b"")
    assert not may_hold(b"", b"eu")


def test_clause_4_2_bits_of_a_filter() -> None:
    rng = random.Random(1)
    for size in (1, 16, 255):
        world = StreamWorld(StreamLimits(filter_bytes=size))
        values = [rng.randbytes(rng.randint(0, 9)) for _ in range(4)]
        world.append(*values, values=values)
        world.flush()
        (block,) = read_file(world.files.read(FIRST))
        assert len(block.filter) == size
        assert bits_set(block.filter) == set().union(*(filter_bits(v, size) for v in values))
        assert all(may_hold(block.filter, value) for value in values)


def test_clause_4_3_a_filter_of_the_usual_size_says_no_most_of_the_time() -> None:
    world = StreamWorld(StreamLimits(filter_bytes=16))
    world.append(*[b"x"] * 10, values=[f"region-{i}".encode() for i in range(10)])
    world.flush()
    (block,) = read_file(world.files.read(FIRST))
    wrong = sum(may_hold(block.filter, f"other-{i}".encode()) for i in range(1000))
    assert wrong < 60


def test_clause_5_1_retention_is_written_before_a_file_goes() -> None:
    world = example()
    assert world.log.retire(world.now_ms) == 1
    world.run_jobs()
    assert world.files.exists(FIRST)
    world.flush()
    assert not world.files.exists(FIRST)
    told = read_file(world.files.read(SECOND))
    assert [(block.kind, block.count, block.floor) for block in told] == [(1, 1, 0), (3, 0, 3)]


def test_clause_6_1_a_torn_tail_is_cut() -> None:
    world = example()
    world.append(b"more")
    world.flush()
    size = world.files.size(SECOND)
    world.files.truncate(SECOND, size - 1)
    job = StreamRecovery(DIRECTORY, STREAM, 4)
    job.run(world.files)
    assert job.found.next_offset == 4
    assert job.bytes_cut > 0
    assert len(read_file(world.files.read(SECOND))) == 1


def test_clause_6_1_a_file_that_never_began_is_removed() -> None:
    world = example()
    world.files.truncate(SECOND, 79)
    job = StreamRecovery(DIRECTORY, STREAM, 3)
    job.run(world.files)
    assert (job.found.next_offset, job.found.finished) == (3, True)
    assert not world.files.exists(SECOND)


def refused(files: SimFileSystem, known: int) -> str:
    with pytest.raises(Corrupt) as told:
        StreamRecovery(DIRECTORY, STREAM, known).run(files)
    return str(told.value)


def test_clause_6_2_a_damage_that_a_later_block_attests() -> None:
    world = example()
    world.append(b"more")
    world.flush()
    size = world.files.size(SECOND)
    world.files.flip(SECOND, 8 * 20)
    assert refused(world.files, 0) == f"{SECOND}: damaged at offset 0, {size} bytes"


def test_clause_6_2_b_the_end_that_is_known_is_missing() -> None:
    world = example()
    size = world.files.size(SECOND)
    world.append(b"more")
    world.flush()
    world.files.truncate(SECOND, size + 3)
    assert refused(world.files, 5) == f"{SECOND}: damaged at offset {size}, 3 bytes"
    world.files.truncate(SECOND, size)
    assert "messages 4 to 4 of the stream are missing at its end" in refused(world.files, 5)


def test_clause_6_2_b_a_directory_that_is_gone() -> None:
    assert "messages 0 to 8 of the stream are missing" in refused(SimFileSystem(), 9)
    StreamRecovery(DIRECTORY, STREAM, 0).run(SimFileSystem())


def test_clause_6_2_c_a_file_that_is_gone() -> None:
    world = StreamWorld(StreamLimits(segment_bytes=1))
    for content in (b"a", b"b", b"c"):
        world.append(content)
        world.flush()
    without_second = copy.deepcopy(world.files)
    without_second.remove(f"{DIRECTORY}/1.stm")
    told = refused(without_second, 3)
    assert told.startswith(f"{DIRECTORY}/1.stm: this file is missing; messages 1 to 1")
    world.files.remove(FIRST)
    assert "messages 0 to 0 of the stream are missing at its begin" in refused(world.files, 3)


@pytest.mark.parametrize("place", [0, 40, 119, 209, 250])
def test_clause_6_2_d_damage_to_a_finished_file_is_named(place: int) -> None:
    """By the start, or by the reader that comes to it; what is before is read."""
    world = example()
    world.files.flip(FIRST, 8 * place)
    try:
        world.recover()
        cursor = StreamCursor(world.log, Start(at.FIRST))
        found = world.read(cursor)
        told = str(cursor.error)
        assert [one.content for one in found] == [b"hi!", b"yo", b"x"][: len(found)]
    except Corrupt as error:
        told = str(error)
    assert told.startswith(FIRST)
    assert "damaged" in told


@pytest.mark.parametrize("bit", range(8))
def test_clause_3_3_a_place_of_the_index_beyond_any_file_is_damage(bit: int) -> None:
    """The highest byte of it: the number may be negative for a machine integer."""
    world = example()
    world.recover()
    world.files.flip(FIRST, 8 * (world.files.size(FIRST) - 8) + bit)
    cursor = StreamCursor(world.log, Start(at.FIRST))
    world.read(cursor)
    assert str(cursor.error).startswith(FIRST)
    with pytest.raises(Corrupt, match="damaged"):
        world.recover()


def test_clause_6_3_what_may_be_in_memory_only_is_written_again() -> None:
    """A process that was killed before its sync, a start, then a power cut."""
    world = example()
    world.append(b"more")
    world.seal()
    world.writer.write(StreamGroups([world.sealed.pop()], []))
    world.files.kill()
    world.recover()
    assert world.log.next_offset == 5
    for seed in range(8):
        image = copy.deepcopy(world.files)
        image.power_cut(random.Random(seed))
        job = StreamRecovery(DIRECTORY, STREAM, 5)
        job.run(image)
        assert job.found.next_offset == 5


def test_clause_7_1_another_version_is_refused_not_cut() -> None:
    world = example()
    data = world.files.read(SECOND)
    head = b"PSS\x02" + data[4:76]
    crc = zlib.crc32(head).to_bytes(4, "big")
    world.files.pwrite_parts(world.files.open_write(SECOND), 0, [head, crc])
    assert "version 2, this release reads version 1" in refused(world.files, 0)


def test_clause_9_the_example() -> None:
    finished, last = examples("streams.md")
    world = example()
    assert world.files.read(FIRST) == finished
    world.log.retire(world.now_ms)
    world.flush()
    assert world.files.read(SECOND) == last
    first, second, index = read_file(finished)
    assert read_records(first) == [(b"\x00\x01q", b"hi!"), (b"\x00\x01q", b"yo")]
    assert read_records(second) == [(b"\x00\x01q", b"x")]
    assert read_rows(index) == [(0, 1000, 0)]
    assert [(block.kind, block.synced) for block in (first, second, index)] == [
        (1, 0),
        (1, 119),
        (2, 209),
    ]
    message, floor = read_file(last)
    assert read_records(message) == [(b"\x00\x01q", b"z")]
    assert (floor.kind, floor.floor, floor.first, floor.payload) == (3, 3, 4, b"")
