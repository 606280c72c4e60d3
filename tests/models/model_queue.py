"""What a backing and a queue must do, as plain dictionaries and lists.

``ModelQueue`` is the truth of one backing: messages by seq_id, each ready, pending or delayed.
It knows nothing of runs, heads, files or windows, and every question is answered by sorting.
What it does not decide is left to the backing: how many messages a ``fetch`` takes is the
backing's choice within the limits, so the model is told what was taken and judges it.

**Crashes.**  Of every message that the disk is to keep, the model remembers the places it had
since the last commit with a sync, and whether it was gone in one of these moments.  A crash must
leave it at exactly one of them.  Which one is the engine's choice: the model judges what was
found, and goes on from that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.core.message import ATTEMPTS_SHIFT, PERSISTENT, REDELIVERED, Message

Place = tuple[int, int]
"""seq_id, and until when the message is delayed (0 = it is not)."""
GONE: Place = (-1, 0)


@dataclass(frozen=True)
class Entry:
    """One message as the model remembers it."""

    seq_id: int
    content: bytes
    persistent: bool
    expires_at_ms: int
    enqueued_at_ms: int
    redelivered: bool = False
    attempts: int = 0

    def agrees_with(self, message: Message) -> bool:
        return (
            message.seq_id == self.seq_id
            and message.content == self.content
            and bool(message.flags & PERSISTENT) == self.persistent
            and bool(message.flags & REDELIVERED) == self.redelivered
            and message.flags >> ATTEMPTS_SHIFT == self.attempts
            and message.expires_at_ms == self.expires_at_ms
            and message.enqueued_at_ms == self.enqueued_at_ms
        )


class ModelQueue:
    """``durable``: the disk keeps the persistent ones.  Contents must be unique."""

    def __init__(self, *, durable: bool = True, next_seq_id: int = 0) -> None:
        self.durable = durable
        self.ready: dict[int, Entry] = {}
        self.pending: dict[int, Entry] = {}
        self.delayed: dict[int, Entry] = {}
        self.dying: dict[int, Entry] = {}
        self.until_ms: dict[int, int] = {}
        self.taken_until_ms: dict[int, int] = {}  # of those dying that were delayed
        self.next_seq_id = next_seq_id
        self.left_out: list[int] = []  # numbers below that nothing ever had
        self.possible: dict[bytes, dict[Place, Entry]] = {}  # by content
        self.counted: dict[bytes, set[int]] = {}  # attempts that the disk may know, by content

    def in_order(self) -> list[Entry]:
        return [self.ready[seq_id] for seq_id in sorted(self.ready)]

    def everything(self) -> list[Entry]:
        return [
            *self.ready.values(),
            *self.pending.values(),
            *self.delayed.values(),
            *self.dying.values(),
        ]

    def kept(self) -> list[Entry]:
        """Those that the disk is to keep."""
        return [entry for entry in self.everything() if self.durable and entry.persistent]

    # -- in and out ------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: int) -> None:
        for message in messages:
            assert message.seq_id == self.next_seq_id, "numbers grow by one"
            entry = Entry(
                self.next_seq_id,
                message.content,
                bool(message.flags & PERSISTENT),
                int(message.expires_at_ms),
                now_ms,
                bool(message.flags & REDELIVERED),
            )
            self.next_seq_id += 1
            self.ready[entry.seq_id] = entry
            self._may_be(entry, GONE)
            self._is_at(entry)

    def publish_delayed(self, messages: list[Message], until_ms: int, now_ms: int) -> None:
        """Both in one group: it is nowhere ever ready before."""
        first = self.next_seq_id
        self.publish(messages, now_ms)
        for seq_id in range(first, self.next_seq_id):
            entry = self.ready.pop(seq_id)
            self.delayed[seq_id] = entry
            self.until_ms[seq_id] = until_ms
            if entry.content in self.possible:
                del self.possible[entry.content][seq_id, 0]
            self._is_at(entry, until_ms)

    def cancel_delayed(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            del self.until_ms[seq_id]
            self._ended(self.delayed.pop(seq_id))

    def take_delayed(self, seq_id: int, until_ms: int) -> Entry:
        """Held elsewhere until it is acknowledged; a crash finds it delayed as before."""
        assert self.until_ms.pop(seq_id) == until_ms
        entry = self.delayed.pop(seq_id)
        self.taken_until_ms[seq_id] = until_ms
        self.dying[seq_id] = entry
        return entry

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
            self._ended(self.pending.pop(seq_id))

    def requeue(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self.ready[seq_id] = replace(self.pending.pop(seq_id), redelivered=True)

    def note_attempts(self, seq_ids: list[int]) -> None:
        """They were handed out once more."""
        for seq_id in seq_ids:
            entry = self.pending[seq_id]
            self.counted.setdefault(entry.content, {entry.attempts}).add(entry.attempts + 1)
            self.pending[seq_id] = replace(entry, attempts=entry.attempts + 1)

    def requeue_to_tail(self, seq_ids: list[int], now_ms: int) -> None:
        """In this order behind all others, as new arrivals that were seen before."""
        for seq_id in seq_ids:
            entry = replace(
                self.pending.pop(seq_id),
                seq_id=self.next_seq_id,
                enqueued_at_ms=now_ms,
                redelivered=True,
            )
            self.next_seq_id += 1
            self.ready[entry.seq_id] = entry
            self._is_at(entry)

    def delay(self, seq_ids: list[int], until_ms: int) -> None:
        for seq_id in seq_ids:
            entry = replace(self.pending.pop(seq_id), redelivered=True)
            self.delayed[seq_id] = entry
            self.until_ms[seq_id] = until_ms
            self._is_at(entry, until_ms)

    def release_due(self, now_ms: int, put_off: set[int]) -> int:
        """Those whose time has come are ready, at the places they had; the backing chooses how
        many, and says who is not.
        """
        due = [seq_id for seq_id, until_ms in self.until_ms.items() if until_ms <= now_ms]
        due = [seq_id for seq_id in due if seq_id not in put_off]
        for seq_id in due:
            del self.until_ms[seq_id]
            self.ready[seq_id] = self.delayed.pop(seq_id)
            self._is_at(self.ready[seq_id])
        return len(due)

    def list_delayed(self) -> list[tuple[int, int, int]]:
        """(until, seq_id, size), in order of time."""
        entries = self.delayed.values()
        return sorted((self.until_ms[e.seq_id], e.seq_id, len(e.content)) for e in entries)

    def next_due_ms(self) -> int:
        return min(self.until_ms.values(), default=0)

    # -- whole stretches -------------------------------------------------------------------

    def expire(self, now_ms: int) -> int:
        """From the head, as far as the time of each has come."""
        expired = self.in_order()[: self.count_expired(now_ms)]
        for entry in expired:
            self._ended(self.ready.pop(entry.seq_id))
        return len(expired)

    def count_expired(self, now_ms: int) -> int:
        count = 0
        for entry in self.in_order():
            if entry.expires_at_ms == 0 or entry.expires_at_ms > now_ms:
                break
            count += 1
        return count

    def swept(self, seq_id: int, now_ms: int) -> Entry:
        """Taken out from anywhere, because it is over its time."""
        entry = self.ready.pop(seq_id)
        assert 0 < entry.expires_at_ms <= now_ms, "swept too early"
        self.dying[seq_id] = entry
        return entry

    def take_chosen(self, seq_ids: list[int]) -> list[Entry]:
        """Taken out from anywhere, never to be ready again in this life."""
        found = [self.ready.pop(seq_id) for seq_id in seq_ids if seq_id in self.ready]
        self.dying.update({entry.seq_id: entry for entry in found})
        return found

    def bury(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self.taken_until_ms.pop(seq_id, None)
            self._ended(self.dying.pop(seq_id))

    def late_behind(self, now_ms: int) -> list[Entry]:
        """What is over its time behind something that is not."""
        behind = self.in_order()[self.count_expired(now_ms) :]
        return [entry for entry in behind if 0 < entry.expires_at_ms <= now_ms]

    def next_expiry_ms(self) -> int:
        """Only the head can be dropped, so only the head has a time."""
        return self.in_order()[0].expires_at_ms if self.ready else 0

    def purge(self) -> int:
        return self.drop_below(self.next_seq_id)

    def drop_below(self, seq_id: int) -> int:
        below = [known for known in self.ready if known < seq_id]
        for known in below:
            self._ended(self.ready.pop(known))
        return len(below)

    def drop_some(self, seq_ids: list[int]) -> int:
        found = [seq_id for seq_id in seq_ids if seq_id in self.ready]
        for seq_id in found:
            self._ended(self.ready.pop(seq_id))
        return len(found)

    # -- at places that others say ---------------------------------------------------------

    def waits_a_moment(self, seq_id: int, until_ms: int) -> None:
        """Just published, below others: until it can go where it belongs it waits for nothing.

        A crash may find it as it is meant to be, or waiting.
        """
        entry = self.ready.pop(seq_id)
        self.delayed[seq_id] = entry
        self.until_ms[seq_id] = until_ms
        self._is_at(entry, until_ms)

    def end_at(self, ranges: list[tuple[int, int]]) -> list[int]:
        """Whatever of these is ready or delayed is gone."""
        ended = [
            seq_id
            for seq_id in [*self.ready, *self.delayed]
            if any(start <= seq_id < end for start, end in ranges)
        ]
        for seq_id in ended:
            self.until_ms.pop(seq_id, None)
            self._ended(self.ready.pop(seq_id, None) or self.delayed.pop(seq_id))
        return ended

    def delay_at(self, ranges: list[tuple[int, int]], until_ms: int) -> int:
        some = [
            seq_id
            for seq_id in [*self.ready, *self.delayed]
            if any(start <= seq_id < end for start, end in ranges)
        ]
        for seq_id in some:
            entry = self.ready.pop(seq_id, None) or self.delayed[seq_id]
            self.delayed[seq_id] = replace(entry, redelivered=True)
            self.until_ms[seq_id] = until_ms
            self._is_at(self.delayed[seq_id], until_ms)
        return len(some)

    def attempts(self, seq_id: int) -> int:
        return (self.ready.get(seq_id) or self.delayed[seq_id]).attempts

    def count_at(self, seq_id: int, attempts: int) -> None:
        here = self.ready if seq_id in self.ready else self.delayed
        entry = here[seq_id]
        self.counted.setdefault(entry.content, {entry.attempts}).add(attempts)
        here[seq_id] = replace(entry, attempts=attempts)

    def begin_master(self) -> None:
        for here in (self.ready, self.delayed):
            for seq_id, entry in here.items():
                here[seq_id] = replace(entry, redelivered=True)

    def between(self, start: int, end: int) -> list[Entry]:
        return [entry for entry in self.in_order() if start <= entry.seq_id < end]

    def ready_bytes(self) -> int:
        return sum(len(entry.content) for entry in self.ready.values())

    def floor_seq_id(self) -> int:
        return min(self.ready, default=self.next_seq_id)

    # -- ends ------------------------------------------------------------------------------

    def committed(self) -> None:
        """All up to now is on disk: a crash finds what there is, where it is."""
        self.possible, self.counted = {}, {}
        until_ms = self.until_ms | self.taken_until_ms
        for entry in self.kept():
            self._is_at(entry, until_ms.get(entry.seq_id, 0))
            if until_ms.get(entry.seq_id) == 1:
                self._is_at(entry)  # ``waits_a_moment``: the disk may know nothing of that

    def stopped_cleanly(self) -> None:
        """What was out comes back marked; the rest keeps its mark, and delays their times."""
        self.requeue(list(self.pending))
        for seq_id, entry in self.dying.items():
            (self.delayed if seq_id in self.taken_until_ms else self.ready)[seq_id] = entry
        self.until_ms |= self.taken_until_ms
        self.dying, self.taken_until_ms = {}, {}
        kept = {entry.seq_id for entry in self.kept()}
        self.ready = {s: entry for s, entry in self.ready.items() if s in kept}
        self.delayed = {s: entry for s, entry in self.delayed.items() if s in kept}
        self.until_ms = {s: until_ms for s, until_ms in self.until_ms.items() if s in kept}
        self.committed()

    def crashed(
        self,
        ready: list[Message],
        delays: dict[int, int],
        attempts: dict[int, int],
        next_seq_id: int,
    ) -> None:
        """Judge what was found, and go on from it; nobody knows who had what, so all of it may
        have been seen.
        """
        assert next_seq_id >= self.next_seq_id, "a number would be used twice"
        found = {(int(message.seq_id), 0) for message in ready} | set(delays.items())
        assert len(found) == len(ready) + len(delays), "found twice"
        self.ready, self.pending, self.delayed, self.until_ms = {}, {}, {}, {}
        self.dying, self.taken_until_ms = {}, {}
        for content, places in self.possible.items():
            here = sorted(found & places.keys())
            assert len(here) < 2, f"{content[:8]!r} was found at {here}"
            assert here or GONE in places, f"{content[:8]!r} is lost: it was at {sorted(places)}"
            for seq_id, until_ms in here:
                entry = places[seq_id, until_ms]
                counts = self.counted.get(content, {entry.attempts})
                assert attempts[seq_id] in counts, f"{attempts[seq_id]} attempts, not {counts}"
                entry = replace(entry, redelivered=True, attempts=attempts[seq_id])
                (self.delayed if until_ms else self.ready)[seq_id] = entry
                if until_ms:
                    self.until_ms[seq_id] = until_ms
            found.difference_update(here)
        assert not found, f"came back, or to a wrong place: {sorted(found)}"
        for entry, message in zip(self.in_order(), ready, strict=True):
            assert entry.agrees_with(message), f"{message.seq_id} was found instead of {entry}"
        self.next_seq_id = next_seq_id
        self.committed()

    def _is_at(self, entry: Entry, until_ms: int = 0) -> None:
        self._may_be(entry, (entry.seq_id, until_ms))

    def _ended(self, entry: Entry) -> None:
        self._may_be(entry, GONE)

    def _may_be(self, entry: Entry, place: Place) -> None:
        if self.durable and entry.persistent:
            self.possible.setdefault(entry.content, {})[place] = entry
