"""Everything in ``definitions.db``, as records: what a start reads.

In: the open database, what is being deleted.  Out: a ``Topology``.
"""

import json
import sqlite3
from collections.abc import Callable

from penstock.storage.definitions.parameters import load_parameters
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
from penstock.storage.definitions.values import arguments_from_json, name_in_cell

Rows = Callable[..., list[tuple[str | bytes | int, ...]]]
"""(statement, values...): the rows found."""


def load_topology(
    db: sqlite3.Connection, departures: Departures, staging: StagingTables, rows: Rows
) -> Topology:
    """Everything but bindings of what was deleted."""
    topology = Topology(staging.load_sets(), staging.load_producers(), load_parameters(rows))
    for row in db.execute("SELECT * FROM vhosts"):
        name = name_in_cell(row[0])
        metadata = VhostMetadata(
            name_in_cell(row[2]), tuple(json.loads(row[3])), str(row[4]), bool(row[5])
        )
        closing = name in departures.vhosts
        topology.vhosts.append(VhostRecord(name, int(row[1]), metadata, closing=closing))
    for row in db.execute("SELECT * FROM users"):
        topology.users.append(
            UserRecord(
                name_in_cell(row[0]),
                name_in_cell(row[1]),
                name_in_cell(row[2]),
                json.loads(row[3]),
            )
        )
    for row in db.execute("SELECT * FROM permissions"):
        user, vhost, configure, write, read = [name_in_cell(cell) for cell in row]
        topology.permissions.append(PermissionRecord(user, vhost, configure, write, read))
    _load_rules(db, topology)
    for row in db.execute("SELECT * FROM exchanges"):
        vhost, name, kind = [name_in_cell(cell) for cell in row[:3]]
        arguments, user = arguments_from_json(row[5]), name_in_cell(row[6])
        topology.exchanges.append(
            ExchangeRecord(vhost, name, kind, bool(row[3]), bool(row[4]), arguments, user)
        )
    for row in db.execute("SELECT * FROM queues ORDER BY queue_id"):
        incarnation, vhost, name = [name_in_cell(cell) for cell in row[1:4]]
        arguments, user = arguments_from_json(row[5]), name_in_cell(row[7])
        who = (int(row[0]), incarnation, vhost, name)
        topology.queues.append(QueueRecord(*who, bool(row[4]), arguments, bool(row[6]), user))
    names = "vhost, source, destination, destination_type, routing_key, arguments, number"
    for row in db.execute(f"SELECT {names} FROM bindings"):  # noqa: S608
        vhost, source, destination, destination_type, key = [name_in_cell(cell) for cell in row[:5]]
        if departures.covers(vhost, source, destination_type, destination, row[6]):
            continue
        arguments = arguments_from_json(row[5])
        topology.bindings.append(
            BindingRecord(vhost, source, destination, destination_type, key, arguments)
        )
    return topology


def _load_rules(db: sqlite3.Connection, topology: Topology) -> None:
    for row in db.execute("SELECT * FROM topic_permissions"):
        user, vhost, exchange, write, read = [name_in_cell(cell) for cell in row]
        topology.topic_permissions.append(TopicPermissionRecord(user, vhost, exchange, write, read))
    for row in db.execute("SELECT * FROM policies"):
        vhost, kind, name, pattern, apply_to = [name_in_cell(cell) for cell in row[:5]]
        definition = arguments_from_json(row[6])
        topology.policies.append(
            PolicyRecord(vhost, kind, name, pattern, apply_to, int(row[5]), definition)
        )
    for row in db.execute("SELECT * FROM limits"):
        scope, owner, name = [name_in_cell(cell) for cell in row[:3]]
        topology.limits.append(LimitRecord(scope, owner, name, int(row[3])))
