"""Publisher confirms: never before the disk, in order, all of them in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.broker.rules.confirms import ConfirmLedger
from penstock.core.clock_types import WallMs


class ConfirmMachine(RuleBasedStateMachine):
    """The model: for each number the position it needs; what is safe is a prefix."""

    @initialize()
    def begin(self) -> None:
        self.ledger: Any = ConfirmLedger()
        self.needs: list[int] = []
        self.position = 0
        self.durable = 0
        self.taken = 0

    @rule(count=st.integers(1, 5), logged=st.integers(0, 3))
    def publish(self, count: int, logged: int) -> None:
        """``logged`` bytes went to the log for this run; 0 = it needs no disk."""
        self.position += logged
        position = self.position if logged else 0
        self.ledger.published(count, position, self.durable, WallMs(0))
        self.needs += [position] * count

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.durable = data.draw(st.integers(self.durable, self.position))
        self.ledger.advance(self.durable, WallMs(0))

    @rule()
    def take(self) -> None:
        count = self.ledger.take()
        assert count == self.safe() - self.taken
        self.taken += count
        assert self.ledger.confirmed == self.taken

    def safe(self) -> int:
        """How many, from the first, need nothing that is not on disk."""
        for number, need in enumerate(self.needs):
            if need > self.durable:
                return number
        return len(self.needs)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "ledger"):
            return
        assert self.ledger.last_number == len(self.needs)
        assert self.ledger.confirmable == self.safe()
        assert self.ledger.waiting() == (self.safe() < len(self.needs))
        assert self.ledger.unconfirmed_count() == len(self.needs) - self.taken

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.ledger.advance(self.position, WallMs(0))
        self.ledger.take()
        assert self.ledger.confirmed == len(self.needs)
        assert not self.ledger.waiting()


ConfirmMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=40, deadline=None
)
TestConfirms = ConfirmMachine.TestCase
