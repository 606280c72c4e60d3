"""What the API says while real clients are connected."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from tests.management.conftest import Served

RATES = ("ingress", "egress", "ack_ingress", "ack_egress")


@pytest.fixture
def client(served: Served) -> Iterator[pika.BlockingConnection]:
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        served.amqp_port,
        heartbeat=30,
        client_properties={"connection_name": "the tester"},
    )
    connection = pika.BlockingConnection(parameters)
    yield connection
    if connection.is_open:
        connection.close()


def eventually(ask: Callable[[], Any], expected: Any) -> None:
    """Counters move when the loop comes to it; two seconds are plenty."""
    until = time.monotonic() + 2
    while ask() != expected and time.monotonic() < until:
        time.sleep(0.01)
    assert ask() == expected


def test_a_queue_counts_what_clients_do(served: Served, client: pika.BlockingConnection) -> None:
    channel = client.channel()
    channel.queue_declare("life of a/queue", durable=True, arguments={"x-message-ttl": 600_000})
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("", "life of a/queue", b"body")
    path = "/api/queues/%2F/life%20of%20a%2Fqueue"
    queue = served.get(path)
    assert queue["name"] == "life of a/queue"
    assert queue["arguments"] == {"x-message-ttl": 600_000}
    assert (queue["durable"], queue["exclusive"], queue["auto_delete"]) == (True, False, False)
    assert queue["messages"] == queue["messages_ready"] == 5
    assert queue["message_bytes_ready"] >= 5 * len(b"body")
    assert queue["backing_queue_status"]["next_seq_id"] == 5
    assert queue["message_stats"]["publish"] == 5
    assert queue["consumer_details"] == []

    first = channel.basic_get("life of a/queue")
    channel.basic_get("life of a/queue")
    channel.basic_ack(first[0].delivery_tag)
    eventually(
        lambda: [
            served.get(path)[key]
            for key in ("messages", "messages_ready", "messages_unacknowledged")
        ],
        [4, 3, 1],
    )
    stats = served.get(path)["message_stats"]
    assert [stats[key] for key in ("publish", "deliver_get", "get", "ack")] == [5, 2, 2, 1]

    assert served.ask(f"{path}/contents", method="DELETE").status == 204
    after = served.get(path)
    assert (after["messages_ready"], after["messages_unacknowledged"]) == (0, 1)
    assert channel.queue_declare("life of a/queue", passive=True).method.message_count == 0


def test_rates_follow_what_clients_do(served: Served, client: pika.BlockingConnection) -> None:
    channel = client.channel()
    channel.queue_declare("rated", durable=True)
    for _ in range(300):
        channel.basic_publish("", "rated", b"x")
    rated = "/api/queues/%2F/rated"

    def rates() -> tuple[bool, bool]:
        status = served.get(rated)["backing_queue_status"]
        return status["avg_ingress_rate"] > 0, status["avg_egress_rate"] > 0

    eventually(rates, (True, False))
    for _ in range(300):
        channel.basic_get("rated", auto_ack=True)
    eventually(rates, (True, True))


def test_where_messages_rest(served: Served, client: pika.BlockingConnection) -> None:
    channel = client.channel()
    channel.confirm_delivery()
    for name, mode in (("resting", "lazy"), ("moving", "default")):
        channel.queue_declare(name, durable=True, arguments={"x-queue-mode": mode})
        for _ in range(500):
            channel.basic_publish("", name, b"x" * 1000, pika.BasicProperties(delivery_mode=2))
    lazy = served.get("/api/queues/%2F/resting")
    assert lazy["backing_queue_status"]["mode"] == lazy["penstock"]["mode"] == "lazy"
    assert lazy["backing_queue_status"]["delta"] == ["delta", 0, 500, 0, 500]
    assert lazy["messages_ready_ram"] < 500
    assert lazy["penstock"]["index"]["files"][0]["name"] == "0.idx"
    default = served.get("/api/queues/%2F/moving")
    assert default["backing_queue_status"]["q4"] == 500
    assert default["messages_ram"] == default["messages_persistent"] == 500
    assert default["penstock"]["q4"]["bytes"] == default["message_bytes"] > 500_000
    listed = {row["name"]: row for row in served.get("/api/queues")}
    line, row = (one["backing_queue_status"] for one in (listed["resting"], lazy))
    # Averages moved between the two requests.
    for status in (line, row):
        assert {status.pop(f"avg_{name}_rate") >= 0 for name in RATES} == {True}
    # How much of delta is transient is not counted for a line of a list.
    assert line["delta"][:3] + line["delta"][4:] == ["delta", 0, 500, 500]
    assert line | {"delta": None} == row | {"delta": None}
    assert "penstock" not in listed["resting"]


def test_the_storage_of_the_node(served: Served, client: pika.BlockingConnection) -> None:
    storage = served.get("/api/penstock/storage")
    engine = served.node.engine
    assert storage["memory"]["limit_bytes"] == engine.ram.limit_bytes
    assert storage["disk"]["stalled"] is None
    assert storage["recovery"]["queues"] == 0
    assert storage["files"]["journal"][-1]["finished"] is False
    assert served.get("/api/penstock/storage?columns=memory.full") == {"memory": {"full": False}}
    served.add_user("mon", "m", ["management"])
    refused = served.ask("/api/penstock/storage", "mon")
    assert refused.status == 401
    served.node.worker.stalled = "no space left on device: /somewhere"
    try:
        disk = served.get("/api/penstock/storage")["disk"]
    finally:
        served.node.worker.stalled = ""
    assert disk["stalled"] == "no space left on device: /somewhere"
    assert (disk["publishers_wait"], disk["reason"]) == (True, "low on disk")


def test_connections_channels_and_consumers(
    served: Served, client: pika.BlockingConnection
) -> None:
    channel = client.channel()
    channel.queue_declare("watched", exclusive=True)
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=7)
    tag = channel.basic_consume("watched", lambda *_: None, exclusive=True)
    for _ in range(3):
        channel.basic_publish("", "watched", b"x")

    (connection,) = served.get("/api/connections")
    assert connection["name"].endswith(f" -> 127.0.0.1:{served.amqp_port}")
    assert connection["name"].startswith(f"127.0.0.1:{connection['peer_port']} -> ")
    assert (connection["user"], connection["vhost"]) == ("guest", "/")
    assert (connection["state"], connection["channels"]) == ("running", 1)
    assert connection["user_provided_name"] == "the tester"
    assert connection["client_properties"]["product"].startswith("Pika")
    assert (connection["protocol"], connection["auth_mechanism"]) == ("AMQP 0-9-1", "PLAIN")
    assert connection["timeout"] == 30
    assert connection["frame_max"] == 131_072
    assert connection["recv_oct"] > 300
    assert connection["send_oct"] > 300
    assert abs(connection["connected_at"] - time.time() * 1000) < 60_000

    eventually(
        lambda: [
            (row["messages_unacknowledged"], row["messages_unconfirmed"])
            for row in served.get("/api/channels")
        ],
        [(3, 0)],
    )
    (shown,) = served.get("/api/channels")
    assert shown["name"] == f"{connection['name']} (1)"
    assert shown["connection_details"]["name"] == connection["name"]
    assert (shown["consumer_count"], shown["prefetch_count"], shown["confirm"]) == (1, 7, True)
    assert shown["global_prefetch_count"] == 0
    stats = shown["message_stats"]
    assert [stats[key] for key in ("publish", "confirm", "deliver", "ack")] == [3, 3, 3, 0]

    (consumer,) = served.get("/api/consumers/%2F")
    assert consumer["consumer_tag"] == tag
    assert consumer["queue"] == {"name": "watched", "vhost": "/"}
    assert consumer["channel_details"]["name"] == shown["name"]
    assert (consumer["ack_required"], consumer["exclusive"]) == (True, True)
    assert consumer["prefetch_count"] == 7
    queue = served.get("/api/queues/%2F/watched")
    assert queue["consumer_details"] == [consumer]
    assert (queue["exclusive"], queue["exclusive_consumer_tag"]) == (True, tag)
    # Somebody's own queue is not purged by others.
    refused = served.ask("/api/queues/%2F/watched/contents", method="DELETE")
    assert refused.status == 400
    assert "locked queue 'watched'" in refused.body
    channel.queue_bind("watched", "amq.direct", "k")
    binding = "/api/bindings/%2F/e/amq.direct/q/watched/k"
    refused = served.ask(binding, method="DELETE")
    assert refused.status == 400
    assert "locked queue 'watched'" in refused.body
    assert served.get(binding)["routing_key"] == "k"

    totals = served.get("/api/overview")["object_totals"]
    assert (totals["connections"], totals["channels"], totals["consumers"]) == (1, 1, 1)
    client.close()
    eventually(lambda: served.get("/api/connections"), [])
    assert served.get("/api/channels") == served.get("/api/consumers") == []


def test_bindings_of_all_kinds(served: Served, client: pika.BlockingConnection) -> None:
    channel = client.channel()
    channel.exchange_declare("inner", "fanout", durable=True)
    channel.exchange_declare("outer", "topic", durable=True, arguments={"x-note": ["a", 1]})
    channel.queue_declare("bound")
    channel.exchange_bind("inner", "outer", "#.audit")
    channel.queue_bind("bound", "outer", "a.*/é ~")
    channel.queue_bind("bound", "outer", "", {"k": "v"})
    channel.queue_bind("bound", "inner", "")
    mine = [row for row in served.get("/api/bindings/%2F") if row["source"] in ("inner", "outer")]
    assert {
        (row["source"], row["destination"], row["destination_type"], row["routing_key"])
        for row in mine
    } == {
        ("inner", "bound", "queue", ""),
        ("outer", "inner", "exchange", "#.audit"),
        ("outer", "bound", "queue", "a.*/é ~"),
        ("outer", "bound", "queue", ""),
    }
    keys = {row["routing_key"]: row["properties_key"] for row in mine if row["source"] == "outer"}
    assert keys["#.audit"] == "%23.audit"
    assert keys["a.*/é ~"] == "a.%2A%2F%C3%A9+%7E"
    assert keys[""].startswith("~")
    assert len(keys[""]) == len("~8IXMRA")
    assert [row["properties_key"] for row in mine if row["source"] == "inner"] == ["~"]
    exchange = served.get("/api/exchanges/%2F/outer")
    assert exchange["type"] == "topic"
    assert exchange["arguments"] == {"x-note": ["a", 1]}
    assert "bound" in [
        row["destination"] for row in served.get("/api/bindings/%2F") if row["source"] == ""
    ]


def test_overview_adds_up(served: Served, client: pika.BlockingConnection) -> None:
    before = served.get("/api/overview")
    channel = client.channel()
    for number in range(3):
        channel.queue_declare(f"sum-{number}")
        for _ in range(number):
            channel.basic_publish("", f"sum-{number}", b"x")
    channel.basic_get("sum-2")
    channel.queue_declare("sum-0", passive=True)  # everything before it has been handled
    after = served.get("/api/overview")
    change = {
        key: after["queue_totals"][key] - before["queue_totals"][key]
        for key in ("messages", "messages_ready", "messages_unacknowledged")
    }
    assert change == {"messages": 3, "messages_ready": 2, "messages_unacknowledged": 1}
    assert after["object_totals"]["queues"] == before["object_totals"]["queues"] + 3
    assert after["product_name"] == "Penstock"
    assert after["listeners"] == [
        {
            "node": "penstock@test",
            "protocol": protocol,
            "ip_address": "127.0.0.1",
            "port": port,
            "socket_opts": {},
        }
        for protocol, port in (("amqp", served.amqp_port), ("http", served.port))
    ]
    assert after["contexts"][0]["port"] == str(served.port)
    vhost = served.get("/api/vhosts")[0]
    assert vhost["messages"] == after["queue_totals"]["messages"]


def test_the_node_tells_real_numbers(served: Served) -> None:
    (node,) = served.get("/api/nodes")
    assert node["name"] == "penstock@test"
    assert node["mem_used"] > 10_000_000
    assert 0 < node["fd_used"] < node["fd_total"]
    assert node["disk_free"] > 0
    assert served.get("/api/nodes/rabbit@test")["name"] == "penstock@test"
    assert served.ask("/api/nodes/other@test").status == 404


def test_the_default_exchange_is_found_by_its_empty_name(served: Served) -> None:
    served.declare("by-empty-name")
    publish = json.dumps(
        {
            "routing_key": "by-empty-name",
            "payload": "m",
            "payload_encoding": "string",
            "properties": {},
        }
    )
    answer = served.request("POST", "/api/exchanges/%2F//publish", publish.encode())
    assert (answer.status, json.loads(answer.body)) == (200, {"routed": True})
    (binding,) = served.get("/api/bindings/%2F/e//q/by-empty-name")
    assert (binding["source"], binding["destination"]) == ("", "by-empty-name")
    assert binding in served.get("/api/exchanges/%2F//bindings/source")
    assert served.get("/api/exchanges/%2F//bindings/destination") == []
    assert served.ask("/api/queues/%2F/by-empty-name", method="DELETE").status == 204


def test_no_path_with_an_empty_name_is_a_fault_of_the_server(served: Served) -> None:
    for route in served.routes():
        for variable in re.findall(r"\{\w+\}", route.path):
            path = re.sub(r"\{\w+\}", "x", route.path.replace(variable, ""))
            for method in route.endpoints:
                if "{" in route.path and "stream" not in path:
                    assert served.ask(path, method=method).status < 500, (method, path)


@pytest.mark.parametrize(
    "method, path",
    [
        ("PUT", "queues/nowhere/q"),
        ("PUT", "exchanges/nowhere/e"),
        ("POST", "bindings/nowhere/e/amq.direct/q/q"),
        ("PUT", "vhost-limits/nowhere/max-queues"),
        ("POST", "definitions/nowhere"),
    ],
)
def test_an_addition_to_a_missing_virtual_host_is_refused_by_that_name(
    served: Served, method: str, path: str
) -> None:
    answer = served.request(method, f"/api/{path}", b'{"value": 1}')
    told = {"error": "not_found", "reason": "vhost_not_found"}
    assert (answer.status, json.loads(answer.body)) == (404, told)


def test_a_wish_for_samples_that_names_no_time_is_passed_over(served: Served) -> None:
    for wish in ("60&lengths_incr=x", "x&lengths_incr=5", "60&lengths_incr=0", "60"):
        assert "samples" not in json.dumps(served.get(f"/api/overview?lengths_age={wish}"))
