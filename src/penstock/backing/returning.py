"""``TailMoves``: messages that come back get a place again.

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
(``DiskRecords.expect_moved``, ``moved_in``).

**Attempts** are counted in the flags, and a record is written with what they are then.  What is
counted later is in the journal, and in the marks of the segment once there is a record.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords, old_place
from penstock.backing.expiry_times import ExpiryTimes
from penstock.backing.paging import Pager
from penstock.backing.peeking import RangeReader
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.tiers import Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import INDEXED, LOGGED, Message, mark_redelivered


@final
class TailMoves:
    """Of one queue."""

    def __init__(
        self,
        records: DiskRecords,
        tiers: Tiers,
        times: ExpiryTimes,
        ahead: ReadAhead,
        reads: RangeReader,
        pager: Pager,
    ) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._times: Final = times
        self._ahead: Final = ahead
        self._reads: Final = reads
        self._pager: Final = pager

    def requeue_to_tail(self, messages: list[Message], now_ms: WallMs) -> None:
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
            self._tiers.requeue(lost)
            self._ahead.look_ahead()
        if moved:
            self._tiers.leave_pending(moved)
            mark_redelivered(moved)
            self.move(moved, now_ms)
            self._ahead.look_ahead()

    def _read_content(self, message: Message) -> bool:
        """It had lost it to the disk; here and now."""
        content = self._reads.content_now(message)
        if len(content) == 0:
            return False
        self._tiers.regain_pending(message, content)
        return True

    def move(self, messages: list[Message], now_ms: WallMs) -> None:
        """Contents at hand, not pending any more: behind all others."""
        journal = self._records.engine.journal
        seq_id = self._records.next_seq_id
        first = seq_id
        self._records.advance(seq_id + len(messages))
        size: i64 = 0
        logged: i64 = 0
        left: list[Message] = []
        old_seq_ids: list[int] = []
        for message in messages:
            old_seq_id = message.seq_id
            if message.flags & INDEXED:
                left.append(old_place(message))
            message.flags &= ~INDEXED
            message.place(seq_id, now_ms)
            if message.flags & LOGGED:
                journal.to_tail(self._records.queue_id, message, old_seq_id)
                logged += 1
            old_seq_ids.append(int(old_seq_id))
            seq_id += 1
            size += message.size
        if self._records.notes is not None:
            self._records.notes.published(messages, WallMs(0))
            self._records.notes.let_go(old_seq_ids)
        if logged > 0:
            self._records.journalled()
            self._records.note_unsafe(first)
        self._records.leave_places(left)
        if self._times.expiring:
            self._times.note_new(messages, len(messages))
        if self._tiers.append(messages, size):
            self._pager.flush_tail()
