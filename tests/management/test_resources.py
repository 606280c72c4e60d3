"""Health checks as RabbitMQ 3.10.8 answers them, and limits set over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.broker.rules.alarms import Alarms
from tests.management.conftest import Raw, Served

MEMORY = "/api/penstock/vm-memory-high-watermark"
DISK = "/api/penstock/disk-free-limit"
CHECK = "/api/health/checks/alarms"
LOCAL_CHECK = "/api/health/checks/local-alarms"


def put(served: Served, path: str, body: object) -> Raw:
    return served.request("PUT", path, json.dumps(body).encode())


def alarms(served: Served) -> Alarms:
    return served.node.broker.admission.alarms


def test_no_alarm(served: Served) -> None:
    assert served.get(CHECK) == {"status": "ok"}
    assert served.get(LOCAL_CHECK) == {"status": "ok"}


def test_both_alarms_come_and_go(served: Served) -> None:
    assert put(served, DISK, {"absolute": "900000GB"}).status == 200
    assert put(served, MEMORY, {"fraction": 0}).status == 200
    rows = [
        {"node": "penstock@test", "resource": "disk space"},
        {"node": "penstock@test", "resource": "memory"},
    ]
    for path, reason in (
        (CHECK, "There are alarms in effect in the cluster"),
        (LOCAL_CHECK, "There are alarms in effect on the node"),
    ):
        answer = served.request("GET", path)
        assert answer.status == 503
        assert json.loads(answer.body) == {"alarms": rows, "reason": reason, "status": "failed"}
    (node,) = served.get("/api/nodes")
    assert (node["mem_alarm"], node["disk_free_alarm"]) == (True, True)
    assert (node["mem_limit"], node["disk_free_limit"]) == (0, 900_000 * 10**9)
    storage = served.get("/api/penstock/storage")
    assert storage["alarms"]["reason"] == "low on disk & memory"
    assert storage["disk"]["publishers_wait"]
    put(served, DISK, {"absolute": 0})
    assert json.loads(served.request("GET", CHECK).body)["alarms"] == rows[1:]
    put(served, MEMORY, {"fraction": 0.4})
    assert served.get(CHECK) == {"status": "ok"}
    (node,) = served.get("/api/nodes")
    assert (node["mem_alarm"], node["disk_free_alarm"]) == (False, False)
    assert node["mem_used"] < node["mem_limit"]
    assert node["disk_free"] > 0
    assert not served.get("/api/penstock/storage")["disk"]["publishers_wait"]


def test_the_memory_limit_is_told_as_it_was_set(served: Served) -> None:
    before = alarms(served).memory_limit_bytes
    for body in ({"fraction": 0.25}, {"absolute": 300_000_000}):
        put(served, MEMORY, body)
        limit = int(alarms(served).memory_limit_bytes)
        assert served.get(MEMORY) == {"node": "penstock@test", "limit_bytes": limit, **body}
    put(served, MEMORY, {"absolute": before})


@pytest.mark.parametrize(
    "path, body, of_total, limit_bytes",
    [
        (MEMORY, {"fraction": 0.25}, 0.25, 0),
        (MEMORY, {"fraction": "0.5"}, 0.5, 0),
        (MEMORY, {"absolute": "300MB"}, 0, 300_000_000),
        (MEMORY, {"absolute": 300_000_001}, 0, 300_000_001),
        (DISK, {"mem_relative": 0.001}, 0.001, 0),
        (DISK, {"absolute": "10MiB"}, 0, 10 << 20),
        (DISK, {"absolute": 0}, 0, 0),
    ],
)
def test_limits(
    served: Served, path: str, body: dict[str, Any], of_total: float, limit_bytes: int
) -> None:
    now = of_total * alarms(served).total_bytes if of_total else limit_bytes
    before = {MEMORY: alarms(served).memory_limit_bytes, DISK: alarms(served).disk_limit_bytes}
    answer = put(served, path, body)
    assert answer.status == 200
    assert json.loads(answer.body) == {"node": "penstock@test", "limit_bytes": int(now)}
    known = alarms(served)
    assert int(now) == (known.memory_limit_bytes if path == MEMORY else known.disk_limit_bytes)
    put(served, path, {"absolute": before[path]})  # for these tests are in a process of any size


@pytest.mark.parametrize(
    "path, body, reason",
    [
        (MEMORY, {"fraction": 1.1}, "should be a fraction between 0.0 and 1.0"),
        (MEMORY, {"fraction": -1}, "should be a fraction between 0.0 and 1.0"),
        (MEMORY, {"fraction": None}, "Bad argument."),
        (MEMORY, {"fraction": True}, "Bad argument."),
        (MEMORY, {"absolute": "10Q"}, "Bad argument."),
        (MEMORY, {"mem_relative": 1}, "Bad argument."),
        (MEMORY, {}, "Bad argument."),
        (MEMORY, {"fraction": 0.1, "absolute": 1}, "Bad argument."),
        (MEMORY, [0.4], "Bad argument."),
        (DISK, {"absolute": 1.5}, "Bad argument."),
        (DISK, {"absolute": -5}, "Bad argument."),
        (DISK, {"mem_relative": "x"}, "Bad argument."),
        (DISK, {"fraction": 0.4}, "Bad argument."),
    ],
)
def test_nonsense_changes_nothing(served: Served, path: str, body: object, reason: str) -> None:
    before = alarms(served).memory_limit_bytes, alarms(served).disk_limit_bytes
    answer = put(served, path, body)
    assert answer.status == 400
    assert reason in json.loads(answer.body)["reason"]
    assert before == (alarms(served).memory_limit_bytes, alarms(served).disk_limit_bytes)


def test_what_is_no_json(served: Served) -> None:
    answer = served.request("PUT", MEMORY, b"{")
    assert (answer.status, json.loads(answer.body)["reason"]) == (400, "not_json")


@pytest.mark.parametrize("path", [MEMORY, DISK])
def test_only_administrators_set_limits(served: Served, path: str) -> None:
    served.add_user("watcher", "guest", ["monitoring"], "/")
    login = {"Authorization": "Basic d2F0Y2hlcjpndWVzdA=="}
    before = alarms(served).memory_limit_bytes, alarms(served).disk_limit_bytes
    answer = served.request("PUT", path, b'{"absolute": 0}', login)
    assert answer.status == 401
    assert json.loads(answer.body)["reason"] == "Not administrator user"
    assert before == (alarms(served).memory_limit_bytes, alarms(served).disk_limit_bytes)
    assert served.request("GET", "/api/nodes", None, login).status == 200
