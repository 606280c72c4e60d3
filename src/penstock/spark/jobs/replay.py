"""A table's messages go to a broker again, each once, in their order, at a pace.

In: a ``ReplayJob``.  Out: a ``Replayed``.  What is chosen (times, a condition) is put into order
and cut into *slices* of at most some thousand messages; each slice is one write of the sink under
a name of its own (``txnId``), so it is published whole or not at all, and once, however often it
is tried.  The slices are written down before the first is sent::

    _penstock/replays/<name>/files         of a table in an object store, until all is sent
    _penstock/replays/<name>/plan.json     the choice, the slices' first messages and sizes, each
                                           queue's end, how many slices are done

Sending slice k, and what a crash leaves:

    1  wait until it is due
    2  Spark stages its messages on the broker    an uncommitted set; the broker drops it
    3  the sink commits                           *published*
    4  note in the plan that k is done            ``--resume`` does 2 and 3 again, and the broker
                                                  knows the name: nothing is published twice

One run at a time works on a plan (``lock`` beside it): two that began together would each make one
of their own, and send everything twice.

A slice is known by its first message and that of the next one, so it does not matter when files
are compacted in between.  Messages that land in the table after the plan was made are not sent:
they may be those that this very replay has sent.  A queue lands in its order, so the plan knows
them by the last number and time that the queue had.  A slice is counted before it is sent; one that
is not as large as planned (a file is gone, a clock went back) ends the replay.

Properties come from the table's columns: header values are texts there.  A table with
``properties_raw`` gives every bit back.  ``user_id`` is left out, since a broker accepts only the
name of the publisher; CC and BCC are, since they would send copies to whom the message went
before.  Two headers are added: ``x-replay-name``, and ``x-original-seq``.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.core.errors import PenstockError
from penstock.spark.jobs.query_run import PAUSE_MIN_S
from penstock.spark.launcher.failures import explained, is_hopeless
from penstock.spark.launcher.session import is_embedded, session
from penstock.spark.progress import RunReports
from penstock.spark.state.places import locked
from penstock.spark.tables.additions import CannotFollow
from penstock.spark.tables.copies import copy_table
from penstock.spark.tables.landing import LakeTable
from penstock.spark.tables.table import PARQUET, Table, data_files
from pyspark_penstock.durable import write_synced
from pyspark_penstock.endpoints import parse_url

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SLICE_MESSAGES_MAX = 100_000
SLICE_S = 2.0
"""With a rate or a speed, a slice is what is due in so much time: Spark needs one for a write."""
STAGE_MAX = "1000000GiB"
"""None: a slice is so many messages, whatever their size, and cannot be cut once it is planned."""
ATTEMPTS = 3
STORE_FIX = (
    "look at the address, the region and the keys of the store (AWS_ENDPOINT_URL, AWS_REGION, …),"
    " and whether this machine has room for a copy of the files"
)
TIME, SEQ = "time", "seq"
KEYS = {TIME: ("enqueued_at", "queue", "seq_id"), SEQ: ("queue", "seq_id", "enqueued_at")}
PROPERTIES = (
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "expiration"),
    *("message_id", "timestamp", "type", "app_id"),
)


class CannotReplay(PenstockError):
    """No table, a wrong condition, or another replay of that name."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


@dataclass(frozen=True)
class ReplayJob:
    url: str
    master: str
    lake: LakeTable
    name: str
    target: dict[str, str]  # options of the sink
    since: datetime | None = None
    until: datetime | None = None
    where: str = ""
    order: str = TIME
    rate: float | None = None  # messages a second
    speed: float | None = None  # times as fast as they came
    resume: bool = False
    copied: Path | None = None  # the files of a table in an object store, where Spark reads them
    say: Callable[[str], None] = lambda _: None  # gets a line now and then while they are copied

    @property
    def home(self) -> Path:
        return self.lake.home / "replays" / self.name

    def choice(self) -> dict[str, Any]:
        """What must be the same when a replay goes on."""
        broker = parse_url(self.url)
        return {
            "broker": str(broker),
            "vhost": broker.vhost,
            "target": self.target,
            "since": _text(self.since),
            "until": _text(self.until),
            "where": self.where,
            "order": self.order,
        }


@dataclass
class Replayed:
    """What was done; ``messages`` counts what this run has sent."""

    messages: int = 0
    slices: int = 0
    slices_before: int = 0  # sent by an earlier run
    left: int = 0

    def sent(self, messages: int) -> None:
        self.messages += messages
        self.slices += 1
        self.left -= messages


