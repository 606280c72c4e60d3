"""A master that can do nothing that counts takes nothing in: what is told no is not in the queue.

The coordinator is away, and a node with a synchronised copy is lost: nothing is confirmed until one
of them is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.mirrors.mirroring import LOOK_MS
from tests.cluster.sim_cluster import SimCluster, started

NAMES = ("a@h", "b@h", "c@h")
MIRRORED: dict[str, object] = {"ha-mode": "all", "ha-sync-mode": "automatic"}
LONG_MS = 20_000
COUNT = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """Queue ``q`` has its master on the first node and copies on the two others."""
    with started(tmp_path, NAMES) as cluster:
        cluster.put_policy(cluster.machines[0], "^q", MIRRORED)
        cluster.declare(cluster.machines[0], "q")
        cluster.until(lambda: cluster.synced("q") == list(NAMES))
        yield cluster


def leave_alone(
    cluster: SimCluster, lost: int = 1, then: Callable[[], None] = lambda: None
) -> None:
    """``then``: done when that mirror is lost, before the master knows what that means."""
    for machine in cluster.machines:
        machine.sim.cut_off = True
    cluster.machines[lost].kill()
    then()
    cluster.until(lambda: is_alone(cluster))


def is_alone(cluster: SimCluster) -> bool:
    known = cluster.machines[0].cluster.mirrors.mirroring.queues["/", "q"]
    return known.alone() != ""


def heal(cluster: SimCluster) -> None:
    for machine in cluster.machines:
        machine.sim.cut_off = False
    for machine in cluster.machines:
        if not machine.runs:
            assert machine.start()
    cluster.until(lambda: cluster.synced("q") == list(NAMES))


def length(cluster: SimCluster) -> int:
    """As its present master has it."""
    for machine in cluster.world.ready():
        queue = machine.queue("q")
        if queue is not None and not queue.remote:
            return int(queue.backing.ready_count())
    return -1


def client_of(cluster: SimCluster, at: int, *calls: str) -> Any:
    client = cluster.machines[at].client()
    for call in calls:
        client.call(call)
    return client


def test_who_publishes_at_its_node_is_sent_away_and_nothing_is_kept(cluster: SimCluster) -> None:
    publishers = [client_of(cluster, 0, "confirm.select") for _ in range(COUNT)]
    leave_alone(cluster)
    for publisher in publishers:
        publisher.publish("", "q", b"x", delivery_mode=2)
        cluster.pass_ms(2 * LOOK_MS)
    assert length(cluster) == 0
    for publisher in publishers:
        name, fields = publisher.methods()[-1]
        assert (name, fields["code"]) == ("connection.close", 541)


def test_who_publishes_at_another_node_waits_and_each_message_is_there_once(
    cluster: SimCluster,
) -> None:
    consumer = client_of(cluster, 2)
    consumer.method(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True)
    cluster.until(lambda: consumer.methods() != [])
    publisher = client_of(cluster, 2, "confirm.select")
    leave_alone(cluster)
    for number in range(COUNT):
        publisher.publish("", "q", b"%d" % number, delivery_mode=2)
        cluster.pass_ms(2 * LOOK_MS)
    assert publisher.methods() == []
    assert length(cluster) == 0
    assert consumer.bodies() == []
    heal(cluster)
    answers: dict[int, str] = {}
    bodies: list[bytes] = []

    def are_answered() -> bool:
        for name, fields in publisher.methods():
            for tag in range(1 if fields["multiple"] else fields["delivery_tag"], COUNT + 1):
                if tag <= fields["delivery_tag"]:
                    answers.setdefault(tag, name)
        return len(answers) == COUNT

    cluster.until(are_answered)
    for _ in range(LONG_MS // LOOK_MS):
        cluster.pass_ms(LOOK_MS)
        bodies += consumer.bodies()
    assert bodies == [b"%d" % (tag - 1) for tag in answers if answers[tag] == "basic.ack"]


@pytest.mark.parametrize("here", [True, False], ids=["its node", "another node"])
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("early", [True, False], ids=["before", "while it is alone"])
def test_a_dead_letter_outlives_a_lone_master(
    cluster: SimCluster, lost: int, *, here: bool, early: bool
) -> None:
    """It stays in its queue until a master whose mirrors have it says so."""
    at = 0 if here else 3 - lost
    there = cluster.machines[at]
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    cluster.declare(there, "source", **letters)
    cluster.publish(there, "source", 1)
    client = client_of(cluster, at)
    client.method(1, "basic.consume", queue="source", consumer_tag="c")
    cluster.until(lambda: "basic.deliver" in [name for name, _ in client.methods()])

    def reject() -> None:
        client.method(1, "basic.reject", delivery_tag=1, requeue=False)

    leave_alone(cluster, lost, reject if early else lambda: None)
    if not early:
        reject()
    cluster.pass_ms(LONG_MS)
    if not here:
        cluster.machines[0].kill()  # and what only it had is gone with it
        cluster.machines[0].lose_disk()
    heal(cluster)
    cluster.until(lambda: length(cluster) > 0)
    cluster.pass_ms(LONG_MS)
    source = there.queue("source")
    assert source is not None
    assert source.backing.ready_count() + source.unacked_count == 0
