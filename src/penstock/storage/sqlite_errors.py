"""What SQLite says of the disk, as the operating system says it, whose numbers callers know."""

import errno
import os
import sqlite3
from typing import Final

_ERRORS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
}


def disk_error(error: sqlite3.OperationalError, path: str) -> OSError:
    number = _ERRORS.get(error.sqlite_errorcode & 0xFF, errno.EIO)
    return OSError(number, f"{os.strerror(number)} ({error})", path)
