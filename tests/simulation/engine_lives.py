"""Random lives of queues on the engine: everything at once, with crashes, judged by promises.

A *life* is some hundred steps of one queue on a simulated disk: publishes (small and large,
persistent and not), fetches, acknowledgements, requeues, purges, commits, slices of the engine's
work, disk jobs a few at a time, changes of mode, clean stops, kills and power cuts.  The judge
keeps a dictionary and three sets, and knows nothing of segments or journals:

    need       persistent messages whose group was committed and that nobody acknowledged since
    allowed    every persistent message but those whose end was committed

After a crash the queue must hold all of ``need``, nothing outside ``allowed``, in order, each
content as published.  After a clean stop both sets are the same.
"""

from __future__ import annotations

import random

from penstock.core.message import PERSISTENT, Message
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

QUEUE_ID = 7
STEPS = 300
SEGMENT_ENTRIES = 64
EVERYTHING = 1 << 40
SIZES = (5, 50, 150, 400)
EMBED_BELOW_BYTES = 200


class Life:
    """One queue, one disk, one judge; ``live`` it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = SimFileSystem()
        self.limits = {
            "embed": EMBED_BELOW_BYTES,
            "paging": self.rng.choice([3000, 20_000, 10**9]),
            "journal": self.rng.choice([8000, 10**6]),
            "entries": self.rng.choice([20, 10**6]),
        }
        # Twice as much garbage is nothing to rewrite segments for.
        self.store_file_bytes = self.rng.choice([500, 3000])
        self.now_ms = 1000
        self.published = 0
        self.crashes = 0
        self.contents: dict[int, tuple[bytes, bool]] = {}
        self.ready: set[int] = set()
        self.tokens: list[Message] = []
        self.safe: set[int] = set()  # committed as published
        self.ended: set[int] = set()  # since the last commit
        self.gone: set[int] = set()  # committed as ended
        self.open()

    def open(self) -> None:
        self.opened = OpenEngine(
            self.files,
            {QUEUE_ID: SEGMENT_ENTRIES},
            limits(**self.limits),
            journal_file_bytes=4000,
            store_file_bytes=self.store_file_bytes,
        )
        self.queue = self.opened.queues[QUEUE_ID]

    def live(self) -> None:
        verbs = [
            (35, self.publish),
            (15, self.fetch),
            (10, self.ack),
            (5, self.requeue),
            (10, self.commit),
            (10, self.work),
            (7, self.run_jobs),
            (2, self.change_mode),
            (1, self.purge),
            (2, self.drop_below),
            (2, self.read_range),
            (2, self.end),
        ]
        weights = [weight for weight, _ in verbs]
        for _ in range(STEPS):
            self.now_ms += self.rng.choice([1, 1, 100])
            self.rng.choices([verb for _, verb in verbs], weights)[0]()
            self.check()
        self.drain()

    def check(self) -> None:
        self.queue.check()
        self.opened.engine.check()
        self.opened.engine.store.check()
        self.opened.engine.transient_store.check()
        assert self.queue.ready_count() == len(self.ready)

    # -- verbs -----------------------------------------------------------------------------

    def publish(self) -> None:
        batch = []
        for _ in range(self.rng.randint(1, 20)):
            self.published += 1
            body = b"%d:" % self.published + b"x" * self.rng.choice(SIZES)
            batch.append(message(body, persistent=self.rng.random() < 0.7))
        self.queue.publish(batch, self.now_ms)
        for one in batch:
            self.contents[one.seq_id] = (one.content, bool(one.flags & PERSISTENT))
            self.ready.add(one.seq_id)

    def fetch(self) -> None:
        found = self.queue.fetch(self.rng.randint(1, 30), 10**6)
        for seq_id, one in zip(sorted(self.ready), found, strict=False):
            assert one.seq_id == seq_id
            assert one.content == self.contents[seq_id][0]
            self.ready.remove(seq_id)
        self.tokens += found

    def some_tokens(self) -> list[Message]:
        self.rng.shuffle(self.tokens)
        count = self.rng.randint(0, len(self.tokens))
        taken, self.tokens = self.tokens[:count], self.tokens[count:]
        return taken

    def ack(self) -> None:
        taken = self.some_tokens()
        if taken:
            self.queue.ack(taken)
            self.ended.update(one.seq_id for one in taken)

    def requeue(self) -> None:
        taken = self.some_tokens()
        if taken:
            self.queue.requeue(taken)
            self.ready.update(one.seq_id for one in taken)

    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.ended |= self.ready
        self.ready = set()

    def drop_below(self) -> None:
        seq_id = self.rng.randint(0, self.queue.next_seq_id())
        below = {one for one in self.ready if one < seq_id}
        assert self.queue.drop_below(seq_id) == len(below)
        self.ended |= below
        self.ready -= below

    def read_range(self) -> None:
        start = self.rng.randint(0, self.queue.next_seq_id())
        end = self.rng.randint(start, self.queue.next_seq_id())
        found = self.queue.read_range(start, end, 50, 10**6)
        wanted = sorted(one for one in self.ready if start <= one < end)[:50]
        assert [one.seq_id for one in found] == wanted
        assert all(one.content == self.contents[one.seq_id][0] for one in found)

    def change_mode(self) -> None:
        self.queue.set_mode(self.rng.random() < 0.5)

    # -- the disk --------------------------------------------------------------------------

    def commit(self) -> None:
        self.opened.commit()
        self.gone |= self.ended
        self.ended = set()
        held = self.ready | {one.seq_id for one in self.tokens}
        self.safe = {one for one in held if self.contents[one][1]}

    def work(self) -> None:
        self.opened.work(self.now_ms, idle=self.rng.random() < 0.2)

    def run_jobs(self) -> None:
        self.opened.run_jobs(writes=self.rng.randint(0, 3), reads=self.rng.randint(0, 3))

    def end(self) -> None:
        """The process ends in one of three ways, and begins again."""
        persistent = {seq_id for seq_id, (_, kept) in self.contents.items() if kept}
        need = self.safe - self.ended
        allowed = persistent - self.gone
        ending = self.rng.random()
        if ending < 0.3:
            self.opened.close_cleanly()
            if ending < 0.1:
                self.files.power_cut(self.rng)
            held = self.ready | {one.seq_id for one in self.tokens}
            need = allowed = held & persistent
        elif ending < 0.75:
            self.files.power_cut(self.rng)
        else:
            self.files.kill()
        self.crashes += ending >= 0.3
        self.open()
        found = self.queue.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
        self.judge(found, need, allowed)
        self.ready = {one.seq_id for one in found}
        self.contents = {one: self.contents[one] for one in self.ready}
        self.safe = set(self.ready)
        self.tokens, self.ended, self.gone = [], set(), set()

    def judge(self, found: list[Message], need: set[int], allowed: set[int]) -> None:
        seq_ids = [one.seq_id for one in found]
        assert seq_ids == sorted(set(seq_ids)), "out of order, or twice"
        assert need <= set(seq_ids), f"lost: {sorted(need - set(seq_ids))}"
        assert set(seq_ids) <= allowed, f"came back: {sorted(set(seq_ids) - allowed)}"
        for one in found:
            assert one.content == self.contents[one.seq_id][0], f"{one.seq_id} is another"

    def drain(self) -> None:
        """Whatever happened: all of it comes out, and nothing is left behind."""
        self.opened.settle(self.now_ms)
        if self.tokens:
            self.queue.requeue(self.tokens)
        for _ in range(5000):
            self.queue.ack(self.queue.fetch(100, 10**9))
            self.opened.settle(self.now_ms)
            if not self.queue.ready_count():
                break
        self.opened.settle(self.now_ms)
        assert self.queue.ready_count() == 0
        assert self.queue.ram_bytes() == 0
        assert self.opened.engine.store.statistics()["references"] == 0
        index = self.queue.index_or_none()
        assert index is None or not index.segments
