"""Keys of RabbitMQ 3.10.8's answers that ours have not, or with values of another kind, and why.

``where`` are patterns of ``answer.key.key``, with ``*`` for any text.  ``docs/differences.md``
shows the list; ``test_shapes`` holds it against both brokers: nothing else may be missing, and
nothing may stand here that is not missing any more.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class DifferentShape(NamedTuple):
    where: tuple[str, ...]
    keys: str
    why: str


DIFFERENCES: Final = (
    DifferentShape(
        ("*.garbage_collection", "*.reductions", "*.reductions_details"),
        "`garbage_collection` and `reductions` of queues, channels and connections",
        "Erlang's account of its processes: queues and sessions are objects here, not processes.",
    ),
    DifferentShape(
        (
            *("*.mnesia_*", "*.ra_open_file_metrics", "*.metrics_gc_queue_length"),
            *("*.net_ticktime", "*.gc_bytes_reclaimed*", "*.run_queue", "*.cowboy_opts"),
        ),
        "`mnesia_*`, `ra_open_file_metrics`, `metrics_gc_queue_length`, `net_ticktime`, "
        "`gc_bytes_reclaimed`, `run_queue` of nodes, `cowboy_opts` of contexts",
        "Parts of RabbitMQ that do not exist here. `gc_num` and `context_switches` are Python's "
        "and the system's.",
    ),
    DifferentShape(
        (
            *("*.io_seek_*", "*.io_reopen_*", "*.io_*_avg_time_details"),
            *("*.msg_store_read_count*", "*.msg_store_write_count_details"),
            *("*.queue_index_read_count*", "*.queue_index_write_count*"),
        ),
        "`io_seek_*`, `io_reopen_*`, `io_*_avg_time_details`, `msg_store_read_count`, "
        "`queue_index_*` of nodes",
        "Reads and writes say where, and files stay open. One journal is written for all queues, "
        "in groups, and reads are of whole blocks: counts of a message store and of queue indices "
        "would mean something else. `io_read_count`, `io_write_count`, `io_sync_count` and their "
        "`avg_time` (milliseconds, since the start) are of the engine's files; `io_read_bytes` "
        "and `io_write_bytes` are what the system counts for the process.",
    ),
    DifferentShape(
        ("*.backing_queue_status.version",),
        "`version` of `backing_queue_status`",
        "There is one format of a queue's index.",
    ),
    DifferentShape(
        ("queue_mirror*.mirror_seen", "queue_mirror*.mirror_senders"),
        "`mirror_seen` and `mirror_senders` of `backing_queue_status` of mirrored queues",
        "RabbitMQ's channels send each message to all mirrors too, which match it with what the "
        "master says. Here the master alone speaks to mirrors.",
    ),
    DifferentShape(
        ("nodes2.cluster_links.sock_*", "nodes2.cluster_links.stats.*_details"),
        "`sock_addr`, `sock_port` and rates of `cluster_links` of nodes",
        "A link outlives its connections, and its bytes are counted over all of them. The links "
        "of the node that is asked are told; of other nodes whether they run, and their alarms.",
    ),
    DifferentShape(
        ("*.head_message_timestamp",),
        "`head_message_timestamp` of queues in lists",
        "It is in the answer for one queue: reading it takes a look at the first message.",
    ),
    DifferentShape(
        ("queues_paged.items.idle_since", "queue_mirror*.idle_since"),
        "`idle_since` of queues",
        "RabbitMQ puts a queue's process to sleep; a queue that does nothing costs nothing here.",
    ),
    DifferentShape(
        (
            *("exchange.outgoing", "*.incoming"),
            *("*.deliveries.stats.get*", "*.deliveries.stats.redeliver*"),
        ),
        "`incoming` and `outgoing` of exchanges, `incoming` of queues, gets and redeliveries of "
        "`deliveries`",
        "Counted per queue, exchange and channel, not per pair of them.",
    ),
    DifferentShape(
        ("*.config_files",),
        "entries of `config_files` of a node without a file",
        "The list is empty: a node needs no file.",
    ),
)
