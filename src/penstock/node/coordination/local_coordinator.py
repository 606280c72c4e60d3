"""``LocalCoordinator``: the coordinator of a node whose neighbours are on the same machine.

In: the path of the socket at which a ``CoordinationServer`` listens.  A thread reads from it, and
connects again when it breaks; what it reads waits in a list for the node's own loop, which
also writes.  The connection itself comes through that list, so that nothing is written to a new
one before the node has heard that the old one broke.
"""

import logging
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.cluster.agreement.coordinator import Change, Condition, Event, Proposal
from penstock.cluster.agreement.store_client import ServedCoordinator
from penstock.core.errors import PenstockError
from penstock.node.coordination.etcd_lease import boot_ms

READ_BYTES: Final = 1 << 20
RETRY_S: Final = 0.1
LOOK_S: Final = 0.005
WRITE_TIMEOUT_S: Final = 1
"""A store that takes nothing for so long does not live."""

log = logging.getLogger("penstock.coordination")


class StoreUnavailable(PenstockError):
    """Nobody serves the store."""


class LocalCoordinator(ServedCoordinator):
    """``start`` before anything else.  ``wake``: there is something to take; from the thread."""

    def __init__(self, path: str, member: str, wake: Callable[[], None] = lambda: None) -> None:
        super().__init__(member, self._write, boot_ms())
        self._path = path
        self._wake = wake
        self._news: deque[bytes | str | socket.socket] = deque()
        """What was read; a new connection; why the last one broke."""
        self._socket: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="coordination", daemon=True)

    def start(self, patience_s: float = 10.0) -> None:
        """Raises ``StoreUnavailable``."""
        self._thread.start()
        until_s = time.monotonic() + patience_s
        while not self.is_ready:
            if time.monotonic() > until_s:
                why = self.why_not()
                self.close()
                raise StoreUnavailable(f"{self._path}: {why}")
            time.sleep(LOOK_S)
            self.tick(boot_ms())

    def close(self) -> None:
        super().close()
        self._stopping.set()
        if self._socket is not None:
            _shut(self._socket)
        self._thread.join(WRITE_TIMEOUT_S)
        self._exchange()

    # -- the thread ----------------------------------------------------------------------

    def _read(self) -> None:
        while not self._stopping.is_set():
            with socket.socket(socket.AF_UNIX) as sock:
                try:
                    # Only writing has a limit: it is the node's loop that waits.
                    limit = struct.pack("ll", WRITE_TIMEOUT_S, 0)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
                    sock.connect(self._path)
                    self._tell(sock)
                    while data := sock.recv(READ_BYTES):
                        self._tell(data)
                    self._tell("it has closed the connection")
                except OSError as error:
                    self._tell(error.strerror or str(error))
            self._stopping.wait(RETRY_S)

    def _tell(self, news: "bytes | str | socket.socket") -> None:
        self._news.append(news)
        self._wake()

    # -- the node's loop -------------------------------------------------------------------

    def _exchange(self) -> None:
        while self._news:
            news = self._news.popleft()
            if isinstance(news, bytes):
                self.receive(news)
            elif isinstance(news, str):
                self._socket = None
                self.disconnected(news)
            else:
                self._socket = news
                self.connected()

    def _write(self, data: bytes) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(data)
        except OSError as error:
            log.warning("the coordinator's store takes nothing: %s", error)
            _shut(self._socket)  # the thread notices, and says why

    def tick(self, now_ms: int) -> None:
        self._exchange()
        super().tick(now_ms)

    def take_events(self) -> list[Event]:
        self._exchange()
        return super().take_events()

    def propose(self, conditions: Sequence[Condition], changes: Sequence[Change]) -> Proposal:
        self._exchange()
        return super().propose(conditions, changes)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
