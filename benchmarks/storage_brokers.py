"""The two brokers a storage run starts, each alone, and what is watched from outside.

Both keep their files in a directory of their own that goes away with them.  ``awaiting``
makes a start wait for more than an open port: until the queue named answers a passive
declare with as many messages as it must have.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from penstock.client.amqp import ClientError, Connection, Endpoint
from penstock.settings.settings import DECLARED
from tests.helpers.live_broker import LiveBroker
from tests.helpers.rabbit import RabbitServer

MEMORY_SETTING: Final = "vm_memory_high_watermark"
ANSWER_LIMIT_S: Final = 120.0
READY_LIMIT_S: Final = 600.0
STOP_LIMIT_S: Final = 600.0
RSS_EVERY_S: Final = 0.1
SHOWN_EVERY_S: Final = 1.0
DISK_EVERY_S: Final = 2.0
BLOCK_BYTES: Final = 512
"""What ``st_blocks`` counts in, whatever the file system's blocks."""

Awaited = tuple[str, int]
"""A queue and the number of messages it must have."""


def depth(url: str, queue: str) -> int:
    """How many messages are ready, asked by a passive declare."""
    with Connection(Endpoint.parse(url), timeout_s=ANSWER_LIMIT_S) as connection:
        answer = connection.channel().queue_declare(queue, passive=True)
        return answer.number("message_count")


def is_there(url: str, awaited: Awaited) -> bool:
    """False also while nobody listens yet or the broker still sends clients away."""
    queue, wanted = awaited
    try:
        return depth(url, queue) == wanted
    except ClientError:
        return False


class StoredPenstock(LiveBroker):
    """Penstock on its cores; ``limit_bytes`` 0 leaves the memory limit to its default."""

    stop_timeout_s = STOP_LIMIT_S

    def __init__(self, cores: str, generator_cores: str, pure: bool, limit_bytes: int) -> None:
        build = {"PENSTOCK_PURE": "1"} if pure else {"PENSTOCK_REQUIRE_COMPILED": "1"}
        arguments: tuple[str, ...] = ()
        if limit_bytes:
            arguments = (DECLARED[MEMORY_SETTING].flag, str(limit_bytes))
        super().__init__(arguments=arguments, environment=build, ready_timeout_s=READY_LIMIT_S)
        self.cores = cores
        self.generator_cores = generator_cores
        self.awaited: Awaited | None = None

    @property
    def stored(self) -> Path:
        return self.data_dir

    def command(self) -> list[str]:
        return ["taskset", "-c", self.cores, *super().command()]

    def broker_pid(self) -> int:
        return self.pid

    def is_ready(self) -> bool:
        return super().is_ready() if self.awaited is None else is_there(self.url, self.awaited)


class StoredRabbit(RabbitServer):
    """RabbitMQ with its defaults; ``cores`` empty = all of them."""

    stop_timeout_s = STOP_LIMIT_S

    def __init__(self, cores: str, generator_cores: str) -> None:
        super().__init__(ready_timeout_s=READY_LIMIT_S)
        self.cores = cores
        self.generator_cores = generator_cores
        self.awaited: Awaited | None = None

    @property
    def stored(self) -> Path:
        return self.directory / "mnesia"

    def command(self) -> list[str]:
        pinning = ["taskset", "-c", self.cores] if self.cores else []
        return [*pinning, *super().command()]

    def broker_pid(self) -> int:
        return self.beam_pid()

    def is_ready(self) -> bool:
        return super().is_ready() if self.awaited is None else is_there(self.url, self.awaited)


Broker = StoredPenstock | StoredRabbit


# -- watching -----------------------------------------------------------------------------


def memory_mb(pid: int, field: str) -> float:
    """``VmRSS`` (resident now) or ``VmHWM`` (most so far) of a process; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024 / 1e6
    return 0.0


def forget_peak(pid: int) -> None:
    """From now on ``VmHWM`` is the most of what follows."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def disk_mb(directory: Path) -> float:
    """What the files below take from the disk; one that vanishes meanwhile takes nothing."""
    blocks = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            blocks += path.lstat().st_blocks
    return blocks * BLOCK_BYTES / 1e6


def file_system(directory: Path) -> str:
    """The kind of file system, like ext4: a benchmark of storage in memory says nothing."""
    best, kind = "", "unknown"
    here = str(directory.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, found = line.split()[:3]
        inside = here == mounted or here.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(best):
            best, kind = mounted, found
    return kind


class Watch:
    """Looks at a broker's memory and disk from a thread of its own while the block runs."""

    def __init__(self, broker: Broker) -> None:
        self._pid = broker.broker_pid()
        self._directory = broker.stored
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._rss_peak_mb = 0.0
        self._disk_peak_mb = 0.0
        self._series: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        forget_peak(self._pid)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def result(self) -> dict[str, Any]:
        """To be asked after the block, while the broker still runs."""
        disk_end_mb = disk_mb(self._directory)
        return {
            "rss_peak_mb": max(self._rss_peak_mb, memory_mb(self._pid, "VmHWM")),
            "rss_end_mb": memory_mb(self._pid, "VmRSS"),
            "disk_peak_mb": max(self._disk_peak_mb, disk_end_mb),
            "disk_end_mb": disk_end_mb,
            "rss_series": self._series,
        }

    def _look_on(self) -> None:
        begin_s = time.monotonic()
        shown_s = disk_s = -1e9
        while not self._done.wait(RSS_EVERY_S):
            now_s = time.monotonic()
            rss_mb = memory_mb(self._pid, "VmRSS")
            self._rss_peak_mb = max(self._rss_peak_mb, rss_mb)
            if now_s - shown_s >= SHOWN_EVERY_S:
                shown_s = now_s
                self._series.append((round(now_s - begin_s, 1), round(rss_mb, 1)))
            if now_s - disk_s >= DISK_EVERY_S:
                disk_s = now_s
                self._disk_peak_mb = max(self._disk_peak_mb, disk_mb(self._directory))
