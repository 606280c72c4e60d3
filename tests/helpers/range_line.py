"""``RangeLine`` says to a live broker what Spark's side says (``penstock_ranges``)."""

from __future__ import annotations

import socket
from typing import Self

from penstock_ranges import frames as rf


class Refused(Exception):
    """The broker said ERROR."""


class RangeLine:
    """One connection of the range protocol; a context."""

    def __init__(self, port: int, *, login: bool = False) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._frames = rf.FrameSplitter(rf.REPLY_MAX_BYTES)
        self._socket.sendall(rf.MAGIC)
        if login:
            self.ask(rf.encode_login("guest", "guest", "/"))

    @property
    def port(self) -> int:
        """At this end."""
        return int(self._socket.getsockname()[1])

    def has_ended(self) -> bool:
        """The broker hangs up within ten seconds, and says nothing before."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask(self, request: bytes) -> bytes:
        """The payload of the reply."""
        self._socket.sendall(request)
        while not (replies := self._frames.feed(self._socket.recv(1 << 20) or _gone())):
            pass
        ((kind, payload),) = replies
        if kind == rf.ERROR:
            raise Refused(*rf.decode_error(payload))
        assert kind == request[4] + rf.REPLY
        return payload

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _gone() -> bytes:
    raise ConnectionError("the broker has hung up")
