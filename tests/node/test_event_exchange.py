"""The event exchange: what happens on a node arrives in queues bound to ``amq.rabbitmq.event``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pika
import pytest

from penstock.core.events.book import NODE
from penstock.core.events.kinds import KINDS
from penstock.node.inspection.event_exchange import EVENTS, NAME, WAITING_MAX, EventExchange
from penstock.settings.settings import load_settings
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.live_broker import LiveBroker
from tests.node.event_story import run

pytestmark = pytest.mark.timeout(120)
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    arguments = ("--event-exchange", "true", "--event-log", "false")
    with LiveBroker(tmp_path_factory.mktemp("events"), arguments) as running:
        yield running


def ask(broker: LiveBroker, method: str, path: str, body: object) -> None:
    login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    urlopen(Request(f"{broker.http_url}/api/{path}", data, login, method=method)).close()


class Listener:
    """A queue with all events."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self._connection.channel()
        self.channel.queue_declare("events", exclusive=True)
        deadline = time.monotonic() + PATIENCE_S
        while True:  # the exchange is there a moment after the start
            try:
                self.channel.queue_bind("events", NAME, "#")
                break
            except pika.exceptions.ChannelClosedByBroker:
                assert time.monotonic() < deadline
                time.sleep(0.1)
                self.channel = self._connection.channel()

    def until(self, key: str, **wanted: Any) -> dict[str, Any]:
        """The headers of the next event with that key and these headers."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            method, properties, body = self.channel.basic_get("events", auto_ack=True)
            if method is None:
                time.sleep(0.05)
                continue
            assert (body, properties.delivery_mode) == (b"", 2)
            headers: dict[str, Any] = properties.headers
            assert properties.timestamp == headers["timestamp_in_ms"] // 1000
            if method.routing_key == key and wanted.items() <= headers.items():
                return headers
        raise AssertionError(f"no {key} {wanted}")

    def close(self) -> None:
        self._connection.close()


def test_what_happens_arrives(broker: LiveBroker) -> None:
    listener = Listener(broker.url)
    there = {"vhost": "/"}
    found = listener.until("binding.created", destination_name="events", **there)
    assert (found["source_name"], found["destination_kind"]) == (NAME, "queue")
    channel = listener.channel
    channel.queue_declare("q", durable=True)
    assert listener.until("queue.created", name="q", **there)["durable"] is True
    channel.exchange_declare("x", "topic")
    assert listener.until("exchange.created", name="x", **there)["type"] == "topic"
    channel.queue_bind("q", "x", "k.#")
    channel.queue_unbind("q", "x", "k.#")
    assert listener.until("binding.deleted", source_name="x", **there)["routing_key"] == "k.#"
    channel.queue_delete("q")
    channel.exchange_delete("x")
    listener.until("queue.deleted", name="q", **there)
    listener.until("exchange.deleted", name="x", **there)
    ask(broker, "PUT", "users/u", {"password": "secret", "tags": ""})
    assert "secret" not in str(listener.until("user.created", name="u"))
    rights = {"configure": "a", "write": "b", "read": "c"}
    ask(broker, "PUT", "permissions/%2F/u", rights)
    listener.until("permission.created", user="u", **there, **rights)
    ask(broker, "DELETE", "users/u", None)
    listener.until("user.deleted", name="u")
    ask(broker, "PUT", "policies/%2F/p", {"pattern": "z", "definition": {"max-length": 1}})
    assert listener.until("policy.set", name="p", **there)["apply-to"] == "all"
    ask(broker, "DELETE", "policies/%2F/p", None)
    listener.until("policy.cleared", name="p", **there)
    ask(broker, "PUT", "vhosts/v", {})
    ask(broker, "DELETE", "vhosts/v", None)
    listener.until("vhost.created", name="v")
    listener.until("vhost.deleted", name="v")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as other:
        other.channel()
        name = listener.until("connection.created", user="guest")["name"]
        assert listener.until("channel.created", connection_name=name)["number"] == 1
    listener.until("connection.closed", name=name)
    listener.close()


def test_no_client_publishes_there(broker: LiveBroker) -> None:
    listener = Listener(broker.url)
    listener.channel.basic_publish(NAME, "queue.created", b"forged")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="internal exchange"):
        listener.channel.queue_declare("other", exclusive=True)
    listener.close()


def test_nothing_waits_while_no_queue_is_bound_and_never_too_much() -> None:
    node = QuietBroker()
    exchange = _of(node, True)
    many = [(1, "queue_deleted", ("/", f"q{number}"), NODE) for number in range(WAITING_MAX + 5)]
    exchange.put(list(many))
    exchange.look()
    assert NAME in node.broker.vhosts["/"].exchanges
    client = node.client()
    client.call("queue.declare", queue="q")
    client.call("queue.bind", queue="q", exchange=NAME, routing_key="queue.*")
    exchange.put(list(many))
    exchange.put(many[:1])
    for _ in range(10 * WAITING_MAX // 100):  # a slow machine publishes fewer at a time
        exchange.look()
    assert node.broker.vhosts["/"].queues["q"].counts()[0] == WAITING_MAX


def test_it_is_off_unless_it_is_asked_for() -> None:
    node = QuietBroker()
    _of(node, False).put([(1, "queue_deleted", ("/", "q"), NODE)])
    assert NAME not in node.broker.vhosts["/"].exchanges


def _of(node: QuietBroker, on: bool) -> EventExchange:
    return EventExchange(node.broker, load_settings(None, {}, {"event_exchange": str(on).lower()}))


def test_every_header_is_of_a_field() -> None:
    keys = [one.key for one in EVENTS.values()]
    assert len(set(keys)) == len(keys)
    assert set(EVENTS) <= set(KINDS)


# -- as RabbitMQ 4.3.6 -------------------------------------------------------------------------

RECORDED = json.loads(Path(__file__).with_name("events-4.3.6.json").read_text())
PID = {"pid", "owner_pid"}
PEER = {"host", "peer_host", "peer_port", "ssl", "connection_type"}
LACKING = {
    "connection.created": PEER
    | PID
    | {"auth_mechanism", "channel_max", "client_properties", "connected_at", "frame_max", "port"}
    | {"timeout", "type", "peer_cert_issuer", "peer_cert_serial_number", "peer_cert_subject"}
    | {"peer_cert_validity", "ssl_cipher", "ssl_hash", "ssl_key_exchange", "ssl_protocol"},
    "connection.closed": PID | {"client_properties", "user_provided_name"},
    "user.authentication.success": PEER,
    "user.authentication.failure": PEER | {"protocol"},
    "channel.created": PID | {"connection", "user", "vhost"},
    "channel.closed": PID | {"consumer_count"},
    "exchange.created": {"arguments", "policy"},
    "queue.created": PID | {"arguments", "exclusive", "leader", "members"},
    "queue.deleted": {"type"},
    "binding.created": {"arguments"},
    "binding.deleted": {"arguments"},
    "consumer.created": {"arguments"},
    "vhost.created": {"cluster_state", "metadata", "tracing"},
    "vhost.updated": {"cluster_state", "deletion_protection", "metadata", "tracing"},
    "policy.set": {"definition"},
    "parameter.set": {"value"},
}
"""Headers of RabbitMQ's that are not here, by routing key."""
OTHERWISE = {
    ("consumer.created", "channel"),
    ("consumer.deleted", "channel"),
    ("user.authentication.failure", "error"),
    ("vhost.created", "default_queue_type"),
    ("vhost.updated", "default_queue_type"),
}
"""A channel has a name here and no process; a reason is text; no default type is named."""
MORE = {
    "channel.created": {"connection_name"},
    "channel.closed": {"connection_name", "name", "number"},
    "connection.closed": {"lasted_ms"},
}
UNTOLD = {
    ("a wrong password", "connection.closed"),
    ("exchange.delete", "parameter.set"),
    ("exchange.delete", "parameter.cleared"),
    ("PUT vhosts/v", "exchange.created"),
    ("PUT vhost-limits/v/max-queues", "parameter.set"),
    ("DELETE vhost-limits/v/max-queues", "parameter.set"),
    ("DELETE vhost-limits/v/max-queues", "vhost.limits.set"),
    ("DELETE vhosts/v", "exchange.deleted"),
    ("DELETE vhosts/v", "parameter.cleared"),
    ("DELETE vhosts/v", "permission.deleted"),
    ("DELETE vhosts/v", "vhost.down"),
    ("DELETE vhosts/v", "vhost.limits.cleared"),
    ("PUT operator-policies/%2F/o", "parameter.set"),
    ("DELETE operator-policies/%2F/o", "parameter.cleared"),
}
"""Steps and keys of events that are told in RabbitMQ only."""
ONLY_HERE = {("DELETE vhost-limits/v/max-queues", "vhost.limits.cleared")}


