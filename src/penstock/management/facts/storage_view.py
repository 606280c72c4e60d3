"""Storage of messages as JSON-able dicts: of one queue in RabbitMQ's shape and in our own,
and of the node's storage engine.

RabbitMQ's fields keep RabbitMQ's meaning where both have the thing: q1 to q4 are lengths, delta is
``["delta", start, count, transient count, end]`` with "undefined" for the bounds of an empty
one, and the fields that are null or absent are those that are not counted.  Penstock's own
fields are in an object ``penstock``.

Called on the data loop; each function costs what its ``budget`` or the number of files allows.
"""

from typing import Final, cast

from penstock.backing.description import Facts, describe_index, describe_queue
from penstock.backing.interface import BackingQueue
from penstock.broker.rules.alarms import NO_PAGING
from penstock.queues.stream_backing import StreamBacking
from penstock.queues.stream_description import describe_stream
from penstock.storage.engine.engine import Engine
from penstock.storage.engine.recovery import Opening
from penstock.storage.journal.codec import journal_file_name
from penstock.storage.store.message_store import MessageStore

LISTED: Final = 0
"""Messages that may be looked at for a line of a list: counters only."""
SHOWN: Final = 20_000
"""The same for a request for one queue; a millisecond."""


class DiskFacts:
    """How the server fares with the disk: ``stalled`` is why nothing can be written, or "".

    ``publishers_wait``: they are not read from; ``reason`` is what they are told, if anything.
    """

    def __init__(self, stalled: str, *, publishers_wait: bool, reason: str) -> None:
        self.stalled = stalled
        self.publishers_wait = publishers_wait
        self.reason = reason


def listed_fields(backing: BackingQueue) -> Facts:
    rows = [_in_their_shape(describe_queue(part, LISTED)) for part in backing.parts()]
    if not rows:
        return {}  # it is a stream, or its messages are on another node
    row = rows[0] if len(rows) == 1 else _sum_of(rows)
    if (keys := backing.keys()) is not None:
        row["penstock_duplicates"] = int(keys.duplicate_count)
    return row


