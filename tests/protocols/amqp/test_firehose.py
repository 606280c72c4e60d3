"""The firehose around a whole broker: what is copied, to whom, and what it leaves undisturbed.

What copies look like is put to the test beside RabbitMQ, in ``conformance/test_tracing.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import Administration
from tests.helpers.connection_pair import SEGMENT_ENTRIES, ClientEnd, QuietBroker

TRACE = "amq.rabbitmq.trace"


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def trace(node: QuietBroker, *, on: bool = True) -> None:
    Administration(node.broker, SEGMENT_ENTRIES).trace("/", on=on)


def listen(client: ClientEnd, key: str = "#", queue: str = "listening", **fields: Any) -> None:
    client.call("queue.declare", queue=queue, **fields)
    client.call("queue.bind", queue=queue, exchange=TRACE, routing_key=key)


def take(client: ClientEnd, queue: str = "listening") -> list[dict[str, Any]]:
    """All that is in a queue."""
    found: list[dict[str, Any]] = []
    while True:
        client.received = b""
        client.method(1, "basic.get", queue=queue, no_ack=True)
        ((name, fields),) = client.methods()
        if name == "basic.get-empty":
            return found
        found.append(fields)


def keys(copies: list[dict[str, Any]]) -> list[str]:
    return [copy["routing_key"] for copy in copies]


def headers(copy: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = copy["properties"]["headers"]
    return found


def test_nothing_is_copied_before_it_is_switched_on_or_after_it_is_off(node: QuietBroker) -> None:
    client = node.client()
    listen(client)
    client.call("queue.declare", queue="q")
    client.publish("", "q", b"before")
    trace(node)
    client.publish("", "q", b"while")
    trace(node, on=False)
    client.publish("", "q", b"after")
    assert len(take(client, "q")) == 3
    (copy,) = take(client)
    assert (copy["routing_key"], copy["body"]) == ("publish.", b"while")
    node.check()


def test_a_route_found_before_is_traced_too(node: QuietBroker) -> None:
    client, looker = node.client(), node.client()
    listen(looker)
    client.call("queue.declare", queue="q")
    client.consume("q", no_ack=True)
    client.publish("", "q", b"before")
    trace(node)
    client.publish("", "q", b"while")
    assert sorted(keys(take(looker))) == ["deliver.q", "publish."]


def test_other_keys_cost_and_bring_nothing(node: QuietBroker) -> None:
    client = node.client()
    listen(client, "publish.amq.topic")
    client.call("queue.declare", queue="q")
    client.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    trace(node)
    client.publish("", "q", b"1")
    client.publish("amq.topic", "a", b"2")
    take(client, "q")
    (copy,) = take(client)
    assert (copy["body"], headers(copy)["routed_queues"]) == (b"2", ["q"])


def test_copies_go_on_through_exchanges_that_look_into_them(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="guests")
    client.call("exchange.bind", destination="amq.headers", source=TRACE, routing_key="#")
    wanted = {"x-match": "all", "user": "guest", "redelivered": 0}
    client.call("queue.bind", queue="guests", exchange="amq.headers", arguments=wanted)
    client.call("queue.declare", queue="q")
    trace(node)
    client.publish("", "q", b"m")
    take(client, "q")
    assert keys(take(client, "guests")) == ["deliver.q"]


def test_names_as_long_as_keys_may_be(node: QuietBroker) -> None:
    client = node.client()
    listen(client)
    name = "é" * 127
    client.call("queue.declare", queue=name)
    trace(node)
    client.publish("", name, b"m")
    take(client, name)
    published, delivered = take(client)
    assert headers(published)["routed_queues"] == [name]
    assert delivered["routing_key"] == "deliver." + "é" * 123


def test_a_delayed_message_is_copied_when_it_is_published(node: QuietBroker) -> None:
    client = node.client()
    listen(client)
    arguments = {"x-delayed-type": "direct"}
    client.call("exchange.declare", exchange="x", type="x-delayed-message", arguments=arguments)
    client.call("queue.declare", queue="q")
    client.call("queue.bind", queue="q", exchange="x", routing_key="k")
    trace(node)
    client.publish("x", "k", b"m", headers={"x-delay": 1000, "BCC": ["hidden"]})
    (copy,) = take(client)
    assert (headers(copy)["routed_queues"], headers(copy)["routing_keys"]) == ([], ["k", "hidden"])
    assert headers(copy)["properties"]["headers"] == {"x-delay": 1000}
    node.tick(1000)
    assert take(client) == []
    assert len(take(client, "q")) == 1
    assert keys(take(client)) == ["deliver.q"]


def test_looking_on_uses_up_no_deduplication_key(node: QuietBroker) -> None:
    client = node.client()
    listen(client)
    arguments = {"x-cache-size": 10}
    kind = "x-message-deduplication"
    client.call("exchange.declare", exchange="x", type=kind, arguments=arguments)
    client.call("queue.declare", queue="q")
    client.call("queue.bind", queue="q", exchange="x", routing_key="k")
    trace(node)
    for _ in range(2):
        client.publish("x", "k", b"m", headers={"x-deduplication-header": "1"})
    assert [headers(copy)["routed_queues"] for copy in take(client)] == [["q"], []]
    assert len(take(client, "q")) == 1


def test_more_time_may_be_asked_for_while_tracing(node: QuietBroker) -> None:
    client = node.client()
    listen(client)
    client.call("queue.declare", queue="q", arguments={"x-consumer-timeout": 1000})
    client.consume("q")
    client.publish("", "q", b"m")
    trace(node)
    node.tick(900)
    client.publish("", "amq.penstock.extend", b"1")
    node.tick(900)
    assert "channel.close" not in [name for name, _ in client.methods()]
    (copy,) = take(client)
    assert headers(copy)["routing_keys"] == ["amq.penstock.extend"]


def test_a_full_listener_refuses_copies_and_nobody_else_notices(node: QuietBroker) -> None:
    client = node.client()
    listen(client, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.call("queue.declare", queue="q")
    client.call("confirm.select")
    trace(node)
    client.received = b""
    for body in (b"1", b"2", b"3"):
        client.publish("", "q", body, delivery_mode=2)
    assert {name for name, _ in client.methods()} == {"basic.ack"}
    trace(node, on=False)
    assert (len(take(client)), len(take(client, "q"))) == (1, 3)
    node.check()


def test_copies_are_transient_and_outlive_nothing(tmp_path: Path) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = node.client()
    listen(client, durable=True)
    client.call("queue.declare", queue="q", durable=True)
    trace(node)
    client.publish("", "q", b"m", delivery_mode=2)
    client.publish("", "q", b"n", delivery_mode=2)
    client.received = b""
    client.method(1, "basic.get", queue="listening", no_ack=True)
    ((_, copy),) = client.methods()
    assert "delivery_mode" not in copy["properties"]
    assert headers(copy)["properties"] == {"delivery_mode": 2}
    node.tick(300)  # what nobody waits for is synced by now
    node.files.kill()
    after = QuietBroker(node.files, definitions)
    again = after.client()
    assert take(again) == []
    assert [one["body"] for one in take(again, "q")] == [b"m", b"n"]
    after.check()
    node.definitions.close()
    after.definitions.close()


def test_several_at_once_come_in_order_to_each_side(node: QuietBroker) -> None:
    client, looker = node.client(), node.client()
    listen(looker, "publish.#", "published")
    listen(looker, "deliver.#", "delivered")
    client.call("queue.declare", queue="q")
    trace(node)
    bodies = [b"%d" % i for i in range(50)]
    for body in bodies[:-1]:
        client.publish("", "q", body, run=False)
    client.publish("", "q", bodies[-1])
    client.consume("q", no_ack=True)
    assert [copy["body"] for copy in take(looker, "published")] == bodies
    assert [copy["body"] for copy in take(looker, "delivered")] == bodies
    node.check()
