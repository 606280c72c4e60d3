"""What the system says of memory: how much there is, and how much of it is ours.

A container or a service has less than the machine: the least of the machine's memory and of all
limits of our control group and of those around it, in either version of control groups.
"""

import contextlib
import ctypes
import gc
import mmap
import os
import resource
from collections.abc import Iterator
from typing import Final

ASSUMED_BYTES: Final = 1 << 30
"""When the machine does not say how much it has."""
_GROUPS: Final = "/sys/fs/cgroup"
_UNLIMITED: Final = 1 << 60
"""Version 1 says "no limit" with a number near 2^63."""
_MALLOPT_TRIM_THRESHOLD: Final = -1
_MALLOPT_MMAP_THRESHOLD: Final = -3


def total_memory_bytes(root: str = "") -> int:
    """0 = it is not known.  ``root``: where ``/proc`` and ``/sys`` are, for tests."""
    limits = [limit for limit in _group_limits(root) if 0 < limit < _UNLIMITED]
    machine = _machine_bytes(root)
    if machine > 0:
        limits.append(machine)
    return min(limits, default=0)


def _machine_bytes(root: str) -> int:
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open(f"{root}/proc/meminfo", encoding="ascii") as file,
    ):
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0


def _group_limits(root: str) -> Iterator[int]:
    try:
        with open(f"{root}/proc/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        lines = []
    # In a container the path may be one of the host's; its own group is mounted at the top.
    for line in ["0::/", ":memory:/", *lines]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            yield from _limits_above(f"{root}{_GROUPS}", path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(f"{root}{_GROUPS}/memory", path, "memory.limit_in_bytes")


def _limits_above(top: str, path: str, name: str) -> Iterator[int]:
    """Of this group and of those around it; the word "max" is no number, and no limit."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts) + 1):
        with (
            contextlib.suppress(OSError, ValueError),
            open("/".join([top, *parts[:count], name]), encoding="ascii") as file,
        ):
            yield int(file.read())


def resident_bytes() -> int:
    """Of this process; 0 where there is no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


class Heap:
    """The C library's: free memory of it goes back to the system when it is asked to.

    ``trim`` does that at once, and other threads that need memory wait for it, a tenth of a second
    per GiB.  With ``take_gaps``, ``discard`` and ``give_back`` they wait for a thousandth of that:
    the system takes the pages of the blocks while these belong to the caller.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._trim = getattr(library, "malloc_trim", None)
        madvise = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._madvise = madvise(("madvise", library))
        # These are quick, so the thread keeps the interpreter's lock.
        self._malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("malloc", library))
        self._free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("free", library))
        self._sbrk = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t)(("sbrk", library))

    def can_trim(self) -> bool:
        return self._trim is not None

    def trim(self) -> None:
        if self._trim is not None:
            self._trim(0)

    def end(self) -> int:
        """The address behind it."""
        return int(self._sbrk(0))

    def take_gaps(self, end: int, count: int, size: int) -> list[int]:
        """At most ``count`` blocks out of the calling thread's heap, by address.

        Fewer: there are no more below ``end``.
        """
        blocks: list[int] = []
        while len(blocks) < count:
            block = self._malloc(size)
            if block is None or block >= end:  # no gap: the heap has grown
                self._free(block)
                break
            blocks.append(block)
        return blocks

    def discard(self, blocks: list[int], size: int) -> None:
        """The system takes all whole pages of the blocks.  From any thread."""
        page = resource.getpagesize()
        for block in blocks:
            begin, end = -(-block // page) * page, (block + size) // page * page
            self._madvise(begin, end - begin, mmap.MADV_DONTNEED)

    def give_back(self, blocks: list[int]) -> None:
        for block in blocks:
            self._free(block)


def free_space(path: str) -> tuple[int, int]:
    """Free and all bytes of the file system there; raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """What a start reads stays; without this the collector walks it again for each of its parts."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle_memory() -> None:
    """What is alive now stays: keep the collector from walking it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    # Buffers of some hundred KiB come and go each turn; without this the C library
    # would map and unmap them every time.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_MALLOPT_MMAP_THRESHOLD, 8 * 1024 * 1024)
        libc.mallopt(_MALLOPT_TRIM_THRESHOLD, 64 * 1024 * 1024)
