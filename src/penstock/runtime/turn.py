"""What happens between reading the sockets and writing them: one turn of the broker.

    what other nodes sent ─► wakeups, journal
    wakeups ─► deliveries ─► sessions' output
    due times ─► expiry
    groups on disk ─► confirms ─► sessions' output
    what was journalled ─► next group ─► committer
    a slice of the engine's work ─► disk jobs ─► disk worker; what came back ─► wakeups
    what is for other nodes ─► sessions' output

Sessions that got something to say are collected in ``touched``; the loop flushes them.
"""

import logging
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.rules.admission import Admission
from penstock.broker.rules.flow import Flow
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import BrokerError
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.disk.committer import Committer
from penstock.runtime.disk.worker import DiskWorker
from penstock.runtime.output_budget import OutputBudget
from penstock.runtime.session import Session, Subscriber
from penstock.runtime.turn_part import TurnPart
from penstock.storage.engine.engine import Engine
from penstock.storage.journal.codec import JournalGroup

INLINE_GROUP_BYTES: Final[i64] = 64 * 1024
INLINE_SYNC_MS: Final = 0.5
"""Smaller groups on a faster disk are written by the loop itself: a hand-off to the
committer's thread and back would cost more than the write."""
GROUP_BYTES_MAX: Final[i64] = 1024 * 1024
"""While one group is being synced the next one fills; larger ones fall out of the cache."""
REFILL_DELAY_MS: Final[i64] = 1
"""How long a consumer with a nearly full window may wait for its refill, while more comes in."""
SYNC_INTERVAL_MS: Final[i64] = 200
"""What nobody waits for is synced this often."""
CHECKPOINT_AFTER_MS: Final[i64] = 500
"""Definitions leave SQLite's log when none was committed for so long."""

logger = logging.getLogger("penstock.loop")


