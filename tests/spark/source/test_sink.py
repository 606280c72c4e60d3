"""The writers against a real broker, without a JVM: what tasks and the driver do and are told."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pika
import pyarrow as pa
import pyspark  # noqa: F401
import pytest
from pyspark.sql import types as t

from penstock_ranges.staging import DONE, DUPLICATE
from pyspark_penstock import DefaultSource
from pyspark_penstock.client import ConnectionLost, Fenced, Refused
from pyspark_penstock.sink import Identity, Staged, _Writing
from pyspark_penstock.sink_options import parse_sink_options
from pyspark_penstock.staging_client import Blocked, Stager, commit
from tests.helpers.live_broker import LiveBroker
from tests.spark.spark_tools import depth

BODY = t.StructType([t.StructField("body", t.BinaryType())])


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as broker:
        yield broker


@pytest.fixture
def queue(broker: LiveBroker, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    declare(broker, name)
    return name


def declare(broker: LiveBroker, queue: str, **arguments: Any) -> None:
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as line:
        line.channel().queue_declare(queue, durable=True, arguments=arguments)


def drained(broker: LiveBroker, queue: str) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as line:
        channel = line.channel()
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append(body)


def rows(*bodies: bytes) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"body": list(bodies)})


def writing(broker: LiveBroker, **options: str) -> _Writing:
    return _Writing(parse_sink_options({"url": broker.url, **options}))


def test_tasks_stage_and_the_driver_publishes(broker: LiveBroker, queue: str) -> None:
    sink = writing(broker, queue=queue)
    who = Identity("query", "run", 0)
    tasks = [sink._write(who, rows(b"a", b"b")), sink._write(who, rows(b"c"))]
    empty = sink._write(who, iter([]))
    assert empty.sets == []
    assert drained(broker, queue) == []
    sink._commit([*tasks, empty, None])
    sink._commit(tasks)  # Spark died before it knew, and asks again
    assert drained(broker, queue) == [b"a", b"b", b"c"]


def test_a_batch_that_is_committed_is_not_staged_again(broker: LiveBroker, queue: str) -> None:
    sink = writing(broker, queue=queue)
    who = Identity(queue, "run", 4)
    sink._commit([sink._write(who, rows(b"a"))])
    again = sink._write(Identity(queue, "second run", 4), rows(b"a"))
    assert again.sets == []
    sink._commit([again])
    assert drained(broker, queue) == [b"a"]


def test_a_second_attempt_of_a_task_is_harmless(broker: LiveBroker, queue: str) -> None:
    sink = writing(broker, queue=queue)
    who = Identity(queue, "run", 0)
    first, _speculative = sink._write(who, rows(b"a")), sink._write(who, rows(b"a"))
    sink._commit([first])
    assert drained(broker, queue) == [b"a"]
    with Stager(sink._settings) as stager:
        assert stager.abort(_speculative.sets) == 0  # it went with the commit


def test_abort_leaves_what_was_committed(broker: LiveBroker, queue: str) -> None:
    sink = writing(broker, queue=queue)
    done = sink._write(Identity(queue, "run", 0), rows(b"a"))
    sink._commit([done])
    sink._abort([done, None])
    other = sink._write(Identity(queue, "run", 1), rows(b"b"))
    sink._abort([other])
    with pytest.raises(Refused, match="no finished staged set"):
        sink._commit([other])
    assert drained(broker, queue) == [b"a"]


def test_a_driver_believed_dead_is_fenced(broker: LiveBroker, queue: str) -> None:
    sink = writing(broker, queue=queue)
    zombie = sink._write(Identity(queue, "run 1", 0), rows(b"zombie"))
    heir = sink._write(Identity(queue, "run 2", 0), rows(b"heir"))
    with pytest.raises(Fenced, match="was started again elsewhere"):
        sink._commit([zombie])
    with pytest.raises(Fenced):
        sink._write(Identity(queue, "run 1", 1), rows(b"zombie"))
    sink._commit([heir])
    assert drained(broker, queue) == [b"heir"]


def test_at_least_once_is_visible_at_once(broker: LiveBroker, queue: str) -> None:
    sink = writing(broker, queue=queue, delivery="at-least-once")
    done = sink._write(Identity(queue, "run", 0), rows(b"a", b"x" * 2_000_000))
    assert drained(broker, queue) == [b"a", b"x" * 2_000_000]
    sink._commit([done])
    assert done.messages == 2


def test_what_reaches_no_queue_is_counted(
    broker: LiveBroker, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = writing(broker, exchange="amq.topic", routingKey="nobody", mandatory="count")
    sink._commit([sink._write(Identity(queue, "run", 0), rows(b"a", b"b"))])
    assert "2 messages reached no queue" in caplog.text
    sink = writing(broker, exchange="amq.topic", routingKey="nobody")
    with pytest.raises(Refused, match="reach no queue: bind one"):
        sink._write(Identity(queue, "run", 1), rows(b"a"))


def test_a_full_queue_is_named(broker: LiveBroker) -> None:
    declare(broker, "full", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    sink = writing(broker, queue="full", publishTimeout="500ms")
    done = sink._write(Identity("full", "run", 0), rows(b"a", b"b", b"c"))
    with pytest.raises(Blocked, match=r"is committed and will be published.*queue 'full' is full"):
        sink._commit([done])
    sink._abort([done])  # as Spark does: it is decided, and stays
    settings = parse_sink_options({"url": broker.url, "queue": "full"})
    asking = threading.Thread(target=lambda: told.append(commit(settings, "full", "run", 0, [])))
    told: list[Any] = []
    asking.start()
    found: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(found) < 3 and time.monotonic() < deadline:
        found += drained(broker, "full")
    asking.join(20)
    assert found == [b"a", b"b", b"c"]
    assert told[0].outcome == DUPLICATE


def test_a_blocked_broker_says_why() -> None:
    with LiveBroker(arguments=("--disk-free-limit", "1000000GB")) as broker:
        declare(broker, "q")
        sink = writing(broker, queue="q", publishTimeout="300ms")
        with pytest.raises(Blocked, match=r"taken nothing for 0 s: low on disk; make room"):
            sink._write(Identity("p", "run", 0), rows(b"a"))


def test_a_commit_outlives_the_broker() -> None:
    with LiveBroker() as broker:
        declare(broker, "q")
        sink = writing(broker, queue="q", reconnectTimeout="20s")
        done = sink._write(Identity("p", "run", 0), rows(b"a", b"b"))
        broker.kill()
        asking = threading.Thread(
            target=lambda: told.append(commit(sink._settings, "p", "run", 0, done.sets))
        )
        told: list[Any] = []
        asking.start()
        time.sleep(0.5)
        broker.start()
        asking.join(20)
        assert told[0].outcome == DONE
        assert drained(broker, "q") == [b"a", b"b"]


def test_staged_sets_outlive_a_stop_and_a_kill() -> None:
    with LiveBroker() as broker:
        declare(broker, "q")
        sink = writing(broker, queue="q")
        first = sink._write(Identity("p", "run", 0), rows(b"a", b"x" * 10_000))
        broker.stop()
        broker.start()
        second = sink._write(Identity("p", "run", 0), rows(b"b"))
        broker.kill()
        broker.start()
        sink._commit([first, second])
        assert drained(broker, "q") == [b"a", b"x" * 10_000, b"b"]


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"amqp://127.0.0.1:{port}/"
    sink = _Writing(parse_sink_options({"url": url, "queue": "q", "reconnectTimeout": "100ms"}))
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
        sink._write(Identity("p", "run", 0), rows(b"a"))


@pytest.mark.parametrize(
    "options,text",
    [
        ({"queue": "none"}, "there is no queue 'none' in vhost '/': declare it first"),
        ({"exchange": "none"}, "no exchange 'none' in vhost '/'"),
        ({"topic": "none"}, "there is no topic 'none': make it first"),
        ({"exchange": "amq.topic", "routingKey": "k"}, "with routing key 'k' reach no queue"),
    ],
)
def test_wrong_targets_are_found_before_anything_runs(
    broker: LiveBroker, options: dict[str, str], text: str
) -> None:
    given = DefaultSource({"url": broker.url, **options})
    with pytest.raises(ValueError, match=text):
        given.writer(BODY, overwrite=False)
    with pytest.raises(ValueError, match=text):
        given.streamWriter(BODY, overwrite=False)


def test_overwriting_is_refused(broker: LiveBroker) -> None:
    given = DefaultSource({"url": broker.url, "queue": "q"})
    with pytest.raises(ValueError, match="use mode"):
        given.writer(BODY, overwrite=True)
    with pytest.raises(ValueError, match="use outputMode"):
        given.streamWriter(BODY, overwrite=True)


def test_a_message_returned_by_a_task_is_plain() -> None:
    assert Staged("p", "r", 1, ["s"], 2) == Staged("p", "r", 1, ["s"], 2)


def test_an_nsq_topic_is_a_target(broker: LiveBroker) -> None:
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as line:
        channel = line.channel()
        channel.exchange_declare("nsq.orders", "x-nsq-topic", durable=True)
        channel.queue_declare("nsq.orders:archive", durable=True)
        channel.queue_bind("nsq.orders:archive", "nsq.orders")
    sink = writing(broker, topic="orders")
    sink._commit([sink._write(Identity("topic", "run", 0), rows(b"a", b"b"))])
    assert depth(broker.url, "nsq.orders:archive") == 2
    assert drained(broker, "nsq.orders:archive") == [b"a", b"b"]


def test_an_output_mode_that_takes_back_is_refused_with_what_spark_accepts() -> None:
    source = DefaultSource({"queue": "q"})
    with pytest.raises(ValueError, match="foreachBatch and option txnId") as refused:
        source.streamWriter(BODY, overwrite=True)
    assert "update" not in str(refused.value)
