"""``AuthServer``: an HTTP server that knows users, as RabbitMQ's HTTP backend asks it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit


class Asked(NamedTuple):
    """``path``: user, vhost, resource or topic."""

    method: str
    path: str
    fields: dict[str, str]


class Answer(NamedTuple):
    body: str
    status: int = 200
    location: str = ""


class AuthServer:
    """A context.  ``judge`` answers, in any thread; ``asked``: what it was asked, in order."""

    def __init__(
        self, judge: Callable[[Asked], str | Answer], tls: ssl.SSLContext | None = None
    ) -> None:
        self.judge = judge
        self.asked: list[Asked] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self, "GET", urlsplit(self.path).query)

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                outer._answer(self, "POST", self.rfile.read(length).decode())

            def log_message(self, *_: Any) -> None:
                """Not to the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://localhost:{self._server.server_port}/auth"

    def _answer(self, handler: BaseHTTPRequestHandler, method: str, text: str) -> None:
        fields = {key: values[0] for key, values in parse_qs(text, True).items()}
        asked = Asked(method, urlsplit(handler.path).path.rsplit("/", 1)[1], fields)
        self.asked.append(asked)
        answer = self.judge(asked)
        if isinstance(answer, str):
            answer = Answer(answer)
        body = answer.body.encode()
        handler.send_response(answer.status)
        if answer.location:
            handler.send_header("Location", answer.location)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def settings(self) -> dict[str, str]:
        """Environment of a broker that asks it."""
        paths = {
            f"PENSTOCK_AUTH_HTTP_{path.upper()}_PATH": f"{self.url}/{path}"
            for path in ("user", "vhost", "resource", "topic")
        }
        return {"PENSTOCK_AUTH_BACKENDS": "http", **paths}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
