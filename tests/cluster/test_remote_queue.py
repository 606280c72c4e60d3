"""Queues whose master is on another node: what a client sees is what it would see there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.declaring import check_deletable
from penstock.cluster.queue_places import take_place
from penstock.cluster.remote_queue import RemoteQueue
from penstock.core.away import Away
from penstock.core.errors import NotFound, PreconditionFailed
from tests.helpers.connection_pair import ClientEnd
from tests.helpers.node_pair import NodePair


@pytest.fixture
def pair() -> Iterator[NodePair]:
    pair = NodePair()
    yield pair
    pair.check()


def names(client: ClientEnd) -> list[str]:
    return [name for name, _ in client.methods()]


def confirming(pair: NodePair) -> ClientEnd:
    client = pair.here.client()
    client.call("confirm.select")
    return client


def ready(pair: NodePair, name: str = "q") -> int:
    return int(pair.master(name).backing.ready_count())


# -- publishing ------------------------------------------------------------------------------


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
    assert remote.published_count == 1
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


# -- consuming -------------------------------------------------------------------------------


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
    assert pair.master("q").consumers == []


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


def test_who_leaves_before_it_consumes_is_no_consumer(pair: NodePair) -> None:
    pair.remote("q")
    client = pair.here.client()
    pair.slow = True
    client.consume("q")
    client.drop()
    pair.slow = False
    pair.run()
    assert pair.master("q").consumers == []


def test_declaring_tells_the_masters_counts(pair: NodePair) -> None:
    pair.remote("q")
    one, two = pair.here.client(), pair.there.client()
    two.publish("", "q")
    two.publish("", "q")
    counts = one.call("queue.declare", queue="q", passive=True)
    assert (counts["messages"], counts["consumers"]) == (2, 0)
    assert one.call("queue.declare", queue="q", durable=True)["messages"] == 2


def test_purge_and_delete_with_conditions(pair: NodePair) -> None:
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
    assert "q" not in pair.there.broker.vhosts["/"].queues


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
    assert (queue.reported_unacked, queue.reported_consumers) == (1, 1)


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
    assert source.backing.pending.count == 1  # type: ignore[attr-defined]
    pair.slow = False
    pair.run()
    assert source.backing.pending.count == 0  # type: ignore[attr-defined]
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
    assert source.backing.pending.count == 0  # type: ignore[attr-defined]


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
    assert pair.master("q").consumers == []


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
    queue.give_up("it is down", forsaken=True)
    assert delete(pair) == 0
    assert delete(pair, if_unused=True) == 0
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' not empty"):
        delete(pair, if_empty=True)
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    with pytest.raises(Away):
        delete(pair)


def test_a_letter_to_a_queue_that_is_down_waits_for_it(pair: NodePair) -> None:
    queue = pair.remote("q")
    client = letters_to(pair, "q")
    pair.lose_link()
    queue.give_up("it is down")
    client.publish("", "source", b"one", delivery_mode=2)
    client.consume("source")
    client.method(1, "basic.reject", delivery_tag=1, requeue=False)
    source = pair.here.broker.vhosts["/"].queues["source"]
    assert source.backing.pending.count == 1  # type: ignore[attr-defined]
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert source.backing.pending.count == 0  # type: ignore[attr-defined]
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
    assert pair.master("q").consumers == []
    assert pair.master("q").unacked_count == 0


def test_a_queue_that_is_not_there_leaves_its_requests_waiting(pair: NodePair) -> None:
    queue = pair.known_here("q", True, {})
    queue.follow(pair.ends[0].queues.client)
    client = confirming(pair)
    client.publish("", "q", b"one")
    assert queue.way is None
    pair.there.broker.vhosts["/"].declare_queue("q", True, None, False, {}, pair.there.now_ms)
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert client.methods()[-1][0] in ("basic.ack", "basic.nack")


# -- the master moves ------------------------------------------------------------------------


def local_queue(pair: NodePair, name: str = "q") -> Any:
    """A queue of that name, not yet known to anybody here."""
    vhost = pair.here.broker.vhosts["/"]
    return vhost._maker.make(0, name, pair.here.new_name("life"), True, False, False, {})


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
    there.declare_queue("q", True, None, False, {}, pair.there.now_ms)
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
    new = RemoteQueue(
        *("/", "q", "life-there", True, False, {}, broker.wakeups, broker.refills),
        *(broker.dead_letters.deaths, broker.waits, broker.answers, broker.flow.book),
    )
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
    queue = vhost._maker.make(77, "q", pair.here.new_name("life"), True, True, False, {})
    pair.here.turn.moved(take_place(pair.here.broker, remote, queue, pair.here.now_ms), queue)
    pair.tick()
    assert names(client)[-1] == "basic.ack"
    [message] = queue.backing.fetch(1, 0)
    assert queue.whole(message) is not None
    pair.here.engine.check()
    queue.backing.requeue([message])
