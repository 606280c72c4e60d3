"""A blocking client of the broker's staged sets and commits, over one socket.

The frames are those of ``penstock_ranges.staging``.  ``Stager`` is one connection; ``connected``
waits for a broker that is away.

**Several nodes.**  A batch is staged and committed at one node of a cluster, its *home*: that where
the target's queues have their masters, else the first that answers (``begun``).  Tasks tell the
driver which it was, and it commits there.  When the home does not come back, the others are asked
(``commit``): they know whether the batch was committed, and say so, or that it waits for its home,
or that they know nothing of it.  Then it was not, and is to be staged again.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from penstock_ranges import staging
from penstock_ranges.frames import NOT_FOUND
from penstock_ranges.staging import UNDER_WAY, Committed
from pyspark_penstock.client import (
    Connection,
    ConnectionLost,
    Elsewhere,
    NoMaster,
    Refused,
    Retries,
)
from pyspark_penstock.endpoints import Endpoint
from pyspark_penstock.sink_options import SinkSettings

BLOCK_BYTES = 512 * 1024
PIECE_BYTES = 1_000_000
"""A request of the range protocol has at most 1 MiB."""
PAUSE_LEAST_S, PAUSE_MOST_S = 0.1, 1.0
COMMIT_PATIENCE_MS = 5000
"""One question waits no longer: so a broker that went away is noticed."""

RETRY_PAUSE_S = 0.3
HOME_PATIENCE_S = 15.0
"""A home that is away is waited for before others are asked: it may only be starting again."""


class Blocked(Exception):
    """The broker takes nothing for now, for longer than ``publishTimeout``."""


class Stager(Connection):
    """Logs in when made; at ``node``, else at the first that answers."""

    def __init__(self, settings: SinkSettings, node: Endpoint | None = None) -> None:
        super().__init__(node or settings.endpoint)
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
        return self._leads(exchange, routing_key) != staging.NOWHERE

    def is_home_of(self, exchange: str, routing_key: str) -> bool:
        """Have none of the queues it leads to their masters on other nodes?"""
        return self._leads(exchange, routing_key) != staging.ELSEWHERE

    def _leads(self, exchange: str, routing_key: str) -> int:
        return self.ask(staging.encode_target(exchange, routing_key), staging.decode_targeted)

    def begin(self, producer: str, run: str, batch: int) -> str:
        """The name of a new set; "" = that batch is committed already."""
        settings = self._settings
        request = staging.BeginRequest(
            producer, run, batch, settings.stage_max_bytes, settings.must_route
        )
        return self.ask(staging.encode_begin(request), staging.decode_begun)

    def stage(self, messages: Iterable[bytes]) -> None:
        for piece in blocks(messages):
            request = staging.encode_block(piece)
            self._insist(lambda request=request: self.ask(request, staging.decode_taken))  # type: ignore[misc]

    def end(self, messages: int) -> None:
        """All of it is on disk when this returns."""
        request = staging.encode_end(messages)
        self.ask(request, staging.decode_ended, self._settings.publish_timeout_ms)

    def publish(self, messages: Iterable[bytes]) -> None:
        """Without a set: visible at once, on disk when this returns."""
        for piece in blocks(messages):
            self._insist(lambda piece=piece: self._published(piece))  # type: ignore[misc]

    def _published(self, piece: bytes) -> str:
        settings = self._settings
        patience_ms = settings.publish_timeout_ms
        request = staging.encode_publish(piece, settings.must_route, patience_ms)
        reason, unroutable = self.ask(request, staging.decode_published, patience_ms)
        self.unroutable += unroutable
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
        request = staging.CommitRequest(
            producer, run, batch, settings.must_route, patience_ms, sets
        )
        return self.ask(staging.encode_commit(request), staging.decode_committed, patience_ms)

    def abort(self, sets: list[str]) -> int:
        return self.ask(staging.encode_abort(sets), staging.decode_aborted)

    def last_batch(self, producer: str) -> int:
        """-1 = none."""
        return self.ask(staging.encode_last(producer), staging.decode_last_batch)


def connected(settings: SinkSettings) -> Stager:
    """A connection to any node, waiting for a broker that is away up to ``reconnectTimeout``."""
    waiting = Retries(settings.reconnect_timeout_ms / 1000, RETRY_PAUSE_S)
    while True:
        try:
            return Stager(settings)
        except ConnectionLost as error:
            waiting.use(error)


def begun(settings: SinkSettings, producer: str, run: str, batch: int) -> tuple[Stager, str, int]:
    """(a line to the batch's home, the name of a new set there, the home's place in the URL)

    No name: the batch is committed already.
    """
    waiting = Retries(settings.reconnect_timeout_ms / 1000, RETRY_PAUSE_S)
    while True:
        error: ConnectionLost | Refused | None = None
        for place in _asked_in_turn(settings):
            try:
                stager = Stager(settings, settings.endpoint.nodes()[place])
            except ConnectionLost as lost:
                error = error or lost
                continue
            try:
                return stager, stager.begin(producer, run, batch), place
            except (ConnectionLost, Elsewhere, NoMaster) as refused:
                stager.close()
                error = refused if error is None or isinstance(refused, NoMaster) else error
            except BaseException:
                stager.close()
                raise
        assert error is not None, "there is a node to ask"
        waiting.use(error)


def _asked_in_turn(settings: SinkSettings) -> list[int]:
    """Places of the URL's nodes; of several that one first where the target's masters are."""
    nodes = settings.endpoint.nodes()
    places = list(range(len(nodes)))
    if len(nodes) == 1 or settings.exchange is None:
        return places
    for place in places:
        with suppress(ConnectionLost), Stager(settings, nodes[place]) as stager:
            if stager.is_home_of(settings.exchange, settings.routing_key or ""):
                return [place, *(one for one in places if one != place)]
    return places


def commit(
    settings: SinkSettings, producer: str, run: str, batch: int, sets: list[str], home: int = -1
) -> Committed:
    """Commit, whatever the line does: asking again is harmless.

    ``home``: the place of the node that has the sets; -1 = there are none, and any will do.
    Raises Refused, ConnectionLost, or Blocked when it is decided and not published in time.
    """
    asking = _Asking(settings, home)
    while True:
        try:
            with Stager(settings, asking.node()) as stager:
                return _committed(stager, settings, (producer, run, batch, sets), asking)
        except (ConnectionLost, Elsewhere, NoMaster) as error:
            asking.failed(error)
        except Refused as error:
            if error.code == NOT_FOUND and asking.is_astray():
                raise Refused(
                    NOT_FOUND,
                    f"{error.text} (the node where this batch was staged,"
                    f" {asking.home_text()}, is away, and it was not committed)",
                ) from error
            raise


def _committed(
    stager: Stager,
    settings: SinkSettings,
    request: tuple[str, str, int, list[str]],
    asking: "_Asking",
) -> Committed:
    """Asked at one node until all is published, or it does not go on."""
    published = -1
    deadline_s = 0.0
    while True:
        told = stager.commit(*request)
        asking.answered()
        if told.outcome != UNDER_WAY:
            return told
        if told.messages > published:  # it goes on
            published = told.messages
            deadline_s = time.monotonic() + settings.publish_timeout_ms / 1000
        elif time.monotonic() >= deadline_s:
            raise Blocked(
                f"penstock: batch {request[2]} is committed and will be published, but has"
                f" not gone on for {settings.publish_timeout_ms // 1000} s:"
                f" {told.trouble or 'the disk does not keep up'}"
            )


class _Asking:
    """Which node is asked to commit: the home as long as it may come back, then all in turn."""

    def __init__(self, settings: SinkSettings, home: int) -> None:
        self._nodes = settings.endpoint.nodes()
        self._home = home
        self._at = max(home, 0)
        self._waiting = Retries(settings.reconnect_timeout_ms / 1000, RETRY_PAUSE_S)

    def node(self) -> Endpoint:
        return self._nodes[self._at]

    def is_astray(self) -> bool:
        return self._home >= 0 and self._at != self._home

    def home_text(self) -> str:
        return str(self._nodes[self._home])

    def answered(self) -> None:
        self._waiting.renew()

    def failed(self, error: Exception) -> None:
        self._waiting.use(error)
        waits = isinstance(error, ConnectionLost) and self._at == self._home
        if not waits or self._waiting.failing_s() >= HOME_PATIENCE_S:
            self._at = (self._at + 1) % len(self._nodes)


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


__all__ = ["Blocked", "Committed", "Refused", "Stager", "begun", "blocks", "commit", "connected"]
