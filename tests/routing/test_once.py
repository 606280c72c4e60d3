"""Exchanges that let each key through once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.routing.exchanges import Exchange, route
from penstock.routing.matcher import RoutingContext
from tests.helpers.connection_pair import QuietBroker


class Queue:
    name = "q"


def exchange(**arguments: Any) -> Exchange:
    named: dict[str, object] = {f"x-cache-{key}": value for key, value in arguments.items()}
    x = Exchange("/", "x", "x-message-deduplication", False, False, False, named)
    x.bind(Queue(), "", {})
    return x


def passes(x: Exchange, key: object, now_ms: int = 0, **headers: Any) -> bool:
    named: dict[str, object] = {f"x-{name.replace('_', '-')}": headers[name] for name in headers}
    if key is not None:
        named["x-deduplication-header"] = key
    context = RoutingContext(named, now_ms)
    found = route(x, "any", context)
    context.remember()
    return len(found) == 1


def test_a_key_passes_once() -> None:
    x = exchange(size=10)
    assert [passes(x, key) for key in ("a", "b", "a", 1, "1", 1, None, None)] == [
        *(True, True, False, True, True, False, True, True),
    ]


def test_the_oldest_key_is_forgotten_first() -> None:
    x = exchange(size=2)
    for key in ("a", "b", "a", "c"):  # a second "a" makes the key no younger
        passes(x, key)
    assert [passes(x, key) for key in ("b", "c", "a")] == [False, False, True]


def test_routing_alone_leaves_the_key_unknown() -> None:
    x = exchange(size=10)
    question = RoutingContext({"x-deduplication-header": "a"}, 0)
    assert len(route(x, "any", question)) == 1
    assert passes(x, "a")
    duplicate = RoutingContext({"x-deduplication-header": "a"}, 0)
    assert route(x, "any", duplicate) == []
    assert duplicate.passed is None


@pytest.mark.parametrize("own", [False, True])
def test_keys_are_known_for_so_long(own: bool) -> None:
    x = exchange(size=10, ttl=10_000 if own else 1000)
    headers = {"cache_ttl": 1000} if own else {}
    assert passes(x, "a", 0, **headers)
    assert not passes(x, "a", 999)
    assert passes(x, "a", 1000)


def test_through_the_broker() -> None:
    node = QuietBroker()
    client = node.client()
    arguments = {"x-cache-size": 5, "x-cache-ttl": 1000}
    client.call(
        "exchange.declare", exchange="x", type="x-message-deduplication", arguments=arguments
    )
    client.call("queue.declare", queue="q")
    client.call("queue.bind", queue="q", exchange="x")

    def publish() -> None:
        client.publish("x", "", b"m", headers={"x-deduplication-header": "k"}, mandatory=True)

    publish()
    publish()
    assert [name for name, _ in client.methods()] == ["basic.return"]
    node.tick(1000)
    publish()
    assert node.broker.vhosts["/"].queues["q"].backing.ready_count() == 2


def test_what_nobody_took_may_come_again() -> None:
    """Told no by a full queue, or returned: its key is as unknown as before."""
    node = QuietBroker()
    client = node.client()
    kind, arguments = "x-message-deduplication", {"x-cache-size": 5}
    client.call("exchange.declare", exchange="x", type=kind, arguments=arguments)
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    client.call("queue.declare", queue="q", arguments=full)
    client.call("confirm.select")

    def answers(key: str) -> list[str]:
        client.publish("x", "", b"m", headers={"x-deduplication-header": key}, mandatory=True)
        return [name for name, _ in client.methods()]

    assert answers("a") == ["basic.return", "basic.ack"]
    client.call("queue.bind", queue="q", exchange="x")
    assert answers("a") == ["basic.ack"]
    assert answers("b") == ["basic.nack"]
    client.call("queue.purge", queue="q")
    assert answers("b") == ["basic.ack"]
    assert node.broker.vhosts["/"].queues["q"].backing.ready_count() == 1
    assert answers("b") == ["basic.return", "basic.ack"]


@pytest.mark.parametrize(
    "arguments, code",
    [
        ({}, 406),
        ({"x-cache-size": 0}, 406),
        ({"x-cache-size": "5"}, 406),
        ({"x-cache-size": 5, "x-cache-ttl": -1}, 406),
        ({"x-cache-size": 5, "x-cache-persistence": "tape"}, 406),
        ({"x-cache-size": 5, "x-cache-persistence": "disk"}, 540),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], code: int) -> None:
    node = QuietBroker()
    client = node.client()
    client.method(
        1, "exchange.declare", exchange="x", type="x-message-deduplication", arguments=arguments
    )
    assert client.methods()[-1][1]["code"] == code
    assert "x" not in node.broker.vhosts["/"].exchanges
