"""The transaction of a turn: changes of the definitions until they are committed.

SQLite takes a whole transaction back when it finds no space, so the statements are kept until the
commit.  On a full disk the transaction is run once more as often as ``make_room`` says that there
may be room now: a full disk loses no change and ends nothing.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, Final, final

from penstock.core.errors import Corrupt
from penstock.storage.common.sqlite_errors import declared, is_full

Value = str | bytes | int
BEGIN: Final = "BEGIN IMMEDIATE"


def no_room() -> bool:
    """Of a process that has no reserve: a full disk is an error."""
    return False


@final
class DefinitionsTransaction:
    """``open``: something was changed since the last ``commit``.

    ``make_room``: called when the disk is full; True = try again.
    """

    def __init__(self, db: sqlite3.Connection, path: str, make_room: Callable[[], bool]) -> None:
        self.open = False
        self._db = db
        self._path = path
        self._make_room = make_room
        self._statements: list[tuple[str, tuple[Value, ...]]] = []
        self._error: OSError | Corrupt | None = None

    def change(self, statement: str, values: tuple[Value, ...]) -> int:
        """How many rows it changed.  Raises OSError or Corrupt, and from then on nothing else."""
        first = not self.open
        self.open = True
        self._statements.append((statement, values))
        if first:
            self._execute(BEGIN, ())
        return self._execute(statement, values)

    def read(self, statement: str, values: tuple[Value, ...]) -> list[tuple[Any, ...]]:
        """Rows, with what was changed in them.

        Raises OSError or Corrupt; of a transaction that is open as ``change`` does, else once.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise (self._final if self.open else self._declared)(error) from error

    def commit(self) -> None:
        """All of it is on disk on return.  Raises as ``change``."""
        self._execute("COMMIT", ())
        self._statements = []
        self.open = False

    def _execute(self, statement: str, values: tuple[Value, ...]) -> int:
        if self._error is not None:
            raise self._error
        try:
            return self._db.execute(statement, values).rowcount
        except sqlite3.DatabaseError as error:
            if not is_full(error):
                raise self._final(error) from error
            return self._once_more(error, statement)

    def _once_more(self, full: sqlite3.DatabaseError, last: str) -> int:
        """Everything since the beginning, up to the statement that found no space."""
        while self._make_room():
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            try:
                count = self._db.execute(BEGIN).rowcount
                if last != BEGIN:
                    for statement, values in self._statements:
                        count = self._db.execute(statement, values).rowcount
                if last == "COMMIT":
                    self._db.execute(last)
                return count
            except sqlite3.DatabaseError as error:
                if not is_full(error):
                    raise self._final(error) from error
                full = error
        raise self._final(full) from full

    def _final(self, error: sqlite3.DatabaseError) -> OSError | Corrupt:
        """SQLite has dropped the transaction, so no session may confirm its changes."""
        self._error = self._declared(error)
        return self._error

    def _declared(self, error: sqlite3.DatabaseError) -> OSError | Corrupt:
        return declared(error, self._path)
