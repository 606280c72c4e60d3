"""gnsq, unmodified: a client for gevent, over every layer NSQ has."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import gevent
import gnsq
import pytest

from tests.helpers.certificates import MISSING, Authority
from tests.helpers.nsq_live import NsqLiveBroker

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tls": {"tls_v1": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 1},
    "tls+snappy": {"tls_v1": True, "snappy": True},
    "tls+deflate": {"tls_v1": True, "deflate": True},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqLiveBroker]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    with NsqLiveBroker(authority=authority, nsq_msg_timeout_ms=1000) as running:
        yield running


def client(broker: NsqLiveBroker, **options: Any) -> gnsq.NsqdTCPClient:
    if options.get("tls_v1"):
        options["tls_options"] = {"cert_reqs": ssl.CERT_NONE}
    connected = gnsq.NsqdTCPClient("127.0.0.1", broker.tcp_port, timeout=10, **options)
    connected.connect()
    connected.identify()
    return connected


def read_message(consumer: gnsq.NsqdTCPClient) -> gnsq.Message:
    while True:
        _, data = consumer.read_response()
        assert not isinstance(data, Exception), data
        if isinstance(data, gnsq.Message):
            return data


@pytest.mark.parametrize("layers", list(LAYERS))
def test_everything_over_every_layer(broker: NsqLiveBroker, layers: str) -> None:
    topic = f"gnsq-{layers.replace('+', '-')}"
    producer = client(broker, **LAYERS[layers])
    consumer = client(broker, **LAYERS[layers])
    consumer.subscribe(topic, "c")
    consumer.check_ok()
    consumer.ready(1)
    big = bytes(range(256)) * 2000
    producer.publish(topic, b"first")
    producer.check_ok()
    producer.multipublish(topic, [big, b"third"])
    producer.check_ok()
    message = read_message(consumer)
    assert (message.body, message.attempts) == (b"first", 1)
    message.requeue(0, backoff=False)
    bodies = []
    for _ in range(3):
        message = read_message(consumer)
        bodies.append((message.body, message.attempts))
        message.finish()
    assert bodies == [(big, 1), (b"third", 1), (b"first", 2)]
    producer.close_stream()
    consumer.close_stream()


def test_timeout_and_touch(broker: NsqLiveBroker) -> None:
    producer, consumer = client(broker), client(broker)
    consumer.subscribe("gnsq-touch", "c")
    consumer.check_ok()
    consumer.ready(1)
    producer.publish("gnsq-touch", b"m")
    message = read_message(consumer)
    begun = time.monotonic()
    for _ in range(3):
        gevent.sleep(0.6)
        message.touch()
    again = read_message(consumer)
    assert again.attempts == 2
    assert 2.6 < time.monotonic() - begun < 4
    again.finish()
    producer.close_stream()
    consumer.close_stream()


def test_a_deferred_publish(broker: NsqLiveBroker) -> None:
    producer, consumer = client(broker), client(broker)
    consumer.subscribe("gnsq-defer", "c")
    consumer.check_ok()
    consumer.ready(5)
    begun = time.monotonic()
    producer.publish("gnsq-defer", b"later", defer=700)
    producer.check_ok()
    assert read_message(consumer).body == b"later"
    assert 0.65 < time.monotonic() - begun < 2
    producer.close_stream()
    consumer.close_stream()


def test_a_channel_made_later_reads_a_topic_that_is_a_stream(broker: NsqLiveBroker) -> None:
    definition = {"nsq-topic-type": "stream", "nsq-start": "first"}
    where = {"vhost": "/", "name": "s", "pattern": "^nsq[.]gnsq-stream", "apply-to": "all"}
    define(broker, {"policies": [where | {"definition": definition}]})
    producer, bodies = client(broker), [b"%d" % number for number in range(300)]
    producer.multipublish("gnsq-stream", bodies)
    producer.check_ok()
    for channel in ("one", "two"):
        consumer = client(broker)
        consumer.subscribe("gnsq-stream", channel)
        consumer.check_ok()
        consumer.ready(50)
        found = []
        for number in range(301):
            message = read_message(consumer)
            found.append(message.body)
            if number == 0:
                message.requeue(0, backoff=False)
            else:
                message.finish()
        assert sorted(found) == sorted([*bodies, bodies[0]])
        consumer.close_stream()
    producer.close_stream()


def define(broker: NsqLiveBroker, definitions: dict[str, Any]) -> None:
    headers = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
    url = broker.http_url + "/api/definitions"
    with urlopen(Request(url, json.dumps(definitions).encode(), headers, method="POST")):
        pass


def test_consumer_and_producer_classes(broker: NsqLiveBroker) -> None:
    got: list[bytes] = []
    producer = gnsq.Producer(broker.nsq_address)
    producer.start()
    consumer = gnsq.Consumer("gnsq-classes", "c", broker.nsq_address, max_in_flight=20)

    @consumer.on_message.connect
    def handle(_consumer: gnsq.Consumer, message: gnsq.Message) -> None:
        if message.attempts == 1 and message.body == b"0":
            raise ValueError("once")
        got.append(message.body)

    consumer.start(block=False)
    producer.publish("gnsq-classes", b"0")
    producer.multipublish("gnsq-classes", [b"%d" % number for number in range(1, 100)])
    with gevent.Timeout(30):
        while len(got) < 100:
            gevent.sleep(0.02)
    consumer.close()
    producer.close()
    assert sorted(got) == sorted(b"%d" % number for number in range(100))
