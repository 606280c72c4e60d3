"""A publisher of the load generator waits for the right thing; no socket here."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from penstock.client.load import Composer, SendTimes
from penstock.client.plan import LoadPlan
from penstock.client.shared import SendWindow, SendWindowFeed
from penstock.client.worker import NAP_S, Publisher, Task

SECOND_NS = 1_000_000_000


@pytest.fixture
def room() -> Iterator[SendWindow]:
    found = SendWindow(SendWindow.create(), 0)
    yield found
    os.close(found.descriptor)


def publisher(room: SendWindow, *, confirm: int = 0, rate: int = 1000) -> Publisher:
    """As if connected."""
    made = Publisher.__new__(Publisher)
    made.plan = LoadPlan(uri="amqp://x", rate=rate, confirm=confirm, in_flight=5)
    made.task = Task("publisher", 0, 0, 1, made.plan, 0, [room.descriptor])
    made.composer, made.ledger = Composer(0), SendTimes(max(1, confirm))
    made._room, made._quota, made._pending = room, 0, memoryview(b"")
    return made


def test_a_held_publisher_sleeps_though_much_is_due(room: SendWindow) -> None:
    started_ns = time.monotonic_ns() - SECOND_NS
    assert publisher(room)._patience_s(started_ns) == NAP_S
    room.left = 5
    assert publisher(room)._patience_s(started_ns) == 0
    full = publisher(room, confirm=2)
    full.ledger.note_sent(2, started_ns)
    assert full._patience_s(started_ns) == NAP_S


def test_an_early_publisher_sleeps_until_the_next_is_due(room: SendWindow) -> None:
    room.left = 5
    assert 0 < publisher(room)._patience_s(time.monotonic_ns() + 20_000_000) <= 0.02
    assert publisher(room)._patience_s(time.monotonic_ns() + SECOND_NS) == NAP_S


@pytest.mark.parametrize("left", [0, 5])
def test_a_publisher_with_a_full_confirm_window_sleeps_though_consumers_give(
    room: SendWindow, left: int
) -> None:
    full = publisher(room, confirm=2, rate=0)
    full.ledger.note_sent(2, time.monotonic_ns())
    room.left = left
    SendWindowFeed([room.descriptor]).give(3)
    broker, full.socket = socket.socketpair()
    with broker, full.socket:
        started_s = time.monotonic()
        full._listen(full._patience_s(0))
        assert time.monotonic() - started_s >= NAP_S
    assert room.left == (3 if left == 0 else left)
