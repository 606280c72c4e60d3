"""Programs that write batches, through crashes of theirs and of the broker: each batch once.

A life is a broker on a disk that forgets, its definitions in a real file (whatever was committed
there survives, as SQLite promises), and two programs.  A program is a Spark query in small: it
has a checkpoint, computes batch after batch, stages each in some sets, commits, and notes the
answer; it may die between any two of these steps and starts again from its checkpoint, as a new
run.  The power goes, or the process dies, between any two turns of the broker, also in the middle
of a batch, while groups are with the committer; memory is short, so sets and queues page.  In
every other life any verb of the disk may fail, once or from then on: the broker dies of it, and
starts again.

In the end every batch that was noted as committed, or that the broker knows as the last, is in the
queue once, whole and in order; nothing of any other is there.
"""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from penstock.broker.transfers import batches as rules
from penstock_ranges import staging
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.range_pair import Answered, StagingEnd, bodies_in, publishes

LIVES = int(os.environ.get("PENSTOCK_STAGING_LIVES", "20"))
STEPS = 250
DISK_VERBS = ("pwrite", "sync", "rename", "remove", "sync_dir", "open_write", "pread", "read")
KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "lazy": {"x-queue-mode": "lazy"},
    "priority": {"x-max-priority": 2},
    "bounded": {"x-max-length": 100_000, "x-overflow": "reject-publish"},
}


class Program:
    """Its checkpoint is ``noted``: the last batch it knows to be committed."""

    def __init__(self, name: str, queue: str, rng: random.Random) -> None:
        self.name = name
        self.queue = queue
        self.rng = rng
        self.noted = -1
        self.runs = 0
        self.sizes: dict[int, int] = {}  # of batches: the same whenever they are computed
        self.die()

    def die(self) -> None:
        self.end: StagingEnd | None = None
        self.sets: list[str] = []
        self.staged = 0
        self.asked = False

    def bodies(self, batch: int) -> list[bytes]:
        size = self.sizes.setdefault(batch, self.rng.randint(0, 60))
        large = 5000 if batch % 7 == 3 else 20  # those of a batch in the message store
        return [b"%s:%d:%d:" % (self.name.encode(), batch, n) + b"x" * large for n in range(size)]

    def start(self, node: QuietBroker) -> None:
        self.runs += 1
        self.end = StagingEnd(node)
        self.sets = []
        self.staged = 0
        self.asked = False

    def step(self, node: QuietBroker) -> None:
        try:
            self.move(node)
        except Answered as error:
            known = "was dropped" in error.text or "no finished" in error.text
            if not known and not node.files.has_failed:
                raise
            self.die()  # a task failed: the query starts again

    def move(self, node: QuietBroker) -> None:
        if self.end is None:
            self.start(node)
            return
        batch = self.noted + 1
        bodies = self.bodies(batch)
        if self.asked:
            if self.end.silent():
                return
            told = staging.decode_committed(self.end.expect(staging.COMMITTED))
            assert told.outcome in (staging.DONE, staging.DUPLICATE)
            if self.rng.random() < 0.2:
                self.die()  # before it noted the answer
                return
            self.noted = batch
            self.sets, self.staged, self.asked = [], 0, False
        elif self.staged < len(bodies):
            self.stage(batch, bodies)
        else:
            run = f"run{self.runs}"
            self.end.ask_commit(batch, self.sets, self.name, run, turn=self.rng.random() < 0.2)
            self.asked = True

    def stage(self, batch: int, bodies: list[bytes]) -> None:
        assert self.end is not None
        part = bodies[self.staged : self.staged + self.rng.randint(1, 30)]
        name = self.end.begin(batch, self.name, f"run{self.runs}")
        if not name:
            self.staged = len(bodies)
            return
        not_taken = self.end.block(publishes("", self.queue, part))
        if not_taken or self.rng.random() < 0.1:
            self.die()
            return
        self.end.send(staging.encode_end(len(part)))
        if self.end.silent():  # the committer holds: this program waits no longer
            self.die()
            return
        staging.decode_ended(self.end.expect(staging.STAGE_ENDED))
        self.sets.append(name)
        self.staged += len(part)


