"""Reads: how few calls they take, what they find on a real disk, and threads in between."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from penstock.storage.common.disk_jobs import DiskJob, JobBoard, run_job
from penstock.storage.common.files import RealFileSystem
from penstock.storage.store.message_store import MessageStore, StoreRead, StoreWriter
from tests.storage.store_tools import StoreWorld


def preads(world: StoreWorld, msg_ids: list[int]) -> int:
    world.files.calls.clear()
    world.read(msg_ids)
    world.run_all()
    assert not world.asked
    return sum(call.startswith("pread") for call in world.files.calls)


def committed(sizes: list[int]) -> StoreWorld:
    world = StoreWorld(limit_bytes=1 << 24)
    for size in sizes:
        world.write(size, 1)
    world.seal()
    while world.sealed:
        world.commit_step()
    return world


def test_neighbours_are_read_with_one_call() -> None:
    world = committed([4096] * 100)
    ids = world.model.alive()
    assert preads(world, ids) == 1
    assert preads(world, ids[::-1]) == 1
    assert preads(world, ids[::4]) == 1, "gaps of 12 KiB are read over"
    assert preads(world, ids[:1]) == 2, "alone: the header, and the content uncopied"
    assert preads(world, [ids[0], ids[0]]) == 1


def test_far_and_large_records_are_read_alone() -> None:
    world = committed([4096, 30_000, 4096, 2_000_000, 4096])
    first, far, third, large, last = world.model.alive()
    assert preads(world, [first, third]) == 4
    assert preads(world, [third, large, last]) == 6
    assert preads(world, [first, far, third]) == 1


class Threads:
    """The owner's loop: jobs go to threads, and come back to be finished in order of ending."""

    def __init__(self, files: RealFileSystem, board: JobBoard) -> None:
        self.files = files
        self.board = board
        self.writes = ThreadPoolExecutor(1)
        self.reads = ThreadPoolExecutor(3)
        self.under_way: list[tuple[Future[None], DiskJob]] = []

    def turn(self) -> None:
        for job in self.board.take_writes():
            self.under_way.append((self.writes.submit(run_job, job, self.files), job))
        for job in self.board.take_reads():
            self.under_way.append((self.reads.submit(run_job, job, self.files), job))
        left = []
        for future, job in self.under_way:
            if future.done():
                future.result()
                job.finish()
            else:
                left.append((future, job))
        self.under_way = left

    def close(self) -> None:
        while self.under_way or self.board.reads or self.board.writes:
            self.turn()
            time.sleep(0.0005)
        self.writes.shutdown()
        self.reads.shutdown()


def test_reads_in_threads_while_files_are_rewritten(tmp_path: Path) -> None:
    """Every answer is right, or empty for what died meanwhile."""
    rng = random.Random(5)
    files = RealFileSystem()
    board = JobBoard()
    store = MessageStore(files, f"{tmp_path}/store", board, 64 * 1024)
    assert store.scan_jobs() == []
    store.scanned()
    store.finish_recovery()
    writer = StoreWriter(files, f"{tmp_path}/store")
    threads = Threads(files, board)
    alive: dict[int, bytes] = {}
    asked: list[tuple[StoreRead, list[int], list[bytes]]] = []
    answers = 0
    for turn in range(400):
        for _ in range(8):
            content = rng.randbytes(rng.randint(1000, 6000))
            alive[int(store.write(content, 1))] = content
        group = store.seal()
        assert group is not None
        writer.write(group)
        store.committed(group)
        store.note_durable(turn)
        for msg_id in rng.sample(sorted(alive), max(0, len(alive) - 120)):
            del alive[msg_id]
            store.remove(msg_id, turn)
        ids = rng.sample(sorted(alive), min(10, len(alive)))
        read = store.read(ids)
        board.reads.append(read)
        asked.append((read, ids, [alive[msg_id] for msg_id in ids]))
        store.collect_garbage()
        threads.turn()
    threads.close()
    for read, ids, contents in asked:
        assert read.done
        assert read.error is None
        for msg_id, found, expected in zip(ids, read.contents, contents, strict=True):
            assert found == expected or (found == b"" and msg_id not in alive)
            answers += found == expected
    store.check()
    assert store.disk_error() is None
    assert answers > 3000
    statistics = store.statistics()
    assert statistics["compactions"] + statistics["files_removed"] > 20
    assert statistics["compactions"] > 0
    on_disk = sum(path.stat().st_size for path in (tmp_path / "store").iterdir())
    assert on_disk == statistics["bytes"]
    writer.close()
