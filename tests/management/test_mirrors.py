"""Mirrored queues over HTTP: RabbitMQ's fields and actions, and what ours say beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock.broker.mirrors import MASTER, MIRROR, MasterMove, SyncProgress
from penstock.node.inspection.session_inspector import NodeSessionInspector
from tests.helpers.mirrored import A, B, C, FakeMirrors, copy, down, facts, served_in_a_cluster
from tests.management.conftest import Served

Q = "/api/queues/%2F/"
CRITICAL = "/api/health/checks/node-is-mirror-sync-critical"
OURS = "/api/penstock/mirrors"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that believes to be a node of three, the third of which is down."""
    with served_in_a_cluster(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def mirrors(cluster: Served) -> FakeMirrors:
    fake = FakeMirrors()
    cluster.node.broker.mirrors = fake
    return fake


def syncing() -> SyncProgress:
    return SyncProgress(1200, 5000, 99_000, 400, 9500)


def act(served: Served, queue: str, **asked: Any) -> int:
    return served.request("POST", Q + queue + "/actions", json.dumps(asked).encode()).status


class Counted(FakeMirrors):
    def changes(self) -> dict[str, int]:
        return {"left": 3, "promoted": 0}


def test_what_became_of_copies_is_a_metric(cluster: Served) -> None:
    cluster.node.broker.mirrors = Counted()
    text = cluster.request("GET", "/metrics").body.decode()
    assert 'penstock_mirror_changes_total{change="left"} 3' in text
    assert 'penstock_mirror_changes_total{change="promoted"} 0' in text


# -- rows --------------------------------------------------------------------------------------


def test_a_queue_without_mirrors_has_no_slaves(cluster: Served, mirrors: FakeMirrors) -> None:
    row = cluster.get(Q + "plain")
    assert row["recoverable_slaves"] is None
    assert not row.keys() & {"slave_nodes", "synchronised_slave_nodes", "sync_messages"}


def test_the_fields_of_a_mirrored_queue(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", "orders"] = facts(
        copy(B, MASTER, True), copy(A, MIRROR, True), recoverable={C: "partial"}
    )
    for row in (cluster.get(Q + "orders"), *cluster.get("/api/queues?name=orders&page=1")["items"]):
        assert row["node"] == B
        assert row["state"] == "running"
        assert row["slave_nodes"] == row["synchronised_slave_nodes"] == [A]
        assert row["recoverable_slaves"] == [A, C]
        assert "sync_messages" not in row


def test_a_queue_that_is_being_synchronised(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", "behind"] = facts(
        copy(A, MASTER, True), copy(B, MIRROR, False, syncing()), state="syncing"
    )
    row = cluster.get(Q + "behind")
    assert (row["state"], row["sync_messages"]) == ("syncing", 1200)
    assert (row["slave_nodes"], row["synchronised_slave_nodes"]) == ([B], [])


@pytest.mark.parametrize("state", ["down", "waiting"])
def test_a_queue_without_a_master_is_down(
    cluster: Served, mirrors: FakeMirrors, state: str
) -> None:
    mirrors.known["/", "gone"] = found = down("no mirror is there", {C: "synced"})
    found.state = state
    row = cluster.get(Q + "gone")
    assert row["state"] == "down"
    assert (row["slave_nodes"], row["recoverable_slaves"]) == ([], [C])
    assert row["node"] == C, "it waits for that node, not for the one it was declared on"
    found.recoverable = {B: "partial", C: "partial"}
    assert cluster.get(Q + "gone")["node"] == ""


def test_all_that_is_known_of_mirrors(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", "behind"] = facts(
        copy(A, MASTER, True), copy(B, MIRROR, False, syncing()), state="syncing", why="because"
    )
    (row,) = cluster.get(OURS)
    assert row == cluster.get("/api/penstock/queues/%2F/behind/mirrors")
    assert (row["vhost"], row["name"], row["version"], row["term"]) == ("/", "behind", 9, 3)
    assert (row["mode"], row["state"], row["why"]) == ("all, manual", "syncing", "because")
    assert row["master"] == A
    master, mirror = row["copies"]
    assert (master["role"], master["behind"], master["sync"]) == ("master", 0, None)
    assert (mirror["node"], mirror["applied"], mirror["behind"]) == (B, 60, 10)
    assert mirror["sync"] == {
        "messages": 1200,
        "messages_total": 5000,
        "bytes": 99_000,
        "rate": 400,
        "eta_ms": 9500,
    }
    assert row["ring"]["members"] == [
        {"name": f"{A}/1#1", "dead": False},
        {"name": f"{B}/1#1", "dead": False},
    ]


def test_the_list_is_paged_and_sorted(cluster: Served, mirrors: FakeMirrors) -> None:
    for name in ("orders", "behind", "gone"):
        mirrors.known["/", name] = facts()
    page = cluster.get(OURS + "/%2F?page=1&page_size=2&sort=name&columns=name")
    assert [row["name"] for row in page["items"]] == ["behind", "gone"]
    assert page["total_count"] == 3


def test_nobody_sees_queues_of_closed_virtual_hosts(cluster: Served, mirrors: FakeMirrors) -> None:
    cluster.add_user("mon", "m", ["management"])
    mirrors.known["/", "orders"] = facts()
    assert cluster.get(OURS, "mon") == []
    assert cluster.ask(OURS + "/%2F", "mon").status == 401


def test_mirrors_of_a_queue_without_any(cluster: Served, mirrors: FakeMirrors) -> None:
    answer = cluster.ask("/api/penstock/queues/%2F/plain/mirrors")
    assert answer.status == 404
    assert "queue 'plain' in vhost '/' is not mirrored" in str(answer.body)


# -- what people do ------------------------------------------------------------------------------


def test_synchronising_and_cancelling(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", "orders"] = facts()
    assert act(cluster, "orders", action="sync") == 204
    assert act(cluster, "orders", action="cancel_sync") == 204
    assert act(cluster, "orders", action="hand_over", node=B) == 204
    assert mirrors.asked == [
        ("sync", "orders"),
        ("cancel_sync", "orders"),
        ("hand_over", "orders", B),
    ]


def test_without_mirrors_there_is_nothing_to_synchronise(
    cluster: Served, mirrors: FakeMirrors
) -> None:
    assert act(cluster, "plain", action="sync") == 204  # as RabbitMQ answers
    assert act(cluster, "plain", action="hand_over", node=B) == 400
    assert act(cluster, "plain", action="hand_over") == 400
    assert act(cluster, "nosuch", action="sync") == 404


def test_masters_are_spread(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.moves = [MasterMove("/", "orders", A, B)]
    assert cluster.request("POST", "/api/rebalance/queues", b"{}").status == 204
    body = json.dumps({"queue_pattern": "^o"}).encode()
    answer = cluster.request("POST", "/api/rebalance/queues?moves=true", body)
    assert json.loads(answer.body) == [{"vhost": "/", "name": "orders", "from": A, "to": B}]
    assert mirrors.asked == [("rebalance", ".*", ".*", "all"), ("rebalance", ".*", "^o", "all")]


def test_who_is_drained_takes_no_masters(cluster: Served, mirrors: FakeMirrors) -> None:
    def drained() -> list[bool]:
        return [node["drained"] for node in cluster.get("/api/penstock/cluster")["nodes"]]

    assert cluster.request("POST", "/api/penstock/drain").status == 200
    assert drained() == [True, False, False]
    assert cluster.request("POST", "/api/penstock/revive").status == 200
    assert drained() == [False, False, False]


# -- the cluster ---------------------------------------------------------------------------------


def test_what_each_node_has(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", "orders"] = facts()
    mirrors.known["/", "behind"] = facts(copy(A, MASTER, True), copy(B, MIRROR, False))
    mirrors.known["/", "gone"] = down("no mirror is there", {C: "synced"})
    found = cluster.get("/api/penstock/cluster")
    assert (found["mirrored_queues"], found["mirrored_queues_down"]) == (3, 1)
    keys = ("name", "masters", "mirrors", "unsynchronised_mirrors")
    assert [tuple(node[key] for key in keys) for node in found["nodes"]] == [
        (A, 2, 0, 0),
        (B, 0, 2, 1),
        (C, 0, 0, 0),
    ]


def test_all_nodes_are_listed_the_one_that_is_asked_first(
    cluster: Served, mirrors: FakeMirrors
) -> None:
    here, second, third = cluster.get("/api/nodes")
    assert (here["name"], here["running"]) == (A, True)
    assert here["cluster_links"] == [
        {
            "name": B,
            "peer_addr": "127.0.0.1",
            "peer_port": 25672,
            "stats": {"recv_bytes": 700, "send_bytes": 900},
            "recv_bytes": 700,
            "send_bytes": 900,
        }
    ]
    assert (second["name"], second["running"]) == (B, True)
    assert third == cluster.get(f"/api/nodes/{C}")
    assert third == {
        "name": C,
        "type": "disc",
        "running": False,
        "being_drained": False,
        "mem_alarm": False,
        "disk_free_alarm": False,
        "partitions": [],
        "cluster_links": [],
    }
    assert cluster.ask("/api/nodes/penstock@nowhere").status == 404


def test_a_node_whose_masters_are_alone_is_critical(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", "orders"] = facts()
    mirrors.known["/", "gone"] = facts(copy(B, MASTER, True))  # another node's
    assert cluster.get(CRITICAL) == {"status": "ok"}
    mirrors.known["/", "behind"] = facts(copy(A, MASTER, True), copy(B, MIRROR, False))
    answer = cluster.ask(CRITICAL)
    assert answer.status == 503
    assert json.loads(answer.body) == {
        "status": "failed",
        "reason": "There are classic mirrored queues without online synchronised mirrors",
        "queues": [
            {
                "name": "behind",
                "readable_name": "queue 'behind' in vhost '/'",
                "type": "classic",
                "virtual_host": "/",
            }
        ],
    }


def test_a_node_that_stands_alone_is_told_so(served: Served) -> None:
    assert served.get(CRITICAL) == {"status": "ok", "reason": "single node cluster"}
    assert served.get(OURS) == []


def test_a_node_that_is_cut_off_wants_no_clients(cluster: Served) -> None:
    watch = cast(NodeSessionInspector, cluster.view.watch)
    told = watch._cluster_facts
    why = f"node '{A}' is cut off: it hears neither the coordinator nor {B}"

    def cut_off() -> dict[str, object]:
        rows = cast(list[dict[str, Any]], told()["nodes"])
        rows[1]["link"]["connected"] = False
        return {**told(), "nodes": rows, "cut_off": why}

    watch._cluster_facts = cut_off
    try:
        ready = cluster.ask("/healthz/ready", "")
        assert (ready.status, json.loads(ready.body)["reason"]) == (503, why)
        assert cluster.ask("/api/health/checks/is-in-service", "").status == 503
        assert cluster.get(f"/api/nodes/{A}")["partitions"] == [B]
    finally:
        watch._cluster_facts = told
    assert cluster.ask("/healthz/ready", "").status == 200
    assert cluster.get(f"/api/nodes/{A}")["partitions"] == []