class Life:
    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.definitions = str(directory / f"{seed}.db")
        self.memory = self.rng.choice([100_000, 1_000_000, 1 << 40])
        self.programs = [Program(name, name, self.rng) for name in self.rng.sample(list(KINDS), 2)]
        self.crashes = 0
        self.halves = 0  # crashes in the middle of a batch
        self.trouble = seed % 2 == 1
        self.failing = ""  # this verb of the disk, whenever it is called
        self.failures = 0  # the broker died of
        self.node = QuietBroker(definitions=self.definitions, memory_bytes=self.memory)
        client = self.node.client()
        for program in self.programs:
            client.call(
                "queue.declare", queue=program.queue, durable=True, arguments=KINDS[program.name]
            )
        client.call("queue.declare", queue="deaf", durable=True)

    def live(self) -> None:
        verbs = [
            (60, lambda: self.rng.choice(self.programs).step(self.node)),
            (6, lambda: self.rng.choice(self.programs).die()),
            (6, self.hold),
            (14, self.finish),
            (4, lambda: self.node.tick(self.rng.choice((1, 300, 2000)))),
            (30, self.turns),
            (3, self.crash),
            (1 if self.trouble else 0, self.make_fail),
        ]
        weights = [weight for weight, _ in verbs]
        for _ in range(STEPS):
            if self.failing:
                self.node.files.fail(self.failing)
            self.rng.choices([verb for _, verb in verbs], weights)[0]()
            if self.node.engine.disk_error() or self.node.committer.error:
                self.failures += 1
                self.crash()
            self.node.broker.staging.check()
            self.node.engine.check()
        self.crash()
        self.node.tick(1000)
        self.judge()

    def make_fail(self) -> None:
        """Once, or from now on."""
        verb = self.rng.choice(DISK_VERBS)
        self.node.files.fail(verb, errno.EIO, self.rng.randint(0, 5))
        self.failing = verb if self.rng.random() < 0.5 else ""

    def turns(self) -> None:
        """A few: not enough for all of a batch, mostly."""
        for _ in range(self.rng.randint(1, 4)):
            self.node.turn.run(self.node.now_ms, self.rng.random() < 0.3)
            self.node.flush()
        if self.is_halfway() and self.rng.random() < 0.3:
            self.crash()

    def is_halfway(self) -> bool:
        batches = [waiting[0] for waiting in self.node.broker.staging.batches.under_way.values()]
        return any(
            0 < batch.published < sum(one.record.messages for one in batch.sets)
            for batch in batches
        )

    def hold(self) -> None:
        self.node.committer.hold = True
        self.node.worker.hold = self.rng.random() < 0.5

    def finish(self) -> None:
        self.node.committer.hold = self.rng.random() < 0.3
        self.node.committer.finish()
        if self.rng.random() < 0.7:
            self.node.worker.hold = False
        self.node.run()

    def crash(self) -> None:
        """Between two turns; what is with the committer may have got anywhere."""
        self.crashes += 1
        self.failing = ""
        self.halves += self.is_halfway()
        for program in self.programs:
            program.die()
        files = self.node.files
        if self.rng.random() < 0.7:
            files.power_cut(self.rng)
        else:
            files.kill()
        self.node.definitions.close()
        now_ms = self.node.now_ms
        self.node = QuietBroker(files, self.definitions, self.memory)
        self.node.now_ms = now_ms
        self.came_back()
        self.node.run()

    def came_back(self) -> None:
        """The node has what the disk had, and no turn has run yet."""

    def judge(self) -> None:
        for program in self.programs:
            last = self.node.broker.staging.last_batch(("/", "guest", program.name))
            assert program.noted <= last <= program.noted + 1, "what was answered is decided"
            wanted = [body for batch in range(last + 1) for body in program.bodies(batch)]
            assert bodies_in(self.node, program.queue) == wanted
        self.node.check()


@pytest.mark.parametrize("part", range(4))
def test_each_batch_is_published_once_and_in_order(
    tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "PUBLISHED_AT_ONCE", 5)
    crashes = batches = halves = failures = 0
    for seed in range(part, LIVES, 4):
        life = Life(seed, tmp_path)
        life.live()
        crashes += life.crashes
        halves += life.halves
        failures += life.failures
        batches += sum(program.noted + 1 for program in life.programs)
        life.node.definitions.close()
    print(f"{crashes} crashes, {halves} in the middle of a batch, {batches} batches")
    print(f"{failures} of them by a failure of the disk")
    assert halves > 0
    assert failures > 0 or part % 2 == 0
    assert batches > LIVES // 4
