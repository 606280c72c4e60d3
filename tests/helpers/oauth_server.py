"""An issuer over real HTTP: its discovery document, its key set, and what goes wrong with them."""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helpers.oauth_issuer import public_jwk

JSON = ("Content-Type", "application/json")
ANY_PAGE = ("Access-Control-Allow-Origin", "*")
DOCUMENT = "/realm/.well-known/openid-configuration"


class Issuer:
    """``keys``: those of the key set; ``fault``: None, a status, "slow", "endless", "huge",
    "redirect", "cut" or the bytes of a body.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.keys: list[dict[str, Any]] = [public_jwk("RS256", "k")]
        self.fault: int | str | bytes | None = None
        self.document: dict[str, Any] = {}  # instead of what would stand there
        self.asked: list[str] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.answer(self)

            do_POST = do_GET  # noqa: N815 - as the base class calls it

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        scheme = "http"
        if context is not None:
            scheme = "https"
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/realm"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def jwks_uri(self) -> str:
        return f"{self.url}/keys"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        if request.path.startswith(DOCUMENT):
            content = {"issuer": self.url, "jwks_uri": self.jwks_uri, **self.document}
            return self._send(request, json.dumps(content).encode(), 200, JSON, ANY_PAGE)
        if isinstance(self.fault, bytes):
            return self._send(request, self.fault)
        if isinstance(self.fault, int):
            return self._send(request, b"{}", self.fault)
        body = json.dumps({"keys": self.keys}).encode()
        if self.fault == "redirect":
            return self._send(request, body, 302, ("Location", f"{self.url}/elsewhere"))
        if self.fault == "slow":
            time.sleep(1.0)
        if self.fault in ("endless", "huge", "cut"):
            return self._fail(request, str(self.fault))
        return self._send(request, body)

    def _fail(self, request: BaseHTTPRequestHandler, fault: str) -> None:
        """A body that never ends, by drops or in a flood, or that ends too early."""
        request.send_response(200)
        if fault == "cut":
            request.send_header("Content-Length", "1000")
        request.end_headers()
        try:
            for _ in range({"endless": 40, "huge": 100, "cut": 1}[fault]):
                request.wfile.write(b" " * (1 << 16 if fault == "huge" else 1))
                request.wfile.flush()
                if fault == "endless":
                    time.sleep(0.05)
        except OSError:
            return  # the client has had enough

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        body: bytes,
        status: int = 200,
        *headers: tuple[str, str],
    ) -> None:
        request.send_response(status)
        for header in headers or (JSON,):
            request.send_header(*header)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        try:
            request.wfile.write(body)
        except OSError:
            return
