"""What goes on in the broker while somebody looks: two clients, queues that grow."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Self

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError

from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage


class Life:
    """Two clients of the broker, and the objects the tests look at."""

    def __init__(self, node: LiveBroker) -> None:
        self._node = node
        self._connections: list[pika.BlockingConnection] = []
        self.channel = self.connect("shop")
        self.channel.confirm_delivery()
        self._declare()
        self.consumer = self.connect("warehouse")
        self.consumer.basic_qos(prefetch_count=20)
        self.consumer.basic_consume("orders.new", lambda *_: None, consumer_tag="packer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def connect(self, name: str) -> BlockingChannel:
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            self._node.amqp_port,
            heartbeat=0,  # nothing answers one while a page is looked at
            client_properties={"connection_name": name},
        )
        connection = pika.BlockingConnection(parameters)
        self._connections.append(connection)
        return connection.channel()

    def forget(self, channel: BlockingChannel) -> None:
        """Its connection was closed by somebody else."""
        connection = channel.connection
        with suppress(AMQPConnectionError):
            connection.process_data_events(1)
        self._connections.remove(connection)

    def _declare(self) -> None:
        channel = self.channel
        channel.exchange_declare("orders", "topic", durable=True)
        channel.exchange_declare("dead", "fanout", durable=True)
        arguments = {"x-dead-letter-exchange": "dead", "x-max-length": 100_000}
        for name, key in (("orders.new", "order.new"), ("orders.audit", "order.#")):
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.queue_bind(name, "orders", key)
        channel.queue_declare("dead", durable=True)
        channel.queue_bind("dead", "dead")
        channel.queue_declare("<b>odd/name & co</b>", auto_delete=True)

    def publish(self, count: int, key: str = "order.new", **properties: Any) -> None:
        """Confirmed when it returns."""
        made = pika.BasicProperties(delivery_mode=2, **properties)
        for number in range(count):
            body = json.dumps({"order": number, "total": number * 3.5}).encode()
            self.channel.basic_publish("orders", key, body, made)

    def keep_alive(self) -> None:
        for connection in self._connections:
            connection.process_data_events(0)

    def api(self, path: str, method: str = "GET", body: Any = None) -> Any:
        return manage(self._node.http_url + path, body, method)
