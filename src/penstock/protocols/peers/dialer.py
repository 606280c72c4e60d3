"""Calling another node: looking up its name and opening the socket happens in a thread.

A name service and a machine that is off may each take seconds, and the loop does not wait.  A
call is one short-lived thread, at most one per link.  What became of it is handed to the loop, as a
call between two turns.
"""

import socket
import threading
from collections.abc import Callable
from typing import Final

from penstock.protocols.peers.link import Member
from penstock.runtime.listener import tune

Answer = Callable[[socket.socket | None, str], None]
"""Told on the loop: the socket, or None and why not."""


class PeerDialer:
    """``on_loop`` runs a function between two turns of the loop."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], object], connect_ms: int) -> None:
        self._on_loop = on_loop
        self._connect_s: Final = connect_ms / 1000
        self._lock = threading.Lock()
        self._stopped = False

    def call(self, member: Member, answer: Answer) -> None:
        name = f"calling {member.name}"
        threading.Thread(target=self._call, args=(member, answer), name=name, daemon=True).start()

    def stop(self) -> None:
        """The outcome of calls under way is not told; the loop may be closed afterwards."""
        with self._lock:
            self._stopped = True

    def _call(self, member: Member, answer: Answer) -> None:
        sock: socket.socket | None = None
        error = ""
        try:
            sock = self._connected(member)
        except OSError as failed:
            error = failed.strerror or str(failed)
        except UnicodeError as failed:  # of a host's name
            error = str(failed)
        with self._lock:
            if not self._stopped:
                self._on_loop(lambda: answer(sock, error))
            elif sock is not None:
                sock.close()

    def _connected(self, member: Member) -> socket.socket:
        if member.unix_path:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(self._connect_s)
                sock.connect(member.unix_path)
            except OSError:
                sock.close()
                raise
        else:
            sock = socket.create_connection((member.host, member.port), self._connect_s)
            tune(sock)
        sock.setblocking(False)
        return sock
