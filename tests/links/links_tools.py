"""A broker as tests of links see it: its management API, and a pika channel for each use."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pika

from penstock.cli.management import Management
from tests.helpers.broker_process import BrokerProcess

WAIT_S = 30.0


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


class Side:
    """``http_url``: of its management API, "" = none."""

    def __init__(self, broker: BrokerProcess, http_url: str) -> None:
        self.broker = broker
        self.api = Management(http_url or None, "guest", "guest")

    @property
    def url(self) -> str:
        return self.broker.url

    def metrics(self) -> str:
        request = urllib.request.Request(f"{self.api.url}/metrics")
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def channel(self) -> Any:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        channel = connection.channel()
        channel.confirm_delivery()
        return channel

    def fill(self, queue: str, count: int, **properties: Any) -> None:
        channel = self.channel()
        channel.queue_declare(queue, durable=True)
        for number in range(count):
            made = pika.BasicProperties(delivery_mode=2, **properties)
            channel.basic_publish("", queue, b"%d" % number, made)
        channel.connection.close()

    def publish(self, exchange: str, key: str, *bodies: bytes) -> None:
        channel = self.channel()
        for body in bodies:
            channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2))
        channel.connection.close()

    def bound(self, queue: str, exchange: str, key: str, kind: str = "topic") -> None:
        channel = self.channel()
        channel.exchange_declare(exchange, kind, durable=True)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, key)
        channel.connection.close()

    def depth(self, queue: str) -> int:
        channel = self.channel()
        try:
            count: int = channel.queue_declare(queue, passive=True).method.message_count
        except pika.exceptions.ChannelClosedByBroker:
            return -1
        finally:
            channel.connection.close()
        return count

    def take_all(self, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
        channel = self.channel()
        found = []
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                channel.connection.close()
                return found
            found.append((properties, body))
