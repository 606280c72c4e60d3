"""pika: what RabbitMQ's users know from community plug-ins, spelt as they spell it."""

from __future__ import annotations

import time

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess
from tests.interop.test_pika_topology import arrived


def later(milliseconds: int) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"x-delay": milliseconds}, delivery_mode=2)


def wait_for(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += arrived(channel, queue)
        time.sleep(0.01)
    return found


def test_delayed_messages(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-delayed-type": "topic"}
    channel.exchange_declare(name, "x-delayed-message", durable=True, arguments=arguments)
    channel.queue_declare(name)
    channel.queue_bind(name, name, "a.#")
    channel.confirm_delivery()
    started = time.monotonic()
    for delay in (400, 100, 200):
        channel.basic_publish(name, "a.b", b"%d" % delay, later(delay))
    channel.basic_publish(name, "a", b"now")
    assert wait_for(channel, name, 4) == [b"now", b"100", b"200", b"400"]
    assert 0.4 <= time.monotonic() - started < 5
    channel.exchange_delete(name)


def test_delays_survive_a_restart(own_broker: BrokerProcess) -> None:
    arguments = {"x-delayed-type": "direct"}
    with pika.BlockingConnection(pika.URLParameters(own_broker.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("x", "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "x", "k")
        channel.confirm_delivery()
        for delay in (1, 3000, 1500):
            channel.basic_publish("x", "k", b"%d" % delay, later(delay))
        assert wait_for(channel, "q", 1) == [b"1"]
    own_broker.kill()
    own_broker.restart()
    with pika.BlockingConnection(pika.URLParameters(own_broker.url)) as connection:
        channel = connection.channel()
        found = wait_for(channel, "q", 2)
        if found[0] == b"1":  # its acknowledgement may not have been on disk
            found = [*found[1:], *wait_for(channel, "q", 1)]
        assert found == [b"1500", b"3000"]


def test_queues_that_take_each_message_once(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-message-deduplication": True})
    channel.confirm_delivery()
    for key in ("a", "b", "a"):
        properties = pika.BasicProperties(headers={"x-deduplication-header": key})
        channel.basic_publish("", name, key.encode(), properties)
    assert arrived(channel, name) == [b"a", b"b"]
    channel.basic_publish("", name, b"again", properties)
    assert arrived(channel, name) == [b"again"]


def test_an_exchange_shares_by_weight(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "x-consistent-hash")
    queues = [f"{name}.{number}" for number in (1, 3)]
    for queue, weight in zip(queues, ("1", "3"), strict=True):
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, name, weight)
    channel.confirm_delivery()
    for number in range(400):
        channel.basic_publish(name, f"key {number % 200}", b"%d" % (number % 200))
    shares = [arrived(channel, queue) for queue in queues]
    assert sorted(shares[0] + shares[1]) == sorted(b"%d" % (n % 200) for n in range(400))
    assert set(shares[0]).isdisjoint(shares[1])
    assert 60 <= len(shares[0]) <= 140
    channel.exchange_delete(name)
