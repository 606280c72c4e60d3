"""What rests is written once: segments refer to records in journal files, which are kept.

Clause 3.5 of docs/formats/segment.md and 3.10 of docs/formats/journal.md, and what becomes of these
files.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterable

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.core.errors import Corrupt
from penstock.core.message import Message, attempts_of
from penstock.storage.audit.audit import DataAudit, QueueFacts
from penstock.storage.journal.codec import journal_file_no
from penstock.storage.journal.journal import Journal
from tests.backing.engine_tools import OpenEngine, PatientEngine, limits, message
from tests.helpers.sim_files import SimFileSystem
from tests.storage.test_journal_format import read_file as read_journal
from tests.storage.test_segment_format import read_file as read_segment
from tests.storage.test_segment_format import read_messages

QUEUE_ID, OTHER_ID = 7, 8
ENTRIES = 64
FILE_BYTES = 8000
EVERYTHING = 1 << 40


class Resting:
    """A queue, and another one, whose journal files are retired as soon as they are full."""

    def __init__(self, engine: type[OpenEngine] = OpenEngine) -> None:
        self.files = SimFileSystem()
        self._engine = engine
        self.now_ms = 0
        self.open()

    def open(self) -> None:
        self.one = self._engine(
            self.files,
            {QUEUE_ID: ENTRIES, OTHER_ID: ENTRIES},
            limits(journal=FILE_BYTES),
            journal_file_bytes=FILE_BYTES,
            store_file_bytes=500,
        )
        self.queue: VariableQueue = self.one.queues[QUEUE_ID]
        self.other: VariableQueue = self.one.queues[OTHER_ID]

    def publish(self, queue: VariableQueue, names: Iterable[int]) -> None:
        """A few at a time, so that files are filled as on a node."""
        messages = [message(b"%d:" % name + b"x" * 400) for name in names]
        for at in range(0, len(messages), 4):
            queue.publish(messages[at : at + 4], 1)
            self.one.commit()

    def fetch(self, most: int = 1 << 40) -> list[Message]:
        """Of the queue, from the disk if need be."""
        found = self.queue.fetch(most, EVERYTHING)
        while len(found) < min(most, self.queue.ready_count() + len(found)):
            self.one.run_jobs()
            self.queue.absorb()
            found += self.queue.fetch(most - len(found), EVERYTHING)
        return found

    def settle(self) -> None:
        for _ in range(3):
            self.now_ms += 300
            self.one.settle(self.now_ms)
        self.check()

    def retire(self, names: Iterable[int] = range(100)) -> None:
        self.publish(self.queue, names)
        self.settle()
        assert self.kept()

    def check(self) -> None:
        self.queue.check()
        self.other.check()
        self.one.engine.check()

    def kept(self) -> set[int]:
        return set(self.one.engine.journal.resting.sizes)

    def on_disk(self) -> set[int]:
        return {journal_file_no(name) for name in self.files.listdir("data/journal")} - {0}

    def segment_bytes(self) -> int:
        names = [name for name in self.files.names if name.endswith(".idx")]
        return sum(self.files.size(name) for name in names)

    def kill(self) -> None:
        self.one.commit()
        self.files.kill()
        self.open()

    def stop(self) -> None:
        self.one.close_cleanly()
        self.files.kill()
        self.open()
        assert self.one.opening.clean


def audit(files: SimFileSystem) -> DataAudit:
    facts = [QueueFacts(number, "/", f"q{number}", ENTRIES) for number in (QUEUE_ID, OTHER_ID)]
    found = DataAudit(files, "data", facts, lambda _path, _size: None)
    found.run()
    return found


def names(queue: VariableQueue) -> list[int]:
    found = queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
    return [int(one.content.partition(b":")[0]) for one in found]


def test_what_rests_is_in_the_journal_and_its_place_in_a_segment() -> None:
    life = Resting()
    life.retire()
    assert life.segment_bytes() < 10 * 400
    assert names(life.queue) == list(range(100))
    [file_no, *_] = sorted(life.kept())
    journal = life.files.read(f"data/journal/{file_no}.jif")
    index = life.queue.records.index
    assert index is not None
    number = min(index.segments)
    blocks = read_segment(life.files.read(index.path(number)), QUEUE_ID, number)
    block = next(block for block in blocks if block.kind == 4)
    of_file, crc = struct.unpack_from(">II", block.payload)
    rows = [struct.unpack_from(">II", block.payload, at) for at in range(8, len(block.payload), 8)]
    records = b"".join(journal[at : at + size] for at, size in rows)
    assert (of_file, crc) == (file_no, zlib.crc32(records))
    found = read_messages(block._replace(payload=records), number, ENTRIES)
    assert [one.content for one in found.values()] == [
        b"%d:" % position + b"x" * 400 for position in found
    ]


def test_a_file_that_is_kept_is_listed_by_the_next_ones() -> None:
    life = Resting()
    life.retire()
    listed = [
        record[1]
        for number in life.on_disk()
        for block in read_journal(life.files.read(f"data/journal/{number}.jif"))
        for record in block.records
        if record[0] == b"K"
    ]
    assert life.kept() <= {number for rows in listed for number in rows}  # type: ignore[attr-defined]
    life.kill()
    tail = read_journal(life.files.read(f"data/journal/{max(life.on_disk())}.jif"))
    [rows] = [record[1] for record in tail[0].records if record[0] == b"K"]
    assert set(rows) == life.kept()  # type: ignore[call-overload]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_it_is_there_after_a_start(end: str) -> None:
    life = Resting()
    life.retire()
    kept = life.kept()
    for _ in range(3):
        getattr(life, end)()
        assert kept <= life.kept()
        assert names(life.queue) == list(range(100))
        assert audit(life.files).damages == []
    life.queue.ack(life.fetch(50))
    getattr(life, end)()
    assert names(life.queue) == list(range(50, 100))


def test_a_stop_refers_to_what_no_file_was_retired_for() -> None:
    life = Resting()
    life.publish(life.queue, range(10))
    life.stop()
    assert life.kept() == {1}
    assert life.segment_bytes() < 1000
    assert names(life.queue) == list(range(10))


def test_a_file_goes_with_its_last_reference() -> None:
    life = Resting()
    life.retire()
    kept = life.kept()
    while messages := life.fetch(20):
        life.queue.ack(messages)
        life.settle()
    life.publish(life.queue, range(1))
    life.settle()
    assert not life.kept()
    assert not kept & life.on_disk()
    life.kill()
    assert names(life.queue) == [0]


def test_on_a_full_disk_what_is_acknowledged_makes_room() -> None:
    """Also where the journal needs its next file first."""
    life = Resting(engine=PatientEngine)
    life.publish(life.queue, range(100))
    while life.one.engine.journal.current.size > 0:
        life.publish(life.queue, range(1))
    life.settle()
    life.files.space_left = 0
    life.queue.ack(life.fetch())
    for _ in range(10):
        life.now_ms += 300
        life.one.work(life.now_ms)
        with contextlib.suppress(OSError):
            life.one.commit()
        life.one.run_jobs()
    assert life.one.engine.journal.is_on_disk()
    assert not life.kept()
    assert audit(life.files).damages == []
    life.kill()
    assert names(life.queue) == []


def test_a_start_misses_no_file_that_nothing_refers_to() -> None:
    """The journal's list has it still."""
    life = Resting()
    life.retire()
    kept = life.kept()
    life.queue.ack(life.fetch())
    life.one.commit()
    for _ in range(3):
        life.now_ms += 300
        life.one.work(life.now_ms)
        life.one.run_jobs()
    assert not kept & life.on_disk()
    life.files.kill()
    assert audit(life.files).damages == []
    life.open()
    assert names(life.queue) == []


