"""One message, two protocols: the table of docs/nsq.md, both ways, on a broker that runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import NackError

from tests.helpers.nsq_amqp import BothBroker, Consumer, Taker
from tests.helpers.nsq_broker import eventually
from tests.helpers.nsq_live import RawClient
from tests.helpers.raw_nsq import dpub, mpub, pub

PERSISTENT, TRANSIENT = 2, 1
NS_PER_S = 1_000_000_000
HEX = re.compile(rb"[0-9a-f]{16}")
SEVERAL_FRAMES = bytes(range(256)) * 2000
"""More than three of AMQP's frames of 128 KiB."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BothBroker]:
    with BothBroker() as running:
        yield running


def properties(**fields: Any) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=PERSISTENT, **fields)


# -- published by NSQ ----------------------------------------------------------------------------


def test_what_nsq_publishes_has_its_id_and_time_in_amqp(broker: BothBroker) -> None:
    broker.make("n1")
    with (
        broker.amqp() as channel,
        Consumer(broker, "n1", channel="d") as consumer,
        RawClient(broker) as producer,
    ):
        before = time.time()
        for command in (pub("n1", b"one"), mpub("n1", [b"two", SEVERAL_FRAMES])):
            assert producer.ask(command) == b"OK"
        assert producer.ask(dpub("n1", 50, b"later")) == b"OK"
        seen = {message.body: message for message in consumer.take(4)}
        taker = Taker(channel, "nsq.n1:c")
        taker.take(4)
        assert [body for _, _, body in taker.got] == [b"one", b"two", SEVERAL_FRAMES, b"later"]
        for method, found, body in taker.got:
            other = seen[body]
            assert found.message_id.encode() == other.id
            assert HEX.fullmatch(other.id)
            assert found.headers == {"x-nsq-timestamp-ns": other.timestamp_ns}
            assert found.timestamp == other.timestamp_ns // NS_PER_S
            assert before - 1 < other.timestamp_ns / NS_PER_S < time.time() + 1
            assert found.delivery_mode == PERSISTENT
            assert (method.exchange, method.routing_key) == ("nsq.n1", "")
            assert not method.redelivered


def test_amqp_hears_of_the_attempts_of_nsq(broker: BothBroker) -> None:
    broker.publish("n2", "m", "fresh")
    with Consumer(broker, "n2", 1) as consumer:
        (message,) = consumer.take(1)
        consumer.ready(0)
        consumer.requeue(message)
        broker.await_counts("n2", 2, 0, 0)
    with broker.amqp() as channel:
        taker = Taker(channel, "nsq.n2:c")
        assert taker.take(2) == ["fresh", "m"]
        assert [method.redelivered for method, _, _ in taker.got] == [False, True]
        assert taker.got[1][1].message_id.encode() == message.id


def test_what_is_ephemeral_is_transient_in_amqp(broker: BothBroker) -> None:
    broker.make("n3#ephemeral")
    broker.publish("n3#ephemeral", "m")
    with broker.amqp() as channel:
        _, found, body = channel.basic_get("nsq.n3#ephemeral:c", auto_ack=True)
        assert (body, found.delivery_mode) == (b"m", TRANSIENT)


# -- published by AMQP ---------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"m", b"", SEVERAL_FRAMES], ids=["small", "empty", "frames"])
@pytest.mark.parametrize("address", [("nsq.a1", ""), ("", "nsq.a1:c")], ids=["topic", "channel"])
def test_nsq_gets_the_body_an_id_and_a_time(
    broker: BothBroker, body: bytes, address: tuple[str, str]
) -> None:
    broker.make("a1")
    with broker.amqp() as channel, Consumer(broker, "a1") as consumer:
        before = time.time()
        for kind in (properties(), properties(headers={"h": 1}, timestamp=5, message_id="x" * 40)):
            channel.basic_publish(*address, body, kind)
        messages = consumer.take(2)
        for message in messages:
            assert message.body == body
            assert message.attempts == 1
            assert HEX.fullmatch(message.id)
            assert before - 1 < message.timestamp_ns / NS_PER_S < time.time() + 1
        assert messages[0].id < messages[1].id
        consumer.finish(*messages)
        broker.await_counts("a1", 0, 0, 0)


def test_its_id_is_the_same_at_each_delivery_from_its_place(broker: BothBroker) -> None:
    broker.make("a2")
    with broker.amqp() as channel, Consumer(broker, "a2") as consumer:
        channel.basic_publish("nsq.a2", "", b"m", properties())
        (first,) = consumer.take(1)
        consumer.requeue(first, 200)
        (second,) = consumer.take(1)
        assert (second.id, second.timestamp_ns) == (first.id, first.timestamp_ns)
        consumer.requeue(second)  # to the tail
        (third,) = consumer.take(1)
        assert (third.attempts, third.body) == (3, b"m")
        consumer.finish(third)
        broker.await_counts("a2", 0, 0, 0)


