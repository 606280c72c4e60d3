"""The audit says what a start would find, names what is damaged, and changes nothing."""

from __future__ import annotations

import copy
import random
import re
from pathlib import Path

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.audit.audit import DataAudit, QueueFacts
from penstock.storage.audit.files import JournalWalk, SegmentWalk, StoreWalk, walk_file
from penstock.storage.common.seq_ranges import ranges_of
from penstock.storage.journal import codec as journal_codec
from tests.backing.engine_tools import DIRECTORY, OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 64
QUEUES = {1: ENTRIES, 2: ENTRIES}
FACTS = [QueueFacts(queue_id, "/", f"queue {queue_id}", ENTRIES) for queue_id in QUEUES]
READING = {"listdir", "read"}


def opened(files: SimFileSystem) -> OpenEngine:
    return OpenEngine(
        files,
        QUEUES,
        limits(embed=200, journal=8192),
        journal_file_bytes=4096,
        store_file_bytes=2048,
    )


def a_life(files: SimFileSystem, seed: int, steps: int = 30) -> OpenEngine:
    """Small and large, persistent and transient messages, some acknowledged, some paged out."""
    chance = random.Random(seed)
    engine = opened(files)
    for now_ms in range(steps):
        for queue in engine.queues.values():
            sizes = [chance.choice((5, 50, 199, 200, 700)) for _ in range(chance.randrange(8))]
            queue.publish(
                [message(bytes(size), persistent=chance.random() < 0.8) for size in sizes], now_ms
            )
            if chance.random() < 0.3:
                queue.page(0, chance.randrange(1, 60))
            if chance.random() < 0.6:
                queue.ack(queue.fetch(chance.randrange(6), 1 << 20))
        if chance.random() < 0.8:
            engine.commit(sync=chance.random() < 0.8)
        engine.work(now_ms)
        engine.run_jobs(writes=chance.randrange(8))
    return engine


def settled_life(files: SimFileSystem, seed: int = 1) -> OpenEngine:
    """One whose every byte is on the disk."""
    engine = a_life(files, seed)
    page_out(engine)
    engine.commit()
    engine.settle(1000)
    return engine


def page_out(engine: OpenEngine) -> None:
    """Into segments with everything; nothing is synced for that."""
    for queue in engine.queues.values():
        queue.set_mode(lazy=True)
        while queue.page(0, 1000):
            engine.run_jobs()
    engine.run_jobs()


def audit(files: SimFileSystem) -> DataAudit:
    """Audited, and held to what it promises: it only reads."""
    before = {name: bytes(file.cache) for name, file in files.names.items()}
    files.calls.clear()
    found = DataAudit(files, DIRECTORY, FACTS, lambda _path, _size: None)
    found.run()
    assert {call.split()[0] for call in files.calls} <= READING
    assert {name: bytes(file.cache) for name, file in files.names.items()} == before
    return found


def messages_of_a_start(files: SimFileSystem) -> dict[int, int]:
    """What recovery itself makes of a copy of the disk."""
    engine = opened(copy.deepcopy(files))
    return {queue_id: int(found.count()) for queue_id, found in engine.opening.queues.items()}


def counted(found: DataAudit) -> dict[int, int]:
    return {queue_id: queue.messages for queue_id, queue in found.queues.items()}


def damaged(found: DataAudit) -> list[tuple[str, int, int]]:
    return [(damage.file, damage.offset, damage.length) for damage in found.damages]


def covers(found: DataAudit, path: str, place: int) -> bool:
    """Whether a damage of that file has that byte in it."""
    return any(
        name == path and offset <= place < offset + length
        for name, offset, length in damaged(found)
    )


# -- a whole directory ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_after_a_power_cut_it_counts_what_a_start_finds(seed: int) -> None:
    files = SimFileSystem()
    a_life(files, seed)
    files.power_cut(random.Random(seed))
    found = audit(files)
    assert found.damages == []
    assert found.terms_state == "absent"
    assert counted(found) == messages_of_a_start(files)


@pytest.mark.parametrize("seed", range(10))
def test_after_a_kill_it_counts_what_a_start_finds(seed: int) -> None:
    files = SimFileSystem()
    a_life(files, seed)
    files.kill()
    found = audit(files)
    assert found.damages == []
    assert counted(found) == messages_of_a_start(files)
    again = opened(files)
    assert (
        found.torn_bytes() == again.opening.bytes_cut + again.engine.store.statistics()["bytes_cut"]
    )


