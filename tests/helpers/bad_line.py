"""A TCP line that can be made bad: answers get lost, or nothing goes through at all."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from contextlib import suppress

GOOD, LOSES_ANSWERS, SILENT, CUT = range(4)


class BadLine:
    """Listens on a port of its own and passes on to ``port``; ``state`` may be changed any time.

    LOSES_ANSWERS: what is asked arrives; the answer does not, the connection breaks.
    SILENT: connections stay and nothing passes; what was sent meanwhile is gone, and so are they
    when the line is good again.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._state = GOOD
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._closed = False
        self._silenced: list[socket.socket] = []
        self._deaf: list[socket.socket] = []
        self._all: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def state(self) -> int:
        return self._state

    @state.setter
    def state(self, state: int) -> None:
        self._state = state
        if state == CUT:
            self._deaf += self._all
        if state == GOOD:
            silenced, self._silenced = self._silenced, []
            for sock in silenced:
                _break(sock)

    def close(self) -> None:
        self._closed = True
        _break(self._listener)
        for sock in self._all:
            _break(sock)
        for thread in self._threads:
            thread.join(5)
        # What a cancelled attempt to connect left is collected here, and not in another test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                if self._listener.fileno() < 0:
                    return
                with suppress(OSError, UnboundLocalError):
                    _break(client)
                continue
            self._all += [client, server]
            if self._closed:
                _break(client)
                _break(server)
                return
            for one, other, answers in ((client, server, False), (server, client, True)):
                pump = threading.Thread(target=self._pump, args=(one, other, answers), daemon=True)
                self._threads.append(pump)
                pump.start()

    def _pump(self, one: socket.socket, other: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if self._state == CUT or one in self._deaf:
                    self._deaf += [one, other]
                elif self._state == SILENT:
                    self._silenced += [one, other]
                elif answers and self._state == LOSES_ANSWERS:
                    break
                else:
                    other.sendall(data)
        _break(one)
        _break(other)


def _break(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
