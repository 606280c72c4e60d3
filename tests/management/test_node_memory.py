"""Where a node's memory is, as RabbitMQ's charts have it."""

from __future__ import annotations

from penstock.management.facts.node_memory import binary_row, counted_bytes
from tests.helpers.connection_pair import QuietBroker
from tests.node.test_streams import consume, declare


def test_what_is_kept_for_other_nodes_is_shown() -> None:
    quiet = QuietBroker()
    quiet.broker.engine.ram.link_bytes = 7000
    counted = counted_bytes(quiet.broker)
    assert counted["connection_other"] == 7000
    assert binary_row(counted)["connection_other"] == 7000


def test_blocks_of_streams_count_and_stay_within_a_part_of_the_memory() -> None:
    quiet = QuietBroker()
    client = quiet.client()
    declare(client, "s")
    for number in range(50):
        client.publish("", "s", b"%d" % number * 1000)
    reader = quiet.client()
    consume(reader, "s", "first", prefetch=1)
    quiet.tick(1000)
    ram = quiet.broker.engine.ram
    cache = quiet.streams.cache
    assert ram.stream_bytes == cache.bytes + cache.held_bytes > 50_000
    assert ram.used_bytes() - ram.queued_bytes >= ram.stream_bytes
    counted = counted_bytes(quiet.broker)
    assert counted["stream_queue_procs"] == ram.stream_bytes
    assert binary_row(counted)["stream_queue_procs"] == ram.stream_bytes
    ram.set_limits(100_000, 50_000)
    quiet.tick(1000)
    cache.check()
    assert cache.bytes <= 100_000 // 32
    assert ram.stream_bytes == cache.bytes + cache.held_bytes
