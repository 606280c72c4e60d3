"""How a variable queue gives memory back: the ways down of ``VariableQueue``.

    alpha ─► beta ─► delta        q4's end and q1's beginning go first: they are furthest from
    pending content ─► disk       the consumer and from the publisher

``page`` is one slice of it, bounded in messages.  It works towards a target in bytes, which
the engine sets while the node has too much in memory (storage/engine/memory_monitor.py says how).

What each step frees:

- alpha to beta drops the content of a large message, which is in the message store then.  A
  small one keeps its content (it is embedded in the index, not in the store).
- beta to delta frees all of it; small ones are written to their segment, if they are not there.
- pending: the content goes, the position stays.  Small ones are written to a segment first;
  RabbitMQ never pages those, so a flood of unacknowledged messages kills it.

Which comes first, alphas or pending, is decided by which pile grows faster.

**Nothing below a pending message goes to delta.**  So a requeued message never belongs in
the middle of delta, and a load never meets a message that is also pending.  What cannot go
for this reason loses at least its content.

A segment record must not speak of a content that is not on disk: a large persistent message
goes to delta only when the store has synced it (a few milliseconds after it came).  Nor may
it be there before the journal's word that its old place is settled: what was moved to the
tail rests only when that is synced, else a crash would find the message twice.  The same holds
for what was published for later: a crash would find it without its time.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.message_deque import MessageDeque, ascending
from penstock.backing.peeking import PeekingMessages
from penstock.backing.resting import HEAD_LEAST_MESSAGES
from penstock.core.message import INDEXED, LOGGED, PERSISTENT, REDELIVERED, STORED, Message
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES

TAIL_BYTES: Final[i64] = 128 * 1024
"""So much of delta's end is collected before it is written."""


