"""``IoCounts``: counts and durations of reads, writes and syncs of a node's files.

One count per call of the disk, which has a group of messages or a block in it, never one per
message.  The caller sees to it that no two threads count at once.
"""

from typing import Final

OPERATIONS: Final = ("read", "write", "sync")


class IoCounts:
    """Since the process began."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(OPERATIONS, 0)
        self.times_ns = dict.fromkeys(OPERATIONS, 0)

    def took(self, operation: str, time_ns: int) -> None:
        self.counts[operation] += 1
        self.times_ns[operation] += time_ns

    def fields(self) -> dict[str, int | float]:
        """As a node's row in RabbitMQ's API has them: averages in milliseconds."""
        named: dict[str, int | float] = {}
        for operation in OPERATIONS:
            count = self.counts[operation]
            named[f"io_{operation}_count"] = count
            named[f"io_{operation}_avg_time"] = self.times_ns[operation] / max(1, count) / 1e6
        return named
