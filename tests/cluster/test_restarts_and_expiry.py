"""A node that starts again does not take the time it was away for time its queues were unused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.sim_cluster import SimCluster, started
from tests.simulation.cluster_nodes import Machine

EXPIRES_MS = 1_800_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """Two nodes; the second one has the queues."""
    with started(tmp_path, ("a@h", "b@h")) as cluster:
        yield cluster


def count(machine: Machine, name: str) -> int | None:
    queue = machine.queue(name)
    return None if queue is None else int(queue.backing.ready_count())


def test_a_policy_that_changed_meanwhile_counts_from_the_start(cluster: SimCluster) -> None:
    a, b = cluster.machines
    for name in ("jobs", "other"):
        cluster.declare(b, name)
        cluster.publish(b, name, 1)
    b.kill()
    cluster.put_policy(a, "^jobs$", {"expires": EXPIRES_MS})
    cluster.pass_ms(5000)
    assert b.start()
    cluster.pass_ms(20_000)
    assert (count(b, "jobs"), count(b, "other")) == (1, 1)
    cluster.world.skip_ms(EXPIRES_MS)
    cluster.pass_ms(5000)
    assert (count(b, "jobs"), count(b, "other")) == (None, 1)


def test_a_queue_that_is_made_anew_counts_from_the_start(cluster: SimCluster) -> None:
    """Its node has lost its disk, and makes it from what the cluster agreed on."""
    _, b = cluster.machines
    cluster.declare(b, "jobs", **{"x-expires": EXPIRES_MS})
    cluster.publish(b, "jobs", 1)
    b.kill()
    cluster.pass_ms(5000)
    b.lose_disk()
    assert b.start()
    cluster.pass_ms(20_000)
    assert count(b, "jobs") == 0
    cluster.world.skip_ms(EXPIRES_MS)
    cluster.pass_ms(5000)
    assert b.queue("jobs") is None