class PagedMessages(PeekingMessages):
    """Adds the ways down."""

    def page(self, target_bytes: i64, quota: i64) -> bool:
        """One slice towards the target; True = there is more to do, and it can be done."""
        self.target_ram_bytes = target_bytes
        before = self._ram_bytes
        moved: i64 = 0
        if self.converting():
            moved = self._convert(quota)
        elif self.lazy:
            self.flush_tail()
        if self._over_bytes() <= 0:
            return moved > 0
        self._trim_delayed(quota)
        if self.rates.acks_grow_faster():
            self._trim_pending(quota)
            if self._over_bytes() > 0:
                moved += self._push_alphas(quota)
        else:
            moved += self._push_alphas(quota)
            self._trim_pending(quota)
        self._push_betas(quota)
        if self.lazy:
            self.flush_tail()
        return self._over_bytes() > 0 and (moved > 0 or self._ram_bytes < before)

    def disk_count(self) -> i64:
        """Ready messages whose contents are not in memory."""
        return self.ready_count() - self._ram_count - self.tail.count()

    def ready_count(self) -> i64:
        return (
            self.q4.count() + self.q3.count() + self.delta_count + self.q2.count() + self.q1.count()
        )

    def _over_bytes(self) -> i64:
        return self._ram_bytes - self.target_ram_bytes

    # -- alphas to betas -------------------------------------------------------------------

    def _push_alphas(self, quota: i64) -> i64:
        """From the front of q1, then from the back of q4."""
        moved: i64 = 0
        if self.q1.count() > 0 and quota > 0:
            messages = self.q1.take(quota)
            moved = len(messages)
            self.moves.q1_beta += moved
            self._trim_stored(messages)
            if self.delta_count > 0:
                self.q2.append_all(messages)
            else:
                self.q3.append_all(messages)
        least = self._head_least()
        if moved < quota and self.q4.count() > least:
            count = self.q4.count() - least
            if count > quota - moved:
                count = quota - moved
            messages = self.q4.take_last(count)
            moved += len(messages)
            self.moves.q4_beta += count
            self._trim_stored(messages)
            self.q3.put_back(messages)
        return moved

    def _trim_stored(self, messages: list[Message]) -> None:
        """Large ones leave their content to the store."""
        freed: i64 = 0
        count: i64 = 0
        for message in messages:
            if len(message.content) > 0 and self._into_store(message):
                message.content = b""
                freed += message.size
                count += 1
        self._ram_count -= count
        self._trimmed_count += count
        self._account(-freed)

    def _into_store(self, message: Message) -> bool:
        """Is it in a message store, now at the latest?"""
        if message.flags & STORED:
            return True
        if message.flags & (INDEXED | LOGGED):
            return False  # its content is in the index, or in the journal on the way there
        if message.size < self._engine.limits.embed_below_bytes:
            return False
        message.msg_id = self._engine.transient_store.write(message.content, 1)
        message.flags |= STORED
        return True

    # -- betas to delta --------------------------------------------------------------------

    def _push_betas(self, quota: i64) -> i64:
        """From the back of q3, but not its head, then from the front of q2."""
        self.flush_tail()
        moved = self._push_q3(quota)
        # What is behind the tail cannot go to segments before it.
        if moved < quota and self.q2.count() > 0 and self.tail.count() == 0:
            messages = self.q2.take(quota - moved)
            if self._rest(messages):
                moved += self._extend_delta_end(messages)
            else:
                self.q2.put_back(messages)
        return moved

    def _push_q3(self, quota: i64) -> i64:
        count = self.q3.count() - self.betas_kept()
        if count <= 0:
            return 0
        place: i64 = len(self.q3.messages) - count
        lowest = self.q3.first_at(self.pending.highest_seq_id + 1)
        if lowest > place:
            place = lowest
        count = len(self.q3.messages) - place
        if count > quota:
            count = quota
        if count <= 0:
            return 0
        messages = self.q3.take_last(count)
        if not self._rest(messages):
            self.q3.append_all(messages)
            return 0
        return self._extend_delta_start(messages)

    def betas_kept(self) -> i64:
        """What stays of q3: a quarter of the target, or what was read, and a little in any case."""
        kept = self.target_ram_bytes // 4 // self._size_of_one()
        if kept < self._read_kept:
            kept = self._read_kept
        if self.q4.count() >= HEAD_LEAST_MESSAGES:
            return kept
        return kept if kept > HEAD_LEAST_MESSAGES else HEAD_LEAST_MESSAGES

    def _rest(self, messages: list[Message]) -> bool:
        """See that each has a record in a segment; False = not possible just now.

        Ascending messages that are ready.
        """
        index = self._the_index()
        unwritten: list[Message] = []
        durable_msg_id = self._engine.store.durable_msg_id
        unsafe = self._first_unsafe()
        for message in messages:
            flags = message.flags
            if not flags & INDEXED:
                self._into_store(message)
                if message.flags & STORED and flags & LOGGED and message.msg_id > durable_msg_id:
                    return False
                if flags & LOGGED and message.seq_id >= unsafe:
                    return False
                if not index.can_append(message.seq_id):
                    return False
                unwritten.append(message)
        if len(unwritten) < len(messages):
            for message in messages:
                if message.flags & INDEXED and message.flags & REDELIVERED:
                    index.mark_delivered(message.seq_id)
        if unwritten:
            self.moves.gamma += len(unwritten)
            index.append(unwritten)
        return True

    def tick(self, now_ms: i64) -> None:
        super().tick(now_ms)
        self._settle_left()

    def _settle_left(self) -> None:
        """Old places of what was moved to the tail, as far as that is durable."""
        durable = self._engine.journal.durable_position
        while self._left and self._left[0][0] <= durable:
            self._the_index().settle(self._left[0][1])
            del self._left[0]

    def _note_unsafe(self, first_seq_id: i64) -> None:
        """No segment may speak of those from there on before what was journalled is durable."""
        self._first_unsafe()
        while self._unsafe and self._unsafe[-1][0] >= first_seq_id:
            self._unsafe.pop()  # this one says more, and later
        self._unsafe.append((int(first_seq_id), int(self._engine.journal.position)))

    def _first_unsafe(self) -> i64:
        """From this seq_id on a move to the tail, or a delay from the start, may not be durable."""
        unsafe = self._unsafe
        durable = self._engine.journal.durable_position
        while unsafe and unsafe[0][1] <= durable:
            del unsafe[0]
        return unsafe[0][0] if unsafe else self._next_seq_id

    def _extend_delta_end(self, messages: list[Message]) -> i64:
        if self.delta_count == 0:
            self.delta_start = messages[0].seq_id
        self.delta_end = messages[len(messages) - 1].seq_id + 1
        self.moves.q2_delta += len(messages)
        return self._into_delta(messages)

    def _extend_delta_start(self, messages: list[Message]) -> i64:
        if self.delta_count == 0:
            self.delta_end = messages[len(messages) - 1].seq_id + 1
        self.delta_start = messages[0].seq_id
        self.moves.q3_delta += len(messages)
        return self._into_delta(messages)

    def _into_delta(self, messages: list[Message]) -> i64:
        """They are not in memory any more."""
        count: i64 = len(messages)
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        for message in messages:
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
            if not message.flags & PERSISTENT:
                self.delta_transient_count += 1
        self.delta_count += count
        self.delta_bytes += size
        self._ram_count -= ram_count
        self._trimmed_count -= count - ram_count
        self._account(-ram_bytes - count * MESSAGE_OVERHEAD_BYTES)
        return count

    def flush_tail(self) -> None:
        """Write delta's end to segments, if that is possible just now."""
        if self.tail.count() == 0:
            return
        messages = self.tail.live()
        if self._rest(messages):
            self.tail = MessageDeque()
            self._account(-self.tail_bytes - len(messages) * MESSAGE_OVERHEAD_BYTES)
            self.tail_bytes = 0

    # -- pending acks ----------------------------------------------------------------------

    def _trim_pending(self, quota: i64) -> i64:
        """Drop contents of unacknowledged messages, the youngest first; how many."""
        if quota <= 0 or self.pending.ram_count == 0 or self._over_bytes() <= 0:
            return 0
        messages = ascending(self.pending.youngest_in_ram(quota))
        if not self._contents_to_disk(messages):
            self.pending.trimmed(0, 0)
            return 0
        freed: i64 = 0
        for message in messages:
            message.content = b""
            freed += message.size
        self.pending.trimmed(len(messages), freed)
        self.moves.pending_disk += len(messages)
        self._account(-freed)
        return len(messages)

    def _contents_to_disk(self, messages: list[Message]) -> bool:
        """See that the contents of these, in order, are in a store or a segment, or on their
        way; False = not possible just now.
        """
        unwritten: list[Message] = []
        unsafe = self._first_unsafe()
        for message in messages:
            if not message.flags & INDEXED and not self._into_store(message):
                if message.flags & LOGGED and message.seq_id >= unsafe:
                    return False
                if not self._the_index().can_append(message.seq_id):
                    return False
                unwritten.append(message)
        if unwritten:
            self._the_index().append(unwritten)
        return True

    def _trim_delayed(self, quota: i64) -> None:
        """Drop contents of delayed messages."""
        delayed = self.delayed.take_in_ram(quota)
        messages = ascending([one.message for one in delayed])
        if not self._contents_to_disk(messages):
            self.delayed.keep_in_ram(delayed)
            return
        self._index_delays(messages)
        freed: i64 = 0
        for message in messages:
            message.content = b""
            freed += message.size
        self._account(-freed)

    def _index_delays(self, messages: list[Message]) -> None:
        """Segments that hold delayed messages say so; others may be among these."""
        for message in messages:
            if message.flags & INDEXED:
                deferred = self.delayed.find(message)
                if deferred is not None and deferred.due_ms > 0:
                    self._the_index().set_delay(message.seq_id, deferred.due_ms)

    # -- modes -----------------------------------------------------------------------------

    def converting(self) -> bool:
        """Lazy was asked for, and alphas are still here."""
        return self.lazy and (self.q4.count() > 0 or self.q1.count() > 0 or self.q2.count() > 0)

    def set_mode(self, lazy: bool) -> None:
        """Change at once for what comes; what is here follows in slices (``page``)."""
        if lazy == self.lazy:
            return
        self.lazy = lazy
        if self.converting():
            self._engine.begin_conversion(self)
        if not lazy:
            self.look_ahead()

    def _convert(self, quota: i64) -> i64:
        """A slice on the way to lazy: everything towards delta, by way of the betas."""
        moved: i64 = 0
        if self.q4.count() > 0:
            messages = self.q4.take_last(quota)
            moved += len(messages)
            self.moves.q4_beta += moved
            self.q3.put_back(messages)
        elif self.q1.count() > 0:
            messages = self.q1.take(quota)
            moved += len(messages)
            self.moves.q1_beta += moved
            if self.delta_count > 0 or self.q2.count() > 0:
                self.q2.append_all(messages)
            else:
                self.q3.append_all(messages)
        return moved + self._push_betas(quota)
