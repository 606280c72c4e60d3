"""pika: a stream is read from every kind of place, also when the broker was killed in between."""

from __future__ import annotations

import datetime as dt
import os
import random
import threading
import time

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess

STREAM = {"x-queue-type": "stream"}
COUNT = 60
KILLS = int(os.environ.get("PENSTOCK_STREAM_KILLS", "3"))


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


class Client(threading.Thread):
    """Works until the broker is gone; anything else that ends it is a failure."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except pika.exceptions.AMQPError:
            pass
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Waits for each confirm."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url)
        self.name = name
        self.confirmed: list[bytes] = []

    def work(self) -> None:
        channel = pika.BlockingConnection(pika.URLParameters(self.url)).channel()
        channel.queue_declare("s", durable=True, arguments=STREAM)
        channel.confirm_delivery()
        for number in range(1_000_000):
            body = b"%s %d" % (self.name.encode(), number)
            channel.basic_publish("", "s", body)
            self.confirmed.append(body)


class Follower(Client):
    """Reads from an offset on, or from where the broker says that it was."""

    def __init__(self, url: str, offset: int, kept_by: str = "") -> None:
        super().__init__(url)
        self.offset = offset
        self.kept_by = kept_by
        self.found: list[tuple[int, bytes]] = []

    def work(self) -> None:
        reader = Reader(self.url, "s", self.offset, 50, self.kept_by)
        self.found = reader.found
        while True:
            reader.connection.process_data_events(0.1)


def test_what_was_confirmed_survives_kills_under_load(
    own_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing confirmed is missing or twice; readers go on where they were.

    ``PENSTOCK_STREAM_KILLS`` says how many times.
    """
    url = own_broker.url
    published(url, "s", range(1))
    publishers: list[Publisher] = []
    followed: list[tuple[int, bytes]] = []
    begun: list[Follower] = []
    kept: list[tuple[int, bytes]] = []
    again = 0
    for life in range(KILLS):
        load = [Publisher(url, f"{life}-{number}") for number in range(2)]
        going_on, anew = Follower(url, len(followed)), Follower(url, 0)
        billing = Follower(url, 0, "billing")
        clients: list[Client] = [*load, going_on, anew, billing]
        for client in clients:
            client.start()
        time.sleep(random.uniform(0.3, 0.8))
        own_broker.kill()
        for client in clients:
            client.join(30)
            assert not client.is_alive()
            if client.failure is not None:
                raise client.failure
        publishers += load
        followed += going_on.found
        begun.append(anew)
        if billing.found:
            first = billing.found[0][0]
            assert first <= len(kept), "what was not settled is passed over"
            again += len(kept) - first
            kept = kept[:first] + billing.found
        own_broker.start()
    reader = Reader(url, "s", "first")
    confirmations = sum(len(one.confirmed) for one in publishers)
    reader.read(1 + confirmations)
    count = len(reader.read(2 + confirmations + len(publishers), 1.0))
    reader.connection.close()
    assert count <= 1 + confirmations + len(publishers), "each may have left one unconfirmed"
    found = reader.found
    assert [offset for offset, _ in found] == list(range(count))
    bodies = [body for _, body in found]
    assert len(set(bodies)) == count
    for publisher in publishers:
        confirmed = set(publisher.confirmed)
        assert [body for body in bodies if body in confirmed] == publisher.confirmed
    assert followed == found[: len(followed)]
    assert kept == found[: len(kept)]
    for follower in begun:
        assert follower.found == found[: len(follower.found)]
    with capsys.disabled():
        seen = sum(len(one.found) for one in begun)
        print(
            f"\n{KILLS} kills: {confirmations} confirmed, {count} found, 0 lost;"
            f" a reader went on {KILLS} times to {len(followed)}, one by the broker's memory to"
            f" {len(kept)} with {again} again, others began anew and saw {seen}"
        )
    assert len(followed) > 0


def test_a_position_is_kept_over_kills(own_broker: BrokerProcess) -> None:
    """SIGKILL in the middle: what was acknowledged may come again, nothing is missed.

    Each life has messages of its own: a quick reader may have read all of the life before.
    """
    url = own_broker.url
    seen: list[tuple[int, bytes]] = []
    for life in range(3):
        published(url, "s", range(COUNT * life, COUNT * (life + 1)))
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
            reader.read(COUNT * 3 + 1)
        own_broker.start()
    end = COUNT * 4
    published(url, "s", range(COUNT * 3, end))
    reader = Reader(url, "s", "first", kept_by="billing")
    first = reader.read(1)[0][0]
    assert reader.read(end - first) == expected(first, end)
    reader.connection.close()
    own_broker.restart()
    reader = Reader(url, "s", "first", kept_by="billing")
    reader.connection.process_data_events(1)
    assert reader.found == []
    reader.connection.close()
