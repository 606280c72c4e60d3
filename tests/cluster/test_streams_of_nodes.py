"""Streams of a cluster: whole nodes, simulated.  Published, read and mirrored from any node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.sim_cluster import SimCluster, started
from tests.helpers.connection_pair import ClientEnd
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
        cluster.until(lambda: client.session.closed or bool(client.received))
        assert client.methods()[0][1]["reply_code"] == 540


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
    a, b, _ = cluster.machines
    tracked = Reader(cluster, b, "kept")
    plain = Reader(cluster, b, "plain", **{"x-stream-offset": "first"})
    cluster.publish(a, "s", 40)
    cluster.until(lambda: tracked.has(40) and plain.has(40))
    cluster.pass_ms(3000)
    a.kill()
    cluster.until(lambda: len(cluster.synced("s")) == 2)
    cluster.until(lambda: plain.listen() and "basic.cancel" in plain.heard)
    cluster.publish(b, "s", 10)
    cluster.until(lambda: tracked.has(50))
    assert tracked.bodies == numbers(40) + numbers(10)
    assert "basic.cancel" not in tracked.heard


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
