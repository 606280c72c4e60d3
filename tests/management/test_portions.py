"""What hangs on a session or a queue counts: no call on the data loop describes more than that."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest

from penstock.management.facts.on_loop import SLICE, portions
from penstock.management.metrics.gathering import CONSUMERS_AT
from penstock.node.inspection.session_inspector import NodeSessionInspector
from penstock.protocols.amqp import description
from tests.management.conftest import Served

CHANNELS = 130
CONSUMERS = 130


@pytest.mark.parametrize("seed", range(20))
def test_portions_hold_everything_once_and_no_more_than_a_slice(seed: int) -> None:
    some = random.Random(seed)
    sizes = [
        some.choice((0, 0, 1, 2, 97, 98, 99, 100, 101, 2047)) for _ in range(some.randrange(9))
    ]
    sessions: list[tuple[object, list[int]]] = [
        (name, [1 + number for number in range(size)]) for name, size in enumerate(sizes)
    ]
    found: dict[object, list[int]] = {}
    for portion in portions(sessions):
        assert 0 < len(portion) + sum(len(part.numbers) for part in portion) <= SLICE
        for part in portion:
            assert part.is_first == (part.session not in found)
            found.setdefault(part.session, []).extend(part.numbers)
    assert found == dict(sessions)


class Busy:
    """A connection with many channels, and a queue with many consumers on the first two."""

    def __init__(self, served: Served) -> None:
        served.declare("busy", "other")
        self.connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
        )
        channels: list[Any] = [self.connection.channel() for _ in range(CHANNELS)]
        for number in range(CONSUMERS):
            tag = f"tag{number}"
            channels[number % 2].basic_consume("busy", lambda *_: None, True, consumer_tag=tag)
        channels[2].basic_publish("", "other", b"x")
        channels[0].queue_declare("busy", passive=True)
        self.connection.process_data_events(0)
        (row,) = served.get("/api/connections")
        self.name: str = row["name"]


class Described:
    """How many objects each call on the data loop describes, and how often of a connection."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections: list[int] = [0]
        self.rest: list[int] = [0]
        call = served.node.loop.call
        self.calls = 0

        def counted(function: Any) -> Any:
            def run() -> Any:
                self.connections.append(0)
                self.rest.append(0)
                return function()

            return call(run)

        monkeypatch.setattr(served.management, "_call_on_loop", counted)
        self._count(monkeypatch, NodeSessionInspector, "connection", self.connections)
        self._count(monkeypatch, NodeSessionInspector, "place_of", self.rest)
        self._count(monkeypatch, description, "_channel_facts", self.rest)
        traffics = description.AmqpDescription.traffics

        def counted_traffics(*given: Any) -> Any:
            found = traffics(*given)
            self.rest[-1] += len(found)
            return found

        monkeypatch.setattr(description.AmqpDescription, "traffics", counted_traffics)

    def _count(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, counts: list[int]
    ) -> None:
        real = getattr(owner, name)

        def counted(*given: Any) -> Any:
            counts[-1] += 1
            return real(*given)

        monkeypatch.setattr(owner, name, counted)

    def is_fair(self, count: int) -> bool:
        """So many in all, in more than one call, each with the connection described once."""
        return sum(self.rest) >= count and max(self.rest) <= SLICE and max(self.connections) <= 1


@pytest.fixture(scope="module")
def busy(served: Served) -> Iterator[Busy]:
    made = Busy(served)
    yield made
    made.connection.close()


@pytest.fixture
def described(served: Served, busy: Busy, monkeypatch: pytest.MonkeyPatch) -> Described:
    return Described(served, monkeypatch)


@pytest.mark.parametrize("path", ["/api/channels", "/api/vhosts/%2F/channels", "of one"])
def test_channels_are_listed_in_portions(
    served: Served, busy: Busy, described: Described, path: str
) -> None:
    if path == "of one":
        path = f"/api/connections/{quote(busy.name)}/channels"
    rows = served.get(path)
    assert sorted(row["number"] for row in rows) == list(range(1, CHANNELS + 1))
    assert described.is_fair(CHANNELS), described.rest


def test_one_channel_costs_what_is_on_it(served: Served, busy: Busy, described: Described) -> None:
    row = served.get("/api/channels/" + quote(f"{busy.name} (2)"))
    tags = {one["consumer_tag"] for one in row["consumer_details"]}
    assert (row["number"], tags) == (2, {f"tag{number}" for number in range(1, CONSUMERS, 2)})
    assert all(one["channel_details"]["number"] == 2 for one in row["consumer_details"])
    assert sum(described.rest) == 1 + CONSUMERS // 2
    for absent in ("999", "02", "x"):
        path = "/api/channels/" + quote(f"{busy.name} ({absent})")
        assert served.request("GET", path).status == 404


@pytest.mark.parametrize("path", ["/api/consumers", "/api/consumers/%2F", "/api/queues/%2F/busy"])
def test_consumers_are_described_in_portions(
    served: Served, described: Described, path: str
) -> None:
    found = served.get(path)
    rows = found["consumer_details"] if "queues" in path else found
    assert {row["consumer_tag"] for row in rows} == {f"tag{number}" for number in range(CONSUMERS)}
    assert described.is_fair(CONSUMERS), described.rest


def test_what_channels_got_is_summed_over_portions(served: Served, busy: Busy) -> None:
    publisher: Any = busy.connection.channel()
    for _ in range(2 * CONSUMERS):
        publisher.basic_publish("", "busy", b"x")
    publisher.queue_declare("busy", passive=True)
    publisher.close()
    found = served.get("/api/queues/%2F/busy")["deliveries"]
    got = {one["channel_details"]["number"]: one["stats"]["deliver_no_ack"] for one in found}
    assert (set(got), sum(got.values())) == ({1, 2}, 2 * CONSUMERS)


def test_the_sampler_and_metrics_read_portions(served: Served, described: Described) -> None:
    management = served.management
    loop = management._side.loop
    assert loop is not None

    def on_management(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    on_management(management.sampler.walk(time.time()))
    assert described.is_fair(CHANNELS), described.rest
    described.rest.append(0)
    del described.rest[:-1]
    gathering = management._context.scrapes._pages._gathering
    connections, channels = on_management(gathering.clients(["/"]))
    assert described.is_fair(CHANNELS), described.rest
    assert (len(connections), len(channels)) == (1, CHANNELS)
    assert (connections.sum(CONSUMERS_AT - 1), connections.sum(CONSUMERS_AT)) == (1, CONSUMERS)
