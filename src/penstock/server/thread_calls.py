"""Calls from other threads to the loop: what to run between two turns, and the bell that wakes it.

``fd`` is readable when somebody rang.
"""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadCalls:
    """Of one loop."""

    def __init__(self) -> None:
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
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - the caller's thread gets it
                future.set_exception(error)

    def close(self) -> None:
        os.close(self.fd)
