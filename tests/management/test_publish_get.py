"""Publishing, getting and declaring over HTTP: what holds for AMQP clients holds there as well."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pika
import pytest

from penstock.management import app
from penstock.management.api.queues import messages as messages_api
from tests.helpers.live_broker import LiveBroker
from tests.management.conftest import Raw, Served
from tests.management.write_cases import Step, ask

DEEP = json.loads("[" * 102 + "]" * 102)
MOVE = "/api/queues/%2F/from/messages/actions"
GET_Q = "/api/queues/%2F/q/get"
GUEST = {"properties": {}, "payload": "x", "payload_encoding": "string"}


@pytest.fixture
def channel(served: Served) -> Iterator[Any]:
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
    )
    channel = connection.channel()
    channel.queue_delete("q")
    yield channel
    connection.close()


def post(served: Served, path: str, body: Any, headers: Any = None) -> Raw:
    return served.request("POST", path, json.dumps(body).encode(), headers)


def publish(served: Served, key: str = "", exchange: str = "amq.default", **more: Any) -> Any:
    path = f"/api/exchanges/%2F/{exchange}/publish"
    raw = post(served, path, GUEST | {"routing_key": key} | more)
    return raw.status, json.loads(raw.body)


def get(served: Served, queue: str, **more: Any) -> Any:
    asked = {"count": 100, "ackmode": "ack_requeue_false", "encoding": "auto"} | more
    raw = post(served, f"/api/queues/%2F/{queue}/get", asked)
    assert raw.status == 200, raw.body
    return json.loads(raw.body)


def test_a_large_message_comes_back_as_it_was(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    payload = "ä" * 200_000
    assert publish(served, "q", payload=payload) == (200, {"routed": True})
    (got,) = get(served, "q")
    assert got["payload"] == payload
    assert got["payload_bytes"] == 400_000


def test_a_body_has_an_end(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    large = {"arguments": {}, "padding": "x" * 1024 * 1024}
    raw = served.request("PUT", "/api/queues/%2F/q2", json.dumps(large).encode())
    assert (raw.status, json.loads(raw.body)["reason"]) == (413, "body has more than 1048576 bytes")
    pieces = iter([json.dumps(large).encode()])  # which does not say how long it is
    assert served.request("PUT", "/api/queues/%2F/q2", pieces).status == 413
    # A message may be larger, but not from anybody.
    served.add_user("poor", "poor", ["management"])
    user = served.node.broker.users.users["poor"]
    served.on_loop(lambda: user.vhosts.__setitem__("/", ("", "", "")))
    body = GUEST | {"routing_key": "q", "payload": "x" * 2 * 1024 * 1024}
    login = {"Authorization": "Basic cG9vcjpwb29y"}
    path = "/api/exchanges/%2F/amq.default/publish"
    assert post(served, path, body, login).status == 401
    assert post(served, path, body).status == 200
    assert len(get(served, "q")) == 1


PUBLISH = "/api/exchanges/%2F/amq.default/publish"


@pytest.mark.parametrize("encoding", ["string", "base64"])
def test_a_payload_longer_than_all_other_bodies_may_be(
    served: Served, channel: Any, encoding: str
) -> None:
    channel.queue_declare("q")
    payload = base64.b64encode(b"\xff\xfe" * 900_000).decode()
    assert publish(served, "q", payload=payload, payload_encoding=encoding)[0] == 200
    (got,) = get(served, "q")
    assert (got["payload"], got["payload_encoding"]) == (
        (payload, "string") if encoding == "string" else (payload, "base64")
    )
    status, refused = publish(served, "q", payload="*" + payload, payload_encoding="base64")
    assert (status, refused["reason"][0]) == (400, "not_base64")
    assert len(refused["reason"][1]) < 100_000


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"headers": {"a": [[]] * 600_000}}},
        {"properties": {"headers": {"a": "x" * 2_000_000}}},
        {"routing_key": "x" * 2_000_000},
        {"payload": "y" * 2_000_000, "properties": {"app_id": "x" * 2_000_000}},
        {"payload": ["x" * 2_000_000]},
    ],
)
def test_everything_but_the_payload_has_the_bound_of_all_bodies(
    served: Served, channel: Any, more: dict[str, Any]
) -> None:
    status, refused = publish(served, **more)
    assert (status, refused["reason"]) == (413, "all but the payload has more than 1048576 bytes")


@pytest.mark.parametrize("path", [PUBLISH, "/api/definitions", "/api/queues/%2F/q/get"])
def test_a_compressed_body_is_refused(served: Served, channel: Any, path: str) -> None:
    body = zlib.compress(json.dumps(GUEST | {"routing_key": "q"}).encode())
    raw = served.request("POST", path, body, {"Content-Encoding": "deflate"})
    assert (raw.status, json.loads(raw.body)["reason"]) == (
        415,
        "a body with Content-Encoding deflate is not read: send it as it is",
    )


def test_more_than_one_visit_gets(served: Served, channel: Any) -> None:
    channel.queue_declare("q", arguments={"x-queue-mode": "lazy"}, durable=True)
    for number in range(150):
        persistent = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", "q", b"%d" % number, persistent)
    got = get(served, "q", ackmode="ack_requeue_true", count=140)
    assert [one["payload"] for one in got] == [str(number) for number in range(140)]
    got = get(served, "q", count=1000)
    assert [one["payload"] for one in got] == [str(number) for number in range(150)]
    assert [one["redelivered"] for one in got] == [True] * 140 + [False] * 10


def test_a_get_ends_with_so_many_bytes(
    served: Served, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages_api, "GOT_MAX_BYTES", 2500)
    monkeypatch.setattr(messages_api, "GOT_BYTES_AT_ONCE", 1000)
    channel.queue_declare("q")
    for letter in "abcde":
        publish(served, "q", payload=letter * 1000)
    assert [one["payload"][0] for one in get(served, "q")] == ["a", "b", "c"]
    assert [one["payload"][0] for one in get(served, "q")] == ["d", "e"]
    assert get(served, "q") == []


def test_a_get_that_ends_while_the_next_head_comes_from_the_disk(
    served: Served, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The get that is under way is answered before what was got is acknowledged."""
    monkeypatch.setattr(messages_api, "GOT_MAX_BYTES", 1)
    monkeypatch.setattr(messages_api, "GOT_AT_ONCE", 1 << 30)
    channel.queue_declare("q", arguments={"x-queue-mode": "lazy"}, durable=True)
    for number in range(3000):
        persistent = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", "q", b"%d " % number + bytes(1000), persistent)
    found: list[int] = []
    while rows := get(served, "q", count=1 << 30):
        found += [int(row["payload"].split(" ")[0]) for row in rows]
    assert found == list(range(3000))