def test_amqp_consumers_of_the_channel_get_headers_and_properties(broker: BothBroker) -> None:
    broker.make("a3")
    broker.make("a3", "dying")
    broker.policy("a3", r"^nsq\.a3:dying$", delivery_limit=0, dead_letter_exchange="a3dead")
    sent = properties(headers={"h": [1, "two"]}, content_type="text/plain", message_id="mine")
    with broker.amqp() as channel, Consumer(broker, "a3", 1) as consumer:
        channel.exchange_declare("a3dead", "fanout")
        channel.queue_declare("a3 letters", exclusive=True)
        channel.queue_bind("a3 letters", "a3dead")
        channel.basic_publish("nsq.a3", "", b"m", sent)
        (message,) = consumer.take(1)  # NSQ had it before, and lost nothing of it
        consumer.ready(0)
        consumer.requeue(message)
        broker.await_counts("a3", 1, 0, 0)
        method, found, body = channel.basic_get("nsq.a3:c", auto_ack=True)
        assert (body, method.redelivered) == (b"m", True)
        assert found == sent
        with Consumer(broker, "a3", channel="dying") as dying:
            dying.requeue(dying.take(1)[0])
            _, letter, body = Taker(channel, "a3 letters").one()
        assert (body, letter.message_id, letter.content_type) == (b"m", "mine", "text/plain")
        assert letter.headers["h"] == [1, "two"]
        assert letter.headers["x-death"][0]["queue"] == "nsq.a3:dying"


def test_backlog_and_pause_hold_for_publishers_of_amqp(broker: BothBroker) -> None:
    with broker.amqp() as channel:
        channel.confirm_delivery()
        channel.exchange_declare("nsq.a4", "x-nsq-topic", durable=True)
        channel.basic_publish("nsq.a4", "", b"backlog", properties())
        assert broker.topic_row("a4")["depth"] == 1
        with Consumer(broker, "a4") as consumer:
            assert consumer.bodies(1) == ["backlog"]
            broker.post("/topic/pause?topic=a4")
            channel.basic_publish("nsq.a4", "any.key", b"paused", properties())
            consumer.nothing()
            broker.post("/topic/unpause?topic=a4")
            assert consumer.bodies(1) == ["paused"]


def test_a_queue_declared_and_bound_by_amqp_is_a_channel(broker: BothBroker) -> None:
    with broker.amqp() as channel:
        channel.exchange_declare("nsq.a5", "x-nsq-topic", durable=True)
        channel.queue_declare("nsq.a5:c", durable=True, arguments={"x-max-length": 2})
        channel.queue_bind("nsq.a5:c", "nsq.a5")
        broker.publish("a5", "a", "b", "c")
        with Consumer(broker, "a5") as consumer:
            assert consumer.bodies(2) == ["b", "c"]


def test_a_channel_keeps_the_limits_of_its_policy(broker: BothBroker) -> None:
    broker.policy("a6ttl", r"^nsq\.a6:short$", message_ttl=300)
    broker.policy("a6full", r"^nsq\.a6:full$", max_length=2, overflow="reject-publish")
    for channel in ("short", "full", "whole"):
        broker.make("a6", channel)
    broker.publish("a6", "a", "b", "c")  # NSQ's OK does not say that one channel was full
    assert broker.counts("a6", "full") == (2, 0, 0)
    assert broker.counts("a6", "whole") == (3, 0, 0)
    with broker.amqp() as channel:
        channel.confirm_delivery()
        with pytest.raises(NackError):
            channel.basic_publish("nsq.a6", "", b"d", properties())
    eventually(lambda: broker.counts("a6", "short") == (0, 0, 0))
    with Consumer(broker, "a6", channel="full") as consumer:
        assert consumer.bodies(2) == ["a", "b"]


def test_transient_messages_are_lost_at_a_restart() -> None:
    with BothBroker() as broker:
        broker.make("t")
        with broker.amqp() as channel:
            channel.confirm_delivery()
            for mode in (TRANSIENT, PERSISTENT):
                found = pika.BasicProperties(delivery_mode=mode)
                channel.basic_publish("nsq.t", "", b"%d" % mode, found)
        broker.restart()
        with Consumer(broker, "t") as consumer:
            assert consumer.bodies(1) == [str(PERSISTENT)]
            consumer.nothing()
