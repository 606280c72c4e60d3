"""Dead letters go back to where they came from: each once, and no more often than allowed.

In: a ``RedriveJob``.  Out: a ``Redriven``.  The driver holds the queue's lease, so no other
consumer takes from it; slice by slice, some ten thousand messages each:

    1  Spark selects: what ``where`` says, what has a target, what was not sent back too often
    2  the plan of the slice (name of its transaction, numbers of its messages) is on disk
    3  Spark publishes them through the sink, in one transaction of that name
    4  they are acknowledged, and no others: the rest stays in its place (ACK_SOME)
    5  the plan says it is done

A crash after 2 is mended by the next run, which does 3 to 5 of the plan again before anything
else: a transaction that was committed is a duplicate and publishes nothing, and acknowledging
what is gone does nothing.  A crash of the broker may undo an acknowledgement whose publish is on
disk; so a plan that is done is acknowledged once more, too.  If the plan is deleted in between, the
messages of one slice may be published twice.

What the broker refuses (a target that is gone) must not bind the next run, which may choose other
messages or another target.  So after a failure the broker is asked: where nothing was committed,
the run that had begun is fenced and the plan is taken back; else it stays.

A message goes as it was published, with all its properties and with its ``x-death``, which is its
history.  Its header ``x-redrive-count`` counts the ways back.  Headers CC and BCC are left out: it
is to go to one place.
"""

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PenstockError
from penstock.spark.dataframes.browsing import Extent, browse
from penstock.spark.dataframes.dead_letters import with_deaths
from penstock.spark.launcher.failures import explained
from penstock_ranges.ranges import BROWSE, READ
from pyspark_penstock.client import ConnectionLost, RangeClient, Refused
from pyspark_penstock.durable import sync, write_synced
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.options import COLUMNS
from pyspark_penstock.sink_options import parse_sink_options
from pyspark_penstock.staging_client import Stager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLICE_MESSAGES = 20_000
SLICE_BYTES = 256 << 20
"""One task may have to stage it all, for which the sink has a limit (``stageMaxBytes``)."""
COUNT_HEADER = "x-redrive-count"
AUTO = "auto"
SELECTED, TOO_OFTEN, NO_TARGET = "selected", "too_often", "no_target"


class OtherQueue(PenstockError):
    """The plan that is kept there is of another queue, and may be under way."""

    fix = "give each queue a --checkpoint of its own"


@dataclass(frozen=True)
class RedriveJob:
    """``to``: auto, exchange:NAME or queue:NAME; ``limit`` None = all that ``where`` selects."""

    url: str
    queue: str
    where: str | None
    to: str
    routing_key: str | None
    limit: int | None
    redrives_max: int
    home: Path
    master: str
    take_over: bool = False
    slice_messages: int = SLICE_MESSAGES
    session_url: str | None = None  # where the session was not started with ``url``


@dataclass
class Redriven:
    """Of those looked at; ``resumed`` are those an earlier run had begun with."""

    looked_at: int = 0
    moved: int = 0
    too_often: int = 0
    no_target: int = 0
    not_selected: int = 0
    resumed: int = 0
    targets: Counter[str] = field(default_factory=Counter)

    def left(self, verdict: str | None) -> None:
        """A message that stays where it is; ``verdict`` is the column of ``judged``."""
        self.looked_at += 1
        if verdict == TOO_OFTEN:
            self.too_often += 1
        elif verdict == NO_TARGET:
            self.no_target += 1
        elif verdict is None:
            self.not_selected += 1

    def chosen(self, target: str) -> None:
        self.looked_at += 1
        self.targets[target] += 1

    def sent(self, messages: int, resumed: int = 0) -> None:
        """``messages`` of a slice have moved; an earlier run had planned ``resumed`` of them."""
        self.moved += messages
        self.resumed += resumed

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "targets": dict(self.targets.most_common(20))}


@dataclass(frozen=True)
class Plan:
    """Of one slice; on disk before anything of it is published."""

    txn: str
    incarnation: str
    queue: str
    to: str
    routing_key: str | None
    seq_ids: list[int]
    done: bool = False

    @classmethod
    def read(cls, home: Path) -> "Plan | None":
        try:
            return cls(**json.loads((home / "plan.json").read_text()))
        except FileNotFoundError:
            return None

    def write(self, home: Path) -> None:
        write_synced(home / "plan.json", json.dumps(vars(self)))


def opened(job: RedriveJob, *, dry_run: bool) -> RangeClient:
    """The line to the queue: with its lease, unless it is only looked at.  Raises OtherQueue."""
    plan = Plan.read(job.home)
    if plan is not None and plan.queue != job.queue:
        raise OtherQueue(f"{job.home} keeps the plan of a redrive of '{plan.queue}'")
    mode = BROWSE if dry_run else READ
    return RangeClient(parse_url(job.url), job.queue, mode, force=job.take_over and not dry_run)


def run_redrive(
    spark: "SparkSession",
    job: RedriveJob,
    reader: RangeClient,
    on_slice: Callable[[int], None],
    stopping: threading.Event,
    *,
    dry_run: bool = False,
) -> Redriven:
    """Until the end the queue had when ``reader`` opened it, ``limit``, or ``stopping``."""
    done = Redriven()
    with explained():
        redrive = _Redrive(spark, job, reader, done)
        if dry_run:
            redrive.look(on_slice)
        else:
            redrive.resume()
            redrive.run(on_slice, stopping)
    return done


