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


@pytest.mark.parametrize("step", [1, 7, 10, 11, 1000])
def test_what_goes_ahead_leaves_in_order_however_much_the_socket_takes(
    connection: Connection, step: int
) -> None:
    session = connection.session
    assert session is not None
    parts = [b"heads", b"a" * 10, b"more", b"b" * 10]
    session.outlet.ahead.extend(parts)
    session.outlet.delivered(0, sum(map(len, parts)))
    session.out.write(b"the end")
    said = b"".join([*parts, b"the end"])
    assert connection.take_output(session)
    left = b""
    assert connection.left_bytes == len(said)
    while connection.unsent:
        before = connection.left_bytes
        left += said[len(left) : len(left) + min(step, before)]
        connection.sent(min(step, before))
        assert connection.left_bytes == len(said) - len(left)
        assert bytes(connection.unsent) == said[len(left) :][: len(connection.unsent)]
    assert left == said
    assert not connection.take_output(session)


def test_several_buffers_leave_in_one_write() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Connection(ours, ("127.0.0.1", 1), MonoMs(0))
        session = QuietBroker().client().session
        made.carry(session)
        assert session.outlet.gathers
        session.outlet.ahead.extend([b"head", b"content"])
        session.outlet.delivered(0, len(b"headcontent"))
        session.out.write(b"tail")
        assert made.take_output(session)
        assert made.send() == len(b"headcontenttail")
        assert theirs.recv(100) == b"headcontenttail"
