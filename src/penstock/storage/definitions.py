"""``Definitions``: the durable entities of a node, in one SQLite file.

In: virtual hosts, users, permissions, exchanges, queues and bindings as they are declared
and deleted.  Out: all of them at start (``load``).  Only what must survive comes here; an
exclusive or transient queue never does.

Changes take effect in one transaction that begins with the first change and ends with
``commit``: the node calls it once per turn, before any reply leaves, so a client that was
told "declared" finds it declared after a crash, and one sync serves all that was declared in
the turn.  A crash before ``commit`` undoes the whole turn.

Queue ids name a queue in the journal and its directory and must never be used twice, not even
when the transaction that used one is lost.  So ids are set aside in blocks ahead of use: the
counter in the file is raised and committed before the first id of a block is handed out.

SQLite runs with a write-ahead log and synchronous=FULL: a commit returns when it is on disk.
docs/formats/definitions.md has the tables and the JSON of arguments.
"""

import errno
import json
import os
import sqlite3
from base64 import b64decode, b64encode
from decimal import Decimal
from typing import Final, cast, final

from penstock.core.errors import Corrupt

FORMAT_VERSION: Final = 2
QUEUE_IDS_SET_ASIDE: Final = 1024
QUEUE_ID_MAX: Final = 2**31 - 1

_ERRORS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
}

_BYTES_TAG: Final = "$bytes"
_DECIMAL_TAG: Final = "$decimal"
_DICT_TAG: Final = "$dict"

_SCHEMA: Final = """
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('next_queue_id', 1);
CREATE TABLE vhosts (name TEXT PRIMARY KEY, segment_entries INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE users (
    name TEXT PRIMARY KEY, password_hash TEXT NOT NULL, hashing_algorithm TEXT NOT NULL,
    tags TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE permissions (
    user TEXT, vhost TEXT, configure TEXT NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    PRIMARY KEY (user, vhost)) WITHOUT ROWID;
CREATE TABLE exchanges (
    vhost TEXT, name TEXT, type TEXT NOT NULL, auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL, arguments TEXT NOT NULL,
    PRIMARY KEY (vhost, name)) WITHOUT ROWID;
CREATE TABLE queues (
    queue_id INTEGER PRIMARY KEY, incarnation TEXT NOT NULL, vhost TEXT NOT NULL,
    name TEXT NOT NULL, auto_delete INTEGER NOT NULL, arguments TEXT NOT NULL,
    UNIQUE (vhost, name));
CREATE TABLE bindings (
    vhost TEXT, source TEXT, destination TEXT, destination_type TEXT, routing_key TEXT,
    arguments TEXT,
    PRIMARY KEY (vhost, source, destination_type, destination, routing_key, arguments)
    ) WITHOUT ROWID;
CREATE INDEX bindings_by_destination ON bindings (vhost, destination_type, destination);
"""


def _disk_error(error: sqlite3.OperationalError, path: str) -> OSError:
    """The same failure in the words of the operating system, whose numbers callers know."""
    number = _ERRORS.get(error.sqlite_errorcode & 0xFF, errno.EIO)
    return OSError(number, f"{os.strerror(number)} ({error})", path)


class VhostRecord:
    """``segment_entries``: of its queues' index; it must never change under data."""

    __slots__ = ("name", "segment_entries")

    def __init__(self, name: str, segment_entries: int = 16_384) -> None:
        self.name = name
        self.segment_entries = segment_entries


class UserRecord:
    __slots__ = ("hashing_algorithm", "name", "password_hash", "tags")

    def __init__(
        self, name: str, password_hash: str, hashing_algorithm: str, tags: list[str]
    ) -> None:
        self.name = name
        self.password_hash = password_hash
        self.hashing_algorithm = hashing_algorithm
        self.tags = tags


