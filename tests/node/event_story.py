"""What a client and an administrator do, and the events that a broker publishes meanwhile.

    python -m tests.node.event_story amqp://guest:guest@127.0.0.1:5672 http://127.0.0.1:15672 \\
        > tests/node/events-4.3.6.json

records the story anew from RabbitMQ 4.3.6 with the plug-ins ``rabbitmq_event_exchange``,
``rabbitmq_management`` and ``rabbitmq_federation``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError

import pika
import pika.exceptions

from tests.helpers.management_api import manage

EVENTS = "amq.rabbitmq.event"
QUIET_S = 0.6
SHORTLY_S = 0.1
LIMIT_S = 20.0
Event = tuple[str, dict[str, Any]]
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
UPSTREAM = {"value": {"uri": "amqp://nowhere.invalid"}}


class World:
    """A broker and a queue with all of its events; ``channel`` is another connection's."""

    def __init__(self, amqp_url: str, http_url: str) -> None:
        self._amqp_url, self._http_url = amqp_url, http_url
        self._watch = pika.BlockingConnection(pika.URLParameters(amqp_url))
        self._watching = self._bound()
        self.other: Any = None
        self.channel: Any = None

    def _bound(self) -> Any:
        """The exchange is there a moment after the start."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            channel = self._watch.channel()
            channel.queue_declare("events", exclusive=True)
            try:
                channel.queue_bind("events", EVENTS, "#")
                return channel
            except pika.exceptions.ChannelClosedByBroker:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def parameters(self, password: str = "guest") -> pika.URLParameters:
        found = pika.URLParameters(self._amqp_url)
        found.client_properties = {"connection_name": "second"}
        found.credentials = pika.PlainCredentials("guest", password)
        return found

    def connect(self) -> None:
        self.other = pika.BlockingConnection(self.parameters())

    def fail(self) -> None:
        with suppress(pika.exceptions.AMQPError):
            pika.BlockingConnection(self.parameters("wrong"))

    def open_channel(self) -> None:
        self.channel = self.other.channel()

    def consume(self) -> None:
        self.channel.basic_qos(prefetch_count=7)
        self.channel.basic_consume("q", bool, consumer_tag="c1")

    def ask(self, method: str, path: str, body: object = None) -> None:
        manage(f"{self._http_url}/api/{path}", body, method)

    def happened(self, wanted: int = 0, quiet_s: float = QUIET_S) -> list[Event]:
        """Since the last time, by key; waits for so many, and until nothing more comes."""
        found: list[Event] = []
        limit = time.monotonic() + LIMIT_S
        quiet_at = time.monotonic() + quiet_s
        while time.monotonic() < (quiet_at if len(found) >= wanted else limit):
            method, properties, _ = self._watching.basic_get("events", auto_ack=True)
            if method is None:
                time.sleep(0.02)
                continue
            found.append(
                (method.routing_key, {k: told(k, v) for k, v in properties.headers.items()})
            )
            quiet_at = time.monotonic() + quiet_s
        return sorted(found, key=lambda one: json.dumps(one, sort_keys=True))

    def close(self) -> None:
        self._watch.close()


def told(key: str, value: Any) -> Any:
    """What differs from one run to the next by its kind."""
    if key in ("timestamp_in_ms", "connected_at", "peer_port", "port", "timestamp"):
        return "<number>"
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"<[\w.@-]*\d+\.\d+\.\d+>", value):
        return "<pid>"
    value = re.sub(r"127\.0\.0\.1:\d+ -> 127\.0\.0\.1:\d+", "<connection>", value)
    return re.sub(r"(rabbit|penstock)@[\w.-]+", "<node>", value)


Step = tuple[str, Callable[[World], object]]


def http(method: str, path: str, body: object = None) -> Step:
    return f"{method} {path}", lambda world: world.ask(method, path, body)


ARGUMENTS = {"x-max-length": 10}
QUORUM = {"x-queue-type": "quorum"}
STEPS: list[Step] = [
    ("a connection", World.connect),
    ("a channel", World.open_channel),
    ("exchange.declare", lambda w: w.channel.exchange_declare("x", "topic", durable=True)),
    ("queue.declare", lambda w: w.channel.queue_declare("q", durable=True, arguments=ARGUMENTS)),
    ("queue.bind", lambda w: w.channel.queue_bind("q", "x", "k.#")),
    ("basic.consume", World.consume),
    ("basic.cancel", lambda w: w.channel.basic_cancel("c1")),
    ("basic.consume again", World.consume),
    ("queue.unbind", lambda w: w.channel.queue_unbind("q", "x", "k.#")),
    ("queue.delete", lambda w: w.channel.queue_delete("q")),
    ("exchange.delete", lambda w: w.channel.exchange_delete("x")),
    ("a quorum queue", lambda w: w.channel.queue_declare("qq", durable=True, arguments=QUORUM)),
    ("a quorum queue goes", lambda w: w.channel.queue_delete("qq")),
    ("channel.close", lambda w: w.channel.close()),
    ("connection.close", lambda w: w.other.close()),
    ("a wrong password", World.fail),
    http("PUT", "users/u", {"password": "one", "tags": "monitoring,policymaker"}),
    http("PUT", "users/u", {"password": "two", "tags": "management"}),
    http("PUT", "permissions/%2F/u", ALL),
    http("DELETE", "permissions/%2F/u"),
    http("PUT", "topic-permissions/%2F/u", {"exchange": "amq.topic", "write": "a", "read": "b"}),
    http("DELETE", "topic-permissions/%2F/u"),
    http("PUT", "user-limits/u/max-channels", {"value": 5}),
    http("DELETE", "user-limits/u/max-channels"),
    http("DELETE", "users/u"),
    http("PUT", "vhosts/v", {"description": "of v", "tags": "a,b"}),
    http("PUT", "vhosts/v", {"description": "other", "tags": "a,c"}),
    http("PUT", "vhost-limits/v/max-queues", {"value": 5}),
    http("DELETE", "vhost-limits/v/max-queues"),
    http("DELETE", "vhosts/v"),
    http("PUT", "policies/%2F/p", {"pattern": "z", "definition": {"max-length": 1}}),
    http("DELETE", "policies/%2F/p"),
    http("PUT", "operator-policies/%2F/o", {"pattern": "z", "definition": {"max-length": 1}}),
    http("DELETE", "operator-policies/%2F/o"),
    http("PUT", "parameters/federation-upstream/%2F/up", UPSTREAM),
    http("DELETE", "parameters/federation-upstream/%2F/up"),
    http("PUT", "global-parameters/g", {"name": "g", "value": {"a": 1}}),
    http("DELETE", "global-parameters/g"),
]


def run(amqp_url: str, http_url: str, wanted: list[int] | None = None) -> list[list[Any]]:
    """Of each step its name and the events, in the order of their keys.

    ``wanted``: how many each step has at least, so that one more is waited for but shortly.
    """
    world = World(amqp_url, http_url)
    world.happened()
    found = []
    for number, (name, do) in enumerate(STEPS):
        try:
            do(world)
        except HTTPError as error:
            raise AssertionError(f"{name}: {error.read()!r}") from error
        known = () if wanted is None else (wanted[number], SHORTLY_S)
        found.append([name, world.happened(*known)])
    world.close()
    return found


if __name__ == "__main__":
    json.dump(run(*sys.argv[1:]), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
