"""``QueueTurns``: the queues that have something to do in this turn, or at a time.

    a queue asks ─► wakeups ─► deliver_from (the turn), or sort for an internal queue
    a time comes ─► schedule ─► expire, or release for an internal queue
                 └► the scan loop, of a node that has it

A queue that is not served in this turn keeps its place.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.rules.flow import Flow
from penstock.broker.topology.internal_queues import is_staged
from penstock.broker.topology.vhost import Vhost
from penstock.broker.transfers.dead_letters import DeadLetters
from penstock.broker.transfers.delays import Delays
from penstock.broker.transfers.internal_routes import InternalRoutes
from penstock.broker.transfers.staging import Staging
from penstock.core.clock_types import WallMs
from penstock.core.headers import HeaderReader
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueContext
from penstock.queues.queue import Queue
from penstock.queues.scan_loop import ScanLoop
from penstock.queues.schedule import Schedule
from penstock.routing.exchanges import Exchange

INTERNAL_WAITS_MS: Final[i64] = 20
"""A backlog that would move faster than the disk takes it looks again after so long."""
DUE_AT_ONCE: Final[i64] = 64
"""Queues whose time has come, in one turn: with hundreds, the first would wait for the last."""
DUE_MESSAGES: Final[i64] = 1024
"""With so many messages of theirs, and those of one queue more, a turn has enough."""


@final
class QueueTurns:
    """``vhosts`` is the broker's own registry; ``schedule`` has the times of messages."""

    def __init__(
        self,
        context: QueueContext,
        scan: ScanLoop | None,
        vhosts: dict[str, Vhost],
        reader: HeaderReader,
        dead_letters: DeadLetters,
        staging: Staging,
        flow: Flow,
    ) -> None:
        self.schedule: Final = Schedule()
        self.scan: ScanLoop | None = scan
        self.long_works: Final = context.long_works  # a part of the turn
        self._context: Final = context
        self._vhosts: Final = vhosts
        self.internal_routes: Final = InternalRoutes(self.sort_internal)  # a part of the turn
        self._delays: Final = Delays(
            vhosts, self.schedule, reader, dead_letters.writer, dead_letters.settle_later
        )
        self._dead_letters: Final = dead_letters
        self._staging: Final = staging
        self._flow: Final = flow
        self._deliver_from: Callable[[Queue, WallMs], None] = _deliver_nothing

    def deliver_with(self, deliver_from: Callable[[Queue, WallMs], None]) -> None:
        """``deliver_from`` hands what a queue has to the sessions of its consumers."""
        self._deliver_from = deliver_from

    # -- queues that ask ---------------------------------------------------------------------

    def to_serve(self, most: i64) -> list[Queue]:
        """The first so many that are awake, then those with messages for this turn or none."""
        urgent = self._context.urgent
        found = [*islice(self._context.wakeups, int(most)), *urgent]
        urgent.clear()
        return found

    def wake_behind(self, queue: Queue, consumer: Consumer) -> None:
        """Room may have come to its consumer; its turn comes after those that have asked."""
        queue.begin_turn()
        queue.room_came(consumer)

    def wake_refills(self) -> None:
        """The moment is over: consumers with nearly full windows get their refill now."""
        for queue in self._context.refills:
            queue.refilled()
        self._context.refills.clear()

    def may_poll(self, queue: Queue, now_ms: WallMs) -> bool:
        """What is over its time dies, and consumers that wait with room have their turn, first.

        False: the rest of that is for the next turn, and so is the poll.
        """
        left = DUE_MESSAGES
        while left > 0:
            count = queue.expire(now_ms)
            if count == 0:
                break
            left -= count
        if left <= 0:
            queue.wake()  # so that the loop comes back at once
            return False
        if queue.spare_room(1) == 0:
            return True
        self._deliver_from(queue, now_ms)
        return not queue.awake or queue.spare_room(1) == 0

    def sort_internal(self, queue: Queue, now_ms: WallMs) -> None:
        """Something in an internal queue may go on."""
        queue.begin_turn()
        if queue.deleted:
            return
        if is_staged(queue.name):
            self._staging.woken(queue)
            return
        exchange = cast(Exchange, queue.releases_to)
        if not exchange.delays and self._flow.journal_behind:
            self.schedule.plan(WallMs(now_ms + INTERNAL_WAITS_MS), queue)
            return
        share = self.internal_routes.share_for(queue)
        if share is None:
            return
        letters = self._dead_letters
        if exchange.delays:
            self._delays.sort(queue, share, now_ms)
        else:
            topics = self._vhosts[queue.vhost].topics
            topics.move(exchange, letters.writer, letters.settle_later, share, now_ms)

    # -- times -------------------------------------------------------------------------------

    def next_due_ms(self) -> WallMs:
        """When something is due, as far as time alone makes it; 0 = nothing is."""
        next_ms = WallMs(self.schedule.next_ms())
        scan = self.scan
        if scan is None or 0 < next_ms < scan.next_ms():
            return next_ms
        return scan.next_ms()

    def scan_channels(self, now_ms: WallMs) -> bool:
        """Let the scan loop, if there is one, look at some; True = it would go on at once."""
        scan = self.scan
        if scan is None:
            return False
        if scan.wants_channels(now_ms):
            queues: list[Queue] = []
            for vhost in self._vhosts.values():
                queues.extend(vhost.topics.channel_queues())
            scan.refresh(queues, now_ms)
        return scan.step(now_ms)

    def plan(self, queue: Queue) -> None:
        """Its messages are looked at when something is due; that may be in this turn."""
        self.schedule.plan(queue.next_due_ms(), queue)

    def visit_due(self, now_ms: WallMs) -> None:
        """Expire or release messages whose time has come.

        Of many queues that are due the first ones: what they let out leaves before the next are
        looked at, and the schedule says that there are more.  All are taken before any is visited:
        a queue that is due again at once waits for its next turn.
        """
        left = DUE_MESSAGES
        for queue in self._due(now_ms):
            if left <= 0:
                self.schedule.add(queue.expiry_due_ms, queue)  # first in the next turn
            elif not queue.deleted:
                left -= self._visit_due(queue, now_ms)

    def _due(self, now_ms: WallMs) -> list[Queue]:
        """Entries that a later one has replaced cost nothing and do not count."""
        found: list[Queue] = []
        while len(found) < DUE_AT_ONCE:
            entries = self.schedule.take_due(now_ms, DUE_AT_ONCE - len(found))
            if len(entries) == 0:
                break
            for when_ms, queue in entries:
                if not queue.deleted and when_ms == queue.expiry_due_ms:
                    found.append(queue)
        return found

    def _visit_due(self, queue: Queue, now_ms: WallMs) -> i64:
        """Returns how many messages left or were released."""
        queue.visited()
        exchange = queue.releases_to
        if exchange is not None and cast(Exchange, exchange).delays:
            return self._delays.release(queue, now_ms)
        count = queue.expire(now_ms)
        if not queue.scanned:
            count += queue.release_due(now_ms)
        if exchange is not None:
            queue.wake()
        self.plan(queue)
        return count


def _deliver_nothing(queue: Queue, now_ms: WallMs) -> None:
    """In a broker without a turn."""
