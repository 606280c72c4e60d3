"""The fuzzers run for seconds here and for minutes by hand; and they are shown to find things.

A planted bug for each kind of failure (wrong result, slowness, memory, a broker that blames
itself) must be found: a fuzzer that finds nothing proves nothing otherwise.
"""

import logging
import random
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.node.node import Node
from penstock.runtime.session import Session
from tests.fuzz import live, run, targets
from tests.fuzz.engine import Engine
from tests.helpers.broker_process import BrokerProcess

pytestmark = pytest.mark.fuzz


def test_a_short_run_finds_nothing() -> None:
    report = run.run(random.SystemRandom().randrange(2**32), 8.0, round_s=0.3)
    print(report)
    assert not report.failures, "\n".join([*report.failures, str(report)])
    assert all(count > 0 for count in report.counts.values()), report


def test_a_running_broker_outlives_broken_clients(own_broker: BrokerProcess) -> None:
    seed = random.SystemRandom().randrange(2**32)
    report = live.assault(own_broker.url, seed, 6.0, own_broker.pid)
    print(report)
    assert not report.failures, "\n".join([*report.failures, str(report), own_broker.output()])
    assert report.sessions > 50
    assert report.round_trips > 20


@pytest.mark.parametrize("path", sorted(run.CORPUS.glob("*.bin")), ids=lambda path: path.stem)
def test_the_corpus_is_what_clients_say(path: Path) -> None:
    """Undamaged, it decodes without a fault, and says more than hello."""
    told = targets.decode_in_parts([path.read_bytes()[8:]])
    assert len(told) > 10
    assert not [event for event in told if "failed" in event[0]]


def test_planted_a_result_that_depends_on_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    right = targets.decode_in_parts

    def forgetful(parts: list[bytes]) -> list[Any]:
        return right(parts)[: -1 if len(parts) > 1 else None]

    monkeypatch.setattr(targets, "decode_in_parts", forgetful)
    report = run.run(1, 5.0, ["decoder"])
    assert "cut into" in report.failures[0]
    assert "--target decoder --seed 1 --case" in report.failures[0]


def test_planted_an_exception_nobody_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(_payload: bytes) -> None:
        raise IndexError("planted")

    monkeypatch.setattr(targets, "decode_method", raises)
    assert "IndexError: planted" in run.run(1, 5.0, ["methods"]).failures[0]


def busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_planted_slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SLOW_S", 0.01)
    monkeypatch.setitem(targets.TARGETS, "tables", lambda rng, corpus: busy(0.02))
    assert "took 0.0" in run.run(1, 5.0, ["tables"]).failures[0]


def test_planted_greed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that makes room for what is only announced."""

    class Greedy:
        paused = False

        def __init__(self, *limits: int) -> None:
            self.room = b""

        def open(self, user_id: bytes) -> None:
            pass

        def receive(self, data: bytes, now_ms: int) -> list[Any]:
            self.room = bytes(100 * len(data) + 1_000_000)
            return []

    monkeypatch.setattr(targets, "AmqpDecoder", Greedy)
    assert "bytes of memory for" in run.run(1, 5.0, ["memory"]).failures[0]


def test_planted_a_broker_that_blames_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Engine._feed

    def complains(engine: Engine, node: Node, session: Session, data: bytes) -> None:
        right(engine, node, session, data)
        logging.getLogger("penstock").error("planted")

    monkeypatch.setattr(Engine, "_feed", complains)
    assert "blamed itself: planted" in run.run(1, 10.0, ["engine"]).failures[0]
