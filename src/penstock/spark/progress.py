"""Spark tells the broker how a query goes: ``report_progress(spark, url, name="orders to lake")``.

One call before a query starts is all a pipeline needs.  Its listener hears of every batch of that
session (of the queries called ``query_name``, if given) and passes on what Spark says of it:
number, rows, duration, how far the source is behind.  ``penstock pipeline list`` and the
management API show it.  The listener runs in Spark's own thread, so it does nothing but queue the
report (``pyspark_penstock.report_client``): a broker that is gone, slow or says no costs a report,
never a batch.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from penstock_ranges.reports import NAME_MAX_CHARACTERS, QUEUES_MAX
from pyspark_penstock.claims import TERM_SHIFT
from pyspark_penstock.report_client import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LAST_WORDS_S = 2.0
ERROR_MAX = 4000


class Progress:
    """What ``report_progress`` returns: leave the ``with``, or call ``close``."""

    def __init__(self, spark: "SparkSession", reporter: Reporter, query_name: str | None) -> None:
        self._spark = spark
        self.reporter = reporter
        self._listener = _listener(reporter, query_name)
        spark.streams.addListener(self._listener)

    def tell(self, **told: Any) -> None:
        """For work Spark does not call a streaming query: ``tell(state=…, batch=…, rows=…)``."""
        self.reporter.tell(**told)

    def close(self, state: str | None = None, error: str = "") -> None:
        """The end; ``state`` (done or failed) when no query has said it by itself."""
        self._hear_out()
        with contextlib.suppress(Exception):  # its Java may be gone
            self._spark.streams.removeListener(self._listener)
        if state is not None:
            self.reporter.tell(state=state, error=error[:ERROR_MAX])
        self.reporter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close("done" if error is None else "failed", "" if error is None else str(error))

    def _hear_out(self) -> None:
        """Spark tells its listeners of a query's last batch a moment after it has ended."""
        until_s = time.monotonic() + LAST_WORDS_S
        with contextlib.suppress(Exception):  # its Java may be gone
            active = {str(query.runId) for query in self._spark.streams.active}
            while self._listener.running - active and time.monotonic() < until_s:
                time.sleep(0.02)


class RunReports:
    """What the broker is told of a run that is no streaming query to Spark's listeners.

    Leave the ``with``, and the broker hears how the run ended.
    """

    def __init__(self, url: str, run: str, name: str, kind: str, queues: Sequence[str]) -> None:
        told = {"name": name[:NAME_MAX_CHARACTERS], "kind": kind, "queues": [*queues][:QUEUES_MAX]}
        self._reporter = Reporter(url, **told, run=run)

    def __enter__(self) -> Self:
        self._reporter.tell(state="running")
        return self

    def batch(self, number: int, rows: int, seconds: float) -> None:
        duration_ms = int(1000 * seconds)
        self._reporter.tell(state="running", batch=number, rows=rows, duration_ms=duration_ms)

    def failed(self, error: str) -> None:
        """It is started again."""
        self._reporter.tell(state="failed", error=error[:ERROR_MAX])

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        end = "done" if error is None else "failed"
        self._reporter.tell(state=end, error="" if error is None else str(error)[:ERROR_MAX])
        self._reporter.close()


def report_progress(
    spark: "SparkSession",
    url: str,
    name: str,
    *,
    kind: str = "query",
    group: str = "",
    queues: Sequence[str] = (),
    query_name: str | None = None,
) -> Progress:
    """Report all batches of a session, or those of the query ``query_name``, as ``name``."""
    told = {"name": name[:NAME_MAX_CHARACTERS], "kind": kind, "group": group}
    reporter = Reporter(url, **told, queues=list(queues)[:QUEUES_MAX])
    return Progress(spark, reporter, query_name)


def _listener(reporter: Reporter, query_name: str | None) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Calls come in Spark's thread; none may raise."""

        def __init__(self) -> None:
            self._others: set[str] = set()  # queries that are none of ours
            self.running: set[str] = set()  # runs whose end was not heard of yet

        def onQueryStarted(self, event: Any) -> None:
            if query_name is not None and event.name != query_name:
                self._others.add(str(event.id))
                return
            self.running.add(str(event.runId))
            reporter.tell(state="running", run=str(event.runId))

        def onQueryProgress(self, event: Any) -> None:
            if str(event.progress.id) not in self._others:
                with contextlib.suppress(Exception):
                    reporter.tell(**told_of(json.loads(event.progress.json)))

        def onQueryIdle(self, event: Any) -> None:
            if str(event.id) not in self._others:
                reporter.tell(state="waiting", run=str(event.runId))

        def onQueryTerminated(self, event: Any) -> None:
            if str(event.id) in self._others:
                return
            error = str(event.exception or "")
            state = "failed" if error else "done"
            reporter.tell(state=state, run=str(event.runId), error=error[:ERROR_MAX])
            self.running.discard(str(event.runId))

    return Listener()


def told_of(progress: dict[str, Any]) -> dict[str, Any]:
    rows = int(progress.get("numInputRows") or 0)
    told: dict[str, Any] = {
        "state": "running" if rows else "waiting",
        "run": str(progress.get("runId", "")),
        "lag": lag_of(progress),
    }
    if rows:
        told["batch"] = int(progress["batchId"])
        told["rows"] = rows
        duration = progress.get("batchDuration")
        if duration is None:
            duration = (progress.get("durationMs") or {}).get("triggerExecution", 0)
        told["duration_ms"] = max(int(duration), 0)
    return told


def lag_of(progress: dict[str, Any]) -> int | None:
    """Sequence ids between what was read and what was there, over all queues; None: unsaid.

    Where the queue has got another master meanwhile, those that this one has given.
    """
    behind, said = 0, False
    for source in progress.get("sources") or []:
        ends, latest = _ids(source.get("endOffset")), _ids(source.get("latestOffset"))
        for queue in ends.keys() & latest.keys():
            said = True
            first = latest[queue] >> TERM_SHIFT << TERM_SHIFT
            behind += max(latest[queue] - max(ends[queue], first), 0)
    return behind if said else None


def _ids(offset: Any) -> dict[str, int]:
    """Queue to seq_id of an offset of the source ``penstock``; empty for anything else."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, LookupError):
        parsed = json.loads(offset) if isinstance(offset, str) else offset
        found = {name: place["seq"] for name, place in parsed["q"].items()}
        return {name: seq for name, seq in found.items() if isinstance(seq, int)}
    return {}
