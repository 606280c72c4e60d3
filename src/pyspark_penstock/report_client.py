"""How a pipeline tells the broker how it goes; nothing that happens here reaches the pipeline.

``Reporter`` has a thread with one connection.  ``tell`` leaves a report and returns at once; while
the broker is away, refuses, or is slow, reports are skipped: of those that wait only the newest
state counts, so the thread holds a few and drops the rest.  What went wrong last is in
``last_error``, and is said once as a warning.

``EventClient`` fetches the broker's event log.
"""

import contextlib
import threading
import time
import warnings
from collections import deque
from typing import Any

from penstock_ranges import reports
from penstock_ranges.reports import Report
from pyspark_penstock.client import Connection, ConnectionLost, Refused
from pyspark_penstock.endpoints import parse_url

WAITING_MAX = 8
RETRY_S = 10.0
"""After a failure the broker is left alone for so long."""
PATIENCE_S = 2.0
"""How long the end of a pipeline waits for its last report."""
READ_BYTES = 262_144


class EventClient(Connection):
    """The event log of a broker, for users with the tag ``monitoring``."""

    def files(self) -> list[tuple[str, int]]:
        """Names and sizes, the oldest first."""
        return self.ask(reports.encode_event_files(), reports.decode_event_files_are)

    def read(self, name: str, offset: int) -> bytes:
        """What is there from ``offset`` on, at most a block; nothing at the end."""
        return self.ask(reports.encode_event_read(name, offset, READ_BYTES), bytes)


class Reporter:
    def __init__(self, url: str, **always: Any) -> None:
        """``always``: fields that every report has (name, kind, group, queues)."""
        self._url = url
        self._always = always
        self._waiting: deque[dict[str, Any]] = deque(maxlen=WAITING_MAX)
        self._something = threading.Condition()
        self._closing = False
        self._client: Connection | None = None
        self._rest_until_s = 0.0
        self.reported = 0
        self.last_error = ""
        self._thread = threading.Thread(target=self._run, name="penstock-reports", daemon=True)
        self._thread.start()

    def tell(self, **told: Any) -> None:
        """Queue one report; never waits, never raises."""
        with self._something:
            if not self._closing:
                self._waiting.append({**self._always, **told})
                self._something.notify()

    def close(self) -> None:
        """Say what is left to say, for a moment."""
        with self._something:
            self._closing = True
            self._rest_until_s = 0.0
            self._something.notify()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while True:
            with self._something:
                while not self._waiting and not self._closing:
                    self._something.wait()
                if not self._waiting:
                    break
                told = self._waiting.popleft()
            if time.monotonic() >= self._rest_until_s:
                self._send(told)
        if self._client is not None:
            self._client.close()

    def _send(self, told: dict[str, Any]) -> None:
        try:
            if self._client is None:
                self._client = Connection(parse_url(self._url))
                self._client.login()
            report = reports.encode_report(Report(**told))
            self._client.ask(report, reports.decode_reported)
            self.reported += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the pipeline goes on
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self._rest_until_s = time.monotonic() + RETRY_S
        if not self.last_error and not isinstance(error, ConnectionLost):
            with contextlib.suppress(Warning):  # where warnings are errors, too
                warnings.warn(f"the broker takes no reports: {error}", stacklevel=2)
        self.last_error = str(error) or type(error).__name__


__all__ = ["EventClient", "Refused", "Reporter"]
