"""A queue whose master is on another node, when that is lost, or moves; and letters to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.topology.declaring import check_deletable
from penstock.cluster.remote.queue import RemoteQueue
from penstock.cluster.remote.queue_places import take_place
from penstock.core import queue_requests as q
from penstock.core.clock_types import WallMs
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.pending import AGAIN, Pending
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from tests.helpers.node_pair import NodePair, confirming, names, ready
from tests.helpers.queues import identity


@pytest.fixture
def pair() -> Iterator[NodePair]:
    pair = NodePair()
    yield pair
    pair.check()


# -- letters ---------------------------------------------------------------------------------


def letters_to(pair: NodePair, target: str) -> Any:
    client = pair.here.client()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    client.call("queue.declare", queue="source", durable=True, arguments=arguments)
    return client


def test_a_dead_letter_is_settled_when_it_is_safe_there(pair: NodePair) -> None:
    pair.remote("q")
    client = letters_to(pair, "q")
    client.publish("", "source", b"one", delivery_mode=2)
    client.consume("source")
    pair.slow = True
    client.method(1, "basic.reject", delivery_tag=1, requeue=False)
    source = pair.here.broker.vhosts["/"].queues["source"]
    assert source.backing.tiers.pending.count == 1  # type: ignore[attr-defined]
    pair.slow = False
    pair.run()
    assert source.backing.tiers.pending.count == 0  # type: ignore[attr-defined]
    assert ready(pair) == 1


def test_what_dies_there_is_buried_by_the_master(pair: NodePair) -> None:
    there = pair.there.client()
    there.call("queue.declare", queue="grave")
    pair.remote("q", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"})
    client = pair.here.client()
    client.publish("", "q", b"one")
    client.consume("q")
    client.method(1, "basic.reject", delivery_tag=1, requeue=False)
    assert ready(pair, "grave") == 1


# -- losing ----------------------------------------------------------------------------------


def test_what_was_not_answered_is_told_no_when_the_master_is_lost(pair: NodePair) -> None:
    pair.remote("q")
    client = confirming(pair)
    pair.slow = True
    client.publish("", "q", b"one")
    pair.lose_link()
    [(name, fields)] = client.methods()
    assert (name, fields["delivery_tag"]) == ("basic.nack", 1)


def test_what_was_published_without_a_master_goes_to_the_next(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = confirming(pair)
    pair.lose_link()
    client.publish("", "q", b"one")
    assert names(client) == []
    pair.slow = False
    pair.connect()
    assert queue.follow(pair.ends[0].queues.client) == []
    pair.run()
    assert names(client) == ["basic.ack"]
    assert ready(pair) == 1


def test_a_letter_under_way_is_sent_again(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = letters_to(pair, "q")
    client.publish("", "source", b"one", delivery_mode=2)
    client.consume("source")
    pair.slow = True
    client.method(1, "basic.reject", delivery_tag=1, requeue=False)
    pair.lose_link()
    pair.slow = False
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert ready(pair) == 1
    source = pair.here.broker.vhosts["/"].queues["source"]
    assert source.backing.tiers.pending.count == 0  # type: ignore[attr-defined]


def test_consumers_stay_over_a_change_of_masters_and_old_tags_mean_nothing(
    pair: NodePair,
) -> None:
    queue = pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"one")
    client.consume("q")
    assert client.bodies() == [b"one"]
    pair.lose_link()
    assert ready(pair) == 1
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    [(name, fields)] = client.methods()
    assert (name, fields["body"], fields["redelivered"]) == ("basic.deliver", b"one", True)
    client.method(1, "basic.ack", delivery_tag=1)  # of the master that was lost
    assert pair.master("q").unacked_count == 1
    client.method(1, "basic.ack", delivery_tag=2)
    assert pair.master("q").unacked_count == 0
    assert ready(pair) == 0


def test_who_asked_to_be_cancelled_is(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = pair.here.client()
    client.consume("q", arguments={"x-cancel-on-ha-failover": True})
    pair.lose_link()
    pair.connect()
    cancelled = queue.follow(pair.ends[0].queues.client)
    pair.here.turn.cancelled(cancelled)
    pair.run()
    assert names(client) == ["basic.cancel"]
    assert not pair.master("q").consumers


def test_a_question_under_way_is_asked_of_the_next_master(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"one")
    pair.slow = True
    client.method(1, "basic.get", queue="q")
    pair.lose_link()
    assert names(client) == []
    pair.slow = False
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert client.bodies() == [b"one"]


def test_a_queue_that_is_down_says_so(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = confirming(pair)
    pair.lose_link()
    client.publish("", "q", b"one")
    asking = pair.here.client()
    asking.method(1, "basic.get", queue="q")
    queue.give_up("home node 'there' of durable queue 'q' in vhost '/' is down or inaccessible")
    pair.run()
    assert names(client) == ["basic.nack"]
    [(name, fields)] = asking.methods()
    assert name == "channel.close"
    assert fields["code"] == 404
    client.publish("", "q", b"two")
    assert names(client) == ["basic.nack"]


AWAY = "node 'here' does not reach 'there', the master of queue 'q' in vhost '/': ask another node"


def cut(pair: NodePair) -> RemoteQueue:
    """As its node does it when the master's lives, and is not reached."""
    queue = pair.here.broker.vhosts["/"].queues["q"]
    assert isinstance(queue, RemoteQueue)
    queue.unfollow()
    queue.give_up(AWAY, elsewhere=True)
    pair.here.turn.send_away(list(queue.consumers), AWAY)
    pair.run()
    return queue


