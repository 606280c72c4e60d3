"""What happens between reading the sockets and writing them: one turn of the broker.

    wakeups ─► deliveries ─► sessions' output
    due times ─► expiry
    groups on disk ─► confirms ─► sessions' output
    what was logged ─► next group ─► committer

Sessions that got something to say are collected in ``touched``; the loop flushes them.
"""

from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.server.amqp_channel import AmqpChannel
from penstock.server.committer import Committer
from penstock.server.session import Session
from penstock.storage.message_log import MessageLog

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


@final
class Turn:
    """The broker's turn; knows no sockets."""

    def __init__(self, broker: Broker, log: MessageLog, committer: Committer) -> None:
        self.touched: list[Session] = []
        self.waiting: list[Session] = []  # confirms wait for the disk
        self._broker = broker
        self._log = log
        self._committer = committer
        self._synced_at_ms: i64 = 0
        self._written_position: i64 = log.position
        self._refill_since_ms: i64 = 0  # the last turn that had no refills waiting

    def touch(self, session: Session) -> None:
        """This session may have output."""
        if not session.touched:
            session.touched = True
            self.touched.append(session)

    def fed(self, session: Session) -> None:
        """A session took bytes from its peer."""
        self.touch(session)
        if session.awaiting_disk and not session.waiting_listed:
            session.waiting_listed = True
            self.waiting.append(session)

    def run(self, now_ms: i64, idle: bool) -> None:
        """One turn; ``idle`` = no socket had anything to read."""
        if self._broker.has_refills():
            if idle or not 0 <= now_ms - self._refill_since_ms <= REFILL_DELAY_MS:
                self._broker.wake_refills()
        else:
            self._refill_since_ms = now_ms
        self._deliver(now_ms)
        next_ms = self._broker.schedule.next_ms()
        if next_ms > 0 and next_ms <= now_ms:
            self.cancelled(self._broker.take_due(now_ms))
            self._deliver(now_ms)
        self._commit_definitions()
        self._commit_definitions()
        self._commit(now_ms)
        self.collect()

    def cancelled(self, consumers: list[Consumer]) -> None:
        """Tell consumers that their queue is gone."""
        for consumer in consumers:
            channel = cast(AmqpChannel, consumer.holder)
            channel.queue_lost(consumer)
            self.touch(channel.link.session)

    def _deliver(self, now_ms: i64) -> None:
        for queue in self._broker.take_wakeups():
            self._deliver_from(queue, now_ms)
            # A time to live of 0 means "at once or not at all": go on while somebody takes.
            while queue.awake and 0 < queue.next_expiry_ms() <= now_ms:
                self._broker.take_wakeup(queue)
                self._deliver_from(queue, now_ms)
            if not queue.deleted and queue.next_expiry_ms() > 0:
                self._broker.expire_messages(queue, now_ms)

    def _deliver_from(self, queue: Queue, now_ms: i64) -> None:
        for delivery in queue.deliver(now_ms):
            channel = cast(AmqpChannel, delivery.consumer.holder)
            channel.deliver(delivery)
            self.touch(channel.link.session)

    # -- the disk ------------------------------------------------------------------------

    def behind(self) -> bool:
        """More was logged than the disk takes for now: publishers should pause."""
        return self._log.position - self._written_position > 4 * GROUP_BYTES_MAX

    def _commit(self, now_ms: i64) -> None:
        """Pass on what was logged: at once while nothing is under way, else in full groups."""
        log = self._log
        pending = log.pending_bytes()
        idle = self._committer.idle()
        if not idle and pending < GROUP_BYTES_MAX:
            return
        overdue = not 0 <= now_ms - self._synced_at_ms < SYNC_INTERVAL_MS
        sync = len(self.waiting) > 0 or overdue
        if pending == 0 and not (sync and log.durable_position < log.position):
            return
        group = log.seal(sync)
        if group is None:
            return
        if sync:
            self._synced_at_ms = now_ms
        fast = not sync or self._committer.last_sync_ms <= INLINE_SYNC_MS
        if idle and fast and pending <= INLINE_GROUP_BYTES:
            self._committer.commit_inline(group)
        else:
            self._committer.submit(group)

    def _commit_definitions(self) -> None:
        """Before the log: a queue that is deleted there must not come back empty from here.

        And before the replies to declarations leave.
        """
        if self._broker.definitions.dirty:
            self._broker.definitions.commit()

    def collect(self) -> None:
        """Take what the committer has finished, and confirm."""
        before = self._log.durable_position
        for group in self._committer.collect():
            self._log.committed(group)
            self._written_position = group.end_position
        position = self._log.durable_position
        if position == before or len(self.waiting) == 0:
            return
        waiting = self.waiting
        self.waiting = []
        for session in waiting:
            session.waiting_listed = False
            session.confirm(position)
            self.fed(session)

    def has_work(self) -> bool:
        """Should the loop come back without waiting?"""
        return self._broker.has_wakeups() or self._broker.has_refills()

    def next_due_ms(self) -> i64:
        return self._broker.schedule.next_ms()
