"""What would happen: the router's and the policies' own answers, and nothing changed by asking."""

from __future__ import annotations

import json
import random
from urllib.parse import quote

import pytest

from penstock.broker.broker import Broker
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.vhost import Vhost
from tests.management.conftest import Served


def bound(vhost: Vhost) -> None:
    """orders (topic) → new, all; orders → more (headers) → big."""
    vhost.declare_exchange("orders", "topic", True, False, False, {})
    vhost.declare_exchange("more", "headers", True, False, False, {})
    for name in ("new", "all", "big"):
        vhost.declare_queue(name, True, None, False, {})
    vhost.bind_queue(vhost.queues["new"], "orders", "order.new", {})
    vhost.bind_queue(vhost.queues["all"], "orders", "order.#", {})
    vhost.bind_exchange("more", "orders", "order.new", {})
    vhost.bind_queue(vhost.queues["big"], "more", "", {"size": "big", "x-match": "all"})


@pytest.fixture(scope="module", autouse=True)
def _topology(served: Served) -> None:
    def make() -> None:
        broker: Broker = served.node.broker
        bound(broker.vhosts["/"])

    served.on_loop(make)


def reached(served: Served, exchange: str, key: str, headers: str = "{}") -> set[str]:
    path = f"/api/penstock/route/%2F/{exchange}?routing_key={quote(key)}&headers={quote(headers)}"
    return set(served.get(path)["queues"])


@pytest.mark.parametrize(
    "exchange, key, headers, queues",
    [
        ("orders", "order.new", "{}", {"new", "all"}),
        ("orders", "order.new", '{"size": "big"}', {"new", "all", "big"}),
        ("orders", "order.old", '{"size": "big"}', {"all"}),
        ("orders", "elsewhere", "{}", set()),
        ("amq.default", "big", "{}", {"big"}),
        ("amq.default", "nobody", "{}", set()),
    ],
)
def test_where_it_would_go(
    served: Served, exchange: str, key: str, headers: str, queues: set[str]
) -> None:
    assert reached(served, exchange, key, headers) == queues
    assert served.get("/api/queues/%2F/all?columns=messages")["messages"] == 0


def test_the_way_is_told_hop_by_hop(served: Served) -> None:
    path = "/api/penstock/route/%2F/orders?routing_key=order.new&headers="
    found = served.get(path + quote('{"size": "big"}'))
    hops = [
        (hop["source"], hop["by"], hop["destination_type"], hop["destination"])
        for hop in found["hops"]
    ]
    assert sorted(hops) == [
        ("more", "binding", "queue", "big"),
        ("orders", "binding", "exchange", "more"),
        ("orders", "binding", "queue", "all"),
        ("orders", "binding", "queue", "new"),
    ]
    keys = {hop["destination"]: hop["bindings"] for hop in found["hops"]}
    assert keys["all"] == [{"routing_key": "order.#", "arguments": {}}]
    assert keys["big"][0]["arguments"] == {"size": "big", "x-match": "all"}
    assert found["publishers_wait"] is None
    assert found["queues"] == [one["name"] for one in found["reached"]]
    assert found["reached"][0]["hold_ups"] == ["The queue has no consumer."]


def test_only_the_bindings_that_match_are_shown(served: Served) -> None:
    def make() -> None:
        vhost = served.node.broker.vhosts["/"]
        vhost.declare_exchange("spare", "fanout", True, False, False, {})
        vhost.declare_exchange(
            "twice", "topic", True, False, False, {"alternate-exchange": "spare"}
        )
        arguments = {"x-dead-letter-exchange": "dead", "x-message-ttl": 500, "x-max-length": 0}
        vhost.declare_queue("late", True, None, False, arguments)
        for key in ("a.*", "*.b", "c.#"):
            vhost.bind_queue(vhost.queues["late"], "twice", key, {})
        vhost.bind_queue(vhost.queues["late"], "spare", "", {})
        vhost.queues["late"].set_paused(True)

    served.on_loop(make)
    found = served.get("/api/penstock/route/%2F/twice?routing_key=a.b")
    assert [one["routing_key"] for one in found["hops"][0]["bindings"]] == ["a.*", "*.b"]
    (late,) = found["reached"]
    assert late["dead_letter_exchange"] == "dead"
    assert late["hold_ups"] == [
        "The queue is paused: it takes messages and delivers none.",
        "The queue has no consumer.",
        "The queue is full (0 messages): the oldest message goes.",
        "The message expires after 500 ms.",
    ]
    found = served.get("/api/penstock/route/%2F/twice?routing_key=x.y")
    assert [(hop["by"], hop["destination"]) for hop in found["hops"]] == [
        ("alternate exchange", "spare"),
        ("binding", "late"),
    ]
    assert served.get("/api/penstock/route/%2F/amq.default?routing_key=late")["hops"][0] == {
        "source": "",
        "by": "name",
        "destination": "late",
        "destination_type": "queue",
        "bindings": [],
    }


