"""``DeadlineHeap``: items ordered by deadline; each can be removed or moved.

In: objects with a ``due_ms``.  Out: those whose time has come, earliest first; ties in any order.

A binary heap in one list.  Each object knows its own place in it, so ``remove`` and ``move`` find
it without a search and cost O(log n), as ``push`` and each object of ``pop_due`` do.  Deadlines
that only grow, as those of deliveries with one timeout do, are pushed without climbing.

Objects are invisible to the garbage collector: they may refer to bytes, integers and messages.

Invariants (``check``):
  H1  no object is due before the one above it
  H2  an object's ``place`` is where it is; -1 = it is in no heap
"""

from heapq import heappop, heappush
from typing import final

from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs


@mypyc_attr(acyclic=True)
class Due:
    """Something with a deadline, in at most one heap."""

    __slots__ = ("due_ms", "place")

    def __init__(self, due_ms: WallMs) -> None:
        self.due_ms: WallMs = due_ms
        self.place: i64 = -1

    def postpone(self, due_ms: WallMs) -> None:
        """It is in no heap, and due at another time when it is pushed."""
        assert self.place == -1, "it is in a heap: move it"
        self.due_ms = due_ms

    def left(self) -> None:
        """It is in no heap any more."""
        self.place = -1


@final
class DeadlineHeap:
    def __init__(self) -> None:
        self._items: list[Due] = []

    def count(self) -> i64:
        return len(self._items)

    def first_ms(self) -> WallMs:
        """When the first is due; 0 = there is none."""
        return self._items[0].due_ms if len(self._items) > 0 else WallMs(0)

    def soonest(self, at_most: i64) -> list[Due]:
        """The first that are due, in order; nothing moves.

        Below what was taken the next is among the children, so it costs nothing what the heap is
        large.
        """
        found: list[Due] = []
        count: i64 = len(self._items)
        near: list[tuple[int, int]] = []
        if count > 0:
            near.append((int(self._items[0].due_ms), 0))
        while near and len(found) < at_most:
            place: i64 = heappop(near)[1]
            found.append(self._items[place])
            below = 2 * place + 1
            while below <= 2 * place + 2 and below < count:
                heappush(near, (int(self._items[below].due_ms), int(below)))
                below += 1
        return found

    def sample(self, at_most: i64) -> list[Due]:
        """All, or so many from all over the heap."""
        count: i64 = len(self._items)
        step = (count + at_most - 1) // at_most
        if step <= 1:
            return self._items[:]
        found: list[Due] = []
        place: i64 = 0
        while place < count:
            found.append(self._items[place])
            place += step
        return found

    def push(self, due: Due) -> None:
        assert due.place == -1, "it is in a heap already"
        place: i64 = len(self._items)
        self._items.append(due)
        self._climb(due, place)

    def remove(self, due: Due) -> None:
        """Take it out before its time."""
        place = due.place
        assert place >= 0, "it is in no heap"
        due.left()
        last = self._items.pop()
        if last is not due:
            self._settle(last, place)

    def move(self, due: Due, due_ms: WallMs) -> None:
        """It is due at another time."""
        due.due_ms = due_ms
        self._settle(due, due.place)

    def pop_due(self, now_ms: WallMs, at_most: i64) -> list[Due]:
        """Take out those whose time has come, the earliest first."""
        found: list[Due] = []
        while len(found) < at_most and len(self._items) > 0 and self._items[0].due_ms <= now_ms:
            due = self._items[0]
            self.remove(due)
            found.append(due)
        return found

    # -- order ---------------------------------------------------------------------------

    def _settle(self, due: Due, place: i64) -> None:
        """Put it where it belongs, from ``place`` on, in whichever direction."""
        if place > 0 and due.due_ms < self._items[(place - 1) >> 1].due_ms:
            self._climb(due, place)
        else:
            self._sink(due, place)

    def _climb(self, due: Due, place: i64) -> None:
        items = self._items
        while place > 0:
            above = (place - 1) >> 1
            parent = items[above]
            if parent.due_ms <= due.due_ms:
                break
            self._put(parent, place)
            place = above
        self._put(due, place)

    def _sink(self, due: Due, place: i64) -> None:
        items = self._items
        count: i64 = len(items)
        below = 2 * place + 1
        while below < count:
            child = items[below]
            if below + 1 < count:
                other = items[below + 1]
                if other.due_ms < child.due_ms:
                    child = other
                    below += 1
            if due.due_ms <= child.due_ms:
                break
            self._put(child, place)
            place = below
            below = 2 * place + 1
        self._put(due, place)

    def _put(self, due: Due, place: i64) -> None:
        self._items[place] = due
        due.place = place

    # -- invariants ----------------------------------------------------------------------

    def check(self) -> None:
        """Assert H1 and H2; O(n), for tests."""
        for place in range(len(self._items)):
            due = self._items[place]
            assert due.place == place, "H2"
            assert place == 0 or self._items[(place - 1) >> 1].due_ms <= due.due_ms, "H1"
