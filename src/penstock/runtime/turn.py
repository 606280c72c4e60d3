"""What happens between reading the sockets and writing them: one turn of the broker.

    what other nodes sent ─► wakeups, journal
    wakeups ─► deliveries ─► sessions' output
    due times ─► expiry, releases ─► dead letters, staged batches ─► deliveries
    definitions ─► SQLite
    what was journalled ─► next group (``GroupCommit``) ─► committer
    groups on disk ─► confirms ─► sessions' output
    disk worker ─► wakeups; a slice of the engine's work ─► disk jobs ─► disk worker
    what is for other nodes ─► sessions' output

The turn is a list of parts: ``Turn.__init__`` has their order, and the reasons for it.  A part
without work is passed over.  Sessions that got something to say are collected in ``touched``;
the loop flushes them.
"""

import logging
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.rules.admission import Admission
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import BrokerError
from penstock.core.long_work import LongWork
from penstock.core.steps import steps
from penstock.core.turn_part import ALWAYS, TurnPart
from penstock.queues.allocator import DELIVERIES_AT_ONCE
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.cluster_part import ClusterPart
from penstock.runtime.disk.committer import Committer
from penstock.runtime.disk.worker import DiskWorker
from penstock.runtime.output_budget import OutputBudget
from penstock.runtime.session import Session, Subscriber
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
"""Journal records that no confirm waits for are synced this often."""
CHECKPOINT_AFTER_MS: Final[i64] = 500
"""Definitions leave SQLite's log when none was committed for so long."""

