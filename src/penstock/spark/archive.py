"""A queue into a Parquet table: every message once, acknowledged after it is in the table.

In: an ``ArchiveJob``.  Out: a ``Summary``.  The work is Spark's: it reads ranges of the queue
through the data source ``penstock``, keeps its place in a checkpoint, and hands every batch to
``landing``.  This file starts it, tells how it goes, starts it again when that can help, and
knows when it cannot.

A failed query is started again on the same checkpoint, in the same session: the broker may
have been restarted, a worker process killed.  That is no use when the source says the data is
lost, or that somebody else owns the queue (``HOPELESS``).
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PenstockError
from penstock.spark.landing import Landed, Landing
from penstock.spark.session import local_session
from pyspark_penstock.client import give_back
from pyspark_penstock.options import parse_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HOPELESS = (
    "pyspark_penstock.source.DataLoss",
    "pyspark_penstock.client.Refused",
    "pyspark_penstock.client.Fenced",
    "pyspark_penstock.client.Locked",
)
"""Names that stand in Spark's error text when starting again changes nothing."""
UNREACHABLE = "pyspark_penstock.client.ConnectionLost"
RESTARTS_MAX = 3
"""Without a landed batch in between, when the pipeline is to end some time."""
PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0
POLL_S = 1
STOP_PATIENCE_S = 30.0
"""How long a stop waits for the batch that is being landed."""


class PipelineFailed(PenstockError):
    """The query failed for good; the text is the innermost cause."""


class BrokerUnreachable(PipelineFailed):
    """Nobody answers at the broker's address."""


@dataclass(frozen=True)
class ArchiveJob:
    """What to do.  ``every_s`` None = land what is there now, then end."""

    url: str
    vhost: str
    queue: str
    table: Path
    checkpoint: Path | None
    batch_messages: int
    every_s: float | None
    master: str
    fail_on_data_loss: bool = True
    take_over: bool = False
    short: bool = False  # little to do: start quickly rather than run fast


@dataclass
class Summary:
    """What was done; ``messages`` counts rows that this run put into the table."""

    messages: int = 0
    batches: int = 0
    file_bytes: int = 0
    holes: int = 0
    landed_before: int = 0  # batches found in the table after a crash
    restarts: int = 0
    query_id: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, landed: Landed) -> None:
        with self._lock:  # Spark calls from a thread of its own
            if landed.before:
                self.landed_before += 1
                return
            self.batches += 1
            self.messages += landed.messages
            self.file_bytes += landed.file_bytes
            self.holes += landed.holes

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def run_archive(
    job: ArchiveJob, on_landed: Callable[[Landed], None], stopping: threading.Event
) -> Summary:
    """Runs until the queue is landed, ``stopping`` is set, or nothing helps."""
    landing = Landing(job.table, job.vhost, job.queue, job.checkpoint)
    summary = Summary()
    with landing.locked():
        landing.mend_checkpoint()
        name = f"penstock archive {job.queue}"
        spark = local_session(name, job.master, job.url, landing.home, short=job.short)
        try:
            _Run(job, landing, spark, summary, on_landed, stopping).until_done()
            summary.query_id = landing.query_id()
        except _java_died() as error:
            raise PipelineFailed(
                f"Spark's Java process died ({type(error).__name__}); "
                "nothing is lost, start the pipeline again"
            ) from error
        finally:
            _stop(spark)
            give_back(parse_url(job.url), job.queue)
    return summary


def _java_died() -> tuple[type[Exception], ...]:
    """What calls into the JVM raise when there is no JVM."""
    from py4j.protocol import Py4JNetworkError

    return (Py4JNetworkError, ConnectionError)


def _stop(spark: "SparkSession") -> None:
    with contextlib.suppress(*_java_died()):
        spark.stop()


class _Run:
    """One session's attempts to get the query through."""

    def __init__(
        self,
        job: ArchiveJob,
        landing: Landing,
        spark: "SparkSession",
        summary: Summary,
        on_landed: Callable[[Landed], None],
        stopping: threading.Event,
    ) -> None:
        self._job = job
        self._landing = landing
        self._spark = spark
        self._summary = summary
        self._on_landed = on_landed
        self._stopping = stopping
        self._between_batches = threading.Event()

    def until_done(self) -> None:
        failures = 0
        while True:
            batches = self._summary.batches
            error = self._attempt()
            if error is None:
                return
            failures = 1 if self._summary.batches > batches else failures + 1
            endless = self._job.every_s is not None
            if _is_hopeless(error) or (failures > RESTARTS_MAX and not endless):
                raise _failure(error)
            self._summary.restarts += 1
            pause_s = min(PAUSE_MIN_S * 2 ** (failures - 1), PAUSE_MAX_S)
            if self._stopping.wait(pause_s):
                return

    def _attempt(self) -> Exception | None:
        """One life of the query; returns why it died, None when it is done or was stopped."""
        from pyspark.errors import StreamingQueryException

        query = self._start()
        try:
            while not query.awaitTermination(POLL_S):
                if self._stopping.is_set():
                    self._stop_between_batches(query)
                    return None
        except StreamingQueryException as error:
            return error
        return None

    def _start(self) -> "StreamingQuery":
        job = self._job
        stream = (
            self._spark.readStream.format("penstock")
            .option("queue", job.queue)
            .option("maxMessagesPerTrigger", job.batch_messages)
            .option("failOnDataLoss", str(job.fail_on_data_loss).lower())
            .option("takeOver", str(job.take_over).lower())
            .option("processedBelow", self._landing.landed_below())
            .load()
        )
        writer = stream.writeStream.foreachBatch(self._land).option(
            "checkpointLocation", str(self._landing.checkpoint)
        )
        if job.every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(job.every_s * 1000)} milliseconds").start()

    def _land(self, frame: "DataFrame", batch: int) -> None:
        self._between_batches.clear()
        landed = self._landing.land(frame, batch)
        self._summary.add(landed)
        self._on_landed(landed)
        self._between_batches.set()

    def _stop_between_batches(self, query: "StreamingQuery") -> None:
        """Interrupting a batch is safe, but its work would have to be done again."""
        if query.status["isTriggerActive"]:
            self._between_batches.wait(STOP_PATIENCE_S)
        query.stop()


def _is_hopeless(error: Exception) -> bool:
    text = str(error)
    return any(name in text for name in HOPELESS)


def _failure(error: Exception) -> PipelineFailed:
    """The line of our own error out of Spark's pages, when there is one."""
    text = str(error)
    for line in text.splitlines():
        for name in (*HOPELESS, UNREACHABLE):
            if line.strip().startswith(name):
                cause = line.strip().removeprefix(name).lstrip(": ")
                kind = BrokerUnreachable if name == UNREACHABLE else PipelineFailed
                return kind(cause)
    return PipelineFailed(text.splitlines()[0])
