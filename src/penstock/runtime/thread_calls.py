"""Calls from other threads to the loop: what to run between two turns, and the bell that wakes it.

``fd`` is readable when somebody rang.  What raises ``Away`` with a ticket (``core/away.py``) is run
again when that is done; ``Pending`` with a ticket is resumed.
"""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.core.away import Answers, Away, Pending, Ticket

T = TypeVar("T")


class ThreadCalls:
    """Of one loop."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.away: list[tuple[Callable[[], Any], Future[Any], Ticket]] = []
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.waiting: list[tuple[Callable[[], Any], Future[Any]]] = []

    def ring(self) -> None:
        """Safe from any thread and from signal handlers."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self.fd, 1)

    def heard(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def add(self, function: Callable[[], T]) -> "Future[T]":
        """Safe from any thread."""
        future: Future[T] = Future()
        self.waiting.append((function, future))
        self.ring()
        return future

    def run(self) -> None:
        if not self.waiting:
            return
        calls, self.waiting = self.waiting, []
        for function, future in calls:
            if future.set_running_or_notify_cancel():
                self._run(function, future)

    def run_again(self) -> None:
        """Those that had to wait for an answer from elsewhere, and have it."""
        if not self.away:
            return
        calls, self.away = self.away, []
        for function, future, ticket in calls:
            if not ticket.done:
                self.away.append((function, future, ticket))
                continue
            self.answers.shown = ticket
            self._run(function, future)
            self.answers.shown = None

    def _run(self, function: Callable[[], Any], future: "Future[Any]") -> None:
        try:
            outcome = function()
            if isinstance(outcome, Pending) and outcome.ticket is not None:
                self.away.append((outcome.resume, future, outcome.ticket))
            else:
                future.set_result(outcome)
        except Away as away:
            if away.ticket is None:  # the caller's thread may ask again
                future.set_exception(away)
            else:
                self.away.append((function, future, away.ticket))
        except Exception as error:  # noqa: BLE001 - the caller's thread gets it
            future.set_exception(error)

    def close(self) -> None:
        os.close(self.fd)
