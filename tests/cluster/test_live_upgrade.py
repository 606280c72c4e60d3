"""From an earlier release to this one and back, under a load: no confirmed message is lost.

    PENSTOCK_PREVIOUS_WHEEL=penstock_broker-0.1.0-….whl   that release, for this Python

Three nodes, node by node, where the releases understand each other, and then back in the same way.
A node of this release refuses records in etcd that have no checksums, as 0.1 writes them, with the
cause and the cure: then the node goes back to its release, and all stop once.  With a release that
has them, quorum queues of three copies are under load as well.  What clients noticed is printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.load import Load
from tests.cluster.world import World
from tests.helpers.broker_process import BrokerFailed
from tests.helpers.etcd import missing_reason
from tests.helpers.live_broker import REPOSITORY

WHEEL = os.environ.get("PENSTOCK_PREVIOUS_WHEEL", "")
SIZE = 3
PEACE_S = 2.0
GO_ON_S = 60.0
REFUSAL = "as release 0.1 wrote them: stop all nodes, and start one with cluster_etcd_seal_records"
SEAL = "PENSTOCK_CLUSTER_ETCD_SEAL_RECORDS"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.skipif(not WHEEL, reason="PENSTOCK_PREVIOUS_WHEEL names no wheel"),
]


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """That release, beside the packages it needs, which are installed for this one."""
    directory = tmp_path / "previous"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
    subprocess.run([*install, str(directory), WHEEL], check=True)
    return directory


@pytest.fixture
def world(tmp_path: Path, previous: Path) -> Iterator[World]:
    machines = [{"PYTHONPATH": str(previous)}] * SIZE
    clients = ["pika", "pynsq"]
    has_quorum = (previous / "penstock/cluster/mirrors/star_group.py").exists()
    with World(
        tmp_path, SIZE, mirrored=True, quorum=has_quorum, clients=clients, machines=machines
    ) as world:
        yield world


def start(world: World, node: int, release: Path, **settings: str) -> None:
    broker = world.cluster.nodes[node]
    broker.more_environment.pop(SEAL, None)
    broker.more_environment |= {"PYTHONPATH": str(release)} | settings
    broker.start()


def test_a_cluster_of_an_earlier_release_goes_on_with_this_one(
    world: World, previous: Path
) -> None:
    release = REPOSITORY / "src"
    with world.load() as load:
        load.run(PEACE_S)
        world.stop(0)
        if joins(world, 0, release):
            print("node by node")
            go_on(world, load)
            for node in range(1, SIZE):
                replace(world, load, node, release)
            print("and back")
            for node in range(SIZE):
                replace(world, load, node, previous)
        else:
            start(world, 0, previous)
            all_at_once(world, load, release)
        load.run(PEACE_S)
        for node in range(SIZE):
            assert world.confirms(node, load)
        load.finish()
        for account in load.accounts.values():
            print(f"{account.queue}: {account.gap_ms()} ms without a confirm at most")


def joins(world: World, node: int, release: Path) -> bool:
    """False: it refuses, as it should."""
    try:
        start(world, node, release)
    except BrokerFailed as error:
        if REFUSAL not in str(error):
            raise
        return False
    return True


def replace(world: World, load: Load, node: int, release: Path) -> None:
    world.stop(node)
    start(world, node, release)
    go_on(world, load)


def go_on(world: World, load: Load) -> None:
    load.await_confirms(GO_ON_S)
    world.settle()
    load.run(PEACE_S)


def all_at_once(world: World, load: Load, release: Path) -> None:
    """The node with the masters stops last, and starts first."""
    print("all nodes stop once")
    load.await_confirms(GO_ON_S)
    world.settle()
    last = world.master(world.queues[0])
    order = [*({*range(SIZE)} - {last}), last]
    for node in order:
        world.stop(node)
    start(world, last, release, **{SEAL: "true"})
    for node in order[:-1]:
        start(world, node, release)
    load.await_confirms(GO_ON_S)
    world.settle()
    world.await_truth()
