"""Each path of RabbitMQ 4.3.6's management API is judged: served with its methods, or left out."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest

from tests.management.conftest import Raw, Served

PATHS = Path(__file__).with_name("rabbitmq-4.3-paths.txt")
ALWAYS = {"HEAD", "OPTIONS"}
SAMPLES = {"dtype": "q", "vhost": "%2F"}


class Judged(NamedTuple):
    """A line of the list; ``reason``: why the path is not served as a whole."""

    path: str
    methods: set[str]
    reason: str


def judged() -> list[Judged]:
    found = []
    for line in PATHS.read_text().splitlines():
        if line.startswith("#"):
            continue
        told, _, reason = line.partition(" - ")
        methods, _, path = told.partition(" ")
        left_out = re.match(r"([A-Z]+): ", reason)
        wanted = set(methods.split(",")) - ({left_out[1]} if left_out else set())
        found.append(Judged(path, wanted, "" if left_out else reason))
    return found


def asked(served: Served, method: str, path: str, body: Any = None) -> Raw:
    return served.request(method, path, None if body is None else json.dumps(body).encode())


@pytest.mark.parametrize("one", judged(), ids=lambda one: one.path)
def test_a_path_is_served_with_its_methods_or_left_out(one: Judged, served: Served) -> None:
    path = re.sub(r"\{(\w+)\}", lambda name: SAMPLES.get(name[1], "x"), one.path)
    answer = asked(served, "OPTIONS", path)
    if one.reason:
        assert answer.status == 404
    else:
        allowed = answer.headers["Allow"] or ""
        assert one.methods <= set(re.split(r",\s*", allowed)) - ALWAYS


# -- quorum queues -----------------------------------------------------------------------------


@pytest.fixture
def quorum(served: Served) -> Served:
    served.declare("members", arguments={"x-queue-type": "quorum"})
    served.declare("plain")
    return served


MEMBERS = "/api/queues/quorum/%2F/"


def test_the_status_of_a_quorum_queue_has_its_one_member(quorum: Served) -> None:
    (row,) = quorum.get(MEMBERS + "members/status")
    assert row["Node Name"] == "penstock@test"
    assert (row["Raft State"], row["Membership"]) == ("leader", "voter")
    assert row["Commit Index"] == row["Last Log Index"]
    assert quorum.ask(MEMBERS + "plain/status").status == 503
    assert quorum.ask(MEMBERS + "nosuch/status").status == 404


@pytest.mark.parametrize(
    "method, path, node, status, reason",
    [
        ("POST", "members/replicas/add", "penstock@test", 204, ""),
        ("POST", "members/replicas/add", "other@test", 400, "Node is not a cluster member"),
        ("POST", "plain/replicas/add", "penstock@test", 503, "classic_queue_not_supported"),
        ("POST", "nosuch/replicas/add", "penstock@test", 503, "not_found"),
        ("DELETE", "members/replicas/delete", "penstock@test", 503, "last_node"),
        ("DELETE", "members/replicas/delete", "other@test", 400, "Node is not a cluster member"),
        ("DELETE", "plain/replicas/delete", "penstock@test", 503, "classic_queue_not_supported"),
    ],
)
def test_members_are_what_they_are(
    quorum: Served, method: str, path: str, node: str, status: int, reason: str
) -> None:
    """Status and reason are RabbitMQ 4.3.6's of a single node."""
    answer = asked(quorum, method, MEMBERS + path, {"node": node})
    assert answer.status == status
    if reason:
        assert json.loads(answer.body)["reason"] == reason


def test_a_node_alone_grows_and_shrinks_nothing(quorum: Served) -> None:
    on = "/api/queues/quorum/replicas/on/"
    assert asked(quorum, "POST", on + "penstock@test/grow", {"strategy": "all"}).status == 204
    assert asked(quorum, "POST", on + "penstock@test/grow", {"strategy": "some"}).status == 400
    assert asked(quorum, "POST", on + "other@test/grow", {"strategy": "all"}).status == 404
    assert asked(quorum, "DELETE", on + "penstock@test/shrink").status == 202
    assert quorum.get(MEMBERS + "members/status")


def test_the_queues_that_a_user_declared(served: Served) -> None:
    """Declaring a queue again changes nothing."""
    served.add_user("ann", "a", ["management"], "/")
    for user, queue in (("guest", "first"), ("ann", "second"), ("ann", "first")):
        login = base64.b64encode(f"{user}:{user if user == 'guest' else user[0]}".encode())
        as_user = {"Authorization": f"Basic {login.decode()}"}
        path = "/api/queues/%2F/of-" + queue
        assert served.request("PUT", path, b"{}", as_user).status in (201, 204)
    served.declare("of-none")

    def of(user: str) -> list[str]:
        rows = served.get(f"/api/users/{user}/queues")
        return [row["name"] for row in rows if row["name"].startswith("of-")]

    assert (of("guest"), of("ann"), of("nosuch")) == (["of-first"], ["of-second"], [])
    (row,) = served.get("/api/users/ann/queues?columns=name,vhost,durable")
    assert row == {"name": "of-second", "vhost": "/", "durable": False}