@final
class Turn:
    """The broker's turn; knows no sockets."""

    def __init__(
        self, broker: Broker, engine: Engine, committer: Committer, worker: DiskWorker
    ) -> None:
        self.touched: list[Session] = []
        self.waiting: list[Session] = []  # confirms wait for the disk
        self.flow = broker.flow
        self.part: TurnPart | None = None  # of a cluster's node
        self.answers = broker.answers
        self._events = broker.events
        self._broker = broker
        broker.deliver_from = self._deliver_from
        self.admission = broker.admission
        self._engine = engine
        self._committer = committer
        self._worker = worker
        self.output = OutputBudget(engine.ram)
        self._more_work: bool = False
        self._synced_at_ms: i64 = 0
        self._unwritten_bytes: i64 = 0  # with the committer
        self._defined: bool = False  # in this turn
        self._checkpoint_at_ms: i64 = 0
        self._refill_since_ms: i64 = 0  # the last turn that had no refills waiting

    def touch(self, session: Session) -> None:
        """This session may have output."""
        if not session.touched:
            session.touched = True
            self.touched.append(session)

    def fed(self, session: Session) -> None:
        """A session took bytes from its peer."""
        self.touch(session)
        if session.has_more:
            self._more_work = True
        if session.awaiting_disk and not session.waiting_listed:
            session.waiting_listed = True
            self.waiting.append(session)

    def begin(self, now_ms: WallMs, mono_ms: MonoMs) -> None:
        """The loop woke, and is about to read."""
        self._broker.idleness.set_now(mono_ms)
        self._events.now_ms = now_ms
        self.flow.begin_turn(now_ms)
        self.stood_still(now_ms)

    def stood_still(self, now_ms: i64) -> bool:
        """See ``TurnPart``: before clients are heard, and before anything is said to them."""
        return self.part is not None and self.part.stood_still(now_ms)

    def run(self, now_ms: i64, idle: bool) -> None:
        """One turn; ``idle`` = no socket had anything to read."""
        if self.part is not None:
            self.part.begin(now_ms)
        if self._broker.has_refills():
            if idle or not 0 <= now_ms - self._refill_since_ms <= REFILL_DELAY_MS:
                self._broker.wake_refills()
        else:
            self._refill_since_ms = now_ms
        if self._broker.replies.count_answered() > 0:
            self._answer()
        scanned = self._broker.scan_channels(now_ms)
        self._deliver(now_ms)
        if self._broker.idleness.is_due():
            self.cancelled(self._broker.delete_unused())
        next_ms = self._broker.schedule.next_ms()
        if next_ms > 0 and next_ms <= now_ms:
            self._broker.visit_due(now_ms)
            self._deliver(now_ms)
        letters = self._broker.dead_letters.publish(now_ms)
        # Behind them: it waits for those that are left, not for what has just died.
        self._broker.staging.work(self.flow, now_ms)
        self._deliver(now_ms)
        swept = self._broker.sweep.run()
        left = self._broker.letting_go.run()
        self._commit_definitions()
        self._tell_stagers()
        self._commit_definitions()  # of requests that had waited behind that
        self._commit(now_ms)
        self.collect()
        self._commit_definitions()  # as above
        self._checkpoint(now_ms)
        self._engine.disk_is_short = self._look().alarms.disk
        self._more_work = self._engine.work(now_ms, idle) or letters or swept or left or scanned
        self._hand_over()
        if self.part is not None:
            self.part.end(now_ms)

    def cancelled(self, consumers: list[Consumer]) -> None:
        """Tell consumers that their queue is gone."""
        for consumer in consumers:
            subscriber = cast(Subscriber, consumer.holder)
            subscriber.queue_lost(consumer)
            self.touch(subscriber.session)

    def send_away(self, consumers: list[Consumer], why: str) -> None:
        """Their queue cannot be served here: their clients are to go to another node."""
        for consumer in consumers[:]:
            subscriber = cast(Subscriber, consumer.holder)
            subscriber.send_away(consumer, why)
            self.touch(subscriber.session)

    def moved(self, consumers: list[Consumer], queue: Queue) -> None:
        """Their queue has another master, and this has taken its place."""
        for consumer in consumers:
            subscriber = cast(Subscriber, consumer.holder)
            subscriber.queue_moved(consumer, queue)
            self.touch(subscriber.session)

    def _answer(self) -> None:
        """Direct replies, which wait in no queue."""
        for consumer in self._broker.replies.take_answered():
            subscriber = cast(Subscriber, consumer.holder)
            answers = consumer.answers
            consumer.answers = []
            try:
                subscriber.answer(answers)
            except BrokerError as error:
                subscriber.session.channel_failed(subscriber.number, error, 0)
            self.touch(subscriber.session)

    def _deliver(self, now_ms: i64) -> None:
        for queue in self._broker.take_wakeups():
            self._deliver_from(queue, now_ms)
            # A time to live of 0 means "at once or not at all": go on while somebody takes.
            while queue.awake and 0 < queue.next_expiry_ms() <= now_ms:
                self._broker.take_wakeup(queue)
                self._deliver_from(queue, now_ms)
            if not queue.deleted and queue.next_due_ms() > 0:
                self._broker.expire_messages(queue, now_ms)

    def _deliver_from(self, queue: Queue, now_ms: i64) -> None:
        if queue.releases_to is not None:
            self._broker.sort_room(queue, now_ms)
            return
        for delivery in queue.deliver(now_ms):
            subscriber = cast(Subscriber, delivery.consumer.holder)
            subscriber.deliver(delivery)
            self.touch(subscriber.session)

    # -- the disk ------------------------------------------------------------------------

    def blocked_reason(self) -> str:
        """Why nobody may publish for now, in RabbitMQ's words; "" = everybody may."""
        return self._look().node_reason()

    def _look(self) -> Admission:
        """The gate, with what is known by now."""
        admission = self.admission
        admission.stalled = self._committer.stalled != "" or self._worker.stalled != ""
        admission.alarms.look()
        return admission

    def publishers_wait(self) -> bool:
        return self._broker.flow.journal_behind or self.blocked_reason() != ""

    def disk_stalled(self) -> str:
        """Why the disk takes nothing at present, in a sentence; "" = it does."""
        stalled = self._committer.stalled
        return stalled if stalled != "" else self._worker.stalled

    def durable_position(self) -> i64:
        """As far as the journal is on disk."""
        return self._engine.journal.durable_position

    def _commit(self, now_ms: i64) -> None:
        """Pass on what was journalled: at once while nothing is under way, else in full groups."""
        engine = self._engine
        pending = engine.pending_bytes()
        idle = self._committer.idle()
        if not idle and pending < GROUP_BYTES_MAX:
            return
        overdue = not 0 <= now_ms - self._synced_at_ms < SYNC_INTERVAL_MS
        sync = len(self.waiting) > 0 or overdue
        journal = engine.journal
        unfinished = journal.durable_position < journal.position or journal.has_retired()
        if pending == 0 and not (sync and unfinished):
            return
        group = engine.seal(sync)
        if group is None:
            return
        self._broker.flow.sealed()
        if sync:
            self._synced_at_ms = now_ms
        self._unwritten_bytes += _size(group)
        # While segments are written, even a fast disk may take its time over a small sync.
        fast = self._worker.idle() and (not sync or self._committer.last_sync_ms <= INLINE_SYNC_MS)
        if idle and fast and pending <= INLINE_GROUP_BYTES:
            self._committer.commit_inline(group)
        else:
            self._committer.submit(group)

    def _tell_stagers(self) -> None:
        """Those whose staged sets or batches have moved; what that means is on disk."""
        for watcher in self._broker.staging.take_told():
            self._confirm(cast(Session, watcher), self._engine.journal.durable_position)

    def _confirm(self, session: Session, position: i64) -> None:
        """It goes on with what it had put off, so all may happen here that bytes can do."""
        try:
            session.confirm(position)
        except Exception:  # a fault of ours costs one connection, not the broker
            logger.exception("internal error, closing a connection")
            session.closed = True
            session.awaiting_disk = False
        self.fed(session)

    def _commit_definitions(self) -> None:
        """Before the log: a queue that is deleted there must not come back empty from here.

        And before the replies to declarations leave.
        """
        if self._broker.definitions.dirty:
            self._broker.definitions.commit()
            self._defined = True

    def _checkpoint(self, now_ms: i64) -> None:
        """Not after each commit: a client that declares one thing at a time would wait for it."""
        if self._defined:
            self._defined = False
            self._checkpoint_at_ms = now_ms + CHECKPOINT_AFTER_MS
            return
        due = not 0 < self._checkpoint_at_ms - now_ms <= CHECKPOINT_AFTER_MS
        if due and self._broker.definitions.in_log:
            self._broker.definitions.checkpoint()
            self._checkpoint_at_ms = now_ms + CHECKPOINT_AFTER_MS

    def collect(self) -> None:
        """Take what the committer and the worker have finished; confirm, and wake readers."""
        journal = self._engine.journal
        flow = self._broker.flow
        before = journal.durable_position
        for group in self._committer.collect():
            self._unwritten_bytes -= _size(group)
            self._engine.committed(group)
            flow.committed()
        self._worker.collect()
        self._look_at_disk(flow)
        self._broker.wake_readers()
        position = journal.durable_position
        if not self._broker.waits.take_moved() and position == before:
            return
        self._broker.dead_letters.settle()
        if len(self.waiting) == 0:
            return
        waiting = self.waiting
        self.waiting = []
        for session in waiting:
            session.waiting_listed = False
            self._confirm(session, position)

    def _look_at_disk(self, flow: Flow) -> None:
        """Do the indexes of queues wait for it?"""
        engine = self._engine
        if engine.store.pending_bytes() == 0:
            flow.nothing_stored()
        flow.journal_behind = (
            engine.pending_bytes() + self._unwritten_bytes > 4 * GROUP_BYTES_MAX
            or engine.journal_is_behind()
        )
        flow.paging_behind = engine.paging_is_behind()

    def _hand_over(self) -> None:
        """Jobs the engine and the queues asked for."""
        board = self._engine.board
        if board.writes:
            self._worker.submit_writes(board.take_writes())
        if board.reads:
            self._worker.submit_reads(board.take_reads())

    def has_work(self) -> bool:
        """Should the loop come back without waiting?"""
        broker = self._broker
        return (
            self._more_work
            or broker.flow.has_work()
            or broker.has_wakeups()
            or broker.has_refills()
            or broker.replies.count_answered() > 0
            or broker.staging.has_work()
            or self._is_awaited()
            or (self.part is not None and self.part.has_work())
        )

    def _is_awaited(self) -> bool:
        """Does a session wait for what was journalled behind the last group?"""
        if len(self.waiting) == 0 or self._engine.pending_bytes() == 0:
            return False
        return self._committer.idle()

    def wait_ms(self, longest_ms: i64, now_ms: WallMs, mono_ms: MonoMs) -> i64:
        """How long nothing is due by either clock; at most ``longest_ms``."""
        wait_ms = longest_ms
        due_ms = self._broker.next_due_ms()
        if due_ms > 0:
            wait_ms = min(wait_ms, due_ms - now_ms)
        unused_ms = self._broker.idleness.next_ms()
        if unused_ms > 0:
            wait_ms = min(wait_ms, unused_ms - mono_ms)
        return max(0, wait_ms)


def _size(group: JournalGroup) -> i64:
    return group.size if group.store is None else group.size + group.store.size
