"""``ReplicaWriter``: messages at given places, as a mirror's copy of a queue has them.

A mirror's copy has the master's numbers, with gaps, and no consumer takes from it: each
message is ready or delayed.  Where a master is told *which tokens* came back, a mirror is told
*which places* have ended, wherever they rest here:

    publish_at    new ─────────────► ready or delayed, at the places it brings
    end_at        ready, delayed ──► gone
    let_go_at     the same, of what lives on elsewhere as something published a moment ago
    delay_at      ready, delayed ──► delayed until then
    count_at      attempts of any of them

**Below others.**  What a synchronisation brings is older than what was heard meanwhile.  It goes
to one of the three places of released messages (delaying.py).  Within delta it cannot always go at
once (its content is not in the message store yet, its segment is being rewritten): so it waits
there as if it had been delayed until a moment ago, and ``release_due`` brings it home.  That is
why ``publish_at`` wants ``release_due`` to be called some time later.

**No place lives twice.**  A place that has ended may not be used again while the journal or a
segment says so, and the journal says so as long as this life goes on.  So a copy that does not
know any more what it has (replica.py) either begins with an empty queue, or after a start, when
the journal is new; then segments in which something has ended are given up (``forget_some``).

What ends in delta is read, block by block, as ``drop_some`` does; long stretches go by whole
segments.  In a queue in order the head of delta is at hand before it ends, as for a consumer.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.checkpointing import Checkpoint
from penstock.backing.copying import ReplicaReader
from penstock.backing.deferrals import Deferred
from penstock.backing.delaying import QueueDelays
from penstock.backing.disk_records import DiskRecords
from penstock.backing.ending import QueueSettlement
from penstock.backing.expiry_times import ExpiryTimes
from penstock.backing.paging import Pager
from penstock.backing.peeking import RangeReader
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.tiers import ASIDE, RUN, TAIL, Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import (
    INDEXED,
    PERSISTENT,
    STORED,
    Message,
    mark_redelivered,
    seq_id_of,
)
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import Segment

LONG: Final[i64] = 64
"""A stretch of so many places ends as one, a shorter one place by place."""
A_MOMENT_AGO_MS: Final = WallMs(1)
READ_BYTES: Final[i64] = 1024 * 1024


@final
class ReplicaWriter:
    """Of one queue."""

    def __init__(
        self,
        records: DiskRecords,
        tiers: Tiers,
        times: ExpiryTimes,
        ahead: ReadAhead,
        reads: RangeReader,
        pager: Pager,
        settlement: QueueSettlement,
        delays: QueueDelays,
        checkpoint: Checkpoint,
        copies: ReplicaReader,
    ) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._times: Final = times
        self._ahead: Final = ahead
        self._reads: Final = reads
        self._pager: Final = pager
        self._settlement: Final = settlement
        self._delays: Final = delays
        self._checkpoint: Final = checkpoint
        self._copies: Final = copies
        self._doubtful: list[Segment] = []  # to be given up
        self._living: list[Message] = []  # of the last of these, as far as it was read
        self._read_upto: i64 = 0

    def begin_copy(self) -> None:
        """Of a mirror, until ``begin_master``: messages rest on the disk, and are not read."""
        self._ahead.rest(True)
        self._checkpoint.cool(True)

    def begin_at(self, seq_id: i64) -> None:
        """The next number is at least that."""
        if seq_id > self._records.next_seq_id:
            self._records.advance(seq_id)

    def is_as_found(self) -> bool:
        """The start found it, and nothing has come, ended or been looked at since."""
        here = self._tiers.delta_count + self._tiers.delayed.count()
        return (
            self._tiers.ready_count() == self._tiers.delta_count
            and self._tiers.pending.count == 0
            and here == self._records.found_count
            and self._records.next_seq_id == self._records.found_seq_id
        )

    def is_fresh(self) -> bool:
        """As the start found it, or empty."""
        return self.is_as_found() or self._copies.last_place(self._records.next_seq_id) < 0

    def begin_to_forget(self) -> None:
        """Right after the start: segments in which something has ended are to be given up.

        What has ended here may live at the master, if it was never told; and it could not be
        placed into a segment that says it has ended.  Nothing else is done here until all are gone.
        """
        assert self.is_fresh(), "it has a life behind it"
        index = self._records.index
        if index is not None:
            for segment in index.segments.values():
                if segment.marks.settled is not None:
                    self._doubtful.append(segment)

    def is_forgetting(self) -> bool:
        return len(self._doubtful) > 0

    def forget_some(self) -> bool:
        """Read some of a segment, or give it up; False = not now: its disk fails, or writes it."""
        self._ahead.cancel_load()  # it may be of a segment that goes
        self._records.engine.board.take_back(self._records.queue_id)
        segment = self._doubtful[len(self._doubtful) - 1]
        index = self._records.index
        if index is None or segment.writing > 0 or self._records.fault != "":
            return False
        start = segment.number * self._records.entries
        end = start + self._records.entries
        at = start if self._read_upto < start else self._read_upto
        job = index.plan_read(at, end, READ_BYTES) if at < end else None
        if job is None:
            self._forget(index, segment, self._living)
            self._doubtful.pop()
            self._living = []
            self._read_upto = 0
            return True
        if not self._records.read_now(job):
            return False
        self._living.extend(index.decode(job))
        self._read_upto = job.upto
        return True

    def _forget(self, index: QueueIndex, segment: Segment, messages: list[Message]) -> None:
        """``messages``: all that live in it."""
        position = self._records.engine.journal.position
        for message in messages:
            if message.flags & PERSISTENT:
                self._records.count_out(1)
            deferred = self._tiers.delayed.waiting(message.seq_id)
            if deferred is not None:
                self._tiers.delayed.end(deferred.message)
                self._tiers.account(-MESSAGE_OVERHEAD_BYTES)
            else:
                self._tiers.leave_delta([message])
            if message.flags & STORED:
                self._records.store_of(message).remove(message.msg_id, position)
        index.forget_now(segment, self._records.engine.files)
        if self._tiers.delta_count == 0:
            self._tiers.clear_delta()
        else:
            self._tiers.cut_delta(index.first_seq_id())

    def resume_at_last(self) -> None:
        """Right after the start: the master gives the numbers, so none is left out for safety."""
        last = self._copies.last_place(self._records.next_seq_id)
        self._records.resume_at(last + 1)
        self._tiers.resume_at(last + 1)

    def publish_at(self, messages: list[Message], until_ms: WallMs) -> None:
        """Ascending; with numbers that nothing has or had here, and times of arrival."""
        count: i64 = len(messages)
        below: i64 = 0
        while below < count and messages[below].seq_id < self._records.next_seq_id:
            below += 1
        if below > 0:
            self._publish_below(messages[:below], until_ms)
        if below < count:
            self._publish_behind(messages[below:], until_ms)

    def _publish_behind(self, messages: list[Message], until_ms: WallMs) -> None:
        last = messages[len(messages) - 1].seq_id
        size = self._written_at(messages, last + 1)
        if until_ms > 0:
            self._delays.defer_new(messages, size, until_ms)
        elif self._tiers.add(messages, size):
            self._pager.flush_tail()

    def _publish_below(self, messages: list[Message], until_ms: WallMs) -> None:
        size = self._written_at(messages, self._records.next_seq_id)
        self._checkpoint.note_mixed()
        self._times.note_disorder()
        if until_ms > 0:
            self._delays.defer_new(messages, size, until_ms)
            return
        self._tiers.account(size + len(messages) * MESSAGE_OVERHEAD_BYTES)
        before: list[Message] = []
        behind: list[Message] = []
        for message in messages:
            if self._tiers.belongs_before(message):
                before.append(message)
            elif self._tiers.belongs_in_delta(message):
                self._tiers.own_delayed().add(message, A_MOMENT_AGO_MS)
            else:
                behind.append(message)
        self._tiers.put(before)
        self._tiers.put_behind(behind)

    def _written_at(self, messages: list[Message], next_seq_id: i64) -> i64:
        """They are written where need be; returns the bytes of their contents."""
        flags: i64 = 0
        size: i64 = 0
        largest: i64 = 0
        expiring = self._times.expiring
        for message in messages:
            flags |= message.flags
            size += message.size
            if message.size > largest:
                largest = message.size
            if message.expires_at_ms != 0:
                expiring = True
        if expiring:
            self._times.note_new(messages, self._tiers.ready_count() + self._tiers.delayed.count())
        self._records.write(messages, flags, largest, next_seq_id)
        return size

    def end_at(self, ranges: list[tuple[int, int]]) -> i64:
        """Whatever is at these ascending places is gone; returns how many there were."""
        count: i64 = 0
        few: list[int] = []
        for start, end in ranges:
            if end - start > LONG:
                count += self._end_between(start, end)
            else:
                few.extend(range(start, end))
        if few:
            count += self._end_few(few)
        self._settlement.close_ranks()
        self._ahead.look_ahead()
        return count

    def _end_few(self, seq_ids: list[int]) -> i64:
        waiting = [deferred.message for deferred in self._waiting_at(seq_ids)]
        return self._settlement.end(waiting, ASIDE) + self._settlement.drop_some(seq_ids)

    def _waiting_at(self, seq_ids: list[int]) -> list[Deferred]:
        waiting: list[Deferred] = []
        if self._tiers.delayed.count() > 0:
            for seq_id in seq_ids:
                deferred = self._tiers.delayed.waiting(seq_id)
                if deferred is not None:
                    waiting.append(deferred)
        return waiting

    def _end_between(self, start: i64, end: i64) -> i64:
        delayed = self._tiers.delayed
        waiting = [
            message
            for message in (delayed.messages() if delayed.count() > 0 else [])
            if start <= message.seq_id < end and delayed.waiting(message.seq_id) is not None
        ]
        waiting.sort(key=seq_id_of)
        count = self._settlement.end(waiting, ASIDE)
        for run in self._tiers.runs():
            count += self._settlement.end(run.take_between(start, end), RUN)
        if (
            self._tiers.delta_count == 0
            or start >= self._tiers.delta_end
            or end <= self._tiers.delta_start
        ):
            return count
        count += self._settlement.end(self._tiers.tail.take_between(start, end), TAIL)
        index = self._records.index
        if start <= self._tiers.delta_start:
            count += self._settlement.drop_delta_below(end)
        elif index is not None and self._tiers.delta_count > self._tiers.tail.count():
            count += self._settlement.drop_segments(index, start, self._tiers.segments_end(end))
        return count

    def taken_at(self, ranges: list[tuple[int, int]]) -> list[Message]:
        """Held from now on."""
        seq_ids: list[int] = []
        for start, end in ranges:
            seq_ids.extend(range(start, end))
        waiting = self._waiting_at(seq_ids)
        messages = [deferred.message for deferred in waiting]
        for deferred in waiting:
            self._tiers.delayed.take(deferred)
        return messages + self._settlement.take_chosen(seq_ids)

    def delay_at(self, ranges: list[tuple[int, int]], until_ms: WallMs) -> None:
        """Whatever is at these places is not ready before that time."""
        messages = self.taken_at(ranges)
        for message in messages:
            self._tiers.delayed.end(message)
        mark_redelivered(messages)
        if messages:
            self._delays.defer(messages, until_ms)
        for message in messages:
            if message.flags & INDEXED:
                self._records.the_index().set_delay(message.seq_id, until_ms)

    def count_at(self, counts: list[tuple[int, int]]) -> None:
        """(seq_id, attempts and returns) of some; what is not here is left out."""
        messages: list[Message] = []
        for seq_id, both in counts:
            deferred = self._tiers.delayed.waiting(seq_id)
            found = [] if deferred is None else [deferred.message]
            if deferred is None:
                found = self._reads.peek_range(seq_id, seq_id + 1, 1, 1)
            for message in found:
                message.set_counts(both)
                messages.append(message)
        if messages:
            self._records.note_attempts(messages)

    def take_all_back(self) -> None:
        """Held and pending messages wait or are ready again; their tokens are void."""
        self._tiers.delayed.wait_again(A_MOMENT_AGO_MS)
        pending = self._tiers.pending.live()
        if pending:
            self._tiers.requeue(pending)
            self._ahead.look_ahead()

    def begin_master(self) -> None:
        """Of a master from now on: messages come into memory again, all of them redelivered.

        What the former one handed out of this is not known, nor what expires first.
        """
        self._ahead.rest(False)
        self._checkpoint.cool(False)
        self._times.note_disorder()
        index = self._records.index
        if index is not None:
            index.redelivered_below = self._records.next_seq_id
        for run in self._tiers.runs_and_tail():
            mark_redelivered(run.live())
        mark_redelivered(self._tiers.delayed.messages())