@dataclass
class Plan:
    """The slices: first key, number of messages, time of the first message; and the ends."""

    txn: str
    choice: dict[str, Any]
    slices: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    ends: list[list[Any]] = field(default_factory=list)
    """Per queue: name, last seq_id, last time (us).  Plans of release 0.1.0 have none."""

    @classmethod
    def read(cls, path: Path) -> "Plan | None":
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        write_synced(path, json.dumps(vars(self)))

    @property
    def messages_left(self) -> int:
        return sum(piece["rows"] for piece in self.slices[self.done :])

    def sent(self, path: Path) -> None:
        self.done += 1
        self.write(path)


def check_replay(job: ReplayJob) -> Plan | None:
    """The plan to go on with; raises CannotReplay.  Cheap: no Spark."""
    if not _files(job):
        raise CannotReplay(f"{job.lake} holds no table", "name the directory of an archive")
    plan = Plan.read(job.home / "plan.json")
    if plan is None:
        return None
    if plan.choice != job.choice():
        raise CannotReplay(
            f"replay '{job.name}' was begun with another choice of messages, target or broker",
            "give the options it was begun with, or another --name",
        )
    if plan.done == len(plan.slices):
        raise CannotReplay(
            f"replay '{job.name}' is done", "give another --name to send the messages once more"
        )
    if not job.resume:
        raise CannotReplay(
            f"replay '{job.name}' has sent {plan.done} of {len(plan.slices)} slices",
            "add --resume to go on with it, or give another --name",
        )
    return plan


def count_chosen(job: ReplayJob) -> int:
    """How many messages a replay would send; starts Spark, which judges the condition."""
    name = f"penstock replay {job.name}"
    job = _readable(job, "counted", anew=True)
    try:
        with session(name, job.master, job.url, job.home) as spark, explained():
            return chosen(spark, job).count()
    finally:
        _forget_copy(job)


def _files(job: ReplayJob) -> list[str]:
    try:
        return job.lake.files()
    except OSError as error:
        raise CannotReplay(f"{job.lake}: {error}", STORE_FIX) from error


def _readable(job: ReplayJob, name: str, *, anew: bool) -> ReplayJob:
    """Spark as pip installs it has no reader for object stores: their files are copied."""
    if not any("://" in file for file in _files(job)[:1]):
        return job
    if not is_embedded(job.master):
        raise CannotReplay(
            f"{job.lake} is in an object store: its files are copied to this machine, where the"
            f" workers of {job.master} do not see them",
            "leave out --master, or give local[N]",
        )
    place = job.home / name
    if anew or not place.is_dir():
        try:
            copy_table(job.lake, place, job.since, job.until, job.say)
        except OSError as error:
            raise CannotReplay(f"{job.lake}: {error}", STORE_FIX) from error
        except (CannotFollow, ValueError) as error:
            raise CannotReplay(str(error), "replay a copy of the table in a directory") from error
    return replace(job, copied=place)


def _forget_copy(job: ReplayJob) -> None:
    if job.copied is not None:
        rmtree(job.copied, ignore_errors=True)


def run_replay(
    job: ReplayJob, on_slice: Callable[[int, int, int], None], stopping: threading.Event
) -> Replayed:
    name = f"penstock replay {job.name}"
    with locked(job.home, f"run of replay '{job.name}'"):
        plan = check_replay(job)
        job = _readable(job, "files", anew=plan is None)
        with session(name, job.master, job.url, job.home) as spark, explained():
            if plan is None:
                plan = planned(chosen(spark, job), job)
                plan.write(job.home / "plan.json")
            done = _Replay(job, plan, spark, on_slice).run(stopping)
        if not done.left:
            _forget_copy(job)
        return done


def chosen(spark: "SparkSession", job: ReplayJob) -> "DataFrame":
    from pyspark.sql import functions as f

    # A queue called 007 must not become a number.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    listed = list(map(str, data_files(job.copied))) if job.copied else job.lake.files()
    if isinstance(job.lake, Table):
        directory = str(job.copied or job.lake.directory)
        plain = bool(job.copied) or job.lake.format == PARQUET
        files = [directory] if plain else listed
        frame = spark.read.option("basePath", directory).parquet(*files)
        frame = _with_values_of(frame, {part for path in listed for part in Path(path).parts[:-1]})
    else:
        frame = spark.read.option("mergeSchema", "true").parquet(*listed)
    for moment, compare in ((job.since, "__ge__"), (job.until, "__lt__")):
        if moment is None:
            continue
        frame = frame.where(getattr(f.col("enqueued_at"), compare)(f.lit(moment)))
        if "day" in frame.columns:  # whole directories need not be read
            day = f.lit(moment.astimezone(UTC).date().isoformat())
            frame = frame.where(f.col("day") >= day if compare == "__ge__" else f.col("day") <= day)
    return _where(frame, job.where) if job.where else frame


