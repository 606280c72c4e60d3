"""``ReplicaReader``: what a synchronisation of mirrors reads of a queue.

A copy must have every message of the set, in any state: ready, unacknowledged, delayed, or dropped
with its end not on disk yet.  The verbs read by sequence id and change nothing:

    places        which numbers live in a stretch
    last_place    where the next one below is, or may be
    messages_at   some of them, with their contents
    delays_at     until when those of them wait that do
    attempts_at   how often they were handed out, as far as that is at hand

Which places of delta live is known from its segments, without reading, as long as a block has a
record at each of its places; others are read.  Everything is read here and now: callers ask for
little at a time.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.backing.message_deque import MessageDeque, ascending
from penstock.backing.peeking import RangeReader
from penstock.backing.tiers import Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import Message, counts_in
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import Segment

NEAR: Final[i64] = 32
"""So many places or segments are tried one by one before all are looked through."""
BLOCKS_BYTES: Final[i64] = 1024 * 1024
EVERY_ONE: Final[i64] = 1 << 50
SPAN_GAP: Final[i64] = 64
"""Places no further apart are looked for together."""


@final
class ReplicaReader:
    """Of one queue."""

    def __init__(self, records: DiskRecords, tiers: Tiers, reads: RangeReader) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._reads: Final = reads

    def places(self, start: i64, end: i64) -> list[int]:
        """Ascending, of all that live in [start, end), of whatever state."""
        found: list[int] = []
        for run in self._tiers.runs_and_tail():
            self._run_places(run, start, end, found)
        if self._tiers.pending.count > 0 and self._tiers.pending.highest_seq_id >= start:
            found.extend(_within(self._tiers.pending.live(), start, end))
        self._delayed_places(start, end, found)
        if self._tiers.delta_count > self._tiers.tail.count():
            self._delta_places(start, end, found)
        found.sort()
        return found

    def _run_places(self, run: MessageDeque, start: i64, end: i64, found: list[int]) -> None:
        place = run.first_at(start)
        while place < len(run.messages) and run.messages[place].seq_id < end:
            found.append(int(run.messages[place].seq_id))
            place += 1

    def _delayed_places(self, start: i64, end: i64, found: list[int]) -> None:
        delayed = self._tiers.delayed
        if delayed.count() < end - start:
            found.extend(_within(delayed.messages(), start, end))
        else:
            found.extend([place for place in range(int(start), int(end)) if delayed.has(place)])

    def _delta_places(self, start: i64, end: i64, found: list[int]) -> None:
        index = self._records.index
        if start < self._tiers.delta_start:
            start = self._tiers.delta_start
        end = self._tiers.segments_end(end)
        if index is None or start >= end:
            return
        delayed = self._tiers.delayed
        left = {int(message.seq_id) for message in self._records.places_left()}
        last = (end - 1) // self._records.entries
        segment = index.next_segment(start // self._records.entries, last)
        while segment is not None:
            if segment.live_count > 0:
                living = self._segment_places(index, segment, start, end)
                found.extend([one for one in living if one not in left and not delayed.has(one)])
            segment = index.next_segment(segment.number + 1, last)

    def _segment_places(
        self, index: QueueIndex, segment: Segment, start: i64, end: i64
    ) -> list[int]:
        base = segment.number * self._records.entries
        found: list[int] = []
        for block in segment.blocks:
            if base + block.last < start or base + block.first >= end:
                continue
            if block.count < block.last - block.first + 1:
                return self._read_places(index, segment, start, end)
            low = start - base if start - base > block.first else block.first
            high = end - base if end - base <= block.last else block.last + 1
            while low < high:
                if not segment.marks.is_settled(low):
                    found.append(int(base + low))
                low += 1
        return found

    def _read_places(self, index: QueueIndex, segment: Segment, start: i64, end: i64) -> list[int]:
        """Some block has gaps: its records say where they are."""
        base = segment.number * self._records.entries
        if start < base:
            start = base
        if end > base + self._records.entries:
            end = base + self._records.entries
        found: list[int] = []
        while start < end:
            job = index.plan_read(start, end, BLOCKS_BYTES)
            if job is None:
                break
            if not self._records.look_now(job):
                break
            found.extend([int(message.seq_id) for message in index.decode(job)])
            start = job.upto
        return found

    def last_place(self, below: i64) -> i64:
        """No message has a number from behind this up to ``below``; -1 = none is below at all."""
        best: i64 = -1
        for run in self._tiers.runs_and_tail():
            place = run.first_at(below) - 1
            if place >= run.head and run.messages[place].seq_id > best:
                best = run.messages[place].seq_id
        best = self._last_in_delta(below, best)
        if self._tiers.pending.count > 0 and self._tiers.pending.highest_seq_id > best:
            for message in self._tiers.pending.live():
                if best < message.seq_id < below:
                    best = message.seq_id
        return self._last_delayed(below, best)

    def _last_delayed(self, below: i64, best: i64) -> i64:
        if self._tiers.delayed.count() == 0:
            return best
        near = below - 1
        while near > best and near >= below - NEAR:
            if self._tiers.delayed.has(int(near)):
                return near
            near -= 1
        if near > best:
            for message in self._tiers.delayed.messages():
                if best < message.seq_id < below:
                    best = message.seq_id
        return best

    def _last_in_delta(self, below: i64, best: i64) -> i64:
        index = self._records.index
        if (
            index is None
            or self._tiers.delta_count == self._tiers.tail.count()
            or below <= self._tiers.delta_start
        ):
            return best
        number = (self._tiers.segments_end(below) - 1) // self._records.entries
        segment = index.previous_segment(number)
        while segment is not None:
            found = _last_below(segment, below)
            if found > best or segment.number * self._records.entries <= best:
                return found if found > best else best
            segment = index.previous_segment(segment.number - 1)
        return best

    def messages_at(self, seq_ids: list[int], max_bytes: i64) -> list[Message]:
        """Of these ascending places the last that fit, at least one; with their contents.

        Fewer, up to the first that cannot be read: then the queue has a fault.
        """
        chosen = set(seq_ids)
        found: list[Message] = []
        if self._tiers.pending.count > 0 and self._tiers.pending.highest_seq_id >= seq_ids[0]:
            found.extend([one for one in self._tiers.pending.live() if int(one.seq_id) in chosen])
        if self._tiers.delayed.count() > 0:
            found.extend(self._tiers.delayed.some_at(seq_ids))
        if len(found) < len(seq_ids):
            self._find_ready(seq_ids, chosen, found)
        found = ascending(found)
        first: i64 = len(found) - 1
        while first > 0 and max_bytes >= found[first].size + found[first - 1].size:
            max_bytes -= found[first].size
            first -= 1
        return self._reads.with_contents(found[first:] if first > 0 else found)

    def _find_ready(self, seq_ids: list[int], chosen: set[int], found: list[Message]) -> None:
        count: i64 = len(seq_ids)
        first: i64 = 0
        while first < count:
            end = first + 1
            while end < count and seq_ids[end] - seq_ids[end - 1] <= SPAN_GAP:
                end += 1
            span = self._reads.peek_range(
                seq_ids[first], seq_ids[end - 1] + 1, EVERY_ONE, EVERY_ONE
            )
            found.extend([message for message in span if int(message.seq_id) in chosen])
            first = end

    def attempts_at(self, seq_ids: list[int]) -> list[tuple[int, int]]:
        """(seq_id, attempts and returns) of those among them that were counted in this life.

        What only a record in a segment says is not read for it.
        """
        chosen = set(seq_ids)
        held = self._tiers.pending.live() + self._tiers.delayed.some_at(seq_ids)
        for run in self._tiers.runs_and_tail():
            start = run.first_at(seq_ids[0])
            end = run.first_at(seq_ids[len(seq_ids) - 1] + 1)
            held.extend(run.messages[start:end])
        found = [
            (int(message.seq_id), int(counts_in(message.flags)))
            for message in held
            if counts_in(message.flags) > 0 and int(message.seq_id) in chosen
        ]
        if self._records.index is not None and self._tiers.delta_count > 0:
            entries = int(self._records.entries)
            for seq_id in seq_ids:
                segment = self._records.index.segments.get(seq_id // entries)
                if (
                    segment is not None
                    and self._tiers.delta_start <= seq_id < self._tiers.delta_end
                ):
                    attempts = segment.marks.attempts.get(seq_id % entries, 0)
                    if attempts > 0 and not self._tiers.delayed.has(seq_id):
                        found.append((seq_id, attempts))
        return found

    def waiting_places(self, start: i64, end: i64) -> list[int]:
        """Of what waits for its time in [start, end)."""
        found = _within(self._tiers.delayed.messages(), start, end)
        return sorted(
            [seq_id for seq_id in found if self._tiers.delayed.waiting(seq_id) is not None]
        )

    def delays_at(self, seq_ids: list[int]) -> list[tuple[int, WallMs]]:
        """(seq_id, not before) of those among them that wait for their time, or did when taken."""
        found: list[tuple[int, WallMs]] = []
        if self._tiers.delayed.count() > 0:
            for seq_id in seq_ids:
                until_ms = self._tiers.delayed.due_ms_at(seq_id)
                if until_ms > 0:
                    found.append((seq_id, until_ms))
        return found


def _within(messages: list[Message], start: i64, end: i64) -> list[int]:
    return [int(message.seq_id) for message in messages if start <= message.seq_id < end]


def _last_below(segment: Segment, below: i64) -> i64:
    """The last place that a block of it may have; -1 = none begins below."""
    base = segment.number * segment.entries
    found: i64 = -1
    for block in segment.blocks:
        last = base + block.last if base + block.last < below else below - 1
        if base + block.first < below and last > found:
            found = last
    return found
