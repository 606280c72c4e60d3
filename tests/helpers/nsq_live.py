"""Penstock as a process, with its NSQ port and, if asked for, a certificate; one raw client."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.helpers.broker_process import free_port
from tests.helpers.certificates import Authority
from tests.helpers.nsq_broker import NsqBroker
from tests.helpers.raw_nsq import MAGIC, MESSAGE, NsqMessage, message_in, split_frames


class NsqLiveBroker(NsqBroker):
    """``settings`` by their keys; ``authority`` signs for the broker, whose name is localhost."""

    def __init__(
        self,
        directory: Path | None = None,
        authority: Authority | None = None,
        **settings: object,
    ) -> None:
        if authority is not None:
            certificate, key = authority.sign("broker", "/CN=localhost")
            ours = {"ssl_port": free_port(), "ssl_certfile": certificate, "ssl_keyfile": key}
            settings = ours | settings
        super().__init__(
            directory, {f"PENSTOCK_{key.upper()}": str(settings[key]) for key in settings}
        )

    @property
    def nsq_address(self) -> str:
        return f"127.0.0.1:{self.tcp_port}"


class RawClient:
    """One connection, a context; answers and messages in the order in which they come."""

    def __init__(self, broker: NsqLiveBroker) -> None:
        self._sock = socket.create_connection(("127.0.0.1", broker.tcp_port), 10)
        self._rest = b""
        self.heard: list[bytes | NsqMessage] = []
        self.send(MAGIC)

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def send_until_stuck(self, data: bytes, most: int, patience_s: float = 1.0) -> int:
        """Again and again, until nobody reads it; how many bytes were taken, at least ``most``
        when somebody reads them all."""
        self._sock.settimeout(patience_s)
        taken = 0
        with suppress(TimeoutError):
            while taken < most:
                taken += self._sock.send(data[taken % len(data) :])
        return taken

    def read(self, count: int, within_s: float = 20) -> list[Any]:
        """So many answers or messages; fewer when time is over."""
        until = time.monotonic() + within_s
        while len(self.heard) < count and time.monotonic() < until:
            self._sock.settimeout(max(0.01, until - time.monotonic()))
            try:
                data = self._sock.recv(1 << 20)
            except TimeoutError:
                break
            if not data:
                break
            frames, self._rest = split_frames(self._rest + data)
            self.heard += [
                message_in(frame.data) if frame.type == MESSAGE else frame.data
                for frame in frames
                if frame.data != b"_heartbeat_"
            ]
        found, self.heard = self.heard[:count], self.heard[count:]
        return found

    def ask(self, data: bytes) -> Any:
        self.send(data)
        return self.read(1)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._sock.close()
