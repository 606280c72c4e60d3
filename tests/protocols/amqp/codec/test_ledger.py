"""Delivery tags against a dictionary."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.core.message import Message
from penstock.protocols.amqp.codec.ledger import ALL_OPEN, DeliveryLedger, Settlement

HOLDERS = ("first", "second", "third")
Held = list[tuple[object, list[int]]]


def held(settlements: list[Settlement]) -> Held:
    """Whose messages, told apart by their expiry."""
    return [(s.holder, [int(one.expires_at_ms) for one in s.messages]) for s in settlements]


def in_runs(entries: list[tuple[object, int]]) -> Held:
    """Neighbours of one holder together, as a settlement has them."""
    runs: Held = []
    for holder, mark in entries:
        if not runs or runs[-1][0] is not holder:
            runs.append((holder, []))
        runs[-1][1].append(mark)
    return runs


class LedgerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.ledger: Any = DeliveryLedger()
        self.open: dict[int, tuple[object, int]] = {}
        self.next_tag = 1

    @rule(holder=st.sampled_from(HOLDERS), count=st.integers(1, 5))
    def add(self, holder: str, count: int) -> None:
        messages = [Message(b"", b"", 0, self.next_tag + i) for i in range(count)]
        assert self.ledger.add(holder, messages) == self.next_tag
        for _ in range(count):
            self.open[self.next_tag] = (holder, self.next_tag)
            self.next_tag += 1

    @rule(count=st.integers(1, 5))
    def skip(self, count: int) -> None:
        """Deliveries nobody will settle have numbers too."""
        assert self.ledger.skip(count) == self.next_tag
        self.next_tag += count

    @rule(data=st.data(), length=st.integers(1, 4))
    def take(self, data: st.DataObject, length: int) -> None:
        first = data.draw(st.integers(0, self.next_tag + 1))
        settled, unknown = self.ledger.take(first, first + length - 1)
        taken = []
        tag = first
        while tag < first + length and tag in self.open:
            taken.append(self.open.pop(tag))
            tag += 1
        assert unknown == (ALL_OPEN if tag == first + length else tag)
        assert held(settled) == in_runs(taken)

    @rule(data=st.data())
    def take_through(self, data: st.DataObject) -> None:
        last = data.draw(st.integers(0, self.next_tag + 2))
        at_most = data.draw(st.sampled_from([0, 1, 3, 1000]))
        settled = self.ledger.take_through(last, at_most)
        tags = [tag for tag in sorted(self.open) if tag <= last][:at_most]
        assert held(settled) == in_runs([self.open.pop(tag) for tag in tags])

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.ledger.check()
        assert self.ledger.next_tag == self.next_tag
        assert self.ledger.open_count == len(self.open)
        for tag in (0, 1, self.next_tag - 1, self.next_tag, *self.open):
            assert self.ledger.is_open(tag) == (tag in self.open)
        middle = self.next_tag // 2
        assert self.ledger.open_tags(middle) == [tag for tag in sorted(self.open) if tag <= middle]


LedgerMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=40, deadline=None
)
TestLedger = LedgerMachine.TestCase


def test_settling_from_either_end_costs_the_same() -> None:
    """Acks in order, newest first, or every other one: none may walk the whole list each time."""
    count = 40_000
    for order in (range(1, count + 1), range(count, 0, -1), [*range(2, count, 2)]):
        ledger = DeliveryLedger()
        ledger.add("h", [Message(b"", b"", 0, 0) for _ in range(count)])
        for tag in order:
            settled, unknown = ledger.take(tag, tag)
            assert len(settled) == 1
            assert unknown == ALL_OPEN
        ledger.check()


@pytest.mark.slow
@pytest.mark.parametrize("multiple", [False, True], ids=["each", "multiple"])
def test_what_stays_open_behind_it_costs_an_ack_nothing(multiple: bool) -> None:
    """Each ack moved it to the front."""

    def took_s(count: int) -> float:
        ledger = DeliveryLedger()
        ledger.add("h", [Message(b"", b"", 0, 0) for _ in range(count)])
        since_s = time.thread_time()
        for tag in range(1, 1001):
            if multiple:
                ledger.take_through(tag)
            else:
                ledger.take(tag, tag)
        took = time.thread_time() - since_s
        ledger.check()
        return took

    few = min(took_s(2000) for _ in range(3))
    many = min(took_s(256_000) for _ in range(3))
    assert many < 8 * few
