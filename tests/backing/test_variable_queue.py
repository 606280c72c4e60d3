"""``VariableQueue`` against the promise of every backing, in its modes."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from penstock.backing.variable_queue import VariableQueue
from tests.backing.backing_suite import QUEUE_ID, SEGMENT_ENTRIES, BackingMachine
from tests.backing.engine_tools import OpenEngine


class DurableQueue(BackingMachine):
    def make(self, opened: OpenEngine) -> Any:
        return opened.queues[QUEUE_ID]


class LazyQueue(DurableQueue):
    lazy = True


class TransientQueue(BackingMachine):
    durable = False

    def make(self, opened: OpenEngine) -> Any:
        return VariableQueue(opened.engine, QUEUE_ID, False, SEGMENT_ENTRIES)


for machine in (DurableQueue, LazyQueue, TransientQueue):
    machine.TestCase.settings = settings(
        max_examples=settings().max_examples, stateful_step_count=40, deadline=None
    )
TestDurable = DurableQueue.TestCase
TestLazy = LazyQueue.TestCase
TestTransient = TransientQueue.TestCase
