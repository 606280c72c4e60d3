"""Messages that come back: the part of ``VariableQueue`` that gives them a place again.

    requeue          pending ─► ready, at the place it had
    requeue_to_tail  pending ─► ready, with a new seq_id behind all others
    delay            pending ─► delayed ─► (``release_due``) ready, at the place it had

**To the tail.**  The journal gets one record that settles the old place and one that makes the
new, in one group, so a crash finds the message once, at the old place or at the new.  A content
in the message store is not written again and keeps its one reference; the attempts counted in
the flags travel along.

Until that group is synced the record of the old place, if a segment has one, is left as it
is: a mark or a removed file that reached the disk before the journal would lose the message.

**Delayed** messages are positions in memory and a heap of times.  Their contents leave memory
like those of unacknowledged ones.  The time is in the journal, and in the marks of the segment
once the message rests there, so it survives a kill and a clean stop; after a start the delayed
are read in and found again.  A delayed message may lie within delta's bounds without being part
of delta: what reads delta leaves it out, what drops delta goes around it.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from penstock.backing.ending import EndingMessages
from penstock.backing.runs import ascending
from penstock.core.message import (
    INDEXED,
    LOGGED,
    PENDING,
    PERSISTENT,
    REDELIVERED,
    STORED,
    Message,
)
from penstock.storage.disk_jobs import run_job
from penstock.storage.queue_index import QueueIndex
from penstock.storage.ram import MESSAGE_OVERHEAD_BYTES

READ_BYTES: Final[i64] = 1024 * 1024


class ReturningMessages(EndingMessages):
    """Adds the ways back."""

    def unfetch(self, messages: list[Message]) -> None:
        if messages:
            count: i64 = len(messages)
            before = self._ready_bytes
            self._came_back(messages)
            self.rates.out_count -= count
            self.rates.ack_in_count -= count
            self.rates.left_bytes -= self._ready_bytes - before + count * MESSAGE_OVERHEAD_BYTES
            self._put(messages)

    def _came_back(self, messages: list[Message]) -> None:
        """From pending to ready, as far as counters go."""
        self._leave_pending(messages)
        self._become_ready(messages)

    def _leave_pending(self, messages: list[Message]) -> None:
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        for message in messages:
            message.flags &= ~PENDING
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        self.pending.remove(len(messages), size, ram_count, ram_bytes)
        self.pending.came_back()

    def _become_ready(self, messages: list[Message]) -> None:
        size: i64 = 0
        ram_count: i64 = 0
        for message in messages:
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
        self._ready_bytes += size
        self._ram_count += ram_count
        self._trimmed_count += len(messages) - ram_count
        if self._expiring:
            self._note_return(messages)

    def _note_return(self, messages: list[Message]) -> None:
        """These are ready again; ``ExpiringMessages`` knows when their time is over."""
        raise NotImplementedError

    def _note_expiries(self, messages: list[Message], before: i64) -> None:
        """New at the tail, some with a time; ``before`` were here, of whatever state."""
        raise NotImplementedError

    def _put(self, messages: list[Message]) -> None:
        """Ascending messages to their original places; all of them are before delta."""
        if messages[0].seq_id < self._flushed_seq_id:
            self._flushed_seq_id = messages[0].seq_id
        place: i64 = 0
        count: i64 = len(messages)
        if not self.lazy or self.q4.count() > 0:
            place = self._end_of_alphas(messages)
        if place < count:
            if self.q4.count() > 0 and messages[place].seq_id < self.q4.last().seq_id:
                # A beta must not stand between alphas: those behind it become betas.
                behind = len(self.q4.messages) - self.q4.first_at(messages[place].seq_id)
                self.q3.put_back(self.q4.take_last(behind))
            self.q3.merge(messages[place:])
        self.q4.merge(messages[:place])

    def _end_of_alphas(self, messages: list[Message]) -> i64:
        """How many of the first belong to q4: contents at hand, and before the first of q3."""
        place: i64 = 0
        count: i64 = len(messages)
        limit: i64 = self.q3.first().seq_id if self.q3.count() > 0 else self._next_seq_id
        while place < count:
            message = messages[place]
            if message.seq_id > limit or len(message.content) == 0:
                break
            place += 1
        return place

    def _append_tail(self, messages: list[Message], size: i64) -> None:
        """New ones, contents at hand, behind all others; ``VariableQueue`` knows how."""
        raise NotImplementedError

    def _reserve(self, next_seq_id: i64) -> None:
        raise NotImplementedError

    # -- to the tail -----------------------------------------------------------------------

    def requeue_to_tail(self, messages: list[Message], now_ms: i64) -> None:
        """Pending becomes ready behind all others, as a new arrival with a new ``seq_id``.

        What cannot be read any more (the queue has a fault then) goes back to its old place.
        """
        moved: list[Message] = []
        lost: list[Message] = []
        for message in messages:
            if len(message.content) > 0 or self._read_content(message):
                moved.append(message)
            else:
                lost.append(message)
        if lost:
            self.requeue(lost)
        if moved:
            self._leave_pending(moved)
            self._move(moved, now_ms)
            self.look_ahead()

    def requeue(self, messages: list[Message]) -> None:
        if messages:
            self._came_back(messages)
            for message in messages:
                message.flags |= REDELIVERED
            self._put(ascending(messages))
            self.look_ahead()

    def _read_content(self, message: Message) -> bool:
        """It had lost it to the disk; here and now."""
        content = self._content_now(message)
        if len(content) == 0:
            return False
        message.content = content
        self.pending.regained(message.size)
        self._account(message.size)
        return True

    def _move(self, messages: list[Message], now_ms: i64) -> None:
        journal = self._engine.journal
        seq_id = self._next_seq_id
        first = seq_id
        self._next_seq_id = seq_id + len(messages)
        self._reserve(self._next_seq_id)
        size: i64 = 0
        logged: i64 = 0
        left: list[Message] = []
        for message in messages:
            old_seq_id = message.seq_id
            if message.flags & INDEXED:
                left.append(_old_place(message))
            message.flags = (message.flags | REDELIVERED) & ~INDEXED
            message.seq_id = seq_id
            message.enqueued_at_ms = now_ms
            if message.flags & LOGGED:
                journal.to_tail(self.queue_id, message, old_seq_id)
                logged += 1
            seq_id += 1
            size += message.size
        if logged > 0:
            self._journalled(logged)
            self._moves.append((int(first), int(journal.position)))
        if left:
            self._left.append((int(journal.position), left))
            self._settle_left()
        if self._expiring:
            self._note_expiries(messages, len(messages))
        self._append_tail(messages, size)

    # -- delay -----------------------------------------------------------------------------

    def delay(self, messages: list[Message], until_ms: i64) -> None:
        """Pending becomes delayed: not ready before that time."""
        if len(messages) == 0:
            return
        self._leave_pending(messages)
        journal = self._engine.journal
        logged: i64 = 0
        for message in messages:
            message.flags |= REDELIVERED
            if message.flags & LOGGED:
                journal.delay(self.queue_id, message.seq_id, until_ms)
                logged += 1
            self._hold(message, until_ms)
            if len(message.content) > 0:
                self._delayed_ram[int(message.seq_id)] = message
            if message.seq_id > self._delayed_highest:
                self._delayed_highest = message.seq_id
        if logged > 0:
            self._journalled(logged)
        self._index_delays(messages)

    def publish_delayed(self, messages: list[Message], until_ms: i64, now_ms: i64) -> None:
        """New ones, delayed from the start."""
        raise NotImplementedError

    def drop_delayed(self) -> i64:
        """Those that are delayed are gone; returns how many."""
        raise NotImplementedError

    def take_delayed(self) -> list[tuple[Message, int]]:
        """Delayed become pending, each with the time it waited for; contents at hand."""
        raise NotImplementedError

    def note_attempts(self, messages: list[Message]) -> None:
        """The attempts counted in the flags of these pending messages have changed."""
        raise NotImplementedError

    def _hold(self, message: Message, until_ms: i64) -> None:
        seq_id = int(message.seq_id)
        self.delayed[seq_id] = message
        self._delayed_until[seq_id] = int(until_ms)
        heappush(self._delay_heap, (int(until_ms), seq_id))

    def count_delayed(self) -> i64:
        return len(self.delayed) - len(self.dying)

    def next_due_ms(self) -> i64:
        """When ``release_due`` should be called next; 0 = nothing is delayed."""
        heap = self._delay_heap
        while heap and self._delayed_until.get(heap[0][1], -1) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else 0

    def release_due(self, now_ms: i64) -> i64:
        """What is due becomes ready at the place it had; returns how many."""
        due: list[Message] = []
        heap = self._delay_heap
        while heap and heap[0][0] <= now_ms:
            until_ms, seq_id = heappop(heap)
            if self._delayed_until.get(seq_id, -1) == until_ms:
                due.append(self._release(seq_id))
        if due:
            self._put_released(ascending(due))
            self.look_ahead()
        return len(due)

    def _release(self, seq_id: int) -> Message:
        message = self.delayed.pop(seq_id)
        del self._delayed_until[seq_id]
        self._delayed_ram.pop(seq_id, None)
        if len(self.delayed) == 0:
            self._delayed_highest = -1
        if message.flags & LOGGED:
            self._engine.journal.delay(self.queue_id, seq_id, 0)
            self._journalled(1)
        if message.flags & INDEXED:
            self._the_index().set_delay(seq_id, 0)
        return message

    def _put_released(self, messages: list[Message]) -> None:
        outside: list[Message] = []
        for message in messages:
            if self.delta_count > 0 and self.delta_start <= message.seq_id < self.delta_end:
                self._back_into_delta(message)
            else:
                outside.append(message)
        if outside:
            self._become_ready(outside)
            self._put(outside)

    def _back_into_delta(self, message: Message) -> None:
        """Its place is on disk, and so is it."""
        assert message.flags & INDEXED
        self._the_index().mark_delivered(message.seq_id)
        self.delta_count += 1
        self.delta_bytes += message.size
        self._ready_bytes += message.size
        self._account(-len(message.content) - MESSAGE_OVERHEAD_BYTES)
        if self._expiring:
            self._note_return([message])

    def _adopt_delayed(self, index: QueueIndex) -> None:
        """After a start all is delta; those that are delayed are read and taken out."""
        delays = index.delays()
        if not delays:
            return
        wanted = sorted(delays)
        upto: i64 = -1
        for seq_id in wanted:
            if seq_id < upto:
                continue
            job = index.plan_read(seq_id, wanted[len(wanted) - 1] + 1, READ_BYTES)
            if job is None:
                return
            run_job(job, self._engine.files)
            if self._failed(job):
                return
            upto = job.upto
            for message in index.decode(job):
                if int(message.seq_id) in delays:
                    self._take_from_delta(message, delays[int(message.seq_id)])

    def _take_from_delta(self, message: Message, until_ms: i64) -> None:
        message.content = b""
        self._hold(message, until_ms)
        self.delta_count -= 1
        self.delta_bytes -= message.size
        self._ready_bytes -= message.size
        self._account(MESSAGE_OVERHEAD_BYTES)
        if self.delta_count == 0:
            self.delta_start = 0
            self.delta_end = 0


def _old_place(message: Message) -> Message:
    """Stands for the record that is still there; its content, if stored, is not its own."""
    old = Message(b"", message.address, message.flags & (PERSISTENT | INDEXED | STORED), 0)
    old.seq_id = message.seq_id
    old.size = message.size
    return old
