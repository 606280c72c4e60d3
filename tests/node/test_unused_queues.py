"""Queues with ``x-expires`` follow the monotonic clock, not the clock that people set."""

from __future__ import annotations

import pytest

from tests.helpers.connection_pair import QuietBroker

HOUR_MS = 3_600_000
EXPIRES_MS = 600_000


@pytest.fixture
def node() -> QuietBroker:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments={"x-expires": EXPIRES_MS})
    client.publish("", "q", delivery_mode=2)
    return node


def is_there(node: QuietBroker) -> bool:
    node.run()
    return "q" in node.broker.vhosts["/"].queues


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_jump_of_the_wall_clock_deletes_no_queue(node: QuietBroker, jump_ms: int) -> None:
    node.now_ms += jump_ms
    assert is_there(node)
    node.mono_ms += EXPIRES_MS - 1
    assert is_there(node)
    node.mono_ms += 1
    assert not is_there(node)


def test_a_jump_of_the_wall_clock_does_not_change_when_it_was_used(node: QuietBroker) -> None:
    node.now_ms += HOUR_MS
    node.client().call("queue.declare", queue="q", passive=True)
    node.now_ms -= 2 * HOUR_MS
    node.mono_ms += EXPIRES_MS - 1
    assert is_there(node)
    node.mono_ms += 1
    assert not is_there(node)


def test_a_use_between_two_looks_counts(node: QuietBroker) -> None:
    node.mono_ms += EXPIRES_MS - 1
    node.client().call("queue.declare", queue="q", passive=True)
    node.mono_ms += EXPIRES_MS - 1
    assert is_there(node)
    node.mono_ms += 1
    assert not is_there(node)
