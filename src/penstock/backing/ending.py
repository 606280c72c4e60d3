"""The end of messages: the part of ``VariableQueue`` that acknowledges, drops and forgets.

What ends here has up to four traces: the object in memory, a record in the journal, a record in
a segment, a content in a store.  The order is always the same: the acknowledgement goes into
the journal, the position is marked settled, and the content is given up with the journal's
position behind the acknowledgement, so that the store keeps it until that is on disk.

Delta ends without being read: whole segments go by their counters (``purge``, ``drop_below``), and
a thread reads which contents in the store they named (``ReleaseContentsJob``).  Selected messages
(``drop_some``) leave holes, and of delta the blocks that hold them are read. Delayed messages are
not ready: whatever drops ready ones goes around them.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.deferrals import Deferrals
from penstock.backing.message_deque import MessageDeque
from penstock.backing.paging import TAIL_BYTES, PagedMessages
from penstock.backing.pending import PendingAcks
from penstock.core.message import INDEXED, LOGGED, PENDING, PERSISTENT, SETTLED, STORED, Message
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex

ACK_RUN_MAX: Final[i64] = 0x7FFF_FFFE
"""A record of the journal ends no longer stretch of positions."""


class EndingMessages(PagedMessages):
    """Adds the ways out."""

    def _journalled(self) -> None:
        """The journal's current file has records of this queue."""
        file_no = self._engine.journal.current.number
        self._newest_file = file_no
        if self._oldest_file == 0:
            self._oldest_file = file_no

    def ack(self, messages: list[Message]) -> None:
        if self.delayed.held_count > 0:
            messages = self._bury(messages)
            if len(messages) == 0:
                return
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        flags: i64 = 0
        for message in messages:
            flags |= message.flags
            message.flags = (message.flags | SETTLED) & ~PENDING
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        count: i64 = len(messages)
        self.pending.remove(count, size, ram_count, ram_bytes)
        self.rates.ack_out_count += count
        self.rates.left_bytes += size + count * MESSAGE_OVERHEAD_BYTES
        self._account(-ram_bytes - count * MESSAGE_OVERHEAD_BYTES)
        if self.notes is not None:
            self.notes.ended(messages)
        if flags & (LOGGED | INDEXED | STORED):
            self._forget(messages, flags)

    def _bury(self, messages: list[Message]) -> list[Message]:
        """Let go what was held; the others.  ``ExpiringMessages`` knows how."""
        raise NotImplementedError

    def _forget(self, messages: list[Message], flags: i64) -> None:
        """What the disk has of them may go."""
        kept: list[Message] = []
        lost: list[Message] = []
        if flags & STORED:
            for message in messages:
                if message.flags & STORED:
                    if self.durable and message.flags & LOGGED:
                        kept.append(message)
                    else:
                        lost.append(message)
        if flags & LOGGED:
            for message in messages:
                if message.flags & LOGGED:
                    self.persistent_count -= 1
            self._engine.journal.ack(self.queue_id, messages)
            self._journalled()
        if flags & INDEXED:
            self._the_index().settle(messages)
        position = self._engine.journal.position
        for message in kept:
            self._engine.store.remove(message.msg_id, position)
        for message in lost:
            self._engine.transient_store.remove(message.msg_id, 0)

    def _drop(self, messages: list[Message]) -> i64:
        """Ready messages, taken out of their run, are gone."""
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        flags: i64 = 0
        for message in messages:
            flags |= message.flags
            message.flags |= SETTLED
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        count: i64 = len(messages)
        self._ready_bytes -= size
        self._ram_count -= ram_count
        self._trimmed_count -= count - ram_count
        self.rates.out_count += count
        self._account(-ram_bytes - count * MESSAGE_OVERHEAD_BYTES)
        if self.notes is not None and count > 0:
            self.notes.ended(messages)
        if flags & (LOGGED | INDEXED | STORED):
            self._forget(messages, flags)
        return count

    def purge(self) -> i64:
        """Delta goes by whole segments, without being read."""
        count: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
            count += self._drop(run.take_all())
        if self.delta_count > 0:
            count += self._drop_tail(self.delta_end)
            count += self.delta_count
            self._count_out(self.delta_count - self.delta_transient_count)
            self._ack_range(self.delta_start, self.delta_end)
            if self.index is not None:
                # All else that has a record is pending or delayed.
                self.index.clear(
                    self.pending.live() + self.delayed.messages() + self._places_left()
                )
            self._forget_delta()
        return count

    def drop_below(self, seq_id: i64) -> i64:
        count = self._drop_below(seq_id)
        self.look_ahead()
        return count

    def floor_seq_id(self) -> i64:
        raise NotImplementedError

    def drop_step(self, below: i64, most: i64) -> i64:
        """Segments go whole, then they need not be read: for that, nothing is loaded meanwhile."""
        at = self.floor_seq_id()
        upto = at + most
        if self.delta_count > 0:
            if self.q4.count() == 0 and self.q3.count() == 0:
                upto = (at // self._entries + 1) * self._entries
            elif at < self.delta_start < upto:
                upto = self.delta_start
        if upto >= below:
            return self.drop_below(below)
        count = self._drop_below(upto)
        if self.delta_count == 0:
            self.look_ahead()
        else:
            self._cold = True
        return count

    def _drop_below(self, seq_id: i64) -> i64:
        count: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
            count += self._drop(run.take(run.first_at(seq_id) - run.head))
        # Last, because with the end of delta q2 is joined to q3.
        if self.delta_count > 0 and self.delta_start < seq_id:
            count += self._drop_delta_below(seq_id)
        return count

    def drop_some(self, seq_ids: list[int]) -> i64:
        count: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
            count += self._drop(run.take_chosen(seq_ids))
        if self.delta_count > 0:
            count += self._drop_chosen_tail(self.tail.take_chosen(seq_ids))
            if self.tail.count() > 0:
                self.delta_end = self.tail.last().seq_id + 1  # V7: nothing is behind the tail
            count += self._drop_chosen_delta(seq_ids)
            if self.delta_count == 0:
                self._end_of_delta()
        if self.q3.count() == 0 and self.delta_count == 0:
            # q4 may still have some; whoever takes from the front finds it empty before q3.
            self.q4.append_all(self.q1.take_all())
        self.look_ahead()
        return count

    def few_reads(self, seq_ids: list[int], reads_max: i64) -> i64:
        """By the directory of blocks, as ``_drop_chosen_delta`` will go."""
        index = self.index
        if index is None or self.delta_count == 0:
            return len(seq_ids)
        end = self.delta_end
        upto = self.delta_start
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

    def _drop_chosen_delta(self, seq_ids: list[int]) -> i64:
        """Read block by block, but for those that hold none of them."""
        index = self.index
        if index is None:
            return 0
        self._read = None  # what is under way would bring them back
        chosen = set(seq_ids)
        end = self.delta_end
        upto = self.delta_start
        count: i64 = 0
        for seq_id in seq_ids:
            if seq_id < upto or seq_id >= end:
                continue  # of a block that has been read, or not in delta
            job = index.plan_read(seq_id, end, 1)
            if job is None:
                break
            upto = job.upto
            run_job(job, self._engine.files)
            self.looked_bytes += job.size
            if self._failed(job):
                break
            found = [one for one in self._decode(job) if int(one.seq_id) in chosen]
            if found:
                count += self._drop_read_chosen(found)
        return count

    def _drop_read_chosen(self, messages: list[Message]) -> i64:
        flags: i64 = 0
        for message in messages:
            flags |= message.flags
        self._ready_bytes -= self._leave_delta(messages)
        if self.notes is not None:
            self.notes.ended(messages)
        self._forget(messages, flags)
        return len(messages)

    def _leave_delta(self, messages: list[Message]) -> i64:
        """They are not in delta any more; returns the bytes of their contents."""
        size: i64 = 0
        for message in messages:
            size += message.size
            if not message.flags & PERSISTENT:
                self.delta_transient_count -= 1
        self.delta_count -= len(messages)
        self.delta_bytes -= size
        return size

    def _count_out(self, persistent_count: i64) -> None:
        """So many persistent ones end without ``_forget``."""
        if self.durable:
            self.persistent_count -= persistent_count

    def _ack_range(self, start: i64, end: i64) -> None:
        """All of these positions but the delayed ones."""
        delayed = [int(message.seq_id) for message in self.delayed.messages()]
        for seq_id in sorted([seq_id for seq_id in delayed if start <= seq_id < end]):
            if start < seq_id:
                self._ack_stretch(start, seq_id)
            start = seq_id + 1
        if start < end:
            self._ack_stretch(start, end)

    def _ack_stretch(self, start: i64, end: i64) -> None:
        """By one record, if it is not over the 2**40 places between two terms."""
        if self.notes is not None:
            self.notes.ended_between(start, end)
        if not self.durable:
            return
        self._journalled()
        if end - start <= ACK_RUN_MAX:
            self._engine.journal.ack_run(self.queue_id, start, end)
            return
        index = self._the_index()
        last = (end - 1) // self._entries
        segment = index.next_segment(start // self._entries, last)
        while segment is not None:
            first = segment.number * self._entries
            upto = first + self._entries
            self._engine.journal.ack_run(
                self.queue_id, first if first > start else start, upto if upto < end else end
            )
            segment = index.next_segment(segment.number + 1, last)

    def _forget_delta(self) -> None:
        self._ready_bytes -= self.delta_bytes
        self.delta_start = 0
        self.delta_end = 0
        self.delta_count = 0
        self.delta_bytes = 0
        self.delta_transient_count = 0
        self._read = None  # what is under way is for a delta that is no more

    def _drop_tail(self, upto: i64) -> i64:
        """Of delta's unwritten end, what is below ``upto``."""
        return self._drop_chosen_tail(self.tail.take(self.tail.first_at(upto) - self.tail.head))

    def _drop_chosen_tail(self, messages: list[Message]) -> i64:
        self.tail_bytes -= self._leave_delta(messages)
        self._ram_count += len(messages)  # as ``_drop`` expects of ready messages
        return self._drop(messages)

    def _drop_delta_below(self, seq_id: i64) -> i64:
        """Whole segments unread; the last one, if it goes in part, is read."""
        if seq_id >= self.delta_end:
            seq_id = self.delta_end
        count = self._drop_tail(seq_id)
        if self.delta_count == 0:
            self._forget_delta()
            return count
        index = self.index
        if index is None:
            return count
        count += self._drop_segments(index, self.delta_start, seq_id)
        if self.delta_count == 0:
            self._end_of_delta()
        elif self.fault == "":
            self.delta_start = seq_id
        return count

    def _drop_segments(self, index: QueueIndex, start: i64, end: i64) -> i64:
        """Of delta's written part what is in [start, end)."""
        self._ack_range(start, end)
        self._read = None
        count: i64 = 0
        entries = self._entries
        first_whole = (start + entries - 1) // entries * entries
        if first_whole < end:
            count += self._drop_read(start, first_whole)
            live_bytes = index.live_bytes
            transient_count = index.transient_count
            kept = self.delayed.messages() + self._places_left()
            dropped = index.drop_segments(first_whole, end, kept)
            count += dropped
            transient_count -= index.transient_count
            self._count_out(dropped - transient_count)
            self.delta_count -= dropped
            self.delta_transient_count -= transient_count
            self.delta_bytes -= live_bytes - index.live_bytes
            self._ready_bytes -= live_bytes - index.live_bytes
        return count + self._drop_read(start, end)

    def _end_of_delta(self) -> None:
        self._forget_delta()
        if self.q2.count() > 0:
            self.q3.append_all(self.q2.take_all())

    def _drop_read(self, start: i64, upto: i64) -> i64:
        """Messages of delta in [start, upto), by reading them."""
        count: i64 = 0
        index = self._the_index()
        while start < upto:
            job = index.plan_read(start, upto, TAIL_BYTES)
            if job is None:
                return count
            start = job.upto
            run_job(job, self._engine.files)
            if self._failed(job):
                return count
            messages = self._decode(job)
            for message in messages:
                message.flags &= ~LOGGED  # the range is in the journal already
                if message.flags & PERSISTENT:
                    self._count_out(1)
            self._ready_bytes -= self._leave_delta(messages)
            self._forget_kept(messages)
            count += len(messages)
        return count

    def _forget_kept(self, messages: list[Message]) -> None:
        """As ``_forget``, for messages read from segments whose end is journalled already."""
        position = self._engine.journal.position
        for message in messages:
            if message.flags & STORED:
                if self.durable and message.flags & PERSISTENT:
                    self._engine.store.remove(message.msg_id, position)
                else:
                    self._engine.transient_store.remove(message.msg_id, 0)
        self._the_index().settle(messages)

    def delete(self) -> None:
        if self._deleted:
            return
        self._deleted = True
        if self.durable:
            self._engine.journal.forget_queue(self.queue_id)
        for run in [self.q4, self.q3, self.q2, self.q1]:
            self._forget_stored(run.take_all())
        self._forget_stored(self.tail.take_all())
        self._forget_stored(self.pending.live())
        self._forget_stored(self.delayed.messages())
        self.delayed = Deferrals()
        if self.index is not None:
            self.index.settle(self._places_left())
            self._left = []
            self.index.delete()
            self.index = None
        self._account(-self._ram_bytes)
        self._engine.remove_queue(self.queue_id)
        self.pending = PendingAcks()
        self._forget_delta()
        self.persistent_count = 0
        self._ready_bytes = 0
        self._ram_count = 0
        self._trimmed_count = 0
        self.tail_bytes = 0

    def _forget_stored(self, messages: list[Message]) -> None:
        """The index counts what is only there; these are counted here."""
        for message in messages:
            message.flags = (message.flags | SETTLED) & ~PENDING
            if message.flags & STORED:
                if message.flags & INDEXED:
                    self._the_index().settle([message])
                if self.durable and message.flags & LOGGED:
                    self._engine.store.remove(message.msg_id, self._engine.journal.position)
                else:
                    self._engine.transient_store.remove(message.msg_id, 0)


def expired_at_head(run: MessageDeque, now_ms: i64) -> i64:
    """How many of the first messages are over their time."""
    count: i64 = 0
    while count < run.count():
        expires_at_ms = run.messages[run.head + count].expires_at_ms
        if expires_at_ms == 0 or expires_at_ms > now_ms:
            break
        count += 1
    return count
