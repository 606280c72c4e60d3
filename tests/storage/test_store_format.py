"""Clauses of docs/formats/message_store.md, by a reader written from that page alone."""

from __future__ import annotations

import random
import re
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import JobBoard, run_job
from penstock.storage.store.codec import store_file_name, store_file_no
from penstock.storage.store.message_store import MessageStore, StoreWriter
from tests.helpers.sim_files import SimFileSystem
from tests.storage.store_tools import DIRECTORY, StoreWorld

PAGE = Path(__file__).parents[2] / "docs/formats/message_store.md"


class Group(NamedTuple):
    version: int
    file_no: int
    offset: int
    synced: int
    next_msg_id: int
    records: list[tuple[int, int, bytes]]  # where, msg_id, content


def read_file(data: bytes) -> list[Group]:
    """Clauses 1.2, 2.1, 2.2, 3.1 and 3.2, for a file that is whole."""
    groups = []
    at = 0
    while at < len(data):
        magic, version, file_no, offset, synced, size, next_msg_id, crc = struct.unpack_from(
            ">3sBIQQQQI", data, at
        )
        assert (magic, offset) == (b"PSR", at)
        assert crc == zlib.crc32(data[at : at + 40])
        records = list(read_records(data, at + 44, at + 44 + size))
        groups.append(Group(version, file_no, offset, synced, next_msg_id, records))
        at += 44 + size
    assert at == len(data)
    return groups


def read_records(data: bytes, at: int, end: int) -> list[tuple[int, int, bytes]]:
    records = []
    while at < end:
        size, msg_id, crc = struct.unpack_from(">IQI", data, at)
        content = data[at + 16 : at + 16 + size]
        assert len(content) == size
        assert crc == zlib.crc32(data[at : at + 12] + content)
        records.append((at, msg_id, content))
        at += 16 + size
    assert at == end
    return records


def read_table(data: bytes) -> tuple[int, int, dict[int, tuple[int, list[tuple[int, ...]]]]]:
    """Clause 6.1: next_msg_id, next_file_no, number → (size, rows)."""
    magic, next_msg_id, next_file_no, count = struct.unpack_from(">4sQII", data)
    assert magic == b"PST\x01"
    at = 20
    files = {}
    for _ in range(count):
        number, size, records = struct.unpack_from(">IQI", data, at)
        at += 16
        columns = []
        for kind in "QQII":
            layout = struct.Struct(f">{records}{kind}")
            columns.append(layout.unpack_from(data, at))
            at += layout.size
        files[number] = (size, list(zip(*columns, strict=True)))
    assert at == len(data)
    return next_msg_id, next_file_no, files


