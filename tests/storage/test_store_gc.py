"""Compaction one step at a time: what it waits for, who reads meanwhile, what stops it."""

from __future__ import annotations

import errno
import random

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.store import compaction as store_gc
from penstock.storage.store.message_store import StoreRead
from tests.storage.store_tools import DIRECTORY, StoreWorld


def filled(sizes: list[int], *, limit_bytes: int = 1000) -> StoreWorld:
    """One message per size, everything on disk."""
    world = StoreWorld(limit_bytes=limit_bytes)
    for size in sizes:
        world.write(size, 1)
    settle(world)
    return world


def settle(world: StoreWorld) -> None:
    world.seal()
    while world.sealed:
        world.commit_step()
    world.seal()


def names(world: StoreWorld) -> list[str]:
    found = [path.rpartition("/")[2] for path in world.files.names]
    return sorted(found, key=lambda name: int(name.split(".")[0]))


def half_dead() -> StoreWorld:
    """Files 1 to 4 with three records of 280 each, of which the first lives; file 5 alive."""
    world = filled([280] * 15)
    for number, msg_id in enumerate(world.model.alive()[:12]):
        if number % 3:
            world.remove(msg_id)
    return world


def ask(world: StoreWorld, msg_ids: list[int]) -> StoreRead:
    world.read(msg_ids)
    return world.asked[-1][0]


def test_a_dead_file_waits_for_the_journal() -> None:
    world = filled([280] * 6)
    for msg_id in world.model.alive()[:3]:
        world.remove(msg_id)
    world.store.collect_garbage()
    assert world.board.reads == []
    settle(world)
    world.store.collect_garbage()
    world.run_all()
    assert names(world) == ["2.rdq"]


def test_a_dead_file_that_is_still_written_to_stays() -> None:
    world = filled([280, 280])
    for msg_id in world.model.alive():
        world.remove(msg_id)
    settle(world)
    world.store.collect_garbage()
    world.run_all()
    assert names(world) == ["1.rdq"]


def test_neighbours_become_one_file() -> None:
    world = half_dead()
    settle(world)
    world.store.collect_garbage()
    world.run_all()
    assert names(world) == ["1.rdq", "3.rdq", "4.rdq", "5.rdq"]
    assert world.store.statistics()["compactions"] == 1
    assert world.files.size(f"{DIRECTORY}/1.rdq") == 44 + 2 * 296
    # They were a group of three records each, and the first began with one of none.
    before = (44 + 44 + 3 * 296) + (44 + 3 * 296)
    assert world.store.statistics()["bytes_reclaimed"] == before - (44 + 2 * 296)
    world.read_all()


