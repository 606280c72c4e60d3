"""``Batches``: the committed batches of a node that are being published.

    begin ─► published a slice at a time ─► all of it is on disk ─► take_published ─► take_done

Batches of one producer come one after the other, those of different producers take turns.  A
batch waits when what comes next is on its way from the disk, or a queue has no room for it.
``staging`` tells the whole, and when to publish.

**Other nodes.**  What goes to queues of this node alone is acknowledged in its set within the same
block of the journal.  What has copies or its master elsewhere is held in the set until those nodes
have it (``Slice``), so that no change of a master loses it; at most ``UNDER_WAY_MAX`` slices are.
If a queue gets another master meanwhile, it is not known what that has of them.  They are published
again then, in order, before anything else of their batch, and so they are after a crash of this
node: at most so many slices may be twice where they were to go.  Nothing better can be promised
without a journal that two nodes share.
"""

from collections import deque
from typing import Final, final

from penstock.backing.interface import BackingQueue
from penstock.broker.transfers.producers import Key
from penstock.broker.transfers.staged import Batch, Slice, StagedSet
from penstock.broker.transfers.staged_publisher import StagedPublisher
from penstock.core.clock_types import WallMs
from penstock.core.message import Message
from penstock.routing.steps import RoutingShare
from penstock.storage.engine.engine import Engine

PUBLISHED_AT_ONCE: Final = 512
PUBLISHED_BYTES_MAX: Final = 1024 * 1024
FULL_WAIT_MS: Final = 50
"""A queue that has no room is asked again after so long."""
UNDER_WAY_MAX: Final = 16
"""Slices of a batch: what may be doubled, and is in memory meanwhile."""
MOVED: Final = "a queue got another master, which may lack some of it: that is published again"


@final
class Batches:
    """``under_way``: by producer; the first of each is published."""

    def __init__(self, engine: Engine, publisher: StagedPublisher) -> None:
        self.under_way: dict[Key, deque[Batch]] = {}
        self.moved: bool = False  # something may go on at once
        self.published_count: int = 0
        self._turns: deque[Key] = deque()  # whose batch is next
        self._share = RoutingShare()
        self._engine = engine
        self._publisher = publisher

    def begin(self, batch: Batch) -> None:
        key = batch.producer
        if key not in self.under_way:
            self.under_way[key] = deque()
            self._turns.append(key)
        self.under_way[key].append(batch)
        self.moved = True

    def find(self, producer: Key, number: int) -> Batch | None:
        for batch in self.under_way.get(producer, ()):
            if batch.number == number:
                return batch
        return None

    def have_work(self) -> bool:
        """Would ``settle``, ``take_done`` or ``publish`` do something, if nothing else happens?"""
        if self.moved:
            return True
        durable = self._engine.journal.durable_position
        return any(
            batches[0].is_safe(durable) or batches[0].can_settle()
            for batches in self.under_way.values()
        )

    def go_on(self) -> None:
        """A set has what it waited for."""
        self.moved = True

    def settle(self) -> None:
        """Other nodes may have said something."""
        for batches in self.under_way.values():
            while batches[0].can_settle():
                self._settle(batches[0])
                self.moved = True

    def _settle(self, batch: Batch) -> None:
        """The first slice; or all, if some are to be published again, for they come in order."""
        if not batch.is_stranded():
            first = batch.under_way.popleft()
            _let_go(first)
            return
        for one in batch.under_way:
            if one.is_stranded():
                one.staged.queue.backing.unfetch(one.messages)
                batch.publish_again(one)
            else:
                _let_go(one)
        batch.under_way.clear()

    def take_published(self, at_most: int) -> list[StagedSet]:
        """Some sets of batches all of which is published and on disk: they may be dropped."""
        durable = self._engine.journal.durable_position
        taken: list[StagedSet] = []
        for batches in self.under_way.values():
            batch = batches[0]
            if batch.is_safe(durable):
                taken += batch.take_sets(at_most - len(taken))
        return taken

    def take_done(self) -> list[Batch]:
        """Those that are published and on disk, and have no sets any more."""
        durable = self._engine.journal.durable_position
        done: list[Batch] = []
        for key, batches in list(self.under_way.items()):
            batch = batches[0]
            if batch.sets or not batch.is_safe(durable):
                continue
            done.append(batches.popleft())
            batch.end()
            if not batches:
                del self.under_way[key]
                self._turns.remove(key)
        self.moved = len(done) > 0
        return done

    def publish(self, now_ms: WallMs) -> Batch | None:
        """A slice of the first batch, in turn, that can go on; None = none can."""
        self.moved = False
        self._share.begin()
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            batch = self.under_way[key][0]
            if not batch.is_published() and self._publish(batch, now_ms):
                self.moved = True
                return batch
        return None

    def _publish(self, batch: Batch, now_ms: WallMs) -> bool:
        """False: it waits for the disk, or for room in a queue."""
        if len(batch.under_way) >= UNDER_WAY_MAX:
            return False
        if batch.is_stranded():
            batch.wait(MOVED)
            return False
        staged = batch.sets[batch.at]
        if staged.waits or 0 <= now_ms - batch.full_at_ms < FULL_WAIT_MS:
            return False
        backing = staged.queue.backing
        messages = backing.fetch(PUBLISHED_AT_ONCE, PUBLISHED_BYTES_MAX)
        if not messages and backing.ready_count() > 0:
            batch.wait(backing.why_stopped())
            staged.await_disk()
            return False
        count = self._publisher.publish(
            batch.vhost, messages, now_ms, batch.resumed, self._share, decided=True
        )
        batch.publish(count, self._publisher.unroutable, self._publisher.trouble())
        self.published_count += count
        is_full = self._publisher.full != ""
        if count < len(messages):
            backing.unfetch(messages[count:])
            if is_full:
                batch.wait_for_room(now_ms)
            else:
                self._turns.rotate(1)  # the route that is unfinished goes on first
        if count > 0:
            self._taken(batch, backing, messages[:count])
        if backing.ready_count() == 0:
            batch.next_set(int(self._engine.journal.position))
            return True
        return count > 0 or not is_full

    def _taken(self, batch: Batch, backing: BackingQueue, messages: list[Message]) -> None:
        """These are where they should be: in the same block of the journal, or on their way."""
        waits = batch.vhost.waits.take()
        if waits:
            staged = batch.sets[batch.at]
            batch.under_way.append(Slice(batch.at, staged, messages, waits))
        else:
            backing.ack_behind(messages)


def _let_go(one: Slice) -> None:
    """Behind its publishes in the journal, where those are in this node's."""
    one.staged.queue.backing.ack_behind(one.messages)
