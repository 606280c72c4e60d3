"""The brokers that a table drives, each on its cores, and what is seen of them from outside.

A ``Side`` is a broker and the cores of its generator: Penstock in either build, or that of another
checkout; the RabbitMQ of this machine; a broker that runs already, by its URL.  All but the last
have a directory of their own that goes away with them.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from penstock.client.amqp import ClientError, Connection, Endpoint
from penstock.client.procstat import ProcessGauge
from tests.helpers.broker_process import BrokerProcess, ExternalBroker
from tests.helpers.live_broker import LiveBroker
from tests.helpers.rabbit import RabbitServer

ROOT: Final = Path(__file__).resolve().parents[1]
OURS: Final = "penstock"
THEIRS: Final = "rabbitmq"
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
FAVOURED_NICE: Final = "-15"
ANSWER_LIMIT_S: Final = 120.0
READY_LIMIT_S: Final = 600.0
STOP_LIMIT_S: Final = 600.0
RSS_EVERY_S: Final = 0.1
DISK_EVERY_S: Final = 2.0
BLOCK_BYTES: Final = 512
"""What ``st_blocks`` counts in, whatever the file system's blocks."""
LISTENING: Final = "0A"


class Side:
    """One broker; ``key`` is its name in results, ``label`` the one on pages."""

    def __init__(
        self, key: str, process: BrokerProcess, cores: str, generator_cores: str, favoured: bool
    ) -> None:
        self.key = key
        self.label = "Penstock" if key == OURS else key
        self.process = process
        self.cores = cores
        self.generator_cores = generator_cores
        self.favoured = favoured

    @property
    def url(self) -> str:
        return self.process.url

    @property
    def is_external(self) -> bool:
        return isinstance(self.process, ExternalBroker)

    @property
    def pid(self) -> int:
        """Of the broker itself; 0 if that is on another machine."""
        if isinstance(self.process, RabbitServer):
            return self.process.beam_pid()
        return listener(self.url) if self.is_external else self.process.pid

    @property
    def stored(self) -> Path | None:
        """Where its messages are."""
        if isinstance(self.process, LiveBroker):
            return self.process.data_dir
        return self.process.directory / "mnesia" if not self.is_external else None

    def start(self) -> None:
        with held_to(self.cores):
            self.process.start()
        if self.favoured and not self.is_external:
            favour(self.process.pid)
        if self.key == THEIRS or self.is_external:
            self.label = release(self.url)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:  # it may run already, and be asked too early
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Penstock leaves in order, which fails if it wrote an error; others need not take time."""
        if self.key == THEIRS and self.process.process is not None:
            self.process.kill()
        if not self.is_external:
            self.process.__exit__(kind, error, trace)

    def delete(self, *queues: str, exchange: str = "") -> None:
        """A broker that runs already must not be left with what a run put there."""
        if self.is_external:
            with Connection(Endpoint.parse(self.url), timeout_s=ANSWER_LIMIT_S) as connection:
                channel = connection.channel()
                for queue in queues:
                    channel.queue_delete(queue)
                if exchange:
                    channel.exchange_delete(exchange)


def penstock(
    given: argparse.Namespace,
    *flags: str,
    key: str = OURS,
    root: Path | None = None,
    environment: dict[str, str] | None = None,
) -> Side:
    """``root``: another checkout, set up, with the Python that its ``make setup`` made."""
    build = {"PENSTOCK_PURE": "1"} if given.pure else {"PENSTOCK_REQUIRE_COMPILED": "1"}
    build |= environment or {}
    kind = LiveBroker
    if root is not None:
        build["PYTHONPATH"] = str(root / "src")
        kind = checkout(root)
    broker = kind(arguments=flags, environment=build, ready_timeout_s=READY_LIMIT_S)
    broker.stop_timeout_s = STOP_LIMIT_S
    return Side(key, broker, given.broker_cores, given.generator_cores, given.favoured)


def checkout(root: Path) -> type[LiveBroker]:
    class Checkout(LiveBroker):
        def command(self) -> list[str]:
            own = str(root / ".venv" / "bin" / "python")
            return [own if word == sys.executable else word for word in super().command()]

    return Checkout


def rabbit(given: argparse.Namespace, config: str = "") -> Side:
    """With its defaults: on all cores, and so is what drives it, or as Penstock if asked for."""
    broker = RabbitServer(config=config, ready_timeout_s=READY_LIMIT_S)
    cores = (given.broker_cores, given.generator_cores)
    if not given.rabbit_same_cores:
        cores = (all_cores(), all_cores())
    return Side(THEIRS, broker, *cores, given.favoured)


def peers(given: argparse.Namespace, config: str = "") -> list[Side]:
    """What Penstock is compared with: the RabbitMQ of this machine, and those named by URL."""
    found = [] if given.alone else [rabbit(given, config)]
    return found + [
        Side(release(url), ExternalBroker(url), "", all_cores(), favoured=False)
        for url in given.peer
    ]


def release(url: str) -> str:
    """What a broker says of itself, as ``RabbitMQ 3.10.8``."""
    with Connection(Endpoint.parse(url), timeout_s=ANSWER_LIMIT_S) as connection:
        said = connection.server_properties
    return f"{said['product']} {said['version']}"


def depth(url: str, queue: str) -> int:
    """How many messages are ready, asked by a passive declare."""
    with Connection(Endpoint.parse(url), timeout_s=ANSWER_LIMIT_S) as connection:
        answer = connection.channel().queue_declare(queue, passive=True)
        return answer.number("message_count")


def wait_for_depth(url: str, queue: str, wanted: int, limit_s: float) -> float:
    """Seconds until the queue says it has so many messages ready."""
    begin_s = time.monotonic()
    found = -1
    while (waited_s := time.monotonic() - begin_s) < limit_s:
        with suppress(ClientError):  # a broker that starts may still send clients away
            found = depth(url, queue)
        if found == wanted:
            return waited_s
        time.sleep(0.02)
    raise RuntimeError(f"the queue has {found:,} messages ready, {wanted:,} are due")


# -- cores ----------------------------------------------------------------------------------


def all_cores() -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


@contextmanager
def held_to(cores: str) -> Iterator[None]:
    """This process, and what it starts meanwhile, on these cores; empty = as it is."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, set(map(int, cores.split(","))))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def favour(pid: int) -> None:
    """The scheduler shares the CPU out between sessions first: let this one's have more."""
    Path(f"/proc/{pid}/autogroup").write_text(FAVOURED_NICE)


