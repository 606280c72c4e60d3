"""Connections that all have much to say share what a turn of the loop reads."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from penstock.clocks import mono_ms
from penstock.core.clock_types import WallMs
from penstock.runtime.connection import READ_MIN_BYTES, Connection
from penstock.runtime.loop import PARTS_MAX, READ_MAX_BYTES, TURN_READ_BYTES, Loop
from penstock.runtime.session import Session
from tests.helpers.connection_pair import QuietBroker

SAID_BYTES = 150_000
PART, WHOLE = b"p", b"w"


class Factory:
    def tick(self, now_ms: int) -> None:
        pass


class Listening(Session):
    """Notes how much came at a time."""

    def __init__(self, node: QuietBroker) -> None:
        super().__init__(node.broker.flow.book)
        self.sizes: list[int] = []
        self.last_byte = WHOLE[0]

    def receive(self, data: bytes, now_ms: WallMs) -> None:
        self.sizes.append(len(data))
        self.last_byte = data[-1]

    @property
    def is_mid_frame(self) -> bool:
        return self.last_byte == PART[0]

    def tick(self, now_ms: WallMs) -> None:
        pass

    def lost(self, now_ms: WallMs) -> None:
        pass


@pytest.fixture
def loop() -> Iterator[tuple[Loop, QuietBroker]]:
    node = QuietBroker(mono_ms=mono_ms())
    loop = Loop(node.turn, cast(Any, Factory()))
    yield loop, node
    loop.drop_all()
    loop.close()


@pytest.mark.parametrize("count", [1, 64, 400])
def test_each_reads_its_share_and_the_rest_in_the_next_turns(
    loop: tuple[Loop, QuietBroker], count: int
) -> None:
    own, node = loop
    sessions = [Listening(node) for _ in range(count)]
    with ExitStack() as stack:
        for session in sessions:
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            ours.setblocking(False)
            theirs.sendall(bytes(SAID_BYTES))
            own.adopt(Connection(ours, ("127.0.0.1", 1), mono_ms()), session)
        own.run_once(0)
        assert {tuple(one.sizes) for one in sessions} == {(READ_MIN_BYTES,)}
        for connection in own.connections.values():
            connection.read_at_once(READ_MAX_BYTES)
        own.run_once(0)
        share = max(TURN_READ_BYTES // count, READ_MIN_BYTES)
        left = SAID_BYTES - READ_MIN_BYTES
        assert {one.sizes[1] for one in sessions} == {min(share, left)}
        for _ in range(SAID_BYTES // READ_MIN_BYTES + 1):
            own.run_once(0)
        assert {sum(one.sizes) for one in sessions} == {SAID_BYTES}


def test_those_with_little_to_say_take_nothing_from_the_others(
    loop: tuple[Loop, QuietBroker],
) -> None:
    own, node = loop
    publisher, others = Listening(node), [Listening(node) for _ in range(400)]
    with ExitStack() as stack:
        for session in (publisher, *others):
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            ours.setblocking(False)
            theirs.sendall(bytes(SAID_BYTES if session is publisher else 21))
            connection = Connection(ours, ("127.0.0.1", 1), mono_ms())
            connection.read_at_once(READ_MAX_BYTES)
            own.adopt(connection, session)
        own.run_once(0)
        own.run_once(0)
        assert publisher.sizes == [SAID_BYTES]


def test_a_part_of_a_frame_is_no_reason_for_a_turn(loop: tuple[Loop, QuietBroker]) -> None:
    """But for time that passes: after ``PARTS_MAX`` of them there is one all the same."""
    own, node = loop
    session = Listening(node)
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        own.adopt(Connection(ours, ("127.0.0.1", 1), mono_ms()), session)
        own.run_once(0)
        assert turned(own, session, theirs, PART * 3) == 0
        assert turned(own, session, theirs, WHOLE) == 1
        turns = [turned(own, session, theirs, PART) for _ in range(int(PARTS_MAX))]
        assert turns == [0] * (int(PARTS_MAX) - 1) + [1]
        assert sum(session.sizes) == 4 + PARTS_MAX


def turned(loop: Loop, session: Listening, peer: socket.socket, said: bytes) -> int:
    """How many turns it makes of that."""
    peer.sendall(said)
    loop.turn.touch(session)  # a turn ends with those that were touched
    while loop.turn.has_work():
        loop.run_once(0)
    loop.run_once(100)
    return int(not session.touched)
