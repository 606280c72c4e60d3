"""Mirrored queues on real nodes: what policies, people and stops of nodes make of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from click.testing import CliRunner
from pika.adapters.blocking_connection import BlockingChannel

from penstock.cli.main import cli
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

PERSISTENT = pika.BasicProperties(delivery_mode=2)
WAIT_S = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("mirrors"), 3) as cluster:
        yield cluster


def ask(node: LiveBroker, path: str, method: str = "GET", body: object = None) -> Any:
    return manage(f"{node.http_url}/api{path}", body, method)


def facts(node: LiveBroker, queue: str, vhost: str = "/") -> dict[str, Any]:
    """Of a queue that is mirrored; else nothing."""
    rows = ask(node, "/penstock/mirrors")
    found = [row for row in rows if (row["vhost"], row["name"]) == (vhost, queue)]
    return found[0] if found else {}


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_synced(node: LiveBroker, queue: str, mirrors: int, vhost: str = "/") -> bool:
    found = facts(node, queue, vhost)
    return bool(found) and len(found["synchronised_slave_nodes"]) == mirrors and found["master"]


def mirror(node: LiveBroker, **definition: object) -> None:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    ask(node, "/policies/%2F/mirrors", "PUT", {"pattern": "^queue_", "definition": keys})


class Client:
    def __init__(self, node: LiveBroker, vhost: str = "%2f") -> None:
        url = node.url.rpartition("/")[0] + "/" + vhost
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.confirm_delivery()

    def __enter__(self) -> BlockingChannel:
        return self.channel

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def publish(channel: BlockingChannel, queue: str, first: int, last: int) -> None:
    for number in range(first, last):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT)


def count(node: LiveBroker, queue: str) -> int:
    with Client(node) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def by_name(cluster: LiveCluster, name: str) -> LiveBroker:
    return cluster.nodes[int(name[-1]) - 1]


def test_a_master_that_stops_hands_over_and_comes_back_as_a_mirror(cluster: LiveCluster) -> None:
    first = cluster.nodes[0]
    mirror(first, ha_mode="all", ha_sync_mode="automatic")
    with Client(first) as channel:
        channel.queue_declare("queue_stops", durable=True)
        publish(channel, "queue_stops", 0, 50)
        until(lambda: is_synced(first, "queue_stops", 2))
    first.stop()
    second = cluster.nodes[1]
    until(lambda: is_synced(second, "queue_stops", 1))
    assert facts(second, "queue_stops")["term"] == 2
    line = r"Mirrored queue 'queue_stops' in vhost '/': (\S+) is the master"
    assert re.search(line, second.output())
    with Client(second) as channel:
        publish(channel, "queue_stops", 50, 60)
    first.start()
    until(lambda: is_synced(first, "queue_stops", 2))
    assert count(first, "queue_stops") == 60
    got = []
    with Client(first) as channel:
        for frame, _, body in channel.consume("queue_stops", auto_ack=True):
            got.append((int(body), frame.redelivered))
            if len(got) == 60:
                break
    assert [number for number, _ in got] == list(range(60))
    assert [again for _, again in got] == [True] * 50 + [False] * 10


def test_all_nodes_are_killed_and_the_queue_comes_back(cluster: LiveCluster) -> None:
    first = cluster.nodes[0]
    with Client(first) as channel:
        channel.queue_declare("queue_killed", durable=True)
        publish(channel, "queue_killed", 0, 50)
        until(lambda: is_synced(first, "queue_killed", 2))
    for node in cluster.nodes:
        node.kill()
    cluster.start()
    until(lambda: is_synced(first, "queue_killed", 2))
    assert count(cluster.nodes[2], "queue_killed") == 50


def test_people_ask_for_a_synchronisation(cluster: LiveCluster) -> None:
    first = cluster.nodes[0]
    mirror(first, ha_mode="exactly", ha_params=1)
    with Client(first) as channel:
        channel.queue_declare("queue_asked", durable=True)
        publish(channel, "queue_asked", 0, 20)
        mirror(first, ha_mode="exactly", ha_params=2, ha_sync_mode="manual")
        until(lambda: len(facts(first, "queue_asked").get("slave_nodes", [])) == 1)
        time.sleep(0.5)
        assert facts(first, "queue_asked")["synchronised_slave_nodes"] == []
        ask(first, "/queues/%2F/queue_asked/actions", "POST", {"action": "sync"})
        until(lambda: is_synced(first, "queue_asked", 1))
        (other,) = facts(first, "queue_asked")["slave_nodes"]
        assert count(by_name(cluster, other), "queue_asked") == 20


def test_a_queue_that_nobody_mirrors_any_more_stays_where_it_is(cluster: LiveCluster) -> None:
    first = cluster.nodes[0]
    mirror(first, ha_mode="all", ha_sync_mode="automatic")
    with Client(first) as channel:
        channel.queue_declare("queue_alone", durable=True)
        publish(channel, "queue_alone", 0, 10)
        until(lambda: is_synced(first, "queue_alone", 2))
        ask(first, "/policies/%2F/mirrors", "DELETE")
        until(lambda: facts(first, "queue_alone").get("slave_nodes") == [])
        # The last step ends its ring, with another term.
        until(lambda: facts(first, "queue_alone")["ring"] is None)
        term = facts(first, "queue_alone")["term"]
        publish(channel, "queue_alone", 10, 20)
        mirror(first, ha_mode="all", ha_sync_mode="automatic")
        until(lambda: is_synced(first, "queue_alone", 2))
        assert facts(first, "queue_alone")["term"] == term
        assert count(cluster.nodes[1], "queue_alone") == 20


def test_what_is_deleted_leaves_nothing_and_may_be_declared_again(cluster: LiveCluster) -> None:
    first, second, _ = cluster.nodes
    mirror(first, ha_mode="all", ha_sync_mode="automatic")
    for _ in range(2):
        with Client(first) as channel:
            channel.queue_declare("queue_again", durable=True)
            publish(channel, "queue_again", 0, 5)
            until(lambda: is_synced(first, "queue_again", 2))
        with Client(second) as channel:
            assert channel.queue_delete("queue_again").method.message_count == 5
        until(lambda: not facts(first, "queue_again") and not facts(second, "queue_again"))


def test_a_virtual_host_goes_with_its_mirrored_queues(cluster: LiveCluster) -> None:
    first, second, third = cluster.nodes
    ask(first, "/vhosts/going", "PUT", {})
    ask(first, "/permissions/going/guest", "PUT", {"configure": ".*", "write": ".*", "read": ".*"})
    policy = {"pattern": "", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
    ask(first, "/policies/going/all", "PUT", policy)
    with Client(second, "going") as channel:
        for number in range(5):
            channel.queue_declare(f"q{number}", durable=True)
            publish(channel, f"q{number}", 0, 3)
        until(lambda: all(is_synced(first, f"q{number}", 2, "going") for number in range(5)))
    ask(third, "/vhosts/going", "DELETE")
    for node in cluster.nodes:
        until(lambda node=node: not facts(node, "q0", "going"))  # type: ignore[misc]
    ask(first, "/vhosts/going", "PUT", {})
    for node in cluster.nodes:
        until(lambda node=node: ask(node, "/queues/going") == [])  # type: ignore[misc]


def test_who_drains_a_node_waits_until_its_masters_are_elsewhere(cluster: LiveCluster) -> None:
    """Those that another node could have; a queue without copies stays, and is not waited for."""
    node = cluster.nodes[0]
    mirror(node, ha_mode="all", ha_sync_mode="automatic")
    queues = [f"queue_drained_{number}" for number in range(5)]
    with Client(node) as channel:
        for queue in [*queues, "alone"]:
            channel.queue_declare(queue, durable=True)
            publish(channel, queue, 0, 3)
    until(lambda: all(is_synced(node, queue, 2) for queue in queues))
    masters = [facts(node, queue)["master"] for queue in queues]
    assert masters == [cluster.name(0)] * 5
    where = ("--url", node.http_url, "--user", "guest", "--password", "guest")
    done = CliRunner().invoke(cli, ["drain", "--wait", "--timeout", "30", *where])
    assert done.exit_code == 0, done.output
    assert done.stdout == "no new clients are let in; 0 connected\n", "other nodes are no clients"
    masters = [facts(node, queue)["master"] for queue in queues]
    assert cluster.name(0) not in masters
    assert ask(node, "/queues/%2F/alone")["node"] == cluster.name(0)
    assert CliRunner().invoke(cli, ["revive", *where]).exit_code == 0
