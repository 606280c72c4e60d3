"""``penstock pipeline dlq redrive``: back to the queue they died in, each once, others stay."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import MagicMock

import pika
import pytest

from penstock.spark.dataframes.browsing import look
from penstock.spark.jobs import redrive
from penstock.spark.jobs.redrive import OtherQueue, Plan, RedriveJob, Redriven, opened, run_redrive
from penstock.spark.reports.dlq_report import ReportJob, report
from penstock_ranges.ranges import Head, Opened
from pyspark_penstock.client import ConnectionLost, Planned, RangeClient
from pyspark_penstock.sink_options import parse_sink_options
from tests.helpers.broker_process import BrokerProcess
from tests.spark.dead_letter_tools import Undertaker
from tests.spark.spark_tools import Pipelines, depth, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def run(spark: SparkSession, job: RedriveJob, *, dry_run: bool = False) -> Redriven:
    job.home.mkdir(parents=True, exist_ok=True)
    with opened(job, dry_run=dry_run) as reader:
        return run_redrive(spark, job, reader, lambda _: None, threading.Event(), dry_run=dry_run)


def job_for(broker: BrokerProcess, queue: str, home: Path, **given: Any) -> RedriveJob:
    usual: dict[str, Any] = {
        "where": None, "to": "auto", "routing_key": None, "limit": None, "redrives_max": 2,
    }  # fmt: skip
    return RedriveJob(
        broker.url, queue, home=home, master="", session_url=broker.url, **(usual | given)
    )


@pytest.mark.long  # the other tests here have its parts
def test_chosen_ones_go_back_and_the_others_stay(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    work = Undertaker(broker.url, "work", "dead", exchange="jobs")
    headers = {"n": 7, "deep": {"a": [True, "ä"]}, "CC": ["elsewhere"]}
    for n in range(7):
        given = dict(headers) if n == 3 else {"n": n}
        work.publish(b"%d" % n, f"key.{n}", message_id=f"m{n}", headers=given, priority=4)
    assert work.reject_all() == 7
    work.wait_for(7)
    publish(broker.url, "dead", [b"never died"])

    where = "cast(body as string) in ('1', '3', '5', 'never died')"
    job = job_for(broker, "dead", tmp_path, where=where, slice_messages=3)
    would = run(spark, job, dry_run=True)
    assert (would.moved, would.no_target, would.targets) == (3, 1, {"queue:work": 3})
    assert depth(broker.url, "dead") == 8

    done = run(spark, replace(job, limit=2))
    assert (done.moved, done.targets) == (2, {"queue:work": 2})
    done = run(spark, job)
    assert (done.looked_at, done.moved, done.not_selected, done.no_target) == (6, 1, 4, 1)

    back = work.take_all("work")
    assert [body for body, *_ in back] == [b"1", b"3", b"5"]
    _, properties, exchange, key = back[1]
    assert (exchange, key) == ("", "work")
    assert (properties.message_id, properties.priority, properties.delivery_mode) == ("m3", 4, 2)
    assert properties.headers["n"] == 7
    assert properties.headers["deep"] == {"a": [True, "ä"]}
    assert properties.headers["x-redrive-count"] == "1"
    assert properties.headers["x-death"][0]["reason"] == "rejected"
    assert "CC" not in properties.headers
    left = work.take_all("dead")
    assert [body for body, *_ in left] == [b"0", b"2", b"4", b"6", b"never died"]
    assert "x-redrive-count" not in left[0][1].headers
    work.close()


def test_a_hostile_history_neither_breaks_nor_leads(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Who may publish to the queue can write any x-death: numbers out of bounds, or no death."""
    work = Undertaker(broker.url, "spoilt", "spoilt.dead")
    hostile_time_s = 9_000_000_000_000_000_000
    hostile = {"queue": "spoilt", "reason": "rejected", "count": 1 << 62, "time": hostile_time_s}
    for death in ([], [hostile, hostile, hostile], [hostile | {"count": -5, "time": -1}], "none"):
        headers = {"x-death": death, "x-first-death-queue": "elsewhere"}
        publish(broker.url, "spoilt.dead", [b"x"], headers=headers)
    found = report(spark, look(broker.url, "spoilt.dead"), ReportJob(url=broker.url))
    assert (found["messages"], found["died"], found["first_death_at"]) == (4, 2, None)
    told = run(spark, job_for(broker, "spoilt.dead", tmp_path), dry_run=True)
    assert (told.no_target, told.targets) == (2, {"queue:spoilt": 2})
    work.close()


