"""Members of quorum queues in a cluster: over HTTP, and by penstockctl."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from penstock.broker.mirrors import MASTER, MIRROR, MirrorFacts
from penstock.cli.main import cli
from tests.ctl.conftest import Said, penstockctl
from tests.helpers.mirrored import A, B, C, FakeMirrors, copy, members, served_in_a_cluster
from tests.management.conftest import Served

QUORUM = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
LED_HERE, LED_THERE = "here", "there"
ON = f"/api/queues/quorum/replicas/on/{C}"
NO_LEADER = "/api/health/checks/quorum-queues-without-elected-leaders/"
CRITICAL = "/api/health/checks/node-is-quorum-critical"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_in_a_cluster(tmp_path_factory.mktemp("node")) as running:
        for name in (LED_HERE, LED_THERE):
            assert put(running, f"/api/queues/%2F/{name}", QUORUM) == 201
        running.node.broker.changes.homes = lambda: [A, B, C]  # type: ignore[method-assign]
        yield running


@pytest.fixture
def mirrors(served: Served) -> FakeMirrors:
    """Three copies of one queue, two of the other."""
    fake = FakeMirrors()
    fake.known["/", LED_HERE] = members(
        copy(A, MASTER, True), copy(B, MIRROR, True), copy(C, MIRROR, True)
    )
    fake.known["/", LED_THERE] = members(copy(B, MASTER, True), copy(A, MIRROR, True))
    fake.wanted = {LED_HERE: (A, B, C), LED_THERE: (B, A)}
    served.node.broker.mirrors = fake
    return fake


def put(served: Served, path: str, body: object, method: str = "PUT") -> int:
    return served.request(method, path, json.dumps(body).encode()).status


def replicas(served: Served, queue: str, verb: str, node: str) -> int:
    method = "POST" if verb == "add" else "DELETE"
    return put(served, f"/api/queues/quorum/%2F/{queue}/replicas/{verb}", {"node": node}, method)


def ctl(served: Served, *words: str) -> Said:
    where = ("--url", f"http://127.0.0.1:{served.port}", "--user", "guest", "--password", "guest")
    return penstockctl("", *words, *where)


def test_rows_name_the_leader_and_members(served: Served, mirrors: FakeMirrors) -> None:
    mirrors.known["/", LED_THERE] = members(copy(B, MASTER, True), away=C, learning=A)
    row = served.get(f"/api/queues/%2F/{LED_THERE}")
    assert (row["leader"], row["members"], row["online"]) == (B, [B, C, A], [B, A])
    assert "leader" not in served.get("/api/queues/%2F/plain")
    said = ctl(served, "list_queues", "-s", "name", "leader", "members", "online")
    assert f"{LED_THERE}\t{B}\t[{B}, {C}, {A}]\t[{B}, {A}]" in said.out.splitlines()
    status = served.get(f"/api/queues/quorum/%2F/{LED_HERE}/status")
    assert [(one["Node Name"], one["Raft State"]) for one in status] == [
        (A, "leader"),
        (B, "follower"),
        (C, "follower"),
    ]
    rows = json.loads(ctl(served, "quorum_status", LED_HERE, "--formatter", "json").out)
    assert [one["Node Name"] for one in rows] == [A, B, C]


def test_a_member_is_added_and_taken_away(served: Served, mirrors: FakeMirrors) -> None:
    assert replicas(served, LED_THERE, "add", C) == 204
    assert mirrors.wanted[LED_THERE] == (B, A, C)
    assert ctl(served, "delete_member", LED_THERE, A).code == 0
    assert mirrors.wanted[LED_THERE] == (B, C)
    assert replicas(served, LED_THERE, "delete", B) == 503
    said = ctl(served, "delete_member", LED_THERE, B)
    assert (said.code, "drain its node first" in said.err) == (69, True)
    assert mirrors.wanted[LED_THERE] == (B, C)


def test_a_node_is_made_the_leader(served: Served, mirrors: FakeMirrors) -> None:
    assert ctl(served, "transfer_leadership", LED_HERE, C).code == 0
    assert mirrors.asked == [("hand_over", LED_HERE, C)]
    said = ctl(served, "transfer_leadership", LED_HERE, "penstock@nowhere")
    assert "is not a member of the cluster" in said.err
    assert len(mirrors.asked) == 1


def test_queues_grow_to_a_number_of_copies(served: Served, mirrors: FakeMirrors) -> None:
    """Each gets it on the node that has fewest; one with enough stays as it is."""
    before = dict(mirrors.wanted)
    assert ctl(served, "grow_to_count", "3", "even", "--queue-pattern", "^no").code == 0
    assert mirrors.wanted == before
    said = ctl(served, "grow_to_count", "-s", "3", "all")
    assert said.out.splitlines() == [f"/\t{LED_THERE}\t3\tok"]
    assert mirrors.wanted == before | {LED_THERE: (B, A, C)}
    for words in (("4", "all"), ("none", "all"), ("3", "some")):
        assert ctl(served, "grow_to_count", *words).code == 64
    assert ctl(served, "grow_to_count", "3", "all", "--queue-pattern", "(").code == 64


def test_a_node_gets_copies_and_gives_them_up(served: Served, mirrors: FakeMirrors) -> None:
    body = {"strategy": "even", "queue_pattern": "^no"}
    assert put(served, ON + "/grow", body, "POST") == 204
    assert mirrors.wanted[LED_THERE] == (B, A)
    assert put(served, ON + "/grow", body | {"queue_pattern": "("}, "POST") == 400
    assert ctl(served, "grow", C, "even").code == 0
    assert mirrors.wanted[LED_THERE] == (B, A, C)
    mirrors.wanted[LED_THERE] = (B, A)
    said = ctl(served, "shrink", "-s", A)
    assert sorted(said.out.splitlines()) == [
        "/\there\t3\terror: the leader's node cannot be removed: drain it first",
        "/\tthere\t1\tok",
    ]
    assert mirrors.wanted == {LED_HERE: (A, B, C), LED_THERE: (B,)}
    only = ctl(served, "shrink", "-s", "--errors-only", A).out
    assert only.startswith("/\there")
    assert "there\t1" not in only


def test_the_command_line_does_so_too(served: Served, mirrors: FakeMirrors) -> None:
    where = ("--url", f"http://127.0.0.1:{served.port}", "--user", "guest", "--password", "guest")
    for words in (("grow", C, "--even"), ("shrink", A)):
        result = CliRunner().invoke(cli, ["cluster", *words, *where])
        assert result.exit_code == 0, result.output
    assert mirrors.wanted == {LED_HERE: (A, B, C), LED_THERE: (B, C)}


@pytest.mark.parametrize(
    "facts, is_critical",
    [
        (members(copy(A, MASTER, True), copy(B, MIRROR, True), copy(C, MIRROR, True)), False),
        (members(copy(A, MASTER, True), copy(B, MIRROR, True), away=C), True),
        (members(copy(B, MASTER, True), copy(C, MIRROR, True), away=A), False),
        (members(copy(A, MASTER, True), copy(B, MIRROR, False)), True),
        (members(copy(A, MASTER, True), copy(B, MIRROR, True), copy(C, MIRROR, False)), True),
    ],
)
def test_a_node_that_a_majority_needs(
    served: Served, mirrors: FakeMirrors, facts: MirrorFacts, is_critical: bool
) -> None:
    mirrors.known = {("/", LED_HERE): facts}
    answer = served.request("GET", CRITICAL)
    assert answer.status == (503 if is_critical else 200)
    said = ctl(served, "check_if_node_is_quorum_critical")
    waited = ctl(served, "await_online_quorum_plus_one", "--timeout", "0")
    assert (said.code, waited.code) == ((69, 69) if is_critical else (0, 0))
    if is_critical:
        assert json.loads(answer.body)["queues"] == [
            {
                "name": LED_HERE,
                "readable_name": f"queue '{LED_HERE}' in vhost '/'",
                "type": "quorum",
                "virtual_host": "/",
            }
        ]
        text = f"queue '{LED_HERE}' in vhost '/' would lose quorum if node {A} is stopped"
        assert text in said.err


def test_queues_without_a_leader(served: Served, mirrors: FakeMirrors) -> None:
    checked = ("check_for_quorum_queues_without_an_elected_leader", "^h")
    assert ctl(served, *checked).code == 0
    leaderless = members(away=C)
    leaderless.copies = []
    mirrors.known["/", LED_HERE] = leaderless
    assert served.get(f"/api/queues/%2F/{LED_HERE}")["leader"] == ""
    for place, status in (
        ("all-vhosts/", 503),
        ("vhost/%2F/pattern/%5Eh", 503),
        ("vhost/%2F/pattern/%5Et", 200),
        ("vhost/%2F/pattern/(", 400),
        ("vhost/nosuch/", 404),
    ):
        assert served.request("GET", NO_LEADER + place).status == status, place
    said = ctl(served, *checked)
    assert (said.code, said.err) == (
        69,
        f"queue '{LED_HERE}' in vhost '/' has no elected leader\n",
    )


def test_a_copy_that_does_not_vote_yet(served: Served, mirrors: FakeMirrors) -> None:
    checked = "check_if_new_quorum_queue_replicas_have_finished_initial_sync"
    assert ctl(served, checked).code == 0
    mirrors.known["/", LED_THERE] = members(copy(B, MASTER, True), copy(A, MIRROR, False))
    said = ctl(served, checked)
    assert (said.code, said.err) == (
        69,
        f"queue '{LED_THERE}' in vhost '/' has a promotable replica\n",
    )
