"""Makes the backing a queue asks for, and gives it what the disk remembers of it."""

from typing import cast

from penstock.backing.interface import BackingQueue
from penstock.backing.priorities import PriorityBacking
from penstock.backing.variable_queue import VariableQueue
from penstock.storage.definition_records import NO_PRIORITIES, part_count
from penstock.storage.engine import Engine
from penstock.storage.recovery import FoundQueue


def make_backing(
    engine: Engine,
    queue_id: int,
    durable: bool,
    segment_entries: int,
    highest_priority: int,
    drop_order: str,
) -> BackingQueue:
    """``queue_id`` is the first of ``part_count``; ``drop_order`` that of a full queue."""
    if highest_priority == NO_PRIORITIES:
        return VariableQueue(engine, queue_id, durable, segment_entries)
    parts: list[BackingQueue] = [
        VariableQueue(engine, queue_id + priority, durable, segment_entries)
        for priority in range(part_count(highest_priority))
    ]
    return PriorityBacking(parts, drop_order)


def adopt(backing: BackingQueue, queue_id: int, found: dict[int, FoundQueue]) -> None:
    """Take over the messages found at the start; ``queue_id`` is the first of its parts."""
    for part in backing.parts():
        known = found.get(queue_id)
        queue_id += 1
        if known is not None:
            queue = cast(VariableQueue, part)
            queue.adopt(known.index, known.next_seq_id, known.expiring)
            if known.expiring:
                queue.look_ahead()  # its head may be over its time
    if isinstance(backing, PriorityBacking):
        backing.adopted()
