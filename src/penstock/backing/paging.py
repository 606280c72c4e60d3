"""Paging out: which messages of a queue leave memory for the disk, and in which order.

    1  contents of delayed messages
    2  alphas become betas: from the front of q1, then from the back of q4, since these are
       furthest from the publisher and the consumer
    3  contents of unacknowledged messages, the youngest first; before 2 if these grow faster
    4  betas become delta: from the back of q3, then from the front of q2

``page`` is one slice of it, bounded in messages.  It works towards a target in bytes, which
the engine sets while the node has too much in memory (storage/engine/memory_monitor.py says how).

What each step frees:

- alpha to beta drops the content of a large message, which is in the message store then.  A
  small one keeps its content (it is embedded in the index, not in the store).
- beta to delta frees all of it; small ones are written to their segment, if they are not there.
- unacknowledged (*pending*): the content goes, the position stays.  Small ones are written to a
  segment first; RabbitMQ never pages those, so a flood of unacknowledged messages kills it.

**Nothing below a pending message goes to delta.**  So a requeued message never belongs in
the middle of delta, and a load never meets a message that is also pending.  What cannot go
for this reason loses at least its content.

A segment record must not speak of a content that is not on disk: a large persistent message
goes to delta only when the store has synced it (a few milliseconds after it came).  Nor may
it be there before the journal's word that its old place is settled: what was moved to the
tail rests only when that is synced, else a crash would find the message twice.  The same holds
for what was published for later: a crash would find it without its time.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.backing.message_deque import ascending
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.tiers import HEAD_LEAST_MESSAGES, Tiers
from penstock.core.message import INDEXED, LOGGED, REDELIVERED, STORED, Message


@final
class Pager:
    """Of one queue."""

    def __init__(self, records: DiskRecords, tiers: Tiers, ahead: ReadAhead) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._ahead: Final = ahead

    def page(self, target_bytes: i64, quota: i64) -> bool:
        """One slice towards the target; True = there is more to do, and it can be done."""
        self._tiers.set_target(target_bytes)
        before = self._tiers.ram_bytes
        moved: i64 = 0
        if self._tiers.converting():
            moved = self._convert(quota)
        elif self._tiers.lazy:
            self.flush_tail()
        if self._over_bytes() <= 0:
            return moved > 0
        self._trim_delayed(quota)
        if self._tiers.rates.acks_grow_faster():
            self._trim_pending(quota)
            if self._over_bytes() > 0:
                moved += self._push_alphas(quota)
        else:
            moved += self._push_alphas(quota)
            self._trim_pending(quota)
        self._push_betas(quota)
        if self._tiers.lazy:
            self.flush_tail()
        return self._over_bytes() > 0 and (moved > 0 or self._tiers.ram_bytes < before)

    def _over_bytes(self) -> i64:
        return self._tiers.ram_bytes - self._tiers.target_ram_bytes

    def _push_alphas(self, quota: i64) -> i64:
        """From the front of q1, then from the back of q4."""
        moved: i64 = 0
        if self._tiers.q1.count() > 0 and quota > 0:
            messages = self._tiers.spill_q1(quota)
            moved = len(messages)
            self._tiers.trim_stored(messages)
        least = self._tiers.head_least()
        if moved < quota and self._tiers.q4.count() > least:
            count = self._tiers.q4.count() - least
            if count > quota - moved:
                count = quota - moved
            self._tiers.trim_stored(self._tiers.spill_q4(count))
            moved += count
        return moved

    def _push_betas(self, quota: i64) -> i64:
        """From the back of q3, but not its head, then from the front of q2."""
        self.flush_tail()
        moved = self._push_q3(quota)
        q2 = self._tiers.q2
        # What is behind the tail cannot go to segments before it.
        if moved < quota and q2.count() > 0 and self._tiers.tail.count() == 0:
            messages = q2.messages[q2.head : q2.head + quota - moved]
            if self.rest(messages):
                moved += self._tiers.spill_q2(len(messages))
        return moved

    def _push_q3(self, quota: i64) -> i64:
        q3 = self._tiers.q3
        count = q3.count() - self.betas_kept()
        if count <= 0:
            return 0
        place: i64 = len(q3.messages) - count
        lowest = q3.first_at(self._tiers.pending.highest_seq_id + 1)
        if lowest > place:
            place = lowest
        count = len(q3.messages) - place
        if count > quota:
            count = quota
        if count <= 0 or not self.rest(q3.messages[len(q3.messages) - count :]):
            return 0
        return self._tiers.spill_q3(count)

    def betas_kept(self) -> i64:
        """What stays of q3: a quarter of the target, or what was read, and a little in any case."""
        kept = self._tiers.target_ram_bytes // 4 // self._tiers.size_of_one()
        if kept < self._ahead.read_kept:
            kept = self._ahead.read_kept
        if self._tiers.q4.count() >= HEAD_LEAST_MESSAGES:
            return kept
        return kept if kept > HEAD_LEAST_MESSAGES else HEAD_LEAST_MESSAGES

    def rest(self, messages: list[Message]) -> bool:
        """See that each has a record in a segment; False = not possible just now.

        Ascending messages that are ready.
        """
        index = self._records.the_index()
        unwritten: list[Message] = []
        durable_msg_id = self._records.engine.store.durable_msg_id
        unsafe = self._records.first_unsafe()
        for message in messages:
            flags = message.flags
            if not flags & INDEXED:
                self._records.into_store(message)
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
            self._tiers.note_gammas(len(unwritten))
            index.append(unwritten)
        return True

    def flush_tail(self) -> None:
        """Write delta's end to segments, if that is possible just now."""
        if self._tiers.tail.count() == 0:
            return
        if self.rest(self._tiers.tail.live()):
            self._tiers.spill_tail()

    def _trim_pending(self, quota: i64) -> i64:
        """Drop contents of unacknowledged messages, the youngest first; how many."""
        if quota <= 0 or self._tiers.pending.ram_count == 0 or self._over_bytes() <= 0:
            return 0
        messages = ascending(self._tiers.pending.youngest_in_ram(quota))
        if not self._contents_to_disk(messages):
            self._tiers.pending.trimmed(0, 0)
            return 0
        self._tiers.trim_pending(messages)
        return len(messages)

    def _contents_to_disk(self, messages: list[Message]) -> bool:
        """See that the contents of these, in order, are in a store or a segment, or on their
        way; False = not possible just now.
        """
        unwritten: list[Message] = []
        unsafe = self._records.first_unsafe()
        for message in messages:
            if not message.flags & INDEXED and not self._records.into_store(message):
                if message.flags & LOGGED and message.seq_id >= unsafe:
                    return False
                if not self._records.the_index().can_append(message.seq_id):
                    return False
                unwritten.append(message)
        if unwritten:
            self._records.the_index().append(unwritten)
        return True

    def _trim_delayed(self, quota: i64) -> None:
        """Drop contents of delayed messages."""
        delayed = self._tiers.delayed.take_in_ram(quota)
        messages = ascending([one.message for one in delayed])
        if not self._contents_to_disk(messages):
            self._tiers.delayed.keep_in_ram(delayed)
            return
        self.index_delays(messages)
        self._tiers.trim_delayed(messages)

    def index_delays(self, messages: list[Message]) -> None:
        """Segments that hold delayed messages say so; others may be among these."""
        for message in messages:
            if message.flags & INDEXED:
                deferred = self._tiers.delayed.find(message)
                if deferred is not None and deferred.due_ms > 0:
                    self._records.the_index().set_delay(message.seq_id, deferred.due_ms)

    def _convert(self, quota: i64) -> i64:
        """A slice on the way to lazy: everything towards delta, by way of the betas."""
        moved: i64 = 0
        if self._tiers.q4.count() > 0:
            moved = len(self._tiers.spill_q4(quota))
        elif self._tiers.q1.count() > 0:
            moved = len(self._tiers.spill_q1(quota))
        return moved + self._push_betas(quota)
