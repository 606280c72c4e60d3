"""Files written once and not read soon: their bytes go to the disk past the page cache.

In: bytes in order.  Out: a file that is complete and on disk when what ``close`` handed over is
done.  A copy into the page cache, and finding memory for it, cost a third of what it takes to
write a message; and what is read next would have to make room for it.

``DirectOutlet`` has two buffers and a thread: one is filled while the other is written.  Its files
take turns: one that has written calls ``pause`` before another one writes.  Bytes go out in whole
blocks, what is left of the last one waits in its file.

Where a file system cannot do that (``O_DIRECT``), the same bytes go through the page cache,
begin their way to the disk at once, and leave the memory then.
"""

import errno
import fcntl
import mmap
import os
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_penstock.behind import Behind

if TYPE_CHECKING:
    import pyarrow as pa

BUFFER_BYTES = 4 << 20
BLOCK_BYTES = 4096
"""Place and size of a direct write are multiples of it, on every disk there is."""
DIRECT = getattr(os, "O_DIRECT", 0)


class DirectOutlet:
    """Two buffers and their thread; ``settle`` waits for all that was handed over."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.filling = mmap.mmap(-1, BUFFER_BYTES)  # at a page's begin, as direct writes want
        self._other = mmap.mmap(-1, BUFFER_BYTES)
        self._behind = Behind(BUFFER_BYTES)

    def file(self, name: str) -> "DirectFile":
        """A new one in the directory."""
        return DirectFile(self._directory / name, self)

    def write(self, file: FileIO, size: int, at: int) -> None:
        """The first ``size`` bytes of ``filling``, which is another buffer afterwards."""
        self._behind.do(BUFFER_BYTES, _write, file, self.filling, size, at)
        self.filling, self._other = self._other, self.filling  # the other one has been written

    def end(self, file: FileIO, size: int) -> None:
        """Cut to its size, synced, closed."""
        self._behind.do(0, _end, file, size)

    def settle(self) -> None:
        self._behind.settle()


class DirectFile:
    """What Arrow calls a Python file, for writing; ``size`` is how much it has."""

    closed = False

    def __init__(self, path: Path, outlet: DirectOutlet) -> None:
        self.path = path
        self.size = 0
        self._outlet = outlet
        self._file = _created(path)
        self._at = 0  # in the file, where the buffer begins
        self._filled = 0
        self._left = b""  # less than a block, while another file has the buffers

    def __del__(self) -> None:
        """A task that failed leaves it as it is."""
        if not self.closed and hasattr(self, "_file"):
            self._file.close()

    @property
    def sink(self) -> "pa.PythonFile":
        import pyarrow as pa

        return pa.PythonFile(self, "w")

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """What is not on disk is of no use to anybody."""

    def write(self, data: bytes) -> int:
        if self._left:
            left, self._left = self._left, b""
            self._put(left)
        self._put(data)
        self.size += len(data)
        return len(data)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = min(len(view), BUFFER_BYTES - self._filled)
            self._outlet.filling[self._filled : self._filled + count] = view[:count]
            self._filled += count
            view = view[count:]
            if self._filled == BUFFER_BYTES:
                self._push(BUFFER_BYTES)

    def _push(self, size: int) -> None:
        self._outlet.write(self._file, size, self._at)
        self._at += size
        self._filled = 0

    def pause(self) -> None:
        """Another file may write now."""
        if not self._filled:
            return
        whole = self._filled - self._filled % BLOCK_BYTES
        left = bytes(self._outlet.filling[whole : self._filled])
        self._filled = whole
        if whole:
            self._push(whole)
        self._left = left
        self._filled = 0

    def close(self) -> None:
        if self.closed:
            return
        if self._left:
            left, self._left = self._left, b""
            self._put(left)
        if self._filled:
            self._push(-(-self._filled // BLOCK_BYTES) * BLOCK_BYTES)
        self.closed = True
        self._outlet.end(self._file, self.size)


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


def _write(file: FileIO, buffer: mmap.mmap, size: int, at: int) -> None:
    handle = file.fileno()
    with memoryview(buffer) as whole:
        done = 0
        while done < size:
            with whole[done:size] as rest:
                try:
                    done += os.pwrite(handle, rest, at + done)
                except OSError as error:
                    if error.errno != errno.EINVAL or not _is_direct(handle):
                        raise
                    _go_through_the_cache(handle)
    if not _is_direct(handle):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def _is_direct(handle: int) -> bool:
    return bool(DIRECT and fcntl.fcntl(handle, fcntl.F_GETFL) & DIRECT)


def _go_through_the_cache(handle: int) -> None:
    """The file system took the flag, and does not want such writes."""
    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~DIRECT)


def _end(file: FileIO, size: int) -> None:
    with file:
        os.ftruncate(file.fileno(), size)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
