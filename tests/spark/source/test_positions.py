"""Where a reader begins and ends, and several queues at once.  No JVM is started."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyspark  # noqa: F401
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock_ranges.ranges import BROWSE
from pyspark_penstock import DefaultSource, client, planner, stream_source
from pyspark_penstock.source import BatchReader, DataLoss
from pyspark_penstock.stream_source import StreamReader
from tests.spark.range_host import RangeHost

START_MS = 1_700_000_000_000
START = datetime.fromtimestamp(START_MS / 1000, UTC)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeHost]:
    """Queues a, b and c; messages ten milliseconds apart."""
    monkeypatch.setattr(planner, "RETRY_PAUSE_S", 0.02)
    monkeypatch.setattr(planner, "LOCK_PATIENCE_S", 0.2)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with RangeHost() as running:
        for name in "abc":
            running.hall.declare(name)
        yield running


_readers: list[StreamReader] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    while _readers:
        _readers.pop().stop()


def streaming(host: RangeHost, **more: Any) -> StreamReader:
    own = {"url": host.url, "queues": "a,b,c", "pollTimeout": "50ms", "reconnectTimeout": "2s"}
    if "queue" in more:
        del own["queues"]
    given = DefaultSource({name: str(value) for name, value in (own | more).items()})
    reader = given.streamReader(given.schema())
    assert isinstance(reader, StreamReader)
    _readers.append(reader)
    return reader


def batch(host: RangeHost, **more: Any) -> BatchReader:
    own = {"url": host.url, "queue": "a"}
    if "queues" in more:
        del own["queue"]
    given = DefaultSource({name: str(value) for name, value in (own | more).items()})
    reader = given.reader(given.schema())
    assert isinstance(reader, BatchReader)
    return reader


def publish(host: RangeHost, queue: str, count: int, size: int = 10) -> None:
    with host.lock:
        for _ in range(count):
            host.hall.clock_ms += 10
            number = host.hall.queues[queue].backing.records.next_seq_id
            host.hall.publish(queue, [b"%0*d" % (size, number)])


def ready(host: RangeHost, queue: str) -> int:
    with host.lock:
        return int(host.hall.queues[queue].backing.ready_count())


def seqs(offset: dict[str, Any]) -> dict[str, int]:
    return {queue: place["seq"] for queue, place in offset["q"].items()}


def rows(reader: StreamReader | BatchReader, partitions: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in partitions:
        for record_batch in reader.read(partition):
            for row in record_batch.to_pylist():
                assert int(row["body"]) == row["seq_id"]
                found.setdefault(row["queue"], []).append(row["seq_id"])
    return found


# -- several queues --------------------------------------------------------------------------


def test_queues_share_a_batch_fairly_and_keep_their_order(host: RangeHost) -> None:
    publish(host, "a", 100)
    publish(host, "b", 10)
    reader = streaming(host)
    start = reader.initialOffset()
    assert seqs(start) == {"a": 0, "b": 0, "c": 0}
    first = reader.latestOffset(start, ReadMaxRows(40))
    assert seqs(first) == {"a": 30, "b": 10, "c": 0}, "what b does not use goes to a"
    read = rows(reader, reader.partitions(start, first))
    assert read == {"a": list(range(30)), "b": list(range(10))}
    second = reader.latestOffset(first, ReadMaxRows(40))
    assert (ready(host, "a"), ready(host, "b")) == (70, 0)
    assert seqs(second) == {"a": 70, "b": 10, "c": 0}
    assert seqs(reader.latestOffset(second, ReadAllAvailable()))["a"] == 100


def test_bytes_are_shared_too(host: RangeHost) -> None:
    publish(host, "a", 50, size=1000)
    publish(host, "b", 50, size=1000)
    reader = streaming(host, maxBytesPerTrigger="20KiB")
    end = seqs(reader.latestOffset(reader.initialOffset(), ReadMaxRows(1000)))
    assert end["a"] >= 7
    assert end["b"] >= 7
    assert end["a"] + end["b"] <= 20


def test_fewer_messages_than_queues_starve_nobody(host: RangeHost) -> None:
    for queue in "abc":
        publish(host, queue, 2)
    reader = streaming(host)
    offset = reader.initialOffset()
    seen = []
    for _ in range(6):
        following = reader.latestOffset(offset, ReadMaxRows(1))
        seen += [q for q in "abc" if seqs(following)[q] > seqs(offset)[q]]
        offset = following
    assert sorted(seen[:3]) == ["a", "b", "c"]
    assert sorted(seen) == ["a", "a", "b", "b", "c", "c"]


def test_partitions_are_dealt_by_width_and_each_queue_has_one(host: RangeHost) -> None:
    publish(host, "a", 90)
    publish(host, "b", 10)
    reader = streaming(host, minPartitions=10)
    start = reader.initialOffset()
    partitions: list[Any] = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(999)))
    counts = [sum(one.queue == queue for one in partitions) for queue in "abc"]
    assert counts == [9, 1, 0]


def test_news_in_any_queue_end_the_wait(host: RangeHost) -> None:
    import threading
    import time

    reader = streaming(host, pollTimeout="10s")
    start = reader.initialOffset()
    threading.Timer(0.3, publish, (host, "b", 1)).start()
    began_s = time.monotonic()
    assert seqs(reader.latestOffset(start, ReadMaxRows(9))) == {"a": 0, "b": 1, "c": 0}
    assert 0.2 < time.monotonic() - began_s < 5


def test_a_cut_line_during_the_wait_costs_nothing(host: RangeHost) -> None:
    import threading

    reader = streaming(host, pollTimeout="300ms")
    start = reader.initialOffset()
    threading.Timer(0.1, host.drop_connections).start()
    assert reader.latestOffset(start, ReadMaxRows(9)) == start
    publish(host, "c", 1)
    assert seqs(reader.latestOffset(start, ReadMaxRows(9)))["c"] == 1


def test_a_queue_may_be_added_later_but_not_forgotten(host: RangeHost) -> None:
    publish(host, "a", 5)
    publish(host, "b", 5)
    alone = streaming(host, queue="a")
    end = alone.latestOffset(alone.initialOffset(), ReadMaxRows(9))
    alone.stop()
    both = streaming(host, queues="a,b")
    following = both.latestOffset(end, ReadMaxRows(9))
    assert seqs(following) == {"a": 5, "b": 5}
    assert rows(both, both.partitions(end, following)) == {"b": [0, 1, 2, 3, 4]}
    both.stop()
    with pytest.raises(ValueError, match="was it written for another queue"):
        streaming(host, queue="b").latestOffset(following, ReadMaxRows(9))


def test_holes_are_counted_in_the_offsets(host: RangeHost) -> None:
    publish(host, "a", 30)
    with host.lock:
        queue = host.hall.queues["a"]
        taken = queue.backing.fetch(10, 1 << 30)
        queue.backing.ack(taken[3:7])
        queue.backing.requeue(taken[:3] + taken[7:])
    reader = streaming(host)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(5))
    assert first["q"]["a"] == {"inc": "life1", "seq": 9, "holes": 4}
    second = reader.latestOffset(first, ReadMaxRows(5))
    assert second["q"]["a"] == {"inc": "life1", "seq": 14, "holes": 4}
    report = reader.reportLatestOffset()
    assert report is not None
    assert report["q"]["a"] == {"inc": "life1", "seq": 30, "holes": 4}


# -- where it begins -------------------------------------------------------------------------


def test_latest_means_the_same_until_something_is_committed(host: RangeHost) -> None:
    publish(host, "a", 10)
    reader = streaming(host, queue="a", startingOffsets="latest")
    start = reader.initialOffset()
    assert seqs(start) == {"a": 10}
    publish(host, "a", 5)
    reader.stop()
    again = streaming(host, queue="a", startingOffsets="latest")
    assert again.initialOffset() == start, "it was killed before batch 0"
    end = again.latestOffset(start, ReadMaxRows(3))
    assert ready(host, "a") == 15, "nothing is committed, so nothing is acknowledged"
    again.stop()
    third = streaming(host, queue="a", startingOffsets="latest")
    assert third.initialOffset() == start, "it was killed in batch 0"
    assert rows(third, third.partitions(start, end)) == {"a": [10, 11, 12]}
    third.latestOffset(end, ReadMaxRows(3))
    assert ready(host, "a") == 2, "with batch 0 went what it skipped"
    third.stop()
    assert seqs(streaming(host, queue="a", startingOffsets="latest").initialOffset()) == {"a": 15}


def test_who_asked_for_the_wrong_position_asks_for_another(host: RangeHost) -> None:
    publish(host, "a", 10)
    mistyped = streaming(host, queue="a", startingOffsets="latest")
    start = mistyped.initialOffset()
    assert mistyped.latestOffset(start, ReadMaxRows(9)) == start
    mistyped.commit(start)
    assert ready(host, "a") == 10
    mistyped.stop()
    meant = streaming(host, queue="a")
    assert seqs(meant.initialOffset()) == {"a": 0}
    end = meant.latestOffset(meant.initialOffset(), ReadMaxRows(4))
    meant.latestOffset(end, ReadMaxRows(4))
    assert ready(host, "a") == 6


def test_a_stream_begins_at_a_number_or_a_time(host: RangeHost) -> None:
    publish(host, "a", 10)
    publish(host, "b", 10)
    numbered = streaming(host, startingOffsets=json.dumps({"a": 4}))
    assert seqs(numbered.initialOffset()) == {"a": 4, "b": 0, "c": 0}
    numbered.stop()
    timed = streaming(host, startingTimestamp=START_MS + 130)
    assert seqs(timed.initialOffset()) == {"a": 10, "b": 2, "c": 0}
    publish(host, "c", 1)
    timed.stop()
    again = streaming(host, startingTimestamp=START_MS + 130)
    assert seqs(again.initialOffset()) == {"a": 10, "b": 2, "c": 0}
    again.stop()
    with pytest.raises(DataLoss, match="startingOffsets is 11, it holds 0 to 9"):
        streaming(host, startingOffsets=json.dumps({"a": 11})).initialOffset()


def test_what_expired_behind_a_stored_position_is_no_loss(host: RangeHost) -> None:
    publish(host, "a", 10)
    options = {"queue": "a", "startingOffsets": json.dumps({"a": 3})}
    first = streaming(host, **options)
    start = first.initialOffset()
    first.stop()
    with host.lock:
        host.hall.queues["a"].ranges.drop_below(5)
    again = streaming(host, **options)
    assert again.initialOffset() == start
    again.stop()
    wrong = streaming(host, queue="a", startingOffsets=json.dumps({"a": 2}))
    for _ in range(2):
        with pytest.raises(DataLoss, match="startingOffsets is 2, it holds 5 to 9"):
            wrong.initialOffset()
    wrong.stop()
    lenient = {"startingOffsets": json.dumps({"a": 2}), "failOnDataLoss": "false"}
    assert seqs(streaming(host, queue="a", **lenient).initialOffset()) == {"a": 5}


def test_a_stored_position_ends_with_its_queue(host: RangeHost) -> None:
    publish(host, "a", 10)
    reader = streaming(host, queue="a", startingOffsets="latest")
    reader.initialOffset()
    reader.stop()
    with host.lock:
        host.hall.delete("a")
        host.hall.declare("a")
    publish(host, "a", 3)
    again = streaming(host, queue="a", startingOffsets="latest")
    assert seqs(again.initialOffset()) == {"a": 3}


@pytest.mark.parametrize(
    "more,found",
    [
        ({"startingTimestamp": START_MS + 31}, range(3, 10)),
        ({"startingTimestamp": START_MS + 30}, range(2, 10)),
        ({"startingTimestamp": START_MS + 9999}, range(0)),
        ({"startingTimestamp": "2023-11-14T22:13:20.050Z"}, range(4, 10)),
        ({"startingTimestamp": "2023-11-14T22:13:20.050"}, range(4, 10)),
        ({"startingTimestamp": "2023-11-14T23:13:20.050+01:00"}, range(4, 10)),
        ({"endingTimestamp": START_MS + 30}, range(2)),
        ({"startingOffsets": '{"a":5}', "endingTimestamp": START_MS + 80}, range(5, 7)),
        ({"startingTimestamp": 0}, range(10)),
    ],
)
def test_a_batch_read_is_cut_out_by_time(
    host: RangeHost, more: dict[str, Any], found: range
) -> None:
    publish(host, "a", 10)
    reader = batch(host, **more)
    assert rows(reader, reader.partitions()).get("a", []) == list(found)


def test_a_search_by_time_steps_over_holes(host: RangeHost) -> None:
    publish(host, "a", 1000)
    with host.lock:
        queue = host.hall.queues["a"]
        taken = queue.backing.fetch(900, 1 << 30)
        queue.backing.ack(taken[5:895])
        queue.backing.requeue(taken[:5] + taken[895:])
    with client.RangeClient(host.endpoint, "a", BROWSE) as line:
        for wanted in (1, 50, 60, 5000, 8950, 8960, 10_000, 10_001):
            at = line.offset_at(START_MS + wanted, 0, 1000)
            lived = [n for n in (*range(5), *range(895, 1000)) if (n + 1) * 10 >= wanted]
            blocks = line.blocks(at, 1000, 1 << 20, with_body=False)
            assert sum(block.count for block in blocks) == len(lived), wanted


def test_a_batch_read_of_several_queues(host: RangeHost) -> None:
    publish(host, "a", 4)
    publish(host, "c", 3)
    reader = batch(host, queues="c,a,b", minPartitions=3)
    assert rows(reader, reader.partitions()) == {"a": [0, 1, 2, 3], "c": [0, 1, 2]}
    with pytest.raises(ValueError, match="leaves a batch read nothing"):
        batch(host, startingOffsets="latest")


# -- wrong use -------------------------------------------------------------------------------


def test_what_is_refused_says_what_helps(host: RangeHost) -> None:
    with pytest.raises(client.Refused, match="no queue 'd' in vhost '/'; declare it first"):
        streaming(host, queues="a,d").initialOffset()
    with pytest.raises(client.Refused, match="no queue 'd' in vhost '/'; declare it first"):
        batch(host, queue="d").partitions()
    first = streaming(host, queue="a")
    first.initialOffset()
    with pytest.raises(client.Locked, match=r"another pipeline; stop that one, .* takeOver=true"):
        streaming(host, queue="a").initialOffset()
    wrong = host.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(client.Refused, match="correct user and password"):
        batch(host, url=wrong).partitions()
    with pytest.raises(client.Refused, match="correct the virtual host"):
        batch(host, url=host.url.replace("%2f", "nowhere")).partitions()


def test_a_queue_with_consumers_is_not_taken(host: RangeHost) -> None:
    publish(host, "a", 3)
    consumer = Consumer("c", None, OutputWindow(), SharedWindow(), False, 0, False, {})
    with host.lock:
        host.hall.queues["a"].add_consumer(consumer)
    with pytest.raises(client.Locked, match=r"has consumers.*; cancel its consumers, or read"):
        streaming(host, queue="a").initialOffset()
    reader = batch(host)
    assert rows(reader, reader.partitions()) == {"a": [0, 1, 2]}, "looking is allowed"


def test_what_a_user_may_not_read_is_said(host: RangeHost) -> None:
    host.hall.users.users["guest"].vhosts["/"] = (".*", ".*", "^b$")
    with pytest.raises(client.Refused, match=r"'a'.* refused for user 'guest'; have an admin"):
        streaming(host, queue="a").initialOffset()
    with pytest.raises(client.Refused, match=r"'a'.* refused for user 'guest'; have an admin"):
        batch(host).partitions()


def test_an_exclusive_queue_belongs_to_its_connection(host: RangeHost) -> None:
    with host.lock:
        host.hall.queues["a"].owner = object()
    with pytest.raises(client.Locked, match=r"exclusive.*private to the connection"):
        batch(host).partitions()


# -- a batch that waits until it is worth it -------------------------------------------------


def test_a_small_batch_waits_for_more_or_for_its_time(
    host: RangeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = streaming(host, minMessagesPerTrigger=10, maxTriggerDelay="10m", pollTimeout="1ms")
    first = reader.initialOffset()
    publish(host, "a", 6)
    assert reader.latestOffset(first, ReadMaxRows(100)) == first
    publish(host, "b", 3)
    assert reader.latestOffset(first, ReadMaxRows(100)) == first
    publish(host, "c", 1)
    one = reader.latestOffset(first, ReadMaxRows(100))
    assert {queue: place["seq"] for queue, place in one["q"].items()} == {"a": 6, "b": 3, "c": 1}
    publish(host, "a", 1)
    assert reader.latestOffset(one, ReadMaxRows(100)) == one
    now_s = stream_source.time.monotonic()
    monkeypatch.setattr(stream_source.time, "monotonic", lambda: now_s + 601)
    two = reader.latestOffset(one, ReadMaxRows(100))
    assert two["q"]["a"]["seq"] == 7
    publish(host, "a", 1)
    assert reader.latestOffset(two, ReadMaxRows(100)) == two, "the time begins anew"
    assert reader.latestOffset(two, ReadAllAvailable())["q"]["a"]["seq"] == 8


def test_bytes_are_enough_as_well_and_a_run_to_the_end_waits_for_nothing(host: RangeHost) -> None:
    reader = streaming(host, queue="a", minMessagesPerTrigger=100, minBytesPerTrigger=500)
    first = reader.initialOffset()
    publish(host, "a", 2, size=300)
    one = reader.latestOffset(first, ReadMaxRows(100))
    assert one["q"]["a"]["seq"] == 2
    publish(host, "a", 1)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(one, ReadMaxRows(100))["q"]["a"]["seq"] == 3


@pytest.mark.parametrize(
    "options, told",
    [
        ({"minMessagesPerTrigger": 5, "maxMessagesPerTrigger": 4}, "is more than maxMessages"),
        ({"minBytesPerTrigger": "1GiB"}, "is more than maxBytesPerTrigger"),
        ({"maxTriggerDelay": "1m"}, "belongs to minMessagesPerTrigger or minBytesPerTrigger"),
    ],
)
def test_limits_that_contradict_each_other(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DefaultSource({"queue": "a"} | {name: str(one) for name, one in options.items()}).schema()


# -- conditions of a query ------------------------------------------------------------------


@pytest.mark.parametrize(
    "conditions, ranges",
    [
        ([GreaterThanOrEqual(("seq_id",), 4)], [("a", 4, 10), ("b", 4, 5)]),
        ([GreaterThan(("seq_id",), 4), LessThan(("seq_id",), 8)], [("a", 5, 8)]),
        ([EqualTo(("seq_id",), 3)], [("a", 3, 4), ("b", 3, 4)]),
        ([In(("seq_id",), (2, 4))], [("a", 2, 5), ("b", 2, 5)]),
        ([EqualTo(("queue",), "b")], [("b", 0, 5)]),
        ([In(("queue",), ("a", "x")), LessThanOrEqual(("seq_id",), 1)], [("a", 0, 2)]),
        ([EqualTo(("queue",), "x")], []),
        ([GreaterThan(("enqueued_at",), START), Not(EqualTo(("seq_id",), 3))], None),
    ],
)
def test_a_batch_reads_only_what_conditions_leave(
    host: RangeHost, conditions: list[Any], ranges: list[Any] | None
) -> None:
    publish(host, "a", 10)
    publish(host, "b", 5)
    reader = batch(host, queues="a,b")
    assert list(reader.pushFilters(conditions)) == conditions, "Spark checks them again"
    there = [(one.queue, one.start, one.end) for one in reader.partitions()]
    assert there == (ranges if ranges is not None else [("a", 0, 10), ("b", 0, 5)])


def test_spark_takes_the_source_where_it_pushes_no_conditions(host: RangeHost) -> None:
    """It refuses others that could: see plan_data_source_read of pyspark."""
    reader = batch(host)
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    narrowed = [*reader.pushFilters([EqualTo(("queue",), "b")])]
    assert (len(narrowed), pickle.loads(pickle.dumps(reader)).partitions()) == (1, [])
