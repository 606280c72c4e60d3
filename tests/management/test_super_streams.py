"""Super streams over HTTP: what RabbitMQ 4.3.6 makes by these names, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.management.conftest import Served
from tests.management.test_limits import ask, connect

PATH = "/api/stream/super-streams/%2F/"


def put(served: Served, name: str, body: Any) -> tuple[int, str]:
    return ask(served, "PUT", PATH + name, json.dumps(body))


@pytest.fixture
def clean(served: Served) -> Iterator[Served]:
    yield served
    for row in served.get("/api/exchanges/%2F"):
        if row["arguments"].get("x-super-stream"):
            assert ask(served, "DELETE", PATH + row["name"])[0] == 204
    assert not [row for row in served.get("/api/queues") if row["type"] == "stream"]


def bindings(served: Served, name: str) -> list[tuple[str, str, dict[str, Any]]]:
    rows = served.get(f"/api/exchanges/%2F/{name}/bindings/source")
    found = [(row["destination"], row["routing_key"], row["arguments"]) for row in rows]
    return sorted(found, key=lambda one: one[2]["x-stream-partition-order"])


def test_partitions_by_number(clean: Served) -> None:
    assert put(clean, "orders", {"partitions": 3})[0] == 204
    exchange = clean.get("/api/exchanges/%2F/orders")
    assert (exchange["type"], exchange["durable"]) == ("direct", True)
    assert exchange["arguments"] == {"x-super-stream": True}
    names = [f"orders-{number}" for number in range(3)]
    assert bindings(clean, "orders") == [
        (name, str(order), {"x-stream-partition-order": order}) for order, name in enumerate(names)
    ]
    for name in names:
        row = clean.get(f"/api/queues/%2F/{name}")
        assert (row["type"], row["durable"]) == ("stream", True)
        assert row["arguments"] == {"x-queue-type": "stream", "x-queue-leader-locator": "balanced"}


def test_partitions_by_keys_with_arguments(clean: Served) -> None:
    arguments = {"max-age": "1h", "max-length-bytes": "5000", "nosuch": 1}
    body = {"binding-keys": " eu,us , ,", "arguments": arguments}
    assert put(clean, "orders", body)[0] == 204
    assert bindings(clean, "orders") == [
        ("orders-eu", "eu", {"x-stream-partition-order": 0}),
        ("orders-us", "us", {"x-stream-partition-order": 1}),
    ]
    row = clean.get("/api/queues/%2F/orders-us")
    assert row["arguments"] == {
        "x-queue-type": "stream",
        "x-queue-leader-locator": "balanced",
        "x-max-age": "1h",
        "x-max-length-bytes": 5000,
    }


def test_a_message_goes_to_its_partition(clean: Served) -> None:
    assert put(clean, "orders", {"partitions": 2})[0] == 204
    connection = connect(clean)
    channel = connection.channel()
    channel.confirm_delivery()
    for key in ("0", "1", "1"):
        channel.basic_publish("orders", key, b"m", mandatory=True)
    counts = [
        channel.queue_declare(f"orders-{number}", passive=True).method.message_count
        for number in range(2)
    ]
    connection.close()
    assert counts == [1, 2]


@pytest.mark.parametrize(
    "body, reason",
    [
        ({}, "Must specify partitions or binding keys"),
        ({"partitions": 1, "binding-keys": "a"}, "Specify partitions or binding keys, not both"),
        ({"partitions": 0}, "The partition number must be greater than 0"),
        ({"partitions": -1}, "The partition number must be greater than 0"),
        ({"partitions": 1001}, "The partition number must not exceed 1000"),
        ({"partitions": "x"}, "The partitions must be a number"),
        ({"partitions": 1.5}, "The partitions must be a number"),
        ({"binding-keys": ",,"}, "The number of binding keys must be greater than 0"),
        ({"binding-keys": "a,b,a"}, "Duplicate partition names found"),
        ({"partitions": 2, "arguments": {"max-age": "x"}}, "x-max-age"),
    ],
)
def test_what_is_refused_leaves_nothing(clean: Served, body: Any, reason: str) -> None:
    status, answer = put(clean, "refused", body)
    assert (status, reason in answer) == (400, True), answer
    assert ask(clean, "GET", "/api/exchanges/%2F/refused")[0] == 404


def test_names_that_are_taken(clean: Served) -> None:
    clean.declare("taken-1")
    assert put(clean, "amq.topic", {"partitions": 2})[0] == 400
    status, answer = put(clean, "taken", {"partitions": 2})
    assert (status, "there is already a queue named taken-1" in answer) == (400, True)
    assert ask(clean, "GET", "/api/exchanges/%2F/taken")[0] == 404
    assert ask(clean, "GET", "/api/queues/%2F/taken-0")[0] == 404
    assert put(clean, "orders", {"partitions": 1})[0] == 204
    status, answer = put(clean, "orders", {"partitions": 1})
    assert (status, "there is already an exchange named orders" in answer) == (400, True)
    assert ask(clean, "DELETE", "/api/queues/%2F/taken-1")[0] == 204


def test_a_limit_that_is_reached_on_the_way_leaves_nothing(clean: Served) -> None:
    limit = "/api/vhost-limits/%2F/max-queues"
    count = len(clean.get("/api/queues/%2F"))
    assert ask(clean, "PUT", limit, json.dumps({"value": count + 2}))[0] == 204
    try:
        status, answer = put(clean, "many", {"partitions": 5})
        assert status == 400, answer
        assert len(clean.get("/api/queues/%2F")) == count
        assert ask(clean, "GET", "/api/exchanges/%2F/many")[0] == 404
    finally:
        assert ask(clean, "DELETE", limit)[0] == 204


def test_deleting_takes_the_partitions_along(clean: Served) -> None:
    assert put(clean, "orders", {"partitions": 2})[0] == 204
    clean.declare("beside")
    assert ask(clean, "DELETE", PATH + "orders")[0] == 204
    assert ask(clean, "DELETE", PATH + "orders")[0] == 404
    names = {row["name"] for row in clean.get("/api/queues/%2F")}
    assert "beside" in names
    assert not {"orders-0", "orders-1"} & names
    assert ask(clean, "DELETE", "/api/queues/%2F/beside")[0] == 204
