"""Queues into a table: every message once, acknowledged after it is in the table.

In: an ``ArchiveJob``.  Out: a summary.  Spark keeps the place in a checkpoint, plans the
batches and spreads the work; its rows are claims on ranges of the queue, and its workers fetch
the messages and write Parquet themselves (``pyspark_penstock.table_files``), because bodies
that crossed the JVM twice cost several times as much as all the rest.  ``landing`` is the place,
``publishing`` or ``delta`` make a batch part of the table, ``pipeline`` starts the query again
when that can help.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.jobs.query_run import OnFailure, QueryRun, queue_stream, started, unheard
from penstock.spark.launcher.failures import PipelineFailed
from penstock.spark.launcher.session import session
from penstock.spark.progress import RunReports
from penstock.spark.state import notes
from penstock.spark.tables.delta import DeltaPublisher
from penstock.spark.tables.landing import Landing, Publisher
from penstock.spark.tables.publishing import Landed, ParquetPublisher
from penstock.spark.tables.table import DELTA, Table
from pyspark_penstock.checkpoint_notes import sync_note
from pyspark_penstock.options import Settings, parse_options, parse_url
from pyspark_penstock.planner import give_back
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
class Landings:
    """What this run put into the table."""

    messages: int = 0
    batches: int = 0
    files: int = 0
    file_bytes: int = 0
    holes: int = 0
    landed_before: int = 0  # batches found in the table after a crash

    def add(self, landed: Landed) -> None:
        """One more batch."""
        if landed.before:
            self.landed_before += 1
            return
        self.batches += 1
        self.messages += landed.messages
        self.files += landed.files
        self.file_bytes += landed.file_bytes
        self.holes += landed.holes


def run_archive(
    job: ArchiveJob,
    on_landed: Callable[[Landed], None],
    stopping: threading.Event,
    on_failure: OnFailure = unheard,
) -> dict[str, Any]:
    """Runs until the queue is landed, ``stopping`` is set, or nothing helps.

    Returns the ``Landings`` as a dictionary, with ``restarts``, ``query_id``, ``spark_start_s``
    (of Java and Python, until the first query was under way) and ``spark_stop_s`` (when all was
    landed and acknowledged).
    """
    began_s = time.monotonic()
    schema = table_schema(job.layout)
    job.table.check(schema)
    landing = job.landing()
    publisher = job.publisher(landing)
    name = f"penstock archive {job.subject}"
    with landing.locked(publisher):
        job.table.describe(schema)
        try:
            # Rows are claims, however many messages there are: little to do for Java.
            with session(name, job.master, job.url, landing.home, short=True) as spark:
                archive = _Archive(job, landing, publisher, spark, on_landed, stopping, on_failure)
                restarts = archive.run()
                ended_s = time.monotonic()
            stop_s = time.monotonic() - ended_s
        finally:
            places = landing.landed_places(publisher)
            for queue in job.queues:
                group = job.source["group"] if "stream" in job.source else ""
                give_back(parse_url(job.url), queue, places.get(queue, ("", 0)), group=group)
    return vars(archive.done) | {
        "restarts": restarts,
        "spark_start_s": round(archive.first_query_s - began_s, 1),
        "spark_stop_s": round(stop_s, 1),
        "query_id": notes.query_id(landing.checkpoint),
    }


class _Archive:
    """The query, and what becomes of its batches."""

    def __init__(
        self,
        job: ArchiveJob,
        landing: Landing,
        publisher: Publisher,
        spark: "SparkSession",
        on_landed: Callable[[Landed], None],
        stopping: threading.Event,
        on_failure: OnFailure,
    ) -> None:
        self.done = Landings()
        self.first_query_s = 0.0  # when it was under way, on the monotonic clock
        self._job = job
        self._landing = landing
        self._publisher = publisher
        self._spark = spark
        self._on_landed = on_landed
        self._on_failure = on_failure
        self._run = QueryRun(self._start, stopping, self._failed, endless=job.every_s is not None)
        # Spark's own listener would count claims, so batches are reported from here.
        self._reports = RunReports(
            job.url, uuid.uuid4().hex, f"archive {job.subject}", "archive", job.queues
        )

    def run(self) -> int:
        """Returns how often the query was started again."""
        with self._reports:
            self._run.until_done()
        return self._run.restarts

    def _failed(self, failure: PipelineFailed, pause_s: float) -> None:
        self._reports.failed(str(failure))  # the broker shows it until a batch goes through
        self._on_failure(failure, pause_s)

    def _start(self, restarts: int) -> "StreamingQuery":
        below = self._landing.landed_below(self._publisher)
        stream = queue_stream(self._spark, self._job.source_options(restarts), below)
        writer = stream.writeStream.foreachBatch(self._land)
        query = started(writer, self._landing.checkpoint, self._job.every_s)
        self.first_query_s = self.first_query_s or time.monotonic()
        return query

    def _land(self, frame: "DataFrame", batch: int) -> None:
        began_s = time.monotonic()
        with self._run.batch():
            landed = self._landed(frame, batch)
            self.done.add(landed)
            self._on_landed(landed)
            rows = 0 if landed.before else landed.messages
            self._reports.batch(batch, rows, time.monotonic() - began_s)

    def _landed(self, frame: "DataFrame", batch: int) -> Landed:
        query_id = notes.query_id(self._landing.checkpoint)
        before = self._publisher.landed(query_id, batch)
        if before is not None:
            return before
        with self._landing.drafts_dir() as drafts_dir:
            drafts = self._written(frame, batch, drafts_dir)
            sync_note(self._landing.checkpoint, batch)
            return self._publisher.publish(query_id, batch, drafts)

    def _written(self, frame: "DataFrame", batch: int, drafts_dir: Path) -> list[Draft]:
        """The workers' part; what they have written comes back as rows."""
        settings: Settings = parse_options({**self._job.source_options(), "url": self._job.url})
        write = writing(settings, self._job.layout, str(drafts_dir), batch)
        return [Draft(*row) for row in frame.rdd.mapPartitions(write).collect()]