def busy_s() -> float:
    """CPU seconds the whole machine has worked so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


# -- processes --------------------------------------------------------------------------------


def listener(url: str) -> int:
    """The process of this machine that listens on the port of an AMQP URL; 0 = there is none."""
    port = f":{Endpoint.parse(url).port:04X}"
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(port) and fields[3] == LISTENING:
                sockets.add(f"socket:[{fields[9]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) in sockets:
                return int(link.parts[2])
    return 0


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """``VmRSS`` (resident now) or ``VmHWM`` (most so far) of a process; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024 / 1e6
    return 0.0


def disk_mb(directory: Path | None) -> float:
    """What the files below take from the disk; one that vanishes meanwhile takes nothing."""
    blocks = 0
    for path in directory.rglob("*") if directory is not None else ():
        with suppress(OSError):
            blocks += path.lstat().st_blocks
    return blocks * BLOCK_BYTES / 1e6


class Watch:
    """A broker's processor time, memory and disk, and other load, while the block runs.

    ``pid`` 0, of a broker on another machine: nothing is known of it.
    """

    def __init__(self, pid: int, stored: Path | None = None) -> None:
        self._gauge = ProcessGauge(pid, tree=True) if pid else None
        self._pid = pid
        self._stored = stored
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._rss_peak_mb = self._disk_peak_mb = 0.0
        self._begin_s = self._busy_s = self._cpu_s = 0.0
        self._end_s = 0.0
        self.cpu_s = 0.0

    def __enter__(self) -> Self:
        with suppress(OSError):  # from now on VmHWM is the most of what follows
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        self._begin_s, self._busy_s, self._cpu_s = time.monotonic(), busy_s(), self._spent_s()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # one that is gone has used what it has used
            self.cpu_s = self._spent_s() - self._cpu_s
        self._end_s, self._busy_s = time.monotonic(), busy_s() - self._busy_s
        self._done.set()
        self._thread.join()

    def _spent_s(self) -> float:
        return sum(self._gauge.cpu_s()) if self._gauge else 0.0

    def other_cores(self, generator_s: float) -> float:
        """How many cores worked for neither broker nor generator."""
        wall_s = self._end_s - self._begin_s
        return max(0.0, (self._busy_s - self.cpu_s - generator_s) / wall_s)

    def result(self) -> dict[str, Any]:
        """To be asked after the block, while the broker still runs."""
        if not self._pid:
            return {}
        disk_end_mb = disk_mb(self._stored)
        return {
            "rss_peak_mb": max(self._rss_peak_mb, memory_mb(self._pid, "VmHWM")),
            "rss_end_mb": memory_mb(self._pid),
            "disk_peak_mb": max(self._disk_peak_mb, disk_end_mb),
            "disk_end_mb": disk_end_mb,
            "cores": self.cpu_s / (self._end_s - self._begin_s),
        }

    def _look_on(self) -> None:
        disk_s = 0.0
        while not self._done.wait(RSS_EVERY_S):
            self._rss_peak_mb = max(self._rss_peak_mb, memory_mb(self._pid))
            if self._stored is not None and time.monotonic() - disk_s >= DISK_EVERY_S:
                disk_s = time.monotonic()
                self._disk_peak_mb = max(self._disk_peak_mb, disk_mb(self._stored))
