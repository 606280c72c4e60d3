"""``Expiry``: finds messages of one queue whose time is over, wherever they are.

Mostly messages expire in the order they came, all with the queue's own time to live: then the
next one is always the head, and it is enough to look there (``expire``, ``fetch_expired``).
RabbitMQ looks nowhere else, so a message with a short time behind one with a long time stays.
A queue that has no consumer still expires a head that is only on disk: the head is read when the
soonest time of its segment comes.

Here such a message makes the queue ``unordered``: it is remembered that one waits that is to go
before those ahead of it, and when (``ExpiryTimes``).  When that time comes, a *sweep* walks through
all messages, in slices, and takes out what is over its time; the next soonest is known when
it is through.  A sweep over n messages is followed by a pause of n / 1000 ms at least, so that it
costs at most some percent of the time, however the times are spread.

On disk a sweep reads only segments in which something expires (``Segment.soonest_ms``, told by
who writes there; after a start it is not known, and each segment is read once, slowly).

**Dying.**  What a sweep takes out is neither ready nor pending; it is held among the delayed,
because those may lie within delta's bounds too, until ``ack`` says that it is done.  Nothing
is written about it: after a crash it is ready again, and over its time.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.backing.ending import QueueSettlement, expired_at_head
from penstock.backing.expiry_times import ExpiryTimes
from penstock.backing.message_deque import MessageDeque
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.tiers import RUN, SEGMENTS, TAIL, Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import Message
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import NEVER_MS, Segment

SCANNED_AT_ONCE: Final[i64] = 20_000
SWEPT_PER_MS: Final[i64] = 1000
READ_BYTES: Final[i64] = 256 * 1024
READ_PAUSE_MS: Final[i64] = 20
"""Between two slices that read: 13 MB a second at most."""


@final
class Expiry:
    """Of one queue."""

    def __init__(
        self,
        records: DiskRecords,
        tiers: Tiers,
        times: ExpiryTimes,
        ahead: ReadAhead,
        settlement: QueueSettlement,
    ) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._times: Final = times
        self._ahead: Final = ahead
        self._settlement: Final = settlement
        self.sweep_after_ms = WallMs(0)
        self._from: i64 = 0  # where the sweep under way goes on
        self._count: i64 = 0  # messages that it has looked at
        self._number: i64 = -1  # of the segment that is being read
        self._segment_soonest_ms = NEVER_MS

    def expire(self, now_ms: WallMs, at_most: i64) -> i64:
        if not self._times.expiring:
            return 0
        count: i64 = 0
        while count < at_most:
            self.reach_head(now_ms)
            run = self._tiers.q4 if self._tiers.q4.count() > 0 else self._tiers.q3
            late = expired_at_head(run, now_ms, at_most - count)
            if late == 0:
                break
            count += self._settlement.end(run.take(late), RUN)
            self._ahead.look_ahead()
        return count

    def reach_head(self, now_ms: WallMs) -> None:
        """A head that is only on disk and due is at hand, or on its way.

        What has arrived is taken in for the head only: a queue that pages would else read for ever
        what it has to give up again.
        """
        head = self._tiers.head()
        if self._ahead.is_reading() and (head is None or len(head.content) == 0):
            self._ahead.absorb()
        if self._tiers.head() is None and 0 < self._resting_head_ms() <= now_ms:
            self._ahead.look_ahead()

    def next_expiry_ms(self) -> WallMs:
        """If some message may expire; 0 as well while the head is on its way from the disk.

        Its arrival wakes the queue.
        """
        head = self._tiers.head()
        if head is None and self._ahead.is_loading():
            self._ahead.absorb()
            head = self._tiers.head()
        if head is not None:
            return head.expires_at_ms
        return WallMs(0) if self._ahead.is_loading() else self._resting_head_ms()

    def _resting_head_ms(self) -> WallMs:
        """When to look at a head that is only on disk: not behind its time, 1 = not known."""
        index = self._records.index
        if self._tiers.delta_count == 0 or self._records.deleted or self._records.fault != "":
            return WallMs(0)
        if (
            self._tiers.tail.count() > 0
            and self._tiers.tail.first().seq_id <= self._tiers.delta_start
        ):
            return self._tiers.tail.first().expires_at_ms
        if index is None:
            return WallMs(0)
        number = self._tiers.delta_start // self._records.entries
        segment = index.segments.get(int(number))
        if segment is None:
            segment = index.next_segment(
                number, (self._tiers.delta_end - 1) // self._records.entries
            )
        if segment is None:
            tail = self._tiers.tail
            return tail.first().expires_at_ms if tail.count() > 0 else WallMs(0)
        if segment.soonest_ms == NEVER_MS:
            return WallMs(0)
        return segment.soonest_ms if segment.soonest_ms > 0 else WallMs(1)

    def next_sweep_ms(self) -> WallMs:
        if self._records.deleted or self._records.fault != "":
            return WallMs(0)
        if not self._times.want_sweep():
            return WallMs(0)
        due_ms = WallMs(1) if self._times.is_sweeping else self._times.soonest_ms
        return due_ms if due_ms > self.sweep_after_ms else self.sweep_after_ms

    def sweep_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        """A slice of a sweep, if one is due: what it has taken out is dying."""
        found: list[Message] = []
        due_ms = self.next_sweep_ms()
        if due_ms == 0 or due_ms > now_ms:
            return found
        if not self._times.is_sweeping:
            self._times.begin_sweep()
            self._from = 0
            self._count = 0
        left = SCANNED_AT_ONCE
        for run in [self._tiers.q4, self._tiers.q3]:
            left = self._sweep_run(run, now_ms, max_messages, left, found)
        if left > 0 and self._tiers.delta_count > 0:
            left = self._sweep_delta(now_ms, max_messages, left, found)
        for run in [self._tiers.q2, self._tiers.q1]:
            left = self._sweep_run(run, now_ms, max_messages, left, found)
        if left > 0:
            self._times.end_sweep()
            self.sweep_after_ms = WallMs(now_ms + self._count // SWEPT_PER_MS)
        if found:
            self._settlement.close_ranks()
            self._ahead.look_ahead()
        return found

    def _is_over(self, message: Message, now_ms: WallMs) -> bool:
        """Counts it, and remembers when it will be if it is not."""
        self._count += 1
        expires_at_ms = message.expires_at_ms
        if expires_at_ms == 0:
            return False
        if expires_at_ms <= now_ms:
            return True
        self._times.note_left(expires_at_ms)
        return False

    def _sweep_run(
        self, run: MessageDeque, now_ms: WallMs, max_messages: i64, left: i64, found: list[Message]
    ) -> i64:
        """Returns how many more may be looked at; 0 = the slice ends in this run."""
        if left == 0 or run.count() == 0:
            return left
        taken: list[Message] = []
        left = self._filter(run, now_ms, max_messages - len(found), left, taken)
        if taken:
            self._tiers.hold(taken, RUN)
            found.extend(taken)
        return left

    def _filter(
        self, run: MessageDeque, now_ms: WallMs, room: i64, left: i64, taken: list[Message]
    ) -> i64:
        """Take what is over its time out of the run, from where the sweep stands."""
        start = run.first_at(self._from)
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
            self._from = run.messages[place - 1].seq_id + 1
        if taken:
            run.replace(start, place, kept)
        return left - (place - start) if place == end else 0

    def _sweep_delta(
        self, now_ms: WallMs, max_messages: i64, left: i64, found: list[Message]
    ) -> i64:
        if self._from < self._tiers.delta_start:
            self._from = self._tiers.delta_start
        tail_start = self._tiers.segments_end(self._tiers.delta_end)
        index = self._records.index
        while index is not None and self._from < tail_start:
            if len(found) >= max_messages:
                return 0
            number = self._from // self._records.entries
            upto = (number + 1) * self._records.entries
            segment = index.segments.get(int(number))
            if segment is None:
                after = index.next_segment(number, (tail_start - 1) // self._records.entries)
                upto = tail_start if after is None else after.number * self._records.entries
                self._from = upto if upto < tail_start else tail_start
                continue
            if segment.soonest_ms > now_ms:
                self._times.note_left(segment.soonest_ms)
                self._from = upto if upto < tail_start else tail_start
                continue
            self._sweep_segment(
                index, segment, upto if upto < tail_start else tail_start, now_ms, found
            )
            self.sweep_after_ms = WallMs(now_ms + READ_PAUSE_MS)
            return 0
        return self._sweep_tail(now_ms, max_messages, left, found)

    def _sweep_segment(
        self, index: QueueIndex, segment: Segment, upto: i64, now_ms: WallMs, found: list[Message]
    ) -> None:
        """One read's worth of it; what a read has is taken, even if it is more than was asked."""
        if self._number != segment.number:
            self._number = segment.number
            self._segment_soonest_ms = NEVER_MS
            segment.fresh_soonest_ms = NEVER_MS
        job = index.plan_read(self._from, upto, READ_BYTES)
        if job is not None:
            if not self._records.read_now(job):
                return
            self._take_from_read(self._tiers.decode(job), now_ms, found)
            self._from = job.upto
        if job is None or self._from >= upto:
            self._from = upto
            self._number = -1
            self._conclude(segment, upto)

    def _conclude(self, segment: Segment, upto: i64) -> None:
        """All of the segment that is delta was read; what is in memory may become delta yet."""
        soonest_ms = self._segment_soonest_ms
        if segment.fresh_soonest_ms < soonest_ms:
            soonest_ms = segment.fresh_soonest_ms
        if (
            segment.number * self._records.entries < self._tiers.delta_start
            and self._times.sweep_soonest_ms < soonest_ms
        ):
            soonest_ms = self._times.sweep_soonest_ms
        if upto < (segment.number + 1) * self._records.entries:
            if self._tiers.q2.count() > SCANNED_AT_ONCE:
                return  # too many to look at here: it stays due
            for message in self._tiers.tail.live() + self._tiers.q2.live():
                if 0 < message.expires_at_ms < soonest_ms:
                    soonest_ms = message.expires_at_ms
        segment.soonest_ms = soonest_ms

    def _take_from_read(
        self, messages: list[Message], now_ms: WallMs, found: list[Message]
    ) -> None:
        taken: list[Message] = []
        for message in messages:
            if self._is_over(message, now_ms):
                taken.append(message)
            elif 0 < message.expires_at_ms < self._segment_soonest_ms:
                self._segment_soonest_ms = message.expires_at_ms
        if taken:
            self._ahead.cancel_load()
            self._tiers.hold(taken, SEGMENTS)
            found.extend(taken)

    def _sweep_tail(
        self, now_ms: WallMs, max_messages: i64, left: i64, found: list[Message]
    ) -> i64:
        if self._tiers.tail.count() == 0:
            return left
        taken: list[Message] = []
        left = self._filter(self._tiers.tail, now_ms, max_messages - len(found), left, taken)
        self._tiers.hold(taken, TAIL)
        found.extend(taken)
        return left
