"""``basic.get`` beside consumers: a message goes to a client that waits before one that polls."""

from __future__ import annotations

import pytest

from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def in_one_go(client: ClientEnd, *parts: bytes) -> list[tuple[str, object]]:
    client.received = b""
    client.send(b"".join(parts))
    return [(name, fields.get("body")) for name, fields in client.methods()]


def published(body: bytes) -> bytes:
    method = codec.method_frame(1, "basic.publish", exchange="", routing_key="q")
    return method + codec.content_frames(1, body, {})


GET = codec.method_frame(1, "basic.get", queue="q", no_ack=True)


def test_a_poller_gets_nothing_that_a_waiting_consumer_has_room_for(node: QuietBroker) -> None:
    consumer, poller = node.client(), node.client()
    consumer.call("queue.declare", queue="q")
    consumer.consume("q")
    assert in_one_go(poller, published(b"1"), GET) == [("basic.get-empty", None)]
    assert consumer.bodies() == [b"1"]
    node.check()


def test_a_poller_gets_what_is_left_when_the_windows_are_full(node: QuietBroker) -> None:
    consumer, poller = node.client(), node.client()
    consumer.call("queue.declare", queue="q")
    consumer.call("basic.qos", prefetch_count=1)
    consumer.consume("q")
    told = in_one_go(poller, published(b"1"), published(b"2"), GET, GET)
    assert told == [("basic.get-ok", b"2"), ("basic.get-empty", None)]
    assert consumer.bodies() == [b"1"]
    node.check()


@pytest.mark.parametrize("prefetch", [1, 4])
def test_a_settlement_lets_the_consumer_go_on_before_a_poll(
    node: QuietBroker, prefetch: int
) -> None:
    """With four, one acknowledgement leaves the window nearly full: its refill can wait."""
    client = node.client()
    client.call("queue.declare", queue="q")
    client.call("basic.qos", prefetch_count=prefetch)
    client.consume("q")
    for number in range(prefetch + 2):
        client.publish("", "q", b"%d" % number)
    ack = codec.method_frame(1, "basic.ack", delivery_tag=1)
    assert sorted(in_one_go(client, ack, GET)) == [
        ("basic.deliver", b"%d" % prefetch),
        ("basic.get-ok", b"%d" % (prefetch + 1)),
    ]
    node.check()


def test_what_is_rejected_goes_to_the_consumer_and_not_to_a_poller(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    client.consume("q")
    client.publish("", "q", b"1")
    back = codec.method_frame(1, "basic.reject", delivery_tag=1, requeue=True)
    assert sorted(in_one_go(client, back, GET)) == [
        ("basic.deliver", b"1"),
        ("basic.get-empty", None),
    ]
    node.check()
