"""``Definitions``: the durable entities of a node, in one SQLite file.

In: virtual hosts, users, permissions, policies, limits, exchanges, queues and bindings as they are
declared and deleted.  Out: all of them at start (``load``).  Only what must survive comes here; an
exclusive or transient queue never does.

Changes take effect in one transaction that begins with the first change and ends with
``commit``: the node calls it once per turn, before any reply leaves, so a client that was
told "declared" finds it declared after a crash, and one sync serves all that was declared in
the turn.  A crash before ``commit`` undoes the whole turn.

Queue ids name a queue in the journal and its directory and must never be used twice, not even
when the transaction that used one is lost.  So ids are set aside in blocks ahead of use: the
counter in the file is raised and committed before the first id of a block is handed out.

A queue or exchange with very many bindings is deleted at once and its bindings in slices
(``sweep``, see ``definition_sweep``); ``load`` does not give them any more.

SQLite runs with a write-ahead log and synchronous=FULL: a commit returns when it is on disk.
docs/formats/definitions.md has the tables and the JSON of arguments.
"""

import json
import sqlite3
from typing import Final, final

from penstock.core.errors import Corrupt
from penstock.storage.definition_parameters import load_global_parameters
from penstock.storage.definition_records import (
    BindingRecord,
    ExchangeRecord,
    LimitRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    TopicPermissionRecord,
    Topology,
    UserRecord,
    VhostRecord,
)
from penstock.storage.definition_schema import FORMAT_VERSION, SCHEMA, UPGRADES
from penstock.storage.definition_staging import StagingTables
from penstock.storage.definition_sweep import (
    FROM_EXCHANGE,
    SWEPT_AT_ONCE,
    TO_EXCHANGE,
    TO_QUEUE,
    VHOST,
    Departure,
    Departures,
    slice_statement,
)
from penstock.storage.definition_values import (
    arguments_from_json,
    arguments_to_json,
    name_in_cell,
    name_to_cell,
)
from penstock.storage.sqlite_errors import disk_error

QUEUE_IDS_SET_ASIDE: Final = 1024
READERS: Final = ("range_starts", "range_leases")
"""Tables of ``range_readers``."""
QUEUE_ID_MAX: Final = 2**31 - 1


