"""A stream as a source of Spark: batch and streaming, several groups, and what retention takes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_penstock import DefaultSource, client
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.source import BatchReader, DataLoss
from pyspark_penstock.stream_source import StreamReader
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import REPOSITORY
from tests.spark.spark_tools import STREAM, depth, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

GUIDE = (REPOSITORY / "docs" / "guide" / "spark.md").read_text()
_readers: list[StreamReader] = []


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    yield
    while _readers:
        _readers.pop().stop()


def given(broker: BrokerProcess, stream: str, **more: Any) -> DefaultSource:
    own = {"url": broker.url, "stream": stream, "reconnectTimeout": "2s"} | more
    return DefaultSource({name: str(value) for name, value in own.items()})


def streaming(broker: BrokerProcess, stream: str, **more: Any) -> StreamReader:
    source = given(broker, stream, **({"group": "lake", "pollTimeout": "50ms"} | more))
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    _readers.append(reader)
    return reader


def batch(broker: BrokerProcess, stream: str, **more: Any) -> BatchReader:
    source = given(broker, stream, **more)
    reader = source.reader(source.schema())
    assert isinstance(reader, BatchReader)
    return reader


def fill(
    broker: BrokerProcess, stream: str, first: int, end: int, size: int = 1, **arguments: Any
) -> None:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    bodies = [b"%0*d" % (size, number) for number in range(first, end)]
    publish(broker.url, stream, bodies, arguments=STREAM | named)


def numbers(reader: StreamReader | BatchReader, partitions: list[Any]) -> list[int]:
    found = []
    for partition in partitions:
        for record_batch in reader.read(partition):
            for row in record_batch.to_pylist():
                assert int(row["body"][-9:]) == row["seq_id"]
                found.append(row["seq_id"])
    return found


def seq(offset: dict[str, Any]) -> int:
    (place,) = offset["q"].values()
    return int(place["seq"])


def floor_of(broker: BrokerProcess, stream: str) -> int:
    with client.RangeClient(parse_url(broker.url), stream, 0) as looker:
        return looker.opened.head.floor


# -- without a JVM ---------------------------------------------------------------------------


def test_groups_read_side_by_side_and_take_nothing(broker: BrokerProcess) -> None:
    fill(broker, "side", 0, 30)
    for group in ("a", "b"):
        reader = streaming(broker, "side", group=group, minPartitions=3)
        start = reader.initialOffset()
        assert seq(start) == 0
        end = reader.latestOffset(start, ReadMaxRows(20))
        assert seq(end) == 20
        partitions: list[Any] = reader.partitions(start, end)
        assert len(partitions) == 3
        assert numbers(reader, partitions) == list(range(20))
        reader.commit(end)
        assert seq(reader.latestOffset(end, ReadAllAvailable())) == 30
    assert depth(broker.url, "side") == 30
    again = streaming(broker, "side", group="a")
    assert numbers(again, again.partitions(start, end)) == list(range(20)), "again and again"


def test_latest_means_the_same_until_something_is_committed(broker: BrokerProcess) -> None:
    fill(broker, "late", 0, 10)
    first = streaming(broker, "late", startingOffsets="latest")
    start = first.initialOffset()
    assert seq(start) == 10
    fill(broker, "late", 10, 15)
    again = streaming(broker, "late", startingOffsets="latest")
    assert again.initialOffset() == start, "it was killed before batch 0"
    end = again.latestOffset(start, ReadMaxRows(3))
    assert numbers(again, again.partitions(start, end)) == [10, 11, 12]
    again.commit(end)
    assert seq(streaming(broker, "late", startingOffsets="latest").initialOffset()) == 15


def test_places_by_number_and_time(broker: BrokerProcess) -> None:
    fill(broker, "times", 0, 10)
    time.sleep(0.05)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.05)
    fill(broker, "times", 10, 20)
    numbered = streaming(broker, "times", group="n", startingOffsets=json.dumps({"times": 4}))
    assert seq(numbered.initialOffset()) == 4
    timed = streaming(broker, "times", group="t", startingTimestamp=middle_ms)
    assert seq(timed.initialOffset()) == 10
    for more, found in (
        ({}, range(20)),
        ({"startingTimestamp": middle_ms}, range(10, 20)),
        ({"endingTimestamp": middle_ms}, range(10)),
        ({"startingOffsets": '{"times": 7}', "endingOffsets": '{"times": 12}'}, range(7, 12)),
    ):
        reader = batch(broker, "times", minPartitions=3, **more)
        assert numbers(reader, reader.partitions()) == list(found)


def test_what_retention_took_is_lost_data(broker: BrokerProcess) -> None:
    limits = {"stream_max_segment_size_bytes": 2000, "max_length_bytes": 4000}
    fill(broker, "short", 0, 20, **limits)
    group = {"startingOffsets": json.dumps({"short": 3}), "group": "g"}
    reader = streaming(broker, "short", **group)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert (seq(start), seq(end)) == (3, 13)
    partitions: list[Any] = reader.partitions(start, end)
    # The group is forgotten, so retention does not wait for it.
    with client.RangeClient(parse_url(broker.url), "short", 0) as line:
        assert line.follow("g") == 3
        line.start("", 0)
    fill(broker, "short", 20, 200, **limits)
    floor = floor_of(broker, "short")
    assert floor > 100
    with pytest.raises(DataLoss, match=f"retention has taken messages 3 to {floor - 1} of stream"):
        numbers(reader, partitions)
    with pytest.raises(DataLoss, match=f"retention has taken 3 to {floor - 1}"):
        streaming(broker, "short", group="g").latestOffset(start, ReadMaxRows(9))
    with pytest.raises(DataLoss, match="startingOffsets is 3, it holds"):
        streaming(broker, "short", **group).initialOffset()
    lenient = streaming(broker, "short", **group, failOnDataLoss="false")
    assert seq(lenient.initialOffset()) == floor
    following = lenient.latestOffset(start, ReadAllAvailable())
    assert numbers(lenient, lenient.partitions(start, following)) == list(range(floor, 200))
    assert numbers(lenient, partitions) == []


def test_a_group_holds_retention_back(broker: BrokerProcess) -> None:
    limits = {"stream_max_segment_size_bytes": 2000, "max_length_bytes": 4000}
    fill(broker, "held", 0, 10, **limits)
    reader = streaming(broker, "held")
    start = reader.initialOffset()
    fill(broker, "held", 10, 200, **limits)
    assert floor_of(broker, "held") == 0
    end = reader.latestOffset(start, ReadAllAvailable())
    assert numbers(reader, reader.partitions(start, end)) == list(range(200))
    reader.commit(end)
    fill(broker, "held", 200, 201, **limits)
    assert floor_of(broker, "held") > 100


def test_what_is_refused_says_what_helps(broker: BrokerProcess) -> None:
    fill(broker, "s", 0, 1)
    publish(broker.url, "q", [])
    source = given(broker, "s")
    with pytest.raises(ValueError, match="option 'stream' needs 'group' in readStream"):
        source.streamReader(source.schema())
    with pytest.raises(ValueError, match="'channel' belongs to 'topic', not to 'stream'"):
        given(broker, "s", channel="c").schema()
    with pytest.raises(
        ValueError, match="'group' belongs to 'exchange' or 'stream', not to 'queue'"
    ):
        DefaultSource({"queue": "q", "group": "g"}).schema()
    with pytest.raises(
        client.Refused, match=r"'q' in vhost '/' is no stream.*; name it by option queue"
    ):
        streaming(broker, "q").initialOffset()
    source = DefaultSource({"url": broker.url, "queue": "s"})
    reader = source.streamReader(source.schema())
    with pytest.raises(client.Refused, match=r"'s' in vhost '/' is a stream.*by option stream"):
        reader.initialOffset()
    looker = DefaultSource({"url": broker.url, "queue": "s"})
    browsed = looker.reader(looker.schema())
    assert isinstance(browsed, BatchReader)
    assert numbers(browsed, browsed.partitions()) == [0], "looking needs no group"


def test_a_large_message_and_many_small_ones(broker: BrokerProcess) -> None:
    fill(broker, "sizes", 0, 1, size=3_000_000)
    fill(broker, "sizes", 1, 500, size=900)
    fill(broker, "sizes", 500, 501, size=3_000_000)
    for fetch_bytes in ("64KiB", "1MiB"):
        reader = batch(broker, "sizes", fetchBytes=fetch_bytes)
        assert numbers(reader, reader.partitions()) == list(range(501))
        without = batch(broker, "sizes", fetchBytes=fetch_bytes, columns="seq_id")
        found = [
            row["seq_id"]
            for partition in without.partitions()
            for rows in without.read(partition)
            for row in rows.to_pylist()
        ]
        assert found == list(range(501))


# -- with one --------------------------------------------------------------------------------


def test_a_batch_read_shows_what_was_published(spark: SparkSession, broker: BrokerProcess) -> None:
    publish(broker.url, "columns", [], arguments=STREAM)
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    properties = pika.BasicProperties(
        message_id="m", priority=3, headers={"text": "ä", "number": 7}
    )
    connection.channel().basic_publish("", "columns", b"\x00\xff", properties)
    connection.close()
    publish(broker.url, "columns", [b"2"], arguments=STREAM)
    reader = spark.read.format("penstock").option("url", broker.url).option("stream", "columns")
    first, second = reader.load().orderBy("seq_id").collect()
    assert (first.seq_id, bytes(first.body), first.queue) == (0, b"\x00\xff", "columns")
    assert (first.exchange, first.routing_key, first.message_id) == ("", "columns", "m")
    assert (first.priority, first.redelivered) == (3, False)
    assert first.headers == {"text": "ä", "number": "7"}, "and no offset among them"
    assert (second.seq_id, bytes(second.body)) == (1, b"2")
    assert second.enqueued_at >= first.enqueued_at


def test_the_program_of_the_guide(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    _, program = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    program = program.replace('"lake/', f'"{tmp_path}/lake/')
    source = f'format("penstock").option("url", "{broker.url}")'
    program = program.replace('format("penstock")', source)
    publish(broker.url, "clicks", [b"%d" % n for n in range(100)], arguments=STREAM)
    exec(program, {"spark": spark})
    publish(broker.url, "clicks", [b"%d" % n for n in range(100, 130)], arguments=STREAM)
    exec(program, {"spark": spark})
    rows = spark.read.parquet(f"{tmp_path}/lake/clicks").collect()
    assert sorted(row.seq_id for row in rows) == list(range(130))
    counts = spark.read.parquet(f"{tmp_path}/lake/keys")
    counted = counts.groupBy("routing_key").sum("count").collect()
    assert [tuple(row) for row in counted] == [("clicks", 130)]
    assert depth(broker.url, "clicks") == 130