def test_only_queues_one_may_read(served: Served) -> None:
    served.add_user("mon", "m", ["management"], "/")
    served.node.broker.users.users["mon"].vhosts["/"] = (".*", ".*", "^new$")
    answer = served.ask("/api/penstock/route/%2F/orders?routing_key=order.new", "mon")
    found = json.loads(answer.body)
    assert found["queues"] == ["new"]
    assert [one["name"] for one in found["reached"]] == ["new"]
    shown = {hop["destination"] for hop in found["hops"] if hop["destination_type"] == "queue"}
    assert shown == {"new"}


def test_nonsense(served: Served) -> None:
    assert served.ask("/api/penstock/route/%2F/nosuch").status == 404
    assert served.ask("/api/penstock/route/nosuch/orders").status == 404
    assert served.ask("/api/penstock/route/%2F/orders?headers=%5B%5D").status == 400
    assert served.ask("/api/penstock/covered/%2F?pattern=(").status == 400
    assert served.ask("/api/penstock/covered/%2F?apply_to=users").status == 400


def test_what_a_pattern_reaches(served: Served) -> None:
    found = served.get(f"/api/penstock/covered/%2F?pattern={quote('^(new|big)$')}")
    assert (found["count"], found["names"]) == (2, ["big", "new"])
    everything = served.get("/api/penstock/covered/%2F?pattern=or&apply_to=all")
    assert everything["names"] == ["more", "orders"]
    assert served.get("/api/penstock/covered/%2F?pattern=NEW")["count"] == 0


def test_what_policies_apply_to(served: Served) -> None:
    """Of those that match the one of the highest priority; an operator's are chosen apart."""

    def put(name: str, pattern: str, priority: int, apply_to: str = "all") -> None:
        vhost = served.node.broker.vhosts["/"]
        policy = Policy(name, pattern, apply_to, priority, {"max-length": 5})
        vhost.policies.policies[name] = policy
        vhost.forget_routes()  # as any change of policies does

    path = "/api/penstock/policies"
    served.on_loop(lambda: put("wide", "^(new|all|more)$", 0))
    assert [(one["queues"], one["exchanges"]) for one in served.get(path)] == [(2, 1)]
    served.on_loop(lambda: put("narrow", "^new$", 1, "queues"))
    found = {one["name"]: one for one in served.get(f"{path}/%2F")}
    assert {name: (one["queues"], one["exchanges"]) for name, one in found.items()} == {
        "wide": (1, 1),
        "narrow": (1, 0),
    }
    assert found["narrow"]["pattern"] == "^new$"
    wide = served.get(f"{path}/%2F/wide")
    assert (wide["queue_names"], wide["exchange_names"]) == (["all"], ["more"])
    served.on_loop(
        lambda: served.node.broker.vhosts["/"].declare_queue("more", True, None, False, {})
    )
    assert served.get(f"{path}/%2F/wide")["queue_names"] == ["all", "more"]
    assert served.get("/api/penstock/operator-policies/%2F") == []
    assert served.ask("/api/penstock/operator-policies/%2F/wide").status == 404


def test_a_pattern_that_could_take_for_ever_is_refused(served: Served) -> None:
    slow = quote("(a+)+$")
    for path in (
        f"/api/penstock/covered/%2F?pattern={slow}",
        f"/api/queues?page=1&use_regex=true&name={slow}",
    ):
        assert served.ask(path).status == 400, path


def test_a_key_that_is_dear_to_route_is_refused(served: Served) -> None:
    """As a publish of it is; the question holds up the data loop as long."""
    chance = random.Random(1)

    def bind() -> None:
        vhost = served.node.broker.vhosts["/"]
        vhost.declare_queue("q", True, None, False, {})
        for _ in range(1500):
            pattern = ".".join(chance.choice("a*##") for _ in range(100))
            vhost.bind_queue(vhost.queues["q"], "amq.topic", pattern, {})

    served.on_loop(bind)
    answer = served.ask("/api/penstock/route/%2F/amq.topic?routing_key=" + "a." * 126 + "a")
    assert answer.status == 400
    assert "too many patterns match" in answer.body
    assert served.get("/api/penstock/route/%2F/amq.topic?routing_key=b") is not None
