"""``VariableQueue`` against the promise of every backing, in its modes."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.backing.variable_queue import VariableQueue
from tests.backing.backing_suite import SEGMENT_ENTRIES, BackingMachine
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

# A failed run is shrunk, and that alone may take five minutes.
pytestmark = pytest.mark.timeout(600 + settings().max_examples // 2)


class DurableQueue(BackingMachine):
    def make(self, opened: OpenEngine, queue_id: int, *, durable: bool) -> Any:
        return VariableQueue(opened.engine, queue_id, durable, SEGMENT_ENTRIES)


class LazyQueue(DurableQueue):
    lazy = True


class TransientQueue(DurableQueue):
    """With a durable one beside it, which gets the same contents."""

    durable = (False, True)


for machine in (DurableQueue, LazyQueue, TransientQueue):
    machine.TestCase.settings = settings(
        max_examples=settings().max_examples, stateful_step_count=80, deadline=None
    )
TestDurable = DurableQueue.TestCase
TestLazy = LazyQueue.TestCase
TestTransient = TransientQueue.TestCase


def test_a_step_into_a_tail_that_no_segment_has_says_how_far_it_got() -> None:
    """Readers acknowledge in steps, and stop at one that got no further."""
    one = OpenEngine(SimFileSystem(), {}, limits())
    queue = VariableQueue(one.engine, 1, True, SEGMENT_ENTRIES)
    queue.set_mode(True)
    queue.publish([message(b"body") for _ in range(SEGMENT_ENTRIES + 1)], 1000)
    first = int(queue.tiers.floor_seq_id())
    assert queue.drop_step(first + SEGMENT_ENTRIES + 1, 1) == SEGMENT_ENTRIES
    assert queue.tiers.floor_seq_id() == first + SEGMENT_ENTRIES
    assert queue.ready_count() == 1


class CountedQueue(DurableQueue):
    happened: ClassVar[Counter[str]] = Counter()


REACHED = (
    "fanned out, one body",
    "fetched expired",
    "swept",
    "swept from delta",
    "read while out",
    "moved to the tail",
    "delayed",
    "released",
    "released into delta",
    "released behind delta",
    "published delayed",
    "counted",
    "cancelled",
    "dropped while delayed",
    "taken while delayed",
    "found delayed after a start",
    "deleted with messages",
    "journal files retired",
    "segments rewritten",
    "clean stop",
    "kill",
    "power cut",
    "dying start",
    "drained",
)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_machine_gets_everywhere() -> None:
    """Else it would promise nothing; always the same examples, so this is no matter of luck.

    Which examples those are changes with every change of the code: there are more in reserve.
    """
    missing = list(REACHED)
    for number in range(20):
        run_state_machine_as_test(
            seed(number)(CountedQueue),
            settings=settings(
                max_examples=100,
                stateful_step_count=80,
                deadline=None,
                database=None,
                phases=[Phase.generate],
            ),
        )
        missing = [what for what in REACHED if not CountedQueue.happened[what]]
        if not missing:
            break
    print(dict(CountedQueue.happened))
    assert missing == []
