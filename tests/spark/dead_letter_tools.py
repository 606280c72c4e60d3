"""Dead letters made as users get them: published, refused or left to expire."""

from __future__ import annotations

import time
from typing import Any

import pika

from tests.spark.spark_tools import depth


class Undertaker:
    """Declares a queue whose dead go to another, publishes there, and refuses what comes."""

    def __init__(self, url: str, work: str, dlq: str, exchange: str = "") -> None:
        self.url, self.work, self.dlq, self.exchange = url, work, dlq, exchange
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0  # it hears nothing while Spark works
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._channel.queue_declare(dlq, durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq}
        self._channel.queue_declare(work, durable=True, arguments=arguments)
        if exchange:
            self._channel.exchange_declare(exchange, "topic", durable=True)
            self._channel.queue_bind(work, exchange, "#")

    def publish(self, body: bytes, key: str | None = None, **properties: Any) -> None:
        self._channel.basic_publish(
            self.exchange,
            key or self.work,
            body,
            pika.BasicProperties(delivery_mode=2, **properties),
            mandatory=True,
        )

    def reject_all(self) -> int:
        """Each message in the work queue dies of ``rejected``."""
        count = 0
        while True:
            method, _, _ = self._channel.basic_get(self.work)
            if method is None:
                return count
            self._channel.basic_reject(method.delivery_tag, requeue=False)
            count += 1

    def wait_for(self, count: int) -> None:
        """So many are in the dead-letter queue."""
        deadline = time.monotonic() + 20
        while depth(self.url, self.dlq) != count:
            assert time.monotonic() < deadline, depth(self.url, self.dlq)
            time.sleep(0.05)

    def take_all(self, queue: str) -> list[tuple[bytes, pika.BasicProperties, str, str]]:
        """(body, properties, exchange, routing key), acknowledged."""
        taken = []
        while True:
            method, properties, body = self._channel.basic_get(queue, auto_ack=True)
            if method is None:
                return taken
            taken.append((body, properties, method.exchange, method.routing_key))

    def peek(self, queue: str) -> tuple[bytes, pika.BasicProperties, str, str]:
        """The first one, which stays."""
        method, properties, body = self._channel.basic_get(queue)
        self._channel.basic_nack(method.delivery_tag, requeue=True)
        return body, properties, method.exchange, method.routing_key

    def close(self) -> None:
        self._connection.close()
