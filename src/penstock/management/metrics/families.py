"""Families in Prometheus' text form; RabbitMQ's as its release 3.10 has them, and what they show.

A family is its type, its sentence and its samples, one line each.
An object is a tuple of numbers; the place of a family in its table is the place of its number.
"""

from collections.abc import Iterable, Iterator
from math import isnan
from typing import Final, NamedTuple

from penstock.core.counting.histogram import Histogram

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"
HISTOGRAM: Final = "histogram"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
"""Of the buckets of a histogram; each count is right to within 1 % of its bound."""

_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Number = int | float


class Family(NamedTuple):
    """``help``: its sentence; ``kind`` "" = a counter if the name ends in _total, else a gauge."""

    name: str
    help: str
    kind: str = ""

    def head(self, prefix: str = "") -> str:
        name = prefixed(self.name, prefix)
        kind = self.kind or (COUNTER if name.endswith("_total") else GAUGE)
        return f"# TYPE {name} {kind}\n# HELP {name} {self.help}\n"

    def alone(self, value: Number) -> str:
        return f"{self.head()}{self.name} {spelt(value)}\n"

    def labelled(self, samples: Iterable[tuple[str, Number]]) -> str:
        """Labels as ``labels`` spells them."""
        return self.head() + "".join(
            f"{self.name}{labels} {spelt(value)}\n" for labels, value in samples
        )

    def histogram(self, times_ms: Histogram) -> str:
        """Shown in seconds."""
        total = 0
        lines = [self.head()]
        for bound, count in zip(_bounds(), times_ms.counts(BOUNDS_MS), strict=True):
            total += count
            lines.append(f'{self.name}_bucket{{le="{bound}"}} {total}\n')
        lines.append(f"{self.name}_sum {int(times_ms.sum) / 1000}\n{self.name}_count {total}\n")
        return "".join(lines)


def _bounds() -> Iterator[str]:
    for bound_ms in BOUNDS_MS:
        yield str(bound_ms / 1000)
    yield "+Inf"


def prefixed(name: str, prefix: str) -> str:
    """A name of ours keeps its own prefix."""
    return prefix + name.removeprefix("rabbitmq_") if prefix and "rabbitmq_" in name else name


def labels(**values: str) -> str:
    """As they stand behind a name; "" without any."""
    if not values:
        return ""
    pairs = ",".join(f'{key}="{value.translate(_ESCAPED)}"' for key, value in values.items())
    return "{" + pairs + "}"


def spelt(value: Number) -> str:
    if isinstance(value, float) and isnan(value):
        return "NaN"
    return str(value)


def _listed(table: str) -> tuple[Family, ...]:
    """Rows: the name, ``untyped`` if it is, and the sentence."""
    rows = [line.partition(": ") for line in table.splitlines()]
    return tuple(
        Family(name.split()[0], " ".join(text.split()), "".join(name.split()[1:]))
        for name, _, text in rows
    )


def _keyed(table: str) -> dict[str, Family]:
    """The same with a key in front."""
    rows = [line.partition(" ") for line in table.splitlines()]
    families = _listed("\n".join(row for _, _, row in rows))
    return dict(zip((key for key, _, _ in rows), families, strict=True))


