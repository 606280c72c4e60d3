"""Exchanges of the type x-recent-history in a cluster: each node keeps what it routed itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.topology import histories
from penstock.broker.topology.histories import SLICE_MESSAGES, Gathered
from penstock.core.message import Message
from tests.cluster.sim_cluster import STEP_MS, SimCluster, started
from tests.helpers.connection_pair import ClientEnd
from tests.simulation.cluster_nodes import Machine

TYPE = "x-recent-history"
LENGTH = "x-recent-history-length"


class Histories:
    """Two nodes, a client at each, and the exchange ``x``."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.a, self.b = cluster.machines
        self.clients = {one.name: one.client() for one in cluster.machines}
        self.count = 0

    def call(self, at: Machine, method: str, **fields: Any) -> dict[str, Any]:
        return self.call_by(self.clients[at.name], method, **fields)

    def call_by(self, client: ClientEnd, method: str, **fields: Any) -> dict[str, Any]:
        answers: list[tuple[str, dict[str, Any]]] = []
        client.methods()
        client.method(1, method, **fields)

        def is_answered() -> bool:
            answers.extend(client.methods())
            return len(answers) > 0

        self.cluster.until(is_answered)
        assert [name for name, _ in answers] == [method + "-ok"], answers
        return dict(answers[0][1])

    def declare(self, at: Machine, length: int, name: str = "x") -> None:
        arguments = {LENGTH: length}
        self.call(
            at, "exchange.declare", exchange=name, type=TYPE, durable=True, arguments=arguments
        )

    def bind(self, at: Machine, queue: str, home: Machine, source: str = "x") -> None:
        self.call(home, "queue.declare", queue=queue, durable=True)
        self.call(at, "queue.bind", queue=queue, exchange=source)

    def publish(self, *nodes: Machine) -> None:
        """One number more at each, one after the other."""
        for node in nodes:
            client = self.clients[node.name]
            client.publish("x", "k", b"%d" % self.count, run=False, delivery_mode=2)
            self.count += 1
            self.cluster.pass_ms(2 * STEP_MS)

    def numbers(self, queue: str) -> list[int]:
        self.cluster.pass_ms(1000)
        (home,) = (one for one in self.cluster.world.ready() if not _is_remote(one, queue))
        client = home.client()
        there = self.call_by(client, "queue.declare", queue=queue, passive=True)["messages"]
        got = [self.call_by(client, "basic.get", queue=queue, no_ack=True) for _ in range(there)]
        client.drop()
        return [int(one["body"]) for one in got]

    def restart(self, node: Machine) -> None:
        self.cluster.until(node.start)
        self.clients[node.name] = node.client()
        self.cluster.pass_ms(2000)


def _is_remote(machine: Machine, name: str) -> bool:
    queue = machine.queue(name)
    assert queue is not None
    return queue.remote


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Histories]:
    with started(tmp_path, ("a@h", "b@h")) as cluster:
        yield Histories(cluster)


def test_a_queue_gets_the_last_messages_of_all_nodes(world: Histories) -> None:
    """Whichever node is asked, and wherever the queue is."""
    a, b = world.a, world.b
    world.declare(a, 5)
    world.publish(a, b, b, a, a, b, b, a)
    for number, (at, home) in enumerate(((a, a), (a, b), (b, a), (b, b))):
        world.bind(at, f"q{number}", home)
        assert world.numbers(f"q{number}") == [3, 4, 5, 6, 7]
    world.publish(b)
    assert world.numbers("q1") == [8]


def test_what_is_bound_behind_an_exchange_gets_it_too(world: Histories) -> None:
    a, b = world.a, world.b
    world.declare(a, 3)
    world.call(a, "exchange.declare", exchange="next", type="fanout")
    world.bind(b, "q", b, "next")
    world.publish(a, b, a, b)
    world.call(b, "exchange.bind", destination="next", source="x")
    assert world.numbers("q") == [1, 2, 3]


def test_of_a_node_that_is_down_nothing_comes_and_a_restart_brings_nothing_again(
    world: Histories,
) -> None:
    a, b = world.a, world.b
    world.declare(a, 5)
    world.bind(a, "before", b)
    world.publish(a, b, a, b)
    b.kill()
    world.cluster.pass_ms(8000)
    world.bind(a, "alone", a)
    assert world.numbers("alone") == [0, 2]
    world.restart(b)
    assert world.numbers("alone") == []
    assert world.numbers("before") == [0, 1, 2, 3]
    world.bind(b, "again", a)
    assert world.numbers("again") == [0, 1, 2, 3]


def test_what_is_published_while_it_is_bound_comes_once(world: Histories) -> None:
    a, b = world.a, world.b
    world.declare(a, 50)
    world.publish(b, a)
    world.call(a, "queue.declare", queue="q", durable=True)
    client: ClientEnd = world.clients[a.name]
    client.methods()
    client.method(1, "queue.bind", queue="q", exchange="x")
    told: list[str] = []
    while not told:
        world.publish(b)
        told = [name for name, _ in client.methods()]
    world.publish(b, a)
    assert told == ["queue.bind-ok"]
    assert sorted(world.numbers("q")) == list(range(world.count))


def test_a_long_history_comes_in_slices(world: Histories) -> None:
    count = 2 * int(SLICE_MESSAGES) + 3
    world.declare(world.a, 2 * count)
    for node in (world.a, world.b):
        client = world.clients[node.name]
        for _ in range(count):
            client.publish("x", "k", b"%d" % world.count, run=False)
            world.count += 1
        world.cluster.pass_ms(100)
    world.bind(world.b, "q", world.a)
    assert world.numbers("q") == list(range(2 * count))


def test_of_large_messages_the_newest_are_kept() -> None:
    size = int(histories.GATHERED_BYTES) // 4
    gathered = Gathered(100)
    gathered.await_queue()
    content = bytes(size)
    for number in range(7):
        message = Message(content, b"", 0, 0)
        message.place(0, number)
        gathered.take([message])
    gathered.queue_ended()
    assert gathered.done
    assert [int(one.enqueued_at_ms) for one in gathered.read()] == [3, 4, 5, 6]