def shown_fields(backing: BackingQueue) -> Facts:
    """The same of one queue, with the object ``penstock``."""
    parts = backing.parts()
    if isinstance(backing, StreamBacking):
        return {"penstock": describe_stream(backing)}
    if not parts:
        return {}  # its messages are on another node
    described = [describe_queue(part, SHOWN // len(parts)) for part in parts]
    rows = [_in_their_shape(facts) for facts in described]
    for part, facts in zip(parts, described, strict=True):
        facts["index"] = describe_index(part)
    if len(parts) == 1:
        row = rows[0] | {"penstock": described[0]}
    else:
        named = {str(number): facts for number, facts in enumerate(described) if facts["messages"]}
        row = _sum_of(rows) | {"penstock": {"priorities": named}}
    if (keys := backing.keys()) is not None:
        cast(Facts, row["penstock"])["duplicates"] = int(keys.duplicate_count)
    return row


def _sum_of(rows: list[Facts]) -> Facts:
    """Of a queue with priorities: numbers are sums, what differs otherwise is not told."""
    summed = _added(rows)
    statuses = [cast(Facts, row["backing_queue_status"]) for row in rows]
    deltas = [cast(list[int], status["delta"]) for status in statuses]
    paged, transient = sum(delta[2] for delta in deltas), sum(delta[3] for delta in deltas)
    summed["backing_queue_status"] = {
        **_added(statuses),
        "mode": statuses[0]["mode"],
        "delta": ["delta", "undefined", paged, transient, "undefined"],
        "priority_lengths": {str(number): one["len"] for number, one in enumerate(statuses)},
    }
    return summed


def _added(rows: list[Facts]) -> Facts:
    added: Facts = {}
    for key, first in rows[0].items():
        values = [row.get(key) for row in rows]
        if all(isinstance(value, int | float) for value in values):
            added[key] = sum(cast(list[float], values))
        elif all(value == first for value in values):
            added[key] = first
    return added


def _in_their_shape(facts: Facts) -> Facts:
    return {**_message_fields(facts), "backing_queue_status": _backing_queue_status(facts)}


def _message_fields(facts: Facts) -> Facts:
    pending = cast(dict[str, int], facts["pending"])
    delta = cast(Facts, facts["delta"])
    size, ram_bytes = cast(int, facts["bytes"]), cast(int, facts["ram_bytes"])
    ram_messages = cast(int, facts["ram_messages"])
    known: Facts = {
        "memory": facts["memory_bytes"],
        "message_bytes": size + pending["bytes"],
        "message_bytes_ready": size,
        "message_bytes_unacknowledged": pending["bytes"],
        "message_bytes_ram": ram_bytes + pending["ram_bytes"],
        "messages_ram": ram_messages + pending["ram_messages"],
        "messages_ready_ram": ram_messages,
        "messages_unacknowledged_ram": pending["ram_messages"],
    }
    perhaps: Facts = {
        "messages_persistent": facts["persistent_messages"],
        "message_bytes_persistent": facts["persistent_bytes"],
        "messages_paged_out": delta["transient_messages"],
        "message_bytes_paged_out": delta["transient_bytes"],
    }
    known.update((key, value) for key, value in perhaps.items() if value is not None)
    return known


def _backing_queue_status(facts: Facts) -> Facts:
    delta = cast(Facts, facts["delta"])
    pending = cast(Facts, facts["pending"])
    rates = cast(Facts, facts["rates"])
    target = facts["target_ram_count"]
    bounds = [delta["start"], delta["end"]] if delta["messages"] else ["undefined", "undefined"]
    lengths = {name: cast(Facts, facts[name])["messages"] for name in ("q1", "q2", "q3", "q4")}
    return {
        "mode": facts["mode"],
        "len": facts["messages"],
        **lengths,
        "delta": ["delta", bounds[0], delta["messages"], delta["transient_messages"], bounds[1]],
        "target_ram_count": "infinity" if target is None else target,
        "ram_msg_count": facts["ram_messages"],
        "ram_ack_count": pending["ram_messages"],
        "next_seq_id": facts["next_seq_id"],
        "next_deliver_seq_id": facts["next_deliver_seq_id"],
        "avg_ingress_rate": rates["in"],
        "avg_egress_rate": rates["out"],
        "avg_ack_ingress_rate": rates["ack_in"],
        "avg_ack_egress_rate": rates["ack_out"],
    }


# -- the node -------------------------------------------------------------------------------


def storage_row(engine: Engine, disk: DiskFacts, opening: Opening | None) -> Facts:
    """The storage engine in numbers, without its files; ``opening`` is how it was started."""
    ram = engine.ram
    return {
        "memory": {
            "used_bytes": int(ram.used_bytes()),
            "queued_bytes": int(ram.queued_bytes),
            "paging_bytes": None if ram.paging_bytes >= NO_PAGING else int(ram.paging_bytes),
            "limit_bytes": int(ram.limit_bytes),
            "paging": ram.must_page(),
            "full": ram.is_full(),
            "paged_slices": int(engine.paging.slices),
        },
        "disk": {
            "stalled": disk.stalled or None,
            "publishers_wait": disk.publishers_wait,
            "reason": disk.reason or None,
            "segment_bytes_waiting": int(engine.account.waiting_bytes),
        },
        "journal": {
            **engine.journal.statistics(),
            "limit_bytes": int(engine.limits.journal_bytes),
            "behind": engine.journal_is_behind(),
        },
        "segments": _segments_row(engine),
        "stores": {
            "persistent": _store_row(engine.store),
            "transient": _store_row(engine.transient_store),
        },
        "queue_count": len(engine.queues),
        "recovery": None if opening is None else _recovery_row(opening),
    }


def _recovery_row(opening: Opening) -> Facts:
    return {
        "clean": opening.clean,
        "new": opening.new,
        "queues": len(opening.queues),
        "messages": int(opening.messages),
        "bytes_read": int(opening.bytes_read),
        "bytes_cut": int(opening.bytes_cut),
        "unconfirmed_dropped": int(opening.dropped),
    }


def _segments_row(engine: Engine) -> Facts:
    """Of all queues, as of some hundred milliseconds ago."""
    size, living = int(engine.garbage.size_bytes), int(engine.garbage.living_bytes)
    return {
        "files": int(engine.garbage.count),
        "bytes": size,
        "living_bytes": living,
        "garbage_share": round(1 - living / size, 3) if size else 0.0,
        "rewriting": int(engine.account.rewriting),
        "files_rewritten": int(engine.account.rewritten),
        "bytes_reclaimed": int(engine.account.bytes_reclaimed),
    }


def _store_row(store: MessageStore) -> Facts:
    numbers = store.statistics()
    garbage = 0.0
    if numbers["bytes"] > 0:
        garbage = round(1 - numbers["valid_bytes"] / numbers["bytes"], 3)
    return {**numbers, "garbage_share": garbage}


def files_row(engine: Engine) -> Facts:
    return {
        "journal": _journal_files(engine),
        "persistent_store": _store_files(engine.store),
        "transient_store": _store_files(engine.transient_store),
    }


def _journal_files(engine: Engine) -> list[Facts]:
    """What still lives in one is in no counter: a file goes as a whole."""
    journal = engine.journal
    return [
        {
            "name": journal_file_name(int(file.number)),
            "bytes": int(file.size),
            "finished": journal.is_finished(file),
            "retiring": engine.is_retiring(file),
        }
        for file in journal.files
    ]


def _store_files(store: MessageStore) -> list[Facts]:
    rows = store.describe_files()
    for row in rows:
        row["garbage_share"] = round(cast(float, row.pop("garbage")), 3)
    return rows
