"""Progress of a slow start: lines of the log, and what the management port answers meanwhile.

A node with much to read after a crash is not ready for seconds or minutes, and operators wait.
``StartProgress`` counts recovery's jobs while threads do them and says so in the log every few
seconds.  ``StartingPage`` answers 503 with the same words to every request on the
management port (``penstock status`` prints them), but ``/healthz/live`` with 200, so that no
supervisor kills a node for reading.  It opens only when the start has lasted a while: a quick one
pays nothing for it.  The management server takes the port over afterwards.
"""

import json
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Final

from penstock.client.progress import Progress
from penstock.storage.common.disk_jobs import DiskJob, run_job
from penstock.storage.common.files import FileSystem

PATIENCE_S: Final = 0.5
"""A start that lasts longer answers on the management port."""
SAY_EVERY_S: Final = 5.0

logger = logging.getLogger("penstock")


class StartProgress:
    """``text`` is how far the start is, in words; any thread may read it."""

    def __init__(self, files: FileSystem, told: Callable[[str], None] | None = None) -> None:
        """``told`` hears of every step that was made, from any thread."""
        self._bar = Progress("recovery", lines=False)  # lines are in the log
        self.text = "the node is starting"
        self.done = 0  # jobs of this step
        self.total = 0
        self._told = told
        self._files = files
        self._said_s = time.monotonic()
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """One more step of recovery has begun."""
        logger.info("recovery: %s", text)
        self.text = f"recovery: {text}"
        self.done = self.total = 0
        self._tell()

    def _tell(self) -> None:
        if self._told is not None:
            self._told(self.text)
        self._bar.show(self.done, self.total, self.text.removeprefix("recovery: "))

    def end(self) -> None:
        """The bar goes."""
        self._bar.end()

    def run(self, jobs: list[DiskJob]) -> None:
        """Recovery's jobs, by as many threads as there are processors."""
        step = self.text
        self.done, self.total = 0, len(jobs)

        def work(job: DiskJob) -> None:
            run_job(job, self._files)
            with self._lock:
                self.done += 1
                self.text = f"{step} ({self.done} of {self.total} done)"
                self._say_now_and_then()
                self._tell()

        with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
            for _ in pool.map(work, jobs):
                pass

    def _say_now_and_then(self) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            logger.info("%s", self.text)


class StartingPage:
    """A context: in it the management port answers, if the start lasts."""

    def __init__(
        self, bind: str, port: int, progress: StartProgress, tls: ssl.SSLContext | None = None
    ) -> None:
        self._address = (bind, port)
        self._tls = tls
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait_and_serve, name="starting", daemon=True)

    def __enter__(self) -> None:
        if self._address[1] != 0:  # a port that the system chooses is not known yet
            self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._progress.end()
        if self._thread.is_alive():
            self._thread.join()

    def _wait_and_serve(self) -> None:
        if self._over.wait(PATIENCE_S):
            return
        try:
            server = _Server(self._address, self._progress, self._tls)
        except OSError as error:
            # The management server will find the same, and stop the start with a reason.
            port = self._address[1]
            logger.warning("port %d does not say that the node is starting: %s", port, error)
            return
        with server:
            turning = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            turning.start()
            self._over.wait()
            server.shutdown()
            turning.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], progress: StartProgress, tls: ssl.SSLContext | None
    ) -> None:
        self.progress = progress
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)
        if tls is not None:  # the handshake is in the thread of the request
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def server_bind(self) -> None:
        """Without asking the name service for our name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    """503 to everything but ``/healthz/live``."""

    timeout = 5.0

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        alive = self.path == "/healthz/live"
        answer: dict[str, object] = {"status": "ok"} if alive else _not_yet(self.server.progress)
        body = json.dumps(answer).encode()
        self.send_response(200 if alive else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if not alive:
            self.send_header("Retry-After", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # The library looks for these names.
    do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Requests are not logged, as in the management server."""


def _not_yet(progress: StartProgress) -> dict[str, object]:
    return {
        "error": "starting",
        "reason": progress.text,
        "progress": {"done": progress.done, "total": progress.total},
    }
