"""The promise of every backing, as one class of tests to inherit.

A backing gets this judge by subclassing ``BackingMachine`` and saying how it is made.  The
engine below it is the real one, on a simulated disk; its commits, slices of work and disk jobs
are rules like any others, so every interleaving is tried, and so are clean stops, kills and power
cuts.  A clean stop must leave exactly what was there, a crash what the model allows.

Two queues live on the engine.  Most verbs go to one of them; what is fanned out to both shares
its content in the message store, and ends in either queue when it likes.

``happened`` counts, over all machines of a process, what the rules have reached.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from typing import Any, ClassVar

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.backing.interface import BackingQueue
from penstock.backing.peeking import Measured
from penstock.broker.topology.routes import share_contents
from penstock.core.message import Message
from penstock.storage.common.seq_ranges import ranges_of
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.backing.judged_queue import EMBED_BELOW_BYTES, EVERYTHING, Judged
from tests.backing.mortal_files import Died, MortalFileSystem

SEGMENT_ENTRIES = 64
JOURNAL_FILE_BYTES = 4000
ROUNDS_MAX = 20
"""Loads until a head is there: one for each stretch of delta with nothing but delayed messages."""

QUEUES = st.sampled_from([0, 0, 1])
KINDS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0, 5, 80, 300]), st.sampled_from([0, 0, 3, 40])),
    min_size=1,
    max_size=30,
)
"""Of each message: is it persistent, how large, and how long it lives (0 = for ever)."""
SEEDS = st.integers(0, 2**32 - 1)


CLEAN_STOP, KILL, POWER_CUT, DYING_START = "clean stop", "kill", "power cut", "dying start"
ENDINGS = [
    (CLEAN_STOP,),
    (KILL,),
    (POWER_CUT,),
    (CLEAN_STOP, POWER_CUT),
    (KILL, POWER_CUT),
    (DYING_START, POWER_CUT),
    (DYING_START, KILL),
]


class BackingMachine(RuleBasedStateMachine):
    """Subclasses set ``durable`` (of each queue) and ``lazy``, and make the queues."""

    durable: ClassVar[tuple[bool, bool]] = (True, True)
    lazy: ClassVar[bool] = False
    happened: ClassVar[Counter[str]] = Counter()

    def make(self, opened: OpenEngine, queue_id: int, *, durable: bool) -> Any:
        """A new queue with no messages."""
        raise NotImplementedError

    @initialize(
        paging=st.sampled_from([2000, 20_000, 1 << 40]), store_file=st.sampled_from([500, 3000])
    )
    def open(self, paging: int, store_file: int) -> None:
        self.raised_before = sys.exc_info()[1]
        self.now_ms = 1_000_000
        self.published = 0
        self.paging = paging
        # Twice as much garbage is nothing to rewrite segments for.
        self.store_file_bytes = store_file
        self.files = MortalFileSystem()
        self.queues = [Judged(7 + i, durable=durable) for i, durable in enumerate(self.durable)]
        self.reopen()
        for queue in self.queues:
            assert isinstance(queue.backing, BackingQueue)
            queue.begin_empty()

    def reopen(self) -> None:
        self.opened = OpenEngine(
            self.files,
            {queue.queue_id: SEGMENT_ENTRIES for queue in self.queues if queue.durable},
            limits(embed=EMBED_BELOW_BYTES, paging=self.paging, journal=9000, entries=40),
            journal_file_bytes=JOURNAL_FILE_BYTES,
            store_file_bytes=self.store_file_bytes,
            # All others that ever were: the definitions record deletions before the journal does.
            deleted=ranges_of(list(range(7, max(queue.queue_id for queue in self.queues)))),
        )
        for queue in self.queues:
            found = self.opened.queues.get(queue.queue_id)
            queue.backing = found if found is not None else self.make_new(queue)
            queue.backing.set_mode(self.lazy)

    def make_new(self, queue: Judged) -> Any:
        return self.make(self.opened, queue.queue_id, durable=queue.durable)

    def note(self, what: str, count: int = 1) -> None:
        if count > 0:
            self.happened[what] += count
            event(what)

    # -- in and out ------------------------------------------------------------------------

    @rule(at=QUEUES, kinds=KINDS)
    def publish(self, at: int, kinds: list[tuple[bool, int, int]]) -> None:
        self.queues[at].publish(self.batch(kinds), self.now_ms)

    @rule(at=QUEUES, count=st.integers(40, 150), size=st.sampled_from([5, 80, 300]))
    def publish_many(self, at: int, count: int, size: int) -> None:
        """Enough for more than one segment."""
        self.queues[at].publish(self.batch([(True, size, 0)] * count), self.now_ms)

    @rule(first=st.integers(0, 1), kinds=KINDS)
    def fan_out(self, first: int, kinds: list[tuple[bool, int, int]]) -> None:
        """To both, as the broker does it: a large content is written once."""
        batch = self.batch(kinds)
        copies = [one.copy_for_queue() for one in batch]
        bodies = self.bodies()
        self.queues[first].publish(batch, self.now_ms)
        share_contents(batch, copies)
        self.queues[1 - first].publish(copies, self.now_ms)
        large = sum(
            kept and len(one.content) >= EMBED_BELOW_BYTES
            for one, (kept, _, _) in zip(batch, kinds, strict=True)
        )
        assert self.bodies() == bodies + (large if any(self.durable) else 0)
        self.note("fanned out, one body", large if all(self.durable) else 0)

    def batch(self, kinds: list[tuple[bool, int, int]]) -> list[Message]:
        """Each content is another."""
        batch = []
        for persistent, size, ttl_ms in kinds:
            self.published += 1
            content = b"%d:" % self.published + b"x" * size
            expires_at_ms = self.now_ms + ttl_ms if ttl_ms else 0
            batch.append(message(content, persistent=persistent, expires_at_ms=expires_at_ms))
        return batch

    def bodies(self) -> int:
        return int(self.opened.engine.store.statistics()["messages"])

    @rule(
        at=QUEUES,
        max_messages=st.integers(1, 20),
        max_bytes=st.sampled_from([0, 1, 130, 300, 10**6]),
        given_back=st.integers(0, 20),
        acked_first=st.booleans(),
    )
    def fetch(
        self, at: int, max_messages: int, max_bytes: int, given_back: int, acked_first: bool
    ) -> None:
        """Take, perhaps settle some at once, and give back those nobody wanted."""
        queue = self.queues[at]
        fetched = queue.backing.fetch(max_messages, max_bytes)
        for _ in range(ROUNDS_MAX):
            # The head is on its way, position first: the engine must say when it is there.
            if not fetched and queue.model.ready:
                self.opened.run_jobs()
                assert queue.queue_id in self.opened.engine.board.take_arrived()
                fetched = queue.backing.fetch(max_messages, max_bytes)
        queue.fetched(fetched, max_messages, max_bytes)
        kept = max(0, len(fetched) - given_back)
        if acked_first and kept:
            queue.ack([int(fetched[0].seq_id)])
        if kept < len(fetched):
            seq_ids = [int(one.seq_id) for one in fetched[kept:]]
            queue.backing.unfetch(queue.taken(seq_ids))
            queue.model.unfetch(seq_ids)

    @rule(at=QUEUES, passed_ms=st.integers(0, 50), max_messages=st.integers(1, 20))
    def fetch_expired(self, at: int, passed_ms: int, max_messages: int) -> None:
        """Only what is over its time; at least the first, if it is at hand."""
        self.now_ms += passed_ms
        queue = self.queues[at]
        expired = queue.model.count_expired(self.now_ms)
        queue.backing.await_head()
        found = queue.backing.fetch_expired(self.now_ms, max_messages)
        assert min(1, expired) <= len(found) <= min(expired, max_messages)
        queue.fetched(found, len(found), 10**9)
        self.note("fetched expired", len(found))

    @precondition(lambda self: any(queue.tokens for queue in self.queues))
    @rule(data=st.data())
    def whole(self, data: st.DataObject) -> None:
        """The content of what is out, though memory may have let it go."""
        queue, seq_ids = self.some_tokens(data)
        for seq_id in seq_ids:
            self.note("read while out", int(queue.tokens[seq_id].content == b""))
            copy = queue.backing.whole(queue.tokens[seq_id])
            assert queue.model.pending[seq_id].agrees_with(copy)

    @precondition(lambda self: self.anything())
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        queue, seq_ids = self.some_tokens(data)
        queue.ack(seq_ids)

    @precondition(lambda self: self.anything())
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        queue, seq_ids = self.some_tokens(data)
        queue.requeue(seq_ids)

    @precondition(lambda self: self.anything())
    @rule(data=st.data())
    def note_attempts(self, data: st.DataObject) -> None:
        queue, seq_ids = self.some_tokens(data)
        queue.note_attempts(seq_ids)
        self.note("counted", len(seq_ids))

    @precondition(lambda self: self.anything())
    @rule(data=st.data())
    def requeue_to_tail(self, data: st.DataObject) -> None:
        queue, seq_ids = self.some_tokens(data)
        messages = queue.taken(seq_ids)
        queue.backing.rare().moves.requeue_to_tail(messages, self.now_ms)
        queue.model.requeue_to_tail(seq_ids, self.now_ms)
        self.note("moved to the tail", len(messages))

    @precondition(lambda self: self.anything())
    @rule(data=st.data(), wait_ms=st.sampled_from([0, 1, 20, 500]))
    def delay(self, data: st.DataObject, wait_ms: int) -> None:
        queue, seq_ids = self.some_tokens(data)
        queue.backing.delay(queue.taken(seq_ids), self.now_ms + wait_ms)
        queue.model.delay(seq_ids, self.now_ms + wait_ms)
        self.note("delayed", len(seq_ids))

    @precondition(lambda self: any(queue.model.delayed for queue in self.queues))
    @rule(
        passed_ms=st.sampled_from([0, 1, 20, 500, 500]),
        at_most=st.sampled_from([1, 4, 1000, 1000]),
    )
    def release_due(self, passed_ms: int, at_most: int) -> None:
        self.let_out(passed_ms, at_most)

    def let_out(self, passed_ms: int, at_most: int) -> None:
        self.now_ms += passed_ms
        for queue in self.queues:
            in_delta = queue.count_due_in_delta(self.now_ms)
            behind = queue.count_due_behind_delta(self.now_ms)
            left = len(queue.model.delayed)
            self.note("released", queue.release(self.now_ms, at_most))
            if at_most > left:
                self.note("released into delta", in_delta)
                self.note("released behind delta", behind)

    @rule(at=QUEUES, kinds=KINDS, wait_ms=st.sampled_from([1, 20, 500]), waited=st.booleans())
    def publish_delayed(
        self, at: int, kinds: list[tuple[bool, int, int]], wait_ms: int, waited: bool
    ) -> None:
        batch = self.batch(kinds)
        self.queues[at].publish_delayed(batch, self.now_ms + wait_ms, self.now_ms)
        self.note("published delayed", len(batch))
        if waited:  # before anything else happens: what rests does so in front of them
            self.let_out(wait_ms, 1000)

    @precondition(lambda self: any(queue.model.delayed for queue in self.queues))
    @rule(data=st.data(), count=st.integers(1, 5))
    def cancel_delayed(self, data: st.DataObject, count: int) -> None:
        """One after the other, and some that are not delayed, or not there."""
        queue = data.draw(st.sampled_from([one for one in self.queues if one.model.delayed]))
        seq_ids = st.sampled_from(sorted(queue.model.delayed)) | self.seq_ids(queue, 0)
        for seq_id in data.draw(st.lists(seq_ids, min_size=1, max_size=count)):
            self.note("cancelled", int(queue.cancel_delayed(seq_id)))

    @precondition(lambda self: any(queue.model.delayed for queue in self.queues))
    @rule(at=QUEUES)
    def drop_delayed(self, at: int) -> None:
        self.note("dropped while delayed", self.queues[at].drop_delayed())

    @precondition(lambda self: any(queue.model.delayed for queue in self.queues))
    @rule(
        at=QUEUES,
        max_messages=st.integers(1, 30),
        max_bytes=st.sampled_from([1, 500, 10**6]),
        stay=st.sampled_from([0, 0, 2]),
    )
    def take_delayed(self, at: int, max_messages: int, max_bytes: int, stay: int) -> None:
        taken = self.queues[at].take_delayed(max_messages, max_bytes, stay)
        self.note("taken while delayed", taken)

    def anything(self) -> bool:
        return any(queue.tokens or queue.model.ready for queue in self.queues)

    def some_tokens(self, data: st.DataObject) -> tuple[Judged, list[int]]:
        """Any of those that are out of one queue, in any order; some are fetched if none are."""
        there = [queue for queue in self.queues if queue.tokens or queue.model.ready]
        queue = data.draw(st.sampled_from(there), "queue")
        if not queue.tokens:
            queue.backing.await_head()
            queue.fetched(queue.backing.fetch(20, 10**6), 20, 10**6)
        out = sorted(queue.tokens)
        some = st.lists(st.sampled_from(out), min_size=1, unique=True)
        # All of them: then nothing may be left in a segment.
        return queue, data.draw(st.sampled_from([out, out[::-1]]) | some, "seq_ids")

    # -- whole stretches -------------------------------------------------------------------

    @rule(at=QUEUES, every=st.integers(2, 30), again=st.booleans())
    def consume(self, at: int, every: int, again: bool) -> None:
        """All but each so-manieth message: what is left of the segments is mostly garbage."""
        queue = self.queues[at]
        taken = queue.take_all()
        left = set(taken[::every])
        queue.ack([seq_id for seq_id in taken if seq_id not in left])
        if again:
            queue.requeue(sorted(left))

    @rule(at=QUEUES, passed_ms=st.integers(0, 30))
    def expire(self, at: int, passed_ms: int) -> None:
        """Only what is at hand can die now; the rest when it has arrived."""
        self.now_ms += passed_ms
        backing = self.queues[at].backing
        wanted = self.queues[at].model.expire(self.now_ms)
        found = 0
        while True:
            found += backing.expire(self.now_ms, 1 << 40)
            if found == wanted or backing.records.fault:
                break
            before = len(self.opened.engine.board.reads) + len(self.opened.engine.board.writes)
            backing.await_head()
            assert found < wanted, "expired too much"
            assert before or backing.next_expiry_ms()
        assert found == wanted

    @rule(at=QUEUES, passed_ms=st.integers(0, 40), most=st.integers(1, 60))
    def sweep(self, at: int, passed_ms: int, most: int) -> None:
        """Whatever is over its time behind what is not comes out, wherever it rests."""
        self.now_ms += passed_ms
        queue = self.queues[at]
        for _ in range(5000):
            due_ms = queue.backing.next_sweep_ms()
            if due_ms == 0 or due_ms > self.now_ms + 25:
                break
            self.now_ms = max(self.now_ms, due_ms)
            in_delta = queue.backing.tiers.delta_count
            found = queue.backing.sweep_expired(self.now_ms, most)
            self.note("swept from delta", in_delta - queue.backing.tiers.delta_count)
            self.note("swept", len(found))
            queue.swept(found, self.now_ms)
        else:
            raise AssertionError("a sweep never ends")
        assert queue.model.late_behind(self.now_ms) == []

    @precondition(lambda self: any(queue.dying for queue in self.queues))
    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from([one for one in self.queues if one.dying]), "queue")
        some = st.lists(st.sampled_from(sorted(queue.dying)), min_size=1, unique=True)
        queue.bury(data.draw(some | st.just(sorted(queue.dying)), "seq_ids"))

    @rule(at=QUEUES, with_queue=st.sampled_from([False, False, True]))
    def purge(self, at: int, with_queue: bool) -> None:
        """Or the queue goes, with all that is in it, and a new one takes its place."""
        queue = self.queues[at]
        if not with_queue:
            assert queue.backing.purge() == queue.model.purge()
            return
        self.note("deleted with messages", len(queue.model.everything()))
        queue.backing.delete()
        self.opened.queues.pop(queue.queue_id, None)
        queue.queue_id = max(one.queue_id for one in self.queues) + 1
        queue.backing = self.make_new(queue)
        queue.backing.set_mode(self.lazy)
        if queue.durable:
            self.opened.queues[queue.queue_id] = queue.backing
        queue.begin_empty()

    @rule(at=QUEUES, data=st.data())
    def drop_below(self, at: int, data: st.DataObject) -> None:
        """At once, or some of it, step by step."""
        queue, backing = self.queues[at], self.queues[at].backing
        seq_id = data.draw(self.seq_ids(queue, 0))
        most = data.draw(st.sampled_from([0, 1, 20]))
        if not most:
            assert backing.drop_below(seq_id) == queue.model.drop_below(seq_id)
            return
        count, floor = 0, -1
        for _ in range(data.draw(st.sampled_from([1, 3, 1000]))):
            if not floor < backing.tiers.floor_seq_id() < seq_id:
                break
            floor = backing.tiers.floor_seq_id()
            count += backing.drop_step(seq_id, most)
        assert count == queue.model.drop_below(min(seq_id, backing.tiers.floor_seq_id()))

    @rule(at=QUEUES, data=st.data())
    def drop_some(self, at: int, data: st.DataObject) -> None:
        queue = self.queues[at]
        some = st.lists(self.seq_ids(queue, 0), unique=True)
        known = [entry.seq_id for entry in queue.model.everything()]
        if known:
            some |= st.lists(st.sampled_from(known), unique=True) | st.just(known)
        seq_ids = sorted(data.draw(some, "seq_ids"))
        assert queue.backing.drop_some(seq_ids) == queue.model.drop_some(seq_ids)

    @rule(at=QUEUES, data=st.data())
    def take_chosen(self, at: int, data: st.DataObject) -> None:
        queue = self.queues[at]
        known = [entry.seq_id for entry in queue.model.everything()]
        if not known:
            return
        seq_ids = sorted(data.draw(st.lists(st.sampled_from(known), unique=True), "seq_ids"))
        in_delta = queue.backing.tiers.delta_count
        found = queue.backing.take_chosen(0, seq_ids)
        self.note("taken from delta", in_delta - queue.backing.tiers.delta_count)
        queue.took_chosen(seq_ids, found)

    def seq_ids(self, queue: Judged, least: int) -> st.SearchStrategy[int]:
        """From below the first that there is up to behind the last."""
        first = min((entry.seq_id for entry in queue.model.everything()), default=0)
        return st.integers(max(least, first - 3), max(least, queue.model.next_seq_id + 3))

    @rule(
        at=QUEUES,
        data=st.data(),
        max_messages=st.integers(1, 30),
        max_bytes=st.sampled_from([0, 200, 999]),
    )
    def read_range(self, at: int, data: st.DataObject, max_messages: int, max_bytes: int) -> None:
        queue = self.queues[at]
        start = data.draw(self.seq_ids(queue, 0))
        end = data.draw(self.seq_ids(queue, start))
        found = queue.backing.reads.read_range(start, end, max_messages, max_bytes)
        wanted = queue.model.between(start, end)
        assert len(found) <= min(max_messages, len(wanted))
        assert found or not wanted, "at least one, however large"
        for entry, one in zip(wanted, found, strict=False):
            assert entry.agrees_with(one)
        peeked = queue.backing.reads.peek_range(start, end, max_messages, max_bytes)
        assert [one.seq_id for one in peeked] == [one.seq_id for one in found]
        size = sum(len(one.content) for one in found)
        some = queue.backing.reads.read_some(start, end, max_messages, max_bytes)
        assert [one.seq_id for one in some] == [one.seq_id for one in found[: len(some)]]
        assert some or not found
        self.judge_measure(
            queue.backing.reads.measure_range(start, end, max_messages, max_bytes), found
        )
        assert size <= max_bytes or len(found) == 1
        if len(found) < min(len(wanted), max_messages):
            assert size + len(wanted[len(found)].content) > max_bytes, "stopped for no reason"

    def judge_measure(self, measured: Measured, found: list[Message]) -> None:
        if measured.more:  # it stopped early
            found = [one for one in found if one.seq_id < measured.upto]
        assert measured.count == len(found)
        assert measured.size == sum(len(one.content) for one in found)
        if found and not measured.more:
            assert measured.upto == found[-1].seq_id + 1

    # -- where it rests --------------------------------------------------------------------

    @rule(at=QUEUES, lazy=st.booleans())
    def set_mode(self, at: int, lazy: bool) -> None:
        self.queues[at].backing.set_mode(lazy)

    @rule(paging=st.sampled_from([0, 2000, 20_000, 1 << 40]))
    def move_the_target(self, paging: int) -> None:
        self.opened.engine.ram.paging_bytes = max(paging, 8)

    @rule(sync=st.booleans())
    def commit(self, sync: bool) -> None:
        self.opened.commit(sync=sync)
        if sync:
            self.committed()

    def committed(self) -> None:
        for queue in self.queues:
            queue.model.committed()

    @rule(idle=st.booleans(), passed_ms=st.sampled_from([0, 1, 300, 1100]))
    def work(self, idle: bool, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.opened.work(self.now_ms, idle=idle)

    @rule(writes=st.integers(0, 4), reads=st.integers(0, 4))
    def run_jobs(self, writes: int, reads: int) -> None:
        self.opened.run_jobs(writes=writes, reads=reads)

    @rule(slices=st.integers(1, 4))
    def press(self, slices: int) -> None:
        """Memory is short and the disk fast, but nothing is committed meanwhile."""
        self.opened.engine.ram.paging_bytes = 8
        for _ in range(slices):
            self.opened.work(self.now_ms)
            self.opened.run_jobs()

    @rule(passed_ms=st.sampled_from([0, 300]), paging=st.sampled_from([8, 2000, 1 << 40]))
    def come_to_rest(self, passed_ms: int, paging: int) -> None:
        """Until there is nothing to do; then there is no reference too many."""
        self.now_ms += passed_ms
        self.opened.engine.ram.paging_bytes = paging
        self.opened.settle(self.now_ms)
        self.committed()
        assert self.stored_references() == sum(queue.references() for queue in self.queues)

    def stored_references(self) -> int:
        return int(self.opened.engine.store.statistics()["references"])

    # -- ends ------------------------------------------------------------------------------

    @rule(endings=st.sampled_from(ENDINGS), seed=SEEDS, dies_after=st.integers(0, 60))
    def end(self, endings: tuple[str, ...], seed: int, dies_after: int) -> None:
        """The process ends, perhaps again as soon as it is there, or before it is."""
        rng = random.Random(seed)
        for ending in endings:
            self.note(ending)
            if ending == DYING_START:
                self.start_and_die(dies_after)
                continue
            clean = ending == CLEAN_STOP
            if clean:
                self.opened.close_cleanly()
            self.count_work()
            self.begin_again(rng, power_cut=ending == POWER_CUT, clean=clean)

    def begin_again(self, rng: random.Random, *, power_cut: bool, clean: bool) -> None:
        if power_cut:
            self.files.power_cut(rng)
        else:
            self.files.kill()
        self.reopen()
        assert self.opened.opening.clean or not clean
        for queue in self.queues:
            if clean:
                queue.stopped_cleanly()
            else:
                queue.crashed()
        self.found_again()

    def start_and_die(self, after: int) -> None:
        """The machine is to lose its power next, with all that this start believed to be there."""
        self.count_work()
        self.files.kill()
        self.files.calls_left = after
        with contextlib.suppress(Died):
            self.reopen()
            self.note("did not die")
        self.files.calls_left = -1

    def found_again(self) -> None:
        for queue in self.queues:
            self.note("found after a start", len(queue.model.ready))
            self.note("found delayed after a start", len(queue.model.delayed))
        assert self.stored_references() == sum(queue.references() for queue in self.queues)

    def count_work(self) -> None:
        """What the engine has done in this life."""
        engine = self.opened.engine
        self.note("segments rewritten", int(engine.account.rewritten))
        self.note("store files compacted", engine.store.statistics()["compactions"])
        self.note("journal files retired", engine.journal.statistics()["files_retired"])

    def teardown(self) -> None:
        """Whatever happened: all of it comes out again, in order, once."""
        # After a failed step this would only hide what has failed.
        if not hasattr(self, "opened") or sys.exc_info()[1] is not self.raised_before:
            return
        self.opened.settle(self.now_ms)
        for queue in self.queues:
            queue.requeue(list(queue.tokens))
            queue.bury(list(queue.dying))
            queue.release(EVERYTHING)
            assert queue.model.delayed == {}, "put off, though nothing was under way"
            queue.ack(queue.take_all())
            queue.backing.check()
        self.opened.settle(self.now_ms)
        assert self.stored_references() == 0
        for queue in self.queues:
            queue.backing.delete()
        self.opened.settle(self.now_ms)
        # The last job may have freed contents; what is cached is looked up by the next slice.
        self.opened.work(self.now_ms)
        assert self.opened.engine.ram.used_bytes() == 0
        assert self.stored_references() == 0
        assert self.opened.engine.transient_store.statistics()["references"] == 0
        self.count_work()
        self.note("drained")

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "opened"):
            return
        for queue in self.queues:
            queue.check()
        engine = self.opened.engine
        engine.check()
        engine.store.check()
        engine.transient_store.check()
        assert self.stored_references() >= sum(queue.references() for queue in self.queues)
