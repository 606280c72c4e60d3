"""``DeadlineHeap`` against a dictionary: pushed, moved and taken out in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core.deadline_heap import DeadlineHeap, Due

TIMES = st.integers(1, 40)


class HeapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.heap = DeadlineHeap()
        self.times: dict[Due, int] = {}

    @rule(times=st.lists(TIMES, min_size=1, max_size=12))
    def push(self, times: list[int]) -> None:
        for due_ms in times:
            due = Due(due_ms)
            assert due.place == -1
            self.heap.push(due)
            self.times[due] = due_ms

    @precondition(lambda self: self.times)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        due = self.drawn(data)
        self.heap.remove(due)
        del self.times[due]
        assert due.place == -1

    @precondition(lambda self: self.times)
    @rule(data=st.data(), due_ms=TIMES)
    def move(self, data: st.DataObject, due_ms: int) -> None:
        due = self.drawn(data)
        self.heap.move(due, due_ms)
        self.times[due] = due_ms

    @rule(now_ms=TIMES, at_most=st.sampled_from([0, 1, 3, 1000, 1000]))
    def pop_due(self, now_ms: int, at_most: int) -> None:
        """The earliest of those that are due."""
        found = self.heap.pop_due(now_ms, at_most)
        assert all(due.place == -1 for due in found)
        due = sorted(due_ms for due_ms in self.times.values() if due_ms <= now_ms)
        assert [one.due_ms for one in found] == due[:at_most]
        for one in found:
            assert self.times.pop(one) == one.due_ms

    @rule(at_most=st.sampled_from([1, 3, 1000]))
    def look(self, at_most: int) -> None:
        """Without moving anything: the first in order, and some from all over."""
        soonest = self.heap.soonest(at_most)
        assert [due.due_ms for due in soonest] == sorted(self.times.values())[:at_most]
        assert len(set(soonest)) == len(soonest)
        sample = self.heap.sample(at_most)
        assert len(set(sample)) == len(sample) <= at_most
        assert set(sample) <= set(self.times)
        assert len(sample) >= min(len(self.times), (at_most + 1) // 2)

    def drawn(self, data: st.DataObject) -> Due:
        everything = list(self.times)
        return everything[data.draw(st.integers(0, len(everything) - 1), "which")]

    @invariant()
    def agrees(self) -> None:
        self.heap.check()
        assert self.heap.count() == len(self.times)
        assert self.heap.first_ms() == min(self.times.values(), default=0)


HeapMachine.TestCase.settings = settings(stateful_step_count=60, deadline=None)
TestDeadlineHeap = HeapMachine.TestCase
