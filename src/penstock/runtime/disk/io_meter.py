"""How often a node asks its disk, and how long the disk takes.

The committer, both lanes of the disk worker and the loop come here; a lock keeps their counts
apart.  SQLite's own reads and writes are not counted.
"""

import threading
from time import perf_counter_ns

from penstock.core.counting.io_counts import IoCounts
from penstock.storage.common.files import IoMeter


class DiskMeter(IoMeter):
    """Of all threads of a node."""

    def __init__(self) -> None:
        self.counts = IoCounts()
        self._lock = threading.Lock()

    def began(self) -> int:
        return perf_counter_ns()

    def took(self, operation: str, began: int) -> None:
        took_ns = perf_counter_ns() - began
        with self._lock:
            self.counts.took(operation, took_ns)
