"""Publishing to a queue whose master is on another node, as a client sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.cluster.remote.peer_client import BROKEN, TAKES
from tests.helpers.node_pair import NodePair, confirming, names, ready


@pytest.fixture
def pair() -> Iterator[NodePair]:
    pair = NodePair()
    yield pair
    pair.check()


def test_a_publish_is_confirmed_when_the_other_nodes_disk_has_it(pair: NodePair) -> None:
    pair.remote("q")
    client = confirming(pair)
    pair.there.committer.hold = True
    client.publish("", "q", b"one", delivery_mode=2, run=False)
    client.publish("", "q", b"two", delivery_mode=2)
    assert ready(pair) == 2
    assert names(client) == []
    pair.there.committer.finish()
    pair.run()
    acks = client.methods()
    assert [name for name, _ in acks] == ["basic.ack"]
    assert acks[0][1]["delivery_tag"] == 2
    assert acks[0][1]["multiple"]


def test_a_transient_publish_waits_for_no_disk_but_for_the_answer(pair: NodePair) -> None:
    pair.remote("q")
    client = confirming(pair)
    pair.slow = True
    client.publish("", "q", b"one")
    assert names(client) == []
    pair.slow = False
    pair.run()
    assert names(client) == ["basic.ack"]


def test_confirms_are_in_order_over_queues_here_and_there(pair: NodePair) -> None:
    pair.remote("q")
    client = confirming(pair)
    client.call("queue.declare", queue="local")
    pair.slow = True
    client.publish("", "q")
    client.publish("", "local")
    assert names(client) == []
    pair.slow = False
    pair.run()
    [(name, fields)] = client.methods()
    assert (name, fields["delivery_tag"], fields["multiple"]) == ("basic.ack", 2, True)


def test_a_fan_out_to_a_queue_here_and_one_there(pair: NodePair) -> None:
    remote = pair.remote("q")
    client = confirming(pair)
    client.call("queue.declare", queue="local", durable=True)
    for name in ("local", "q"):
        queue = pair.here.broker.vhosts["/"].queues[name]
        pair.here.broker.vhosts["/"].bind_queue(queue, "amq.fanout", "", {})
    client.publish("amq.fanout", "", b"x" * 10_000, delivery_mode=2)
    assert names(client) == ["basic.ack"]
    assert ready(pair) == 1
    assert remote.statistics.published_count == 1
    assert client.call("queue.declare", queue="local", passive=True)["messages"] == 1


def test_overflow_is_refused_there_and_told_here(pair: NodePair) -> None:
    pair.remote("q", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    client = confirming(pair)
    for number in range(4):
        client.publish("", "q", b"%d" % number, run=False)
    pair.run()
    told = [(name, fields["delivery_tag"]) for name, fields in client.methods()]
    assert ("basic.nack", 3) in told
    assert ("basic.nack", 4) in told
    assert told[-1] == ("basic.ack", 2)
    assert ready(pair) == 2


def test_mandatory_finds_the_queue(pair: NodePair) -> None:
    pair.remote("q")
    client = confirming(pair)
    client.publish("", "q", mandatory=True)
    client.publish("", "nobody", mandatory=True)
    assert names(client) == ["basic.ack", "basic.return", "basic.ack"]


def test_a_commit_is_answered_when_it_is_safe_there(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.call("tx.select")
    client.publish("", "q", b"one", delivery_mode=2)
    assert ready(pair) == 0
    pair.there.committer.hold = True
    client.method(1, "tx.commit")
    assert names(client) == []
    pair.there.committer.finish()
    pair.run()
    assert names(client) == ["tx.commit-ok"]
    assert ready(pair) == 1


def test_a_commit_that_finds_no_room_there_fails(pair: NodePair) -> None:
    pair.remote("q", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    client = pair.here.client()
    client.call("tx.select")
    client.publish("", "q")
    client.publish("", "q")
    client.method(1, "tx.commit")
    [(name, fields)] = client.methods()
    assert name == "channel.close"
    assert fields["text"].endswith("partial tx completion")


def test_publishers_wait_for_a_node_that_does_not_take(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = confirming(pair)
    pair.slow = True
    for _ in range(40):
        client.publish("", "q", b"x" * 300_000, run=False)
    pair.run()
    assert queue.flow is not None
    assert queue.flow.is_blocked()
    assert queue.flow.blocked_by is not None
    assert queue.flow.blocked_by.owner == "there"
    assert client.session.channels[1].intake.has_held()
    assert client.session.reader.is_blocked()
    pair.slow = False
    pair.run()
    assert not queue.flow.is_blocked()
    assert ready(pair) == 40
    assert client.methods()[-1][1]["delivery_tag"] == 40


def test_what_is_published_on_a_broken_link_is_sent_when_it_is_connected(pair: NodePair) -> None:
    pair.remote("q")
    client = confirming(pair)
    link = pair.ends[0].queues.client
    pair.slow = True
    client.publish("", "q", b"0")
    link.connection_is(False)
    for number in (b"1", b"2"):
        client.publish("", "q", number)
    pair.slow = False
    pair.run()
    assert ready(pair) == 1, "only what went before the link broke"
    assert [fields["delivery_tag"] for _, fields in client.methods()] == [1]
    link.connection_is(True)
    client.publish("", "q", b"3")
    assert [fields["delivery_tag"] for _, fields in client.methods()] == [4]
    client.consume("q", no_ack=True)
    assert client.bodies() == [b"0", b"1", b"2", b"3"]


def test_what_is_published_on_a_broken_link_goes_to_the_next_master(pair: NodePair) -> None:
    """It was not sent, so no publisher is told no."""
    queue = pair.remote("q")
    client = confirming(pair)
    pair.slow = True
    client.publish("", "q", b"0")
    pair.ends[0].queues.client.connection_is(False)
    client.publish("", "q", b"1")
    pair.lose_link()
    assert [(name, fields["delivery_tag"]) for name, fields in client.methods()] == [
        ("basic.nack", 1)
    ]
    pair.slow = False
    pair.connect()
    pair.ends[0].queues.client.connection_is(False)
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert names(client) == []
    pair.ends[0].queues.client.connection_is(True)
    pair.run()
    assert names(client) == ["basic.ack"]
    assert ready(pair) == 1


def test_publishers_wait_for_a_broken_link_when_enough_is_held(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = confirming(pair)
    link = pair.ends[0].queues.client
    link.connection_is(False)
    for _ in range(40):
        client.publish("", "q", b"x" * 300_000, run=False)
    pair.run()
    assert queue.flow is not None
    assert queue.flow.is_blocked()
    assert queue.flow.blocked_by is not None
    assert (queue.flow.blocked_by.owner, queue.flow.blocked_by.why) == ("there", BROKEN)
    assert client.session.reader.is_blocked()
    assert ready(pair) == 0
    link.connection_is(True)
    pair.run()
    assert not queue.flow.is_blocked()
    assert queue.flow.blocked_by.why == TAKES
    assert ready(pair) == 40
    assert client.methods()[-1][1]["delivery_tag"] == 40


def test_an_alarm_there_holds_publishers_here(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = confirming(pair)
    pair.there.broker.admission.vhost_reasons["/"] = "low on memory"
    for _ in range(30):
        client.publish("", "q", b"x" * 300_000)
    assert queue.flow is not None
    assert queue.flow.is_blocked()
    assert ready(pair) < 20
    pair.there.broker.admission.vhost_reasons.clear()
    pair.run()
    assert not queue.flow.is_blocked()
    assert ready(pair) == 30


def test_what_is_much_goes_in_several_payloads(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    pair.slow = True
    for _ in range(10):
        client.publish("", "q", b"x" * 300_000)
    sizes = [len(payload) for payload in pair.ends[1].arriving]
    assert len(sizes) > 1
    assert max(sizes) < 2 * 1024 * 1024
    pair.slow = False
    pair.run()
    assert ready(pair) == 10


def test_a_local_random_exchange_takes_only_queues_whose_master_is_here(pair: NodePair) -> None:
    remote = pair.remote("far")
    client = pair.here.client()
    client.call("exchange.declare", exchange="x", type="x-local-random")
    client.call("queue.bind", queue="far", exchange="x", routing_key="")
    client.publish("x", "k", b"one", mandatory=True)
    assert names(client) == ["basic.return"]
    client.call("queue.declare", queue="near")
    client.call("queue.bind", queue="near", exchange="x", routing_key="")
    for _ in range(8):
        client.publish("x", "k", b"two", mandatory=True)
    assert names(client) == []
    assert client.call("queue.declare", queue="near", passive=True)["messages"] == 8
    assert remote.statistics.published_count == 0
