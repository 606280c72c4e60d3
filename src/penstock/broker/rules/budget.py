"""``Budget``: the memory, disk and publish rate that one virtual host may use.

In: limits as an administrator sets them.  Out: numbers; who is over them says budgets.py.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.access import NO_LIMIT

MAX_MEMORY: Final = "max-memory-bytes"
MAX_DISK: Final = "max-disk-bytes"
MAX_RATE: Final = "max-publish-rate"
BUDGET_LIMITS: Final = (MAX_MEMORY, MAX_DISK, MAX_RATE)
ANY_NUMBER: Final[i64] = 1 << 62
"""As an allowance: more messages than ever come."""


@final
class Budget:
    """Limits below 0 are none.

    ``allowance`` is how many messages may still be published before the next look:
    a publisher subtracts what it published, so that counting costs one subtraction a run.
    It may fall below 0, by what one read of a socket brings.
    """

    def __init__(self) -> None:
        self.max_memory_bytes: i64 = NO_LIMIT
        self.max_disk_bytes: i64 = NO_LIMIT
        self.max_publish_rate: i64 = NO_LIMIT
        self.allowance: i64 = ANY_NUMBER

    def limits(self) -> dict[str, int]:
        return {
            MAX_MEMORY: int(self.max_memory_bytes),
            MAX_DISK: int(self.max_disk_bytes),
            MAX_RATE: int(self.max_publish_rate),
        }

    def set(self, name: str, value: i64) -> None:
        """A new rate begins with a full second of it."""
        if name == MAX_MEMORY:
            self.max_memory_bytes = value
        elif name == MAX_DISK:
            self.max_disk_bytes = value
        else:
            self.max_publish_rate = value
            self.allowance = value if value >= 0 else ANY_NUMBER

    def is_set(self) -> bool:
        return self.max_memory_bytes >= 0 or self.max_disk_bytes >= 0 or self.max_publish_rate >= 0
