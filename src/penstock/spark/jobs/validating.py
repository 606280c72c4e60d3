"""Messages go to one place if a schema holds for them, else to another.

In: a ``ValidateJob``.  Out: a summary.  One streaming query: the source reads queues or a stream,
each row is judged and gets an address, and the sink publishes a batch's good and bad messages in
one transaction.  Only then does Spark commit the batch, and only after that are the messages
acknowledged; so each is published once, whatever is killed and started again on the same
checkpoint.

A message keeps its properties to the last bit.  A bad one gets the headers ``x-error`` and
``x-error-path``; its body is not touched, so it can be sent again when the schema was wrong.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.jobs.checking import BadSchema, checker, schema_of_type
from penstock.spark.jobs.query_run import OnFailure, QueryRun, queue_stream, started, unheard
from penstock.spark.launcher.session import session
from penstock.spark.progress import report_progress
from penstock.spark.state import notes
from penstock.spark.state.places import locked
from pyspark_penstock.client import ConnectionLost, Refused
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.planner import give_back
from pyspark_penstock.sink_options import parse_sink_options
from pyspark_penstock.staging_client import Stager

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = ("body", "routing_key", "properties_raw")
METRIC = "validated"
END_PATIENCE_S = 5.0
"""How long the last batch's numbers are waited for: Spark tells them from a thread of its own."""


class PublishTarget(NamedTuple):
    """``routing_key`` None = the one a message had."""

    exchange: str
    routing_key: str | None


@dataclass(frozen=True)
class ValidateJob:
    """``schema`` is a JSON Schema, or DDL; ``every_s`` None = what is there now, then the end.

    ``source``: options that say what is read, which is called ``subject`` and is in ``queues``.
    """

    url: str
    source: dict[str, str]
    subject: str
    queues: tuple[str, ...]
    schema: dict[str, Any] | bool | str
    good: PublishTarget
    bad: PublishTarget
    home: Path
    batch_messages: int
    every_s: float | None
    master: str
    take_over: bool = False
    short: bool = False
    fail_on_data_loss: bool = True


class Judged(NamedTuple):
    batch: int
    messages: int
    bad: int


@dataclass
class Validated:
    messages: int = 0
    bad: int = 0
    batches: int = 0

    def batch(self, messages: int, bad: int) -> None:
        self.batches += 1
        self.messages += messages
        self.bad += bad


def run_validate(
    job: ValidateJob,
    on_batch: Callable[[Judged], None],
    stopping: threading.Event,
    on_failure: OnFailure = unheard,
) -> dict[str, Any]:
    """Until all is read that is there, ``stopping`` is set, or nothing helps.

    Returns the ``Validated`` as a dictionary, with ``restarts`` and ``good``.
    """
    done = Validated()
    name = f"penstock validate {job.subject}"
    group = job.source["group"] if "stream" in job.source else ""
    with locked(job.home, f"validation of '{job.subject}'"):
        try:
            notes.mend(job.home / "checkpoint")
            with session(name, job.master, job.url, job.home, short=job.short) as spark:
                restarts = _run(spark, job, done, on_batch, stopping, on_failure)
        finally:
            places = published_places(job.home / "checkpoint", job.url)
            for queue in {*job.queues, *places}:  # a pattern has found more meanwhile
                give_back(parse_url(job.url), queue, places.get(queue, ("", 0)), group=group)
    return vars(done) | {"restarts": restarts, "good": done.messages - done.bad}


def _run(
    spark: "SparkSession",
    job: ValidateJob,
    done: Validated,
    on_batch: Callable[[Judged], None],
    stopping: threading.Event,
    on_failure: OnFailure,
) -> int:
    schema = schema_from_ddl(job.schema) if isinstance(job.schema, str) else job.schema

    def start_once_more(restarts: int) -> "StreamingQuery":
        """A reader that has taken the queue over meanwhile keeps it: only a first start forces."""
        return start(spark, replace(job, take_over=job.take_over and not restarts), schema)

    run = QueryRun(start_once_more, stopping, on_failure, endless=job.every_s is not None)
    ended = threading.Event()
    listener = _listener(run, done, on_batch, ended)
    spark.streams.addListener(listener)
    name = f"validate {job.subject}"
    with report_progress(spark, job.url, name, kind="validate", queues=list(job.queues)):
        try:
            run.until_done()
            ended.wait(END_PATIENCE_S)
        finally:
            spark.streams.removeListener(listener)
    return run.restarts


