"""A broker process whose NSQ ports are open, or the real nsqd beside its nsqlookupd; and HTTP.

The real ones are found in the directory ``PENSTOCK_NSQ_BIN`` names: they need a Go toolchain.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from base64 import b64encode
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.broker_process import free_port
from tests.helpers.live_broker import LiveBroker


class Answer(NamedTuple):
    status: int
    body: str
    headers: dict[str, str]

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def ask(port: int, method: str, path: str, body: bytes | None = None, login: str = "") -> Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"} if login else {}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        return Answer(response.status, text, {k.lower(): v for k, v in response.getheaders()})
    finally:
        connection.close()


def eventually(condition: Any, seconds: float = 5.0) -> Any:
    """What the condition says, once that is true."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"still {found!r}"
        time.sleep(0.02)
    return found


class NsqBroker(LiveBroker):
    """With free ports for everything of NSQ."""

    def __init__(
        self, directory: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.tcp_port, self.api_port = free_port(), free_port()
        self.lookup_tcp_port, self.lookup_port = free_port(), free_port()
        ports = {
            "PENSTOCK_NSQ_PORT": self.tcp_port,
            "PENSTOCK_NSQ_HTTP_PORT": self.api_port,
            "PENSTOCK_NSQLOOKUPD_TCP_PORT": self.lookup_tcp_port,
            "PENSTOCK_NSQLOOKUPD_HTTP_PORT": self.lookup_port,
            "PENSTOCK_NSQ_BROADCAST_ADDRESS": "127.0.0.1",
        }
        ours = {key: str(value) for key, value in ports.items()}
        wants_login = (environment or {}).get("PENSTOCK_NSQ_AUTH_REQUIRED") == "true"
        self.login = "guest:guest" if wants_login else ""
        super().__init__(directory, environment=ours | (environment or {}))

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        return ask(self.api_port, method, path, body, self.login)

    def post(self, path: str, body: bytes = b"") -> Answer:
        return self.ask("POST", path, body)

    def look(self, path: str, method: str = "GET") -> Answer:
        return ask(self.lookup_port, method, path)

    def stats(self, query: str = "") -> Any:
        return self.ask("GET", f"/stats?format=json&{query}").data


def real(name: str) -> str:
    """The path of a binary of NSQ's, "" when there is none here."""
    path = Path(os.environ.get("PENSTOCK_NSQ_BIN", "")) / name
    return str(path) if path.is_file() else ""


class Real:
    """One real process of NSQ's; waits for its port."""

    def __init__(self, name: str, port: int, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [real(name), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} does not listen")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
