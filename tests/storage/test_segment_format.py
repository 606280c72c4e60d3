"""Clauses of docs/formats/segment.md, by a reader written from that page alone."""

from __future__ import annotations

import copy
import random
import struct
import zlib
from typing import NamedTuple

import pytest

from penstock.core.errors import Corrupt
from penstock.core.message import PERSISTENT, STORED, Message, counts_in
from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.recovery import IndexScan
from penstock.storage.index.segment_codec import read_block, segment_file_name, segment_no
from penstock.storage.index.segment_jobs import ContentReleaser, WriteAccount
from penstock.storage.journal.recovery import JournalledQueue
from penstock.storage.journal.resting import RestingFiles
from tests.helpers.sim_files import SimFileSystem
from tests.storage.record_reader import Record, examples, read_record

DIRECTORY = "queues/7"
PATH = f"{DIRECTORY}/1.idx"
JOURNAL = "journal"
ENTRIES = 16
ADDRESS = b"\x00\x01q"
OLDER = bytes.fromhex(
    """
    50535801 00000007 00000001 00000001 0000000000000000 0000000000000000
       00000001 00000003 00000002 0000000000000061 4c224750
    50 01 0003 00000003 00000007 00000000 0000000000000011 0000000000000000 0000000000000001
       000171 686921
    50 41 0003 00002710 00000007 00000000 0000000000000013 0000000000000000 0000000000000002
       000171 0000000000000005
    50535801 00000007 00000001 00000003 0000000000000099 0000000000000099
       00000000 00000000 00000000 0000000000000000 60bca78b
    50535801 00000007 00000001 00000001 00000000000000d1 0000000000000099
       00000002 00000002 00000001 000000000000002c 1406a876
    50 00 0003 00000001 00000007 00000000 0000000000000012 0000000000000000 0000000000000003
       000171 74
    50535801 00000007 00000001 00000002 0000000000000135 0000000000000099
       00000001 00000000 00000001 0000000000000018 a1162607
    0200 0800 00000003 000000000000ea60 00000003 00000002
    50535801 00000007 00000001 00000003 0000000000000185 0000000000000185
       00000000 00000000 00000000 0000000000000000 48611514
    """
)
"""The example of clause 8 as files were begun before attestations stood at the beginning."""


class Block(NamedTuple):
    kind: int
    offset: int
    synced: int
    first: int
    last: int
    rows: int
    payload: bytes


def read_file(data: bytes, queue: int, segment: int) -> list[Block]:
    """Clauses 1.3, 2.1 and 2.2: all true blocks from the first on."""
    return read_from(data, 0, queue, segment) or read_from(data, 56, queue, segment)


def read_from(data: bytes, at: int, queue: int, segment: int) -> list[Block]:
    blocks: list[Block] = []
    while at + 56 <= len(data):
        fields = struct.unpack_from(">3sBIIIQQIIIQI", data, at)
        magic, version, of_queue, of_segment, kind, offset, synced = fields[:7]
        first, last, count, size, crc = fields[7:]
        payload = data[at + 56 : at + 56 + size]
        if (magic, of_queue, of_segment, offset) != (b"PSX", queue, segment, at):
            break
        if version != (2 if kind == 4 else 1):
            break
        if len(payload) < size or crc != zlib.crc32(data[at : at + 52] + payload):
            break
        blocks.append(Block(kind, offset, synced, first, last, count, payload))
        at += 56 + size
    return blocks


def read_messages(block: Block, segment: int, entries: int) -> dict[int, Record]:
    """Clause 3.1: position → record."""
    found: dict[int, Record] = {}
    at = 0
    while at < len(block.payload):
        record, at = read_record(block.payload, at)
        found[record.seq - segment * entries] = record
    assert list(found) == sorted(found)
    assert (block.first, block.last, block.rows) == (min(found), max(found), len(found))
    return found


Marks = tuple[set[int], set[int], dict[int, int], dict[int, int]]


