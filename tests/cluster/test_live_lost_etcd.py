"""An etcd that loses its data under real nodes: they end, keep every message, and are refounded."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.failure import FAILED
from tests.cluster.blows import until
from tests.crash.kill_clients import Line
from tests.helpers import raw_codec as codec
from tests.helpers.broker_process import BrokerFailed
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.etcd import EtcdServer
from tests.helpers.live_broker import LiveBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

MESSAGES = 20
ROOT = "/penstock/penstock/"
MIRRORED = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}


def fill(cluster: LiveCluster) -> None:
    """A plain queue on the second node, and a mirrored one."""
    until(cluster.all_run, 20.0, lambda: "nodes")
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


def etcd_of(cluster: LiveCluster) -> EtcdServer:
    assert isinstance(cluster.etcd, EtcdServer)
    return cluster.etcd


def refound(directory: Path) -> None:
    program = "from penstock.cli.main import main; main()"
    words = [sys.executable, "-c", program, "cluster", "refound", str(directory)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def lose_while_nodes_run(cluster: LiveCluster) -> None:
    """Each ends, and says why."""
    etcd = etcd_of(cluster)
    etcd.kill()
    shutil.rmtree(etcd.directory / etcd.name)
    etcd.start()
    for node in cluster.nodes:
        assert node.process is not None
        assert node.process.wait(20) == FAILED
        assert "lost data" in node.output()
        node.process = None


def forge_an_administrator(cluster: LiveCluster) -> None:
    """M5.  Each node ends and names the record; what the operator does next is to remove it all."""
    etcd = etcd_of(cluster)
    forged = '{"hashing_algorithm":"","password_hash":"","tags":["administrator"],"v":1}'
    etcd.put(ROOT + "keys/users/eve", forged)
    for node in cluster.nodes:
        assert node.process is not None
        assert node.process.wait(20) == FAILED
        assert f"the record '{ROOT}keys/users/eve' has no checksum" in node.output()
        node.process = None
        with pytest.raises(BrokerFailed, match="keys/users/eve"):
            node.start()
    etcd.delete(ROOT)


def lose_while_nodes_are_stopped(cluster: LiveCluster) -> None:
    """The master of the mirrored queue last, so that no other node became it."""
    for node in reversed(cluster.nodes):
        node.stop()
    etcd = etcd_of(cluster)
    etcd.kill()
    shutil.rmtree(etcd.directory / etcd.name)
    etcd.start()


def restore_an_older_copy(cluster: LiveCluster) -> None:
    """Older than both queues."""
    lose_while_nodes_are_stopped(cluster)
    etcd = etcd_of(cluster)
    etcd.kill()
    shutil.rmtree(etcd.directory / etcd.name)
    shutil.copytree(etcd.directory / "backup", etcd.directory / etcd.name)
    etcd.start()


def back_up(cluster: LiveCluster) -> None:
    etcd = etcd_of(cluster)
    etcd.kill()
    shutil.copytree(etcd.directory / etcd.name, etcd.directory / "backup")
    etcd.start()
    end_s = time.monotonic() + 20
    while True:
        try:
            cluster.ask(0, "/api/vhosts/%2F", {"description": "backed up"})
            return
        except urllib.error.HTTPError:  # not before the coordinator answers again
            assert time.monotonic() < end_s
            time.sleep(0.2)


@pytest.mark.parametrize(
    "lose",
    [
        lose_while_nodes_run,
        pytest.param(lose_while_nodes_are_stopped, marks=pytest.mark.long),
        restore_an_older_copy,
        pytest.param(forge_an_administrator, marks=pytest.mark.long),
    ],
)
def test_nodes_keep_their_queues_and_found_the_cluster_anew(
    tmp_path: Path, lose: Callable[[LiveCluster], None]
) -> None:
    """CL0, ways (a) to (c)."""
    with LiveCluster(tmp_path, 2) as cluster:
        back_up(cluster)
        fill(cluster)
        lose(cluster)
        for node in cluster.nodes:
            with pytest.raises(BrokerFailed, match="penstock cluster refound"):
                node.start()
        for node in cluster.nodes:
            refound(node.data_dir)
        cluster.start()
        end_s = time.monotonic() + 10
        while counts(cluster) != {"plain": MESSAGES, "mirrored": MESSAGES}:
            assert time.monotonic() < end_s, counts(cluster)
            time.sleep(0.1)


def test_a_cluster_of_release_0_1_is_upgraded(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 2) as cluster:
        fill(cluster)
        for node in reversed(cluster.nodes):
            node.stop()
        etcd_of(cluster).unseal(ROOT)
        with pytest.raises(BrokerFailed, match="cluster_etcd_seal_records = true"):
            cluster.nodes[0].start()
        cluster.nodes[0].more_environment["PENSTOCK_CLUSTER_ETCD_SEAL_RECORDS"] = "true"
        for node in cluster.nodes:
            node.start()
        end_s = time.monotonic() + 10
        while counts(cluster) != {"plain": MESSAGES, "mirrored": MESSAGES}:
            assert time.monotonic() < end_s, counts(cluster)
            time.sleep(0.1)
        assert "records below /penstock/penstock/ have checksums" in cluster.nodes[0].output()


def test_a_machine_whose_nodes_lose_their_coordination_file_keeps_its_queues(
    tmp_path: Path,
) -> None:
    """CL0, way (d): ``penstock serve --nodes``, and no etcd."""
    settings = {"PENSTOCK_NODES": "2", "PENSTOCK_NODE_NAME": "penstock@here"}
    with LiveBroker(tmp_path / "data", environment=settings, ready_timeout_s=60) as broker:
        line = Line(broker.url)
        names = [f"q{number}" for number in range(4)]  # the nodes have some of them each
        line.call("confirm.select")
        for name in names:
            line.call("queue.declare", queue=name, durable=True)
            publish = codec.method_frame(1, "basic.publish", routing_key=name)
            line.send(publish + codec.content_frames(1, b"m", {"delivery_mode": 2}))
            list(line.frames())
        line.close()
        broker.stop()
        for file in broker.data_dir.glob("coordination.db*"):
            file.unlink()
        with pytest.raises(BrokerFailed, match="penstock cluster refound"):
            broker.start()
        for directory in broker.data_dir.glob("node-*"):
            refound(directory)
        broker.start()
        line = Line(broker.url)
        for name in names:
            assert line.call("queue.declare", queue=name, passive=True)["messages"] == 1
        line.close()
