"""An answerer of nsqd's questions about rights: what a secret may do stands in its own name."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

_ALL: Final = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}


def _state(*authorizations: dict[str, Any], ttl: int = 3600) -> dict[str, Any]:
    return {
        "ttl": ttl,
        "identity": "somebody",
        "identity_url": "http://example.com/somebody",
        "authorizations": list(authorizations),
    }


ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "all": _state(_ALL),
    "subscribe": _state(_ALL | {"permissions": ["subscribe"]}),
    "publish": _state(_ALL | {"permissions": ["publish"]}),
    "topic": _state(_ALL | {"topic": "^open"}),
    "channel": _state(_ALL | {"channels": ["^open"]}),
    "unanchored": _state(_ALL | {"topic": "pen-"}),
    "none": _state(),
    "no-ttl": _state(_ALL, ttl=0),
    "wrong-permission": _state(_ALL | {"permissions": ["dance"]}),
    "wrong-regex": _state(_ALL | {"topic": "("}),
    "short": _state(_ALL, ttl=1),
}


Question = tuple[str, dict[str, list[str]], str]
"""The path, the query, and the header Accept."""


class _Handler(BaseHTTPRequestHandler):
    questions: list[Question]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = parse_qs(asked.query, keep_blank_values=True)
        secret = query.get("secret", [""])[0]
        if secret == "short" and any(secret in known[1]["secret"] for known in self.questions):
            answer: dict[str, Any] | None = ANSWERS["none"]
        else:
            answer = ANSWERS.get(secret)
        self.questions.append((asked.path, query, self.headers.get("Accept", "")))
        body = b"no" if answer is None else json.dumps(answer).encode()
        self.send_response(403 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The test's output is no place for a log."""


class AuthService:
    """Answers on a port of 127.0.0.1 while its context is open.

    Known secrets get their rights; the secret ``short`` has lost them when it is asked for again.
    """

    def __init__(self) -> None:
        self._questions: list[Question] = []
        handler = type("Handler", (_Handler,), {"questions": self._questions})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def asked(self, secret: str) -> list[Question]:
        """The questions about a secret."""
        return [known for known in self._questions if secret in known[1].get("secret", ())]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
