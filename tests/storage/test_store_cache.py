"""The store before the disk: references, the write cache, cancelled writes, groups, the writer."""

from __future__ import annotations

import errno

import pytest

from penstock.storage.common.disk_jobs import JobBoard, run_job
from penstock.storage.store.message_store import MessageStore, StoreWriter
from tests.helpers.sim_files import SimFileSystem

DIRECTORY = "store/persistent"


class Fixture:
    def __init__(self, *, durable: bool = True, limit_bytes: int = 1000) -> None:
        self.files = SimFileSystem()
        self.board = JobBoard()
        self.store = MessageStore(self.files, DIRECTORY, self.board, limit_bytes, durable)
        self.writer = StoreWriter(self.files, DIRECTORY)
        self.store.clear()
        self.files.calls.clear()

    def contents(self, msg_ids: list[int]) -> list[bytes]:
        read = self.store.read(msg_ids)
        self.board.reads.append(read)
        self.board.run_all(self.files)
        assert read.done
        assert read.error is None
        return read.contents


def test_a_fan_out_is_written_once() -> None:
    one = Fixture()
    msg_id = one.store.write(b"x" * 100, 5)
    group = one.store.seal()
    assert group is not None
    assert group.size == 44 + 16 + 100
    one.writer.write(group)
    one.store.committed(group)
    for position in range(1, 5):
        one.store.remove(msg_id, position)
        assert one.contents([msg_id]) == [b"x" * 100]
    one.store.refer(msg_id, 1)
    one.store.remove(msg_id, 5)
    one.store.remove(msg_id, 6)
    assert one.store.statistics()["messages"] == one.store.statistics()["references"] == 0
    with pytest.raises(AssertionError, match="gone"):
        one.store.remove(msg_id, 7)
    with pytest.raises(AssertionError, match="gone"):
        one.store.refer(msg_id, 1)


def test_what_dies_before_it_is_sealed_never_reaches_the_disk() -> None:
    one = Fixture()
    msg_id = one.store.write(b"x" * 100, 1)
    one.store.refer(msg_id, 1)
    one.store.remove(msg_id, 0)
    assert one.store.unsealed_bytes == 116
    one.store.remove(msg_id, 0)
    assert one.store.cached(msg_id) is None
    assert one.store.unsealed_bytes == 0
    assert one.store.seal() is None
    assert one.store.durable_msg_id == msg_id
    assert one.store.statistics()["writes_cancelled"] == 1


def test_contents_are_cached_until_their_group_is_committed() -> None:
    one = Fixture()
    ids = [int(one.store.write(b"%d" % i, 1)) for i in range(3)]
    group = one.store.seal()
    assert group is not None
    assert [one.store.cached(msg_id) for msg_id in ids] == [b"0", b"1", b"2"]
    assert one.contents(ids) == [b"0", b"1", b"2"]
    one.store.remove(ids[1], 0)
    assert one.store.cached(ids[1]) is None
    one.writer.write(group)
    one.writer.sync()
    one.store.committed(group)
    assert [one.store.cached(msg_id) for msg_id in ids] == [None, None, None]
    assert one.store.statistics()["cached_bytes"] == 0
    assert one.contents([ids[2], ids[0], ids[2]]) == [b"2", b"0", b"2"]
    one.store.check()


def test_durable_is_what_was_synced() -> None:
    one = Fixture()
    first = one.store.write(b"a", 1)
    unsynced = one.store.seal(sync=False)
    assert unsynced is not None
    one.writer.write(unsynced)
    one.store.committed(unsynced)
    assert one.store.durable_msg_id < first
    assert one.store.seal(sync=False) is None
    synced = one.store.seal()
    assert synced is not None
    assert synced.pieces == []
    one.writer.write(synced)
    one.writer.sync()
    one.store.committed(synced)
    assert one.store.durable_msg_id == first
    assert one.store.seal() is None


def test_the_next_group_attests_what_was_synced() -> None:
    one = Fixture()
    offsets = []
    for _ in range(3):
        one.store.write(b"x" * 50, 1)
        group = one.store.seal()
        assert group is not None
        offsets.append([(piece.offset, piece.synced_offset) for piece in group.pieces])
        one.writer.write(group)
        one.writer.sync()
        one.store.committed(group)
    assert offsets == [[(0, 0)], [(110, 110)], [(220, 220)]]


