"""A disk in memory that keeps exactly what it promised and may lose everything else.

    kill()         the process dies: handles are gone, everything written is still there
    power_cut(rng) the machine dies: of what was not synced an arbitrary part is left -
                   a cut anywhere, holes of zeros or noise before it, names that were not
                   synced with their directory come or go
    fail(verb, number, after)   the verb raises OSError, now or after some calls
    flip(path, bit)             one bit changes its mind

A failed ``sync`` does what Linux does: the bytes stay readable until the power goes, but no
later ``sync`` brings them to the disk.
"""

from __future__ import annotations

import errno
import os
import random

from penstock.storage.files import FileSystem


class SimFile:
    """What readers see (``cache``) and what the platter has for sure (``disk``)."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.disk = b""
        self.lost: list[tuple[int, int]] = []  # ranges a failed sync has dropped

    def sync(self) -> None:
        disk = bytearray(self.cache)
        for start, end in self.lost:
            disk[start:end] = bytes(end - start)
        self.disk = bytes(disk)

    def sync_failed(self) -> None:
        if len(self.cache) > len(self.disk):
            self.lost.append((len(self.disk), len(self.cache)))

    def power_cut(self, rng: random.Random) -> None:
        safe = len(self.disk)
        if bytes(self.cache[:safe]) != self.disk[: len(self.cache)]:
            self.cache = bytearray(self.disk)  # a failed sync: what was lost shows now
            self.lost = []
            return
        tail = bytearray(self.cache[safe:])
        del tail[rng.randint(0, len(tail)) :]
        if tail and rng.random() < 0.3:  # later pages may reach the disk before earlier ones
            start = rng.randrange(len(tail))
            end = rng.randint(start, len(tail))
            tail[start:end] = (
                bytes(end - start) if rng.random() < 0.7 else rng.randbytes(end - start)
            )
        self.cache = bytearray(self.disk) + tail
        self.disk = bytes(self.cache)
        self.lost = []


class SimFileSystem(FileSystem):
    def __init__(self) -> None:
        self.names: dict[str, SimFile] = {}
        self.synced_names: dict[str, SimFile] = {}
        self.directories: set[str] = {"/", ""}
        self.handles: dict[int, SimFile] = {}
        self.calls: list[str] = []
        self.space_left = 1 << 60
        self._next_handle = 3
        self._failures: dict[str, tuple[int, int]] = {}

    # -- trouble ---------------------------------------------------------------------------

    def fail(self, verb: str, number: int = errno.EIO, after: int = 0) -> None:
        """Make a verb raise, once, after that many calls that go well."""
        self._failures[verb] = (number, after)

    def _call(self, verb: str, what: str = "") -> None:
        self.calls.append(f"{verb} {what}".strip())
        if verb in self._failures:
            number, after = self._failures[verb]
            if after > 0:
                self._failures[verb] = (number, after - 1)
                return
            del self._failures[verb]
            raise OSError(number, os.strerror(number), what)

    def kill(self) -> None:
        self.handles = {}
        self._failures = {}

    def power_cut(self, rng: random.Random) -> None:
        self.kill()
        names = dict(self.synced_names)
        for name in sorted(set(self.names) | set(self.synced_names)):
            new, old = self.names.get(name), self.synced_names.get(name)
            if new is not old and rng.random() < 0.5:
                if new is None:
                    names.pop(name)
                else:
                    names[name] = new
        for name in sorted(names):
            names[name].power_cut(rng)
        self.names = names
        self.synced_names = dict(names)

    def flip(self, path: str, bit: int) -> None:
        file = self.names[path]
        file.cache[bit // 8] ^= 1 << (bit % 8)
        file.disk = bytes(file.cache)

    # -- the verbs -------------------------------------------------------------------------

    def _file(self, path: str) -> SimFile:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self.names[path]

    def makedirs(self, path: str) -> None:
        self._call("makedirs", path)
        self.directories.add(path)

    def listdir(self, path: str) -> list[str]:
        self._call("listdir", path)
        assert path in self.directories
        return [name.rpartition("/")[2] for name in self.names if name.rpartition("/")[0] == path]

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def size(self, path: str) -> int:
        return len(self._file(path).cache)

    def read(self, path: str) -> bytes:
        self._call("read", path)
        return bytes(self._file(path).cache)

    def pread(self, path: str, offset: int, size: int) -> bytes:
        self._call("pread", path)
        return bytes(self._file(path).cache[offset : offset + size])

    def open_append(self, path: str) -> int:
        self._call("open_append", path)
        assert path.rpartition("/")[0] in self.directories
        handle = self._next_handle
        self._next_handle += 1
        self.handles[handle] = self.names.setdefault(path, SimFile())
        return handle

    def write(self, handle: int, data: bytes) -> None:
        self.write_parts(handle, [data])

    def write_parts(self, handle: int, parts: list[bytes]) -> None:
        data = b"".join(parts)
        cache = self.handles[handle].cache
        if len(data) > self.space_left:
            cache += data[: self.space_left]
            self.space_left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            self._call("write")
        except OSError:
            cache += data[: len(data) // 2]
            raise
        self.space_left -= len(data)
        cache += data

    def sync(self, handle: int) -> None:
        try:
            self._call("sync")
        except OSError:
            self.handles[handle].sync_failed()
            raise
        self.handles[handle].sync()

    def close(self, handle: int) -> None:
        self._call("close")
        del self.handles[handle]

    def truncate(self, path: str, size: int) -> None:
        self._call("truncate", path)
        file = self._file(path)
        assert size <= len(file.cache)
        del file.cache[size:]
        file.sync()

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        self._call("rewrite", path)
        file = self._file(path)
        assert file.cache[offset : offset + len(data)] == data
        del file.cache[offset + len(data) :]
        file.lost = [(start, min(end, offset)) for start, end in file.lost if start < offset]
        file.sync()

    def remove(self, path: str) -> None:
        self._call("remove", path)
        self._file(path)
        del self.names[path]

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source)
        self.names[target] = self._file(source)
        del self.names[source]

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir", path)
        for name in set(self.names) | set(self.synced_names):
            if name.rpartition("/")[0] == path:
                if name in self.names:
                    self.synced_names[name] = self.names[name]
                else:
                    del self.synced_names[name]
