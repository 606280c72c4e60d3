"""Messages that come back: the part of ``VariableQueue`` that gives them a place again.

    requeue          pending ─► ready, at the place it had
    requeue_to_tail  pending ─► ready, with a new seq_id behind all others

**To the tail.**  The journal gets one record that settles the old place and one that makes the
new, in one group, so a crash finds the message once, at the old place or at the new.  A content
in the message store is not written again and keeps its one reference; the attempts counted in
the flags travel along.

Until that group is synced the record of the old place, if a segment has one, is left as it
is: a mark or a removed file that reached the disk before the journal would lose the message.

**Because of a publish.**  What was fetched here and published to others in the same turn, what an
overflowing queue drops for new ones, and what a transaction acknowledges behind its publishes is
let go at once (``ack_behind``): the acknowledgement lies in the journal behind the publish, in the
same block where one turn has both.  So a crash finds a moved message here or there, never in both
and never nowhere.  Two things could break that, and both wait for the sync: the record here that a
segment has (as above), and a record there, which a segment must not have before the journal
(``expect_moved``, ``moved_in``).

**Attempts** are counted in the flags, and a record is written with what they are then.  What is
counted later is in the journal, and in the marks of the segment once there is a record.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.ending import EndingMessages
from penstock.backing.message_deque import ascending
from penstock.core.message import (
    INDEXED,
    LOGGED,
    PENDING,
    PERSISTENT,
    REDELIVERED,
    STORED,
    Message,
    attempts_of,
)
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES

UNKNOWN_POSITION: Final = 1 << 62
"""Of the journal, behind whatever it will have: what is being published just now."""


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
            for message in moved:
                message.flags |= REDELIVERED
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
        """Contents at hand, not pending any more: behind all others."""
        journal = self._engine.journal
        seq_id = self._next_seq_id
        first = seq_id
        self._next_seq_id = seq_id + len(messages)
        self._reserve(self._next_seq_id)
        size: i64 = 0
        logged: i64 = 0
        left: list[Message] = []
        old_seq_ids: list[int] = []
        for message in messages:
            old_seq_id = message.seq_id
            if message.flags & INDEXED:
                left.append(_old_place(message))
            message.flags &= ~INDEXED
            message.seq_id = seq_id
            message.enqueued_at_ms = now_ms
            if message.flags & LOGGED:
                journal.to_tail(self.queue_id, message, old_seq_id)
                logged += 1
            old_seq_ids.append(int(old_seq_id))
            seq_id += 1
            size += message.size
        if self.notes is not None:
            self.notes.published(messages, 0)
            self.notes.let_go(old_seq_ids)
        if logged > 0:
            self._journalled()
            self._note_unsafe(first)
        if left:
            self._left.append((int(journal.position), left))
            self._settle_left()
        if self._expiring:
            self._note_expiries(messages, len(messages))
        self._append_tail(messages, size)

    # -- because of a publish --------------------------------------------------------------

    def ack_behind(self, messages: list[Message]) -> None:
        left = [_old_place(message) for message in messages if message.flags & INDEXED]
        for message in messages:
            message.flags &= ~INDEXED
        notes = self.notes
        if notes is not None:
            notes.let_go([int(message.seq_id) for message in messages])
        self.notes = None  # they are not told again
        self.ack(messages)
        self.notes = notes
        if left:
            self._left.append((int(self._engine.journal.position), left))
            self._settle_left()

    def expect_moved(self) -> None:
        """What comes until ``moved_in`` is taken from another queue, in this turn."""
        self._first_unsafe()
        self._unsafe.append((int(self._next_seq_id), UNKNOWN_POSITION))

    def moved_in(self) -> None:
        """It has come."""
        first, position = self._unsafe.pop()
        assert position == UNKNOWN_POSITION
        if first < self._next_seq_id:
            self._note_unsafe(first)

    def note_attempts(self, messages: list[Message]) -> None:
        if self.notes is not None:
            self.notes.counted(messages)
        count = self._engine.journal.note_attempts(self.queue_id, messages)
        if count > 0:
            self._journalled()
        for message in messages:
            if message.flags & INDEXED:
                self._the_index().set_attempts(message.seq_id, attempts_of(message))


def _old_place(message: Message) -> Message:
    """Stands for the record that is still there; its content, if stored, is not its own."""
    old = Message(b"", message.address, message.flags & (PERSISTENT | INDEXED | STORED), 0)
    old.seq_id = message.seq_id
    old.size = message.size
    return old