def _with_values_of(frame: "DataFrame", steps: set[str]) -> "DataFrame":
    """Values as ``routing_key=%C3%BC`` names them, of which Spark makes a character per byte."""
    from pyspark.sql import functions as f

    split = [step.partition("=") for step in sorted(steps)]
    for column in frame.columns:
        found = [text for name, _, text in split if name == column]
        pairs = [(unquote(text, "latin-1"), unquote(text)) for text in found]
        wrong = [f.lit(text) for pair in pairs if pair[0] != pair[1] for text in pair]
        if wrong:
            value = f.coalesce(f.create_map(*wrong)[f.col(column)], f.col(column))
            frame = frame.withColumn(column, value)
    return frame


def _where(frame: "DataFrame", condition: str) -> "DataFrame":
    from pyspark.errors import AnalysisException, ParseException

    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as error:
        raise CannotReplay(str(error).strip().splitlines()[0], "correct --where") from error


def planned(frame: "DataFrame", job: ReplayJob) -> Plan:
    """Of what is in the table now: the frame has its list of files."""
    from pyspark.sql import functions as f

    last = (f.max("seq_id"), f.max(f.unix_micros("enqueued_at")))
    ends = [list(row) for row in frame.groupBy("queue").agg(*last).collect()]
    return Plan(uuid.uuid4().hex, job.choice(), _slices(frame, job), ends=ends)


