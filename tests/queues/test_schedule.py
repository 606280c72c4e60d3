"""Things that are due at a time, against a sorted list."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.queues.queue import Queue
from penstock.queues.schedule import Schedule
from tests.queues.test_queue import Hall


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), max_size=40), st.integers(1, 10))
def test_what_is_due_comes_in_order_and_once(steps: list[tuple[bool, int]], at_most: int) -> None:
    schedule: Any = Schedule()
    queues = [Hall().queue for _ in range(3)]
    waiting: list[tuple[int, int, Queue]] = []
    now_ms = 0
    for number, (add, value) in enumerate(steps):
        if add:
            queue = queues[number % 3]
            schedule.add(now_ms + value, queue)
            waiting.append((now_ms + value, number, queue))
            waiting.sort(key=lambda entry: entry[:2])
        else:
            now_ms += value
            due = [entry for entry in waiting if entry[0] <= now_ms][:at_most]
            waiting = waiting[len(due) :]
            assert schedule.take_due(now_ms, at_most) == [(entry[0], entry[2]) for entry in due]
        assert schedule.next_ms() == (waiting[0][0] if waiting else 0)
