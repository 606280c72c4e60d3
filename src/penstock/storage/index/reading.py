"""Reads the messages of a queue index back: the lower half of ``QueueIndex``.

``plan_read`` names the blocks that make the next stretch of positions complete, a thread reads
and checks them, ``decode`` makes messages of what still lives.  A block that is still being
written is taken from memory.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.message import (
    INDEXED,
    LOGGED,
    PERSISTENT,
    REDELIVERED,
    Message,
    seq_id_of,
)
from penstock.storage.common.message_record import message_record_end, read_message, record_seq_id
from penstock.storage.index.marks import SegmentMarks
from penstock.storage.index.segment import Block, Segment
from penstock.storage.index.segment_codec import segment_file_name, unfinished_segment_name
from penstock.storage.index.segment_jobs import SegmentRead, SegmentWrite
from penstock.storage.journal.resting import RestingFiles

EVERYTHING: Final[i64] = 1 << 62
NEAR: Final[i64] = 32
"""So many numbers are tried one by one before all segments are looked through."""


@final
class WholeBlock:
    """A block all of whose messages live: how many, their contents' bytes, where it ends."""

    def __init__(self, count: i64, size: i64, upto: i64) -> None:
        self.count: i64 = count
        self.size: i64 = size
        self.upto: i64 = upto


