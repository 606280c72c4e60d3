"""From queue to queue through Spark, with everything killed at random moments: each message once.

    PENSTOCK_EXACTLY_ONCE_KILLS      how many kills (default 1; ``make test-exactly-once``: 36)
    PENSTOCK_EXACTLY_ONCE_MESSAGES   how many messages (default 300 and some for each kill)
    PENSTOCK_SPARK_SEED              which random choices; printed, so a failure can be repeated

The program (copying_program.py) reads one queue as a stream and writes another.  Victims are the
driver, Java (which is the executor here), a Python worker, the broker, all of it at once, and the
program, by chance with the broker, at the one moment that matters most: the broker has committed a
batch, and Spark does not know.  That one comes first.  Each time the program starts again on the
same checkpoint.  In the end the second queue holds what the first one held: nothing missing,
nothing twice, in order; and the first one is empty.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pika
import pytest

from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.helpers.management_api import manage
from tests.spark.spark_tools import depth, descendants, kill_all, publish, require_spark

KILLS = int(os.environ.get("PENSTOCK_EXACTLY_ONCE_KILLS", "1"))
MESSAGES = int(
    os.environ.get("PENSTOCK_EXACTLY_ONCE_MESSAGES", str(300 + KILLS * (300 if KILLS < 6 else 900)))
)
SEED = int(os.environ.get("PENSTOCK_SPARK_SEED", "0")) or random.SystemRandom().randrange(2**32)
FIRST, SECOND = "first", "second"
PER_BATCH = 150
RUN_TIMEOUT_S = 240
BEHIND_THE_COMMIT = "the program, behind the commit"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.timeout(240 + 90 * KILLS),
]


class Arena:
    """The broker, the checkpoint, and the program of the moment."""

    def __init__(self, broker: LiveBroker, directory: Path, chance: random.Random) -> None:
        self.broker = broker
        self.directory = directory
        self.chance = chance
        self.killed: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.said = ""
        directory.mkdir(exist_ok=True)

    def start(self) -> subprocess.Popen[str]:
        program = REPOSITORY / "tests/spark/copying_program.py"
        return subprocess.Popen(
            [
                *(sys.executable, str(program), self.broker.url, FIRST, SECOND),
                *(str(self.directory), str(PER_BATCH)),
            ],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> int:
        return self.finish(self.start())

    def finish(self, program: subprocess.Popen[str]) -> int:
        self.said, _ = program.communicate(timeout=RUN_TIMEOUT_S)
        self.codes[program.returncode] += 1
        return int(program.returncode)

    def run_and_kill(self, victim: str) -> None:
        held = self.directory / "held"
        held.unlink(missing_ok=True)
        if victim == BEHIND_THE_COMMIT:
            (self.directory / "hold").touch()
        program = self.start()
        if victim == BEHIND_THE_COMMIT:
            self.wait_for(held.exists, program)
        else:
            self.wait_for_a_moment(program)
        family = descendants(program.pid)
        if program.poll() is None:
            self.kill(victim, program, family)
            self.let_go_on(victim, program)
        # Whoever lost its parent is still in the family, with what it has started since.
        kill_all([one for pid in family for one in descendants(pid)])
        self.finish(program)
        print(f"killed {dict(self.killed)}", flush=True)

    def let_go_on(self, victim: str, program: subprocess.Popen[str]) -> None:
        """What was not killed itself finds out, and begins to recover; then it dies, too."""
        if victim == "driver":
            # Spark's Java lives on for a while, as a driver that was believed dead would.
            time.sleep(self.chance.uniform(0, 2))
        elif victim in ("broker", "worker"):
            deadline = time.monotonic() + self.chance.uniform(0, 6)
            while program.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            self.killed["then the program"] += program.poll() is None

    def wait_for_a_moment(self, program: subprocess.Popen[str]) -> None:
        """Mostly while batches are copied, sometimes while Spark is still starting."""
        if self.chance.random() < 0.15:
            time.sleep(self.chance.uniform(0, 10))
            return
        before = depth(self.broker.url, SECOND)
        self.wait_for(lambda: depth(self.broker.url, SECOND) > before, program)
        time.sleep(self.chance.uniform(0, 2.5))

    def wait_for(self, happened: object, program: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while not happened() and program.poll() is None:  # type: ignore[operator]
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(0.02)

    def kill(self, victim: str, program: subprocess.Popen[str], family: list[int]) -> None:
        self.killed[victim] += 1
        if victim == "broker":
            self.broker.kill()
            time.sleep(self.chance.uniform(0, 1.5))
            self.broker.start()
        elif victim == "driver":
            kill_all([program.pid])
        elif victim == "java":
            kill_all([pid for pid in family if comm(pid) == "java"][:1])
        elif victim == "worker":
            workers = [pid for pid in family if pid != program.pid and comm(pid) != "java"]
            kill_all([self.chance.choice(workers)] if workers else [])
        else:
            kill_all(family)
            if victim == "everything" or self.chance.random() < 0.5:
                self.broker.kill()
                self.broker.start()


def comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def bodies_of(url: str, queue: str) -> list[int]:
    """All of it, in order; takes nothing away."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    wanted = channel.queue_declare(queue, passive=True).method.message_count
    found: list[int] = []
    if wanted:
        for _, _, body in channel.consume(queue):
            found.append(int(body))
            if len(found) == wanted:
                break
    connection.close()
    return found


