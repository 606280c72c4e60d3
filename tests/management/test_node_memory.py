"""Where a node's memory is, as RabbitMQ's charts have it."""

from __future__ import annotations

from penstock.management.facts.node_memory import binary_row, counted_bytes
from tests.helpers.connection_pair import QuietBroker


def test_what_is_kept_for_other_nodes_is_shown() -> None:
    quiet = QuietBroker()
    quiet.broker.engine.ram.link_bytes = 7000
    counted = counted_bytes(quiet.broker)
    assert counted["connection_other"] == 7000
    assert binary_row(counted)["connection_other"] == 7000
