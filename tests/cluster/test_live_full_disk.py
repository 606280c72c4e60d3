"""The disk of a mirror's node is filled to the last byte: the node lives, and so does the queue.

Needs a small file system of its own to fill, and so the right to mount one.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.client.amqp import Connection, Endpoint
from penstock.protocols.amqp.codec.properties import Properties
from tests.helpers.cluster import LiveCluster, missing_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.crash,
    pytest.mark.timeout(180),
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

SIZE_KIB = 40 * 1024
SMALL = {
    "JOURNAL_FILE_SIZE_BYTES": "1048576",
    "JOURNAL_SIZE_LIMIT_BYTES": "2097152",
    "MSG_STORE_FILE_SIZE_LIMIT_BYTES": "1048576",
    "DISK_FREE_LIMIT": "0",
}
BODY = b"x" * 20_000
PERSISTENT = Properties(delivery_mode=2)
"""20 kB each: 2,000 of them fill the disk."""


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def until(what: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def synced(cluster: LiveCluster) -> list[str]:
    return sorted(cluster.ask(0, "/api/queues/%2F/mirrored").get("synchronised_slave_nodes", []))


def verdict(cluster: LiveCluster) -> str:
    return str(cluster.ask(0, "/api/penstock/flow")["sentence"])


class Publisher(threading.Thread):
    """At the master's node, until it is told to end."""

    def __init__(self, cluster: LiveCluster) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0
        self.over = threading.Event()
        self._endpoint = Endpoint.parse(cluster.nodes[0].url)

    def run(self) -> None:
        connection = Connection(self._endpoint)
        channel = connection.channel()
        channel.confirm_select()
        while not self.over.is_set():
            for _ in range(5):
                channel.publish(BODY, routing_key="mirrored", properties=PERSISTENT)
            channel.wait_for_confirms()
            self.confirmed += 5
        connection.close()


def test_a_mirror_on_a_full_disk_ends_no_node_and_holds_no_confirm(tmp_path: Path) -> None:
    """CL2: publishers are told which node it is; when there is room again it has everything."""
    cluster = LiveCluster(tmp_path, 3, SMALL)
    full = cluster.nodes[1]
    with small_disk(full.data_dir), cluster:
        policy = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
        cluster.ask(0, "/api/policies/%2F/all", policy)
        cluster.ask(0, "/api/queues/%2F/mirrored", {"durable": True, "node": cluster.name(0)})
        until(lambda: len(synced(cluster)) == 2)
        publisher = Publisher(cluster)
        publisher.start()
        until(lambda: f"low on disk (node {cluster.name(1)})" in verdict(cluster))
        assert 500 < publisher.confirmed < 3000
        until(lambda: synced(cluster) == [cluster.name(2)])
        assert full.process is not None
        assert full.process.poll() is None
        size = f"remount,size={8 * SIZE_KIB}k"
        subprocess.run(["mount", "-o", size, str(full.data_dir)], check=True)
        until(lambda: "low on disk" not in verdict(cluster))
        before = publisher.confirmed
        until(lambda: publisher.confirmed > before + 20)
        publisher.over.set()
        publisher.join(30)
        until(lambda: len(synced(cluster)) == 2)
        cluster.nodes[0].kill()
        cluster.nodes[2].kill()
        until(lambda: count(cluster) >= publisher.confirmed)


def count(cluster: LiveCluster) -> int:
    """At the node whose disk was full."""
    row = cluster.ask(1, "/api/queues/%2F/mirrored")
    return int(row.get("messages", 0)) if row["node"] == cluster.name(1) else 0
