"""``StoreSocket``: the line to the coordinator's store, where nodes are on the same machine.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, final

from penstock.cluster.agreement.store_client import ServedCoordinator, StoreLine
from penstock.core.clock_types import BootMs
from penstock.node.coordination.etcd_lease import boot_ms

READ_BYTES: Final = 1 << 20
RETRY_S: Final = 0.1
LOOK_S: Final = 0.005
WRITE_TIMEOUT_S: Final = 1
"""A store that takes nothing for so long does not live."""

log = logging.getLogger("penstock.coordination")


def local_coordinator(
    path: str, member: str, wake: Callable[[], None] = lambda: None
) -> ServedCoordinator:
    """``wake``: there is something to take; from a thread."""
    return ServedCoordinator(member, StoreSocket(path, wake), boot_ms())


@final
class StoreSocket(StoreLine):
    def __init__(self, path: str, wake: Callable[[], None]) -> None:
        self._path = path
        self._wake = wake
        self._news: deque[bytes | str | socket.socket] = deque()
        """What was read; a new connection; why the last one broke."""
        self._socket: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="coordination", daemon=True)

    def start(self, has_begun: Callable[[BootMs], bool], patience_s: float) -> bool:
        self._thread.start()
        until_s = time.monotonic() + patience_s
        while not has_begun(boot_ms()):
            if time.monotonic() > until_s:
                return False
            time.sleep(LOOK_S)
        return True

    def close(self) -> None:
        self._stopping.set()
        if self._socket is not None:
            _shut(self._socket)
        self._thread.join(WRITE_TIMEOUT_S)

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
                    self._tell(f"{self._path}: {error.strerror or error}")
            self._stopping.wait(RETRY_S)

    def _tell(self, news: "bytes | str | socket.socket") -> None:
        self._news.append(news)
        self._wake()

    # -- the node's loop -------------------------------------------------------------------

    def has_news(self) -> bool:
        return len(self._news) > 0

    def news(self) -> Iterator[bytes | str | None]:
        while self._news:
            news = self._news.popleft()
            if isinstance(news, socket.socket):
                self._socket = news
                yield None
            else:
                if isinstance(news, str):
                    self._socket = None
                yield news

    def write(self, data: bytes) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(data)
        except OSError as error:
            log.warning("the coordinator's store takes nothing: %s", error)
            _shut(self._socket)  # the thread notices, and says why


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
