"""What a query subscribes to, through a real Spark and a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import depth, publish, table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def land(
    spark: SparkSession, broker: BrokerProcess, home: Path, **options: object
) -> StreamingQuery:
    """Everything there is now, into Parquet; the same ``home`` goes on where it was."""
    reader = spark.readStream.format("penstock").option("url", broker.url)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    query = (
        reader.load()
        .writeStream.format("parquet")
        .option("path", str(home / "table"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query


def look(spark: SparkSession, broker: BrokerProcess, **options: object) -> DataFrame:
    reader = spark.read.format("penstock").option("url", broker.url)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def to_exchange(broker: BrokerProcess, exchange: str, keys: list[str]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    for key in keys:
        channel.basic_publish(
            exchange, key, key.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True
        )
    connection.close()


def declare(broker: BrokerProcess, exchange: str, kind: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().exchange_declare(exchange, kind, durable=True)
    connection.close()


def test_a_group_gets_messages_of_its_own(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    declare(broker, "events", "topic")
    group: dict[str, Any] = {"exchange": "events", "group": "lake", "routingKey": "eu.#, us.*"}
    with pytest.raises(Exception, match=r"group 'lake' of exchange 'events' has no queue yet"):
        look(spark, broker, **group).count()
    land(spark, broker, tmp_path, **group)
    to_exchange(broker, "events", ["eu.1", "us.1"])
    assert look(spark, broker, **group).count() == 2
    land(spark, broker, tmp_path, **group)
    rows = table_rows(tmp_path / "table", "body", "queue", "routing_key")
    assert sorted(row["body"] for row in rows) == [b"eu.1", b"us.1"]
    assert {row["queue"] for row in rows} == {"spark.events:lake"}
    assert depth(broker.url, "spark.events:lake") == 0


def test_a_channel_gets_what_its_topic_gets(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    declare(broker, "nsq.clicks", "x-nsq-topic")
    to_exchange(broker, "nsq.clicks", ["before"])
    land(spark, broker, tmp_path, topic="clicks", channel="lake")
    to_exchange(broker, "nsq.clicks", ["after"])
    land(spark, broker, tmp_path, topic="clicks", channel="lake")
    bodies = [row["body"] for row in table_rows(tmp_path / "table", "body")]
    assert sorted(bodies) == [b"after", b"before"], "the topic kept it for its first channel"


def test_several_queues_from_positions_of_their_own(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    for queue, count in (("a", 50), ("b", 20), ("c", 5)):
        publish(broker.url, queue, [b"%d" % n for n in range(count)])
    query = land(
        spark,
        broker,
        tmp_path,
        queues="a,b,c",
        startingOffsets=json.dumps({"b": 10}),
        maxMessagesPerTrigger=30,
        minPartitions=3,
    )
    assert len(query.recentProgress) >= 3
    assert all(progress["numInputRows"] <= 30 for progress in query.recentProgress)
    seen: dict[str, list[int]] = {}
    for row in table_rows(tmp_path / "table", "queue", "seq_id", "body"):
        assert int(row["body"]) == row["seq_id"]
        seen.setdefault(row["queue"], []).append(row["seq_id"])
    assert {queue: sorted(found) for queue, found in seen.items()} == {
        "a": list(range(50)),
        "b": list(range(10, 20)),
        "c": list(range(5)),
    }
    assert [depth(broker.url, queue) for queue in "abc"] == [0, 0, 0]
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert {queue: place["seq"] for queue, place in end["q"].items()} == {"a": 50, "b": 20, "c": 5}