class IndexReading:
    """The segments, and what reading them needs."""

    def __init__(
        self, directory: str, queue_id: i64, entries: i64, durable: bool, resting: RestingFiles
    ) -> None:
        """``resting``: the files of the journal that segments refer to."""
        assert 8 <= entries <= 1 << 20
        self.directory: str = directory
        self.queue_id: i64 = queue_id
        self.entries: i64 = entries
        self.durable: bool = durable
        self.resting: RestingFiles = resting
        self.segments: dict[int, Segment] = {}
        self.redelivered_below: i64 = 0
        self._writes: list[SegmentWrite] = []  # under way

    def path(self, number: i64) -> str:
        return f"{self.directory}/{segment_file_name(int(number))}"

    def unfinished_path(self, number: i64) -> str:
        return f"{self.directory}/{unfinished_segment_name(int(number))}"

    # -- reading ---------------------------------------------------------------------------

    def plan_read(self, start: i64, end: i64, max_bytes: i64) -> SegmentRead | None:
        """The blocks with the first living messages of [start, end); None = there are none.

        The job is not on the board.  ``upto`` of the job may be over ``end`` never.
        """
        last = (end - 1) // self.entries
        segment = self.next_segment(start // self.entries, last)
        while segment is not None:
            if segment.live_count > 0:
                job = self._plan_in(segment, start, end, max_bytes)
                if job is not None:
                    return job
            segment = self.next_segment(segment.number + 1, last)
        return None

    def next_segment(self, number: i64, last: i64) -> Segment | None:
        """The first there is from ``number`` up to and with ``last``.

        Mostly one of the next; but a new term of a mirrored queue is 2**40 positions away.
        """
        near = number + NEAR if number + NEAR < last else last
        while number <= near:
            segment = self.segments.get(int(number))
            if segment is not None:
                return segment
            number += 1
        if number > last:
            return None
        first: i64 = -1
        for there in self.segments:
            if number <= there <= last and (first < 0 or there < first):
                first = there
        return self.segments[int(first)] if first >= 0 else None

    def previous_segment(self, number: i64) -> Segment | None:
        """The last there is up to and with ``number``."""
        least = number - NEAR
        while number > least and number >= 0:
            segment = self.segments.get(int(number))
            if segment is not None:
                return segment
            number -= 1
        last: i64 = -1
        for there in self.segments:
            if last < there <= number:
                last = there
        return self.segments[int(last)] if last >= 0 else None

    def _plan_in(
        self, segment: Segment, start: i64, end: i64, max_bytes: i64
    ) -> SegmentRead | None:
        """Blocks in order of positions until it is enough; overlapping ones come along."""
        base = segment.number * self.entries
        low = start - base if start > base else 0
        chosen: list[Block] = []
        upto: i64 = -1  # last position that is complete
        size: i64 = 0
        for block in segment.blocks:
            if block.last < low:
                continue
            fits = len(chosen) == 0 or size + block.size <= max_bytes
            if block.first > upto and not fits:
                break
            if fits and block.last > upto:
                upto = block.last
            chosen.append(block)
            size += block.size
        if len(chosen) == 0 or chosen[0].first + base >= end:
            return None
        stop = base + upto + 1
        job = SegmentRead(
            segment,
            self.path(segment.number),
            self.unfinished_path(segment.number) if segment.renaming else "",
            self.queue_id,
            base + low,
            stop if stop < end else end,
            self.resting.directory,
        )
        for block in chosen:
            payload = self._being_written(segment, block.offset)
            if payload is None:
                job.add_block(block)
            else:
                job.add_known(block, payload)
        return job

    def _being_written(self, segment: Segment, offset: i64) -> bytes | None:
        for write in self._writes:
            if write.segment is segment:
                payload = write.payload_at(offset)
                if payload is not None:
                    return payload
        return None

    def whole_block(self, start: i64, stop: i64) -> WholeBlock | None:
        """The next block of [start, stop), if it need not be read to know how much it holds.

        None also when there is no other.
        """
        last = (stop - 1) // self.entries
        segment = self.next_segment(start // self.entries, last)
        while segment is not None:
            if segment.live_count > 0:
                base = segment.number * self.entries
                place = segment.first_block_at(start - base)
                if place >= 0:
                    block = segment.blocks[place]
                    if block.first < start - base or block.last >= stop - base:
                        return None
                    if not segment.is_whole(place):
                        return None
                    return WholeBlock(block.count, block.content_bytes, base + block.last + 1)
            segment = self.next_segment(segment.number + 1, last)
        return None

    def decode(
        self, job: SegmentRead, count: i64 = EVERYTHING, size: i64 = EVERYTHING
    ) -> list[Message]:
        """The messages of [start, upto) that live, in order.

        They may end when they are more than ``count`` or their contents more than ``size`` bytes.
        """
        found: list[Message] = []
        segment = job.segment
        marks = segment.marks
        base = segment.number * self.entries
        last: i64 = -1
        ascending = True
        is_bounded = len(job.payloads) == 1  # in one block they ascend
        for payload in job.payloads:
            at: i64 = 0
            end_of_all: i64 = len(payload)
            while at < end_of_all:
                end = message_record_end(payload, at, end_of_all)
                assert end > 0
                seq_id = record_seq_id(payload, at)
                if job.start <= seq_id < job.upto and not marks.is_settled(seq_id - base):
                    if is_bounded and (count < 0 or size < 0):
                        break
                    message = self._read(marks, payload, at, end, seq_id - base, seq_id)
                    found.append(message)
                    count -= 1
                    size -= message.size
                    if seq_id < last:
                        ascending = False
                    last = seq_id
                at = end
        if not ascending:
            found.sort(key=seq_id_of)
        return found

    def _read(
        self, marks: SegmentMarks, payload: bytes, at: i64, end: i64, position: i64, seq_id: i64
    ) -> Message:
        message = read_message(payload, at, end)
        flags = message.flags | INDEXED
        if self.durable and flags & PERSISTENT:
            flags |= LOGGED
        if seq_id < self.redelivered_below or marks.was_delivered(position):
            flags |= REDELIVERED
        message.flags = flags
        if marks.attempts:
            attempts = marks.attempts.get(int(position))
            if attempts is not None:
                message.set_counts(attempts)
        return message

    # -- looking ---------------------------------------------------------------------------

    def first_seq_id(self) -> i64:
        """No living message here is below; -1 = nothing lives here."""
        lowest: i64 = -1
        for number in self.segments:
            segment = self.segments[number]
            if segment.live_count > 0 and (lowest < 0 or number < lowest):
                lowest = number
        if lowest < 0:
            return -1
        segment = self.segments[int(lowest)]
        return lowest * self.entries + segment.blocks[0].first

    def describe(self) -> list[dict[str, object]]:
        """The segment files, oldest first."""
        rows: list[dict[str, object]] = []
        for number in sorted(self.segments):
            segment = self.segments[number]
            garbage, total = segment.garbage_bytes(), segment.total_bytes()
            rows.append(
                {
                    "name": segment_file_name(number),
                    "bytes": int(segment.size),
                    "messages": int(segment.live_count),
                    "settled": int(segment.count - segment.live_count),
                    "garbage_share": round(int(garbage) / max(1, int(total)), 3),
                }
            )
        return rows
