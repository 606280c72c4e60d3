"""The invariants of ``VariableQueue``: the part that counts and checks.

Always true, and asserted by ``check``:
  V1  positions ascend strictly over q4, q3, delta, q2, q1, and are below next_seq_id
  V2  q1 not empty => q3 not empty, or delta not empty
  V3  q2 not empty => delta not empty
  V4  q3 and q4 empty => the queue is empty, or a read is under way, or it is cold, lazy or
      faulty
  V5  q3 and delta empty => q2 empty
  V6  lazy and converted: q1, q2 and q4 are empty; ready = delta + q3
  V7  delta_start + delta_count <= delta_end; delta holds exactly what lives in the index within
      its bounds, and its tail
  V8  the content of a message is in memory, or it is STORED or INDEXED; a STORED message's
      msg_id is not 0
  V9  ready_bytes, ram_count, trimmed_count, ram_bytes, persistent_count and
      delta_transient_count are the sums over the messages
  V10 a LOGGED message that lies in a finished journal file below ``flushed`` is INDEXED
  V11 nothing pending has a position in delta
  V12 nothing is negative; ram_count <= ready
"""

from mypy_extensions import i64

from penstock.backing.copying import CopiedMessages
from penstock.core.message import INDEXED, LOGGED, PENDING, PERSISTENT, SETTLED, STORED, Message
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex


class CheckedMessages(CopiedMessages):
    """Adds ``check``."""

    def journal_only_count(self) -> i64:
        """Living messages that are in the journal, and rest in no segment."""
        index = self.index
        if index is None or not self.durable:
            return self.persistent_count
        resting = index.live_count - index.transient_count
        for message in self._places_left():
            if message.flags & PERSISTENT:
                resting -= 1
        return self.persistent_count - resting

    def check(self) -> None:
        self._check_order()
        self._check_counts()
        self.pending.check()
        self.delayed.check()
        if self.q1.count() > 0:
            assert self.q3.count() > 0 or self.delta_count > 0, "V2"
        if self.q2.count() > 0:
            assert self.delta_count > 0, "V3, V5"
        if self.q3.count() + self.q4.count() == 0 and self.ready_count() > 0 and not self.lazy:
            assert self._read is not None or self._cold or self.fault != "", "V4"
        if self.lazy and not self.converting():
            assert self.q1.count() + self.q2.count() + self.q4.count() == 0, "V6"
        assert self.delta_start + self.delta_count <= self.delta_end or self.delta_count == 0, "V7"
        if self.delta_count > 0 and self.pending.count > 0:
            for message in self.pending.live():
                assert message.seq_id < self.delta_start, "V11"
        if self.index is not None:
            self.index.check()
            self._check_delta(self.index)

    def _check_order(self) -> None:
        last: i64 = -1
        for run in [self.q4, self.q3]:
            for message in run.live():
                assert message.seq_id > last, "V1"
                last = message.seq_id
        if self.delta_count > 0:
            assert last < self.delta_start, "V1"
            last = self.delta_start - 1
            for message in self.tail.live():
                assert last < message.seq_id < self.delta_end, "V1"
                last = message.seq_id
            # Nothing of delta is behind its tail.
            assert self.tail.count() == 0 or last == self.delta_end - 1, "V7"
            last = self.delta_end - 1
        else:
            assert self.tail.count() == 0, "V7"
        for run in [self.q2, self.q1]:
            for message in run.live():
                assert message.seq_id > last, "V1"
                last = message.seq_id
        assert last < self._next_seq_id, "V1"
        if self.durable:
            assert self._next_seq_id <= self._reserved_seq_id, "V1"

    def _check_counts(self) -> None:
        size: i64 = self.delta_bytes
        ram_count: i64 = 0
        trimmed: i64 = 0
        ram_bytes: i64 = self.pending.ram_bytes + self.tail_bytes
        objects: i64 = self.pending.count + self.tail.count() + self.delayed.count()
        for message in self.delayed.messages():
            ram_bytes += len(message.content)
        for run in [self.q4, self.q3, self.q2, self.q1]:
            for message in run.live():
                self._check_message(message)
                assert message.flags & PENDING == 0, "V8"
                size += message.size
                objects += 1
                if len(message.content) > 0:
                    ram_count += 1
                    ram_bytes += message.size
                else:
                    trimmed += 1
        for message in self.tail.live() + self.pending.live() + self.delayed.messages():
            self._check_message(message)
        self._check_kinds()
        assert size == self._ready_bytes, "V9"
        assert ram_count == self._ram_count, "V9"
        assert trimmed == self._trimmed_count, "V9"
        assert ram_bytes + objects * MESSAGE_OVERHEAD_BYTES == self._ram_bytes, "V9"
        assert 0 <= self._ram_count <= self.ready_count(), "V12"
        assert self.delta_count >= 0, "V12"
        assert self.delta_bytes >= 0, "V12"
        assert self.tail_bytes >= 0, "V12"

    def _check_kinds(self) -> None:
        persistent: i64 = self.delta_count - self.delta_transient_count
        journal_only: i64 = 0
        for message in self.tail.live():
            if not message.flags & PERSISTENT:
                assert self.delta_transient_count > 0, "V9"
            elif not message.flags & INDEXED:
                journal_only += 1
        messages = self.pending.live() + self.delayed.messages()
        for run in [self.q4, self.q3, self.q2, self.q1]:
            messages.extend(run.live())
        for message in messages:
            if message.flags & PERSISTENT:
                persistent += 1
                if not message.flags & INDEXED:
                    journal_only += 1
        if self.durable:
            assert persistent == self.persistent_count, "V9"
            assert journal_only == self.journal_only_count(), "V9"
        else:
            assert self.persistent_count == 0, "V9"

    def _check_message(self, message: Message) -> None:
        flags = message.flags
        assert not flags & SETTLED, "V8"
        assert message.size > 0, "V8"
        assert len(message.content) == message.size or (
            len(message.content) == 0 and flags & (STORED | INDEXED)
        ), "V8"
        assert not flags & STORED or message.msg_id > 0, "V8"
        if flags & LOGGED and message.seq_id < self._flushed_seq_id:
            assert flags & INDEXED or message.file_no >= self._oldest_file > 0, "V10"

    def _check_delta(self, index: QueueIndex) -> None:
        """What lives in the index is delta, or known by position."""
        known: i64 = len(self._places_left())
        in_tail: i64 = 0
        for run in [self.q4, self.q3, self.q2, self.q1]:
            for message in run.live():
                if message.flags & INDEXED:
                    known += 1
        for message in self.pending.live() + self.delayed.messages():
            if message.flags & INDEXED:
                known += 1
        for message in self.tail.live():
            if message.flags & INDEXED:
                in_tail += 1
        assert index.live_count - known == self.delta_count - self.tail.count() + in_tail, "V7"
