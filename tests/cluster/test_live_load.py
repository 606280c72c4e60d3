"""The small round of ``make test-cluster``: three nodes on 127.0.0.1, a mirrored queue, a load.

The whole of it, with partitions and more clients, is in test_cluster_lives.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.world import FAILOVER_MS, World
from tests.helpers.etcd import missing_reason

pytestmark = pytest.mark.slow


def test_masters_are_killed_and_stopped_and_nothing_confirmed_is_lost(tmp_path: Path) -> None:
    """The node that was killed is started at once, while its former life still counts."""
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with World(tmp_path, 3, mirrored=True, clients=["pika"]) as world, world.load() as load:
        for blow in (world.kill, world.stop):
            load.run(1)
            since_ms = time.time_ns() // 1_000_000
            master = world.master(world.queues[0])
            blow(master)
            world.start(master)
            load.await_confirms(FAILOVER_MS / 1000 + 1)
            gap_ms = load.gap_ms(since_ms)
            print(f"{blow.__name__}: failover after {gap_ms} ms")
            assert gap_ms < FAILOVER_MS, load.told()
            world.settle()
            world.await_truth()
            assert "joining again" not in world.cluster.nodes[master].output()
        load.finish()
