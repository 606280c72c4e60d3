"""Shovels and federation links whose peers and disks fail, once and for ever, at each call.

What was confirmed at the source arrives, the reason is in the row of the link, and when the fault
is over the link goes on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.broker.federation import EXCHANGE, QUEUE
from penstock.client.endpoint import ClientError, ConnectionLost
from penstock.links.federated_exchange import FederatedExchange
from penstock.links.federated_queue import FederatedQueue
from penstock.links.federation import FederationSpec
from penstock.links.link import DONE, TERMINATED, Link, LinkSet, Run
from penstock.links.shovel import Shovel, ShovelSpec
from tests.helpers.raw_codec import Typed
from tests.links.quiet_links import HERE, THERE, Local, Side, World, quiet_world

MESSAGES = 12
FAILED_RUNS = 4
"""So often a fault that stays ends a link before it is over."""
CALLS = int(os.environ.get("PENSTOCK_LINK_CALLS", "6"))
"""So many of the calls of a link fail in CI, chosen by chance; 1000 = each of them."""


class Feature:
    """``make`` a run that moves from ``source`` there to ``target`` here, queue ``n`` of a test."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.source, self.target = f"source{number}", f"target{number}"
        self.sent: list[bytes] = []
        self.prepare()

    def prepare(self) -> None:
        """What is there before the link."""
        for side, name in ((self.world.there, self.source), (self.world.here, self.target)):
            client = side.node.client()
            client.call("queue.declare", queue=name, durable=True)
            client.drop()

    def run(self) -> Run:
        raise NotImplementedError

    def publish(self, count: int = MESSAGES) -> None:
        bodies = [b"%d" % (len(self.sent) + number) for number in range(count)]
        self.world.there.fill("", self.source, bodies)
        self.sent += bodies

    def waiting_at(self) -> str:
        """The queue that is empty when all has moved."""
        return self.source

    def is_moved(self) -> bool:
        queue = self.world.there.queue(self.waiting_at())
        return bool(queue.backing.ready_count() == 0 and queue.unacked_count == 0)

    def judge(self) -> None:
        assert set(self.world.here.bodies(self.target)) == set(self.sent)


class QueueShovel(Feature):
    KIND = "dynamic"

    def run(self) -> Run:
        value = {
            "src-uri": f"amqp://{THERE}",
            "src-queue": self.source,
            "dest-uri": f"amqp://{HERE}",
            "dest-queue": self.target,
        }
        return Shovel(ShovelSpec("/", "s", value, "guest"), self.world.dialer, "c")


class StaticShovel(Feature):
    """It declares what it needs, and publishes to an exchange."""

    def prepare(self) -> None:
        super().prepare()
        client = self.world.here.node.client()
        client.call("queue.bind", queue=self.target, exchange="amq.fanout")
        client.drop()

    def run(self) -> Run:
        value = {
            "src-uri": f"amqp://{THERE}",
            "src-queue": self.source,
            "src-declarations": [["queue.declare", {"queue": self.source, "durable": True}]],
            "dest-uri": f"amqp://{HERE}",
            "dest-exchange": "amq.fanout",
            "dest-declarations": [
                ["queue.declare", {"queue": self.target, "durable": True}],
                ["queue.bind", {"queue": self.target, "exchange": "amq.fanout"}],
            ],
        }
        return Shovel(ShovelSpec("", "s", value, "guest"), self.world.dialer, "c")

    def judge(self) -> None:
        super().judge()
        client = self.world.here.node.client()
        client.call("queue.unbind", queue=self.target, exchange="amq.fanout")
        client.drop()


class QueueLink(Feature):
    def prepare(self) -> None:
        super().prepare()
        self.spec = FederationSpec(
            "/", QUEUE, self.target, "up",
            {"uri": f"amqp://{THERE}", "queue": self.source}, "guest", {"durable": True},
        )  # fmt: skip

    def run(self) -> Run:
        return FederatedQueue(self.spec, self.world.dialer, Local(self.world.here), HERE)


class ExchangeLink(Feature):
    """The upstream's queue is there before the first fault; its exchange changes with each run."""

    def prepare(self) -> None:
        super().prepare()
        for side in self.world.sides.values():
            client = side.node.client()
            client.call("exchange.declare", exchange=self.source, type="topic", durable=True)
            client.drop()
        client = self.world.here.node.client()
        client.call("queue.bind", queue=self.target, exchange=self.source, routing_key="a.#")
        client.drop()
        declared = {"type": "topic", "durable": True}
        value = {"uri": f"amqp://{THERE}"}
        self.spec = FederationSpec("/", EXCHANGE, self.source, "up", value, "guest", declared)
        self.world.live(self.run, lambda: True)

    def run(self) -> Run:
        return FederatedExchange(self.spec, self.world.dialer, Local(self.world.here), HERE)

    def waiting_at(self) -> str:
        return f"federation: {self.source} -> {HERE}"

    def publish(self, count: int = MESSAGES) -> None:
        bodies = [b"%d" % (len(self.sent) + number) for number in range(count)]
        self.world.there.fill(self.source, "a.b", bodies)
        self.sent += bodies


