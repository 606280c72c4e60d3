"""The topology with which NServiceBus delays messages: 28 levels of topic exchange and queue.

Level N's queue keeps a message 2^N seconds.  The routing key spells the delay in binary, 28 words
of 0 or 1 and then the address: an exchange sends a message to its queue where its word is 1, else
straight on to the next lower level; a queue's dead letter exchange is the next lower level.  Below
level 0 is the exchange to which the queues of endpoints are bound by their address.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess

LEVELS = 28
DELIVERY = "nsb.v2.delay-delivery"
ENDPOINT = "Sales.Orders"

pytestmark = pytest.mark.slow


def level_name(level: int) -> str:
    return f"nsb.v2.delay-level-{level:02}"


def declare(channel: BlockingChannel) -> None:
    channel.exchange_declare(DELIVERY, "topic", durable=True)
    below = DELIVERY
    for level in range(LEVELS):
        name = level_name(level)
        channel.exchange_declare(name, "topic", durable=True)
        arguments = {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-message-ttl": 1000 << level,
            "x-dead-letter-exchange": below,
        }
        channel.queue_declare(name, durable=True, arguments=arguments)
        before = "*." * (LEVELS - 1 - level)
        channel.queue_bind(name, name, f"{before}1.#")
        channel.exchange_bind(below, name, f"{before}0.#")
        below = name
    channel.queue_declare(ENDPOINT, durable=True, arguments={"x-queue-type": "quorum"})
    channel.exchange_declare(ENDPOINT, "fanout", durable=True)
    channel.queue_bind(ENDPOINT, ENDPOINT)
    channel.exchange_bind(ENDPOINT, DELIVERY, f"#.{ENDPOINT}")


def send(channel: BlockingChannel, delay_s: int) -> None:
    key = ".".join(f"{delay_s:0{LEVELS}b}") + f".{ENDPOINT}"
    first = level_name(max(delay_s.bit_length() - 1, 0))
    properties = pika.BasicProperties(
        delivery_mode=2, headers={"NServiceBus.Transport.RabbitMQ.DelayInSeconds": delay_s}
    )
    channel.basic_publish(first, key, f"{delay_s}".encode(), properties, mandatory=True)


def test_messages_come_after_their_delays_and_a_restart(
    own_broker: BrokerProcess, connect_to: Callable[..., pika.BlockingConnection]
) -> None:
    connection = connect_to(own_broker.url)
    channel = connection.channel()
    channel.confirm_delivery()
    declare(channel)
    declare(channel)  # every endpoint does when it starts
    sent_s = time.monotonic()
    delays = [5, 1, 3, 2, 4, 6, 1000]
    for delay_s in delays:
        send(channel, delay_s)
    connection.close()
    own_broker.kill()
    own_broker.start()
    channel = connect_to(own_broker.url).channel()
    came: list[tuple[int, float]] = []
    for method, properties, body in channel.consume(ENDPOINT, inactivity_timeout=30):
        assert method is not None, f"nothing came behind {came}"
        assert properties.headers["NServiceBus.Transport.RabbitMQ.DelayInSeconds"] == int(body)
        came.append((int(body), time.monotonic() - sent_s))
        channel.basic_ack(method.delivery_tag)
        if len(came) == len(delays) - 1:
            break
    assert sorted(delay_s for delay_s, _ in came) == [1, 2, 3, 4, 5, 6]
    assert all(delay_s - 0.1 <= took_s for delay_s, took_s in came), came
    waiting = channel.queue_declare(level_name(9), durable=True, passive=True)
    assert waiting.method.message_count == 1
