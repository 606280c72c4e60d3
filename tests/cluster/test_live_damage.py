"""A node finds its copy of a mirrored queue damaged when it starts: it fetches another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from tests.helpers.broker_process import BrokerFailed
from tests.helpers.cluster import LiveCluster, missing_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

COUNT = 300
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """Queue ``mirrored`` has its master on the first node."""
    with LiveCluster(tmp_path, 2) as cluster:
        policy = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
        cluster.ask(0, "/api/policies/%2F/all", policy)
        connection = pika.BlockingConnection(pika.URLParameters(cluster.nodes[0].url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("mirrored", durable=True)
        for number in range(COUNT):
            channel.basic_publish("", "mirrored", b"%d" % number * 20, PERSISTENT)
        connection.close()
        await_synced(cluster)
        yield cluster


def await_synced(cluster: LiveCluster) -> None:
    deadline = time.monotonic() + 40
    while not cluster.ask(0, "/api/queues/%2F/mirrored").get("synchronised_slave_nodes"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def segment_of(cluster: LiveCluster, number: int) -> Path:
    """Of the copy there; what only the journal has goes into segments at a start after a kill."""
    node = cluster.nodes[number]
    node.kill()
    node.start()
    node.kill()
    segments = list((node.data_dir / "queues").glob("*/*.idx"))
    return max(segments, key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_mirror_that_is_damaged_at_a_start_is_given_up_and_fetched_anew(
    cluster: LiveCluster, damage: Callable[[Path], None]
) -> None:
    path = segment_of(cluster, 1)
    damage(path)
    node = cluster.nodes[1]
    if damage is flip:
        words = "the copy of queue 'mirrored' in vhost '/' is damaged and was given up"
        with pytest.raises(BrokerFailed, match=words) as caught:
            node.start()
        assert path.name in str(caught.value)
    node.start()
    await_synced(cluster)
    cluster.nodes[0].kill()
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    got = []
    for method, _, body in channel.consume("mirrored", auto_ack=True, inactivity_timeout=20):
        assert method is not None, f"{len(got)} came"
        got.append(body)
        if len(got) == COUNT:
            break
    connection.close()
    assert got == [b"%d" % number * 20 for number in range(COUNT)]


def test_the_copy_of_a_queue_without_a_master_is_kept(cluster: LiveCluster) -> None:
    path = segment_of(cluster, 1)
    cluster.nodes[0].stop()
    flip(path)
    with pytest.raises(BrokerFailed, match="damaged at offset"):
        cluster.nodes[1].start()
    assert path.exists()
