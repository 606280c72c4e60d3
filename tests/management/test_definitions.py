"""``/api/definitions`` over HTTP: who may, what comes out, and what an import answers."""

from __future__ import annotations

import base64
import json
from http.client import HTTPConnection

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
    body = {"queues": [{"name": "q", "vhost": "/", "arguments": {"x-queue-type": "quorum"}}]}
    status, answer = post(served, "/api/definitions", json.dumps(body).encode())
    assert status == 200
    assert json.loads(answer)["left_out"] == [
        "queue 'q' in vhost '/': x-queue-type 'quorum' for queue 'q' in vhost '/'"
    ]


def test_a_pattern_that_could_take_for_ever_is_left_out(served: Served) -> None:
    rule = {"name": "slow", "vhost": "/", "pattern": "(a+)+$", "definition": {"expires": 900}}
    status, answer = post(served, "/api/definitions", json.dumps({"policies": [rule]}).encode())
    assert status == 200
    (line,) = json.loads(answer)["left_out"]
    assert line.startswith("policy 'slow' in vhost '/': pattern should be regular expression")


def test_nonsense_is_refused(served: Served) -> None:
    no_number = b'{"global_parameters": [{"name": "g", "value": NaN}]}'
    for body in (b"", b"x", b"[]", b"[" * 100_000, b"\xff", no_number):
        assert post(served, "/api/definitions", body)[0] == 400, body[:9]
    assert post(served, "/api/definitions/nowhere", b"{}")[0] == 404


def test_only_administrators_may(served: Served) -> None:
    served.add_user("looker", "looker", ["monitoring", "policymaker"], "/")
    for path in ("/api/definitions", "/api/definitions/%2F"):
        status, body = post(served, path, b"{}", "looker")
        assert (status, json.loads(body)["reason"]) == (401, "Not administrator user")
