"""A blocking client of the broker's staged sets and commits, over one socket.

The frames are described in the broker's ``penstock/wire/staging.py``; this file repeats what a
program needs that writes.  ``Stager`` is one connection; ``connected`` waits for a broker that is
away.
"""

import struct
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pyspark_penstock.client import (
    Connection,
    ConnectionLost,
    Refused,
    string,
    take_string,
)
from pyspark_penstock.options import Endpoint
from pyspark_penstock.sink_options import EXACTLY_ONCE, SinkSettings

STAGE_BEGIN, STAGE_BLOCK, STAGE_END = 40, 41, 42
TXN_COMMIT, TXN_ABORT, TXN_LAST, PUBLISH, TARGET = 43, 44, 45, 46, 47
DONE, DUPLICATE, UNDER_WAY = 0, 1, 2

BLOCK_BYTES = 512 * 1024
PIECE_BYTES = 1_000_000
"""A request of the range protocol has at most 1 MiB."""
PAUSE_LEAST_S, PAUSE_MOST_S = 0.1, 1.0
COMMIT_PATIENCE_MS = 5000
"""One question waits no longer: so a broker that went away is noticed."""

RETRY_PAUSE_S = 0.3


class Blocked(Exception):
    """The broker takes nothing for now, for longer than ``publishTimeout``."""


class Committed(NamedTuple):
    outcome: int
    messages: int
    unroutable: int
    trouble: str


class Stager(Connection):
    """Logs in when made."""

    def __init__(self, settings: SinkSettings) -> None:
        super().__init__(home(settings))
        self._settings = settings
        self._timeout_s = settings.publish_timeout_ms / 1000
        self.unroutable = 0
        try:
            self.login()
        except BaseException:
            self.close()
            raise

    def target(self, exchange: str, routing_key: str) -> bool:
        """Does it lead anywhere?  Raises Refused if we may not publish there."""
        return self.ask(TARGET, string(exchange) + string(routing_key))[0] != 0

    def begin(self, producer: str, run: str, batch: int) -> str:
        """The name of a new set; "" = that batch is committed already."""
        settings = self._settings
        request = string(producer) + string(run)
        request += struct.pack(">qqB", batch, settings.stage_max_bytes, settings.must_route)
        name, _ = take_string(self.ask(STAGE_BEGIN, request), 1)
        return name

    def stage(self, messages: Iterable[bytes]) -> None:
        """The rest of the set."""
        for piece in blocks(messages):
            self._insist(lambda piece=piece: self._taken(STAGE_BLOCK, piece, 1, 0))  # type: ignore[misc]

    def end(self, messages: int) -> None:
        """All of it is on disk when this returns."""
        self.ask(STAGE_END, struct.pack(">q", messages), self._settings.publish_timeout_ms)

    def publish(self, messages: Iterable[bytes]) -> None:
        """Without a set: visible at once, on disk when this returns."""
        patience_ms = self._settings.publish_timeout_ms
        head = struct.pack(">BI", self._settings.must_route, patience_ms)
        for piece in blocks(messages):
            self._insist(
                lambda piece=piece: self._taken(PUBLISH, head + piece, 9, patience_ms)  # type: ignore[misc]
            )

    def _taken(self, kind: int, payload: bytes, reason_at: int, patience_ms: int) -> str:
        reply = self.ask(kind, payload, patience_ms)
        reason, _ = take_string(reply, reason_at)
        if kind == PUBLISH:
            self.unroutable += int.from_bytes(reply[1:9], "big")
        return reason

    def _insist(self, attempt: Callable[[], str]) -> None:
        """Again and again while the broker says why not."""
        pause_s = PAUSE_LEAST_S
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            reason = attempt()
            if not reason:
                return
            if time.monotonic() >= deadline_s:
                raise Blocked(
                    f"penstock: the broker at {self._endpoint} has taken nothing for"
                    f" {self._timeout_s:.0f} s: {reason}; make room (consumers may go on), or"
                    " raise publishTimeout"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MOST_S)

    def commit(self, producer: str, run: str, batch: int, sets: list[str]) -> Committed:
        """Ask once; UNDER_WAY = it is decided, ask again."""
        settings = self._settings
        patience_ms = min(COMMIT_PATIENCE_MS, settings.publish_timeout_ms)
        request = string(producer) + string(run)
        request += struct.pack(">qBII", batch, settings.must_route, patience_ms, len(sets))
        request += b"".join(string(name) for name in sets)
        reply = self.ask(TXN_COMMIT, request, patience_ms)
        trouble, _ = take_string(reply, 17)
        outcome, messages, unroutable = struct.unpack_from(">Bqq", reply)
        return Committed(outcome, messages, unroutable, trouble)

    def abort(self, sets: list[str]) -> int:
        """Drop those that were not committed; returns how many."""
        request = struct.pack(">I", len(sets)) + b"".join(string(name) for name in sets)
        return int.from_bytes(self.ask(TXN_ABORT, request), "big")

    def last_batch(self, producer: str) -> int:
        """-1 = none."""
        return int.from_bytes(self.ask(TXN_LAST, string(producer)), "big", signed=True)


def home(settings: SinkSettings) -> Endpoint:
    """Whom to tell.  Sets, and which batches were published, one node knows and no other."""
    exactly_once = settings.delivery == EXACTLY_ONCE
    return settings.endpoint.alone() if exactly_once else settings.endpoint


def connected(settings: SinkSettings) -> Stager:
    """A connection, waiting for a broker that is away up to ``reconnectTimeout``."""
    deadline_s = time.monotonic() + settings.reconnect_timeout_ms / 1000
    while True:
        try:
            return Stager(settings)
        except ConnectionLost:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(RETRY_PAUSE_S)


def commit(
    settings: SinkSettings, producer: str, run: str, batch: int, sets: list[str]
) -> Committed:
    """Commit, whatever the line does: asking again is harmless.

    Raises Refused, ConnectionLost, or Blocked when it is decided and not published in time.
    """
    lost_since_s: float | None = None
    deadline_s = time.monotonic() + settings.publish_timeout_ms / 1000
    poured = -1
    while True:
        try:
            with connected(settings) as stager:
                while True:
                    told = stager.commit(producer, run, batch, sets)
                    lost_since_s = None
                    if told.outcome != UNDER_WAY:
                        return told
                    if told.messages > poured:  # it goes on
                        poured = told.messages
                        deadline_s = time.monotonic() + settings.publish_timeout_ms / 1000
                    elif time.monotonic() >= deadline_s:
                        raise Blocked(
                            f"penstock: batch {batch} is committed and will be published, but has"
                            f" not gone on for {settings.publish_timeout_ms // 1000} s:"
                            f" {told.trouble or 'the disk does not keep up'}"
                        )
        except ConnectionLost:
            now_s = time.monotonic()
            lost_since_s = now_s if lost_since_s is None else lost_since_s
            if now_s - lost_since_s >= settings.reconnect_timeout_ms / 1000:
                raise
            time.sleep(RETRY_PAUSE_S)


def blocks(messages: Iterable[bytes]) -> Iterable[bytes]:
    """The same bytes in requests of a good size, wherever messages end."""
    waiting: list[bytes] = []
    size = 0
    for message in messages:
        waiting.append(message)
        size += len(message)
        if size >= BLOCK_BYTES:
            yield from _pieces(b"".join(waiting))
            waiting = []
            size = 0
    if waiting:
        yield from _pieces(b"".join(waiting))


def _pieces(data: bytes) -> Iterable[bytes]:
    for at in range(0, len(data), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES]


__all__ = ["Blocked", "Committed", "Refused", "Stager", "blocks", "commit", "connected"]
