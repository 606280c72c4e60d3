"""``FailingRows``: SQLite on a disk that fails."""

from __future__ import annotations

import sqlite3
from typing import Any


class FailingRows:
    """A connection to SQLite whose statements fail, the next but so many and those behind it.

    How long SQLite waits for a lock is set without the disk, and does not fail.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.after = -1  # they do not fail
        self.once = False
        self.failed = False

    def fail(self, after: int, *, once: bool) -> None:
        self.after, self.once = after, once

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if self.after == 0 and not statement.startswith("PRAGMA busy_timeout"):
            if self.once:
                self.after = -1
            self.failed = True
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        self.after -= self.after > 0
        return self._db.execute(statement, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)