@pytest.mark.slow
def test_events_have_the_keys_and_headers_of_rabbitmq(broker: LiveBroker) -> None:
    wrong = []
    least = [
        len({key for key, _ in theirs if (step, key) not in UNTOLD})
        + sum(step == here for here, _ in ONLY_HERE)
        for step, theirs in RECORDED
    ]
    told = run(broker.url, broker.http_url, least)
    for (step, theirs), (_, ours) in zip(RECORDED, told, strict=True):
        wanted: dict[str, dict[str, Any]] = {}
        for key, headers in theirs:
            if (step, key) not in UNTOLD:  # a consumer goes twice there, first with the user
                wanted.setdefault(key, headers)
        found = {key: headers for key, headers in ours if (step, key) not in ONLY_HERE}
        if wanted.keys() != found.keys():
            wrong.append(f"{step}: {sorted(wanted)} there, {sorted(found)} here")
            continue
        for key, headers in wanted.items():
            here = found[key]
            lacking = headers.keys() - here.keys()
            if not lacking <= LACKING.get(key, set()):
                wrong.append(f"{step}: {key} lacks {lacking}")
            if not here.keys() - headers.keys() <= MORE.get(key, set()):
                wrong.append(f"{step}: {key} has {here.keys() - headers.keys()}")
            wrong += [
                f"{step}: {key}: {name} is {here[name]!r}, there {headers[name]!r}"
                for name in headers.keys() & here.keys()
                if headers[name] != here[name] and (key, name) not in OTHERWISE
            ]
    assert not wrong, "\n".join(wrong)