def schema_from_ddl(ddl: str) -> dict[str, Any]:
    """Only Spark can read it, so what is wrong with it is found when Spark has started."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        kind = StructType.fromDDL(ddl)
    except PySparkException as error:
        cause = str(error).strip().partition("\n")[0]
        raise BadSchema(f"{ddl!r} is no list of columns: {cause}") from error
    return schema_of_type(kind.jsonValue())


def start(
    spark: "SparkSession", job: ValidateJob, schema: dict[str, Any] | bool, url: str | None = None
) -> "StreamingQuery":
    """``url`` is only for sessions that were not started with it."""
    place = {} if url is None else {"url": url}
    options = {
        **job.source,
        "columns": ",".join(COLUMNS),
        "maxMessagesPerTrigger": str(job.batch_messages),
        "failOnDataLoss": str(job.fail_on_data_loss).lower(),
        "takeOver": str(job.take_over).lower(),
    }
    checkpoint = job.home / "checkpoint"
    stream = queue_stream(spark, options | place, published_below(checkpoint, url or job.url))
    sorted_rows = judged(stream, schema, job.good, job.bad)
    writer = sorted_rows.writeStream.format("penstock").options(**place)
    return started(writer, checkpoint, job.every_s)


def published_places(checkpoint: Path, url: str) -> dict[str, tuple[str, int]]:
    """Per queue its incarnation and where the last batch ends, if that is published."""
    last = notes.last_planned(checkpoint)
    if last is None:
        return {}
    known = notes.unsettled(checkpoint) is None or published_below(checkpoint, url)
    return notes.planned_places(checkpoint, last) if known else {}


def published_below(checkpoint: Path, url: str) -> dict[str, int]:
    """Per queue: every message below was published and may be acknowledged and gone.

    After a power cut Spark may not know of its last batch what the broker knows, and would take
    the messages that are gone for lost.  The set that is begun here goes with its connection.
    """
    last = notes.unsettled(checkpoint)
    if last is None:
        return {}
    with suppress(ConnectionLost, Refused), Stager(parse_sink_options({"url": url})) as stager:
        if not stager.begin(notes.query_id(checkpoint), uuid.uuid4().hex, last):
            return notes.planned_ends(checkpoint, last)
    return {}


def judged(
    stream: "DataFrame", schema: dict[str, Any] | bool, good: PublishTarget, bad: PublishTarget
) -> "DataFrame":
    """As the sink wants it; headers are only on the bad ones."""
    import pyarrow as pa
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    def judge(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        check = checker(schema)
        kind = pa.struct([("text", pa.string()), ("path", pa.string())])
        for bodies in columns:
            faults = [check(body) for body in bodies.to_pylist()]
            yield pa.array([fault and fault._asdict() for fault in faults], kind)

    # Not mapInArrow, which wants pandas.  Spark sees by the types that it gets an iterator.
    make_udf: Any = arrow_udf  # its stubs want a number instead, of which Spark itself warns
    fault_of = make_udf(judge, "text string, path string")
    rows = stream.select("*", fault_of("body").alias("fault"))
    rows = rows.observe(METRIC, f.count("*").alias("messages"), f.count("fault").alias("bad"))
    at_fault = f.col("fault").isNotNull()
    headers = f.create_map(
        *(f.lit("x-error"), f.col("fault.text"), f.lit("x-error-path"), f.col("fault.path"))
    )
    return rows.select(
        "body",
        f.when(at_fault, bad.exchange).otherwise(good.exchange).alias("exchange"),
        f.when(at_fault, _key(bad)).otherwise(_key(good)).alias("routing_key"),
        "properties_raw",
        f.when(at_fault, headers).alias("headers"),
    )


def _key(target: PublishTarget) -> "Column":
    from pyspark.sql import functions as f

    return f.col("routing_key") if target.routing_key is None else f.lit(target.routing_key)


def _listener(
    run: QueryRun, done: Validated, on_batch: Callable[[Judged], None], ended: threading.Event
) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            ended.clear()

        def onQueryProgress(self, event: Any) -> None:
            told = event.progress.observedMetrics.get(METRIC)
            if told is None or not told["messages"]:
                return
            with run.batch():
                done.batch(told["messages"], told["bad"])
                on_batch(Judged(event.progress.batchId, told["messages"], told["bad"]))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            ended.set()

    return Listener()
