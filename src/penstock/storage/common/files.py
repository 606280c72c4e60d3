"""``FileSystem``: the interface of the disk, and its real implementation.

``FileSystem`` has the few verbs a log needs and no more; tests put a disk in its place
that forgets what was not synced (tests/helpers/sim_files.py).  Its promises:

  F1  ``write`` appends all of the parts or raises; after an error any prefix may be there
  F2  ``sync`` returns when every byte written through any handle of that file, and its
      size, would survive a power cut; a failed ``sync`` says nothing about earlier bytes,
      and must not be tried again (Linux forgets the dirty pages of a failed one).  So it
      never fails with ENOSPC or EDQUOT, which mean "try again": those become EIO
  F3  that a *name* exists, or no longer exists, survives only after ``sync_dir``
  F4  what lies within ``allocate`` can be written without asking for more space
  F5  bytes that were synced stay until they are written over; then a power cut may leave
      the new ones, the old ones or neither, also where both are the same

This is the only module of storage that opens files (SQLite opens its own).
"""

import errno
import os
import shutil
from typing import Final

from mypy_extensions import mypyc_attr

WRITE_PARTS_MAX: Final = 512
"""Below IOV_MAX (1024 on Linux; 16 is the least POSIX allows, and no system has so few)."""
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk, or a full share of it, answers."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FileSystem:
    """What storage may ask of a disk.  Handles are small integers.

    Not a trait: interpreted classes, such as the disks of tests, cannot inherit from those.
    """

    def makedirs(self, path: str) -> None:
        """Make the directory and those above it; the new names are durable on return."""
        raise NotImplementedError

    def listdir(self, path: str) -> list[str]:
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError

    def size(self, path: str) -> int:
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        """The whole file."""
        raise NotImplementedError

    def pread(self, path: str, offset: int, size: int) -> bytes:
        """At most ``size`` bytes from ``offset``; fewer only at the end of the file."""
        raise NotImplementedError

    def open_write(self, path: str) -> int:
        """Open for writing at any place, made empty if it is not there."""
        raise NotImplementedError

    def allocate(self, handle: int, size: int) -> None:
        """Make the file at least that long, its space reserved; new bytes are zeros."""
        raise NotImplementedError

    def pwrite_parts(self, handle: int, offset: int, parts: list[bytes]) -> None:
        """Write the parts one after the other from ``offset`` on (``open_write`` handles)."""
        raise NotImplementedError

    def sync(self, handle: int) -> None:
        raise NotImplementedError

    def close(self, handle: int) -> None:
        raise NotImplementedError

    def truncate(self, path: str, size: int) -> None:
        """Cut the file; the new size is durable on return."""
        raise NotImplementedError

    def read_back(self, handle: int, offset: int, size: int) -> bytes:
        """What the disk itself holds of a synced file; fewer bytes where that is not known."""
        raise NotImplementedError

    def secure(self, path: str, offset: int, data: bytes) -> None:
        """Make sure that ``data``, which a read found at ``offset``, is on the disk.

        After a failed sync and a restart bytes may be in the page cache, taken for clean, and not
        on the disk: these are written again.  Bytes that the disk has are left alone, since a
        power cut can spoil what is being written (F5).
        """
        handle = self.open_write(path)
        try:
            self.sync(handle)
            found = self.read_back(handle, offset, len(data))
            if found != data:
                same = 0
                while same < len(found) and found[same] == data[same]:
                    same += 1
                self.pwrite_parts(handle, offset + same, [data[same:]])
                self.sync(handle)
        finally:
            self.close(handle)

    def remove(self, path: str) -> None:
        raise NotImplementedError

    def remove_dir(self, path: str) -> None:
        """Remove a directory and the files in it (it has no directories in it)."""
        raise NotImplementedError

    def rename(self, source: str, target: str) -> None:
        raise NotImplementedError

    def sync_dir(self, path: str) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class IoMeter:
    """Counts reads, writes and syncs that succeeded; this one counts nothing."""

    def began(self) -> int:
        """A time to give back with ``took``."""
        return 0

    def took(self, operation: str, began: int) -> None:
        """``operation`` is one of ``core.counting.io_counts.OPERATIONS``."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RealFileSystem(FileSystem):
    """The machine's own disk."""

    def __init__(self, meter: IoMeter | None = None) -> None:
        self._meter = meter or IoMeter()
        self._durable_dirs: set[str] = set()

    def makedirs(self, path: str) -> None:
        """One that is there may have been made by a process that died before its name was
        durable, so each process sees to that once.  A parent that is not ours to read was not
        ours to make.
        """
        path = os.path.abspath(path)
        if path in self._durable_dirs:
            return
        parent = os.path.dirname(path)
        there = os.path.isdir(path)
        if not there:
            self.makedirs(parent)
            os.makedirs(path, exist_ok=True)
        if not there or os.access(parent, os.R_OK):
            self.sync_dir(parent)
        self._durable_dirs.add(path)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str) -> bytes:
        began = self._meter.began()
        with open(path, "rb", buffering=0) as file:
            data = file.readall()
        self._meter.took("read", began)
        return data

    def pread(self, path: str, offset: int, size: int) -> bytes:
        began = self._meter.began()
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(handle, size, offset)
        finally:
            os.close(handle)
        self._meter.took("read", began)
        return data

    def open_write(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def allocate(self, handle: int, size: int) -> None:
        if os.fstat(handle).st_size < size:
            os.posix_fallocate(handle, 0, size)

    def pwrite_parts(self, handle: int, offset: int, parts: list[bytes]) -> None:
        began = self._meter.began()
        for first in range(0, len(parts), WRITE_PARTS_MAX):
            offset = self._pwrite(handle, offset, parts[first : first + WRITE_PARTS_MAX])
        self._meter.took("write", began)

    def _pwrite(self, handle: int, offset: int, parts: list[bytes]) -> int:
        written = os.pwritev(handle, parts, offset)
        for part in parts:
            taken = min(written, len(part))
            offset += taken
            written -= taken
            if taken < len(part):
                rest = memoryview(part)[taken:]
                while rest:
                    # A signal or a full disk may cut a write short; the next one says which it
                    # was.  Two statements: mypyc 2.4 evaluates a call in the slice of a
                    # memoryview twice.
                    more = os.pwrite(handle, rest, offset)
                    rest = rest[more:]
                    offset += more
        return offset

    def sync(self, handle: int) -> None:
        # fdatasync leaves out the time stamps but not the size, which reading back needs.
        began = self._meter.began()
        try:
            if hasattr(os, "fdatasync"):
                os.fdatasync(handle)
            else:
                os.fsync(handle)
        except OSError as error:
            raise never_again(error) from error
        self._meter.took("sync", began)

    def close(self, handle: int) -> None:
        os.close(handle)

    def truncate(self, path: str, size: int) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            self.sync(handle)
        finally:
            os.close(handle)

    def read_back(self, handle: int, offset: int, size: int) -> bytes:
        if not hasattr(os, "posix_fadvise"):
            return b""
        # Of all pages, since one that holds more than was asked for would stay.
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(handle, size, offset)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_dir(self, path: str) -> None:
        self._durable_dirs.discard(os.path.abspath(path))
        shutil.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_dir(self, path: str) -> None:
        began = self._meter.began()
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        except OSError as error:
            raise never_again(error) from error
        finally:
            os.close(handle)
        self._meter.took("sync", began)


def never_again(error: OSError) -> OSError:
    """What a failed sync is raised as: EIO instead of what would be tried again (F2)."""
    if error.errno in NO_SPACE:
        return OSError(errno.EIO, f"{os.strerror(errno.EIO)} (sync: {error.strerror})")
    return error
