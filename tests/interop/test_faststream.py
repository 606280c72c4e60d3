"""FastStream: an application process with subscribers and publishers, and its answers to requests.

Requests use direct reply-to; the answers are published mandatory, which RabbitMQ returns although
they arrive.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from faststream.rabbit import RabbitBroker
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess
from tests.interop.app_process import ANSWER_S, AppProcess

Connect = Callable[..., pika.BlockingConnection]


def start(url: str, directory: Path) -> AppProcess:
    return AppProcess(url, "faststream", directory, ["tests.interop.faststream_app"])


@pytest.fixture(scope="module")
def app(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppProcess]:
    with start(broker.url, tmp_path_factory.mktemp("faststream")) as running:
        running.wait_for("app is up")
        yield running
        running.stop()


def get(channel: BlockingChannel, queue: str) -> tuple[pika.BasicProperties, bytes]:
    """The next message of the queue, which may be on its way."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return properties, body
        assert time.monotonic() < deadline, f"nothing in {queue}"
        time.sleep(0.02)


def ask(url: str, queue: str, *numbers: int) -> list[int]:
    """What another FastStream application gets for its requests, all made at once."""

    async def requests() -> list[int]:
        async with RabbitBroker(url) as broker:
            answers = [await broker.request(number, queue, timeout=ANSWER_S) for number in numbers]
            return [await answer.decode() for answer in answers]

    return asyncio.run(requests())


def test_what_a_subscriber_returns_is_published(app: AppProcess, channel: BlockingChannel) -> None:
    channel.queue_declare("invoices", durable=True)
    for count in range(1, 21):
        channel.basic_publish("", "orders", json.dumps({"price": 7, "count": count}).encode())
    totals = []
    for _ in range(20):
        properties, body = get(channel, "invoices")
        assert properties.delivery_mode == 2
        totals.append(json.loads(body)["total"])
    assert totals == [7 * count for count in range(1, 21)]


def test_requests_are_answered(app: AppProcess, broker: BrokerProcess) -> None:
    assert ask(broker.url, "double", *range(20)) == [2 * number for number in range(20)]


def test_a_topic_exchange_brings_what_was_subscribed(
    app: AppProcess, channel: BlockingChannel
) -> None:
    for key, name in (("user.new", "Ada"), ("shop.new", "Nobody"), ("user.back.again", "Grace")):
        channel.basic_publish("events", key, name.encode())
    app.wait_for("hello Grace")
    assert "hello Ada" in app.log()
    assert "hello Nobody" not in app.log()


def test_what_a_subscriber_rejects_is_a_dead_letter(
    app: AppProcess, channel: BlockingChannel
) -> None:
    channel.queue_declare("broken", durable=True)
    channel.basic_publish("", "fragile", b"glass")
    properties, body = get(channel, "broken")
    assert body == b"glass"
    death = properties.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == ("fragile", "rejected", 1)


def test_what_a_subscriber_gives_back_comes_again(
    app: AppProcess, channel: BlockingChannel
) -> None:
    channel.basic_publish("", "second-time", b"knock")
    app.wait_for("at last knock")


def test_a_quorum_queue_brings_again_what_was_given_back(
    app: AppProcess, channel: BlockingChannel
) -> None:
    channel.basic_publish("", "replicated", b"knock")
    app.wait_for("from quorum knock")
    declared = channel.queue_declare(
        "replicated", durable=True, arguments={"x-queue-type": "quorum"}
    )
    assert declared.method.consumer_count == 1


def test_it_connects_again_after_kill_9(
    own_broker: BrokerProcess, tmp_path: Path, connect_to: Connect
) -> None:
    """Durable queues and what is in them are there again, and so are the subscribers."""
    with start(own_broker.url, tmp_path) as app:
        app.wait_for("app is up")
        assert ask(own_broker.url, "double", 1) == [2]
        connection = connect_to(own_broker.url)
        connection.channel().queue_declare("invoices", durable=True)
        connection.close()
        own_broker.kill()
        own_broker.start()
        channel = connect_to(own_broker.url).channel()
        channel.basic_publish("", "orders", b'{"price": 5, "count": 5}')
        _, body = get(channel, "invoices")
        assert json.loads(body) == {"total": 25}
        app.stop()
