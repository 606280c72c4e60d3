"""The memory of a node by use, under the names of RabbitMQ's memory charts.

    queue_procs          messages in queues: contents and objects, ready and unacknowledged
    connection_writers   what sessions have written and peers have not taken
    connection_other     what is kept for other nodes until they have it
    connection_channels  what was published in transactions that are not over
    stream_queue_procs   blocks of streams, read last or of readers
    binary               contents on their way to the disk: message stores and segments
    code                 what the process took when it was ready: interpreter, modules, topology
    allocated_unused     free, but still with the C library
    other_system         the rest of the resident size: buffers, indexes, what is not counted

What RabbitMQ counts and does not exist here (replicas of streams, Mnesia, atoms …) is 0, which
is what it takes.  All of it together is the resident size.
"""

import ctypes
from typing import Final

from penstock.broker.broker import Broker
from penstock.management.facts.rows import Row

NOT_HERE: Final = (
    "queue_slave_procs", "quorum_queue_procs", "quorum_queue_dlx_procs",
    "stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins", "metrics",
    "mgmt_db", "mnesia", "metadata_store", "metadata_store_ets", "quorum_ets", "other_ets",
    "msg_index", "atom", "reserved_unallocated",
)  # fmt: skip
"""Things of RabbitMQ, or part of ``other_system`` here."""


class _MallInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def counted_bytes(broker: Broker) -> dict[str, int]:
    """What the engine counts; for use on the data loop."""
    ram = broker.engine.ram
    return {
        "connection_readers": 0,
        "connection_writers": int(ram.output_bytes),
        "connection_channels": int(ram.uncommitted_bytes),
        "connection_other": int(ram.link_bytes + ram.ending_bytes),
        "queue_procs": int(ram.queued_bytes),
        "stream_queue_procs": int(ram.stream_bytes),
        "other_proc": 0,
        "binary": int(ram.cached_bytes + broker.engine.account.waiting_bytes),
        "code": int(broker.admission.alarms.base_bytes),
    }


def memory_row(counted: dict[str, int], resident_bytes: int) -> Row:
    """The breakdown; what is counted beyond the resident size is not in memory, and cut off."""
    parts = dict.fromkeys(NOT_HERE, 0)
    left = resident_bytes
    for name, size in (counted | {"allocated_unused": unused_bytes()}).items():
        parts[name] = min(size, left)
        left -= parts[name]
    parts["other_system"] = left
    used = resident_bytes - parts["allocated_unused"]
    total = {"erlang": used, "rss": resident_bytes, "allocated": resident_bytes}
    return {**parts, "strategy": "rss", "total": total}


def binary_row(counted: dict[str, int]) -> Row:
    """The same of contents alone."""
    shown = (
        *("connection_writers", "connection_other", "connection_channels", "queue_procs"),
        "stream_queue_procs",
    )
    absent = (
        *("connection_readers", "queue_slave_procs", "quorum_queue_procs"),
        *("quorum_queue_dlx_procs", "stream_queue_replica_reader_procs"),
        *("stream_queue_coordinator_procs", "plugins", "mgmt_db", "msg_index"),
    )
    row: Row = dict.fromkeys(absent, 0)
    return row | {name: counted[name] for name in shown} | {"other": counted["binary"]}


def unused_bytes() -> int:
    """0 where the C library does not say."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0
    libc.mallinfo2.restype = _MallInfo
    return int(libc.mallinfo2().fordblks)
