"""``VariableQueue`` against the promise of every backing, in its modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from penstock.backing.variable_queue import VariableQueue
from tests.backing.backing_suite import SEGMENT_ENTRIES, BackingMachine
from tests.backing.engine_tools import OpenEngine

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
