"""penstockctl about mirrored queues: RabbitMQ 3.10.8's words of two nodes, recorded by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pytest

from penstock.broker.mirrors import MASTER, MIRROR, MasterMove
from penstock.node.inspection.session_inspector import NodeSessionInspector
from tests.ctl.conftest import Said, penstockctl
from tests.helpers.mirrored import A, B, C, FakeMirrors, copy, down, facts, served_in_a_cluster
from tests.management.conftest import Served

CRITICAL = "check_if_node_is_mirror_sync_critical"
NONE = "classic mirrored queues without online synchronised mirrors"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_in_a_cluster(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def mirrors(cluster: Served) -> FakeMirrors:
    fake = FakeMirrors()
    fake.known["/", "orders"] = facts()
    fake.known["/", "behind"] = facts(copy(A, MASTER, True), copy(B, MIRROR, False))
    fake.known["/", "gone"] = down("no mirror is there", {C: "synced"})
    cluster.node.broker.mirrors = fake
    return fake


def ctl(served: Served, *words: str) -> Said:
    where = ("--url", f"http://127.0.0.1:{served.port}", "--user", "guest", "--password", "guest")
    return penstockctl("", *words, *where)


def test_a_queue_is_synchronised(cluster: Served, mirrors: FakeMirrors) -> None:
    said = ctl(cluster, "sync_queue", "behind")
    assert said == (0, "Synchronising queue 'behind' in vhost '/' ...\n", "")
    assert mirrors.asked == [("sync", "behind")]


@pytest.mark.parametrize(
    "queue, why",
    [
        ("plain", "not_mirrored"),
        ("nosuch", "not_found"),
        ("gone", "the queue has no master: it is down"),
    ],
)
def test_what_cannot_be_synchronised(
    cluster: Served, mirrors: FakeMirrors, queue: str, why: str
) -> None:
    said = ctl(cluster, "sync_queue", queue)
    assert (said.code, said.err) == (69, f"Error:\n{why}\n")
    assert mirrors.asked == []


def test_a_synchronisation_is_cancelled(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", "behind"].state = "syncing"
    said = ctl(cluster, "cancel_sync_queue", "behind")
    assert said == (0, "Stopping synchronising queue 'behind' in vhost '/' ...\n", "")
    assert mirrors.asked == [("cancel_sync", "behind")]


def test_nothing_is_cancelled_where_nothing_is_fetched(
    cluster: Served, mirrors: FakeMirrors
) -> None:
    said = ctl(cluster, "cancel_sync_queue", "orders")
    assert (said.code, said.out.splitlines()[-1]) == (0, "not_syncing")
    assert mirrors.asked == []


def test_columns_of_mirrors(cluster: Served, mirrors: FakeMirrors) -> None:
    columns = ("name", "pid", "slave_pids", "synchronised_slave_pids", "slave_nodes")
    said = ctl(cluster, "list_queues", "-s", *columns)
    assert sorted(said.out.splitlines()) == [
        f"behind\t{A}\t[{B}]\t[]\t[{B}]",
        f"gone\t{C}\t[]\t[]\t[]",
        f"orders\t{A}\t[{B}]\t[{B}]\t[{B}]",
        f"plain\t{A}\t\t\t",
    ]
    rows = json.loads(ctl(cluster, "list_queues", "--formatter", "json", *columns).out)
    by_name = {row["name"]: row for row in rows}
    assert by_name["orders"]["slave_pids"] == [B]
    assert by_name["plain"]["slave_pids"] == ""


def test_queues_that_are_down(cluster: Served, mirrors: FakeMirrors) -> None:
    assert ctl(cluster, "list_queues", "-s", "--offline", "name").out == "gone\n"
    online = ctl(cluster, "list_queues", "-s", "--online", "name", "state").out
    assert sorted(online.splitlines()) == ["behind\trunning", "orders\trunning", "plain\trunning"]


def test_masters_are_spread(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.moves = [MasterMove("/", "orders", A, B)]
    said = ctl(cluster, "rebalance", "classic", "--formatter", "json", "--queue-pattern", "^o")
    name, quorum, classic = (
        "Node name",
        "Number of quorum queues",
        "Number of replicated classic queues",
    )
    assert json.loads(said.out)["value"] == [
        [[name, A], [quorum, 0], [classic, 1]],
        [[name, B], [quorum, 0], [classic, 1]],
    ]
    assert mirrors.asked == [("rebalance", ".*", "^o", "classic")]
    value = json.loads(ctl(cluster, "rebalance", "quorum", "--formatter", "json").out)["value"]
    assert value == [[[name, B], [quorum, 1], [classic, 0]]]
    assert mirrors.asked[1] == ("rebalance", ".*", ".*", "quorum")
    lines = ctl(cluster, "rebalance", "all").out.splitlines()
    assert lines[0] == "Re-balancing leaders of all queues..."
    assert classic in lines[2]
    assert ctl(cluster, "post_upgrade").out.splitlines() == [
        "Executing post upgrade tasks...",
        "Rebalancing queue masters...",
        f'[{{"{name}","{A}"}},{{"{quorum}",0}},{{"{classic}",1}}]',
        f'[{{"{name}","{B}"}},{{"{quorum}",0}},{{"{classic}",1}}]',
    ]


def test_what_is_not_rebalanced(cluster: Served, mirrors: FakeMirrors) -> None:
    said = ctl(cluster, "rebalance", "streams")
    assert (said.code, said.err) == (
        69,
        "Error:\ntype streams is not supported. Try one of all, classic, quorum.\n",
    )
    assert mirrors.asked == []


def test_a_node_whose_masters_are_alone(cluster: Served, mirrors: FakeMirrors) -> None:
    said = ctl(cluster, CRITICAL)
    assert said.code == 69
    assert said.err == (
        "queue 'behind' in vhost '/' would lose its only synchronised replica (master) if node"
        f" {A} is stopped\n"
    )
    said = ctl(cluster, CRITICAL, "--formatter", "json")
    assert json.loads(said.err) == {
        "message": f"Node {A} reported local {NONE}",
        "queues": [
            {
                "name": "behind",
                "readable_name": "queue 'behind' in vhost '/'",
                "type": "classic",
                "virtual_host": "/",
            }
        ],
        "result": "error",
    }
    said = ctl(cluster, "await_online_synchronized_mirror", "--timeout", "0")
    assert (said.code, said.err.splitlines()[1][:10]) == (69, "time is up")


def test_a_node_without_which_nothing_is_down(cluster: Served, mirrors: FakeMirrors) -> None:
    del mirrors.known["/", "behind"]
    said = ctl(cluster, CRITICAL)
    assert (said.code, said.out.splitlines()[-1]) == (0, f"Node {A} reported no {NONE}")
    assert ctl(cluster, "await_online_synchronized_mirror").code == 0
    said = ctl(cluster, "check_if_node_is_quorum_critical")
    assert said.out.splitlines()[-1] == (f"Node {A} reported no quorum queues with minimum quorum")


def test_the_status_of_a_cluster_names_every_node(cluster: Served, mirrors: FakeMirrors) -> None:
    mirrors.out = [B]
    found = json.loads(ctl(cluster, "cluster_status", "--formatter", "json").out)
    assert found["disk_nodes"] == [A, B, C]
    assert found["running_nodes"] == list(found["versions"]) == [A, B]
    assert found["maintenance_status"] == {
        A: "not under maintenance",
        B: "marked for maintenance",
    }
    assert [one["protocol"] for one in found["listeners"][B]] == ["clustering"]
    assert found["partitions"] == {}
    page = ctl(cluster, "cluster_status").out
    assert f"Node: {B}, status: marked for maintenance" in page
    assert f"{B}: Penstock 1.2" in page


def test_a_node_that_cannot_be_reached_is_told(cluster: Served, mirrors: FakeMirrors) -> None:
    watch = cast(NodeSessionInspector, cluster.view.watch)
    connected = watch._cluster_facts

    def cut() -> dict[str, object]:
        found = connected()
        nodes = cast(list[dict[str, object]], found["nodes"])
        nodes[1]["link"] = {"connected": False}
        return found

    watch._cluster_facts = cut
    try:
        found = json.loads(ctl(cluster, "cluster_status", "--formatter", "json").out)
        assert found["partitions"] == {A: [B]}
        assert f"Node {A} cannot communicate with {B}" in ctl(cluster, "cluster_status").out
    finally:
        watch._cluster_facts = connected


def test_nodes_are_waited_for(cluster: Served, mirrors: FakeMirrors) -> None:
    assert ctl(cluster, "await_online_nodes", "2").code == 0
    said = ctl(cluster, "await_online_nodes", "3", "--timeout", "0")
    assert said.code == 70
    assert "Not enough nodes joined" in said.err
