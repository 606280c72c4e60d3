"""``FileWindow``: a piece of a file in memory, moved along by what reads the file in order."""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.checksum import crc32
from penstock.storage.common.files import FileSystem

WINDOW_BYTES: Final[i64] = 1024 * 1024


@final
class FileWindow:
    """``size`` bytes of the file at a time."""

    def __init__(self, files: FileSystem, path: str, size: i64 = WINDOW_BYTES) -> None:
        self._files: FileSystem = files
        self._path: str = path
        self._size: i64 = size
        self._start: i64 = 0
        self._data: bytes = b""

    def take(self, at: i64, size: i64) -> bytes:
        """At most ``size`` bytes from there; fewer only at the end of the file."""
        inside = at - self._start
        if inside < 0 or inside + size > len(self._data):
            self._data = self._files.pread(self._path, int(at), int(max(size, self._size)))
            self._start = at
            inside = 0
        return self._data[inside : inside + size]

    def checksum(self, at: i64, size: i64, checksum: i64) -> i64:
        """CRC-32 of these bytes, continued; -1 = the file ends before."""
        while size > 0:
            data = self.take(at, min(size, self._size))
            if not data:
                return -1
            checksum = crc32(data, checksum)
            at += len(data)
            size -= len(data)
        return checksum
