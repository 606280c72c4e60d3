"""Which copies hear a parcel: those that answer; the others cost a bounded memory."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.cluster.mirrors.telling import BEHIND_BYTES, Telling

COPIES = ("b/1", "c/1")


def test_a_copy_that_stands_still_is_left_behind_and_holds_up_nothing() -> None:
    telling = Telling()
    for member in COPIES:
        telling.begin(member, 0)
    size = BEHIND_BYTES // 2
    for number in range(1, 10):
        receivers = telling.receivers(number, size, ())
        assert receivers == (["b/1", "c/1"] if number <= 3 else ["b/1"])
        telling.answered("b/1", number)
        telling.check()
        assert telling.waiting_bytes(1) == 0
        assert telling.going_on(number, ()) == []
    assert telling.waiting_bytes(2) == BEHIND_BYTES
    telling.answered("c/1", 2)
    assert telling.going_on(9, ()) == []
    telling.answered("c/1", 3)
    assert telling.going_on(9, ["c/1"]) == []
    assert telling.going_on(9, ()) == ["c/1"]
    assert telling.receivers(10, size, ()) == ["b/1", "c/1"]


def test_publishers_wait_while_too_few_copies_are_there() -> None:
    telling = Telling()
    assert telling.waiting_bytes(0) == 0
    assert telling.waiting_bytes(1) == BEHIND_BYTES


class Copies(RuleBasedStateMachine):
    """A master and copies over links: a copy does parcels in order, and misses none unknown."""

    @initialize()
    def begin(self) -> None:
        self.telling = Telling()
        self.number = 0
        self.links: dict[str, list[int]] = {member: [] for member in COPIES}  # below 0: go on
        self.done = dict.fromkeys(COPIES, 0)
        self.missed: dict[str, set[int]] = {member: set() for member in COPIES}
        for member in COPIES:
            self.telling.begin(member, 0)

    @rule(size=st.integers(1, BEHIND_BYTES), full=st.sets(st.sampled_from(COPIES)))
    def publish(self, size: int, full: set[str]) -> None:
        self.number += 1
        receivers = self.telling.receivers(self.number, size, full)
        for member in receivers:
            assert member not in full
            self.links[member].append(self.number)

    @rule(full=st.sets(st.sampled_from(COPIES)))
    def look(self, full: set[str]) -> None:
        for member in self.telling.going_on(self.number, full):
            assert not self.links[member], "all that it was sent was answered"
            self.links[member].append(-self.number)

    @precondition(lambda self: any(self.links.values()))
    @rule(data=st.data())
    def do(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from([one for one in COPIES if self.links[one]]))
        number = self.links[member].pop(0)
        self._do(member, number)

    def _do(self, member: str, number: int) -> None:
        if number < 0:
            self.missed[member].update(range(self.done[member] + 1, -number + 1))
            number = -number
        else:
            assert number == self.done[member] + 1
        self.done[member] = number
        self.telling.answered(member, number)

    @invariant()
    def holds(self) -> None:
        self.telling.check()
        for member in COPIES:
            line = self.telling.lines[member]
            assert line.is_behind or line.sent == self.number

    def teardown(self) -> None:
        """All copies hear again when they have answered; each parcel was done, or is missed."""
        for member in COPIES:
            while self.links[member]:
                self._do(member, self.links[member].pop(0))
        for member in self.telling.going_on(self.number, ()):
            self.done[member] = self.number
        assert self.done == dict.fromkeys(COPIES, self.number)
        assert not [line for line in self.telling.lines.values() if line.is_behind]


TestCopies = Copies.TestCase
TestCopies.settings = settings(stateful_step_count=60)
