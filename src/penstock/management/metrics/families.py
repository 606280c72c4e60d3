"""RabbitMQ's families: name, sentence and type as its release 3.10 has them, and what they show.

An object is a tuple of numbers; the place of a family in its table is the place of its number.
"""

from typing import Final

from penstock.management.metrics.text import UNTYPED, Family

NODE: Final = {
    "fd_alarm": Family(
        "rabbitmq_alarms_file_descriptor_limit",
        "is 1 if file descriptor limit alarm is in effect",
        UNTYPED,
    ),
    "disk_free_alarm": Family(
        "rabbitmq_alarms_free_disk_space_watermark",
        "is 1 if free disk space watermark alarm is in effect",
        UNTYPED,
    ),
    "mem_alarm": Family(
        "rabbitmq_alarms_memory_used_watermark",
        "is 1 if VM memory watermark alarm is in effect",
        UNTYPED,
    ),
    "fd_used": Family("rabbitmq_process_open_fds", "Open file descriptors"),
    "sockets_used": Family("rabbitmq_process_open_tcp_sockets", "Open TCP sockets"),
    "mem_used": Family("rabbitmq_process_resident_memory_bytes", "Memory used in bytes"),
    "disk_free": Family("rabbitmq_disk_space_available_bytes", "Disk space available in bytes"),
    "fd_total": Family("rabbitmq_process_max_fds", "Open file descriptors limit"),
    "sockets_total": Family("rabbitmq_process_max_tcp_sockets", "Open TCP sockets limit"),
    "mem_limit": Family("rabbitmq_resident_memory_limit_bytes", "Memory high watermark in bytes"),
    "disk_free_limit": Family(
        "rabbitmq_disk_space_available_limit_bytes", "Free disk space low watermark in bytes"
    ),
}
"""By the field of a node's row."""

CHURN: Final = {
    "connection_created": Family(
        "rabbitmq_connections_opened_total", "Total number of connections opened"
    ),
    "connection_closed": Family(
        "rabbitmq_connections_closed_total", "Total number of connections closed or terminated"
    ),
    "channel_created": Family("rabbitmq_channels_opened_total", "Total number of channels opened"),
    "channel_closed": Family("rabbitmq_channels_closed_total", "Total number of channels closed"),
    "queue_declared": Family("rabbitmq_queues_declared_total", "Total number of queues declared"),
    "queue_created": Family("rabbitmq_queues_created_total", "Total number of queues created"),
    "queue_deleted": Family("rabbitmq_queues_deleted_total", "Total number of queues deleted"),
}

TOTALS: Final = (
    Family("rabbitmq_connections", "Connections currently open"),
    Family("rabbitmq_channels", "Channels currently open"),
    Family("rabbitmq_consumers", "Consumers currently connected"),
    Family("rabbitmq_queues", "Queues available"),
)

QUEUE: Final = (
    Family("rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers"),
    Family(
        "rabbitmq_queue_messages_unacked",
        "Messages delivered to consumers but not yet acknowledged",
    ),
    Family(
        "rabbitmq_queue_messages", "Sum of ready and unacknowledged messages - total queue depth"
    ),
    Family("rabbitmq_queue_consumers", "Consumers on a queue"),
    Family("rabbitmq_queue_messages_ram", "Ready and unacknowledged messages stored in memory"),
    Family(
        "rabbitmq_queue_messages_ram_bytes",
        "Size of ready and unacknowledged messages stored in memory",
    ),
    Family("rabbitmq_queue_messages_ready_ram", "Ready messages stored in memory"),
    Family("rabbitmq_queue_messages_unacked_ram", "Unacknowledged messages stored in memory"),
    Family("rabbitmq_queue_messages_bytes", "Size in bytes of ready and unacknowledged messages"),
    Family("rabbitmq_queue_messages_ready_bytes", "Size in bytes of ready messages"),
    Family("rabbitmq_queue_messages_unacked_bytes", "Size in bytes of all unacknowledged messages"),
    Family("rabbitmq_queue_messages_paged_out", "Messages paged out to disk"),
    Family(
        "rabbitmq_queue_messages_paged_out_bytes", "Size in bytes of messages paged out to disk"
    ),
    Family(
        "rabbitmq_queue_process_memory_bytes", "Memory in bytes used by the Erlang queue process"
    ),
    Family(
        "rabbitmq_queue_disk_reads_total", "Total number of times queue read messages from disk"
    ),
    Family(
        "rabbitmq_queue_disk_writes_total", "Total number of times queue wrote messages to disk"
    ),
    Family(
        "rabbitmq_queue_messages_published_total", "Total number of messages published to queues"
    ),
)

