"""A queue into a Parquet table: every message once, acknowledged after it is in the table.

In: an ``ArchiveJob``.  Out: a ``Summary``.  The work is Spark's: it reads ranges of the queue
through the data source ``penstock``, keeps its place in a checkpoint, and hands every batch to
``landing``.  ``pipeline`` starts it again when that can help.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.landing import Landed, Landing
from penstock.spark.pipeline import QueryRun, session
from pyspark_penstock.client import give_back
from pyspark_penstock.options import parse_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


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
    name = f"penstock archive {job.queue}"
    with landing.locked():
        landing.mend_checkpoint()
        try:
            with session(name, job.master, job.url, landing.home, short=job.short) as spark:
                _Archive(job, landing, spark, summary, on_landed).run(stopping)
        finally:
            give_back(parse_url(job.url), job.queue)
    return summary


class _Archive:
    """The query, and what becomes of its batches."""

    def __init__(
        self,
        job: ArchiveJob,
        landing: Landing,
        spark: "SparkSession",
        summary: Summary,
        on_landed: Callable[[Landed], None],
    ) -> None:
        self._job = job
        self._landing = landing
        self._spark = spark
        self._summary = summary
        self._on_landed = on_landed
        self._run: QueryRun | None = None

    def run(self, stopping: threading.Event) -> None:
        self._run = QueryRun(self._start, stopping, endless=self._job.every_s is not None)
        try:
            self._run.until_done()
        finally:
            self._summary.restarts = self._run.restarts
        self._summary.query_id = self._landing.query_id()

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
        assert self._run is not None
        with self._run.batch():
            landed = self._landing.land(frame, batch)
            self._summary.add(landed)
            self._on_landed(landed)
