"""From one queue to another in one turn: nothing is lost and nothing is there twice.

A life of two queues on a disk that forgets.  Messages come into the first, and are moved to the
second some at a time, as a batch of a sink is published: fetched, published there, let go here.
In between groups are sealed, written and synced in any order a committer may, memory is short so
that both queues page, journal files are retired, segments rewritten, contents shared in the
message store; and the power goes, or the process dies, at any moment.  What was on disk before
must then be found once, in one of them, and in order.
"""

from __future__ import annotations

import random

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import STORED, Message
from tests.backing.engine_tools import PatientEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

HERE, THERE = 7, 8
ENTRIES = {HERE: 24, THERE: 64}
EVERYTHING = 1 << 40
STEPS = 150


class MovingLife:
    """Names of messages ascend; ``safe`` are those whose publish was synced."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = SimFileSystem()
        self.limits = {
            "embed": 200,
            "paging": self.rng.choice([500, 3000, 20_000]),
            "journal": self.rng.choice([4000, 8000, 10**6]),
            "entries": self.rng.choice([20, 10**6]),
        }
        self.now_ms = 1000
        self.names = 0
        self.moves = 0
        self.waiting: list[tuple[list[int], int]] = []  # (names, safe at this position)
        self.safe: set[int] = set()
        self.open()

    def open(self) -> None:
        self.opened = PatientEngine(
            self.files,
            ENTRIES,
            limits(**self.limits),
            journal_file_bytes=2000,
            store_file_bytes=self.rng.choice([500, 3000]),
        )
        if self.rng.random() < 0.3:
            self.there.set_mode(True)

    @property
    def here(self) -> VariableQueue:
        return self.opened.queues[HERE]

    @property
    def there(self) -> VariableQueue:
        return self.opened.queues[THERE]

    def publish(self) -> None:
        batch: list[Message] = []
        for _ in range(self.rng.randint(1, 20)):
            size = self.rng.choice((5, 50, 150, 400))
            batch.append(message(b"%d:" % self.names + b"x" * size))
            self.names += 1
        self.here.publish(batch, self.now_ms)
        names = list(range(self.names - len(batch), self.names))
        self.waiting.append((names, int(self.opened.engine.journal.position)))

    def move(self) -> None:
        messages = self.here.fetch(self.rng.randint(1, 30), EVERYTHING)
        if not messages:
            return
        copies = [one.copy_for_queue() for one in messages]
        self.there.records.expect_moved()
        self.there.publish(copies, self.now_ms)
        self.there.records.moved_in()
        self.here.ack_behind(messages)
        self.moves += len(messages)

    def consume(self) -> None:
        """Some are read and stay: they go back to their places."""
        messages = self.there.fetch(5, EVERYTHING)
        self.there.requeue(messages)

    def write(self) -> None:
        self.opened.write_groups()

    def hear(self) -> None:
        self.opened.hear_groups()
        durable = self.opened.engine.journal.durable_position
        while self.waiting and self.waiting[0][1] <= durable:
            self.safe.update(self.waiting.pop(0)[0])

    def jobs(self) -> None:
        for _ in range(self.rng.randint(1, 10)):
            self.rng.choice((self.opened.run_write, self.opened.run_read, self.opened.hear_job))()

    def crash(self) -> None:
        if self.rng.random() < 0.7:
            self.files.power_cut(self.rng)
        else:
            self.files.kill()
        self.open()
        self.judge()
        self.waiting = []

    def judge(self) -> None:
        found = names_in(self.there) + names_in(self.here)
        assert found == sorted(set(found)), "in order, each once"
        assert self.safe <= set(found), "lost"
        self.safe = set(found)

    def live(self) -> None:
        verbs = [
            (20, self.publish),
            (30, self.move),
            (5, self.consume),
            (10, lambda: self.opened.seal(sync=self.rng.random() < 0.6)),
            (8, self.write),
            (8, self.hear),
            (20, lambda: self.opened.work(self.now_ms, idle=self.rng.random() < 0.2)),
            (20, self.jobs),
            (2, self.crash),
        ]
        weights = [weight for weight, _ in verbs]
        for _ in range(STEPS):
            self.now_ms += self.rng.choice((1, 100, 300))
            self.rng.choices([verb for _, verb in verbs], weights)[0]()
            self.here.check()
            self.there.check()
        self.crash()


def names_in(queue: VariableQueue) -> list[int]:
    found = queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
    assert queue.why_stopped() == ""
    return [int(one.content.split(b":")[0]) for one in found]


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_a_crash_finds_each_message_once_and_in_order(first: int) -> None:
    moves = 0
    for seed in range(first, first + 25):
        life = MovingLife(seed)
        life.live()
        moves += life.moves
    assert moves > 1000


def test_a_content_in_the_store_is_not_copied() -> None:
    opened = PatientEngine(SimFileSystem(), ENTRIES, limits(embed=200))
    here, there = opened.queues[HERE], opened.queues[THERE]
    here.publish([message(b"x" * 300)], 1)
    opened.commit()
    messages = here.fetch(1, EVERYTHING)
    copies = [one.copy_for_queue() for one in messages]
    there.records.expect_moved()
    there.publish(copies, 2)
    there.records.moved_in()
    here.ack_behind(messages)
    opened.commit()
    assert copies[0].flags & STORED
    assert copies[0].msg_id == messages[0].msg_id
    opened.engine.store.check()
