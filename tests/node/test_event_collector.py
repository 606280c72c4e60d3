"""What the collector looks at, when, and how much of it at a time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.counting.spans import SpanBook
from penstock.core.events.book import Event
from penstock.core.events.kinds import KINDS
from penstock.node.inspection import event_collector
from penstock.node.inspection.audit_trail import AuditTrail
from penstock.node.inspection.event_collector import SLICE, EventCollector
from penstock.node.inspection.event_exchange import EventExchange
from penstock.node.inspection.span_export import SpanExport
from penstock.runtime.disk.event_log import EventLog
from penstock.runtime.loop import Loop
from penstock.settings.settings import load_settings
from tests.helpers.connection_pair import QuietBroker
from tests.node.test_streams import consume, declare


class Kept(EventLog):
    """A log in memory."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"), 65_536, 131_072)
        self.events: list[Event] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def put(self, events: list[Event]) -> None:
        self.events += events

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [
            dict(zip(KINDS[name], values, strict=True))
            for _, name, values in self.events
            if name == kind
        ]


class Watched:
    """A quiet broker, its collector, and a clock for both."""

    def __init__(self, **settings: str) -> None:
        self.node = QuietBroker()
        self.log = Kept()
        loop = cast(Loop, SimpleNamespace(connections={}, turn=self.node.turn))
        chosen = load_settings(None, {}, {"event_log_interval_s": "1"} | settings)
        self.collector = EventCollector(
            self.node.broker,
            loop,
            self.log,
            AuditTrail(Path("nowhere"), 65_536, 131_072, is_on=False),
            EventExchange(self.node.broker, chosen),
            SpanExport(SpanBook(), chosen, "node"),
            chosen,
            "node",
        )
        self.now_ms = 0
        self.collector.start(0)

    def look(self, ms: int) -> None:
        self.now_ms += ms
        self.collector.look(self.now_ms)


def publish(client: Any, queue: str, body: bytes = b"x") -> None:
    client.publish("", queue, body)


def test_a_walk_looks_at_a_slice_of_the_queues_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched()
    client = watched.node.client()
    count = 2 * SLICE + 10
    for number in range(count):
        client.call("queue.declare", queue=f"q{number}")
    seen: list[int] = []
    counts_of = event_collector._counts_of
    monkeypatch.setattr(
        event_collector, "_counts_of", lambda queue: (seen.append(1), counts_of(queue))[1]
    )
    looks = []
    for _ in range(1000):
        before = len(seen)
        watched.look(5)
        looks.append(len(seen) - before)
        if watched.now_ms >= 1900:
            break
    assert sum(looks) == count
    assert max(looks) <= SLICE


def test_only_queues_whose_figures_moved_are_told() -> None:
    watched = Watched()
    client = watched.node.client()
    for name in ("busy", "idle"):
        client.call("queue.declare", queue=name)
    publish(client, "busy")
    for _ in range(60):
        watched.look(50)
    (told,) = watched.log.told("queue_rates")
    assert (told["queue"], told["published"], told["ready"]) == ("busy", 1, 1)


def test_a_look_in_the_same_millisecond_costs_nothing() -> None:
    watched = Watched()
    watched.look(1000)
    nodes = len(watched.log.told("node"))
    watched.node.broker.admission.alarms.memory = True
    watched.look(0)
    watched.look(300)
    assert nodes == 1
    assert len(watched.log.told("alarm_set")) == 1  # seen at the next one


def test_intervals_keep_their_pace() -> None:
    watched = Watched()
    for _ in range(100):
        watched.look(77)  # never at a whole second
    watched.look(300)
    assert len(watched.log.told("node")) in (7, 8)


def test_a_message_of_a_stream_has_a_time_for_each_of_its_consumers() -> None:
    watched = Watched()
    node = watched.node
    client, *readers = (node.client() for _ in range(3))
    declare(client, "s")
    publish(client, "s")
    for reader in readers:
        consume(reader, "s", "first")
    node.run()
    for reader, verb in zip(readers, ("ack", "reject"), strict=True):
        node.tick(1000)
        reader.method(1, f"basic.{verb}", delivery_tag=1)
    watched.look(1000)
    told = watched.log.told("timing")
    assert [one["outcome"] for one in told] == ["acked", "rejected"]
    assert [one["settled_at_ms"] - one["delivered_at_ms"] for one in told] == [1000, 2000]
    assert node.broker.queue_context.sampling.times.count == 0


def test_the_nodes_samples_are_dealt_out_anew_each_interval() -> None:
    watched = Watched(event_log_samples_per_s="3")
    sampling = watched.node.broker.queue_context.sampling
    assert (sampling.left, sampling.quota) == (30, 3)
    sampling.left = 0
    watched.look(1000)
    assert sampling.left == 30


def test_none_are_taken_when_none_are_wanted() -> None:
    watched = Watched(event_log_samples_per_s="0")
    client = watched.node.client()
    client.call("queue.declare", queue="q")
    client.call("basic.consume", queue="q", no_ack=True, consumer_tag="c")
    publish(client, "q")
    watched.node.run()
    watched.look(2000)
    watched.look(2000)
    assert watched.log.told("timing") == []
    assert watched.log.told("queue_rates")[0]["delivered"] == 1
