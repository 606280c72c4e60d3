"""``Link``: the life of one link in a thread of its own: connect, run, and again after a delay.

    STARTING ─► RUNNING ─┬─► done: its parameter is deleted
        ▲                └─► TERMINATED, with the reason
        └──── after the reconnect delay ───┘

Whatever ends a run leaves each message at the source, at the target or at both.
"""

import contextlib
import logging
import select
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from penstock.client.amqp import Connection
from penstock.client.endpoint import ClientError

STARTING: Final = "starting"
RUNNING: Final = "running"
BLOCKED: Final = "blocked"
TERMINATED: Final = "terminated"
LOOK_MS: Final = 200
"""So long at most until a link notices that it is to stop, and looks at its heartbeats."""

Row = dict[str, object]

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
    """Of one parameter; ``start`` is called once."""

    def __init__(
        self,
        name: str,
        open_run: Callable[[], Run],
        reconnect_delay_s: float,
        done: Callable[[], object],
    ) -> None:
        """``name``: for the log and the thread; ``reconnect_delay_s``: 0 = it ends at a fault.

        ``done``: called once in the thread of the link, when it has moved all it was to move.
        """
        self.name = name
        self._open_run = open_run
        self._delay_s = reconnect_delay_s
        self._done = done
        self._cleans = False
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._lock = threading.Lock()
        self._row: Row = {}
        self._set_state(STARTING)
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, clean: bool = False) -> None:
        """Soon; unsettled messages go back to the source.  ``clean``: it never comes back."""
        self._cleans = clean
        self._stopping.set()
        self._again.set()

    def restart(self) -> None:
        """Connect anew, now."""
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
        while not self._stopping.is_set():
            self._again.clear()
            self._set_state(STARTING)
            why = "restarted"
            try:
                if self._run():
                    self._done()
                    return
            except ClientError as error:
                why = str(error)
            except Exception as error:
                logger.exception("internal error of %s", self.name)
                why = f"internal error: {error!r}"
            if self._stopping.is_set():
                return
            self._set_state(TERMINATED, reason=why)
            logger.warning("%s stopped: %s", self.name, why)
            if not self._again.is_set():
                self._again.wait(self._delay_s or None)

    def _run(self) -> bool:
        """True = it is done for good."""
        run = self._open_run()
        logger.info("%s is running", self.name)
        poll = select.poll()
        try:
            for connection in run.connections:
                poll.register(connection.fileno(), select.POLLIN)
            while not self._again.is_set():
                for connection in run.connections:
                    connection.take_all()
                    connection.beat()
                if run.step():
                    return True
                self._set_state(BLOCKED if run.is_blocked() else RUNNING, run.facts())
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
