"""``Deferrals``: messages of one queue that wait for their time, neither ready nor pending.

    add ─► waiting ─ take_due, take ─► held ─ end ─► forgotten here
                   └───────────── end ─────────────►

In: messages, with the time before which they are not ready.  Out: those whose time has come, any
one by its seq_id, or a page of them for people.  What is *held* waits for nothing any more, but is
not gone either (its dead letter, or its copy elsewhere, is not on disk yet).  Where a message goes,
and what the disk is told, is the queue's business (delaying.py, expiring.py).

A hundred thousand of these are nothing unusual: one small object each, in a heap by time and a
dictionary by place.  Those that may have their contents in memory are in a list as well, from which
nothing is taken out one by one; what has ended leaves an empty object there until it is cleaned.

Invariants (``check``):
  N1  each is known by the seq_id of its message, and in the heap unless it is held
  N2  ``bytes`` is the sum over the messages, ``held_count`` how many are held
  N3  what waits with a content in memory is in the list of these
"""

from heapq import nsmallest
from typing import Final, cast, final

from mypy_extensions import i64, mypyc_attr

from penstock.backing.pending import may_rest
from penstock.core.clock_types import WallMs
from penstock.core.deadline_heap import DeadlineHeap, Due
from penstock.core.message import INDEXED, LOGGED, Message

DEAD_MIN: Final[i64] = 256
_GONE: Final = Message(b"", b"", 0, WallMs(0))
"""Stands where a message was: one that has ended keeps no content alive."""


@final
@mypyc_attr(acyclic=True)
class Deferred(Due):
    """One message, not ready before ``due_ms``; 0 = it was never to be ready again."""

    __slots__ = ("message",)

    def __init__(self, message: Message, due_ms: WallMs) -> None:
        super().__init__(due_ms)
        self.message: Message = message

    def forget(self) -> None:
        """Its message has ended or is ready."""
        self.message = _GONE


