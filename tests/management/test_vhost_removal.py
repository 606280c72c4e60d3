"""A virtual host is deleted over HTTP with everything in it, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker, ProbableAccessDeniedError

from penstock.broker.administration import Administration
from penstock.broker.rules.access import HASHING, hash_password
from penstock.broker.rules.policies import Policy
from penstock.broker.vhost_removal import VhostRemoval
from penstock.node.inspection.log_exchange import NAME as LOG_EXCHANGE
from penstock.node.inspection.log_exchange import LogExchange
from penstock.node.inspection.logs import Logs, Outbox, Waiting
from penstock.node.node import Node
from penstock.settings.settings import load_settings
from tests.helpers.nsq_broker import eventually
from tests.management.conftest import Served

V = "/api/vhosts/gone"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path)
    assert running.request("PUT", V, b"{}").status == 201
    administrator = running.node.broker.users.users["guest"]
    everything = (".*", ".*", ".*")
    running.on_loop(lambda: administrator.vhosts.__setitem__("gone", everything))
    yield running
    if not running.node.loop.stopping:
        running.stop()


def connect(served: Served, vhost: str) -> Any:
    parameters = pika.ConnectionParameters("127.0.0.1", served.amqp_port, vhost, heartbeat=0)
    return pika.BlockingConnection(parameters)


def told(connection: Any) -> tuple[int, str]:
    """How the broker ended it."""
    try:
        while True:
            connection.process_data_events(10)
    except ConnectionClosedByBroker as closed:
        return closed.reply_code, closed.reply_text


def delete(served: Served) -> int:
    return served.request("DELETE", V).status


def fill(served: Served) -> Any:
    """Some of everything; returns the connection that made it."""
    connection = connect(served, "gone")
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(120):
        name = f"q{number}"
        channel.queue_declare(name, durable=number % 2 == 0)
        channel.exchange_declare(f"x{number}", "topic", durable=number % 3 == 0)
        channel.queue_bind(name, f"x{number}", "#")
        channel.basic_publish(f"x{number}", "k", b"m", pika.BasicProperties(delivery_mode=2))
    channel.exchange_declare("late", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.queue_declare("own", exclusive=True)
    channel.basic_consume("q1", lambda *_: None)
    policy = Policy("p", ".*", "all", 0, {"max-length": 9})
    broker = served.node.broker

    def more() -> None:
        Administration(broker, 16).put_policy("gone", policy)
        vhost = broker.vhosts["gone"]
        vhost.topics.channel(vhost.topics.topic("topic"), "channel")
        broker.staging.begin(vhost, "guest", "producer", "run", 1, 2**50)

    served.on_loop(more)
    return connection


def test_everything_in_it_goes_and_nothing_else(node: Served, tmp_path: Path) -> None:
    stays = connect(node, "/")
    stays.channel().queue_declare("stays", durable=True)
    goes = fill(node)
    assert delete(node) == 204
    assert told(goes) == (320, "CONNECTION_FORCED - vhost 'gone' is deleted")
    assert node.request("GET", V).status == 404
    assert delete(node) == 404
    assert [row["name"] for row in node.get("/api/queues")] == ["stays"]
    stays.channel().queue_declare("stays", passive=True)
    stays.close()
    broker = node.node.broker
    assert (broker.staging.sets, broker.staging.producers.known) == ({}, {})
    assert "gone" not in broker.users.users["guest"].vhosts
    kept = node.node.definitions.load()
    assert {one.name for one in kept.vhosts} == {"/"}
    records: list[Any]
    for records in (
        *(kept.queues, kept.exchanges, kept.bindings, kept.permissions, kept.policies),
        *(kept.staged_sets, kept.staged_producers, kept.limits),
    ):
        assert {one.vhost for one in records} <= {"/"}


def test_the_exchange_of_the_log_goes_too_and_does_not_come_back(node: Served) -> None:
    logs = Logs()
    logs.outbox = Outbox()
    lines = LogExchange(node.node.broker, logs, "gone")

    def say() -> bool:
        assert logs.outbox is not None
        logs.outbox.waiting.append(Waiting("info", "node", "text", 0))
        lines.look()
        return LOG_EXCHANGE in vhost.exchanges

    vhost = node.node.broker.vhosts["gone"]
    assert node.on_loop(say)
    removal = VhostRemoval(node.node.broker, vhost, node.view.watch.close_some)
    while node.on_loop(lambda: LOG_EXCHANGE in vhost.exchanges):
        assert not node.on_loop(removal.step)[0]
    assert not node.on_loop(say)
    while not node.on_loop(removal.step)[0]:
        pass
    assert "gone" not in node.node.broker.vhosts
    assert {one.vhost for one in node.node.definitions.load().exchanges} <= {"/"}


def test_a_removal_that_was_interrupted_is_taken_up_again(node: Served) -> None:
    broker = node.node.broker
    node.declare(*(f"q{number}" for number in range(120)), vhost="gone")
    removal = VhostRemoval(broker, broker.vhosts["gone"], node.view.watch.close_some)
    assert not node.on_loop(removal.step)[0]  # and then whoever asked was gone
    refused = node.request("PUT", V, b"{}")
    assert (refused.status, b"is being deleted" in refused.body) == (400, True)
    assert delete(node) == 204
    assert node.on_loop(removal.step) == (True, [])  # had it only been slow
    assert delete(node) == 404
    assert node.request("PUT", V, b"{}").status == 201


def test_nobody_comes_in_any_more(node: Served) -> None:
    assert delete(node) == 204
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker)):
        connect(node, "gone")


def test_a_new_one_of_that_name_is_empty(node: Served) -> None:
    goes = fill(node)
    assert delete(node) == 204
    told(goes)
    assert node.request("PUT", V, b"{}").status == 201
    everything = (".*", ".*", ".*")
    user = node.node.broker.users.users["guest"]
    node.on_loop(lambda: user.vhosts.__setitem__("gone", everything))
    assert node.get("/api/queues/gone") == []
    assert len(node.get("/api/exchanges/gone")) == 7


def test_it_is_gone_after_a_start(node: Served, tmp_path: Path) -> None:
    goes = fill(node)
    assert delete(node) == 204
    told(goes)
    node.stop()
    again = Node(load_settings(None, {}, {"data_dir": str(tmp_path)}))
    assert set(again.broker.vhosts) == {"/"}
    again._close()


def test_the_last_one_does_not_come_back_with_a_default_password(
    node: Served, tmp_path: Path
) -> None:
    assert delete(node) == 204
    assert node.request("DELETE", "/api/vhosts/%2F").status == 204
    administration = Administration(node.node.broker, 16)
    changed = hash_password("changed", b"salt")
    node.on_loop(lambda: administration.put_user("guest", changed, HASHING, ["administrator"]))
    node.stop()
    again = Node(load_settings(None, {}, {"data_dir": str(tmp_path)}))
    assert again.broker.vhosts == {}
    assert again.broker.users.users["guest"].has_password("changed")
    again._close()


@pytest.mark.parametrize("ends", ["in order", "by a kill"])
def test_a_node_that_ended_meanwhile_goes_on_at_its_start(
    node: Served, tmp_path: Path, ends: str
) -> None:
    goes = fill(node)
    broker = node.node.broker
    vhost = broker.vhosts["gone"]
    removal = VhostRemoval(broker, vhost, node.view.watch.close_some)
    before = len(vhost.queues)
    while len(vhost.queues) in (before, before - 1):  # the exclusive one goes with its owner
        assert not node.on_loop(removal.step)[0]
    told(goes)
    left = sum(queue.durable for queue in vhost.queues.values())
    assert left > 0
    copy = tmp_path / "copy"
    if ends == "by a kill":
        shutil.copytree(tmp_path, copy)
    node.stop()
    again = Served(copy if ends == "by a kill" else tmp_path)
    try:
        assert eventually(lambda: set(again.node.broker.vhosts) == {"/"})
        assert delete(again) == 404
        assert again.request("PUT", V, b"{}").status == 201
        assert again.get("/api/queues/gone") == []
    finally:
        again.stop()


def test_what_is_on_its_way_out_is_closed_after_a_start(node: Served, tmp_path: Path) -> None:
    vhost = node.node.broker.vhosts["gone"]
    VhostRemoval(node.node.broker, vhost, node.view.watch.close_some)
    node.stop()
    again = Node(load_settings(None, {}, {"data_dir": str(tmp_path)}))
    assert again.broker.vhosts["gone"].closing
    assert not again.broker.vhosts["/"].closing
    again._close()
