"""Readers whose broker is killed and comes back, against a real one.  No JVM is started."""

from __future__ import annotations

import threading
import time
from typing import Any

import pika
import pyspark  # noqa: F401
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_penstock import DefaultSource, client
from pyspark_penstock.stream_source import StreamReader
from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import depth, publish

COUNT = 300


def streaming(broker: BrokerProcess, **more: Any) -> StreamReader:
    own = {"url": broker.url, "reconnectTimeout": "30s", "pollTimeout": "50ms"}
    given = DefaultSource({name: str(value) for name, value in (own | more).items()})
    reader = given.streamReader(given.schema())
    assert isinstance(reader, StreamReader)
    return reader


def restart(broker: BrokerProcess, away_s: float = 0.0) -> None:
    broker.kill()
    time.sleep(away_s)
    broker.start()


def publish_all(broker: BrokerProcess, queue: str, size: int = 10) -> None:
    publish(broker.url, queue, [b"%0*d" % (size, n) for n in range(COUNT)])


def test_a_stream_goes_on_when_its_broker_comes_back(own_broker: BrokerProcess) -> None:
    """Killed while a task reads, while the planner waits, and before an acknowledgement."""
    publish_all(own_broker, "q", size=30_000)
    reader = streaming(own_broker, queue="q", fetchBytes="64KiB")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(COUNT))
    [partition] = reader.partitions(start, end)
    found: list[int] = []
    for number, record_batch in enumerate(reader.read(partition)):
        found += [int(body[-9:]) for body in record_batch.column("body").to_pylist()]
        if number == 5:
            threading.Thread(target=restart, args=(own_broker, 1.0)).start()
    assert found == list(range(COUNT))
    restart(own_broker)
    assert reader.latestOffset(end, ReadMaxRows(9)) == end
    assert depth(own_broker.url, "q") == 0
    reader.stop()


def test_consumers_that_come_back_sooner_find_the_queue_taken(own_broker: BrokerProcess) -> None:
    publish_all(own_broker, "q")
    reader = streaming(own_broker, queue="q")
    reader.initialOffset()
    restart(own_broker)
    connection = pika.BlockingConnection(pika.URLParameters(own_broker.url))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="leased to a reader"):
        connection.channel().basic_consume("q", lambda *_: None)
    connection.close()
    reader.stop()


def test_the_start_is_the_same_after_any_kill(own_broker: BrokerProcess) -> None:
    publish_all(own_broker, "q")
    options = {"queue": "q", "startingOffsets": "latest"}
    first = streaming(own_broker, **options)
    start = first.initialOffset()
    assert start["q"]["q"]["seq"] == COUNT
    restart(own_broker)
    first.stop()
    publish(own_broker.url, "q", [b"new"] * 5)
    again = streaming(own_broker, **options)
    assert again.initialOffset() == start
    end = again.latestOffset(start, ReadMaxRows(2))
    restart(own_broker)
    assert depth(own_broker.url, "q") == COUNT + 5, "nothing is committed yet"
    assert again.initialOffset() == start
    [partition, *_] = again.partitions(start, end)
    [rows] = again.read(partition)
    assert rows.column("body").to_pylist() == [b"new"] * 2
    again.latestOffset(end, ReadMaxRows(2))
    until = time.monotonic() + 10  # what was acknowledged goes in slices
    while depth(own_broker.url, "q") != 3:
        assert time.monotonic() < until
    again.stop()


def test_messages_that_expire_leave_holes(own_broker: BrokerProcess) -> None:
    publish(own_broker.url, "q", [b"%d" % n for n in range(10)])
    publish(own_broker.url, "q", [b"short"] * 7, expiration="2000")
    publish(own_broker.url, "q", [b"%d" % n for n in range(10, 20)])
    reader = streaming(own_broker, queue="q", minPartitions=4)
    start = reader.initialOffset()
    early = reader.latestOffset(start, ReadMaxRows(12))
    assert early["q"]["q"]["seq"] == 12
    time.sleep(2.5)
    found = [
        body
        for partition in reader.partitions(start, early)
        for record_batch in reader.read(partition)
        for body in record_batch.column("body").to_pylist()
        if body != b"short"  # only the first of a queue is looked at for its time
    ]
    assert found == [b"%d" % n for n in range(10)]
    late = reader.latestOffset(early, ReadMaxRows(100))
    time.sleep(0.5)
    following = reader.latestOffset(early, ReadMaxRows(100))
    assert following["q"]["q"]["seq"] == late["q"]["q"]["seq"] == 27
    assert following["q"]["q"]["holes"] == 5
    reader.latestOffset(following, ReadMaxRows(100))
    assert depth(own_broker.url, "q") == 0
    reader.stop()


def test_a_missing_queue_is_said_once_it_is_gone(own_broker: BrokerProcess) -> None:
    publish_all(own_broker, "q")
    reader = streaming(own_broker, queue="q")
    start = reader.initialOffset()
    connection = pika.BlockingConnection(pika.URLParameters(own_broker.url))
    connection.channel().queue_delete("q")
    connection.close()
    with pytest.raises(client.Refused, match=r"'q'.* was deleted; start again when it is"):
        reader.latestOffset(start, ReadMaxRows(9))
    reader.stop()
