"""``Leases``: deliveries that are to be settled before a deadline, each found by its id.

    grant ─► in flight ─ take ──────► finished or given back by its owner
                       ─ extend ────► later, up to a cap
                       ─ expired ───► taken from an owner that was too slow

In: consumers that join, and what they are given.  Out: messages, with their owners.  What becomes
of them, and of the windows of their consumers, is the queue's business (``local.py``).

A consumer is known by a number that is never used again, so what a connection held when it broke
belongs to no later consumer.  It waits for its deadline, unless it is released (``release``).

Ids come from the message and so could be the same twice, when a consumer publishes what was once
delivered to him: the second in flight at the same time gets another.

Invariants (``check``):
  L1  the heap and the ids have the same leases
  L2  a consumer's ``held`` is how many leases it has
"""

from typing import Final, cast, final

from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs
from penstock.core.deadline_heap import DeadlineHeap, Due
from penstock.core.errors import NotInFlight, NotOwner
from penstock.core.message import Message
from penstock.queues.consumers import Consumer

TWIN: Final[i64] = 1 << 62
"""Set in the ids of those whose own is taken; those of this age of the world have it not."""


@final
@mypyc_attr(acyclic=True)
class Lease(Due):
    """One message with one consumer; ``delivered_ms`` is when that one got it."""

    __slots__ = ("delivered_ms", "key", "message", "owner", "timeout_ms")

    def __init__(
        self, message: Message, key: bytes, owner: i64, now_ms: WallMs, timeout_ms: i64
    ) -> None:
        super().__init__(WallMs(now_ms + timeout_ms))
        self.message: Message = message
        self.key: bytes = key
        self.owner: i64 = owner
        self.delivered_ms: WallMs = now_ms
        self.timeout_ms: i64 = timeout_ms


@final
class Holder:
    """A consumer, and how much it has in flight."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.held: i64 = 0
        self.gone: bool = False

    def leave(self) -> None:
        """It gets no more."""
        self.gone = True


@final
class Leases:
    """Of one queue."""

    def __init__(self) -> None:
        self._heap = DeadlineHeap()
        self._by_key: dict[bytes, Lease] = {}
        self._holders: dict[int, Holder] = {}
        self._last_number: i64 = 0

    def count(self) -> i64:
        return len(self._by_key)

    def first_ms(self) -> WallMs:
        """When the first deadline is; 0 = nothing is in flight."""
        return self._heap.first_ms()

    def soonest(self, at_most: i64) -> list[Lease]:
        """Those whose deadlines come first."""
        return [cast(Lease, due) for due in self._heap.soonest(at_most)]

    def consumer(self, lease: Lease) -> Consumer:
        """The one that has it, or had it when its connection broke."""
        return self._holders[int(lease.owner)].consumer

    def sample(self, at_most: i64) -> list[Lease]:
        """All, or so many of them from all over."""
        return [cast(Lease, due) for due in self._heap.sample(at_most)]

    def join(self, consumer: Consumer) -> i64:
        """The number under which it holds leases."""
        self._last_number += 1
        self._holders[int(self._last_number)] = Holder(consumer)
        return self._last_number

    def leave(self, owner: i64) -> None:
        """It is gone; what it holds stays in flight."""
        holder = self._holders[int(owner)]
        holder.leave()
        if holder.held == 0:
            del self._holders[int(owner)]

    # -- in flight -------------------------------------------------------------------------

    def grant(
        self, owner: i64, message: Message, key: bytes, now_ms: WallMs, timeout_ms: i64
    ) -> bytes:
        """``key`` is its id; returns the one it is in flight under."""
        twin = TWIN | message.seq_id
        while key in self._by_key:
            key = b"%016x" % int(twin)
            twin += 1
        lease = Lease(message, key, owner, now_ms, timeout_ms)
        self._by_key[key] = lease
        self._heap.push(lease)
        self._holders[int(owner)].held += 1
        return key

    def take(self, owner: i64, key: bytes) -> Message:
        """It is in flight no more; raises NotInFlight or NotOwner."""
        lease = self._own(owner, key)
        self._heap.remove(lease)
        self._end(lease)
        return lease.message

    def extend(self, owner: i64, key: bytes, now_ms: WallMs, longest_ms: i64) -> None:
        """Its time begins again, but ends ``longest_ms`` after delivery at the latest.

        Raises NotInFlight or NotOwner.
        """
        lease = self._own(owner, key)
        latest_ms = WallMs(lease.delivered_ms + longest_ms)
        due_ms = WallMs(now_ms + lease.timeout_ms)
        self._heap.move(lease, due_ms if due_ms < latest_ms else latest_ms)

    def _own(self, owner: i64, key: bytes) -> Lease:
        lease = self._by_key.get(key)
        if lease is None:
            raise NotInFlight
        if lease.owner != owner:
            raise NotOwner
        return lease

    def expired(self, now_ms: WallMs, at_most: i64) -> list[tuple[Consumer, Message]]:
        """Of those over their deadline the first, in flight no more."""
        return [self._end(cast(Lease, due)) for due in self._heap.pop_due(now_ms, at_most)]

    def release(self, owner: i64) -> list[tuple[Consumer, Message]]:
        """All that this one holds, in flight no more."""
        return self._end_all([one for one in self._by_key.values() if one.owner == owner])

    def clear(self) -> list[tuple[Consumer, Message]]:
        """All there are, in flight no more."""
        return self._end_all(list(self._by_key.values()))

    def _end_all(self, leases: list[Lease]) -> list[tuple[Consumer, Message]]:
        ended: list[tuple[Consumer, Message]] = []
        for lease in leases:
            self._heap.remove(lease)
            ended.append(self._end(lease))
        return ended

    def _end(self, lease: Lease) -> tuple[Consumer, Message]:
        del self._by_key[lease.key]
        holder = self._holders[int(lease.owner)]
        holder.held -= 1
        if holder.gone and holder.held == 0:
            del self._holders[int(lease.owner)]
        return holder.consumer, lease.message

    # -- invariants ------------------------------------------------------------------------

    def check(self) -> None:
        """Assert L1 and L2; O(n), for tests."""
        self._heap.check()
        assert self._heap.count() == len(self._by_key), "L1"
        held: dict[int, int] = {}
        for key, lease in self._by_key.items():
            assert lease.key == key, "L1"
            assert lease.place >= 0, "L1"
            held[int(lease.owner)] = held.get(int(lease.owner), 0) + 1
        for number, holder in self._holders.items():
            assert holder.held == held.get(number, 0), "L2"
            assert holder.held > 0 or not holder.gone, "L2"
