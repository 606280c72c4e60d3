"""``Link``: the life of one link in a thread of its own: connect, run, and again after a delay.

    STARTING ─► RUNNING ─┬─► done: TERMINATED, and its parameter is deleted
        ▲                └─► TERMINATED, with the reason
        └──── after the reconnect delay ───┘

Whatever ends a run leaves each message at the source, at the target or at both.  A deletion that
fails is tried again after the delay, and nothing is moved meanwhile.
"""

import contextlib
import logging
import select
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from penstock.client.amqp import Connection
from penstock.client.endpoint import ClientError

STARTING: Final = "starting"
RUNNING: Final = "running"
BLOCKED: Final = "blocked"
TERMINATED: Final = "terminated"
RESTARTED: Final = "restarted"
DONE: Final = "all that it was to move is moved"
LOOK_MS: Final = 200
"""So long at most until a link notices that it is to stop, and looks at its heartbeats."""

STARTED_AT_ONCE: Final = 20

Row = dict[str, object]
Spec = TypeVar("Spec")

logger = logging.getLogger("penstock.connection")


class Run(Protocol):
    """Both connections are open, from the constructor to ``close``."""

    connections: list[Connection]

    def step(self) -> bool:
        """Move what has come; True = the link is done for good.  Raises ClientError."""

    def is_blocked(self) -> bool:
        """The target takes nothing."""

    def facts(self) -> Row: ...

    def clean(self) -> None:
        """The link ends for good: remove what it has declared for itself.  Raises ClientError."""


class Link:
    """Of one parameter; ``start`` is called until it has started."""

    def __init__(
        self,
        name: str,
        open_run: Callable[[], Run],
        reconnect_delay_s: float,
        done: Callable[[], object] = bool,
        leaves: str = "",
    ) -> None:
        """``name``: for the log and the thread; ``reconnect_delay_s``: 0 = it ends at a fault.

        ``done``: called in the thread of the link, when it has moved all it was to move, until it
        is stopped for that; raises ClientError.  ``leaves``: what stays at the other side unless
        ``clean`` of a run has removed it.
        """
        self.name = name
        self._open_run = open_run
        self._delay_s = reconnect_delay_s
        self._done = done
        self._leaves = leaves
        self._cleans = False
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._lock = threading.Lock()
        self._row: Row = {}
        self._set_state(STARTING)
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> bool:
        """False: the process has no thread for it."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._terminated(str(error))
            return False
        return True

    def stop(self, *, clean: bool = False) -> None:
        """Soon; unsettled messages go back to the source.  ``clean``: it never comes back."""
        self._cleans = clean
        self._stopping.set()
        self._again.set()

    def restart(self) -> None:
        self._again.set()

    def row(self) -> Row:
        """Its state, since when, and the facts of its run."""
        with self._lock:
            return dict(self._row)

    def _set_state(self, state: str, facts: Row | None = None, **more: object) -> None:
        with self._lock:
            if self._row.get("state") != state:
                moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
            else:
                moment = str(self._row["timestamp"])
            self._row = {"state": state, "timestamp": moment, **(facts or {}), **more}

    def _live(self) -> None:
        is_done = False
        why = RESTARTED
        while True:
            self._again.clear()
            if self._stopping.is_set():
                break
            try:
                is_done = is_done or self._run()
                if is_done:
                    self._done()
                why = DONE if is_done else RESTARTED
            except ClientError as error:
                why = str(error)
            except Exception as error:
                logger.exception("internal error of %s", self.name)
                why = f"internal error: {error!r}"
            if self._stopping.is_set():
                break
            self._terminated(why)
            if not self._again.is_set():
                self._again.wait(self._delay_s or None)
        if self._cleans and self._leaves and why != RESTARTED:
            logger.warning("%s has ended, and %s stay: %s", self.name, self._leaves, why)

    def _terminated(self, why: str) -> None:
        if self.row().get("reason") != why:
            logger.warning("%s stopped: %s", self.name, why)
        self._set_state(TERMINATED, reason=why)

    def _run(self) -> bool:
        self._set_state(STARTING)
        run = self._open_run()
        logger.info("%s is running", self.name)
        poll = select.poll()
        try:
            for connection in run.connections:
                poll.register(connection.fileno(), select.POLLIN)
            while not self._again.is_set():
                more = False
                for connection in run.connections:
                    more = connection.take_all() or more
                    connection.beat()
                if run.step():
                    return True
                self._set_state(BLOCKED if run.is_blocked() else RUNNING, run.facts())
                if any(connection.is_full() for connection in run.connections):
                    self._again.wait(LOOK_MS / 1000)  # what is not read would end the poll at once
                elif not more:
                    poll.poll(LOOK_MS)
            if self._cleans:
                run.clean()
            return False
        finally:
            for connection in run.connections:
                with contextlib.suppress(ClientError):
                    connection.close()


class Pace:
    """What is asked of the data loop is asked now and then only."""

    def __init__(self) -> None:
        self._asked_s = 0.0

    def is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._asked_s < LOOK_MS / 1000:
            return False
        self._asked_s = now_s
        return True


def seconds() -> int:
    """Since 1970, for the time headers of links."""
    return int(time.time())


class LinkSet(Generic[Spec]):
    """By key; ``follow`` and ``start_some`` have one caller, the others any thread."""

    def __init__(self, make: Callable[[Spec], Link]) -> None:
        self._make = make
        self._links: dict[Hashable, tuple[Spec, Link]] = {}
        self._waiting: dict[Hashable, Link] = {}  # of these, to be started

    def follow(self, wanted: Mapping[Hashable, Spec]) -> None:
        """These are to run from now on, and no others."""
        for key, (spec, link) in list(self._links.items()):
            if key not in wanted or wanted[key] != spec:
                link.stop(clean=True)
                del self._links[key]
                self._waiting.pop(key, None)
        for key, spec in wanted.items():
            if key not in self._links:
                link = self._waiting[key] = self._make(spec)
                self._links[key] = (spec, link)

    def start_some(self) -> bool:
        """Of those that wait for it; False: the process has no more threads for now."""
        for key, link in list(islice(self._waiting.items(), STARTED_AT_ONCE)):
            if not link.start():
                return False
            del self._waiting[key]
        return True

    def stop(self) -> None:
        """The node stops; they go on when it starts again."""
        for _, link in self._links.values():
            link.stop()

    def restart(self, key: Hashable) -> bool:
        """Connect anew; False: there is no such link here."""
        found = self._links.get(key)
        if found is not None:
            found[1].restart()
        return found is not None

    def rows(self) -> list[tuple[Spec, Row]]:
        return [(spec, link.row()) for spec, link in list(self._links.values())]
