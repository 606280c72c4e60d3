"""Files that are written behind their caller, out of two buffers.

In: bytes in order.  Out: files that are complete and durable when ``Outlet.settle`` returns.  What
takes the bytes is a target: a file of a disk (``direct_file``), an object (``store_file``).

An outlet has two buffers and a thread: one is filled while the other is written.  Both are used
again and again: memory that is new costs as much as the writing.  When another file of the outlet
begins to write, what the buffer has goes out first: in whole blocks of the target, what is left of
the last one waits in its file.
"""

import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pyspark_penstock.behind import Behind

if TYPE_CHECKING:
    import pyarrow as pa


class Target(Protocol):
    """A file that is being made; the outlet's thread calls it.

    Of a task that failed it is left as it is, and no list names it.
    """

    path: str
    block_bytes: int
    """Each write but a file's last has a multiple of it."""
    is_padded: bool
    """The last one has, too: ``end`` cuts the file."""

    def write(self, data: memoryview, at: int, *, is_last: bool) -> None: ...

    def end(self, size: int) -> str:
        """Cut to its size, durable, closed.  What is left to be done by others; "" = nothing."""


class Outlet:
    """Two buffers of ``buffer_bytes`` each and their thread; ``create`` makes a target by name."""

    def __init__(self, buffer_bytes: int, create: Callable[[str], Target]) -> None:
        self.buffer_bytes = buffer_bytes
        self._create = create
        self.filling = mmap.mmap(-1, buffer_bytes)  # at a page's begin, as direct writes want
        self._other = mmap.mmap(-1, buffer_bytes)
        self._behind = Behind(buffer_bytes)
        self._writer: BufferedFile | None = None
        self.left_over: dict[str, str] = {}  # by path: what ``Target.end`` has returned

    def file(self, name: str) -> "BufferedFile":
        return BufferedFile(self._create(name), self)

    def begin(self, file: "BufferedFile | None") -> None:
        """``file`` is to have the buffers."""
        if self._writer is not file:
            if self._writer is not None:
                self._writer.pause()
            self._writer = file

    def write(self, target: Target, size: int, at: int, *, is_last: bool) -> None:
        """The first ``size`` bytes of ``filling``, which is another buffer afterwards."""
        self._behind.do(self.buffer_bytes, _write, target, self.filling, size, at, is_last)
        self.filling, self._other = self._other, self.filling  # the other one has been written

    def end(self, target: Target, size: int) -> None:
        self._behind.do(0, self._end, target, size)

    def _end(self, target: Target, size: int) -> None:
        self.left_over[target.path] = target.end(size)

    def settle(self) -> None:
        """Waits for all that was handed over; raises what it raised."""
        self._behind.settle()


class BufferedFile:
    """What Arrow calls a Python file, for writing; ``size`` is how much it has."""

    closed = False

    def __init__(self, target: Target, outlet: Outlet) -> None:
        self.path = target.path
        self.size = 0
        self._target = target
        self._outlet = outlet
        self._at = 0  # in the file, where the buffer begins
        self._filled = 0
        self._left = b""  # less than a block, while another file has the buffers

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
        """A file is of use when it is closed, not before."""

    def write(self, data: bytes) -> int:
        self._resume()
        self._put(data)
        self.size += len(data)
        return len(data)

    def _resume(self) -> None:
        self._outlet.begin(self)
        left, self._left = self._left, b""
        self._put(left)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = min(len(view), self._outlet.buffer_bytes - self._filled)
            self._outlet.filling[self._filled : self._filled + count] = view[:count]
            self._filled += count
            view = view[count:]
            if self._filled == self._outlet.buffer_bytes:
                self._push(self._filled)

    def _push(self, size: int, *, is_last: bool = False) -> None:
        self._outlet.write(self._target, size, self._at, is_last=is_last)
        self._at += size
        self._filled = 0

    def pause(self) -> None:
        """Another file may write now."""
        if not self._filled:
            return
        whole = self._filled - self._filled % self._target.block_bytes
        left = bytes(self._outlet.filling[whole : self._filled])
        self._filled = whole
        if whole:
            self._push(whole)
        self._left = left
        self._filled = 0

    def close(self) -> None:
        if self.closed:
            return
        self._resume()
        if self._filled:
            block = self._target.block_bytes if self._target.is_padded else 1
            self._push(-(-self._filled // block) * block, is_last=True)
        self.closed = True
        self._outlet.begin(None)
        self._outlet.end(self._target, self.size)


def _write(target: Target, buffer: mmap.mmap, size: int, at: int, is_last: bool) -> None:
    with memoryview(buffer) as whole, whole[:size] as data:
        target.write(data, at, is_last=is_last)
