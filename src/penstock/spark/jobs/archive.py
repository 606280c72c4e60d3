"""Queues into a table: every message once, acknowledged after it is in the table.

In: an ``ArchiveJob``.  Out: a ``Summary``.  Spark keeps the place in a checkpoint, plans the
batches and spreads the work; its rows are claims on ranges of the queue, and its workers fetch
the messages and write Parquet themselves (``pyspark_penstock.table_files``), because bodies
that crossed the JVM twice cost several times as much as all the rest.  ``landing`` is the place,
``publishing`` or ``delta`` make a batch part of the table, ``pipeline`` starts the query again
when that can help.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.jobs.query_run import OnFailure, QueryRun, unheard
from penstock.spark.launcher.failures import PipelineFailed
from penstock.spark.launcher.session import session
from penstock.spark.tables.delta import DeltaPublisher
from penstock.spark.tables.landing import Landing, Publisher
from penstock.spark.tables.publishing import Landed, ParquetPublisher
from penstock.spark.tables.table import DELTA, Table
from pyspark_penstock.options import Settings, parse_options, parse_url
from pyspark_penstock.planner import give_back
from pyspark_penstock.report_client import Reporter
from pyspark_penstock.table_files import Draft, Layout, table_schema, writing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class ArchiveJob:
    """What to do.  ``every_s`` None = land what is there now, then end."""

    url: str
    vhost: str
    source: dict[str, str]  # options that say what is read
    subject: str  # names it
    queues: tuple[str, ...]  # what it came to
    table: Table
    layout: Layout
    checkpoint: Path | None
    batch_messages: int
    batch_bytes: int
    every_s: float | None
    master: str
    fail_on_data_loss: bool = True
    take_over: bool = False

    def landing(self) -> Landing:
        return Landing(self.table, self.vhost, self.subject, self.checkpoint)

    def publisher(self, landing: Landing) -> Publisher:
        if self.table.format == DELTA:
            return DeltaPublisher(self.table, table_schema(self.layout), landing.name)
        return ParquetPublisher(self.table, landing.home, landing.name)

    def source_options(self, restarts: int = 0) -> dict[str, str]:
        """A reader that has taken the queue over meanwhile keeps it: only a first start forces."""
        return {
            **self.source,
            "claims": "true",
            "columns": ",".join(self.layout.columns),
            "maxMessagesPerTrigger": str(self.batch_messages),
            "maxBytesPerTrigger": str(self.batch_bytes),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "takeOver": str(self.take_over and not restarts).lower(),
        }


@dataclass
class Summary:
    """What was done; ``messages`` counts rows that this run put into the table."""

    messages: int = 0
    batches: int = 0
    files: int = 0
    file_bytes: int = 0
    holes: int = 0
    landed_before: int = 0  # batches found in the table after a crash
    restarts: int = 0
    spark_start_s: float = 0.0  # of Java and Python, until the first query was under way
    spark_stop_s: float = 0.0  # when all was landed and acknowledged
    query_id: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, landed: Landed) -> None:
        with self._lock:  # Spark calls from a thread of its own
            if landed.before:
                self.landed_before += 1
                return
            self.batches += 1
            self.messages += landed.messages
            self.files += landed.files
            self.file_bytes += landed.file_bytes
            self.holes += landed.holes

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def run_archive(
    job: ArchiveJob,
    on_landed: Callable[[Landed], None],
    stopping: threading.Event,
    on_failure: OnFailure = unheard,
) -> Summary:
    """Runs until the queue is landed, ``stopping`` is set, or nothing helps."""
    began_s = time.monotonic()
    schema = table_schema(job.layout)
    job.table.check(schema)
    landing = job.landing()
    publisher = job.publisher(landing)
    summary = Summary()
    name = f"penstock archive {job.subject}"
    with landing.locked(publisher):
        job.table.describe(schema)
        try:
            # Rows are claims, however many messages there are: little to do for Java.
            with session(name, job.master, job.url, landing.home, short=True) as spark:
                archive = _Archive(job, landing, publisher, spark, summary, on_landed, began_s)
                archive.run(stopping, on_failure)
                ended_s = time.monotonic()
            summary.spark_stop_s = round(time.monotonic() - ended_s, 1)
        finally:
            places = landing.landed_places(publisher)
            for queue in job.queues:
                give_back(parse_url(job.url), queue, places.get(queue, ("", 0)))
    return summary


class _Archive:
    """The query, and what becomes of its batches."""

    def __init__(
        self,
        job: ArchiveJob,
        landing: Landing,
        publisher: Publisher,
        spark: "SparkSession",
        summary: Summary,
        on_landed: Callable[[Landed], None],
        began_s: float,
    ) -> None:
        self._job = job
        self._landing = landing
        self._publisher = publisher
        self._spark = spark
        self._summary = summary
        self._on_landed = on_landed
        self._began_s = began_s
        self._run: QueryRun | None = None
        # Spark's own listener would count claims, so batches are reported from here.
        self._reporter = Reporter(
            job.url, name=f"archive {job.subject}", kind="archive", queues=[*job.queues]
        )
        self._run_id = str(uuid.uuid4())

    def run(self, stopping: threading.Event, on_failure: OnFailure) -> None:
        def failed(failure: PipelineFailed, pause_s: float) -> None:
            """The broker shows it until a batch goes through."""
            self._reporter.tell(state="failed", run=self._run_id, error=str(failure)[:4000])
            on_failure(failure, pause_s)

        self._run = QueryRun(self._start, stopping, failed, endless=self._job.every_s is not None)
        self._reporter.tell(state="running", run=self._run_id)
        end, error = "failed", ""
        try:
            self._run.until_done()
            end = "done"
        except PipelineFailed as failure:
            error = str(failure)
            raise
        finally:
            self._summary.restarts = self._run.restarts
            self._reporter.tell(state=end, run=self._run_id, error=error[:4000])
            self._reporter.close()
        self._summary.query_id = self._landing.query_id()

    def _start(self) -> "StreamingQuery":
        assert self._run is not None
        job = self._job
        below = self._landing.landed_below(self._publisher)
        stream = (
            self._spark.readStream.format("penstock")
            .options(**job.source_options(self._run.restarts))
            .option("minPartitions", self._spark.sparkContext.defaultParallelism)
            .option("processedBelow", json.dumps(below) if below else "")
            .load()
        )
        writer = stream.writeStream.foreachBatch(self._land).option(
            "checkpointLocation", str(self._landing.checkpoint)
        )
        if job.every_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(job.every_s * 1000)} milliseconds")
        query = writer.start()
        if not self._summary.spark_start_s:
            self._summary.spark_start_s = round(time.monotonic() - self._began_s, 1)
        return query

    def _land(self, frame: "DataFrame", batch: int) -> None:
        assert self._run is not None
        started_s = time.monotonic()
        with self._run.batch():
            query_id = self._landing.query_id()
            landed = self._publisher.landed(query_id, batch)
            if landed is None:
                with self._landing.drafts_dir() as drafts_dir:
                    drafts = self._written(frame, batch, drafts_dir)
                    self._landing.sync_note(batch)
                    landed = self._publisher.publish(query_id, batch, drafts)
            self._summary.add(landed)
            self._on_landed(landed)
            self._report(landed, time.monotonic() - started_s)

    def _report(self, landed: Landed, seconds: float) -> None:
        rows = 0 if landed.before else landed.messages
        self._reporter.tell(
            state="running",
            run=self._run_id,
            batch=landed.batch,
            rows=rows,
            duration_ms=int(seconds * 1000),
        )

    def _written(self, frame: "DataFrame", batch: int, drafts_dir: Path) -> list[Draft]:
        """The workers' part; what they have written comes back as rows."""
        settings: Settings = parse_options({**self._job.source_options(), "url": self._job.url})
        write = writing(settings, self._job.layout, str(drafts_dir), batch)
        return [Draft(*row) for row in frame.rdd.mapPartitions(write).collect()]
