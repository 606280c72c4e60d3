"""Batches from a program that is killed, into a broker that is killed: each message once, in order.

    PENSTOCK_SINK_KILLS   how many kills (default 6)
    PENSTOCK_SPARK_SEED   which random choices; printed, so that a failure can be repeated

As test_exactly_once, without Spark, which takes most of the time there: the program here
(batch_program.py) does with the sink what Spark does, and has Spark's log.  So there can be many
kills; one in three is of the broker, one of the program, one of both.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pika
import pyspark  # noqa: F401
import pytest

from tests.helpers.live_broker import REPOSITORY, LiveBroker

KILLS = int(os.environ.get("PENSTOCK_SINK_KILLS", "6"))
SEED = int(os.environ.get("PENSTOCK_SPARK_SEED", "0")) or random.SystemRandom().randrange(2**32)
BATCHES = 20 + 6 * KILLS
PER_BATCH = 90
QUEUE = "sunk"

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120 + 10 * KILLS)]


class Arena:
    def __init__(self, broker: LiveBroker, directory: Path, chance: random.Random) -> None:
        self.broker = broker
        self.directory = directory
        self.chance = chance
        self.killed: Counter[str] = Counter()
        directory.mkdir()

    def start(self) -> subprocess.Popen[str]:
        program = REPOSITORY / "tests/spark/batch_program.py"
        return subprocess.Popen(
            [
                *(sys.executable, str(program), self.broker.url, QUEUE),
                *(str(self.directory), str(BATCHES)),
            ],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run_and_kill(self, victim: str) -> None:
        program = self.start()
        assert program.stdout is not None
        program.stdout.readline()  # a batch is done, or it has ended
        time.sleep(self.chance.uniform(0, 0.4))
        if program.poll() is None:
            self.killed[victim] += 1
        if victim != "program":
            self.broker.kill()
            if victim == "broker":
                time.sleep(self.chance.uniform(0, 0.3))
                self.broker.start()
                time.sleep(self.chance.uniform(0, 0.5))  # it goes on, or begins again
        program.kill()
        program.communicate(timeout=30)
        if victim == "both":
            self.broker.start()


def numbers_in(url: str) -> list[int]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    wanted = channel.queue_declare(QUEUE, passive=True).method.message_count
    found: list[int] = []
    if wanted:
        for _, _, body in channel.consume(QUEUE):
            found.append(int(body.split(b":")[0]))
            if len(found) == wanted:
                break
    connection.close()
    return found


def test_each_message_arrives_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"\nPENSTOCK_SPARK_SEED={SEED} kills {KILLS}")
    with LiveBroker(tmp_path / "broker") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connection.channel().queue_declare(QUEUE, durable=True)
        connection.close()
        arena = Arena(broker, tmp_path / "program", chance)
        for _ in range(KILLS):
            arena.run_and_kill(chance.choice(("program", "broker", "both")))
        last = arena.start()
        said, _ = last.communicate(timeout=120)
        assert last.returncode == 0, said[-3000:]
        found = numbers_in(broker.url)
        doubled = [number for number, count in Counter(found).items() if count > 1]
        missing = set(range(BATCHES * PER_BATCH)) - set(found)
        print(f"killed {dict(arena.killed)}; {len(found)} arrived, doubled {len(doubled)}")
        assert arena.killed, "nothing was there to kill"
        assert not doubled, doubled[:10]
        assert not missing, sorted(missing)[:10]
        assert found == sorted(found)
