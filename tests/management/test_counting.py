"""What clients do is counted where it happens, and sampled in slices that hold nobody up."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from penstock.management.app import ManagementServer
from penstock_ranges.reports import Report
from tests.management.conftest import Served

MANY = 10_000
STALL_MS = 10


class Sampled(Served):
    """Its walks are made by hand; what they take of the data loop is noted."""

    def __init__(self, data_dir: Any) -> None:
        super().__init__(data_dir)
        self.management.stop()
        self.took_ms: list[float] = []
        self.management = ManagementServer("127.0.0.1", 0, self.call, self.view, self.facts)
        self.port = self.management.start()
        self.stop_sampling()
        self.now_s = time.time() // 5 * 5 + 1

    def _in_management(self, what: Any) -> None:
        assert self.management._side.loop is not None
        asyncio.run_coroutine_threadsafe(what, self.management._side.loop).result(60)

    def call(self, function: Any) -> Any:
        def timed() -> Any:
            # Of this thread's own processor time: the machine may be busy with others.
            began = time.thread_time()
            try:
                return function()
            finally:
                self.took_ms.append((time.thread_time() - began) * 1000)

        return self.node.loop.call(timed)

    def walk(self) -> None:
        """Five seconds have passed."""
        self.now_s += 5
        self._in_management(self.management.sampler.walk(self.now_s))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampled]:
    running = Sampled(tmp_path_factory.mktemp("node"))
    yield running
    running.stop()


@pytest.fixture
def client(sampled: Sampled) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", sampled.amqp_port))
    yield connection
    connection.close()


def counted(stats: dict[str, Any]) -> dict[str, Any]:
    """What is not nothing, without the details."""
    return {key: value for key, value in stats.items() if value and not key.endswith("_details")}


def take(channel: Any, queue: str, count: int, *, auto_ack: bool) -> list[Any]:
    """So many deliveries of a consumer, which then ends."""
    found: list[Any] = []
    tag = channel.basic_consume(queue, lambda *got: found.append(got[1]), auto_ack=auto_ack)
    while len(found) < count:
        channel.connection.process_data_events(0.02)
    channel.basic_cancel(tag)
    return found


def test_every_counter_moves_by_what_clients_do(sampled: Sampled, client: Any) -> None:
    sampled.walk()
    before = sampled.get("/api/overview")
    publisher = client.channel()
    publisher.exchange_declare("x", "fanout")
    for queue in ("one", "two"):
        publisher.queue_declare(queue)
        publisher.queue_bind(queue, "x")
    publisher.confirm_delivery()
    for _ in range(6):
        publisher.basic_publish("x", "", b"body")
    publisher.basic_publish("", "nowhere", b"body")
    with pytest.raises(pika.exceptions.UnroutableError):
        publisher.basic_publish("", "nowhere", b"body", mandatory=True)
    consumer = client.channel()
    consumer.basic_qos(prefetch_count=2)
    got, _, _ = consumer.basic_get("one")
    consumer.basic_nack(got.delivery_tag)
    got, _, _ = consumer.basic_get("one", auto_ack=True)
    assert got.redelivered
    consumer.basic_get("one")
    take(consumer, "one", 2, auto_ack=False)
    consumer.basic_ack(got.delivery_tag + 2)
    take(consumer, "two", 6, auto_ack=True)
    publisher.queue_declare("empty")
    assert consumer.basic_get("empty") == (None, None, None)
    sampled.walk()

    one = sampled.get("/api/queues/%2F/one")
    assert counted(one["message_stats"]) == {
        "publish": 6,
        "get": 2,
        "get_no_ack": 1,
        "deliver": 2,
        "deliver_get": 5,
        "redeliver": 1,
        "ack": 1,
    }
    assert one["message_stats"]["publish_details"] == {"rate": 1.2}
    two = sampled.get("/api/queues/%2F/two")["message_stats"]
    assert counted(two) == {"publish": 6, "deliver_no_ack": 6, "deliver_get": 6}
    assert counted(sampled.get("/api/queues/%2F/empty")["message_stats"]) == {"get_empty": 1}
    exchange = sampled.get("/api/exchanges/%2F/x")["message_stats"]
    assert counted(exchange) == {"publish_in": 6, "publish_out": 12}
    assert exchange["publish_out_details"] == {"rate": 2.4}
    channels = {row["number"]: row["message_stats"] for row in sampled.get("/api/channels")}
    assert counted(channels[1]) == {
        "publish": 8,
        "confirm": 8,
        "return_unroutable": 1,
        "drop_unroutable": 1,
    }
    assert "publish" not in channels[2]
    after = sampled.get("/api/overview")
    grown = {
        key: value - before["message_stats"].get(key, 0)
        for key, value in after["message_stats"].items()
        if isinstance(value, int)
    }
    assert grown["publish"] == grown["confirm"] == 8
    assert grown["deliver_no_ack"] == 6
    assert grown["get_empty"] == 1
    assert after["churn_rates"]["queue_declared"] - before["churn_rates"]["queue_declared"] == 3
    assert after["churn_rates"]["channel_created_details"]["rate"] > 0
    (connection,) = sampled.get("/api/connections")
    assert connection["recv_oct"] > 8 * 60
    assert connection["recv_oct_details"]["rate"] > 0
    assert "octets" not in connection
    vhost = sampled.get("/api/vhosts/%2F")
    assert vhost["message_stats"]["publish"] == after["message_stats"]["publish"]
    assert vhost["messages_details"]["rate"] > 0


def test_a_message_given_back_is_redelivered_once(sampled: Sampled, client: Any) -> None:
    channel = client.channel()
    channel.queue_declare("back")
    for _ in range(3):
        channel.basic_publish("", "back", b"")
    tags = [channel.basic_get("back")[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[1])
    assert channel.basic_get("back")[0].redelivered
    channel.basic_publish("", "back", b"")
    assert not channel.basic_get("back")[0].redelivered
    stats = sampled.get("/api/queues/%2F/back")["message_stats"]
    assert (stats["redeliver"], stats["get"]) == (1, 5)


def test_deliveries_are_told_by_channel(sampled: Sampled, client: Any) -> None:
    channel = client.channel()
    channel.queue_declare("told")
    for _ in range(4):
        channel.basic_publish("", "told", b"")
    taken = [next(channel.consume("told"))[0].delivery_tag for _ in range(4)]
    channel.basic_ack(taken[1], multiple=True)
    channel.queue_declare("told", passive=True)
    (row,) = sampled.get("/api/queues/%2F/told")["deliveries"]
    assert row["channel_details"]["name"].endswith(f"({channel.channel_number})")
    assert counted(row["stats"]) == {"deliver": 4, "ack": 2, "deliver_get": 4}


def test_who_sees_one_virtual_host_is_told_of_that_alone(sampled: Sampled, client: Any) -> None:
    channel = client.channel()
    channel.queue_declare("seen")
    channel.basic_publish("", "seen", b"")
    channel.queue_declare("seen", passive=True)
    sampled.add_user("mon", "m", ["management"], "/")
    sampled.add_user("none", "m", ["management"])
    overview = sampled.get("/api/overview", "mon")
    assert overview["message_stats"]["publish"] >= 1
    assert "churn_rates" not in overview
    assert sampled.get("/api/overview", "none")["message_stats"] == {}


def test_a_list_is_sorted_by_a_rate(sampled: Sampled, client: Any) -> None:
    channel = client.channel()
    for count in (2, 5, 1):
        channel.queue_declare(f"rated{count}")
    sampled.walk()
    for count in (2, 5, 1):
        for _ in range(count):
            channel.basic_publish("", f"rated{count}", b"")
    channel.queue_declare("rated1", passive=True)
    sampled.walk()
    path = "message_stats.publish_details.rate"
    query = f"columns=name,{path}&sort={path}&sort_reverse=true&page=1&name=rated"
    found = sampled.get(f"/api/queues?{query}")["items"]
    rates = {row["name"]: row["message_stats"]["publish_details"]["rate"] for row in found}
    assert list(rates.items()) == [("rated5", 1.0), ("rated2", 0.4), ("rated1", 0.2)]


def test_a_pipeline_that_reports_is_among_the_metrics(sampled: Sampled) -> None:
    sampled.declare("feed")
    told = Report(name="lake", state="running", queues=("feed",), batch=1, rows=70, lag=5)

    def report() -> None:
        broker = sampled.node.broker
        user = broker.users.users["guest"]
        now_ms = time.time_ns() // 1_000_000
        broker.pipelines.report(told, user, broker.vhosts["/"], now_ms)

    sampled.on_loop(report)
    page = sampled.request("GET", "/metrics").body.decode()
    label = '{vhost="/",pipeline="lake"}'
    for line in ("rows_total", "batches_total", "lag_messages", "running"):
        assert f"penstock_pipeline_{line}{label}" in page
    assert f"penstock_pipeline_rows_total{label} 70\n" in page


def test_ten_thousand_queues_never_hold_up_the_data_loop(sampled: Sampled) -> None:
    def declare() -> None:
        vhost = sampled.node.broker.vhosts["/"]
        for number in range(MANY):
            queue = vhost.declare_queue(f"many{number}", False, None, False, {})
            queue.statistics.published_count = 1 + number
            queue.statistics.delivered_count = number

    sampled.on_loop(declare)
    # A full collection of this process, with all of pytest in it, is not the calls' doing.
    gc.disable()
    try:
        sampled.took_ms.clear()
        sampled.walk()
        sampled.walk()
        calls = len(sampled.took_ms)
        assert len(sampled.management.sampler.tracks["queue"].by_key) >= MANY
        assert calls > 2 * MANY / 100
        for path in ("/metrics", "/metrics/per-object"):
            answer = sampled.request("GET", path)
            assert answer.status == 200
        assert answer.body.count(b"\nrabbitmq_queue_messages_ready{") >= MANY
        assert len(sampled.took_ms) > calls + MANY / 100
    finally:
        gc.enable()
    # A call that takes long does so in both walks; one alone was the machine, which also bills a
    # thread for what it gave to others.
    longest = sorted(sampled.took_ms)[-5:]
    assert longest[-2] < STALL_MS, longest
