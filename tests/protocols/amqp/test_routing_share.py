"""A connection whose publishes are dear to route does some of them in each turn, in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest

from penstock.core.steps import STEPS_MAX, steps
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker

PATTERNS, WORDS, PUBLISHES = 300, 60, 60


def test_it_routes_for_some_time_in_each_turn_and_all_in_order() -> None:
    chance = random.Random(1)
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    for _ in range(PATTERNS):
        pattern = ".".join(chance.choice("ab*#") for _ in range(WORDS))
        client.call("queue.bind", queue="q", exchange="amq.topic", routing_key=pattern)
    client.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    client.call("confirm.select")
    data = b""
    for number in range(PUBLISHES):
        key = ".".join(chance.choice("ab") for _ in range(100))
        method = codec.method_frame(1, "basic.publish", exchange="amq.topic", routing_key=key)
        data += method + codec.content_frames(1, b"%d" % number, {})
    client.send(data, run=False)
    assert client.session.has_more
    turns = 0
    while client.session.has_more:
        turns += 1
        client.session.go_on(node.now_ms)
    assert turns > 1
    node.turn.fed(client.session)
    node.run()
    confirmed = [fields for name, fields in client.methods() if name == "basic.ack"]
    assert confirmed[-1]["delivery_tag"] == PUBLISHES
    client.consume("q")
    bodies = [body for body in client.bodies() if body]
    assert bodies == [b"%d" % number for number in range(PUBLISHES)]
    node.check()


def turn(node: QuietBroker, client: ClientEnd) -> None:
    node.turn.begin(node.now_ms, node.mono_ms)
    for stage in node.turn.flow.book.take_freed():
        stage.owner.resume(node.now_ms)
    node.turn.run(node.now_ms, True)
    client.session.go_on(node.now_ms)
    node.turn.fed(client.session)
    node.turn.flow.end_turn(node.mono_ms)


@pytest.mark.parametrize("mode", ["confirm", "tx"])
def test_publishes_to_very_many_queues_are_copied_in_shares(mode: str) -> None:
    node = QuietBroker()
    client = node.client()
    for number in range(200):
        client.call("queue.declare", queue=f"q{number}")
        client.call("queue.bind", queue=f"q{number}", exchange="amq.fanout")
    client.call(f"{mode}.select")
    publish = codec.method_frame(1, "basic.publish", exchange="amq.fanout", routing_key="")
    bodies = [b"%d" % number for number in range(1000)]
    client.received = b""
    client.send(b"".join(publish + codec.content_frames(1, one, {}) for one in bodies), run=False)
    if mode == "tx":
        client.send(codec.method_frame(1, "tx.commit"), run=False)
    queue = node.broker.vhosts["/"].queues["q199"]
    before, turns = 0, 0
    while client.session.has_more or client.session.waiting_head or client.session.held_bytes:
        assert queue.backing.ready_count() - before <= 500
        before = queue.backing.ready_count()
        turn(node, client)
        turns += 1
        assert turns < 100
    assert turns > 1
    node.run()
    confirmed = [
        fields for name, fields in client.methods() if name in ("basic.ack", "tx.commit-ok")
    ]
    assert confirmed[-1].get("delivery_tag", 1000) == 1000
    client.consume("q199", no_ack=True)
    assert [body for body in client.bodies() if body] == bodies
    node.check()


@pytest.mark.parametrize("way", ["dead letters", "delayed", "headers"])
def test_what_the_broker_copies_to_very_many_queues_has_the_same_bound(way: str) -> None:
    node = QuietBroker()
    client = node.client()
    for number in range(50):
        client.call("queue.declare", queue=f"q{number}")
        client.call("queue.bind", queue=f"q{number}", exchange="amq.fanout")
    exchange, key, properties = "amq.headers", "", {"headers": {"x": 1}}
    if way == "dead letters":
        letters = {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 100}
        client.call("queue.declare", queue="d", arguments=letters)
        exchange, key = "", "d"
    elif way == "delayed":
        exchange, properties = "x", {"headers": {"x-delay": 100}}
        kind = {"x-delayed-type": "fanout"}
        client.call("exchange.declare", exchange="x", type="x-delayed-message", arguments=kind)
    if key == "":
        client.call("exchange.bind", destination="amq.fanout", source=exchange)
    publish = codec.method_frame(1, "basic.publish", exchange=exchange, routing_key=key)
    data = (publish + codec.content_frames(1, b"m", properties)) * 1000
    took = [steps_of(lambda: client.send(data, run=False))]
    node.now_ms += 200
    queue = node.broker.vhosts["/"].queues["q49"]
    while queue.backing.ready_count() < 1000:
        took.append(steps_of(lambda: turn(node, client)))
        assert len(took) < 100
    assert max(took) < 3 * STEPS_MAX
    assert len(took) > 2


def test_a_publish_that_reaches_too_many_patterns_is_refused() -> None:
    chance = random.Random(1)
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    for _ in range(1500):
        pattern = ".".join(chance.choice("a*##") for _ in range(100))
        where = {"queue": "q", "exchange": "amq.topic", "routing_key": pattern}
        client.send(codec.method_frame(1, "queue.bind", **where, nowait=True))
    client.methods()
    client.publish("amq.topic", ".".join("a" * 127))
    ((name, fields),) = client.methods()
    assert (name, fields["code"]) == ("channel.close", 406)
    assert "too many patterns match a part of the routing key" in fields["text"]
    other = node.client()
    other.call("confirm.select")
    other.publish("amq.topic", "a.b")
    assert [name for name, _ in other.methods()] == ["basic.ack"]
    node.check()


def bind_dear(client: ClientEnd, patterns: int, words: int) -> None:
    """So many nodes of patterns in amq.topic that a key of many words reaches most of them."""
    chance = random.Random(1)
    client.call("queue.declare", queue="q")
    for _ in range(patterns):
        pattern = ".".join(chance.choice("a*##") for _ in range(words))
        where = {"queue": "q", "exchange": "amq.topic", "routing_key": pattern}
        client.send(codec.method_frame(1, "queue.bind", **where, nowait=True))
    assert client.methods() == []


def bind_behind_headers(client: ClientEnd) -> None:
    """What is published to "h" is opened, message by message, and goes on to amq.topic."""
    client.call("exchange.declare", exchange="h", type="headers")
    client.call("exchange.bind", destination="amq.topic", source="h", routing_key="")


def steps_of(do: Callable[[], object]) -> int:
    before = steps.taken
    do()
    return int(steps.taken - before)


def go_on_until_done(node: QuietBroker, client: ClientEnd) -> list[int]:
    """The steps of each turn."""
    took = []
    while client.session.has_more or client.session.waiting_head:
        took.append(steps_of(lambda: client.session.go_on(node.now_ms)))
        assert len(took) < 200
    node.turn.fed(client.session)
    node.run()
    return took


LONG_KEY = ".".join("a" * 100)
ONE_ROUTE: Final = int(STEPS_MAX)
"""The one that is under way when the share of a turn is over."""


@pytest.mark.parametrize("way", ["headers", "CC"])
def test_a_message_that_is_opened_has_the_same_bound(way: str) -> None:
    node = QuietBroker()
    client = node.client()
    bind_dear(client, 1500, 100)
    bind_behind_headers(client)
    if way == "headers":
        took = steps_of(lambda: client.publish("h", LONG_KEY))
    else:
        took = steps_of(lambda: client.publish("amq.topic", "a", headers={"CC": [LONG_KEY] * 20}))
    assert took < 2 * STEPS_MAX
    ((name, fields),) = client.methods()
    assert (name, fields["code"]) == ("channel.close", 406)
    node.check()


@pytest.mark.parametrize("confirms", [False, True], ids=["", "confirms"])
def test_a_run_that_is_opened_is_routed_some_in_each_turn(confirms: bool) -> None:
    node = QuietBroker()
    client = node.client()
    bind_dear(client, 60, 30)
    client.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    bind_behind_headers(client)
    if confirms:
        client.call("confirm.select")
    method = codec.method_frame(1, "basic.publish", exchange="h", routing_key=LONG_KEY)
    data = b"".join(method + codec.content_frames(1, b"%d" % n, {}) for n in range(12))
    first = steps_of(lambda: client.send(data, run=False))
    turns = [first, *go_on_until_done(node, client)]
    assert len(turns) > 2
    assert max(turns) <= STEPS_MAX + ONE_ROUTE
    if confirms:
        acks = [fields for name, fields in client.methods() if name == "basic.ack"]
        assert acks[-1]["delivery_tag"] == 12
    client.consume("q")
    assert [one for one in client.bodies() if one] == [b"%d" % n for n in range(12)]
    assert node.broker.vhost("/").exchanges["h"].traffic.taken == 12
    node.check()


def test_what_is_left_of_a_run_goes_before_what_came_behind_it() -> None:
    node = QuietBroker()
    client = node.client()
    bind_dear(client, 60, 30)
    client.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    bind_behind_headers(client)
    dear = codec.method_frame(1, "basic.publish", exchange="h", routing_key=LONG_KEY)
    plain = codec.method_frame(1, "basic.publish", exchange="", routing_key="q")
    data = b"".join(dear + codec.content_frames(1, b"%d" % n, {}) for n in range(6))
    data += b"".join(plain + codec.content_frames(1, b"%d" % n, {}) for n in range(6, 9))
    data += codec.method_frame(1, "channel.close", code=200, text="", class_id=0, method_id=0)
    client.send(data, run=False)
    go_on_until_done(node, client)
    assert [name for name, _ in client.methods()] == ["channel.close-ok"]
    other = node.client()
    other.consume("q")
    assert [one for one in other.bodies() if one] == [b"%d" % n for n in range(9)]
    assert node.broker.flow.held_bytes == 0
    node.check()


@pytest.mark.parametrize("exchange", ["h", "amq.topic"], ids=["opened", "bound anew meanwhile"])
def test_a_commit_routes_some_in_each_turn(exchange: str) -> None:
    node = QuietBroker()
    client = node.client()
    bind_dear(client, 60, 30)
    bind_behind_headers(client)
    client.call("tx.select")
    for number in range(12):
        key = ".".join("a" for _ in range(90 + number))
        client.publish(exchange, key, b"%d" % number)
        go_on_until_done(node, client)
    assert client.methods() == []
    other = node.client()
    other.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    commit = codec.method_frame(1, "tx.commit")
    turns = [steps_of(lambda: client.send(commit, run=False)), *go_on_until_done(node, client)]
    assert len(turns) > 2
    assert max(turns) <= STEPS_MAX + ONE_ROUTE
    assert [name for name, _ in client.methods()] == ["tx.commit-ok"]
    assert node.engine.ram.uncommitted_bytes == 0
    other.consume("q")
    assert [one for one in other.bodies() if one] == [b"%d" % n for n in range(12)]
    node.check()


def test_a_commit_that_ends_with_its_connection_leaves_nothing_behind() -> None:
    node = QuietBroker()
    client = node.client()
    bind_dear(client, 60, 30)
    bind_behind_headers(client)
    client.call("tx.select")
    for number in range(12):
        client.publish("h", LONG_KEY, b"%d" % number)
    client.send(codec.method_frame(1, "tx.commit"), run=False)
    assert client.session.has_more
    client.lost = True
    client.session.lost(node.now_ms)
    node.run()
    assert node.engine.ram.uncommitted_bytes == 0
    node.check()
