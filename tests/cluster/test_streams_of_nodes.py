"""Streams of a cluster: whole nodes, simulated.  Published, read and mirrored from any node."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.rules.rights import Rights
from penstock.broker.topology.super_streams import (
    AT_ONCE,
    declare_super_stream,
    delete_super_stream,
)
from penstock.core.errors import PreconditionFailed
from tests.cluster.sim_cluster import SimCluster, started
from tests.helpers.connection_pair import ClientEnd
from tests.helpers.requests import Request
from tests.simulation.cluster_nodes import Machine

NAMES = ("a@h", "b@h", "c@h")
TRACKED = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """The stream ``s`` is on the first node, and mirrored by a policy on the others."""
    with started(tmp_path, NAMES) as cluster:
        a = cluster.machines[0]
        cluster.put_policy(a, "^s", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        cluster.declare(a, "s", **{"x-queue-type": "stream"})
        cluster.until(lambda: cluster.synced("s") == list(NAMES))
        yield cluster


class Reader:
    """A consumer that settles what it gets."""

    def __init__(self, cluster: SimCluster, at: Machine, tag: str, **arguments: Any) -> None:
        self.client: ClientEnd = at.client()
        self.bodies: list[bytes] = []
        self.heard: list[str] = []
        self.client.call("basic.qos", prefetch_count=20)
        self.client.method(
            1, "basic.consume", queue="s", consumer_tag=tag, arguments=arguments or TRACKED
        )
        cluster.until(lambda: self.listen() and "basic.consume-ok" in self.heard)

    def listen(self) -> bool:
        for name, fields in self.client.methods():
            self.heard.append(name)
            if name == "basic.deliver":
                self.bodies.append(fields["body"])
                self.client.method(1, "basic.ack", delivery_tag=fields["delivery_tag"])
        return True

    def has(self, count: int) -> bool:
        return self.listen() and len(self.bodies) >= count


def log_at(machine: Machine) -> Any:
    vhost = machine.quiet.broker.vhosts["/"]
    copy = vhost.copies.copies.get("s")
    backing: Any = vhost.queues["s"].backing if copy is None else copy.backing
    return backing.log


def numbers(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


def test_without_mirrors_all_nodes_publish_and_read(tmp_path: Path) -> None:
    with started(tmp_path, NAMES) as cluster:
        a, b, c = cluster.machines
        cluster.declare(a, "s", **{"x-queue-type": "stream"})
        cluster.publish(b, "s", 60)
        for machine in (a, b, c):
            reader = Reader(cluster, machine, "r", **{"x-stream-offset": "first"})
            cluster.until(lambda reader=reader: reader.has(60))  # type: ignore[misc]
            assert reader.bodies == numbers(60)
            assert machine.queue("s") is not None
        late = Reader(cluster, c, "late", **{"x-stream-offset": 50})
        cluster.until(lambda: late.has(10))
        assert late.bodies == numbers(10, 50)
        client = b.client()
        client.method(1, "basic.get", queue="s")
        cluster.until(lambda: bool(client.received))
        assert client.methods()[0][1]["code"] == 540


def test_a_confirmed_message_is_at_the_new_master(cluster: SimCluster) -> None:
    a, b, c = cluster.machines
    cluster.publish(a, "s", 50)
    a.kill()
    cluster.until(lambda: len(cluster.synced("s")) == 2)
    cluster.publish(c, "s", 30)
    reader = Reader(cluster, b, "r", **{"x-stream-offset": "first"})
    cluster.until(lambda: reader.has(80))
    assert reader.bodies == numbers(50) + numbers(30)
    assert a.start()
    cluster.until(lambda: cluster.synced("s") == list(NAMES))
    ends = {int(log_at(machine).next_offset) for machine in (a, b, c)}
    assert ends == {80}
    assert log_at(a).marks.term_begins() == log_at(b).marks.term_begins()


def test_a_consumer_whose_position_is_kept_goes_on_and_another_is_cancelled(
    cluster: SimCluster,
) -> None:
    """At the node of the new master, and at another."""
    a, b, c = cluster.machines
    tracked = [Reader(cluster, machine, f"kept-{machine.name}") for machine in (b, c)]
    first = {"x-stream-offset": "first"}
    plain = [Reader(cluster, machine, "plain", **first) for machine in (b, c)]
    cluster.publish(a, "s", 40)
    cluster.until(lambda: all(reader.has(40) for reader in tracked + plain))
    cluster.pass_ms(3000)
    a.kill()
    cluster.until(lambda: len(cluster.synced("s")) == 2)
    cluster.until(lambda: all(one.listen() and "basic.cancel" in one.heard for one in plain))
    cluster.publish(b, "s", 10)
    cluster.until(lambda: all(reader.has(50) for reader in tracked))
    for reader in tracked:
        assert reader.bodies == numbers(40) + numbers(10)
        assert "basic.cancel" not in reader.heard


def test_a_copy_is_shown_and_synchronised_by_hand(cluster: SimCluster) -> None:
    a, _, _ = cluster.machines
    manual = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "manual"}
    cluster.put_policy(a, "^s", manual)
    cluster.until(lambda: len(cluster.synced("s")) == 2)
    cluster.publish(a, "s", 50)
    cluster.put_policy(a, "^s", {"ha-mode": "all", "ha-sync-mode": "manual"})
    mirrors, queue = a.quiet.broker.mirrors, a.queue("s")
    assert queue is not None

    def facts() -> Any:
        return mirrors.facts(queue)

    cluster.until(lambda: len(facts().slave_nodes()) == 2)
    cluster.pass_ms(3000)
    assert facts().slave_nodes() == ["b@h", "c@h"]
    assert len(facts().synchronised_slave_nodes()) == 1
    asked = Request(a.quiet.broker.changes.ask(), lambda: mirrors.sync(queue))
    cluster.until(asked.is_decided)
    cluster.until(lambda: cluster.synced("s") == list(NAMES))
    assert facts().synchronised_slave_nodes() == ["b@h", "c@h"]
    assert {int(log_at(machine).next_offset) for machine in cluster.machines} == {50}


class Publisher:
    """At one node; it goes on whatever happens to others."""

    def __init__(self, at: Machine) -> None:
        self.client = at.client()
        self.client.call("confirm.select")
        self.open: dict[int, bytes] = {}
        self.confirmed: list[bytes] = []
        self.count = 0

    def publish(self) -> None:
        self.count += 1
        self.open[self.count] = b"%d" % self.count
        self.client.publish("", "s", self.open[self.count], delivery_mode=2, run=False)

    def listen(self) -> None:
        for name, fields in self.client.methods():
            tags = [tag for tag in self.open if tag <= fields["delivery_tag"]]
            for tag in tags if fields["multiple"] else [fields["delivery_tag"]]:
                body = self.open.pop(tag)
                if name == "basic.ack":
                    self.confirmed.append(body)

    def is_answered(self) -> bool:
        self.listen()
        return not self.open


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_master_loses_its_power_under_publishing(cluster: SimCluster, seed: int) -> None:
    a, b, c = cluster.machines
    rng = random.Random(seed)
    publisher = Publisher(b)
    dies, returns = rng.randint(1, 30), rng.randint(150, 400)
    for step in range(500):
        for _ in range(rng.choice([0, 1, 7])):
            publisher.publish()
        cluster.pass_ms(20)
        publisher.listen()
        if step == dies:
            a.kill(power_cut=True)
        if step == returns:
            assert a.start()
    cluster.until(publisher.is_answered)
    assert len(publisher.confirmed) > 500
    cluster.until(lambda: cluster.synced("s") == list(NAMES))
    ends = {int(log_at(machine).next_offset) for machine in (a, b, c)}
    assert len(ends) == 1
    reader = Reader(cluster, c, "r", **{"x-stream-offset": "first"})
    cluster.until(lambda: reader.has(min(ends)))
    assert set(publisher.confirmed) <= set(reader.bodies), "confirmed, and lost"
    assert len(set(reader.bodies)) == len(reader.bodies) == min(ends)


def test_a_super_stream_is_spread_over_the_nodes_and_deleted_at_another(tmp_path: Path) -> None:
    keys = [str(number) for number in range(AT_ONCE + 3)]
    with started(tmp_path, NAMES) as cluster:
        a, b, c = (machine.quiet.broker for machine in cluster.machines)
        vhosts = [broker.vhosts["/"] for broker in (a, b, c)]
        rights = Rights(a.users.users["guest"], "/")
        declare = partial(declare_super_stream, vhosts[0], rights, "orders", keys, {})
        declared = Request(a.changes.ask(), declare)
        cluster.until(declared.is_decided)
        for vhost in vhosts:
            bindings = vhost.exchanges["orders"].bindings()
            bound = {one.routing_key: one.destination for one in bindings}
            assert {key: queue.name for key, queue in bound.items()} == {
                key: f"orders-{key}" for key in keys
            }
        here = [sum(not vhost.queues[f"orders-{key}"].remote for key in keys) for vhost in vhosts]
        assert sum(here) == len(keys)
        assert max(here) - min(here) <= 1
        with pytest.raises(PreconditionFailed, match="already an exchange named orders"):
            declare_super_stream(vhosts[1], *declare.args[1:])
        client = cluster.machines[1].client()
        client.publish("orders", "3", b"x")
        cluster.until(
            lambda: all(vhost.queues["orders-3"].backing.ready_count() for vhost in vhosts)
        )
        rights = Rights(c.users.users["guest"], "/")
        delete = partial(delete_super_stream, vhosts[2], rights, "orders", lambda _: None)
        cluster.until(Request(c.changes.ask(), delete).is_decided)
        for vhost in vhosts:
            assert "orders" not in vhost.exchanges
            assert not [name for name in vhost.queues if name.startswith("orders")]


def test_a_stream_that_is_deleted_leaves_no_copy(cluster: SimCluster) -> None:
    a, b, c = cluster.machines
    cluster.publish(a, "s", 5)
    client = b.client()
    client.method(1, "queue.delete", queue="s")
    cluster.until(lambda: all(one.queue("s") is None for one in (a, b, c)))
    cluster.pass_ms(1000)
    for machine in (a, b, c):
        assert machine.quiet.definitions.load().queues == []


def test_all_nodes_lose_their_power_and_come_back(cluster: SimCluster) -> None:
    a, b, c = cluster.machines
    cluster.publish(b, "s", 50)
    for machine in (a, b, c):
        machine.kill(power_cut=True)
    for machine in (c, b, a):
        assert machine.start()
    cluster.until(lambda: cluster.synced("s") == list(NAMES))
    cluster.publish(c, "s", 5)
    reader = Reader(cluster, b, "r", **{"x-stream-offset": "first"})
    cluster.until(lambda: reader.has(55))
    assert reader.bodies == numbers(50) + numbers(5)


def test_a_node_that_joins_fetches_the_stream_from_its_floor(cluster: SimCluster) -> None:
    a, b, c = cluster.machines
    fewer = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
    cluster.put_policy(a, "^s", fewer)
    cluster.until(lambda: len(cluster.synced("s")) == 2)
    cluster.publish(a, "s", 200)
    cluster.put_policy(a, "^s", {"ha-mode": "all", "ha-sync-mode": "automatic"})
    cluster.until(lambda: cluster.synced("s") == list(NAMES))
    for machine in (a, b, c):
        log = log_at(machine)
        assert (int(log.first_offset), int(log.next_offset)) == (0, 200)
