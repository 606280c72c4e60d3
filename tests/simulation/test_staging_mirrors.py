"""Batches into a mirrored queue whose masters come and go: nothing is lost, and order is kept.

As ``test_staging_lives``, but the queue has mirrors.  They hear of what was published some time
later; the master moves to one of them, or the node dies and one of them is promoted.  The next
master has all that was told to be safe, and any part of what was under way; it is played by the
same queue, from whose tail the rest is taken away.

In the end every batch is in the queue, whole and in order.  What was under way may be there twice,
the second time behind the first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.transfers import batches as rules
from penstock.cluster.mirrors.safety import SafeLine
from penstock.core.message import Message
from penstock.queues.publish_notes import PublishNotes
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.range_pair import bodies_in
from tests.simulation.test_staging_lives import KINDS, Life, Program

LIVES = int(os.environ.get("PENSTOCK_STAGING_LIVES", "20"))
AT_ONCE = 5
UNDER_WAY_MAX = 4
EVERY = 1 << 60


class Told(PublishNotes):
    """What the master has told its mirrors, by parcel: position of the journal, place behind it."""

    def __init__(self, node: QuietBroker, queue: Any, safe: int) -> None:
        self.line = SafeLine(node.broker.waits)
        self.parcels: list[tuple[int, int]] = []
        self.safe = safe  # places below are at every mirror, and on this disk
        self._journal = node.engine.journal
        self._backing = queue.backing

    def is_alone(self) -> bool:
        return False

    def note(self, messages: list[Message]) -> bool:
        behind = int(self._backing.records.next_seq_id) + len(messages)
        self.parcels.append((int(self._journal.position), behind))
        self.line.wait_for(len(self.parcels))
        return True

    def hear(self, count: int) -> None:
        """The mirrors have so many parcels more, as far as this node's disk has them."""
        upto = int(self.line.safe)
        for position, behind in self.parcels[upto : upto + count]:
            if position >= self._journal.durable_position:
                break
            upto += 1
            self.safe = behind
        self.line.reach(upto)


class MirroredLife(Life):
    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        name = self.rng.choice(("plain", "lazy"))
        self.programs = [Program(name, name, self.rng)]
        self.node.client().call("queue.declare", queue=name, durable=True, arguments=KINDS[name])
        self.changes = self.forgotten = 0
        self.told = Told(self.node, self.queue, 0)
        self.queue.mirrors = self.told

    @property
    def queue(self) -> Any:
        return self.node.broker.vhosts["/"].queues[self.programs[0].queue]

    def turns(self) -> None:
        self.told.hear(self.rng.randint(0, 3))
        super().turns()
        if self.rng.random() < 0.1:
            self.told.line.begin()
            self.came_back()

    def finish(self) -> None:
        super().finish()
        self.told.hear(self.rng.randint(0, 30))
        self.node.run()

    def came_back(self) -> None:
        """With another master, which has heard of some of what was under way."""
        self.changes += 1
        backing = self.queue.backing
        unsure = [
            int(one.seq_id) for one in backing.reads.read_range(self.told.safe, EVERY, EVERY, EVERY)
        ]
        lost = unsure[self.rng.randint(0, len(unsure)) :]
        self.forgotten += len(lost)
        self.queue.mirrors = None
        backing.drop_some(lost)
        self.told = Told(self.node, self.queue, self.told.safe)
        self.queue.mirrors = self.told

    def judge(self) -> None:
        """What is there for the first time is all there should be, in order."""
        while self.node.broker.staging.batches.under_way:
            self.told.hear(1)
            self.node.tick(100)
        name = self.programs[0].name
        last = self.node.broker.staging.last_batch(("/", "guest", name))
        assert self.programs[0].noted <= last <= self.programs[0].noted + 1
        wanted = [body for batch in range(last + 1) for body in self.programs[0].bodies(batch)]
        there = bodies_in(self.node, name)
        assert list(dict.fromkeys(there)) == wanted
        assert len(there) - len(wanted) <= self.changes * UNDER_WAY_MAX * AT_ONCE
        self.node.check()


@pytest.mark.parametrize("part", range(2))
def test_each_batch_is_published_whole_and_in_order(
    tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "PUBLISHED_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(rules, "UNDER_WAY_MAX", UNDER_WAY_MAX)
    changes = forgotten = batches = 0
    for seed in range(part, LIVES, 2):
        life = MirroredLife(seed, tmp_path)
        life.live()
        changes += life.changes
        forgotten += life.forgotten
        batches += life.programs[0].noted + 1
        life.node.definitions.close()
    print(f"{changes} masters, {forgotten} messages they lacked, {batches} batches")
    assert forgotten > 0
    assert batches > LIVES // 4