NODE: Final = _keyed("""\
fd_alarm rabbitmq_alarms_file_descriptor_limit untyped: is 1 if file descriptor limit alarm is \
    in effect
disk_free_alarm rabbitmq_alarms_free_disk_space_watermark untyped: is 1 if free disk space \
    watermark alarm is in effect
mem_alarm rabbitmq_alarms_memory_used_watermark untyped: is 1 if VM memory watermark alarm is in \
    effect
fd_used rabbitmq_process_open_fds: Open file descriptors
sockets_used rabbitmq_process_open_tcp_sockets: Open TCP sockets
mem_used rabbitmq_process_resident_memory_bytes: Memory used in bytes
disk_free rabbitmq_disk_space_available_bytes: Disk space available in bytes
fd_total rabbitmq_process_max_fds: Open file descriptors limit
sockets_total rabbitmq_process_max_tcp_sockets: Open TCP sockets limit
mem_limit rabbitmq_resident_memory_limit_bytes: Memory high watermark in bytes
disk_free_limit rabbitmq_disk_space_available_limit_bytes: Free disk space low watermark in \
    bytes
""")
"""By the field of a node's row."""
CHURN: Final = _keyed("""\
connection_created rabbitmq_connections_opened_total: Total number of connections opened
connection_closed rabbitmq_connections_closed_total: Total number of connections closed or \
    terminated
channel_created rabbitmq_channels_opened_total: Total number of channels opened
channel_closed rabbitmq_channels_closed_total: Total number of channels closed
queue_declared rabbitmq_queues_declared_total: Total number of queues declared
queue_created rabbitmq_queues_created_total: Total number of queues created
queue_deleted rabbitmq_queues_deleted_total: Total number of queues deleted
""")
TOTALS: Final = _listed("""\
rabbitmq_connections: Connections currently open
rabbitmq_channels: Channels currently open
rabbitmq_consumers: Consumers currently connected
rabbitmq_queues: Queues available
""")
QUEUE: Final = _listed("""\
rabbitmq_queue_messages_ready: Messages ready to be delivered to consumers
rabbitmq_queue_messages_unacked: Messages delivered to consumers but not yet acknowledged
rabbitmq_queue_messages: Sum of ready and unacknowledged messages - total queue depth
rabbitmq_queue_consumers: Consumers on a queue
rabbitmq_queue_messages_ram: Ready and unacknowledged messages stored in memory
rabbitmq_queue_messages_ram_bytes: Size of ready and unacknowledged messages stored in memory
rabbitmq_queue_messages_ready_ram: Ready messages stored in memory
rabbitmq_queue_messages_unacked_ram: Unacknowledged messages stored in memory
rabbitmq_queue_messages_bytes: Size in bytes of ready and unacknowledged messages
rabbitmq_queue_messages_ready_bytes: Size in bytes of ready messages
rabbitmq_queue_messages_unacked_bytes: Size in bytes of all unacknowledged messages
rabbitmq_queue_messages_paged_out: Messages paged out to disk
rabbitmq_queue_messages_paged_out_bytes: Size in bytes of messages paged out to disk
rabbitmq_queue_process_memory_bytes: Memory in bytes used by the Erlang queue process
rabbitmq_queue_disk_reads_total: Total number of times queue read messages from disk
rabbitmq_queue_disk_writes_total: Total number of times queue wrote messages to disk
rabbitmq_queue_messages_published_total: Total number of messages published to queues
""")
CHANNEL: Final = _listed("""\
rabbitmq_channel_consumers: Consumers on a channel
rabbitmq_channel_messages_unacked: Delivered but not yet acknowledged messages
rabbitmq_channel_messages_unconfirmed: Published but not yet confirmed messages
rabbitmq_channel_messages_uncommitted: Messages received in a transaction but not yet committed
rabbitmq_channel_acks_uncommitted: Message acknowledgements in a transaction not yet committed
rabbitmq_consumer_prefetch: Limit of unacknowledged messages for each consumer
rabbitmq_channel_prefetch: Total limit of unacknowledged messages for all consumers on a channel
rabbitmq_channel_messages_published_total: Total number of messages published into an exchange \
    on a channel
rabbitmq_channel_messages_confirmed_total: Total number of messages published into an exchange \
    and confirmed on the channel
rabbitmq_channel_messages_unroutable_returned_total: Total number of messages published as \
    mandatory into an exchange and returned to the publisher as unroutable
rabbitmq_channel_messages_unroutable_dropped_total: Total number of messages published as \
    non-mandatory into an exchange and dropped as unroutable
rabbitmq_channel_messages_delivered_ack_total: Total number of messages delivered to consumers \
    in manual acknowledgement mode
rabbitmq_channel_messages_delivered_total: Total number of messages delivered to consumers in \
    automatic acknowledgement mode
rabbitmq_channel_get_ack_total: Total number of messages fetched with basic.get in manual \
    acknowledgement mode
rabbitmq_channel_get_total: Total number of messages fetched with basic.get in automatic \
    acknowledgement mode
rabbitmq_channel_get_empty_total: Total number of times basic.get operations fetched no message
rabbitmq_channel_messages_redelivered_total: Total number of messages redelivered to consumers
rabbitmq_channel_messages_acked_total: Total number of messages acknowledged by consumers
""")
"""From ``published`` on in the order of ``TRAFFIC_FIELDS``; on the page of the whole node those
count channels that are closed, too."""
CHANNEL_COUNTERS_AT: Final = 7
CONNECTION: Final = _listed("""\
rabbitmq_connection_incoming_bytes_total: Total number of bytes received on a connection
rabbitmq_connection_outgoing_bytes_total: Total number of bytes sent on a connection
rabbitmq_connection_incoming_packets_total: Total number of packets received on a connection
rabbitmq_connection_outgoing_packets_total: Total number of packets sent on a connection
rabbitmq_connection_pending_packets: Number of packets waiting to be sent on a connection
rabbitmq_connection_channels: Channels on a connection
""")
GLOBAL_PUBLISHED: Final = _keyed("""\
publish rabbitmq_global_messages_received_total: Total number of messages received from \
    publishers
publish_confirm rabbitmq_global_messages_received_confirm_total: Total number of messages \
    received from publishers expecting confirmations
confirm rabbitmq_global_messages_confirmed_total: Total number of messages confirmed to \
    publishers
routed rabbitmq_global_messages_routed_total: Total number of messages routed to queues or \
    streams
drop_unroutable rabbitmq_global_messages_unroutable_dropped_total: Total number of messages \
    published as non-mandatory into an exchange and dropped as unroutable
return_unroutable rabbitmq_global_messages_unroutable_returned_total: Total number of messages \
    published as mandatory into an exchange and returned to the publisher as unroutable
""")
GLOBAL_DELIVERED: Final = _keyed("""\
deliver_get rabbitmq_global_messages_delivered_total: Total number of messages delivered to \
    consumers
deliver rabbitmq_global_messages_delivered_consume_manual_ack_total: Total number of messages \
    delivered to consumers using basic.consume with manual acknowledgment
deliver_no_ack rabbitmq_global_messages_delivered_consume_auto_ack_total: Total number of \
    messages delivered to consumers using basic.consume with automatic acknowledgment
get rabbitmq_global_messages_delivered_get_manual_ack_total: Total number of messages delivered \
    to consumers using basic.get with manual acknowledgment
get_no_ack rabbitmq_global_messages_delivered_get_auto_ack_total: Total number of messages \
    delivered to consumers using basic.get with automatic acknowledgment
get_empty rabbitmq_global_messages_get_empty_total: Total number of times basic.get operations \
    fetched no message
redeliver rabbitmq_global_messages_redelivered_total: Total number of messages redelivered to \
    consumers
ack rabbitmq_global_messages_acknowledged_total: Total number of messages acknowledged by \
    consumers
""")
"""The former have the label ``protocol``, these ``queue_type`` as well."""
GLOBAL_CONSUMERS: Final = Family("rabbitmq_global_consumers", "Current number of consumers")
GLOBAL_PUBLISHERS: Final = Family("rabbitmq_global_publishers", "Current number of publishers")
DEAD_LETTERED: Final = _keyed("""\
expired rabbitmq_global_messages_dead_lettered_expired_total: Total number of messages \
    dead-lettered due to message TTL exceeded
rejected rabbitmq_global_messages_dead_lettered_rejected_total: Total number of messages \
    dead-lettered due to basic.reject or basic.nack
too_many rabbitmq_global_messages_dead_lettered_maxlen_total: Total number of messages \
    dead-lettered due to overflow drop-head or reject-publish-dlx
tried_too_often rabbitmq_global_messages_dead_lettered_delivery_limit_total: Total number of \
    messages dead-lettered due to delivery-limit exceeded
""")
AUTH_ATTEMPTS: Final = _listed("""\
rabbitmq_auth_attempts_total: Total number of authorization attempts
rabbitmq_auth_attempts_succeeded_total: Total number of successful authentication attempts
rabbitmq_auth_attempts_failed_total: Total number of failed authentication attempts
""")
VHOST_STATUS: Final = Family("rabbitmq_cluster_vhost_status", "Whether a given vhost is running")
EXCHANGE_NAME: Final = Family(
    "rabbitmq_cluster_exchange_name",
    "Enumerates exchanges without any additional info. This value is cluster-wide. A cheaper "
    "alternative to `exchange_bindings`",
)
EXCHANGE_BINDINGS: Final = Family(
    "rabbitmq_cluster_exchange_bindings",
    "Number of bindings for an exchange. This value is cluster-wide.",
)
BUILD_INFO: Final = Family("rabbitmq_build_info", "RabbitMQ & Erlang/OTP version info", UNTYPED)
IDENTITY_INFO: Final = Family(
    "rabbitmq_identity_info", "RabbitMQ node & cluster identity info", UNTYPED
)
IO_COUNTS: Final = _keyed("""\
io_read_count rabbitmq_io_read_ops_total: Total number of I/O read operations
io_read_bytes rabbitmq_io_read_bytes_total: Total number of I/O bytes read
io_write_count rabbitmq_io_write_ops_total: Total number of I/O write operations
io_write_bytes rabbitmq_io_write_bytes_total: Total number of I/O bytes written
io_sync_count rabbitmq_io_sync_ops_total: Total number of I/O sync operations
""")
IO_TIMES: Final = _keyed("""\
io_read rabbitmq_io_read_time_seconds_total: Total I/O read time
io_write rabbitmq_io_write_time_seconds_total: Total I/O write time
io_sync rabbitmq_io_sync_time_seconds_total: Total I/O sync time
""")
"""Of a node: by the field of its row, and by the beginning of the two that make it."""