def test_a_file_is_synced_before_the_next_one_is_begun() -> None:
    one = Fixture(limit_bytes=200)
    for _ in range(2):
        one.store.write(b"x" * 100, 1)
    group = one.store.seal()
    assert group is not None
    one.writer.write(group)
    assert one.files.calls == [
        f"open_write {DIRECTORY}/1.rdq",
        f"sync_dir {DIRECTORY}",
        "pwrite",
        "sync",
        "close",
        f"open_write {DIRECTORY}/2.rdq",
        f"sync_dir {DIRECTORY}",
        "pwrite",
    ]
    assert one.writer.unsynced
    one.writer.sync()
    one.writer.sync()
    assert one.files.calls.count("sync") == 2
    one.writer.close()
    one.writer.close()
    assert one.files.handles == {}


@pytest.mark.parametrize("verb", ["open_write", "sync_dir", "pwrite"])
def test_a_group_that_met_a_full_disk_is_written_again(verb: str) -> None:
    one = Fixture(limit_bytes=200)
    ids = [int(one.store.write(b"%d" % i * 60, 1)) for i in range(6)]
    group = one.store.seal()
    assert group is not None
    one.files.fail(verb, errno.ENOSPC, after=1)
    with pytest.raises(OSError, match="No space"):
        one.writer.write(group)
    one.files.calls.clear()
    one.writer.write(group)
    assert f"sync_dir {DIRECTORY}" in one.files.calls
    one.writer.sync()
    one.store.committed(group)
    assert one.contents(ids) == [b"%d" % i * 60 for i in range(6)]


def test_large_contents_are_not_copied_on_their_way() -> None:
    one = Fixture()
    content = b"x" * 100_000
    one.store.write(content, 1)
    group = one.store.seal()
    assert group is not None
    assert any(part is content for piece in group.pieces for part in piece.parts())


def test_the_transient_store_begins_empty_and_never_syncs() -> None:
    one = Fixture(durable=False, limit_bytes=300)
    ids = [int(one.store.write(b"%d" % i * 100, 1)) for i in range(9)]
    job = one.store.flush_job()
    assert job is not None
    assert one.board.writes == [job]
    assert one.store.cached(ids[0]) is not None
    one.board.run_all(one.files)
    assert one.store.cached(ids[0]) is None
    assert one.store.flush_job() is None
    assert one.contents(ids) == [b"%d" % i * 100 for i in range(9)]
    for msg_id in ids[:-1]:
        one.store.remove(msg_id, 0)
    one.store.collect_garbage()
    one.board.run_all(one.files)
    assert list(one.files.names) == [f"{DIRECTORY}/5.rdq"]
    assert not {"sync", f"sync_dir {DIRECTORY}"} & set(one.files.calls)
    again = MessageStore(one.files, DIRECTORY, one.board, 300, durable=False)
    again.clear()
    assert one.files.names == {}


def test_flushes_that_end_out_of_order() -> None:
    one = Fixture(durable=False, limit_bytes=150)
    ids = []
    for i in range(3):
        ids.append(int(one.store.write(b"%d" % i * 100, 1)))
        one.store.flush_job()
    first, second, third = one.board.take_writes()
    for job in (second, third):
        run_job(job, one.files)
        job.finish()
    one.store.remove(ids[0], 0)
    one.store.remove(ids[1], 0)
    one.store.collect_garbage()
    assert one.board.reads == [], "the first file is still to be written"
    run_job(first, one.files)
    first.finish()
    one.store.check()
    one.store.collect_garbage()
    one.board.run_all(one.files)
    assert list(one.files.names) == [f"{DIRECTORY}/3.rdq"]
    assert one.contents(ids[2:]) == [b"2" * 100]


def test_a_flush_that_fails_keeps_its_contents_and_says_so() -> None:
    one = Fixture(durable=False)
    msg_id = int(one.store.write(b"x", 1))
    one.store.flush_job()
    one.files.fail("pwrite", errno.EIO)
    one.board.run_all(one.files)
    error = one.store.disk_error()
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert one.contents([msg_id]) == [b"x"]


def test_files_are_described() -> None:
    one = Fixture(limit_bytes=200)
    ids = [one.store.write(b"x" * 40, 1) for _ in range(2)]
    group = one.store.seal()
    assert group is not None
    one.writer.write(group)
    one.store.committed(group)
    one.store.remove(ids[0], 0)
    (row,) = one.store.describe_files()
    assert row == {
        "name": "1.rdq",
        "bytes": 156,
        "valid_bytes": 56,
        "messages": 1,
        "garbage": 100 / 156,
        "damaged": False,
        "compacting": False,
    }
