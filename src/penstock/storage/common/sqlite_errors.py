"""SQLite's errors as those that storage declares: OSError of the disk, Corrupt of damage."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeGuard

from penstock.core.errors import Corrupt

_ERRORS: Final = {
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
}


def is_of_disk(error: Exception) -> TypeGuard[sqlite3.OperationalError]:
    """The rest, such as a missing table, is damage."""
    if not isinstance(error, sqlite3.OperationalError):
        return False
    return error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR


def is_full(error: Exception) -> bool:
    """Has the disk no room?  The shared memory of the log says it in a way of its own."""
    if not is_of_disk(error):
        return False
    code = error.sqlite_errorcode
    return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE


def disk_error(error: sqlite3.DatabaseError, path: str) -> OSError:
    if is_full(error):
        return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({error})", path)
    number = _ERRORS.get(error.sqlite_errorcode & 0xFF, errno.EIO)
    return OSError(number, f"{os.strerror(number)} ({error})", path)


@contextmanager
def closed_unless_readable(db: sqlite3.Connection, path: str) -> Iterator[None]:
    """While a file is opened; raises OSError of the disk, Corrupt of what is no such file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        db.close()
        # Locked, read-only or full is not damage.
        if isinstance(error, sqlite3.OperationalError):
            raise disk_error(error, path) from error
        raise Corrupt(f"{path}: not a readable SQLite file: {error}") from error
    except Corrupt:
        db.close()
        raise


def declared(error: Exception, path: str) -> OSError | Corrupt:
    """What the disk refused, or damage of the file."""
    if is_of_disk(error):
        return disk_error(error, path)
    return Corrupt(f"{path}: unreadable definitions: {error}")
