"""Connections without requests: bounded in number and in time, before any log-in."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.management.app import ManagementServer
from penstock.management.http import http_connections
from penstock.management.http.http_connections import bounds
from penstock.runtime.descriptors import DESCRIPTORS_RESERVED
from penstock.settings.entry import network_of
from penstock.settings.settings import load_settings
from tests.helpers.broker_process import free_port
from tests.helpers.nsq_broker import eventually
from tests.management.conftest import Served

REQUEST = b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n\r\n"

UNFINISHED = (
    b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q="
    b"\r\nContent-Length: 1000\r\n\r\n{"
)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path)
    yield running
    running.stop()


def connect(served: Served, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), 5, (source, 0))


def is_busy(served: Served) -> bool:
    connections = served.management.connections
    return connections.count > 0 and not connections._idle


def is_answered(sock: socket.socket) -> bool:
    sock.sendall(REQUEST)
    return sock.recv(4096).startswith(b"HTTP/1.1 200")


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "begun", [b"", b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n", b"\r\n\r\n", REQUEST[:-2]]
)
def test_without_a_whole_header_it_is_closed(
    own: Served, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(http_connections, "HEADER_TIMEOUT_S", 0.05)
    with connect(own) as sock:
        sock.sendall(begun)
        assert is_closed(sock)


def test_who_asked_may_ask_again(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "HEADER_TIMEOUT_S", 0.05)
    with connect(own) as sock, connect(own) as silent:
        sock.sendall(REQUEST)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        assert is_closed(silent)  # so that time has passed
        sock.sendall(REQUEST)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_full_site_closes_the_connection_that_has_been_idle_longest(own: Served) -> None:
    own.management.connections.connections_max = 3
    with ExitStack() as held:
        guests = [held.enter_context(connect(own)) for _ in range(3)]
        for guest in guests:
            assert is_answered(guest)
        assert is_answered(guests[0])
        with connect(own) as one_more:
            assert is_answered(one_more)
            assert is_closed(guests[1])
            assert is_answered(guests[0])
            assert is_answered(guests[2])
        assert eventually(lambda: own.management.connections.count == 2)


def test_an_address_with_its_share_loses_its_own_idle_connection(own: Served) -> None:
    own.management.connections.address_max = 1
    with connect(own) as other, connect(own, "127.0.0.2") as first:
        assert is_answered(other)
        assert is_answered(first)
        with connect(own, "127.0.0.2") as second:
            assert is_answered(second)
            assert is_closed(first)
            assert is_answered(other)


def test_beyond_connections_that_all_have_requests_only_health_checks_are_answered(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "RESERVE", 2)
    own.management.connections.connections_max = 1
    with connect(own) as busy:
        busy.sendall(UNFINISHED)
        assert eventually(lambda: is_busy(own))
        for _ in range(3):
            with connect(own) as one_more:
                assert is_answered(one_more)
                assert is_closed(one_more)
            with connect(own) as other:
                other.sendall(b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert other.recv(4096).startswith(b"HTTP/1.1 503")
        with ExitStack() as held:
            silent = [held.enter_context(connect(own)) for _ in range(2)]
            assert eventually(lambda: own.management.connections.count == 3)
            with connect(own) as one_more:
                assert is_answered(one_more)
                assert is_closed(silent[0])


def test_connections_to_the_metrics_port_leave_the_management_api_open(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    settings = load_settings(None, {}, {"rates_mode": "none", "prometheus_port": str(port)})
    server = ManagementServer(
        "127.0.0.1", 0, own.node.loop.call, own.view, own.facts, settings=settings
    )
    monkeypatch.setattr(own, "port", server.start())
    try:
        server.metrics_connections.connections_max = 1
        with ExitStack() as held:
            for _ in range(20):
                sock = socket.create_connection(("127.0.0.1", port), timeout=5)
                held.enter_context(sock).sendall(UNFINISHED)
            with connect(own) as asks:
                assert is_answered(asks)
    finally:
        server.stop()


def test_a_body_that_does_not_come_closes_its_connection(
    own: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_connections, "BODY_TIMEOUT_S", 0.05)
    with connect(own) as sock:
        sock.sendall(UNFINISHED)
        assert is_closed(sock)
    with connect(own) as asks:
        assert is_answered(asks)
    assert caplog.text == ""


def test_a_body_that_comes_fast_enough_may_take_its_time(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(http_connections, "BODY_BYTES_PER_S", 20)
    with connect(own) as sock:
        sock.sendall(UNFINISHED)
        for _ in range(10):
            sock.sendall(b" " * 50)
            time.sleep(0.06)
        sock.sendall(b" " * 498 + b"}")
        assert sock.recv(4096).startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize(
    "address, network",
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_one_network_of_ipv6_are_counted_together(address: str, network: str) -> None:
    assert network_of(address) == network


def test_few_descriptors_are_left_to_the_engine(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "ALWAYS", 1)
    monkeypatch.setattr(own.management.connections, "_descriptor_end", 0)
    with connect(own) as first:
        first.sendall(UNFINISHED)
        assert eventually(lambda: is_busy(own))
        with connect(own) as second:
            assert is_closed(second)
        first.sendall(b" " * 998 + b"}")
        assert first.recv(4096).startswith(b"HTTP/1.1 201")
        with connect(own) as third:
            assert is_answered(third)
            assert is_closed(first)


@pytest.mark.parametrize(
    "soft, most, end",
    [(1_048_576, 1024, 1_048_512), (1024, 96, 960), (64, 16, 0), (-1, 1024, 2**31 - 64)],
)
def test_the_bound_follows_the_limit_of_open_files(soft: int, most: int, end: int) -> None:
    assert bounds(soft) == (most, end)
    assert http_connections.DESCRIPTORS_RESERVED == DESCRIPTORS_RESERVED


def test_who_does_not_read_is_cut_off(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "WRITE_TIMEOUT_S", 0.1)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(5)
        sock.connect(("127.0.0.1", own.port))
        asked = b"GET /api/penstock/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with pytest.raises(ConnectionError):
            ask_for_ever(sock, asked * 100)


def ask_for_ever(sock: socket.socket, asked: bytes) -> None:
    """Answers that nobody takes, until there is no connection."""
    while True:
        sock.sendall(asked)
