"""A queue as a DataFrame, through a real Spark and a real broker."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from penstock.spark.launcher.session import LOG_NAME, _register
from pyspark_penstock import planner
from pyspark_penstock.endpoints import parse_url
from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import depth, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def frame(spark: SparkSession, broker: BrokerProcess, queue: str, **options: object) -> DataFrame:
    reader = spark.read.format("penstock").option("url", broker.url).option("queue", queue)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def stream(
    spark: SparkSession, broker: BrokerProcess, queue: str, **options: object
) -> DataStreamReader:
    reader = spark.readStream.format("penstock").option("url", broker.url).option("queue", queue)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader


def test_the_source_is_registered_once(spark: SparkSession, spark_home: Path) -> None:
    """Registered once more, Spark would warn that one of that name is replaced."""
    (log,) = spark_home.rglob(LOG_NAME)
    before = len(log.read_bytes())
    _register(spark)
    assert b"registered data source" not in log.read_bytes()[before:]


def test_a_batch_read_shows_what_was_published(spark: SparkSession, broker: BrokerProcess) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.exchange_declare("events", "topic")
    channel.queue_declare("seen", durable=True)
    channel.queue_bind("seen", "events", "eu.#")
    properties = pika.BasicProperties(
        content_type="application/json", content_encoding="identity", delivery_mode=2, priority=3,
        correlation_id="c", reply_to="r", expiration="3600000", message_id="m",
        timestamp=1_700_000_000, type="t", user_id="guest", app_id="a",
        headers={"text": "ä", "number": 7, "nested": {"deep": [1, True]}},
    )  # fmt: skip
    before = dt.datetime.now()
    channel.basic_publish("events", "eu.berlin", b'{"x": 1}', properties)
    channel.basic_publish("events", "eu.paris", b"\x00\xff")
    connection.close()

    rows = frame(spark, broker, "seen").orderBy("seq_id").collect()

    full = rows[0].asDict()
    assert before - dt.timedelta(minutes=1) < full.pop("enqueued_at") < before + dt.timedelta(1)
    assert full.pop("timestamp").timestamp() == 1_700_000_000
    assert full == {
        "seq_id": 0, "body": b'{"x": 1}', "queue": "seen", "exchange": "events",
        "routing_key": "eu.berlin", "message_id": "m", "correlation_id": "c", "reply_to": "r",
        "type": "t", "app_id": "a", "user_id": "guest", "content_type": "application/json",
        "content_encoding": "identity", "priority": 3, "persistent": True,
        "expiration": "3600000", "redelivered": False,
        "headers": {"text": "ä", "number": "7", "nested": '{"deep":[1,true]}'},
    }  # fmt: skip
    assert (rows[1].body, rows[1].routing_key, rows[1].headers) == (b"\x00\xff", "eu.paris", None)
    assert depth(broker.url, "seen") == 2

    listed = frame(spark, broker, "seen", headersFormat="array")
    copies = listed.select("body", "headers").coalesce(1).write.format("penstock").mode("append")
    copies.options(url=broker.url, queue="seen").save()
    again = frame(spark, broker, "seen", headersFormat="array").orderBy("seq_id").collect()
    pairs = [("text", "ä".encode()), ("number", b"7"), ("nested", b'{"deep":[1,true]}')]
    assert [one.headers for one in again] == [pairs, None, pairs, None]


def test_batch_reads_choose_columns_ranges_and_partitions(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    publish(broker.url, "many", [b"%d" % n for n in range(200)])
    whole = frame(spark, broker, "many", minPartitions=4, columns="seq_id,body")
    assert whole.columns == ["seq_id", "body"]
    assert whole.rdd.getNumPartitions() == 4
    assert [int(row.body) for row in whole.orderBy("seq_id").collect()] == list(range(200))
    part = frame(
        spark, broker, "many", startingOffsets='{"many":50}', endingOffsets='{"many":60}'
    )  # fmt: skip
    assert part.selectExpr("sum(seq_id)").collect()[0][0] == sum(range(50, 60))
    assert frame(spark, broker, "many").where("seq_id >= 190").count() == 10
    assert depth(broker.url, "many") == 200


def test_conditions_on_positions_are_pushed_down(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    publish(broker.url, "pushed", [b"%d" % n for n in range(100)])
    found = frame(spark, broker, "pushed", minPartitions=4)
    some = found.where("seq_id >= 90 and seq_id < 95 and routing_key = 'pushed'")
    assert [row["seq_id"] for row in some.collect()] == [*range(90, 95)]
    parts = [one.rdd.getNumPartitions() for one in (found, found.where("queue = 'another'"))]
    assert parts == [4, 1], "of nothing Spark makes one that is empty"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:  # as in a session of the user's own
        assert frame(spark, broker, "pushed").where("seq_id >= 90").count() == 10
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_mistakes_reach_the_user_in_our_words(spark: SparkSession, broker: BrokerProcess) -> None:
    with pytest.raises(Exception, match="unknown option 'colums'"):
        frame(spark, broker, "q", colums="body")
    with pytest.raises(Exception, match="no queue 'nobody' in vhost '/'"):
        frame(spark, broker, "nobody").count()
    with pytest.raises(Exception, match=r"cannot connect to the broker at 127\.0\.0\.1:1"):
        frame(spark, broker, "q", url="amqp://127.0.0.1:1", reconnectTimeout="0ms").count()


def test_a_stream_reads_what_is_there_and_acknowledges_it(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    publish(broker.url, "flow", [b"%d" % n for n in range(100)])
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> list[int]:
        source = stream(spark, broker, "flow", maxMessagesPerTrigger=40, minPartitions=2)
        writer = source.load().writeStream.format("parquet").option("path", out)
        query = (
            writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return [row["numInputRows"] for row in query.recentProgress if row["numInputRows"]]

    assert run() == [40, 40, 20]
    assert depth(broker.url, "flow") == 0
    publish(broker.url, "flow", [b"%d" % n for n in range(100, 130)])
    assert run() == [30]
    assert depth(broker.url, "flow") == 0
    rows = spark.read.parquet(out).orderBy("seq_id").collect()
    assert [int(row.body) for row in rows] == list(range(130))


def test_a_running_stream_takes_what_comes_and_consumers_wait_outside(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    publish(broker.url, "live", [b"first"])
    query = (
        stream(spark, broker, "live")
        .load()
        .writeStream.format("memory")
        .queryName("live")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="leased to a reader"):
            channel.basic_consume("live", lambda *_: None)
        connection.close()
        publish(broker.url, "live", [b"second", b"third"])
        query.processAllAvailable()
        bodies = [row.body for row in spark.sql("select * from live order by seq_id").collect()]
        assert bodies == [b"first", b"second", b"third"]
    finally:
        query.stop()
    assert planner.give_back(parse_url(broker.url), "live")
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().basic_consume("live", lambda *_: None)
    connection.close()
    assert depth(broker.url, "live") == 0


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Out of Spark's archive of sources each of them would compile it anew."""

    def places(_: object) -> list[str]:
        import pyspark

        import pyspark_penstock

        return [str(pyspark.__file__), str(pyspark_penstock.__file__)]

    assert spark.sparkContext.parallelize([0], 1).flatMap(places).collect() == places(0)
