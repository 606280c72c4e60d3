"""Consuming from a queue whose master is on another node, and asking about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.core.errors import PreconditionFailed
from tests.helpers.node_pair import NodePair, names, ready


@pytest.fixture
def pair() -> Iterator[NodePair]:
    pair = NodePair()
    yield pair
    pair.check()


def test_messages_come_with_what_they_had(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"one", content_type="text/x", priority=3)
    client.consume("q", no_ack=True)
    [(_, fields)] = client.methods()
    assert fields["body"] == b"one"
    assert fields["properties"]["content_type"] == "text/x"
    assert fields["routing_key"] == "q"
    assert not fields["redelivered"]


def test_a_window_holds_there(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    for number in range(10):
        client.publish("", "q", b"%d" % number)
    client.call("basic.qos", prefetch_count=3)
    client.consume("q")
    assert client.bodies() == [b"0", b"1", b"2"]
    assert ready(pair) == 7
    client.method(1, "basic.ack", delivery_tag=2, multiple=True)
    pair.tick()  # refills may wait a moment
    assert client.bodies() == [b"3", b"4"]
    assert pair.master("q").unacked_count == 3


def test_what_a_quorum_queue_there_gets_back_waits_for_its_retry(pair: NodePair) -> None:
    """Rejected here, or left by a node that has ended."""
    retry = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000}
    pair.remote("q", **{"x-queue-type": "quorum"}, **retry)
    client = pair.here.client()
    client.publish("", "q", b"one")
    client.consume("q")
    client.method(1, "basic.reject", delivery_tag=1, requeue=True)
    pair.tick(900)
    assert client.bodies() == [b"one"]
    pair.tick(200)
    assert client.bodies() == [b"one"]
    pair.lose_link()
    assert ready(pair) == 0
    pair.tick(1100)
    assert ready(pair) == 1


def test_a_shared_window_holds_over_queues_here_and_there(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.call("queue.declare", queue="local")
    client.method(1, "basic.qos", prefetch_count=2, global_=True)
    for name in ("q", "local"):
        for _ in range(3):
            client.publish("", name, name.encode())
        client.consume(name, tag=name)
    pair.tick()
    assert len([one for one, _ in client.methods() if one == "basic.deliver"]) == 2
    client.method(1, "basic.ack", delivery_tag=0, multiple=True)
    pair.tick()
    assert len(client.methods()) == 2


def test_acks_nacks_and_rejects_reach_the_master(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    for number in range(4):
        client.publish("", "q", b"%d" % number)
    client.call("basic.qos", prefetch_count=4)
    client.consume("q")
    client.methods()
    client.method(1, "basic.ack", delivery_tag=1)
    client.method(1, "basic.reject", delivery_tag=2, requeue=False)
    client.method(1, "basic.nack", delivery_tag=3, requeue=True)
    pair.tick()
    [(_, fields)] = client.methods()
    assert (fields["body"], fields["redelivered"]) == (b"2", True)
    assert pair.master("q").unacked_count == 2
    client.drop()
    assert pair.master("q").unacked_count == 0
    assert ready(pair) == 2


def test_consumers_of_both_nodes_get_their_turn(pair: NodePair) -> None:
    pair.remote("q")
    one, two = pair.here.client(), pair.there.client()
    one.consume("q", no_ack=True)
    two.consume("q", no_ack=True)
    for number in range(10):
        one.publish("", "q", b"%d" % number)
    assert len(one.bodies()) == 5
    assert len(two.bodies()) == 5


def test_a_higher_priority_is_served_first_wherever_it_is(pair: NodePair) -> None:
    pair.remote("q")
    one, two = pair.here.client(), pair.there.client()
    two.consume("q", no_ack=True)
    one.consume("q", no_ack=True, arguments={"x-priority": 5})
    for _ in range(4):
        two.publish("", "q")
    assert len(one.bodies()) == 4
    assert two.bodies() == []


def test_exclusive_use_is_refused_from_the_other_node(pair: NodePair) -> None:
    pair.remote("q")
    one, two = pair.there.client(), pair.here.client()
    one.consume("q", exclusive=True)
    two.method(1, "basic.consume", queue="q", consumer_tag="c")
    [(name, fields)] = two.methods()
    assert name == "channel.close"
    assert fields["text"] == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def test_a_single_active_consumer_is_one_of_both_nodes(pair: NodePair) -> None:
    pair.remote("q", **{"x-single-active-consumer": True})
    one, two = pair.here.client(), pair.there.client()
    one.consume("q", no_ack=True)
    two.consume("q", no_ack=True)
    two.publish("", "q", b"first")
    assert (one.bodies(), two.bodies()) == ([b"first"], [])
    one.call("basic.cancel", consumer_tag="c")
    two.publish("", "q", b"second")
    assert two.bodies() == [b"second"]


def test_a_client_that_does_not_read_holds_up_nobody_else(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.blocked = True
    client.consume("q", no_ack=True)
    for _ in range(40):
        client.publish("", "q", b"x" * 100_000)
    assert ready(pair) > 10  # they stay at the master
    client.blocked = False
    pair.run()
    assert len(client.bodies()) == 40
    assert ready(pair) == 0


def test_what_has_arrived_for_who_cancels_goes_back(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.consume("q")
    pair.slow = True
    pair.there.client().publish("", "q", b"one")
    client.method(1, "basic.cancel", consumer_tag="c")
    pair.slow = False
    pair.run()
    assert names(client) == ["basic.cancel-ok"]
    assert ready(pair) == 1
    assert pair.master("q").unacked_count == 0
    assert not pair.master("q").consumers


# -- asking ----------------------------------------------------------------------------------


def test_get_takes_one_and_says_how_many_are_left(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.method(1, "basic.get", queue="q")
    assert names(client) == ["basic.get-empty"]
    client.publish("", "q", b"one")
    client.publish("", "q", b"two")
    client.method(1, "basic.get", queue="q")
    [(name, fields)] = client.methods()
    assert (name, fields["body"], fields["messages"]) == ("basic.get-ok", b"one", 1)
    client.method(1, "basic.ack", delivery_tag=1)
    assert pair.master("q").unacked_count == 0
    client.method(1, "basic.get", queue="q", no_ack=True)
    assert client.bodies() == [b"two"]
    assert ready(pair) == 0


def test_what_comes_behind_a_question_waits_for_its_answer(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"one")
    pair.slow = True
    client.method(1, "basic.get", queue="q")
    client.method(1, "basic.qos", prefetch_count=1)
    assert names(client) == []
    pair.slow = False
    pair.run()
    assert names(client) == ["basic.get-ok", "basic.qos-ok"]


def test_a_message_got_for_who_has_left_goes_back(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"one")
    pair.slow = True
    client.method(1, "basic.get", queue="q")
    client.drop()
    pair.slow = False
    pair.run()
    assert ready(pair) == 1
    assert pair.master("q").unacked_count == 0


@pytest.mark.parametrize("verb", ["get", "consume"])
def test_what_a_channel_asked_for_that_ended_meanwhile_is_taken_back(
    pair: NodePair, verb: str
) -> None:
    """A deadline of the channel may end it; its connection lasts."""
    pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"one")
    pair.slow = True
    client.method(1, f"basic.{verb}", queue="q")
    client.session.channel_failed(1, PreconditionFailed("timeout"), 0)
    pair.slow = False
    pair.run()
    assert ready(pair) == 1
    assert pair.master("q").unacked_count == 0
    assert not pair.master("q").consumers


def test_who_leaves_before_it_consumes_is_no_consumer(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    pair.slow = True
    client.consume("q")
    client.drop()
    pair.slow = False
    pair.run()
    assert not pair.master("q").consumers


def test_declaring_tells_the_masters_counts(pair: NodePair) -> None:
    pair.remote("q")
    one, two = pair.here.client(), pair.there.client()
    two.publish("", "q")
    two.publish("", "q")
    counts = one.call("queue.declare", queue="q", passive=True)
    assert (counts["messages"], counts["consumers"]) == (2, 0)
    assert one.call("queue.declare", queue="q", durable=True)["messages"] == 2


def test_purge_and_conditions_of_delete(pair: NodePair) -> None:
    """It is the cluster that deletes a queue, with the count that its master tells."""
    pair.remote("q")
    client = pair.here.client()
    client.publish("", "q")
    client.publish("", "q")
    assert client.call("queue.purge", queue="q")["messages"] == 2
    client.publish("", "q")
    client.method(1, "queue.delete", queue="q", if_empty=True)
    [(name, fields)] = client.methods()
    assert (name, fields["text"]) == (
        "channel.close",
        "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty",
    )
    other = pair.here.client()
    assert other.call("queue.delete", queue="q")["messages"] == 1


def test_consumers_hear_that_their_queue_is_gone(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.consume("q")
    pair.there.client().call("queue.delete", queue="q")
    assert names(client) == ["basic.cancel"]


def test_what_is_reported_is_what_the_master_has(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = pair.here.client()
    for _ in range(3):
        client.publish("", "q", b"x")
    client.call("basic.qos", prefetch_count=1)
    client.consume("q")
    pair.tick()
    assert queue.backing.ready_count() == 2
    assert (queue.unacked_anywhere(), queue.consumers_anywhere()) == (1, 1)
