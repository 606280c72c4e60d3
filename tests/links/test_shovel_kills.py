"""A shovel between Penstock and RabbitMQ loses nothing when either side is killed.

``PENSTOCK_SHOVEL_KILLS`` says how often; both directions have that many, of each side in turn.  The
shovel is Penstock's.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from penstock.cli.management import Management
from penstock.client.amqp import Connection, Endpoint
from penstock.client.endpoint import ClientError
from penstock.protocols.amqp.codec.properties import Properties
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import LiveBroker
from tests.helpers.rabbit import RabbitServer, missing_reason

KILLS = int(os.environ.get("PENSTOCK_SHOVEL_KILLS", "2"))
BATCH = 1500
WAIT_S = 60.0
QUEUE = "shovelled"


@pytest.fixture
def penstock(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path / "penstock") as broker:
        yield broker


@pytest.fixture
def rabbit(tmp_path: Path) -> Iterator[RabbitServer]:
    reason = missing_reason()
    if reason:
        pytest.skip(reason)
    server = RabbitServer(tmp_path / "rabbit")
    server.start()
    yield server
    server.kill()


def publish(broker: BrokerProcess, first: int, count: int) -> None:
    with Connection(Endpoint.parse(broker.url), timeout_s=30) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_select()
        for number in range(first, first + count):
            channel.publish(b"%d" % number, "", QUEUE, Properties(delivery_mode=2))
        assert channel.wait_for_confirms() == []


def depth(broker: BrokerProcess) -> int:
    with Connection(Endpoint.parse(broker.url), timeout_s=30) as connection:
        answer = connection.channel().queue_declare(QUEUE, durable=True)
        return answer.number("message_count")


def take_all(broker: BrokerProcess) -> Counter[int]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    found: Counter[int] = Counter()
    for method, _, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=2.0):
        if method is None:
            break
        found[int(body)] += 1
    connection.close()
    return found


@pytest.mark.timeout(600 + 60 * KILLS)
@pytest.mark.parametrize("outwards", [True, False], ids=["to RabbitMQ", "from RabbitMQ"])
def test_nothing_is_lost(penstock: LiveBroker, rabbit: RabbitServer, outwards: bool) -> None:
    source: BrokerProcess = penstock if outwards else rabbit
    target: BrokerProcess = rabbit if outwards else penstock
    value = {
        "src-uri": "amqp://" if outwards else rabbit.url,
        "src-queue": QUEUE,
        "dest-uri": rabbit.url if outwards else "amqp://",
        "dest-queue": QUEUE,
        "src-prefetch-count": 10,
        "reconnect-delay": 0.2,
    }
    Management(penstock.http_url, "guest", "guest").put(
        "/api/parameters/shovel/%2F/s", {"value": value}
    )
    published = 0
    for kill in range(KILLS):
        publish(source, published, BATCH)
        published += BATCH
        until = time.monotonic() + WAIT_S
        while depth(target) < published - BATCH * 2 // 3:  # all may have come already
            assert time.monotonic() < until, penstock.output()
            time.sleep(0.2)
        victim = (source, target)[kill % 2]
        victim.kill()
        victim.start()
    until = time.monotonic() + WAIT_S
    while not _is_empty(source) or depth(target) < published:
        assert time.monotonic() < until, penstock.output()
        time.sleep(0.5)
    found = take_all(target)
    missing = set(range(published)) - set(found)
    twice = sum(found.values()) - len(found)
    print(f"{published} messages, {KILLS} kills: {len(missing)} lost, {twice} came twice")
    assert missing == set()


def _is_empty(source: BrokerProcess) -> bool:
    try:
        return depth(source) == 0
    except ClientError:
        return False
