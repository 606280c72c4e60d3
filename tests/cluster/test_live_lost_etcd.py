"""An etcd that loses its data under real nodes: they end, keep every message, and are refounded."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.failure import FAILED
from tests.helpers.broker_process import BrokerFailed
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.etcd import EtcdServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

MESSAGES = 20
MIRRORED = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}


def fill(cluster: LiveCluster) -> None:
    """A plain queue on the second node, and a mirrored one."""
    cluster.ask(0, "/api/policies/%2F/mirrored", {**MIRRORED, "apply-to": "queues"})
    for number, queue in ((1, "plain"), (0, "mirrored")):
        body = {"durable": True, "node": cluster.name(number)}
        cluster.ask(0, f"/api/queues/%2F/{queue}", body)
        message = {
            "routing_key": queue,
            "payload": "m",
            "payload_encoding": "string",
            "properties": {"delivery_mode": 2},
        }
        for _ in range(MESSAGES):
            path = "/api/exchanges/%2F/amq.default/publish"
            assert cluster.ask(0, path, message, "POST") == {"routed": True}


def counts(cluster: LiveCluster) -> dict[str, int]:
    """As the first node knows them, which hears from the second one."""
    return {row["name"]: row["messages"] for row in cluster.ask(0, "/api/queues")}


def wipe(cluster: LiveCluster) -> None:
    etcd = cluster.etcd
    assert isinstance(etcd, EtcdServer)
    etcd.kill()
    shutil.rmtree(etcd.directory / etcd.name)
    etcd.start()


def refound(cluster: LiveCluster, number: int) -> None:
    program = "from penstock.cli.main import main; main()"
    directory = str(cluster.nodes[number].data_dir)
    words = [sys.executable, "-c", program, "cluster", "refound", directory]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def test_nodes_end_keep_their_queues_and_found_the_cluster_anew(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 2) as cluster:
        fill(cluster)
        wipe(cluster)
        for node in cluster.nodes:
            assert node.process is not None
            assert node.process.wait(20) == FAILED
            assert "lost data" in node.output()
            node.process = None
        for node in cluster.nodes:
            with pytest.raises(BrokerFailed, match="penstock cluster refound"):
                node.start()
        for number in range(2):
            refound(cluster, number)
        cluster.start()
        end_s = time.monotonic() + 10
        while counts(cluster) != {"plain": MESSAGES, "mirrored": MESSAGES}:
            assert time.monotonic() < end_s, counts(cluster)
            time.sleep(0.1)
