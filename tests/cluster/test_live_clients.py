"""Clients of a node without the master go on when it is killed, and when it moves: pika's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import NackError

from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.live_broker import LiveBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

PERSISTENT = pika.BasicProperties(delivery_mode=2)
WAIT_S = 40
STALL_S = 10.0
"""More than a lease and a promotion take, on a busy machine."""


class Client(threading.Thread):
    """With one connection for its whole life: an end of it is a failure."""

    def __init__(self, node: LiveBroker, queue: str) -> None:
        super().__init__(daemon=True)
        self.queue = queue
        self.error: BaseException | None = None
        self.over = threading.Event()
        self.connection = pika.BlockingConnection(pika.URLParameters(node.url))
        self.channel = self.connection.channel()
        self.start()

    def run(self) -> None:
        try:
            self.work()
            self.connection.close()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.over.set()
        self.join(30)
        assert self.error is None, repr(self.error)


class Publisher(Client):
    """One message at a time; one that is nacked is published again, with another number."""

    def __init__(self, node: LiveBroker, queue: str) -> None:
        self.confirmed: list[int] = []
        self.nacks = 0
        self.longest_s = 0.0
        super().__init__(node, queue)

    def work(self) -> None:
        self.channel.confirm_delivery()
        number = 0
        while not self.over.is_set():
            number += 1
            began_s = time.monotonic()
            try:
                self.channel.basic_publish("", self.queue, b"%d" % number, PERSISTENT)
                self.confirmed.append(number)
            except NackError:
                self.nacks += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)


class Consumer(Client):
    """Subscribes once."""

    def __init__(self, node: LiveBroker, queue: str) -> None:
        self.got: set[int] = set()
        super().__init__(node, queue)

    def work(self) -> None:
        self.channel.basic_qos(prefetch_count=20)
        for method, _, body in self.channel.consume(self.queue, inactivity_timeout=0.2):
            if method is not None:
                self.got.add(int(body))
                self.channel.basic_ack(method.delivery_tag)
            elif self.over.is_set():
                return


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("clients"), 3) as cluster:
        definition = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        policy = {"pattern": "^moving", "definition": definition}
        cluster.ask(0, "/api/policies/%2F/all", policy)
        yield cluster


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def facts(cluster: LiveCluster, number: int, queue: str) -> Any:
    rows = cluster.ask(number, "/api/penstock/mirrors")
    return next((row for row in rows if row["name"] == queue), None)


def begin(cluster: LiveCluster, queue: str) -> None:
    """Its master is on the first node, and each other one has a synchronised copy."""
    cluster.ask(0, f"/api/queues/%2F/{queue}", {"durable": True})
    until(lambda: is_synced(cluster, 0, queue, 2))


def is_synced(cluster: LiveCluster, number: int, queue: str, mirrors: int) -> bool:
    found = facts(cluster, number, queue)
    return found is not None and len(found["synchronised_slave_nodes"]) == mirrors


def await_master(cluster: LiveCluster, name: str) -> None:
    until(lambda: facts(cluster, 1, "moving_by_hand")["master"] == name)


def goes_on(publisher: Publisher) -> None:
    before = len(publisher.confirmed)
    until(lambda: len(publisher.confirmed) > before + 50 or publisher.error is not None)


def finish(publisher: Publisher, consumer: Consumer) -> None:
    publisher.end()
    until(lambda: consumer.got >= set(publisher.confirmed) or consumer.error is not None)
    consumer.end()
    assert publisher.longest_s < STALL_S
    assert publisher.nacks <= 1, "only what was under way when the master went"


def test_clients_of_another_node_go_on_when_the_master_is_killed(cluster: LiveCluster) -> None:
    begin(cluster, "moving_killed")
    publisher = Publisher(cluster.nodes[1], "moving_killed")
    consumer = Consumer(cluster.nodes[2], "moving_killed")
    goes_on(publisher)
    cluster.nodes[0].kill()
    goes_on(publisher)
    cluster.nodes[0].start()
    until(lambda: is_synced(cluster, 1, "moving_killed", 2))
    goes_on(publisher)
    finish(publisher, consumer)


def test_clients_of_another_node_go_on_when_the_master_is_moved(cluster: LiveCluster) -> None:
    begin(cluster, "moving_by_hand")
    publisher = Publisher(cluster.nodes[1], "moving_by_hand")
    consumer = Consumer(cluster.nodes[1], "moving_by_hand")
    goes_on(publisher)
    for node in (2, 1, 0):  # away from them, to them, and away again
        path = "/api/queues/%2F/moving_by_hand/actions"
        wish = {"action": "hand_over", "node": cluster.name(node)}
        cluster.ask(1, path, wish, "POST")
        await_master(cluster, cluster.name(node))
        goes_on(publisher)
        until(lambda: is_synced(cluster, 1, "moving_by_hand", 2))
    publisher.nacks = max(publisher.nacks - 2, 0)  # one at each move
    finish(publisher, consumer)
