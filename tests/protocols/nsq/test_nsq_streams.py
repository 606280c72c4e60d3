"""Topics that are streams: channels take from the log, from any place, and it stays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.core.errors import BrokerError, PreconditionFailed, ResourceLocked
from penstock.queues.stream import KEEP_MS
from penstock.streams.marks import POSITIONS_MAX
from tests.helpers.nsq_amqp import BothBroker, Consumer
from tests.helpers.nsq_broker import eventually
from tests.helpers.nsq_pair import NsqBroker, NsqEnd
from tests.helpers.raw_nsq import NsqMessage, dpub, fin, mpub, pub

STREAMS = {"nsq-topic-type": "stream"}
TIMEOUT_MS = 60_000


@pytest.fixture
def definitions(tmp_path: Path) -> str:
    return str(tmp_path / "definitions.db")


@pytest.fixture
def node(definitions: str) -> Iterator[NsqBroker]:
    node = NsqBroker(definitions=definitions)
    policy(node, "^nsq[.]t$", "exchanges", **STREAMS)
    yield node
    node.check()


def policy(node: NsqBroker, pattern: str, kind: str, **definition: object) -> None:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    Administration(node.broker, 64).put_policy("/", Policy(pattern, pattern, kind, 0, keys))


def publish(node: NsqBroker, *bodies: bytes, topic: str = "t") -> None:
    """Each in a block of its own, a second apart."""
    producer = node.nsq_client()
    for body in bodies:
        node.now_ms += 1000
        assert producer.ask(pub(topic, body)) == [b"OK"]


def topic_of(node: NsqBroker, name: str = "t") -> Any:
    return node.broker.vhosts["/"].topics.topics[name]


def depth(node: NsqBroker, channel: str) -> int:
    return int(topic_of(node).channels[channel].depth())


def bodies(end: NsqEnd) -> list[bytes]:
    end.node.run()
    return [message.body for message in end.messages()]


def take(
    node: NsqBroker, channel: str, ready: int, topic: str = "t"
) -> tuple[NsqEnd, list[NsqMessage]]:
    end = node.nsq_client()
    found = end.subscribe(topic, channel, ready)
    node.run()
    return end, found + end.messages()


def subscribe(node: NsqBroker, channel: str, ready: int = 10) -> tuple[NsqEnd, list[bytes]]:
    end, messages = take(node, channel, ready)
    return end, [message.body for message in messages]


def finish(end: NsqEnd, ready: int = 10) -> list[bytes]:
    """Take up to so many and finish all of them until nothing comes; returns their bodies."""
    found = []
    end.send(b"RDY %d\n" % ready)
    for _ in range(100):
        end.node.run()
        messages = end.messages()
        if not messages:
            break
        found += [message.body for message in messages]
        end.send(b"".join(fin(message.id) for message in messages))
    return found


def crash(node: NsqBroker, definitions: str) -> NsqBroker:
    """Only what was synced is there."""
    node.definitions.close()
    node.files.power_cut(random.Random(7))
    again = NsqBroker(files=node.files, definitions=definitions)
    again.now_ms = node.now_ms
    return again


def test_a_channel_that_is_made_later_begins_where_it_says(node: NsqBroker) -> None:
    publish(node, b"0", b"1")
    assert subscribe(node, "early")[1] == [b"0", b"1"]  # the first one: nothing is lost before it
    publish(node, b"2", b"3")
    third_s = node.now_ms // 1000 - 1
    late, found = subscribe(node, "late")
    assert found == []
    for start, expected in (
        ("first", [b"0", b"1", b"2", b"3"]),
        ("last", [b"3"]),
        ("next", []),
        (str(third_s), [b"2", b"3"]),
        ("2s", [b"1", b"2", b"3"]),
        ("1h", [b"0", b"1", b"2", b"3"]),
    ):
        topics = node.broker.vhosts["/"].topics
        topics.channel(topics.topic("t"), f"c{start}", start)
        assert subscribe(node, f"c{start}")[1] == expected, start
    publish(node, b"4")
    assert bodies(late) == [b"4"]


def test_a_policy_says_where_new_channels_begin(node: NsqBroker) -> None:
    publish(node, b"0", b"1")
    subscribe(node, "early")
    policy(node, "^nsq[.]t:", "queues", nsq_start="first")
    assert subscribe(node, "late")[1] == [b"0", b"1"]


@pytest.mark.parametrize("value", ["", "soon", "-1", 7, "1x"])
def test_what_is_no_start_is_refused(node: NsqBroker, value: object) -> None:
    with pytest.raises(BrokerError, match="is not a valid start of a channel"):
        policy(node, "^nsq[.]t:", "queues", nsq_start=value)


def test_messages_are_taken_when_consumers_have_room_and_are_the_channels_then(
    node: NsqBroker,
) -> None:
    names = [b"%d" % number for number in range(50)]
    publish(node, *names)
    consumer, first = take(node, "c", 3)
    queue = topic_of(node).channels["c"].queue
    assert [message.body for message in first] == names[:3]
    assert (queue.backing.ready_count(), queue.unacked_count) == (0, 3)  # no more than that
    assert (depth(node, "c"), queue.counts()) == (47, (47, 1))
    consumer.send(b"RDY 0\n")
    one, two, three = [message.id for message in first]
    consumer.send(b"REQ %s 5000\n" % one + b"REQ %s 0\n" % two + fin(three))
    node.run()
    assert queue.deferred_count() == 1
    assert finish(consumer) == [b"1", *names[3:]]
    node.tick(5000)
    assert [(one.body, one.attempts) for one in consumer.messages()] == [(b"0", 2)]


def test_a_deadline_gives_the_message_to_another_consumer(node: NsqBroker) -> None:
    publish(node, b"m")
    slow, found = subscribe(node, "c")
    assert found == [b"m"]
    slow.send(b"RDY 0\n")
    other, found = subscribe(node, "c")
    assert found == []
    node.tick(TIMEOUT_MS + 1)
    assert [(message.body, message.attempts) for message in other.messages()] == [(b"m", 2)]


def test_a_channel_goes_on_where_it_was_after_a_crash(node: NsqBroker, definitions: str) -> None:
    publish(node, *[b"%d" % number for number in range(10)])
    consumer, found = take(node, "c", 4)
    assert [message.body for message in found] == [b"0", b"1", b"2", b"3"]
    consumer.send(b"RDY 0\n" + fin(found[0].id) + fin(found[1].id))
    node.tick(int(KEEP_MS))
    node.tick(int(KEEP_MS))
    node = crash(node, definitions)
    taken = finish(subscribe(node, "c", 0)[0])
    assert sorted(taken) == [b"%d" % number for number in range(10) if number not in (0, 1)]
    node.check()
    node.definitions.close()


def test_what_was_taken_just_before_a_crash_comes_twice_and_nothing_is_lost(
    node: NsqBroker, definitions: str
) -> None:
    publish(node, b"0")
    consumer, _ = subscribe(node, "c", 0)
    node.tick(int(KEEP_MS))
    publish(node, b"1", b"2")
    assert set(finish(consumer)) == {b"0", b"1", b"2"}
    node = crash(node, definitions)
    publish(node, b"3")
    assert {b"3"} <= set(finish(subscribe(node, "c", 0)[0])) <= {b"0", b"1", b"2", b"3"}
    node.definitions.close()


def test_deferred_messages_are_in_the_log_when_their_time_has_come(
    node: NsqBroker, definitions: str
) -> None:
    publish(node, b"0")
    consumer, found = subscribe(node, "c")
    assert found == [b"0"]
    producer = node.nsq_client()
    assert producer.ask(dpub("t", 60_000, b"later")) == [b"OK"]
    publish(node, b"1")  # it does not wait behind that
    assert bodies(consumer) == [b"1"]
    assert topic_of(node).depth() == 1
    node = crash(node, definitions)
    consumer, _ = subscribe(node, "c", 0)
    finish(consumer)
    node.tick(30_000)
    assert bodies(consumer) == []
    node.tick(31_000)
    assert bodies(consumer) == [b"later"]
    assert topic_of(node).depth() == 0
    node.definitions.close()


def test_a_paused_topic_and_a_paused_channel_give_nothing(node: NsqBroker) -> None:
    publish(node, b"0", b"1")
    consumer, (first,) = take(node, "c", 1)
    topics, topic = node.broker.vhosts["/"].topics, topic_of(node)
    topics.pause(topic, True)
    publish(node, b"2")
    consumer.send(fin(first.id))
    assert finish(consumer) == []
    topics.pause(topic, False)
    assert finish(consumer) == [b"1", b"2"]
    topics.pause_channel(topic.channels["c"], True)
    publish(node, b"3")
    assert finish(consumer) == []
    topics.pause_channel(topic.channels["c"], False)
    assert finish(consumer) == [b"3"]


def test_a_channel_that_is_emptied_goes_on_with_the_next_message(node: NsqBroker) -> None:
    publish(node, b"0", b"1", b"2")
    consumer, _ = subscribe(node, "c", 1)
    assert topic_of(node).channels["c"].queue.empty() == 3
    publish(node, b"3")
    assert finish(consumer) == [b"3"]


def test_a_channel_that_is_deleted_has_no_position_any_more(node: NsqBroker) -> None:
    publish(node, b"0")
    subscribe(node, "c")
    publish(node, b"1")
    subscribe(node, "d")
    topics, topic = node.broker.vhosts["/"].topics, topic_of(node)
    positions = topic.stream.log.log.marks.positions
    assert positions.names() == ["nsq.t:c", "nsq.t:d"]
    for channel in list(topic.channels.values()):
        node.turn.cancelled(topics.delete_channel(channel))
    node.run()
    assert positions.names() == []
    assert subscribe(node, "c")[1] == [b"0", b"1"]
    node.turn.cancelled(topics.delete(topic))
    node.run()
    assert list(node.broker.vhosts["/"].queues) == []


def test_a_topic_that_becomes_a_stream_keeps_what_its_channels_have(node: NsqBroker) -> None:
    publish(node, b"0", topic="plain")
    vhost = node.broker.vhosts["/"]
    topic = vhost.topics.topic("plain")
    channel = vhost.topics.channel(topic, "c")
    node.run()
    policy(node, "^nsq[.]plain$", "exchanges", **STREAMS)
    publish(node, b"1", topic="plain")
    assert topic.stream.log is None  # a policy makes no stream by itself
    assert vhost.topics.topic("plain").stream.log is not None
    publish(node, b"2", topic="plain")
    assert channel.depth() == 3
    end, found = take(node, "c", 10, "plain")
    assert [message.body for message in found] == [b"0", b"1", b"2"]
    node.turn.cancelled(vhost.delete_queue(topic.stream.log))
    publish(node, b"3", topic="plain")
    assert bodies(end) == [b"3"]


def test_queues_of_amqp_get_what_is_published_and_read_the_log(node: NsqBroker) -> None:
    publish(node, b"0")
    client = node.client()
    client.call("queue.declare", queue="q")
    client.call("queue.bind", queue="q", exchange="nsq.t", routing_key="")
    client.publish("nsq.t", "", b"1")
    node.run()
    client.consume("q")
    assert client.bodies()[-1:] == [b"1"]
    client.call("basic.qos", prefetch_count=10)
    first = {"x-stream-offset": "first"}
    client.method(1, "basic.consume", queue="nsq.t", consumer_tag="s", arguments=first)
    node.run()
    assert [body for body in client.bodies() if body] == [b"0", b"1"]
    assert subscribe(node, "c")[1] == [b"0", b"1"]
    publish(node, b"2")
    topics = node.broker.vhosts["/"].topics
    topics.channel(topic_of(node), "d", "first")
    assert client.call("queue.declare", queue="nsq.t:d", passive=True)["messages"] == 3


def test_amqp_gets_single_messages_of_a_channel(node: NsqBroker) -> None:
    publish(node, b"0", b"1")
    topics = node.broker.vhosts["/"].topics
    topics.channel(topics.topic("t"), "c")
    client = node.client()
    for body in (b"0", b"1"):
        client.method(1, "basic.get", queue="nsq.t:c", no_ack=True)
        node.run()
        assert client.bodies() == [body]
    client.method(1, "basic.get", queue="nsq.t:c", no_ack=True)
    assert [name for name, _ in client.methods()] == ["basic.get-empty"]


def test_a_stream_has_so_many_channels_and_no_more(node: NsqBroker) -> None:
    publish(node, b"m")
    topics, topic = node.broker.vhosts["/"].topics, topic_of(node)
    for number in range(int(POSITIONS_MAX)):
        topic.stream.log.log.marks.positions.move(f"reader{number}", 1, 0)
    with pytest.raises(PreconditionFailed, match="1000 positions of consumers are kept"):
        topics.channel(topic, "c")
    assert topic.channels == {}
    assert subscribe(node, "c#ephemeral")[1] == [b"m"]


def test_what_cannot_be_a_stream_is_refused(node: NsqBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="nsq.t", durable=True)
    answers = node.nsq_client().ask(pub("t", b"m"))
    assert b"received 'stream' but current is 'classic'" in answers[0]
    assert "t" not in node.broker.vhosts["/"].topics.topics
    client.call("queue.delete", queue="nsq.t")
    publish(node, b"m")
    queue = node.broker.vhosts["/"].topics.channel(topic_of(node), "c").queue
    with pytest.raises(ResourceLocked, match="takes its messages from a stream"):
        queue.ranges.open()


def test_ephemeral_topics_are_none_and_ephemeral_channels_take_from_it(node: NsqBroker) -> None:
    policy(node, "^nsq[.]e", "exchanges", **STREAMS)
    publish(node, b"0", topic="e#ephemeral")
    assert topic_of(node, "e#ephemeral").stream.log is None
    publish(node, b"1")
    end, found = subscribe(node, "c#ephemeral")
    assert found == [b"1"]
    assert topic_of(node).stream.log.log.marks.positions.names() == []
    end.drop()
    publish(node, b"2")
    assert "c#ephemeral" not in topic_of(node).channels


def test_mpub_to_many_channels_is_written_once(node: NsqBroker) -> None:
    publish(node, b"first")
    for number in range(5):
        subscribe(node, f"c{number}", 0)
    before = node.engine.journal.position
    assert node.nsq_client().ask(mpub("t", [b"x" * 1000] * 20)) == [b"OK"]
    assert node.engine.journal.position - before < 1000
    assert [depth(node, f"c{number}") for number in range(5)] == [21, 20, 20, 20, 20]


def positions_of(broker: BothBroker, stream: str) -> list[str]:
    return sorted(one["name"] for one in broker.queue_row(stream)["penstock"]["positions"])


# -- a broker that runs --------------------------------------------------------------------------


def test_the_http_api_says_where_a_channel_begins_and_stats_count_what_is_in_the_log(
    tmp_path: Path,
) -> None:
    with BothBroker(tmp_path / "data") as broker:
        everything = {"nsq_topic_type": "stream", "max_age": "7D", "nsq_start": "next"}
        broker.policy("streams", r"^nsq\.s", "all", **everything)
        assert broker.post("/topic/create?topic=s").status == 200
        broker.publish("s", "a", "b", "c")
        for query, status, text in (
            ("channel=c&start=soon", 400, "INVALID_ARG_START"),
            ("channel=c&start=first", 200, ""),
            ("channel=c&start=first", 400, "CHANNEL_EXISTS"),
            ("channel=c", 200, ""),
            ("channel=d&start=12h", 200, ""),
            ("channel=e", 200, ""),
        ):
            answer = broker.post(f"/channel/create?topic=s&{query}")
            assert (answer.status, answer.body and answer.data["message"]) == (status, text), query
        broker.make("plain")
        answer = broker.post("/channel/create?topic=plain&channel=x&start=first")
        assert (answer.status, answer.data["message"]) == (400, "TOPIC_NOT_A_STREAM")
        assert [broker.counts("s", channel) for channel in "cde"] == [
            (3, 0, 0),
            (3, 0, 0),
            (0, 0, 0),
        ]
        with Consumer(broker, "s", 2) as consumer:
            one, two = consumer.take(2)
            consumer.finish(one)
            (three,) = consumer.take(1)
            assert [one.body, two.body, three.body] == [b"a", b"b", b"c"]
            broker.await_counts("s", 0, 2, 0)
            assert broker.row("s")["message_count"] == 3
            consumer.finish(two, three)
            broker.await_counts("s", 0, 0, 0)
        row = broker.queue_row("nsq.s")
        assert (row["type"], row["messages"]) == ("stream", 3)
        names = ["nsq.s:c", "nsq.s:d", "nsq.s:e"]
        eventually(lambda: positions_of(broker, "nsq.s") == names)
        broker.stop()
        broker.start()
        with Consumer(broker, "s") as consumer:  # nothing comes twice after a stop in good order
            consumer.nothing()
        eventually(lambda: broker.counts("s", "d") == (3, 0, 0))