@pytest.mark.parametrize("cut, why", [(-1, "truncate is -1"), ("-2", "truncate is -2")])
def test_less_than_nothing_of_a_payload_is_refused(
    served: Served, channel: Any, cut: Any, why: str
) -> None:
    """RabbitMQ answers 500."""
    channel.queue_declare("q")
    publish(served, "q", payload="whole")
    asked = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": cut}
    raw = post(served, GET_Q, asked)
    assert raw.status == 400
    assert why in json.loads(raw.body)["reason"]
    assert [one["payload"] for one in get(served, "q")] == ["whole"]


def test_who_rejects_makes_dead_letters(served: Served, channel: Any) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("dead", exclusive=False, auto_delete=True)
    channel.queue_declare("q", arguments=arguments)
    publish(served, "q")
    assert len(get(served, "q", ackmode="reject_requeue_false")) == 1
    (dead,) = get(served, "dead")
    assert dead["properties"]["headers"]["x-death"][0]["reason"] == "rejected"
    channel.queue_delete("dead")


def test_what_was_got_and_not_settled_goes_back(served: Served, channel: Any) -> None:
    """Of an agent that leaves in the middle."""
    channel.queue_declare("q")
    publish(served, "q")

    def begin() -> None:
        agent = served.view.watch.enter("guest", "/", 0)
        assert agent.get("q", 0) is not None
        agent.leave(0)

    served.on_loop(begin)
    assert len(get(served, "q")) == 1
    assert served.on_loop(lambda: served.node.broker.vhosts["/"].budget.connection_count) == 1


def test_who_gives_up_waiting_for_the_disk_breaks_nothing(served: Served, channel: Any) -> None:
    channel.queue_declare("q", durable=True)

    def give_up() -> Any:
        agent: Any = served.view.watch.enter("guest", "/", 0)
        answer = agent.publish("", "q", {"delivery_mode": 2}, b"x", 0)
        assert answer.cancel()
        return agent

    agent = served.on_loop(give_up)
    assert publish(served, "q", properties={"delivery_mode": 2}) == (200, {"routed": True})
    assert (agent.closed, agent.awaiting_disk) == (False, False)
    served.on_loop(lambda: agent.leave(0))