def told_to_go(client: Any) -> bool:
    [(name, fields)] = client.methods()
    code, text = fields.get("code"), fields.get("text")
    return (name, code, text) == ("connection.close", 541, f"INTERNAL_ERROR - {AWAY}")


def test_clients_are_sent_to_another_node_when_this_one_does_not_reach_the_master(
    pair: NodePair,
) -> None:
    pair.remote("q")
    publisher, blind, transacting = confirming(pair), pair.here.client(), pair.here.client()
    consumer, asking = pair.here.client(), pair.here.client()
    transacting.call("tx.select")
    consumer.consume("q")
    pair.slow = True
    publisher.publish("", "q", b"one")
    asking.method(1, "basic.get", queue="q")
    cut(pair)
    assert names(publisher) == ["basic.nack"], "what was under way may have arrived"
    assert told_to_go(consumer)
    assert told_to_go(asking)
    publisher.publish("", "q", b"two")
    assert told_to_go(publisher)
    blind.publish("", "q", b"three")
    assert told_to_go(blind)
    transacting.publish("", "q", b"four")
    transacting.method(1, "tx.commit")
    assert told_to_go(transacting)
    for verb in ("queue.declare", "basic.consume", "queue.purge"):
        late = pair.here.client()
        late.method(1, verb, queue="q", **({"durable": True} if verb == "queue.declare" else {}))
        assert told_to_go(late), verb


def test_letters_stay_and_all_goes_on_when_the_master_is_reached_again(pair: NodePair) -> None:
    pair.remote("q")
    client = letters_to(pair, "q")
    queue = cut(pair)
    client.publish("", "source", b"one", delivery_mode=2)
    client.consume("source")
    client.method(1, "basic.reject", delivery_tag=1, requeue=False)
    source = pair.here.broker.vhosts["/"].queues["source"]
    assert source.backing.tiers.pending.count == 1  # type: ignore[attr-defined]
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert source.backing.tiers.pending.count == 0  # type: ignore[attr-defined]
    again = confirming(pair)
    again.publish("", "q", b"two")
    assert names(again) == ["basic.ack"]
    assert ready(pair) == 2


def delete(pair: NodePair, **fields: Any) -> Any:
    """In a cluster, where the node that is asked checks."""
    vhost = pair.here.broker.vhosts["/"]
    return check_deletable(
        vhost, vhost.queues["q"], **{"if_unused": False, "if_empty": False} | fields
    )


