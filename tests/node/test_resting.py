"""Queues larger than memory, seen from their clients: who is held, who goes on, what arrives."""

from __future__ import annotations

import pytest

from penstock.core.capacity import MemoryLimit
from penstock.storage.journal.codec import journal_file_no
from tests.helpers.connection_pair import ClientEnd, QuietBroker

MEMORY_BYTES = 2_000_000
SIZES = (900, 5000)
"""One kind goes into the queue index, the other into the message store."""
COUNT = 2000


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker(memory_bytes=MEMORY_BYTES)


def body(number: int) -> bytes:
    return b"%d:" % number + b"x" * SIZES[number % 2]


def publish(client: ClientEnd, queue: str, count: int, mode: int = 2, start: int = 0) -> None:
    for number in range(start, start + count):
        client.publish("", queue, body(number), delivery_mode=mode)
        if number % 50 == 0:
            client.node.tick(300)  # what nobody waits for is synced now and then
    client.node.tick(300)


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(one.partition(b":")[0]) for one in bodies]


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
@pytest.mark.parametrize("queue_mode", ["default", "lazy"])
def test_far_more_than_memory_comes_out_as_it_went_in(
    node: QuietBroker, mode: int, queue_mode: str
) -> None:
    client = node.client()
    arguments = {"x-queue-mode": queue_mode}
    client.call("queue.declare", queue="q", durable=True, arguments=arguments)
    publish(client, "q", COUNT, mode)
    assert sum(len(body(number)) for number in range(COUNT)) > 2 * MEMORY_BYTES
    assert node.engine.ram.used_bytes() < MEMORY_BYTES
    assert not node.turn.publishers_wait()
    taker = node.client()
    taker.call("basic.qos", prefetch_count=100)
    taker.consume("q")
    found: list[int] = []
    while len(found) < COUNT:
        arrived = taker.methods()
        assert arrived, f"after {len(found)} messages nothing comes any more"
        for _, fields in arrived:
            assert fields["body"] == body(len(found))
            found.append(len(found))
        taker.method(1, "basic.ack", delivery_tag=len(found), multiple=True)
    assert client.call("queue.declare", queue="q", passive=True)["messages"] == 0
    assert node.engine.ram.queued_bytes == 0
    node.check()


def test_a_queue_whose_head_is_on_its_way_is_woken_when_it_arrives(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments={"x-queue-mode": "lazy"})
    publish(client, "q", 400)
    taker = node.client()
    node.worker.hold = True
    taker.consume("q")
    assert taker.bodies() == []
    others = node.client()
    others.call("queue.declare", queue="other")
    others.consume("other")
    others.publish("", "other", b"7:")
    assert numbers(others.bodies()) == [7]
    node.worker.hold = False
    node.run()
    assert numbers(taker.bodies()) == list(range(400))
    node.check()


def test_memory_full_of_what_the_disk_has_not_taken_yet_holds_publishers(
    node: QuietBroker,
) -> None:
    """Those who only consume are not behind anything; by taking they end it."""
    client = node.client(blocked=True)
    client.call("queue.declare", queue="q")
    node.worker.hold = True
    publish(client, "q", COUNT)
    assert node.turn.publishers_wait()
    assert node.turn.blocked_reason() == "low on memory"
    assert client.session.has_published
    taker = node.client()
    taker.consume("q", no_ack=True)
    assert numbers(taker.bodies())[:3] == [0, 1, 2]
    assert not taker.session.has_published
    node.worker.hold = False
    node.run()
    assert not node.turn.publishers_wait()
    assert node.turn.blocked_reason() == ""
    node.check()


def test_an_idle_node_removes_the_journal_files_it_needs_no_more(node: QuietBroker) -> None:
    """A synced group records that files are retired, also when no client publishes any more.

    Those that segments refer to go with the last message.
    """
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("confirm.select")
    files = node.engine.journal.files
    while len(files) < 6:
        client.publish("", "q", b"x" * 3000, delivery_mode=2)
    client.publish("", "q", b"the last", delivery_mode=2)
    for _ in range(30):
        node.tick(1100)
    assert len(files) == 1
    assert present(node) == {int(files[0].number), *node.engine.journal.resting.sizes}
    client.consume("q", no_ack=True)
    client.bodies()
    for _ in range(30):
        node.tick(1100)
    assert present(node) == {int(files[0].number)}
    node.check()


def present(node: QuietBroker) -> set[int]:
    """Files of the journal that are there."""
    return {journal_file_no(name) for name in node.files.listdir("data/journal")} - {0}


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
def test_few_large_messages_in_many_queues_leave_memory_without_a_consumer(mode: int) -> None:
    """The alarm ends by itself, or publishers would wait for consumers that may never come."""
    node = QuietBroker(memory_bytes=20_000_000)
    node.broker.admission.alarms.set_memory_limit(MemoryLimit(0.0, 20_000_000))
    client = node.client()
    for number in range(8):
        client.call("queue.declare", queue=f"q{number}", durable=True)
    for number in range(80):
        client.publish("", f"q{number % 8}", b"x" * 1_000_000, delivery_mode=mode)
        if number % 4 == 0:
            node.tick(1000)
    for _ in range(20):
        node.tick(1000)
    assert client.session.held_bytes == 0
    assert node.turn.blocked_reason() == ""
    assert node.engine.ram.used_bytes() < 10_000_000
    published = [node.broker.vhosts["/"].queues[f"q{number}"] for number in range(8)]
    assert sum(int(queue.statistics.published_count) for queue in published) == 80
    taker = node.client()
    taker.consume("q3", no_ack=True)
    node.tick(1000)
    assert [len(one) for one in taker.bodies()] == [1_000_000] * 10
    node.check()
