"""Queues whose messages come to places that others say: as on a mirror, among all other verbs.

Numbers are left out, as many as lie between two terms at times, and some of them are used later;
what is at given places ends, is delayed or counted, wherever it rests; and what a synchronisation
asks (which places live, with what in them) is answered as the model would.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import ATTEMPTS_SHIFT, INDEXED, REDELIVERED, Message
from penstock.storage.engine.resting_queue import FLUSHED
from tests.backing.backing_suite import QUEUES, SEGMENT_ENTRIES, BackingMachine
from tests.backing.engine_tools import OpenEngine, message
from tests.backing.judged_queue import Judged
from tests.helpers.sim_files import SimFileSystem

pytestmark = pytest.mark.timeout(600 + settings().max_examples // 2)
TERM = 1 << 40
A_MOMENT_AGO_MS = 1


class PlacedQueue(BackingMachine):
    happened: ClassVar[Counter[str]] = Counter()

    def make(self, opened: OpenEngine, queue_id: int, *, durable: bool) -> Any:
        return VariableQueue(opened.engine, queue_id, durable, SEGMENT_ENTRIES)

    def free(self, queue: Judged) -> list[int]:
        """Numbers that were left out, and not used since."""
        return queue.model.left_out

    @rule(at=QUEUES, count=st.sampled_from([1, 5, 40, 300, 300]), term=st.integers(0, 9))
    def leave_out(self, at: int, count: int, term: int) -> None:
        queue = self.queues[at]
        first = queue.model.next_seq_id
        self.free(queue).extend(range(first, first + count))
        after = first + count if term else (first // TERM + 1) * TERM
        queue.backing.replica.begin_at(after)
        queue.model.next_seq_id = after
        self.commit(sync=True)  # until then a crash may forget it; on a mirror that is a new term
        self.note("a term", int(term == 0))

    @rule(at=QUEUES, data=st.data(), wait_ms=st.sampled_from([0, 0, 0, 20]))
    def publish_at(self, at: int, data: st.DataObject, wait_ms: int) -> None:
        queue = self.queues[at]
        free = self.free(queue)
        if not free:
            return
        end = data.draw(st.integers(1, len(free)))
        start = max(0, end - data.draw(st.sampled_from([1, 3, 30, 200])))
        every = data.draw(st.sampled_from([1, 1, 2]))
        seq_ids = free[start:end:every]
        del free[start:end:every]
        kinds = st.tuples(st.booleans(), st.sampled_from([5, 80, 300]), st.sampled_from([0, 0, 40]))
        kind = data.draw(kinds)
        batch = self.batch([kind] * len(seq_ids))
        for seq_id, one in zip(seq_ids, batch, strict=True):
            one.seq_id = seq_id
            one.enqueued_at_ms = self.now_ms
            one.flags |= REDELIVERED  # below a crash all are, and on a mirror too
        until_ms = self.now_ms + wait_ms if wait_ms else 0
        queue.backing.replica.publish_at(batch, until_ms)
        self.was_placed(queue, batch, until_ms)

    def was_placed(self, queue: Judged, batch: list[Message], until_ms: int) -> None:
        model = queue.model
        after = model.next_seq_id
        for one in batch:
            model.next_seq_id = int(one.seq_id)
            if until_ms:
                model.publish_delayed([one], until_ms, self.now_ms)
                continue
            model.publish([one], self.now_ms)
            if queue.backing.tiers.delayed.has(int(one.seq_id)):
                model.waits_a_moment(int(one.seq_id), A_MOMENT_AGO_MS)
                self.note("placed into delta")
        model.next_seq_id = max(after, model.next_seq_id)
        self.note("placed", len(batch))

    def ranges(self, queue: Judged, data: st.DataObject) -> list[tuple[int, int]]:
        """Around what is there."""
        known = sorted(entry.seq_id for entry in queue.model.everything())
        if not known:
            return []
        starts = st.lists(st.sampled_from(known), min_size=1, max_size=6, unique=True)
        sizes = data.draw(st.sampled_from([1, 1, 5, 100, 1000, TERM]))
        ranges: list[tuple[int, int]] = []
        for start in sorted(data.draw(starts)):
            if not ranges or start > ranges[-1][1]:
                ranges.append((start, start + sizes))
        return ranges

    @rule(at=QUEUES, data=st.data())
    def end_at(self, at: int, data: st.DataObject) -> None:
        queue = self.queues[at]
        ranges = self.ranges(queue, data)
        ended = queue.model.end_at(ranges)
        assert queue.backing.replica.end_at(ranges) == len(ended)
        self.note("ended at places", len(ended))

    @rule(at=QUEUES, data=st.data())
    def let_go_at(self, at: int, data: st.DataObject) -> None:
        queue = self.queues[at]
        ranges = [(start, end) for start, end in self.ranges(queue, data) if end - start < 10]
        queue.backing.let_go_at(ranges)
        self.note("let go", len(queue.model.end_at(ranges)))

    @rule(at=QUEUES, data=st.data(), wait_ms=st.sampled_from([1, 20, 500]))
    def delay_at(self, at: int, data: st.DataObject, wait_ms: int) -> None:
        queue = self.queues[at]
        ranges = [(start, end) for start, end in self.ranges(queue, data) if end - start < 10]
        queue.backing.replica.delay_at(ranges, self.now_ms + wait_ms)
        self.note("delayed at places", queue.model.delay_at(ranges, self.now_ms + wait_ms))

    @rule(at=QUEUES, data=st.data(), count=st.integers(1, 3))
    def count_at(self, at: int, data: st.DataObject, count: int) -> None:
        queue = self.queues[at]
        model = queue.model
        known = sorted({**model.ready, **model.delayed})
        if known:
            seq_ids = sorted(data.draw(st.lists(st.sampled_from(known), min_size=1, unique=True)))
            queue.backing.replica.count_at([(one, model.attempts(one) + count) for one in seq_ids])
            for seq_id in seq_ids:
                model.count_at(seq_id, model.attempts(seq_id) + count)

    @rule(at=QUEUES, data=st.data())
    def copied(self, at: int, data: st.DataObject) -> None:
        """What a synchronisation is told."""
        queue = self.queues[at]
        entries = {entry.seq_id: entry for entry in queue.model.everything()}
        known = sorted(entries)
        if not known:
            assert queue.backing.copies.last_place(1 << 62) == -1
            return
        start = data.draw(st.sampled_from(known)) - data.draw(st.integers(0, 2))
        end = start + data.draw(st.sampled_from([0, 1, 7, 100, 5000]))
        wanted = [one for one in known if start <= one < end]
        assert queue.backing.copies.places(start, end) == wanted
        below = [one for one in known if one < end]
        last = queue.backing.copies.last_place(end)
        assert last < max(end, 0)
        assert last >= below[-1] if below else last < SEGMENT_ENTRIES + end
        if not wanted:
            return
        some = queue.backing.copies.messages_at(wanted, 500)
        assert some
        assert [int(one.seq_id) for one in some] == wanted[-len(some) :]
        assert len(some) == 1 or sum(len(one.content) for one in some) <= 500
        found = queue.backing.copies.messages_at(wanted, 1 << 40)
        assert [int(one.seq_id) for one in found] == wanted
        for seq_id, attempts in queue.backing.copies.attempts_at(wanted):
            assert entries[seq_id].attempts == attempts
        for one in found:
            entry = entries[int(one.seq_id)]
            assert one.content == entry.content
            assert one.flags >> ATTEMPTS_SHIFT == entry.attempts
        until_ms = queue.model.until_ms | queue.model.taken_until_ms
        assert dict(queue.backing.copies.delays_at(wanted)) == {
            one: until_ms[one] for one in wanted if one in until_ms
        }
        self.note("copied", len(found))

    @rule(at=QUEUES)
    def begin_master(self, at: int) -> None:
        """Only after all came back, as on a mirror."""
        queue = self.queues[at]
        if not queue.tokens and not queue.dying:
            queue.backing.replica.begin_master()
            queue.model.begin_master()


class LazyPlacedQueue(PlacedQueue):
    lazy = True


class TransientPlacedQueue(PlacedQueue):
    durable = (False, True)


for machine in (PlacedQueue, LazyPlacedQueue, TransientPlacedQueue):
    machine.TestCase.settings = settings(
        max_examples=max(5, settings().max_examples // 5), stateful_step_count=60, deadline=None
    )
TestPlaced = PlacedQueue.TestCase
TestLazyPlaced = LazyPlacedQueue.TestCase
TestTransientPlaced = TransientPlacedQueue.TestCase


class CountedQueue(PlacedQueue):
    happened: ClassVar[Counter[str]] = Counter()


REACHED = (
    "a term",
    "placed",
    "placed into delta",
    "ended at places",
    "let go",
    "delayed at places",
    "copied",
    "journal files retired",
    "power cut",
    "drained",
)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_machine_gets_everywhere() -> None:
    missing = list(REACHED)
    for number in range(60):
        run_state_machine_as_test(
            seed(number)(CountedQueue),
            settings=settings(
                max_examples=8,
                stateful_step_count=60,
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


def test_what_was_too_young_for_one_file_is_written_for_the_next() -> None:
    """An older place with a younger record: a pass over all leaves it out, and comes back to it."""
    opened = OpenEngine(SimFileSystem(), {1: 16}, journal_file_bytes=4096)
    queue, journal = opened.queues[1], opened.engine.journal

    def placed(first: int) -> int:
        """So many that a file of the journal is full; in which they begin."""
        file_no = int(journal.current.number)
        seq_id = first
        while journal.current.number == file_no:
            one = message(b"x" * 100)
            one.seq_id = seq_id
            one.enqueued_at_ms = 1000
            queue.replica.publish_at([one], 0)
            opened.commit()
            seq_id += 1
        return file_no

    eldest = placed(1000)
    below = placed(100)
    placed(2000)
    young = [one for one in queue.tiers.q4.live() + queue.tiers.q3.live() if one.seq_id < 1000]
    assert young
    assert all(one.file_no >= below > eldest for one in young)
    queue.flush_file(eldest, 5)
    assert queue.flush_file(eldest, 4096) == FLUSHED
    while queue.flush_file(below, 5) != FLUSHED:
        queue.check()
    assert all(one.flags & INDEXED for one in young if one.file_no <= below)
    queue.check()
