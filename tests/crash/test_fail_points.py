"""Dies at every fail point; what the broker promised must be true when it comes back.

The kill test (test_kill.py) dies at random moments; here each named place of the storage engine
(``common/failpoints.py``) is a test of its own, and a place that the load never comes by is a
failure: a crash test that crashes nowhere proves nothing.

In each life the same clients as there work a broker whose limits are so small that within a
second journal files roll over and retire, queues are paged out, segments empty and garbage is
collected.  The process dies at its point, in the middle of that load, while starting, or
while it stops; the audit must find nothing damaged in what is left; the next process, without
a fail point, must have all that was confirmed and nothing that was acknowledged for certain.
Several lives on one data directory: what one crash leaves is what the next one damages.

``PENSTOCK_KILL_SEED`` repeats the clients' choices; ``PENSTOCK_FAIL_TIMES`` says which time at a
point under load kills (1,3), and ``PENSTOCK_FAIL_PART`` 0 or 1 takes every second point under load.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.common.failpoints import NAMES
from tests.crash.kill_clients import (
    QUEUES,
    Acknowledger,
    Churner,
    Deliveries,
    Line,
    Publisher,
    Worker,
)
from tests.crash.test_kill import KILLED, SEED, UNKNOWN, Lives, Shape
from tests.helpers import raw_codec as codec
from tests.helpers.broker_process import BrokerFailed
from tests.helpers.live_broker import LiveBroker, MemoryAbove

LIMITS: dict[str, object] = {
    "journal-file-size-bytes": 1_048_576,
    "journal-size-limit-bytes": 2_097_152,
    "queue-index-segment-entries": 64,
    "queue-index-max-journal-entries": 64,
    "queue-index-embed-msgs-below-bytes": 900,
    "msg-store-file-size-limit-bytes": 65_536,
    "vm-memory-high-watermark": MemoryAbove(18_000_000),
    "vm-memory-high-watermark-paging-ratio": 0.0075,
}
FAILING = Shape("failing", LIMITS, (0, 10, 100, 1000, 1000, 5000, 60_000), ("direct-0", "fan-0"))
AUDIT = (sys.executable, "-m", "penstock", "audit")

AT_START = {name for name in NAMES if name.startswith("recovery.")}
"""Reached once, by a process that starts after a crash."""
AT_CLEAN_START = {"terms.removed"}
AT_STOP = {"terms.written"}
UNDER_LOAD = sorted(set(NAMES) - AT_START - AT_CLEAN_START - AT_STOP)
if PART := os.environ.get("PENSTOCK_FAIL_PART"):
    UNDER_LOAD = UNDER_LOAD[int(PART) :: 2]
TIMES = [int(times) for times in os.environ.get("PENSTOCK_FAIL_TIMES", "1,3").split(",")]
"""Under load: the how manieth time it kills, a life each; elsewhere there are as many lives."""
LIVES = range(1, len(TIMES) + 1)
REACH_S = 90.0
KEPT = 12
"""The waster keeps one of so many; in the store they fill a file."""
WASTES = {
    "store.gc.copied": (KEPT, 5000),
    "store.gc.renamed": (KEPT, 5000),
    "segment.copied": (100 * KEPT, 800),
    "segment.renamed": (100 * KEPT, 800),
}
"""Points that need garbage beside what lives: how many messages at a time, and of what size.

