"""Fields that RabbitMQ's rows have and tools read: they are there, and they are true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.clocks import wall_ms
from penstock.core.credit import IDLE_AFTER_MS
from penstock.core.errors import NotFound
from penstock.management.rows.clients import ClientRows
from tests.management.conftest import Served

Q = "/api/queues/%2F/q"


@pytest.fixture
def channel(served: Served) -> Iterator[Any]:
    parameters = pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_delete("q")
    yield channel
    connection.close()


def test_a_queue_without_a_single_active_consumer(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    channel.basic_consume("q", lambda *_: None, consumer_tag="a")
    row = served.get(Q)
    assert row["single_active_consumer_tag"] is None
    assert row["recoverable_slaves"] is None
    (consumer,) = row["consumer_details"]
    assert (consumer["active"], consumer["activity_status"]) == (True, "up")


def test_one_of_two_consumers_is_active(served: Served, channel: Any) -> None:
    channel.queue_declare("q", arguments={"x-single-active-consumer": True})
    for tag in ("a", "b"):
        channel.basic_consume("q", lambda *_: None, consumer_tag=tag)
    row = served.get(Q)
    assert row["single_active_consumer_tag"] == "a"
    found = [(one["active"], one["activity_status"]) for one in row["consumer_details"]]
    assert found == [(True, "single_active"), (False, "waiting")]


def test_the_head_says_when_it_was_published(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    assert served.get(Q)["head_message_timestamp"] is None
    empty = served.get(Q)["memory"]
    stamped = pika.BasicProperties(timestamp=1_700_000_000)
    channel.basic_publish("", "q", b"x" * 5000, stamped)
    assert served.get(Q)["head_message_timestamp"] == 1_700_000_000
    assert served.get(Q)["memory"] >= empty + 5000


def test_what_is_idle_runs_and_says_since_when(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"")
    row = served.get(Q)
    assert row["state"] == "running"
    assert "idle_since" not in row
    queue = served.node.broker.vhosts["/"].queues["q"]

    def age() -> None:
        queue.statistics.active_at_ms = 1_000_000_000_123
        queue.last_used_ms = 0
        assert wall_ms() > queue.statistics.active_at_ms + IDLE_AFTER_MS

    served.on_loop(age)
    row = served.get(Q)
    assert (row["state"], row["idle_since"]) == ("running", "2001-09-09T01:46:40.123+00:00")


def test_a_channel_is_found_by_its_name(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    channel.basic_consume("q", lambda *_: None, consumer_tag="a")
    (listed,) = served.get("/api/channels?columns=name,pending_raft_commands")
    assert listed["pending_raft_commands"] == 0
    row = served.get(f"/api/channels/{quote(listed['name'])}")
    assert [one["consumer_tag"] for one in row["consumer_details"]] == ["a"]
    connection = quote(row["connection_details"]["name"])
    of_connection = served.get(f"/api/connections/{connection}/channels?columns=name")
    assert [one["name"] for one in of_connection] == [listed["name"]]
    for path in ("vhosts/%2F/channels", "vhosts/%2F/connections", "connections/username/guest"):
        assert len(served.get(f"/api/{path}")) == 1
    assert served.ask(f"/api/channels/{quote(listed['name'][:-2])}9)").status == 404
    plain = served.get(f"/api/connections/{connection}")
    for key in ("ssl_hash", "ssl_key_exchange", "peer_cert_issuer", "peer_cert_validity"):
        assert plain[key] is None


def test_all_connections_of_a_user_are_closed(served: Served, channel: Any) -> None:
    closed = served.request(
        "DELETE", "/api/connections/username/guest", headers={"X-Reason": "away"}
    )
    assert closed.status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="away"):
        channel.connection.process_data_events(10)
    renewed = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
    )
    channel.connection.close = renewed.close  # what the fixture closes


def test_a_connection_that_goes_meanwhile_is_closed(
    served: Served, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of the user are closed, and the answer was 404."""

    def gone(*_: object) -> None:
        raise NotFound("Not Found")

    monkeypatch.setattr(ClientRows, "close_connection", gone)
    assert served.request("DELETE", "/api/connections/username/guest").status == 204


def test_an_exchange_names_its_policy(served: Served) -> None:
    policy = Policy("px", "^ruled$", "exchanges", 0, {"alternate-exchange": "amq.fanout"})

    def rule() -> None:
        Administration(served.node.broker, 16).put_policy("/", policy)

    served.on_loop(rule)
    assert served.request("PUT", "/api/exchanges/%2F/ruled", b"{}").status == 201
    assert served.get("/api/exchanges/%2F/ruled")["policy"] == "px"
    assert "policy" not in served.get("/api/exchanges/%2F/amq.topic")
