"""A copy that the disk has damaged: it is found when it is read, given up, and fetched anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backing.tiers import TAIL_BYTES
from tests.cluster.sim_cluster import SimCluster, started
from tests.simulation.cluster_nodes import Machine

NAMES = ("a@h", "b@h", "c@h")
BODY_BYTES = 1000
COUNT = 2 * int(TAIL_BYTES) // BODY_BYTES
LAZY: dict[str, object] = {"ha-mode": "all", "ha-sync-mode": "automatic", "queue-mode": "lazy"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """The messages of queue ``q`` rest on the disks; its master is on the first node."""
    with started(tmp_path, NAMES) as cluster:
        a = cluster.machines[0]
        cluster.put_policy(a, "^q", LAZY)
        cluster.declare(a, "q")
        cluster.until(lambda: cluster.synced("q") == list(NAMES))
        publish(cluster, a)
        cluster.until(lambda: all(segments(one) for one in cluster.machines))
        yield cluster


def publish(cluster: SimCluster, machine: Machine) -> None:
    client = machine.client()
    client.call("confirm.select")
    for number in range(COUNT):
        body = b"%d:" % number + b"x" * BODY_BYTES
        client.publish("", "q", body, delivery_mode=2, run=False)
    said: list[int] = []

    def are_confirmed() -> bool:
        said.extend(fields["delivery_tag"] for _, fields in client.methods())
        return said[-1:] == [COUNT]

    cluster.until(are_confirmed)
    client.drop()


def segments(machine: Machine) -> list[str]:
    return [name for name in machine.files.names if name.endswith(".idx")]


def flip(machine: Machine) -> None:
    (segment,) = segments(machine)
    machine.files.flip(segment, 8 * 1000)


def truncate(machine: Machine) -> None:
    (segment,) = segments(machine)
    machine.files.truncate(segment, machine.files.size(segment) // 2)


def take_all(cluster: SimCluster, machine: Machine) -> None:
    """All messages, by one consumer that is never cancelled."""
    client = machine.client()
    client.consume("q")
    got: set[int] = set()

    def has_all() -> bool:
        for name, fields in client.methods():
            assert name == "basic.deliver"
            got.add(int(bytes(fields["body"]).partition(b":")[0]))
            client.method(1, "basic.ack", delivery_tag=fields["delivery_tag"])
        return len(got) == COUNT

    cluster.until(has_all)
    assert got == set(range(COUNT))


def master(cluster: SimCluster) -> str:
    (found,) = [one.name for one in cluster.world.ready() if is_master(one)]
    return found


def is_master(machine: Machine) -> bool:
    queue = machine.queue("q")
    return queue is not None and not queue.remote


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_master_that_cannot_read_its_copy_gives_it_up_and_fetches_another(
    cluster: SimCluster, damage: Callable[[Machine], None]
) -> None:
    a, b, c = cluster.machines
    damage(a)
    take_all(cluster, c)
    assert master(cluster) == "b@h"
    cluster.until(lambda: cluster.synced("q") == list(NAMES))
    publish(cluster, b)
    cluster.until(lambda: count(a) == COUNT)


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_mirror_that_is_promoted_passes_the_queue_on(
    cluster: SimCluster, damage: Callable[[Machine], None]
) -> None:
    a, b, c = cluster.machines
    damage(b)
    a.kill()
    cluster.until(lambda: cluster.synced("q") == ["b@h", "c@h"])
    take_all(cluster, c)
    assert master(cluster) == "c@h"
    cluster.until(lambda: cluster.synced("q") == ["b@h", "c@h"])


def test_the_only_copy_stays_though_it_cannot_be_read(cluster: SimCluster) -> None:
    """Another one that has all may come back; what can be read of it is not given up."""
    a, b, c = cluster.machines
    b.kill()
    c.kill()
    cluster.until(lambda: cluster.synced("q") == ["a@h"])
    flip(a)
    client = a.client()
    client.consume("q")
    cluster.pass_ms(3000)
    assert master(cluster) == "a@h"
    queue = a.queue("q")
    assert queue is not None
    assert "damaged" in queue.backing.why_stopped()


def count(machine: Machine) -> int:
    copy = machine.quiet.broker.vhosts["/"].copies.copies.get("q")
    return 0 if copy is None else sum(part.ready_count() for part in copy.backing.parts())
