"""Channels of NSQ whose master is elsewhere, or goes, or comes: what their clients see."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.cluster.remote.queue import RemoteQueue
from penstock.cluster.remote.queue_places import take_place
from penstock.protocols.nsq.http.admin import NsqAdmin
from penstock.protocols.nsq.http.stats import StatsView
from tests.helpers.node_pair import NodePair, PairedNsqBroker
from tests.helpers.nsq_pair import NsqEnd
from tests.helpers.queues import identity


@pytest.fixture
def pair() -> NodePair:
    return NodePair(PairedNsqBroker)


def nsq_client(pair: NodePair) -> NsqEnd:
    assert isinstance(pair.here, PairedNsqBroker)
    return pair.here.nsq_client()


def remote_channel(pair: NodePair) -> Any:
    """Channel c of topic t, with its master there; returns the topic here."""
    for node in (pair.here, pair.there):
        topics = node.broker.vhosts["/"].topics
        topics.channel(topics.topic("t"), "c")
    vhost = pair.here.broker.vhosts["/"]
    topic = vhost.topics.topics["t"]
    old = topic.channels["c"].queue
    remote = pair.made_here(old.name, True, {})
    remote.use_leases()
    take_place(pair.here.broker, old, remote, pair.here.now_ms)
    remote.follow(pair.ends[0].queues.client)
    pair.run()
    assert topic.channels["c"].queue is remote
    return topic


def test_nsqs_ok_waits_for_the_other_node(pair: NodePair) -> None:
    remote_channel(pair)
    end = nsq_client(pair)
    pair.slow = True
    assert end.ask(b"PUB t\n\x00\x00\x00\x03one") == []
    assert end.ask(b"PUB local\n\x00\x00\x00\x03one") == []  # in its turn
    pair.slow = False
    pair.run()
    assert end.heard() == [b"OK", b"OK"]


def test_nsqs_publisher_is_told_when_the_node_is_lost(pair: NodePair) -> None:
    remote_channel(pair)
    end = nsq_client(pair)
    pair.slow = True
    end.ask(b"PUB t\n\x00\x00\x00\x03one")
    pair.lose_link()
    [error] = end.heard()
    assert error.startswith(b"E_PUB_FAILED")


def test_nsqs_consumer_of_a_channel_that_is_elsewhere(pair: NodePair) -> None:
    topic = remote_channel(pair)
    end = nsq_client(pair)
    end.ask(b"MPUB t\n" + mpub([b"one", b"two", b"three"]))
    [one] = end.subscribe("t", "c", ready=1)
    assert (one.body, one.attempts) == (b"one", 1)
    end.send(b"FIN " + one.id + b"\n")
    pair.tick()
    [two] = end.messages()
    end.send(b"REQ " + two.id + b" 5000\n")
    pair.tick()
    [three] = end.messages()
    assert three.body == b"three"
    end.send(b"FIN " + three.id + b"\n")
    pair.tick(6000)
    [again] = end.messages()
    assert (again.body, again.attempts) == (b"two", 2)
    pair.tick(61_000)  # its time is over
    [late] = end.messages()
    assert (late.body, late.attempts) == (b"two", 3)
    end.drop()
    pair.tick(61_000)
    master = pair.there.broker.vhosts["/"].topics.topics["t"].channels["c"].queue
    assert master.unacked_count == 0
    assert master.backing.ready_count() == 1
    assert topic.channels["c"].queue.unacked_count == 0


def channel_row(node: Any) -> dict[str, Any]:
    view = StatsView(cast(Any, None), NsqAdmin(node.nsq, node.turn), node.nsq, ())
    stats: dict[str, Any] = {}
    assert list(view.fill(stats, ["t"], "", "", clients=True))
    (topic,) = stats["topics"]
    (channel,) = topic["channels"]
    return cast(dict[str, Any], channel)


def test_what_nodes_tell_nsqadmin_adds_up(pair: NodePair) -> None:
    """As of several nsqd: each message and each client is told by one of them."""
    remote_channel(pair)
    end = nsq_client(pair)
    end.ask(b"MPUB t\n" + mpub([b"one", b"two", b"three"]))
    end.subscribe("t", "c", ready=1)
    pair.tick()
    here, there = channel_row(pair.here), channel_row(pair.there)
    wanted = {"depth": 2, "in_flight_count": 1, "message_count": 3, "client_count": 1}
    assert {name: here[name] + there[name] for name in wanted} == wanted
    assert (len(here["clients"]), there["clients"]) == (1, [])


def mpub(bodies: list[bytes]) -> bytes:
    listed = b"".join(len(body).to_bytes(4) + body for body in bodies)
    listed = len(bodies).to_bytes(4) + listed
    return len(listed).to_bytes(4) + listed


def test_a_deferred_message_waits_there(pair: NodePair) -> None:
    remote_channel(pair)
    end = nsq_client(pair)
    assert end.ask(b"DPUB t 5000\n\x00\x00\x00\x03one") == [b"OK"]
    assert end.subscribe("t", "c") == []
    pair.tick(6000)
    [one] = end.messages()
    assert one.body == b"one"


# -- another master --------------------------------------------------------------------------


def queue_of(topic: Any) -> Any:
    return topic.channels["c"].queue


def come_here(pair: NodePair, topic: Any) -> Any:
    """The master of the channel moves to this node, with nothing in it."""
    remote = queue_of(topic)
    vhost = pair.here.broker.vhosts["/"]
    life = pair.here.new_name("life")
    who = identity(remote.name, durable=True, incarnation=life, arguments=remote.arguments)
    queue = vhost._maker.make(0, False, who)
    consumers = take_place(pair.here.broker, remote, queue, pair.here.now_ms)
    pair.here.turn.moved(consumers, queue)
    pair.run()
    return queue


def local_channel(pair: NodePair) -> Any:
    """Channel c of topic t on both nodes, each with its own master; returns the topic here."""
    for node in (pair.here, pair.there):
        topics = node.broker.vhosts["/"].topics
        topics.channel(topics.topic("t"), "c")
    return pair.here.broker.vhosts["/"].topics.topics["t"]


def go_there(pair: NodePair, topic: Any) -> RemoteQueue:
    """The master of the channel moves to the other node, with nothing in it."""
    old = queue_of(topic)
    remote = pair.made_here(old.name, True, {})
    consumers = take_place(pair.here.broker, old, remote, pair.here.now_ms)
    pair.here.turn.moved(consumers, remote)
    remote.follow(pair.ends[0].queues.client)
    pair.run()
    return remote


def publish(pair: NodePair, *bodies: bytes) -> None:
    assert nsq_client(pair).ask(b"MPUB t\n" + mpub(list(bodies))) == [b"OK"]


def test_what_was_in_flight_when_the_node_was_lost_is_not_any_more(pair: NodePair) -> None:
    topic = remote_channel(pair)
    queue = queue_of(topic)
    publish(pair, b"one", b"two", b"three")
    end = nsq_client(pair)
    one, two, three = end.subscribe("t", "c", ready=3)
    pair.lose_link()
    assert end.session.consuming.in_flight_count == 0
    assert queue.unacked_count == 0
    assert end.ask(b"FIN " + one.id + b"\n") == [
        b"E_FIN_FAILED FIN " + one.id + b" failed ID not in flight"
    ]
    [error] = end.ask(b"REQ " + two.id + b" 0\n")
    assert error == b"E_REQ_FAILED REQ " + two.id + b" failed ID not in flight"
    [error] = end.ask(b"TOUCH " + three.id + b"\n")
    assert error == b"E_TOUCH_FAILED TOUCH " + three.id + b" failed ID not in flight"
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    again = end.messages()
    assert [one.body for one in again] == [b"one", b"two", b"three"]
    assert [one.attempts for one in again] == [2, 2, 2]
    for message in again:
        assert end.ask(b"FIN " + message.id + b"\n") == []
    pair.check()


def test_a_window_of_one_is_free_again_when_the_node_was_lost(pair: NodePair) -> None:
    topic = remote_channel(pair)
    publish(pair, b"one", b"two")
    end = nsq_client(pair)
    assert len(end.subscribe("t", "c", ready=1)) == 1
    pair.lose_link()
    pair.connect()
    queue_of(topic).follow(pair.ends[0].queues.client)
    pair.run()
    assert [one.body for one in end.messages()] == [b"one"]


def test_the_master_of_a_channel_comes_here(pair: NodePair) -> None:
    topic = remote_channel(pair)
    publish(pair, b"one")
    end = nsq_client(pair)
    [one] = end.subscribe("t", "c", ready=2)
    queue = come_here(pair, topic)
    assert queue_of(topic) is queue
    assert not end.session.closed
    [error] = end.ask(b"FIN " + one.id + b"\n")
    assert error.startswith(b"E_FIN_FAILED")
    publish(pair, b"two", b"three", b"four")
    two, three = end.messages()  # its window goes on
    assert end.ask(b"RDY 1\nFIN " + two.id + b"\n") == []
    [four] = end.ask(b"FIN " + three.id + b"\n")
    assert (four.body, four.attempts) == (b"four", 1)
    end.drop()
    pair.tick(61_000)
    assert queue.unacked_count == 0
    assert queue.backing.ready_count() == 1
    pair.check()


def test_the_master_of_a_channel_goes_there(pair: NodePair) -> None:
    topic = local_channel(pair)
    publish(pair, b"one")
    end = nsq_client(pair)
    [one] = end.subscribe("t", "c", ready=1)
    remote = go_there(pair, topic)
    assert queue_of(topic) is remote
    assert not end.session.closed
    [error] = end.ask(b"FIN " + one.id + b"\n")
    assert error.startswith(b"E_FIN_FAILED")
    publish(pair, b"two", b"three")
    [two] = end.messages()
    [three] = end.ask(b"FIN " + two.id + b"\n")
    assert three.body == b"three"
    pair.tick(61_000)  # too late
    [again] = end.messages()
    assert (again.body, again.attempts) == (b"three", 2)
    pair.check()


def test_who_is_about_to_leave_gets_nothing_of_the_new_master(pair: NodePair) -> None:
    topic = local_channel(pair)
    end = nsq_client(pair)
    end.subscribe("t", "c")
    assert end.ask(b"CLS\n") == [b"CLOSE_WAIT"]
    remote = go_there(pair, topic)
    assert not end.session.closed
    publish(pair, b"one")
    assert end.heard() == []
    end.drop()
    pair.run()
    assert not remote.consumers
    pair.check()


def test_a_publisher_goes_on_with_the_new_master(pair: NodePair) -> None:
    topic = remote_channel(pair)
    end = nsq_client(pair)
    assert end.ask(b"PUB t\n\x00\x00\x00\x03one") == [b"OK"]
    pair.lose_link()
    assert end.ask(b"PUB t\n\x00\x00\x00\x03two") == []  # it waits for whoever is next
    queue = come_here(pair, topic)
    assert end.heard() == [b"OK"]
    assert queue.backing.ready_count() == 1
    assert end.ask(b"PUB t\n\x00\x00\x00\x05three") == [b"OK"]


def test_a_subscription_under_way_finds_the_new_master(pair: NodePair) -> None:
    topic = remote_channel(pair)
    end = nsq_client(pair)
    pair.lose_link()
    assert end.ask(b"SUB t c\nRDY 1\n") == []
    queue = come_here(pair, topic)
    assert end.heard() == [b"OK"]
    publish(pair, b"one")
    assert [one.body for one in end.messages()] == [b"one"]
    assert len(queue.consumers) == 1


def test_nsqs_clients_go_elsewhere_where_the_master_is_not_reached(pair: NodePair) -> None:
    """Their connections end: who comes back finds another node in nsqlookupd, or a healed one."""
    queue = remote_channel(pair).channels["c"].queue
    consumer, publisher, late = (nsq_client(pair) for _ in range(3))
    consumer.subscribe("t", "c", ready=1)
    queue.unfollow()
    queue.give_up("its master is not reached", elsewhere=True)
    pair.here.turn.send_away(list(queue.consumers), "its master is not reached")
    pair.run()
    assert consumer.session.closed
    [error] = publisher.ask(b"PUB t\n\x00\x00\x00\x03one")
    assert error.startswith(b"E_PUB_FAILED")
    assert publisher.session.closed
    late.send(b"SUB t c\n")
    pair.run()
    assert late.session.closed