def examples() -> list[bytes]:
    blocks = re.findall(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [bytes.fromhex(re.sub(r"\s", "", block)) for block in blocks]


class OpenStore:
    """A persistent store on a simulated disk, everything done at once."""

    def __init__(self, files: SimFileSystem, limit_bytes: int = 1 << 24) -> None:
        self.files = files
        self.board = JobBoard()
        self.store = MessageStore(files, DIRECTORY, self.board, limit_bytes)
        self.writer = StoreWriter(files, DIRECTORY)

    def recover(self, references: list[int]) -> OpenStore:
        for job in self.store.scan_jobs():
            run_job(job, self.files)
            job.finish()
        self.store.scanned()
        for msg_id in references:
            assert self.store.count_reference(msg_id)
        self.store.finish_recovery()
        return self

    def commit(self) -> None:
        group = self.store.seal()
        assert group is not None
        self.writer.write(group)
        self.writer.sync()
        self.store.committed(group)

    def content(self, msg_id: int) -> bytes:
        read = self.store.read([msg_id])
        self.board.reads.append(read)
        self.board.run_all(self.files)
        assert read.done
        if read.error is not None:
            raise read.error
        return read.contents[0]


def opened(limit_bytes: int = 1 << 24) -> OpenStore:
    return OpenStore(SimFileSystem(), limit_bytes).recover([])


def example_store() -> OpenStore:
    one = opened()
    hello, world = one.store.write(b"hello", 2), one.store.write(b"world!", 1)
    one.commit()
    cancelled = one.store.write(b"never mind", 1)
    one.store.remove(cancelled, 0)
    again = one.store.write(b"again", 1)
    one.commit()
    assert (hello, world, cancelled, again) == (1, 2, 3, 4)
    return one


def test_clause_1_1_names_and_numbers() -> None:
    assert store_file_no(store_file_name(17)) == 17
    for other in ("0.rdq", "01.rdq", "x.rdq", "1.rdqs", ".rdq", "1", "٣.rdq", "-1.rdq", "1.rdt"):
        assert store_file_no(other) == 0


def test_clause_1_1_other_files_are_left_alone_and_unfinished_ones_removed() -> None:
    one = opened()
    for name in ("notes.txt", "7.rdt"):
        one.files.open_write(f"{DIRECTORY}/{name}")
    OpenStore(one.files).recover([])
    assert one.files.exists(f"{DIRECTORY}/notes.txt")
    assert not one.files.exists(f"{DIRECTORY}/7.rdt")


def test_clause_1_3_a_large_content_has_a_file_for_itself() -> None:
    one = opened(limit_bytes=1000)
    small, large, after = (one.store.write(b"x" * size, 1) for size in (400, 5000, 400))
    one.commit()
    found = {
        number: [record[1] for group in read_file(data) for record in group.records]
        for number, data in disk(one.files).items()
    }
    assert found == {1: [small], 2: [large], 3: [after]}
    assert len(one.content(int(large))) == 5000


def disk(files: SimFileSystem) -> dict[int, bytes]:
    return {
        store_file_no(name): files.read(f"{DIRECTORY}/{name}") for name in files.listdir(DIRECTORY)
    }


def test_clause_2_2_every_cut_and_every_flip_of_the_only_group_is_noticed() -> None:
    """By a cut, since nothing attests it; never by wrong bytes."""
    whole = example_store().files.read(f"{DIRECTORY}/1.rdq")
    start, end = 44, read_file(whole)[2].offset
    group = whole[start:end]
    variants = [group[:size] for size in range(len(group))]
    for bit in range(8 * len(group)):
        flipped = bytearray(group)
        flipped[bit // 8] ^= 1 << (bit % 8)
        variants.append(bytes(flipped))
    for variant in variants:
        one = OpenStore(SimFileSystem())
        one.files.makedirs(DIRECTORY)
        one.files.pwrite_parts(
            one.files.open_write(f"{DIRECTORY}/1.rdq"), 0, [whole[:start], variant]
        )
        one.recover([])
        assert one.store.statistics()["bytes_cut"] == len(variant)


def test_clause_2_2_a_group_elsewhere_is_not_true() -> None:
    data = example_store().files.read(f"{DIRECTORY}/1.rdq")
    one = OpenStore(SimFileSystem())
    one.files.makedirs(DIRECTORY)
    one.files.pwrite_parts(one.files.open_write(f"{DIRECTORY}/2.rdq"), 0, [data])
    one.recover([])
    assert one.store.statistics()["bytes_cut"] == len(data)


def test_clause_2_4_a_compacted_file_attests_itself() -> None:
    world = StoreWorld(limit_bytes=1000)
    for _ in range(40):
        world.write(300, 1)
    world.seal()
    while world.sealed:
        world.commit_step()
    for msg_id in world.model.alive()[::2] + world.model.alive()[1:20:2]:
        world.remove(msg_id)
    world.seal()
    for _ in range(30):
        world.store.collect_garbage()
        world.run_all()
    assert world.store.statistics()["compactions"] > 0
    compacted = 0
    for number, data in disk(world.files).items():
        groups = read_file(data)
        assert all(group.file_no == number for group in groups)
        if [group.synced for group in groups] == [len(data)]:
            compacted += 1
            assert_attests_itself(number, data)
    assert compacted > 0


def assert_attests_itself(number: int, data: bytes) -> None:
    """Even as the newest file, whose end may otherwise be torn."""
    one = OpenStore(SimFileSystem())
    one.files.makedirs(DIRECTORY)
    handle = one.files.open_write(f"{DIRECTORY}/{number}.rdq")
    one.files.pwrite_parts(handle, 0, [data])
    one.files.flip(f"{DIRECTORY}/{number}.rdq", 8 * len(data) - 1)
    with pytest.raises(Corrupt, match=rf"{number}\.rdq: damaged at offset 0, {len(data)} bytes"):
        one.recover([])


@pytest.mark.parametrize("bit", [0, 44 * 8 + 3, 100 * 8])
def test_clause_4_2_damage_before_an_attested_place_is_refused(bit: int) -> None:
    one = example_store()
    one.files.flip(f"{DIRECTORY}/1.rdq", bit)
    with pytest.raises(Corrupt, match=r"1\.rdq: damaged at offset \d+, \d+ bytes; `penstock audit"):
        OpenStore(one.files).recover([])


def test_clause_4_2_damage_in_an_older_file_is_refused() -> None:
    one = example_store()
    one.files.kill()
    OpenStore(one.files).recover([1, 1, 2, 4])
    last = 8 * one.files.size(f"{DIRECTORY}/1.rdq") - 1
    one.files.flip(f"{DIRECTORY}/1.rdq", last)
    with pytest.raises(Corrupt, match=r"1\.rdq: damaged at offset \d+, 65 bytes"):
        OpenStore(one.files).recover([])


def test_clause_4_2_ids_that_do_not_ascend_are_damage() -> None:
    data = example_store().files.read(f"{DIRECTORY}/1.rdq")
    first, second = (record for record in read_file(data)[1].records)
    swapped = data[second[0] : second[0] + 22] + data[first[0] : first[0] + 21]
    one = OpenStore(SimFileSystem())
    one.files.makedirs(DIRECTORY)
    parts = [data[: first[0]], swapped, data[second[0] + 22 :]]
    one.files.pwrite_parts(one.files.open_write(f"{DIRECTORY}/1.rdq"), 0, parts)
    with pytest.raises(Corrupt, match=r"1\.rdq: damaged at offset"):
        one.recover([])


def test_clause_4_4_ids_go_on_above_everything_seen() -> None:
    files = example_store().files
    files.kill()
    one = OpenStore(files).recover([])
    assert disk(files).keys() == {2}, "what nobody refers to is gone, the number is not"
    assert one.store.write(b"", 1) == 1 << 32
    one.store.remove(1 << 32, 0)
    files.kill()
    assert OpenStore(files).recover([]).store.write(b"", 1) == 2 << 32


@pytest.mark.parametrize("seed", range(20))
def test_clause_4_4_what_a_failed_sync_left_is_written_again(seed: int) -> None:
    """It was readable after the kill, so it stayed in a file that is no longer the newest."""
    one = opened()
    kept = int(one.store.write(b"kept", 1))
    one.commit()
    for content in (b"first", b"second", b"third"):
        one.store.write(content, 1)
        group = one.store.seal()
        assert group is not None
        one.writer.write(group)
    one.files.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        one.writer.sync()
    one.files.kill()
    OpenStore(one.files).recover([kept])
    one.files.power_cut(random.Random(seed))
    again = OpenStore(one.files).recover([kept])
    assert again.content(kept) == b"kept"


def test_clause_6_2_files_must_be_those_of_the_table() -> None:
    one = example_store()
    table = one.store.save_table()
    one.files.open_write(f"{DIRECTORY}/2.rdq")
    with pytest.raises(Corrupt, match=r"2\.rdq: damaged at offset 0"):
        OpenStore(one.files).store.load_table(table)
    one.files.remove(f"{DIRECTORY}/2.rdq")
    OpenStore(one.files).store.load_table(table)
    size = one.files.size(f"{DIRECTORY}/1.rdq")
    one.files.truncate(f"{DIRECTORY}/1.rdq", size - 7)
    with pytest.raises(Corrupt, match=rf"1\.rdq: damaged at offset {size - 7}, 7 bytes"):
        OpenStore(one.files).store.load_table(table)
    one.files.remove(f"{DIRECTORY}/1.rdq")
    with pytest.raises(Corrupt, match=rf"1\.rdq: damaged at offset 0, {size} bytes"):
        OpenStore(one.files).store.load_table(table)


def test_clause_6_2_a_table_cut_anywhere_is_refused() -> None:
    one = example_store()
    table = one.store.save_table()
    for size in range(len(table)):
        with pytest.raises(Corrupt, match="the saved table is damaged"):
            OpenStore(one.files).store.load_table(table[:size])


def test_clause_6_3_a_damaged_content_is_refused_when_it_is_asked_for() -> None:
    one = example_store()
    table = one.store.save_table()
    where, msg_id, _ = read_file(one.files.read(f"{DIRECTORY}/1.rdq"))[1].records[0]
    one.files.flip(f"{DIRECTORY}/1.rdq", 8 * (where + 16))
    again = OpenStore(one.files)
    again.store.load_table(table)
    with pytest.raises(Corrupt, match=rf"1\.rdq: damaged at offset {where}, 21 bytes"):
        again.content(msg_id)
    assert again.content(4) == b"again"


def test_clause_7_1_another_version_is_refused_not_cut() -> None:
    one = opened()
    head = struct.pack(">3sBIQQQQ", b"PSR", 2, 1, 0, 0, 0, 1)
    handle = one.files.open_write(f"{DIRECTORY}/1.rdq")
    one.files.pwrite_parts(handle, 0, [head, struct.pack(">I", zlib.crc32(head))])
    with pytest.raises(Corrupt, match="version 2, this release reads version 1"):
        OpenStore(one.files).recover([])


def test_clause_8_the_example() -> None:
    data, table = examples()
    one = example_store()
    assert one.files.read(f"{DIRECTORY}/1.rdq") == data
    begun, first, second = read_file(data)
    assert begun == Group(1, 1, 0, 0, 1, [])
    assert (first.synced, first.next_msg_id, second.next_msg_id) == (44, 3, 5)
    assert second.synced == second.offset
    contents = [record[1:] for group in (first, second) for record in group.records]
    assert contents == [(1, b"hello"), (2, b"world!"), (4, b"again")]

    one.store.remove(2, 0)
    assert one.store.save_table() == table
    (hello_at, _, _), (again_at, _, _) = first.records[0], second.records[0]
    rows = [(1, hello_at, 5, 2), (4, again_at, 5, 1)]
    assert read_table(table) == (5, 2, {1: (len(data), rows)})
