"""The committer: order, syncs, and a disk that fails."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.message import PERSISTENT, Message
from penstock.runtime.disk.committer import BATCH_MAX_BYTES, Committer
from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.common.files import FileSystem, RealFileSystem
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.journal.codec import JournalGroup, attests_damage, journal_file_name
from penstock.storage.journal.journal import Journal
from penstock.storage.journal.recovery import JournalRecovery
from penstock.storage.store.groups import StoreWriter
from penstock.storage.store.message_store import MessageStore
from tests.helpers.sim_files import SimFileSystem

DIRECTORY = "journal"
STORE = "store"
FILE_BYTES = 4096


class Disk(SimFileSystem):
    """Stops before each sync until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.makedirs(DIRECTORY)
        self.makedirs(STORE)
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


def committer_on(
    files: FileSystem, wake: Callable[[], None] = lambda: None, directory: str = DIRECTORY
) -> Committer:
    return Committer(files, directory, FILE_BYTES, StoreWriter(files, STORE), wake)


def group(number: int, *, file_no: int = 1, sync: bool = True, size: int = 10) -> JournalGroup:
    return JournalGroup(file_no, 0, 0, [bytes([number]) * size], sync, number, [])


def verbs(disk: SimFileSystem) -> list[str]:
    return [call.split()[0] for call in disk.calls if not call.startswith("makedirs")]


def test_groups_come_back_in_order_after_their_sync() -> None:
    disk, waker = Disk(), Waker()
    committer = committer_on(disk, waker)
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
    committer = committer_on(disk)
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
    committer = committer_on(disk)
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
    committer = committer_on(disk)
    committer.commit_inline(group(1, sync=False))
    assert [one.end_position for one in committer.collect()] == [1]
    assert verbs(disk) == ["open_write", "allocate", "sync_dir", "pwrite"]
    committer.commit_inline(JournalGroup(1, 46, 0, [], True, 1, []))
    assert verbs(disk)[4:] == ["sync"]
    assert committer.owes_note
    committer.attest()
    assert not committer.owes_note
    assert verbs(disk)[5:] == ["pwrite"]
    committer.close()


def test_close_syncs_what_is_not_synced() -> None:
    disk = Disk()
    committer = committer_on(disk)
    committer.submit(group(1, sync=False))
    committer.close()
    assert verbs(disk) == ["open_write", "allocate", "sync_dir", "pwrite", "sync", "close"]


def test_the_old_file_is_synced_before_the_new_one_is_begun() -> None:
    disk = Disk()
    committer = committer_on(disk)
    committer.commit_inline(group(1, sync=False))
    committer.commit_inline(group(2, file_no=2, sync=False))
    began = ["open_write", "allocate", "sync_dir", "pwrite"]
    assert verbs(disk)[4:] == ["sync", *began]
    committer.close()
    assert verbs(disk)[9:] == ["sync", "pwrite", "close", "close"]  # the old one has a note


def test_retired_files_go_after_the_sync_and_only_then() -> None:
    disk = Disk()
    for number in range(1, 4):
        disk.open_write(f"journal/{number}.jif")
    committer = committer_on(disk)
    dropping = JournalGroup(4, 0, 0, [b"x"], True, 1, [1, 2, 3])
    disk.fail("sync")
    committer.commit_inline(dropping)
    assert committer.error is not None
    assert all(disk.exists(f"journal/{number}.jif") for number in range(1, 4))
    committer.close()
    committer = committer_on(disk)
    committer.commit_inline(dropping)
    left = sorted(disk.listdir(DIRECTORY))
    assert left == ["1.jif.spare", "2.jif.spare", "4.jif"]
    committer.commit_inline(JournalGroup(4, 0, 0, [b"y"], True, 2, [1]))  # gone already
    assert committer.error is None
    committer.close()


def test_a_spare_becomes_the_next_file() -> None:
    disk = Disk()
    committer = committer_on(disk)
    committer.commit_inline(group(1))
    committer.commit_inline(group(2, file_no=2))
    committer.commit_inline(JournalGroup(2, 46, 0, [b"x"], True, 3, [1]))
    assert sorted(disk.listdir(DIRECTORY)) == ["1.jif.spare", "2.jif"]
    committer.commit_inline(group(4, file_no=3))
    assert sorted(disk.listdir(DIRECTORY)) == ["2.jif", "3.jif"]
    assert disk.size("journal/3.jif") == FILE_BYTES
    committer.close()


def test_a_full_disk_is_waited_for_in_the_thread() -> None:
    disk, waker = Disk(), Waker()
    committer = committer_on(disk, waker)
    disk.space_left = FILE_BYTES // 2
    one = group(1)
    committer.commit_inline(one)  # hands over to the thread
    waker.wait()
    assert committer.stalled.startswith("no space left on device")
    assert committer.error is None
    assert committer.collect() == []
    disk.space_left = 1 << 30
    waker.wait()
    committer.close()
    assert committer.stalled == ""
    assert committer.collect() == [one]


