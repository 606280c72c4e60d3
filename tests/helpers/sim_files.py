"""A disk in memory that keeps exactly what it promised and may lose everything else.

    kill()         the process dies: handles are gone, everything written is still there
    power_cut(rng) the machine dies: what was not synced may be there or not
    fail(verb, number, after)   the verb raises OSError, now or after some calls
    flip(path, bit)             one bit changes its mind
    space_left     may be set; writes beyond it end with ENOSPC

What a power cut leaves of a file is its synced bytes with any part of what was written since:
all of it, none of it, the first so many writes with the last one torn, or any selection.  A
torn write has arrived in some places; elsewhere stand the bytes that were synced there (in a
file that is used a second time: whole old records), zeros, or noise.  Of two writes to one
place the older may have won.  The size is any between the synced one and the last one, also
where space was allocated.  Bytes that were synced and not written again stay, even within a
torn sector: that much of a disk everybody believes.

Names come and go with their directory's sync, each by itself: after a rename and a power cut
there may be both names, or neither.  ``makedirs`` is durable at once.  A removed directory
comes back with any of its files until the one above it is synced.

A failed ``sync`` does what Linux does: the bytes stay readable until the power goes, but no
later ``sync`` brings them to the disk, nor says that they are missing.  It fails with EIO
whatever it is told to fail with, if that would mean "try again".

Space is what files hold, found by name or still open; a gap that a write has jumped over
holds none.  A write for which there is no room, and an ``allocate``, get as far as they can.
"""

from __future__ import annotations

import copy
import errno
import os
import random
from typing import Any

from penstock.storage.common.files import FileSystem, never_again

Range = tuple[int, int]
Write = tuple[int, bytes]
UNLIMITED = 1 << 60


def cut_out(ranges: list[Range], start: int, end: int) -> list[Range]:
    """The ranges (from, up to) without what lies between start and end."""
    left = [(a, min(b, start)) for a, b in ranges if a < start]
    return left + [(max(a, end), b) for a, b in ranges if b > end]


def parent(path: str) -> str:
    return path.rpartition("/")[0]


class SimFile:
    """What readers see (``cache``), what the platter has for sure (``disk``), and between them
    what was written since the last sync (``pending``) and before a failed one (``doubtful``).
    """

    def __init__(self) -> None:
        self.cache = bytearray()
        self.disk = bytearray()
        self.pending: list[Write] = []
        self.doubtful: list[Write] = []
        self.gaps: list[Range] = []  # within the size, but nothing is reserved for them

    def space(self) -> int:
        return len(self.cache) - sum(end - start for start, end in self.gaps)

    def unreserved(self, start: int, end: int) -> list[Range]:
        """Which of these bytes need new space."""
        size = len(self.cache)
        found = [(max(a, start), min(b, end)) for a, b in self.gaps if a < end and b > start]
        return [*found, (max(size, start), end)] if end > size else found

    def put(self, offset: int, data: bytes) -> None:
        if not data:
            return
        size = len(self.cache)
        if offset > size:
            self.gaps.append((size, offset))
            self.cache += bytes(offset - size)
        elif self.gaps:
            self.gaps = cut_out(self.gaps, offset, offset + len(data))
        self.cache[offset : offset + len(data)] = data
        self.pending.append((offset, data))

    def cut(self, size: int) -> None:
        del self.cache[size:]
        self.gaps = cut_out(self.gaps, size, UNLIMITED)

    def flush(self) -> None:
        """What was written since the last sync is on the platter now, and so is the size."""
        size = len(self.cache)
        self.disk += bytes(max(0, size - len(self.disk)))
        for offset, data in self.pending:
            end = min(size, offset + len(data))
            self.disk[offset:end] = self.cache[offset:end]
            self._settle(offset, end)
        del self.disk[size:]
        self._settle(size, UNLIMITED)
        self.pending = []

    def sync(self) -> None:
        """As if all that readers see had been written anew and synced."""
        self.pending = [(0, bytes(self.cache))]
        self.flush()

    def sync_failed(self) -> None:
        self.doubtful += self.pending
        self.pending = []

    def flip(self, bit: int) -> None:
        place, mask = bit // 8, 1 << (bit % 8)
        if place < len(self.disk) and self.disk[place] == self.cache[place]:
            self.disk[place] ^= mask
        self.cache[place] ^= mask

    def _settle(self, start: int, end: int) -> None:
        """Nothing between start and end is doubtful any more."""
        self.doubtful = [
            (a, data[a - offset : b - offset])
            for offset, data in self.doubtful
            for a, b in cut_out([(offset, offset + len(data))], start, end)
        ]

    def power_cut(self, rng: random.Random) -> None:
        if not self.pending and not self.doubtful and len(self.cache) == len(self.disk):
            return
        writes = self.doubtful + self.pending
        size = self._size_left(writes, rng)
        left = bytearray(self.disk)
        left += bytes(len(self.cache) - len(left))
        for offset, data in arrived(writes, rng):
            left[offset : offset + len(data)] = data
        del left[size:]
        self.disk = left
        self.cache = bytearray(left)
        self.pending, self.doubtful = [], []
        self.gaps = cut_out(self.gaps, size, UNLIMITED)

    def _size_left(self, writes: list[Write], rng: random.Random) -> int:
        """Any size that the file has had; often one within a write, or the last one."""
        least, most = len(self.disk), len(self.cache)
        how = rng.random()
        if how < 0.4:
            return most
        if how < 0.7 and writes:
            offset, data = rng.choice(writes)
            return min(most, max(least, offset + rng.randint(0, len(data))))
        return rng.randint(least, most)