@pytest.mark.parametrize("seed", range(10))
def test_after_a_clean_stop_it_counts_what_a_start_finds(seed: int) -> None:
    files = SimFileSystem()
    a_life(files, seed).close_cleanly()
    files.power_cut(random.Random(seed))
    found = audit(files)
    assert found.damages == []
    assert found.terms_state == "valid"
    assert counted(found) == messages_of_a_start(files)
    assert all(queue.journal_only == 0 for queue in found.queues.values())


def test_what_lives_where() -> None:
    files = SimFileSystem()
    engine = opened(files)
    one, two = engine.queues[1], engine.queues[2]
    one.set_mode(lazy=True)
    one.publish([message(b"small"), message(b"x" * 300), message(b"t", persistent=False)], 1)
    engine.commit()
    page_out(engine)
    engine.settle(2)
    two.publish([message(b"only in the journal"), message(b"y" * 250), message(b"gone")], 3)
    engine.commit()
    two.ack(two.fetch(1, 1 << 20)[:1])
    engine.commit()
    files.kill()
    found = audit(files)
    first, second = found.queues[1], found.queues[2]
    assert (first.messages, first.in_segments, first.in_journal, first.journal_only) == (2, 2, 2, 0)
    assert (first.stored, first.transient, first.content_bytes) == (1, 1, 305)
    assert (second.messages, second.in_journal, second.journal_only) == (2, 2, 2)
    assert (second.stored, second.content_bytes) == (1, 254)
    (segment,) = first.segments
    assert (segment.messages, segment.settled_count, segment.transient_count) == (3, 0, 1)
    kinds = {chr(kind): count for walk in found.journal for kind, count in walk.kinds.items()}
    assert kinds == {"F": 1, "Q": 1, "B": 1, "N": 2, "P": 5, "A": 1}
    assert found.contents.live() == (2, 550)


def test_contents_that_nobody_refers_to_are_counted() -> None:
    files = SimFileSystem()
    engine = opened(files)
    queue = engine.queues[1]
    queue.publish([message(b"x" * 300), message(b"y" * 400)], 1)
    engine.commit()
    queue.ack(queue.fetch(1, 1 << 20))
    engine.commit()
    files.kill()
    found = audit(files)
    assert len(found.contents.ids) == 2
    assert found.contents.live() == (1, 400)
    assert found.damages == []


def test_what_belongs_to_nobody_is_noted_not_damage() -> None:
    files = SimFileSystem()
    engine = a_life(files, 3)
    engine.commit()
    files.kill()
    files.makedirs(f"{DIRECTORY}/queues/99")
    files.makedirs(f"{DIRECTORY}/transient/7")
    for name in (
        "queues/99/0.idt",
        "queues/mine.txt",
        "transient/7/0.idx",
        "store/persistent/9.rdt",
        "store/persistent/mine.txt",
        "journal/mine.txt",
        "journal/3.jif.spare",
        "mine.txt",
        "terms.unfinished",
        *("events", "logs", "control.json"),
    ):
        files.open_write(f"{DIRECTORY}/{name}")
    found = audit(files)
    assert found.damages == []
    noted = "\n".join(found.notes)
    for ours in ("events", "logs", "control.json"):
        assert ours not in noted
    for part in (
        "queues/99 is of a deleted queue",
        "queues/mine.txt is no file",
        "transient: 1 files",
        "store/persistent/9.rdt is unfinished",
        "store/persistent/mine.txt is no file",
        "journal/mine.txt is no file",
        "terms.unfinished is no file",
    ):
        assert part in noted
    assert "\nmine.txt is no file" in noted
    assert "spare" not in noted
    assert counted(found) == messages_of_a_start(files)


# -- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [False, True])
def test_queues_that_the_definitions_do_not_name_are_damage(*, clean: bool) -> None:
    """D3 of the review."""
    files = SimFileSystem()
    engine = settled_life(files)
    if clean:
        engine.close_cleanly()
    files.kill()
    found = DataAudit(files, DIRECTORY, FACTS[:1], lambda _path, _size: None)
    found.run()
    assert [damage.file for damage in found.damages if "queue 2" in damage.text] == [
        "definitions.db"
    ]
    found = DataAudit(files, DIRECTORY, FACTS[:1], lambda _path, _size: None, ranges_of([2]))
    found.run()
    assert not [damage for damage in found.damages if damage.file == "definitions.db"]
    assert any("queues/2 is of a deleted queue" in note for note in found.notes)


