"""``Reserve``: a file that holds disk space for operations that must not fail on a full disk.

It holds room for one recovery, which writes what only the journal has into segments and begins a
journal file, and for changes of the definitions that are under way when the disk becomes full.
The space is given back to the disk a piece at a time, or all at once before a start.  What is in
the file means nothing; it may be removed while no broker runs.
"""

import errno
from typing import Final, final

from mypy_extensions import i64

from penstock.storage.common.files import FileSystem

RESERVE_FILE: Final = "reserve"
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
PIECES: Final[i64] = 4
"""The reserve follows the journal in steps of one of so many parts of a journal file."""


def wanted_bytes(journal_bytes: i64, journal_file_bytes: i64) -> i64:
    """Space for a recovery of a journal of that size, and for changes of the definitions."""
    piece = journal_file_bytes // PIECES
    return journal_file_bytes + piece * (journal_bytes // piece + 2)


@final
class Reserve:
    """``held_bytes``: what the file holds now.  Raises OSError, but for lack of space."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self.held_bytes: i64 = 0
        self._files = files
        self._path: str = f"{directory}/{RESERVE_FILE}"
        if files.exists(self._path):
            self.held_bytes = files.size(self._path)

    def grow(self, to_bytes: i64) -> bool:
        """Hold at least so much; False = the disk has not that much room."""
        if self.held_bytes >= to_bytes:
            return True
        try:
            handle = self._files.open_write(self._path)
            try:
                self._files.allocate(handle, int(to_bytes))
            finally:
                self._files.close(handle)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._cut()  # a part may have been taken
            return False
        self.held_bytes = to_bytes
        return True

    def _cut(self) -> None:
        if self._files.exists(self._path) and self._files.size(self._path) > self.held_bytes:
            self._files.truncate(self._path, int(self.held_bytes))

    def shrink(self, to_bytes: i64) -> bool:
        """Give back what is held above that; False = there was nothing to give."""
        if self.held_bytes <= to_bytes:
            return False
        if to_bytes > 0:
            self._files.truncate(self._path, int(to_bytes))
        else:
            self._files.remove(self._path)
        self.held_bytes = to_bytes
        return True
