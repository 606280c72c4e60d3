"""The lives of one streaming query: started again after a failure, and stopped between batches.

In: a function that starts the query, and whether the pipeline ends by itself.  Out: nothing, or
``PipelineFailed``.  A failed query is started again on the same checkpoint, in the same session,
unless that is no use (``is_hopeless``).
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.launcher.failures import PipelineFailed, failure_of, is_hopeless

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

RESTARTS_MAX = 3
"""Without a finished batch in between, when the pipeline is to end some time."""
PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0
POLL_S = 1
STOP_PATIENCE_S = 30.0
"""How long a stop waits for the batch that is being worked on."""


OnFailure = Callable[[PipelineFailed, float], None]
"""Hears why a query died that is started again, and in how many seconds."""


def unheard(failure: PipelineFailed, pause_s: float) -> None:
    """An ``OnFailure`` that says nothing."""


def queue_stream(
    spark: "SparkSession", options: Mapping[str, str], below: Mapping[str, int]
) -> "DataFrame":
    """What ``options`` say is read.

    ``below``: per queue the sequence id below which all is done, whatever Spark knows of it.
    """
    return (
        spark.readStream.format("penstock")
        .options(**options)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .option("processedBelow", json.dumps(below) if below else "")
        .load()
    )


def started(
    writer: "DataStreamWriter", checkpoint: Path, every_s: float | None
) -> "StreamingQuery":
    """``every_s`` None = what is there now, then the end.

    Raises PipelineFailed where Spark would end such a run after its first batch.
    """
    writer = writer.option("checkpointLocation", str(checkpoint))
    if every_s is None:
        from pyspark_penstock import is_spark

        if not is_spark(4, 2):
            raise PipelineFailed(
                "a run that ends by itself needs Spark 4.2 or newer: older ones end it after one"
                " batch",
                "pip install 'pyspark>=4.2,<5', or let it go on with --every",
            )
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(every_s * 1000)} milliseconds").start()


class QueryRun:
    """One session's attempts to get a streaming query through.

    ``start`` is called with the number of restarts before.  Work between Spark's notes
    (``foreachBatch``) is done inside ``batch()``: it counts as progress, and a stop waits for its
    end.
    """

    def __init__(
        self,
        start: "Callable[[int], StreamingQuery]",
        stopping: threading.Event,
        on_failure: OnFailure,
        *,
        endless: bool,
    ) -> None:
        self._start = start
        self._stopping = stopping
        self._on_failure = on_failure
        self._endless = endless
        self._between_batches = threading.Event()
        self._batches = 0
        self.restarts = 0

    @contextmanager
    def batch(self) -> Iterator[None]:
        self._between_batches.clear()
        try:
            yield
            self._batches += 1
        finally:
            self._between_batches.set()

    def until_done(self) -> None:
        failures = 0
        while True:
            batches = self._batches
            error = self._attempt()
            if error is None:
                return
            failures = 1 if self._batches > batches else failures + 1
            if is_hopeless(error) or (failures > RESTARTS_MAX and not self._endless):
                raise failure_of(error)
            self.restarts += 1
            # The exponent is bounded, too: an endless pipeline may fail for weeks.
            pause_s = min(PAUSE_MIN_S * 2 ** min(failures - 1, 10), PAUSE_MAX_S)
            self._on_failure(failure_of(error), pause_s)
            if self._stopping.wait(pause_s):
                return

    def _attempt(self) -> Exception | None:
        """One life of the query; returns why it died, None when it is done or was stopped."""
        from pyspark.errors import StreamingQueryException

        query = self._start(self.restarts)
        try:
            while not query.awaitTermination(POLL_S):
                if self._stopping.is_set():
                    self._stop_between_batches(query)
                    return None
        except StreamingQueryException as error:
            return error
        return None

    def _stop_between_batches(self, query: "StreamingQuery") -> None:
        """Interrupting a batch is safe, but its work would have to be done again."""
        if query.status["isTriggerActive"]:
            self._between_batches.wait(STOP_PATIENCE_S)
        query.stop()
