"""No request of the management API keeps the data loop long, however much there is.

Each call that management makes on the data loop is timed by its own processor time.  One that
takes longer than ``LONGEST_MS`` three times in a row is one without slices.
"""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pika
import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.access import HASHING, hash_password
from penstock.broker.rules.policies import Policy
from penstock.storage.definitions.parameters import ParameterRecord
from tests.fuzz.loop_time import pace
from tests.management.conftest import Served

LONGEST_MS = 20.0
COUNT = 5_000
BINDINGS = 30_000
"""Of one queue."""
FEW = 1_000
SESSIONS = 60
UPSTREAM = "federation-upstream"

NAMES = {
    "vhost": "/",
    "name": "busy",
    "source": "amq.topic",
    "destination": "busy",
    "exchange": "amq.topic",
    "key": "none",
    "user": "u1",
    "node": "penstock@test",
    "component": UPSTREAM,
    "policy": "p1",
    "topic": "t1",
    "channel": "c",
    "port": "5672",
    "protocol": "amqp",
    "within": "1",
    "unit": "days",
    "password": "x",
    "pattern": "q",
    "trace": "1" * 32,
}
ENDLESS = ("/api/penstock/live",)
"""A stream: it repeats answers of other paths."""


class TimedCalls:
    """Stands before ``loop.call`` and keeps the longest call."""

    def __init__(self, call: Callable[[Callable[[], Any]], Future[Any]]) -> None:
        self._call = call
        self.longest_ms = 0.0
        self.longest = ""

    def __call__(self, function: Callable[[], Any]) -> Future[Any]:
        def timed() -> Any:
            since_ns = time.thread_time_ns()
            try:
                return function()
            finally:
                took_ms = (time.thread_time_ns() - since_ns) / 1e6
                if took_ms > self.longest_ms:
                    inner = getattr(function, "func", function)
                    self.longest_ms, self.longest = took_ms, getattr(inner, "__qualname__", "?")

        return self._call(timed)


