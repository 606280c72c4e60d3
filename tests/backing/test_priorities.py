"""A queue of priorities against a list for each; it may be reopened at any step."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.backing.priorities import classic_priorities
from penstock.core.message import PERSISTENT, PRIORITY_MASK, PRIORITY_SHIFT, Message
from tests.backing.engine_tools import OpenEngine, limits
from tests.helpers.sim_files import SimFileSystem

TOP = 3
QUEUE_ID = 5
EVERYTHING = 1 << 40
READS_AWAITED = 2


class PriorityMachine(RuleBasedStateMachine):
    """``ready[p]`` are bodies in order; ``pending`` what was fetched."""

    @initialize(
        drop_order=st.sampled_from(["lowest", "highest"]), paging=st.sampled_from([1, EVERYTHING])
    )
    def begin(self, drop_order: str, paging: int) -> None:
        self.files = SimFileSystem()
        self.drop_order = drop_order
        self.paging = paging
        self.ready: list[list[int]] = [[] for _ in range(TOP + 1)]
        self.pending: list[tuple[int, int, Message]] = []
        self.published = 0
        self.open()

    def open(self) -> None:
        self.opened = OpenEngine(
            self.files, {QUEUE_ID + part: 64 for part in range(TOP + 1)}, limits(paging=self.paging)
        )
        parts: list[Any] = list(self.opened.queues.values())
        self.backing = classic_priorities(parts, self.drop_order)
        self.backing.adopted()

    def settle_down(self) -> None:
        self.opened.settle(0)

    @rule(priorities=st.lists(st.integers(0, 255), min_size=1, max_size=8))
    def publish(self, priorities: list[int]) -> None:
        messages = []
        for priority in priorities:
            body = self.published
            self.published += 1
            flags = PERSISTENT | priority << PRIORITY_SHIFT
            messages.append(Message(b"%08d" % body * 4, b"\0\0", flags, 0))
            self.ready[min(priority, TOP)].append(body)
        self.backing.publish(messages, 0)

    def taken(self, count: int, order: list[int]) -> list[tuple[int, int]]:
        wanted = [(one, priority) for priority in order for one in self.ready[priority]]
        for body, priority in wanted[:count]:
            self.ready[priority].remove(body)
        return wanted[:count]

    def fetched(self, count: int, messages: list[Message], order: list[int]) -> None:
        told = []
        for message in messages:
            whole = self.backing.whole(message) if not message.content else message
            assert whole is not None
            priority = (message.flags & PRIORITY_MASK) >> PRIORITY_SHIFT
            told.append((int(whole.content[:8]), min(priority, TOP)))
        # What is on its way from the disk may cut a fetch short, but never changes the order.
        assert len(told) <= count
        expected = self.taken(len(told), order)
        assert told == expected
        for (body, priority), message in zip(expected, messages, strict=True):
            self.pending.append((body, priority, message))

    @rule(count=st.integers(1, 12))
    def fetch(self, count: int) -> None:
        before = len(self.pending)
        self.fetched(count, self.backing.fetch(count, EVERYTHING), list(range(TOP, -1, -1)))
        # A read that is under way may be of what was the head before something came back.
        for _ in range(READS_AWAITED):
            if len(self.pending) > before or self.backing.ready_count() == 0:
                return
            self.settle_down()
            self.fetched(count, self.backing.fetch(count, EVERYTHING), list(range(TOP, -1, -1)))
        assert len(self.pending) > before, "the disk has answered"

    @rule(count=st.integers(1, 12))
    def fetch_surplus(self, count: int) -> None:
        order = list(range(TOP + 1))
        if self.drop_order == "highest":
            order.reverse()
        self.fetched(count, self.backing.fetch_surplus(count, EVERYTHING), order)

    @rule(count=st.integers(1, 12), data=st.data())
    def fetch_and_put_some_back(self, count: int, data: st.DataObject) -> None:
        before = len(self.pending)
        self.fetched(count, self.backing.fetch(count, EVERYTHING), list(range(TOP, -1, -1)))
        new = self.pending[before:]
        if not new:
            return
        kept = data.draw(st.integers(0, len(new)))
        self.backing.unfetch([message for _, _, message in new[kept:]])
        del self.pending[before + kept :]
        self.give_back(new[kept:])

    def give_back(self, some: list[tuple[int, int, Message]]) -> None:
        for body, priority, _ in some:
            self.ready[priority].append(body)
            self.ready[priority].sort()

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), requeue=st.booleans())
    def settle(self, data: st.DataObject, requeue: bool) -> None:
        places = data.draw(st.sets(st.integers(0, len(self.pending) - 1), min_size=1))
        some = [one for place, one in enumerate(self.pending) if place in places]
        self.pending = [one for place, one in enumerate(self.pending) if place not in places]
        if requeue:
            self.backing.requeue([message for _, _, message in some])
            self.give_back(some)
        else:
            self.backing.ack([message for _, _, message in some])

    @rule()
    def purge(self) -> None:
        assert self.backing.purge() == sum(len(ready) for ready in self.ready)
        self.ready = [[] for _ in range(TOP + 1)]

    @rule()
    def work(self) -> None:
        self.settle_down()

    @rule()
    def die_and_come_back(self) -> None:
        """What was committed is there; what was pending is ready again."""
        self.settle_down()
        self.files.kill()
        self.give_back(self.pending)
        self.pending = []
        self.open()

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "backing"):
            self.backing.check()
            assert self.backing.ready_count() == sum(len(ready) for ready in self.ready)


PriorityMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=30, deadline=None
)
TestPriorities = PriorityMachine.TestCase