CHANNEL: Final = (
    Family("rabbitmq_channel_consumers", "Consumers on a channel"),
    Family("rabbitmq_channel_messages_unacked", "Delivered but not yet acknowledged messages"),
    Family("rabbitmq_channel_messages_unconfirmed", "Published but not yet confirmed messages"),
    Family(
        "rabbitmq_channel_messages_uncommitted",
        "Messages received in a transaction but not yet committed",
    ),
    Family(
        "rabbitmq_channel_acks_uncommitted",
        "Message acknowledgements in a transaction not yet committed",
    ),
    Family("rabbitmq_consumer_prefetch", "Limit of unacknowledged messages for each consumer"),
    Family(
        "rabbitmq_channel_prefetch",
        "Total limit of unacknowledged messages for all consumers on a channel",
    ),
    Family(
        "rabbitmq_channel_messages_published_total",
        "Total number of messages published into an exchange on a channel",
    ),
    Family(
        "rabbitmq_channel_messages_confirmed_total",
        "Total number of messages published into an exchange and confirmed on the channel",
    ),
    Family(
        "rabbitmq_channel_messages_unroutable_returned_total",
        "Total number of messages published as mandatory into an exchange and returned to the"
        " publisher as unroutable",
    ),
    Family(
        "rabbitmq_channel_messages_unroutable_dropped_total",
        "Total number of messages published as non-mandatory into an exchange and dropped as"
        " unroutable",
    ),
    Family(
        "rabbitmq_channel_messages_delivered_ack_total",
        "Total number of messages delivered to consumers in manual acknowledgement mode",
    ),
    Family(
        "rabbitmq_channel_messages_delivered_total",
        "Total number of messages delivered to consumers in automatic acknowledgement mode",
    ),
    Family(
        "rabbitmq_channel_get_ack_total",
        "Total number of messages fetched with basic.get in manual acknowledgement mode",
    ),
    Family(
        "rabbitmq_channel_get_total",
        "Total number of messages fetched with basic.get in automatic acknowledgement mode",
    ),
    Family(
        "rabbitmq_channel_get_empty_total",
        "Total number of times basic.get operations fetched no message",
    ),
    Family(
        "rabbitmq_channel_messages_redelivered_total",
        "Total number of messages redelivered to consumers",
    ),
    Family(
        "rabbitmq_channel_messages_acked_total",
        "Total number of messages acknowledged by consumers",
    ),
)
"""From ``published`` on in the order of ``TRAFFIC_FIELDS``; on the page of the whole node those
count channels that are closed, too."""
CHANNEL_COUNTERS_AT: Final = 7

CONNECTION: Final = (
    Family(
        "rabbitmq_connection_incoming_bytes_total", "Total number of bytes received on a connection"
    ),
    Family(
        "rabbitmq_connection_outgoing_bytes_total", "Total number of bytes sent on a connection"
    ),
    Family(
        "rabbitmq_connection_incoming_packets_total",
        "Total number of packets received on a connection",
    ),
    Family(
        "rabbitmq_connection_outgoing_packets_total", "Total number of packets sent on a connection"
    ),
    Family(
        "rabbitmq_connection_pending_packets",
        "Number of packets waiting to be sent on a connection",
    ),
    Family("rabbitmq_connection_channels", "Channels on a connection"),
)

