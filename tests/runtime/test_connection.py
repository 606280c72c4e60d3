"""What a connection keeps of its session's output."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from penstock.core.clock_types import MonoMs
from penstock.runtime.connection import OUTPUT_AT_REST_BYTES, OUTPUT_KEPT_BYTES, Connection
from tests.helpers.connection_pair import QuietBroker


@pytest.fixture
def connection() -> Iterator[Connection]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Connection(ours, ("127.0.0.1", 1), MonoMs(0))
        made.carry(QuietBroker().client().session)
        yield made


def say(connection: Connection, size: int) -> None:
    session = connection.session
    assert session is not None
    session.out.write(bytes(size))
    assert connection.take_output(session)
    assert not connection.take_output(session)
    assert bytes(connection.unsent) == bytes(size)


def test_what_has_left_is_not_kept(connection: Connection) -> None:
    say(connection, 1000)
    connection.sent(400)
    assert bytes(connection.unsent) == bytes(600)
    connection.sent(600)
    assert not connection.unsent
    assert memoryview(connection.unsent.obj).nbytes == 0


def test_a_buffer_goes_when_it_was_not_needed_for_a_while(connection: Connection) -> None:
    say(connection, 4 * OUTPUT_AT_REST_BYTES)
    connection.sent(4 * OUTPUT_AT_REST_BYTES)
    assert connection.session is not None
    buffer = connection.session.out
    connection.slim()
    assert connection.session.out is buffer, "it was needed a moment ago"
    say(connection, OUTPUT_AT_REST_BYTES)
    connection.sent(OUTPUT_AT_REST_BYTES)
    connection.slim()
    assert connection.session.out is buffer, "a quarter of it was needed"
    connection.session.out.write(b"more")
    connection.slim()
    assert connection.session.out is buffer, "it has something to say"
    connection.session.out.truncate(0)
    connection.slim()
    small = connection.session.out
    assert small is not buffer
    connection.slim()
    assert connection.session.out is small


def test_a_small_buffer_stays(connection: Connection) -> None:
    say(connection, OUTPUT_AT_REST_BYTES)
    connection.sent(OUTPUT_AT_REST_BYTES)
    assert connection.session is not None
    buffer = connection.session.out
    for _ in range(3):
        connection.slim()
    assert connection.session.out is buffer


def test_a_very_large_buffer_goes_at_once(connection: Connection) -> None:
    assert connection.session is not None
    buffer = connection.session.out
    say(connection, OUTPUT_KEPT_BYTES + 1)
    assert connection.session.out is not buffer
