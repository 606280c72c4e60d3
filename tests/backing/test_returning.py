"""Requeue to the tail, and delays: what a crash, a clean stop and a shortage of memory leave."""

from __future__ import annotations

import random

import pytest

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import ATTEMPTS_SHIFT, REDELIVERED, Message
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

QUEUE_ID = 7
SIZES = (5, 50, 400)
EVERYTHING = 1 << 40


def opened(files: SimFileSystem, *, paging: int = 1 << 40) -> OpenEngine:
    return OpenEngine(
        files,
        {QUEUE_ID: 16},
        limits(embed=200, journal=8000, paging=paging),
        journal_file_bytes=4000,
        store_file_bytes=3000,
    )


def bodies(queue: VariableQueue) -> list[bytes]:
    found = queue.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
    return [one.content.partition(b":")[0] for one in found]


def fill(queue: VariableQueue, count: int, size: int = 5) -> None:
    queue.publish([message(b"%d:" % i + b"x" * size) for i in range(count)], 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("committed", [False, True])
def test_moved_to_the_tail_it_is_there_once(size: int, committed: bool) -> None:
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 4, size)
    one.commit()
    first = queue.fetch(1, 1)
    first[0].flags += 3 << ATTEMPTS_SHIFT
    queue.requeue_to_tail(first, 2)
    queue.check()
    assert first[0].seq_id == queue.next_seq_id() - 1
    assert bodies(queue) == [b"1", b"2", b"3", b"0"]
    if committed:
        one.commit()
    one.work(3)
    files.power_cut(random.Random(1))
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    if not committed:
        assert sorted(bodies(queue)) == [b"0", b"1", b"2", b"3"]
        return
    assert bodies(queue) == [b"1", b"2", b"3", b"0"]
    queue.await_head()
    last = queue.fetch(4, EVERYTHING)[-1]
    assert last.flags >> ATTEMPTS_SHIFT == 3
    assert last.flags & REDELIVERED


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ending", ["kill", "power", "clean"])
def test_a_delay_survives(size: int, ending: str) -> None:
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 6, size)
    queue.delay(queue.fetch(4, EVERYTHING)[1:3], 500)
    queue.check()
    one.commit()
    if ending == "clean":
        one.close_cleanly()
    elif ending == "power":
        files.power_cut(random.Random(2))
    else:
        files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    queue.check()
    assert bodies(queue) == [b"0", b"3", b"4", b"5"]
    assert queue.count_delayed() == 2
    assert queue.next_due_ms() == 500
    assert queue.release_due(499) == 0
    assert queue.release_due(500) == 2
    queue.check()
    assert bodies(queue) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert queue.next_due_ms() == 0


def test_a_purge_goes_around_what_is_delayed() -> None:
    files = SimFileSystem()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    fill(queue, 40)
    queue.delay(queue.fetch(8, EVERYTHING)[4:6], 500)
    one.commit()
    files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    assert queue.purge() == 38
    queue.check()
    one.commit()
    files.kill()
    one = opened(files)
    queue = one.queues[QUEUE_ID]
    assert queue.ready_count() == 0
    assert queue.release_due(500) == 2
    assert bodies(queue) == [b"4", b"5"]


class Returning:
    """One life of a queue whose messages go back to the tail and are delayed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = SimFileSystem()
        self.paging = self.rng.choice([3000, 1 << 40])
        self.published = 0
        self.now_ms = 1
        self.tokens: list[Message] = []
        self.alive: set[bytes] = set()  # not acknowledged
        self.safe: set[bytes] = set()  # of these, committed
        self.gone: set[bytes] = set()  # acknowledged and committed
        self.open()

    def open(self) -> None:
        self.one = opened(self.files, paging=self.paging)
        self.queue = self.one.queues[QUEUE_ID]

    def publish(self) -> None:
        batch = []
        for _ in range(self.rng.randint(1, 12)):
            name = b"%d" % self.published
            batch.append(message(name + b":" + b"x" * self.rng.choice(SIZES)))
            self.alive.add(name)
            self.published += 1
        self.queue.publish(batch, self.now_ms)

    def fetch(self) -> None:
        self.tokens += self.queue.fetch(self.rng.randint(1, 20), 10**6)

    def some(self) -> list[Message]:
        self.rng.shuffle(self.tokens)
        count = self.rng.randint(0, len(self.tokens))
        taken, self.tokens = self.tokens[:count], self.tokens[count:]
        return taken

    def ack(self) -> None:
        taken = self.some()
        self.alive -= {one.content.partition(b":")[0] for one in taken if one.content}
        kept = [one for one in taken if not one.content]
        self.tokens += kept
        self.queue.ack([one for one in taken if one.content])

    def to_tail(self) -> None:
        self.queue.requeue_to_tail(self.some(), self.now_ms)

    def delay(self) -> None:
        self.queue.delay(self.some(), self.now_ms + self.rng.randint(1, 60))

    def requeue(self) -> None:
        self.queue.requeue(self.some())

    def release(self) -> None:
        self.queue.release_due(self.now_ms)

    def commit(self) -> None:
        self.one.commit()
        self.safe = set(self.alive)
        self.gone = {b"%d" % i for i in range(self.published)} - self.alive

    def work(self) -> None:
        self.one.work(self.now_ms)
        self.one.run_jobs(writes=self.rng.randint(0, 4), reads=self.rng.randint(0, 4))

    def end(self) -> None:
        clean = self.rng.random() < 0.3
        if clean:
            self.one.close_cleanly()
            self.safe = set(self.alive)
        elif self.rng.random() < 0.6:
            self.files.power_cut(self.rng)
        else:
            self.files.kill()
        self.open()
        self.queue.check()
        self.queue.release_due(EVERYTHING)
        self.queue.check()
        found = bodies(self.queue)
        assert len(found) == len(set(found)), "twice"
        assert self.safe & self.alive <= set(found), "lost"
        assert not set(found) & self.gone, "came back"
        self.alive = set(found)
        self.tokens = []
        self.safe = set(found)
        self.gone = {b"%d" % i for i in range(self.published)} - self.alive

    def live(self, steps: int) -> None:
        verbs = [self.publish, self.publish, self.fetch, self.fetch, self.ack, self.to_tail]
        verbs += [self.delay, self.requeue, self.release, self.commit, self.work, self.work]
        for _ in range(steps):
            self.now_ms += 3
            (self.end if self.rng.random() < 0.03 else self.rng.choice(verbs))()
            self.queue.check()
            self.one.engine.check()
            self.one.engine.store.check()


@pytest.mark.parametrize("seed", range(60))
def test_random_lives(seed: int) -> None:
    Returning(seed).live(200)