def test_who_was_sent_back_too_often_stays(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    work = Undertaker(broker.url, "hard", "hard.dead", exchange="hard.jobs")
    work.publish(b"x", "some.key")
    job = job_for(broker, "hard.dead", tmp_path, to="exchange:hard.jobs", redrives_max=1)
    for expected in (1, 0):
        assert work.reject_all() == 1
        work.wait_for(1)
        done = run(spark, job)
        assert (done.moved, done.too_often) == (expected, 1 - expected)
        if expected:
            ((body, _, exchange, key),) = [work.peek("hard")]
            assert (body, exchange, key) == (b"x", "hard.jobs", "some.key")
    assert depth(broker.url, "hard.dead") == 1
    work.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_publish_doubles_nothing(
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """It dies with a plan on disk: before the publish, or between publish and acknowledgement."""
    work = Undertaker(broker.url, f"frail.{when}", f"frail.{when}.dead")
    for n in range(4):
        work.publish(b"%d" % n)
    work.reject_all()
    work.wait_for(4)
    job = job_for(broker, work.dlq, tmp_path, where="body <> '3'")

    def dies(*_: Any) -> int:
        raise ConnectionLost("as if killed")

    with monkeypatch.context() as crashing:
        if when == "before":
            crashing.setattr(redrive, "addressed", dies)
        else:
            crashing.setattr(RangeClient, "ack_some", dies)
        with pytest.raises(ConnectionLost):
            run(spark, job)
    plan = Plan.read(tmp_path)
    assert plan is not None
    assert (plan.seq_ids, plan.done) == ([0, 1, 2], False)
    assert depth(broker.url, work.work) == (0 if when == "before" else 3)

    # Another choice now: what was begun is ended first, as it was begun.
    done = run(spark, replace(job, where="false"))
    assert (done.resumed, done.moved) == (3, 3)
    assert [body for body, *_ in work.take_all(work.work)] == [b"0", b"1", b"2"]
    assert [body for body, *_ in work.take_all(work.dlq)] == [b"3"]
    work.close()


def test_the_plan_of_another_queue_is_not_overwritten(tmp_path: Path) -> None:
    """What was begun there would be sent twice."""
    Plan("redrive-1", "inc", "first.dead", "auto", None, [1, 2]).write(tmp_path)
    job = RedriveJob("amqp://x", "second.dead", None, "auto", None, None, 3, tmp_path, "")
    with pytest.raises(OtherQueue, match="keeps the plan of a redrive"):
        opened(job, dry_run=False)


@pytest.mark.parametrize(
    "answer, stays",
    [("a new set", False), ("", True), (ConnectionLost("away"), True)],
    ids=["nothing was committed", "it was committed", "nobody knows"],
)
def test_a_refused_plan_is_taken_back_only_if_nothing_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | Exception, stays: bool
) -> None:
    """Else a target that is gone would stop every later run, whatever it chooses."""
    asked: list[tuple[str, int]] = []

    class Line:
        def __init__(self, _: object) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def begin(self, producer: str, run: str, batch: int) -> str:
            assert run, "a run of its own, which fences the one before"
            asked.append((producer, batch))
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(redrive, "Stager", Line)
    plan = Plan("redrive-1", "inc", "dead", "auto", None, [1, 2])
    plan.write(tmp_path)
    job = RedriveJob("amqp://x", "dead", None, "auto", None, None, 3, tmp_path, "")
    reader: Any = SimpleNamespace(opened=Opened("inc", Head(0, 0, 3, 3), 1))
    spark: Any = None
    redrive._Redrive(spark, job, reader, Redriven())._take_back(plan)
    assert asked == [("txn:redrive-1", 0)]
    assert (Plan.read(tmp_path) == plan) is stays


# -- as a command ----------------------------------------------------------------------------

REDRIVE = ("dlq", "redrive")


def test_the_command_sends_back_and_says_where(
    own_broker: BrokerProcess, pipelines: Pipelines
) -> None:
    work = Undertaker(own_broker.url, "plain", "plain.dead")
    for n in range(3):
        work.publish(b"%d" % n)
    work.reject_all()
    work.wait_for(3)
    told = pipelines.run(
        own_broker.url, *REDRIVE, "--queue", "plain.dead", "--limit", "2"
    ).summary()
    assert (told["moved"], told["left_in_queue"]) == (2, 1)
    assert told["targets"] == {"queue:plain": 2}
    assert depth(own_broker.url, "plain") == 2
    work.close()


def test_a_queue_with_consumers_is_refused_before_spark_starts(
    broker: BrokerProcess, pipelines: Pipelines
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("busy", durable=True)
    channel.basic_consume("busy", lambda *_: None)
    said = pipelines.refused(broker.url, *REDRIVE, "--queue", "busy", code=1)
    connection.close()
    assert "has consumers" in said
    assert "cancel its consumers" in said


@pytest.mark.parametrize(
    "more,code,complaint",
    [
        (["--queue", "nobody"], 1, "no queue 'nobody' in vhost '/'"),
        (["--queue", "q", "--to", "somewhere"], 2, "write exchange:NAME or queue:NAME"),
        (["--queue", "q", "--to", "queue:q"], 2, "fed with its own messages"),
        (["--queue", "q", "--to", "queue:nobody"], 1, "no queue 'nobody' to send to"),
        (["--queue", "q", "--routing-key", "k"], 2, "goes with --to exchange"),
        (["--queue", "q", "--max-redrives", "0"], 2, "0 is not in the range"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts(
    broker: BrokerProcess, pipelines: Pipelines, more: list[str], code: int, complaint: str
) -> None:
    publish(broker.url, "q", [])
    assert complaint in pipelines.refused(broker.url, *REDRIVE, *more, code=code)


def test_a_slice_is_no_larger_than_a_task_may_stage(tmp_path: Path) -> None:
    """Twenty thousand of more than 50 KB would be."""
    reader = MagicMock(spec=RangeClient)
    reader.opened = Opened("inc", Head(0, 0, 9, 9), 1)
    reader.plan.return_value = Planned(5, 5, 99)
    job = RedriveJob("amqp://x", "dead", None, "auto", None, None, 3, tmp_path, "")
    redriving = redrive._Redrive(MagicMock(), job, reader, Redriven())
    extent = redriving._next()
    assert extent is not None
    limit = parse_sink_options({"url": "amqp://x", "queue": "q"}).stage_max_bytes
    assert reader.plan.call_args.args[3] <= limit / 2
