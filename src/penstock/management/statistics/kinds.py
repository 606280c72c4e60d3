"""The numbers of each kind of object, and how long they are kept.

A *counter* only grows; a *gauge* goes up and down.  Rings keep what a counter grew by and what a
gauge was.  How long is RabbitMQ's default: ten minutes in steps of the interval, an hour in
minutes; of the node also a working day in steps of ten minutes, and a day in half hours.  A week in
hours is ours; what is kept of the node and its totals outlives the process (``history_file.py``).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.core.counting.traffic import TRAFFIC_FIELDS

FINE_S: Final = 605
BASIC: Final = ((3600, 60),)
GLOBAL: Final = ((3660, 60), (29_400, 600), (86_400, 1800), (608_400, 3600))
"""(how long, in steps of), in seconds; besides the fine one, whose steps are the interval."""

CHURN: Final = (
    "connection_created", "connection_closed", "channel_created", "channel_closed",
    "queue_declared", "queue_created", "queue_deleted",
)  # fmt: skip
DELIVERIES: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""Of which ``deliver_get`` is the sum."""
LENGTHS: Final = ("messages_ready", "messages_unacknowledged")
"""Of which ``messages`` is the sum."""
SUMS: Final = {"deliver_get": DELIVERIES, "messages": LENGTHS}
SHOWN_TRAFFIC: Final = TRAFFIC_FIELDS[:11]
OCTETS: Final = ("recv_oct", "send_oct")
Key = tuple[str, ...]


class ObjectKind(NamedTuple):
    """``wide``: its numbers do not fit into 32 bits."""

    name: str
    counters: tuple[str, ...]
    gauges: tuple[str, ...] = ()
    wide: bool = False
    kept: tuple[tuple[int, int], ...] = BASIC

    @property
    def names(self) -> tuple[str, ...]:
        return self.counters + self.gauges


QUEUE: Final = ObjectKind(
    "queue",
    (
        "publish",
        "deliver",
        "deliver_no_ack",
        "get",
        "get_no_ack",
        "get_empty",
        "redeliver",
        "ack",
        "dead_lettered",
    ),
    LENGTHS,
)
EXCHANGE: Final = ObjectKind("exchange", ("publish_in", "publish_out"))
CHANNEL: Final = ObjectKind("channel", SHOWN_TRAFFIC)
CONNECTION: Final = ObjectKind("connection", OCTETS, wide=True)
VHOST: Final = ObjectKind("vhost", (*SHOWN_TRAFFIC, *OCTETS), LENGTHS, wide=True)
CLUSTER: Final = ObjectKind(
    "cluster",
    (*SHOWN_TRAFFIC, "disk_reads", "disk_writes", *CHURN),
    LENGTHS,
    wide=True,
    kept=GLOBAL,
)
NODE: Final = ObjectKind(
    "node",
    (
        *("gc_num", "context_switches", "io_read_bytes", "io_write_bytes"),
        *("io_read_count", "io_write_count", "io_sync_count"),
    ),
    ("mem_used", "fd_used", "sockets_used", "disk_free", "proc_used"),
    wide=True,
    kept=GLOBAL,
)
KINDS: Final = {
    kind.name: kind for kind in (QUEUE, EXCHANGE, CHANNEL, CONNECTION, VHOST, CLUSTER, NODE)
}


class CountersSnapshot(dict[str, object]):
    """Counts by name, in a row that is made on the data loop; ``kind`` and ``key`` say whose.

    When the row arrives on management's side, ``completing`` adds rates and samples.  To all other
    code it is a dict.
    """

    __slots__ = ("key", "kind")

    def __init__(
        self, kind: str, key: Key, names: Iterable[str] = (), counts: Iterable[int] = ()
    ) -> None:
        super().__init__(zip(names, counts, strict=False))
        self.kind = kind
        self.key = key
