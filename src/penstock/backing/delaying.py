"""``QueueDelays``: messages of one queue that wait for their time.

    delay             pending ─► delayed
    publish_delayed   new ─────► delayed, not marked as delivered before
    release_due       delayed ─► ready, at the place it had
    release_to_tail   delayed ─► ready, behind all others
    cancel_delayed, drop_delayed
                      delayed ─► gone
    take_delayed      delayed ─► held until ``ack``, when it is safe elsewhere, or ``untake``

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

**Many at once** are released in shares; ``next_due_ms`` says that more are due.

What was *taken* is as it was on disk, so a crash finds it delayed as before.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.deferrals import Deferred
from penstock.backing.disk_records import DiskRecords
from penstock.backing.ending import QueueSettlement
from penstock.backing.paging import Pager
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.returning import TailMoves
from penstock.backing.tiers import ASIDE, Tiers
from penstock.core.clock_types import WallMs
from penstock.core.message import INDEXED, LOGGED, STORED, Message, body_size, mark_redelivered
from penstock.storage.common.read_retry import RETRY_LEAST_MS
from penstock.storage.engine.ram import MESSAGE_OVERHEAD_BYTES
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.store.message_store import MessageStore

READ_BYTES: Final[i64] = 1024 * 1024
RELEASED_AT_ONCE: Final[i64] = 1024
"""``at_most`` of a call of ``release_due``."""
RETRY_MS: Final[i64] = 50


@final
class QueueDelays:
    """Of one queue."""

    def __init__(
        self,
        records: DiskRecords,
        tiers: Tiers,
        ahead: ReadAhead,
        pager: Pager,
        settlement: QueueSettlement,
        moves: TailMoves,
    ) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._ahead: Final = ahead
        self._pager: Final = pager
        self._settlement: Final = settlement
        self._moves: Final = moves
        self._counts_bodies: bool = False
        self.released_body_bytes: i64 = 0  # became ready by the last release, if they are counted
        self._release_after_ms = WallMs(0)  # some could not be released: not again before

    def delay(self, messages: list[Message], until_ms: WallMs) -> None:
        """Pending becomes delayed: not ready before that time."""
        if len(messages) == 0:
            return
        self._tiers.leave_pending(messages)
        mark_redelivered(messages)
        if self._records.notes is not None:
            self._records.notes.delayed(messages, until_ms)
        self.defer(messages, until_ms)
        for message in messages:
            if message.flags & INDEXED:
                self._records.the_index().set_delay(message.seq_id, until_ms)

    def defer(self, messages: list[Message], until_ms: WallMs) -> None:
        assert until_ms > 0
        journal = self._records.engine.journal
        logged: i64 = 0
        for message in messages:
            if message.flags & LOGGED:
                journal.delay(self._records.queue_id, message.seq_id, until_ms)
                logged += 1
            self._tiers.own_delayed().add(message, until_ms)
        if logged > 0:
            self._records.journalled()

    def defer_new(self, messages: list[Message], size: i64, until_ms: WallMs) -> None:
        """As ``defer``, of messages that were not in memory, ``size`` bytes."""
        self._tiers.account(size + len(messages) * MESSAGE_OVERHEAD_BYTES)
        self.defer(messages, until_ms)
        self._records.note_unsafe(messages[0].seq_id)

    def count_bodies(self, wanted: bool) -> None:
        """Whether ``released_body_bytes`` is wanted."""
        self._counts_bodies = wanted

    def next_due_ms(self) -> WallMs:
        """When ``release_due`` should be called next; 0 = nothing is delayed."""
        first_ms = self._tiers.delayed.first_ms()
        return self._release_after_ms if 0 < first_ms < self._release_after_ms else first_ms

    def release_due(self, now_ms: WallMs, at_most: i64) -> i64:
        """What is due becomes ready at the place it had; returns how many."""
        due = self._take_due(now_ms, at_most)
        if len(due) == 0:
            return 0
        before: list[Message] = []
        behind: list[Message] = []
        released: i64 = 0
        logged: i64 = 0
        for deferred in due:
            message = deferred.message
            if self._tiers.belongs_before(message):
                before.append(message)
            elif self._tiers.belongs_in_delta(message):
                if not self._back_into_delta(message):
                    self._tiers.delayed.wait_on(deferred)
                    self._release_later(now_ms)
                    continue
            else:
                behind.append(message)
            released += 1
            if self._counts_bodies:
                self.released_body_bytes += _body_bytes(message)
            self._tiers.delayed.end(message)
            if message.flags & LOGGED:
                self._records.engine.journal.delay(
                    self._records.queue_id, message.seq_id, WallMs(0)
                )
                logged += 1
            if message.flags & INDEXED:
                self._records.the_index().set_delay(message.seq_id, WallMs(0))
        if logged > 0:
            self._records.journalled()
        self._tiers.put(before)
        self._tiers.put_behind(behind)
        self._ahead.look_ahead()
        return released

    def release_to_tail(self, now_ms: WallMs, at_most: i64) -> i64:
        """As ``release_due``, where readers may have passed the places of these.

        Each gets a new seq_id, as by ``requeue_to_tail``: a crash finds it once.
        """
        due = self._take_due(now_ms, at_most)
        self._read_contents([one.message for one in due if len(one.message.content) == 0])
        moved: list[Message] = []
        for deferred in due:
            if len(deferred.message.content) == 0:
                self._tiers.delayed.wait_on(deferred)
                self._release_later(now_ms)
                continue
            message = deferred.message
            self._tiers.delayed.end(message)
            moved.append(message)
            if self._counts_bodies:
                self.released_body_bytes += _body_bytes(message)
        if moved:
            self._moves.move(moved, now_ms)
            self._ahead.look_ahead()
        return len(moved)

    def _release_later(self, now_ms: WallMs) -> None:
        """Some could not be released; not soon where the disk cannot be read."""
        after_ms = RETRY_MS if self._records.fault == "" else RETRY_LEAST_MS
        self._release_after_ms = WallMs(now_ms + after_ms)

    def _take_due(self, now_ms: WallMs, at_most: i64) -> list[Deferred]:
        """By their places."""
        due = self._tiers.delayed.take_due(now_ms, at_most)
        due.sort(key=_seq_id)
        self._release_after_ms = WallMs(0)
        self.released_body_bytes = 0
        return due

    def _back_into_delta(self, message: Message) -> bool:
        """False = not possible just now."""
        tail = self._tiers.tail
        if message.seq_id >= self._tiers.delta_end or (
            tail.count() > 0 and message.seq_id > tail.first().seq_id
        ):
            if not self._have_content(message):
                return False
            self._tiers.put_in_tail(message)
        else:
            if not self._pager.rest([message]):
                return False
            self._tiers.put_in_segments(message)
            self._ahead.cancel_load_over(message.seq_id)
        return True

    def cancel_delayed(self, seq_id: i64) -> bool:
        """One that is delayed is gone; False = there is none of that number."""
        deferred = self._tiers.delayed.waiting(seq_id)
        if deferred is None:
            return False
        self._settlement.end([deferred.message], ASIDE)
        return True

    def drop_delayed(self) -> i64:
        """Those that are delayed are gone; returns how many."""
        waiting = self._tiers.delayed.some_waiting(self._tiers.delayed.count())
        waiting.sort(key=_seq_id)
        return self._settlement.end([one.message for one in waiting], ASIDE)

    def take_delayed(self, max_messages: i64, max_bytes: i64) -> list[tuple[Message, WallMs]]:
        """Some of the delayed, each with its time and its content; they want an ``ack``."""
        chosen: list[Deferred] = []
        size: i64 = 0
        for deferred in self._tiers.delayed.some_waiting(max_messages):
            size += deferred.message.size
            if size > max_bytes and len(chosen) > 0:
                break
            chosen.append(deferred)
        self._read_contents([one.message for one in chosen if len(one.message.content) == 0])
        taken: list[tuple[Message, WallMs]] = []
        for deferred in chosen:
            if len(deferred.message.content) > 0:
                self._tiers.delayed.take(deferred)
                taken.append((deferred.message, deferred.due_ms))
        return taken

    def untake(self, messages: list[Message]) -> None:
        """They stay, delayed as before they were taken."""
        for message in messages:
            deferred = self._tiers.delayed.find(message)
            assert deferred is not None
            self._tiers.delayed.wait_on(deferred)

    def _have_content(self, message: Message) -> bool:
        if len(message.content) == 0:
            self._read_contents([message])
        return len(message.content) > 0

    def _read_contents(self, messages: list[Message]) -> None:
        """Here and now, neighbours together; after damage some go without."""
        embedded: dict[int, Message] = {}
        for message in messages:
            if message.flags & STORED:
                self._read_stored(message, self._records.store_of(message))
            else:
                assert message.flags & INDEXED
                embedded[int(message.seq_id)] = message
        if embedded:
            for found in self._read_indexed(self._records.the_index(), sorted(embedded)):
                self._tiers.regain_delayed(embedded[int(found.seq_id)], found.content)

    def _read_stored(self, message: Message, store: MessageStore) -> None:
        job = store.read([int(message.msg_id)])
        if self._records.load_now(job):
            self._tiers.regain_delayed(message, job.contents[0])

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
            if not self._records.read_now(job):
                break
            upto = job.upto
            found.extend([one for one in index.decode(job) if int(one.seq_id) in wanted])
        return found

    def adopt(self, index: QueueIndex) -> None:
        """After a start all is delta; those that are delayed are read and taken out."""
        delays = index.delays()
        if not delays:
            return
        for message in self._read_indexed(index, sorted(delays)):
            message.content = b""
            self._tiers.own_delayed().add(message, delays[int(message.seq_id)])
            self._tiers.leave_delta([message])
            self._tiers.account(MESSAGE_OVERHEAD_BYTES)
        if self._tiers.delta_count == 0:
            self._tiers.clear_delta()


def _body_bytes(message: Message) -> i64:
    """With its properties while only the disk has it."""
    return body_size(message.content) if len(message.content) > 0 else message.size


def _seq_id(deferred: Deferred) -> int:
    return int(deferred.message.seq_id)