# -- health checks and others ------------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        "metadata-store/initialized/with-data",
        "reached-target-cluster-size",
        "quorum-queues-without-elected-leaders/all-vhosts/",
        "quorum-queues-without-elected-leaders/vhost/%2F/pattern/%5Ea",
    ],
)
def test_checks_of_4_hold_while_the_node_answers(served: Served, check: str) -> None:
    assert served.get("/api/health/checks/" + check) == {"status": "ok"}


@pytest.mark.parametrize("pattern", ["(a%2B)%2B%24", "a%7B99999999999999%7D"])
def test_a_pattern_that_could_take_too_long_is_refused(served: Served, pattern: str) -> None:
    check = "/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/"
    assert served.ask(check + pattern).status == 400
    asked = json.dumps({"queue_pattern": unquote(pattern)}).encode()
    grow = "/api/queues/quorum/replicas/on/penstock@test/grow"
    assert served.request("POST", grow, asked).status == 400


def test_several_protocols_are_one_check(served: Served) -> None:
    check = "/api/health/checks/protocol-listener/"
    assert "http" in served.get(check + "http,amqp091")["protocols"]
    failed = served.ask(check + "mqtt,http,stomp")
    assert failed.status == 503
    assert json.loads(failed.body)["missing"] == ["mqtt", "stomp"]


def test_memory_in_percent(served: Served) -> None:
    found = served.get("/api/nodes/penstock@test/memory/relative")["memory"]
    assert found.pop("total") == 100
    assert found
    assert all(0 <= share <= 100 for share in found.values())
    assert max(found.values()) > 1


def test_the_default_exchange_is_published_to_by_its_empty_name(served: Served) -> None:
    served.declare("direct")
    body = {"routing_key": "direct", "payload": "x", "payload_encoding": "string", "properties": {}}
    answer = asked(served, "POST", "/api/exchanges/%2F//publish", body)
    assert json.loads(answer.body) == {"routed": True}


def test_unknown_families_of_metrics_are_ignored(served: Served) -> None:
    answer = served.ask("/metrics/detailed?family=nosuch&family=queue_coarse_metrics")
    assert answer.status == 200


def test_a_virtual_host_that_runs_is_started_already(served: Served) -> None:
    assert asked(served, "POST", "/api/vhosts/%2F/start/penstock@test").status == 204
    assert asked(served, "POST", "/api/vhosts/%2F/start/other@test").status == 404
    assert asked(served, "POST", "/api/vhosts/nosuch/start/penstock@test").status == 404


def test_tags_of_the_cluster_are_in_the_overview(served: Served) -> None:
    tags = {"region": "a"}
    answer = asked(served, "PUT", "/api/global-parameters/cluster_tags", {"value": tags})
    assert answer.status in (201, 204)
    assert served.get("/api/overview")["cluster_tags"] == tags


# -- protection of virtual hosts from deletion -------------------------------------------------

PROTECTED = "/api/vhosts/kept/deletion/protection"


def test_a_protected_virtual_host_is_not_deleted(served: Served) -> None:
    """Status and reason are RabbitMQ 4.3.6's."""
    assert asked(served, "PUT", "/api/vhosts/kept", {"description": "d"}).status == 201
    assert served.get("/api/vhosts/kept")["protected_from_deletion"] is False
    assert asked(served, "POST", PROTECTED).status == 204
    row = served.get("/api/vhosts/kept")
    assert row["protected_from_deletion"] is True
    assert row["metadata"]["protected_from_deletion"] is True
    assert asked(served, "PUT", "/api/vhosts/kept", {"description": "e"}).status == 204
    refused = asked(served, "DELETE", "/api/vhosts/kept")
    assert refused.status == 412
    assert json.loads(refused.body) == {
        "error": "precondition_failed",
        "reason": "Refusing to delete virtual host 'kept' because it is protected from deletion",
    }
    assert asked(served, "DELETE", PROTECTED).status == 204
    assert asked(served, "DELETE", "/api/vhosts/kept").status == 204


def test_protection_needs_a_virtual_host_and_an_administrator(served: Served) -> None:
    path = "/api/vhosts/nosuch/deletion/protection"
    assert asked(served, "POST", path).status == 404
    assert asked(served, "DELETE", path).status == 404
    assert served.get("/api/vhosts", "guest")
    body = {"protected_from_deletion": "perhaps"}
    assert asked(served, "PUT", "/api/vhosts/nosuch", body).status == 400