CANCELLED_AT_ONCE: Final[i64] = 1000
CANCEL_STEPS: Final[i64] = 20
"""Of each consumer whose queue is gone."""

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
        self.admission = broker.admission
        self.output = OutputBudget(engine.ram)
        self.previous_ms = WallMs(0)  # when the last turn was
        self._broker = broker
        self._engine = engine
        self.committer = committer
        self.worker = worker
        self._more_work: bool = False
        self._cluster: list[ClusterPart] = []  # at most one
        deliveries = Deliveries(self, broker)
        definitions = DefinitionCommits(broker)
        self._parts: list[TurnPart] = [
            # Other nodes' messages are delivered in the turn in which they came.
            Received(self._cluster),
            Refills(self, broker),
            DirectReplies(self, broker),
            Scan(broker),
            # Before the deliveries: what comes back is delivered in the same turn.
            broker.queue_turns.long_works,
            # Before anything expires: a time to live of 0 means "at once or not at all".
            deliveries,
            UnusedQueues(self, broker),
            DueQueues(broker),
            # Before all else that routes: these had to wait.
            broker.queue_turns.internal_routes,
            broker.vhost_maker.histories,
            # Behind what ends messages: what has expired goes on in the same turn.
            broker.dead_letters,
            # Behind the dead letters: it waits for those that are left, not for the newest.
            broker.staging,
            # Before the deliveries, which wait for the copies of what was traced before them.
            broker.traces,
            # What was released, has died or was staged is delivered in the same turn.
            deliveries,
            broker.vhost_maker.sweep,
            broker.letting_go,
            # Before the definitions: a session that goes on may declare something.
            StagerNews(self, broker),
            # Before the journal: a queue that is deleted in it must not come back empty from
            # the definitions.  Before the end: replies to declarations leave then.
            definitions,
            GroupCommit(self, broker, engine, definitions),
            # Behind the journal: what is sealed is not in memory twice.
            EngineWork(self, broker, engine),
            # All that this turn has brought forth, in one batch.
            Sent(self._cluster),
        ]
        broker.queue_turns.deliver_with(deliveries.deliver_from)

    def join(self, cluster: ClusterPart) -> None:
        """From now on this is a node of a cluster."""
        self._cluster.append(cluster)

    def leave(self) -> None:
        """No node of a cluster any more."""
        self._cluster.clear()

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
        self._broker.events.set_now(now_ms)
        self.flow.begin_turn(mono_ms)
        self.stood_still(now_ms)

    def stood_still(self, now_ms: WallMs) -> bool:
        """See ``ClusterPart``: before clients are heard, and before anything is said to them."""
        return len(self._cluster) > 0 and self._cluster[0].stood_still(now_ms)

    def run(self, now_ms: WallMs, idle: bool) -> None:
        """One turn; ``idle`` = no socket had anything to read."""
        more = False
        self._more_work = False
        for part in self._parts:
            if len(part.waiting) > 0 and part.run(now_ms, idle):
                more = True
        if more:
            self._more_work = True
        self.previous_ms = now_ms

    def has_work(self) -> bool:
        """Should the loop come back without waiting?"""
        broker = self._broker
        return (
            self._more_work
            or broker.flow.has_work()
            or len(broker.queue_context.wakeups) > 0
            or len(broker.queue_context.refills) > 0
            or len(broker.queue_turns.long_works.waiting) > 0
            or len(broker.replies.answered) > 0
            or len(broker.queue_context.deaths) > 0
            or (len(broker.staging.waiting) > 0 and broker.staging.has_work())
            or self._is_awaited()
            or (len(self._cluster) > 0 and self._cluster[0].has_work())
        )

    def _is_awaited(self) -> bool:
        """Does a session wait for what was journalled behind the last group?"""
        if len(self.waiting) == 0 or self._engine.pending_bytes() == 0:
            return False
        return self.committer.idle()

    def wait_ms(self, longest_ms: i64, now_ms: WallMs, mono_ms: MonoMs) -> i64:
        """How long nothing is due by either clock; at most ``longest_ms``."""
        wait_ms = longest_ms
        due_ms = self._broker.queue_turns.next_due_ms()
        if due_ms > 0:
            wait_ms = min(wait_ms, due_ms - now_ms)
        unused_ms = self._broker.idleness.next_ms()
        if unused_ms > 0:
            wait_ms = min(wait_ms, unused_ms - mono_ms)
        return max(0, wait_ms)

    # -- for consumers whose queue is not what it was ------------------------------------

    def cancelled(self, consumers: list[Consumer]) -> None:
        """Tell consumers that their queue is gone, the last of many in later turns."""
        self._broker.queue_turns.long_works.start(Cancelling(self, consumers))

    def send_away(self, consumers: list[Consumer], why: str) -> None:
        """Their queue cannot be served here: their clients are to go to another node."""
        for consumer in consumers:
            subscriber = cast(Subscriber, consumer.holder)
            subscriber.send_away(consumer, why)
            self.touch(subscriber.session)

    def moved(self, consumers: list[Consumer], queue: Queue) -> None:
        """Their queue has another master, and this has taken its place."""
        for consumer in consumers:
            subscriber = cast(Subscriber, consumer.holder)
            subscriber.queue_moved(consumer, queue)
            self.touch(subscriber.session)

    # -- the disk ------------------------------------------------------------------------

    def blocked_reason(self) -> str:
        """Why publishers are blocked now, in RabbitMQ's words; "" = they are not."""
        return self.look().cluster_reason()

    def look(self) -> Admission:
        """The gate, with what is known by now."""
        admission = self.admission
        admission.stalled = self.committer.stalled != "" or self.worker.stalled != ""
        admission.alarms.look()
        return admission

    def publishers_wait(self) -> bool:
        return self._broker.flow.journal_behind or self.blocked_reason() != ""

    def disk_stalled(self) -> str:
        """Why the disk takes nothing at present, in a sentence; "" = it does."""
        stalled = self.committer.stalled
        return stalled if stalled != "" else self.worker.stalled

    def durable_position(self) -> i64:
        """As far as the journal is on disk."""
        return self._engine.journal.durable_position

    def confirm_waiting(self) -> None:
        """The journal is on disk further than before."""
        waiting = self.waiting
        self.waiting = []
        for session in waiting:
            session.waiting_listed = False
            self.confirm(session, self._engine.journal.durable_position)

    def take_touched(self) -> list[Session]:
        """Those that may have output; each is to be marked as not touched before it is written."""
        touched = self.touched
        self.touched = []
        return touched

    def confirm(self, session: Session, position: i64) -> None:
        """It goes on with what it had put off, so all may happen here that bytes can do."""
        try:
            session.confirm(position)
        except Exception:  # a fault of ours costs one connection, not the broker
            logger.exception("internal error, closing a connection")
            session.abort()
        self.fed(session)


@final
class Cancelling(LongWork):
    """Of consumers whose queue is gone."""

    def __init__(self, turn: Turn, consumers: list[Consumer]) -> None:
        self._turn = turn
        self._consumers = consumers
        self._place: i64 = 0

    def step(self) -> bool:
        first = self._place
        self._place = min(i64(len(self._consumers)), first + CANCELLED_AT_ONCE)
        steps.count((self._place - first) * CANCEL_STEPS)
        for consumer in self._consumers[first : self._place]:
            subscriber = cast(Subscriber, consumer.holder)
            subscriber.queue_lost(consumer)
            self._turn.touch(subscriber.session)
        return self._place < len(self._consumers)


