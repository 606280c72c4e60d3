"""One broker process, seen by NSQ, AMQP, ``/stats`` and the management API at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.nsq_broker import eventually
from tests.helpers.nsq_live import NsqLiveBroker, RawClient
from tests.helpers.raw_nsq import NsqMessage, identify

SILENCE_S = 0.3
"""So long nothing may come, where nothing is to come."""


class BothBroker(NsqLiveBroker):
    """``NsqLiveBroker`` with the words the tests of two protocols share."""

    def manage(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the management API as guest."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
        request = Request(self.http_url + path, data, headers, method=method)
        with urlopen(request, timeout=10) as response:
            text = response.read()
        return json.loads(text) if text else None

    def define(self, **sections: list[dict[str, Any]]) -> None:
        assert self.manage("POST", "/api/definitions", sections) is None  # nothing is left out

    def policy(self, name: str, pattern: str, kind: str = "queues", **definition: object) -> None:
        keys = {key.replace("_", "-"): value for key, value in definition.items()}
        row = {"name": name, "pattern": pattern, "apply-to": kind, "definition": keys}
        self.define(policies=[{"vhost": "/", **row}])

    def user(self, name: str, configure: str, write: str, read: str) -> str:
        """A new user with these rights; the secret for AUTH."""
        rights = {"configure": configure, "write": write, "read": read}
        self.define(
            users=[{"name": name, "password": "pw", "tags": []}],
            permissions=[{"user": name, "vhost": "/", **rights}],
        )
        return f"{name}:pw"

    def make(self, topic: str, channel: str = "c") -> None:
        assert self.post(f"/topic/create?topic={quote(topic)}").status == 200
        where = f"topic={quote(topic)}&channel={quote(channel)}"
        assert self.post(f"/channel/create?{where}").status == 200

    def publish(self, topic: str, *bodies: str) -> None:
        answer = self.post(f"/mpub?topic={quote(topic)}", "\n".join(bodies).encode())
        assert answer.body == "OK", answer

    def topic_row(self, topic: str) -> Any:
        return self.stats(f"topic={quote(topic)}")["topics"][0]

    def row(self, topic: str, channel: str = "c") -> Any:
        rows = self.topic_row(topic)["channels"]
        return next(one for one in rows if one["channel_name"] == channel)

    def counts(self, topic: str, channel: str = "c") -> tuple[int, int, int]:
        """Of a channel: ready, in flight, deferred."""
        row = self.row(topic, channel)
        return row["depth"], row["in_flight_count"], row["deferred_count"]

    def await_counts(self, topic: str, *counts: int) -> None:
        eventually(lambda: self.counts(topic) == counts)

    def queue_row(self, queue: str) -> Any:
        return self.manage("GET", f"/api/queues/%2f/{quote(queue, safe='')}")

    @contextmanager
    def amqp(self) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()


class Consumer(RawClient):
    """Subscribed to the channel ``c`` of a topic; ``fields`` are IDENTIFY's."""

    def __init__(
        self,
        broker: NsqLiveBroker,
        topic: str,
        ready: int = 100,
        channel: str = "c",
        **fields: object,
    ) -> None:
        super().__init__(broker)
        assert self.ask(identify(**fields) + b"SUB %s %s\n" % (topic.encode(), channel.encode()))
        assert self.read(1) == [b"OK"]
        self.ready(ready)

    def ready(self, count: int) -> None:
        self.send(b"RDY %d\n" % count)

    def take(self, count: int, within_s: float = 10) -> list[NsqMessage]:
        found = self.read(count, within_s)
        assert len(found) == count, found
        assert all(isinstance(one, NsqMessage) for one in found), found
        return found

    def bodies(self, count: int, within_s: float = 10) -> list[str]:
        return [message.body.decode() for message in self.take(count, within_s)]

    def nothing(self, within_s: float = SILENCE_S) -> None:
        assert self.read(1, within_s) == []

    def finish(self, *messages: NsqMessage) -> None:
        self.send(b"".join(b"FIN %s\n" % message.id for message in messages))

    def requeue(self, message: NsqMessage, delay_ms: int = 0) -> None:
        self.send(b"REQ %s %d\n" % (message.id, delay_ms))


class Taker:
    """A consumer of AMQP; ``got`` is what it was delivered."""

    def __init__(self, channel: BlockingChannel, queue: str, prefetch: int = 0) -> None:
        self.channel = channel
        self.got: list[tuple[Any, pika.BasicProperties, bytes]] = []
        channel.basic_qos(prefetch_count=prefetch)
        self.tag = channel.basic_consume(
            queue, lambda _, method, properties, body: self.got.append((method, properties, body))
        )

    def listen(self, seconds: float = SILENCE_S) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.channel.connection.process_data_events(left)

    def take(self, count: int) -> list[str]:
        """Bodies of the next so many."""
        until = time.monotonic() + 10
        while len(self.got) < count and time.monotonic() < until:
            self.channel.connection.process_data_events(0.05)
        return [body.decode(errors="replace") for _, _, body in self.got[:count]]

    def one(self) -> tuple[Any, pika.BasicProperties, bytes]:
        self.take(1)
        return self.got[0]

    def ack(self, place: int) -> None:
        self.channel.basic_ack(self.got[place][0].delivery_tag)
