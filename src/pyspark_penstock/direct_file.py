"""Files written once and not read soon: their bytes go to the disk past the page cache.

A copy into the page cache, and finding memory for it, cost a third of what it takes to write a
message; and what is read next would have to make room for it.

Where a file system cannot do that (``O_DIRECT``), the same bytes go through the page cache,
begin their way to the disk at once, and leave the memory then.
"""

import errno
import fcntl
import os
from io import FileIO
from pathlib import Path

from pyspark_penstock.buffered_file import Outlet

BUFFER_BYTES = 4 << 20
BLOCK_BYTES = 4096
"""Place and size of a direct write are multiples of it, on every disk there is."""
DIRECT = getattr(os, "O_DIRECT", 0)


def direct_outlet(directory: Path) -> Outlet:
    """Makes new files in the directory."""
    return Outlet(BUFFER_BYTES, lambda name: DirectTarget(directory / name))


class DirectTarget:
    """A file of a disk.  Raises FileExistsError."""

    block_bytes = BLOCK_BYTES
    is_padded = True

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._file = _created(path)

    def __del__(self) -> None:
        """A task that failed leaves it open."""
        if hasattr(self, "_file"):
            self._file.close()

    def write(self, data: memoryview, at: int, *, is_last: bool) -> None:
        handle = self._file.fileno()
        done = 0
        while done < len(data):
            with data[done:] as rest:
                try:
                    done += os.pwrite(handle, rest, at + done)
                except OSError as error:
                    if error.errno != errno.EINVAL or not _is_direct(handle):
                        raise
                    _go_through_the_cache(handle)
        if not _is_direct(handle):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def end(self, size: int) -> str:
        with self._file:
            os.ftruncate(self._file.fileno(), size)
            os.fsync(self._file.fileno())
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return ""


def _created(path: Path) -> FileIO:
    try:
        return FileIO(path, "xb", opener=_open_direct)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        path.unlink(missing_ok=True)  # some systems have made it before they refuse
        return FileIO(path, "xb")


def _open_direct(path: str, flags: int) -> int:
    return os.open(path, flags | DIRECT, 0o666)


def _is_direct(handle: int) -> bool:
    return bool(DIRECT and fcntl.fcntl(handle, fcntl.F_GETFL) & DIRECT)


def _go_through_the_cache(handle: int) -> None:
    """The file system took the flag, and does not want such writes."""
    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~DIRECT)
