"""Nothing a client does to a queue that is elsewhere asks its backing for messages.

``RemoteBacking`` has none: what it does not override raises NotImplementedError, which would end a
client's connection, or a turn, and is logged.  Each story is one way of a client to a queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from penstock.backing.interface import BackingQueue
from penstock.cluster.remote.backing import RemoteBacking
from penstock.cluster.remote.master import Master
from penstock.core.message import Message
from penstock_ranges import frames as rf
from penstock_ranges import ranges
from tests.cluster.test_remote_nsq import mpub, nsq_client, remote_channel
from tests.helpers.connection_pair import ClientEnd
from tests.helpers.node_pair import NodePair, PairedNsqBroker, ready
from tests.helpers.range_pair import Answered, StagingEnd

NOT_HERE: dict[str, tuple[Any, ...]] = {
    "publish": ([], 0),
    "publish_delayed": ([], 0, 0),
    "ack": ([],),
    "ack_behind": ([],),
    "requeue": ([],),
    "unfetch": ([],),
    "purge": (),
    "purge_step": (1,),
    "whole": (Message(b"", b"", 0, 0),),
    "await_head": (),
    "note_attempts": ([],),
    "fetch": (1, 0),
    "fetch_expired": (0, 1),
    "sweep_expired": (0, 1),
    "expire": (0, 1),
    "delay": ([], 0),
    "release_due": (0, 1),
    "delete": (),
    "take_chosen": (0, []),
    "drop_below": (0,),
    "drop_step": (0, 1),
    "drop_some": ([],),
}
"""What a queue asks of its backing, and one that is elsewhere has no answer to."""

HAS_A_DEFAULT = {
    *("adopted", "count_delayed", "disk_count", "fetch_surplus", "keys", "may_expire"),
    *("next_due_ms", "next_expiry_ms", "next_sweep_ms", "part", "parts", "plain", "priorities"),
    "set_mode",
}

Story = Callable[[NodePair, ClientEnd], None]
STORIES: list[Story] = []


def story(told: Story) -> Story:
    STORIES.append(told)
    return told


def delivered(client: ClientEnd, count: int = 3) -> None:
    """So many messages, unacknowledged, with the tags 1 to ``count``."""
    for number in range(count):
        client.publish("", "q", b"%d" % number)
    client.consume("q")
    assert len(client.bodies()) == count


@story
def it_publishes(pair: NodePair, client: ClientEnd) -> None:
    client.call("confirm.select")
    client.publish("", "q", b"one")
    client.publish("", "q", b"two", mandatory=True)
    pair.tick()
    assert ready(pair) == 2


@story
def it_publishes_in_a_transaction(pair: NodePair, client: ClientEnd) -> None:
    client.call("tx.select")
    client.publish("", "q", b"one")
    client.call("tx.commit")
    client.method(1, "basic.get", queue="q")
    client.methods()
    client.method(1, "basic.ack", delivery_tag=1)
    client.call("tx.rollback")
    client.call("tx.commit")
    pair.tick()


@story
def it_gets(pair: NodePair, client: ClientEnd) -> None:
    client.method(1, "basic.get", queue="q")
    for _ in range(3):
        client.publish("", "q")
        client.method(1, "basic.get", queue="q")
    client.method(1, "basic.ack", delivery_tag=1)
    client.method(1, "basic.nack", delivery_tag=2, requeue=True)
    client.method(1, "basic.reject", delivery_tag=3, requeue=False)
    client.method(1, "basic.get", queue="q", no_ack=True)
    pair.tick()
    assert ready(pair) == 0


@story
def it_consumes_and_acknowledges(pair: NodePair, client: ClientEnd) -> None:
    delivered(client)
    client.method(1, "basic.ack", delivery_tag=2, multiple=True)
    client.method(1, "basic.ack", delivery_tag=3)
    pair.tick()
    assert pair.master("q").unacked_count == 0


@story
def it_puts_back(pair: NodePair, client: ClientEnd) -> None:
    delivered(client)
    client.method(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
    client.method(1, "basic.reject", delivery_tag=3, requeue=True)
    pair.tick()
    assert len(client.bodies()) == 3


@story
def it_refuses(pair: NodePair, client: ClientEnd) -> None:
    delivered(client)
    client.method(1, "basic.nack", delivery_tag=3, multiple=True, requeue=False)
    pair.tick()
    assert (ready(pair), pair.master("q").unacked_count) == (0, 0)


@story
def it_recovers(pair: NodePair, client: ClientEnd) -> None:
    delivered(client)
    client.method(1, "basic.recover", requeue=True)
    pair.tick()
    told = [fields.get("body") for name, fields in client.methods() if name == "basic.deliver"]
    assert len(told) == 3


@story
def it_closes_its_channel(pair: NodePair, client: ClientEnd) -> None:
    delivered(client)
    client.call("channel.close", code=200)
    pair.tick()
    assert ready(pair) == 3
    client.call("channel.open")


@story
def it_leaves(pair: NodePair, client: ClientEnd) -> None:
    other = pair.here.client()
    delivered(other)
    other.drop()
    pair.tick()
    assert ready(pair) == 3


@story
def it_cancels(pair: NodePair, client: ClientEnd) -> None:
    client.call("basic.qos", prefetch_count=1)
    for _ in range(3):
        client.publish("", "q")
    client.consume("q")
    client.call("basic.cancel", consumer_tag="c")
    client.method(1, "basic.ack", delivery_tag=1)
    pair.tick()
    assert ready(pair) == 2


@story
def it_consumes_without_acknowledging(pair: NodePair, client: ClientEnd) -> None:
    client.consume("q", no_ack=True)
    client.publish("", "q")
    pair.tick()
    assert ready(pair) == 0


@story
def it_purges(pair: NodePair, client: ClientEnd) -> None:
    delivered(client)
    client.publish("", "q")
    client.call("queue.purge", queue="q")
    pair.tick()


@story
def it_declares_and_looks(pair: NodePair, client: ClientEnd) -> None:
    client.publish("", "q")
    assert client.call("queue.declare", queue="q", passive=True)["messages"] == 1
    pair.here.broker.vhosts["/"].queues["q"].check()
    pair.tick(60_000)


@story
def its_message_dies(pair: NodePair, client: ClientEnd) -> None:
    client.publish("", "q", b"x", expiration="10")
    pair.tick()
    assert ready(pair) == 0


@story
def letters_go_there(pair: NodePair, client: ClientEnd) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    client.call("queue.declare", queue="dying", durable=True, arguments=arguments)
    client.publish("", "dying", b"x", expiration="10")
    pair.tick()
    assert ready(pair) == 1


@story
def its_master_is_lost_and_found(pair: NodePair, client: ClientEnd) -> None:
    delivered(client)
    client.publish("", "q", b"late")
    pair.lose_link()
    client.method(1, "basic.nack", delivery_tag=1, requeue=True)
    client.publish("", "q", b"later")
    queue: Any = pair.here.broker.vhosts["/"].queues["q"]
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.tick()


@story
def a_range_is_asked_for(pair: NodePair, client: ClientEnd) -> None:
    end = StagingEnd(pair.here, login=False)
    for mode in (ranges.BROWSE, ranges.READ):
        end = StagingEnd(pair.here, login=False)
        end.send(ranges.encode_open(ranges.OpenRequest("guest", "guest", "/", "q", mode, 0)))
        with pytest.raises(Answered) as refused:
            end.expect(ranges.OPENED)
        assert refused.value.code == rf.ELSEWHERE


@story
def a_batch_is_staged(pair: NodePair, client: ClientEnd) -> None:
    end = StagingEnd(pair.here)
    end.ask_commit(0, [end.stage(0, "q", [b"a", b"b"])])
    pair.tick()
    assert ready(pair) == 2


@story
def nsq_requeues_touches_and_is_late(pair: NodePair, client: ClientEnd) -> None:
    remote_channel(pair)
    end = nsq_client(pair)
    end.ask(b"MPUB t\n" + mpub([b"one", b"two", b"three"]))
    one, two, three = end.subscribe("t", "c", ready=3)
    end.send(b"TOUCH " + one.id + b"\n")
    end.send(b"REQ " + one.id + b" 0\n")
    end.send(b"REQ " + two.id + b" 5000\n")
    end.send(b"FIN " + three.id + b"\n")
    pair.tick(6000)
    pair.tick(70_000)  # times are over
    end.drop()
    pair.tick()


@story
def nsq_defers(pair: NodePair, client: ClientEnd) -> None:
    remote_channel(pair)
    end = nsq_client(pair)
    assert end.ask(b"DPUB t 5000\n\x00\x00\x00\x03one") == [b"OK"]
    pair.tick(6000)
    assert len(end.subscribe("t", "c")) == 1


def test_these_are_the_verbs_that_are_not_here() -> None:
    """And nothing else: what is new in the interface has an answer, or is put into the table."""
    told = {name for name, one in vars(BackingQueue).items() if callable(one)}
    missing = {name for name in told - set(vars(RemoteBacking)) if not name.startswith("_")}
    assert missing == set(NOT_HERE) | HAS_A_DEFAULT


@pytest.mark.parametrize("verb", NOT_HERE)
def test_whoever_reached_one_would_fail(verb: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(RemoteBacking(Master()), verb)(*NOT_HERE[verb])


@pytest.mark.parametrize("told", STORIES, ids=lambda one: one.__name__)
def test_no_way_of_a_client_reaches_them(told: Story, caplog: pytest.LogCaptureFixture) -> None:
    pair = NodePair(PairedNsqBroker)
    pair.remote("q")
    client = pair.here.client()
    with caplog.at_level(logging.ERROR):
        told(pair, client)
        pair.tick()
        client.methods()
        client.call("queue.declare", queue="still served")
    assert [record.getMessage() for record in caplog.records] == []
    pair.check()
