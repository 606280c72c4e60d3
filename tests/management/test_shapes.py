"""Our answers have the keys and kinds of RabbitMQ 3.10.8's, but for a list of differences.

``shapes.json`` holds the shapes of its captured answers (``shapes.py`` says how they were made),
``shape_differences.py`` what we answer otherwise, and why; ``docs/differences.md`` shows that list.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pika
import pytest

from penstock.broker.mirrors import MASTER, MIRROR
from penstock.node.inspection.session_inspector import NodeSessionInspector
from tests.helpers.mirrored import B, FakeMirrors, copy, facts, in_a_cluster
from tests.management.conftest import Served
from tests.management.shape_differences import DIFFERENCES
from tests.management.shapes import missing, shape_of

SHAPES = json.loads((Path(__file__).parent / "shapes.json").read_text())
NODE = "penstock@test"
ASKED = {
    "alive": "aliveness-test/%2F",
    "auth_attempts": f"auth/attempts/{NODE}",
    "bindings": "bindings",
    "channels": "channels",
    "cluster_name": "cluster-name",
    "cols": "queues?columns=name,messages,message_stats.publish_details.rate",
    "connections": "connections",
    "consumers": "consumers",
    "definitions": "definitions",
    "definitions_vhost": "definitions/%2F",
    "exchange": "exchanges/%2F/events",
    "exchanges": "exchanges",
    "extensions": "extensions",
    "ff": "feature-flags",
    "globalparams": "global-parameters",
    "hc_alarms": "health/checks/alarms",
    "hc_mirror": "health/checks/node-is-mirror-sync-critical",
    "hc_port": "health/checks/port-listener/PORT",
    "hc_port_bad": "health/checks/port-listener/9",
    "hc_proto": "health/checks/protocol-listener/amqp",
    "hc_vh": "health/checks/virtual-hosts",
    "node_mem": f"nodes/{NODE}?memory=true&binary=true",
    "node_memory": f"nodes/{NODE}/memory",
    "nodes": "nodes",
    "notfound": "queues/%2F/nosuch",
    "overview": "overview",
    "parameters": "parameters",
    "permissions": "permissions",
    "policies": "policies",
    "queue": "queues/%2F/orders",
    "queue_backlog": "queues/%2F/orders",
    "queue_bindings": "queues/%2F/orders/bindings",
    "queues": "queues",
    "queues_paged": "queues?page=1&page_size=2",
    "shovels": "shovels",
    "topicperm": "topic-permissions",
    "users": "users",
    "vhostlimits": "vhost-limits",
    "vhosts": "vhosts",
    "whoami": "whoami",
}
"""What was asked of RabbitMQ."""
HISTORY = ("avg", "avg_rate", "samples")
"""Of one it was asked with the samples of a minute, which a broker in its first second has not."""
MIRRORED = {
    "queue_mirror": facts(copy(NODE, MASTER, True)),
    "queue_mirror2": facts(copy(NODE, MASTER, True), copy(B, MIRROR, False)),
    "queue_mirror3": facts(copy(NODE, MASTER, True), copy(B, MIRROR, True)),
}
"""A mirrored queue whose mirror is not there, is not synchronised, and is."""


@pytest.fixture(scope="module")
def answers(served: Served) -> Iterator[dict[str, Any]]:
    """Of a broker in use: a client that publishes and holds a delivery, a policy, a second host."""
    put = {
        "users/mon": {"password": "m", "tags": "monitoring"},
        "vhosts/second": {},
        "policies/%2F/short": {"pattern": "^orders", "definition": {"max-length": 100}},
    }
    for path, body in put.items():
        served.request("PUT", f"/api/{path}", json.dumps(body).encode())
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", served.amqp_port, client_properties={"connection_name": "worker"}
        )
    )
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_declare("orders", durable=True, arguments={"x-max-length": 1000})
    channel.queue_bind("orders", "events", "a.#")
    channel.basic_qos(prefetch_count=1)

    def use() -> None:
        """A queue that nothing has used for some seconds is idle, and has another shape."""
        channel.basic_publish("events", "a.b", b"x", pika.BasicProperties(delivery_mode=2))

    for _ in range(3):
        use()
    channel.basic_get("orders", auto_ack=True)
    channel.basic_consume("orders", lambda *_: None)
    connection.process_data_events(0)
    found = {}
    for name, path in ASKED.items():
        use()
        found[name] = _asked(served, path)
    alone = served.node.broker.mirrors
    mirrors = served.node.broker.mirrors = FakeMirrors()
    for name, of_the_queue in MIRRORED.items():
        mirrors.known["/", "orders"] = of_the_queue
        use()
        found[name] = _asked(served, ASKED["queue"])
    served.node.broker.mirrors = alone
    watch = cast(NodeSessionInspector, served.view.watch)
    facts_alone = watch._cluster_facts
    in_a_cluster(watch)
    found["nodes2"] = _asked(served, "nodes")  # of several nodes, one of them stopped
    watch._cluster_facts = facts_alone
    yield found
    connection.close()


def _asked(served: Served, path: str) -> Any:
    path = path.replace("PORT", str(served.amqp_port))
    return json.loads(served.request("GET", f"/api/{path}").body)


def test_every_captured_answer_has_a_place() -> None:
    assert {*ASKED, *MIRRORED, "nodes2"} == set(SHAPES)


@pytest.mark.parametrize("name", [*ASKED, *MIRRORED, "nodes2"])
def test_keys_and_kinds_are_rabbitmqs(answers: dict[str, Any], name: str) -> None:
    found = _differences(name, answers[name])
    assert [place for place in found if not _known(place)] == []


def test_every_difference_is_still_one(answers: dict[str, Any]) -> None:
    places = [place for name in answers for place in _differences(name, answers[name])]
    patterns = [pattern for one in DIFFERENCES for pattern in one.where]
    assert [one for one in patterns if not any(_matches(one, place) for place in places)] == []


def _differences(name: str, answer: Any) -> list[str]:
    found = missing(SHAPES[name], shape_of(answer))
    return [
        f"{name}{path}: {what}" for path, what in found if path.rpartition(".")[2] not in HISTORY
    ]


def _known(place: str) -> bool:
    return any(_matches(pattern, place) for one in DIFFERENCES for pattern in one.where)


def _matches(pattern: str, place: str) -> bool:
    """``*`` stands for any text; a list is not marked in a pattern."""
    where, _, _ = place.partition(": ")
    return fnmatch.fnmatchcase(where.replace("[]", ""), pattern)