def test_a_flipped_bit_in_every_file_is_found_where_it_is() -> None:
    """After a clean stop all is known to be on disk, but the attestation of a segment."""
    files = SimFileSystem()
    settled_life(files).close_cleanly()
    whole = audit(files)
    assert whole.damages == []
    kinds = set()
    for walk in whole.walks():
        if isinstance(walk, JournalWalk):
            continue  # see below
        kinds.add(walk.path.rpartition(".")[2])
        first = walk.blocks[1].offset if isinstance(walk, SegmentWalk) else 0
        for place in sorted({first, first + 20, walk.end // 2, walk.end - 1}):
            flipped = copy.deepcopy(files)
            flipped.flip(f"{DIRECTORY}/{walk.path}", 8 * place + place % 8)
            assert covers(audit(flipped), walk.path, place)
    assert kinds == {"idx", "rdq"}


def test_a_flipped_bit_in_the_terms_is_found_and_the_start_goes_on_without_them() -> None:
    files = SimFileSystem()
    settled_life(files).close_cleanly()
    size = files.size(f"{DIRECTORY}/terms")
    before = counted(audit(files))
    for place in (0, 5, 13, size // 2, size - 1):
        flipped = copy.deepcopy(files)
        flipped.flip(f"{DIRECTORY}/terms", 8 * place)
        found = audit(flipped)
        assert damaged(found) == [("terms", 0, size)]
        assert found.terms_state == "damaged"
        assert counted(found) == before == messages_of_a_start(flipped)


def test_a_flipped_bit_in_the_journal_is_found_where_a_later_block_attests_it() -> None:
    files = SimFileSystem()
    settled_life(files)
    files.kill()
    whole = audit(files)
    assert whole.damages == []
    for walk in whole.journal:
        newest = walk is whole.journal[-1]
        for place in range(3, walk.attested if newest else walk.end, 97):
            flipped = copy.deepcopy(files)
            flipped.flip(f"{DIRECTORY}/{walk.path}", 8 * place)
            assert covers(audit(flipped), walk.path, place)


@pytest.mark.parametrize("seed", range(60))
def test_where_a_start_refuses_the_directory_the_audit_finds_damage(seed: int) -> None:
    """And where neither sees a flipped bit, both count the same."""
    chance = random.Random(seed)
    files = SimFileSystem()
    engine = a_life(files, seed % 7)
    if seed % 3 == 0:
        engine.close_cleanly()
    files.power_cut(chance)
    names = [name for name, file in sorted(files.names.items()) if file.cache]
    for _ in range(chance.choice((1, 1, 2))):
        name = chance.choice(names)
        files.flip(name, chance.randrange(8 * len(files.names[name].cache)))
    found = audit(files)
    refused, expected = "", {}
    try:
        expected = messages_of_a_start(files)
    except Corrupt as error:
        refused = str(error)
    if refused:
        file = refused.partition(": ")[0].removeprefix(f"{DIRECTORY}/")
        assert file in {damage.file for damage in found.damages}
    else:
        assert found.damages or counted(found) == expected


@pytest.mark.parametrize("seed", range(20))
def test_every_byte_is_accounted_for(seed: int) -> None:
    """In a true block, in a damage, in the torn tail, or in the reserve of a journal file."""
    chance = random.Random(seed)
    files = SimFileSystem()
    a_life(files, seed % 5)
    files.power_cut(chance)
    for walk in audit(files).walks():
        for _ in range(3 if walk.size else 0):
            files.flip(f"{DIRECTORY}/{walk.path}", chance.randrange(8 * walk.size))
    for walk in audit(files).walks():
        parts = [(block.offset, block.size) for block in walk.blocks]
        parts += [(damage.offset, damage.length) for damage in walk.damages]
        end = 0
        for offset, size in sorted(parts):
            assert offset <= end
            end = max(end, offset + size)
        if isinstance(walk, JournalWalk):
            assert end + walk.torn_bytes <= walk.size
        else:
            assert end + walk.torn_bytes == walk.size


def test_what_lies_behind_damage_is_still_read() -> None:
    files = SimFileSystem()
    settled_life(files)
    files.kill()
    whole = audit(files)
    for walks in (whole.journal, whole.store, whole.queues[1].segments):
        walk = max(walks, key=lambda one: one.attested)
        second = walk.blocks[0] if isinstance(walk, StoreWalk) else walk.blocks[1]
        flipped = copy.deepcopy(files)
        flipped.flip(f"{DIRECTORY}/{walk.path}", 8 * second.offset)
        found = audit(flipped)
        again = next(one for one in found.walks() if one.path == walk.path)
        assert [block.offset for block in again.blocks] == [
            block.offset for block in walk.blocks if block is not second
        ]
        assert (walk.path, second.offset, second.size) in damaged(found)


def test_only_the_false_content_of_a_group_is_damage() -> None:
    files = SimFileSystem()
    engine = opened(files)
    engine.queues[1].publish([message(letter * 300) for letter in (b"a", b"b", b"c")], 1)
    engine.commit()
    engine.close_cleanly()
    path = "store/persistent/1.rdq"
    data = files.read(f"{DIRECTORY}/{path}")
    files.flip(f"{DIRECTORY}/{path}", 8 * data.index(b"bbb"))
    found = audit(files)
    record = (path, data.index(b"bbb") - 16, 316)
    assert damaged(found)[-1] == record
    assert list(found.contents.ids) == [1, 3]
    assert found.damages[0].text == "the content of message 16385 is missing, number 2 of the store"


def test_missing_files_are_named() -> None:
    files = SimFileSystem()
    settled_life(files)
    files.kill()
    whole = audit(files)
    assert len(whole.journal) > 1
    cut = copy.deepcopy(files)
    cut.remove(f"{DIRECTORY}/{whole.journal[0].path}")
    assert whole.journal[0].path in {damage.file for damage in audit(cut).damages}
    for walk in whole.store:
        files.remove(f"{DIRECTORY}/{walk.path}")
    found = audit(files)
    unconfirmed = sum(queue.unconfirmed for queue in found.queues.values())
    stored = sum(queue.stored for queue in whole.queues.values())
    assert len(found.damages) == stored - unconfirmed > 0
    for damage in found.damages:
        assert re.match(
            r"the content of message \d+( of queue \d)? is missing, number", damage.text
        )


def test_after_a_clean_stop_missing_and_short_files_are_named() -> None:
    files = SimFileSystem()
    settled_life(files).close_cleanly()
    whole = audit(files)
    for walk in (whole.store[0], whole.queues[1].segments[0]):
        path = f"{DIRECTORY}/{walk.path}"
        cut = copy.deepcopy(files)
        cut.remove(path)
        assert (walk.path, 0, walk.size) in damaged(audit(cut))
        cut = copy.deepcopy(files)
        cut.truncate(path, walk.size - 3)
        assert (walk.path, walk.size - 3, 3) in damaged(audit(cut))


def test_a_segment_that_was_cut_short_after_a_kill_is_named() -> None:
    files = SimFileSystem()
    settled_life(files)
    files.kill()
    (walk, *_) = audit(files).queues[1].segments
    for block in walk.blocks[1:]:
        cut = copy.deepcopy(files)
        cut.truncate(f"{DIRECTORY}/{walk.path}", block.offset)
        assert (walk.path, block.offset, walk.attested - block.offset) in damaged(audit(cut))


def test_terms_that_are_too_old_are_damage() -> None:
    """As when a file of an older copy of the directory was put back."""
    files = SimFileSystem()
    settled_life(files).close_cleanly()
    terms = files.read(f"{DIRECTORY}/terms")
    engine = opened(files)
    engine.queues[1].publish([message(b"new")], 1)
    engine.commit()
    files.kill()
    files.pwrite_parts(files.open_write(f"{DIRECTORY}/terms"), 0, [terms])
    found = audit(files)
    assert any(damage.file == "terms" for damage in found.damages)


def test_a_journal_without_its_only_first_block_is_damage() -> None:
    files = SimFileSystem()
    settled_life(files).close_cleanly()
    opened(files)
    files.kill()
    walk = audit(files).journal[-1]
    files.flip(f"{DIRECTORY}/{walk.path}", 8 * 4)
    assert (walk.path, 0, walk.size) in damaged(audit(files))


def test_another_version_is_refused_not_called_damage() -> None:
    files = SimFileSystem()
    opened(files)
    files.kill()
    from zlib import crc32

    path = f"{DIRECTORY}/journal/1.jif"
    data = bytearray(files.read(path))
    data[3] = 4
    end = JournalWalk("1.jif", 1, files.read(path)).end
    crc = crc32(data[36:end], crc32(data[:32]))
    data[32:36] = crc.to_bytes(4, "big")
    files.pwrite_parts(files.open_write(path), 0, [bytes(data)])
    with pytest.raises(Corrupt, match="version 4, this release reads versions 1 to 3"):
        audit(files)


# -- torn tails -----------------------------------------------------------------------------


def torn_disk() -> SimFileSystem:
    """The last group of the journal, of the store and of a segment was never synced."""
    files = SimFileSystem()
    engine = settled_life(files)
    one = engine.queues[1]
    one.publish([message(b"z" * 50) for _ in range(3)] + [message(b"w" * 300)], 2000)
    engine.commit(sync=False)
    files.kill()
    return files


def test_cut_tails_are_torn_not_damage() -> None:
    files = torn_disk()
    whole = audit(files)
    for walk in (whole.journal[-1], whole.store[-1]):
        last = walk.blocks[-1]
        cut = copy.deepcopy(files)
        handle = cut.open_write(f"{DIRECTORY}/{walk.path}")
        cut.pwrite_parts(handle, last.offset + last.size - 5, [bytes(5)])
        found = audit(cut)
        again = next(one for one in found.walks() if one.path == walk.path)
        assert again.torn_bytes == last.size
        assert [damage for damage in found.damages if damage.file == walk.path] == []
        assert counted(found) == messages_of_a_start(cut)


def test_a_cut_segment_is_torn() -> None:
    files = SimFileSystem()
    engine = opened(files)
    engine.queues[1].set_mode(lazy=True)
    engine.queues[1].publish([message(b"z" * 50) for _ in range(30)], 1)
    engine.commit()
    page_out(engine)
    files.kill()
    (walk,) = audit(files).queues[1].segments
    for size in (1, walk.size // 2, walk.size - 1):
        cut = copy.deepcopy(files)
        cut.truncate(f"{DIRECTORY}/{walk.path}", size)
        found = audit(cut)
        assert found.damages == []
        assert found.torn_bytes() == size - found.queues[1].segments[0].end > 0
        assert counted(found) == messages_of_a_start(cut) == {1: 30, 2: 0}


def test_a_reserve_of_old_bytes_is_not_torn() -> None:
    """A journal file may be a retired one, written over; its old blocks name another file."""
    files = SimFileSystem()
    opened(files)
    files.kill()
    path = f"{DIRECTORY}/journal/1.jif"
    end = JournalWalk("1.jif", 1, files.read(path)).end
    old = journal_codec.JournalGroup(7, end, end, [b"X\0\0\0\1"], True, 0, [])
    files.pwrite_parts(files.open_write(path), end, [old.header(), old.data])
    found = audit(files)
    assert (found.damages, found.torn_bytes()) == ([], 0)


# -- one file -------------------------------------------------------------------------------


def test_one_file_by_itself() -> None:
    files = SimFileSystem()
    settled_life(files).close_cleanly()
    whole = audit(files)
    for walk in whole.walks():
        alone = walk_file(walk.path, files.read(f"{DIRECTORY}/{walk.path}"))
        assert alone is not None
        known = len(walk.blocks)  # behind a journal file that was left is a note
        assert (alone.damages, alone.blocks[:known]) == ([], walk.blocks)
        if isinstance(walk, SegmentWalk):
            assert isinstance(alone, SegmentWalk)
            assert alone.messages == walk.messages
            if not any(block.content.startswith("references") for block in walk.blocks):
                assert alone.settled_count == walk.settled_count
            elsewhere = walk_file(f"copies/{walk.number}.idx", files.read(f"data/{walk.path}"))
            assert elsewhere is not None
            assert elsewhere.blocks == walk.blocks
    assert walk_file("journal/notes.txt", b"") is None


def test_other_rules_under_a_right_checksum_are_damage() -> None:
    group = journal_codec.JournalGroup(3, 0, 0, [b"Z"], True, 0, [])
    walk = JournalWalk("3.jif", 3, group.header() + group.data)
    assert [(damage.offset, damage.length) for damage in walk.damages] == [(36, 1)]


def test_an_empty_store_file_that_is_not_the_newest_is_damage() -> None:
    files = SimFileSystem()
    settled_life(files)
    files.kill()
    whole = audit(files)
    assert len(whole.store) > 1
    files.truncate(f"{DIRECTORY}/{whole.store[0].path}", 0)
    assert (whole.store[0].path, 0, 0) in damaged(audit(files))


def test_store_ids_that_do_not_ascend_are_damage(tmp_path: Path) -> None:
    from penstock.storage.store.codec import group_header, record_header

    records = b"".join(record_header(number, b"x") + b"x" for number in (2, 1))
    walk = StoreWalk("1.rdq", 1, group_header(1, 0, 0, len(records), 3) + records, whole=True)
    assert [(damage.offset, damage.length) for damage in walk.damages] == [(44 + 17, 17)]
    assert list(walk.msg_ids) == [2]