def _slices(frame: "DataFrame", job: ReplayJob) -> list[dict[str, Any]]:
    """Only keys are sorted; that this is done by one task is fine for some ten million."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    keys = KEYS[job.order]
    place = f.row_number().over(Window.orderBy(*keys)) - 1
    numbered = frame.select(*_key_columns(keys)).withColumn("_place", place)
    size = SLICE_MESSAGES_MAX
    if job.rate is not None:
        size = max(min(int(job.rate * SLICE_S), size), 1)
    groups: list[Column] = [f.floor(f.col("_place") / size)]
    if job.speed is not None:
        window_s = job.speed * SLICE_S
        groups.insert(0, f.floor(f.col("enqueued_at") / (window_s * 1e6)))
    first = f.min(f.struct(*keys))
    begins = f.min("enqueued_at")
    sliced = numbered.groupBy(*groups).agg(
        first.alias("first"), f.count("*").alias("rows"), begins.alias("at_us")
    )
    return [
        {"first": list(row["first"]), "rows": row["rows"], "at_us": row["at_us"]}
        for row in sliced.orderBy("first").collect()
    ]


class _Replay:
    def __init__(
        self,
        job: ReplayJob,
        plan: Plan,
        spark: "SparkSession",
        on_slice: Callable[[int, int, int], None],
    ) -> None:
        self._job = job
        self._plan = plan
        self._spark = spark
        self._on_slice = on_slice
        self._done = Replayed(slices_before=plan.done, left=plan.messages_left)
        queues = [job.target["queue"]] if "queue" in job.target else []
        self._reports = RunReports(job.url, plan.txn, f"replay {job.name}", "replay", queues)

    def run(self, stopping: threading.Event) -> Replayed:
        plan = self._plan
        pace = Pace(self._job, plan)
        with self._reports:
            while plan.done < len(plan.slices):
                if stopping.wait(pace.wait_s(plan.done)):
                    break
                self._send(plan.done)
        return self._done

    def _send(self, number: int) -> None:
        plan, rows = self._plan, self._plan.slices[number]["rows"]
        began_s = time.monotonic()
        self._write(number)
        plan.sent(self._job.home / "plan.json")
        self._done.sent(rows)
        self._on_slice(number, rows, len(plan.slices))
        self._reports.batch(number, rows, time.monotonic() - began_s)

    def _write(self, number: int) -> None:
        """Tried again where that can help: the broker knows what it has published."""
        from pyspark.errors import PySparkException

        options = self._job.target | {
            "txnId": f"replay:{self._plan.txn}:{number}",
            "stageMaxBytes": STAGE_MAX,
        }
        for attempt in range(ATTEMPTS):
            try:
                frame = prepared(self._slice(number), self._job)
                frame.write.format("penstock").mode("append").options(**options).save()
                return
            except PySparkException as error:
                if is_hopeless(error) or attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(PAUSE_MIN_S)

    def _slice(self, number: int) -> "DataFrame":
        """Its messages in order; one task, so that the order is that of one staged set.

        The directory is listed anew, since its files may have been compacted.  Raises CannotReplay
        when it has not the planned number of messages.
        """
        from pyspark.sql import functions as f

        keys = KEYS[self._job.order]
        key = f.struct(*_key_columns(keys))
        slices = self._plan.slices
        bounds = [slices[number]["first"]]
        found = self._without_later(chosen(self._spark, self._job)).where(
            key >= _struct(keys, bounds[0])
        )
        if number + 1 < len(slices):
            bounds.append(slices[number + 1]["first"])
            found = found.where(key < _struct(keys, bounds[1]))
        if keys[0] == "enqueued_at":  # says it once more, so that files can be passed over
            times = [f.timestamp_micros(f.lit(bound[0])) for bound in bounds]
            found = found.where(f.col("enqueued_at") >= times[0])
            if len(times) > 1:
                found = found.where(f.col("enqueued_at") <= times[1])
        rows, there = slices[number]["rows"], found.count()
        if there != rows:
            raise CannotReplay(
                f"slice {number + 1} of replay '{self._job.name}' had {rows} messages when it was"
                f" planned, and has {there} in the table now",
                "bring back what was taken from the table, or begin another replay with --since",
            )
        return found.coalesce(1).sortWithinPartitions(*keys)

    def _without_later(self, frame: "DataFrame") -> "DataFrame":
        """What was in the table when the plan was made."""
        from pyspark.sql import functions as f

        if not self._plan.ends:
            return frame
        ends = self._spark.createDataFrame(
            [tuple(end) for end in self._plan.ends], "queue string, _seq bigint, _at_us bigint"
        )
        before = (f.col("seq_id") <= f.col("_seq")) & (
            f.unix_micros("enqueued_at") <= f.col("_at_us")
        )
        return frame.join(ends.hint("broadcast"), "queue").where(before).drop("_seq", "_at_us")


class Pace:
    def __init__(self, job: ReplayJob, plan: Plan) -> None:
        self._job = job
        self._slices = plan.slices
        self._first = plan.done
        self._began_s = time.monotonic()
        self._sent = [0]
        for piece in plan.slices:
            self._sent.append(self._sent[-1] + piece["rows"])

    def wait_s(self, number: int) -> float:
        due_s = self._due_s(number) - self._due_s(self._first)
        return max(self._began_s + due_s - time.monotonic(), 0.0)

    def _due_s(self, number: int) -> float:
        """Seconds from the beginning; behind the first slice, what was before has been sent."""
        if self._job.rate is not None:
            return self._sent[number] / self._job.rate
        if self._job.speed is not None:
            return float(self._slices[number]["at_us"]) / 1e6 / self._job.speed
        return 0.0


def prepared(frame: "DataFrame", job: ReplayJob) -> "DataFrame":
    from pyspark.sql import functions as f

    added = f.create_map(
        *(f.lit("x-replay-name"), f.lit(job.name)),
        *(f.lit("x-original-seq"), f.col("seq_id").cast("string")),
    )
    columns: list[Column] = [f.col("body")]
    if "exchange" in job.target and "routingKey" not in job.target:
        columns.append(f.col("routing_key"))
    if "properties_raw" in frame.columns:
        return frame.select(*columns, "properties_raw", added.alias("headers"))
    replaced = ("CC", "BCC", "x-replay-name", "x-original-seq")
    kept = f.map_filter("headers", lambda name, _: ~name.isin(*replaced))
    headers = f.when(f.col("headers").isNull(), added).otherwise(f.map_concat(kept, added))
    columns += [f.col(name) for name in PROPERTIES if name in frame.columns]
    return frame.select(*columns, headers.alias("headers"))


def _key_columns(keys: tuple[str, ...]) -> "list[Column]":
    """As JSON can keep them, and no time zone changes them."""
    from pyspark.sql import functions as f

    return [
        f.unix_micros(name).alias(name) if name == "enqueued_at" else f.col(name) for name in keys
    ]


def _struct(keys: tuple[str, ...], values: list[Any]) -> "Column":
    from pyspark.sql import functions as f

    pairs = zip(keys, values, strict=True)
    kinds = {"queue": "string"}
    return f.struct(
        *(f.lit(value).cast(kinds.get(name, "bigint")).alias(name) for name, value in pairs)
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