@pytest.mark.parametrize("method, path", [("POST", GET_Q), ("GET", "/api/aliveness-test/%2F")])
def test_who_came_in_too_late_leaves_all_the_same(
    served: Served, channel: Any, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    channel.queue_declare("q")
    watch, told = served.view.watch, threading.Event()
    enter = watch.enter

    def enter_late(user: str, vhost: str, now_ms: int) -> Any:
        agent = enter(user, vhost, now_ms)
        assert told.wait(10)
        return agent

    monkeypatch.setattr(watch, "enter", enter_late)
    monkeypatch.setattr(app, "ANSWER_TIMEOUT_S", 0.2)
    asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert served.request(method, path, json.dumps(asked).encode()).status == 503
    told.set()
    vhost = served.node.broker.vhosts["/"]
    assert served.on_loop(lambda: vhost.budget.connection_count) == 1  # the channel's


def test_nobody_publishes_while_publishers_are_blocked(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    reasons = served.node.broker.admission.vhost_reasons
    served.on_loop(lambda: reasons.__setitem__("/", "low on something"))
    try:
        status, told = publish(served, "q")
    finally:
        served.on_loop(lambda: reasons.pop("/", None))
    assert status == 503
    assert "low on something" in told["reason"]
    assert get(served, "q") == []


def test_the_queue_of_a_connection_is_its_own(served: Served, channel: Any) -> None:
    channel.queue_declare("q", exclusive=True)
    asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    locked = post(served, "/api/queues/%2F/q/get", asked)
    assert locked.status == 400
    assert b"405 RESOURCE_LOCKED" in locked.body
    assert served.request("DELETE", "/api/queues/%2F/q").status == 400
    assert served.request("PUT", "/api/queues/%2F/q", b"{}").status == 400
    binding = "/api/bindings/%2F/e/amq.topic/q/q"
    assert post(served, binding, {"routing_key": "k"}).status == 400


def test_the_firehose_sees_it(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    channel.queue_declare("seen", exclusive=True)
    channel.queue_bind("seen", "amq.rabbitmq.trace", "#")
    vhost = served.node.broker.vhosts["/"]
    served.on_loop(lambda: setattr(vhost, "tracing", True))
    try:
        publish(served, "q")
        get(served, "q")
    finally:
        served.on_loop(lambda: setattr(vhost, "tracing", False))
    keys = [channel.basic_get("seen", auto_ack=True)[0].routing_key for _ in range(2)]
    assert keys == ["publish.", "deliver.q"]


def test_topic_permissions_hold(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.topic", "#")
    user = served.node.broker.users.users["guest"]
    served.on_loop(lambda: user.topics.__setitem__(("/", "amq.topic"), ("^a", "^a")))
    try:
        assert publish(served, "a.b", "amq.topic") == (200, {"routed": True})
        status, told = publish(served, "b.b", "amq.topic")
        binding = post(served, "/api/bindings/%2F/e/amq.topic/q/q", {"routing_key": "b"})
    finally:
        served.on_loop(user.topics.clear)
    assert status == 400
    assert "access to topic 'b.b'" in told["reason"]
    assert binding.status == 401


@pytest.mark.parametrize(
    "more",
    [
        {"payload": "\ud800"},
        {"routing_key": "\ud800"},
        {"properties": {"headers": {"a": 2**64}}},
        {"properties": {"headers": {"a": "\ud800"}}},
        {"properties": {"headers": {"a": DEEP}}},
        {"properties": {"priority": 256}},
        {"properties": {"app_id": "x" * 256}},
        {"properties": {"headers": []}},
    ],
)
def test_what_no_message_can_have_is_refused(served: Served, more: Any) -> None:
    raw = post(served, "/api/exchanges/%2F/amq.default/publish", GUEST | {"routing_key": ""} | more)
    assert raw.status == 400, raw.body


@pytest.mark.parametrize(
    "method, path, body, reason",
    [
        ("PUT", "/api/queues/%2F/" + "n" * 256, {}, "queue should be less than 255 bytes"),
        (
            "PUT",
            "/api/exchanges/%2F/" + "%C3%A4" * 128,
            {},
            "exchange should be less than 255 bytes",
        ),
        (
            "POST",
            "/api/bindings/%2F/e/amq.topic/q/q",
            {"routing_key": "n" * 256},
            "routing_key should be less than 255 bytes",
        ),
        ("PUT", "/api/queues/%2F/q", {"arguments": {"a": [{"b": 2**63}]}}, "number out of range"),
        ("PUT", "/api/queues/%2F/q", {"arguments": {"a": DEEP}}, "arguments are nested"),
        ("PUT", "/api/queues/%2F/q", {"arguments": {"k" * 256: 1}}, "key should be less than"),
    ],
)
def test_what_amqp_cannot_carry_is_refused(
    served: Served, method: str, path: str, body: Any, reason: str
) -> None:
    refused = served.request(method, path, json.dumps(body).encode())
    assert refused.status == 400
    assert json.loads(refused.body)["reason"].startswith(reason)


def test_line_ends_in_a_name_are_left_out(served: Served, channel: Any) -> None:
    """As in AMQP."""
    assert served.request("PUT", "/api/queues/%2F/q%0D%0A", b"{}").status == 201
    assert served.request("PUT", "/api/queues/%2F/q", b"{}").status == 204


def test_who_lost_a_queue_is_told(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    told: list[Any] = []
    channel.add_on_cancel_callback(told.append)
    channel.basic_consume("q", lambda *_: None, consumer_tag="mine")
    assert served.request("DELETE", "/api/queues/%2F/q?if-unused=true").status == 400
    assert served.request("DELETE", "/api/queues/%2F/q").status == 204
    channel.connection.process_data_events(5)
    assert [one.method.consumer_tag for one in told] == ["mine"]


def test_a_kill_takes_nothing_that_was_answered_and_no_moved_message(tmp_path: Path) -> None:
    """Whenever it comes: each moved message is in one of the two queues, or in both."""
    with LiveBroker(tmp_path) as broker:
        _publish_some(broker)
        _fill(broker, 600)
        chosen = list(range(0, 600, 3))
        told = _do(broker, "POST", MOVE, {"action": "move", "queue": "to", "seq_ids": chosen[:100]})
        assert told["done"] == 100
        killer = threading.Timer(0.004, broker.kill)
        killer.start()
        with contextlib.suppress(OSError, HTTPException):
            _do(broker, "POST", MOVE, {"action": "move", "queue": "to", "seq_ids": chosen[100:]})
        killer.join()
        broker.start()
        assert len(_bodies(broker, "kept")) == 20
        left, moved = ([int(one) for one in _bodies(broker, name)] for name in ("from", "to"))
        assert set(left) | set(moved) == set(range(600))
        assert left == sorted(set(left))
        assert set(chosen[:100]) <= set(moved) <= set(chosen)
        assert set(left) & set(chosen[:100]) == set()


def _do(broker: LiveBroker, method: str, path: str, body: Any) -> Any:
    told = ask("127.0.0.1", broker.http_port, Step(method, path, body))
    assert told.status in (200, 201), told
    return json.loads(told.body or "null")


def _bodies(broker: LiveBroker, queue: str) -> list[str]:
    asked = {"count": 1000, "ackmode": "ack_requeue_true", "encoding": "auto"}
    return [one["payload"] for one in _do(broker, "POST", f"/api/queues/%2F/{queue}/get", asked)]


def _publish_some(broker: LiveBroker) -> None:
    """Declared, bound and published over HTTP."""
    _do(broker, "PUT", "/api/queues/%2F/kept", {"durable": True})
    _do(broker, "PUT", "/api/exchanges/%2F/kept", {"type": "fanout", "durable": True})
    _do(broker, "POST", "/api/bindings/%2F/e/kept/q/kept", {})
    message = GUEST | {"routing_key": "", "properties": {"delivery_mode": 2}}
    for _ in range(20):
        told = _do(broker, "POST", "/api/exchanges/%2F/kept/publish", message)
        assert told == {"routed": True}


def _fill(broker: LiveBroker, count: int) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", broker.amqp_port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.tx_select()
    for name in ("from", "to"):
        channel.queue_declare(name, durable=True, arguments={"x-queue-mode": "lazy"})
    for number in range(count):
        persistent = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", "from", b"%d" % number, persistent)
    channel.tx_commit()
    connection.close()
