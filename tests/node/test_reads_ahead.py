"""How often messages that rest on disk are read back for consumers (B6 of the review).

While memory is short the pager takes and the loader brings: what one brought for the next
deliveries must not be what the other takes.
"""

from __future__ import annotations

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.core.capacity import MemoryLimit
from tests.helpers.connection_pair import ClientEnd, QuietBroker

COUNT = 2000
SIZES = {"small": 100, "in the index": 1500, "in the store": 6000}
READS_PER_DELIVERY = 2


def backing(node: QuietBroker, queue: str) -> VariableQueue:
    found = node.broker.vhosts["/"].queues[queue].backing.parts()[0]
    assert isinstance(found, VariableQueue)
    return found


def fill(client: ClientEnd, queue: str, count: int, size: int, **arguments: object) -> None:
    client.call("queue.declare", queue=queue, durable=True, arguments=arguments)
    for number in range(count):
        body = b"%d:" % number + b"x" * size
        client.publish("", queue, body, delivery_mode=2, run=number % 200 == 0)
        if number % 1000 == 0:
            client.node.tick(300)
    client.node.tick(300)


def limit(node: QuietBroker, memory_bytes: int) -> None:
    node.broker.admission.alarms.set_memory_limit(MemoryLimit(0.0, memory_bytes))


def consume_slowly(client: ClientEnd, queue: str, count: int, prefetch: int) -> int:
    """In order, an acknowledgement for each delivery, time passing; how many came."""
    client.call("basic.qos", prefetch_count=prefetch)
    client.consume(queue)
    taken = 0
    while taken < count:
        arrived = client.bodies()
        assert arrived, f"after {taken} messages nothing comes any more"
        for body in arrived:
            assert int(body.partition(b":")[0]) == taken
            taken += 1
            client.method(1, "basic.ack", delivery_tag=taken)
            if taken % 20 == 0:
                client.node.tick(100)
    return taken


@pytest.mark.parametrize("memory_bytes", [0, 100_000, 700_000, 1 << 40])
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_a_message_is_read_at_most_twice(memory_bytes: int, kind: str, mode: str) -> None:
    node = QuietBroker()
    count = COUNT if kind == "small" else COUNT // 5
    fill(node.client(), "q", count, SIZES[kind], **{"x-queue-mode": mode})
    limit(node, memory_bytes)
    node.tick(1000)
    queue = backing(node, "q")
    before = queue.records.disk_reads
    delivered = consume_slowly(node.client(), "q", count, 100)
    assert queue.records.disk_reads - before <= READS_PER_DELIVERY * (delivered + 100)
    node.check()


def test_a_consumer_beside_what_fills_memory_reads_each_message_once() -> None:
    """Another queue's unacknowledged messages leave next to nothing."""
    node = QuietBroker(memory_bytes=1_000_000)
    fill(node.client(), "q", COUNT, 100)
    fill(node.client(), "other", COUNT, 100)
    holder = node.client()
    holder.consume("other")
    queue = backing(node, "q")
    before = queue.records.disk_reads
    delivered = consume_slowly(node.client(), "q", COUNT, 100)
    assert queue.records.disk_reads - before <= READS_PER_DELIVERY * (delivered + 100)
    node.check()


@pytest.mark.parametrize("pause_ms", [2000, 11_000, 60_000])
def test_a_consumer_that_pauses_reads_no_more(pause_ms: int) -> None:
    node = QuietBroker()
    fill(node.client(), "q", COUNT, 100)
    limit(node, 100_000)
    client = node.client()
    client.call("basic.qos", prefetch_count=50)
    client.consume("q")
    queue = backing(node, "q")
    before, taken = queue.records.disk_reads, 0
    for _ in range(20):
        taken += len(client.bodies())
        for _ in range(pause_ms // 250):
            node.tick(250)
        client.method(1, "basic.ack", delivery_tag=taken, multiple=True)
    assert taken == 1000
    assert queue.records.disk_reads - before <= READS_PER_DELIVERY * (taken + 100)
    node.check()


def test_queues_that_were_looked_into_give_memory_back() -> None:
    """One message of each is taken: what was read ahead of it does not stay for ever."""
    node = QuietBroker(memory_bytes=2_000_000)
    client = node.client()
    for number in range(20):
        fill(client, f"q{number}", 300, 400)
    limit(node, 200_000)
    for number in range(20):
        client.method(1, "basic.get", queue=f"q{number}", no_ack=True)
    for _ in range(60):
        node.tick(250)
    assert node.engine.ram.queued_bytes < 20 * 2 * 64 * 700
    node.check()
