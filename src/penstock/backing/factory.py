"""Makes the backing a queue asks for, and gives it what the disk remembers of it.

arguments                 the backing
(none)                    a variable queue
x-max-priority            a variable queue for each priority
x-queue-type: quorum      a variable queue, and others beside it when priorities come
x-message-deduplication   as with priorities, or one part, and the keys of its messages
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.deduplication import MessageKeys
from penstock.backing.interface import BackingQueue
from penstock.backing.priorities import classic_priorities, priority_place, without_priorities
from penstock.backing.variable_queue import VariableQueue
from penstock.core.headers import HeaderReader
from penstock.storage.definitions.records import (
    NO_PRIORITIES,
    QUORUM_PRIORITIES,
    highest_priority,
    id_count,
    part_count,
)
from penstock.storage.engine.engine import Engine
from penstock.storage.engine.recovery import FoundQueue

TRANSIENT_IDS: Final[i64] = 1 << 30
"""Above this lie the ids of queues that die with the process; ``definitions`` gives those
below."""


@final
class BackingMaker:
    """``drop_order``: what a full queue with priorities loses first."""

    def __init__(self, engine: Engine, drop_order: str, header_reader: HeaderReader) -> None:
        self._engine = engine
        self._drop_order = drop_order
        self._header_reader = header_reader
        self._transient_id: i64 = TRANSIENT_IDS

    def make(
        self, queue_id: int, durable: bool, segment_entries: int, arguments: dict[str, object]
    ) -> BackingQueue:
        """``queue_id`` is the first of ``id_count``; of no meaning when not durable."""
        first: i64 = queue_id
        if not durable:
            first = self._transient_id + 1
            self._transient_id += id_count(arguments)
        parts = [
            VariableQueue(self._engine, first + part, durable, segment_entries)
            for part in range(part_count(arguments))
        ]
        once = arguments.get("x-message-deduplication") is True
        keys = MessageKeys(parts, self._header_reader) if once else None
        if highest_priority(arguments) != NO_PRIORITIES:
            return classic_priorities(parts, self._drop_order, keys)
        return parts[0] if keys is None else without_priorities(parts[0], keys)


def adopt(backing: BackingQueue, found: dict[int, FoundQueue]) -> None:
    """Take over the messages found at the start, by queue id."""
    adopt_parts(backing, found)
    look_at_heads(backing)
    backing.adopted()
    keys = backing.keys()
    if keys is not None:
        keys.read_all_keys()


def adopt_parts(backing: BackingQueue, found: dict[int, FoundQueue]) -> None:
    """As far as to have them: nothing is read ahead for consumers."""
    for part in backing.parts():
        known = found.get(int(part.queue_id))
        if known is not None:
            part.adopt(known.index, known.next_seq_id, known.expiring)


def found_priorities(queue_id: int, found: dict[int, FoundQueue]) -> list[int]:
    """Of a quorum queue with this queue id: those that had messages, beside the normal one."""
    places = {priority: priority_place(priority) for priority in range(QUORUM_PRIORITIES)}
    return [
        one for one, place in places.items() if place > 0 and _has_messages(queue_id + place, found)
    ]


def _has_messages(queue_id: int, found: dict[int, FoundQueue]) -> bool:
    known = found.get(queue_id)
    return known is not None and known.index is not None and len(known.index.segments) > 0


def look_at_heads(backing: BackingQueue) -> None:
    """They may be over their time."""
    for part in backing.parts():
        if part.may_expire():
            part.ahead.look_ahead()
