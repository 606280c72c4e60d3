"""What Spark calls, called by hand: options, offsets, acknowledgements.  No JVM is started."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyspark
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from penstock_ranges.ranges import BROWSE
from pyspark_penstock import DefaultSource, client, planner
from pyspark_penstock.columns import arrow_schema, spark_schema
from pyspark_penstock.options import (
    ARRAY,
    COLUMNS,
    DEFAULT_COLUMNS,
    MAP,
    parse_options,
    parse_url,
)
from pyspark_penstock.source import BatchReader, DataLoss, RangePartition, cut
from pyspark_penstock.stream_source import StreamReader
from tests.spark.range_host import RangeHost


@pytest.fixture
def host() -> Iterator[RangeHost]:
    with RangeHost() as running:
        running.hall.declare("q")
        yield running


_readers: list[StreamReader] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """Spark stops its readers; so do we."""
    yield
    while _readers:
        _readers.pop().stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "RETRY_PAUSE_S", 0.02)
    monkeypatch.setattr(planner, "LOCK_PATIENCE_S", 0.2)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)


def options(host: RangeHost, **more: Any) -> dict[str, str]:
    own = {"url": host.url, "queue": "q", "reconnectTimeout": "2s", "pollTimeout": "50ms"}
    return {name: str(value) for name, value in (own | more).items()}


def streaming(host: RangeHost, **more: Any) -> StreamReader:
    given = DefaultSource(options(host, **more))
    reader = given.streamReader(given.schema())
    assert isinstance(reader, StreamReader)
    _readers.append(reader)
    return reader


def batch(host: RangeHost, **more: Any) -> BatchReader:
    own = options(host, **more)
    own.pop("pollTimeout")
    given = DefaultSource(own)
    reader = given.reader(given.schema())
    assert isinstance(reader, BatchReader)
    return reader


def publish(host: RangeHost, count: int, size: int = 10) -> None:
    with host.lock:
        start = host.hall.queues["q"].backing.records.next_seq_id
        host.hall.publish("q", [b"%0*d" % (size, start + n) for n in range(count)])


def ready(host: RangeHost) -> int:
    with host.lock:
        return int(host.hall.queues["q"].backing.ready_count())


def place(offset: dict[str, Any]) -> int:
    return int(offset["q"]["q"]["seq"])


def offset(**places: tuple[str, int]) -> dict[str, Any]:
    queues = {queue: {"inc": inc, "seq": seq, "holes": 0} for queue, (inc, seq) in places.items()}
    return {"v": 1, "q": queues}


def seq_ids(reader: StreamReader | BatchReader, partitions: list[Any]) -> list[int]:
    copy = pickle.loads(pickle.dumps(reader))
    found: list[int] = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        for record_batch in copy.read(partition):
            found += record_batch.column("seq_id").to_pylist()
    return found


def test_a_table_of_sql_is_refused_with_what_works_instead() -> None:
    """As Spark 4.3 hands it over for CREATE TABLE; a read of the table gets no options at all."""
    given = {"provider": "penstock", "owner": "me", "option.queue": "q", "queue": "q"}
    with pytest.raises(ValueError, match="use CREATE TEMPORARY VIEW"):
        DefaultSource(given).schema()


# -- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given,complaint",
    [
        ({}, "option 'queue' is missing"),
        ({"queue": "q", "failOnDataLos": "false"}, "unknown option 'failondatalos'"),
        ({"queue": "q", "path": "q"}, "load\\(\\) takes no path"),
        ({"queue": "q", "failOnDataLoss": "maybe"}, "'failOnDataLoss' is 'maybe'; it must be true"),
        ({"queue": "q", "maxMessagesPerTrigger": "0"}, "at least 1"),
        ({"queue": "q", "maxBytesPerTrigger": "1 parsec"}, "must be a size"),
        ({"queue": "q", "fetchBytes": "1"}, "from 64KiB to 64MiB"),
        ({"queue": "q", "pollTimeout": "soon"}, "must be a time"),
        ({"queue": "q", "minPartitions": "-1"}, "at least 1"),
        ({"queue": "q", "columns": "seq_id,boddy"}, "give each at most once of seq_id, body"),
        ({"queue": "q", "columns": "body,body"}, "at most once"),
        ({"queue": "q", "columns": "headers", "includeHeaders": "false"}, "forbids them"),
        ({"queue": "q", "headersFormat": "list"}, "must be map or array"),
        ({"queue": "q", "startingOffsets": "first"}, "allowed are 'earliest', 'latest' and"),
        ({"queue": "q", "startingOffsets": '{"other":3}'}, r"queues that are read \('other' is"),
        ({"queue": "q", "startingTimestamp": "noon"}, "such as 2026-11-21T08:30:00Z"),
        ({"queue": "q", "startingTimestamp": "5", "startingOffsets": "latest"}, "not both"),
        ({"queue": "q", "queues": "a,b"}, "'queue' and 'queues' are given; .* exactly one of"),
        ({"queues": "a,,b"}, "names, each once"),
        ({"queues": "a,a"}, "names, each once"),
        ({"exchange": "e"}, "'exchange' needs 'group'"),
        ({"topic": "t"}, "'topic' needs 'channel'"),
        ({"queue": "q", "group": "g"}, "'group' belongs to 'exchange'"),
        ({"exchange": "e", "group": "g", "channel": "c"}, "'channel' belongs to 'topic'"),
        ({"queues": "a,b", "processedBelow": "7"}, "where several queues are read"),
        ({"queue": "q", "endingOffsets": '{"q":true}'}, "allowed are 'latest' and"),
        ({"queue": "q", "url": "http://x"}, "must look like amqp://"),
        ({"queue": "q", "url": "amqps://x?depth=2"}, "unknown parameter 'depth'"),
        ({"queue": "q", "url": "amqps://x?verify=yes"}, "verify_peer or verify_none"),
        ({"queue": "q", "url": "amqps://x", "keyFile": "k"}, "'keyFile' needs 'certFile'"),
        ({"queue": "q", "url": "amqp://x", "caCertFile": "c"}, "'caCertFile' needs .* amqps://"),
        ({"queue": "q", "url": "amqp://x:99999"}, "bad port"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(
    given: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        DefaultSource(given).schema()


@pytest.mark.parametrize("name,value", [("pollTimeout", "1s"), ("maxMessagesPerTrigger", "5")])
def test_options_of_streams_are_refused_in_batch_reads(name: str, value: str) -> None:
    given = DefaultSource({"queue": "q", name: value})
    with pytest.raises(ValueError, match=f"'{name}' is for streams"):
        given.reader(given.schema())


@pytest.mark.parametrize(
    "name,value", [("endingOffsets", '{"q":5}'), ("endingTimestamp", "2026-11-21")]
)
def test_options_of_batch_reads_are_refused_in_streams(name: str, value: str) -> None:
    given = DefaultSource({"queue": "q", name: value})
    with pytest.raises(ValueError, match=name):
        given.streamReader(given.schema())


def test_a_schema_of_the_users_own_is_refused() -> None:
    with pytest.raises(ValueError, match="the schema is fixed"):
        DefaultSource({"queue": "q"}).reader(StructType().add("a", "string"))


def test_options_ignore_case_and_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "amqp://u:p%40ss@broker:5673/team%2fa")
    settings = parse_options({"QUEUE": "q", "FetchBytes": "1MiB", "POLLTIMEOUT": "2s"})
    assert settings.endpoint == parse_url("amqp://u:p%40ss@broker:5673/team%2fa")
    assert (settings.endpoint.user, settings.endpoint.password) == ("u", "p@ss")
    assert (settings.endpoint.port, settings.endpoint.vhost) == (5673, "team/a")
    assert (settings.fetch_bytes, settings.poll_timeout_ms) == (1 << 20, 2000)
    assert settings.columns == DEFAULT_COLUMNS
    assert settings.fail_on_data_loss
    assert "p@ss" not in repr(settings)


def test_options_beat_the_url() -> None:
    settings = parse_options(
        {"queue": "q", "url": "amqp://a:b@h/", "user": "me", "password": "secret"}
    )
    assert (settings.endpoint.user, settings.endpoint.password) == ("me", "secret")
    assert (settings.endpoint.port, settings.endpoint.vhost) == (5672, "/")


def test_the_arrow_schema_is_the_one_spark_compares_with() -> None:
    for kind in (MAP, ARRAY):
        spark = to_arrow_schema(spark_schema(COLUMNS, kind), timezone="UTC")
        assert spark == arrow_schema(COLUMNS, kind)


@pytest.mark.parametrize("start,end,pieces", [(0, 0, 3), (5, 4, 2), (0, 2, 5), (7, 107, 7)])
def test_cut_covers_the_range_once(start: int, end: int, pieces: int) -> None:
    partitions = cut(RangePartition("q", "i", start, end, 1), pieces)
    covered = [seq for p in partitions for seq in range(p.start, p.end)]
    assert covered == list(range(start, end))
    assert len(partitions) == max(0, min(pieces, end - start))
    assert all(p.start < p.end for p in partitions)


# -- batch -----------------------------------------------------------------------------------


def test_a_batch_read_looks_and_leaves_everything(host: RangeHost) -> None:
    publish(host, 100)
    reader = batch(host, minPartitions=7)
    partitions = reader.partitions()
    assert len(partitions) == 7
    assert seq_ids(reader, partitions) == list(range(100))
    assert ready(host) == 100


def test_the_lives_of_a_queue_are_told_apart(host: RangeHost) -> None:
    publish(host, 2)
    asked = {"url": host.url, "queue": "q", "columns": "seq_id,incarnation"}
    given = DefaultSource(asked)
    reader = given.reader(given.schema())
    rows = [
        row for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()
    ]
    with client.RangeClient(parse_url(host.url), "q", BROWSE) as looker:
        life = looker.opened.incarnation
    assert rows == [{"seq_id": n, "incarnation": life} for n in range(2)]


def test_a_batch_read_between_offsets(host: RangeHost) -> None:
    publish(host, 100)
    reader = batch(host, startingOffsets='{"q":10}', endingOffsets='{"q":20}', columns="seq_id")
    assert seq_ids(reader, reader.partitions()) == list(range(10, 20))


def test_an_empty_queue_reads_as_no_rows(host: RangeHost) -> None:
    reader = batch(host)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize("more", [{"startingOffsets": '{"q":3}'}, {"endingOffsets": '{"q":101}'}])
def test_offsets_outside_the_queue_are_data_loss(host: RangeHost, more: dict[str, str]) -> None:
    publish(host, 100)
    with host.lock:
        host.hall.queues["q"].ranges.drop_below(50)
    with pytest.raises(DataLoss, match="queue 'q' holds 50 to 99 now"):
        batch(host, **more).partitions()
    lenient = batch(host, **more, failOnDataLoss="false")
    assert seq_ids(lenient, lenient.partitions()) == list(range(50, 100))


# -- streams ---------------------------------------------------------------------------------


def test_a_stream_acknowledges_what_spark_has_committed(host: RangeHost) -> None:
    """The calls in the order Spark makes them, for batches of 40 out of 100."""
    publish(host, 100)
    reader = streaming(host, maxMessagesPerTrigger=40)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert (place(start), place(first), ready(host)) == (0, 40, 100)
    assert seq_ids(reader, reader.partitions(start, first)) == list(range(40))
    assert ready(host) == 100, "nothing is acknowledged before Spark has committed batch 0"
    second = reader.latestOffset(first, limit)
    assert (place(second), ready(host)) == (80, 60)
    reader.commit(first)
    third = reader.latestOffset(second, limit)
    reader.commit(second)
    assert (place(third), ready(host)) == (100, 20)
    assert reader.latestOffset(third, limit) == third
    assert ready(host) == 0
    reader.stop()


def test_initial_offset_is_the_same_until_batch_0_is_committed(host: RangeHost) -> None:
    publish(host, 10)
    dead = streaming(host)
    start = dead.initialOffset()
    end = dead.latestOffset(start, ReadMaxRows(5))
    seq_ids(dead, dead.partitions(start, end))
    host.drop_connections()
    again = streaming(host)
    assert again.initialOffset() == start
    assert seq_ids(again, again.partitions(start, end)) == list(range(5))


def test_a_restart_goes_on_from_the_checkpoint_and_acknowledges(host: RangeHost) -> None:
    publish(host, 10)
    dead = streaming(host)
    end = dead.latestOffset(dead.initialOffset(), ReadMaxRows(5))
    host.drop_connections()
    again = streaming(host)
    assert place(again.latestOffset(end, ReadMaxRows(100))) == 10
    assert ready(host) == 5


def test_available_now_stops_where_the_queue_ended_at_the_start(host: RangeHost) -> None:
    publish(host, 50)
    reader = streaming(host)
    reader.prepareForTriggerAvailableNow()
    publish(host, 50)
    offset = reader.initialOffset()
    seen = []
    while (following := reader.latestOffset(offset, ReadMaxRows(20))) != offset:
        seen.append(place(following))
        offset = following
    assert seen == [20, 40, 50]
    assert ready(host) == 50


def test_limits_bound_a_batch_by_messages_and_by_bytes(host: RangeHost) -> None:
    publish(host, 100, size=1000)
    reader = streaming(host, maxBytesPerTrigger="20KiB")
    start = reader.initialOffset()
    by_bytes = place(reader.latestOffset(start, ReadMaxRows(90)))
    assert 15 <= by_bytes <= 20
    assert place(reader.latestOffset(start, ReadMaxRows(7))) == 7
    assert place(reader.latestOffset(start, ReadAllAvailable())) == 100


def test_an_idle_stream_waits_in_the_broker_and_sees_news_at_once(host: RangeHost) -> None:
    reader = streaming(host, pollTimeout="10s")
    start = reader.initialOffset()
    threading.Timer(0.3, publish, (host, 1)).start()
    began_s = time.monotonic()
    assert place(reader.latestOffset(start, ReadMaxRows(9))) == 1
    assert 0.2 < time.monotonic() - began_s < 5


def test_an_idle_stream_answers_after_its_poll_timeout(host: RangeHost) -> None:
    reader = streaming(host, pollTimeout="300ms")
    start = reader.initialOffset()
    began_s = time.monotonic()
    assert reader.latestOffset(start, ReadMaxRows(9)) == start
    assert 0.25 < time.monotonic() - began_s < 3


def test_a_gap_in_the_numbers_is_stepped_over(host: RangeHost) -> None:
    """A killed broker begins again far beyond the last number it gave."""
    publish(host, 10)
    with host.lock:
        backing: Any = host.hall.queues["q"].backing
        backing.purge()
        backing.adopt(None, 20_000, False)
    reader = streaming(host)
    publish(host, 3)
    start = {"v": 1, "q": {"q": {"inc": "life1", "seq": 10}}}
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert place(end) == 20_003
    assert seq_ids(reader, reader.partitions(start, end)) == [20_000, 20_001, 20_002]


def test_the_head_is_reported_for_progress(host: RangeHost) -> None:
    reader = streaming(host)
    assert reader.reportLatestOffset() is None
    publish(host, 7)
    reader.initialOffset()
    head = reader.reportLatestOffset()
    assert head is not None
    assert place(head) == 7


# -- trouble ---------------------------------------------------------------------------------


def test_a_cut_line_costs_nothing(host: RangeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.protocols.ranges.reading.BLOCK_MESSAGES_MAX", 10)
    publish(host, 100)
    reader = streaming(host)
    start = reader.initialOffset()
    host.drop_connections()
    end = reader.latestOffset(start, ReadMaxRows(100))
    found: list[int] = []
    for record_batch in reader.read(reader.partitions(start, end)[0]):
        found += record_batch.column("seq_id").to_pylist()
        if len(found) in (20, 50):
            host.drop_connections()
    assert found == list(range(100))
    host.drop_connections()
    assert reader.latestOffset(end, ReadMaxRows(100)) == end
    assert ready(host) == 0


def test_a_broker_that_stays_away_ends_the_query(host: RangeHost) -> None:
    reader = streaming(host, reconnectTimeout="100ms")
    reader.initialOffset()
    host.__exit__()
    with pytest.raises(client.ConnectionLost):
        reader.initialOffset()


def test_a_failing_commit_is_put_off(host: RangeHost, caplog: pytest.LogCaptureFixture) -> None:
    publish(host, 10)
    reader = streaming(host, reconnectTimeout="100ms")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(5))
    host.__exit__()
    reader.commit(end)
    assert "is put off" in caplog.text


def test_a_newer_query_fences_the_older_one(host: RangeHost) -> None:
    publish(host, 10)
    old = streaming(host)
    start = old.initialOffset()
    end = old.latestOffset(start, ReadMaxRows(5))
    partitions = old.partitions(start, end)
    with pytest.raises(client.Locked):
        streaming(host).initialOffset()
    new = streaming(host, takeOver="true")
    new.initialOffset()
    with pytest.raises(client.Fenced):
        seq_ids(old, partitions)
    with pytest.raises(client.Fenced):
        old.latestOffset(end, ReadMaxRows(5))
    assert ready(host) == 10
    assert place(new.latestOffset(start, ReadMaxRows(99))) == 10


def test_a_planner_whose_lease_has_ended_opens_again(host: RangeHost) -> None:
    publish(host, 10)
    reader = streaming(host)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    stale = reader.partitions(start, end)
    host.forget_leases()
    with pytest.raises(client.LeaseGone):
        seq_ids(reader, stale)
    assert seq_ids(reader, reader.partitions(start, end)) == list(range(5))


def test_data_loss_is_said(host: RangeHost) -> None:
    publish(host, 10)
    reader = streaming(host)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    reader.stop()

    other = streaming(host)  # with a checkpoint of its own
    other.latestOffset(other.latestOffset(other.initialOffset(), ReadMaxRows(8)), ReadMaxRows(1))
    other.stop()
    with pytest.raises(DataLoss, match="another reader has acknowledged 5 to 7"):
        streaming(host).latestOffset(end, ReadMaxRows(5))
    informed = streaming(host, processedBelow="8", takeOver="true")
    assert place(informed.latestOffset(end, ReadMaxRows(5))) == 10
    beyond = {"v": 1, "q": {"q": {"inc": "life1", "seq": 11}}}
    with pytest.raises(DataLoss, match="the queue only reaches 10"):
        streaming(host, takeOver="true").latestOffset(beyond, ReadMaxRows(5))
    with host.lock:
        host.hall.delete("q")
        host.hall.declare("q")
    with pytest.raises(DataLoss, match="deleted and declared again"):
        streaming(host).latestOffset(end, ReadMaxRows(5))
    with pytest.raises(DataLoss, match="earlier life"):
        streaming(host, takeOver="true").partitions(start, end)


def test_data_loss_is_survived_when_the_user_says_so(host: RangeHost) -> None:
    publish(host, 10)
    reader = streaming(host)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(5))
    reader.stop()
    with host.lock:
        host.hall.delete("q")
        host.hall.declare("q")
    lenient = streaming(host, failOnDataLoss="false")
    assert lenient.latestOffset(end, ReadMaxRows(5)) == end
    assert lenient.partitions(offset(q=("life1", 0)), end) == []
    publish(host, 3)
    following = lenient.latestOffset(end, ReadMaxRows(5))
    assert following == offset(q=("life2", 3))
    assert seq_ids(lenient, lenient.partitions(end, following)) == [0, 1, 2]


def test_a_checkpoint_of_another_queue_is_refused(host: RangeHost) -> None:
    offset = {"v": 1, "q": {"other": {"inc": "life1", "seq": 1}}}
    with pytest.raises(ValueError, match="was it written for another queue"):
        streaming(host).latestOffset(offset, ReadMaxRows(5))


@pytest.mark.parametrize(
    "version, call, told",
    [
        ("4.0.1", "writer", "messages are written with Spark 4.1 or newer"),
        ("4.0.1", "streamWriter", "and this is 4.0.1; pip install 'pyspark>=4.2,<5'"),
    ],
)
def test_a_spark_that_is_too_old_is_told_the_version_it_needs(
    version: str, call: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    source = DefaultSource({"queue": "q"})
    with pytest.raises(RuntimeError) as refused:
        getattr(source, call)(StructType(), False)
    assert told in str(refused.value)
