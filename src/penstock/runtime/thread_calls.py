"""Calls from other threads to the loop: what to run between two turns, and the bell that wakes it.

``fd`` is readable after ``ring``.  What returns ``Pending`` with a ticket (``core/pending.py``) is
resumed when that is done; ``Pending`` without one is for the caller's thread to resume.

Requests come in slices of some milliseconds (``Loop.call``), but a hundred clients may ask at once:
a turn runs what fits into ``AT_ONCE_MS``, and the rest waits for the next one.
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from penstock.core.pending import Pending, Ticket

T = TypeVar("T")

AT_ONCE_MS: Final = 10


class ThreadCalls:
    """Of one loop."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self.pending: list[tuple[Callable[[], Any], Future[Any], Ticket]] = []
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

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
        """Those that wait, then those that have had to wait for an answer from elsewhere."""
        if self.waiting:
            self._run_waiting()
        if self.pending:
            self._resume()

    def _run_waiting(self) -> None:
        """In their order; one at least, and no more when time is up."""
        until_ns = self._clock_ns() + AT_ONCE_MS * 1_000_000
        for _ in range(len(self.waiting)):
            function, future = self.waiting.popleft()
            if future.set_running_or_notify_cancel():
                self._run(function, future)
            if self._clock_ns() >= until_ns:
                return

    def _resume(self) -> None:
        """Those that have their answer."""
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