FEATURES = [QueueShovel, StaticShovel, QueueLink, ExchangeLink]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with quiet_world(tmp_path) as opened:
        yield opened


def live(feature: Feature, heal: Callable[[], None]) -> None:
    """To its end; something is published at the source between the runs as well."""
    failed = 0

    def between() -> None:
        nonlocal failed
        failed += 1
        if failed >= FAILED_RUNS:
            heal()
        feature.publish(1)

    feature.publish()
    feature.world.live(feature.run, feature.is_moved, between)
    heal()
    feature.judge()
    for row in feature.world.rows:
        assert row["state"] == TERMINATED
        assert "internal error" not in str(row["reason"]), row
        assert row["reason"]


@pytest.mark.parametrize("late", [False, True], ids=["before it arrives", "when it has arrived"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "for ever"])
@pytest.mark.parametrize("make", FEATURES)
def test_each_call_to_a_peer_fails(
    world: World, make: type[Feature], once: bool, late: bool
) -> None:
    rng = random.Random(make.__name__)
    after = 0
    number = 0
    while True:
        feature = make(world, number)
        world.trouble.begin(after, once=once, late=late)
        live(feature, world.trouble.heal)
        if not world.rows:
            break  # there are not so many calls
        number += 1
        after += 1 if CALLS >= 1000 else rng.randint(1, 2 * 60 // CALLS)
    assert number >= 3


@pytest.mark.parametrize("verb", ["pwrite", "sync", "open_write", "sync_dir"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "for ever"])
@pytest.mark.parametrize("side", [HERE, THERE])
@pytest.mark.parametrize("make", FEATURES)
def test_each_disk_fails(
    tmp_path: Path, make: type[Feature], side: str, once: bool, verb: str
) -> None:
    """Of either broker, at some of its calls; the broker ends then and starts again."""
    rng = random.Random(f"{make.__name__} {side} {verb}")
    for number in range(3):
        directory = tmp_path / str(number)
        directory.mkdir()
        with quiet_world(directory, number) as world:
            broker = world.sides[side]
            feature = make(world, 0)
            feature.publish()

            def heal(broker: Side = broker) -> None:
                broker.failing = ""
                broker.files.heal()

            broker.files.fail(verb, after=rng.randint(0, 12))
            broker.failing = "" if once else verb
            with_publishing = feature.publish
            feature.publish = lambda count=1: None  # type: ignore[method-assign]
            live(feature, heal)
            feature.publish = with_publishing  # type: ignore[method-assign]


def test_a_message_that_no_queue_takes_stays_at_the_source(world: World) -> None:
    """It is returned, and then confirmed as if a queue had it."""
    feature = QueueShovel(world, 0)
    gone = False

    def delete_the_target() -> bool:
        nonlocal gone
        if not gone:
            gone = True
            client = world.here.node.client()
            client.call("queue.delete", queue=feature.target)
            client.drop()
            feature.publish()
            return False
        return feature.is_moved()

    world.live(feature.run, delete_the_target)
    feature.judge()
    assert [row["reason"] for row in world.rows] == ["no queue of the target takes a message"]


@pytest.mark.parametrize("visits", ["three", -1, Typed("l", 1 << 62), None, [1]])
def test_a_header_that_a_publisher_made_up_stops_no_link(world: World, visits: object) -> None:
    feature = QueueLink(world, 0)
    headers = {"x-received-from": [{"uri": f"amqp://{THERE}/%2F", "visit-count": visits}]}
    world.there.fill("", feature.source, [b"odd"], headers=headers)
    feature.sent.append(b"odd")
    world.live(feature.run, feature.is_moved)
    assert world.rows == []
    feature.judge()


@pytest.mark.parametrize("hops", ["three", -1, Typed("l", 1 << 62), None])
def test_a_binding_that_a_client_made_up_stops_no_link(world: World, hops: object) -> None:
    feature = ExchangeLink(world, 0)
    client = world.here.node.client()
    arguments = {"x-bound-from": [{"cluster-name": "elsewhere", "vhost": "/", "hops": hops}]}
    client.call(
        "queue.bind", queue=feature.target, exchange=feature.source, routing_key="odd",
        arguments=arguments,
    )  # fmt: skip
    client.drop()
    feature.publish()
    world.live(feature.run, feature.is_moved)
    assert world.rows == []
    feature.judge()


def test_what_a_slow_target_does_not_take_stays_at_the_source(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer without acknowledgements has no window: the socket is not read any more."""
    monkeypatch.setattr("penstock.client.amqp.KEPT_BYTES", 5_000)
    monkeypatch.setattr("penstock.client.amqp.FRAMES_AT_ONCE", 30)
    monkeypatch.setattr("penstock.links.link.LOOK_MS", 1)
    feature = QueueShovel(world, 0)
    world.there.fill("", feature.source, [b"%d" % number * 10 for number in range(2_000)])
    most = steps = 0

    class Slow(Shovel):
        def is_blocked(self) -> bool:
            return steps < 200

        def step(self) -> bool:
            nonlocal most, steps
            steps += 1
            done = super().step()
            [source, _] = self.connections
            most = max(most, *(channel.kept_bytes for channel in source._channels.values()))
            return done

    def run() -> Run:
        shovel = feature.run
        value = {
            "src-uri": f"amqp://{THERE}",
            "src-queue": feature.source,
            "dest-uri": f"amqp://{HERE}",
            "dest-queue": feature.target,
            "ack-mode": "no-ack",
        }
        assert shovel is not None
        return Slow(ShovelSpec("/", "s", value, "guest"), world.dialer, "c")

    target = world.here.queue(feature.target)
    world.live(run, lambda: bool(target.backing.ready_count() == 2_000))
    assert world.rows == []
    assert most < 6_000


# -- the life of a link --------------------------------------------------------------------


class Ended:
    """A run that is done at once."""

    def __init__(self) -> None:
        self.connections: list[object] = []

    def step(self) -> bool:
        return True


def test_a_deletion_that_fails_is_tried_again_and_nothing_is_moved_meanwhile() -> None:
    runs, asked = [], []
    rows = []

    def open_run() -> Run:
        runs.append(1)
        return Ended()  # type: ignore[return-value]

    def done() -> None:
        asked.append(1)
        rows.append(dict(link.row()))
        if len(asked) < 4:
            raise ConnectionLost("this node: no majority")
        link.stop()

    link = Link("shovel", open_run, 0.001, done)
    assert link.start()
    link._thread.join(20)
    assert len(asked) == 4
    assert len(runs) == 1
    assert rows[1]["state"] == TERMINATED
    assert rows[1]["reason"] == "this node: no majority"


def test_a_shovel_that_has_moved_all_says_so() -> None:
    seen = []

    def done() -> None:
        seen.append(link.row().get("reason"))
        if len(seen) == 2:
            link.stop()

    link = Link("static shovel", Ended, 0.001, done)  # type: ignore[arg-type]
    assert link.start()
    link._thread.join(20)
    assert seen == [None, DONE]


@pytest.mark.parametrize("is_here", [True, False])
def test_what_stays_at_the_upstream_is_said(
    world: World, caplog: pytest.LogCaptureFixture, is_here: bool
) -> None:
    """When the upstream is away, or refuses, as the link ends for good."""
    feature = ExchangeLink(world, 0)

    def open_run() -> Run:
        run = feature.run()
        link.stop(clean=True)
        if not is_here:
            world.trouble.begin(0, once=False, late=False)
        return run

    link = Link("link of x", open_run, 0.001, leaves="its queue at 'up'")
    link.start()
    link._thread.join(20)
    said = "link of x has ended, and its queue at 'up' stay" in caplog.text
    assert said != is_here
    names = world.there.node.broker.vhosts["/"].queues
    assert (feature.waiting_at() in names) != is_here


def test_a_link_for_which_there_is_no_thread_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [True]

    def open_run() -> Run:
        raise ClientError("it runs")

    links = LinkSet(lambda spec: Link(spec, open_run, 0))
    start = __import__("threading").Thread.start

    def start_some(thread: object) -> None:
        if refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr("threading.Thread.start", start_some)
    links.follow({1: "a"})
    assert not links.start_some()
    [(_, row)] = links.rows()
    assert (row["state"], row["reason"]) == (TERMINATED, "can't start new thread")
    refused.clear()
    assert links.start_some()
    while links.rows()[0][1].get("reason") != "it runs":
        pass
    links.stop()


def test_many_links_start_some_at_a_time() -> None:
    started: list[str] = []

    class Counted(Link):
        def start(self) -> bool:
            started.append(self.name)
            return True

    links = LinkSet(lambda spec: Counted(spec, Ended, 0))  # type: ignore[arg-type]
    links.follow({number: str(number) for number in range(100)})
    links.start_some()
    assert 0 < len(started) < 50
    links.follow({number: str(number) for number in range(50)})
    for _ in range(20):
        links.start_some()
    assert sorted(map(int, started)) == list(range(50))
