"""Clusters of real processes on a private network, under a load: whatever happens, nothing
confirmed is lost, and clients of four libraries go on.

``make test-cluster`` runs all of it; by the environment:

    PENSTOCK_CLUSTER_SIZES=3,5       how many nodes
    PENSTOCK_CLUSTER_MIRRORED=0,1    without and with mirrors
    PENSTOCK_CLUSTER_ROUNDS=2        blows of a kind
    PENSTOCK_CLUSTER_SECONDS=2       of peace before each
    PENSTOCK_CLUSTER_RATE=100        messages a second of each publisher
    PENSTOCK_CLUSTER_CLIENTS=pika,go,java,pynsq
    PENSTOCK_CLUSTER_FAILOVER_MS=5000  longest gap between two confirms of a mirrored queue
"""

from __future__ import annotations

import os
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pika.exceptions
import pytest

from tests.cluster.load import Load
from tests.cluster.world import FAILOVER_MS, LEASE_S, World, channel_at
from tests.helpers import cluster as live_cluster
from tests.helpers import namespaces
from tests.helpers.etcd import EtcdTrio
from tests.helpers.namespaces import PrivateNetwork

SIZES = [int(size) for size in os.environ.get("PENSTOCK_CLUSTER_SIZES", "3,5").split(",")]
MIRRORED = [one == "1" for one in os.environ.get("PENSTOCK_CLUSTER_MIRRORED", "0,1").split(",")]
ROUNDS = int(os.environ.get("PENSTOCK_CLUSTER_ROUNDS", "2"))
PEACE_S = float(os.environ.get("PENSTOCK_CLUSTER_SECONDS", "2"))
GO_ON_S = 20.0
QUICK_MS = 2000
"""A gap that is none: nobody had to take over."""

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(180 + 120 * ROUNDS),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is about mirrors is not tried without."""
    both = [one for one in MIRRORED if one or "mirror_" not in metafunc.function.__name__]
    metafunc.parametrize("size", SIZES)
    metafunc.parametrize("mirrored", both, ids=["mirrored" if one else "single" for one in both])


@pytest.fixture
def world(tmp_path: Path, size: int, mirrored: bool) -> Iterator[World]:
    for reason in (namespaces.missing_reason(), live_cluster.missing_reason()):
        if reason is not None:
            pytest.skip(reason)
    with (
        PrivateNetwork(live_cluster.LiveCluster.hosts(size)) as network,
        World(tmp_path, size, mirrored=mirrored, network=network) as world,
    ):
        yield world


def failover(world: World, load: Load, since_ms: int) -> None:
    """The queues go on, and soon enough; said in the output."""
    load.await_confirms(FAILOVER_MS / 1000 + 1)
    gap_ms = load.gap_ms(since_ms)
    print(f"failover after {gap_ms} ms")
    assert gap_ms < FAILOVER_MS, load.told()


def await_sent_away(world: World, node: int) -> None:
    """A consumer that comes there does not starve."""
    with channel_at(world.cluster.nodes[node].url) as channel:
        channel.basic_consume(world.queues[0], lambda *_: None)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            channel.connection.process_data_events(FAILOVER_MS / 1000)
        assert closed.value.reply_code == 541


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_the_master_is_killed(world: World) -> None:
    """A single queue waits until its node is back; a mirrored one has another master."""
    with world.load() as load:
        for _ in range(ROUNDS):
            load.run(PEACE_S)
            since_ms = now_ms()
            victim = world.master(world.queues[0])
            world.kill(victim)
            if world.mirrored:
                failover(world, load, since_ms)
            world.await_seen_down(victim)
            world.await_truth(gone=[victim])
            world.start(victim)
            load.await_confirms(GO_ON_S)
            world.settle()
            world.await_truth()
        load.finish()


def test_a_mirror_is_killed(world: World) -> None:
    """Its master waits for it until its lease has ended, and no longer."""
    with world.load() as load:
        for _ in range(ROUNDS):
            load.run(PEACE_S)
            since_ms = now_ms()
            victim = world.mirror(world.queues[0])
            world.kill(victim)
            failover(world, load, since_ms)
            world.await_seen_down(victim)
            world.await_truth(gone=[victim])
            world.start(victim)
            world.settle()
            world.await_truth()
        load.finish()


def test_members_of_etcd_are_killed_one_after_the_other(world: World) -> None:
    """Nobody notices."""
    assert isinstance(world.cluster.etcd, EtcdTrio)
    with world.load() as load:
        for member in world.cluster.etcd.members:
            load.run(PEACE_S / 2)
            member.kill()
            load.run(PEACE_S)
            member.start()
        load.run(PEACE_S / 2)
        assert load.gap_ms() < QUICK_MS, load.told()
        load.finish()
        assert sum(one.counts()["reconnects"] for one in load.accounts.values()) == 0


def test_etcd_is_away_as_a_whole(world: World) -> None:
    """Nothing can be declared, and queues go on, mirrored ones too: nobody can promote, and who was
    a master still has the answers of all its mirrors (K2)."""
    with world.load() as load:
        load.run(PEACE_S)
        world.cluster.etcd.pause()
        try:
            load.run(2 * LEASE_S)
            with channel_at(world.cluster.nodes[1].url) as channel:
                with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
                    channel.queue_declare("not now", durable=True)
                assert closed.value.reply_code == 541
            load.await_confirms(2)
            assert load.gap_ms() < QUICK_MS, load.told()
            world.await_truth()
            for node in world.living():
                assert world.cluster.ask(node, "/api/penstock/cluster")["why_not"]
        finally:
            world.cluster.etcd.resume()
        load.await_confirms(GO_ON_S)
        world.settle()
        world.await_truth()
        for node in world.living():
            assert world.cluster.ask(node, "/api/penstock/cluster")["why_not"] == ""
        load.finish()


def test_the_masters_node_is_cut_off(world: World) -> None:
    """From all nodes and etcd, while clients still reach it.  With mirrors it confirms nothing once
    its lease has ended, the others go on, and healed it is a mirror; alone it goes on."""
    with world.load() as load:
        for _ in range(ROUNDS):
            load.run(PEACE_S)
            since_ms = now_ms()
            victim = world.master(world.queues[0])
            world.isolate(victim)
            if world.mirrored:
                world.await_other_master(victim, FAILOVER_MS / 1000)
                while not world.confirms((victim + 1) % world.size, load):
                    load.check()
                took_ms = now_ms() - since_ms
                print(f"failover after {took_ms} ms")
                assert took_ms < FAILOVER_MS
                assert not world.confirms(victim, load)
                await_sent_away(world, victim)
                rows = world.cluster.ask(victim, "/api/penstock/mirrors")
                for row in rows:  # in a later round some have their masters elsewhere
                    assert "is cut off" in row["why"] or "does not reach" in row["why"], row
                load.await_confirms(GO_ON_S)
                print(f"longest gap of any client {load.gap_ms(since_ms)} ms")
            else:
                load.run(2 * LEASE_S)
                assert world.confirms(victim, load)
            world.await_seen_down(victim)
            world.await_truth(gone=[victim])
            assert world.cluster.ask(victim, "/api/penstock/cluster")["why_not"]
            with pytest.raises(urllib.error.HTTPError) as refused:
                world.cluster.ask(victim, "/healthz/ready")
            assert (refused.value.code, b"is cut off" in refused.value.read()) == (503, True)
            (row,) = [r for r in world.cluster.ask(victim, "/api/nodes") if r.get("partitions")]
            assert len(row["partitions"]) == world.size - 1
            world.heal()
            load.await_confirms(GO_ON_S)
            world.settle()
            world.await_truth()
            if world.mirrored:
                assert world.master(world.queues[0]) != victim
        load.finish()


def test_two_nodes_do_not_hear_each_other(world: World) -> None:
    """Both are members, both hear etcd: after a while the master does without a mirror that it
    cannot reach.  What is published at one to a queue at the other waits until they are healed."""
    assert world.network is not None
    with world.load() as load:
        for one_way in (True, False)[:ROUNDS]:
            load.run(PEACE_S)
            since_ms = now_ms()
            queue = world.queues[0]
            master = world.master(queue)
            other = world.mirror(queue) if world.mirrored else (master + 1) % world.size
            if one_way:
                world.network.cut_one_way(master, other)
            else:
                world.network.cut(master, other)
            if world.mirrored:
                while not world.confirms(master, load):
                    load.check()
                took_ms = now_ms() - since_ms
                print(f"without the mirror after {took_ms} ms")
                assert took_ms < FAILOVER_MS
                load.await_confirms(GO_ON_S)
                print(f"longest gap of any client {load.gap_ms(since_ms)} ms")
            else:
                load.run(2 * LEASE_S)
            world.await_truth(unheard=[master], by=[other])
            world.await_truth(unheard=[other], by=[master])
            world.heal()
            load.await_confirms(GO_ON_S)
            world.settle()
            world.await_truth()
        load.finish()


def test_all_nodes_are_restarted_one_after_the_other(world: World) -> None:
    """SIGTERM, as one does with a new version.  Masters hand over before they go."""
    with world.load() as load:
        for node in range(world.size):
            load.run(PEACE_S)
            since_ms = now_ms()
            world.stop(node)
            if world.mirrored:
                failover(world, load, since_ms)
            world.await_truth(gone=[node])
            world.start(node)
            load.await_confirms(GO_ON_S)
            world.settle()
            world.await_truth()
        load.finish()


def test_all_nodes_are_killed_at_once(world: World) -> None:
    """What was confirmed is on disk."""
    with world.load() as load:
        for _ in range(ROUNDS):
            load.run(PEACE_S)
            for node in range(world.size):
                world.kill(node)
            world.cluster.start()
            load.await_confirms(GO_ON_S + 30)
            world.settle()
            world.await_truth()
        load.finish()
