"""What a service manager hears: of the start, of life, and of nothing when the loop hangs."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.node.node import Node
from penstock.node.systemd import Notifier
from penstock.settings.settings import load_settings


class Manager:
    """The other end of a notify socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)

    def next(self, timeout_s: float = 10.0) -> list[str]:
        """The lines of the next message; raises TimeoutError."""
        self._socket.settimeout(timeout_s)
        return self._socket.recv(4096).decode().split("\n")

    def skip(self) -> None:
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@penstock-{os.getpid()}"


@pytest.fixture
def notifier(address: str, manager: Manager) -> Iterator[Notifier]:
    made = Notifier({"NOTIFY_SOCKET": address})
    yield made
    made.close()


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    made = Manager(address)
    yield made
    made.close()


def test_words(notifier: Notifier, manager: Manager) -> None:
    notifier.ready("serving")
    assert manager.next() == ["READY=1", "STATUS=serving"]
    notifier.reloading()
    word, clock = manager.next()
    assert word == "RELOADING=1"
    assert 0 <= time.monotonic_ns() // 1000 - int(clock.removeprefix("MONOTONIC_USEC=")) < 10**7
    notifier.stopping(60)
    assert manager.next() == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=60000000"]


def test_a_start_that_goes_on_gets_more_time(notifier: Notifier, manager: Manager) -> None:
    notifier.progress("recovery: 1 of 9")
    assert manager.next() == ["EXTEND_TIMEOUT_USEC=60000000", "STATUS=recovery: 1 of 9"]
    notifier.progress("recovery: 2 of 9")  # not twice in a second
    with pytest.raises(TimeoutError):
        manager.next(0.05)


def test_the_watchdog_of_somebody_else_is_not_fed(address: str, manager: Manager) -> None:
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}
    with closing(Notifier(environment | {"WATCHDOG_PID": "1"})) as notifier:
        notifier.look(1)
    with pytest.raises(TimeoutError):
        manager.next(0.05)
    with closing(Notifier(environment | {"WATCHDOG_PID": str(os.getpid())})) as notifier:
        notifier.look(1)
    assert manager.next() == ["WATCHDOG=1"]


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).ready("serving")
    with closing(Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")})) as notifier:
        notifier.ready("serving")


def test_a_loop_that_hangs_feeds_nobody(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    watchdog_s = 0.4
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    settings = load_settings(None, {}, {"data_dir": str(tmp_path / "data")})
    node = Node(settings, notifier=Notifier(environment))
    turning = threading.Thread(target=node._turn_until_stopped, args=(None,))
    turning.start()
    while manager.next() != ["WATCHDOG=1"]:
        pass
    go_on = threading.Event()
    held = node.loop.call(go_on.wait)
    while not held.running():
        time.sleep(0.01)
    manager.skip()
    with pytest.raises(TimeoutError):
        manager.next(2 * watchdog_s)
    go_on.set()
    assert manager.next() == ["WATCHDOG=1"]
    node.ending.ask()
    turning.join(10)
    node.loop.drop_all()
    node._close()
    manager.close()
