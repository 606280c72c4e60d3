"""Clauses of docs/formats/journal.md and message_record.md, by a reader written from the pages."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import pytest
from librt.strings import BytesWriter

from penstock.core.errors import Corrupt
from penstock.core.message import (
    ASKS_REPLY,
    ATTEMPTS_SHIFT,
    ONE_RETURN,
    PERSISTENT,
    REDELIVERED,
    SAMPLED,
    STORED,
    Message,
    attempts_of,
    returns_of,
)
from penstock.storage.common.message_record import message_record_size, write_message_head
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.journal.codec import (
    JournalGroup,
    block_end,
    journal_file_name,
    journal_file_no,
    record_size,
    spare_file_name,
)
from penstock.storage.journal.journal import Journal
from penstock.storage.journal.recovery import JournalRecovery
from tests.helpers.sim_files import SimFileSystem
from tests.storage.record_reader import Record, examples, read_record

DIRECTORY = "journal"
FILE_BYTES = 1 << 14
BEGUN = 36 + 10 + 13
"""Bytes of the first block of an empty journal."""
ADDRESS = b"\x00\x01q"
FIXED = {
    b"A": ">IQ",
    b"R": ">IQI",
    b"T": ">IQQ",
    b"L": ">IQq",
    b"E": ">IQII",
    b"N": ">IQ",
    b"X": ">I",
    b"D": ">I",
    b"B": ">IQ",
}


class Block(NamedTuple):
    file_no: int
    offset: int
    synced: int
    records: list[tuple[object, ...]]


def read_file(data: bytes) -> list[Block]:
    """Clauses 1.2, 1.3, 2.1 and 2.2: all true blocks from the first on."""
    blocks: list[Block] = []
    at = 0
    while at + 36 <= len(data):
        magic, version, file_no, offset, synced, size, crc = struct.unpack_from(
            ">3sBIQQQI", data, at
        )
        end = at + 36 + size
        if (magic, version, offset) != (b"PSJ", 3, at) or end > len(data):
            break
        if crc != zlib.crc32(data[at : at + 32] + data[at + 36 : end]):
            break
        blocks.append(Block(file_no, offset, synced, list(read_records(data[at + 36 : end]))))
        at = end
    return blocks


def read_records(data: bytes) -> list[tuple[object, ...]]:
    """Clause 3."""
    records: list[tuple[object, ...]] = []
    at = 0
    while at < len(data):
        kind = data[at : at + 1]
        if kind == b"P":
            record, at = read_record(data, at)
            records.append((b"P", record))
        elif kind in (b"F", b"Q", b"K"):
            (count,) = struct.unpack_from(">I", data, at + 1)
            rows = [struct.unpack_from(">IQ", data, at + 5 + 12 * i) for i in range(count)]
            records.append((kind, dict(rows)))
            at += 5 + 12 * count
        else:
            layout = struct.Struct(FIXED[kind])
            records.append((kind, *layout.unpack_from(data, at + 1)))
            at += 1 + layout.size
    assert at == len(data)
    return records


class OpenJournal:
    """A journal on a simulated disk, committed here and now."""

    def __init__(
        self, files: SimFileSystem | None = None, file_no: int = 1, file_bytes: int = FILE_BYTES
    ) -> None:
        self.files = files or SimFileSystem()
        self.journal = Journal(self.files, DIRECTORY, file_bytes)
        self.journal.begin(file_no, {})

    def commit(self, *, sync: bool = True) -> JournalGroup:
        group = self.journal.seal(sync)
        assert group is not None
        handle = self.files.open_write(self.path(int(group.file_no)))
        self.files.allocate(handle, int(self.journal.file_size_bytes))
        self.files.pwrite_parts(handle, int(group.offset), [group.header(), *group.parts])
        self.files.close(handle)
        self.journal.committed(group)
        return group

    def path(self, number: int) -> str:
        return f"{DIRECTORY}/{number}.jif"

    def data(self, number: int = 1) -> bytes:
        return self.files.read(self.path(number))

    def recover(self, *queue_ids: int) -> JournalRecovery:
        recovery = JournalRecovery(self.files, DIRECTORY, set(queue_ids), SeqRanges())
        recovery.run()
        return recovery


def message(seq: int, content: bytes = b"hi!", enqueued_at_ms: int = 1) -> Message:
    one = Message(content, ADDRESS, PERSISTENT, 0)
    one.seq_id = seq
    one.enqueued_at_ms = enqueued_at_ms
    return one


def stored(seq: int) -> Message:
    one = message(seq, b"", 2)
    one.flags |= STORED
    one.msg_id = 5
    one.size = 10_000
    return one


def living(recovery: JournalRecovery, queue_id: int) -> list[int]:
    return [int(one.seq_id) for one in recovery.queues[queue_id].messages]


def example_journal() -> OpenJournal:
    opened = OpenJournal()
    journal = opened.journal
    first, second = message(0), stored(1)
    journal.reserve(7, 16_384)
    journal.publish(7, [first, second])
    opened.commit()
    second.seq_id = 2
    second.flags |= REDELIVERED | 1 << ATTEMPTS_SHIFT
    journal.to_tail(7, second, 1)
    journal.delay(7, 2, 60_000)
    second.flags += 1 << ATTEMPTS_SHIFT
    journal.note_attempts(7, [second])
    journal.ack(7, [first])
    opened.commit()
    return opened


# -- the record -----------------------------------------------------------------------------


def test_record_clause_4_the_example() -> None:
    (data,) = examples("message_record.md")
    first, at = read_record(data, 0)
    second, end = read_record(data, at)
    assert end == len(data)
    assert first == Record(1, 7, 0, 0, 0, 1, ADDRESS, 3, b"hi!")
    assert second == Record(65, 7, 0, 1, 0, 2, ADDRESS, 10_000, 5)
    assert data in example_journal().data()


def test_record_clause_1_4_sizes() -> None:
    assert message_record_size(message(0)) == 40 + 3 + 3
    assert message_record_size(stored(0)) == 40 + 3 + 8
    longest = Message(b"", b"a" * 32_767, PERSISTENT, 0)
    assert message_record_size(longest) == 40 + 32_767


def test_what_only_this_process_knows_of_a_message_is_not_in_its_record() -> None:
    """A sample of the event log, a question of direct reply-to: bits between the counts."""
    writer = BytesWriter()
    one = message(1)
    one.flags |= 3 << ATTEMPTS_SHIFT | SAMPLED | ASKS_REPLY | 5 * ONE_RETURN
    write_message_head(writer, 7, one)
    record, _ = read_record(writer.getvalue() + ADDRESS + b"hi!", 0)
    assert record.counts == 3 | 5 << 16
    assert record.flags == PERSISTENT


def test_record_clause_1_1_a_message_comes_back_as_it_was() -> None:
    opened = OpenJournal()
    one = Message(b"\x00content\xff", ADDRESS, PERSISTENT, 77)
    one.set_counts(0x7FFF_FFFF)
    one.seq_id, one.enqueued_at_ms = 2**62, 2**62 + 1
    opened.journal.publish(1, [one])
    opened.commit()
    (_, record) = read_file(opened.data())[1].records[0]
    assert record == Record(1, 1, 0x7FFF_FFFF, 2**62, 77, 2**62 + 1, ADDRESS, 9, one.content)
    (found,) = opened.recover(1).queues[1].messages
    assert (found.content, found.address, found.seq_id) == (one.content, ADDRESS, 2**62)
    assert (found.expires_at_ms, found.enqueued_at_ms) == (77, 2**62 + 1)
    assert (attempts_of(found), returns_of(found)) == (65_535, 32_767)
    assert not found.flags & (ASKS_REPLY | SAMPLED)


def test_record_clause_2_1_one_over_the_end_of_its_block_is_damage() -> None:
    opened = OpenJournal()
    opened.journal.publish(1, [message(0)])
    data = opened.commit().data
    for size in range(1, len(data)):
        assert record_size(data[:size], 0, size) == -1


# -- files and blocks -----------------------------------------------------------------------


def test_clause_1_1_names_and_numbers() -> None:
    assert journal_file_no(journal_file_name(17)) == 17
    for other in ("0.jif", "01.jif", "x.jif", "1.jifs", ".jif", "1", "٣.jif", spare_file_name(3)):
        assert journal_file_no(other) == 0


def test_clause_1_3_reserved_room_and_full_files() -> None:
    opened = OpenJournal()
    assert len(opened.data()) == FILE_BYTES
    opened.journal.publish(1, [message(0, b"x" * (FILE_BYTES * 7 // 8 - 200))])
    opened.commit()
    opened.journal.publish(1, [message(1)])
    assert opened.commit().file_no == 1
    opened.journal.publish(1, [message(2, b"x" * 200)])
    opened.commit()
    opened.journal.publish(1, [message(3, b"x" * FILE_BYTES)])
    assert opened.commit().file_no == 2
    assert len(opened.data(2)) > FILE_BYTES
    assert living(opened.recover(1), 1) == [0, 1, 2, 3]


def test_clause_1_3_and_2_2_what_an_older_file_left_behind_counts_for_nothing() -> None:
    opened = example_journal()
    old = opened.data()
    opened.files.rename(opened.path(1), f"{DIRECTORY}/{spare_file_name(1)}")
    opened.files.rename(f"{DIRECTORY}/{spare_file_name(1)}", opened.path(2))
    again = OpenJournal(opened.files, 2)
    assert again.data(2)[BEGUN:] == old[BEGUN:]
    assert living(again.recover(7), 7) == []
    assert again.recover(7).bytes_cut == 0


def test_clause_2_2_every_cut_and_every_flip_is_no_true_block() -> None:
    group = JournalGroup(3, 0, 0, [b"A\x00\x00\x00\x01" + bytes(8)], True, 13, [])
    block = group.header() + group.data
    assert block_end(block, 0, 3) == len(block) == 36 + 13
    assert [len(one.records) for one in read_file(block)] == [1]
    for size in range(len(block)):
        assert block_end(block[:size], 0, 3) == -1
    for bit in range(8 * len(block)):
        flipped = bytearray(block)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert block_end(bytes(flipped), 0, 3) == -1
        assert read_file(bytes(flipped)) == [] or flipped[4:8] != block[4:8]


def test_clause_2_2_a_block_elsewhere_is_not_true() -> None:
    group = JournalGroup(3, 0, 0, [b"D\0\0\0\1"], True, 5, [])
    block = group.header() + group.data
    assert block_end(block, 0, 4) == -1
    assert block_end(b"x" + block, 1, 3) == -1


@pytest.mark.parametrize("records", [b"Z", b"A\x00", b"P" + b"\xff" * 40, b"Q\x7f\xff\xff\xff"])
def test_clause_2_3_unknown_records_are_damage(records: bytes) -> None:
    assert record_size(records, 0, len(records)) == -1
    opened = OpenJournal()
    group = JournalGroup(1, BEGUN, 0, [records], True, 0, [])
    put(opened, BEGUN, group.header() + group.data)
    with pytest.raises(Corrupt, match=rf"journal/1\.jif: damaged at offset {BEGUN + 36}, "):
        opened.recover(1)


def put(opened: OpenJournal, offset: int, data: bytes) -> None:
    opened.files.pwrite_parts(opened.files.open_write(opened.path(1)), offset, [data])


# -- records --------------------------------------------------------------------------------


def test_clause_3_2_neighbours_become_one_run() -> None:
    opened = OpenJournal()
    batch = [message(seq) for seq in range(100)]
    opened.journal.publish(1, batch)
    opened.commit()
    opened.journal.ack(1, batch[:50] + batch[60:61] + batch[70:])
    opened.commit()
    block = read_file(opened.data())[-1]
    assert block.records == [(b"R", 1, 0, 50), (b"A", 1, 60), (b"R", 1, 70, 30)]
    assert living(opened.recover(1), 1) == [*range(50, 60), *range(61, 70)]


def test_clause_3_3_to_the_tail() -> None:
    opened = OpenJournal()
    one = message(3)
    opened.journal.publish(1, [one])
    opened.commit()
    one.seq_id = 9
    opened.journal.to_tail(1, one, 3)
    opened.commit()
    records = read_file(opened.data())[-1].records
    assert records[0] == (b"T", 1, 3, 9)
    assert isinstance(records[1][1], Record)
    assert records[1][1].seq == 9
    assert living(opened.recover(1), 1) == [9]


def test_clause_3_4_the_last_word_on_a_delay_counts() -> None:
    opened = OpenJournal()
    opened.journal.publish(1, [message(0), message(1)])
    for seq, until_ms in ((0, 50), (1, 60), (0, 70), (1, 0)):
        opened.journal.delay(1, seq, until_ms)
    opened.commit()
    assert read_file(opened.data())[-1].records[2:] == [
        (b"L", 1, 0, 50),
        (b"L", 1, 1, 60),
        (b"L", 1, 0, 70),
        (b"L", 1, 1, 0),
    ]
    assert opened.recover(1).queues[1].delays == {0: 70, 1: 0}


def counted(seq: int, attempts: int) -> Message:
    one = message(seq)
    one.flags |= attempts << ATTEMPTS_SHIFT
    return one


def test_clause_3_9_attempts_are_of_runs_and_the_last_word_counts() -> None:
    opened = OpenJournal()
    transient = counted(3, 1)
    transient.flags &= ~PERSISTENT
    batch = [counted(0, 1), counted(1, 1), counted(2, 7), transient, counted(4, 7)]
    opened.journal.publish(1, batch)
    assert opened.journal.note_attempts(1, batch) == 3
    opened.journal.note_attempts(1, [counted(0, 9)])  # not LOGGED: the disk does not keep it
    opened.commit()
    assert read_file(opened.data())[-1].records[4:] == [
        (b"E", 1, 0, 2, 1),
        (b"E", 1, 2, 1, 7),
        (b"E", 1, 4, 1, 7),
    ]
    batch[0].flags += 1 << ATTEMPTS_SHIFT
    batch[2].flags += ONE_RETURN
    opened.journal.note_attempts(1, [batch[0], batch[2]])
    opened.journal.ack(1, batch[1:2])
    opened.commit()
    found = opened.recover(1).queues[1]
    assert found.attempts == {0: 2, 2: 7 | 1 << 16, 4: 7}
    assert [attempts_of(one) for one in found.messages] == [2, 7, 7]
    assert [returns_of(one) for one in found.messages] == [0, 1, 0]


def test_clauses_3_5_and_4_6_numbers_go_on_above_what_was_reserved() -> None:
    opened = OpenJournal()
    opened.journal.reserve(1, 40_000)
    opened.commit()
    assert opened.recover(1).queues[1].safe_next_seq_id() == 3 * 16_384


def test_clause_3_6_a_forgotten_queue_has_no_messages() -> None:
    opened = OpenJournal()
    opened.journal.publish(1, [message(0)])
    opened.journal.publish(2, [message(0)])
    opened.journal.forget_queue(1)
    opened.commit()
    found = opened.recover(1, 2)
    assert (living(found, 1), living(found, 2)) == ([], [0])


def test_clauses_3_7_and_3_8_each_file_names_those_before_it_until_they_are_dropped() -> None:
    opened = OpenJournal(file_bytes=1000)
    for seq in range(3):
        opened.journal.publish(1, [message(seq, b"x" * 1000)])
        opened.commit()
    ends = {
        number: sum(36 + len(raw(block)) for block in blocks(opened, number)) for number in (1, 2)
    }
    first = blocks(opened, 3)[0].records
    assert first[:2] == [(b"F", ends), (b"Q", {1: 3})]
    opened.journal.retire(opened.journal.oldest())
    opened.journal.publish(1, [message(3)])
    group = opened.commit()
    assert list(group.files_to_remove) == [1]
    dropped = [
        record for number in (3, 4) for block in blocks(opened, number) for record in block.records
    ]
    assert (b"D", 1) in dropped
    opened.files.remove(opened.path(1))
    assert living(opened.recover(1), 1) == [1, 2, 3]


@pytest.mark.parametrize("sync", [False, True])
def test_clause_3_10_no_file_leaves_the_list_before_an_older_one(sync: bool) -> None:
    """The first file has a message and is dropped, the second has its end and is kept."""
    opened = OpenJournal(file_bytes=1000)
    journal = opened.journal
    ended = message(0, b"x" * 1000)
    journal.publish(1, [ended])
    opened.commit()
    journal.ack(1, [ended])
    journal.publish(2, [message(0, b"x" * 1000)])
    opened.commit()
    journal.publish(2, [message(1)])
    opened.commit()
    journal.resting.refer(2, 1000)
    journal.retire(journal.oldest())
    journal.retire(journal.oldest())
    journal.publish(2, [message(2)])
    opened.commit(sync=sync)
    found = opened.recover(1, 2)
    assert (living(found, 1), living(found, 2)[-2:]) == ([], [1, 2])
    kinds = {record[0] for record in blocks(opened, 3)[-1].records}
    assert kinds & {b"K", b"D"} == ({b"K", b"D"} if sync else set())
    journal.check()


def blocks(opened: OpenJournal, number: int) -> list[Block]:
    if not opened.files.exists(opened.path(number)):
        return []
    return read_file(opened.data(number))


def raw(block: Block) -> bytes:
    """As many bytes as the records have."""
    size = 0
    for kind, *fields in block.records:
        if isinstance(fields[0], Record):
            record = fields[0]
            size += 40 + len(record.address) + (8 if record.flags & 64 else record.size)
        elif isinstance(fields[0], dict):
            size += 5 + 12 * len(fields[0])
        else:
            assert isinstance(kind, bytes)
            size += 1 + struct.calcsize(FIXED[kind])
    return bytes(size)


# -- reading --------------------------------------------------------------------------------


def test_clause_4_1_the_newest_file_may_not_have_begun() -> None:
    opened = example_journal()
    opened.files.allocate(opened.files.open_write(opened.path(2)), FILE_BYTES)
    assert living(opened.recover(7), 7) == [2]


def test_clause_4_2_a_torn_tail_is_where_the_file_ends() -> None:
    whole = example_journal()
    last = read_file(whole.data())[-1]
    for lost in (1, 50, 100):
        opened = example_journal()
        put(opened, 368 - lost, b"\xff" * lost)
        found = opened.recover(7)
        assert living(found, 7) == [0, 1]
        assert found.bytes_cut == 368 - last.offset == 163


def test_clause_4_3_a_damage_that_a_later_block_attests() -> None:
    opened = example_journal()
    size = FILE_BYTES - BEGUN
    opened.files.flip(opened.path(1), 8 * 100)
    with pytest.raises(Corrupt, match=rf"journal/1\.jif: damaged at offset {BEGUN}, {size} bytes"):
        opened.recover(7)


def test_clause_4_3_b_listed_files_must_be_there_and_whole() -> None:
    opened = OpenJournal(file_bytes=1000)
    for seq in range(2):
        opened.journal.publish(1, [message(seq, b"x" * 1000)])
        opened.commit()
    end = BEGUN + 36 + 46 + 997
    saved = opened.data()
    opened.files.flip(opened.path(1), 8 * (end - 1))
    with pytest.raises(Corrupt, match=rf"1\.jif: damaged at offset {BEGUN}, {end - BEGUN} bytes"):
        opened.recover(1)
    opened.files.remove(opened.path(1))
    with pytest.raises(Corrupt, match=rf"1\.jif: damaged at offset 0, {end} bytes"):
        opened.recover(1)
    put(opened, 0, saved)
    assert living(opened.recover(1), 1) == [0, 1]


def test_clause_4_7_what_is_attested() -> None:
    opened = example_journal()
    assert [one.file_no for one in opened.recover(7).queues[7].messages] == [0]
    opened.journal.reserve(7, 1 << 20)
    opened.commit()
    assert [one.file_no for one in opened.recover(7).queues[7].messages] == [1]


def test_clause_5_1_another_version_is_refused_not_cut() -> None:
    opened = OpenJournal()
    old = opened.data()[:BEGUN]
    head = b"PSJ\x04" + old[4:32]
    put(opened, 0, head + zlib.crc32(old[36:], zlib.crc32(head)).to_bytes(4, "big"))
    with pytest.raises(Corrupt, match="version 4, this release reads versions 1 to 3"):
        opened.recover(1)


def test_clause_7_the_example() -> None:
    (data,) = examples("journal.md")
    opened = example_journal()
    assert opened.data() == data + bytes(FILE_BYTES - len(data))
    begun, published, moved = read_file(data + bytes(1000))
    assert begun == Block(1, 0, 0, [(b"F", {}), (b"Q", {}), (b"B", 1, FILE_BYTES)])
    assert (published.synced, moved.synced) == (published.offset, moved.offset) == (BEGUN, 205)
    assert published.records == [
        (b"N", 7, 16_384),
        (b"P", Record(1, 7, 0, 0, 0, 1, ADDRESS, 3, b"hi!")),
        (b"P", Record(65, 7, 0, 1, 0, 2, ADDRESS, 10_000, 5)),
    ]
    assert moved.records == [
        (b"T", 7, 1, 2),
        (b"P", Record(67, 7, 1, 2, 0, 2, ADDRESS, 10_000, 5)),
        (b"L", 7, 2, 60_000),
        (b"E", 7, 2, 1, 2),
        (b"A", 7, 0),
    ]
    found = opened.recover(7).queues[7]
    (one,) = found.messages
    assert (one.seq_id, one.msg_id, one.size, found.delays) == (2, 5, 10_000, {2: 60_000})
    assert (found.attempts, attempts_of(one)) == ({2: 2}, 2)
