"""Calls from other threads to the loop: what to run between two turns, and the bell that wakes it.

``fd`` is readable after ``ring``.  What returns ``Pending`` with a ticket (``core/pending.py``) is
resumed when that is done; ``Pending`` without one is for the caller's thread to resume.
"""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.core.pending import Pending, Ticket

T = TypeVar("T")


class ThreadCalls:
    """Of one loop."""

    def __init__(self) -> None:
        self.pending: list[tuple[Callable[[], Any], Future[Any], Ticket]] = []
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

    def resume(self) -> None:
        """Those that had to wait for an answer from elsewhere, and have it."""
        if not self.pending:
            return
        calls, self.pending = self.pending, []
        for call in calls:
            function, future, ticket = call
            if ticket.done:
                self._run(function, future)
            else:
                self.pending.append(call)

    def _run(self, function: Callable[[], Any], future: "Future[Any]") -> None:
        try:
            outcome = function()
            if isinstance(outcome, Pending) and outcome.ticket is not None:
                self.pending.append((outcome.resume, future, outcome.ticket))
            else:
                future.set_result(outcome)
        except Exception as error:  # noqa: BLE001 - the caller's thread gets it
            future.set_exception(error)

    def close(self) -> None:
        os.close(self.fd)
