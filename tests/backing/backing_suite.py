"""The promise of every backing, as one class of tests to inherit.

A backing gets this judge by subclassing ``BackingMachine`` and saying how it is opened; the
message log below it is the real one, on a disk that can be made to forget (sim_files.py).
Crash and reopen are rules like any others.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.backing.interface import BackingQueue
from penstock.core.message import LOGGED, PERSISTENT, SETTLED, Message
from penstock.storage.message_log import MessageLog, RecoveredQueue
from tests.helpers.sim_files import SimFileSystem
from tests.models.model_queue import ModelQueue
from tests.storage.log_tools import OpenLog

QUEUE_ID = 7
LIMIT_BYTES = 900
"""Files this small are left, compacted and dropped within a few steps."""
ADDRESS = b"\x00\x01q"


class BackingMachine(RuleBasedStateMachine):
    """Subclasses set ``durable`` and define ``make`` and ``recover``."""

    durable: ClassVar[bool] = True

    def make(self, log: MessageLog | None, queue_id: int) -> Any:
        raise NotImplementedError

    def recover(self, backing: Any, found: RecoveredQueue) -> None:
        """Give an empty backing what the log gave back."""
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.model = ModelQueue()
        self.tokens: dict[int, Message] = {}
        self.gone: list[Message] = []
        self.now_ms = 1_000_000
        self.files = SimFileSystem()
        self.opened: OpenLog | None = None
        if self.durable:
            self.opened = OpenLog(self.files, {QUEUE_ID}, LIMIT_BYTES)
        self.safe = self.model.snapshot()
        self.safe_seq_id = 0
        self.backing: Any = self.make(self.opened.log if self.opened else None, QUEUE_ID)
        assert isinstance(self.backing, BackingQueue)

    # -- in and out ------------------------------------------------------------------------

    @rule(
        kinds=st.lists(
            st.tuples(st.booleans(), st.sampled_from([0, 5, 120]), st.sampled_from([0, 0, 3, 40])),
            min_size=1,
            max_size=12,
        )
    )
    def publish(self, kinds: list[tuple[bool, int, int]]) -> None:
        batch = [
            Message(
                b"%d:" % (self.model.next_seq_id + i) + b"x" * size,
                ADDRESS,
                PERSISTENT if persistent else 0,
                self.now_ms + ttl_ms if ttl_ms else 0,
            )
            for i, (persistent, size, ttl_ms) in enumerate(kinds)
        ]
        self.backing.publish(batch, self.now_ms)
        self.model.publish(batch)
        for message in batch:
            assert message.enqueued_at_ms == self.now_ms
            logged = self.durable and bool(message.flags & PERSISTENT)
            assert bool(message.flags & LOGGED) == logged

    @rule(
        max_messages=st.integers(1, 20),
        max_bytes=st.sampled_from([0, 1, 130, 300, 10**6]),
        given_back=st.integers(0, 20),
        acked_first=st.booleans(),
    )
    def fetch(self, max_messages: int, max_bytes: int, given_back: int, acked_first: bool) -> None:
        """Take, perhaps settle some at once, and give back those nobody wanted."""
        fetched = self.backing.fetch(max_messages, max_bytes)
        self.model.fetched(fetched, max_messages, max_bytes)
        kept = max(0, len(fetched) - given_back)
        for message in fetched[:kept]:
            self.tokens[int(message.seq_id)] = message
        if acked_first and kept:
            self.settle([int(fetched[0].seq_id)])
        if kept < len(fetched):
            self.backing.unfetch(fetched[kept:])
            self.model.unfetch([int(message.seq_id) for message in fetched[kept:]])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        self.settle(self.some_tokens(data))

    def settle(self, seq_ids: list[int]) -> None:
        messages = [self.tokens.pop(seq_id) for seq_id in seq_ids]
        self.backing.ack(messages)
        self.model.ack(seq_ids)
        assert all(message.flags & SETTLED for message in messages)
        self.gone += messages

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
        self.now_ms += passed_ms
        assert self.backing.expire(self.now_ms) == self.model.expire(self.now_ms)

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
        for entry, message in zip(wanted, found, strict=False):
            assert entry.agrees_with(message)
        size = sum(len(message.content) for message in found)
        assert size <= max_bytes or len(found) == 1
        if len(found) < min(len(wanted), max_messages):
            assert size + len(wanted[len(found)].content) > max_bytes, "stopped for no reason"

    # -- the disk --------------------------------------------------------------------------

    @precondition(lambda self: self.opened)
    @rule()
    def commit(self) -> None:
        """What was written so far is on disk."""
        assert self.opened is not None
        self.opened.commit()
        self.safe = self.model.snapshot()
        self.safe_seq_id = self.model.next_seq_id

    @precondition(lambda self: self.opened)
    @rule()
    def compact(self) -> None:
        assert self.opened is not None
        log = self.opened.log
        for file_no in log.files_to_compact():
            log.relocate(QUEUE_ID, self.backing.messages_in_file(file_no))

    @precondition(lambda self: self.opened)
    @rule(power=st.booleans(), rng=st.randoms(use_true_random=False))
    def crash(self, power: bool, rng: Any) -> None:
        if power:
            self.files.power_cut(rng)
        else:
            self.files.kill()
        found = self.reopen()
        assert found.next_seq_id >= self.safe_seq_id, "a number would be given twice"
        self.model.crashed(self.safe, int(found.next_seq_id))

    @precondition(lambda self: self.opened)
    @rule()
    def stop_cleanly(self) -> None:
        assert self.opened is not None
        self.backing.requeue(list(self.tokens.values()))
        self.opened.close_cleanly({QUEUE_ID: self.backing.delivered_seq_ids()})
        known = self.model.next_seq_id
        found = self.reopen()
        assert found.next_seq_id >= known
        self.model.stopped_cleanly(int(found.next_seq_id))
        self.safe = self.model.snapshot()
        self.safe_seq_id = self.model.next_seq_id

    def reopen(self) -> RecoveredQueue:
        self.opened = OpenLog(self.files, {QUEUE_ID}, LIMIT_BYTES)
        found = self.opened.recovered[QUEUE_ID]
        self.backing = self.make(self.opened.log, QUEUE_ID)
        self.recover(self.backing, found)
        self.tokens = {}
        self.gone = []
        return found

    def teardown(self) -> None:
        """Whatever happened: all of it comes out again, in order, once."""
        if not hasattr(self, "backing"):
            return
        self.backing.requeue(list(self.tokens.values()))
        self.model.requeue(list(self.tokens))
        while self.model.ready:
            fetched = self.backing.fetch(1000, 10**9)
            self.model.fetched(fetched, 1000, 10**9)
            self.backing.ack(fetched)
        assert self.backing.fetch(1, 1) == []
        self.backing.check()
        self.backing.delete()
        self.backing.check()
        if self.opened:
            self.opened.commit()
            assert self.opened.log.statistics()["live_messages"] == 0

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "backing"):
            return
        self.backing.check()
        if self.opened:
            self.opened.log.check()
        model, backing = self.model, self.backing
        assert backing.ready_count() == len(model.ready)
        assert backing.ready_bytes() == model.ready_bytes()
        assert backing.next_seq_id() == model.next_seq_id
        assert backing.floor_seq_id() == model.floor_seq_id()
        assert backing.next_expiry_ms() == model.next_expiry_ms()
        timed = any(entry.expires_at_ms for entry in (model.ready | model.pending).values())
        assert backing.may_expire() or not timed
        held = {seq_id: bool(token.flags & SETTLED) for seq_id, token in self.tokens.items()}
        assert held == dict.fromkeys(model.pending, False)
