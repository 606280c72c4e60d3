"""Queues into a table: every message once, acknowledged after it is in the table.

In: an ``ArchiveJob``.  Out: a summary.  Spark keeps the place in a checkpoint, plans the
batches and spreads the work; its rows are claims on ranges of the queue, and its workers fetch
the messages and write Parquet themselves (``pyspark_penstock.table_files``), because bodies
that crossed the JVM twice cost several times as much as all the rest.  ``landing`` is the place,
``parts`` has the tables that messages are sorted into, and what makes a batch part of each,
``query_run`` starts the query again when that can help.
"""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.jobs.query_run import OnFailure, QueryRun, queue_stream, started, unheard
from penstock.spark.launcher.failures import PipelineFailed
from penstock.spark.launcher.session import interpret, session
from penstock.spark.progress import RunReports
from penstock.spark.state import notes
from penstock.spark.tables.landing import LakeTable, Landing
from penstock.spark.tables.parts import ONE_TABLE, SortedTables, Sorting, Tables, Target
from penstock.spark.tables.per_queue import QueueTables, TablePerQueue
from penstock.spark.tables.publishing import Landed
from pyspark_penstock.durable import sync_note
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.options import Settings, parse_options
from pyspark_penstock.planner import give_back
from pyspark_penstock.sorting import Part, writing
from pyspark_penstock.table_files import Draft, Layout

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
    table: LakeTable
    layout: Layout
    checkpoint: Path | None
    batch_messages: int
    batch_bytes: int
    every_s: float | None
    master: str
    fail_on_data_loss: bool = True
    take_over: bool = False
    sorting: Sorting = ONE_TABLE
    least_bytes: int = 0  # a smaller batch waits, up to ``delay_max_s``; 0 = none does
    delay_max_s: float = 0

    def landing(self) -> Landing:
        return self._landing_in(self.table)

    def tables(self) -> Tables:
        """Raises OtherTable, WrongCondition."""
        if isinstance(self.table, TablePerQueue):
            return QueueTables(self.table, self.layout, self.landing(), self._landing_in)
        targets = self.sorting.targets(self.layout, self.table, self._landing_in)
        return SortedTables(targets, self.sorting.note())

    def _landing_in(self, table: LakeTable) -> Landing:
        checkpoint = self.checkpoint if table is self.table else None
        return Landing(table, self.vhost, self.subject, checkpoint)

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
            **self._least(),
        }

    def _least(self) -> dict[str, str]:
        if not self.least_bytes:
            return {}
        delay = f"{int(1000 * self.delay_max_s)}ms"
        return {"minBytesPerTrigger": str(self.least_bytes), "maxTriggerDelay": delay}


@dataclass
class Landings:
    messages: int = 0
    batches: int = 0
    files: int = 0
    file_bytes: int = 0
    holes: int = 0
    faults: int = 0  # messages in the table whose body does not fit its columns
    landed_before: int = 0  # batches found in the table after a crash
    elsewhere: Counter[str] = field(default_factory=Counter)

    def add(self, landed: Landed, elsewhere: Counter[str]) -> None:
        """One more batch; ``elsewhere``: messages in other tables or in none."""
        self.elsewhere.update(elsewhere)
        if landed.before:
            self.landed_before += 1
            return
        self.batches += 1
        self.messages += landed.messages
        self.files += landed.files
        self.file_bytes += landed.file_bytes
        self.holes += landed.holes
        self.faults += landed.faults


