"""The message log against a model, through crashes of every kind.

Blocks are believed whole or not at all and in order, so what a crash leaves must be *exactly*
the state after some committed group, and not an earlier one than the last synced group.  The
model keeps a snapshot per group and looks the recovered state up among the allowed ones.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.message import LOGGED, PERSISTENT, REDELIVERED, Message
from penstock.storage.log_codec import LogGroup
from tests.helpers.sim_files import SimFileSystem
from tests.storage.log_tools import OpenLog, message

STEP = 16_384
LIMIT_BYTES = 700
Content = tuple[int, bytes, bytes, int, int]


class Snapshot(NamedTuple):
    messages: dict[int, list[Content]]
    bounds: dict[int, int]


def content(one: Message) -> Content:
    return (one.seq_id, one.content, one.address, one.expires_at_ms, one.enqueued_at_ms)


class MessageLogMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.files = SimFileSystem()
        self.queues: dict[int, dict[int, Message]] = {}
        self.next_seq_ids: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.bounds: dict[int, int] = {}
        self.last_queue_id = 0
        self.declare()
        self.opened = OpenLog(self.files, set(self.queues), LIMIT_BYTES)
        self.sealed: list[tuple[LogGroup, Snapshot]] = []
        self.snapshots = [self.snapshot()]
        self.clean = True

    def snapshot(self) -> Snapshot:
        found = {
            queue_id: sorted(content(one) for one in queue.values())
            for queue_id, queue in self.queues.items()
        }
        return Snapshot(found, dict(self.bounds))

    # -- what queues do --------------------------------------------------------------------

    @precondition(lambda self: len(self.queues) < 4)
    @rule()
    def declare(self) -> None:
        self.last_queue_id += 1
        self.queues[self.last_queue_id] = {}
        self.next_seq_ids[self.last_queue_id] = 0
        self.reserved[self.last_queue_id] = 0
        self.bounds[self.last_queue_id] = 0

    @rule(data=st.data(), kinds=st.lists(st.booleans(), min_size=1, max_size=8))
    def publish(self, data: st.DataObject, kinds: list[bool]) -> None:
        queue_id = data.draw(st.sampled_from(sorted(self.queues)))
        body = b"x" * data.draw(st.sampled_from([0, 10, 300]))
        start = self.take_seq_ids(queue_id, len(kinds))
        batch = [
            message(start + i, body, persistent=persistent, expires=i)
            for i, persistent in enumerate(kinds)
        ]
        self.opened.log.publish(queue_id, batch)
        for one in batch:
            assert bool(one.flags & LOGGED) == bool(one.flags & PERSISTENT)
            if one.flags & PERSISTENT:
                self.queues[queue_id][one.seq_id] = one
                self.bounds[queue_id] = max(self.bounds[queue_id], one.seq_id + 1)

    @rule(count=st.integers(1, 6))
    def publish_everywhere(self, count: int) -> None:
        """A round of a busy broker: every queue, a group, a file nearly full."""
        for queue_id, queue in self.queues.items():
            start = self.take_seq_ids(queue_id, count)
            batch = [message(seq_id, b"y" * 50) for seq_id in range(start, start + count)]
            self.opened.log.publish(queue_id, batch)
            queue.update({one.seq_id: one for one in batch})
            self.bounds[queue_id] = max(self.bounds[queue_id], start + count)
        self.seal_and_commit_all(sync=True)

    @rule(data=st.data(), count=st.integers(1, 20_000))
    def publish_transient(self, data: st.DataObject, count: int) -> None:
        self.take_seq_ids(data.draw(st.sampled_from(sorted(self.queues))), count)

    def take_seq_ids(self, queue_id: int, count: int) -> int:
        start = self.next_seq_ids[queue_id]
        self.next_seq_ids[queue_id] = start + count
        if start + count > self.reserved[queue_id]:
            self.reserved[queue_id] = start + count + STEP
            self.opened.log.reserve(queue_id, self.reserved[queue_id])
            self.bounds[queue_id] = self.reserved[queue_id]
        return start

    @rule(data=st.data(), pick=st.sampled_from(["old", "new", "some", "most"]), rng=st.randoms())
    def ack(self, data: st.DataObject, pick: str, rng: random.Random) -> None:
        queue_id = data.draw(st.sampled_from(sorted(self.queues)))
        live = sorted(self.queues[queue_id].values(), key=lambda one: one.seq_id)
        if pick == "old":
            live = live[: len(live) // 2 + 1]
        elif pick == "new":
            live = live[::-1][:3]
        else:
            rng.shuffle(live)
            live = live[: len(live) // 2] if pick == "some" else live[1:]
        transient = message(self.take_seq_ids(queue_id, 1), persistent=False)
        self.opened.log.ack(queue_id, [transient, *live])
        for one in live:
            assert not one.flags & LOGGED
            del self.queues[queue_id][one.seq_id]

    @precondition(lambda self: len(self.queues) > 1)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        queue_id = data.draw(st.sampled_from(sorted(self.queues)))
        pending = list(self.queues.pop(queue_id).values())
        self.opened.log.forget_queue(queue_id)
        self.opened.log.ack(queue_id, pending)  # a consumer that acks too late

    @rule(rng=st.randoms())
    def relocate_some(self, rng: random.Random) -> None:
        for queue_id, queue in self.queues.items():
            moved = [one for one in queue.values() if rng.random() < 0.4]
            self.opened.log.relocate(queue_id, moved)

    @rule()
    def compact(self) -> None:
        for number in self.opened.log.files_to_compact():
            for queue_id, queue in self.queues.items():
                moved = [one for one in queue.values() if one.file_no == number]
                self.opened.log.relocate(queue_id, moved)

    # -- groups ----------------------------------------------------------------------------

    @rule(sync=st.booleans())
    def seal(self, sync: bool) -> None:
        group = self.opened.log.seal(sync)
        if group is not None:
            self.sealed.append((group, self.snapshot()))

    @precondition(lambda self: self.sealed)
    @rule()
    def commit(self) -> None:
        group, snapshot = self.sealed.pop(0)
        self.opened.finish(group)
        self.snapshots.append(snapshot)
        if group.sync:
            self.snapshots = [snapshot]
            assert self.opened.log.durable_position == group.end_position

    @rule(sync=st.booleans())
    def seal_and_commit_all(self, sync: bool) -> None:
        self.seal(sync)
        while self.sealed:
            self.commit()

    # -- stops -----------------------------------------------------------------------------

    @rule(
        how=st.sampled_from(["kill", "power_cut", "while_committing", "while_recovering"]),
        seed=st.integers(0, 2**32 - 1),
    )
    def crash(self, how: str, seed: int) -> None:
        rng = random.Random(seed)
        if how == "while_committing":
            self.die_while_committing(rng)
        elif how == "while_recovering":
            self.files.power_cut(rng)
            self.die_while_recovering(rng)
        elif how == "power_cut":
            self.files.power_cut(rng)
        else:
            self.files.kill()
            self.snapshots = self.snapshots[-1:]
        self.reopen()

    def die_while_committing(self, rng: random.Random) -> None:
        self.seal(sync=True)
        self.files.fail(rng.choice(["write", "sync", "sync_dir", "remove", "open_append"]))
        while self.sealed:
            self.snapshots.append(self.sealed[0][1])
            try:
                self.opened.finish(self.sealed.pop(0)[0])
            except OSError:
                break
        self.files.kill()
        if rng.random() < 0.5:
            self.files.power_cut(rng)

    def die_while_recovering(self, rng: random.Random) -> None:
        verbs = ["read", "truncate", "rewrite", "sync_dir", "remove", "write", "sync"]
        for _ in range(2):
            self.files.fail(rng.choice(verbs), after=rng.randint(0, 2))
            try:
                OpenLog(self.files, set(self.queues), LIMIT_BYTES)
            except OSError:
                self.files.kill()
                if rng.random() < 0.7:
                    self.files.power_cut(rng)
            else:
                self.files.kill()
                return

    @rule(rng=st.randoms(), exact=st.booleans(), power=st.booleans(), twice=st.booleans())
    def stop_cleanly(self, rng: random.Random, exact: bool, power: bool, twice: bool) -> None:
        while self.sealed:
            self.commit()
        delivered = {
            queue_id: [seq_id for seq_id in queue if rng.random() < 0.4]
            for queue_id, queue in self.queues.items()
        }
        numbers = {queue_id: self.next_seq_ids[queue_id] for queue_id in self.queues}
        last = self.snapshot()
        self.opened.close_cleanly(delivered, numbers if exact else None)
        if power:
            self.files.power_cut(random.Random(rng.random()))
        if twice:  # die before the new file is there: the mark still counts
            self.files.fail("write")
            try:
                OpenLog(self.files, set(self.queues), LIMIT_BYTES)
            except OSError:
                self.files.power_cut(random.Random(rng.random()))
        self.snapshots = [last]
        self.reopen(clean=True)
        for queue_id, found in self.opened.recovered.items():
            marked = {one.seq_id for one in found.messages if one.flags & REDELIVERED}
            assert marked == set(delivered[queue_id])
            if exact:
                assert found.next_seq_id == numbers[queue_id]

    def reopen(self, clean: bool = False) -> None:
        self.sealed = []
        self.opened = OpenLog(self.files, set(self.queues), LIMIT_BYTES)
        assert self.opened.log.recovered_cleanly() == clean
        recovered = self.opened.recovered
        assert set(recovered) == set(self.queues)
        found = {
            queue_id: [content(one) for one in queue.messages]
            for queue_id, queue in recovered.items()
        }
        allowed = [
            snapshot
            for snapshot in self.snapshots
            if all(snapshot.messages.get(queue_id, []) == found[queue_id] for queue_id in found)
        ]
        assert allowed, f"{found} is none of {[one.messages for one in self.snapshots]}"
        for queue_id, queue in recovered.items():
            self.check_queue(queue_id, queue.next_seq_id, queue.messages, allowed, clean)
        self.snapshots = [self.snapshot()]

    def check_queue(
        self,
        queue_id: int,
        next_seq_id: int,
        found: list[Message],
        allowed: list[Snapshot],
        clean: bool,
    ) -> None:
        bound = min(snapshot.bounds.get(queue_id, 0) for snapshot in allowed)
        handed_out = self.next_seq_ids[queue_id]
        if clean:
            assert next_seq_id >= handed_out
        else:
            assert next_seq_id > bound
            assert next_seq_id % STEP == 0
            assert next_seq_id >= min(handed_out, (bound // STEP + 1) * STEP)
            assert all(one.flags & REDELIVERED for one in found)
        for one in found:
            assert one.flags & LOGGED
            assert one.flags & PERSISTENT
            assert one.file_no > 0
        self.queues[queue_id] = {one.seq_id: one for one in found}
        # Ids beyond the bound may come again only if their reservation was lost with them.
        self.next_seq_ids[queue_id] = self.reserved[queue_id] = self.bounds[queue_id] = next_seq_id

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "opened"):
            self.opened.log.check()


MessageLogMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=60, deadline=None
)
TestMessageLog = MessageLogMachine.TestCase
