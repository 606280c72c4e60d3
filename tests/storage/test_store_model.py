"""The message store against a dictionary, with every step interleaved and crashes of every kind.

What the journal kept is the measure: each message it knows alive must come back with exactly its
bytes, however the files were being written, rewritten or removed when it ended.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.storage.store_tools import StoreWorld

SIZES = [0, 1, 40, 150, 300, 1500]


class MessageStoreMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.world = StoreWorld()

    # -- queues ----------------------------------------------------------------------------

    @rule(size=st.sampled_from(SIZES), references=st.integers(1, 3))
    def write(self, size: int, references: int) -> None:
        self.world.write(size, references)

    @rule(count=st.integers(2, 12), size=st.sampled_from([40, 150]))
    def write_many(self, count: int, size: int) -> None:
        for _ in range(count):
            self.world.write(size, 1)
        self.world.seal()

    @precondition(lambda self: self.world.model.references)
    @rule(data=st.data(), count=st.integers(1, 3))
    def refer(self, data: st.DataObject, count: int) -> None:
        self.world.refer(data.draw(st.sampled_from(self.world.model.alive())), count)

    @precondition(lambda self: self.world.model.references)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.world.remove(data.draw(st.sampled_from(self.world.model.alive())))

    @rule(share=st.sampled_from([0.3, 0.6, 0.9, 1.0]), rng=st.randoms())
    def remove_many(self, share: float, rng: random.Random) -> None:
        for msg_id in self.world.model.alive():
            if rng.random() < share:
                for _ in range(self.world.model.references[msg_id]):
                    self.world.remove(msg_id)

    @precondition(lambda self: self.world.model.references)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        alive = st.sampled_from(self.world.model.alive())
        self.world.read(data.draw(st.lists(alive, min_size=1, max_size=8)))

    # -- the disk --------------------------------------------------------------------------

    @rule(sync=st.booleans())
    def seal(self, sync: bool) -> None:
        self.world.seal(sync=sync)

    @precondition(lambda self: self.world.sealed)
    @rule(count=st.integers(1, 5))
    def commit(self, count: int) -> None:
        for _ in range(count):
            if self.world.sealed:
                self.world.commit_step()

    @rule()
    def write_ahead(self) -> None:
        self.world.write_ahead()

    @rule()
    def commit_all(self) -> None:
        self.world.seal()
        while self.world.sealed:
            self.world.commit_step()

    @rule()
    def collect_garbage(self) -> None:
        self.world.store.collect_garbage()

    @rule(reads=st.booleans(), count=st.integers(1, 4))
    def job(self, reads: bool, count: int) -> None:
        for _ in range(count):
            self.world.job_step(self.world.reads if reads else self.world.writes)

    # -- stops -----------------------------------------------------------------------------

    @rule(
        how=st.sampled_from(["kill", "power_cut", "in_a_job", "in_a_commit", "recovering"]),
        rng=st.randoms(),
    )
    def crash(self, how: str, rng: random.Random) -> None:
        world = self.world
        if how == "in_a_job":
            self.die_in(rng, world.run_all)
        elif how == "in_a_commit" and world.sealed:
            self.die_in(rng, world.commit_step)
        world.crash(rng, power=how != "kill")
        if how == "recovering":
            self.die_in(rng, world.recover)
            world.crash(rng, power=rng.random() < 0.7)
        assert world.recover() == []
        world.read_all()

    def die_in(self, rng: random.Random, what: object) -> None:
        verbs = ["pread", "pwrite", "sync", "sync_dir", "rename", "remove", "open_write"]
        verbs += ["read_back", "truncate"]
        self.world.files.fail(rng.choice(verbs), after=rng.randint(0, 2))
        try:
            assert callable(what)
            what()
        except (OSError, AssertionError) as error:
            # ``job_step`` asserts that no job failed, ``judge_reads`` that no read did.
            if isinstance(error, AssertionError):
                assert self.world.store.disk_error() is not None or self.failed_read()

    def failed_read(self) -> bool:
        return any(isinstance(read.error, OSError) for read, _ in self.world.asked)

    @rule(rng=st.randoms(), power=st.booleans())
    def stop_cleanly(self, rng: random.Random, power: bool) -> None:
        table = self.world.stop_cleanly()
        if power:
            self.world.files.power_cut(rng)
        self.world.load(table)
        self.world.read_all()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.store.check()
            statistics = self.world.store.statistics()
            assert statistics["messages"] == len(self.world.model.references)
            assert statistics["references"] == sum(self.world.model.references.values())


MessageStoreMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=60, deadline=None
)
TestMessageStore = MessageStoreMachine.TestCase


@pytest.mark.parametrize("seed", range(3))
def test_random_half_acknowledged_is_bounded(seed: int) -> None:
    """store/compaction.py: garbage is at most half but for two files and what cannot be touched."""
    rng = random.Random(seed)
    world = StoreWorld(limit_bytes=4000)
    for _ in range(600):
        world.write(rng.choice([100, 300, 2500]), 1)
        world.seal()
        while world.sealed:
            world.commit_step()
    for msg_id in rng.sample(world.model.alive(), 300):
        world.remove(msg_id)
    world.seal()
    for _ in range(200):
        world.store.collect_garbage()
        world.run_all()
    statistics = world.store.statistics()
    assert statistics["compactions"] > 0
    assert statistics["bytes"] <= 2 * statistics["valid_bytes"] + 3 * 4000
    assert statistics["files"] <= 4 + 2 * statistics["bytes"] // 4000 + 1
    on_disk = sum(len(file.cache) for file in world.files.names.values())
    assert on_disk == statistics["bytes"]
    world.read_all()
