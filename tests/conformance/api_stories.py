"""Stories of types of queues: default types, and declaring again.

They need the management API beside AMQP and, some of them, a setting of the node, so they have a
runner of their own (``test_api_stories.py``); RabbitMQ's side is recorded by ``python -m
tests.conformance.api_stories``.  Like other cases they assert nothing and leave a transcript.
"""

import base64
import http.client
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.conformance.case import World
from tests.helpers.raw_amqp import RawClient

PLAIN: Final = "plain"
RELAXED: Final = "relaxed"
QUORUM: Final = "quorum"
SETTINGS: Final = {
    PLAIN: {},
    RELAXED: {"quorum_queue.property_equivalence.relaxed_checks_on_redeclaration": "true"},
    QUORUM: {"default_queue_type": "quorum"},
}
"""Lines of rabbitmq.conf, by the word for them."""
STORIES: Final[dict[str, tuple[str, Callable[["VhostWorld"], None]]]] = {}
RECORDED: Final = Path(__file__).parent / "recorded" / "api_stories" / "rabbitmq-4.3.6.json"


class VhostWorld(World):
    """A broker with a management API; its virtual hosts are those the story makes."""

    def __init__(self, url: str, api_port: int) -> None:
        super().__init__(url)
        self._api_port = api_port

    def api(self, method: str, path: str, body: object = None) -> Any:
        """The parsed answer; not in the transcript."""
        connection = http.client.HTTPConnection(self.host, self._api_port, timeout=20)
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        connection.request(method, f"/api/{path}", text, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if data.startswith((b"{", b"[")) else None

    def put(self, path: str, body: object) -> None:  # type: ignore[override]
        status, answer = self.api("PUT", path, body)
        told = f" {answer['error']}: {answer['reason']}" if isinstance(answer, dict) else ""
        self.lines.append(f"PUT {path} {json.dumps(body)} -> {status}{told}")

    def vhost(self, **metadata: object) -> str:
        """Make one."""
        name = self.name("v")
        self.put(f"vhosts/{name}", metadata)
        return name

    def show_vhost(self, name: str) -> None:
        _, row = self.api("GET", f"vhosts/{name}")
        kinds = row.get("default_queue_type"), row.get("metadata", {}).get("default_queue_type")
        self.lines.append(f"{name} has {kinds}")

    def enter(self, vhost: str) -> RawClient:
        client = self.raw()
        client.open(user=self.user, password=self.password, vhost=vhost)
        client.open_channel(1)
        return client

    def declare(self, client: RawClient, queue: str, durable: bool = True, **more: Any) -> None:
        self.attempt(client, "queue.declare", queue=queue, durable=durable, **more)

    def show_queue(self, vhost: str, queue: str) -> None:
        _, row = self.api("GET", f"queues/{vhost}/{queue}")
        self.lines.append(f"{queue} is {row.get('type')} {row.get('arguments')}")

    def show_policies(self, vhost: str, queue: str) -> None:
        """What reaches it; RabbitMQ writes the row some time after the policy."""
        deadline = time.monotonic() + 10
        while True:
            _, row = self.api("GET", f"queues/{vhost}/{queue}")
            if row.get("operator_policy") or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        effective = dict(sorted(row["effective_policy_definition"].items()))
        self.lines.append(f"{queue}: {row['policy']}, {row['operator_policy']}, {effective}")


def story(setting: str) -> Callable[[Callable[[VhostWorld], None]], Callable[[VhostWorld], None]]:
    def register(function: Callable[[VhostWorld], None]) -> Callable[[VhostWorld], None]:
        STORIES[function.__name__] = (setting, function)
        return function

    return register


def _typed(kind: object) -> dict[str, Any]:
    return {"arguments": {"x-queue-type": kind}}


@story(PLAIN)
def what_a_virtual_host_takes(w: VhostWorld) -> None:
    for kind in ("quorum", "classic", "undefined", None, "", "sparkling", 5, True):
        v = w.vhost(default_queue_type=kind)
        if kind in ("quorum", "classic"):
            w.show_vhost(v)


@story(PLAIN)
def a_virtual_host_changes_its_type(w: VhostWorld) -> None:
    v = w.vhost(default_queue_type="quorum")
    for body in (
        {"description": "mine"},
        {"default_queue_type": "classic"},
        {"default_queue_type": "sparkling"},
        {"default_queue_type": "quorum"},
    ):
        w.put(f"vhosts/{v}", body)
        if "description" not in body:
            w.show_vhost(v)


@story(PLAIN)
def queues_of_a_quorum_virtual_host(w: VhostWorld) -> None:
    v = w.vhost(default_queue_type="quorum")
    a = w.enter(v)
    for more in (
        {},
        {"durable": False, "exclusive": True},
        {"exclusive": True},
        {"auto_delete": True},
        _typed("classic"),
        _typed("quorum"),
        {"arguments": {"x-max-length": 5}},
        {"arguments": {"x-max-priority": 5}},
    ):
        q = w.name("q")
        w.declare(a, q, **more)
        w.show_queue(v, q)


@story(PLAIN)
def a_name_of_the_server_in_a_quorum_virtual_host(w: VhostWorld) -> None:
    a = w.enter(w.vhost(default_queue_type="quorum"))
    w.declare(a, "")
    w.declare(a, "", exclusive=True)


@story(PLAIN)
def declared_again_in_a_quorum_virtual_host(w: VhostWorld) -> None:
    a = w.enter(w.vhost(default_queue_type="quorum"))
    q, classic = w.name("q"), w.name("classic")
    w.declare(a, q)
    w.declare(a, q)
    w.declare(a, q, **_typed("quorum"))
    w.declare(a, q, **_typed("classic"))
    w.declare(a, q, durable=False)
    w.declare(a, q, passive=True)
    w.declare(a, classic, **_typed("classic"))
    w.declare(a, classic)


@story(PLAIN)
def declared_again_in_a_classic_virtual_host(w: VhostWorld) -> None:
    a = w.enter(w.vhost(default_queue_type="classic"))
    q, quorum = w.name("q"), w.name("quorum")
    w.declare(a, q)
    w.declare(a, q, **_typed("classic"))
    w.declare(a, q, **_typed("quorum"))
    w.declare(a, quorum, **_typed("quorum"))
    w.declare(a, quorum)


@story(PLAIN)
def declared_again_after_the_type_changed(w: VhostWorld) -> None:
    v = w.vhost(default_queue_type="classic")
    a = w.enter(v)
    old, new = w.name("old"), w.name("new")
    w.declare(a, old)
    w.put(f"vhosts/{v}", {"default_queue_type": "quorum"})
    w.declare(a, old)
    w.declare(a, new)
    w.put(f"vhosts/{v}", {"default_queue_type": "classic"})
    w.declare(a, new)
    w.declare(a, old)


@story(PLAIN)
def made_over_http_and_by_definitions(w: VhostWorld) -> None:
    v = w.vhost(default_queue_type="quorum")
    http_q, imported, lasting = w.name("http"), w.name("imported"), w.name("kept")
    w.put(f"queues/{v}/{http_q}", {"durable": True})
    w.put(f"queues/{v}/{lasting}", {"durable": True, "arguments": {"x-queue-type": "classic"}})
    row = {"name": imported, "vhost": v, "durable": True, "auto_delete": False, "arguments": {}}
    w.api("POST", "definitions", {"queues": [row]})
    for queue in (http_q, lasting, imported):
        w.show_queue(v, queue)


@story(PLAIN)
def out_and_in_by_definitions(w: VhostWorld) -> None:
    v = w.vhost(default_queue_type="quorum")
    other = w.name("other")
    _, exported = w.api("GET", "definitions")
    (row,) = [row for row in exported["vhosts"] if row["name"] == v]
    w.lines.append(f"exported {row.get('metadata', {}).get('default_queue_type')}")
    row = row | {"name": other}
    status, _ = w.api("POST", "definitions", {"vhosts": [row]})
    w.lines.append(f"imported {status}")
    w.show_vhost(other)


@story(RELAXED)
def relaxed_checks(w: VhostWorld) -> None:
    a = w.enter(w.vhost(default_queue_type="classic"))
    q, classic = w.name("q"), w.name("classic")
    limited = {"x-queue-type": "quorum", "x-max-length": 5, "x-delivery-limit": 3}
    w.declare(a, q, arguments=limited)
    w.declare(a, q, arguments={"x-max-length": 5})
    w.declare(a, q)
    w.declare(a, q, durable=False, arguments={"x-max-length": 5})
    w.declare(a, q, auto_delete=True, arguments={"x-queue-type": "classic", "x-max-length": 5})
    w.declare(a, q, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    w.declare(a, q, arguments={"x-max-length": 5, "x-max-priority": 5})
    w.declare(a, q, arguments={"x-queue-type": "quorum", "x-max-length": 5})
    w.declare(a, classic)
    w.declare(a, classic, **_typed("quorum"))


@story(RELAXED)
def relaxed_checks_in_a_quorum_virtual_host(w: VhostWorld) -> None:
    a = w.enter(w.vhost(default_queue_type="quorum"))
    q = w.name("q")
    w.declare(a, q)
    w.declare(a, q, durable=False)
    w.declare(a, q, exclusive=True)
    w.declare(a, q, **_typed("classic"))


@story(QUORUM)
def queues_of_a_quorum_node(w: VhostWorld) -> None:
    v = w.vhost()
    w.show_vhost(v)
    a = w.enter(v)
    for more in ({}, {"exclusive": True}, {"auto_delete": True}, _typed("classic")):
        q = w.name("q")
        w.declare(a, q, **more)
        w.show_queue(v, q)


@story(QUORUM)
def a_classic_virtual_host_of_a_quorum_node(w: VhostWorld) -> None:
    v = w.vhost(default_queue_type="classic")
    w.show_vhost(v)
    a = w.enter(v)
    q = w.name("q")
    w.declare(a, q)
    w.show_queue(v, q)
    w.declare(a, q, **_typed("quorum"))


def _policy(w: VhostWorld, vhost: str, apply_to: str, **definition: object) -> None:
    told = {key.replace("_", "-"): value for key, value in definition.items()}
    body = {"pattern": ".*", "apply-to": apply_to, "priority": 0, "definition": told}
    w.put(f"policies/{vhost}/p", body)


@story(PLAIN)
def what_policies_apply_to(w: VhostWorld) -> None:
    v = w.vhost()
    kinds = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")
    for apply_to in kinds:
        _policy(w, v, apply_to, max_length=5)


@story(PLAIN)
def retries_by_policy(w: VhostWorld) -> None:
    v = w.vhost()
    for definition in (
        {"delayed_retry_type": "all", "delayed_retry_min": 5},
        {"delayed_retry_type": "all", "delayed_retry_min": 5, "delayed_retry_max": 9},
        {"delayed_retry_type": "disabled"},
        {"delayed_retry_type": "all"},
        {"delayed_retry_type": "often", "delayed_retry_min": 5},
        {"delayed_retry_type": 5, "delayed_retry_min": 5},
        {"delayed_retry_min": 5},
        {"delayed_retry_min": 0},
        {"delayed_retry_min": "5"},
        {"delayed_retry_max": 0},
        {"delayed_retry_type": "all", "delayed_retry_min": 9, "delayed_retry_max": 5},
    ):
        _policy(w, v, "quorum_queues", **definition)


@story(PLAIN)
def a_policy_and_arguments_of_retries(w: VhostWorld) -> None:
    """The policy's type counts, and of the times the lower."""
    v = w.vhost()
    a = w.enter(v)
    q = w.name("q")
    retries = {"x-delayed-retry-type": "disabled", "x-delayed-retry-min": 300}
    w.declare(a, q, arguments={"x-queue-type": "quorum"} | retries)
    _policy(w, v, "quorum_queues", delayed_retry_type="all", delayed_retry_min=60_000)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="c")
    a.publish(1, "", q, b"one")
    a.receive()
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    a.receive()


@story(PLAIN)
def keys_of_policies(w: VhostWorld) -> None:
    v = w.vhost()
    for key, value in (
        ("delivery-limit", 5),
        ("delivery-limit", -1),
        ("dead-letter-strategy", "at-least-once"),
        ("dead-letter-strategy", "at-most-once"),
        ("dead-letter-strategy", "bad"),
        ("dead-letter-strategy", 5),
        ("queue-leader-locator", "balanced"),
        ("queue-leader-locator", "client-local"),
        ("queue-leader-locator", "far"),
        ("queue-leader-locator", 5),
        ("max-in-memory-length", 5),
        ("max-in-memory-length", 0),
        ("max-in-memory-length", -1),
        ("max-in-memory-bytes", 5),
        ("max-in-memory-bytes", "5"),
        ("target-group-size", 3),
        ("target-group-size", 0),
        ("target-group-size", "3"),
        ("consumer-disconnected-timeout", 1000),
        ("consumer-disconnected-timeout", -1),
        ("consumer-disconnected-timeout", "5"),
        ("overflow", "reject-publish-dlx"),
        ("max-priority", 5),
        ("single-active-consumer", True),
        ("quorum-initial-group-size", 3),
    ):
        definition = {key: value}
        body = {"pattern": "none", "priority": 0, "definition": definition}
        w.put(f"policies/{v}/p", body | {"apply-to": "quorum_queues"})
        w.put(f"operator-policies/{v}/p", body | {"apply-to": "queues"})


@story(PLAIN)
def policies_that_have_an_effect_in_quorum_queues(w: VhostWorld) -> None:
    """Those that have none are among the effective ones too."""
    v = w.vhost()
    a = w.enter(v)
    q, classic = w.name("q"), w.name("classic")
    w.declare(a, q, arguments={"x-queue-type": "quorum", "x-max-in-memory-length": 9})
    w.declare(a, classic)
    body = {
        "pattern": ".*",
        "apply-to": "queues",
        "definition": {
            "delivery-limit": 7,
            "dead-letter-strategy": "at-least-once",
            "queue-leader-locator": "balanced",
            "max-in-memory-length": 5,
            "max-in-memory-bytes": 50,
            "target-group-size": 3,
            "max-length": 20,
            "overflow": "reject-publish",
        },
    }
    w.put(f"policies/{v}/p", body)
    operator = body | {"definition": {"delivery-limit": 5, "max-in-memory-length": 3,
                                      "target-group-size": 5}}  # fmt: skip
    w.put(f"operator-policies/{v}/o", operator)
    for queue in (q, classic):
        w.show_policies(v, queue)


@story(PLAIN)
def a_strategy_by_policy(w: VhostWorld) -> None:
    """A letter that no queue takes stays: at-least-once by the policy."""
    v = w.vhost()
    a = w.enter(v)
    q, morgue = w.name("q"), w.name("morgue")
    w.declare(a, q, arguments={"x-queue-type": "quorum"})
    w.declare(a, morgue)
    definition = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish",
                  "dead-letter-exchange": "", "dead-letter-routing-key": morgue}  # fmt: skip
    w.put(f"policies/{v}/p", {"pattern": "^q", "apply-to": "quorum_queues",
                              "definition": definition})  # fmt: skip
    w.attempt(a, "basic.consume", queue=q, consumer_tag="c")
    a.publish(1, "", q, b"one")
    a.receive()
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    w.attempt(a, "basic.consume", queue=morgue, consumer_tag="m", no_ack=True)
    a.receive()


def tell(url: str, api_port: int, name: str) -> list[str]:
    world = VhostWorld(url, api_port)
    try:
        STORIES[name][1](world)
    finally:
        world.close()
    return world.transcript()


def main(setting: str, url: str, api_port: str) -> None:
    """Record the stories of this setting from the broker there, which has it."""
    told = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    names = [name for name, (wanted, _) in STORIES.items() if wanted == setting]
    told |= {name: tell(url, int(api_port), name) for name in names}
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(json.dumps(dict(sorted(told.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
