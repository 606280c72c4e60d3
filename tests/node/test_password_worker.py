"""The thread that computes slow hashes: what piles up is bounded, and does not outlive its use."""

from __future__ import annotations

import threading

import pytest

from penstock.node import password_worker
from penstock.node.password_worker import PasswordWorker


class Work:
    """Jobs whose first one waits until it is let go; what became of the others."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.go_on = threading.Event()
        self.all_done = threading.Event()
        self.worker = PasswordWorker(lambda: None)

    def add(self, name: str) -> None:
        self.worker.run(lambda: self.done.append(name), lambda: self.done.append(f"no {name}"))

    def hold(self) -> None:
        self.worker.run(self._wait, lambda: None)

    def _wait(self) -> None:
        self.go_on.wait(10)

    def finish(self) -> list[str]:
        self.go_on.set()
        self.worker._thread.shutdown(wait=True)
        return self.done


def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_worker, "WAITING_MAX", 2)
    work = Work()
    work.hold()
    work.add("second")
    work.add("third")
    assert work.done == ["no third"]
    assert work.finish() == ["no third", "second"]


def test_what_waited_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client has gone: after a flood of log-ins others do not wait for all of them."""
    work = Work()
    work.hold()
    monkeypatch.setattr(password_worker, "WAIT_MAX_S", -1.0)
    work.add("late")
    assert work.finish() == ["no late"]