def test_a_start_replays_no_file_without_the_ends_in_one_that_is_kept() -> None:
    """Both are retired between two syncs; what ended has no content any more."""
    life = Resting()
    life.other.publish([message(b"%d:" % name + b"x" * 5000) for name in range(2)], 1)
    life.publish(life.other, range(16))
    life.other.ack(life.other.fetch(EVERYTHING, EVERYTHING))
    life.publish(life.queue, range(34))
    while not life.kept():
        life.now_ms += 300
        life.one.work(life.now_ms)
        life.one.commit(sync=False)
        life.one.run_jobs()
    life.one.commit(sync=False)
    assert min(life.on_disk()) < min(life.kept())
    life.files.kill()
    assert audit(life.files).damages == []
    life.open()
    assert names(life.other) == []
    assert names(life.queue) == list(range(34))


def test_no_backup_finds_such_a_file_written_over() -> None:
    """It has a link to it: the file is removed, and is no spare."""
    life = Resting()
    life.retire()
    inodes = {number: life.files.names[f"data/journal/{number}.jif"] for number in life.kept()}
    before = {number: bytes(inode.cache) for number, inode in inodes.items()}
    life.queue.ack(life.fetch())
    life.settle()
    life.publish(life.queue, range(200))
    life.settle()
    assert {number: bytes(inode.cache) for number, inode in inodes.items()} == before


