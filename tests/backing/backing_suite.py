"""The promise of every backing, as one class of tests to inherit.

A backing gets this judge by subclassing ``BackingMachine`` and saying how it is opened.  The
engine below it is the real one, on a simulated disk; its commits, slices of work and disk jobs
are rules like any others, so every interleaving is tried.  What a crash may leave is judged by
tests/simulation; here a clean stop is a rule, and must leave exactly what was there.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.backing.interface import BackingQueue
from penstock.core.message import PENDING, SETTLED, Message
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem
from tests.models.model_queue import ModelQueue

QUEUE_ID = 7
SEGMENT_ENTRIES = 64
EMBED_BELOW_BYTES = 100
JOURNAL_FILE_BYTES = 4000


class BackingMachine(RuleBasedStateMachine):
    """Subclasses set ``durable`` and ``lazy``, and may make another kind of queue."""

    durable: ClassVar[bool] = True
    lazy: ClassVar[bool] = False

    def make(self, opened: OpenEngine) -> Any:
        raise NotImplementedError

    @initialize(paging=st.sampled_from([2000, 20_000, 1 << 40]))
    def open(self, paging: int) -> None:
        self.model = ModelQueue()
        self.tokens: dict[int, Message] = {}
        self.now_ms = 1_000_000
        self.paging = paging
        self.files = SimFileSystem()
        self.reopen()
        assert isinstance(self.backing, BackingQueue)
        self.model.next_seq_id = self.backing.next_seq_id()

    def reopen(self) -> None:
        self.opened = OpenEngine(
            self.files,
            {QUEUE_ID: SEGMENT_ENTRIES} if self.durable else {},
            limits(embed=EMBED_BELOW_BYTES, paging=self.paging, journal=9000, entries=40),
            journal_file_bytes=JOURNAL_FILE_BYTES,
            store_file_bytes=3000,
        )
        self.backing: Any = self.make(self.opened)
        self.backing.set_mode(self.lazy)
        self.tokens = {}

    # -- in and out ------------------------------------------------------------------------

    @rule(
        kinds=st.lists(
            st.tuples(
                st.booleans(), st.sampled_from([0, 5, 90, 300]), st.sampled_from([0, 0, 3, 40])
            ),
            min_size=1,
            max_size=30,
        )
    )
    def publish(self, kinds: list[tuple[bool, int, int]]) -> None:
        batch = [
            message(
                b"%d:" % (self.model.next_seq_id + i) + b"x" * size,
                persistent=persistent,
                expires_at_ms=self.now_ms + ttl_ms if ttl_ms else 0,
            )
            for i, (persistent, size, ttl_ms) in enumerate(kinds)
        ]
        self.backing.publish(batch, self.now_ms)
        self.model.publish(batch)
        assert all(one.enqueued_at_ms == self.now_ms for one in batch)

    @rule(
        max_messages=st.integers(1, 20),
        max_bytes=st.sampled_from([0, 1, 130, 300, 10**6]),
        given_back=st.integers(0, 20),
        acked_first=st.booleans(),
    )
    def fetch(self, max_messages: int, max_bytes: int, given_back: int, acked_first: bool) -> None:
        """Take, perhaps settle some at once, and give back those nobody wanted."""
        fetched = self.backing.fetch(max_messages, max_bytes)
        for _ in range(2):
            # The head is on its way, position first: the engine must say when it is there.
            if not fetched and self.model.ready:
                self.opened.run_jobs()
                assert QUEUE_ID in self.opened.engine.board.take_arrived()
                fetched = self.backing.fetch(max_messages, max_bytes)
        self.model.fetched(fetched, max_messages, max_bytes)
        assert all(one.flags & PENDING for one in fetched)
        kept = max(0, len(fetched) - given_back)
        for one in fetched[:kept]:
            self.tokens[int(one.seq_id)] = one
        if acked_first and kept:
            self.settle([int(fetched[0].seq_id)])
        if kept < len(fetched):
            self.backing.unfetch(fetched[kept:])
            self.model.unfetch([int(one.seq_id) for one in fetched[kept:]])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        self.settle(self.some_tokens(data))

    def settle(self, seq_ids: list[int]) -> None:
        messages = [self.tokens.pop(seq_id) for seq_id in seq_ids]
        self.backing.ack(messages)
        self.model.ack(seq_ids)
        assert all(one.flags & SETTLED for one in messages)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        seq_ids = self.some_tokens(data)
        self.backing.requeue([self.tokens.pop(seq_id) for seq_id in seq_ids])
        self.model.requeue(seq_ids)

    def some_tokens(self, data: st.DataObject) -> list[int]:
        """Any of those that are out, in any order."""
        return data.draw(
            st.lists(st.sampled_from(sorted(self.tokens)), min_size=1, unique=True), "seq_ids"
        )

    # -- whole stretches -------------------------------------------------------------------

    @rule(passed_ms=st.integers(0, 30))
    def expire(self, passed_ms: int) -> None:
        """Only what is at hand can die now; the rest when it has arrived."""
        self.now_ms += passed_ms
        wanted = self.model.expire(self.now_ms)
        found = 0
        while True:
            found += self.backing.expire(self.now_ms)
            if found == wanted or self.backing.fault:
                break
            before = len(self.opened.engine.board.reads) + len(self.opened.engine.board.writes)
            self.backing.await_head()
            assert found < wanted, "expired too much"
            assert before or self.backing.next_expiry_ms()
        assert found == wanted

    @rule()
    def purge(self) -> None:
        assert self.backing.purge() == self.model.purge()

    @rule(data=st.data())
    def drop_below(self, data: st.DataObject) -> None:
        seq_id = data.draw(st.integers(0, self.model.next_seq_id + 3))
        assert self.backing.drop_below(seq_id) == self.model.drop_below(seq_id)

    @rule(data=st.data(), max_messages=st.integers(1, 30), max_bytes=st.sampled_from([0, 200, 999]))
    def read_range(self, data: st.DataObject, max_messages: int, max_bytes: int) -> None:
        start = data.draw(st.integers(0, self.model.next_seq_id + 1))
        end = data.draw(st.integers(start, self.model.next_seq_id + 1))
        found = self.backing.read_range(start, end, max_messages, max_bytes)
        wanted = self.model.between(start, end)
        assert len(found) <= min(max_messages, len(wanted))
        assert found or not wanted, "at least one, however large"
        for entry, one in zip(wanted, found, strict=False):
            assert entry.agrees_with(one)
        size = sum(len(one.content) for one in found)
        assert size <= max_bytes or len(found) == 1
        if len(found) < min(len(wanted), max_messages):
            assert size + len(wanted[len(found)].content) > max_bytes, "stopped for no reason"

    # -- where it rests --------------------------------------------------------------------

    @rule(lazy=st.booleans())
    def set_mode(self, lazy: bool) -> None:
        self.backing.set_mode(lazy)

    @rule(paging=st.sampled_from([0, 2000, 20_000, 1 << 40]))
    def move_the_target(self, paging: int) -> None:
        self.opened.engine.ram.paging_bytes = max(paging, 8)

    @rule(duration_s=st.sampled_from([0.0, 0.1, 5.0, float("inf")]))
    def set_duration_target(self, duration_s: float) -> None:
        self.backing.set_duration_target(duration_s)

    @rule(sync=st.booleans())
    def commit(self, sync: bool) -> None:
        self.opened.commit(sync=sync)

    @rule(idle=st.booleans(), passed_ms=st.sampled_from([0, 1, 300, 1100]))
    def work(self, idle: bool, passed_ms: int) -> None:
        self.opened.work(self.now_ms + passed_ms, idle=idle)

    @rule(writes=st.integers(0, 4), reads=st.integers(0, 4))
    def run_jobs(self, writes: int, reads: int) -> None:
        self.opened.run_jobs(writes=writes, reads=reads)

    @precondition(lambda self: self.durable)
    @rule()
    def stop_cleanly(self) -> None:
        self.opened.close_cleanly()
        self.model.stopped_cleanly(self.model.next_seq_id)
        self.reopen()
        assert self.opened.opening.clean

    def teardown(self) -> None:
        """Whatever happened: all of it comes out again, in order, once."""
        if not hasattr(self, "backing"):
            return
        self.backing.requeue(list(self.tokens.values()))
        self.model.requeue(list(self.tokens))
        while self.model.ready:
            self.backing.await_head()
            fetched = self.backing.fetch(1000, 10**9)
            self.model.fetched(fetched, 1000, 10**9)
            self.backing.ack(fetched)
        assert self.backing.fetch(1, 1) == []
        self.backing.check()
        self.backing.delete()
        self.opened.settle(self.now_ms)
        assert self.opened.engine.ram.used_bytes() == 0
        assert self.opened.engine.store.statistics()["references"] == 0
        assert self.opened.engine.transient_store.statistics()["references"] == 0

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "backing"):
            return
        model, backing = self.model, self.backing
        backing.check()
        self.opened.engine.check()
        assert backing.why_stopped() == ""
        assert backing.ready_count() == len(model.ready)
        assert backing.ready_bytes() == model.ready_bytes()
        assert backing.next_seq_id() == model.next_seq_id
        assert backing.floor_seq_id() <= model.floor_seq_id()
        assert backing.next_expiry_ms() in (0, model.next_expiry_ms())
        timed = any(entry.expires_at_ms for entry in (model.ready | model.pending).values())
        assert backing.may_expire() or not timed
        held = {seq_id: bool(token.flags & SETTLED) for seq_id, token in self.tokens.items()}
        assert held == dict.fromkeys(model.pending, False)
