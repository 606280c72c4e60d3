"""The machine's own disk with a watch in hand: how often it is asked, and how long it takes.

The committer, both lanes of the disk worker and the loop come here; a lock keeps their counts
apart.  SQLite's files are its own affair, and are not counted.
"""

import threading
from time import perf_counter_ns

from penstock.core.io_counts import IoCounts
from penstock.storage.common.files import RealFileSystem


class MeasuredFiles(RealFileSystem):
    """What fails is not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = IoCounts()
        self._lock = threading.Lock()

    def _took(self, operation: str, since_ns: int) -> None:
        took_ns = perf_counter_ns() - since_ns
        with self._lock:
            self.counts.took(operation, took_ns)

    def read(self, path: str) -> bytes:
        since_ns = perf_counter_ns()
        data = super().read(path)
        self._took("read", since_ns)
        return data

    def pread(self, path: str, offset: int, size: int) -> bytes:
        since_ns = perf_counter_ns()
        data = super().pread(path, offset, size)
        self._took("read", since_ns)
        return data

    def pwrite_parts(self, handle: int, offset: int, parts: list[bytes]) -> None:
        since_ns = perf_counter_ns()
        super().pwrite_parts(handle, offset, parts)
        self._took("write", since_ns)

    def sync(self, handle: int) -> None:
        since_ns = perf_counter_ns()
        super().sync(handle)
        self._took("sync", since_ns)

    def sync_dir(self, path: str) -> None:
        since_ns = perf_counter_ns()
        super().sync_dir(path)
        self._took("sync", since_ns)
