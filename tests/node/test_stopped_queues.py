"""A queue that is stopped by a failed read reads again after a while, without a restart."""

from __future__ import annotations

import pytest

from penstock.queues.queue import Queue
from penstock.storage.common.read_retry import RETRY_LEAST_MS, RETRY_MOST_MS
from tests.backing.engine_tools import OpenEngine, message
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.sim_files import SimFileSystem

BODY_BYTES = 1000
COUNT = 400
MODES = [{"x-queue-mode": "lazy"}, {"x-queue-mode": "lazy", "x-max-priority": 2}]
HOUSEKEEPING_MS = 300


def stopped(node: QuietBroker, arguments: dict[str, object]) -> tuple[ClientEnd, Queue]:
    """A consumer of a queue whose head cannot be read."""
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments=arguments)
    for number in range(COUNT):
        body = b"%d:" % number + b"x" * BODY_BYTES
        client.publish("", "q", body, run=False, delivery_mode=2)
    node.run()
    node.files.fail("pread")
    client.consume("q")
    node.run()
    queue = node.broker.vhosts["/"].queues["q"]
    assert queue.backing.why_stopped() != ""
    return client, queue


def numbers(client: ClientEnd) -> list[int]:
    return [int(body.partition(b":")[0]) for body in client.bodies()]


@pytest.mark.parametrize("arguments", MODES, ids=["one part", "priorities"])
def test_messages_come_when_the_disk_can_be_read_again(arguments: dict[str, object]) -> None:
    node = QuietBroker()
    client, queue = stopped(node, arguments)
    node.tick(HOUSEKEEPING_MS)
    node.tick(int(RETRY_LEAST_MS) // 2)
    got = numbers(client)
    assert len(got) < COUNT
    node.tick(int(RETRY_LEAST_MS))
    assert got + numbers(client) == list(range(COUNT))
    assert queue.backing.why_stopped() == ""
    node.check()


def test_a_disk_that_stays_broken_is_asked_more_and_more_seldom() -> None:
    node = QuietBroker()
    client, queue = stopped(node, MODES[0])
    failures = 0
    for _ in range(3_600):
        node.files.fail("pread")
        node.tick(1_000)
        failures += "pread" not in node.files._failures
    assert 5 <= failures <= 8 + 3_600_000 // RETRY_MOST_MS
    assert queue.backing.why_stopped() != ""
    assert len(node.engine.take_faults()) == failures + 1
    node.files.heal()
    node.tick(int(RETRY_MOST_MS))
    assert numbers(client) == list(range(COUNT))


def test_a_clock_that_was_set_back_does_not_keep_it_stopped() -> None:
    node = QuietBroker()
    client, _ = stopped(node, MODES[0])
    node.tick(HOUSEKEEPING_MS)
    node.now_ms -= 3_600_000
    node.tick(HOUSEKEEPING_MS)
    node.tick(int(RETRY_LEAST_MS))
    assert numbers(client) == list(range(COUNT))


def test_messages_over_their_time_die_when_the_disk_can_be_read_again() -> None:
    """No consumer, no publisher: only time passes."""
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="dead", durable=True)
    arguments: dict[str, object] = {
        "x-queue-mode": "lazy",
        "x-message-ttl": 1_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    client.call("queue.declare", queue="q", durable=True, arguments=arguments)
    for number in range(COUNT):
        body = b"%d:" % number + b"x" * BODY_BYTES
        client.publish("", "q", body, run=False, delivery_mode=2)
    node.run()
    queues = node.broker.vhosts["/"].queues
    node.files.fail("pread")
    node.tick(1_100)
    assert queues["q"].backing.why_stopped() != ""
    node.tick(HOUSEKEEPING_MS)
    for _ in range(3):
        node.tick(int(RETRY_LEAST_MS))
    assert queues["q"].backing.ready_count() == 0
    assert queues["dead"].backing.ready_count() == COUNT
    node.check()


def test_a_broken_disk_is_not_asked_for_delayed_messages_all_the_time() -> None:
    """It was, every 50 ms, with a line in the log each time."""
    files = SimFileSystem()
    opened = OpenEngine(files, {5: 64})
    messages = [message(b"x" * BODY_BYTES) for _ in range(10)]
    opened.queues[5].publish_delayed(messages, 1_000, 1)
    opened.commit()
    files.kill()
    opened = OpenEngine(files, {5: 64})
    queue = opened.queues[5]
    failures = 0
    for now_ms in range(1_000, 11_000, 50):
        files.fail("pread")
        if 0 < queue.next_due_ms() <= now_ms:
            queue.delays.release_to_tail(now_ms, 100)
        failures += "pread" not in files._failures
    assert 1 <= failures <= 3
    files.heal()
    assert queue.next_due_ms() <= 11_000 + RETRY_LEAST_MS
    assert queue.delays.release_to_tail(int(queue.next_due_ms()), 100) == len(messages)
