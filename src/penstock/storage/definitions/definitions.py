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
(``sweep``, see ``definitions.sweep``); ``load`` does not give them any more.

SQLite runs with a write-ahead log and synchronous=FULL: a commit returns when it is on disk.
docs/formats/definitions.md has the tables and the JSON of arguments.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, Final, final

from penstock.core.errors import Corrupt
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.common.sqlite_errors import closed_unless_readable, declared, is_full
from penstock.storage.common.sqlite_log import check_log, log_bytes
from penstock.storage.definitions.deletions import DeletedQueues
from penstock.storage.definitions.loading import load_topology
from penstock.storage.definitions.records import (
    BindingRecord,
    ExchangeRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    TopicPermissionRecord,
    Topology,
    UserRecord,
    VhostRecord,
)
from penstock.storage.definitions.schema import FORMAT_VERSION, SCHEMA, UPGRADES
from penstock.storage.definitions.staging import StagingTables
from penstock.storage.definitions.sweep import (
    FROM_EXCHANGE,
    SWEPT_AT_ONCE,
    TO_EXCHANGE,
    TO_QUEUE,
    VHOST,
    Departure,
    Departures,
    slice_statement,
)
from penstock.storage.definitions.transaction import DefinitionsTransaction, no_room
from penstock.storage.definitions.values import arguments_from_json, cell_of, put_statement

