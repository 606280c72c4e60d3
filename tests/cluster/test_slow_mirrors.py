"""Copies on nodes that are slow or short of room: whole nodes, simulated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.capacity import DiskLimit
from penstock.core.counting.bottleneck import ALARM, NODES
from penstock.node.inspection.flow_view import Row, flow_row
from tests.cluster.sim_cluster import SimCluster, started
from tests.helpers.connection_pair import ClientEnd
from tests.simulation.cluster_nodes import Machine

NAMES = ("a@h", "b@h", "c@h")
ALL: dict[str, object] = {"ha-mode": "all", "ha-sync-mode": "automatic"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """Queue ``q`` has its master on the first node and copies on the others."""
    with started(tmp_path, NAMES) as cluster:
        a = cluster.machines[0]
        cluster.put_policy(a, "^q", ALL)
        cluster.declare(a, "q")
        cluster.publish(a, "q", 5)
        cluster.until(lambda: cluster.synced("q") == list(NAMES))
        yield cluster


class Publisher:
    """One message at a time, the next when the last one is confirmed."""

    def __init__(self, cluster: SimCluster, machine: Machine) -> None:
        self.confirmed = 0
        self.longest_ms = 0
        self._cluster = cluster
        self._client: ClientEnd = machine.client()
        self._client.call("confirm.select")

    def publish(self) -> None:
        world = self._cluster.world
        began_ms, said = world.now_ms, [""]
        self._client.publish("", "q", b"x", delivery_mode=2, run=False)

        def is_confirmed() -> bool:
            said.extend(name for name, _ in self._client.methods())
            return said[-1] == "basic.ack"

        self._cluster.until(is_confirmed)
        self.confirmed += 1
        self.longest_ms = max(self.longest_ms, world.now_ms - began_ms)


def flow_at(machine: Machine) -> Row:
    loop = SimpleNamespace(turn=machine.quiet.turn, connections={})
    return flow_row(cast(Any, loop))


def why(machine: Machine) -> str:
    queue = machine.queue("q")
    assert queue is not None
    facts = machine.quiet.broker.mirrors.facts(queue)
    assert facts is not None
    return facts.why


def set_disk(machine: Machine, *, free: bool) -> None:
    alarms = machine.quiet.broker.admission.alarms
    alarms.set_disk_limit(DiskLimit(1000))
    alarms.look_at_disk(1 << 40 if free else 0, 1 << 41)


def test_a_mirror_with_a_slow_disk_holds_publishers_once_and_is_named(cluster: SimCluster) -> None:
    a, b, _ = cluster.machines
    publisher = Publisher(cluster, a)
    b.quiet.committer.hold = True
    waiting = Publisher(cluster, a)
    waiting._client.publish("", "q", b"x", delivery_mode=2, run=False)
    cluster.pass_ms(3000)
    assert "b@h holds publishers: its disk has taken nothing for" in why(a)
    row = flow_at(a)
    assert row["bottleneck"] == NODES
    assert "queue 'q' in vhost '/' waits for node 'b@h', its disk has taken" in str(row["sentence"])
    publisher.publish()
    assert cluster.synced("q") == ["a@h", "c@h"]
    assert publisher.longest_ms < 3000
    publisher.longest_ms = 0
    for _ in range(30):
        publisher.publish()
        cluster.pass_ms(100)
    assert publisher.longest_ms < 1000, "it is not waited for again"
    b.quiet.committer.hold = False
    b.quiet.committer.finish()
    cluster.pass_ms(1000)
    assert "b@h: its disk was slow, it is waited for again in" in why(a)
    cluster.until(lambda: cluster.synced("q") == list(NAMES))
    copy = b.quiet.broker.vhosts["/"].copies.copies["q"]
    assert sum(part.ready_count() for part in copy.backing.parts()) == 5 + 32


def test_no_copy_is_begun_on_a_node_with_an_alarm_and_its_publishers_are_told(
    tmp_path: Path,
) -> None:
    with started(tmp_path, NAMES) as cluster:
        a, b, _ = cluster.machines
        for machine in cluster.machines:
            set_disk(machine, free=True)
        cluster.declare(a, "q")
        cluster.publish(a, "q", 5)
        set_disk(b, free=False)
        cluster.until(lambda: "b@h" in a.quiet.broker.admission.elsewhere)
        cluster.put_policy(a, "^q", ALL)
        cluster.until(lambda: cluster.synced("q") == ["a@h", "c@h"])
        cluster.pass_ms(2000)
        assert b.quiet.broker.vhosts["/"].copies.copies == {}
        assert why(a) == "no copy at b@h (short of disk)"
        row = flow_at(a)
        assert row["bottleneck"] == ALARM
        assert row["blocked"] == "low on disk (node b@h)"
        set_disk(b, free=True)
        cluster.until(lambda: cluster.synced("q") == list(NAMES))


def test_a_mirror_on_a_full_disk_leaves_the_synchronised_ones_and_catches_up(
    cluster: SimCluster,
) -> None:
    """What was under way is confirmed without it, and it has all when there is room again."""
    a, b, _ = cluster.machines
    publisher = Publisher(cluster, a)
    b.quiet.committer.hold = True
    publisher.publish()
    assert publisher.longest_ms < 6000
    set_disk(b, free=False)
    cluster.until(lambda: "b@h" in a.quiet.broker.admission.elsewhere)
    cluster.until(lambda: "b@h: short of disk, and fetches nothing until it is not" in why(a))
    cluster.pass_ms(15_000)
    assert cluster.synced("q") == ["a@h", "c@h"]
    set_disk(b, free=True)
    b.quiet.committer.hold = False
    b.quiet.committer.finish()
    cluster.until(lambda: cluster.synced("q") == list(NAMES))
    publisher.publish()
    copy = b.quiet.broker.vhosts["/"].copies.copies["q"]
    assert sum(part.ready_count() for part in copy.backing.parts()) == 5 + 2
