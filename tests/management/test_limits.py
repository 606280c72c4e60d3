"""Limits of virtual hosts and users over HTTP; what RabbitMQ 3.10.8 answers stands beside them."""

from __future__ import annotations

import json
import logging
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.management.conftest import Served

logging.getLogger("pika").setLevel(logging.CRITICAL)
VHOST = "/api/vhost-limits/%2F"


def ask(served: Served, method: str, path: str, body: str = "") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request(method, path, body, {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def put(served: Served, path: str, value: object) -> int:
    return ask(served, "PUT", path, json.dumps({"value": value}))[0]


def connect(served: Served, user: str = "guest", password: str = "guest") -> Any:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", served.amqp_port, credentials=pika.PlainCredentials(user, password)
        )
    )


def test_limits_of_a_virtual_host_hold_at_once(served: Served) -> None:
    assert served.get("/api/vhost-limits") == []
    assert put(served, f"{VHOST}/max-connections", 1) == 204
    assert put(served, f"{VHOST}/max-queues", 1) == 204
    rows = [{"vhost": "/", "value": {"max-connections": 1, "max-queues": 1}}]
    assert served.get("/api/vhost-limits") == rows
    assert served.get(VHOST) == rows
    first = connect(served)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as caught:
        connect(served)
    assert (
        "NOT_ALLOWED - access to vhost '/' refused for user 'guest':"
        " connection limit (1) is reached"
    ) in str(caught.value)
    channel = first.channel()
    channel.queue_declare("one", exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare("two", exclusive=True)
    assert refused.value.reply_text == (
        "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost '/' (1) is reached"
    )
    assert put(served, f"{VHOST}/max-connections", -(10**30)) == 204  # less than an i64 holds
    assert put(served, f"{VHOST}/max-connections", -1) == 204
    assert ask(served, "DELETE", f"{VHOST}/max-queues") == (204, "")
    assert ask(served, "DELETE", f"{VHOST}/max-queues") == (204, "")
    assert served.get(VHOST) == []
    second = connect(served)
    second.channel().queue_declare("two", exclusive=True)
    second.close()
    first.close()


def test_limits_of_a_user_hold_at_once(served: Served) -> None:
    served.add_user("mon", "m", ["management"], "/")
    path = "/api/user-limits/mon"
    assert put(served, f"{path}/max-connections", 1) == 204
    assert put(served, f"{path}/max-channels", 2) == 204
    rows = [{"user": "mon", "value": {"max-connections": 1, "max-channels": 2}}]
    assert served.get("/api/user-limits") == served.get(path) == rows
    assert served.get("/api/user-limits", user="mon") == rows  # its own
    one = connect(served, "mon", "m")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as caught:
        connect(served, "mon", "m")
    assert "user connection limit (1) is reached" in str(caught.value)
    one.channel()
    one.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as refused:
        one.channel()
    assert "maximum allowed user limit of (2)" in refused.value.reply_text
    for limit in ("max-connections", "max-channels"):
        assert ask(served, "DELETE", f"{path}/{limit}")[0] == 204
    assert served.get("/api/user-limits") == []


@pytest.mark.parametrize(
    "path, body, status, reason",
    [
        (
            *(f"{VHOST}/max-nonsense", '{"value":7}', 400),
            'Validation failed\n\nUnrecognised terms [{<<"max-nonsense">>,7}] in limits\n',
        ),
        (
            *(f"{VHOST}/max-queues", '{"value":"x"}', 400),
            'Validation failed\n\nmax-queues should be a number, actually was <<"x">>\n',
        ),
        (f"{VHOST}/max-queues", '{"value":null}', 400, "actually was null"),
        (f"{VHOST}/max-queues", '{"value":1.5}', 400, "max-queues should be a number"),
        (f"{VHOST}/max-queues", '{"value":true}', 400, "max-queues should be a number"),
        (f"{VHOST}/max-queues", "{}", 400, "[{key_missing,value}]"),
        (f"{VHOST}/max-queues", "x", 400, "not_json"),
        (f"{VHOST}/max-queues", "[]", 400, "not_json"),
        (f"{VHOST}/max-queues", "[" * 100_000, 400, "not_json"),
        ("/api/vhost-limits/nowhere/max-queues", '{"value":1}', 404, "vhost_not_found"),
        ("/api/user-limits/nobody/max-channels", '{"value":1}', 404, "Not Found"),
        (
            *("/api/user-limits/guest/max-queues", '{"value":"x"}', 400),
            'Unrecognised terms [{<<"max-queues">>,<<"x">>}] in user-limits',
        ),
    ],
)
def test_nonsense_is_refused(
    served: Served, path: str, body: str, status: int, reason: str
) -> None:
    answer = ask(served, "PUT", path, body)
    assert (answer[0], reason in json.loads(answer[1])["reason"]) == (status, True), answer
    assert served.get(VHOST) == served.get("/api/user-limits/guest") == []


def test_budgets_are_limits_like_others(served: Served) -> None:
    wanted = {"max-memory-bytes": 1 << 40, "max-disk-bytes": 5, "max-publish-rate": 0}
    for name, value in wanted.items():
        assert put(served, f"{VHOST}/{name}", value) == 204
    assert served.get(VHOST) == [{"vhost": "/", "value": wanted}]
    for name in wanted:
        assert ask(served, "DELETE", f"{VHOST}/{name}")[0] == 204
    assert served.get(VHOST) == []


def test_who_may_look_and_who_may_change(served: Served) -> None:
    served.add_user("none", "m", ["policymaker"])
    assert put(served, f"{VHOST}/max-queues", 100) == 204
    assert served.get("/api/vhost-limits", user="none") == []
    assert served.get(VHOST, user="none") == []
    for method in ("PUT", "DELETE"):
        answer = served.ask(f"{VHOST}/max-queues", user="none", method=method)
        assert (answer.status, "Not administrator user" in answer.body) == (401, True)
    assert ask(served, "GET", f"{VHOST}/max-queues")[0] == 405
    assert ask(served, "GET", "/api/vhost-limits/nowhere")[0] == 404
    assert ask(served, "GET", "/api/user-limits/nobody")[0] == 404
    for somebody in ("guest", "nobody"):
        assert served.get(f"/api/user-limits/{somebody}", user="none") == []
    assert ask(served, "DELETE", f"{VHOST}/max-queues")[0] == 204


def test_limits_survive_a_restart(tmp_path: Path) -> None:
    one = Served(tmp_path)
    assert put(one, f"{VHOST}/max-queues", 3) == 204
    assert put(one, "/api/user-limits/guest/max-channels", 4) == 204
    one.stop()
    again = Served(tmp_path)
    assert again.get(VHOST)[0]["value"] == {"max-queues": 3}
    assert again.get("/api/user-limits/guest")[0]["value"] == {"max-channels": 4}
    again.stop()
