"""A variable queue, described for people: where its messages are and what they cost.

``describe_queue`` runs on the data loop for a request of the management API, so its cost must not
grow with the queue.  Counters are there for nearly everything; what has no counter (the bytes of
each sub-queue, what is persistent among transient messages) is counted message by message, and
for that the caller gives a ``budget`` of messages, 0 for a line in a list.  A run that does not fit
is left out, and if it is the only one, what is left of the totals is its.  What stays unknown is
None.

Not compiled: it runs when a person asks.
"""

from typing import Final

from penstock.backing.message_deque import MessageDeque
from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import PERSISTENT, Message
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.engine.resting_queue import INFINITE
from penstock.storage.index.segment import Segment
from penstock.storage.index.segment_codec import segment_file_name

Facts = dict[str, object]

RUNS: Final = ("q1", "q2", "q3", "q4")


class _Counted:
    """One run, message by message."""

    def __init__(self, messages: list[Message]) -> None:
        self.bytes = 0
        self.ram_messages = 0
        self.persistent_bytes = 0
        for message in messages:
            size = message.size
            self.bytes += size
            if message.content:
                self.ram_messages += 1
            if message.flags & PERSISTENT:
                self.persistent_bytes += size


class _Count:
    """All runs of a queue, as far as the budget goes; the shortest first."""

    def __init__(self, queue: VariableQueue, budget: int) -> None:
        self.budget = budget
        self.runs: dict[str, _Counted] = {}
        self.tail: _Counted | None = None
        self.pending: _Counted | None = None
        self.delayed: _Counted | None = None
        runs = _runs_of(queue)
        for name in sorted(runs, key=lambda name: runs[name].count()):
            length = int(runs[name].count())
            if length <= budget:
                budget -= length
                self.runs[name] = _Counted(runs[name].live())
        if queue.tiers.tail.count() <= budget:
            budget -= int(queue.tiers.tail.count())
            self.tail = _Counted(queue.tiers.tail.live())
        if queue.tiers.pending.count <= budget:
            budget -= int(queue.tiers.pending.count)
            self.pending = _Counted(queue.tiers.pending.live())
        if queue.tiers.delayed.count() <= budget:
            self.delayed = _Counted(queue.tiers.delayed.messages())

    def everything(self) -> list[_Counted] | None:
        """All that is in memory; None when something did not fit."""
        if self.tail is None or self.pending is None or self.delayed is None:
            return None
        if len(self.runs) < len(RUNS):
            return None
        return [*self.runs.values(), self.tail, self.pending, self.delayed]


def describe_queue(queue: VariableQueue, budget: int) -> Facts:
    """Sizes are in bytes, contents only, but ``memory_bytes``, which has the overhead too.

    Delayed messages are neither ready nor pending; ``ram_bytes`` has theirs with the ready ones'.
    """
    count = _Count(queue, budget)
    tail_count = int(queue.tiers.tail.count())
    pending = queue.tiers.pending
    return {
        "mode": "lazy" if queue.tiers.lazy else "default",
        "converting": queue.converting(),
        "fault": queue.records.fault,
        "messages": int(queue.ready_count()),
        "bytes": int(queue.ready_bytes()),
        "ram_messages": int(queue.tiers.ram_count) + tail_count,
        "ram_bytes": _content_ram_bytes(queue) - int(pending.ram_bytes),
        "memory_bytes": int(queue.ram_bytes()),
        **_runs(queue, count),
        "delta": {
            "messages": int(queue.tiers.delta_count),
            "bytes": int(queue.tiers.delta_bytes),
            "ram_messages": tail_count,
            "start": int(queue.tiers.delta_start) if queue.tiers.delta_count > 0 else None,
            "end": int(queue.tiers.delta_end) if queue.tiers.delta_count > 0 else None,
            **_transients(queue, count),
        },
        "pending": {
            "messages": int(pending.count),
            "bytes": int(pending.bytes),
            "ram_messages": int(pending.ram_count),
            "ram_bytes": int(pending.ram_bytes),
        },
        "delayed": int(queue.tiers.delayed.count()),
        **_persistent(queue, count),
        **_targets(queue),
        "rates": queue.tiers.rates.describe(),
        "next_seq_id": int(queue.records.next_seq_id),
        "next_deliver_seq_id": int(queue.tiers.floor_seq_id()),
    }


def describe_index(queue: VariableQueue) -> Facts:
    """The queue's segments, all together and file by file, oldest first."""
    index = queue.index_or_none()
    segments = [] if index is None else index.segments.values()
    return {
        "bytes": sum(int(segment.size) for segment in segments),
        "messages": 0 if index is None else int(index.live_count),
        "message_bytes": 0 if index is None else int(index.live_bytes),
        "journal_entries": int(queue.journal_only_count()),
        "files": [] if index is None else index.describe(),
    }


def describe_flow(queue: VariableQueue, budget: int) -> Facts:
    """``describe_queue``, and what moves between its parts just now."""
    facts = describe_queue(queue, budget)
    facts["moves"] = queue.tiers.moves.describe()
    facts["permitted_beta_count"] = None
    if queue.tiers.target_ram_bytes != INFINITE:
        facts["permitted_beta_count"] = int(queue.pager.betas_kept())
    facts["reading"] = queue.ahead.is_reading()
    facts["published_to"] = "delta" if queue.tiers.lazy else "q1" if _has_backlog(queue) else "q4"
    facts["served_from"] = (
        "q3" if queue.tiers.q4.count() == 0 and queue.tiers.q3.count() > 0 else "q4"
    )
    return facts