def test_segments_that_are_mostly_dead_are_rewritten_and_the_files_go() -> None:
    life = Resting()
    life.retire(range(200))
    kept = life.kept()
    held = life.fetch()
    life.queue.ack([one for i, one in enumerate(held) if i % 8])
    life.settle()
    life.settle()
    assert len(life.kept()) < len(kept) / 2
    life.kill()
    assert names(life.queue) == list(range(0, 200, 8))


def test_a_file_that_is_kept_for_little_goes() -> None:
    """Each has little of a queue that stays, and much of one that goes."""
    life = Resting()
    for start in range(0, 400, 20):
        life.publish(life.queue, range(start, start + 4))
        life.publish(life.other, range(start, start + 16))
    life.settle()
    sizes = life.one.engine.journal.resting.total_bytes()
    life.other.purge()
    for _ in range(20):
        life.settle()
    resting = life.one.engine.journal.resting
    assert resting.total_bytes() <= 2 * sum(resting.referred.values()) + 1000 < sizes
    wanted = [name for name in range(400) if name % 20 < 4]
    assert names(life.queue) == wanted
    life.kill()
    assert names(life.queue) == wanted


def test_a_damaged_file_keeps_no_others() -> None:
    """The segment that refers to it is not rewritten, and it is kept for the least."""
    life = Resting()
    life.publish(life.queue, [1002])
    life.publish(life.other, range(16))
    for start in range(0, 400, 6):
        life.publish(life.queue, range(start, start + 2))
        life.publish(life.other, range(start, start + 4))
    for _ in range(40):
        life.settle()
    index = life.queue.records.index
    assert index is not None
    block = index.segments[min(index.segments)].blocks[0]
    path = f"data/journal/{block.file_no}.jif"
    life.files.flip(path, 8 * life.files.read(path).index(b"1002:xxx") + 80)
    life.other.purge()
    for _ in range(20):
        life.settle()
    first, *rest = (index.segments[number] for number in sorted(index.segments))
    assert first.left_alone
    resting = life.one.engine.journal.resting
    others = resting.sizes.keys() - first.references
    referred = sum(resting.referred[number] for number in others)
    assert rest
    assert sum(resting.sizes[number] for number in others) <= 2 * referred + 1000


def test_of_a_file_that_is_mostly_dead_the_rest_is_written() -> None:
    life = Resting()
    life.publish(life.queue, range(17))
    life.queue.ack(life.fetch(14))
    life.publish(life.other, range(30))
    life.settle()
    assert 1 not in life.kept()
    assert names(life.queue) == [14, 15, 16]


def test_what_a_record_of_the_journal_cannot_say_is_in_the_marks() -> None:
    life = Resting()
    life.publish(life.queue, range(10))
    held = life.fetch(5)
    for one in held:
        one.set_counts(3)
    life.queue.note_attempts(held)
    life.queue.requeue(held)
    life.stop()
    assert life.kept()
    found = life.fetch(10)
    assert [attempts_of(one) for one in found] == [3] * 5 + [0] * 5


def test_a_file_that_segments_refer_to_must_be_there() -> None:
    life = Resting()
    life.retire()
    number = min(life.kept())
    path = f"data/journal/{number}.jif"
    life.files.kill()
    life.files.remove(path)
    with pytest.raises(Corrupt, match=rf"{number}\.jif"):
        life.open()
    found = audit(life.files)
    assert any(damage.file.endswith(f"{number}.jif") for damage in found.damages)


