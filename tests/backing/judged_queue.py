"""A queue on a real engine and its model, held together: what is done to both is compared."""

from __future__ import annotations

from typing import Any

from penstock.core.message import ONE_ATTEMPT, PENDING, SETTLED, Message, attempts_of
from tests.models.model_queue import ModelQueue

EMBED_BELOW_BYTES = 100
EVERYTHING = 1 << 60


class Judged:
    """A queue: its backing, its model, and what is out of it."""

    def __init__(self, queue_id: int, *, durable: bool) -> None:
        self.queue_id = queue_id
        self.durable = durable
        self.backing: Any = None
        self.model = ModelQueue(durable=durable)
        self.tokens: dict[int, Message] = {}
        self.dying: dict[int, Message] = {}
        self.put_off_ms = 0  # some could not be released: not again before

    def __repr__(self) -> str:
        return f"queue {self.queue_id}"

    def publish(self, batch: list[Message], now_ms: int) -> None:
        self.backing.publish(batch, now_ms)
        self.model.publish(batch, now_ms)
        assert all(one.enqueued_at_ms == now_ms for one in batch)

    def publish_delayed(self, batch: list[Message], until_ms: int, now_ms: int) -> None:
        self.backing.publish_delayed(batch, until_ms, now_ms)
        self.model.publish_delayed(batch, until_ms, now_ms)
        assert all(one.enqueued_at_ms == now_ms for one in batch)

    def cancel_delayed(self, seq_id: int) -> bool:
        """Only what is delayed can be; what was taken out for other reasons cannot."""
        there = seq_id in self.model.delayed
        assert self.backing.delays.cancel_delayed(seq_id) == there
        self.model.cancel_delayed([seq_id] if there else [])
        return there

    def drop_delayed(self) -> int:
        count = len(self.model.delayed)
        assert self.backing.drop_delayed() == count
        self.model.cancel_delayed(list(self.model.delayed))
        return count

    def take_delayed(self, max_messages: int, max_bytes: int, stay: int) -> int:
        """Of those that are taken the last ``stay`` go back."""
        taken = self.backing.delays.take_delayed(max_messages, max_bytes)
        assert len(taken) <= max_messages
        assert taken or not self.model.delayed
        assert len(taken) < 2 or sum(len(one.content) for one, _ in taken) <= max_bytes
        back = taken[max(0, len(taken) - stay) :]
        self.backing.delays.untake([one for one, _ in back])
        for one, until_ms in back:
            assert self.model.until_ms[int(one.seq_id)] == until_ms
        taken = taken[: len(taken) - len(back)]
        for one, until_ms in taken:
            assert self.model.take_delayed(int(one.seq_id), until_ms).agrees_with(one)
            self.dying[int(one.seq_id)] = one
        return len(taken)

    def fetched(self, fetched: list[Message], max_messages: int, max_bytes: int) -> None:
        self.model.fetched(fetched, max_messages, max_bytes)
        assert all(one.flags & PENDING for one in fetched)
        for one in fetched:
            self.tokens[int(one.seq_id)] = one

    def take_all(self) -> list[int]:
        """All that is ready, waiting for the disk."""
        taken: list[int] = []
        while self.model.ready:
            self.backing.await_head()
            fetched = self.backing.fetch(1000, 10**9)
            self.fetched(fetched, 1000, 10**9)
            taken += [int(one.seq_id) for one in fetched]
        assert self.backing.fetch(1, 1) == []
        return taken

    def taken(self, seq_ids: list[int]) -> list[Message]:
        return [self.tokens.pop(seq_id) for seq_id in seq_ids]

    def swept(self, found: list[Message], now_ms: int) -> None:
        for one in found:
            entry = self.model.swept(int(one.seq_id), now_ms)
            assert entry.agrees_with(self.backing.whole(one))
            self.dying[int(one.seq_id)] = one

    def took_chosen(self, seq_ids: list[int], found: list[Message]) -> None:
        expected = self.model.take_chosen(seq_ids)
        assert [int(one.seq_id) for one in found] == [entry.seq_id for entry in expected]
        for one, entry in zip(found, expected, strict=True):
            assert entry.agrees_with(self.backing.whole(one))
            self.dying[int(one.seq_id)] = one

    def bury(self, seq_ids: list[int]) -> None:
        messages = [self.dying.pop(seq_id) for seq_id in seq_ids]
        self.backing.ack(messages)
        self.model.bury(seq_ids)
        assert all(one.flags & SETTLED for one in messages)

    def ack(self, seq_ids: list[int]) -> None:
        messages = self.taken(seq_ids)
        self.backing.ack(messages)
        self.model.ack(seq_ids)
        assert all(one.flags & SETTLED for one in messages)

    def note_attempts(self, seq_ids: list[int]) -> None:
        messages = [self.tokens[seq_id] for seq_id in seq_ids]
        for one in messages:
            one.flags += ONE_ATTEMPT
        self.backing.note_attempts(messages)
        self.model.note_attempts(seq_ids)

    def requeue(self, seq_ids: list[int]) -> None:
        self.backing.requeue(self.taken(seq_ids))
        self.model.requeue(seq_ids)

    def release(self, now_ms: int, at_most: int = EVERYTHING) -> int:
        count = int(self.backing.release_due(now_ms, at_most))
        waiting = {seq_id for _, seq_id, _ in self.backing.tiers.delayed.page(0, -1, EVERYTHING)}
        assert self.model.release_due(now_ms, waiting) == count
        self.put_off_ms = int(self.backing.next_due_ms())
        return count

    def count_due_in_delta(self, now_ms: int) -> int:
        """Their places are among messages that are only on disk."""
        backing = self.backing
        due = [seq_id for seq_id, until_ms in self.model.until_ms.items() if until_ms <= now_ms]
        return sum(backing.tiers.delta_start <= seq_id < backing.tiers.delta_end for seq_id in due)

    def count_due_behind_delta(self, now_ms: int) -> int:
        backing = self.backing
        due = [seq_id for seq_id, until_ms in self.model.until_ms.items() if until_ms <= now_ms]
        return sum(seq_id >= backing.tiers.delta_end > 0 for seq_id in due)

    def crashed(self) -> None:
        """Judge what was found after a start that was not clean."""
        self.tokens = {}
        self.dying = {}
        if not self.durable:
            self.begin_empty()
            return
        found = self.backing.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
        index = self.backing.index_or_none()
        delays = {} if index is None else index.delays()
        everything = found + self.backing.tiers.delayed.messages()
        attempts = {int(one.seq_id): int(attempts_of(one)) for one in everything}
        self.model.crashed(found, delays, attempts, int(self.backing.records.next_seq_id))

    def stopped_cleanly(self) -> None:
        self.tokens = {}
        self.dying = {}
        if self.durable:
            self.model.stopped_cleanly()
        else:
            self.begin_empty()

    def begin_empty(self) -> None:
        self.tokens = {}
        self.dying = {}
        self.model = ModelQueue(
            durable=self.durable, next_seq_id=int(self.backing.records.next_seq_id)
        )

    def references(self) -> int:
        """Messages here whose content must be in the lasting store."""
        return sum(len(entry.content) >= EMBED_BELOW_BYTES for entry in self.model.kept())

    def check(self) -> None:
        model, backing = self.model, self.backing
        backing.check()
        assert backing.why_stopped() == ""
        assert backing.ready_count() == len(model.ready)
        assert backing.ready_bytes() == model.ready_bytes()
        assert backing.records.next_seq_id == model.next_seq_id
        assert backing.tiers.floor_seq_id() <= model.floor_seq_id()
        self._check_expiry()
        assert backing.count_delayed() == len(model.delayed)
        assert backing.tiers.delayed.page(0, -1, 3) == model.list_delayed()[:3]
        assert backing.next_due_ms() in (model.next_due_ms(), self.put_off_ms)
        timed = any(entry.expires_at_ms for entry in model.everything())
        assert backing.may_expire() or not timed
        held = {seq_id: bool(token.flags & SETTLED) for seq_id, token in self.tokens.items()}
        assert held == dict.fromkeys(model.pending, False)

    def _check_expiry(self) -> None:
        """Exact while the head is in memory; never later than the time of a head on disk."""
        exact, backing = self.model.next_expiry_ms(), self.backing
        found = backing.next_expiry_ms()
        if backing.tiers.head() is not None:
            assert found == exact
        elif exact > 0 and backing.ahead._read is None and backing.ready_count() > 0:
            sweep = backing.next_sweep_ms()
            assert 0 < found <= exact or 0 < sweep <= max(exact, backing.expiry.sweep_after_ms)
