"""Batches that were decided and are being poured: ``Batches``, one for a node.

    begin ─► poured a slice at a time ─► all of it is on disk ─► take_poured ─► take_done

Batches of one producer come one after the other, those of different producers take turns.  A
batch waits when what comes next is on its way from the disk, or a queue has no room for it.
``staging`` tells the whole, and when to pour.
"""

from collections import deque
from typing import Final, cast, final

from penstock.backing.variable_queue import VariableQueue
from penstock.broker.pouring import Pouring
from penstock.broker.staged import Batch, StagedSet
from penstock.broker.vhost import Vhost
from penstock.core.message import Message
from penstock.storage.engine import Engine

POURED_AT_ONCE: Final = 512
POURED_BYTES_MAX: Final = 1024 * 1024
FULL_WAIT_MS: Final = 50
"""A queue that has no room is asked again after so long."""


@final
class Batches:
    """``under_way``: by (virtual host, producer); the first of each is poured."""

    def __init__(self, engine: Engine, pouring: Pouring) -> None:
        self.under_way: dict[tuple[str, str], deque[Batch]] = {}
        self.moved: bool = False  # something may go on at once
        self.poured_count: int = 0
        self._turns: deque[tuple[str, str]] = deque()  # whose batch is next
        self._engine = engine
        self._pouring = pouring

    def begin(self, batch: Batch) -> None:
        key = (batch.vhost.name, batch.producer)
        if key not in self.under_way:
            self.under_way[key] = deque()
            self._turns.append(key)
        self.under_way[key].append(batch)
        self.moved = True

    def find(self, vhost: Vhost, producer: str, number: int) -> Batch | None:
        for batch in self.under_way.get((vhost.name, producer), ()):
            if batch.number == number:
                return batch
        return None

    def have_work(self) -> bool:
        """Would ``take_done`` or ``pour`` do something, with nothing else happening?"""
        if self.moved:
            return True
        durable = self._engine.journal.durable_position
        return any(batches[0].is_safe(durable) for batches in self.under_way.values())

    def take_poured(self, at_most: int) -> list[StagedSet]:
        """Some sets of batches all of which is poured and on disk: they may be dropped."""
        durable = self._engine.journal.durable_position
        taken: list[StagedSet] = []
        for batches in self.under_way.values():
            batch = batches[0]
            if batch.is_safe(durable):
                while batch.sets and len(taken) < at_most:
                    taken.append(batch.sets.pop())
                batch.at = len(batch.sets)
        return taken

    def take_done(self) -> list[Batch]:
        """Those that are poured and on disk, and have no sets any more."""
        durable = self._engine.journal.durable_position
        done: list[Batch] = []
        for key, batches in list(self.under_way.items()):
            batch = batches[0]
            if batch.sets or not batch.is_safe(durable):
                continue
            done.append(batches.popleft())
            done[-1].done = True
            if not batches:
                del self.under_way[key]
                self._turns.remove(key)
        self.moved = len(done) > 0
        return done

    def pour(self, now_ms: int) -> Batch | None:
        """A slice of the first batch, in turn, that can go on; None = none can."""
        self.moved = False
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            batch = self.under_way[key][0]
            if not batch.is_poured() and self._pour(batch, now_ms):
                self.moved = True
                return batch
        return None

    def _pour(self, batch: Batch, now_ms: int) -> bool:
        """False: it waits for the disk, or for room in a queue."""
        staged = batch.sets[batch.at]
        if staged.waits or 0 <= now_ms - batch.full_at_ms < FULL_WAIT_MS:
            return False
        backing = cast(VariableQueue, staged.queue.backing)
        messages = backing.fetch(POURED_AT_ONCE, POURED_BYTES_MAX)
        if not messages and backing.ready_count() > 0:
            batch.trouble = backing.why_stopped()
            staged.waits = True
            return False
        count = self._pouring.pour_decided(batch.vhost, messages, now_ms, batch.resumed)
        batch.unroutable += self._pouring.unroutable
        batch.poured += count
        self.poured_count += count
        batch.trouble = self._pouring.trouble()
        if count < len(messages):
            batch.full_at_ms = now_ms
            backing.unfetch(messages[count:])
        if count > 0:
            self._taken(batch, backing, messages[:count])
        if backing.ready_count() == 0:
            self._next_set(batch)
            return True
        return count > 0

    def _taken(self, batch: Batch, backing: VariableQueue, messages: list[Message]) -> None:
        """These are where they should be: in the same block of the journal, or on their way.

        Those stay here until their set is dropped: after a crash they are poured again, and may
        then be there twice.  Nothing else can be done without a journal that two nodes share.
        """
        waits = batch.vhost.waits.take()
        if waits:
            batch.note_waits(waits)
        if not any(wait.elsewhere for wait in waits):
            backing.ack_moved(messages)

    def _next_set(self, batch: Batch) -> None:
        batch.at += 1
        if batch.is_poured():
            batch.position = int(self._engine.journal.position)
