"""Connections to NSQ's HTTP ports: bounded as those of the management API."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from penstock.management.http import http_connections
from penstock.node.node import Node
from penstock.runtime.loop import TICK_MS
from penstock.settings.settings import load_settings
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import Authority
from tests.helpers.nsq_broker import eventually

REQUEST = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Services:
    """A node that turns in a thread, and what runs beside it for NSQ."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        certificate, key = self.authority.sign("broker", "/CN=localhost", "IP:127.0.0.1")
        self.http, self.https, self.lookup = free_port(), free_port(), free_port()
        given = {
            "data_dir": str(directory / "data"),
            "bind": "127.0.0.1",
            "ssl_certfile": certificate,
            "ssl_keyfile": key,
            "nsq_http_port": str(self.http),
            "nsq_https_port": str(self.https),
            "nsqlookupd_http_port": str(self.lookup),
            "nsqlookupd_tcp_port": "0",
        }
        self.node = Node(load_settings(None, {}, given))
        self._run()

    def _run(self) -> None:
        self.node.monitor.begin(0, 0)
        self._thread = threading.Thread(target=self._turn, name="data loop")
        self._thread.start()
        self.services = self.node.nsq_services()
        self.services.start()

    def _turn(self) -> None:
        loop = self.node.loop
        while not loop.stopping:
            loop.run_once(TICK_MS)

    def stop(self) -> None:
        self.services.stop()
        self.node.loop.stopping = True
        self.node.loop.wake()
        self._thread.join(10)
        self.node._close()


@pytest.fixture
def nsq(tmp_path: Path) -> Iterator[Services]:
    running = Services(tmp_path)
    yield running
    running.stop()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def is_answered(sock: socket.socket) -> bool:
    sock.sendall(REQUEST)
    return sock.recv(4096).startswith(b"HTTP/1.1 200")


def test_without_a_whole_header_it_is_closed(
    nsq: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "HEADER_TIMEOUT_S", 0.05)
    for port in (nsq.http, nsq.lookup):
        with connect(port) as asks, connect(port) as silent:
            assert is_answered(asks)
            silent.sendall(REQUEST[:-2])
            assert is_closed(silent)
            assert is_answered(asks)


def test_a_greeting_of_tls_that_does_not_end_is_closed(
    nsq: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "HEADER_TIMEOUT_S", 0.05)
    with connect(nsq.https) as silent:
        assert is_closed(silent)
    assert eventually(lambda: nsq.services.connections["nsq/https"].count == 0)


def test_each_port_has_connections_of_its_own_and_closes_idle_ones(nsq: Services) -> None:
    for connections in nsq.services.connections.values():
        connections.connections_max = 1
    context = nsq.authority.client_context()
    secure = HTTPSConnection("127.0.0.1", nsq.https, context=context, timeout=5)
    with closing(secure):
        secure.request("GET", "/ping")
        assert secure.getresponse().read() == b"OK"
        for port in (nsq.http, nsq.lookup):
            with connect(port) as idle, connect(port) as one_more:
                assert is_answered(one_more)
                assert is_closed(idle)
        secure.request("GET", "/ping")
        assert secure.getresponse().read() == b"OK"


def test_a_connection_whose_greeting_is_not_complete_is_idle(nsq: Services) -> None:
    nsq.services.connections["nsq/https"].connections_max = 1
    with connect(nsq.https) as silent, connect(nsq.https):
        assert is_closed(silent)
    assert eventually(lambda: nsq.services.connections["nsq/https"].count == 0)


def test_ping_is_answered_while_bodies_do_not_come_until_their_time_is_over(
    nsq: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "BODY_TIMEOUT_S", 0.5)
    connections = nsq.services.connections["nsq/http"]
    connections.connections_max = 1
    begun = b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"
    with connect(nsq.http) as busy:
        busy.sendall(begun)
        assert eventually(lambda: connections.count == 1 and not connections._idle)
        with connect(nsq.http) as asks:
            assert is_answered(asks)
        assert is_closed(busy)
