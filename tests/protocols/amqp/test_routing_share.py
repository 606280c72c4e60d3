"""A connection whose publishes are dear to route does some of them in each turn, in order."""

from __future__ import annotations

import random

from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import QuietBroker

PATTERNS, WORDS, PUBLISHES = 300, 60, 60


def test_it_routes_for_some_time_in_each_turn_and_all_in_order() -> None:
    dice = random.Random(1)
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    for _ in range(PATTERNS):
        pattern = ".".join(dice.choice("ab*#") for _ in range(WORDS))
        client.call("queue.bind", queue="q", exchange="amq.topic", routing_key=pattern)
    client.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    client.call("confirm.select")
    data = b""
    for number in range(PUBLISHES):
        key = ".".join(dice.choice("ab") for _ in range(100))
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


def test_a_publish_that_reaches_too_many_patterns_is_refused() -> None:
    dice = random.Random(1)
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    for _ in range(1500):
        pattern = ".".join(dice.choice("a*##") for _ in range(100))
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
