"""Spans of messages as a receiver of OTLP gets them from a running broker."""

from __future__ import annotations

import base64
import gzip
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pika
import pytest

from tests.helpers.live_broker import LiveBroker

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="make deps-core")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

pytestmark = pytest.mark.timeout(120)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PATIENCE_S = 20.0


class Receiver(ThreadingHTTPServer):
    """Keeps what it gets; ``status``: what it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.status = 200
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def of(self, trace: str, count: int) -> list[Any]:
        until = time.monotonic() + PATIENCE_S
        while True:
            found = [one for one in list(self.spans) if one.trace_id.hex() == trace]
            if len(found) >= count or time.monotonic() > until:
                assert len(found) == count, found
                return found
            time.sleep(0.05)


class Request(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        if self.server.status == 200:
            for part in ExportTraceServiceRequest.FromString(data).resource_spans:
                self.server.resource = attributes(part.resource)
                for scope in part.scope_spans:
                    self.server.spans += scope.spans
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def attributes(one: Any) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in one.attributes}


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    return getattr(value, kind)


def spans_of(broker: LiveBroker) -> dict[str, int]:
    log_in = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    request = urllib.request.Request(f"{broker.http_url}/metrics", headers=log_in)
    page = urllib.request.urlopen(request, timeout=10).read().decode()
    found = re.findall(r'^penstock_spans_total{fate="(\w+)"} (\d+)', page, re.MULTILINE)
    return {fate: int(count) for fate, count in found}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running
        running.shutdown()


@pytest.fixture(scope="module")
def broker(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    arguments = ("--otlp-endpoint", receiver.url, "--otlp-spans-per-s", "200")
    with LiveBroker(tmp_path_factory.mktemp("traces"), arguments) as running:
        yield running


@pytest.fixture
def channel(broker: LiveBroker) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    yield connection.channel()
    connection.close()


def traced(trace: str, flags: str = "01") -> pika.BasicProperties:
    return pika.BasicProperties(headers={"traceparent": f"00-{trace}-{SPAN}-{flags}"})


def test_a_message_is_followed_from_its_publish_to_its_end(
    receiver: Receiver, channel: Any
) -> None:
    channel.queue_declare("letters", durable=True)
    channel.queue_declare(
        "orders",
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"},
    )
    channel.queue_bind("orders", "amq.topic", "order.#")
    channel.basic_publish("amq.topic", "order.new", b"12", traced(TRACE))
    channel.basic_publish("amq.topic", "order.new", b"unrecorded", traced(TRACE[::-1], "00"))
    time.sleep(0.3)
    taken, _, _ = channel.basic_get("orders")
    time.sleep(0.2)
    channel.basic_reject(taken.delivery_tag, requeue=False)
    until = time.monotonic() + PATIENCE_S
    while channel.basic_get("letters", auto_ack=True)[0] is None:
        assert time.monotonic() < until
    spans = {one.name: one for one in receiver.of(TRACE, 5)}
    assert set(spans) == {
        *("publish amq.topic", "queue orders", "deliver orders", "queue letters"),
        "deliver letters",
    }
    assert {one.parent_span_id.hex() for one in spans.values()} == {SPAN}
    assert len({one.span_id for one in spans.values()}) == 5
    publish = attributes(spans["publish amq.topic"])
    assert publish["penstock.queues"] == ["orders"]
    assert publish["messaging.rabbitmq.destination.routing_key"] == "order.new"
    assert publish["penstock.vhost"] == "/"
    waited = spans["queue orders"]
    assert (waited.end_time_unix_nano - waited.start_time_unix_nano) >= 250_000_000
    handled = spans["deliver orders"]
    assert (handled.end_time_unix_nano - handled.start_time_unix_nano) >= 150_000_000
    assert attributes(handled)["penstock.outcome"] == "rejected"
    assert attributes(spans["deliver letters"])["penstock.outcome"] == "auto"
    assert receiver.resource["service.name"] == "penstock"
    assert receiver.of(TRACE[::-1], 0) == []


def test_more_than_the_rate_are_dropped_and_counted(
    broker: LiveBroker, receiver: Receiver, channel: Any
) -> None:
    trace = TRACE[1:] + "0"
    for _ in range(1000):
        channel.basic_publish("", "nowhere", b"", traced(trace))
    until = time.monotonic() + PATIENCE_S
    while sum(spans_of(broker).values()) < 1000 + 5 and time.monotonic() < until:
        time.sleep(0.1)
    counted = spans_of(broker)
    assert counted["dropped"] > 0
    assert counted["exported"] > 5
    receiver.of(trace, int(counted["exported"]) - 5)


def test_a_receiver_that_refuses_costs_spans_only(
    broker: LiveBroker, receiver: Receiver, channel: Any
) -> None:
    before = spans_of(broker)["dropped"]
    receiver.status = 400
    channel.basic_publish("", "nowhere", b"", traced(TRACE[2:] + "00"))
    until = time.monotonic() + PATIENCE_S
    while spans_of(broker)["dropped"] == before and time.monotonic() < until:
        time.sleep(0.1)
    receiver.status = 200
    assert spans_of(broker)["dropped"] == before + 1
    assert "takes no spans; they are dropped" in broker.output()


def test_a_message_of_a_stream_is_followed_at_each_consumer(
    receiver: Receiver, channel: Any
) -> None:
    trace = TRACE[3:] + "000"
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", "log", b"12", traced(trace))
    time.sleep(0.3)
    channels = [channel, channel.connection.channel()]
    tags = []
    for each in channels:
        each.basic_qos(prefetch_count=10)
        method, _, body = next(each.consume("log", arguments={"x-stream-offset": "first"}))
        assert body == b"12"
        tags.append(method.delivery_tag)
    for each, tag in zip(channels, tags, strict=True):
        each.basic_ack(tag)
        each.cancel()
    spans = receiver.of(trace, 5)
    names = ["deliver log", "deliver log", "publish", "queue log", "queue log"]
    assert sorted(one.name.strip() for one in spans) == names
    outcomes = [attributes(one).get("penstock.outcome") for one in spans]
    assert sorted(filter(None, outcomes)) == ["acked", "acked"]
    for one in spans:
        if one.name == "queue log":
            assert one.end_time_unix_nano - one.start_time_unix_nano >= 250_000_000