QUEUE_IDS_SET_ASIDE: Final = 1024
READERS: Final = ("range_starts", "range_leases")
"""Tables of ``range_readers``."""
QUEUE_ID_MAX: Final = 2**31 - 1
BUSY_MS: Final = 5000
"""How long a change waits for another process that has the file; a checkpoint does not wait."""
PAGE_BYTES: Final = 1024
"""Of a new file; a commit writes each page that it changes: for a queue mostly two."""
LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""From here on the log is emptied by the commit, not when there is time."""


@final
class Definitions:
    """``in_log``: something was committed that only SQLite's log has.

    ``make_room``: see ``definitions.transaction``.
    """

    def __init__(self, path: str, make_room: Callable[[], bool] = no_room) -> None:
        self.path = path
        self.in_log = False
        self._next_queue_id = 0
        self._set_aside_below = 0
        self._departures = Departures()
        self._next_binding_number = 1
        check_log(path)  # before SQLite, which makes the file fit what it took of it
        # The node's loop and its closing code may run in different threads, never at once.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._transaction = DefinitionsTransaction(self._db, path, make_room)
        self.staging = StagingTables(self._db, self._change)
        self._deleted = DeletedQueues(self.change)
        with closed_unless_readable(self._db, path):
            self._open()
            # What is done at start because of what was read must not outlive it.
            self.checkpoint()

    def _open(self) -> None:
        self._db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
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
        for first, below in self._db.execute("SELECT first, below FROM deleted_queues"):
            self._deleted.take(first, below)
        (highest,) = self._db.execute("SELECT max(number) FROM bindings").fetchone()
        self._next_binding_number = max([highest or 0, *self._departures.below.values()]) + 1

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def close(self) -> None:
        """What was not committed is lost."""
        self._db.close()

    # -- transactions ----------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Was something changed since the last ``commit``?"""
        return self._transaction.open

    def commit(self) -> None:
        """Everything since the last commit is on disk on return."""
        if self.dirty:
            if self._next_queue_id + QUEUE_IDS_SET_ASIDE // 2 > self._set_aside_below:
                self._set_aside()
            self._transaction.commit()
            self.in_log = True
            if log_bytes(self.path) > LOG_BYTES_MAX:
                self.checkpoint()

    def checkpoint(self) -> None:
        """Bring what was committed from the log into the file, and empty the log.

        The log is all there is of a commit before that, so it should not stay long.  Where
        there is no space, or another process reads, it stays: that is no error.
        """
        assert not self.dirty
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.in_log = bool(busy)
        except sqlite3.DatabaseError as error:
            if not is_full(error) and error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise declared(error, self.path) from error
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _change(self, statement: str, *values: object) -> int:
        return self._transaction.change(statement, tuple(map(cell_of, values)))

    def _put(self, table: str, *values: object) -> None:
        """A row, in the place of the one with its key; values in the order of the columns."""
        self._change(put_statement(table, len(values)), *values)

    def change(self, statement: str, *values: object) -> None:
        """For tables that have a file of their own; part of the turn's transaction."""
        self._change(statement, *values)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """As it is now, with what this turn has changed.  Raises OSError or Corrupt."""
        return self._transaction.read(statement, tuple(map(cell_of, values)))

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
        self._put("vhosts", vhost.name, vhost.segment_entries, *vhost.metadata)

    def vhost_leaves(self, name: str) -> None:
        """It is being removed, after a restart as well; ``delete_vhost`` is the end of it."""
        self._departures.vhosts.add(name)
        self._leave((VHOST, name, ""), 0)

    def vhost_stays(self, name: str) -> None:
        """It was being removed, and there is to be one of that name after all."""
        self._departures.vhosts.discard(name)
        self._change("DELETE FROM leaving WHERE side = ? AND vhost = ?", VHOST, name)

    def delete_vhost(self, name: str) -> None:
        """With everything in it."""
        self._note_deleted("vhost = ?", name)
        self._change("DELETE FROM vhosts WHERE name = ?", name)
        rules = ("permissions", "topic_permissions", "policies", "parameters")
        tables = (*rules, "exchanges", "queues", "bindings")
        self._departures.forget_vhost(name)
        for table in (*tables, "leaving", *READERS, "staged_sets", "staged_producers"):
            self._change(f"DELETE FROM {table} WHERE vhost = ?", name)  # noqa: S608
        self._delete_limits("vhost", name)

    def put_user(self, user: UserRecord) -> None:
        self._put("users", *user)

    def delete_user(self, name: str) -> None:
        """With the user's permissions and limits."""
        self._change("DELETE FROM users WHERE name = ?", name)
        self._change("DELETE FROM permissions WHERE user = ?", name)
        self._change("DELETE FROM topic_permissions WHERE user = ?", name)
        self._delete_limits("user", name)

    def put_permission(self, permission: PermissionRecord) -> None:
        self._put("permissions", *permission)

    def delete_permission(self, user: str, vhost: str) -> None:
        self._change("DELETE FROM permissions WHERE user = ? AND vhost = ?", user, vhost)

    def put_topic_permission(self, permission: TopicPermissionRecord) -> None:
        self._put("topic_permissions", *permission)

    def delete_topic_permissions(self, user: str, vhost: str) -> None:
        self._change("DELETE FROM topic_permissions WHERE user = ? AND vhost = ?", user, vhost)

    def put_policy(self, policy: PolicyRecord) -> None:
        assert policy.kind in ("policy", "operator")
        self._put("policies", *policy)

    def delete_policy(self, vhost: str, kind: str, name: str) -> None:
        which = "vhost = ? AND kind = ? AND name = ?"
        self._change(f"DELETE FROM policies WHERE {which}", vhost, kind, name)  # noqa: S608

    def put_limits(self, scope: str, owner: str, limits: dict[str, int]) -> None:
        """All limits of a virtual host or a user, in the place of those it had."""
        assert scope in ("vhost", "user")
        self._delete_limits(scope, owner)
        for name, value in limits.items():
            self._put("limits", scope, owner, name, value)

    def _delete_limits(self, scope: str, owner: str) -> None:
        self._change("DELETE FROM limits WHERE scope = ? AND owner = ?", scope, owner)

    def put_exchange(self, exchange: ExchangeRecord) -> None:
        self._put("exchanges", *exchange)

    def delete_exchange(self, vhost: str, name: str) -> None:
        """With the bindings from it and to it."""
        self._change("DELETE FROM exchanges WHERE vhost = ? AND name = ?", vhost, name)
        self._delete_bindings((FROM_EXCHANGE, vhost, name))
        self._delete_bindings((TO_EXCHANGE, vhost, name))

    def put_queue(self, queue: QueueRecord) -> None:
        self._put("queues", *queue)

    def pause_queue(self, vhost: str, name: str, paused: bool) -> None:
        statement = "UPDATE queues SET paused = ? WHERE vhost = ? AND name = ?"
        self._change(statement, paused, vhost, name)

    def delete_queue(self, vhost: str, name: str) -> None:
        """With the bindings to it, and what is known of its reader of ranges.

        That its numbers are deleted is kept.
        """
        self._note_deleted("vhost = ? AND name = ?", vhost, name)
        self._change("DELETE FROM queues WHERE vhost = ? AND name = ?", vhost, name)
        self._forget_queue(vhost, name)

    def _note_deleted(self, which: str, *values: str) -> None:
        statement = f"SELECT queue_id, arguments FROM queues WHERE {which}"  # noqa: S608
        for queue_id, arguments in self.rows(statement, *values):
            table = arguments_from_json(arguments)
            ids = QueueRecord(queue_id, "", "", "", False, table).queue_ids()
            self._deleted.add(ids[0], ids[-1] + 1)

    def delete_unknown_queues(self, queue_ids: list[int]) -> None:
        """Queues that have no row: an operator gives up what is left of them."""
        known = self.deleted_queues()
        for queue_id in queue_ids:
            if not known.contains(queue_id):
                self._deleted.add(queue_id, queue_id + 1)
        # An older file may not know that they were handed out.
        self._next_queue_id = max([self._next_queue_id, *[one + 1 for one in queue_ids]])

    def forget_deleted_queues(self) -> None:
        """Files and journal know nothing of them any more."""
        if self._deleted:
            self._deleted.clear()

    def deleted_queues(self) -> SeqRanges:
        """The numbers of queues whose deletion is recorded."""
        return self._deleted.ranges()

    def rename_queue(self, vhost: str, name: str, new_name: str) -> None:
        """What is in it goes by its id and follows; bindings and readers of ranges do not."""
        statement = "UPDATE queues SET name = ? WHERE vhost = ? AND name = ?"
        self._change(statement, new_name, vhost, name)
        self._forget_queue(vhost, name)

    def _forget_queue(self, vhost: str, name: str) -> None:
        self._delete_bindings((TO_QUEUE, vhost, name))
        for table in READERS:
            self._change(f"DELETE FROM {table} WHERE vhost = ? AND queue = ?", vhost, name)  # noqa: S608

    def _delete_bindings(self, departure: Departure) -> None:
        """All that are there now: at once when they are few, else from here on they are dead."""
        below = self._next_binding_number
        self._departures.below[departure] = below
        if not self._delete_some(departure, below):
            self._leave(departure, below)

    def _leave(self, departure: Departure, below: int) -> None:
        self._put("leaving", *departure, below)

    def _delete_some(self, departure: Departure, below: int) -> bool:
        """A slice; True when nothing is left."""
        side, vhost, name = departure
        count = self._change(slice_statement(side), vhost, name, below, SWEPT_AT_ONCE)
        if count == SWEPT_AT_ONCE:
            return False
        del self._departures.below[departure]
        self._change("DELETE FROM leaving WHERE side = ? AND vhost = ? AND name = ?", *departure)
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
        self._put("bindings", *binding, self._next_binding_number)
        self._next_binding_number += 1

    def delete_binding(self, binding: BindingRecord) -> None:
        self._change(
            "DELETE FROM bindings WHERE vhost = ? AND source = ? AND destination = ?"
            " AND destination_type = ? AND routing_key = ? AND arguments = ?",
            *binding,
        )

    # -- everything back -------------------------------------------------------------------

    def load(self) -> Topology:
        try:
            return load_topology(self._db, self._departures, self.staging)
        except (sqlite3.DatabaseError, ValueError, ArithmeticError, TypeError) as error:
            raise declared(error, self.path) from error