class Crowd:
    """Thousands of everything, on a node with its management server."""

    def __init__(self, served: Served) -> None:
        self.served = served
        served.node.loop.call(self._administration).result(120)
        served.node.loop.call(self._topology).result(120)
        self.connections = [self._connect() for _ in range(SESSIONS)]
        self._channels()
        self.calls = TimedCalls(served.management._call_on_loop)
        served.management._call_on_loop = self.calls  # type: ignore[assignment]

    def _topology(self) -> None:
        vhost = self.served.node.broker.vhosts["/"]
        busy = vhost.declare_queue("busy", False, None, False, {})
        assert busy is not None
        for number in range(COUNT):
            queue = vhost.declare_queue(f"q{number}", False, None, False, {})
            assert queue is not None
            vhost.bind_queue(queue, "amq.topic", f"k{number}", {})
        for number in range(BINDINGS):
            vhost.bind_queue(busy, "amq.topic", f"b.{number}", {})
        for number in range(FEW):
            vhost.declare_exchange(f"x{number}", "topic", False, False, False, {})
            vhost.bind_exchange(f"x{number}", "amq.topic", "k", {})

    def _administration(self) -> None:
        broker = self.served.node.broker
        done = Administration(broker, 16_384)
        for number in range(FEW):
            user = f"u{number}"
            done.put_user(user, hash_password("p", b"salt"), HASHING, ["management"])
            done.put_permission(user, "/", ".*", ".*", ".*")
            done.put_topic_permission(user, "/", "amq.topic", ".*", ".*")
            done.put_global_parameter(f"g{number}", number)
            done.put_parameter(
                ParameterRecord(f"s{number}", {"uri": "amqp://x"}, "/", UPSTREAM, "guest")
            )
        for number in range(FEW // 10):
            done.put_vhost(f"v{number}")
            done.put_policy("/", Policy(f"p{number}", "^none$", "queues", 0, {"max-length": 1}))

    def _connect(self) -> pika.BlockingConnection:
        where = pika.ConnectionParameters("127.0.0.1", self.served.amqp_port, heartbeat=0)
        return pika.BlockingConnection(where)

    def _channels(self) -> None:
        for connection in self.connections[:3]:
            for _ in range(300):
                connection.channel()
        channel = self.connections[4].channel()
        for number in range(FEW):
            channel.basic_consume("busy", lambda *_: None, True, consumer_tag=f"t{number}")

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """``calls`` has the longest call for it."""
        self.calls.longest_ms, self.calls.longest = 0.0, ""
        connection = HTTPConnection("127.0.0.1", self.served.port, timeout=100)
        headers = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        assert method == "GET" or answer.status < 300, (method, path, answer.status, said)
        return said

    def longest(self, path: str) -> tuple[float, str]:
        """Of the calls for one GET: ms, and the function."""
        self.ask("GET", path)
        return self.calls.longest_ms, self.calls.longest


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    served = Served(tmp_path_factory.mktemp("node"))
    try:
        crowd = Crowd(served)
        gc.collect()
        gc.disable()  # what the test has made is none of the broker's costs
        yield crowd
        for connection in crowd.connections:
            connection.close()
    finally:
        gc.enable()
        served.stop()


def paths(served: Served) -> list[str]:
    """Each with names of things that are there."""
    found = []
    for route in served.routes():
        if "GET" not in route.endpoints or route.path in ENDLESS:
            continue
        path = re.sub(r"\{(\w+)[^}]*\}", lambda part: quote(NAMES[part[1]], safe=""), route.path)
        found.append(path)
        if route.path in ("/api/queues", "/api/exchanges", "/api/connections", "/api/channels"):
            found += [f"{path}?page=1&page_size=100", f"{path}?sort=name&columns=name"]
    return found


def test_no_call_on_the_data_loop_is_long(crowd: Crowd) -> None:
    slow = []
    for path in paths(crowd.served):
        tries = [crowd.longest(path)]
        while tries[-1][0] > LONGEST_MS * pace() and len(tries) < 3:
            tries.append(crowd.longest(path))
        took_ms, function = min(tries)
        if took_ms > LONGEST_MS * pace():
            slow.append(f"{path}: {took_ms:.0f} ms in {function}")
    assert slow == []


CHANGES: tuple[tuple[str, str, object], ...] = (
    ("PUT", "users/u1", {"password": "xyzxyz", "tags": ""}),
    ("PUT", "permissions/%2F/u2", {"configure": ".*", "write": "", "read": ""}),
    ("DELETE", "permissions/%2F/u2", None),
    ("PUT", "topic-permissions/%2F/u3", {"exchange": "amq.topic", "write": "a", "read": "b"}),
    ("DELETE", "users/u4", None),
    ("PUT", "vhosts/new", {}),
    ("DELETE", "vhosts/v1", None),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": 100_000}),
    ("PUT", "user-limits/u1/max-channels", {"value": 10}),
    ("PUT", "parameters/federation-upstream/%2F/up", {"value": {"uri": "amqp://localhost:1"}}),
    ("PUT", "policies/%2F/many", {"pattern": "^q", "definition": {"max-length": 9}}),
    ("DELETE", "policies/%2F/many", None),
    ("PUT", "operator-policies/%2F/many", {"pattern": "^q", "definition": {"max-length": 9}}),
    ("DELETE", "parameters/federation-upstream/%2F/up", None),
    ("PUT", "queues/%2F/one", {"durable": True}),
    ("PUT", "exchanges/%2F/one", {"type": "topic"}),
    ("POST", "bindings/%2F/e/one/q/one", {"routing_key": "a"}),
    ("DELETE", "queues/%2F/busy/contents", None),
    ("POST", "definitions", {}),
    ("POST", "rebalance/queues", {}),
    ("DELETE", "exchanges/%2F/x5", None),
    ("DELETE", "users/u6", None),
    ("DELETE", "queues/%2F/busy", None),
)


def test_no_change_on_the_data_loop_is_long(crowd: Crowd) -> None:
    """Each is done once: what it changes is changed then."""
    slow = []
    exported = crowd.ask("GET", "/api/definitions")
    for method, path, wanted in CHANGES:
        body = exported if path == "definitions" else json.dumps(wanted).encode()
        crowd.ask(method, f"/api/{path}", None if wanted is None else body)
        if crowd.calls.longest_ms > LONGEST_MS * pace():
            slow.append(f"{path}: {crowd.calls.longest_ms:.0f} ms in {crowd.calls.longest}")
    assert slow == []
