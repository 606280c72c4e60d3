"""``/api/definitions`` over HTTP: who may, what comes out, and what an import answers."""

from __future__ import annotations

import base64
import json
from http.client import HTTPConnection
from typing import Any

import pytest

from penstock.management.api.definitions import _refusal
from tests.management.conftest import Served


def post(served: Served, path: str, body: bytes, user: str = "guest") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    token = base64.b64encode(f"{user}:{user}".encode()).decode()
    connection.request("POST", path, body, {"Authorization": f"Basic {token}"})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_out_and_in_again(served: Served) -> None:
    served.declare("defined")
    everything = served.get("/api/definitions")
    assert "defined" in [row["name"] for row in everything["queues"]]
    assert post(served, "/api/definitions", json.dumps(everything).encode()) == (204, b"")
    assert served.get("/api/definitions") == everything
    one = served.get("/api/definitions/%2F")
    assert "users" not in one
    assert one["queues"] == [
        {key: value for key, value in row.items() if key != "vhost"} for row in everything["queues"]
    ]


def test_many_rows_arrive_in_slices(served: Served) -> None:
    rows = [{"name": f"slice-{i}", "durable": True, "arguments": {}} for i in range(230)]
    assert post(served, "/api/definitions/%2F", json.dumps({"queues": rows}).encode())[0] == 204
    names = {row["name"] for row in served.get("/api/definitions/%2F")["queues"]}
    assert {row["name"] for row in rows} <= names


def test_what_is_left_out_is_said(served: Served) -> None:
    body = {"queues": [{"name": "q", "vhost": "/", "arguments": {"x-queue-mode": "odd"}}]}
    line = (
        "queue 'q' in vhost '/': invalid arg 'x-queue-mode' for queue 'q' in vhost '/':"
        " \"unsupported queue mode 'odd'\""
    )
    for vhost in ("", "/%2F"):
        path = "/api/definitions" + vhost
        status, answer = post(served, path, json.dumps(body).encode())
        assert status == 400
        assert json.loads(answer) == {
            "error": "bad_request",
            "reason": f"1 left out, the rest was taken; {line}",
            "left_out": [line],
        }
        status, answer = post(served, path + "?partial=true", json.dumps(body).encode())
        assert (status, json.loads(answer)) == (200, {"left_out": [line]})


def test_a_refusal_stays_short() -> None:
    reason = str(_refusal([str(number) for number in range(12)])["reason"])
    assert reason == "12 left out, the rest was taken; 0; 1; 2; 3; 4; 5; 6; 7; 8; 9; and 2 more"


@pytest.mark.parametrize(
    "part",
    [
        {"queues": [{"name": "nov"}]},
        {"permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": ""}]},
        {"users": [{"name": "u2", "password_hash": "!!", "tags": ""}]},
        {"exchanges": [{"name": "e", "vhost": "/", "type": "nope"}]},
        {"policies": [{"name": "p", "vhost": "/", "pattern": "x", "definition": {"nope": 1}}]},
        {"parameters": [{"vhost": "/", "component": "shovel", "name": "s", "value": {}}]},
    ],
)
def test_a_mistake_is_refused_and_the_rest_is_taken(served: Served, part: dict[str, Any]) -> None:
    body = json.dumps(part | {"vhosts": [{"name": "taken"}]}).encode()
    status, answer = post(served, "/api/definitions", body)
    assert (status, len(json.loads(answer)["left_out"])) == (400, 1)
    assert served.ask("/api/vhosts/taken", method="DELETE").status == 204


def test_a_pattern_that_could_take_for_ever_is_left_out(served: Served) -> None:
    rule = {"name": "slow", "vhost": "/", "pattern": "(a+)+$", "definition": {"expires": 900}}
    status, answer = post(served, "/api/definitions", json.dumps({"policies": [rule]}).encode())
    assert status == 400
    (line,) = json.loads(answer)["left_out"]
    assert line.startswith("policy 'slow' in vhost '/': pattern should be regular expression")


def test_nonsense_is_refused(served: Served) -> None:
    no_number = b'{"global_parameters": [{"name": "g", "value": NaN}]}'
    for body in (b"", b"x", b"[]", b"[" * 100_000, b"\xff", no_number):
        assert post(served, "/api/definitions", body)[0] == 400, body[:9]
    status, answer = post(served, "/api/definitions/nowhere", b"{}")
    assert (status, json.loads(answer)["reason"]) == (404, "vhost_not_found")


def test_only_administrators_may(served: Served) -> None:
    served.add_user("looker", "looker", ["monitoring", "policymaker"], "/")
    for path in ("/api/definitions", "/api/definitions/%2F"):
        status, body = post(served, path, b"{}", "looker")
        assert (status, json.loads(body)["reason"]) == (401, "Not administrator user")
