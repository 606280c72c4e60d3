"""No input keeps the loop busy for long: seconds here, ``PENSTOCK_LOOP_TIME_S`` at night."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.fuzz import loop_time, run

pytestmark = pytest.mark.fuzz

RUN_S = float(os.environ.get("PENSTOCK_LOOP_TIME_S", "15"))
NAMES = list(loop_time.TARGETS)


def test_no_step_of_the_loop_is_long() -> None:
    seed = random.SystemRandom().randrange(2**32)
    report = run.run(seed, RUN_S, NAMES, round_s=RUN_S / len(NAMES) / 4)
    print(report)
    assert not report.failures, "\n".join([*report.failures, str(report)])
    assert all(count > 0 for count in report.counts.values()), report


@pytest.mark.parametrize("verb", ["receive", "tick"])
def test_planted_a_step_that_takes_long(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def busy(*_: object) -> None:
        until_s = time.thread_time() + loop_time.bound_ms() / 1000
        while time.thread_time() < until_s:
            pass

    real = loop_time.Steps.timed

    def slow(steps: loop_time.Steps, name: str, do: object) -> None:
        assert callable(do)
        # Once a life: a life of a thousand such steps is a hang for the watch of the fuzzer.
        plant = verb in name and steps.slowest_ms < loop_time.bound_ms()
        real(steps, name, (lambda: (do(), busy())) if plant else do)

    monkeypatch.setattr(loop_time.Steps, "timed", slow)
    report = run.run(1, 20.0, ["loop_ranges"])
    assert verb in report.failures[0]
    assert " ms of " in report.failures[0]


def test_time_in_which_the_thread_waits_does_not_count() -> None:
    """Other load of the machine is none of the broker's."""
    node = loop_time.QuietBroker()
    steps = loop_time.Steps(node)
    steps.timed("sleep", lambda: time.sleep(0.3))
    assert steps.slowest_ms < 100


def test_many_consumers_on_one_queue_cost_the_same_each() -> None:
    """In one read: four times as many took sixteen times as long."""

    def slowest_ms(count: int) -> float:
        node = loop_time.QuietBroker()
        end = node.client()
        end.call("queue.declare", queue="q")
        consumes = [
            loop_time._method("basic.consume", queue="q", consumer_tag=f"c{number}", nowait=True)
            for number in range(count)
        ]
        steps = loop_time.Steps(node)
        steps.read(end, b"".join(consumes))
        return steps.slowest_ms

    few = min(slowest_ms(1000) for _ in range(3))
    many = min(slowest_ms(4000) for _ in range(3))
    assert many < 8 * few
