"""Nodes with real brokers and clients on one coordinator: what is declared here is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import CLUSTER_ID, Administration
from penstock.broker.definitions.importing import DefinitionsImport, ImportPlan
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.declaring import delete_queue
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement.common_metadata import CommonMetadata
from penstock.cluster.agreement.metadata import QueueMeta
from penstock.core.errors import ForeignData, Unavailable
from penstock.queues.queue import Queue
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import VhostMetadata, VhostRecord
from tests.broker.copy_tools import remote_queue
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.quiet_cluster import QuietCluster, ask, told_to
from tests.helpers.requests import Request
from tests.helpers.sim_files import SimFileSystem


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuietCluster]:
    cluster = QuietCluster(tmp_path)
    yield cluster
    cluster.run()
    cluster.check()


def test_the_first_node_founds_the_cluster_with_what_it_has(cluster: QuietCluster) -> None:
    assert all(common.is_ready for common in cluster.common.values())
    assert cluster.store.model.keys["cluster/founded"].value == '{"v":1,"id":"a/1"}'
    assert "vhosts/closed" in cluster.store.model.keys
    assert "permissions/%2F/guest" in cluster.store.model.keys


def test_a_queue_declared_here_is_there_too(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    client.method(1, "queue.declare", queue="orders", durable=True)
    assert told_to(client) == []  # not before all have agreed
    cluster.run()
    (told,) = told_to(client)
    assert told.name == "queue.declare-ok"
    assert "orders" in cluster.vhost("b").queues
    assert cluster.vhost("a").queues["orders"].incarnation == (
        cluster.vhost("b").queues["orders"].incarnation
    )


def test_the_home_of_a_queue_may_be_elsewhere_and_all_know_it(cluster: QuietCluster) -> None:
    """Who declares it as before finds it, wherever it is."""
    for name, common in cluster.common.items():
        locating = common.changes.locating
        assert locating.here == name
        locating.nodes = lambda: ["a", "b"]
    client = cluster.quiet["a"].client()
    arguments = {"x-queue-master-locator": "min-masters"}
    homes = []
    for place in range(4):
        told = ask(
            cluster, client, "queue.declare", queue=f"q{place}", durable=True, arguments=arguments
        )
        assert told[0].name == "queue.declare-ok"
        found = {
            common.agreed.queues[f"queues/%2F/q{place}"].home for common in cluster.common.values()
        }
        homes += found
    assert homes == ["a", "b", "a", "b"]
    assert [common.agreed.homes for common in cluster.common.values()] == [{"a": 2, "b": 2}] * 2
    again = ask(cluster, client, "queue.declare", queue="q1", durable=True, arguments=arguments)
    assert again[0].name == "queue.declare-ok"
    (other,) = ask(cluster, client, "queue.declare", queue="q1", durable=True)
    assert (other.name, other.fields["code"]) == ("channel.close", 406)
    assert "'x-queue-master-locator'" in other.fields["text"]
    # A node's first snapshot counts them as well.
    cluster.kill("b")
    cluster.start("b")
    assert cluster.common["b"].agreed.homes == {"a": 2, "b": 2}


def test_who_is_told_that_a_queue_is_there_already_finds_it_on_the_other_node(
    cluster: QuietCluster,
) -> None:
    known: list[str] = []
    cluster.common["a"].changes.is_known = lambda _revision: known != []
    clients = [cluster.quiet["a"].client() for _ in range(2)]
    clients[0].method(1, "queue.declare", queue="orders", durable=True)
    cluster.run()
    assert "orders" in cluster.vhost("a").queues
    clients[1].method(1, "queue.declare", queue="orders", durable=True)
    cluster.run()
    assert [told_to(client) for client in clients] == [[], []]
    for client in clients:  # nobody asks again in each turn
        assert client.session.ticket is not None
        assert not client.session.ticket.done
    known.append("by the other node")
    cluster.run()
    assert [told_to(client)[0].name for client in clients] == ["queue.declare-ok"] * 2


def test_who_is_cut_off_is_told_what_is_there(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    ask(cluster, client, "queue.declare", queue="orders")
    cluster.common["a"].changes.is_known = lambda _revision: False
    cluster.common["a"].changes.coordinator.cut_off = True  # type: ignore[attr-defined]
    (told,) = ask(cluster, client, "queue.declare", queue="orders")
    assert told.name == "queue.declare-ok"
    cluster.common["a"].changes.coordinator.cut_off = False  # type: ignore[attr-defined]


def test_of_two_who_declare_it_differently_at_once_one_is_told_so(cluster: QuietCluster) -> None:
    clients = [cluster.quiet[name].client() for name in "ab"]
    clients[0].method(1, "queue.declare", queue="orders", durable=True)
    clients[1].method(1, "queue.declare", queue="orders", durable=False)
    cluster.run()
    told = [told_to(client)[0] for client in clients]
    assert sorted(one.name for one in told) == ["channel.close", "queue.declare-ok"]
    (closed,) = [one for one in told if one.name == "channel.close"]
    assert closed.fields["code"] == 406
    assert "inequivalent arg 'durable'" in closed.fields["text"]


def test_who_deletes_is_told_how_many_messages_went(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    ask(cluster, client, "queue.declare", queue="orders")
    client.publish("", "orders", b"one")
    client.publish("", "orders", b"two")
    (told,) = ask(cluster, client, "queue.delete", queue="orders")
    assert (told.name, told.fields["messages"]) == ("queue.delete-ok", 2)
    assert cluster.vhost("b").queues == {}


def test_a_queue_without_a_name_gets_one_name(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    (told,) = ask(cluster, client, "queue.declare", queue="")
    assert list(cluster.vhost("b").queues) == [told.fields["queue"]]


def test_an_exclusive_queue_is_locked_everywhere_and_goes_with_its_connection(
    cluster: QuietCluster,
) -> None:
    owner, other = (cluster.quiet[name].client() for name in "ab")
    ask(cluster, owner, "queue.declare", queue="mine", exclusive=True)
    (told,) = ask(cluster, other, "queue.declare", queue="mine")
    assert told.fields["code"] == 405
    (told,) = ask(cluster, owner, "queue.bind", queue="mine", exchange="amq.direct")
    assert told.name == "queue.bind-ok"
    owner.drop()
    cluster.run()
    assert cluster.vhost("a").queues == cluster.vhost("b").queues == {}
    assert not any("mine" in key for key in cluster.store.model.keys)


def test_a_connection_that_is_lost_while_it_declares_leaves_nothing(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    client.method(1, "queue.declare", queue="mine", exclusive=True)
    client.drop()
    cluster.run()
    assert cluster.vhost("b").queues == {}


def test_an_exclusive_queue_goes_with_the_node_of_its_connection(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    ask(cluster, client, "queue.declare", queue="mine", exclusive=True)
    cluster.kill("a")
    cluster.run(500)
    assert cluster.vhost("b").queues == {}
    cluster.start("a")


def test_an_auto_delete_queue_takes_its_exchange_along(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    ask(cluster, client, "exchange.declare", exchange="x", type="fanout", auto_delete=True)
    ask(cluster, client, "queue.declare", queue="q", auto_delete=True)
    ask(cluster, client, "queue.bind", queue="q", exchange="x")
    assert "x" in cluster.vhost("b").exchanges
    ask(cluster, client, "basic.consume", queue="q", consumer_tag="t")
    ask(cluster, client, "basic.cancel", consumer_tag="t")
    cluster.run()
    assert "q" not in cluster.vhost("b").queues
    assert "x" not in cluster.vhost("b").exchanges


def test_two_who_take_its_last_bindings_do_not_leave_an_exchange_behind(
    cluster: QuietCluster,
) -> None:
    clients = [cluster.quiet[name].client() for name in "ab"]
    ask(cluster, clients[0], "exchange.declare", exchange="x", type="fanout", auto_delete=True)
    for client, queue in zip(clients, ("q0", "q1"), strict=True):
        ask(cluster, client, "queue.declare", queue=queue)
        ask(cluster, client, "queue.bind", queue=queue, exchange="x")
    for client, queue in zip(clients, ("q0", "q1"), strict=True):
        client.method(1, "queue.delete", queue=queue)
    cluster.run()
    assert "x" not in cluster.vhost("a").exchanges
    assert "exchanges/%2F/x" not in cluster.store.model.keys


def test_an_expired_queue_goes_everywhere(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    ask(cluster, client, "queue.declare", queue="q", arguments={"x-expires": 1000})
    assert "q" in cluster.vhost("b").queues
    cluster.run(200)
    assert cluster.vhost("b").queues == {}


def test_a_queue_with_very_many_bindings_goes_at_once(cluster: QuietCluster) -> None:
    vhost = cluster.vhost("a")
    client = cluster.quiet["a"].client()
    ask(cluster, client, "queue.declare", queue="q")
    ask(cluster, client, "exchange.declare", exchange="x", type="direct")
    for number in range(120):
        client.method(
            1, "queue.bind", queue="q", exchange="x", routing_key=f"k{number}", nowait=True
        )
        cluster.run(8)
    cluster.run()
    assert len(vhost.exchanges["x"].bindings()) == 120
    (told,) = ask(cluster, client, "exchange.delete", exchange="x")
    assert told.name == "exchange.delete-ok"
    assert not any(key.startswith("bindings/") for key in cluster.store.model.keys)


def test_a_node_that_was_away_loses_what_was_declared_anew(cluster: QuietCluster) -> None:
    client = cluster.quiet["a"].client()
    ask(cluster, client, "queue.declare", queue="q", durable=True)
    cluster.vhost("b").queues["q"].purge()
    first = cluster.vhost("b").queues["q"].incarnation
    cluster.kill("b")
    ask(cluster, client, "queue.delete", queue="q")
    (told,) = ask(cluster, client, "queue.declare", queue="q", durable=True)
    assert told.name == "queue.declare-ok"
    cluster.start("b")
    queue = cluster.vhost("b").queues["q"]
    assert queue.incarnation not in ("", first)
    assert len(cluster.quiet["b"].definitions.load().queues) == 1


def test_a_node_that_was_away_keeps_copies_of_queues_that_are_the_same(
    cluster: QuietCluster,
) -> None:
    def elsewhere(vhost: Vhost, meta: QueueMeta, _owner: object) -> Queue:
        broker = cluster.quiet["b"].broker
        vhost.enter_queue(remote_queue(broker, meta.name, meta.incarnation, meta.arguments))
        return vhost.queues[meta.name]

    cluster.makers["b"] = elsewhere
    cluster.kill("b")
    cluster.start("b")
    client = cluster.quiet["a"].client()
    for name in ("kept", "gone", "anew"):
        ask(cluster, client, "queue.declare", queue=name, durable=True)
        queue = cluster.vhost("b").queues[name]
        assert queue.remote
        cluster.vhost("b").copies.open(name, queue.incarnation, False, {})
    cluster.run()
    cluster.kill("b")
    for name in ("gone", "anew"):
        ask(cluster, client, "queue.delete", queue=name)
    ask(cluster, client, "queue.declare", queue="anew", durable=True)
    cluster.start("b")
    assert sorted(cluster.vhost("b").queues) == ["anew", "kept"]
    assert list(cluster.vhost("b").copies.copies) == ["kept"]
    ask(cluster, client, "queue.delete", queue="kept")
    assert cluster.vhost("b").copies.copies == {}


def test_transient_queues_do_not_outlive_the_process_of_their_node(cluster: QuietCluster) -> None:
    for name in "ab":
        client = cluster.quiet[name].client()
        ask(cluster, client, "queue.declare", queue=f"of {name}")
    cluster.kill("a")
    cluster.run()
    assert "of a" in cluster.vhost("b").queues  # it may have a mirror
    cluster.start("a")
    assert list(cluster.vhost("a").queues) == list(cluster.vhost("b").queues) == ["of b"]


def test_a_node_that_is_cut_off_says_so_and_goes_on(cluster: QuietCluster) -> None:
    client = cluster.quiet["b"].client()
    ask(cluster, client, "queue.declare", queue="q")
    cluster.coordinator.cut_off = True
    client.publish("", "q", b"one")
    (told,) = ask(cluster, client, "basic.get", queue="q", no_ack=True)
    assert told.name == "basic.get-ok"
    (told,) = ask(cluster, client, "queue.declare", queue="q2")
    assert (told.name, told.fields["code"]) == ("connection.close", 541)
    assert "INTERNAL_ERROR - the cluster cannot decide at present" in told.fields["text"]
    cluster.coordinator.cut_off = False
    cluster.run(400)


def test_administration_waits_and_answers_once(cluster: QuietCluster) -> None:
    broker = cluster.quiet["a"].broker
    administration = Administration(broker, 64)
    puts = Request(
        broker.changes.ask(), lambda: administration.put_vhost("v", VhostMetadata(tags=("t",)))
    )
    for _ in range(100):
        if puts.is_decided():
            break
        cluster.run(1)
    assert cluster.quiet["b"].broker.vhosts["v"].metadata.tags == ("t",)
    cluster.coordinator.cut_off = True
    asking = cluster.quiet["b"].broker.changes.ask()
    there = Administration(cluster.quiet["b"].broker, 64)
    with pytest.raises(Unavailable, match="cannot decide"):
        asking.run(lambda: there.put_vhost("w"))
    cluster.coordinator.cut_off = False
    cluster.run(400)


def test_a_request_is_done_once_and_one_that_is_left_stands_in_no_way(
    cluster: QuietCluster,
) -> None:
    broker = cluster.quiet["a"].broker
    administration = Administration(broker, 64)
    asking = broker.changes.ask()
    runs: list[str] = []

    def puts(name: str) -> Request:
        def put() -> None:
            runs.append(name)
            administration.put_vhost(name)

        return Request(asking, put)

    first = puts("v")
    assert not first.is_decided()
    cluster.run()
    assert first.is_decided()
    assert not puts("left").is_decided()
    last = puts("w")
    assert not last.is_decided()
    cluster.run()
    assert last.is_decided()
    assert runs == ["v", "left", "w"]
    assert {"v", "left", "w"} <= set(cluster.quiet["b"].broker.vhosts)


def test_a_virtual_host_goes_on_every_node(cluster: QuietCluster) -> None:
    broker = cluster.quiet["a"].broker
    client = cluster.quiet["a"].client()
    ask(cluster, client, "queue.declare", queue="q", durable=True)
    client.drop()
    deletes = Request(broker.changes.ask(), lambda: broker.changes.delete(VhostRecord("/")))
    while not deletes.is_decided():
        cluster.run(1)
    cluster.run()
    assert "/" not in cluster.quiet["b"].broker.vhosts
    assert not any("%2F" in key for key in cluster.store.model.keys)


def broker_vhost(name: str) -> Any:
    return VhostRecord(name)


def test_definitions_are_imported_by_all(cluster: QuietCluster) -> None:
    broker = cluster.quiet["a"].broker
    work = DefinitionsImport(
        broker,
        Administration(broker, 64),
        ImportPlan(
            {
                "users": [{"name": "u", "password": "x", "limits": {"max-channels": 3}}],
                "vhosts": [{"name": "v", "limits": [], "tracing": True}],
                "permissions": [
                    {"user": "u", "vhost": "v", "configure": ".*", "write": "", "read": ""}
                ],
                "policies": [
                    {"vhost": "v", "name": "p", "pattern": "", "definition": {"max-length": 1}}
                ],
                "exchanges": [{"vhost": "v", "name": "x", "type": "topic"}],
                "queues": [{"vhost": "v", "name": f"q{number}"} for number in range(30)],
                "bindings": [
                    {"vhost": "v", "source": "x", "destination": f"q{number}", "routing_key": "#"}
                    for number in range(30)
                ],
                "global_parameters": [{"name": "g", "value": [1]}],
            }
        ),
        lambda: b"salt",
    )
    for _ in range(1000):
        if work.run(50):
            break
        cluster.run(1)
    assert work.left_out == []
    there = cluster.quiet["b"].broker
    assert len(there.vhosts["v"].exchanges["x"].bindings()) == 30
    assert there.users.users["u"].max_channels == 3
    assert there.vhosts["v"].policies.policies["p"].definition == {"max-length": 1}
    assert there.parameters.value("g") == [1]


def test_topics_and_channels_are_everywhere(cluster: QuietCluster) -> None:
    end = cluster.quiet["a"].nsq_client()
    end.send(b"SUB orders billing\n")
    cluster.run()
    topic = cluster.vhost("b").topics.topics["orders"]
    assert list(topic.channels) == ["billing"]
    publisher = cluster.quiet["b"].nsq_client()
    publisher.send(b"PUB clicks\n\0\0\0\1x")
    cluster.run()
    assert "clicks" in cluster.vhost("a").topics.topics


def test_data_of_another_cluster_is_not_deleted(cluster: QuietCluster, tmp_path: Path) -> None:
    quiet = QuietBroker(SimFileSystem(), str(tmp_path / "other.db"))
    vhost = quiet.broker.vhosts["/"]
    vhost.declare_queue("precious", True, None, False, {})
    quiet.broker.parameters.put(ParameterRecord(CLUSTER_ID, "another"))
    joining = CommonMetadata(
        quiet.broker, cluster.store.join("c/1"), "c", "c/1", 64, lambda *_: False
    )
    cluster.run()
    with pytest.raises(ForeignData, match="another cluster"):
        joining.turn(cluster.mono_ms, joining.changes.coordinator.take_events())
    assert "precious" in vhost.queues


def test_rights_are_asked_first_and_nothing_is_proposed(cluster: QuietCluster) -> None:
    broker = cluster.quiet["a"].broker
    revision = cluster.store.model.revision
    rights = Rights(broker.users.users["guest"], "closed")
    asking = broker.changes.ask()
    with pytest.raises(Exception, match="refused for user"):
        asking.run(lambda: delete_queue(cluster.vhost("a"), rights, "q", None, False, False))
    assert cluster.store.model.revision == revision
