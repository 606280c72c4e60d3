"""``CoordinationStore``: the keys on which the nodes of one machine agree, in one SQLite file.

In: leases asked for and kept alive, and transactions: conditions on keys' revisions, and
changes.  Out: revisions, what is there, and what happened above a revision.  The rules are those
of ``agreement/coordinator.py``; this is the store that one process holds, for itself or for others,
and knows no members but by their leases.

Time is ``now_ms`` of the holder.  The end of a lease is not written down: a store that is opened
again gives every lease its full time anew, because no member could keep it alive meanwhile; so does
a store whose holder was paused.

What ``transact`` and the ends of leases change is on disk after ``commit``; until then no member
may be told.  A crash undoes it.  After an error of the disk, or damage (OSError, too), the store
reports only that error.

docs/formats/coordination.md has the tables.
  S1  no key's revision is above the store's, and it was made no later than that
  S2  a key is bound to no lease (0) or to one that lasts
  S3  history is complete above ``forgotten``, and its newest event of a key tells how it is
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

from penstock.core.clock_types import BootMs
from penstock.core.errors import Corrupt, PenstockError
from penstock.storage.common.sqlite_errors import closed_unless_readable, disk_error
from penstock.storage.common.sqlite_log import check_log

FORMAT_VERSION: Final = 1
HISTORY_KEPT: Final = 10_000
"""Revisions; who is further behind takes the difference to what is there now."""
STOOD_STILL_MS: Final = 1000
REFUSED: Final = 0
NO_LEASE: Final = -1

ConditionRow = tuple[str, int]
"""Key, and its revision (0 = it is not there)."""
ChangeRow = tuple[str, str | None, bool, bool]
"""Key, value or None to delete, bound to the lease, all that begins with the key."""
EntryRow = tuple[str, str, int, int]
"""Key, value, revision of its last change, revision at which it was made."""
EventRow = tuple[int, str, str | None, bool]
"""Revision, key, value or None, whether it was not there before."""

_SCHEMA: Final = """
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('revision', 0), ('forgotten', 0), ('last_lease', 0);
CREATE TABLE leases (lease INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL);
CREATE TABLE keys (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, revision INTEGER NOT NULL, made INTEGER NOT NULL,
    lease INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX keys_of_leases ON keys (lease) WHERE lease > 0;
CREATE TABLE history (
    revision INTEGER, place INTEGER, key TEXT NOT NULL, value TEXT, made INTEGER NOT NULL,
    PRIMARY KEY (revision, place)) WITHOUT ROWID;
"""


class HistoryForgotten(PenstockError):
    """What happened above that revision is not known any more, not all of it."""


@final
class _Lease:
    __slots__ = ("end_ms", "ttl_ms")

    def __init__(self, ttl_ms: int, end_ms: BootMs) -> None:
        self.ttl_ms = ttl_ms
        self.end_ms = end_ms

    def renew(self, now_ms: BootMs) -> None:
        self.end_ms = BootMs(now_ms + self.ttl_ms)

    def pause(self, stood_still_ms: int) -> None:
        """Time in which nothing could be renewed does not count."""
        self.end_ms = BootMs(self.end_ms + stood_still_ms)


@final
class CoordinationStore:
    """``revision``: of the newest change, also when it is not committed yet."""

    def __init__(self, path: str, now_ms: BootMs, history_kept: int = HISTORY_KEPT) -> None:
        self.path = path
        self.revision = 0
        self.forgotten = 0
        self._last_lease = 0
        self._history_kept = history_kept
        self._leases: dict[int, _Lease] = {}
        self._looked_ms = now_ms
        self._dirty = False
        self._error: OSError | None = None
        self._place = 0
        check_log(path)  # before SQLite, which makes the file fit what it took of it
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with closed_unless_readable(self._db, path):
            self._open(now_ms)

    def _open(self, now_ms: BootMs) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version == 0:
            self._db.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
            )
        elif version != FORMAT_VERSION:
            raise Corrupt(
                f"{self.path}: coordination format version {version},"
                f" this release reads version {FORMAT_VERSION}"
            )
        counters = dict(self._db.execute("SELECT name, value FROM counters"))
        if sorted(counters) != ["forgotten", "last_lease", "revision"]:
            raise Corrupt(f"{self.path}: counters are missing")
        self.revision = counters["revision"]
        self.forgotten = counters["forgotten"]
        self._last_lease = counters["last_lease"]
        for lease, ttl_ms in self._db.execute("SELECT lease, ttl_ms FROM leases"):
            self._leases[lease] = _Lease(ttl_ms, BootMs(now_ms + ttl_ms))

    def close(self) -> None:
        """What was not committed is lost."""
        self._db.close()

    # -- leases --------------------------------------------------------------------------

    def grant(self, ttl_ms: int, now_ms: BootMs) -> int:
        """The number of a new lease; no number is ever given twice once committed."""
        self._last_lease += 1
        lease = self._last_lease
        self._change("UPDATE counters SET value = ? WHERE name = 'last_lease'", lease)
        self._change("INSERT INTO leases VALUES (?, ?)", lease, ttl_ms)
        self._leases[lease] = _Lease(ttl_ms, BootMs(now_ms + ttl_ms))
        return lease

    def keep_alive(self, lease: int, now_ms: BootMs) -> bool:
        """False: it has ended."""
        held = self._leases.get(lease)
        if held is None:
            return False
        held.renew(now_ms)
        return True

    def end_lease(self, lease: int) -> None:
        """What is bound to it goes, at one revision; nothing if it has ended."""
        if self._leases.pop(lease, None) is None:
            return
        self._change("DELETE FROM leases WHERE lease = ?", lease)
        rows = self._rows("SELECT key FROM keys WHERE lease = ? AND lease > 0 ORDER BY key", lease)
        if rows:
            self._begin_revision()
            for (key,) in rows:
                self._delete(key)

    def end_overdue(self, now_ms: BootMs) -> int:
        """Ends the leases whose time is over; how many.  To be called several times per second."""
        stood_still_ms = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if stood_still_ms > STOOD_STILL_MS:
            for held in self._leases.values():
                held.pause(stood_still_ms)
        overdue = [lease for lease, held in self._leases.items() if held.end_ms <= now_ms]
        for lease in overdue:
            self.end_lease(lease)
        return len(overdue)

    # -- changes -------------------------------------------------------------------------

    def transact(
        self, lease: int, conditions: Sequence[ConditionRow], changes: Sequence[ChangeRow]
    ) -> int:
        """The revision; or ``REFUSED``, or ``NO_LEASE``, and then nothing has changed."""
        if lease not in self._leases:
            return NO_LEASE
        for key, revision in conditions:
            rows = self._rows("SELECT revision FROM keys WHERE key = ?", key)
            if (rows[0][0] if rows else 0) != revision:
                return REFUSED
        self._begin_revision()
        for key, value, leased, below in changes:
            if value is not None:
                self._put(key, value, lease if leased else 0)
            elif below:
                self._delete_below(key)
            else:
                self._delete(key)
        return self.revision

    def commit(self) -> None:
        """Everything since the last commit is on disk on return."""
        if self._dirty:
            self._execute("COMMIT")
            self._dirty = False

    def _begin_revision(self) -> None:
        self.revision += 1
        self._place = 0
        self._change("UPDATE counters SET value = ? WHERE name = 'revision'", self.revision)
        if self.revision - self._history_kept > self.forgotten:
            self.forgotten = self.revision - self._history_kept
            self._change("UPDATE counters SET value = ? WHERE name = 'forgotten'", self.forgotten)
            self._change("DELETE FROM history WHERE revision <= ?", self.forgotten)

    def _put(self, key: str, value: str, lease: int) -> None:
        rows = self._rows("SELECT made FROM keys WHERE key = ?", key)
        made = rows[0][0] if rows else self.revision
        self._change(
            "REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", key, value, self.revision, made, lease
        )
        self._note(key, value, made)

    def _delete(self, key: str) -> None:
        if self._change("DELETE FROM keys WHERE key = ?", key):
            self._note(key, None, 0)

    def _delete_below(self, prefix: str) -> None:
        # Keys are sorted by their bytes, so those that begin with the prefix lie together.
        found: list[str] = []
        with self._declared():
            for (key,) in self._db.execute(
                "SELECT key FROM keys WHERE key >= ? ORDER BY key", [prefix]
            ):
                if not key.startswith(prefix):
                    break
                found.append(key)
        for key in found:
            self._delete(key)

    def _note(self, key: str, value: str | None, made: int) -> None:
        self._place += 1
        statement = "INSERT INTO history VALUES (?, ?, ?, ?, ?)"
        self._change(statement, self.revision, self._place, key, value, made)

    # -- looking -------------------------------------------------------------------------

    def entries(self) -> list[EntryRow]:
        """In the order in which they were made."""
        return self._rows("SELECT key, value, revision, made FROM keys ORDER BY made, key")

    def value(self, key: str) -> str | None:
        """None: it is not there."""
        rows = self._rows("SELECT value FROM keys WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    def history(self, above: int) -> list[EventRow]:
        """What happened above that revision; raises ``HistoryForgotten``."""
        if above < self.forgotten:
            raise HistoryForgotten(
                f"history begins above revision {self.forgotten}, {above} was asked for"
            )
        rows = self._rows(
            "SELECT revision, key, value, made FROM history WHERE revision > ?"
            " ORDER BY revision, place",
            above,
        )
        return [(revision, key, value, made == revision) for revision, key, value, made in rows]

    def check(self) -> None:
        """S1-S3, by walking everything."""
        latest: dict[str, EventRow] = {row[1]: row for row in self.history(self.forgotten)}
        for key, value, revision, made in self.entries():
            assert 0 < made <= revision <= self.revision, "S1"
            event = latest.pop(key, None)
            if event is None:
                assert revision <= self.forgotten, "S3"
            else:
                assert (event[0], event[2]) == (revision, value), "S3"
        assert all(event[2] is None for event in latest.values()), "S3"
        bound = {row[0] for row in self._rows("SELECT DISTINCT lease FROM keys")}
        assert bound <= {0, *self._leases}, "S2"
        assert {row[0] for row in self._rows("SELECT lease FROM leases")} == set(self._leases), "S2"

    # -- SQLite --------------------------------------------------------------------------

    def _rows(self, statement: str, *values: str | int) -> list[Any]:
        with self._declared():
            return self._db.execute(statement, values).fetchall()

    def _change(self, statement: str, *values: str | int | None) -> int:
        if not self._dirty:
            self._dirty = True
            self._execute("BEGIN IMMEDIATE")
        return self._execute(statement, *values)

    def _execute(self, statement: str, *values: str | int | None) -> int:
        """How many rows it changed."""
        with self._declared():
            return self._db.execute(statement, values).rowcount

    @contextmanager
    def _declared(self) -> Iterator[None]:
        """SQLite's errors as OSError; from the first one on that is raised and nothing else."""
        if self._error is not None:
            raise self._error
        try:
            yield
        except sqlite3.DatabaseError as error:
            self._error = disk_error(error, self.path)
            raise self._error from error