def read_marks(block: Block, entries: int) -> Marks:
    """Clause 3.2: settled, delivered, delays, attempts."""
    size = (entries + 7) // 8
    bitmaps = block.payload[:size], block.payload[size : 2 * size]
    settled, delivered = (
        {p for p in range(entries) if bitmap[p // 8] >> p % 8 & 1} for bitmap in bitmaps
    )
    rows = [struct.unpack_from(">Iq", block.payload, 2 * size + 12 * i) for i in range(block.rows)]
    at = 2 * size + 12 * block.rows
    counts = [struct.unpack_from(">II", block.payload, at + 8 * i) for i in range(block.first)]
    assert len(block.payload) == at + 8 * block.first
    return settled, delivered, dict(rows), dict(counts)


class OpenIndex:
    """The index of queue 7 on a simulated disk, its jobs done when they are asked for."""

    def __init__(self, files: SimFileSystem | None = None) -> None:
        self.files = files or SimFileSystem()
        self.board = JobBoard()
        self.index = QueueIndex(
            self.board,
            WriteAccount(),
            ContentReleaser(),
            DIRECTORY,
            7,
            ENTRIES,
            True,
            RestingFiles(JOURNAL, 1),
        )

    def append(self, *messages: Message) -> None:
        self.index.append(list(messages))
        self.board.run_all(self.files)

    def sync(self) -> None:
        self.index.sync()
        self.board.run_all(self.files)

    def flush_marks(self) -> None:
        self.index.flush_marks()
        self.board.run_all(self.files)

    def blocks(self) -> list[Block]:
        return read_file(self.files.read(PATH), 7, 1)


def scan(files: SimFileSystem) -> IndexScan:
    """As a start after a crash reads it, with a journal that knows nothing."""
    job = IndexScan(DIRECTORY, 7, ENTRIES, JournalledQueue(), JOURNAL)
    job.run(files)
    return job


def message(
    seq: int, content: bytes = b"hi!", *, flags: int = PERSISTENT, at_ms: int = 1
) -> Message:
    one = Message(content, ADDRESS, flags, 0)
    one.seq_id, one.enqueued_at_ms = seq, at_ms
    return one


def stored(seq: int) -> Message:
    one = message(seq, b"", flags=PERSISTENT | STORED, at_ms=2)
    one.msg_id, one.size = 5, 10_000
    return one


def example_index() -> OpenIndex:
    opened = OpenIndex()
    first = message(17)
    opened.append(first, stored(19))
    opened.sync()
    opened.append(message(18, b"t", flags=0, at_ms=3))
    opened.index.settle([first])
    opened.index.mark_delivered(19)
    opened.index.set_delay(19, 60_000)
    opened.index.set_attempts(19, 2)
    opened.flush_marks()
    opened.sync()
    return opened


def test_clause_1_1_names_and_numbers() -> None:
    for number in (0, 1, 17):
        assert segment_no(segment_file_name(number)) == number
    for other in ("00.idx", "01.idx", "x.idx", "1.idxs", ".idx", "1", "٣.idx", "-1.idx"):
        assert segment_no(other) == -1


def test_clause_1_2_a_message_is_in_the_segment_of_its_seq() -> None:
    opened = OpenIndex()
    opened.append(*(message(seq) for seq in (15, 16, 31, 32)))
    for number, seqs in ((0, [15]), (1, [16, 31]), (2, [32])):
        (block,) = read_file(opened.files.read(f"{DIRECTORY}/{number}.idx"), 7, number)
        found = read_messages(block, number, ENTRIES)
        assert [record.seq for record in found.values()] == seqs


def test_clause_1_4_a_file_without_living_messages_goes() -> None:
    opened = OpenIndex()
    one = message(17)
    opened.append(one)
    opened.index.settle([one])
    opened.board.run_all(opened.files)
    assert not opened.files.exists(PATH)
    opened.append(message(18))
    assert [block.first for block in opened.blocks()] == [2]


def test_clause_2_2_every_cut_and_every_flip_is_no_true_block() -> None:
    data = example_index().files.read(PATH)[:209]
    assert read_block(data, 56, 0, 7, 1) is not None
    for size in range(len(data)):
        assert read_block(data[:size], 56, 0, 7, 1) is None
    for bit in range(8 * 56, 8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert read_block(bytes(flipped), 56, 0, 7, 1) is None
        assert [block.kind for block in read_file(bytes(flipped), 7, 1)] == [3]


def test_clause_2_2_a_block_elsewhere_is_not_true() -> None:
    data = example_index().files.read(PATH)[:209]
    assert read_block(data, 56, 0, 8, 1) is None
    assert read_block(data, 56, 0, 7, 2) is None
    assert read_block(b"x" + data, 57, 0, 7, 1) is None


def test_clause_3_1_large_batches_are_many_blocks() -> None:
    opened = OpenIndex()
    opened.append(*(message(seq, b"x" * 100_000) for seq in range(16, 23)))
    blocks = opened.blocks()
    assert [(block.first, block.last, block.rows) for block in blocks] == [
        (0, 2, 3),
        (3, 5, 3),
        (6, 6, 1),
    ]


def test_clause_3_2_the_last_marks_count() -> None:
    opened = OpenIndex()
    batch = [message(seq) for seq in range(16, 20)]
    opened.append(*batch)
    for one in batch[:2]:
        opened.index.settle([one])
        opened.flush_marks()
    marks = [block for block in opened.blocks() if block.kind == 2]
    assert [read_marks(block, ENTRIES)[0] for block in marks] == [{0}, {0, 1}]
    (segment,) = scan(opened.files).segments
    assert segment.live_count == 2


@pytest.mark.parametrize("at, value", [(12, 4), (32, 0), (36, 4), (40, 1), (40, 3)], ids=str)
def test_clause_2_3_a_true_block_of_other_rules_is_damage(at: int, value: int) -> None:
    """Another kind, first, last or count in the header of the first block."""
    opened = example_index()
    old = opened.files.read(PATH)[56:209]
    head = old[:at] + value.to_bytes(4, "big") + old[at + 4 : 52]
    crc = zlib.crc32(head + old[56:]).to_bytes(4, "big")
    opened.files.pwrite_parts(opened.files.open_write(PATH), 56, [head, crc])
    assert read_block(opened.files.read(PATH), 56, 0, 7, 1) is not None
    with pytest.raises(Corrupt, match=r"1\.idx: damaged at offset"):
        scan(opened.files)


def test_clause_5_1_a_torn_tail_is_cut() -> None:
    opened = OpenIndex()
    opened.append(message(17))
    opened.append(message(18))
    size = opened.files.size(PATH)
    opened.files.truncate(PATH, size - 1)
    found = scan(opened.files)
    half = (size - 56) // 2
    assert found.bytes_cut == half - 1
    assert [segment.live_count for segment in found.segments] == [1]
    assert [block.kind for block in opened.blocks()] == [3, 1]
    assert opened.files.size(PATH) == 56 + half


@pytest.mark.parametrize("place", [56, 60, 208, 220, 388])
def test_clause_5_2_a_damage_that_another_block_attests(place: int) -> None:
    opened = example_index()
    at = next(end for end in (309, 209, 56) if place >= end)
    opened.files.flip(PATH, 8 * place)
    with pytest.raises(Corrupt, match=rf"1\.idx: damaged at offset {at}, {389 - at} bytes"):
        scan(opened.files)


@pytest.mark.parametrize("size", [56, 209, 309])
def test_clause_5_2_a_a_file_that_was_cut_short(size: int) -> None:
    opened = example_index()
    opened.files.truncate(PATH, size)
    text = (
        rf"1\.idx: ends at offset {size}, although 389 bytes of it were on disk: it was cut short"
    )
    with pytest.raises(Corrupt, match=text):
        scan(opened.files)


@pytest.mark.parametrize("torn", [bytes(56), b"x" * 56, b"PSX\x01"])
def test_clause_3_3_an_attestation_that_is_torn_says_nothing(torn: bytes) -> None:
    """A start writes another one, when all is on disk again."""
    opened = example_index()
    opened.files.pwrite_parts(opened.files.open_write(PATH), 0, [torn])
    (segment,) = scan(opened.files).segments
    assert segment.live_count == 1
    assert opened.files.read(PATH) == example_index().files.read(PATH)


def test_clause_1_5_attestations_of_an_older_file_are_behind_what_they_attest() -> None:
    """And so is what is appended to it."""
    data = OLDER
    files = SimFileSystem()
    files.makedirs(DIRECTORY)
    files.pwrite_parts(files.open_write(PATH), 0, [data])
    (segment,) = scan(files).segments
    assert (segment.is_old, segment.live_count, segment.synced) == (True, 1, len(data))
    opened = OpenIndex(files)
    opened.index.adopt([segment], 0)
    opened.append(message(20))
    opened.sync()
    opened.sync()
    assert files.read(PATH)[: len(data)] == data
    assert [block.kind for block in opened.blocks()] == [1, 3, 1, 2, 3, 1, 3]


def test_clause_5_2_b_records_of_other_segments_are_damage() -> None:
    opened = OpenIndex()
    opened.append(message(17))
    job = IndexScan(DIRECTORY, 7, 2 * ENTRIES, JournalledQueue(), JOURNAL)
    with pytest.raises(Corrupt, match=r"1\.idx: damaged at offset 112, "):
        job.run(opened.files)


def test_clause_5_3_what_lives_after_a_crash() -> None:
    found = scan(example_index().files)
    (segment,) = found.segments
    assert segment.live_count == 1
    assert [(record.position, record.msg_id) for record in found.stored] == [(3, 5)]
    assert segment.marks.is_settled(1)
    assert segment.marks.is_settled(2)
    assert (segment.marks.delays, segment.marks.attempts) == ({3: 60_000}, {3: 2})


def test_clause_5_4_a_removal_that_was_not_synced_is_made_durable() -> None:
    """The start after it gives up the journal that knew why the file went."""
    node = OpenIndex()
    node.append(message(ENTRIES))
    node.sync()
    files = node.files
    files.remove(PATH)
    files.kill()  # before the directory was synced
    assert scan(files).segments == []
    for seed in range(8):
        image = copy.deepcopy(files)
        image.power_cut(random.Random(seed))
        assert not image.exists(PATH)


@pytest.mark.parametrize("word, wanted", [(1, 2), (5, 5), (1 | 1 << 16, 1 | 1 << 16)])
def test_clause_5_3_attempts_are_the_larger_of_marks_and_journal(word: int, wanted: int) -> None:
    """And what is read from the segment says so."""
    opened = example_index()
    journalled = JournalledQueue()
    journalled.attempts = {19: word, 18: 9, 400: 1}
    job = IndexScan(DIRECTORY, 7, ENTRIES, journalled, JOURNAL)
    job.run(opened.files)
    (segment,) = job.segments
    assert segment.marks.attempts == {3: wanted}
    segment.check()
    index = OpenIndex(opened.files).index
    index.adopt([segment], 0)
    read = index.plan_read(16, 32, 1 << 20)
    assert read is not None
    read.run(opened.files)
    assert [counts_in(one.flags) for one in index.decode(read)] == [wanted]


def test_clause_6_1_another_version_is_refused_not_cut() -> None:
    opened = example_index()
    old = opened.files.read(PATH)[56:209]
    head = b"PSX\x03" + old[4:52]
    crc = zlib.crc32(head + old[56:]).to_bytes(4, "big")
    opened.files.pwrite_parts(opened.files.open_write(PATH), 56, [head, crc])
    with pytest.raises(Corrupt, match="version 3, this release reads versions 1 to 2"):
        scan(opened.files)


def test_clause_8_the_example() -> None:
    (data,) = examples("segment.md")
    opened = example_index()
    assert opened.files.read(PATH) == data
    attested, first, second, marks = read_file(data, 7, 1)
    assert [block.kind for block in (attested, first, second, marks)] == [3, 1, 1, 2]
    assert (attested.offset, attested.synced, second.synced) == (0, len(data), 209)
    assert read_messages(first, 1, ENTRIES) == {
        1: Record(1, 7, 0, 17, 0, 1, ADDRESS, 3, b"hi!"),
        3: Record(65, 7, 0, 19, 0, 2, ADDRESS, 10_000, 5),
    }
    assert read_messages(second, 1, ENTRIES) == {2: Record(0, 7, 0, 18, 0, 3, ADDRESS, 1, b"t")}
    assert read_marks(marks, ENTRIES) == ({1}, {3}, {3: 60_000}, {3: 2})