Those for segments must be so many that they are paged out before they are acknowledged.
"""

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(400)]


class Waster(Worker):
    """Leaves one message of many: files that are mostly garbage.

    The others send small messages meanwhile, else what lives would hide the garbage.
    """

    count = 0
    size = 0

    def work(self, line: Line) -> None:
        line.call("queue.declare", queue=self.name, durable=True)
        line.call("confirm.select")
        line.send(codec.method_frame(1, "basic.consume", queue=self.name, nowait=True))
        self.ready.set()
        one = codec.method_frame(1, "basic.publish", routing_key=self.name)
        one += codec.content_frames(1, b"waste:1:" + b"x" * self.size, {"delivery_mode": 2})
        deliveries = Deliveries()
        while True:
            line.send(one * self.count)
            left = self.count
            while left:
                for delivery in deliveries.take(line.frames()):
                    left -= 1
                    if delivery.tag % KEPT:
                        tag = delivery.tag
                        line.send(codec.method_frame(1, "basic.ack", delivery_tag=tag))


class FailingBroker(LiveBroker):
    """Dies at ``fail_point``, if one is set when it is started."""

    fail_point = ""

    def environment(self) -> dict[str, str]:
        armed = {"PENSTOCK_FAILPOINT": self.fail_point} if self.fail_point else {}
        return super().environment() | armed

    def start_to_die(self) -> bool:
        """Start; True = it has died at its fail point before it was ready."""
        try:
            self.start()
        except BrokerFailed as failed:
            if failed.exit_code != -signal.SIGKILL:
                raise
            return True
        return False

    def has_died(self) -> bool:
        """True = by SIGKILL, and nobody but itself has sent one; anything else fails."""
        assert self.process is not None
        code = self.process.poll()
        if code is None:
            return False
        assert code == -signal.SIGKILL, f"exit code {code}:\n{self.output()}"
        self.process = None
        return True

    def must_die(self, workers: list[Worker], within_s: float, under: str) -> None:
        deadline = time.monotonic() + within_s
        while not self.has_died():
            for worker in workers:
                if worker.failure is not None:
                    raise worker.failure
            assert time.monotonic() < deadline, (
                f"{self.fail_point} was not reached within {within_s:.0f} s {under}"
            )
            time.sleep(0.005)


class FailingLives(Lives):
    """The lives of one data directory, with audits in between."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, FAILING)
        arguments = (*FAILING.flags, "--log-level", "error")
        self.failing = FailingBroker(directory, arguments, None, 30.0)
        self.broker = self.failing
        self.wastes: tuple[int, int] | None = None

    def work(self, life: int) -> list[Worker]:
        """Every queue is filled and emptied; durable queues come and go."""
        url, promises = self.broker.url, self.promises
        workers: list[Worker] = [
            Publisher(url, f"p{life}.{i}", f"{SEED}:{life}:p{i}", promises) for i in range(2)
        ]
        workers.append(Publisher(url, f"T{life}", f"{SEED}:{life}:t", promises))
        for queue in QUEUES[:-1]:
            acknowledger = Acknowledger(url, f"a{life}.{queue}", f"{SEED}:{life}:{queue}", promises)
            acknowledger.queue = queue
            workers.append(acknowledger)
        churner = Churner(url, f"c{life}", f"{SEED}:{life}:c", promises)
        churner.modes = ("default", "stream")
        self.churners.append(churner)
        workers.append(churner)
        workers += self.stream.workers(url, life, SEED)
        if self.wastes:
            waster = Waster(url, f"c{life}.waste", f"{SEED}:{life}:w", promises)
            waster.count, waster.size = self.wastes
            workers.append(waster)
        for worker in workers:
            worker.sizes = FAILING.sizes[:3] if self.wastes else FAILING.sizes
            worker.start()
        return workers

    def load_for(self, life: int, seconds: float) -> None:
        workers = self.work(life)
        for worker in workers:
            assert worker.ready.wait(20)
        time.sleep(seconds)
        self.broker.kill()
        self.bury(workers)

    def audit(self) -> None:
        """What a crash may leave is not damage."""
        done = subprocess.run(
            [*AUDIT, str(self.broker.data_dir)],
            env=self.broker.environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"the audit says:\n{done.stdout}{done.stderr}"

    def judge_after(self, life: int, ending: str) -> None:
        """Audit, start without a fail point, read everything."""
        self.audit()
        self.failing.fail_point = ""
        self.broker.start()
        self.look_at_declarations()
        rng = random.Random(f"{SEED}:{life}:look")
        self.look(rng, ending)
        self.clear(rng)
        self.count("deaths")

    # -- three ways to die -------------------------------------------------------------------

    def die_under_load(self, name: str, times: int, life: int) -> str:
        """Also while starting, where the point is passed there."""
        self.broker.kill()
        self.failing.fail_point = f"{name}:{times}"
        if self.failing.start_to_die():
            self.count("deaths while starting")
            return KILLED
        workers = self.work(life)
        try:
            self.failing.must_die(workers, REACH_S, "of load")
        finally:
            if self.broker.process is not None:
                self.broker.kill()
            self.bury(workers)
        return KILLED

    def die_at_start(self, name: str, life: int, *, clean: bool) -> str:
        """After a crash, or after a clean stop, in the middle of much work."""
        if clean:
            workers = self.work(life)
            time.sleep(1.0)
            self.broker.stop()
            self.bury(workers)
        else:
            self.load_for(life, 1.0)
        self.must_die_starting(name)
        return UNKNOWN if clean else KILLED

    def must_die_starting(self, name: str) -> None:
        self.failing.fail_point = name
        assert self.failing.start_to_die(), f"{name} was not reached by a start"

    def die_at_stop(self, name: str, life: int) -> str:
        self.broker.kill()
        self.failing.fail_point = name
        self.broker.start()
        workers = self.work(life)
        time.sleep(1.0)
        process = self.broker.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        self.failing.must_die(workers, 20.0, "after SIGTERM")
        self.bury(workers)
        return UNKNOWN


@pytest.fixture
def lives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[FailingLives]:
    one = FailingLives(tmp_path / "broker")
    one.broker.start()
    one.declare()
    one.load_for(0, 0.5)
    one.judge_after(0, KILLED)
    yield one
    if one.broker.process is not None:
        one.broker.kill()
    with capsys.disabled():
        print(f"\nPENSTOCK_KILL_SEED={SEED} " + os.environ.get("PYTEST_CURRENT_TEST", ""))
        for what, number in sorted(one.counts.items()):
            print(f"  {number:8,}  {what}")


def test_the_points_of_stop_and_start_exist() -> None:
    assert AT_START
    assert set(NAMES) >= AT_CLEAN_START | AT_STOP


@pytest.mark.parametrize("name", UNDER_LOAD)
def test_dies_under_load(lives: FailingLives, name: str) -> None:
    lives.wastes = WASTES.get(name)
    for life, times in enumerate(TIMES, 1):
        ending = lives.die_under_load(name, times, life)
        lives.judge_after(life, ending)
    finish(lives)


@pytest.mark.parametrize("name", sorted(AT_START | AT_CLEAN_START))
def test_dies_while_starting(lives: FailingLives, name: str) -> None:
    for life in LIVES:
        ending = lives.die_at_start(name, life, clean=name in AT_CLEAN_START)
        lives.judge_after(life, ending)
    finish(lives)


def test_dies_at_every_step_of_recovery_in_a_row(lives: FailingLives) -> None:
    """What one start has half done is what the next one finds, and the one after it."""
    for life in LIVES:
        lives.load_for(life, 1.0)
        for name in [name for name in NAMES if name in AT_START] * 2:
            lives.must_die_starting(name)
            lives.audit()
        lives.judge_after(life, KILLED)
    finish(lives)


@pytest.mark.parametrize("name", sorted(AT_STOP))
def test_dies_while_stopping(lives: FailingLives, name: str) -> None:
    for life in LIVES:
        ending = lives.die_at_stop(name, life)
        lives.judge_after(life, ending)
    finish(lives)


def finish(lives: FailingLives) -> None:
    """The end of a good run: it stops cleanly, the audit agrees, and something was proved."""
    lives.broker.stop()
    lives.audit()
    assert lives.counts["confirmed and found"] > 0
    if len(TIMES) > 1:  # a single life may end before anything was
        assert lives.counts["acknowledged for certain"] > 0
