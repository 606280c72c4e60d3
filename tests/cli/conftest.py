"""A management API that says what a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest


class Answers(BaseHTTPRequestHandler):
    """The same for every path, unless ``at`` says otherwise."""

    status = 200
    body: bytes = b"[]"
    at: ClassVar[dict[str, tuple[int, object]]] = {}
    """Path -> status and JSON, where it shall not be the two above."""
    asked: ClassVar[list[tuple[str, str]]] = []
    sent: ClassVar[list[tuple[str, object]]] = []

    def do_GET(self) -> None:
        Answers.asked.append((self.path, self.headers.get("Authorization", "")))
        status, body = Answers.status, Answers.body
        if self.path in Answers.at:
            status, said = Answers.at[self.path]
            body = json.dumps(said).encode()
        self._say(status, body)

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        Answers.sent.append((self.path, json.loads(self.rfile.read(length))))
        self._say(Answers.status, Answers.body)

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Answers.status, Answers.body = 200, b"[]"
    Answers.at.clear()
    Answers.asked.clear()
    Answers.sent.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
