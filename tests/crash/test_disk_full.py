"""The disk is full: the broker says so and stops; nothing it confirmed is lost.

After a failed write nothing more is confirmed, so stopping is the honest answer: publishers
see their connection go and keep what was not confirmed.  When there is room again, the next
start finds every confirmed message.

A small file system of its own is mounted where that is allowed; elsewhere a limit on the size
of files stands in, whose error differs only in its number.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.kill_clients import Deliveries, Gone, Line, Promises, Publishing, id_of
from tests.helpers.live_broker import LiveBroker

pytestmark = pytest.mark.crash
SIZE_KIB = 4096
ROOM_KIB = 1 << 18


class SmallDisk:
    """A directory with little room; ``widen`` makes more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.mounted = self._mount(f"size={SIZE_KIB}k", "tmpfs")

    def _mount(self, options: str, source: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, source, str(self.path)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def watch(self, broker: LiveBroker) -> None:
        """For a broker that has just been started."""
        if not self.mounted:
            limit = f"--fsize={SIZE_KIB * 1024}"
            subprocess.run(["prlimit", "--pid", str(broker.pid), limit], check=True)

    def widen(self) -> None:
        if self.mounted:
            assert self._mount(f"remount,size={ROOM_KIB}k", "tmpfs")

    def words(self) -> str:
        return "No space left on device" if self.mounted else "File too large"

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    small = SmallDisk(tmp_path / "small")
    yield small
    small.close()


@pytest.fixture
def broker(tmp_path: Path, disk: SmallDisk) -> Iterator[LiveBroker]:
    arguments = ("--data-dir", str(disk.path / "data"))
    under_test = LiveBroker(tmp_path / "broker", arguments).start()
    disk.watch(under_test)
    yield under_test
    if under_test.process is not None and under_test.process.poll() is None:
        under_test.kill()


def fill(broker: LiveBroker) -> Promises:
    """Publish with confirms until the broker is gone."""
    account = Promises()
    line = Line(broker.url)
    try:
        line.call("queue.declare", queue="q", durable=True)
        publishing = Publishing(line, "p", {"q": account})
        reader = Deliveries()
        for _ in range(10_000):
            publishing.publish(("", "q"), ("q",), 5000)
            while publishing.unconfirmed() > 20:
                assert not list(reader.take(line.frames()))
                publishing.confirmed(reader.confirmed_to)
        raise AssertionError("the disk is never full")
    except Gone:
        return account
    finally:
        line.sock.close()


def found(broker: LiveBroker) -> list[tuple[str, int]]:
    line = Line(broker.url)
    count = int(str(line.call("queue.declare", queue="q", passive=True)["messages"]))
    line.call("basic.qos", prefetch_count=0)
    from tests.helpers.raw_codec import method_frame

    line.send(method_frame(1, "basic.consume", queue="q", nowait=True))
    reader = Deliveries()
    ids: list[tuple[str, int]] = []
    while len(ids) < count:
        ids += [id_of(delivery.body) for delivery in reader.take(line.frames())]
    line.close()
    return ids


def judge(broker: LiveBroker, account: Promises) -> None:
    ids = found(broker)
    assert ids == sorted(set(ids))
    assert len(account.confirmed) > 50
    assert account.confirmed <= set(ids) <= account.sent


def ended(broker: LiveBroker) -> tuple[int, str]:
    process = broker.process
    assert process is not None
    code = process.wait(10)
    broker.process = None
    return code, broker.output()


def test_it_says_so_and_stops_and_nothing_confirmed_is_lost(
    broker: LiveBroker, disk: SmallDisk
) -> None:
    account = fill(broker)
    code, output = ended(broker)
    assert code == 1
    assert "error: [Errno" in output
    assert disk.words() in output
    if disk.mounted:
        assert "fix: make room on the disk of" in output
    disk.widen()
    broker.start()
    judge(broker, account)
    broker.stop()


@pytest.mark.parametrize("moment_ms", [0, 3, 30])
def test_killed_around_the_moment_it_fills_up(
    broker: LiveBroker, disk: SmallDisk, moment_ms: int
) -> None:
    process = broker.process
    assert process is not None
    used = Path(disk.path / "data" / "log")
    account = Promises()
    line = Line(broker.url)
    line.call("queue.declare", queue="q", durable=True)
    publishing = Publishing(line, "p", {"q": account})
    reader = Deliveries()
    try:
        while sum(path.stat().st_size for path in used.iterdir()) < (SIZE_KIB - 300) * 1024:
            publishing.publish(("", "q"), ("q",), 5000)
            while publishing.unconfirmed() > 50:
                list(reader.take(line.frames()))
                publishing.confirmed(reader.confirmed_to)
        for _ in range(100):
            publishing.publish(("", "q"), ("q",), 5000)
        time.sleep(moment_ms / 1000)
        process.send_signal(signal.SIGKILL)
        while True:
            list(reader.take(line.frames()))
            publishing.confirmed(reader.confirmed_to)
    except Gone:
        pass
    finally:
        line.sock.close()
    process.kill()
    process.wait(10)
    broker.process = None
    disk.widen()
    broker.start()
    judge(broker, account)
    broker.stop()


def test_no_room_for_a_declaration(broker: LiveBroker, disk: SmallDisk) -> None:
    """It is not answered as if it had been kept."""
    if disk.mounted:
        with (disk.path / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(b"x" * 4096):
                pass
    line = Line(broker.url)
    declared = []
    try:
        for number in range(20_000):
            line.call("queue.declare", queue=f"q{number}" + "x" * 200, durable=True)
            declared.append(f"q{number}")
    except Gone:
        pass
    finally:
        line.sock.close()
    code, output = ended(broker)
    assert code == 1
    assert "full" in output or disk.words() in output
    assert "fault of penstock" not in output
    disk.widen()
    broker.start()
    again = Line(broker.url)
    for name in declared:
        again.call("queue.declare", queue=name + "x" * 200, durable=True, passive=True)
    again.close()
    broker.stop()