def test_how_far_a_compaction_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing to all that lives, in bytes; nothing when none runs."""
    monkeypatch.setattr(store_gc, "COPY_BYTES", 300)
    world = half_dead()
    seen: list[tuple[int, int]] = []
    write = world.files.pwrite_parts

    def look_and_write(handle: int, offset: int, parts: list[bytes]) -> None:
        seen.append(progress(world))
        write(handle, offset, parts)
        seen.append(progress(world))

    settle(world)
    assert progress(world) == (0, 0)
    monkeypatch.setattr(world.files, "pwrite_parts", look_and_write)
    world.store.collect_garbage()
    assert progress(world) == (0, 44 + 2 * 296)
    world.run_all()
    whole = 44 + 2 * 296
    assert next(copied for copied, of in seen if of == whole) == 0
    assert sorted(seen) == seen
    if store_gc.__file__.endswith(".py"):  # compiled, the constant is part of the code
        assert (44 + 296, whole) in seen
    assert progress(world) == (0, 0)


def progress(world: StoreWorld) -> tuple[int, int]:
    statistics = world.store.statistics()
    return statistics["compacted_bytes"], statistics["compacting_bytes"]


def test_compaction_waits_for_the_deaths_before_it_and_not_for_those_after() -> None:
    world = half_dead()
    world.store.collect_garbage()
    assert world.board.writes == []
    world.model.durable = world.model.position
    world.remove(world.model.alive()[0])  # keeps coming
    world.store.note_durable(world.model.durable)
    assert len(world.board.writes) == 1
    world.run_all()
    # The one that died after the snapshot is in the new file, as garbage.
    assert world.files.size(f"{DIRECTORY}/1.rdq") == 44 + 2 * 296
    assert world.store.describe_files()[0]["messages"] == 1
    world.store.check()


def test_a_planned_compaction_gives_way_when_its_file_dies() -> None:
    world = half_dead()
    world.store.collect_garbage()
    for msg_id in world.model.alive()[:2]:
        world.remove(msg_id)
    world.store.note_durable(world.model.position)
    assert len(world.board.writes) == 1, "planned with what was known then"
    world.run_all()
    world.store.collect_garbage()
    world.run_all()
    assert names(world)[0] != "1.rdq"
    world.read_all()


def test_large_records_in_every_other_file_do_not_stop_it() -> None:
    """The rule for pairs finds none: any two neighbours have more than one file holds."""
    world = filled([100] * 7 + [980] + [100] * 7 + [980] + [100] * 7 + [980, 10])
    small = [i for i in world.model.alive() if len(world.model.contents[i]) == 100]
    for msg_id in small:
        if msg_id != small[0] and msg_id != small[7] and msg_id != small[14]:
            world.remove(msg_id)
    settle(world)
    for _ in range(10):
        world.store.collect_garbage()
        world.run_all()
    statistics = world.store.statistics()
    assert statistics["compactions"] > 0
    assert statistics["bytes"] - statistics["valid_bytes"] <= statistics["bytes"] // 3
    world.read_all()


def test_a_read_planned_before_finds_the_new_place_after() -> None:
    world = half_dead()
    settle(world)
    first = world.model.alive()[:4]
    early = ask(world, first)
    world.board.take_reads()
    world.store.collect_garbage()
    world.run_all()
    early.run(world.files)
    early.finish()
    assert early.retries == 1, "the places had moved"
    world.run_all()
    assert early.done
    assert early.contents == [world.model.contents[msg_id] for msg_id in first]


def test_a_read_between_rename_and_switch_is_parked() -> None:
    world = half_dead()
    settle(world)
    world.store.collect_garbage()
    (compaction,) = world.board.take_writes()
    compaction.run(world.files)
    early = ask(world, world.model.alive()[:4])
    world.board.take_reads()
    early.run(world.files)
    early.finish()
    assert world.board.reads == []
    compaction.finish()
    assert early in world.board.reads, "not before the rows say where"
    world.run_all()
    assert early.done
    world.read_all()


def test_a_message_that_dies_while_it_is_read_leaves_an_empty_place() -> None:
    world = half_dead()
    settle(world)
    doomed = ask(world, world.model.alive()[:1])
    for msg_id in world.model.alive()[:1]:
        world.remove(msg_id)
    settle(world)
    world.board.take_reads()
    world.store.collect_garbage()
    world.run_all()
    doomed.run(world.files)
    doomed.finish()
    assert doomed.done
    assert doomed.error is None
    assert doomed.contents == [b""]


def test_a_full_disk_makes_compaction_give_up_and_try_again() -> None:
    world = half_dead()
    settle(world)
    before = world.store.describe_files()
    world.files.space_left = 300
    world.store.collect_garbage()
    world.run_all()
    assert world.store.describe_files() == before
    assert "1.rdt" not in names(world)
    world.files.space_left = 1 << 40
    world.store.collect_garbage()
    world.run_all()
    assert world.store.statistics()["compactions"] == 1
    world.read_all()


@pytest.mark.parametrize("verb", ["pread", "pwrite", "sync", "rename", "sync_dir"])
def test_a_disk_fault_in_compaction_is_told(verb: str) -> None:
    world = half_dead()
    settle(world)
    world.store.collect_garbage()
    world.files.fail(verb, errno.EIO)
    (compaction,) = world.board.writes
    world.board.run_all(world.files)
    assert isinstance(compaction.error, OSError)
    assert world.store.disk_error() is compaction.error
    world.store.check()
    assert {"1.rdq", "2.rdq", "3.rdq"} <= set(names(world)), "nothing is removed after a fault"


def test_a_damaged_record_stops_compaction_and_nothing_else() -> None:
    world = half_dead()
    settle(world)
    world.files.flip(f"{DIRECTORY}/1.rdq", 8 * 100)
    for _ in range(8):
        world.store.collect_garbage()
        world.run_all()
    assert world.store.disk_error() is None
    assert [row["name"] for row in world.store.describe_files() if row["damaged"]] == ["1.rdq"]
    assert world.store.statistics()["compactions"] > 0, "the others are rewritten"
    damaged = ask(world, world.model.alive()[:1])
    world.board.run_all(world.files)
    assert isinstance(damaged.error, Corrupt)
    assert world.files.size(f"{DIRECTORY}/1.rdq") == 44 + 44 + 3 * 296


def test_small_files_are_joined_without_garbage() -> None:
    world = StoreWorld(limit_bytes=4000)
    for _ in range(12):
        world.write(20, 1)
        world.stop_cleanly()
        world.model.crash(random.Random(1))
        assert world.recover() == []
    assert len(names(world)) == 13
    for _ in range(20):
        world.store.collect_garbage()
        world.run_all()
    assert len(names(world)) <= 5
    world.read_all()


def test_a_clean_stop_forgets_a_plan() -> None:
    world = half_dead()
    world.store.collect_garbage()
    world.model.durable = world.model.position
    table = world.store.save_table()
    assert world.board.writes == []
    world.load(table)
    world.read_all()


def test_a_file_that_came_back_is_removed() -> None:
    """Its removal was not durable when the power went."""
    world = half_dead()
    settle(world)
    copy = dict(world.files.names)
    world.store.collect_garbage()
    world.run_all()
    world.files.names[f"{DIRECTORY}/2.rdq"] = copy[f"{DIRECTORY}/2.rdq"]
    table = world.store.save_table()
    world.load(table)
    assert "2.rdq" not in names(world)
    world.files.names[f"{DIRECTORY}/2.rdq"] = copy[f"{DIRECTORY}/2.rdq"]
    assert world.recover() == []
    assert "2.rdq" not in names(world)
    world.read_all()
