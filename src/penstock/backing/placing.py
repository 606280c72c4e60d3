"""Messages at given places: the part of ``VariableQueue`` that lets it be somebody's mirror.

A mirror's copy has the master's numbers, with gaps, and nobody takes anything from it: each
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
the journal is new; then segments in which something has ended are given up (``forget_ended``).

**Files of the journal.**  Elsewhere a younger message has a younger record, and ``flush_file``
stops at the first that is too young.  Here an older place may have a younger record.
``_mixed_upto`` says up to which file that may be so; until that file is retired, ``flush_file``
looks at all, for one file at a time.

What ends in delta is read, block by block, as ``drop_some`` does; long stretches go by whole
segments.  In a queue in order the head of delta is at hand before it ends, as for a consumer.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.deferrals import Deferred
from penstock.backing.expiring import ExpiringMessages
from penstock.core.message import INDEXED, PERSISTENT, REDELIVERED, STORED, Message, set_attempts
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import Segment

LONG: Final[i64] = 64
"""A stretch of so many places ends as one, a shorter one place by place."""
A_MOMENT_AGO_MS: Final[i64] = 1
READ_BYTES: Final[i64] = 1024 * 1024


class PlacedMessages(ExpiringMessages):
    """Adds places told by somebody else."""

    def begin_at(self, seq_id: i64) -> None:
        """The next number is at least that."""
        if seq_id > self._next_seq_id:
            self._next_seq_id = seq_id
            self._reserve(seq_id)

    def _begin_pass(self, file_no: i64) -> i64:
        """Of ``flush_file`` over all; returns for which file it is.

        Who asks for a younger one begins anew: the pass left out what was too young for it.
        """
        if file_no > self._pass_file:
            self._pass_file = file_no
            self._flushed_seq_id = 0
        return self._pass_file

    def _end_pass(self) -> None:
        self._pass_file = 0
        self._flushed_seq_id = 0  # some below may be of younger files

    def is_as_found(self) -> bool:
        """The start found it, and nothing has come, ended or been looked at since."""
        ready = self.q4.count() + self.q3.count() + self.q2.count() + self.q1.count()
        here = self.delta_count + self.delayed.count()
        return (
            ready + self.pending.count == 0
            and here == self._found_count
            and self._next_seq_id == self._found_seq_id
        )

    def forget_ended(self) -> i64:
        """Right after the start: segments in which something has ended are given up, unheard of.

        What has ended here may live at the master, if it was never told; and it could not be
        placed into a segment that says it has ended.  Returns how many messages go with them.
        """
        assert self.is_as_found() or self.last_place(self._next_seq_id) < 0, (
            "it has a life behind it"
        )
        self._read = None  # it may be of a segment that goes
        self._engine.board.take_back(self.queue_id)
        index = self.index
        count: i64 = 0
        if index is not None:
            for segment in list(index.segments.values()):
                if segment.settled is not None:
                    count += self._forget_segment(index, segment)
            if self.delta_count == 0:
                self._forget_delta()
            else:
                self.delta_start = index.first_seq_id()
        return count

    def _forget_segment(self, index: QueueIndex, segment: Segment) -> i64:
        start = segment.number * self._entries
        end = start + self._entries
        messages: list[Message] = []
        at = start
        while at < end:
            job = index.plan_read(at, end, READ_BYTES)
            if job is None:
                break
            run_job(job, self._engine.files)
            if self._failed(job):
                return 0
            messages.extend(index.decode(job))
            at = job.upto
        position = self._engine.journal.position
        for message in messages:
            if message.flags & PERSISTENT:
                self._count_out(1)
            deferred = self.delayed.waiting(message.seq_id)
            if deferred is not None:
                self.delayed.end(deferred)
                self._account(-MESSAGE_OVERHEAD_BYTES)
            else:
                self._ready_bytes -= self._leave_delta([message])
            if message.flags & STORED:
                self._store_of(message).remove(message.msg_id, position)
        index.forget_now(segment, self._engine.files)
        return len(messages)

    def resume_at_last(self) -> None:
        """Right after the start: numbers are somebody else's, so none is left out for safety."""
        last = self.last_place(self._next_seq_id)
        self._next_seq_id = last + 1
        self._flushed_seq_id = last + 1  # what comes is in no segment yet
        if self.delta_count > 0:
            self.delta_end = last + 1

    def last_place(self, below: i64) -> i64:
        """``CopiedMessages`` knows how."""
        raise NotImplementedError

    # -- in --------------------------------------------------------------------------------

    def publish_at(self, messages: list[Message], until_ms: i64) -> None:
        """Ascending; with numbers that nothing has or had here, and times of arrival."""
        count: i64 = len(messages)
        below: i64 = 0
        while below < count and messages[below].seq_id < self._next_seq_id:
            below += 1
        if below > 0:
            self._publish_below(messages[:below], until_ms)
        if below < count:
            self._publish_behind(messages[below:], until_ms)

    def _publish_behind(self, messages: list[Message], until_ms: i64) -> None:
        last = messages[len(messages) - 1].seq_id
        size = self._written_at(messages, last + 1)
        if until_ms > 0:
            self._delayed_at(messages, until_ms)
        else:
            self.rates.in_count += len(messages)
            self._append_tail(messages, size)

    def _publish_below(self, messages: list[Message], until_ms: i64) -> None:
        self._written_at(messages, self._next_seq_id)
        self._mixed_upto = self._engine.journal.current.number
        if self._expiring:  # the order of times is not known any more
            self._unordered = True
            self._note_soonest(A_MOMENT_AGO_MS)
        if until_ms > 0:
            self._delayed_at(messages, until_ms)
            return
        before: list[Message] = []
        behind: list[Message] = []
        for message in messages:
            if self._belongs_before(message):
                before.append(message)
            elif self._belongs_in_delta(message):
                self.delayed.add(message, A_MOMENT_AGO_MS)
            else:
                behind.append(message)
        if before:
            self._become_ready(before)
            self._put(before)
        if behind:
            self._become_ready(behind)
            self._put_behind(behind)

    def _written_at(self, messages: list[Message], next_seq_id: i64) -> i64:
        """They are written where need be; returns the bytes of their contents."""
        flags: i64 = 0
        size: i64 = 0
        largest: i64 = 0
        expiring = self._expiring
        for message in messages:
            flags |= message.flags
            size += message.size
            if message.size > largest:
                largest = message.size
            if message.expires_at_ms != 0:
                expiring = True
        if expiring:
            self._note_expiries(messages, self.ready_count() + self.delayed.count())
        self._next_seq_id = next_seq_id
        self._write(messages, flags, size, largest)
        return size

    def _delayed_at(self, messages: list[Message], until_ms: i64) -> None:
        self._defer(messages, until_ms)
        self._note_unsafe(messages[0].seq_id)

    def _write(self, messages: list[Message], flags: i64, size: i64, largest: i64) -> None:
        """Journal, store, counters; ``VariableQueue`` knows how."""
        raise NotImplementedError

    # -- out -------------------------------------------------------------------------------

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
        self._close_ranks()
        self.look_ahead()
        return count

    def _end_few(self, seq_ids: list[int]) -> i64:
        waiting = self._waiting_at(seq_ids)
        if waiting:
            self._let_go(waiting)
        return len(waiting) + self.drop_some(seq_ids)

    def _waiting_at(self, seq_ids: list[int]) -> list[Deferred]:
        waiting: list[Deferred] = []
        if self.delayed.count() > 0:
            for seq_id in seq_ids:
                deferred = self.delayed.waiting(seq_id)
                if deferred is not None:
                    waiting.append(deferred)
        return waiting

    def _end_between(self, start: i64, end: i64) -> i64:
        count = self._end_waiting(start, end)
        for run in [self.q4, self.q3, self.q2, self.q1]:
            count += self._drop(run.take_between(start, end))
        if self.delta_count == 0 or start >= self.delta_end or end <= self.delta_start:
            return count
        count += self._drop_chosen_tail(self.tail.take_between(start, end))
        if self.tail.count() > 0:
            self.delta_end = self.tail.last().seq_id + 1  # V7: nothing is behind the tail
        index = self.index
        if start <= self.delta_start:
            count += self._drop_delta_below(end)
        elif index is not None and self.delta_count > self.tail.count():
            count += self._drop_segments(index, start, self._segments_end(end))
        return count

    def _end_waiting(self, start: i64, end: i64) -> i64:
        waiting: list[Deferred] = []
        if self.delayed.count() > 0:
            within = [m for m in self.delayed.messages() if start <= m.seq_id < end]
            within.sort(key=_seq_id)
            for message in within:
                deferred = self.delayed.waiting(message.seq_id)
                if deferred is not None:
                    waiting.append(deferred)
        if waiting:
            self._let_go(waiting)
        return len(waiting)

    def let_go_at(self, ranges: list[tuple[int, int]]) -> None:
        """As ``end_at``; no mark of theirs reaches the disk before the journal does."""
        messages = self._taken_at(ranges)
        if messages:
            self.ack_behind(messages)

    def _taken_at(self, ranges: list[tuple[int, int]]) -> list[Message]:
        """Held from now on."""
        seq_ids: list[int] = []
        for start, end in ranges:
            seq_ids.extend(range(start, end))
        waiting = self._waiting_at(seq_ids)
        messages = [deferred.message for deferred in waiting]
        for deferred in waiting:
            self.delayed.take(deferred)
        return messages + self.take_chosen(0, seq_ids)

    # -- other words -----------------------------------------------------------------------

    def delay_at(self, ranges: list[tuple[int, int]], until_ms: i64) -> None:
        """Whatever is at these places is not ready before that time."""
        messages = self._taken_at(ranges)
        for message in messages:
            deferred = self.delayed.find(message)
            assert deferred is not None
            self.delayed.end(deferred)
            message.flags |= REDELIVERED
        if messages:
            self._defer(messages, until_ms)
        for message in messages:
            if message.flags & INDEXED:
                self._the_index().set_delay(message.seq_id, until_ms)

    def count_at(self, counts: list[tuple[int, int]]) -> None:
        """(seq_id, attempts) of some; what is not here is left out."""
        messages: list[Message] = []
        for seq_id, attempts in counts:
            deferred = self.delayed.waiting(seq_id)
            found = [] if deferred is None else [deferred.message]
            if deferred is None:
                found = self.peek_range(seq_id, seq_id + 1, 1, 1)
            for message in found:
                set_attempts(message, attempts)
                messages.append(message)
        if messages:
            self.note_attempts(messages)

    def take_all_back(self) -> None:
        """What somebody held, for whatever purpose, is here again; nobody may name it any more."""
        for deferred in self.delayed.held():
            if deferred.due_ms == 0:
                deferred.due_ms = A_MOMENT_AGO_MS
            self.delayed.wait_on(deferred)
        self.requeue(self.pending.live())

    def redeliver_all(self) -> None:
        """Nobody knows what of this was handed out by somebody else, nor what expires first."""
        if self._expiring:
            self._unordered = True
            self._note_soonest(A_MOMENT_AGO_MS)
        index = self.index
        if index is not None:
            index.redelivered_below = self._next_seq_id
        for run in [self.q4, self.q3, self.tail, self.q2, self.q1]:
            for message in run.live():
                message.flags |= REDELIVERED
        for message in self.delayed.messages():
            message.flags |= REDELIVERED


def _seq_id(message: Message) -> int:
    return int(message.seq_id)