@final
class Definitions:
    """``dirty``: something was changed since the last ``commit``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.dirty = False
        self._error: OSError | None = None
        self._next_queue_id = 0
        self._set_aside_below = 0
        self._departures = Departures()
        self._next_binding_number = 1
        # The node's loop and its closing code may run in different threads, never at once.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.staging = StagingTables(self._db, self._change)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._db.close()
            # Locked, read-only or full is not damage.
            if isinstance(error, sqlite3.OperationalError):
                raise disk_error(error, path) from error
            raise Corrupt(f"{path}: not a readable SQLite file: {error}") from error
        except Corrupt:
            self._db.close()
            raise

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        version = self._version()
        if version == 0:
            self._db.executescript(
                f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
            )
        while 0 < version < FORMAT_VERSION:
            if version not in UPGRADES:
                break
            self._db.executescript(
                f"BEGIN IMMEDIATE; {UPGRADES[version]} PRAGMA user_version = {version + 1}; COMMIT;"
            )
            version += 1
        if version not in (0, FORMAT_VERSION):
            raise Corrupt(
                f"{self.path}: definitions format version {version},"
                f" this release reads versions {min(UPGRADES)} to {FORMAT_VERSION}"
            )
        row = self._db.execute("SELECT value FROM counters WHERE name = 'next_queue_id'").fetchone()
        if row is None:
            raise Corrupt(f"{self.path}: the counter next_queue_id is missing")
        self._next_queue_id = self._set_aside_below = int(row[0])
        for row in self._db.execute("SELECT side, vhost, name, below FROM leaving"):
            self._departures.take(row)
        (highest,) = self._db.execute("SELECT max(number) FROM bindings").fetchone()
        self._next_binding_number = max([highest or 0, *self._departures.below.values()]) + 1

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def close(self) -> None:
        """What was not committed is lost."""
        self._db.close()

    # -- transactions ----------------------------------------------------------------------

    def commit(self) -> None:
        """Everything since the last commit is on disk on return."""
        if self.dirty:
            if self._next_queue_id + QUEUE_IDS_SET_ASIDE // 2 > self._set_aside_below:
                self._set_aside()
            self._execute("COMMIT")
            self.dirty = False

    def _change(self, statement: str, *values: str | bytes | int) -> int:
        if not self.dirty:
            self.dirty = True
            self._execute("BEGIN IMMEDIATE")
        return self._execute(statement, *values)

    def change(self, statement: str, *values: str | bytes | int) -> None:
        """For tables that have a file of their own; part of the turn's transaction."""
        self._change(statement, *values)

    def rows(
        self, statement: str, *values: str | bytes | int
    ) -> list[tuple[str | bytes | int, ...]]:
        """As it is now, with what this turn has changed."""
        return self._db.execute(statement, values).fetchall()

    def _execute(self, statement: str, *values: str | bytes | int) -> int:
        """How many rows it changed.  Raises OSError, and from then on nothing else.

        SQLite may have taken the whole transaction back, so the turn's other changes are gone
        too: nobody may be told that they were kept.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._db.execute(statement, values).rowcount
        except sqlite3.OperationalError as error:
            self._error = disk_error(error, self.path)
            raise self._error from error

    def _set_aside(self) -> None:
        self._set_aside_below = below = self._next_queue_id + QUEUE_IDS_SET_ASIDE
        assert below <= QUEUE_ID_MAX
        self._change("UPDATE counters SET value = ? WHERE name = 'next_queue_id'", below)

    def next_queue_id(self, count: int = 1) -> int:
        """The first of ``count`` numbers no queue of this node ever had or will have."""
        if self._next_queue_id + count > self._set_aside_below:
            self._set_aside()
            self.commit()  # what is under way too: only in a turn that takes very many
        queue_id = self._next_queue_id
        self._next_queue_id += count
        return queue_id

    # -- changes ---------------------------------------------------------------------------

    def put_vhost(self, vhost: VhostRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO vhosts VALUES (?, ?, ?, ?)",
            name_to_cell(vhost.name),
            vhost.segment_entries,
            name_to_cell(vhost.description),
            json.dumps(vhost.tags),
        )

    def vhost_leaves(self, name: str) -> None:
        """It is being removed, after a restart as well; ``delete_vhost`` is the end of it."""
        self._departures.vhosts.add(name)
        self._leave((VHOST, name, ""), 0)

    def vhost_stays(self, name: str) -> None:
        """It was being removed, and there is to be one of that name after all."""
        self._departures.vhosts.discard(name)
        self._change("DELETE FROM leaving WHERE side = ? AND vhost = ?", VHOST, name_to_cell(name))

    def delete_vhost(self, name: str) -> None:
        """With everything in it."""
        self._change("DELETE FROM vhosts WHERE name = ?", name_to_cell(name))
        tables = ("permissions", "topic_permissions", "policies", "exchanges", "queues", "bindings")
        self._departures.forget_vhost(name)
        for table in (*tables, "leaving", *READERS, "staged_sets", "staged_producers"):
            self._change(f"DELETE FROM {table} WHERE vhost = ?", name_to_cell(name))  # noqa: S608
        self._delete_limits("vhost", name)

    def put_user(self, user: UserRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?)",
            name_to_cell(user.name),
            name_to_cell(user.password_hash),
            name_to_cell(user.hashing_algorithm),
            json.dumps(user.tags),
        )

    def delete_user(self, name: str) -> None:
        """With the user's permissions and limits."""
        self._change("DELETE FROM users WHERE name = ?", name_to_cell(name))
        self._change("DELETE FROM permissions WHERE user = ?", name_to_cell(name))
        self._change("DELETE FROM topic_permissions WHERE user = ?", name_to_cell(name))
        self._delete_limits("user", name)

    def put_permission(self, permission: PermissionRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO permissions VALUES (?, ?, ?, ?, ?)",
            name_to_cell(permission.user),
            name_to_cell(permission.vhost),
            name_to_cell(permission.configure),
            name_to_cell(permission.write),
            name_to_cell(permission.read),
        )

    def delete_permission(self, user: str, vhost: str) -> None:
        self._change(
            "DELETE FROM permissions WHERE user = ? AND vhost = ?",
            name_to_cell(user),
            name_to_cell(vhost),
        )

    def put_topic_permission(self, permission: TopicPermissionRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO topic_permissions VALUES (?, ?, ?, ?, ?)",
            name_to_cell(permission.user),
            name_to_cell(permission.vhost),
            name_to_cell(permission.exchange),
            name_to_cell(permission.write),
            name_to_cell(permission.read),
        )

    def delete_topic_permissions(self, user: str, vhost: str) -> None:
        self._change(
            "DELETE FROM topic_permissions WHERE user = ? AND vhost = ?",
            name_to_cell(user),
            name_to_cell(vhost),
        )

    def put_policy(self, policy: PolicyRecord) -> None:
        assert policy.kind in ("policy", "operator")
        self._change(
            "INSERT OR REPLACE INTO policies VALUES (?, ?, ?, ?, ?, ?, ?)",
            name_to_cell(policy.vhost),
            policy.kind,
            name_to_cell(policy.name),
            name_to_cell(policy.pattern),
            policy.apply_to,
            policy.priority,
            arguments_to_json(policy.definition),
        )

    def delete_policy(self, vhost: str, kind: str, name: str) -> None:
        self._change(
            "DELETE FROM policies WHERE vhost = ? AND kind = ? AND name = ?",
            name_to_cell(vhost),
            kind,
            name_to_cell(name),
        )

    def put_limits(self, scope: str, owner: str, limits: dict[str, int]) -> None:
        """All limits of a virtual host or a user, in the place of those it had."""
        assert scope in ("vhost", "user")
        self._delete_limits(scope, owner)
        for name, value in limits.items():
            self._change(
                "INSERT INTO limits VALUES (?, ?, ?, ?)", scope, name_to_cell(owner), name, value
            )

    def _delete_limits(self, scope: str, owner: str) -> None:
        self._change("DELETE FROM limits WHERE scope = ? AND owner = ?", scope, name_to_cell(owner))

    def put_exchange(self, exchange: ExchangeRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO exchanges VALUES (?, ?, ?, ?, ?, ?)",
            name_to_cell(exchange.vhost),
            name_to_cell(exchange.name),
            name_to_cell(exchange.type),
            int(exchange.auto_delete),
            int(exchange.internal),
            arguments_to_json(exchange.arguments),
        )

    def delete_exchange(self, vhost: str, name: str) -> None:
        """With the bindings from it and to it."""
        self._change(
            "DELETE FROM exchanges WHERE vhost = ? AND name = ?",
            name_to_cell(vhost),
            name_to_cell(name),
        )
        self._delete_bindings((FROM_EXCHANGE, vhost, name))
        self._delete_bindings((TO_EXCHANGE, vhost, name))

    def put_queue(self, queue: QueueRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?, ?, ?, ?)",
            queue.queue_id,
            name_to_cell(queue.incarnation),
            name_to_cell(queue.vhost),
            name_to_cell(queue.name),
            int(queue.auto_delete),
            arguments_to_json(queue.arguments),
            int(queue.paused),
        )

    def pause_queue(self, vhost: str, name: str, paused: bool) -> None:
        self._change(
            "UPDATE queues SET paused = ? WHERE vhost = ? AND name = ?",
            int(paused),
            name_to_cell(vhost),
            name_to_cell(name),
        )

    def delete_queue(self, vhost: str, name: str) -> None:
        """With the bindings to it, and what is known of its reader of ranges."""
        self._change(
            "DELETE FROM queues WHERE vhost = ? AND name = ?",
            name_to_cell(vhost),
            name_to_cell(name),
        )
        self._forget_queue(vhost, name)

    def rename_queue(self, vhost: str, name: str, new_name: str) -> None:
        """What is in it goes by its id and follows; bindings and readers of ranges do not."""
        cells = (name_to_cell(new_name), name_to_cell(vhost), name_to_cell(name))
        self._change("UPDATE queues SET name = ? WHERE vhost = ? AND name = ?", *cells)
        self._forget_queue(vhost, name)

    def _forget_queue(self, vhost: str, name: str) -> None:
        self._delete_bindings((TO_QUEUE, vhost, name))
        for table in READERS:
            self._change(
                f"DELETE FROM {table} WHERE vhost = ? AND queue = ?",  # noqa: S608
                name_to_cell(vhost),
                name_to_cell(name),
            )

    def _delete_bindings(self, departure: Departure) -> None:
        """All that are there now: at once when they are few, else from here on they are dead."""
        below = self._next_binding_number
        self._departures.below[departure] = below
        if not self._delete_some(departure, below):
            self._leave(departure, below)

    def _leave(self, departure: Departure, below: int) -> None:
        side, vhost, name = departure
        cells = (name_to_cell(vhost), name_to_cell(name))
        self._change("INSERT OR REPLACE INTO leaving VALUES (?, ?, ?, ?)", side, *cells, below)

    def _delete_some(self, departure: Departure, below: int) -> bool:
        """A slice; True when nothing is left."""
        side, vhost, name = departure
        cells = (name_to_cell(vhost), name_to_cell(name))
        count = self._change(slice_statement(side), *cells, below, SWEPT_AT_ONCE)
        if count == SWEPT_AT_ONCE:
            return False
        del self._departures.below[departure]
        self._change("DELETE FROM leaving WHERE side = ? AND vhost = ? AND name = ?", side, *cells)
        return True

    def sweep(self) -> bool:
        """Delete some more bindings of what was deleted; True when there are still others."""
        for departure, below in self._departures.below.items():
            self._delete_some(departure, below)
            break
        return len(self._departures.below) > 0

    def is_sweeping(self, vhost: str) -> bool:
        """Has it bindings of what was deleted?"""
        return any(departure[1] == vhost for departure in self._departures.below)

    def put_binding(self, binding: BindingRecord) -> None:
        assert binding.destination_type in ("queue", "exchange")
        self._change(
            "INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?, ?, ?)",
            name_to_cell(binding.vhost),
            name_to_cell(binding.source),
            name_to_cell(binding.destination),
            binding.destination_type,
            name_to_cell(binding.routing_key),
            arguments_to_json(binding.arguments),
            self._next_binding_number,
        )
        self._next_binding_number += 1

    def delete_binding(self, binding: BindingRecord) -> None:
        self._change(
            "DELETE FROM bindings WHERE vhost = ? AND source = ? AND destination = ?"
            " AND destination_type = ? AND routing_key = ? AND arguments = ?",
            name_to_cell(binding.vhost),
            name_to_cell(binding.source),
            name_to_cell(binding.destination),
            binding.destination_type,
            name_to_cell(binding.routing_key),
            arguments_to_json(binding.arguments),
        )

    # -- everything back -------------------------------------------------------------------

    def load(self) -> Topology:
        try:
            return self._load()
        except (sqlite3.DatabaseError, ValueError, ArithmeticError, TypeError) as error:
            raise Corrupt(f"{self.path}: unreadable definitions: {error}") from error

    def _load(self) -> Topology:
        topology = Topology()
        for row in self._db.execute("SELECT * FROM vhosts"):
            name, tags = name_in_cell(row[0]), json.loads(row[3])
            record = VhostRecord(name, int(row[1]), name_in_cell(row[2]), tags)
            record.closing = name in self._departures.vhosts
            topology.vhosts.append(record)
        for row in self._db.execute("SELECT * FROM users"):
            topology.users.append(
                UserRecord(
                    name_in_cell(row[0]),
                    name_in_cell(row[1]),
                    name_in_cell(row[2]),
                    json.loads(row[3]),
                )
            )
        for row in self._db.execute("SELECT * FROM permissions"):
            user, vhost, configure, write, read = [name_in_cell(cell) for cell in row]
            topology.permissions.append(PermissionRecord(user, vhost, configure, write, read))
        self._load_rules(topology)
        for row in self._db.execute("SELECT * FROM exchanges"):
            vhost, name, kind = [name_in_cell(cell) for cell in row[:3]]
            arguments = arguments_from_json(row[5])
            topology.exchanges.append(
                ExchangeRecord(vhost, name, kind, bool(row[3]), bool(row[4]), arguments)
            )
        for row in self._db.execute("SELECT * FROM queues ORDER BY queue_id"):
            incarnation, vhost, name = [name_in_cell(cell) for cell in row[1:4]]
            arguments = arguments_from_json(row[5])
            topology.queues.append(
                QueueRecord(
                    int(row[0]), incarnation, vhost, name, bool(row[4]), arguments, bool(row[6])
                )
            )
        names = "vhost, source, destination, destination_type, routing_key, arguments, number"
        for row in self._db.execute(f"SELECT {names} FROM bindings"):  # noqa: S608
            vhost, source, destination, destination_type, key = [
                name_in_cell(cell) for cell in row[:5]
            ]
            if self._departures.covers(vhost, source, destination_type, destination, row[6]):
                continue
            arguments = arguments_from_json(row[5])
            topology.bindings.append(
                BindingRecord(vhost, source, destination, destination_type, key, arguments)
            )
        topology.staged_sets = self.staging.load_sets()
        topology.staged_producers = self.staging.load_producers()
        topology.global_parameters = load_global_parameters(self.rows)
        return topology

    def _load_rules(self, topology: Topology) -> None:
        for row in self._db.execute("SELECT * FROM topic_permissions"):
            user, vhost, exchange, write, read = [name_in_cell(cell) for cell in row]
            topology.topic_permissions.append(
                TopicPermissionRecord(user, vhost, exchange, write, read)
            )
        for row in self._db.execute("SELECT * FROM policies"):
            vhost, kind, name, pattern, apply_to = [name_in_cell(cell) for cell in row[:5]]
            definition = arguments_from_json(row[6])
            topology.policies.append(
                PolicyRecord(vhost, kind, name, pattern, apply_to, int(row[5]), definition)
            )
        for row in self._db.execute("SELECT * FROM limits"):
            scope, owner, name = [name_in_cell(cell) for cell in row[:3]]
            topology.limits.append(LimitRecord(scope, owner, name, int(row[3])))
