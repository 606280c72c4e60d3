"""The committer: order, syncs, and a disk that fails."""

from __future__ import annotations

import errno
import random
import threading

import pytest

from penstock.server.committer import BATCH_MAX_BYTES, Committer
from penstock.storage.files import RealFileSystem
from penstock.storage.log_codec import LogGroup
from tests.helpers.sim_files import SimFileSystem
from tests.storage.log_tools import DIRECTORY, OpenLog, messages


class Disk(SimFileSystem):
    """Stops before each sync until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.makedirs(DIRECTORY)
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def sync(self, handle: int) -> None:
        self.reached.set()
        assert self.gate.wait(10)
        super().sync(handle)


class Waker:
    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(10)
        self.event.clear()


def group(number: int, *, file_no: int = 1, sync: bool = True, size: int = 10) -> LogGroup:
    return LogGroup(file_no, 0, 0, [bytes([number]) * size], sync, number, [])


def verbs(disk: SimFileSystem) -> list[str]:
    return [call.split()[0] for call in disk.calls if not call.startswith("makedirs")]


def test_groups_come_back_in_order_after_their_sync() -> None:
    disk, waker = Disk(), Waker()
    committer = Committer(disk, DIRECTORY, waker)
    assert committer.idle()
    disk.gate.clear()
    first = group(1)
    committer.submit(first)
    assert disk.reached.wait(10)
    assert not committer.idle()
    assert committer.collect() == []
    rest = [group(2), group(3, sync=False), group(4)]
    for one in rest:
        committer.submit(one)
    disk.gate.set()
    waker.wait()
    committer.close()
    assert committer.collect() == [first, *rest]
    assert committer.collect() == []
    assert committer.idle()
    assert committer.last_sync_ms >= 0


def test_groups_that_wait_together_share_a_sync() -> None:
    disk = Disk()
    committer = Committer(disk, DIRECTORY, lambda: None)
    disk.gate.clear()
    committer.submit(group(1))
    assert disk.reached.wait(10)
    for number in range(2, 12):
        committer.submit(group(number))
    disk.gate.set()
    committer.close()
    assert len(committer.collect()) == 11
    assert committer.sync_count == 2


def test_a_batch_has_a_limit() -> None:
    disk = Disk()
    committer = Committer(disk, DIRECTORY, lambda: None)
    disk.gate.clear()
    committer.submit(group(1))
    assert disk.reached.wait(10)
    for number in range(2, 6):
        committer.submit(group(number, size=BATCH_MAX_BYTES // 2 + 1))
    disk.gate.set()
    committer.close()
    assert committer.sync_count == 5


def test_a_group_without_sync_is_only_written() -> None:
    disk = Disk()
    committer = Committer(disk, DIRECTORY, lambda: None)
    committer.commit_inline(group(1, sync=False))
    assert [one.end_position for one in committer.collect()] == [1]
    assert verbs(disk) == ["open_append", "sync_dir", "write"]
    committer.commit_inline(LogGroup(1, 46, 0, [], True, 1, []))
    assert verbs(disk)[3:] == ["sync"]
    committer.close()


def test_close_syncs_what_is_not_synced() -> None:
    disk = Disk()
    committer = Committer(disk, DIRECTORY, lambda: None)
    committer.submit(group(1, sync=False))
    committer.close()
    assert verbs(disk) == ["open_append", "sync_dir", "write", "sync", "close"]


def test_the_old_file_is_synced_before_the_new_one_is_begun() -> None:
    disk = Disk()
    committer = Committer(disk, DIRECTORY, lambda: None)
    committer.commit_inline(group(1, sync=False))
    committer.commit_inline(group(2, file_no=2, sync=False))
    assert verbs(disk)[3:] == ["sync", "close", "open_append", "sync_dir", "write"]
    committer.close()


def test_files_are_removed_after_the_sync_and_only_then() -> None:
    disk = Disk()
    disk.open_append("log/1.log")
    committer = Committer(disk, DIRECTORY, lambda: None)
    dropping = LogGroup(2, 0, 0, [b"x"], True, 1, [1])
    disk.fail("sync")
    committer.commit_inline(dropping)
    assert committer.error is not None
    assert disk.exists("log/1.log")
    committer.close()
    committer = Committer(disk, DIRECTORY, lambda: None)
    committer.commit_inline(dropping)
    assert not disk.exists("log/1.log")
    committer.commit_inline(LogGroup(2, 0, 0, [b"y"], True, 2, [1]))  # gone already
    assert committer.error is None
    committer.close()


@pytest.mark.parametrize(
    "verb,number",
    [
        ("write", errno.ENOSPC),
        ("write", errno.EIO),
        ("sync", errno.EIO),
        ("sync_dir", errno.EIO),
        ("open_append", errno.EMFILE),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
def test_after_an_error_nothing_is_reported_or_tried(verb: str, number: int, inline: bool) -> None:
    disk, waker = Disk(), Waker()
    committer = Committer(disk, DIRECTORY, waker)
    disk.fail(verb, number)
    if inline:
        committer.commit_inline(group(1))
    else:
        committer.submit(group(1))
        waker.wait()
    assert committer.error is not None
    assert committer.error.errno == number
    tried = list(disk.calls)
    for again in range(3):
        committer.submit(group(2 + again))
    committer.close()
    assert committer.collect() == []
    assert [call for call in disk.calls[len(tried) :] if call != "close"] == []


def test_a_full_disk_leaves_a_torn_tail_that_recovery_cuts() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    opened.log.publish(1, messages(0, 3))
    opened.commit()
    files.space_left = 50
    opened.log.publish(1, messages(3, 9))
    with pytest.raises(OSError, match="No space left") as caught:
        opened.commit()
    assert caught.value.errno == errno.ENOSPC
    files.kill()
    files.space_left = 1 << 30
    reopened = OpenLog(files, {1})
    assert reopened.seq_ids(1) == [0, 1, 2]
    assert reopened.log.statistics()["bytes_cut"] == 50


def test_a_bug_in_the_thread_is_seen_by_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    disk, waker = Disk(), Waker()
    monkeypatch.setattr(disk, "write_parts", None)
    committer = Committer(disk, DIRECTORY, waker)
    committer.submit(group(1))
    waker.wait()
    assert "the committer failed" in str(committer.error)
    committer.close()
    assert committer.collect() == []


def test_commit_inline_is_for_an_idle_committer() -> None:
    disk = Disk()
    committer = Committer(disk, DIRECTORY, lambda: None)
    disk.gate.clear()
    committer.submit(group(1))
    with pytest.raises(AssertionError):
        committer.commit_inline(group(2))
    disk.gate.set()
    committer.close()
    with pytest.raises(AssertionError):
        committer.submit(group(3))


def test_with_the_log_on_a_real_disk(tmp_path: object) -> None:
    directory = f"{tmp_path}/{DIRECTORY}"
    from penstock.storage.message_log import MessageLog

    files, waker, rng = RealFileSystem(), Waker(), random.Random(5)
    log = MessageLog(files, directory, 20_000)
    log.recover({1})
    committer = Committer(files, directory, waker)
    live = []
    for start in range(0, 400, 4):
        batch = messages(start, start + 4, rng.randbytes(rng.randrange(300)))
        log.publish(1, batch)
        live.extend(batch)
        log.ack(1, [live.pop(rng.randrange(len(live))) for _ in range(3)])
        sealed = log.seal(rng.random() < 0.5)
        assert sealed is not None
        committer.submit(sealed)
    position = log.position
    last = log.seal(True)
    if last is not None:
        committer.submit(last)
    committer.close()
    for done in committer.collect():
        log.committed(done)
    assert log.durable_position == position
    log.check()
    again = MessageLog(files, directory, 20_000)
    found = again.recover({1})[1].messages
    assert [one.seq_id for one in found] == sorted(one.seq_id for one in live)
    assert {one.content for one in found} == {one.content for one in live}
    assert log.statistics()["files_dropped"] > 0
