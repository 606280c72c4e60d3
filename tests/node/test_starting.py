"""A start that lasts: somebody asks the management port meanwhile."""

from __future__ import annotations

import json
import logging
import socket
import threading
import urllib.request
from http.client import HTTPResponse
from urllib.error import HTTPError

import pytest

from penstock.node import startup_progress as starting
from penstock.node.startup_progress import StartingPage, StartProgress
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.files import FileSystem
from tests.helpers.sim_files import SimFileSystem


class HeldJob(DiskJob):
    """Waits until it may; ``reached`` says that a thread has come to it."""

    def __init__(self, may: threading.Event) -> None:
        super().__init__()
        self.may = may
        self.reached = threading.Event()

    def run(self, files: FileSystem) -> None:
        self.reached.set()
        assert self.may.wait(20)


@pytest.fixture
def port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        number: int = one.getsockname()[1]
        return number


def ask(port: int, path: str = "/api/overview") -> tuple[int, dict[str, object]]:
    """Until somebody listens."""
    for _ in range(200):
        try:
            answer: HTTPResponse
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            threading.Event().wait(0.02)
    raise AssertionError("nobody listens")


def test_the_port_says_how_far_the_start_is(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "PATIENCE_S", 0.01)
    progress = StartProgress(SimFileSystem())
    may = threading.Event()
    quick = threading.Event()
    quick.set()
    held = HeldJob(may)
    with StartingPage("127.0.0.1", port, progress):
        progress.say("reading 3 queues and 0 store files")
        jobs: list[DiskJob] = [HeldJob(quick), held, HeldJob(quick)]
        recovery = threading.Thread(target=progress.run, args=(jobs,))
        recovery.start()
        assert held.reached.wait(20)
        while "2 of 3" not in progress.text:
            threading.Event().wait(0.01)
        assert ask(port) == (
            503,
            {
                "error": "starting",
                "reason": "recovery: reading 3 queues and 0 store files (2 of 3 done)",
                "progress": {"done": 2, "total": 3},
            },
        )
        assert ask(port, "/healthz/ready")[0] == 503
        assert ask(port, "/healthz/live") == (200, {"status": "ok"})
        may.set()
        recovery.join()
    with socket.socket() as next_one:  # the port is free for the management server
        next_one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        next_one.bind(("127.0.0.1", port))


def test_a_quick_start_opens_no_port(port: int) -> None:
    with StartingPage("127.0.0.1", port, StartProgress(SimFileSystem())):
        pass
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_port_that_is_taken_does_not_stop_the_start(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The management server says so when its turn comes."""
    monkeypatch.setattr(starting, "PATIENCE_S", 0.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        page = StartingPage("127.0.0.1", port, StartProgress(SimFileSystem()))
        with page:
            page._thread.join(20)
    assert "does not say that the node is starting" in caplog.text


def test_a_failed_start_closes_the_port(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "PATIENCE_S", 0.01)
    page = StartingPage("127.0.0.1", port, StartProgress(SimFileSystem()))

    def find_damage() -> None:
        with page:
            ask(port)
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        find_damage()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_the_log_says_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    monkeypatch.setattr(starting, "SAY_EVERY_S", 0.0)
    may = threading.Event()
    may.set()
    progress = StartProgress(SimFileSystem())
    progress.say("reading 4 queues")
    progress.run([HeldJob(may) for _ in range(4)])
    assert "recovery: reading 4 queues (4 of 4 done)" in caplog.text
