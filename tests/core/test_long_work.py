"""Work that one turn cannot hold."""

from __future__ import annotations

from penstock.core.credit import FlowBook
from penstock.core.long_work import LongWork, LongWorks
from penstock.core.steps import STEPS_MAX, steps


class Chain(LongWork):
    """Takes a whole share, and ends with the start of the next."""

    def __init__(self, works: LongWorks, length: int, done: list[int]) -> None:
        self._works, self._length, self._done = works, length, done
        self._begun = False

    def step(self) -> bool:
        steps.count(STEPS_MAX)
        if not self._begun:
            self._begun = True
            return True
        self._done.append(self._length)
        if self._length > 1:
            self._works.start(Chain(self._works, self._length - 1, self._done))
        return False


def test_a_stop_finishes_what_the_last_works_start() -> None:
    """A broker that stopped while a connection with many deliveries ended left with an error."""
    works = LongWorks(FlowBook())
    done: list[int] = []
    assert works.start(Chain(works, 3, done)) is not None
    assert works.start(Chain(works, 2, done)) is not None
    works.finish()
    assert sorted(done) == [1, 1, 2, 2, 3]
    assert not works.waiting