def test_a_new_journal_in_place_of_one_that_is_gone_has_no_bodies() -> None:
    life = Resting()
    life.retire()
    life.files.kill()
    life.files.remove_dir("data/journal")
    Journal(life.files, "data/journal").begin(1, {})
    with pytest.raises(Corrupt, match="that a segment refers to"):
        life.open()
    assert audit(life.files).damages


@pytest.mark.parametrize("loss", ["flip", "remove"])
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_no_file_that_is_kept_is_taken_for_the_newest(end: str, loss: str) -> None:
    """What it says is old: what was confirmed since would be lost in silence."""
    life = Resting()
    life.retire()
    getattr(life, end)()
    life.publish(life.queue, [100])
    life.files.kill()
    path = f"data/journal/{max(life.on_disk())}.jif"
    assert max(life.on_disk()) > max(life.kept())
    if loss == "flip":
        end_of_first = read_journal(life.files.read(path))[1].offset
        life.files.flip(path, 8 * 4)
        life.files.flip(path, 8 * end_of_first)
    else:
        life.files.remove(path)
    before = set(life.files.names)
    with pytest.raises(Corrupt) as refused:
        life.open()
    assert {name for name in before if name.endswith(".jif")} <= set(life.files.names)
    file = str(refused.value).partition(": ")[0].removeprefix("data/")
    assert file in {damage.file for damage in audit(life.files).damages}


@pytest.mark.parametrize("clean", [False, True])
def test_a_flipped_bit_in_it_is_never_delivered(clean: bool) -> None:
    life = Resting()
    life.retire()
    number = min(life.kept())
    path = f"data/journal/{number}.jif"
    if clean:
        life.one.close_cleanly()
    life.files.kill()
    at = life.files.read(path).index(b"3:xxx")
    life.files.flip(path, 8 * at + 80)
    assert audit(life.files).damages
    if clean:
        life.open()
        assert not names(life.queue)
        assert f"{number}.jif: damaged at offset" in life.queue.records.fault
    else:
        with pytest.raises(Corrupt, match=rf"{number}\.jif: damaged at offset"):
            life.open()


def test_damage_before_it_is_retired_costs_nothing() -> None:
    """What lives in it is in memory, and is written from there."""
    life = Resting()
    life.publish(life.queue, range(40))
    life.files.flip("data/journal/1.jif", 8 * 1000)
    life.settle()
    assert 1 not in life.kept()
    assert names(life.queue) == list(range(40))
    life.kill()
    assert names(life.queue) == list(range(40))


def test_a_queue_that_is_deleted_keeps_no_file() -> None:
    life = Resting()
    life.retire()
    life.queue.delete()
    life.publish(life.other, range(1))
    for _ in range(3):
        life.now_ms += 300
        life.one.settle(life.now_ms)
    assert not life.kept()


def test_interleaved_queues_share_a_file() -> None:
    life = Resting()
    for start in range(0, 200, 2):
        life.publish(life.queue, [start])
        life.publish(life.other, [start + 1])
    life.settle()
    assert life.kept()
    for end in (life.kill, life.stop):
        end()
        assert names(life.queue) == list(range(0, 200, 2))
        assert names(life.other) == list(range(1, 200, 2))


def contents(messages: list[Message]) -> list[bytes]:
    return [one.content for one in messages]


def test_it_is_read_while_its_place_is_being_written() -> None:
    life = Resting()
    life.publish(life.queue, range(40))
    for _ in range(20):
        if any(type(job).__name__ == "SegmentWrite" for job in life.one.engine.board.writes):
            break
        life.now_ms += 300
        life.one.work(life.now_ms)
        for waiting in list(life.one.engine.board.writes):
            if type(waiting).__name__ == "JournalScan":
                life.one.run_jobs(writes=1)
    index = life.queue.records.index
    assert index is not None
    job = index.plan_read(0, EVERYTHING, EVERYTHING)
    assert job is not None
    assert not job.is_at_hand()
    job.run(life.files)
    found = index.decode(job)
    assert contents(found) == [b"%d:" % i + b"x" * 400 for i in range(len(found))]
    assert found
