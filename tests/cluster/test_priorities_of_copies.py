"""Priorities of queues with copies: whether they are there after a promotion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.sim_cluster import SimCluster, started
from tests.simulation.cluster_nodes import Machine

NAMES = ("a@h", "b@h", "c@h")
PRIORITIES = (0, 3, 1, 2, 3, 0, 9, 1)
BY_PRIORITY = [1, 4, 6, 3, 2, 7, 0, 5]
"""Of messages with ``PRIORITIES``, in a queue whose highest is 3."""
ALL: dict[str, object] = {"ha-mode": "all", "ha-sync-mode": "automatic"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    with started(tmp_path, NAMES) as cluster:
        cluster.pass_ms(3000)
        yield cluster


def publish(cluster: SimCluster, machine: Machine) -> None:
    client = machine.client()
    client.call("confirm.select")
    for number, priority in enumerate(PRIORITIES):
        body = b"%d" % number
        client.publish("", "q", body, delivery_mode=2, priority=priority, run=False)
    said: list[int] = []

    def are_confirmed() -> bool:
        said.extend(fields["delivery_tag"] for _, fields in client.methods())
        return said[-1:] == [len(PRIORITIES)]

    cluster.until(are_confirmed)
    client.drop()


def master(cluster: SimCluster) -> Machine | None:
    for machine in cluster.world.ready():
        queue = machine.queue("q")
        if queue is not None and not queue.remote:
            return machine
    return None


def order_after_promotion(cluster: SimCluster) -> list[int]:
    first = master(cluster)
    assert first is not None
    first.kill()
    cluster.until(lambda: master(cluster) is not None)
    new = master(cluster)
    assert new is not None
    assert new is not first
    client = new.client()
    client.consume("q")
    got: list[int] = []

    def has_all() -> bool:
        for name, fields in client.methods():
            assert name == "basic.deliver"
            got.append(int(bytes(fields["body"])))
            client.method(1, "basic.ack", delivery_tag=fields["delivery_tag"])
        return len(got) == len(PRIORITIES)

    cluster.until(has_all)
    return got


def test_a_mirrored_queue_has_its_priorities_after_a_promotion(cluster: SimCluster) -> None:
    a = cluster.machines[0]
    cluster.put_policy(a, "^q", ALL)
    cluster.declare(a, "q", **{"x-max-priority": 3})
    cluster.until(lambda: all(has_copy(one) for one in cluster.machines[1:]))
    cluster.pass_ms(3000)
    publish(cluster, a)
    cluster.pass_ms(1000)
    assert order_after_promotion(cluster) == BY_PRIORITY


def test_a_quorum_queue_with_copies_delivers_in_the_order_of_arrival(cluster: SimCluster) -> None:
    """Before and after an election; RabbitMQ's has priorities with copies, too."""
    a = cluster.machines[0]
    cluster.declare(a, "q", **{"x-queue-type": "quorum"})
    cluster.until(lambda: all(has_copy(one) for one in cluster.machines[1:]))
    cluster.pass_ms(3000)
    publish(cluster, a)
    cluster.pass_ms(1000)
    assert order_after_promotion(cluster) == list(range(len(PRIORITIES)))


def has_copy(machine: Machine) -> bool:
    return "q" in machine.quiet.broker.vhosts["/"].copies.copies
