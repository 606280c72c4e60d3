"""A node finds its copy of a queue damaged, at a start or as it reads, and fetches another one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from tests.cluster import blows
from tests.helpers.broker_process import BrokerFailed
from tests.helpers.cluster import LiveCluster, missing_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

COUNT = 300
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(params=[{}])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveCluster]:
    """Queue ``mirrored`` has its master on the first node; ``params``: its arguments."""
    with LiveCluster(tmp_path, 2) as cluster:
        policy = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
        cluster.ask(0, "/api/policies/%2F/all", policy)
        connection = pika.BlockingConnection(pika.URLParameters(cluster.nodes[0].url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("mirrored", durable=True, arguments=request.param)
        for number in range(COUNT):
            channel.basic_publish("", "mirrored", b"%d" % number * 20, PERSISTENT)
        connection.close()
        await_synced(cluster)
        yield cluster


def all_is_at(url: str, **arguments: str) -> bool:
    """Each message comes, in order; ``arguments`` of the consumer, with _ for -."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=COUNT)
    told = {name.replace("_", "-"): value for name, value in arguments.items()}
    got = []
    for method, _, body in channel.consume("mirrored", arguments=told, inactivity_timeout=20):
        assert method is not None, f"{len(got)} came"
        got.append(body)
        if len(got) == COUNT:
            break
    connection.close()
    return got == [b"%d" % number * 20 for number in range(COUNT)]


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


def flip(path: Path, content: bytes = b"") -> None:
    """A bit in the middle, or of that content."""
    data = bytearray(path.read_bytes())
    data[data.index(content) if content else len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip, pytest.param(truncate, marks=pytest.mark.long)])
def test_a_mirror_that_is_damaged_at_a_start_is_given_up_and_fetched_anew(
    cluster: LiveCluster, damage: Callable[[Path], None]
) -> None:
    path = segment_of(cluster, 1)
    damage(path)
    node = cluster.nodes[1]
    words = "the copy of queue 'mirrored' in vhost '/' is damaged and was given up"
    with pytest.raises(BrokerFailed, match=words) as caught:
        node.start()
    assert path.name in str(caught.value)
    node.start()
    await_synced(cluster)
    cluster.nodes[0].kill()
    assert all_is_at(node.url)


def test_the_copy_of_a_queue_without_a_master_is_kept(cluster: LiveCluster) -> None:
    path = segment_of(cluster, 1)
    cluster.nodes[0].stop()
    flip(path)
    with pytest.raises(BrokerFailed, match="damaged at offset"):
        cluster.nodes[1].start()
    assert path.exists()


@pytest.mark.parametrize("cluster", [{"x-queue-type": "stream"}], indirect=True)
def test_a_copy_of_a_stream_that_is_cut_is_fetched_anew(cluster: LiveCluster) -> None:
    node = cluster.nodes[1]
    node.stop()
    (path,) = node.data_dir.rglob("*.stm")
    truncate(path)
    words = "the copy of queue 'mirrored' in vhost '/' is damaged and was given up"
    with pytest.raises(BrokerFailed, match=words) as caught:
        node.start()
    assert path.name in str(caught.value)
    node.start()
    await_synced(cluster)
    cluster.nodes[0].kill()
    assert all_is_at(node.url, x_stream_offset="first")


@pytest.mark.parametrize("cluster", [{"x-queue-type": "stream"}], indirect=True)
def test_a_bit_of_a_stream_that_flipped_is_found_without_a_reader(cluster: LiveCluster) -> None:
    """No start looks into blocks that were synced; the node reads its copies when it runs."""
    node = cluster.nodes[1]
    node.stop()
    (path,) = node.data_dir.rglob("*.stm")
    flip(path, b"150" * 20)
    node.start()
    until(lambda: "cannot read its copy" in cluster.nodes[0].output() + node.output())
    await_synced(cluster)
    cluster.nodes[0].kill()
    assert all_is_at(node.url, x_stream_offset="first")


@pytest.fixture
def ruled(tmp_path: Path) -> Iterator[LiveCluster]:
    """A quorum queue of three copies."""
    with LiveCluster(tmp_path, 3) as cluster:
        until(cluster.all_run)
        quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
        cluster.ask(0, f"/api/queues/%2F/{blows.QUEUE}", quorum)
        await_complete(cluster, 3)
        yield cluster


@pytest.mark.long  # the steps are in test_damaged_copies.py
def test_damaged_copies_of_a_quorum_queue_are_repaired_under_load(
    ruled: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First a bit of one, then the length of another; they lead, and are read, when it is found."""
    monkeypatch.setattr(blows, "RATE", 100)
    monkeypatch.setattr(blows, "SIZE", 3000)
    publisher = blows.Publisher(ruled.nodes[0].url)
    publisher.start()
    for number, damage in ((1, flip), (2, truncate)):
        node = ruled.nodes[number]
        wanted = len(publisher.confirmed) + 300
        until(lambda wanted=wanted: len(publisher.confirmed) > wanted)
        while not (segments := segments_of_copy(ruled, number)):
            pass
        damage(max(segments, key=lambda path: path.stat().st_size))
        hand_over = {"action": "hand_over", "node": ruled.name(number)}
        ruled.ask(0, f"/api/queues/%2F/{blows.QUEUE}/actions", hand_over, "POST")
        until(lambda number=number: leader(ruled) == ruled.name(number))
        read_until(ruled, lambda node=node: "cannot read its copy" in node.output())
        until(lambda node=node: "it has everything again" in node.output())
        await_complete(ruled, 3)
    publisher.over = True
    publisher.join(60.0)
    assert not publisher.is_alive()
    ruled.nodes[0].kill()
    consumer = blows.Consumer(ruled.nodes[1].url)
    consumer.start()
    until(lambda: publisher.confirmed <= consumer.received)
    consumer.over = True
    consumer.join(10.0)


def until(is_so: Callable[[], bool]) -> None:
    blows.until(is_so, 60.0, lambda: "")


def segments_of_copy(cluster: LiveCluster, number: int) -> list[Path]:
    """After a kill what a copy had is in segments.  None: it led, and had more than was decided, so
    it began anew.
    """
    node = cluster.nodes[number]
    node.kill()
    node.start()
    await_complete(cluster, 3)
    newest = max((node.data_dir / "queues").iterdir(), key=lambda path: int(path.name))
    return list(newest.glob("*.idx"))


def await_complete(cluster: LiveCluster, count: int) -> None:
    """As the leader says of all copies, and each node of its own."""

    def are_complete() -> bool:
        path = f"/api/penstock/queues/%2F/{blows.QUEUE}/mirrors"
        rows = [cluster.ask(number, path) for number in range(count)]
        found = [one["synchronised"] for row in rows for one in row["copies"]]
        return found == [True] * count * count

    until(are_complete)


def leader(cluster: LiveCluster) -> str:
    return str(cluster.ask(0, f"/api/queues/%2F/{blows.QUEUE}")["leader"])


def read_until(cluster: LiveCluster, is_true: Callable[[], bool]) -> None:
    """Consume, and acknowledge nothing."""
    connection = pika.BlockingConnection(pika.URLParameters(cluster.nodes[0].url))
    messages = connection.channel().consume(blows.QUEUE, inactivity_timeout=0.1)
    deadline = time.monotonic() + 60
    while not is_true():
        next(messages)
        assert time.monotonic() < deadline
    connection.close()
