"""Three real nodes and a real etcd: every queue is everywhere, whoever has its master."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage, text_of

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with LiveCluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        yield cluster


@pytest.fixture
def channels(cluster: LiveCluster) -> Iterator[list[BlockingChannel]]:
    """One on each node."""
    connections = [pika.BlockingConnection(pika.URLParameters(one.url)) for one in cluster.nodes]
    yield [connection.channel() for connection in connections]
    for connection in connections:
        # The node may have been killed.
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def until(found: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """What it gives as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = found()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.02)


def api(node: LiveBroker, path: str) -> Any:
    return manage(node.http_url + path)


def metrics(node: LiveBroker) -> str:
    return text_of(f"{node.http_url}/metrics/per-object")


def status(cluster: LiveCluster) -> Any:
    """As the first node sees it."""
    return api(cluster.nodes[0], "/api/penstock/cluster")


def penstockctl(cluster: LiveCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Of the second node."""
    node = cluster.nodes[1]
    program = "from penstock.ctl.main import main; main()"
    environment = {**node.environment(), "PENSTOCK_HTTP_URL": node.http_url}
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def take(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=10):
        assert method is not None, f"{len(bodies)} of {count} came"
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == count:
            break
    channel.cancel()
    return bodies


def revision(cluster: LiveCluster) -> int:
    """Of the store in etcd."""
    body = json.dumps({"key": b64encode(b"nothing").decode()}).encode()
    url = f"http://{cluster.etcd.endpoint}/v3/kv/range"
    with urllib.request.urlopen(url, body, timeout=10) as answer:
        return int(json.load(answer)["header"]["revision"])


def test_nodes_that_have_nothing_to_do_write_nothing(cluster: LiveCluster) -> None:
    """They once ran after each other's revisions, twice in a second; so this comes first."""
    until(lambda: all(node["link"]["connected"] for node in status(cluster)["nodes"][1:]))
    time.sleep(1.0)
    before = revision(cluster)
    time.sleep(1.5)
    assert revision(cluster) == before


def test_what_one_node_declares_all_have_at_once(channels: list[BlockingChannel]) -> None:
    first, second, third = channels
    first.exchange_declare("events", "topic", durable=True)
    second.queue_declare("everywhere", durable=True)
    third.queue_bind("everywhere", "events", "eu.#")
    first.confirm_delivery()
    first.basic_publish("events", "eu.de", b"hello", PERSISTENT, mandatory=True)
    assert take(third, "everywhere", 1) == [b"hello"]
    second.queue_delete("everywhere")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        third.queue_declare("everywhere", passive=True)
    assert closed.value.reply_code == 404


def test_publishing_and_consuming_elsewhere(channels: list[BlockingChannel]) -> None:
    first, second, third = channels
    first.queue_declare("far", durable=True)
    second.confirm_delivery()
    wanted = [b"%d" % number for number in range(100)]
    for body in wanted:
        second.basic_publish("", "far", body, PERSISTENT, mandatory=True)
    assert third.queue_declare("far", passive=True).method.message_count == 100
    assert take(third, "far", 60) == wanted[:60]
    until(lambda: third.queue_declare("far", passive=True).method.message_count == 40)
    assert second.basic_get("far", auto_ack=True)[2] == wanted[60]
    assert third.queue_purge("far").method.message_count == 39


def test_two_declare_differently_and_one_is_told(channels: list[BlockingChannel]) -> None:
    first, second, _ = channels
    first.queue_declare("once", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        second.queue_declare("once", durable=False)
    assert closed.value.reply_code == 406


def test_answers_reach_an_exclusive_queue_on_another_node(
    channels: list[BlockingChannel],
) -> None:
    asker, server, other = channels
    asker.queue_declare("requests", durable=True)
    answers = asker.queue_declare("", exclusive=True).method.queue
    asker.basic_publish("", "requests", b"2 + 2", pika.BasicProperties(reply_to=answers))
    method, properties, _ = next(iter(server.consume("requests", inactivity_timeout=10)))
    assert method is not None
    server.basic_publish("", properties.reply_to, b"4")
    assert until(lambda: asker.basic_get(answers, auto_ack=True)[2]) == b"4"
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        other.queue_declare(answers, passive=True)
    assert closed.value.reply_code == 405


def test_every_node_lists_all_queues_and_says_where_they_are(
    cluster: LiveCluster, channels: list[BlockingChannel]
) -> None:
    channels[1].queue_declare("listed", durable=True)
    for node in cluster.nodes:
        row = api(node, "/api/queues/%2F/listed")
        assert row["node"] == "penstock@n2"
        assert row["state"] == "running"
        assert "listed" in [one["name"] for one in api(node, "/api/queues")]
        assert ('queue="listed"' in metrics(node)) == (node is cluster.nodes[1])


def test_the_command_shows_the_nodes(cluster: LiveCluster) -> None:
    node = cluster.nodes[1]
    words = [sys.executable, "-m", "penstock", "cluster", "status", "--url", node.http_url]
    done = subprocess.run(
        words, env=node.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[-3:]]
    assert [line[:2] for line in lines] == [[f"penstock@n{one}", "running"] for one in (1, 2, 3)]
    assert [line[7] for line in lines] == ["connected", "asked", "connected"]


def test_rabbitmqs_words_name_the_nodes_as_well(cluster: LiveCluster) -> None:
    done = penstockctl(cluster, "cluster_status", "--formatter", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["cluster_name"] == "penstock"
    assert told["running_nodes"] == told["disk_nodes"] == [f"penstock@n{one}" for one in (1, 2, 3)]


def test_mirrors_are_synchronised_and_handed_over_by_command(
    cluster: LiveCluster, channels: list[BlockingChannel]
) -> None:
    """Said to the second node, of a queue whose master is on the first."""
    first = channels[0]
    first.queue_declare("mirrored", durable=True)
    first.confirm_delivery()
    for _ in range(20):
        first.basic_publish("", "mirrored", b"x", PERSISTENT)
    policy = ("two", "^mirrored$", '{"ha-mode":"nodes","ha-params":["penstock@n1","penstock@n2"]}')
    assert penstockctl(cluster, "set_policy", *policy).returncode == 0

    def mirrors(node: int) -> tuple[str, list[str], list[str]]:
        row = api(cluster.nodes[node], "/api/queues/%2F/mirrored")
        return row["node"], row.get("slave_nodes", []), row.get("synchronised_slave_nodes", [])

    assert until(lambda: mirrors(2) == ("penstock@n1", ["penstock@n2"], []))
    assert penstockctl(cluster, "sync_queue", "mirrored").returncode == 0
    assert until(lambda: mirrors(2) == ("penstock@n1", ["penstock@n2"], ["penstock@n2"]))
    columns = ("name", "pid", "slave_pids", "synchronised_slave_pids")
    told = penstockctl(cluster, "list_queues", "-s", *columns).stdout.splitlines()
    assert "mirrored\tpenstock@n1\t[penstock@n2]\t[penstock@n2]" in told
    assert penstockctl(cluster, "cancel_sync_queue", "mirrored").stdout.endswith("not_syncing\n")
    node = cluster.nodes[1]
    words = ("queue", "hand-over", "mirrored", "--to", "penstock@n2", "--url", node.http_url)
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        env=node.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    after = ("penstock@n2", ["penstock@n1"], ["penstock@n1"])
    assert until(lambda: all(mirrors(number) == after for number in range(3)))
    assert take(first, "mirrored", 20) == [b"x"] * 20
    assert penstockctl(cluster, "clear_policy", "two").returncode == 0
    assert until(lambda: mirrors(2)[1] == [])


def test_without_etcd_queues_go_on_and_nothing_new_is_declared(
    cluster: LiveCluster, channels: list[BlockingChannel]
) -> None:
    """For longer than a lease: then all are gone as members, and join again."""
    first, second, _ = channels
    first.queue_declare("goes on", durable=True)
    first.confirm_delivery()
    before = {node["name"]: node["incarnation"] for node in status(cluster)["nodes"]}
    cluster.etcd.pause()
    try:
        until(lambda: status(cluster)["why_not"])
        first.basic_publish("", "goes on", b"safe", PERSISTENT)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            second.queue_declare("not now", durable=True)
        assert closed.value.reply_code == 541
        time.sleep(4)
        first.basic_publish("", "goes on", b"still", PERSISTENT)
    finally:
        cluster.etcd.resume()

    def together() -> bool:
        nodes = status(cluster)["nodes"]
        return all(
            node["running"] and node["incarnation"] != before[node["name"]] for node in nodes
        ) and all(node["link"]["connected"] for node in nodes if "link" in node)

    assert until(together, 20)
    connection = pika.BlockingConnection(pika.URLParameters(cluster.nodes[2].url))
    assert take(connection.channel(), "goes on", 2) == [b"safe", b"still"]
    connection.close()


def test_a_node_is_killed_and_comes_back_with_its_messages(
    cluster: LiveCluster, channels: list[BlockingChannel]
) -> None:
    """Its queues are down meanwhile, and said to be; those of others go on."""
    first, _, third = channels
    third.queue_declare("of the third", durable=True)
    third.queue_declare("passing")
    first.queue_declare("of the first", durable=True)
    third.confirm_delivery()
    third.basic_publish("", "of the third", b"kept", PERSISTENT)
    cluster.nodes[2].kill()

    def refused() -> str:
        channel = first.connection.channel()
        try:
            channel.queue_declare("of the third", passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return str(closed.reply_text)
        return ""

    assert "home node 'penstock@n3'" in until(refused)
    row = api(cluster.nodes[0], "/api/queues/%2F/of%20the%20third")
    assert row["state"] == "down"
    assert "messages" not in row
    gone = penstockctl(cluster, "delete_queue", "of the third")
    assert (gone.returncode, gone.stderr.strip()) == (64, "Error:\nQueue not found")
    first.confirm_delivery()
    first.basic_publish("", "of the first", b"goes on", PERSISTENT)
    assert take(first, "of the first", 1) == [b"goes on"]

    def is_gone() -> bool:
        return "passing" not in [row["name"] for row in api(cluster.nodes[0], "/api/queues")]

    assert until(is_gone, 20)  # as with RabbitMQ, but two leases later
    first.queue_declare("passing")
    cluster.nodes[2].start()
    connection = pika.BlockingConnection(pika.URLParameters(cluster.nodes[1].url))
    assert take(connection.channel(), "of the third", 1) == [b"kept"]
    connection.close()


def test_a_node_that_never_comes_back_is_forgotten_with_its_queues(
    cluster: LiveCluster, channels: list[BlockingChannel]
) -> None:
    first, _, third = channels
    third.queue_declare("lost", durable=True)
    first.queue_declare("kept", durable=True)
    refused = penstockctl(cluster, "forget_cluster_node", "penstock@n3")
    assert refused.returncode == 69
    assert "must be stopped" in refused.stderr
    assert "not_a_cluster_node" in penstockctl(cluster, "forget_cluster_node", "x@y").stderr
    cluster.nodes[2].kill()

    def running() -> list[str]:
        return [node["name"] for node in status(cluster)["nodes"] if node["running"]]

    until(lambda: "penstock@n3" not in running())
    done = penstockctl(cluster, "forget_cluster_node", "penstock@n3")
    assert done.returncode == 0, done.stderr
    assert [node["name"] for node in status(cluster)["nodes"]] == ["penstock@n1", "penstock@n2"]
    assert [row["name"] for row in api(cluster.nodes[1], "/api/queues") if row["name"] == "kept"]
    assert not [row for row in api(cluster.nodes[1], "/api/queues") if row["name"] == "lost"]
    cluster.nodes[2].start()
    assert until(lambda: "penstock@n3" in running())
    assert not [row for row in api(cluster.nodes[2], "/api/queues") if row["name"] == "lost"]
