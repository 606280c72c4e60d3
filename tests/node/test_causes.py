"""Cause before effect on disk: what rests in a segment stays there until the journal has its cause.

A queue holds messages that rest in a segment.  A publish, or a transaction, makes them end; the
journal with that publish is not synced yet when the process dies.  After the start each message
that was confirmed is there, or what it made room for is.
"""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.storage.engine.recovery import close_engine
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.sim_files import SimFileSystem

COUNT = 64
BODY_BYTES = 3000
EVERYTHING = 1 << 40


class Life:
    """A broker on a disk that a test may take away from it."""

    def __init__(self, tmp_path: Path, power: int | None) -> None:
        self.power = power  # seed of what a power cut takes; None = the process is killed
        self.files = SimFileSystem()
        self.definitions = str(tmp_path / "definitions.db")
        self.open()

    def open(self) -> None:
        self.node = QuietBroker(self.files, self.definitions)
        self.client = self.node.client()

    def at_rest(self, queue: str, **arguments: Any) -> None:
        """Confirmed messages, all in a segment, and in no journal any more."""
        self.client.call("queue.declare", queue=queue, durable=True, arguments=arguments)
        self.publish(queue, BODY_BYTES)
        backing = self.backing(queue)
        numbers = {int(backing.queue_id): int(backing.records.next_seq_id)}
        close_engine(self.node.engine, [backing], numbers, self.files)
        self.die()

    def backing(self, queue: str) -> VariableQueue:
        found = self.node.broker.vhosts["/"].queues[queue].backing.parts()[0]
        assert isinstance(found, VariableQueue)
        return found

    def publish(self, queue: str, size: int) -> None:
        for _ in range(COUNT):
            self.client.publish("", queue, b"x" * size, run=False, delivery_mode=2)
        self.node.run()

    def die(self) -> None:
        """Right after the disk has done all that was asked of it but for the journal."""
        self.node.run()
        if self.power is None:
            self.files.kill()
        else:
            self.files.power_cut(random.Random(self.power))
        self.node.definitions.close()
        self.open()

    def count(self, queue: str) -> int:
        return len(self.backing(queue).reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING))


@pytest.fixture(params=[None, 1, 2, 3], ids=lambda seed: "kill" if seed is None else f"cut{seed}")
def life(tmp_path: Path, request: pytest.FixtureRequest) -> Life:
    return Life(tmp_path, request.param)


@pytest.mark.parametrize("buries", [False, True], ids=["dropped", "dead letters routed nowhere"])
def test_an_overflow_spares_the_oldest_until_its_publish_is_synced(
    life: Life, buries: bool
) -> None:
    letters = {"x-dead-letter-exchange": "nowhere"} if buries else {}
    life.at_rest("q", **{"x-max-length": COUNT, **letters})
    life.node.committer.hold = True
    life.publish("q", 10)
    life.die()
    assert life.count("q") >= COUNT


@pytest.mark.parametrize("verdict", ["basic.ack", "basic.reject"])
def test_a_transaction_settles_what_rests_when_its_publishes_are_synced(
    life: Life, verdict: str
) -> None:
    life.at_rest("in")
    life.client.call("queue.declare", queue="out", durable=True)
    life.client.call("tx.select")
    life.client.consume("in")
    life.node.committer.hold = True
    life.publish("out", 10)
    for tag in range(1, COUNT + 1):
        fields = {"requeue": False} if verdict == "basic.reject" else {"multiple": False}
        life.client.method(1, verdict, delivery_tag=tag, **fields)
    life.client.method(1, "tx.commit")
    life.die()
    assert life.count("in") + life.count("out") >= COUNT


@pytest.mark.parametrize("death", ["reject", "expiry", "overflow"])
def test_what_dies_at_rest_is_spared_until_its_letter_is_synced(life: Life, death: str) -> None:
    arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    if death == "expiry":
        arguments["x-message-ttl"] = 60_000
    elif death == "overflow":
        arguments["x-max-length"] = COUNT
    life.at_rest("q", **arguments)
    life.client.call("queue.declare", queue="dead", durable=True)
    life.node.committer.hold = True
    if death == "reject":
        life.client.consume("q")
        life.client.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False)
    elif death == "expiry":
        life.node.tick(120_000)
    else:
        life.publish("q", 10)
    life.die()
    assert life.count("q") + life.count("dead") >= COUNT


def test_a_dead_letter_that_cannot_be_read_stays_in_its_queue(life: Life) -> None:
    life.at_rest("q", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    life.client.call("queue.declare", queue="dead", durable=True)
    life.client.consume("q")
    life.node.run()
    backing = life.backing("q")
    backing.page(0, EVERYTHING)  # the contents of what was handed out are on disk only
    life.files.fail("pread", errno.EIO)
    life.client.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False)
    assert backing.why_stopped() != ""
    left, dead = backing.ready_count(), life.count("dead")
    assert left + dead == COUNT
    assert left > 0
    life.die()
    assert life.count("q") + life.count("dead") >= COUNT
