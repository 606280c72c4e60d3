"""pika: a stream is read from every kind of place, also when the broker was killed in between."""

from __future__ import annotations

import datetime as dt
import time

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess

STREAM = {"x-queue-type": "stream"}
COUNT = 60


class Reader:
    """A connection with one consumer of a stream."""

    def __init__(
        self, url: str, name: str, offset: object, prefetch: int = 100, kept_by: str = ""
    ) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.found: list[tuple[int, bytes]] = []
        arguments: dict[str, object] = {"x-stream-offset": offset}
        if kept_by:
            arguments["x-stream-automatic-offset-tracking"] = True
        tag = kept_by or None
        self.channel.basic_consume(name, self._got, arguments=arguments, consumer_tag=tag)

    def _got(
        self,
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        assert properties.headers is not None
        self.found.append((properties.headers["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)

    def read(self, count: int, patience_s: float = 30.0) -> list[tuple[int, bytes]]:
        deadline = time.monotonic() + patience_s
        while len(self.found) < count and time.monotonic() < deadline:
            self.connection.process_data_events(0.2)
        return self.found


def published(url: str, name: str, numbers: range) -> None:
    """Each is confirmed, or this raises."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=STREAM)
        channel.confirm_delivery()
        for number in numbers:
            channel.basic_publish("", name, b"m%d" % number)


def expected(first: int, end: int = COUNT) -> list[tuple[int, bytes]]:
    return [(number, b"m%d" % number) for number in range(first, end)]


def test_every_kind_of_place_over_a_kill(own_broker: BrokerProcess) -> None:
    """Half of the stream, SIGKILL while a reader is in the middle, the other half."""
    url = own_broker.url
    now = dt.datetime.fromtimestamp(int(time.time()), tz=dt.UTC)
    published(url, "s", range(COUNT // 2))
    early = Reader(url, "s", "first", prefetch=7)
    assert early.read(10)[:10] == expected(0, 10)
    own_broker.kill()
    with pytest.raises(pika.exceptions.AMQPError):
        early.read(COUNT)
    seen = len(early.found)
    own_broker.start()
    late = Reader(url, "s", "next")
    middle = dt.datetime.fromtimestamp(int(time.time()) + 1, tz=dt.UTC)
    time.sleep(2.1)
    published(url, "s", range(COUNT // 2, COUNT))
    for offset, first in (
        ("first", 0),
        (0, 0),
        (seen, seen),
        (41, 41),
        (-5, COUNT - 5),
        ("last", COUNT - 1),
        ("1h", 0),
        (now - dt.timedelta(hours=1), 0),
        (middle, COUNT // 2),
    ):
        reader = Reader(url, "s", offset)
        assert reader.read(COUNT - first) == expected(first), offset
        reader.connection.close()
    assert late.read(COUNT // 2) == expected(COUNT // 2)
    late.connection.close()
    own_broker.restart()
    reader = Reader(url, "s", "first")
    assert reader.read(COUNT) == expected(0)
    reader.connection.close()


def test_what_was_confirmed_survives_kills_under_load(own_broker: BrokerProcess) -> None:
    """Offsets are dense, nothing confirmed is missing or twice, order is kept."""
    url = own_broker.url
    confirmed: list[bytes] = []
    for life in range(3):
        with pytest.raises(pika.exceptions.AMQPError):
            _publish_until_killed(own_broker, url, life, confirmed)
        own_broker.start()
    reader = Reader(url, "s", "first")
    reader.read(len(confirmed))
    found = reader.read(len(confirmed) + 4, patience_s=1.0)
    assert len(found) <= len(confirmed) + 3, "each kill may have left one that was not confirmed"
    assert [offset for offset, _ in found] == list(range(len(found)))
    bodies = [body for _, body in found]
    assert [body for body in bodies if body in set(confirmed)] == confirmed
    assert len(set(bodies)) == len(bodies)
    reader.connection.close()


def _publish_until_killed(
    broker: BrokerProcess, url: str, life: int, confirmed: list[bytes]
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("s", durable=True, arguments=STREAM)
    channel.confirm_delivery()
    for number in range(1000):
        body = b"%d-%d" % (life, number)
        if number == 40:
            broker.kill()
        channel.basic_publish("", "s", body)
        confirmed.append(body)


def test_a_position_is_kept_over_kills(own_broker: BrokerProcess) -> None:
    """SIGKILL in the middle: what was acknowledged may come again, nothing is missed."""
    url = own_broker.url
    published(url, "s", range(COUNT))
    seen: list[tuple[int, bytes]] = []
    for life in range(3):
        reader = Reader(url, "s", "first", prefetch=5, kept_by="billing")
        reader.read(15)
        if life == 1:
            time.sleep(2.1)
            reader.connection.process_data_events(0.1)
        assert reader.found[0][0] <= len(seen)
        if life == 2:
            assert reader.found[0][0] > 0
        seen = expected(0, max(len(seen), reader.found[-1][0] + 1))
        own_broker.kill()
        with pytest.raises(pika.exceptions.AMQPError):
            reader.read(COUNT + 1)
        own_broker.start()
    reader = Reader(url, "s", "first", kept_by="billing")
    first = reader.read(1)[0][0]
    assert reader.read(COUNT - first) == expected(first)
    reader.connection.close()
    own_broker.restart()
    reader = Reader(url, "s", "first", kept_by="billing")
    reader.connection.process_data_events(1)
    assert reader.found == []
    reader.connection.close()
