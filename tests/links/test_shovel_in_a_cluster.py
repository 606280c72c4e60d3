"""One node of a cluster runs its shovels; when it is killed, another one goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.live_broker import LiveBroker
from tests.links.links_tools import Side, until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    reason = missing_reason()
    if reason:
        pytest.skip(reason)
    with LiveCluster(tmp_path / "cluster", 2, {"CLUSTER_LEASE_TTL_S": "3"}) as cluster:
        yield cluster


def test_the_next_node_goes_on(cluster: LiveCluster, tmp_path: Path) -> None:
    first, second = [Side(node, node.http_url) for node in cluster.nodes]
    with LiveBroker(tmp_path / "far") as far:
        there = Side(far, far.http_url)
        there.fill("far", 10)
        value = {"src-uri": there.url, "src-queue": "far", "dest-uri": "amqp://"}
        value["dest-queue"] = "near"
        second.api.put("/api/parameters/shovel/%2F/s", {"value": value})
        until(lambda: [row["state"] for row in first.api.get("/api/shovels")] == ["running"])
        assert second.api.get("/api/shovels") == []
        assert second.api.get("/api/parameters/shovel/%2F/s")["value"]["src-queue"] == "far"
        until(lambda: there.depth("far") == 0)
        # The queue is the first node's, so what comes later needs one of the second.
        second.fill("near 2", 0)
        second.api.put("/api/parameters/shovel/%2F/s", {"value": value | {"dest-queue": "near 2"}})
        until(lambda: [row["state"] for row in first.api.get("/api/shovels")] == ["running"])
        first.broker.kill()
        there.fill("far", 10)
        until(lambda: [row["state"] for row in second.api.get("/api/shovels")] == ["running"])
        until(lambda: second.depth("near 2") == 10)
        first.broker.start()
        until(lambda: [row["state"] for row in first.api.get("/api/shovels")] == ["running"])
        until(lambda: second.api.get("/api/shovels") == [])
        there.fill("far", 5)
        until(lambda: second.depth("near 2") == 15)
