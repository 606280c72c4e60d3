"""A statsd that only listens: what nsqd or Penstock pushes to it, line by line."""

from __future__ import annotations

import socket
import time
from typing import Self

_PACKET_BYTES = 65_536


class StatsdListener:
    """Takes packets on a port of 127.0.0.1 while its context is open."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def lines(self, seconds: float) -> list[str]:
        """All that comes within the time."""
        found: list[str] = []
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                found += self._socket.recv(_PACKET_BYTES).decode().splitlines()
            except TimeoutError:
                break
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