def test_a_disk_that_stays_full_does_not_keep_the_broker_from_stopping() -> None:
    disk, waker = Disk(), Waker()
    committer = committer_on(disk, waker)
    disk.space_left = 0
    committer.submit(group(1))
    waker.wait()
    committer.close()
    assert committer.collect() == []
    assert committer.error is not None
    assert committer.error.errno == errno.ENOSPC


def test_contents_are_on_disk_before_the_block_that_names_them() -> None:
    disk = Disk()
    store = MessageStore(disk, STORE, JobBoard())
    store.scan_jobs()
    store.scanned()
    store.finish_recovery()
    store.write(b"x" * 5000, 1)
    disk.calls = []
    committer = committer_on(disk)
    one = group(1)
    one.store = store.seal()
    committer.commit_inline(one)
    assert committer.collect() == [one]
    written = verbs(disk)
    assert written.index("pwrite") < written.index("allocate"), "the store's file comes first"
    assert written[-2:] == ["sync", "sync"]
    committer.close()


@pytest.mark.parametrize(
    "verb,number",
    [
        ("pwrite", errno.EIO),
        ("allocate", errno.EIO),
        ("sync", errno.EIO),
        ("sync_dir", errno.EIO),
        ("open_write", errno.EMFILE),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
def test_after_an_error_nothing_is_reported_or_tried(verb: str, number: int, inline: bool) -> None:
    disk, waker = Disk(), Waker()
    committer = committer_on(disk, waker)
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


@pytest.mark.parametrize("verb", ["open_write", "allocate", "sync_dir", "pwrite"])
def test_a_file_that_could_not_be_begun_says_nothing_of_what_is_on_disk(verb: str) -> None:
    """A note in it would attest a first block that was never written: no start believes that."""
    disk, waker = Disk(), Waker()
    committer = committer_on(disk, waker)
    committer.commit_inline(group(1))
    assert committer.owes_note
    disk.fail(verb)
    committer.submit(group(2, file_no=2))
    waker.wait()
    committer.close()
    assert committer.error is not None
    path = f"{DIRECTORY}/{journal_file_name(2)}"
    assert not disk.exists(path) or not attests_damage(disk.read(path), 0, 2)


def test_a_bug_in_the_thread_is_seen_by_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    disk, waker = Disk(), Waker()
    monkeypatch.setattr(disk, "pwrite_parts", None)
    committer = committer_on(disk, waker)
    committer.submit(group(1))
    waker.wait()
    assert "the committer failed" in str(committer.error)
    committer.close()
    assert committer.collect() == []


def test_commit_inline_is_for_an_idle_committer() -> None:
    disk = Disk()
    committer = committer_on(disk)
    disk.gate.clear()
    committer.submit(group(1))
    with pytest.raises(AssertionError):
        committer.commit_inline(group(2))
    disk.gate.set()
    committer.close()
    with pytest.raises(AssertionError):
        committer.submit(group(3))


def test_with_the_journal_on_a_real_disk(tmp_path: Path) -> None:
    files, waker, rng = RealFileSystem(), Waker(), random.Random(5)
    directory = str(tmp_path / DIRECTORY)
    journal = Journal(files, directory, FILE_BYTES)
    journal.begin(1, {})
    committer = committer_on(files, waker, directory)
    live = []
    for start in range(0, 400, 4):
        batch = [persistent(seq_id, rng.randbytes(rng.randrange(1, 300))) for seq_id in range(4)]
        for place, message in enumerate(batch):
            message.seq_id = start + place
        journal.publish(1, batch)
        live.extend(batch)
        journal.ack(1, [live.pop(rng.randrange(len(live))) for _ in range(3)])
        sealed = journal.seal(rng.random() < 0.5)
        assert sealed is not None
        committer.submit(sealed)
    position = journal.position
    last = journal.seal(True)
    if last is not None:
        committer.submit(last)
    committer.close()
    for done in committer.collect():
        journal.committed(done)
    assert journal.durable_position == position
    journal.check()
    assert len(journal.files) > 3
    recovery = JournalRecovery(files, directory, {1}, SeqRanges())
    recovery.run()
    found = recovery.queues[1].messages
    assert [one.seq_id for one in found] == sorted(one.seq_id for one in live)
    assert {one.content for one in found} == {one.content for one in live}


def persistent(seq_id: int, content: bytes) -> Message:
    message = Message(content, b"\x00\x01q", PERSISTENT, 0)
    message.seq_id = seq_id
    return message