@final
class Deferrals:
    """Of one queue."""

    def __init__(self) -> None:
        self.bytes: i64 = 0
        self.held_count: i64 = 0
        self._heap: DeadlineHeap = DeadlineHeap()
        self._by_seq_id: dict[int, Deferred] = {}
        self._in_ram: list[Deferred] = []

    # -- looking ---------------------------------------------------------------------------

    def count(self) -> i64:
        """Held ones too."""
        return len(self._by_seq_id)

    def waiting_count(self) -> i64:
        return self._heap.count()

    def first_ms(self) -> WallMs:
        """When the first is due; 0 = nothing waits."""
        return self._heap.first_ms()

    def has(self, seq_id: int) -> bool:
        return seq_id in self._by_seq_id

    def find(self, message: Message) -> Deferred | None:
        """The one of this very message."""
        deferred = self._by_seq_id.get(int(message.seq_id))
        return deferred if deferred is not None and deferred.message is message else None

    def waiting(self, seq_id: i64) -> Deferred | None:
        deferred = self._by_seq_id.get(int(seq_id))
        return deferred if deferred is not None and deferred.place >= 0 else None

    def some_waiting(self, at_most: i64) -> list[Deferred]:
        """In the order in which they came: that is nearly always the order of their places."""
        found: list[Deferred] = []
        for deferred in self._by_seq_id.values():
            if len(found) >= at_most:
                break
            if deferred.place >= 0:
                found.append(deferred)
        return found

    def due_ms_at(self, seq_id: int) -> WallMs:
        """0 = it is not here, or was never to wait."""
        deferred = self._by_seq_id.get(seq_id)
        return WallMs(0) if deferred is None else deferred.due_ms

    def some_at(self, seq_ids: list[int]) -> list[Message]:
        """Those with these numbers, held ones too."""
        found: list[Message] = []
        for seq_id in seq_ids:
            deferred = self._by_seq_id.get(seq_id)
            if deferred is not None:
                found.append(deferred.message)
        return found

    def soonest(self, at_most: i64) -> list[Deferred]:
        """Those whose time comes first."""
        return [cast(Deferred, due) for due in self._heap.soonest(at_most)]

    def sample(self, at_most: i64) -> list[Deferred]:
        """All that wait, or so many of them from all over."""
        return [cast(Deferred, due) for due in self._heap.sample(at_most)]

    def messages(self) -> list[Message]:
        """Those of all, held ones too."""
        return [deferred.message for deferred in self._by_seq_id.values()]

    def restless(self, file_no: i64, below: i64, durable_msg_id: i64, quota: i64) -> list[Message]:
        """Up to so many that are in the journal alone, and may go to a segment."""
        found: list[Message] = []
        if quota <= 0:
            return found
        for deferred in self._by_seq_id.values():
            message = deferred.message
            if message.flags & (LOGGED | INDEXED) != LOGGED:
                continue
            if may_rest(message, file_no, below, durable_msg_id):
                found.append(message)
                if len(found) == quota:
                    break
        return found

    def page(self, after_ms: WallMs, after_seq_id: i64, at_most: i64) -> list[tuple[int, int, int]]:
        """The first of those behind that time and seq_id, as (time, seq_id, size)."""
        after = (int(after_ms), int(after_seq_id))
        rows: list[tuple[int, int, int]] = []
        for seq_id, deferred in self._by_seq_id.items():
            if deferred.place >= 0 and (int(deferred.due_ms), seq_id) > after:
                rows.append((int(deferred.due_ms), seq_id, int(deferred.message.size)))
        return nsmallest(int(at_most), rows)

    # -- coming and going ------------------------------------------------------------------

    def add(self, message: Message, until_ms: WallMs) -> None:
        self._heap.push(self._new(message, until_ms))

    def hold(self, message: Message) -> None:
        """Never to be ready again, and not gone yet."""
        self._new(message, WallMs(0))
        self.held_count += 1

    def _new(self, message: Message, due_ms: WallMs) -> Deferred:
        deferred = Deferred(message, due_ms)
        self._by_seq_id[int(message.seq_id)] = deferred
        self.bytes += message.size
        if len(message.content) > 0:
            self._in_ram.append(deferred)
        return deferred

    def take(self, deferred: Deferred) -> None:
        """It waits no more: held from now on."""
        self._heap.remove(deferred)
        self.held_count += 1

    def take_due(self, now_ms: WallMs, at_most: i64) -> list[Deferred]:
        """Of those whose time has come the first: held from now on."""
        found = [cast(Deferred, due) for due in self._heap.pop_due(now_ms, at_most)]
        self.held_count += len(found)
        return found

    def wait_on(self, deferred: Deferred) -> None:
        """It is held, and could not go where it belongs."""
        self._heap.push(deferred)
        self.held_count -= 1

    def wait_again(self, due_ms: WallMs) -> None:
        """All that is held, until its time; until ``due_ms`` what was never to be ready again."""
        for deferred in self._by_seq_id.values():
            if deferred.place < 0:
                if deferred.due_ms == 0:
                    deferred.postpone(due_ms)
                self.wait_on(deferred)

    def end(self, message: Message) -> None:
        """It is here no more."""
        deferred = self._by_seq_id.pop(int(message.seq_id))
        self.bytes -= message.size
        if deferred.place >= 0:
            self._heap.remove(deferred)
        else:
            self.held_count -= 1
        deferred.forget()
        if len(self._in_ram) > 2 * len(self._by_seq_id) + DEAD_MIN:
            self._in_ram = [one for one in self._in_ram if len(one.message.content) > 0]

    # -- memory ----------------------------------------------------------------------------

    def take_in_ram(self, quota: i64) -> list[Deferred]:
        """Some with their contents in memory, oldest first; ``keep_in_ram`` those that stay so."""
        found: list[Deferred] = []
        place: i64 = 0
        count: i64 = len(self._in_ram)
        while place < count and len(found) < quota:
            deferred = self._in_ram[place]
            if len(deferred.message.content) > 0:
                found.append(deferred)
            place += 1
        del self._in_ram[:place]
        return found

    def keep_in_ram(self, deferred: list[Deferred]) -> None:
        self._in_ram.extend(deferred)

    # -- invariants ------------------------------------------------------------------------

    def check(self) -> None:
        """Assert N1-N3; O(n), for tests."""
        self._heap.check()
        in_ram = {int(one.message.seq_id) for one in self._in_ram if one.message is not _GONE}
        size: i64 = 0
        held: i64 = 0
        for seq_id, deferred in self._by_seq_id.items():
            message = deferred.message
            assert message.seq_id == seq_id, "N1"
            size += message.size
            if deferred.place < 0:
                held += 1
            elif len(message.content) > 0:
                assert seq_id in in_ram, "N3"
        assert self._heap.count() + held == len(self._by_seq_id), "N1"
        assert size == self.bytes, "N2"
        assert held == self.held_count, "N2"


NO_DEFERRALS: Final = Deferrals()
"""Of all queues that have none: nothing is ever added to it."""
