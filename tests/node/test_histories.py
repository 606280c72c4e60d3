"""Exchanges of the type x-recent-history: what they keep is bounded, and survives a crash."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.topology.histories import SLICE_MESSAGES
from tests.helpers.connection_pair import ClientEnd, QuietBroker

TYPE = "x-recent-history"
LENGTH = "x-recent-history-length"
LARGE = b"x" * 20_000


def exchange(client: ClientEnd, length: int, name: str = "x", durable: bool = True) -> None:
    arguments = {LENGTH: length}
    client.call("exchange.declare", exchange=name, type=TYPE, durable=durable, arguments=arguments)


def bound(client: ClientEnd, queue: str, source: str = "x", **more: Any) -> None:
    client.call("queue.declare", queue=queue, **more)
    client.call("queue.bind", queue=queue, exchange=source)


def rest(client: ClientEnd, queue: str) -> list[bytes]:
    count = client.call("queue.declare", queue=queue, passive=True)["messages"]
    return [client.call("basic.get", queue=queue, no_ack=True)["body"] for _ in range(count)]


def after_a_power_cut(node: QuietBroker, definitions: str) -> QuietBroker:
    node.definitions.close()
    node.files.power_cut(random.Random(3))
    return QuietBroker(node.files, definitions)


@pytest.mark.parametrize("body", [b"small", LARGE], ids=["in the index", "in the store"])
def test_persistent_messages_are_there_after_a_power_cut(body: bytes, tmp_path: Path) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = node.client()
    exchange(client, 3)
    bound(client, "old", durable=True)
    client.call("confirm.select")
    for number in range(5):
        client.publish("x", "k", b"%d" % number + body, delivery_mode=2)
    client.publish("x", "k", b"transient", delivery_mode=1)
    node.run()
    node = after_a_power_cut(node, definitions)
    client = node.client()
    bound(client, "new")
    node.run()
    assert rest(client, "new") == [b"3" + body, b"4" + body]
    assert rest(client, "old") == [b"%d" % number + body for number in range(5)]
    node.check()


def test_the_room_holds_no_more_than_its_length() -> None:
    node = QuietBroker()
    client = node.client()
    exchange(client, 2)
    for number in range(50):
        client.publish("x", "k", b"%d" % number)
    node.run()
    (room,) = node.broker.vhosts["/"].internal_queues.queues.values()
    assert room.counts()[0] == 2
    assert node.broker.queue_context.dropped.too_many == 0
    node.check()


def test_a_long_history_takes_several_turns() -> None:
    count = 2 * int(SLICE_MESSAGES) + 7
    node = QuietBroker()
    client = node.client()
    exchange(client, count)
    for number in range(count):
        client.publish("x", "k", b"%d" % number)
    node.run()
    bound(client, "q")
    assert len(node.broker.vhost_maker.histories.waiting) <= 1
    node.run()
    assert len(node.broker.vhost_maker.histories.waiting) == 0
    assert rest(client, "q") == [b"%d" % number for number in range(count)]


def test_a_history_that_goes_meanwhile_ends_what_is_under_way() -> None:
    count = 5 * int(SLICE_MESSAGES)
    node = QuietBroker()
    client = node.client()
    exchange(client, count)
    for number in range(count):
        client.publish("x", "k", b"%d" % number)
    node.run()
    client.method(1, "queue.declare", queue="q")
    client.method(1, "queue.bind", queue="q", exchange="x")
    client.method(1, "exchange.delete", exchange="x")
    node.run()
    assert len(node.broker.vhost_maker.histories.waiting) == 0
    client.method(1, "queue.delete", queue="q")
    node.run()
    assert not node.broker.vhosts["/"].internal_queues.queues
    node.check()


def test_what_a_queue_does_not_take_is_left_out() -> None:
    node = QuietBroker()
    client = node.client()
    exchange(client, 5)
    for number in range(5):
        client.publish("x", "k", b"%d" % number)
    bound(client, "q", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    node.run()
    assert rest(client, "q") == [b"0", b"1"]


def test_a_restored_binding_brings_nothing_again(tmp_path: Path) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = node.client()
    exchange(client, 5)
    bound(client, "q", durable=True)
    client.call("confirm.select")
    client.publish("x", "k", b"one", delivery_mode=2)
    node.run()
    node = after_a_power_cut(node, definitions)
    assert rest(node.client(), "q") == [b"one"]
