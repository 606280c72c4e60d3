"""What the management API says of a stream, and what it refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.management.conftest import Served
from tests.management.test_limits import ask, connect

STREAM = "/api/queues/%2F/s"
REFUSED = "its messages are read by consumers"


@pytest.fixture(scope="module")
def stream(served: Served) -> Iterator[Served]:
    """With three messages in it."""
    connection = connect(served)
    channel = connection.channel()
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", "s", b"m%d" % number)
    connection.close()
    yield served
    assert ask(served, "DELETE", STREAM)[0] == 204


def scraped(stream: Served, path: str, line: str) -> str:
    """The page of metrics that has this line; a page is made anew after some seconds."""
    deadline = time.monotonic() + 30
    while line not in (text := ask(stream, "GET", path)[1]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert line in text
    return text


def test_its_row(stream: Served) -> None:
    row = stream.get(STREAM)
    assert (row["type"], row["messages"], row["messages_ready"]) == ("stream", 3, 3)
    facts = row["penstock"]
    assert (facts["first_offset"], facts["next_offset"], facts["durable_offset"]) == (0, 3, 3)
    assert facts["segments"] == 1
    assert facts["bytes"] > 100
    (listed,) = [row for row in stream.get("/api/queues") if row["name"] == "s"]
    assert (listed["type"], listed["messages"]) == ("stream", 3)


def test_its_ends_and_what_goes_next(stream: Served) -> None:
    facts = stream.get(STREAM)["penstock"]
    assert 0 < facts["first_ms"] <= facts["last_ms"]
    assert facts["retention"] == {
        "max_bytes": None,
        "max_age_ms": None,
        "segment_bytes": 500_000_000,
        "next": None,
    }
    assert facts["positions"] == []


def test_the_next_step_of_retention(stream: Served) -> None:
    connection = connect(stream)
    channel = connection.channel()
    arguments: dict[str, object] = {
        "x-queue-type": "stream",
        "x-max-age": "1h",
        "x-max-length-bytes": 5000,
        "x-stream-max-segment-size-bytes": 300,
    }
    channel.queue_declare("t", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for number in range(6):
        channel.basic_publish("", "t", b"m%d" % number)
    facts = stream.get("/api/queues/%2F/t")["penstock"]
    step = facts["retention"]["next"]
    assert (facts["retention"]["max_bytes"], facts["retention"]["max_age_ms"]) == (5000, 3_600_000)
    assert 0 < step["messages"] < 6
    assert 0 < step["bytes"] < facts["bytes"]
    assert step["after_bytes"] == 5000 - facts["bytes"]
    assert facts["first_ms"] + 3_600_000 <= step["at_ms"] <= facts["last_ms"] + 3_600_001
    channel.queue_delete("t")
    connection.close()


def test_consumers_and_kept_positions(stream: Served) -> None:
    connection = connect(stream)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=2)
    arguments = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
    got: list[int] = []
    channel.basic_consume(
        "s", lambda _c, method, _p, _b: got.append(method.delivery_tag), False, False, "billing",
        arguments,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while len(got) < 2 and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    (consumer,) = stream.get(STREAM)["consumer_details"]
    facts = consumer["penstock"]
    assert (facts["offset"], facts["lag_messages"], facts["overtaken"]) == (2, 3, 0)
    assert (facts["delivered"], facts["credit"]) == (2, 0)
    row = stream.get(STREAM)
    assert (row["messages"], row["messages_unacknowledged"]) == (3, 2)
    assert facts["lag_ms"] >= 0
    scraped(stream, "/metrics/per-object", 'penstock_stream_lag_messages{vhost="/",queue="s"} 3')
    scraped(stream, "/metrics", "penstock_stream_lag_messages 3")
    channel.basic_ack(1)
    connection.close()
    while time.monotonic() < deadline and stream.get(STREAM)["consumers"] > 0:
        time.sleep(0.05)
    (position,) = stream.get(STREAM)["penstock"]["positions"]
    assert (position["name"], position["offset"], position["lag_messages"]) == ("billing", 1, 2)
    action = json.dumps({"action": "forget_position", "name": "billing"})
    assert ask(stream, "POST", STREAM + "/actions", action)[0] == 204
    assert stream.get(STREAM)["penstock"]["positions"] == []
    assert ask(stream, "POST", STREAM + "/actions", action)[0] == 404


def test_metrics_of_streams_are_of_streams_alone(stream: Served) -> None:
    connection = connect(stream)
    connection.channel().queue_declare("plain", exclusive=True)
    text = scraped(
        stream, "/metrics/per-object", 'rabbitmq_queue_messages{vhost="/",queue="plain"} 0'
    )
    lines = [line for line in text.splitlines() if line.startswith("penstock_stream_")]
    assert len(lines) == 4
    assert all('queue="s"' in line for line in lines)
    connection.close()


def test_its_numbers(stream: Served) -> None:
    scraped(stream, "/metrics/per-object", 'rabbitmq_queue_messages{vhost="/",queue="s"} 3')


@pytest.mark.parametrize(
    "method, path, body, reason",
    [
        ("GET", "/api/penstock/queues/%2F/s/flow", None, REFUSED),
        ("GET", "/api/penstock/queues/%2F/s/storage", None, REFUSED),
        ("GET", STREAM + "/messages", None, REFUSED),
        ("GET", STREAM + "/messages/search?text=m1", None, REFUSED),
        ("DELETE", STREAM + "/contents", None, "queue.purge not supported by stream queues"),
        (
            "POST",
            STREAM + "/get",
            {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
            "basic.get not supported by stream queues",
        ),
        (
            "POST",
            STREAM + "/messages/actions",
            {"action": "requeue", "seq_ids": [0], "priority": 0},
            "",
        ),
    ],
)
def test_what_it_is_not_asked(
    stream: Served, method: str, path: str, body: object, reason: str
) -> None:
    status, answer = ask(stream, method, path, None if body is None else json.dumps(body))
    assert 400 <= status < 500, answer
    assert reason in answer


def test_heaps_are_empty(stream: Served) -> None:
    assert stream.get("/api/penstock/queues/%2F/s/heaps")["name"] == "s"