class _Redrive:
    """One run; ``reader`` is the line on which the lease is."""

    def __init__(
        self, spark: "SparkSession", job: RedriveJob, reader: RangeClient, done: Redriven
    ) -> None:
        self._spark = spark
        self._job = job
        self._reader = reader
        self._done = done
        self._end = reader.opened.head.next_seq
        self._at = reader.opened.head.floor

    def resume(self) -> None:
        plan = Plan.read(self._job.home)
        if plan is None or plan.incarnation != self._reader.opened.incarnation:
            return  # of a queue that is no more, with its messages
        if plan.done:
            self._reader.ack_some(plan.seq_ids)
            return
        self._done.sent(self._carry_out(plan), resumed=len(plan.seq_ids))

    def run(self, on_slice: Callable[[int], None], stopping: threading.Event) -> None:
        job = self._job
        while not stopping.is_set() and (extent := self._next()) is not None:
            chosen = self._chosen(extent)
            if chosen:
                incarnation = self._reader.opened.incarnation
                txn = f"redrive-{uuid.uuid4().hex}"
                plan = Plan(txn, incarnation, job.queue, job.to, job.routing_key, chosen)
                plan.write(job.home)
                self._done.sent(self._carry_out(plan))
            on_slice(len(chosen))

    def look(self, on_slice: Callable[[int], None]) -> None:
        """The same without moving anything."""
        while (extent := self._next()) is not None:
            chosen = self._chosen(extent)
            self._done.sent(len(chosen))
            on_slice(len(chosen))

    def _next(self) -> Extent | None:
        """The next slice of messages, if any and if more are wanted."""
        job = self._job
        if self._at >= self._end or (job.limit is not None and self._done.moved >= job.limit):
            return None
        planned = self._reader.plan(self._at, self._end, job.slice_messages, SLICE_BYTES)
        if planned.messages == 0:
            return None
        extent = Extent(job.queue, "", self._at, planned.end, planned.messages)
        self._at = planned.end
        return extent

    def _chosen(self, extent: Extent) -> list[int]:
        job, done = self._job, self._done
        rows = judged(self._letters(extent), job).select("seq_id", "verdict", "target")
        chosen: list[int] = []
        for row in rows.orderBy("seq_id").collect():
            within = job.limit is None or done.moved + len(chosen) < job.limit
            if row["verdict"] == SELECTED and within:
                chosen.append(row["seq_id"])
                done.chosen(row["target"])
            else:
                done.left(row["verdict"])
        return chosen

    def _letters(self, extent: Extent) -> "DataFrame":
        frame = browse(self._spark, extent, COLUMNS, self._job.session_url)
        frame = with_deaths(frame)
        count = f"coalesce(try_cast(headers['{COUNT_HEADER}'] as int), 0)"
        return frame.selectExpr("*", f"{count} as redrive_count")

    def _carry_out(self, plan: Plan) -> int:
        """Steps 3 to 5; returns how many messages have moved."""
        from pyspark.errors import PySparkException

        extent = Extent(plan.queue, "", plan.seq_ids[0], plan.seq_ids[-1] + 1, len(plan.seq_ids))
        numbers = self._spark.createDataFrame([(n,) for n in plan.seq_ids], "seq_id long")
        letters = self._letters(extent).join(numbers.hint("broadcast"), "seq_id")
        writer = addressed(letters, plan.to, plan.routing_key).write.format("penstock")
        if self._job.session_url is not None:
            writer = writer.option("url", self._job.session_url)
        try:
            writer.mode("append").option("txnId", plan.txn).save()
        except PySparkException:
            self._take_back(plan)
            raise
        moved = self._reader.ack_some(plan.seq_ids)
        replace(plan, done=True).write(self._job.home)
        return moved

    def _take_back(self, plan: Plan) -> None:
        """Unless it was committed.  The set that is begun here goes with its connection."""
        settings = parse_sink_options({"url": self._job.url, "queue": plan.queue})
        with suppress(ConnectionLost, Refused), Stager(settings) as stager:
            if stager.begin(f"txn:{plan.txn}", uuid.uuid4().hex, 0):
                (self._job.home / "plan.json").unlink()
                sync(self._job.home)


def target_of(to: str, routing_key: str | None) -> tuple[str, str]:
    """SQL of exchange and routing key for a message; null = it has no target."""
    if to == AUTO:
        return "if(first_death_queue is null, null, '')", "first_death_queue"
    kind, _, name = to.partition(":")
    if kind == "queue":
        return "''", _literal(name)
    key = "coalesce(origin_routing_key, routing_key)"
    return _literal(name), key if routing_key is None else _literal(routing_key)


def judged(letters: "DataFrame", job: RedriveJob) -> "DataFrame":
    """Adds ``verdict`` (null = not selected) and ``target``, as people call it."""
    exchange, key = target_of(job.to, job.routing_key)
    wanted = "true" if job.where is None else f"coalesce(({job.where}\n), false)"
    # A message that died in this very queue would only go round.
    nowhere = f"({exchange}) is null or (({exchange}) = '' and ({key}) = {_literal(job.queue)})"
    verdict = f"""
        case when not {wanted} then null
             when {nowhere} then '{NO_TARGET}'
             when redrive_count >= {job.redrives_max} then '{TOO_OFTEN}'
             else '{SELECTED}' end
    """
    named = f"if(({exchange}) = '', concat('queue:', {key}), concat('exchange:', {exchange}))"
    return letters.selectExpr("*", f"{verdict} as verdict", f"{named} as target")


def addressed(letters: "DataFrame", to: str, routing_key: str | None) -> "DataFrame":
    exchange, key = target_of(to, routing_key)
    return letters.selectExpr(
        "body",
        f"{exchange} as target_exchange",
        f"{key} as target_key",
        "properties_raw",
        f"map('{COUNT_HEADER}', cast(redrive_count + 1 as string)) as headers",
    ).toDF("body", "exchange", "routing_key", "properties_raw", "headers")


def _literal(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
