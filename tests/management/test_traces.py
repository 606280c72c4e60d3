"""One message followed over HTTP: its steps, where it is now, and whose queues are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.counting.spans import FOLLOW_MS
from tests.management.conftest import Served

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PATH = f"/api/penstock/traces/{TRACE}"


@pytest.fixture(scope="module", autouse=True)
def _queues(served: Served) -> None:
    for name in ("traced.one", "traced.two"):
        served.declare(name)
        body = {"routing_key": "traced"}
        asked(served, "POST", f"/api/bindings/%2F/e/amq.direct/q/{name}", body)


def asked(served: Served, method: str, path: str, body: object) -> Any:
    answer = served.request(method, path, json.dumps(body).encode())
    assert answer.status in (200, 201, 204), answer
    return json.loads(answer.body) if answer.body else None


def publish(served: Served, trace: str = TRACE) -> None:
    headers = {"traceparent": f"00-{trace}-{SPAN}-01"}
    wanted = {
        "routing_key": "traced",
        "properties": {"headers": headers},
        "payload": "x",
        "payload_encoding": "string",
    }
    assert asked(served, "POST", "/api/exchanges/%2F/amq.direct/publish", wanted)["routed"]


def get(served: Served, queue: str, ackmode: str) -> None:
    wanted = {"count": 1, "ackmode": ackmode, "encoding": "auto"}
    (_,) = asked(served, "POST", f"/api/queues/%2F/{queue}/get", wanted)


def test_its_steps_and_where_it_is(served: Served) -> None:
    assert served.ask(PATH).status == 404
    publish(served)
    assert served.request("PUT", PATH).status == 204
    assert served.get(PATH)["steps"] == []
    publish(served)
    publish(served, TRACE[::-1])
    found = served.get(PATH)
    (step,) = found["steps"]
    assert (step["step"], step["name"], step["routing_key"]) == ("publish", "amq.direct", "traced")
    assert step["queues"] == ["traced.one", "traced.two"]
    where = {one["queue"]: one["state"] for one in found["open"]}
    assert where == {"traced.one": "in_queue", "traced.two": "in_queue"}

    get(served, "traced.one", "ack_requeue_false")  # the one of before
    get(served, "traced.one", "ack_requeue_true")
    get(served, "traced.one", "ack_requeue_false")
    get(served, "traced.two", "reject_requeue_false")
    get(served, "traced.two", "reject_requeue_false")
    found = served.get(PATH)
    steps = [(one["step"], one["name"], one.get("outcome")) for one in found["steps"]]
    assert steps[-2:] == [("queue", "traced.two", None), ("deliver", "traced.two", "rejected")]
    of_one = [(step, outcome) for step, name, outcome in steps if name == "traced.one"]
    again = [("queue", None), ("deliver", "returned"), ("queue", None), ("deliver", "acked")]
    assert of_one[-4:] == again
    assert found["open"] == []


def test_only_queues_one_may_read(served: Served) -> None:
    served.add_user("mon", "m", ["management"], "/")
    served.node.broker.users.users["mon"].vhosts["/"] = (".*", ".*", "^traced.two$")
    found = json.loads(served.ask(PATH, "mon").body)
    assert [one["queues"] for one in found["steps"] if one["step"] == "publish"] == [["traced.two"]]
    assert {one["name"] for one in found["steps"][1:]} == {"traced.two"}


def test_nothing_of_other_virtual_hosts(served: Served) -> None:
    served.add_user("mon", "m", ["management"])
    found = served.ask(PATH, "mon")
    assert (found.status, json.loads(found.body)["steps"]) == (200, [])


def test_it_ends(served: Served) -> None:
    book = served.node.broker.queue_context.sampling.spans
    served.on_loop(lambda: book.take(served.node.broker.events.now_ms + FOLLOW_MS + 1))
    assert served.ask(PATH).status == 404
    assert not book.on


@pytest.mark.parametrize("trace", ["0" * 32, "abc", TRACE.upper(), TRACE + "0"])
def test_nonsense(served: Served, trace: str) -> None:
    assert served.request("PUT", f"/api/penstock/traces/{trace}").status == 400
