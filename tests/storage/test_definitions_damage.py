"""Definitions that lost something: what belongs to queues they do not name is not removed.

D3 of the review: a queue without a row and without a recorded deletion is damage, not garbage.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.common.files import RealFileSystem
from penstock.storage.common.seq_ranges import SeqRanges, ranges_of
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import QueueRecord, VhostRecord
from tests.backing.engine_tools import DIRECTORY, OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 64
MESSAGES = 10
FLIPS = int(os.environ.get("PENSTOCK_FLIPS", "300"))


def opened(
    files: SimFileSystem | RealFileSystem,
    ids: list[int],
    deleted: SeqRanges | None = None,
    directory: str = DIRECTORY,
) -> OpenEngine:
    return OpenEngine(
        files, dict.fromkeys(ids, ENTRIES), limits(), deleted=deleted, directory=directory
    )


def life(files: SimFileSystem, *, paged: bool = False) -> OpenEngine:
    """Queues 1 and 2, ten messages in each."""
    engine = opened(files, [1, 2])
    for queue in engine.queues.values():
        queue.publish([message(b"confirmed") for _ in range(MESSAGES)], 0)
    engine.commit()
    if paged:
        for queue in engine.queues.values():
            queue.set_mode(lazy=True)
        engine.settle(1)
    return engine


def counted(engine: OpenEngine) -> dict[int, int]:
    return {queue_id: int(found.count()) for queue_id, found in engine.opening.queues.items()}


# -- queues that the definitions do not name ------------------------------------------------


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_messages_of_an_unknown_queue_stop_the_start(*, paged: bool, clean: bool) -> None:
    files = SimFileSystem()
    engine = life(files, paged=paged)
    if clean:
        engine.close_cleanly()
    files.kill()
    with pytest.raises(Corrupt, match=r"definitions\.db: .* queue 2 .*") as refused:
        opened(files, [1])
    assert "restore definitions.db" in str(refused.value)
    assert "penstock repair" in str(refused.value)
    assert counted(opened(files, [1, 2])) == {1: MESSAGES, 2: MESSAGES}


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_a_recorded_deletion_removes_what_is_left(*, paged: bool, clean: bool) -> None:
    files = SimFileSystem()
    engine = life(files, paged=paged)
    if clean:
        engine.close_cleanly()
    files.kill()
    assert counted(opened(files, [1], ranges_of([2]))) == {1: MESSAGES}
    assert counted(opened(files, [1], ranges_of([2]))) == {1: MESSAGES}
    assert not [name for name in files.names if name.startswith(f"{DIRECTORY}/queues/2/")]


def test_a_deletion_in_the_journal_is_enough() -> None:
    """Of a release that recorded no deletions in the definitions."""
    files = SimFileSystem()
    engine = life(files, paged=True)
    engine.queues[2].delete()
    engine.commit()
    files.kill()  # the directory is still there
    assert counted(opened(files, [1])) == {1: MESSAGES}


def test_an_unknown_queue_without_messages_is_no_damage() -> None:
    files = SimFileSystem()
    engine = life(files)
    engine.queues[2].ack(engine.queues[2].fetch(MESSAGES, 1 << 20))
    engine.commit()
    files.kill()
    assert counted(opened(files, [1])) == {1: MESSAGES}


# -- deletions in the definitions ------------------------------------------------------------


def declared(path: str, names: str) -> Definitions:
    definitions = Definitions(path)
    definitions.put_vhost(VhostRecord("/", ENTRIES))
    definitions.commit()
    for name in names:
        put(definitions, name)
        definitions.commit()
    return definitions


def put(definitions: Definitions, name: str, priorities: int = 0) -> int:
    queue_id = definitions.next_queue_id(priorities + 1)
    arguments: dict[str, object] = {"x-max-priority": priorities} if priorities else {}
    definitions.put_queue(QueueRecord(queue_id, "0" * 32, "/", name, False, arguments))
    return queue_id


def test_deletions_are_kept_as_few_ranges(tmp_path: Path) -> None:
    path = str(tmp_path / "definitions.db")
    definitions = Definitions(path)
    definitions.put_vhost(VhostRecord("/", ENTRIES))
    names = [f"q{i}" for i in range(300)]
    ids = {name: put(definitions, name) for name in names}
    definitions.commit()
    random.Random(1).shuffle(names)
    for name in names[:-1]:
        definitions.delete_queue("/", name)
    definitions.commit()
    definitions.close()
    definitions = Definitions(path)
    assert len(definitions.rows("SELECT * FROM deleted_queues")) <= 2
    deleted = definitions.deleted_queues()
    assert [deleted.contains(ids[name]) for name in names] == [True] * 299 + [False]
    definitions.close()


def test_all_numbers_of_a_queue_with_priorities_and_of_a_virtual_host(tmp_path: Path) -> None:
    definitions = declared(str(tmp_path / "definitions.db"), "a")
    first = put(definitions, "p", 4)
    last = put(definitions, "b")
    definitions.delete_queue("/", "p")
    deleted = definitions.deleted_queues()
    assert (deleted.starts, deleted.ends) == ([first], [first + 5])
    definitions.delete_vhost("/")
    deleted = definitions.deleted_queues()
    assert (deleted.starts, deleted.ends) == ([1], [last + 1])
    definitions.close()


def test_what_a_start_has_removed_is_forgotten(tmp_path: Path) -> None:
    path = str(tmp_path / "definitions.db")
    definitions = declared(path, "ab")
    definitions.delete_queue("/", "a")
    definitions.commit()
    definitions.forget_deleted_queues()
    definitions.commit()
    assert definitions.deleted_queues().starts == []
    definitions.delete_queue("/", "b")
    definitions.commit()
    definitions.close()
    definitions = Definitions(path)
    assert (definitions.deleted_queues().starts, definitions.deleted_queues().ends) == ([2], [3])
    definitions.close()


# -- the log of the definitions --------------------------------------------------------------


def killed_directory(tmp_path: Path) -> Path:
    """Queues declared one by one, with messages, more declared behind; copied while open."""
    alive = tmp_path / "alive"
    alive.mkdir()
    definitions = declared(str(alive / "definitions.db"), "abc")
    engine = opened(RealFileSystem(), [1, 2, 3], directory=str(alive))
    for queue in engine.queues.values():
        queue.publish([message(b"confirmed") for _ in range(MESSAGES)], 0)
    engine.commit()
    for name in "defgh":
        put(definitions, name)
        definitions.commit()
    killed = tmp_path / "killed"
    shutil.copytree(alive, killed)
    definitions.close()
    return killed


def started(directory: Path) -> dict[str, int] | None:
    """Messages by queue after a start; None = refused."""
    try:
        definitions = Definitions(str(directory / "definitions.db"))
    except Corrupt:
        return None
    try:
        topology = definitions.load()
        ids = {queue.queue_id: queue.name for queue in topology.queues}
        engine = opened(RealFileSystem(), list(ids), definitions.deleted_queues(), str(directory))
    except Corrupt:
        return None
    finally:
        definitions.close()
    return {ids[queue_id]: count for queue_id, count in counted(engine).items()}


def test_a_flipped_bit_in_the_log_loses_nothing_or_stops_the_start(tmp_path: Path) -> None:
    killed = killed_directory(tmp_path)
    log = (killed / "definitions.db-wal").read_bytes()
    assert len(log) > 4096
    whole = dict.fromkeys("abc", MESSAGES) | dict.fromkeys("defgh", 0)
    chance = random.Random(7)
    places = list(range(64)) + [chance.randrange(len(log)) for _ in range(FLIPS)]
    refused = 0
    for place in places:
        directory = tmp_path / "flipped"
        shutil.copytree(killed, directory)
        flipped = bytearray(log)
        flipped[place] ^= 1 << chance.randrange(8)
        (directory / "definitions.db-wal").write_bytes(flipped)
        found = started(directory)
        refused += found is None
        # The log does not tell whether the last transaction, "h", was ever whole.
        assert found is None or found in (whole, {k: v for k, v in whole.items() if k != "h"}), (
            place
        )
        shutil.rmtree(directory)
    assert refused > len(places) // 2


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_log_is_no_damage(tmp_path: Path, seed: int) -> None:
    """Of the last transaction any part may be missing, in pieces of 512 bytes."""
    killed = killed_directory(tmp_path)
    path = killed / "definitions.db-wal"
    log = bytearray(path.read_bytes())
    chance = random.Random(seed)
    for place in range(last_transaction(bytes(log)), len(log), 512):
        if chance.random() < 0.5:
            log[place : place + 512] = bytes(len(log[place : place + 512]))
    path.write_bytes(log)
    found = started(killed)
    assert found is not None
    assert {name: found[name] for name in "abcdefg"} == dict.fromkeys("abc", MESSAGES) | (
        dict.fromkeys("defg", 0)
    )


def last_transaction(log: bytes) -> int:
    """Where its first frame begins."""
    size = 24 + int.from_bytes(log[8:12], "big")
    commits = [
        at for at in range(32, len(log), size) if int.from_bytes(log[at + 4 : at + 8], "big")
    ]
    return commits[-2] + size


def test_declarations_leave_the_log_at_once_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "definitions.db"
    definitions = declared(str(path), "abc")
    assert definitions.in_log
    definitions.checkpoint()
    assert not definitions.in_log
    assert os.path.getsize(f"{path}-wal") == 0
    assert path.stat().st_size > 4096
    definitions.close()


def test_a_process_that_reads_delays_no_commit(tmp_path: Path) -> None:
    path = tmp_path / "definitions.db"
    definitions = declared(str(path), "abc")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM queues").fetchall()
    put(definitions, "d")
    definitions.commit()
    began = time.monotonic()
    definitions.checkpoint()
    assert time.monotonic() - began < 2
    assert definitions.in_log
    reader.close()
    definitions.checkpoint()
    assert not definitions.in_log
    definitions.close()


def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    path = str(tmp_path / "definitions.db")
    definitions = declared(path, "a")
    largest = 0
    for i in range(600):
        put(definitions, f"q{i}")
        definitions.commit()
        largest = max(largest, os.path.getsize(f"{path}-wal"))
    assert largest < 6 << 20
    definitions.close()
