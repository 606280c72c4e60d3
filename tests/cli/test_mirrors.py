"""Mirrored queues from the command line, of a node that believes to be one of three."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from penstock.broker.mirrors import MASTER, MIRROR, MasterMove, SyncProgress
from penstock.cli.main import cli
from tests.helpers.mirrored import A, B, C, FakeMirrors, copy, down, facts, served_in_a_cluster
from tests.management.conftest import Served

Say = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_in_a_cluster(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def mirrors(cluster: Served) -> FakeMirrors:
    fake = FakeMirrors()
    fake.known["/", "orders"] = facts()
    fake.known["/", "behind"] = facts(
        copy(A, MASTER, True),
        copy(B, MIRROR, False, SyncProgress(1200, 5000, 99_000, 400, 9500)),
        state="syncing",
        why=f"{B}: fetching what they lack",
    )
    fake.known["/", "gone"] = down("no mirror is there", {C: "synced"})
    cluster.node.broker.mirrors = fake
    return fake


@pytest.fixture
def say(cluster: Served) -> Say:
    where = ("--url", f"http://127.0.0.1:{cluster.port}", "--user", "guest", "--password", "guest")

    def run(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [*words, *where])
        assert result.exit_code == code, result.output
        return result

    return run


def test_the_cluster_says_what_is_not_as_it_should_be(say: Say, mirrors: FakeMirrors) -> None:
    mirrors.out = [B]
    lines = say("cluster", "status").stdout.splitlines()
    assert lines[3] == "mirrored     3 queues, 1 down"
    nodes = {line.split()[0]: line for line in lines if line.startswith("penstock@")}
    assert nodes[A].split()[4:] == ["2", "0", "0", "asked", "0"]
    assert "running, drained" in nodes[B]
    assert nodes[B].split()[-5:] == ["0", "2", "1", "connected", "0"]
    assert "down" in nodes[C]
    (behind,) = [line for line in lines if "behind" in line]
    assert "1 of 2" in behind
    assert f"{B}: 1200 of 5000 messages (24 %), 9 s left" in behind
    (gone,) = [line for line in lines if "gone" in line]
    assert gone.split()[:3] == ["/", "gone", "down"]
    assert gone.endswith("no mirror is there")
    assert "orders" not in "\n".join(lines)
    found = json.loads(say("cluster", "status", "-o", "json").stdout)
    assert sorted(row["name"] for row in found["queues"]) == ["behind", "gone"]


def test_copies_of_a_queue(say: Say, mirrors: FakeMirrors) -> None:
    text = say("queue", "mirrors", "behind").stdout
    assert f"state    syncing: {B}: fetching what they lack" in text
    assert "view     version 9, term 3" in text
    assert f"ring     version 4: {A}/1#1, {B}/1#1" in text
    (row,) = [line for line in text.splitlines() if line.startswith(B)]
    assert row.split()[1:6] == ["mirror", "no", "60", "60", "10"]
    assert (
        f"{C} is no member now and has everything there was"
        in say("queue", "mirrors", "gone").stdout
    )
    assert "has no mirrors" in say("queue", "mirrors", "plain", code=1).stderr


def test_the_reason_for_no_mirrors_is_the_queues_own(
    say: Say, cluster: Served, mirrors: FakeMirrors
) -> None:
    cluster.request("PUT", "/api/queues/%2F/passing", b'{"durable":false}')
    cluster.request("PUT", "/api/queues/%2F/alone", b'{"durable":true}')
    for name, reason, fix in (
        ("passing", "is not durable", "with --durable"),
        ("alone", "has no mirrors", "a policy with ha-mode"),
        ("nosuch", "there is no queue 'nosuch'", "`penstock queues`"),
    ):
        output = " ".join(say("queue", "mirrors", name, code=1).output.split())
        assert reason in output
        assert fix in output


def test_a_queue_is_synchronised_and_handed_over(say: Say, mirrors: FakeMirrors) -> None:
    say("queue", "sync", "orders", "--wait")
    say("queue", "cancel-sync", "orders")
    say("queue", "hand-over", "orders", "--to", B)
    assert mirrors.asked == [
        ("sync", "orders"),
        ("cancel_sync", "orders"),
        ("hand_over", "orders", B),
    ]
    assert "has no mirrors" in say("queue", "sync", "plain", code=1).stderr


def test_waiting_for_a_synchronisation_has_an_end(say: Say, mirrors: FakeMirrors) -> None:
    result = say("queue", "sync", "behind", "--wait", "--timeout", "0", code=1)
    assert f"{B}: not synchronised after 0 s" in result.stderr
    result = say("queue", "sync", "gone", "--wait", code=1)
    assert "queue 'gone' has no master: no mirror is there" in result.stderr


def test_masters_are_spread(say: Say, mirrors: FakeMirrors) -> None:
    assert say("cluster", "rebalance").stdout == "nothing to move\n"
    mirrors.moves = [MasterMove("/", "orders", A, B)]
    text = say("cluster", "rebalance", "--queue-pattern", "^o").stdout
    assert text.splitlines()[1].split() == ["/", "orders", A, B]
    assert mirrors.asked[-1] == ("rebalance", ".*", "^o", "all")


def test_a_drain_waits_for_masters_that_can_go(say: Say, mirrors: FakeMirrors) -> None:
    mirrors.to_go = [("/", "orders"), ("/", "orders"), ("/", "bills"), ("/", "dues")]
    done = say("drain", "--wait", "--timeout", "10")
    assert "waiting for 3 masters (queue 'orders' in vhost '/', queue 'bills'" in done.stderr
    assert mirrors.looked == 4


def test_a_drain_that_takes_too_long_says_what_is_left(say: Say, mirrors: FakeMirrors) -> None:
    mirrors.to_go = [("/", "orders")] * 10
    left = say("drain", "--wait", "--timeout", "0", code=1)
    assert "still there after 0 s: 9 masters (queue 'orders' in vhost '/'" in left.output