def run_archive(
    job: ArchiveJob,
    on_landed: Callable[[Landed, Counter[str]], None],
    stopping: threading.Event,
    on_failure: OnFailure = unheard,
) -> dict[str, Any]:
    """Runs until the queue is landed, ``stopping`` is set, or nothing helps.

    Returns the ``Landings`` as a dictionary, with ``restarts``, ``query_id``, ``spark_start_s``
    (of Java and Python, until the first query was under way) and ``spark_stop_s`` (when all was
    landed and acknowledged).
    """
    began_s = time.monotonic()
    meant = job.tables()
    main = meant.main
    name = f"penstock archive {job.subject}"
    with meant.begun() as tables:
        try:
            # Rows are claims, however many messages there are: little to do for Java.
            with session(name, job.master, job.url, main.landing.home, short=True) as spark:
                interpret(spark)
                archive = _Archive(job, tables, spark, on_landed, stopping, on_failure)
                restarts = archive.run()
                ended_s = time.monotonic()
            stop_s = time.monotonic() - ended_s
        finally:
            places = main.landing.landed_places(main.publisher)
            for queue in {*job.queues, *places}:  # a pattern has found more meanwhile
                group = job.source["group"] if "stream" in job.source else ""
                give_back(parse_url(job.url), queue, places.get(queue, ("", 0)), group=group)
    told = vars(archive.done).copy()
    return {
        **told,
        **told.pop("elsewhere"),
        "restarts": restarts,
        "spark_start_s": round(archive.first_query_s - began_s, 1),
        "spark_stop_s": round(stop_s, 1),
        "query_id": notes.query_id(main.landing.checkpoint),
    }


class _Archive:
    def __init__(
        self,
        job: ArchiveJob,
        tables: Tables,
        spark: "SparkSession",
        on_landed: Callable[[Landed, Counter[str]], None],
        stopping: threading.Event,
        on_failure: OnFailure,
    ) -> None:
        self.done = Landings()
        self.first_query_s = 0.0  # when it was under way, on the monotonic clock
        self._job = job
        self._tables = tables
        self._main: Target = tables.main
        self._spark = spark
        self._on_landed = on_landed
        self._on_failure = on_failure
        self._run = QueryRun(self._start, stopping, self._failed, endless=job.every_s is not None)
        # Spark's own listener would count claims, so batches are reported from here.
        self._reports = RunReports(
            job.url, uuid.uuid4().hex, f"archive {job.subject}", "archive", job.queues
        )

    def run(self) -> int:
        with self._reports:
            self._run.until_done()
        return self._run.restarts

    def _failed(self, failure: PipelineFailed, pause_s: float) -> None:
        self._reports.failed(str(failure))  # the broker shows it until a batch goes through
        self._on_failure(failure, pause_s)

    def _start(self, restarts: int) -> "StreamingQuery":
        landing = self._main.landing
        below = landing.landed_below(self._main.publisher)
        stream = queue_stream(self._spark, self._job.source_options(restarts), below)
        writer = stream.writeStream.foreachBatch(self._land)
        query = started(writer, landing.checkpoint, self._job.every_s)
        self.first_query_s = self.first_query_s or time.monotonic()
        return query

    def _land(self, frame: "DataFrame", batch: int) -> None:
        began_s = time.monotonic()
        with self._run.batch():
            landed, elsewhere = self._landed(frame, batch)
            self.done.add(landed, elsewhere)
            self._on_landed(landed, elsewhere)
            rows = 0 if landed.before else landed.messages + elsewhere.total()
            self._reports.batch(batch, rows, time.monotonic() - began_s)

    def _landed(self, frame: "DataFrame", batch: int) -> tuple[Landed, Counter[str]]:
        checkpoint = self._main.landing.checkpoint
        query_id = notes.query_id(checkpoint)
        before = self._main.publisher.landed(query_id, batch)
        if before is not None:
            return before, Counter()
        with self._tables.batch(query_id, batch) as places:
            drafts = self._written(frame, batch, places.parts)
            sync_note(checkpoint, batch)
            return places.publish(drafts)

    def _written(self, frame: "DataFrame", batch: int, places: tuple[Part, ...]) -> list[Draft]:
        settings: Settings = parse_options({**self._job.source_options(), "url": self._job.url})
        write = writing(settings, self._job.sorting.decoding, places, batch)
        return [Draft(*row) for row in frame.rdd.mapPartitions(write).collect()]