def staged_sets(broker: LiveBroker) -> int:
    return int(manage(f"{broker.http_url}/api/penstock/storage")["staged"]["sets"])


def test_every_message_arrives_once_and_in_order(tmp_path: Path) -> None:
    require_spark()
    chance = random.Random(SEED)
    print(f"\nPENSTOCK_SPARK_SEED={SEED} kills {KILLS}, messages {MESSAGES}")
    with LiveBroker(tmp_path / "broker") as broker:
        publish(broker.url, FIRST, [b"%d" % n for n in range(MESSAGES)])
        publish(broker.url, SECOND, [])
        arena = Arena(broker, tmp_path / "program", chance)
        victims = [BEHIND_THE_COMMIT, "everything", "broker", "driver", "java", "worker"]
        for victim in (victims + chance.choices(victims, k=KILLS))[:KILLS]:
            arena.run_and_kill(victim)
            found = bodies_of(broker.url, SECOND)
            assert found == list(range(len(found))), (victim, unlike(found))
        for _ in range(3):
            if arena.run() == 0:
                break
        found = bodies_of(broker.url, SECOND)
        print(
            f"killed {dict(arena.killed)}, exit codes {dict(arena.codes)}; of {MESSAGES} messages"
            f" {len(found)} arrived, {len(set(found))} different"
        )
        assert arena.killed, "nothing was there to kill"
        assert arena.codes[0], arena.said[-3000:]
        assert found == list(range(MESSAGES)), unlike(found)
        assert depth(broker.url, FIRST) == 0
        assert arena.run() == 0, "nothing to do, and no forgotten batch"
        assert (depth(broker.url, FIRST), depth(broker.url, SECOND)) == (0, MESSAGES)
        assert staged_sets(broker) == 0


def unlike(found: list[int]) -> str:
    """What is wrong with it, in a few words."""
    doubled = [number for number, count in Counter(found).items() if count > 1]
    missing = sorted(set(range(max(found, default=-1) + 1)) - set(found))
    return f"doubled {doubled[:10]}, missing {missing[:10]}, {len(found)} in all"


@pytest.mark.long
def test_a_deleted_checkpoint_loses_nothing(tmp_path: Path) -> None:
    """It is another query then: a batch it cannot know of comes again, and is not dropped."""
    require_spark()
    count = 500
    with LiveBroker(tmp_path / "broker") as broker:
        publish(broker.url, FIRST, [b"%d" % n for n in range(count)])
        publish(broker.url, SECOND, [])
        arena = Arena(broker, tmp_path / "program", random.Random(1))
        arena.run_and_kill(BEHIND_THE_COMMIT)
        assert bodies_of(broker.url, SECOND) == list(range(PER_BATCH))
        shutil.rmtree(arena.directory / "checkpoint")
        assert arena.run() == 0, arena.said[-3000:]
        found = bodies_of(broker.url, SECOND)
        assert found == [*range(PER_BATCH), *range(count)]
        assert depth(broker.url, FIRST) == 0
