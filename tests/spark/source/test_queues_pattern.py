"""Queues by a pattern: which ones, new ones, and ones that go away; without a Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_penstock import DefaultSource, stream_source
from pyspark_penstock.client import Refused
from pyspark_penstock.source import BatchReader, DataLoss
from pyspark_penstock.stream_source import StreamReader
from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import depth, publish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

ALL = ReadMaxRows(1000)
_readers: list[StreamReader] = []


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.setattr(stream_source, "LOOK_EVERY_S", 0.0)
    yield
    while _readers:
        _readers.pop().stop()


def source(broker: BrokerProcess, pattern: str, **more: Any) -> DefaultSource:
    own = {"url": broker.url, "queuesPattern": pattern} | more
    return DefaultSource({name: str(value) for name, value in own.items()})


def streaming(broker: BrokerProcess, pattern: str, **more: Any) -> StreamReader:
    """Takes over from the one before, as a query does that is started again."""
    found = source(broker, pattern, takeOver="true", pollTimeout="50ms", **more)
    reader = found.streamReader(found.schema())
    assert isinstance(reader, StreamReader)
    _readers.append(reader)
    return reader


def bodies(reader: StreamReader | BatchReader, partitions: list[Any]) -> list[bytes]:
    return [
        row["body"]
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def delete(broker: BrokerProcess, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_delete(queue)


def test_a_new_queue_is_in_the_next_batch_and_a_batch_is_the_same_again(
    broker: BrokerProcess,
) -> None:
    publish(broker.url, "new.a", [b"a0", b"a1"])
    publish(broker.url, "xnew.a", [b"another"])
    reader = streaming(broker, r"new\..*")
    first = reader.initialOffset()
    one = reader.latestOffset(first, ALL)
    assert [*one["q"]] == ["new.a"], "the whole name matches"
    assert bodies(reader, reader.partitions(first, one)) == [b"a0", b"a1"]
    publish(broker.url, "new.b", [b"b0"])
    publish(broker.url, "new.a", [b"a2"])
    two = reader.latestOffset(one, ALL)
    assert sorted(bodies(reader, reader.partitions(one, two))) == [b"a2", b"b0"]
    again = streaming(broker, r"new\..*")  # died before batch 2 was committed
    publish(broker.url, "new.b", [b"b1"])
    assert sorted(bodies(again, again.partitions(one, two))) == [b"a2", b"b0"]
    three = again.latestOffset(two, ALL)
    assert bodies(again, again.partitions(two, three)) == [b"b1"]
    assert again.latestOffset(three, ALL) == three
    assert (depth(broker.url, "new.a"), depth(broker.url, "new.b")) == (0, 0)


def test_latest_is_where_a_query_begins_and_not_a_queue_that_it_finds(
    broker: BrokerProcess,
) -> None:
    publish(broker.url, "late.a", [b"old"])
    reader = streaming(broker, "late.*", startingOffsets="latest")
    first = reader.initialOffset()
    publish(broker.url, "late.b", [b"b0"])
    one = reader.latestOffset(first, ALL)
    assert bodies(reader, reader.partitions(first, one)) == [b"b0"]
    again = streaming(broker, "late.*", startingOffsets="latest")  # nothing was committed
    anew = again.initialOffset()
    assert anew["q"]["late.b"]["seq"] == 0
    assert bodies(again, again.partitions(anew, one)) == [b"b0"]


def test_a_pattern_may_mean_no_queue_yet(broker: BrokerProcess) -> None:
    reader = streaming(broker, "none.*")
    first = reader.initialOffset()
    assert reader.latestOffset(first, ALL) == first == {"v": 1, "q": {}}
    publish(broker.url, "none.a", [b"a0"])
    one = reader.latestOffset(first, ALL)
    assert bodies(reader, reader.partitions(first, one)) == [b"a0"]
    looker = source(broker, "nothing.*")
    batch = looker.reader(looker.schema())
    with pytest.raises(Refused, match=r"no queue in vhost '/' matches queuesPattern 'nothing"):
        batch.partitions()


def test_a_queue_that_is_gone_is_lost_data(broker: BrokerProcess) -> None:
    for queue in ("gone.a", "gone.b"):
        publish(broker.url, queue, [b"x"])
    reader = streaming(broker, "gone.*")
    one = reader.latestOffset(reader.initialOffset(), ALL)
    delete(broker, "gone.b")
    with pytest.raises(DataLoss, match=r"'gone.b' has lost data .* no such queue any more"):
        reader.latestOffset(one, ALL)
    tolerant = streaming(broker, "gone.*", failOnDataLoss="false")
    publish(broker.url, "gone.a", [b"y"])
    two = tolerant.latestOffset(one, ALL)
    assert [*two["q"]] == ["gone.a"]
    assert bodies(tolerant, tolerant.partitions(one, two)) == [b"y"]


def test_streams_and_exclusive_queues_are_not_meant(broker: BrokerProcess) -> None:
    publish(broker.url, "kind.a", [b"a"])
    publish(broker.url, "kind.stream", [b"s"], arguments={"x-queue-type": "stream"})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare("kind.own", exclusive=True)
        found = source(broker, "kind.*", startingOffsets=json.dumps({"kind.a": 0}))
        reader = found.reader(found.schema())
        assert isinstance(reader, BatchReader)
        assert bodies(reader, reader.partitions()) == [b"a"]


@pytest.mark.parametrize(
    "options, told",
    [
        ({"queuesPattern": "a("}, "which is no regular expression"),
        ({"queuesPattern": "a.*", "queue": "a"}, "are given"),
        ({"queuesPattern": "a.*", "startingOffsets": '{"b": 1}'}, r"\('b' is not\)"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DefaultSource(options).schema()
