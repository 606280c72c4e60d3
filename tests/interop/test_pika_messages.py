"""pika: what is published comes back, whole, in order, and as often as the protocol says."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import random
import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess

PERSISTENT = pika.BasicProperties(delivery_mode=2)
Connect = Callable[..., pika.BlockingConnection]
Delivery = tuple[Any, pika.BasicProperties, bytes]


def take(channel: BlockingChannel, queue: str, count: int, **options: Any) -> list[Delivery]:
    """The next ``count`` deliveries of a new consumer, which is cancelled afterwards.

    Whatever more was delivered meanwhile is given back by the cancel.
    """
    taken: list[Delivery] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=10, **options):
        assert method is not None, f"only {len(taken)} of {count} messages came"
        taken.append((method, properties, body))
        if len(taken) == count:
            break
    return taken


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [body for _, _, body in deliveries]


def test_confirmed_messages_come_back_in_order_with_their_properties(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for number in range(300):
        channel.basic_publish(
            "",
            name,
            b"%d" % number,
            pika.BasicProperties(
                delivery_mode=2,
                message_id=f"id-{number}",
                correlation_id="c",
                content_type="text/plain",
                content_encoding="identity",
                priority=number % 10,
                reply_to="answers",
                timestamp=1_700_000_000 + number,
                type="numbered",
                user_id="guest",
                app_id="suite",
                cluster_id="none",
                headers={"number": number},
            ),
        )
    assert channel.queue_declare(name, passive=True).method.message_count == 300
    deliveries = take(channel, name, 300)
    assert bodies(deliveries) == [b"%d" % number for number in range(300)]
    method, properties, _ = deliveries[217]
    assert (method.exchange, method.routing_key) == ("", name)
    assert not method.redelivered
    assert vars(properties) == {
        "delivery_mode": 2,
        "message_id": "id-217",
        "correlation_id": "c",
        "content_type": "text/plain",
        "content_encoding": "identity",
        "priority": 7,
        "reply_to": "answers",
        "timestamp": 1_700_000_217,
        "type": "numbered",
        "user_id": "guest",
        "app_id": "suite",
        "cluster_id": "none",
        "headers": {"number": 217},
        "expiration": None,
    }
    channel.basic_ack(deliveries[-1][0].delivery_tag, multiple=True)
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_header_types_make_the_round_trip(channel: BlockingChannel, name: str) -> None:
    headers = {
        "text": "grüße ✓",
        "empty": "",
        "bytes": b"\x00\xff",
        "true": True,
        "false": False,
        "small": -7,
        "long": 2**40,
        "lowest": -(2**63),
        "decimal": decimal.Decimal("3.14"),
        "time": dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC),
        "none": None,
        "list": [1, "two", [3, {"four": None}]],
        "table": {"inner": {"innermost": True}},
        "k" * 128: "a name as long as pika allows",
    }
    channel.queue_declare(name)
    channel.basic_publish("", name, b"", pika.BasicProperties(headers=headers))
    _, properties, body = take(channel, name, 1, auto_ack=True)[0]
    assert body == b""
    assert properties.headers == headers
    assert properties.delivery_mode is None


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 5_000_000])
def test_a_message_of_any_size_comes_back_whole(
    channel: BlockingChannel, name: str, size: int
) -> None:
    """131,064 bytes are exactly one body frame under the usual limit of 131,072."""
    body = random.Random(size).randbytes(size)
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", name, body, PERSISTENT)
    method, _, returned = channel.basic_get(name)
    assert hashlib.sha256(returned).digest() == hashlib.sha256(body).digest()
    channel.basic_ack(method.delivery_tag)


def test_small_frames_are_respected_in_both_directions(connect: Connect, name: str) -> None:
    channel = connect(frame_max=4096).channel()
    body = random.Random(1).randbytes(100_000)
    channel.queue_declare(name)
    channel.basic_publish("", name, body, pika.BasicProperties(headers={"h": "x" * 3000}))
    _, properties, returned = channel.basic_get(name, auto_ack=True)
    assert returned == body
    assert properties.headers == {"h": "x" * 3000}


def test_a_message_from_large_frames_reaches_a_reader_of_small_frames(
    connect: Connect, connection: pika.BlockingConnection, name: str
) -> None:
    body = random.Random(2).randbytes(300_000)
    writer = connection.channel()
    writer.queue_declare(name)
    writer.confirm_delivery()
    writer.basic_publish("", name, body)
    reader = connect(frame_max=4096).channel()
    assert reader.basic_get(name, auto_ack=True)[2] == body


def test_get_counts_what_remains(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    assert channel.basic_get(name) == (None, None, None)
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", name, b"%d" % number)
    counts = []
    for number in range(3):
        method, _, body = channel.basic_get(name, auto_ack=True)
        assert body == b"%d" % number
        counts.append(method.message_count)
    assert counts == [2, 1, 0]
    assert channel.basic_get(name) == (None, None, None)


def fill(channel: BlockingChannel, queue: str, count: int) -> None:
    channel.queue_declare(queue)
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number)


def test_nacked_and_rejected_messages_return_to_their_places(
    channel: BlockingChannel, name: str
) -> None:
    fill(channel, name, 6)
    tags = [channel.basic_get(name)[0].delivery_tag for _ in range(4)]
    channel.basic_ack(tags[1])
    channel.basic_reject(tags[2], requeue=True)
    channel.basic_nack(tags[0], requeue=True)
    channel.basic_nack(tags[3], requeue=False)
    deliveries = take(channel, name, 4, auto_ack=True)
    assert bodies(deliveries) == [b"0", b"2", b"4", b"5"]
    assert [method.redelivered for method, _, _ in deliveries] == [True, True, False, False]


def test_nack_multiple_and_recover_give_back_everything(
    channel: BlockingChannel, name: str
) -> None:
    fill(channel, name, 5)
    tags = [channel.basic_get(name)[0].delivery_tag for _ in range(5)]
    channel.basic_nack(tags[2], multiple=True, requeue=True)
    assert [channel.basic_get(name)[2] for _ in range(3)] == [b"0", b"1", b"2"]
    channel.basic_recover(requeue=True)
    deliveries = take(channel, name, 5, auto_ack=True)
    assert bodies(deliveries) == [b"0", b"1", b"2", b"3", b"4"]
    assert all(method.redelivered for method, _, _ in deliveries)


def test_unacked_messages_return_when_the_channel_closes(
    connection: pika.BlockingConnection, name: str
) -> None:
    first = connection.channel()
    fill(first, name, 3)
    assert bodies([first.basic_get(name) for _ in range(2)]) == [b"0", b"1"]
    first.close()
    deliveries = take(connection.channel(), name, 3, auto_ack=True)
    assert bodies(deliveries) == [b"0", b"1", b"2"]
    assert [method.redelivered for method, _, _ in deliveries] == [True, True, False]


def test_prefetch_limits_what_is_outstanding(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    fill(channel, name, 10)
    reader = connection.channel()
    reader.basic_qos(prefetch_count=3)
    got: list[tuple[int, bytes]] = []
    reader.basic_consume(name, lambda _c, m, _p, body: got.append((m.delivery_tag, body)))
    connection.process_data_events(time_limit=0.5)
    assert [body for _, body in got] == [b"0", b"1", b"2"]
    reader.basic_ack(got[0][0])
    connection.process_data_events(time_limit=0.5)
    assert [body for _, body in got] == [b"0", b"1", b"2", b"3"]
    reader.basic_ack(got[-1][0], multiple=True)
    connection.process_data_events(time_limit=0.5)
    assert [body for _, body in got] == [b"%d" % number for number in range(7)]


def test_two_consumers_share_a_queue_evenly(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    got: dict[str, list[bytes]] = {"a": [], "b": []}

    def keep(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        got[method.consumer_tag].append(body)

    for tag in got:
        channel.basic_consume(name, keep, auto_ack=True, consumer_tag=tag)
    for number in range(100):
        channel.basic_publish("", name, b"%d" % number)
    deadline = time.monotonic() + 10
    while len(got["a"]) + len(got["b"]) < 100 and time.monotonic() < deadline:
        connection.process_data_events(time_limit=0.05)
    assert sorted(got["a"] + got["b"], key=int) == [b"%d" % number for number in range(100)]
    # Not merely both alive: neither starves.
    assert min(len(got["a"]), len(got["b"])) >= 20


def test_an_unroutable_mandatory_message_comes_back_before_its_confirm(
    channel: BlockingChannel, name: str
) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", name, b"nobody asked me to return", mandatory=False)
    properties = pika.BasicProperties(message_id="lost", headers={"a": 1})
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("amq.direct", name, b"come back", properties, mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", name)
    assert returned.body == b"come back"
    assert returned.properties.message_id == "lost"
    assert returned.properties.headers == {"a": 1}
    channel.queue_declare(name)
    channel.basic_publish("", name, b"now it arrives", mandatory=True)
    assert channel.basic_get(name, auto_ack=True)[2] == b"now it arrives"


def test_deleting_a_queue_tells_its_consumer(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume(name, lambda *_: None, consumer_tag="listener")
    connection.channel().queue_delete(name)
    connection.process_data_events(time_limit=1)
    assert cancelled == ["listener"]
    assert channel.is_open


def test_a_purge_takes_ready_messages_and_leaves_unacked_ones(
    channel: BlockingChannel, name: str
) -> None:
    fill(channel, name, 5)
    tag = channel.basic_get(name)[0].delivery_tag
    assert channel.queue_purge(name).method.message_count == 4
    channel.basic_nack(tag, requeue=True)
    assert channel.queue_delete(name).method.message_count == 1


def test_confirmed_messages_and_topology_outlive_kill_9(
    own_broker: BrokerProcess, connect_to: Connect
) -> None:
    """Confirmed means safe; what was unacked comes back, marked; what was acked does not."""
    connection = connect_to(own_broker.url)
    channel = connection.channel()
    channel.exchange_declare("logs", "topic", durable=True)
    channel.queue_declare("kept", durable=True)
    channel.queue_declare("lost", durable=False)
    channel.queue_bind("kept", "logs", "a.#")
    channel.confirm_delivery()
    for number in range(200):
        channel.basic_publish("logs", "a.b", b"%d" % number, PERSISTENT, mandatory=True)
    channel.basic_publish("logs", "a.b", b"transient", mandatory=True)
    tags = [channel.basic_get("kept")[0].delivery_tag for _ in range(20)]
    channel.basic_ack(tags[9], multiple=True)
    # A synchronous answer on the same channel: the broker has taken the ack.
    channel.queue_declare("kept", passive=True)
    time.sleep(0.3)
    own_broker.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(time_limit=5)
    own_broker.start()
    channel = connect_to(own_broker.url).channel()
    assert channel.queue_declare("kept", durable=True).method.message_count == 190
    deliveries = take(channel, "kept", 190, auto_ack=True)
    assert bodies(deliveries) == [b"%d" % number for number in range(10, 200)]
    assert all(method.redelivered for method, _, _ in deliveries[:10])
    channel.confirm_delivery()
    channel.basic_publish("logs", "a.new", b"after", PERSISTENT, mandatory=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'lost'"):
        channel.queue_declare("lost", passive=True)