def arrived(writes: list[Write], rng: random.Random) -> list[Write]:
    """What of some writes has reached the platter when the power goes."""
    how = rng.random()
    if how < 0.2:
        return writes
    if how < 0.3:
        return []
    if how < 0.6:
        last = rng.randrange(len(writes) + 1)
        return writes[:last] + [
            piece for one in writes[last : last + 1] for piece in torn(one, rng)
        ]
    found: list[Write] = []
    for one in writes:
        found += rng.choice(([one], [], torn(one, rng)))
    return found


def torn(write: Write, rng: random.Random) -> list[Write]:
    """A write that arrived in places; what is left out keeps the bytes from before."""
    offset, data = write
    marks = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 3)))
    pieces: list[Write] = []
    for start, end in zip([0, *marks], [*marks, len(data)], strict=True):
        how = rng.random()
        if how < 0.45:
            pieces.append((offset + start, data[start:end]))
        elif how < 0.65:
            pieces.append((offset + start, bytes(end - start)))
        elif how < 0.75:
            pieces.append((offset + start, rng.randbytes(end - start)))
    return pieces


class SimFileSystem(FileSystem):
    """``calls`` holds the verbs called, each with its path where it has one."""

    def __init__(self) -> None:
        self.names: dict[str, SimFile] = {}
        self.synced_names: dict[str, SimFile] = {}
        self.directories: set[str] = {"/", ""}
        self.synced_directories: set[str] = {"/", ""}
        self.handles: dict[int, SimFile] = {}
        self.calls: list[str] = []
        self._capacity = UNLIMITED
        self._next_handle = 3
        self._failures: dict[str, tuple[int, int]] = {}
        self.has_failed = False  # a verb, since the last kill

    def __deepcopy__(self, memo: dict[int, Any]) -> SimFileSystem:
        """By hand, since the class above may be a compiled one, which hides our attributes."""
        other = SimFileSystem()
        for name, value in vars(self).items():
            setattr(other, name, copy.deepcopy(value, memo))
        return other

    # -- trouble ---------------------------------------------------------------------------

    def fail(self, verb: str, number: int = errno.EIO, after: int = 0) -> None:
        """Make a verb raise, once, after that many calls that go well.

        A failed write has written half, a failed ``remove_dir`` has removed half of the
        files; the verbs ``write`` and ``pwrite`` stand for all that write.
        """
        self._failures[verb] = (number, after)

    def heal(self) -> None:
        """Nothing fails any more."""
        self._failures = {}

    def _call(self, verb: str, what: str = "") -> None:
        self.calls.append(f"{verb} {what}".strip())
        if verb in self._failures:
            number, after = self._failures[verb]
            if after > 0:
                self._failures[verb] = (number, after - 1)
                return
            del self._failures[verb]
            self.has_failed = True
            raise OSError(number, os.strerror(number), what)

    @property
    def space_left(self) -> int:
        if self._capacity == UNLIMITED:
            return UNLIMITED
        return max(0, self._capacity - self._space_used())

    @space_left.setter
    def space_left(self, size: int) -> None:
        self._capacity = min(UNLIMITED, size + self._space_used())

    def _space_used(self) -> int:
        return sum(file.space() for file in {*self.names.values(), *self.handles.values()})

    def kill(self) -> None:
        self.handles = {}
        self._failures = {}
        self.has_failed = False

    def power_cut(self, rng: random.Random) -> None:
        self.kill()
        for path in sorted(self.synced_directories - self.directories):
            if parent(path) in self.directories and rng.random() < 0.5:
                self.directories.add(path)
        names = dict(self.synced_names)
        for name in sorted(set(self.names) | set(self.synced_names)):
            new, old = self.names.get(name), self.synced_names.get(name)
            if parent(name) not in self.directories:
                names.pop(name, None)
            elif new is not old and rng.random() < 0.5:
                if new is None:
                    names.pop(name)
                else:
                    names[name] = new
        for name in sorted(names):
            names[name].power_cut(rng)
        self.names = names
        self.synced_names = dict(names)
        self.synced_directories = set(self.directories)

    def flip(self, path: str, bit: int) -> None:
        self._file(path).flip(bit)

    # -- names -----------------------------------------------------------------------------

    def _file(self, path: str) -> SimFile:
        if path not in self.names:
            raise missing(path)
        return self.names[path]

    def _directory(self, path: str) -> None:
        if path not in self.directories:
            raise missing(path)

    def _files_in(self, path: str) -> list[str]:
        return [name for name in list(self.names) if parent(name) == path]

    def makedirs(self, path: str) -> None:
        self._call("makedirs", path)
        if path in self.directories:
            return
        if parent(path) not in self.directories:
            self.makedirs(parent(path))
        self._forget_removed(path)
        self.directories.add(path)
        self.synced_directories.add(path)

    def _forget_removed(self, path: str) -> None:
        """A directory that was removed stays removed, with all that was in it."""
        self.synced_directories.discard(path)
        for name in [name for name in self.synced_names if parent(name) == path]:
            del self.synced_names[name]

    def listdir(self, path: str) -> list[str]:
        self._call("listdir", path)
        self._directory(path)
        inner = [name for name in self.directories if parent(name) == path and name.strip("/")]
        return [name.rpartition("/")[2] for name in self._files_in(path) + sorted(inner)]

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def size(self, path: str) -> int:
        return len(self._file(path).cache)

    def remove(self, path: str) -> None:
        self._call("remove", path)
        self._file(path)
        del self.names[path]

    def remove_dir(self, path: str) -> None:
        self._directory(path)
        assert not [name for name in self.directories if parent(name) == path]
        names = self._files_in(path)
        try:
            self._call("remove_dir", path)
        except OSError:
            for name in names[: len(names) // 2]:
                del self.names[name]
            raise
        for name in names:
            del self.names[name]
        self.directories.remove(path)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source)
        self._file(source)
        self._directory(parent(target))
        self.names[target] = self.names.pop(source)

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir", path)
        self._directory(path)
        for name in set(self.names) | set(self.synced_names):
            if parent(name) == path:
                if name in self.names:
                    self.synced_names[name] = self.names[name]
                else:
                    del self.synced_names[name]
        for removed in self.synced_directories - self.directories:
            if parent(removed) == path:
                self._forget_removed(removed)

    # -- bytes -----------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        self._call("read", path)
        return bytes(self._file(path).cache)

    def pread(self, path: str, offset: int, size: int) -> bytes:
        self._call("pread", path)
        return bytes(self._file(path).cache[offset : offset + size])

    def open_write(self, path: str) -> int:
        return self._open("open_write", path)

    def _open(self, verb: str, path: str) -> int:
        self._call(verb, path)
        self._directory(parent(path))
        handle = self._next_handle
        self._next_handle += 1
        self.handles[handle] = self.names.setdefault(path, SimFile())
        return handle

    def pwrite_parts(self, handle: int, offset: int, parts: list[bytes]) -> None:
        self._write("pwrite", self.handles[handle], offset, b"".join(parts))

    def _write(self, verb: str, file: SimFile, offset: int, data: bytes) -> None:
        room = self._room(file, offset, len(data))
        if room < len(data):
            file.put(offset, data[:room])
            raise no_space()
        try:
            self._call(verb)
        except OSError:
            file.put(offset, data[: len(data) // 2])
            raise
        file.put(offset, data)

    def _room(self, file: SimFile, offset: int, size: int) -> int:
        """How many of these bytes can be written before the disk is full."""
        left = self.space_left
        if size <= left:
            return size
        for start, end in sorted(file.unreserved(offset, offset + size)):
            if end - start > left:
                return start + left - offset
            left -= end - start
        return size

    def allocate(self, handle: int, size: int) -> None:
        self._call("allocate")
        file = self.handles[handle]
        if len(file.cache) >= size:
            return
        room = self._room(file, 0, size)
        file.cache += bytes(max(0, room - len(file.cache)))
        file.gaps = cut_out(file.gaps, 0, room)
        if room < size:
            raise no_space()

    def sync(self, handle: int) -> None:
        try:
            self._call("sync")
        except OSError as error:
            self.handles[handle].sync_failed()
            raise never_again(error) from error
        self.handles[handle].flush()

    def close(self, handle: int) -> None:
        self._call("close")
        del self.handles[handle]

    def truncate(self, path: str, size: int) -> None:
        self._call("truncate", path)
        file = self._file(path)
        assert size <= len(file.cache)
        file.cut(size)
        file.flush()

    def read_back(self, handle: int, offset: int, size: int) -> bytes:
        self._call("read_back")
        return bytes(self.handles[handle].disk[offset : offset + size])


def missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