GLOBAL_PUBLISHED: Final = {
    "publish": Family(
        "rabbitmq_global_messages_received_total",
        "Total number of messages received from publishers",
    ),
    "publish_confirm": Family(
        "rabbitmq_global_messages_received_confirm_total",
        "Total number of messages received from publishers expecting confirmations",
    ),
    "confirm": Family(
        "rabbitmq_global_messages_confirmed_total",
        "Total number of messages confirmed to publishers",
    ),
    "routed": Family(
        "rabbitmq_global_messages_routed_total",
        "Total number of messages routed to queues or streams",
    ),
    "drop_unroutable": Family(
        "rabbitmq_global_messages_unroutable_dropped_total",
        "Total number of messages published as non-mandatory into an exchange and dropped as"
        " unroutable",
    ),
    "return_unroutable": Family(
        "rabbitmq_global_messages_unroutable_returned_total",
        "Total number of messages published as mandatory into an exchange and returned to the"
        " publisher as unroutable",
    ),
}
GLOBAL_DELIVERED: Final = {
    "deliver_get": Family(
        "rabbitmq_global_messages_delivered_total",
        "Total number of messages delivered to consumers",
    ),
    "deliver": Family(
        "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "Total number of messages delivered to consumers using basic.consume with manual"
        " acknowledgment",
    ),
    "deliver_no_ack": Family(
        "rabbitmq_global_messages_delivered_consume_auto_ack_total",
        "Total number of messages delivered to consumers using basic.consume with automatic"
        " acknowledgment",
    ),
    "get": Family(
        "rabbitmq_global_messages_delivered_get_manual_ack_total",
        "Total number of messages delivered to consumers using basic.get with manual"
        " acknowledgment",
    ),
    "get_no_ack": Family(
        "rabbitmq_global_messages_delivered_get_auto_ack_total",
        "Total number of messages delivered to consumers using basic.get with automatic"
        " acknowledgment",
    ),
    "get_empty": Family(
        "rabbitmq_global_messages_get_empty_total",
        "Total number of times basic.get operations fetched no message",
    ),
    "redeliver": Family(
        "rabbitmq_global_messages_redelivered_total",
        "Total number of messages redelivered to consumers",
    ),
    "ack": Family(
        "rabbitmq_global_messages_acknowledged_total",
        "Total number of messages acknowledged by consumers",
    ),
}
"""The former have the label ``protocol``, these ``queue_type`` as well."""
GLOBAL_CONSUMERS: Final = Family("rabbitmq_global_consumers", "Current number of consumers")
GLOBAL_PUBLISHERS: Final = Family("rabbitmq_global_publishers", "Current number of publishers")
DEAD_LETTERED: Final = {
    "expired": Family(
        "rabbitmq_global_messages_dead_lettered_expired_total",
        "Total number of messages dead-lettered due to message TTL exceeded",
    ),
    "rejected": Family(
        "rabbitmq_global_messages_dead_lettered_rejected_total",
        "Total number of messages dead-lettered due to basic.reject or basic.nack",
    ),
    "too_many": Family(
        "rabbitmq_global_messages_dead_lettered_maxlen_total",
        "Total number of messages dead-lettered due to overflow drop-head or reject-publish-dlx",
    ),
    "tried_too_often": Family(
        "rabbitmq_global_messages_dead_lettered_delivery_limit_total",
        "Total number of messages dead-lettered due to delivery-limit exceeded",
    ),
}
AUTH_ATTEMPTS: Final = (
    Family("rabbitmq_auth_attempts_total", "Total number of authorization attempts"),
    Family(
        "rabbitmq_auth_attempts_succeeded_total",
        "Total number of successful authentication attempts",
    ),
    Family("rabbitmq_auth_attempts_failed_total", "Total number of failed authentication attempts"),
)
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
IO_COUNTS: Final = {
    "io_read_count": Family("rabbitmq_io_read_ops_total", "Total number of I/O read operations"),
    "io_read_bytes": Family("rabbitmq_io_read_bytes_total", "Total number of I/O bytes read"),
    "io_write_count": Family("rabbitmq_io_write_ops_total", "Total number of I/O write operations"),
    "io_write_bytes": Family("rabbitmq_io_write_bytes_total", "Total number of I/O bytes written"),
    "io_sync_count": Family("rabbitmq_io_sync_ops_total", "Total number of I/O sync operations"),
}
IO_TIMES: Final = {
    "io_read": Family("rabbitmq_io_read_time_seconds_total", "Total I/O read time"),
    "io_write": Family("rabbitmq_io_write_time_seconds_total", "Total I/O write time"),
    "io_sync": Family("rabbitmq_io_sync_time_seconds_total", "Total I/O sync time"),
}
"""Of a node: by the field of its row, and by the beginning of the two that make it."""