def test_a_queue_that_is_down_cannot_be_deleted_unless_it_has_copies_that_may_not_lead(
    pair: NodePair,
) -> None:
    """As RabbitMQ 3.10 does both; the first of them goes when its node is forgotten."""
    queue = pair.remote("q")
    pair.lose_link()
    queue.give_up("it is down")
    with pytest.raises(NotFound, match="it is down"):
        delete(pair)
    queue.give_up("it is down", no_mirror=True)
    assert delete(pair) == 0
    assert delete(pair, if_unused=True) == 0
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' not empty"):
        delete(pair, if_empty=True)
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    assert isinstance(delete(pair), Pending)


def test_a_letter_to_a_queue_that_is_down_waits_for_it(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = letters_to(pair, "q")
    pair.lose_link()
    queue.give_up("it is down")
    client.publish("", "source", b"one", delivery_mode=2)
    client.consume("source")
    client.method(1, "basic.reject", delivery_tag=1, requeue=False)
    source = pair.here.broker.vhosts["/"].queues["source"]
    assert source.backing.tiers.pending.count == 1  # type: ignore[attr-defined]
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert source.backing.tiers.pending.count == 0  # type: ignore[attr-defined]
    assert ready(pair) == 1


def test_publishers_wait_while_nobody_knows_the_master(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = confirming(pair)
    pair.lose_link()
    for _ in range(40):
        client.publish("", "q", b"x" * 300_000)
    assert queue.flow is not None
    assert queue.flow.is_blocked()
    assert client.session.channels[1].intake.has_held()
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert ready(pair) == 40
    assert client.methods()[-1][1]["delivery_tag"] == 40


def test_a_link_that_is_gone_already_is_not_followed(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = confirming(pair)
    gone = pair.ends[0].queues.client
    pair.lose_link()
    assert queue.follow(gone) == []
    client.publish("", "q", b"one")
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert names(client) == ["basic.ack"]


def test_the_master_puts_back_what_a_lost_node_held(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"one")
    client.publish("", "q", b"two")
    client.consume("q")
    client.method(1, "basic.get", queue="q")
    pair.lose_link()
    assert ready(pair) == 2
    assert not pair.master("q").consumers
    assert pair.master("q").unacked_count == 0


def test_a_queue_that_is_not_there_leaves_its_requests_waiting(pair: NodePair) -> None:
    queue = pair.known_here("q", True, {})
    queue.follow(pair.ends[0].queues.client)
    client = confirming(pair)
    client.publish("", "q", b"one")
    assert queue.way is None
    pair.there.broker.vhosts["/"].declare_queue("q", True, None, False, {})
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert names(client) == ["basic.ack"], "nobody had taken it"
    assert ready(pair) == 1


# -- the master moves ------------------------------------------------------------------------


def local_queue(pair: NodePair, name: str = "q") -> Any:
    """A queue of that name, not yet known to anybody here."""
    vhost = pair.here.broker.vhosts["/"]
    who = identity(name, durable=True, incarnation=pair.here.new_name("life"))
    return vhost._maker.make(0, False, who)


def test_the_master_comes_here(pair: NodePair) -> None:
    remote = pair.remote("q")
    client = confirming(pair)
    pair.here.broker.vhosts["/"].bind_queue(remote, "amq.topic", "a.*", {})
    client.publish("amq.topic", "a.b", b"one")
    client.consume("q")
    assert [name for name, _ in client.methods()] == ["basic.ack", "basic.deliver"]
    pair.slow = True
    client.publish("amq.topic", "a.b", b"sent")  # and never answered
    pair.lose_link()
    client.publish("amq.topic", "a.b", b"held")
    queue = local_queue(pair)
    consumers = take_place(pair.here.broker, remote, queue, pair.here.now_ms)
    pair.here.turn.moved(consumers, queue)
    pair.run()
    told = [(name, fields.get("delivery_tag")) for name, fields in client.methods()]
    assert ("basic.nack", 2) in told
    assert ("basic.ack", 3) in told
    assert ("basic.deliver", 2) in told  # what was held
    assert len(told) == 3
    client.method(1, "basic.ack", delivery_tag=1)  # of the old master
    assert queue.unacked_count == 1
    client.publish("amq.topic", "a.c", b"new")
    assert client.bodies() == [b"", b"new"]
    client.method(1, "basic.ack", delivery_tag=0, multiple=True)
    assert queue.unacked_count == 0
    assert remote.unacked_count == 0


def test_the_master_goes_there(pair: NodePair) -> None:
    client = pair.here.client()
    client.call("queue.declare", queue="q", durable=True)
    client.publish("", "q", b"old")
    client.consume("q")
    assert client.bodies() == [b"old"]
    old = pair.here.broker.vhosts["/"].queues["q"]
    there = pair.there.broker.vhosts["/"]
    there.declare_queue("q", True, None, False, {})
    remote = pair.made_here("q", True, {})
    consumers = take_place(pair.here.broker, old, remote, pair.here.now_ms)
    pair.here.turn.moved(consumers, remote)
    remote.follow(pair.ends[0].queues.client)
    pair.run()
    client.publish("", "q", b"new")
    assert client.bodies() == [b"new"]
    client.method(1, "basic.ack", delivery_tag=1)  # of the time when it was here
    assert pair.master("q").unacked_count == 1
    client.method(1, "basic.ack", delivery_tag=2)
    assert pair.master("q").unacked_count == 0


def test_the_other_node_hears_that_the_master_is_not_here_any_more(pair: NodePair) -> None:
    remote = pair.remote("q")
    client = pair.here.client()
    client.consume("q")
    broker = pair.there.broker
    old = pair.master("q")
    who = identity("q", durable=True, incarnation="life-there")
    new = RemoteQueue(who, broker.queue_context)
    consumers = take_place(broker, old, new, pair.there.now_ms)
    pair.there.turn.moved(consumers, new)
    pair.run()
    assert remote.way is None
    assert names(client) == []  # it waits for the next master


def test_a_large_content_that_the_store_has_let_go_of_is_stored_anew(pair: NodePair) -> None:
    client = confirming(pair)
    client.call("queue.declare", queue="local", durable=True)
    remote = pair.known_here("q", True, {})
    vhost = pair.here.broker.vhosts["/"]
    for name in ("local", "q"):
        vhost.bind_queue(vhost.queues[name], "amq.fanout", "", {})
    client.publish("amq.fanout", "", b"x" * 20_000, delivery_mode=2)
    client.consume("local")
    client.method(1, "basic.ack", delivery_tag=1)
    pair.tick()
    client.methods()
    who = identity("q", durable=True, incarnation=pair.here.new_name("life"))
    queue = vhost._maker.make(77, True, who)
    pair.here.turn.moved(take_place(pair.here.broker, remote, queue, pair.here.now_ms), queue)
    pair.tick()
    assert names(client)[-1] == "basic.ack"
    [message] = queue.backing.fetch(1, 0)
    assert queue.whole(message) is not None
    pair.here.engine.check()
    queue.backing.requeue([message])


def test_an_answer_of_a_master_that_was_lost_in_the_same_turn_binds_no_consumer(
    pair: NodePair,
) -> None:
    """It asks the next one."""
    queue = pair.remote("q")
    way = queue.way
    assert way is not None
    windows = OutputWindow(), SharedWindow()
    consumer = Consumer("tag", None, *windows, False, 0, False, {})
    pair.slow = True
    pending = queue.add_consumer(consumer)
    queue.hear(q.Answered(1, 1, "", "", 0, 0, []), WallMs(0))
    queue.hear(q.Gone(1), WallMs(0))
    queue.follow(way)
    assert pending.resume() is AGAIN
    assert consumer not in queue.consumers
    pair.slow = False
    pair.run()
