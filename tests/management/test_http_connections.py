"""Who comes and says nothing: bounded in number and in time, before any log-in."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.management import http_connections
from penstock.management.http_connections import bounds
from penstock.server.descriptors import DESCRIPTORS_RESERVED
from tests.management.conftest import Served

REQUEST = b"GET /healthz/live HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path)
    yield running
    running.stop()


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=5)


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "begun", [b"", b"GET /healthz/live HTTP/1.1\r\nHost: a\r\n", b"\r\n\r\n", REQUEST[:-2]]
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


def test_only_so_many_and_again_when_they_are_gone(own: Served) -> None:
    own.management.connections.connections_max = 3
    with ExitStack() as held:
        guests = [held.enter_context(connect(own)) for _ in range(3)]
        for guest in guests:
            guest.sendall(REQUEST)
            assert guest.recv(4096).startswith(b"HTTP/1.1 200")
        with connect(own) as one_more:
            assert is_closed(one_more)
        guests[0].sendall(REQUEST)
        assert guests[0].recv(4096).startswith(b"HTTP/1.1 200")
        guests[0].shutdown(socket.SHUT_WR)
        assert is_closed(guests[0])
        with connect(own) as instead:
            instead.sendall(REQUEST)
            assert instead.recv(4096).startswith(b"HTTP/1.1 200")


def test_few_descriptors_are_left_to_the_engine(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "ALWAYS", 1)
    monkeypatch.setattr(own.management.connections, "_descriptor_end", 0)
    with connect(own) as first, connect(own) as second:
        assert is_closed(second)
        first.sendall(REQUEST)
        assert first.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "soft, most, end",
    [(1_048_576, 1024, 1_048_512), (1024, 240, 960), (64, 16, 0), (-1, 1024, 2**31 - 64)],
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
        asked = b"GET /api/penstock/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
        with pytest.raises(ConnectionError):
            ask_for_ever(sock, asked * 100)


def ask_for_ever(sock: socket.socket, asked: bytes) -> None:
    """Answers that nobody takes, until there is no connection."""
    while True:
        sock.sendall(asked)
