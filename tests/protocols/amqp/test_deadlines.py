"""Deliveries nobody acknowledges: when the channel is closed, and how to have more time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.message import Message
from penstock.protocols.amqp.codec.ledger import DeliveryLedger
from penstock.protocols.amqp.deadlines import Deadlines
from penstock.protocols.amqp.description import open_deliveries
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.raw_codec import Typed

LIMIT_MS = 60_000
TIMED_OUT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used:"
    " 60000 ms. This timeout value can be configured, see consumers doc guide to learn more"
)
"""RabbitMQ 3.10.8's words."""


@pytest.fixture
def node() -> QuietBroker:
    node = QuietBroker()
    node.broker.options = node.broker.options._replace(consumer_timeout_ms=LIMIT_MS)
    return node


def client_with(node: QuietBroker, **arguments: Any) -> ClientEnd:
    client = node.client()
    client.call("queue.declare", queue="q", arguments=arguments)
    for number in range(3):
        client.publish("", "q", b"%d" % number)
    return client


def tick(node: QuietBroker, ms: int) -> None:
    for _ in range(ms // 1000):
        node.tick(1000)


def end(client: ClientEnd) -> tuple[int, str] | None:
    for name, fields in client.methods():
        if name == "channel.close":
            return fields["code"], fields["text"]
    return None


def extend(client: ClientEnd, tags: bytes) -> None:
    client.publish("", "amq.penstock.extend", tags)


def ready(node: QuietBroker) -> int:
    return int(node.broker.vhosts["/"].queues["q"].backing.ready_count())


@pytest.mark.parametrize("how", ["consume", "get"])
def test_the_channel_is_closed_and_others_get_the_messages(node: QuietBroker, how: str) -> None:
    client = client_with(node)
    if how == "get":
        client.call("basic.get", queue="q")
    else:
        client.consume("q")
    tick(node, LIMIT_MS - 2000)
    assert end(client) is None
    tick(node, 4000)
    assert end(client) == (
        406,
        TIMED_OUT,
    )
    assert ready(node) == 3
    node.check()


def test_who_acknowledges_in_time_goes_on(node: QuietBroker) -> None:
    client = client_with(node)
    client.call("basic.qos", prefetch_count=1)
    client.consume("q")
    for tag in (1, 2, 3):
        tick(node, LIMIT_MS - 3000)
        client.method(1, "basic.ack", delivery_tag=tag)
    tick(node, 2 * LIMIT_MS)
    assert end(client) is None


def test_deliveries_without_acknowledgement_have_no_deadline(node: QuietBroker) -> None:
    client = client_with(node)
    client.consume("q", no_ack=True)
    tick(node, 2 * LIMIT_MS)
    assert end(client) is None


@pytest.mark.parametrize("where", ["queue", "consumer"])
def test_queues_and_consumers_say_otherwise(node: QuietBroker, where: str) -> None:
    own = {"x-consumer-timeout": 5000}
    client = client_with(node, **(own if where == "queue" else {}))
    client.consume("q", arguments=own if where == "consumer" else {})
    client.call("basic.cancel", consumer_tag="c")  # what it holds it holds
    tick(node, 8000)
    found = end(client)
    assert found is not None
    assert "Timeout value used: 5000 ms" in found[1]


def test_a_longer_time_than_the_nodes(node: QuietBroker) -> None:
    client = client_with(node, **{"x-consumer-timeout": 3 * LIMIT_MS})
    client.consume("q")
    tick(node, 3 * LIMIT_MS - 2000)
    assert end(client) is None
    tick(node, 4000)
    assert end(client) is not None


def test_a_node_without_a_limit(node: QuietBroker) -> None:
    node.broker.options = node.broker.options._replace(consumer_timeout_ms=0)
    client = client_with(node)
    client.consume("q")
    tick(node, 10 * LIMIT_MS)
    assert end(client) is None


@pytest.mark.parametrize("tags", [b"1,2 3", b"0"])
def test_more_time_for_those_who_ask(node: QuietBroker, tags: bytes) -> None:
    client = client_with(node)
    client.consume("q")
    for _ in range(4):
        tick(node, LIMIT_MS - 3000)
        extend(client, tags)
    assert end(client) is None
    tick(node, LIMIT_MS + 2000)
    assert end(client) is not None


def test_what_was_not_extended_is_overdue_all_the_same(node: QuietBroker) -> None:
    client = client_with(node)
    client.consume("q")
    tick(node, LIMIT_MS - 3000)
    extend(client, b"1, 3")
    tick(node, 5000)
    assert end(client) is not None


@pytest.mark.parametrize(
    "tags, text", [(b"4", "unknown delivery tag 4"), (b"x", "no delivery tag: b'x'")]
)
def test_asking_for_what_is_not_there(node: QuietBroker, tags: bytes, text: str) -> None:
    client = client_with(node)
    client.consume("q")
    extend(client, tags)
    assert end(client) == (406, "PRECONDITION_FAILED - " + text)


def test_asking_is_confirmed_and_not_returned(node: QuietBroker) -> None:
    client = client_with(node)
    client.consume("q")
    client.call("confirm.select")
    client.publish("", "amq.penstock.extend", b"1", mandatory=True)
    assert [name for name, _ in client.methods()] == ["basic.ack"]


@pytest.mark.parametrize("value", [0, -1, "5", True, Typed("l", 315_360_000_001)])
def test_a_timeout_must_be_one(node: QuietBroker, value: object) -> None:
    client = node.client()
    arguments = {"x-consumer-timeout": value}
    client.method(1, "queue.declare", queue="q", arguments=arguments)
    found = end(client)
    assert found is not None
    assert found[0] == 406


@pytest.mark.parametrize("jump_ms", [60 * LIMIT_MS, -60 * LIMIT_MS])
def test_a_jump_of_the_wall_clock_is_not_time_that_passed(node: QuietBroker, jump_ms: int) -> None:
    client = client_with(node)
    client.consume("q")
    tick(node, LIMIT_MS // 2)
    node.now_ms += jump_ms
    tick(node, LIMIT_MS // 2 - 2000)
    assert end(client) is None
    tick(node, 4000)
    assert end(client) == (406, TIMED_OUT)


def test_open_deliveries_are_told_by_the_wall_clock(node: QuietBroker) -> None:
    client = client_with(node)
    client.consume("q")
    given_ms = node.now_ms
    tick(node, 5000)
    first, *_ = open_deliveries(node.broker.vhosts["/"].queues["q"], 10)
    assert abs(first.delivered_ms - given_ms) <= 1000
    assert first.due_ms == first.delivered_ms + LIMIT_MS


def test_a_day_of_deliveries_is_a_day_of_stamps_at_most() -> None:
    """And an old delivery that is kept alive costs a look, not a walk through all of them."""
    ledger = DeliveryLedger()
    deadlines = Deadlines(ledger)
    consumer = Consumer("c", None, OutputWindow(), SharedWindow(), False, 0, False, {})
    consumer.timeout_ms = 10_000
    for second in range(5000):
        deadlines.stamp(second * 1000)
        ledger.add(consumer, [Message(b"", b"", 0, 0) for _ in range(3)])
        ledger.take(3 * second + 2, 3 * second + 3)
        deadlines.extend(b"1", second * 1000)
        if second > 0:
            ledger.take(3 * second + 1, 3 * second + 1)
        assert deadlines.overdue(second * 1000, 0, [consumer]) == 0
    assert len(deadlines._times) <= 5000
    assert deadlines.overdue(5_020_000, 0, [consumer]) == 10_000
    ledger.take_through(ledger.next_tag - 1)
    deadlines.stamp(5_030_000)
    deadlines.stamp(5_040_000)
    assert len(deadlines._times) <= 2
