"""A mirrored backing keeps the promise of every backing, and its replica has the same messages.

The suite of all backings does to the master whatever a queue may do; after each step the replica,
on a disk of its own, is told and must have the same set.  When the master's node has lost what a
crash loses, another replica begins, and is synchronised (those that come back with what they have
are judged in tests/simulation).
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.replica import Replica
from tests.backing.backing_suite import QUEUES, SEGMENT_ENTRIES, BackingMachine
from tests.backing.engine_tools import OpenEngine, limits
from tests.backing.judged_queue import EMBED_BELOW_BYTES
from tests.cluster.mirror_tools import Pair, attempts_in, set_of
from tests.helpers.sim_files import SimFileSystem

pytestmark = pytest.mark.timeout(600 + settings().max_examples // 2)


class MirroredQueue(BackingMachine):
    """``pairs`` by queue_id; a pair ends with the backing it was made for."""

    happened: ClassVar[Counter[str]] = Counter()

    def make(self, opened: OpenEngine, queue_id: int, *, durable: bool) -> Any:
        return VariableQueue(opened.engine, queue_id, durable, SEGMENT_ENTRIES)

    def pair(self, at: int) -> Pair:
        queue = self.queues[at]
        if not hasattr(self, "pairs"):
            self.pairs: dict[int, Pair] = {}
            self.again: set[int] = set()  # queues that were mirrored no more for a moment
            self.active: dict[tuple[str, str], None] = {}
            self.made = 0
            self.others = OpenEngine(
                SimFileSystem(),
                {},
                limits(embed=EMBED_BELOW_BYTES, paging=self.paging, journal=9000, entries=40),
                journal_file_bytes=4000,
                store_file_bytes=self.store_file_bytes,
            )
        pair = self.pairs.get(queue.queue_id)
        is_another = queue.queue_id in self.again
        self.again.discard(queue.queue_id)
        if pair is None or is_another or pair.mirrored.backing is not queue.backing:
            term = 1 if pair is None else pair.mirrored.term + 1
            mirrored = MirroredBacking(queue.backing, self.active, ("/", str(queue.queue_id)))
            mirrored.begin(term, 0)
            self.made += 1
            copy = VariableQueue(
                self.others.engine, 1000 + self.made, queue.durable, SEGMENT_ENTRIES
            )
            if pair is not None:
                pair.replica.backing.parts()[0].delete()
            replica = Replica(copy, self.others.engine.journal)
            replica.follow(term, False)
            pair = self.pairs[queue.queue_id] = Pair(mirrored, replica, self.others)
            syncer = pair.synchronise()
            assert syncer.sent_count == syncer.looked_count
            self.note("synchronised", int(syncer.sent_count))
        return pair

    @rule(at=QUEUES)
    def mirror_again(self, at: int) -> None:
        """It was mirrored no more for a moment."""
        self.pair(at).mirrored.end()
        self.again.add(self.queues[at].queue_id)

    @rule(writes=st.integers(0, 4), paging=st.sampled_from([8, 2000, 1 << 40]))
    def others_work(self, writes: int, paging: int) -> None:
        if hasattr(self, "others"):
            self.others.engine.ram.paging_bytes = paging
            self.others.work(self.now_ms)
            self.others.commit()
            self.others.run_jobs(writes=writes)

    @invariant()
    def copies_agree(self) -> None:
        if not hasattr(self, "opened"):
            return
        pairs = [self.pair(at) for at in range(len(self.queues))]
        for pair in pairs:
            pair.mirrored.check()
        self.active.clear()
        for queue, pair in zip(self.queues, pairs, strict=True):
            pair.tell()
            pair.replica.tick(self.now_ms)
            pair.replica.check()
            assert pair.replica.is_complete()
            copy = pair.replica.backing.parts()[0]
            assert set_of(copy, self.now_ms) == set_of(queue.backing, self.now_ms)
            if self.happened["steps"] % 8 == 0:
                assert attempts_in(copy, 0) == attempts_in(queue.backing, 0)
        self.happened["steps"] += 1

    def teardown(self) -> None:
        if hasattr(self, "pairs") and sys.exc_info()[1] is self.raised_before:
            for pair in self.pairs.values():
                pair.mirrored.end()
        super().teardown()


MirroredQueue.TestCase.settings = settings(
    max_examples=max(5, settings().max_examples // 5), stateful_step_count=40, deadline=None
)
TestMirrored = MirroredQueue.TestCase


class CountedQueue(MirroredQueue):
    happened: ClassVar[Counter[str]] = Counter()


REACHED = (
    "synchronised",
    "moved to the tail",
    "delayed",
    "released",
    "taken from delta",
    "power cut",
)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_machine_gets_everywhere() -> None:
    missing = list(REACHED)
    for number in range(100):
        run_state_machine_as_test(
            seed(number)(CountedQueue),
            settings=settings(
                max_examples=4,
                stateful_step_count=40,
                deadline=None,
                database=None,
                phases=[Phase.generate],
            ),
        )
        missing = [what for what in REACHED if not CountedQueue.happened[what]]
        if not missing:
            break
    print(dict(CountedQueue.happened))
    assert missing == []
