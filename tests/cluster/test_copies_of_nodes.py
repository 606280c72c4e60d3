"""What nodes of a cluster keep on their disks of mirrored queues: whole nodes, simulated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.agreement.membership import OVER
from tests.cluster.sim_cluster import SimCluster, started
from tests.simulation.cluster_nodes import Machine

NAMES = ("a@h", "b@h", "c@h")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """Queue ``q`` has its master on the first node and copies on the others."""
    with started(tmp_path, NAMES) as cluster:
        a = cluster.machines[0]
        cluster.put_policy(a, "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        cluster.declare(a, "q")
        cluster.publish(a, "q", 50)
        cluster.until(lambda: cluster.synced("q") == list(NAMES))
        yield cluster


def records(machine: Machine) -> list[str]:
    return [one.name for one in machine.quiet.definitions.load().queues]


def test_who_is_not_to_have_a_copy_any_more_drops_it(cluster: SimCluster) -> None:
    a, b, c = cluster.machines
    assert records(b) == records(c) == ["amq.mirror.q"]
    fewer = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
    cluster.put_policy(a, "^q", fewer)
    cluster.until(lambda: len(cluster.synced("q")) == 2)
    cluster.pass_ms(1000)
    (kept,) = [one for one in (b, c) if records(one)]
    assert cluster.synced("q") == [a.name, kept.name]


def test_a_former_master_keeps_its_messages_and_fetches_what_differs(cluster: SimCluster) -> None:
    a, b, _ = cluster.machines
    a.kill()
    cluster.until(lambda: cluster.synced("q") in (["b@h", "c@h"], ["b@h"], ["c@h"]))
    cluster.publish(b, "q", 10)
    assert a.start()
    (record,) = a.quiet.definitions.load().queues
    cluster.until(lambda: cluster.synced("q") == list(NAMES))
    copy = a.quiet.broker.vhosts["/"].copies.copies["q"]
    assert copy.queue_id == record.queue_id, "it did not begin with a new, empty one"
    (part,) = copy.backing.parts()
    assert part.ready_count() == 60


def test_each_change_of_a_copy_is_an_event_at_one_node_and_counted_there(
    cluster: SimCluster,
) -> None:
    a, b, c = cluster.machines
    for machine in (b, c):
        machine.quiet.broker.events.open()
    a.kill()
    cluster.until(lambda: cluster.synced("q") == ["b@h", "c@h"])
    cluster.pass_ms(1000)
    why = "the eldest synchronised mirror"
    assert changes_at(c) == []
    assert changes_at(b) == [
        ("/", "q", "b@h", "promoted", why),
        ("/", "q", "a@h", "left", why),
    ]
    counts = b.quiet.broker.mirrors.changes()
    assert {change: count for change, count in counts.items() if count} == {
        "promoted": 1,
        "left": 1,
    }


def changes_at(machine: Machine) -> list[tuple[object, ...]]:
    events = machine.quiet.broker.events.take()
    return [values for _, kind, values, _ in events if kind == "mirror_changed"]


def test_a_life_that_has_ended_takes_no_part_though_its_end_is_not_heard_yet(
    cluster: SimCluster,
) -> None:
    """The lease is known to be over before the member's key is: a new lease may come first."""
    machine = cluster.machines[0]
    cluster.declare(machine, "r", **{"x-queue-type": "quorum"})
    node, mirroring = machine.cluster, machine.cluster.mirrors.mirroring
    former = node.member
    cluster.until(lambda: ("/", "r") in mirroring.queues)
    known = mirroring.queues["/", "r"]
    cluster.until(lambda: known.group is not None)
    node.membership.state = OVER
    machine.turn()
    assert node.member != former
    for _ in range(3):
        mirroring.begin(machine.world.wall_ms())
        assert known.group is None
        mirroring._look_at_all()
