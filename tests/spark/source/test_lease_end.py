"""A reader that vanishes: the node itself must give its queue back to consumers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pika
import pytest

from penstock_ranges.ranges import READ
from pyspark_penstock import client
from pyspark_penstock.endpoints import parse_url
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import LiveBroker
from tests.spark.spark_tools import publish

GRACE_MS = 4000


def consumes(url: str, queue: str) -> bool:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        connection.channel().basic_consume(queue, lambda *_: None)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    finally:
        connection.close()
    return True


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    broker = LiveBroker(arguments=("--range-lease-grace-ms", str(GRACE_MS)))
    broker.start()
    yield broker
    broker.stop()


def test_a_queue_left_by_its_reader_is_free_after_the_grace_time(broker: BrokerProcess) -> None:
    publish(broker.url, "left", [b"x"])
    reader = client.RangeClient(parse_url(broker.url), "left", READ)
    assert not consumes(broker.url, "left")
    reader.abandon()
    assert not consumes(broker.url, "left")
    time.sleep(GRACE_MS / 1000 + 3)
    assert consumes(broker.url, "left")
