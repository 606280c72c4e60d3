"""Setting the clocks of machines neither hurries nor holds up what a cluster waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.mirrors.promotion import RETURN_WAIT_MS
from tests.cluster.sim_cluster import SimCluster, started

NAMES = ("a@h", "b@h")
HOUR_MS = 3_600_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """Queue ``q`` has its master on the first node and a copy on the second."""
    with started(tmp_path, NAMES) as cluster:
        cluster.put_policy(cluster.machines[0], "^q", {"ha-mode": "all"})
        cluster.declare(cluster.machines[0], "q")
        cluster.until(lambda: cluster.synced("q") == list(NAMES))
        yield cluster


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_the_wait_for_a_former_master_is_as_long_as_ever(cluster: SimCluster, jump_ms: int) -> None:
    """Another copy may lack what was confirmed last, so it is not promoted before that."""
    a, b = cluster.machines
    a.kill()
    b.kill()
    cluster.pass_ms(5000)
    assert b.start()
    cluster.pass_ms(RETURN_WAIT_MS // 3)
    assert cluster.synced("q") == []
    cluster.world.wall_jump_ms += jump_ms
    cluster.pass_ms(RETURN_WAIT_MS // 3)
    assert cluster.synced("q") == []
    cluster.pass_ms(RETURN_WAIT_MS // 2)
    assert cluster.synced("q") == [NAMES[1]]


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_mirrors_are_made_and_declarations_answered_behind_a_jump(
    cluster: SimCluster, jump_ms: int
) -> None:
    a, b = cluster.machines
    b.kill()
    cluster.pass_ms(1000)
    cluster.world.wall_jump_ms += jump_ms
    cluster.until(lambda: cluster.synced("q") == [NAMES[0]])
    assert b.start()
    cluster.world.wall_jump_ms += jump_ms
    cluster.until(lambda: cluster.synced("q") == list(NAMES))
    client = b.client()
    client.method(1, "queue.declare", queue="other", durable=True)
    cluster.until(lambda: a.queue("other") is not None)
