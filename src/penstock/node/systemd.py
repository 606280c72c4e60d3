"""What a service manager is told: ready, reloading, stopping, alive; the protocol of ``sd_notify``.

In: the environment systemd gives (``NOTIFY_SOCKET``, ``WATCHDOG_USEC``).  Out: datagrams of lines.
Without the variables nothing is sent, and a socket that does not answer costs nothing: no answer is
awaited.

The watchdog is fed by the data loop itself, twice per interval: when the loop hangs, the pings stop
and systemd restarts the node.  While a long recovery makes progress, the time systemd gives the
start is extended; one that hangs is not helped.
"""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from penstock.core.clock_types import MonoMs

EXTEND_S: Final = 60


class Notifier:
    """Of one process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        if path:
            # A leading @ is the abstract namespace.
            address = "\0" + path[1:] if path[0] == "@" else path
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
            with contextlib.suppress(OSError):
                self._socket.connect(address)
        self._every_ms = _watchdog_ms(environment) // 2
        self._ping_at_ms = MonoMs(0)
        self._extended_s = 0.0

    def send(self, *lines: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send("\n".join(lines).encode())

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ready(self, status: str) -> None:
        self.send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, timeout_s: int) -> None:
        """Also asks for the time the stop may take."""
        self.send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={timeout_s * 1_000_000}")

    def progress(self, text: str) -> None:
        """The start goes on: it may take a while longer.  Safe from any thread."""
        now_s = time.monotonic()
        if now_s - self._extended_s >= 1:
            self._extended_s = now_s
            self.send(f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1_000_000}", f"STATUS={text}")

    def look(self, now_ms: MonoMs) -> None:
        """The data loop turns."""
        if self._every_ms and now_ms >= self._ping_at_ms:
            self._ping_at_ms = MonoMs(now_ms + self._every_ms)
            self.send("WATCHDOG=1")


def _watchdog_ms(environment: Mapping[str, str]) -> int:
    """How often systemd wants to hear of us; 0 = not at all, or not of this process."""
    pid = environment.get("WATCHDOG_PID", "")
    if pid not in ("", str(os.getpid())):
        return 0
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) // 1000 if text.isdecimal() else 0
