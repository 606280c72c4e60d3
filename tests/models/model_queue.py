"""What a backing and a queue must do, as plain dictionaries and lists.

``ModelQueue`` is the truth of one backing: messages by seq_id, each ready or pending.  It
knows nothing of runs, heads, files or windows, and every question is answered by sorting.
What it does not decide is left to the backing: how many messages a ``fetch`` takes is the
backing's choice within the limits, so the model is told what was taken and judges it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.core.message import PERSISTENT, REDELIVERED, Message


@dataclass(frozen=True)
class Entry:
    """One message as the model remembers it."""

    seq_id: int
    content: bytes
    persistent: bool
    expires_at_ms: int
    redelivered: bool = False

    def agrees_with(self, message: Message) -> bool:
        return (
            message.seq_id == self.seq_id
            and message.content == self.content
            and bool(message.flags & PERSISTENT) == self.persistent
            and bool(message.flags & REDELIVERED) == self.redelivered
            and message.expires_at_ms == self.expires_at_ms
        )


class ModelQueue:
    def __init__(self) -> None:
        self.ready: dict[int, Entry] = {}
        self.pending: dict[int, Entry] = {}
        self.next_seq_id = 0

    def in_order(self) -> list[Entry]:
        return [self.ready[seq_id] for seq_id in sorted(self.ready)]

    def publish(self, messages: list[Message]) -> None:
        for message in messages:
            assert message.seq_id == self.next_seq_id, "numbers grow by one"
            persistent = bool(message.flags & PERSISTENT)
            self.ready[self.next_seq_id] = Entry(
                self.next_seq_id, message.content, persistent, int(message.expires_at_ms)
            )
            self.next_seq_id += 1

    def fetched(self, messages: list[Message], max_messages: int, max_bytes: int) -> None:
        """The backing took these: they must be the first ones, within the limits, and some."""
        assert len(messages) <= max_messages
        if len(messages) > 1:
            assert sum(len(message.content) for message in messages) <= max_bytes
        assert messages or not self.ready or max_messages == 0
        for entry, message in zip(self.in_order(), messages, strict=False):
            assert entry.agrees_with(message), f"{message.seq_id} came instead of {entry}"
            self.pending[entry.seq_id] = self.ready.pop(entry.seq_id)

    def unfetch(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self.ready[seq_id] = self.pending.pop(seq_id)

    def ack(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            del self.pending[seq_id]

    def requeue(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self.ready[seq_id] = replace(self.pending.pop(seq_id), redelivered=True)

    def expire(self, now_ms: int) -> int:
        """From the head, as far as the time of each has come."""
        count = 0
        for entry in self.in_order():
            if entry.expires_at_ms == 0 or entry.expires_at_ms > now_ms:
                break
            del self.ready[entry.seq_id]
            count += 1
        return count

    def next_expiry_ms(self) -> int:
        """Only the head can be dropped, so only the head has a time."""
        return self.in_order()[0].expires_at_ms if self.ready else 0

    def purge(self) -> int:
        count = len(self.ready)
        self.ready = {}
        return count

    def drop_below(self, seq_id: int) -> int:
        below = [known for known in self.ready if known < seq_id]
        for known in below:
            del self.ready[known]
        return len(below)

    def between(self, start: int, end: int) -> list[Entry]:
        return [entry for entry in self.in_order() if start <= entry.seq_id < end]

    def ready_bytes(self) -> int:
        return sum(len(entry.content) for entry in self.ready.values())

    def floor_seq_id(self) -> int:
        return min(self.ready, default=self.next_seq_id)

    # -- ends ------------------------------------------------------------------------------

    def snapshot(self) -> dict[int, Entry]:
        """What a disk that has everything up to now would give back."""
        everything = self.ready | self.pending
        return {seq_id: entry for seq_id, entry in everything.items() if entry.persistent}

    def crashed(self, snapshot: dict[int, Entry], next_seq_id: int) -> None:
        """Start again from a snapshot: nobody knows who had what, so all may have been seen."""
        self.ready = {
            seq_id: replace(entry, redelivered=True) for seq_id, entry in snapshot.items()
        }
        self.pending = {}
        self.next_seq_id = next_seq_id

    def stopped_cleanly(self, next_seq_id: int) -> None:
        """What was out comes back marked; the rest keeps its mark."""
        self.requeue(list(self.pending))
        self.ready = {s: entry for s, entry in self.ready.items() if entry.persistent}
        self.next_seq_id = next_seq_id
