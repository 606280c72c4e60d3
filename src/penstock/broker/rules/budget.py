"""``Budget``: what one virtual host may use: clients, queues, memory, disk, publish rate.

In: limits as an administrator sets them.  Out: numbers; who is over them says budgets.py.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.access import NO_LIMIT
from penstock.core.clock_types import WallMs

MAX_CONNECTIONS: Final = "max-connections"
MAX_QUEUES: Final = "max-queues"
MAX_MEMORY: Final = "max-memory-bytes"
MAX_DISK: Final = "max-disk-bytes"
MAX_RATE: Final = "max-publish-rate"
MAX_CHANNELS: Final = "max-channels"
VHOST_LIMITS: Final = (MAX_CONNECTIONS, MAX_QUEUES, MAX_MEMORY, MAX_DISK, MAX_RATE, MAX_CHANNELS)
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
        self.max_connections: i64 = NO_LIMIT
        self.max_queues: i64 = NO_LIMIT
        self.max_memory_bytes: i64 = NO_LIMIT
        self.max_disk_bytes: i64 = NO_LIMIT
        self.max_publish_rate: i64 = NO_LIMIT
        self.max_channels: i64 = NO_LIMIT
        self.allowance: i64 = ANY_NUMBER
        self.connection_count: i64 = 0
        self.channel_count: i64 = 0
        self._filled_at_ms = WallMs(0)  # 0 = not since the rate was set
        self._thousandths: i64 = 0  # of a message, that have come back

    def limits(self) -> dict[str, int]:
        return {
            MAX_CONNECTIONS: int(self.max_connections),
            MAX_QUEUES: int(self.max_queues),
            MAX_MEMORY: int(self.max_memory_bytes),
            MAX_DISK: int(self.max_disk_bytes),
            MAX_RATE: int(self.max_publish_rate),
            MAX_CHANNELS: int(self.max_channels),
        }

    def set(self, name: str, value: i64) -> None:
        """A new rate begins with a full second of it."""
        if name == MAX_CONNECTIONS:
            self.max_connections = value
        elif name == MAX_QUEUES:
            self.max_queues = value
        elif name == MAX_MEMORY:
            self.max_memory_bytes = value
        elif name == MAX_CHANNELS:
            self.max_channels = value
        elif name == MAX_DISK:
            self.max_disk_bytes = value
        else:
            self.max_publish_rate = value
            self.allowance = value if value >= 0 else ANY_NUMBER
            self._filled_at_ms = WallMs(0)
            self._thousandths = 0

    def count_connection(self, more: i64) -> None:
        """1: one was opened; -1: one was closed."""
        self.connection_count += more

    def count_channel(self, more: i64) -> None:
        """Likewise."""
        self.channel_count += more

    def spend(self, count: i64) -> bool:
        """So many messages were published; False: nothing is left."""
        self.allowance -= count
        return self.allowance > 0

    def refill(self, now_ms: WallMs) -> None:
        """What the time since the last call brings back; a second of the rate at most."""
        rate = self.max_publish_rate
        if rate < 0:
            return
        passed_ms = now_ms - self._filled_at_ms
        if self._filled_at_ms == 0 or passed_ms < 0:
            passed_ms = 0
        self._filled_at_ms = now_ms
        come = rate * passed_ms + self._thousandths
        self._thousandths = come % 1000
        self.allowance += come // 1000
        if self.allowance >= rate:
            self.allowance = rate
            self._thousandths = 0

    def is_set(self) -> bool:
        return self.max_memory_bytes >= 0 or self.max_disk_bytes >= 0 or self.max_publish_rate >= 0
