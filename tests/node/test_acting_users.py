"""Whose doing a change is: the user of its request, on one node and in a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.administration import Administration
from penstock.core.events.book import Actor
from penstock.storage.definitions.records import VhostRecord
from tests.cluster.sim_cluster import started
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.quiet_cluster import QuietCluster
from tests.helpers.requests import Request

KINDS = ("queue_", "exchange_", "binding_", "vhost_", "channel_", "consumer_")


def noted(node: QuietBroker) -> list[tuple[str, str]]:
    """Kind and user of what was noted."""
    taken = node.broker.events.take()
    return [(kind, actor.user) for _, kind, _, actor in taken if kind.startswith(KINDS)]


def test_what_a_client_does_and_what_follows_from_it() -> None:
    node = QuietBroker()
    node.broker.events.on = True
    client = node.client()
    client.session.client.enter("one", node.now_ms)
    client.call("exchange.declare", exchange="x", type="fanout", auto_delete=True)
    client.call("queue.declare", queue="q", auto_delete=True)
    client.call("queue.bind", queue="q", exchange="x")
    client.call("basic.consume", queue="q", consumer_tag="c")
    assert noted(node) == [
        ("exchange_declared", "guest"),
        ("queue_declared", "guest"),
        ("binding_added", "guest"),
        ("consumer_added", "guest"),
    ]
    client.method(1, "queue.delete", queue="q")
    gone = {kind: user for kind, user in noted(node) if kind.endswith("_deleted")}
    assert gone == {"queue_deleted": "guest", "exchange_deleted": "guest"}


def test_what_no_user_asked_for_is_the_nodes_own_doing() -> None:
    node = QuietBroker()
    node.broker.events.on = True
    client = node.client()
    client.call("queue.declare", queue="q", exclusive=True)
    client.call("queue.declare", queue="short", arguments={"x-expires": 100})
    node.tick(1000)
    client.drop()
    gone = [one for one in noted(node) if one[0] == "queue_deleted"]
    assert gone == [("queue_deleted", "")] * 2


def test_who_declared_it_is_known_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=path)
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("exchange.declare", exchange="x", type="fanout", durable=True)
    node.broker.vhosts["/"].declare_queue("own", True, None, False, {})
    node.run()
    node.definitions.close()
    node.files.kill()
    vhost = QuietBroker(node.files, path).broker.vhosts["/"]
    assert (vhost.queues["q"].user, vhost.queues["own"].user) == ("guest", "")
    assert vhost.exchanges["x"].user == "guest"


def test_every_node_of_a_cluster_knows_whose_doing_it_was(tmp_path: Path) -> None:
    cluster = QuietCluster(tmp_path)
    a, b = cluster.quiet["a"], cluster.quiet["b"]
    b.broker.events.on = True
    client = a.client()
    for method, fields in (
        ("exchange.declare", {"exchange": "x", "type": "fanout"}),
        ("queue.declare", {"queue": "q", "durable": True}),
        ("queue.bind", {"queue": "q", "exchange": "x"}),
    ):
        client.method(1, method, **fields)
        cluster.run()
    assert noted(b) == [
        ("exchange_declared", "guest"),
        ("queue_declared", "guest"),
        ("binding_added", "guest"),
    ]
    assert cluster.vhost("b").queues["q"].user == cluster.vhost("b").exchanges["x"].user == "guest"
    administration = Administration(a.broker, 64)
    for user, change in (
        ("ann", lambda: administration.put_vhost("v")),
        ("bob", lambda: a.broker.changes.delete(VhostRecord("v"))),
    ):
        asked = Request(a.broker.changes.ask(Actor(user)), change)
        for _ in range(100):
            if asked.is_decided():
                break
            cluster.run(1)
        cluster.run()
    assert noted(b) == [("vhost_created", "ann"), ("vhost_deleted", "bob")]


@pytest.mark.slow
def test_a_node_that_takes_a_queue_over_knows_who_declared_it(tmp_path: Path) -> None:
    with started(tmp_path, ("a@h", "b@h")) as cluster:
        a, b = cluster.machines
        cluster.put_policy(a, "^q$", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        cluster.declare(a, "q")
        cluster.until(lambda: cluster.synced("q") == ["a@h", "b@h"])
        a.kill()
        cluster.until(lambda: (queue := b.queue("q")) is not None and not queue.remote)
        assert b.queue("q").user == "guest"  # type: ignore[union-attr]
        b.kill()
        cluster.until(b.start)
        assert b.queue("q").user == "guest"  # type: ignore[union-attr]