def describe_segments(queue: VariableQueue, at_most: int) -> tuple[list[Facts], int]:
    """The queue's segments, oldest first, and how many in the middle were left out."""
    index = queue.index_or_none()
    if index is None:
        return [], 0
    numbers = sorted(index.segments)
    left_out = max(len(numbers) - at_most, 0)
    if left_out:
        half = at_most // 2
        numbers = [*numbers[:half], *numbers[half - at_most :]]
    return [_segment(index.segments[number], int(index.entries)) for number in numbers], left_out


def _segment(segment: Segment, entries: int) -> Facts:
    """``published``: has a record; ``acked``: is settled; both may be fewer than ``entries``,
    since what passes through never gets here.
    """
    delivered = segment.marks.delivered
    size, garbage = int(segment.size), int(segment.garbage_bytes())
    state = "at rest" if segment.writing == 0 else "writing"
    if segment.rewriting:
        state = "rewriting"
    if segment.failed or segment.left_alone:
        state = "damaged"
    return {
        "name": segment_file_name(int(segment.number)),
        "first_seq_id": int(segment.number) * entries,
        "entries": entries,
        "published": int(segment.count),
        "delivered": 0 if delivered is None else int.from_bytes(delivered).bit_count(),
        "acked": int(segment.count - segment.live_count),
        "messages": int(segment.live_count),
        "bytes": size,
        "synced_bytes": int(segment.synced),
        "garbage_share": round(garbage / max(1, size), 3),
        "state": state,
    }


def _has_backlog(queue: VariableQueue) -> bool:
    return queue.tiers.q3.count() > 0 or queue.tiers.delta_count > 0


def _targets(queue: VariableQueue) -> Facts:
    """What it may keep, how fast it moves, and for how long what is in memory lasts so.

    Targets are in bytes; in messages it is what this is at their present average.
    """
    rate = int(queue.byte_rate())
    held = int(queue.ram_bytes())
    facts: Facts = {
        "target_ram_count": None,
        "target_ram_bytes": None,
        "bytes_per_second": rate,
        "duration_s": round(held / rate, 1) if rate else None,
    }
    target = int(queue.tiers.target_ram_bytes)
    if target != INFINITE:
        count = int(queue.tiers.ram_count) + int(queue.tiers.pending.ram_count)
        facts["target_ram_bytes"] = target
        facts["target_ram_count"] = target * count // held if held else 0
    return facts


def _content_ram_bytes(queue: VariableQueue) -> int:
    """Contents in memory, whatever state they are in: the account without the overhead."""
    objects = queue.tiers.pending.count + queue.tiers.tail.count() + queue.tiers.delayed.count()
    for run in queue.tiers.runs():
        objects += run.count()
    return int(queue.ram_bytes() - objects * MESSAGE_OVERHEAD_BYTES)


def _runs_of(queue: VariableQueue) -> dict[str, MessageDeque]:
    tiers = queue.tiers
    return dict(zip(RUNS, (tiers.q1, tiers.q2, tiers.q3, tiers.q4), strict=True))


def _runs(queue: VariableQueue, count: _Count) -> Facts:
    lengths = {name: int(run.count()) for name, run in _runs_of(queue).items()}
    sizes = {name: counted.bytes for name, counted in count.runs.items()}
    in_ram = {name: counted.ram_messages for name, counted in count.runs.items()}
    for name in ("q1", "q4"):  # alphas: all of them
        in_ram[name] = lengths[name]
    _fill_in(sizes, int(queue.ready_bytes() - queue.tiers.delta_bytes))
    _fill_in(in_ram, int(queue.tiers.ram_count))
    return {
        name: {
            "messages": lengths[name],
            "bytes": sizes.get(name),
            "ram_messages": in_ram.get(name),
        }
        for name in RUNS
    }


def _fill_in(known: dict[str, int], total: int) -> None:
    """The rest is that of the only run that is missing."""
    missing = [name for name in RUNS if name not in known]
    if len(missing) == 1:
        known[missing[0]] = total - sum(known.values())


def _transients(queue: VariableQueue, count: _Count) -> Facts:
    """What of delta a restart would lose: transient messages that were paged out."""
    messages = int(
        queue.tiers.delta_transient_count if queue.records.durable else queue.tiers.delta_count
    )
    size = None
    index = queue.index_or_none()
    if messages == 0:
        size = 0
    elif messages == int(queue.tiers.delta_count):
        size = int(queue.tiers.delta_bytes)
    elif count.tail is not None and (index is None or index.transient_count == 0):
        size = count.tail.bytes - count.tail.persistent_bytes
    # Segments do not count the bytes of their transient messages.
    return {"transient_messages": messages, "transient_bytes": size}


def _persistent(queue: VariableQueue, count: _Count) -> Facts:
    """Messages that a restart brings back, delayed ones too."""
    messages = int(queue.records.persistent_count)
    return {
        "persistent_messages": messages,
        "persistent_bytes": _persistent_bytes(queue, count) if messages else 0,
    }


def _persistent_bytes(queue: VariableQueue, count: _Count) -> int | None:
    delayed, tail = count.delayed, count.tail
    living = queue.ready_count() + queue.tiers.pending.count + queue.tiers.delayed.count()
    if queue.records.persistent_count == living:  # the totals are the answer
        size = int(queue.ready_bytes() + queue.tiers.pending.bytes)
        return None if delayed is None else size + delayed.bytes
    everything = count.everything()
    lost = _transients(queue, count)["transient_bytes"]
    if everything is None or tail is None or not isinstance(lost, int):
        return None
    # Delta's tail is counted in ``everything`` and in delta.
    beside = [part for part in everything if part is not tail]
    return int(queue.tiers.delta_bytes) - lost + sum(part.persistent_bytes for part in beside)
