"""A link between Penstock and RabbitMQ loses nothing when either side is killed.

``PENSTOCK_LINK_KILLS`` says how often (2), of source and target in turn, and
``PENSTOCK_LINK_MESSAGES`` how many messages go (3,000): each way of each link.  RabbitMQ is
the one that ``PENSTOCK_RABBITMQ_SERVER`` names, or the installed one; its release is printed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from penstock.cli.management import Management
from penstock.client.amqp import Connection, Endpoint
from penstock.client.endpoint import ClientError
from penstock.protocols.amqp.codec.properties import Properties
from tests.helpers.live_broker import LiveBroker
from tests.helpers.rabbit import ManagedRabbit, missing_reason

KILLS = int(os.environ.get("PENSTOCK_LINK_KILLS", "2"))
BATCH = int(os.environ.get("PENSTOCK_LINK_MESSAGES", "3000")) // KILLS
PREFETCH = 10
"""Of links: a batch is on its way for so long that a kill comes in the middle."""
WAIT_S = 60.0
QUEUE = "moved"
EXCHANGE = "federated"
PLUGINS = ("rabbitmq_shovel", "rabbitmq_federation")
Broker = LiveBroker | ManagedRabbit


@pytest.fixture
def penstock(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path / "penstock") as broker:
        yield broker


@pytest.fixture
def rabbit(tmp_path: Path) -> Iterator[ManagedRabbit]:
    reason = missing_reason()
    if reason:
        pytest.skip(reason)
    server = ManagedRabbit(tmp_path / "rabbit", PLUGINS)
    server.start()
    yield server
    server.kill()


class Taker:
    """A consumer of the target's queue, which comes back when that broker was killed.

    ``found``: how often each message came.
    """

    def __init__(self, url: str) -> None:
        self.found: Counter[int] = Counter()
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._stopping.wait(0.1):
            with contextlib.suppress(ClientError):
                self._take()

    def _take(self) -> None:
        with opened(self._url) as connection:
            channel = connection.channel()
            channel.qos(100)
            channel.consume(QUEUE)
            while not self._stopping.is_set():
                delivery = channel.next_delivery(0.2)
                if delivery is not None:
                    self.found[int(delivery.body)] += 1
                    channel.ack(delivery.delivery_tag)


def opened(url: str) -> Connection:
    return Connection(Endpoint.parse(url), timeout_s=30)


def depth(broker: Broker) -> int:
    """Of the queue, which is declared where it is missing."""
    with opened(broker.url) as connection:
        answer = connection.channel().queue_declare(QUEUE, durable=True)
        return answer.number("message_count")


def publish(broker: Broker, exchange: str, first: int) -> None:
    """A batch, each of which is confirmed."""
    with opened(broker.url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(first, first + BATCH):
            channel.publish(b"%d" % number, exchange, QUEUE, Properties(delivery_mode=2))
        assert channel.wait_for_confirms() == []


def until(count: Callable[[], int], least: int, where: Broker) -> None:
    end = time.monotonic() + WAIT_S
    while count() < least:
        assert time.monotonic() < end, where.output()
        time.sleep(0.02)


# -- links: each returns the exchange that the source's messages go to ---------------------


def shovel(runner: Broker, source: Broker, target: Broker) -> str:
    value = {
        "src-uri": "amqp://" if runner is source else source.url,
        "src-queue": QUEUE,
        "dest-uri": "amqp://" if runner is target else target.url,
        "dest-queue": QUEUE,
        "src-prefetch-count": PREFETCH,
        "reconnect-delay": 1,
    }
    management(runner).put("/api/parameters/shovel/%2F/s", {"value": value})
    return ""


def federate(pattern: str, source: Broker, target: Broker) -> None:
    value = {"uri": source.url, "reconnect-delay": 1, "prefetch-count": PREFETCH}
    management(target).put("/api/parameters/federation-upstream/%2F/far", {"value": value})
    policy = {"pattern": f"^{pattern}$", "definition": {"federation-upstream": "far"}}
    management(target).put("/api/policies/%2F/federate", policy)


def federate_exchange(source: Broker, target: Broker) -> str:
    for broker in (source, target):
        with opened(broker.url) as connection:
            connection.channel().exchange_declare(EXCHANGE, "fanout", durable=True)
    with opened(target.url) as connection:
        connection.channel().queue_bind(QUEUE, EXCHANGE)
    federate(EXCHANGE, source, target)
    bindings = f"/api/exchanges/%2F/{EXCHANGE}/bindings/source"
    until(lambda: len(management(source).get(bindings)), 1, target)
    return EXCHANGE


def federate_queue(source: Broker, target: Broker) -> str:
    federate(QUEUE, source, target)
    return ""


def management(broker: Broker) -> Management:
    return Management(broker.http_url, "guest", "guest")


# -- the trial -----------------------------------------------------------------------------


@pytest.mark.timeout(600 + 60 * KILLS)
@pytest.mark.parametrize("outwards", [True, False], ids=["to RabbitMQ", "from RabbitMQ"])
@pytest.mark.parametrize(
    "link",
    [
        "shovel of Penstock",
        *(
            pytest.param(link, marks=pytest.mark.long)
            for link in ("shovel of RabbitMQ", "federated exchange", "federated queue")
        ),
    ],
)
def test_nothing_is_lost(
    penstock: LiveBroker, rabbit: ManagedRabbit, link: str, outwards: bool
) -> None:
    source, target = (penstock, rabbit) if outwards else (rabbit, penstock)
    for broker in (source, target):
        depth(broker)
    exchange = {
        "shovel of Penstock": lambda: shovel(penstock, source, target),
        "shovel of RabbitMQ": lambda: shovel(rabbit, source, target),
        "federated exchange": lambda: federate_exchange(source, target),
        "federated queue": lambda: federate_queue(source, target),
    }[link]()
    published = 0
    taker = Taker(target.url)
    # A federated queue fetches messages for its consumers; those of other links wait in the queue.
    is_taken = link == "federated queue"

    def came() -> int:
        return len(taker.found) if is_taken else depth(target)

    with contextlib.ExitStack() as stack:
        if is_taken:
            stack.enter_context(taker)
        for kill in range(KILLS):
            publish(source, exchange, published)
            published += BATCH
            until(came, published - BATCH * 2 // 3, penstock)
            victim = (source, target)[kill % 2]
            victim.kill()
            victim.start()
        if not is_taken:
            stack.enter_context(taker)
        end = time.monotonic() + WAIT_S
        while len(taker.found) < published and time.monotonic() < end:
            time.sleep(0.1)
    found = taker.found
    print(
        f"{link} {'to' if outwards else 'from'} RabbitMQ {rabbit.release()}: {published} messages,"
        f" {KILLS} kills: {published - len(found)} lost, {found.total() - len(found)} came twice"
    )
    assert set(found) == set(range(published)), penstock.output()
