"""When memory and disk are looked at, what is done about it, and what the log says."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.broker.rules.admission import Admission
from penstock.broker.rules.alarms import Alarms
from penstock.core.capacity import DiskLimit, MemoryLimit
from penstock.node.machine import Heap
from penstock.node.resource_monitor import RETRIES, RETRY_MS, ResourceMonitor
from penstock.storage.engine.ram import RamAccount
from penstock.storage.index.segment_jobs import WriteAccount

MB = 1_000_000
SIZE = 100_000 * MB


class WatchedHeap(Heap):
    """Says when it was asked to give memory back."""

    def __init__(self, *, able: bool = True) -> None:
        super().__init__()
        self.able = able
        self.asked = threading.Semaphore(0)

    def can_trim(self) -> bool:
        return self.able

    def trim(self) -> None:
        self.asked.release()

    def was_asked(self) -> bool:
        return self.asked.acquire(timeout=5)

    def was_left_alone(self) -> bool:
        return not self.asked.acquire(blocking=False)


class Watched:
    """A monitor of numbers the test sets."""

    def __init__(self, *, able: bool = True, total: int = 1000 * MB) -> None:
        self.ram = RamAccount(0, 0, WriteAccount())
        self.alarms = Alarms(self.ram)
        self.heap = WatchedHeap(able=able)
        self.resident_bytes = 50 * MB
        self.free_bytes = 50_000 * MB
        self.disk_error: OSError | None = None
        self.looks = 0
        self.monitor = ResourceMonitor(
            Admission(self.alarms), "penstock@here", "data", self._resident, self._space, self.heap
        )
        self.monitor.set_limits(total, MemoryLimit(0.25), 0.5, DiskLimit(1000 * MB))

    def _resident(self) -> int:
        return self.resident_bytes

    def _space(self, _path: str) -> tuple[int, int]:
        self.looks += 1
        if self.disk_error is not None:
            raise self.disk_error
        return self.free_bytes, SIZE

    def begin(self) -> Watched:
        self.monitor.begin(0, 0)
        self.heap.was_asked()
        return self

    def interval_ms(self, now_ms: int) -> int:
        """From the look at ``now_ms`` to the next."""
        self.monitor.look(now_ms)
        seen = self.looks
        for later_ms in range(now_ms, now_ms + 11_000, 50):
            self.monitor.look(later_ms)
            if self.looks > seen:
                return later_ms - now_ms
        raise AssertionError("the disk is not looked at any more")


def test_the_base_is_what_the_start_left() -> None:
    one = Watched().begin()
    assert one.alarms.base_bytes == 50 * MB
    assert one.ram.limit_bytes == 200 * MB
    assert one.ram.paging_bytes == 100 * MB


def test_memory_is_given_back_before_anybody_is_held() -> None:
    one = Watched().begin()
    one.ram.queued_bytes = 150 * MB
    one.resident_bytes = 300 * MB
    one.monitor.look(1000)
    assert one.heap.was_asked()
    assert not one.alarms.memory
    one.resident_bytes = 240 * MB  # it did some good
    one.monitor.look(2000)
    assert not one.alarms.memory
    one.resident_bytes = 300 * MB
    one.monitor.look(3000)  # not again so soon
    assert one.alarms.memory
    assert one.heap.was_left_alone()
    one.monitor.look(6000)
    assert one.heap.was_asked()


def test_a_library_that_gives_nothing_back() -> None:
    one = Watched(able=False).begin()
    one.ram.queued_bytes = 150 * MB
    one.resident_bytes = 300 * MB
    one.monitor.look(999)
    assert not one.alarms.memory
    one.monitor.look(1000)
    assert one.alarms.memory


@pytest.mark.parametrize(
    "margin, interval_ms",
    [(5000 * MB, 10_000), (1000 * MB, 8000), (MB * 25 // 2, 100), (0, 100), (-1, 1000)],
)
def test_the_nearer_the_limit_the_sooner_the_next_look(margin: int, interval_ms: int) -> None:
    one = Watched()
    one.free_bytes = 1000 * MB + margin
    one.begin()
    assert one.interval_ms(20_000) == interval_ms


def test_a_new_disk_limit_is_looked_at_at_once() -> None:
    watched = Watched().begin()  # 49 GB to spare: the next look is in 10 s
    seen = watched.looks
    watched.alarms.set_disk_limit(DiskLimit(watched.free_bytes - 25 * MB))
    assert watched.interval_ms(1000) == 200
    assert watched.looks == seen + 2


def test_a_disk_that_cannot_be_asked_is_tried_again_and_given_up() -> None:
    one = Watched()
    one.disk_error = PermissionError(13, "Permission denied")
    one.begin()
    assert one.looks == 1
    one.monitor.look(RETRY_MS - 1)
    assert one.looks == 1
    for number in range(1, RETRIES + 5):
        one.monitor.look(RETRY_MS * number)
    assert one.looks == 1 + RETRIES
    assert not one.alarms.disk


def test_a_disk_that_can_be_asked_again() -> None:
    one = Watched()
    one.free_bytes = 1
    one.begin()
    assert one.alarms.disk
    one.disk_error = PermissionError(13, "Permission denied")
    one.monitor.look(1000)
    assert not one.alarms.disk
    one.disk_error = None
    one.monitor.look(1000 + RETRY_MS)
    assert one.alarms.disk
    assert one.monitor.failures == 0


def test_the_log_has_the_lines_people_look_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="penstock")
    one = Watched().begin()
    one.ram.queued_bytes = 201 * MB
    one.alarms.look()
    one.monitor.look(1)
    one.monitor.look(2)
    one.ram.queued_bytes = 0
    one.alarms.look()
    one.monitor.look(3)
    one.alarms.set_disk_limit(DiskLimit(60_000 * MB))
    one.monitor.look(4)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    stars = "*" * 58
    told = f"\n\n{stars}\n*** Publishers will be blocked until this alarm clears ***\n{stars}"
    limit = "238 MiB (250000000 bytes) of 953 MiB (1000000000 bytes)"
    assert lines == [
        ("INFO", f"Memory high watermark set to {limit} total"),
        ("INFO", "Disk free limit set to 1000MB"),
        ("INFO", "vm_memory_high_watermark set. Memory used:251000000 allowed:250000000"),
        ("WARNING", f"memory resource limit alarm set on node 'penstock@here'.{told}"),
        ("INFO", "vm_memory_high_watermark clear. Memory used:50000000 allowed:250000000"),
        ("WARNING", "memory resource limit alarm cleared on node 'penstock@here'"),
        ("WARNING", "memory resource limit alarm cleared across the cluster"),
        ("INFO", "Disk free limit set to 60000MB"),
        ("INFO", "Free disk space is insufficient. Free bytes: 50000000000. Limit: 60000000000"),
        ("WARNING", f"disk resource limit alarm set on node 'penstock@here'.{told}"),
    ]


def test_unknown_memory_is_assumed_and_said(caplog: pytest.LogCaptureFixture) -> None:
    one = Watched(total=0)
    assert one.alarms.total_bytes == 1 << 30
    assert "assuming memory size is 1024 MiB" in caplog.text


def test_what_is_declared_is_judged_by_the_process_of_now() -> None:
    watched = Watched(total=1000 * MB).begin()
    assert watched.alarms.take_declared(2000 * MB) is False
    watched.resident_bytes = 10_000 * MB
    assert watched.alarms.take_declared(100 * MB) is True  # nothing makes it look
    assert watched.alarms.take_declared(300 * MB) is False
    watched.resident_bytes = 50 * MB
    assert watched.alarms.take_declared(1) is True
