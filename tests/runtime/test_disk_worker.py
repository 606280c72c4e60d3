"""The disk worker: order, lanes, a full disk, bugs, and the end."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from penstock.core.errors import Corrupt
from penstock.runtime.disk import worker as disk_worker
from penstock.runtime.disk.worker import DiskWorker
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.files import FileSystem
from tests.helpers.sim_files import SimFileSystem

PROMPT_S = 10.0
"""Longer than anything here takes on a busy machine."""


class Job(DiskJob):
    """Writes its name into a file of its own; remembers who ran and who finished it."""

    def __init__(self, name: str, before: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.name = name
        self.before = before
        self.runs = 0
        self.ran_in = ""
        self.finished_in: list[str] = []

    def __repr__(self) -> str:
        return self.name

    def run(self, files: FileSystem) -> None:
        self.runs += 1
        self.ran_in = threading.current_thread().name
        if self.before is not None:
            self.before()
        handle = files.open_write(f"d/{self.name}")
        try:
            files.pwrite_parts(handle, 0, [self.name.encode() * 10])
        finally:
            files.close(handle)

    def finish(self) -> None:
        super().finish()
        self.finished_in.append(threading.current_thread().name)


class Room:
    """A worker on a disk in memory, with a loop that waits to be woken."""

    def __init__(self, directory: str = "d") -> None:
        self.files = SimFileSystem()
        self.files.makedirs("d")
        self.woken = threading.Event()
        self.worker = DiskWorker(self.files, directory, self.woken.set)
        self.collected: list[DiskJob] = []

    def reserve(self, name: str, size: int) -> None:
        handle = self.files.open_write(f"d/{name}")
        self.files.allocate(handle, size)
        self.files.close(handle)

    def wait(self, until: Callable[[], object]) -> None:
        """Turn as the loop does until something is true; only ever woken, never looking."""
        deadline = time.monotonic() + PROMPT_S
        while not until():
            assert self.woken.wait(deadline - time.monotonic()), "not woken in time"
            self.woken.clear()
            self.collected += self.worker.collect()

    def wait_for(self, *jobs: Job) -> None:
        self.wait(lambda: all(job.done for job in jobs))


@pytest.fixture
def room() -> Iterator[Room]:
    one = Room()
    yield one
    one.worker.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_worker, "RETRY_MS", 5)


def jobs(names: str) -> list[DiskJob]:
    return [Job(name) for name in names]


class Gate:
    """Holds whoever comes until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(PROMPT_S)


# -- order ---------------------------------------------------------------------------------


def test_jobs_run_in_order_in_their_lane_and_finish_in_the_caller(room: Room) -> None:
    writes, reads = jobs("abcdef"), jobs("uvwxyz")
    room.worker.submit_writes(writes[:4])
    room.worker.submit_reads(reads)
    room.worker.submit_writes(writes[4:])
    room.wait(lambda: len(room.collected) == 12)
    assert [job for job in room.collected if job in writes] == writes
    assert [job for job in room.collected if job in reads] == reads
    here = threading.current_thread().name
    for job in writes + reads:
        assert isinstance(job, Job)
        assert job.finished_in == [here]
        assert job.ran_in == ("disk-writes" if job in writes else "disk-reads")
        assert room.files.read(f"d/{job.name}") == job.name.encode() * 10
    assert room.worker.collect() == []


def test_reads_do_not_wait_behind_writes(room: Room) -> None:
    gate = Gate()
    slow, behind, read = Job("slow", gate), Job("behind"), Job("read")
    room.worker.submit_writes([slow, behind])
    assert gate.reached.wait(PROMPT_S)
    assert room.worker._writes.size() == 2
    room.worker.submit_reads([read])
    room.wait_for(read)
    assert not room.worker.idle()
    assert room.worker._writes.size() == 2
    assert room.worker.collect() == []
    gate.opened.set()
    room.wait_for(slow, behind)
    assert room.worker.idle()
    assert room.worker._writes.size() == 0
    assert room.collected == [read, slow, behind]


def test_done_is_not_idle_before_it_can_be_collected(room: Room) -> None:
    """Who sees an idle worker and collects has seen everything."""
    for number in range(200):
        job = Job(f"j{number}")
        room.worker.submit_writes([job])
        while not room.worker.idle():
            time.sleep(0)
        assert room.worker.collect() == [job]


def test_a_cancelled_job_is_finished_and_not_run(room: Room) -> None:
    gate = Gate()
    first, second, third = Job("a", gate), Job("b"), Job("c")
    room.worker.submit_writes([first, second, third])
    assert gate.reached.wait(PROMPT_S)
    first.cancelled = True  # too late
    second.cancelled = True
    gate.opened.set()
    room.wait_for(third)
    assert room.collected == [first, second, third]
    assert [first.runs, second.runs, third.runs] == [1, 0, 1]
    assert second.done
    assert second.error is None


