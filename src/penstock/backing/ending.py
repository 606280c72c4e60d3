"""``QueueSettlement``: messages end, one by one or as stretches of positions.

``QueueSettlement`` takes an ended message out of the tiers, reports it to the mirrors, and releases
its records on disk (disk_records.py says in which order).

Delta ends without being read: whole segments go by their counters (``purge``, ``drop_below``), and
a thread reads which contents in the store they named (``ReleaseContentsJob``).  Selected messages
(``drop_some``) leave holes, and of delta the blocks that hold them are read. Delayed messages are
not ready: whatever drops ready ones goes around them.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.backing.message_deque import MessageDeque, ascending
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.tiers import ASIDE, RUN, SEGMENTS, TAIL, TAIL_BYTES, Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import INDEXED, LOGGED, PERSISTENT, STORED, Message
from penstock.storage.index.queue_index import QueueIndex

ACK_RUN_MAX: Final[i64] = 0x7FFF_FFFE
"""A record of the journal ends no longer stretch of positions."""


@final
class QueueSettlement:
    """Of one queue."""

    def __init__(self, records: DiskRecords, tiers: Tiers, ahead: ReadAhead) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._ahead: Final = ahead

    def bury(self, messages: list[Message]) -> list[Message]:
        """Those that were held are gone; returns the others."""
        others: list[Message] = []
        held: list[Message] = []
        for message in messages:
            deferred = self._tiers.delayed.find(message)
            if deferred is None or deferred.place >= 0:
                others.append(message)
            else:
                held.append(message)
        self.end(held, ASIDE)
        return others

    def end(self, messages: list[Message], origin: i64) -> i64:
        """Messages are gone, here, for the mirrors and on disk; returns how many.

        ``origin`` as in ``Tiers.end``.
        """
        if len(messages) > 0:
            flags = self._tiers.end(messages, origin)
            if self._records.notes is not None:
                self._records.notes.ended(messages)
            if flags & (LOGGED | INDEXED | STORED):
                self._records.release(messages, flags)
        return len(messages)

    def purge(self) -> i64:
        return self.drop_below(self._records.next_seq_id)

    def drop_below(self, seq_id: i64) -> i64:
        count = self._drop_below(seq_id)
        self._ahead.look_ahead()
        return count

    def drop_step(self, below: i64, most: i64) -> i64:
        """Segments go whole, then they need not be read: for that, nothing is loaded meanwhile."""
        at = self._tiers.floor_seq_id()
        upto = at + most
        if self._tiers.delta_count > 0:
            if self._tiers.q4.count() == 0 and self._tiers.q3.count() == 0:
                upto = (at // self._records.entries + 1) * self._records.entries
            elif at < self._tiers.delta_start < upto:
                upto = self._tiers.delta_start
        if upto >= below:
            return self.drop_below(below)
        count = self._drop_below(upto)
        if self._tiers.delta_count == 0:
            self._ahead.look_ahead()
        else:
            self._tiers.note_cold()
        return count

    def _drop_below(self, seq_id: i64) -> i64:
        count: i64 = 0
        for run in self._tiers.runs():
            count += self.end(run.take(run.first_at(seq_id) - run.head), RUN)
        # Last, because with the end of delta q2 is joined to q3.
        if self._tiers.delta_count > 0 and self._tiers.delta_start < seq_id:
            if seq_id >= self._records.next_seq_id:
                count += self._drop_delta()
            else:
                count += self.drop_delta_below(seq_id)
        return count

    def _drop_delta(self) -> i64:
        """All of it, unread if segments may go at once, while no run has anything."""
        if self._records.awaits_journal:
            return self.drop_delta_below(self._tiers.delta_end)
        count = self.end(self._tiers.tail.take_all(), TAIL) + self._tiers.delta_count
        self._records.count_out(self._tiers.delta_count - self._tiers.delta_transient_count)
        self._ack_range(self._tiers.delta_start, self._tiers.delta_end)
        if self._records.index is not None:
            # All else that has a record is pending or delayed.
            self._records.index.clear(
                self._tiers.pending.live()
                + self._tiers.delayed.messages()
                + self._records.places_left()
            )
        self._tiers.clear_delta()
        self._ahead.cancel_load()
        return count

    def drop_some(self, seq_ids: list[int]) -> i64:
        """Acknowledge those that are ready of ascending ``seq_ids``; returns how many."""
        return len(self._choose(seq_ids, is_held=False))

    def take_chosen(self, seq_ids: list[int]) -> list[Message]:
        """As ``drop_some``, but they are held until they are acknowledged; returns them."""
        return ascending(self._choose(seq_ids, is_held=True))

    def _choose(self, seq_ids: list[int], *, is_held: bool) -> list[Message]:
        chosen: list[Message] = []
        for run in self._tiers.runs():
            chosen.extend(self._leave(run.take_chosen(seq_ids), RUN, is_held))
        if self._tiers.delta_count > 0:
            tail = self._tiers.tail.take_chosen(seq_ids)
            chosen.extend(self._leave(tail, TAIL, is_held))
            for block in self._chosen_of_delta(seq_ids):
                chosen.extend(self._leave(block, SEGMENTS, is_held))
        self.close_ranks()
        self._ahead.look_ahead()
        return chosen

    def _leave(self, messages: list[Message], origin: i64, is_held: bool) -> list[Message]:
        if is_held:
            self._tiers.hold(messages, origin)
        else:
            self.end(messages, origin)
        return messages

    def _chosen_of_delta(self, seq_ids: list[int]) -> list[list[Message]]:
        """Those among ``seq_ids`` that rest in segments, block by block, read here and now.

        The caller takes them out of delta.  Blocks that hold none of them are not read.
        """
        blocks: list[list[Message]] = []
        index = self._records.index
        if index is None:
            return blocks
        self._ahead.cancel_load()
        chosen = set(seq_ids)
        end = self._tiers.delta_end
        upto = self._tiers.delta_start
        for seq_id in seq_ids:
            if seq_id < upto or seq_id >= end:
                continue  # of a block that has been read, or not in delta
            job = index.plan_read(seq_id, end, 1)
            if job is None:
                break
            upto = job.upto
            if not self._records.look_now(job):
                break
            found = [one for one in self._tiers.decode(job) if int(one.seq_id) in chosen]
            if found:
                blocks.append(found)
        return blocks

    def few_reads(self, seq_ids: list[int], reads_max: i64) -> i64:
        """How many of these, at least one, ``drop_some`` takes with so many reads of the disk.

        By the directory of blocks, as ``drop_some`` will go.
        """
        index = self._records.index
        if index is None or self._tiers.delta_count == 0:
            return len(seq_ids)
        end = self._tiers.delta_end
        upto = self._tiers.delta_start
        for place in range(len(seq_ids)):
            seq_id: i64 = seq_ids[place]
            if seq_id < upto or seq_id >= end:
                continue
            if reads_max == 0:
                return place
            job = index.plan_read(seq_id, end, 1)
            if job is None:
                break
            upto = job.upto
            reads_max -= 1
        return len(seq_ids)

    def _ack_range(self, start: i64, end: i64) -> None:
        """All of these positions but the delayed ones."""
        delayed = [int(message.seq_id) for message in self._tiers.delayed.messages()]
        for seq_id in sorted([seq_id for seq_id in delayed if start <= seq_id < end]):
            if start < seq_id:
                self._ack_stretch(start, seq_id)
            start = seq_id + 1
        if start < end:
            self._ack_stretch(start, end)

    def _ack_stretch(self, start: i64, end: i64) -> None:
        """By one record, if it is not over the 2**40 places between two terms."""
        if self._records.notes is not None:
            self._records.notes.ended_between(start, end)
        if not self._records.durable:
            return
        self._records.journalled()
        if end - start <= ACK_RUN_MAX:
            self._records.engine.journal.ack_run(self._records.queue_id, start, end)
            return
        index = self._records.the_index()
        last = (end - 1) // self._records.entries
        segment = index.next_segment(start // self._records.entries, last)
        while segment is not None:
            first = segment.number * self._records.entries
            upto = first + self._records.entries
            self._records.engine.journal.ack_run(
                self._records.queue_id,
                first if first > start else start,
                upto if upto < end else end,
            )
            segment = index.next_segment(segment.number + 1, last)

    def drop_delta_below(self, seq_id: i64) -> i64:
        """Whole segments unread; the last one, if it goes in part, is read.

        Delta begins where it did if that fails: the journal has what ended there until its file is
        retired, the segment does not.
        """
        failed = self._records.failed_reads
        if seq_id >= self._tiers.delta_end:
            seq_id = self._tiers.delta_end
        tail = self._tiers.tail
        count = self.end(tail.take(tail.first_at(seq_id) - tail.head), TAIL)
        index = self._records.index
        if index is not None and self._tiers.delta_count > 0:
            count += self.drop_segments(index, self._tiers.delta_start, seq_id)
        if self._tiers.delta_count > 0 and self._records.failed_reads == failed:
            self._tiers.cut_delta(seq_id)
        self.close_ranks()
        return count

    def drop_segments(self, index: QueueIndex, start: i64, end: i64) -> i64:
        """Of delta's written part what is in [start, end); by reading where segments may not go."""
        self._ack_range(start, end)
        self._ahead.cancel_load()
        count: i64 = 0
        entries = self._records.entries
        first_whole = (start + entries - 1) // entries * entries
        if first_whole < end and not self._records.awaits_journal:
            count += self._drop_by_reading(start, first_whole)
            live_bytes = index.live_bytes
            transient_count = index.transient_count
            kept = self._tiers.delayed.messages() + self._records.places_left()
            dropped = index.drop_segments(first_whole, end, kept)
            count += dropped
            transient_count -= index.transient_count
            self._records.count_out(dropped - transient_count)
            self._tiers.leave_segments(dropped, transient_count, live_bytes - index.live_bytes)
        return count + self._drop_by_reading(start, end)

    def close_ranks(self) -> None:
        """After messages have left from anywhere."""
        if self._tiers.close_ranks():
            self._ahead.cancel_load()

    def _drop_by_reading(self, start: i64, upto: i64) -> i64:
        """Messages of delta in [start, upto), by reading them."""
        count: i64 = 0
        index = self._records.the_index()
        while start < upto:
            job = index.plan_read(start, upto, TAIL_BYTES)
            if job is None:
                return count
            start = job.upto
            if not self._records.read_now(job):
                return count
            messages = self._tiers.decode(job)
            for message in messages:
                message.flags &= ~LOGGED  # the range is in the journal already
                if message.flags & PERSISTENT:
                    self._records.count_out(1)
            self._tiers.leave_delta(messages)
            self._records.release_kept(messages)
            count += len(messages)
        return count

    def delete(self) -> list[list[Message]]:
        """The queue is gone, on disk too; returns what it had in memory."""
        if self._records.deleted:
            return []
        self._records.begin_delete()
        pieces = [run.take_all() for run in self._tiers.runs_and_tail()]
        pieces += [self._tiers.pending.live(), self._tiers.delayed.messages()]
        for messages in pieces:
            self._records.release_stored(messages)
        self._records.delete()
        self._tiers.clear()
        self._ahead.cancel_load()
        return pieces


def expired_at_head(run: MessageDeque, now_ms: WallMs, at_most: i64) -> i64:
    """How many of the first messages are over their time."""
    count: i64 = 0
    while count < run.count() and count < at_most:
        expires_at_ms = run.messages[run.head + count].expires_at_ms
        if expires_at_ms == 0 or expires_at_ms > now_ms:
            break
        count += 1
    return count
