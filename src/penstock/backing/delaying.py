"""Messages that wait for their time: the part of ``VariableQueue`` that delays them.

    delay             pending ─► delayed
    publish_delayed   new ─────► delayed, not marked as delivered before
    release_due       delayed ─► ready, at the place it had
    release_to_tail   delayed ─► ready, behind all others
    cancel_delayed, drop_delayed
                      delayed ─► gone
    take_delayed      delayed ─► held by somebody who has it elsewhere soon, until ``ack``

Delayed messages are positions in memory (deferrals.py).  Their contents leave memory like those
of unacknowledged ones.  The time is in the journal, and in the marks of the segment once the
message rests there, so it survives a kill and a clean stop; after a start the delayed are read in
and found again.  What is new has its place and its time in one group of the journal.

A delayed message may lie within delta's bounds without being part of delta: what reads delta
leaves it out, what drops delta goes around it.  It may also belong behind delta.  So when its
time comes it goes to one of three places:

    before delta     q4 or q3, as a message that was requeued
    within           to its segment, if it is not there, or into delta's unwritten end
    behind           q1, or q2 when it lacks its content or belongs between betas

If that is not possible just now (its segment is being rewritten) it waits a little longer.

**Many at once** are released some thousand in a call; ``next_due_ms`` says that more are due.

What was *taken* is as it was on disk, so a crash finds it delayed as before.  It is never ready
again in this life.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.deferrals import Deferred
from penstock.backing.returning import ReturningMessages
from penstock.core.message import (
    INDEXED,
    LOGGED,
    PERSISTENT,
    REDELIVERED,
    SETTLED,
    STORED,
    Message,
    body_size,
)
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.store.message_store import MessageStore

READ_BYTES: Final[i64] = 1024 * 1024
RELEASED_AT_ONCE: Final[i64] = 2048
"""What those who call ``release_due`` in a turn give it as ``at_most``."""
RETRY_MS: Final[i64] = 50


class DelayedMessages(ReturningMessages):
    """Adds delays."""

    # -- in --------------------------------------------------------------------------------

    def delay(self, messages: list[Message], until_ms: i64) -> None:
        """Pending becomes delayed: not ready before that time."""
        if len(messages) == 0:
            return
        self._leave_pending(messages)
        for message in messages:
            message.flags |= REDELIVERED
        if self.notes is not None:
            self.notes.delayed(messages, until_ms)
        self._defer(messages, until_ms)
        for message in messages:
            if message.flags & INDEXED:
                self._the_index().set_delay(message.seq_id, until_ms)

    def _defer(self, messages: list[Message], until_ms: i64) -> None:
        assert until_ms > 0
        journal = self._engine.journal
        logged: i64 = 0
        for message in messages:
            if message.flags & LOGGED:
                journal.delay(self.queue_id, message.seq_id, until_ms)
                logged += 1
            self.delayed.add(message, until_ms)
        if logged > 0:
            self._journalled()

    # -- looking ---------------------------------------------------------------------------

    def count_delayed(self) -> i64:
        return self.delayed.waiting_count()

    def next_due_ms(self) -> i64:
        """When ``release_due`` should be called next; 0 = nothing is delayed."""
        first_ms = self.delayed.first_ms()
        return self._release_after_ms if 0 < first_ms < self._release_after_ms else first_ms

    def list_delayed(
        self, after_ms: i64, after_seq_id: i64, at_most: i64
    ) -> list[tuple[int, int, int]]:
        """(due, seq_id, size) of the first behind that time and seq_id; begin with (0, -1)."""
        return self.delayed.page(after_ms, after_seq_id, at_most)

    # -- to be ready -----------------------------------------------------------------------

    def release_due(self, now_ms: i64, at_most: i64) -> i64:
        """What is due becomes ready at the place it had; returns how many."""
        due = self.delayed.take_due(now_ms, at_most)
        if len(due) == 0:
            return 0
        due.sort(key=_seq_id)
        self._release_after_ms = 0
        self.released_body_bytes = 0
        before: list[Message] = []
        behind: list[Message] = []
        released: i64 = 0
        logged: i64 = 0
        for deferred in due:
            message = deferred.message
            if self._belongs_before(message):
                before.append(message)
            elif self._belongs_in_delta(message):
                if not self._back_into_delta(message):
                    self.delayed.wait_on(deferred)
                    self._release_after_ms = now_ms + RETRY_MS
                    continue
            else:
                behind.append(message)
            released += 1
            if self.counts_bodies:
                self.released_body_bytes += _body_bytes(message)
            self.delayed.end(deferred)
            if message.flags & LOGGED:
                self._engine.journal.delay(self.queue_id, message.seq_id, 0)
                logged += 1
            if message.flags & INDEXED:
                self._the_index().set_delay(message.seq_id, 0)
        if logged > 0:
            self._journalled()
        if before:
            self._become_ready(before)
            self._put(before)
        if behind:
            self._become_ready(behind)
            self._put_behind(behind)
        self.look_ahead()
        return released

    def release_to_tail(self, now_ms: i64, at_most: i64) -> i64:
        """As ``release_due``, where readers may have passed the places of these.

        Each gets a new seq_id, as by ``requeue_to_tail``: a crash finds it once.
        """
        due = self.delayed.take_due(now_ms, at_most)
        self.released_body_bytes = 0
        self._release_after_ms = 0
        due.sort(key=_seq_id)
        self._read_contents([one.message for one in due if len(one.message.content) == 0])
        moved: list[Message] = []
        for deferred in due:
            if len(deferred.message.content) == 0:
                self.delayed.wait_on(deferred)
                self._release_after_ms = now_ms + RETRY_MS
                continue
            message = self.delayed.end(deferred)
            moved.append(message)
            if self.counts_bodies:
                self.released_body_bytes += _body_bytes(message)
        if moved:
            self._move(moved, now_ms)
            self.look_ahead()
        return len(moved)

    def _belongs_before(self, message: Message) -> bool:
        """Before delta, or before q1 when there is no delta."""
        if self.delta_count > 0:
            return message.seq_id < self.delta_start
        return self.q1.count() == 0 or message.seq_id < self.q1.first().seq_id

    def _belongs_in_delta(self, message: Message) -> bool:
        """Of a lazy queue the end of delta is the end of all."""
        if self.delta_count == 0:
            return False
        if message.seq_id < self.delta_end:
            return True
        return self.lazy and self.q1.count() == 0 and self.q2.count() == 0

    def _back_into_delta(self, message: Message) -> bool:
        """False = not possible just now."""
        tail = self.tail
        if message.seq_id >= self.delta_end or (
            tail.count() > 0 and message.seq_id > tail.first().seq_id
        ):
            if not self._have_content(message):
                return False
            tail.merge([message])
            self.tail_bytes += message.size
            self._flush_again(message)
            if message.seq_id >= self.delta_end:
                self.delta_end = message.seq_id + 1
        else:
            if not self._rest([message]):
                return False
            self._account(-len(message.content) - MESSAGE_OVERHEAD_BYTES)
            read = self._read
            if read is not None and message.seq_id < read.upto:
                self._read = None  # planned when its record was not there, perhaps
        self.delta_count += 1
        self.delta_bytes += message.size
        if not message.flags & PERSISTENT:
            self.delta_transient_count += 1
        self._ready_bytes += message.size
        if self._expiring:
            self._note_return([message])
        return True

    def _put_behind(self, messages: list[Message]) -> None:
        """Ascending, behind delta, or behind the first of q1 when there is no delta."""
        self._flush_again(messages[0])
        betas = self.q2 if self.delta_count > 0 else self.q3
        bare = False
        for message in messages:
            if len(message.content) == 0:
                bare = True
        if bare or (betas.count() > 0 and messages[0].seq_id < betas.last().seq_id):
            # An alpha must not stand between betas: those ahead of the last become betas.
            ahead = self.q1.first_at(messages[len(messages) - 1].seq_id) - self.q1.head
            betas.append_all(self.q1.take(ahead))
            betas.merge(messages)
        else:
            self.q1.merge(messages)

    def _flush_again(self, message: Message) -> None:
        """It may be below what was flushed of the runs."""
        if message.seq_id < self._flushed_seq_id:
            self._flushed_seq_id = message.seq_id

    # -- to be gone, or elsewhere ----------------------------------------------------------

    def cancel_delayed(self, seq_id: i64) -> bool:
        """One that is delayed is gone; False = there is none of that number."""
        deferred = self.delayed.waiting(seq_id)
        if deferred is None:
            return False
        self._let_go([deferred])
        return True

    def drop_delayed(self) -> i64:
        """Those that are delayed are gone; returns how many."""
        waiting = self.delayed.some_waiting(self.delayed.count())
        waiting.sort(key=_seq_id)
        self._let_go(waiting)
        return len(waiting)

    def _let_go(self, deferred: list[Deferred]) -> None:
        messages: list[Message] = []
        flags: i64 = 0
        freed: i64 = 0
        for one in deferred:
            message = self.delayed.end(one)
            flags |= message.flags
            message.flags |= SETTLED
            freed += len(message.content) + MESSAGE_OVERHEAD_BYTES
            messages.append(message)
        self._account(-freed)
        if self.notes is not None and messages:
            self.notes.ended(messages)
        if flags & (LOGGED | INDEXED | STORED):
            self._forget(messages, flags)

    def take_delayed(self, max_messages: i64, max_bytes: i64) -> list[tuple[Message, int]]:
        """Some of the delayed, each with its time and its content; they want an ``ack``."""
        chosen: list[Deferred] = []
        size: i64 = 0
        for deferred in self.delayed.some_waiting(max_messages):
            size += deferred.message.size
            if size > max_bytes and len(chosen) > 0:
                break
            chosen.append(deferred)
        self._read_contents([one.message for one in chosen if len(one.message.content) == 0])
        taken: list[tuple[Message, int]] = []
        for deferred in chosen:
            if len(deferred.message.content) > 0:
                self.delayed.take(deferred)
                taken.append((deferred.message, int(deferred.due_ms)))
        return taken

    # -- contents --------------------------------------------------------------------------

    def _have_content(self, message: Message) -> bool:
        if len(message.content) == 0:
            self._read_contents([message])
        return len(message.content) > 0

    def _read_contents(self, messages: list[Message]) -> None:
        """Here and now, neighbours together; after damage some go without."""
        embedded: dict[int, Message] = {}
        for message in messages:
            if message.flags & STORED:
                self._read_stored(message, self._store_of(message))
            else:
                assert message.flags & INDEXED
                embedded[int(message.seq_id)] = message
        if embedded:
            for found in self._read_indexed(self._the_index(), sorted(embedded)):
                self._regain(embedded[int(found.seq_id)], found.content)

    def _read_stored(self, message: Message, store: MessageStore) -> None:
        job = store.read([int(message.msg_id)])
        job.run_now(self._engine.files)
        if not self._failed(job):
            self._regain(message, job.contents[0])

    def _regain(self, message: Message, content: bytes) -> None:
        message.content = content
        self._account(message.size)
        deferred = self.delayed.find(message)
        if deferred is not None:
            self.delayed.keep_in_ram([deferred])

    def _read_indexed(self, index: QueueIndex, seq_ids: list[int]) -> list[Message]:
        """The messages at these ascending places, read here and now; what is damaged is missing."""
        found: list[Message] = []
        wanted = set(seq_ids)
        last = seq_ids[len(seq_ids) - 1]
        upto: i64 = -1
        for seq_id in seq_ids:
            if seq_id < upto:
                continue
            job = index.plan_read(seq_id, last + 1, READ_BYTES)
            if job is None:
                break
            run_job(job, self._engine.files)
            if self._failed(job):
                break
            upto = job.upto
            found.extend([one for one in index.decode(job) if int(one.seq_id) in wanted])
        return found

    # -- start -----------------------------------------------------------------------------

    def _adopt_delayed(self, index: QueueIndex) -> None:
        """After a start all is delta; those that are delayed are read and taken out."""
        delays = index.delays()
        if not delays:
            return
        for message in self._read_indexed(index, sorted(delays)):
            message.content = b""
            self.delayed.add(message, delays[int(message.seq_id)])
            self._ready_bytes -= self._leave_delta([message])
            self._account(MESSAGE_OVERHEAD_BYTES)
        if self.delta_count == 0:
            self.delta_start = 0
            self.delta_end = 0


def _body_bytes(message: Message) -> i64:
    """With its properties while only the disk has it."""
    return body_size(message.content) if len(message.content) > 0 else message.size


def _seq_id(deferred: Deferred) -> int:
    return int(deferred.message.seq_id)