def test_a_job_that_fails_carries_its_error_and_the_next_one_runs(room: Room) -> None:
    def damaged() -> None:
        raise Corrupt("d/a: damaged at offset 0, 1 bytes")

    first, second, third = Job("a", damaged), Job("b"), Job("c")
    room.files.fail("pwrite")
    room.worker.submit_reads([first, second, third])
    room.wait_for(third)
    assert isinstance(first.error, Corrupt)
    assert isinstance(second.error, OSError)
    assert second.error.errno == errno.EIO
    assert [first.runs, second.runs, third.runs] == [1, 1, 1]
    assert third.error is None
    assert room.worker.error is None
    assert room.worker.stalled == ""


def test_what_finish_asks_for_is_done_too(room: Room) -> None:
    follower = Job("b")

    class Leader(Job):
        def finish(self) -> None:
            super().finish()
            room.worker.submit_writes([follower])

    leader = Leader("a")
    room.worker.submit_writes([leader])
    room.wait_for(leader, follower)
    assert room.collected == [leader, follower]


def test_a_board_may_finish_its_jobs_itself() -> None:
    noted: list[DiskJob] = []

    def note(job: DiskJob) -> None:
        job.finish()
        noted.append(job)

    files = SimFileSystem()
    files.makedirs("d")
    worker = DiskWorker(files, "d", lambda: None, note)
    done = jobs("abc")
    worker.submit_reads(done)
    worker.close()
    assert noted == []
    assert worker.collect() == done == noted
    assert all(job.done for job in done)


def test_a_finish_that_raises_costs_the_others_nothing(room: Room) -> None:
    class Wrong(Job):
        def finish(self) -> None:
            raise Corrupt("d/b: damaged")

    first, wrong, last = Job("a"), Wrong("b"), Job("c")
    room.worker.submit_reads([first, wrong, last])
    room.worker.close()
    with pytest.raises(Corrupt, match="damaged"):
        room.worker.collect()
    assert first.done
    assert room.worker.collect() == [last]


def test_many_jobs_from_a_loop_that_is_busy(room: Room) -> None:
    rng = random.Random(7)
    lanes: tuple[list[DiskJob], list[DiskJob]] = ([], [])
    for number in range(500):
        lane = rng.randrange(2)
        more: list[DiskJob] = [Job(f"{number}-{i}") for i in range(rng.randrange(3))]
        (room.worker.submit_writes, room.worker.submit_reads)[lane](more)
        lanes[lane].extend(more)
        for job in rng.sample(more, min(len(more), rng.randrange(2))):
            job.cancelled = True
        room.collected += room.worker.collect()
    room.worker.close()
    room.collected += room.worker.collect()
    for lane_jobs in lanes:
        assert [job for job in room.collected if job in lane_jobs] == lane_jobs
    assert len(room.collected) == len(lanes[0]) + len(lanes[1])
    assert all(isinstance(job, Job) and len(job.finished_in) == 1 for job in room.collected)


# -- a full disk ---------------------------------------------------------------------------


def stall(room: Room, *submitted: Job) -> None:
    room.files.space_left = 4
    room.worker.submit_writes(list(submitted))
    room.wait(lambda: room.worker.stalled)


@pytest.mark.usefixtures("impatient")
def test_a_full_disk_holds_the_writes_until_there_is_space(room: Room) -> None:
    first, second, read = Job("first"), Job("second"), Job("read")
    room.reserve("read", 40)
    stall(room, first, second)
    spin(lambda: first.runs > 3)
    room.worker.submit_reads([read])
    room.wait_for(read)
    assert room.collected == [read]
    assert room.worker._writes.size() == 2
    assert not room.worker.idle()
    assert second.runs == 0
    room.files.space_left = 1000
    room.wait_for(first, second)
    assert room.worker.stalled == ""
    assert first.error is None
    assert room.files.read("d/first") == b"first" * 10


