"""A broker in this process: the real node on a thread of its own, management beside it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from penstock.broker.rules.access import User, hash_password
from penstock.management.app import ManagementServer
from penstock.management.http.endpoints import Route
from penstock.management.rows.view import BrokerView
from penstock.management.statistics.node_facts import NodeFacts
from penstock.node.inspection.session_inspector import NodeSessionInspector
from penstock.node.node import Node
from penstock.runtime.listener import Listener, tcp_socket
from penstock.runtime.loop import TICK_MS
from penstock.settings.entry import AddressRules
from penstock.settings.settings import load_settings
from tests.management.cases import QUEUES, Answer, Case, ask

T = TypeVar("T")


class Raw(NamedTuple):
    """An answer with all its headers."""

    status: int
    headers: Message
    body: bytes


class Served:
    """A node that turns in a thread, and its management server."""

    def __init__(self, data_dir: Path, **given: str) -> None:
        settings = load_settings(None, {}, {"data_dir": str(data_dir)} | given)
        self.node = Node(settings)
        self.node.monitor.begin(0, 0)
        listener = Listener(tcp_socket("127.0.0.1", 0))
        self.amqp_port = listener.port
        self.node.loop.listen(listener)
        self._thread = threading.Thread(target=self._turn, name="data loop")
        self._thread.start()
        watch = NodeSessionInspector(self.node.loop, self.node.sessions.inside)
        self.view = BrokerView(self.node.broker, watch, "penstock@test", self.node.opening)
        self.node.broker.options = self.node.broker.options._replace(node_name="penstock@test")
        self.facts = NodeFacts(
            "penstock@test", settings, self.node.broker.admission.alarms, self.node.io.counts
        )
        self.management = ManagementServer(
            "127.0.0.1",
            0,
            self.node.loop.call,
            self.view,
            self.facts,
            host_names=settings.http_host_names,
        )
        self.port = self.management.start()
        self.stop_sampling()

    def stop_sampling(self) -> None:
        """Calls on the data loop are the tests' own."""
        management, sampling = self.management._side.loop, self.management.sampling
        assert management is not None
        assert sampling is not None
        management.call_soon_threadsafe(sampling.cancel)

    def _turn(self) -> None:
        loop = self.node.loop
        while not loop.stopping:
            loop.run_once(TICK_MS)

    def on_loop(self, function: Callable[[], T]) -> T:
        return self.node.loop.call(function).result(timeout=10)

    def reload(self, connection_max: int = -1, *, plain_text_passwords: bool = False) -> None:
        """Settings of the broker that may change while it runs."""
        broker = self.node.broker
        options = broker.options
        self.on_loop(
            lambda: broker.reload(
                connection_max,
                options.consumer_timeout_ms,
                options.channel_max,
                plain_text_passwords,
                AddressRules(()),
            )
        )

    def stop(self) -> None:
        self.management.stop()
        self.node.loop.stopping = True
        self.node.loop.wake()
        self._thread.join(10)
        self.node.loop.drop_all()
        self.node._close()

    def routes(self) -> list[Route]:
        return [route for one in self.management._context.endpoints for route in one.routes()]

    def add_user(self, name: str, password: str, tags: list[str], *vhosts: str) -> None:
        user = User(name, hash_password(password, b"salt"), tags)
        user.vhosts = dict.fromkeys(vhosts, (".*", ".*", ".*"))
        self.on_loop(lambda: self.node.broker.users.users.__setitem__(name, user))

    def declare(
        self, *names: str, vhost: str = "/", arguments: dict[str, Any] | None = None
    ) -> None:
        def declare() -> None:
            for name in names:
                self.node.broker.vhosts[vhost].declare_queue(
                    name, True, None, False, arguments or {}
                )

        self.on_loop(declare)

    def ask(self, path: str, user: str = "guest", method: str = "GET") -> Answer:
        return ask("127.0.0.1", self.port, Case(method, path, user))

    def get(self, path: str, user: str = "guest") -> Any:
        answer = self.ask(path, user)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Any = None,
    ) -> Raw:
        """As guest, unless the headers say otherwise."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
        connection.request(method, path, body, login | (headers or {}))
        response = connection.getresponse()
        raw = Raw(response.status, response.headers, response.read())
        connection.close()
        return raw

    def raw(self, path: str, headers: dict[str, str] | None = None) -> Raw:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        raw = Raw(response.status, response.headers, response.read())
        connection.close()
        return raw


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("node"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """In the state the recorded cases expect."""
    running = Served(tmp_path_factory.mktemp("node"))
    running.declare(*QUEUES)
    running.add_user("mon", "m", ["management"])
    running.add_user("none", "m", [])
    yield running
    running.stop()
