"""``penstock pipeline validate``: sorted by a schema, each once, with all they had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from penstock.spark.jobs.validating import PublishTarget, ValidateJob, schema_from_ddl, start
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.planner import give_back
from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import STREAM, Pipelines, depth, publish, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


@pytest.fixture(autouse=True)
def _spark_is_here() -> None:
    require_spark()


def take_all(url: str, queue: str) -> list[tuple[Any, pika.BasicProperties, bytes]]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel, taken = connection.channel(), []
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            connection.close()
            return taken
        taken.append((method, properties, body))


def test_good_and_bad_go_their_ways_and_nothing_is_left(
    broker: BrokerProcess, pipelines: Pipelines, tmp_path: Path
) -> None:
    schema = tmp_path / "order.json"
    schema.write_text(json.dumps(SCHEMA))
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.exchange_declare("clean", "topic", durable=True)
    for queue in ("cleaned", "quarantine"):
        channel.queue_declare(queue, durable=True)
    channel.queue_bind("cleaned", "clean", "in")
    properties = {"headers": {"n": 7, "deep": {"a": [True, 2]}}, "priority": 3, "type": "order"}
    for n in range(10):
        body = json.dumps({"id": str(n) if n % 5 == 0 else n}).encode()
        publish(broker.url, "in", [body], message_id=f"m{n}", **properties)
    connection.close()
    arguments = (
        *("--queue", "in", "--schema", str(schema), "--max-messages", "5"),
        *("--good-to", "exchange:clean", "--bad-to", "queue:quarantine"),
    )
    done = pipelines.run(broker.url, "validate", *arguments)
    told = done.summary()
    assert (told["messages"], told["good"], told["bad"], told["batches"]) == (10, 8, 2, 2)
    assert told["left_in_queue"] == depth(broker.url, "in") == 0
    assert done.stdout.splitlines()[0] == "batch 0: 5 messages, 1 of them bad"

    good = take_all(broker.url, "cleaned")
    assert [json.loads(body)["id"] for _, _, body in good] == [1, 2, 3, 4, 6, 7, 8, 9]
    method, first, _ = good[0]
    assert (method.exchange, method.routing_key) == ("clean", "in")
    assert (first.headers, first.priority, first.type, first.message_id, first.delivery_mode) == (
        properties["headers"], 3, "order", "m1", 2,
    )  # fmt: skip
    bad = take_all(broker.url, "quarantine")
    assert [body for _, _, body in bad] == [b'{"id": "0"}', b'{"id": "5"}']
    assert bad[1][1].headers == {
        **properties["headers"],
        "x-error": "'5' is not of type 'integer'",
        "x-error-path": "/id",
    }
    assert bad[1][1].message_id == "m5"


def job_of(url: str, queue: str, schema: Any, good: str, bad: str, home: Path) -> ValidateJob:
    targets = PublishTarget("", good), PublishTarget("", bad)
    return ValidateJob(
        url, {"queue": queue}, queue, (queue,), schema, *targets, home, 100, None, ""
    )


def test_a_lost_commit_log_neither_loses_nor_doubles(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """As after a kill between the broker's commit and Spark's: the batch comes again."""
    publish(broker.url, "sorted.good", [])
    publish(broker.url, "sorted.bad", [])
    publish(broker.url, "sorted", [b'{"id": %d}' % n for n in range(5)] + [b"{}"])
    job = job_of(broker.url, "sorted", SCHEMA, "sorted.good", "sorted.bad", tmp_path)
    for more in ([], [b'{"id": 5}', b"no"]):
        publish(broker.url, "sorted", more)
        start(spark, job, SCHEMA, broker.url).awaitTermination()
        give_back(parse_url(broker.url), "sorted")
        commits = tmp_path / "checkpoint" / "commits"
        for note in ("0", ".0.crc"):
            (commits / note).unlink()
    good = [body for _, _, body in take_all(broker.url, "sorted.good")]
    assert good == [b'{"id": %d}' % n for n in range(6)]
    bad = take_all(broker.url, "sorted.bad")
    assert [body for _, _, body in bad] == [b"{}", b"no"]
    assert [one.headers["x-error-path"] for _, one, _ in bad] == ["", ""]
    assert depth(broker.url, "sorted") == 0


@pytest.mark.long
def test_a_queue_that_was_declared_anew_is_gone_on_with_when_that_is_asked_for(
    spark: SparkSession, own_broker: BrokerProcess, pipelines: Pipelines, tmp_path: Path
) -> None:
    arguments = (
        "validate",
        *("--queue", "anew", "--schema", "id long", "--good-to", "queue:anew.good"),
        *("--bad-to", "queue:anew.good", "--checkpoint", str(tmp_path)),
    )
    publish(own_broker.url, "anew.good", [])
    publish(own_broker.url, "anew", [b'{"id": 1}', b'{"id": 2}'])
    job = job_of(own_broker.url, "anew", "id long", "anew.good", "anew.good", tmp_path)
    start(spark, job, schema_from_ddl("id long"), own_broker.url).awaitTermination()
    give_back(parse_url(own_broker.url), "anew")
    with pika.BlockingConnection(pika.URLParameters(own_broker.url)) as connection:
        connection.channel().queue_delete("anew")
    publish(own_broker.url, "anew", [b'{"id": 3}'])
    refused = pipelines.run(own_broker.url, *arguments, code=1)
    assert "deleted and declared again" in refused.stderr
    assert "fix: --accept-data-loss goes on" in refused.stderr
    assert "failOnDataLoss" not in refused.stderr
    pipelines.run(own_broker.url, *arguments, "--accept-data-loss")
    good = [json.loads(body)["id"] for _, _, body in take_all(own_broker.url, "anew.good")]
    assert good == [1, 2, 3]


@pytest.mark.long  # queues go the same way
def test_a_stream_keeps_its_messages_and_each_group_sorts_them_once(
    own_broker: BrokerProcess, pipelines: Pipelines
) -> None:
    for queue in ("clean", "quarantine"):
        publish(own_broker.url, queue, [])
    publish(own_broker.url, "clicks", [b'{"id": 1}', b"no", b'{"id": 2}'], arguments=STREAM)
    arguments = (
        *("validate", "--stream", "clicks", "--schema", "id long"),
        *("--good-to", "queue:clean", "--bad-to", "queue:quarantine"),
    )
    told = pipelines.run(own_broker.url, *arguments).summary()
    assert (told["queue"], told["good"], told["bad"], told["left_in_queue"]) == ("clicks", 2, 1, 0)
    assert depth(own_broker.url, "clicks") == 3
    publish(own_broker.url, "clicks", [b'{"id": 3}'], arguments=STREAM)
    assert pipelines.run(own_broker.url, *arguments, "--dry-run").summary()["ready"] == 1
    other = ("--dry-run", "--group", "other")
    assert pipelines.run(own_broker.url, *arguments, *other).summary()["ready"] == 4
    assert pipelines.run(own_broker.url, *arguments).summary()["messages"] == 1
    good = [json.loads(body)["id"] for _, _, body in take_all(own_broker.url, "clean")]
    assert good == [1, 2, 3]
    assert [body for _, _, body in take_all(own_broker.url, "quarantine")] == [b"no"]


@pytest.mark.parametrize(
    "more,code,complaint",
    [
        (["--queue", "nobody"], 1, "no queue 'nobody' in vhost '/'"),
        (["--schema", "nowhere.json"], 2, "there is no file nowhere.json"),
        (["--good-to", "clean"], 2, "write exchange:NAME or queue:NAME"),
        (["--good-to", "exchange:nobody"], 1, "no exchange 'nobody'"),
        (["--bad-to", "queue:nobody"], 1, "no queue 'nobody' to send to"),
        (["--bad-to", "queue:source"], 2, "fed with its own messages"),
        (["--master", "spark://x"], 2, "--master must be local"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts(
    broker: BrokerProcess, pipelines: Pipelines, more: list[str], code: int, complaint: str
) -> None:
    for queue in ("source", "target"):
        publish(broker.url, queue, [])
    given = dict(zip(more[::2], more[1::2], strict=True))
    usual = {
        "--queue": "source", "--schema": "id long", "--good-to": "queue:target",
        "--bad-to": "queue:target",
    }  # fmt: skip
    arguments = [word for pair in (usual | given).items() for word in pair]
    assert complaint in pipelines.refused(broker.url, "validate", *arguments, code=code)
    assert not (pipelines.home / "penstock").exists()
