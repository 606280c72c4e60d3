"""DataFrames written through a real Spark to a real broker, and read back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import depth, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def save(frame: DataFrame, broker: BrokerProcess, **options: str) -> None:
    writer = frame.write.format("penstock").option("url", broker.url)
    writer.options(**options).mode("append").save()


def read(spark: SparkSession, broker: BrokerProcess, queue: str) -> DataFrame:
    return spark.read.format("penstock").option("url", broker.url).option("queue", queue).load()


def declare(broker: BrokerProcess, *queues: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    for queue in queues:
        connection.channel().queue_declare(queue, durable=True)
    connection.close()


def test_what_is_written_is_read_back(spark: SparkSession, broker: BrokerProcess) -> None:
    declare(broker, "written", "other")
    moment = dt.datetime(2026, 11, 21, 8, 30)
    columns = (
        "body binary, routing_key string, message_id string, headers map<string,string>,"
        " priority int, expiration bigint, published_at timestamp, type string"
    )
    rows = [
        (b"\x00\xff", "written", "m1", {"k": "v"}, 3, 3_600_000, moment, "t"),
        (b"", "other", None, None, None, None, None, None),
        (b"x" * 300_000, "written", "m3", {}, None, None, None, None),
    ]
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    save(frame.selectExpr("'' as exchange", "*"), broker)
    got = [row.asDict() for row in read(spark, broker, "written").orderBy("seq_id").collect()]
    assert [bytes(row["body"]) for row in got] == [b"\x00\xff", b"x" * 300_000]
    first = got[0]
    assert (first["message_id"], first["headers"], first["priority"]) == ("m1", {"k": "v"}, 3)
    assert (first["expiration"], first["timestamp"], first["type"]) == ("3600000", moment, "t")
    assert first["persistent"] is True
    (other,) = read(spark, broker, "other").collect()
    assert (bytes(other["body"]), other["message_id"], other["headers"]) == (b"", None, None)


def test_a_named_write_is_done_once(spark: SparkSession, broker: BrokerProcess) -> None:
    declare(broker, "named")
    frame = spark.range(0, 1000, 1, 3).selectExpr("cast(id as string) as body")
    for _ in range(2):
        save(frame, broker, queue="named", txnId="the thousand")
    got = [int(row.body) for row in read(spark, broker, "named").orderBy("seq_id").collect()]
    assert got == list(range(1000))  # partition by partition


def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, broker: BrokerProcess) -> None:
    declare(broker, "clean")
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "case when id < 900 then cast(id as string) end as body"
    )
    with pytest.raises(Exception, match=r"a row has no body \(null\)"):
        save(frame, broker, queue="clean")
    assert depth(broker.url, "clean") == 0
    assert read(spark, broker, "clean").count() == 0


def test_a_stream_of_rows_at_least_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    publish(broker.url, "source", [b"%d" % n for n in range(50)])
    declare(broker, "sunk")
    rows = (
        spark.readStream.format("penstock")
        .option("url", broker.url)
        .option("queue", "source")
        .load()
    )
    query = (
        rows.select("body", "headers", "message_id")
        .writeStream.format("penstock")
        .option("url", broker.url)
        .option("queue", "sunk")
        .option("delivery", "at-least-once")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    got = [int(row.body) for row in read(spark, broker, "sunk").orderBy("seq_id").collect()]
    assert got == list(range(50))
    assert depth(broker.url, "source") == 0
