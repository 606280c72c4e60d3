"""Messages whose time is over: the part of ``VariableQueue`` that finds them wherever they are.

Mostly messages expire in the order they came, all with the queue's own time to live: then the
next one is always the head, and it is enough to look there (``expire``, ``fetch_expired``).
RabbitMQ looks nowhere else, so a message with a short time behind one with a long time stays.
A queue that has no consumer still expires a head that is only on disk: the head is read when the
soonest time of its segment comes.

Here such a message makes the queue ``unordered``: it is remembered that one waits that is to go
before those ahead of it, and when (``_soonest_ms``).  When that time comes, a *sweep* walks through
all messages, in slices, and takes out what is over its time; the next soonest is known when
it is through.  A sweep over n messages is followed by a pause of n / 1000 ms at least, so that it
costs at most some percent of the time, however the times are spread.

On disk a sweep reads only segments in which something expires (``Segment.soonest_ms``, told by
who writes there; after a start it is not known, and each segment is read once, slowly).

**Dying.**  What a sweep takes out is neither ready nor pending; it is held among the delayed,
because those may lie within delta's bounds too, until ``ack`` says that it is done.  Nothing
is written about it: after a crash it is ready again, and over its time.
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.deferrals import Deferred
from penstock.backing.delaying import DelayedMessages
from penstock.backing.ending import expired_at_head
from penstock.backing.message_deque import MessageDeque, ascending
from penstock.core.message import INDEXED, Message
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import NEVER_MS, Segment

SCANNED_AT_ONCE: Final[i64] = 20_000
SWEPT_PER_MS: Final[i64] = 1000
READ_BYTES: Final[i64] = 256 * 1024
READ_PAUSE_MS: Final[i64] = 20
"""Between two slices that read: 13 MB a second at most."""


class ExpiringMessages(DelayedMessages):
    """Adds time."""

    # -- what is known of times --------------------------------------------------------------

    def _note_expiries(self, messages: list[Message], before: i64) -> None:
        if before == 0:
            self._latest_ms = 0
            self._unordered = False
            self._soonest_ms = NEVER_MS
            self._sweep_from = -1
        elif not self._expiring:
            self._latest_ms = NEVER_MS
        self._expiring = True
        for message in messages:
            expires_at_ms = message.expires_at_ms if message.expires_at_ms > 0 else NEVER_MS
            if expires_at_ms >= self._latest_ms:
                self._latest_ms = expires_at_ms
            else:
                self._unordered = True
                self._note_soonest(expires_at_ms)

    def _note_return(self, messages: list[Message]) -> None:
        """What was out during a sweep was not counted by it."""
        for message in messages:
            if message.expires_at_ms == 0:
                continue
            if self._unordered:
                self._note_soonest(message.expires_at_ms)
            if message.flags & INDEXED:
                self._the_index().note_expiry(message.seq_id, message.expires_at_ms)

    def _note_soonest(self, expires_at_ms: i64) -> None:
        if expires_at_ms < self._soonest_ms:
            self._soonest_ms = expires_at_ms
        if expires_at_ms < self._sweep_soonest_ms:
            self._sweep_soonest_ms = expires_at_ms

    def _adopt_times(self, index: QueueIndex | None, may_expire: bool) -> None:
        """After a start nothing is known but whether there is any time at all."""
        self._expiring = may_expire
        self._latest_ms = NEVER_MS
        self._unordered = may_expire
        self._soonest_ms = 1 if may_expire else NEVER_MS
        if index is not None:
            for segment in index.segments.values():
                segment.soonest_ms = 0 if may_expire else NEVER_MS

    def may_expire(self) -> bool:
        return self._expiring

    # -- the head ----------------------------------------------------------------------------

    def expire(self, now_ms: i64) -> i64:
        if not self._expiring:
            return 0
        count: i64 = 0
        while True:
            self._reach_head(now_ms)
            over = self._drop(self.q4.take(expired_at_head(self.q4, now_ms)))
            if self.q4.count() == 0:
                over += self._drop(self.q3.take(expired_at_head(self.q3, now_ms)))
            if over == 0:
                return count
            count += over
            self.look_ahead()

    def _reach_head(self, now_ms: i64) -> None:
        """A head that is only on disk and due is at hand, or on its way.

        What has arrived is taken in for the head only: a queue that pages would else read for ever
        what it has to give up again.
        """
        head = self._head()
        if self.is_reading() and (head is None or len(head.content) == 0):
            self.absorb()
        if self._head() is None and 0 < self._resting_head_ms() <= now_ms:
            self.look_ahead()

    def next_expiry_ms(self) -> i64:
        """0 as well while the head is on its way from disk: its arrival wakes the queue."""
        if not self._expiring:
            return 0
        head = self._head()
        if head is None and self._read is not None:
            self.absorb()
            head = self._head()
        if head is not None:
            return head.expires_at_ms
        return 0 if self._read is not None else self._resting_head_ms()

    def _resting_head_ms(self) -> i64:
        """When to look at a head that is only on disk: not behind its time, 1 = not known."""
        index = self.index
        if self.delta_count == 0 or self._deleted or self.fault != "":
            return 0
        if self.tail.count() > 0 and self.tail.first().seq_id <= self.delta_start:
            return self.tail.first().expires_at_ms
        if index is None:
            return 0
        number = self.delta_start // self._entries
        segment = index.segments.get(int(number))
        if segment is None:
            segment = index.next_segment(number, (self.delta_end - 1) // self._entries)
        if segment is None:
            return self.tail.first().expires_at_ms if self.tail.count() > 0 else 0
        if segment.soonest_ms == NEVER_MS:
            return 0
        return segment.soonest_ms if segment.soonest_ms > 0 else 1

    # -- everywhere --------------------------------------------------------------------------

    def next_sweep_ms(self) -> i64:
        if self._deleted or self.fault != "":
            return 0
        if self._sweep_from < 0 and self._soonest_ms == NEVER_MS:
            return 0
        due_ms: i64 = 1 if self._sweep_from >= 0 else self._soonest_ms
        return due_ms if due_ms > self._sweep_after_ms else self._sweep_after_ms

    def sweep_expired(self, now_ms: i64, max_messages: i64) -> list[Message]:
        """A slice of a sweep, if one is due: what it has taken out is dying."""
        found: list[Message] = []
        due_ms = self.next_sweep_ms()
        if due_ms == 0 or due_ms > now_ms:
            return found
        if self._sweep_from < 0:
            self._sweep_from = 0
            self._sweep_soonest_ms = NEVER_MS
            self._sweep_count = 0
        left = SCANNED_AT_ONCE
        for run in [self.q4, self.q3]:
            left = self._sweep_run(run, now_ms, max_messages, left, found)
        if left > 0 and self.delta_count > 0:
            left = self._sweep_delta(now_ms, max_messages, left, found)
        for run in [self.q2, self.q1]:
            left = self._sweep_run(run, now_ms, max_messages, left, found)
        if left > 0:
            self._sweep_from = -1
            self._soonest_ms = self._sweep_soonest_ms
            self._sweep_after_ms = now_ms + self._sweep_count // SWEPT_PER_MS
        if found:
            self._close_ranks()
            self.look_ahead()
        return found

    def _is_over(self, message: Message, now_ms: i64) -> bool:
        """Counts it, and remembers when it will be if it is not."""
        self._sweep_count += 1
        expires_at_ms = message.expires_at_ms
        if expires_at_ms == 0:
            return False
        if expires_at_ms <= now_ms:
            return True
        if expires_at_ms < self._sweep_soonest_ms:
            self._sweep_soonest_ms = expires_at_ms
        return False

    def _sweep_run(
        self, run: MessageDeque, now_ms: i64, max_messages: i64, left: i64, found: list[Message]
    ) -> i64:
        """Returns how many more may be looked at; 0 = the slice ends in this run."""
        if left == 0 or run.count() == 0:
            return left
        taken: list[Message] = []
        left = self._filter(run, now_ms, max_messages - len(found), left, taken)
        if taken:
            self._leave_ready(taken)
            self._hold_dying(taken)
            found.extend(taken)
        return left

    def _filter(
        self, run: MessageDeque, now_ms: i64, room: i64, left: i64, taken: list[Message]
    ) -> i64:
        """Take what is over its time out of the run, from where the sweep stands."""
        start = run.first_at(self._sweep_from)
        place = start
        end: i64 = len(run.messages)
        stop = end if end - start < left else start + left
        kept: list[Message] = []
        while place < stop and len(taken) < room:
            message = run.messages[place]
            place += 1
            if self._is_over(message, now_ms):
                taken.append(message)
            else:
                kept.append(message)
        if place > start:
            self._sweep_from = run.messages[place - 1].seq_id + 1
        if taken:
            run.messages[start:place] = kept
            if run.count() == 0:
                run.take_all()
        return left - (place - start) if place == end else 0

    def _leave_ready(self, messages: list[Message]) -> None:
        size: i64 = 0
        ram_count: i64 = 0
        for message in messages:
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
        self._ready_bytes -= size
        self._ram_count -= ram_count
        self._trimmed_count -= len(messages) - ram_count
        self.rates.out_count += len(messages)

    def _hold_dying(self, messages: list[Message]) -> None:
        for message in messages:
            self.delayed.hold(message)

    # -- delta -------------------------------------------------------------------------------

    def _sweep_delta(self, now_ms: i64, max_messages: i64, left: i64, found: list[Message]) -> i64:
        if self._sweep_from < self.delta_start:
            self._sweep_from = self.delta_start
        tail_start = self.tail.first().seq_id if self.tail.count() > 0 else self.delta_end
        index = self.index
        while index is not None and self._sweep_from < tail_start:
            if len(found) >= max_messages:
                return 0
            number = self._sweep_from // self._entries
            upto = (number + 1) * self._entries
            segment = index.segments.get(int(number))
            if segment is None:
                after = index.next_segment(number, (tail_start - 1) // self._entries)
                upto = tail_start if after is None else after.number * self._entries
                self._sweep_from = upto if upto < tail_start else tail_start
                continue
            if segment.soonest_ms > now_ms:
                if segment.soonest_ms < self._sweep_soonest_ms:
                    self._sweep_soonest_ms = segment.soonest_ms
                self._sweep_from = upto if upto < tail_start else tail_start
                continue
            self._sweep_segment(
                index, segment, upto if upto < tail_start else tail_start, now_ms, found
            )
            self._sweep_after_ms = now_ms + READ_PAUSE_MS
            return 0
        return self._sweep_tail(now_ms, max_messages, left, found)

    def _sweep_segment(
        self, index: QueueIndex, segment: Segment, upto: i64, now_ms: i64, found: list[Message]
    ) -> None:
        """One read's worth of it; what a read has is taken, even if it is more than was asked."""
        if self._sweep_number != segment.number:
            self._sweep_number = segment.number
            self._segment_soonest_ms = NEVER_MS
            segment.fresh_soonest_ms = NEVER_MS
        job = index.plan_read(self._sweep_from, upto, READ_BYTES)
        if job is not None:
            run_job(job, self._engine.files)
            if self._failed(job):
                return
            self._take_from_read(self._decode(job), now_ms, found)
            self._sweep_from = job.upto
        if job is None or self._sweep_from >= upto:
            self._sweep_from = upto
            self._sweep_number = -1
            self._conclude(segment, upto)

    def _conclude(self, segment: Segment, upto: i64) -> None:
        """All of the segment that is delta was read; what is in memory may become delta yet."""
        soonest_ms = self._segment_soonest_ms
        if segment.fresh_soonest_ms < soonest_ms:
            soonest_ms = segment.fresh_soonest_ms
        if (
            segment.number * self._entries < self.delta_start
            and self._sweep_soonest_ms < soonest_ms
        ):
            soonest_ms = self._sweep_soonest_ms
        if upto < (segment.number + 1) * self._entries:
            if self.q2.count() > SCANNED_AT_ONCE:
                return  # too many to look at here: it stays due
            for message in self.tail.live() + self.q2.live():
                if 0 < message.expires_at_ms < soonest_ms:
                    soonest_ms = message.expires_at_ms
        segment.soonest_ms = soonest_ms

    def _take_from_read(self, messages: list[Message], now_ms: i64, found: list[Message]) -> None:
        taken: list[Message] = []
        for message in messages:
            if self._is_over(message, now_ms):
                taken.append(message)
            elif 0 < message.expires_at_ms < self._segment_soonest_ms:
                self._segment_soonest_ms = message.expires_at_ms
        if taken:
            self._take_out_of_delta(taken, found)

    def _take_out_of_delta(self, taken: list[Message], found: list[Message]) -> None:
        """These were just read from its segments."""
        ram_bytes: i64 = 0
        for message in taken:
            ram_bytes += len(message.content)
        self._read = None  # what is under way would bring them again
        self._ready_bytes -= self._leave_delta(taken)
        self._account(ram_bytes + len(taken) * MESSAGE_OVERHEAD_BYTES)
        self.rates.out_count += len(taken)
        self._hold_dying(taken)
        found.extend(taken)

    def _sweep_tail(self, now_ms: i64, max_messages: i64, left: i64, found: list[Message]) -> i64:
        if self.tail.count() == 0:
            return left
        taken: list[Message] = []
        left = self._filter(self.tail, now_ms, max_messages - len(found), left, taken)
        self._take_out_of_tail(taken, found)
        return left

    def _take_out_of_tail(self, taken: list[Message], found: list[Message]) -> None:
        size = self._leave_delta(taken)
        self.tail_bytes -= size
        self._ready_bytes -= size
        self.rates.out_count += len(taken)
        if taken and self.tail.count() > 0:
            self.delta_end = self.tail.last().seq_id + 1
        self._hold_dying(taken)
        found.extend(taken)

    def _close_ranks(self) -> None:
        """A sweep may empty what otherwise empties last."""
        if self.delta_count == 0 and self.delta_end > 0:
            self._forget_delta()
            self.q3.append_all(self.q2.take_all())
        if self.q3.count() == 0 and self.delta_count == 0 and self.q4.count() > 0:
            self.q4.append_all(self.q1.take_all())

    # -- chosen ones -------------------------------------------------------------------------

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        """Held as what is dying: of delta the blocks that hold them are read, here and now."""
        found: list[Message] = []
        if len(seq_ids) == 0:
            return found
        for run in [self.q4, self.q3, self.q2, self.q1]:
            taken = run.take_chosen(seq_ids)
            if taken:
                self._leave_ready(taken)
                self._hold_dying(taken)
                found.extend(taken)
        if self.delta_count > 0:
            self._take_out_of_tail(self.tail.take_chosen(seq_ids), found)
            self._take_chosen_delta(seq_ids, found)
        self._close_ranks()
        self.look_ahead()
        return ascending(found)

    def _take_chosen_delta(self, seq_ids: list[int], found: list[Message]) -> None:
        index = self.index
        if index is None:
            return
        chosen = set(seq_ids)
        end = self.delta_end
        upto = self.delta_start
        for seq_id in seq_ids:
            if seq_id < upto or seq_id >= end:
                continue  # of a block that has been read, or not in delta
            job = index.plan_read(seq_id, end, 1)
            if job is None:
                return
            upto = job.upto
            run_job(job, self._engine.files)
            self.looked_bytes += job.size
            if self._failed(job):
                return
            taken = [one for one in self._decode(job) if int(one.seq_id) in chosen]
            if taken:
                self._take_out_of_delta(taken, found)

    # -- the end -----------------------------------------------------------------------------

    def _bury(self, messages: list[Message]) -> list[Message]:
        """Those that were held are gone; returns the others."""
        others: list[Message] = []
        held: list[Deferred] = []
        for message in messages:
            deferred = self.delayed.find(message)
            if deferred is None or deferred.place >= 0:
                others.append(message)
            else:
                held.append(deferred)
        if held:
            self._let_go(held)
        return others