# -- the parts -------------------------------------------------------------------------------


@final
class Received(TurnPart):
    """Takes in what other nodes sent."""

    def __init__(self, cluster: list[ClusterPart]) -> None:
        super().__init__(cluster)
        self._cluster = cluster

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        self._cluster[0].begin(now_ms)
        return False


@final
class Sent(TurnPart):
    """Sends to other nodes."""

    def __init__(self, cluster: list[ClusterPart]) -> None:
        super().__init__(cluster)
        self._cluster = cluster

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        self._cluster[0].end(now_ms)
        return False


@final
class Refills(TurnPart):
    """Wakes queues whose consumers have nearly full windows, unless more may come in at once."""

    def __init__(self, turn: Turn, broker: Broker) -> None:
        super().__init__(broker.queue_context.refills)
        self._turn = turn
        self._turns = broker.queue_turns
        self._since_ms = WallMs(0)  # the last turn that had none waiting

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        if self._since_ms == 0:
            self._since_ms = self._turn.previous_ms
        if idle or not 0 <= now_ms - self._since_ms <= REFILL_DELAY_MS:
            self._turns.wake_refills()
            self._since_ms = WallMs(0)
        return False


@final
class DirectReplies(TurnPart):
    """Direct replies, which wait in no queue."""

    def __init__(self, turn: Turn, broker: Broker) -> None:
        super().__init__(broker.replies.answered)
        self._turn = turn
        self._replies = broker.replies

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        for consumer in self._replies.take_answered():
            subscriber = cast(Subscriber, consumer.holder)
            try:
                subscriber.answer(consumer.take_answers())
            except BrokerError as error:
                subscriber.session.channel_failed(subscriber.number, error, 0)
            self._turn.touch(subscriber.session)
        return False


@final
class Scan(TurnPart):
    """nsqd's scan loop, of a node that has it (``queues/scan_loop.py``)."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(() if broker.queue_turns.scan is None else ALWAYS)
        self._turns = broker.queue_turns

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        return self._turns.scan_channels(now_ms)


@final
class Deliveries(TurnPart):
    """Queues that asked for a turn have it, the last of many in the next one."""

    def __init__(self, turn: Turn, broker: Broker) -> None:
        super().__init__(broker.queue_context.wakeups)
        self._turn = turn
        self._turns = broker.queue_turns
        self._traces = broker.traces
        self._left: i64 = DELIVERIES_AT_ONCE

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        self._left = DELIVERIES_AT_ONCE
        for queue in self._turns.to_serve(DELIVERIES_AT_ONCE):
            # A time to live of 0 means "at once or not at all": go on while a consumer takes.
            if self._left <= 0 and queue.next_expiry_ms() != now_ms:
                continue
            self.deliver_from(queue, now_ms)
            while queue.awake and 0 < queue.next_expiry_ms() <= now_ms:
                if self._left <= 0 and queue.next_expiry_ms() != now_ms:
                    break
                self.deliver_from(queue, now_ms)
            if not queue.deleted and queue.next_due_ms() > 0:
                self._turns.plan(queue)
        return False

    def deliver_from(self, queue: Queue, now_ms: WallMs) -> None:
        if queue.releases_to is not None:
            self._turns.sort_internal(queue, now_ms)
            return
        if self._traces.behind and self._traces.hold(queue):
            return
        self._left -= 1
        for delivery in queue.deliver(now_ms):
            subscriber = cast(Subscriber, delivery.consumer.holder)
            subscriber.deliver(delivery)
            self._turn.touch(subscriber.session)
            self._left -= 1


@final
class UnusedQueues(TurnPart):
    """Deletes queues whose ``x-expires`` is over."""

    def __init__(self, turn: Turn, broker: Broker) -> None:
        super().__init__(broker.idleness.schedule.entries)
        self._turn = turn
        self._broker = broker

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        if self._broker.idleness.is_due():
            self._turn.cancelled(self._broker.delete_unused())
        return False


@final
class DueQueues(TurnPart):
    """Expires and releases messages whose time has come."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.queue_turns.schedule.entries)
        self._turns = broker.queue_turns

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        if self._turns.schedule.next_ms() <= now_ms:
            self._turns.visit_due(now_ms)
        return False


@final
class StagerNews(TurnPart):
    """Tells sessions whose staged sets or batches have moved."""

    def __init__(self, turn: Turn, broker: Broker) -> None:
        super().__init__(broker.staging.told)
        self._turn = turn
        self._staging = broker.staging

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        for watcher in self._staging.take_told():
            self._turn.confirm(cast(Session, watcher), self._turn.durable_position())
        return False


