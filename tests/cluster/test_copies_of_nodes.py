"""What nodes of a cluster keep on their disks of mirrored queues: whole nodes, simulated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.policies import Policy
from penstock.core.away import Away
from tests.simulation.cluster_nodes import Machine, SimWorld

NAMES = ("a@h", "b@h", "c@h")
PATIENCE_MS = 120_000


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.world = SimWorld(random.Random(1), directory, NAMES)
        self.a, self.b, self.c = self.world.machines

    def until(self, is_true: Callable[[], bool]) -> None:
        end_ms = self.world.now_ms + PATIENCE_MS
        while not is_true():
            assert self.world.now_ms < end_ms
            self.world.pass_time(20)

    def set_policy(self, definition: dict[str, object]) -> None:
        broker = self.a.quiet.broker
        ask = broker.changes.ask()
        policy = Policy("ha", "^q", "queues", 0, definition)
        admin = Administration(broker, 64)

        def is_done() -> bool:
            try:
                ask.run(lambda: admin.put_policy("/", policy, self.world.now_ms, False))
            except Away:
                return False
            return True

        self.until(is_done)

    def declare(self) -> None:
        client = self.a.client()
        client.method(1, "queue.declare", queue="q", durable=True)
        self.until(lambda: all(one.queue("q") is not None for one in self.world.machines))
        client.drop()

    def publish(self, machine: Machine, count: int) -> None:
        client = machine.client()
        client.call("confirm.select")
        for number in range(count):
            client.publish("", "q", b"%d" % number, delivery_mode=2, run=False)
        confirmed: list[tuple[str, dict[str, Any]]] = []

        def are_confirmed() -> bool:
            confirmed.extend(client.methods())
            return confirmed[-1:] != [] and confirmed[-1][1].get("delivery_tag") == count

        self.until(are_confirmed)
        assert {name for name, _ in confirmed} == {"basic.ack"}
        client.drop()

    def synced(self) -> list[str]:
        """As the present master has it."""
        for machine in self.world.ready():
            queue = machine.queue("q")
            if queue is not None and not queue.remote:
                known = machine.cluster.mirrors.mirroring.queues["/", "q"]
                assert known.view is not None
                return sorted(member.partition("/")[0] for member in known.view.synced)
        return []

    def records(self, machine: Machine) -> list[str]:
        return [one.name for one in machine.quiet.definitions.load().queues]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    with cluster.world.inside():
        for machine in cluster.world.machines:
            assert machine.start()
        yield cluster


def test_who_is_not_to_have_a_copy_any_more_drops_it(cluster: Cluster) -> None:
    cluster.set_policy({"ha-mode": "all", "ha-sync-mode": "automatic"})
    cluster.declare()
    cluster.publish(cluster.a, 30)
    cluster.until(lambda: cluster.synced() == list(NAMES))
    assert cluster.records(cluster.b) == cluster.records(cluster.c) == ["amq.mirror.q"]
    cluster.set_policy({"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"})
    cluster.until(lambda: len(cluster.synced()) == 2)
    cluster.world.pass_time(1000)
    (kept,) = [one for one in (cluster.b, cluster.c) if cluster.records(one)]
    assert cluster.synced() == [cluster.a.name, kept.name]


def test_a_former_master_keeps_its_messages_and_fetches_what_differs(cluster: Cluster) -> None:
    cluster.set_policy({"ha-mode": "all", "ha-sync-mode": "automatic"})
    cluster.declare()
    cluster.publish(cluster.a, 50)
    cluster.until(lambda: cluster.synced() == list(NAMES))
    cluster.a.kill()
    cluster.until(lambda: cluster.synced() in (["b@h", "c@h"], ["b@h"], ["c@h"]))
    cluster.publish(cluster.b, 10)
    assert cluster.a.start()
    (record,) = cluster.a.quiet.definitions.load().queues
    cluster.until(lambda: cluster.synced() == list(NAMES))
    copy = cluster.a.quiet.broker.vhosts["/"].copies.copies["q"]
    assert copy.queue_id == record.queue_id, "it did not begin with a new, empty one"
    (part,) = copy.backing.parts()
    assert part.ready_count() == 60
