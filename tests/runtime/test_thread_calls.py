"""What other threads hand to the loop: in order, each once, some milliseconds of it a turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.runtime.thread_calls import AT_ONCE_MS, ThreadCalls


class Ticking:
    """A clock that goes on by so many milliseconds each time something looks at it."""

    def __init__(self, step_ms: int) -> None:
        self.now_ms = 0
        self.step_ms = step_ms

    def __call__(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms * 1_000_000


@pytest.fixture
def clock() -> Ticking:
    return Ticking(AT_ONCE_MS // 5)


@pytest.fixture
def calls(clock: Ticking) -> Iterator[ThreadCalls]:
    calls = ThreadCalls(clock)
    yield calls
    calls.close()


def test_many_requests_do_not_keep_the_loop_from_its_clients(calls: ThreadCalls) -> None:
    """A hundred of them, each a slice of some milliseconds, ran in one turn."""
    done: list[int] = []
    futures = [calls.add(lambda number=number: done.append(number)) for number in range(100)]
    turns = 0
    while calls.waiting:
        before = len(done)
        calls.run()
        turns += 1
        assert 0 < len(done) - before <= 6
    assert turns > 100 // 6
    assert done == list(range(100))
    assert all(future.done() for future in futures)


def test_one_that_takes_long_does_not_keep_others_waiting_for_ever(
    calls: ThreadCalls, clock: Ticking
) -> None:
    clock.step_ms = 10 * AT_ONCE_MS
    futures = [calls.add(lambda: None) for _ in range(3)]
    for count in range(1, 4):
        calls.run()
        assert sum(future.done() for future in futures) == count


def test_what_is_asked_in_a_call_runs_in_the_next_turn(calls: ThreadCalls) -> None:
    done: list[str] = []
    calls.add(lambda: (done.append("first"), calls.add(lambda: done.append("second"))))
    calls.run()
    assert done == ["first"]
    calls.run()
    assert done == ["first", "second"]


def test_none_is_lost_between_two_threads(calls: ThreadCalls) -> None:
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    def ask() -> None:
        for _ in range(2_000):
            calls.add(count)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or calls.waiting:
        calls.run()
    assert done == 6_000
