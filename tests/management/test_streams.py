"""What the management API says of a stream, and what it refuses."""

from __future__ import annotations

import json
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


def test_its_row(stream: Served) -> None:
    row = stream.get(STREAM)
    assert (row["type"], row["messages"], row["messages_ready"]) == ("stream", 3, 3)
    facts = row["penstock"]
    assert (facts["first_offset"], facts["next_offset"], facts["durable_offset"]) == (0, 3, 3)
    assert facts["segments"] == 1
    assert facts["bytes"] > 100
    (listed,) = [row for row in stream.get("/api/queues") if row["name"] == "s"]
    assert (listed["type"], listed["messages"]) == ("stream", 3)


def test_its_numbers(stream: Served) -> None:
    status, text = ask(stream, "GET", "/metrics/per-object")
    assert status == 200
    assert 'rabbitmq_queue_messages{queue="s",vhost="/"} 3' in text.replace(
        'vhost="/",queue="s"', 'queue="s",vhost="/"'
    )


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