class PermissionRecord:
    __slots__ = ("configure", "read", "user", "vhost", "write")

    def __init__(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self.user = user
        self.vhost = vhost
        self.configure = configure
        self.write = write
        self.read = read


class ExchangeRecord:
    __slots__ = ("arguments", "auto_delete", "internal", "name", "type", "vhost")

    def __init__(
        self,
        vhost: str,
        name: str,
        type: str,  # noqa: A002 - the field's own word
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.type = type
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments


class QueueRecord:
    """``incarnation`` tells a queue from an earlier one of the same name: 32 hex digits."""

    __slots__ = ("arguments", "auto_delete", "incarnation", "name", "queue_id", "vhost")

    def __init__(
        self,
        queue_id: int,
        incarnation: str,
        vhost: str,
        name: str,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        self.queue_id = queue_id
        self.incarnation = incarnation
        self.vhost = vhost
        self.name = name
        self.auto_delete = auto_delete
        self.arguments = arguments


class BindingRecord:
    """``destination_type`` is "queue" or "exchange".  All fields together are the identity."""

    __slots__ = (
        "arguments",
        "destination",
        "destination_type",
        "routing_key",
        "source",
        "vhost",
    )

    def __init__(
        self,
        vhost: str,
        source: str,
        destination: str,
        destination_type: str,
        routing_key: str,
        arguments: dict[str, object],
    ) -> None:
        self.vhost = vhost
        self.source = source
        self.destination = destination
        self.destination_type = destination_type
        self.routing_key = routing_key
        self.arguments = arguments


class Topology:
    """Everything that is defined."""

    __slots__ = ("bindings", "exchanges", "permissions", "queues", "users", "vhosts")

    def __init__(self) -> None:
        self.vhosts: list[VhostRecord] = []
        self.users: list[UserRecord] = []
        self.permissions: list[PermissionRecord] = []
        self.exchanges: list[ExchangeRecord] = []
        self.queues: list[QueueRecord] = []
        self.bindings: list[BindingRecord] = []


@final
class Definitions:
    """``dirty``: something was changed since the last ``commit``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.dirty = False
        self._error: OSError | None = None
        self._next_queue_id = 0
        self._set_aside_below = 0
        # The node's loop and its closing code may run in different threads, never at once.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._db.close()
            # Locked, read-only or full is not damage.
            if isinstance(error, sqlite3.OperationalError):
                raise _disk_error(error, path) from error
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
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
            )
        elif version != FORMAT_VERSION:
            raise Corrupt(
                f"{self.path}: definitions format version {version},"
                f" this release reads version {FORMAT_VERSION}"
            )
        row = self._db.execute("SELECT value FROM counters WHERE name = 'next_queue_id'").fetchone()
        if row is None:
            raise Corrupt(f"{self.path}: the counter next_queue_id is missing")
        self._next_queue_id = self._set_aside_below = int(row[0])

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

    def _change(self, statement: str, *values: str | bytes | int) -> None:
        if not self.dirty:
            self.dirty = True
            self._execute("BEGIN IMMEDIATE")
        self._execute(statement, *values)

    def _execute(self, statement: str, *values: str | bytes | int) -> None:
        """Raises OSError, and from then on nothing else.

        SQLite may have taken the whole transaction back, so the turn's other changes are gone
        too: nobody may be told that they were kept.
        """
        if self._error is not None:
            raise self._error
        try:
            self._db.execute(statement, values)
        except sqlite3.OperationalError as error:
            self._error = _disk_error(error, self.path)
            raise self._error from error

    def _set_aside(self) -> None:
        self._set_aside_below = below = self._next_queue_id + QUEUE_IDS_SET_ASIDE
        assert below <= QUEUE_ID_MAX
        self._change("UPDATE counters SET value = ? WHERE name = 'next_queue_id'", below)

    def next_queue_id(self) -> int:
        """A number no queue of this node ever had or will have."""
        if self._next_queue_id >= self._set_aside_below:
            self._set_aside()
            self.commit()  # what is under way too: only in a turn that takes very many
        queue_id = self._next_queue_id
        self._next_queue_id += 1
        return queue_id

    # -- changes ---------------------------------------------------------------------------

    def put_vhost(self, vhost: VhostRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO vhosts VALUES (?, ?)", _text(vhost.name), vhost.segment_entries
        )

    def delete_vhost(self, name: str) -> None:
        """With everything in it."""
        self._change("DELETE FROM vhosts WHERE name = ?", _text(name))
        for table in ("permissions", "exchanges", "queues", "bindings"):
            self._change(f"DELETE FROM {table} WHERE vhost = ?", _text(name))  # noqa: S608

    def put_user(self, user: UserRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?)",
            _text(user.name),
            _text(user.password_hash),
            _text(user.hashing_algorithm),
            json.dumps(user.tags),
        )

    def delete_user(self, name: str) -> None:
        """With the user's permissions."""
        self._change("DELETE FROM users WHERE name = ?", _text(name))
        self._change("DELETE FROM permissions WHERE user = ?", _text(name))

    def put_permission(self, permission: PermissionRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO permissions VALUES (?, ?, ?, ?, ?)",
            _text(permission.user),
            _text(permission.vhost),
            _text(permission.configure),
            _text(permission.write),
            _text(permission.read),
        )

    def delete_permission(self, user: str, vhost: str) -> None:
        self._change(
            "DELETE FROM permissions WHERE user = ? AND vhost = ?", _text(user), _text(vhost)
        )

    def put_exchange(self, exchange: ExchangeRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO exchanges VALUES (?, ?, ?, ?, ?, ?)",
            _text(exchange.vhost),
            _text(exchange.name),
            _text(exchange.type),
            int(exchange.auto_delete),
            int(exchange.internal),
            arguments_to_json(exchange.arguments),
        )

    def delete_exchange(self, vhost: str, name: str) -> None:
        """With the bindings from it and to it."""
        self._change(
            "DELETE FROM exchanges WHERE vhost = ? AND name = ?", _text(vhost), _text(name)
        )
        self._change(
            "DELETE FROM bindings WHERE vhost = ? AND source = ?", _text(vhost), _text(name)
        )
        self._delete_bindings_to(vhost, "exchange", name)

    def put_queue(self, queue: QueueRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?, ?, ?)",
            queue.queue_id,
            _text(queue.incarnation),
            _text(queue.vhost),
            _text(queue.name),
            int(queue.auto_delete),
            arguments_to_json(queue.arguments),
        )

    def delete_queue(self, vhost: str, name: str) -> None:
        """With the bindings to it."""
        self._change("DELETE FROM queues WHERE vhost = ? AND name = ?", _text(vhost), _text(name))
        self._delete_bindings_to(vhost, "queue", name)

    def _delete_bindings_to(self, vhost: str, destination_type: str, destination: str) -> None:
        self._change(
            "DELETE FROM bindings WHERE vhost = ? AND destination_type = ? AND destination = ?",
            _text(vhost),
            destination_type,
            _text(destination),
        )

    def put_binding(self, binding: BindingRecord) -> None:
        assert binding.destination_type in ("queue", "exchange")
        self._change(
            "INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?, ?)",
            _text(binding.vhost),
            _text(binding.source),
            _text(binding.destination),
            binding.destination_type,
            _text(binding.routing_key),
            arguments_to_json(binding.arguments),
        )

    def delete_binding(self, binding: BindingRecord) -> None:
        self._change(
            "DELETE FROM bindings WHERE vhost = ? AND source = ? AND destination = ?"
            " AND destination_type = ? AND routing_key = ? AND arguments = ?",
            _text(binding.vhost),
            _text(binding.source),
            _text(binding.destination),
            binding.destination_type,
            _text(binding.routing_key),
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
            topology.vhosts.append(VhostRecord(_name(row[0]), int(row[1])))
        for row in self._db.execute("SELECT * FROM users"):
            topology.users.append(
                UserRecord(_name(row[0]), _name(row[1]), _name(row[2]), json.loads(row[3]))
            )
        for row in self._db.execute("SELECT * FROM permissions"):
            user, vhost, configure, write, read = [_name(cell) for cell in row]
            topology.permissions.append(PermissionRecord(user, vhost, configure, write, read))
        for row in self._db.execute("SELECT * FROM exchanges"):
            vhost, name, kind = [_name(cell) for cell in row[:3]]
            arguments = arguments_from_json(row[5])
            topology.exchanges.append(
                ExchangeRecord(vhost, name, kind, bool(row[3]), bool(row[4]), arguments)
            )
        for row in self._db.execute("SELECT * FROM queues ORDER BY queue_id"):
            incarnation, vhost, name = [_name(cell) for cell in row[1:4]]
            arguments = arguments_from_json(row[5])
            topology.queues.append(
                QueueRecord(int(row[0]), incarnation, vhost, name, bool(row[4]), arguments)
            )
        for row in self._db.execute("SELECT * FROM bindings"):
            vhost, source, destination, destination_type, key = [_name(cell) for cell in row[:5]]
            arguments = arguments_from_json(row[5])
            topology.bindings.append(
                BindingRecord(vhost, source, destination, destination_type, key, arguments)
            )
        return topology


# -- values --------------------------------------------------------------------------------


def _text(name: str) -> str | bytes:
    """Names come from the line, where they need not be UTF-8: such a one is stored as bytes."""
    if name.isascii():
        return name
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape")
    return name


def _name(cell: str | bytes) -> str:
    return cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else cell


def arguments_to_json(arguments: dict[str, object]) -> str:
    """One spelling for equal tables: keys are sorted, and a binding is found by it again."""
    return json.dumps(_to_json(arguments), sort_keys=True, separators=(",", ":"))


def _to_json(value: object) -> object:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        return {_BYTES_TAG: b64encode(value).decode("ascii")}
    if isinstance(value, Decimal):
        return {_DECIMAL_TAG: str(value)}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        plain = {key: _to_json(item) for key, item in value.items()}
        # A table of the user's that looks like a tag is wrapped in one.
        return {_DICT_TAG: plain} if any(key.startswith("$") for key in plain) else plain
    raise TypeError(f"arguments cannot hold a {type(value).__name__}")


def arguments_from_json(text: str) -> dict[str, object]:
    value = _from_json(json.loads(text))
    if not isinstance(value, dict):
        raise TypeError(f"arguments are no table: {text[:40]}")
    return cast("dict[str, object]", value)


def _from_json(value: object) -> object:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        tag, content = next(iter(value.items()))
        if tag == _BYTES_TAG:
            return b64decode(content, validate=True)
        if tag == _DECIMAL_TAG:
            return Decimal(content)
        if tag == _DICT_TAG:
            return {key: _from_json(item) for key, item in content.items()}
    return {key: _from_json(item) for key, item in value.items()}