@final
class DefinitionCommits(TurnPart):
    """Commits what was declared; moves it out of SQLite's log when none was for a while."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._definitions = broker.definitions
        self._checkpoint_at_ms = WallMs(0)

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        definitions = self._definitions
        if definitions.dirty:
            definitions.commit()
        elif 0 < self._checkpoint_at_ms - now_ms <= CHECKPOINT_AFTER_MS:
            return False
        elif definitions.in_log:
            # Not after each commit: a client that declares one by one would wait for it.
            definitions.checkpoint()
        else:
            return False
        self._checkpoint_at_ms = WallMs(now_ms + CHECKPOINT_AFTER_MS)
        return False


@final
class GroupCommit(TurnPart):
    """Seals what was journalled, and confirms what the committer has put on the disk."""

    def __init__(
        self, turn: Turn, broker: Broker, engine: Engine, definitions: DefinitionCommits
    ) -> None:
        super().__init__()
        self._turn = turn
        self._broker = broker
        self._engine = engine
        self._definitions = definitions
        self._synced_at_ms = WallMs(0)
        self._groups_away: i64 = 0  # with the committer
        self._bytes_away: i64 = 0

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        engine = self._engine
        flow = self._broker.flow
        waits = self._broker.waits
        before = engine.journal.durable_position
        pending = engine.pending_bytes()
        if engine.store.unsealed_bytes == 0:
            flow.nothing_stored()
        overdue = not 0 <= now_ms - self._synced_at_ms < SYNC_INTERVAL_MS
        sync = len(self._turn.waiting) > 0 or overdue
        if pending > 0 or (sync and self._is_unfinished()):
            self._seal(pending, sync, now_ms)
        if self._groups_away > 0:
            self._collect()
        if idle and self._turn.committer.owes_note and self._turn.committer.idle():
            self._turn.committer.attest()
        if flow.journal_behind or pending > 0:
            waiting = engine.pending_bytes() + self._bytes_away
            is_behind = waiting > 4 * GROUP_BYTES_MAX or engine.journal_is_behind()
            if is_behind != flow.journal_behind:
                flow.note_journal(is_behind)
        if waits.moved or engine.journal.durable_position != before:
            waits.take_moved()
            self._broker.dead_letters.settle()
            if len(self._turn.waiting) > 0:
                self._turn.confirm_waiting()
                self._definitions.run(now_ms, idle)  # of requests that had waited behind that
        return False

    def _is_unfinished(self) -> bool:
        journal = self._engine.journal
        return not journal.is_on_disk() or journal.has_retired()

    def _seal(self, pending: i64, sync: bool, now_ms: WallMs) -> None:
        """At once while nothing is under way, else in full groups."""
        committer = self._turn.committer
        idle = committer.idle()
        if not idle and pending < GROUP_BYTES_MAX:
            return
        group = self._engine.seal(sync)
        if group is None:
            return
        self._broker.flow.sealed()
        if sync:
            self._synced_at_ms = now_ms
        self._groups_away += 1
        self._bytes_away += _size(group)
        # While segments are written, even a fast disk may take its time over a small sync.
        fast = not group.sync or committer.last_sync_ms <= INLINE_SYNC_MS
        small = pending <= INLINE_GROUP_BYTES and (group.side is None or group.side.small)
        if idle and fast and small and self._turn.worker.idle():
            committer.commit_inline(group)
        else:
            committer.submit(group)

    def _collect(self) -> None:
        for group in self._turn.committer.collect():
            self._groups_away -= 1
            self._bytes_away -= _size(group)
            self._engine.committed(group)
            self._broker.flow.committed()


@final
class EngineWork(TurnPart):
    """Finishes what the worker has done, and hands over the jobs of the engine's next slice."""

    def __init__(self, turn: Turn, broker: Broker, engine: Engine) -> None:
        super().__init__()
        self._turn = turn
        self._broker = broker
        self._engine = engine

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        engine = self._engine
        worker = self._turn.worker
        board = engine.board
        worker.collect()
        if board.arrived:
            self._broker.wake_readers()
        more = engine.work(now_ms, idle, self._turn.look().alarms.disk)
        if engine.paging_is_behind != self._broker.flow.paging_behind:
            self._broker.flow.note_paging(engine.paging_is_behind)
        if board.writes:
            worker.submit_writes(board.take_writes())
        if board.reads:
            worker.submit_reads(board.take_reads())
        return more


def _size(group: JournalGroup) -> i64:
    return group.size if group.store is None else group.size + group.store.size
