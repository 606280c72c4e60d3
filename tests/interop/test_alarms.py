"""Memory and disk alarms, as unmodified clients see them come and go.

The alarms are raised with the commands operators use, ``rabbitmqctl`` for RabbitMQ and
``penstock`` with the same words here, so all of it is proved on the real one too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingConnection

from tests.helpers.administer import DISK, MEMORY, administer
from tests.helpers.broker_process import BrokerProcess
from tests.interop.programs import PROGRAMS, built, finish, hear, missing_reason, start

Connect = Callable[..., BlockingConnection]
WAIT_S = 15.0
NO_DISK_HAS = "900000GB"

# The first test of a program may have to fetch its libraries.
pytestmark = pytest.mark.timeout(400)


class Publisher:
    """Publishes a little at a time, and keeps what it is told meanwhile."""

    def __init__(self, connection: BlockingConnection, queue: str) -> None:
        self.connection = connection
        self.queue = queue
        self.heard: list[str] = []
        self.count = 0
        connection.add_on_connection_blocked_callback(
            lambda _connection, frame: self.heard.append(frame.method.reason)
        )
        connection.add_on_connection_unblocked_callback(
            lambda _connection, _frame: self.heard.append("free")
        )
        self.channel = connection.channel()
        self.channel.queue_declare(queue, durable=True)

    def publish(self) -> None:
        self.channel.basic_publish("", self.queue, b"%d" % self.count)
        self.count += 1

    def publish_until(self, *heard: str) -> None:
        until = time.monotonic() + WAIT_S
        while self.heard != list(heard):
            assert time.monotonic() < until, self.heard
            self.publish()
            self.connection.process_data_events(0.02)

    def listen(self, seconds: float = 0.5) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.connection.process_data_events(0.02)


class Taker:
    """A connection that only consumes."""

    def __init__(self, connection: BlockingConnection, queue: str) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.channel.basic_qos(prefetch_count=5)
        self.numbers: list[int] = []
        self.channel.basic_consume(queue, self._take)

    def _take(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.numbers.append(int(body))
        channel.basic_ack(method.delivery_tag)

    def take(self, count: int) -> None:
        until = time.monotonic() + WAIT_S
        while len(self.numbers) < count:
            assert time.monotonic() < until, len(self.numbers)
            self.connection.process_data_events(0.02)


@pytest.mark.parametrize(
    "raising, clearing, reason",
    [
        ((MEMORY, "0"), (MEMORY, "0.4"), "low on memory"),
        ((MEMORY, "absolute", "1MB"), (MEMORY, "absolute", "1GB"), "low on memory"),
        ((DISK, NO_DISK_HAS), (DISK, "1MB"), "low on disk"),
        ((DISK, "mem_relative", "1000000"), (DISK, "mem_relative", "0.001"), "low on disk"),
    ],
)
def test_pika_sees_an_alarm_come_and_go(
    own_broker: BrokerProcess,
    connect_to: Connect,
    raising: tuple[str, ...],
    clearing: tuple[str, ...],
    reason: str,
) -> None:
    publisher = Publisher(connect_to(own_broker.url), "q")
    for _ in range(100):
        publisher.publish()
    administer(own_broker, *raising)
    publisher.publish_until(reason)
    # Who only consumes is not held: it comes, takes what is there, and acknowledges.
    taker = Taker(connect_to(own_broker.url), "q")
    taker.take(100)
    held = publisher.count
    administer(own_broker, *clearing)
    publisher.publish_until(reason, "free")
    publisher.publish()
    taker.take(publisher.count)
    assert held < publisher.count
    assert taker.numbers == list(range(publisher.count))


def test_pika_is_told_once_and_freed_when_the_last_alarm_is_gone(
    own_broker: BrokerProcess, connect_to: Connect
) -> None:
    first = Publisher(connect_to(own_broker.url), "q")
    administer(own_broker, DISK, NO_DISK_HAS)
    first.publish_until("low on disk")
    administer(own_broker, MEMORY, "0")
    second = Publisher(connect_to(own_broker.url), "q")
    second.publish_until("low on disk & memory")
    administer(own_broker, DISK, "1MB")
    first.listen()
    second.listen()
    third = Publisher(connect_to(own_broker.url), "q")
    third.publish_until("low on memory")
    assert (first.heard, second.heard) == (["low on disk"], ["low on disk & memory"])
    administer(own_broker, MEMORY, "0.4")
    first.publish_until("low on disk", "free")
    second.publish_until("low on disk & memory", "free")
    third.publish_until("low on memory", "free")


def test_what_was_set_is_gone_after_a_restart(
    own_broker: BrokerProcess, connect_to: Connect
) -> None:
    administer(own_broker, MEMORY, "0")
    administer(own_broker, DISK, NO_DISK_HAS)
    own_broker.stop()
    own_broker.start()
    publisher = Publisher(connect_to(own_broker.url), "q")
    publisher.channel.confirm_delivery()
    publisher.publish()
    assert publisher.heard == []


def test_the_commands_say_what_rabbitmqctl_says(own_broker: BrokerProcess) -> None:
    for words, ending in (
        ((MEMORY, "0.5"), "to 0.5 ..."),
        ((MEMORY, "absolute", "1GB"), "to 1GB bytes ..."),
    ):
        said = administer(own_broker, *words)
        assert said.startswith("Setting memory threshold on ")
        assert said.endswith(f" {ending}\n")
    for words, ending in (
        ((DISK, "2GB"), "to 2GB bytes ..."),
        ((DISK, "mem_relative", "0.01"), "to 0.01 times the total RAM ..."),
    ):
        said = administer(own_broker, *words)
        assert said.startswith("Setting disk free limit on ")
        assert said.endswith(f" {ending}\n")


@pytest.mark.parametrize("name", ["java", "ruby", "php"])
def test_the_listener_of_a_library_hears_both_alarms(own_broker: BrokerProcess, name: str) -> None:
    (program,) = (program for program in PROGRAMS if program.name == name)
    reason = missing_reason(program)
    if reason:
        pytest.skip(reason)
    directory: Path = built(program)
    process = start(program, directory, "held", own_broker.url, "q", 2)
    hear(process, "started")
    administer(own_broker, MEMORY, "0")
    hear(process, "blocked low on memory")
    administer(own_broker, MEMORY, "0.4")
    hear(process, "unblocked")
    administer(own_broker, DISK, NO_DISK_HAS)
    hear(process, "blocked low on disk")
    administer(own_broker, DISK, "1MB")
    hear(process, "unblocked")
    said = finish(process)
    with pika.BlockingConnection(pika.URLParameters(own_broker.url)) as connection:
        depth = connection.channel().queue_declare("q", passive=True).method.message_count
    assert depth == said["confirmed"] > 0