def spin(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROMPT_S
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.usefixtures("impatient")
def test_the_loop_is_woken_when_the_stall_begins_and_ends(room: Room) -> None:
    stall(room, Job("a"))
    room.woken.clear()
    room.files.space_left = 1000
    room.wait(lambda: room.worker.stalled == "")


@pytest.mark.usefixtures("impatient")
def test_removing_makes_the_space_that_a_write_waits_for(room: Room) -> None:
    old = Job("old")
    room.worker.submit_writes([old])
    room.wait_for(old)
    new = Job("new")
    stall(room, new)

    class Removal(DiskJob):
        def run(self, files: FileSystem) -> None:
            files.remove("d/old")

    room.worker.submit_reads([Removal()])
    room.wait_for(new)
    assert new.error is None
    assert room.files.listdir("d") == ["new"]


def test_why_it_is_stalled_is_said_in_a_sentence(tmp_path: object) -> None:
    room = Room(str(tmp_path))
    stall(room, Job("a"))
    words = room.worker.stalled
    assert words.startswith(f"no space left on device: {tmp_path}; ")
    assert " bytes are free, writing is tried again every 500 ms" in words
    room.worker.close()
    room = Room("nowhere")
    room.files.fail("open_write", errno.EDQUOT)
    room.worker.submit_writes([Job("a")])
    room.wait(lambda: room.worker.stalled)
    assert room.worker.stalled.startswith("disk quota exceeded: d/a; writing is tried again")
    room.worker.close()


def test_it_is_tried_twice_a_second_however_much_is_submitted(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert disk_worker.RETRY_MS == 500
    monkeypatch.setattr(disk_worker, "RETRY_MS", 100)
    tries: list[float] = []
    job = Job("a", lambda: tries.append(time.monotonic()))
    stall(room, job)
    while len(tries) < 4:
        room.worker.submit_writes([Job("b")])
        time.sleep(0.002)
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert min(waits) >= 0.1


@pytest.mark.usefixtures("impatient")
def test_what_stalls_may_be_cancelled(room: Room) -> None:
    first, second = Job("a"), Job("b")
    room.reserve("b", 10)
    stall(room, first, second)
    first.cancelled = True
    room.wait_for(first, second)
    assert first.error is None
    assert room.worker.stalled == ""


@pytest.mark.usefixtures("impatient")
def test_another_error_ends_the_stall(room: Room) -> None:
    first = Job("a")
    stall(room, first)
    room.files.fail("open_write", errno.EROFS)
    room.wait_for(first)
    assert isinstance(first.error, OSError)
    assert first.error.errno == errno.EROFS
    assert room.worker.stalled == ""


def test_reading_never_stalls(room: Room) -> None:
    room.files.space_left = 0
    job = Job("a")
    room.worker.submit_reads([job])
    room.wait_for(job)
    assert job.runs == 1
    assert isinstance(job.error, OSError)
    assert job.error.errno == errno.ENOSPC
    assert room.worker.stalled == ""


# -- the end -------------------------------------------------------------------------------


def test_close_does_what_waits(room: Room) -> None:
    gate = Gate()
    submitted = [Job("a", gate), *jobs("bcd")]
    room.worker.submit_writes(submitted)
    read = Job("r")
    room.worker.submit_reads([read])
    assert gate.reached.wait(PROMPT_S)
    threading.Timer(0.05, gate.opened.set).start()
    room.worker.close()
    assert room.worker.idle()
    done = room.worker.collect()
    assert [job for job in done if job is not read] == submitted
    assert read in done
    assert all(job.done for job in done)
    room.worker.close()
    with pytest.raises(AssertionError):
        room.worker.submit_writes([Job("z")])


def test_closed_on_a_full_disk_all_that_waits_comes_back_unrun_with_the_error(room: Room) -> None:
    first, second, third = Job("a"), Job("b"), Job("c")
    stall(room, first, second, third)
    third.cancelled = True
    runs = first.runs
    room.worker.close()
    assert room.worker.stalled == ""
    assert room.worker.collect() == [first, second, third]
    assert first.runs == runs + 1
    assert second.runs == third.runs == 0
    for job in (first, second):
        assert isinstance(job.error, OSError)
        assert job.error.errno == errno.ENOSPC
    assert third.error is None


def test_closed_when_there_is_space_again_it_is_written(room: Room) -> None:
    first, second = Job("a"), Job("b")
    stall(room, first, second)
    room.files.space_left = 1000
    room.worker.close()
    assert room.worker.collect() == [first, second]
    assert first.error is None
    assert second.runs == 1


def test_a_bug_is_heard_of_and_nobody_waits_for_the_dead(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def bug() -> None:
        raise SystemExit("no way out")

    first, second, cancelled, later, read = Job("a", bug), *(Job(name) for name in "bcdr")
    cancelled.cancelled = True
    room.worker.submit_writes([first, second, cancelled])
    dying = [one for one in threading.enumerate() if one.name == "disk-writes"]
    room.wait_for(first, second, cancelled)
    assert cancelled.error is None
    assert "a disk worker failed" in str(room.worker.error)
    assert "no way out" in str(room.worker.error)
    assert first.error is room.worker.error
    assert second.error is room.worker.error
    assert second.runs == 0
    assert room.worker.idle()
    room.worker.submit_writes([later])
    room.wait_for(later)
    assert later.runs == 0
    assert later.error is room.worker.error
    room.worker.submit_reads([read])
    room.wait_for(read)
    assert read.error is None
    for thread in dying:
        thread.join(20)  # it ends with the bug, which is for the hook of this test only


# -- threads -------------------------------------------------------------------------------


def threads() -> list[str]:
    return sorted(one.name for one in threading.enumerate() if one.name.startswith("disk-"))


def test_threads_begin_with_the_first_job_and_end_with_close(room: Room) -> None:
    assert threads() == []
    room.worker.submit_writes([])
    assert threads() == []
    room.worker.submit_reads([Job("a")])
    assert threads() == ["disk-reads"]
    room.worker.submit_writes([Job("b")])
    assert threads() == ["disk-reads", "disk-writes"]
    room.worker.close()
    assert threads() == []


def test_an_idle_worker_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Watched(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread().name.startswith("disk-"):
                waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Condition", Watched)
    room = Room()
    for name in "abc":
        one, other = Job(name), Job(name * 2)
        room.worker.submit_reads([one])
        room.worker.submit_writes([other])
        room.wait_for(one, other)
    room.worker.close()
    assert waits
    assert set(waits) == {None}
    assert len(waits) <= 8
