"""Everything in ``definitions.db``, as records: what a start reads.

In: the open database, what is being deleted.  Out: a ``Topology``.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import (
    BindingRecord,
    ExchangeRecord,
    LimitRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    TopicPermissionRecord,
    Topology,
    UserRecord,
    VhostMetadata,
    VhostRecord,
)
from penstock.storage.definitions.staging import StagingTables
from penstock.storage.definitions.sweep import Departures
from penstock.storage.definitions.values import read_rows


def load_topology(
    db: sqlite3.Connection, departures: Departures, staging: StagingTables
) -> Topology:
    """Everything but bindings of what was deleted."""

    def table(select: str, kinds: str) -> Iterator[list[Any]]:
        return read_rows(db, select, kinds)

    parameters = table("name, value, vhost, component, user FROM parameters", "tlttt")
    topology = Topology(
        staging.load_sets(),
        staging.load_producers(),
        [ParameterRecord(*row) for row in parameters],
        users=[UserRecord(*row) for row in table("* FROM users", "tttl")],
        permissions=[PermissionRecord(*row) for row in table("* FROM permissions", "ttttt")],
        topic_permissions=[
            TopicPermissionRecord(*row) for row in table("* FROM topic_permissions", "ttttt")
        ],
        policies=[PolicyRecord(*row) for row in table("* FROM policies", "tttttia")],
        limits=[LimitRecord(*row) for row in table("* FROM limits", "ttti")],
        exchanges=[ExchangeRecord(*row) for row in table("* FROM exchanges", "tttbbat")],
        queues=[QueueRecord(*row) for row in table("* FROM queues ORDER BY queue_id", "itttbabt")],
    )
    for name, entries, description, tags, kind, is_protected in table("* FROM vhosts", "titltb"):
        metadata = VhostMetadata(description, tuple(tags), kind, is_protected)
        closing = name in departures.vhosts
        topology.vhosts.append(VhostRecord(name, entries, metadata, closing=closing))
    names = "vhost, source, destination, destination_type, routing_key, arguments, number"
    for *identity, number in table(f"{names} FROM bindings", "tttttai"):
        binding = BindingRecord(*identity)
        ends = (binding.vhost, binding.source, binding.destination_type, binding.destination)
        if not departures.covers(*ends, number):
            topology.bindings.append(binding)
    return topology
