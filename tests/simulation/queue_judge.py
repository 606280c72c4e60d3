"""One queue of a random life, and what it must hold: the judge of engine_lives.py.

A message is known by its *name*, the number its body begins with.  Its *state* is its place, the
time until which it is delayed (0 = it is not) and its attempts; ``None`` = it is not there.  While
the process lives the queue must be exactly what was done to it.  After a crash the judge knows, for
each persistent message:

    committed   the state that is on disk for sure
    epochs      the states it went through since, one list per group of the journal

and it must be found once, in one of these.  So what was committed and not touched since must be
found as it was; what was moved to the tail may be at the old place or at the new one; what was
acknowledged may come back until the group that says so is on disk, and never after.  Of
transient messages nothing may be found.
"""

from __future__ import annotations

import random

from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import ONE_ATTEMPT, REDELIVERED, Message, attempts_of

State = tuple[int, int, int] | None
EVERYTHING = 1 << 40


def name_of(content: bytes) -> int:
    return int(content.partition(b":")[0])


class Promises:
    """Which states the persistent messages of one queue may have after a crash."""

    def __init__(self) -> None:
        self.committed: dict[int, State] = {}
        self.epochs: list[dict[int, list[State]]] = [{}]

    def note(self, name: int, state: State) -> None:
        self.epochs[-1].setdefault(name, []).append(state)

    def seal(self) -> None:
        """A group was sealed: what is noted from here on is in a later one."""
        self.epochs.append({})

    def commit(self, count: int) -> None:
        """So many groups more are on disk."""
        for epoch in self.epochs[:count]:
            for name, states in epoch.items():
                if states[-1] is None:
                    self.committed.pop(name, None)
                else:
                    self.committed[name] = states[-1]
        del self.epochs[:count]

    def commit_all(self) -> None:
        self.commit(len(self.epochs))
        self.epochs = [{}]

    def judge(self, found: dict[int, State]) -> None:
        allowed: dict[int, set[State]] = {name: {one} for name, one in self.committed.items()}
        for epoch in self.epochs:
            for name, states in epoch.items():
                allowed.setdefault(name, {None}).update(states)
        for name in sorted({*allowed, *found}):
            states = allowed.get(name, {None})
            state = found.get(name)
            if state not in states:
                kind = "lost" if state is None else "came back" if states == {None} else "strayed"
                raise AssertionError(f"{name} {kind}: {state}, not {sorted(states, key=str)}")


class JudgedQueue:
    """Does to the queue what it is told to, and to its model; ``contents`` is by name."""

    def __init__(self, rng: random.Random, contents: dict[int, tuple[bytes, bool]]) -> None:
        self.queue: VariableQueue
        self.promises = Promises()
        self.tokens: list[Message] = []
        self.held: list[Message] = []  # taken while they were delayed
        self.ready: set[int] = set()
        self.delayed: dict[int, int] = {}  # place -> until
        self.names: dict[int, int] = {}  # by place, of all that were ever there
        self.attempts: dict[int, int] = {}  # by name, of those that were counted
        self.handed_out: set[int] = set()  # names of what must be marked as redelivered
        self.put_off_ms = 0  # some could not be released: not again before
        self.moves = self.delays = self.releases = self.counted = 0
        self._rng = rng
        self._contents = contents

    def check(self) -> None:
        assert self.queue.records.fault == ""
        self.queue.check()
        assert self.queue.ready_count() == len(self.ready)
        assert self.queue.count_delayed() == len(self.delayed)
        due_ms = min(self.delayed.values(), default=0)
        assert self.queue.next_due_ms() in (due_ms, self.put_off_ms)

    def _is_at(self, seq_id: int, until_ms: int = 0) -> None:
        name = self.names[seq_id]
        if self._contents[name][1]:
            self.promises.note(name, (seq_id, until_ms, self.attempts.get(name, 0)))

    def _ended(self, seq_ids: set[int]) -> None:
        for seq_id in seq_ids:
            name = self.names[seq_id]
            if self._contents[name][1]:
                self.promises.note(name, None)
        self.ready -= seq_ids

    def _judge_content(self, message: Message) -> None:
        name = self.names[message.seq_id]
        assert message.content == self._contents[name][0], f"{name} is another"
        marked = bool(message.flags & REDELIVERED)
        assert marked == (name in self.handed_out), f"{name}: redelivered is {marked}"
        attempts = attempts_of(message)
        assert attempts == self.attempts.get(name, 0), f"{name}: {attempts} attempts"

    # -- verbs -----------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: int) -> None:
        self.queue.publish(messages, now_ms)
        for message in messages:
            self.names[message.seq_id] = name_of(message.content)
            self.ready.add(message.seq_id)
            self._is_at(message.seq_id)

    def publish_delayed(self, messages: list[Message], now_ms: int) -> None:
        until_ms = now_ms + self._rng.choice([1, 60, 1000, 10_000])
        self.queue.publish_delayed(messages, until_ms, now_ms)
        for message in messages:
            self.names[message.seq_id] = name_of(message.content)
            self.delayed[message.seq_id] = until_ms
            self._is_at(message.seq_id, until_ms)
        self.delays += len(messages)

    def cancel_delayed(self) -> None:
        seq_ids = self._rng.sample(sorted(self.delayed), min(3, len(self.delayed)))
        for seq_id in seq_ids:
            assert self.queue.delays.cancel_delayed(seq_id)
            assert not self.queue.delays.cancel_delayed(seq_id)
            del self.delayed[seq_id]
        self._ended(set(seq_ids))

    def drop_delayed(self) -> None:
        assert self.queue.drop_delayed() == len(self.delayed)
        self._ended(set(self.delayed))
        self.delayed = {}

    def take_delayed(self) -> None:
        """As a topic does that passes them on; what is not acknowledged at once is later.

        For some there is no time.
        """
        taken = self.queue.delays.take_delayed(self._rng.randint(1, 20), 10_000)
        passed = self._rng.randint(0, len(taken))
        self.queue.delays.untake([message for message, _ in taken[passed:]])
        taken = taken[:passed]
        for message, until_ms in taken:
            self._judge_content(message)
            assert self.delayed.pop(message.seq_id) == until_ms
            self.held.append(message)
        self._rng.shuffle(self.held)
        count = self._rng.randint(0, len(self.held))
        gone, self.held = self.held[:count], self.held[count:]
        self.queue.ack(gone)
        self._ended({message.seq_id for message in gone})

    def note_attempts(self) -> None:
        """Of some that are out; they stay so."""
        counted = self.some_tokens(20)
        for message in counted:
            message.flags += ONE_ATTEMPT
            name = self.names[message.seq_id]
            self.attempts[name] = self.attempts.get(name, 0) + 1
        self.queue.note_attempts(counted)
        for message in counted:
            self._is_at(message.seq_id)
        self.counted += len(counted)
        self.tokens += counted

    def fetch(self) -> None:
        found = self.queue.fetch(self._rng.randint(1, 30), 10**6)
        for seq_id, one in zip(sorted(self.ready), found, strict=False):
            assert one.seq_id == seq_id, "out of order"
            self._judge_content(one)
            self.ready.remove(seq_id)
        self.tokens += found

    def some_tokens(self, most: int = EVERYTHING) -> list[Message]:
        self._rng.shuffle(self.tokens)
        count = self._rng.randint(0, min(most, len(self.tokens)))
        taken, self.tokens = self.tokens[:count], self.tokens[count:]
        return taken

    def ack(self, most: int = EVERYTHING) -> None:
        taken = self.some_tokens(most)
        if taken:
            self.queue.ack(taken)
            self._ended({one.seq_id for one in taken})

    def requeue(self) -> None:
        taken = self.some_tokens()
        self.queue.requeue(taken)
        self._touched(taken)
        self.ready.update(one.seq_id for one in taken)

    def unfetch(self) -> None:
        taken = sorted(self.some_tokens(), key=lambda one: one.seq_id)
        self.queue.unfetch(taken)
        self.ready.update(one.seq_id for one in taken)

    def _touched(self, taken: list[Message]) -> None:
        self.handed_out.update(self.names[one.seq_id] for one in taken)

    def requeue_to_tail(self, now_ms: int) -> None:
        taken = self.some_tokens(20)
        if not taken:
            return
        self._touched(taken)
        before = [one.seq_id for one in taken]
        place = self.queue.records.next_seq_id
        self.queue.rare().moves.requeue_to_tail(taken, now_ms)
        if self.queue.records.fault:
            return
        for old, one in zip(before, taken, strict=True):
            assert one.seq_id == place
            place += 1
            self.names[one.seq_id] = self.names[old]
            self.ready.add(one.seq_id)
            self._is_at(one.seq_id)
        self.moves += len(taken)

    def delay(self, now_ms: int) -> None:
        taken = self.some_tokens(20)
        until_ms = now_ms + self._rng.choice([1, 60, 1000, 10_000])
        self.queue.delay(taken, until_ms)
        self._touched(taken)
        for one in taken:
            self.delayed[one.seq_id] = until_ms
            self._is_at(one.seq_id, until_ms)
        self.delays += len(taken)

    def release_due(self, now_ms: int) -> None:
        due = {seq_id for seq_id, until_ms in self.delayed.items() if until_ms <= now_ms}
        count = self.queue.release_due(now_ms, self._rng.choice([1, 5, EVERYTHING]))
        due -= {seq_id for _, seq_id, _ in self.queue.tiers.delayed.page(0, -1, EVERYTHING)}
        assert count == len(due)
        self.put_off_ms = int(self.queue.next_due_ms())
        for seq_id in due:
            del self.delayed[seq_id]
            self._is_at(seq_id)
        self.ready |= due
        self.releases += len(due)

    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self._ended(set(self.ready))

    def drop_below(self) -> None:
        seq_id = self._rng.randint(0, self.queue.records.next_seq_id)
        below = {one for one in self.ready if one < seq_id}
        count = self.queue.drop_below(seq_id)
        assert count == len(below) or self.queue.records.fault
        self._ended(below)

    def drop_some(self) -> None:
        known = sorted(self.ready)
        wanted = set(self._rng.sample(known, self._rng.randint(0, len(known))))
        others = self._rng.randint(0, self.queue.records.next_seq_id)
        count = self.queue.drop_some(sorted(wanted | {others}))
        if others in self.ready:
            wanted.add(others)
        assert count == len(wanted) or self.queue.records.fault
        self._ended(wanted)

    def read_range(self) -> None:
        start = self._rng.randint(0, self.queue.records.next_seq_id)
        end = self._rng.randint(start, self.queue.records.next_seq_id)
        found = self.queue.reads.read_range(start, end, 50, 10**6)
        if self.queue.records.fault:
            return
        wanted = sorted(one for one in self.ready if start <= one < end)[:50]
        assert [one.seq_id for one in found] == wanted
        for one in found:
            self._judge_content(one)
        measured = self.queue.reads.measure_range(start, end, 50, 10**6)
        if measured.more:
            found = [one for one in found if one.seq_id < measured.upto]
        assert measured.count == len(found)
        assert measured.size == sum(len(one.content) for one in found)

    def await_head(self) -> None:
        self.queue.await_head()
        if self.ready and not self.queue.records.fault:
            assert self.queue.tiers.floor_seq_id() == min(self.ready)

    def change_mode(self) -> None:
        self.queue.set_mode(self._rng.random() < 0.5)

    # -- the end, and after it -------------------------------------------------------------

    def closed_cleanly(self) -> None:
        """What is here, and nothing else, must be here again, as it is."""
        self.promises.commit_all()

    def reopened(self, queue: VariableQueue, *, clean: bool) -> None:
        """Judge what the disk has kept, and go on with that."""
        self.queue = queue
        ready = queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
        seq_ids = [one.seq_id for one in ready]
        assert seq_ids == sorted(set(seq_ids)), "out of order, or twice"
        assert queue.records.fault == ""
        found: dict[int, State] = {}
        for one in ready:
            self._found(found, one, 0)
        until_ms = {
            seq_id: due_ms for due_ms, seq_id, _ in queue.tiers.delayed.page(0, -1, EVERYTHING)
        }
        for one in queue.tiers.delayed.messages():
            whole = queue.whole(one)
            assert whole is not None
            self._found(found, whole, until_ms[one.seq_id])
        self.promises.judge(found)
        self.attempts = {name: state[2] for name, state in found.items() if state is not None}
        self.promises = Promises()
        self.promises.committed = dict(found)
        self.ready = set(seq_ids)
        self.delayed = until_ms
        self.put_off_ms = 0
        if clean:  # also when the last sync of the stop failed behind its terms
            self._touched(self.tokens)
        else:
            self.handed_out = set(found)
        self.tokens = []
        self.held = []
        for one in ready:
            self._judge_content(one)
        self.check()

    def _found(self, found: dict[int, State], message: Message, until_ms: int) -> None:
        name = name_of(message.content)
        assert name not in found, f"{name} is there twice"
        assert self._contents[name] == (message.content, True), f"{name} is another"
        found[name] = (message.seq_id, until_ms, attempts_of(message))

    def drain(self) -> None:
        """All that is here is ready, and then what is at hand goes."""
        self.release_due(EVERYTHING)
        self.queue.ack(self.held)
        self._ended({one.seq_id for one in self.held})
        self.held = []
        if self.tokens:
            self._touched(self.tokens)
            self.ready.update(one.seq_id for one in self.tokens)
            self.queue.requeue(self.tokens)
            self.tokens = []
        self.fetch()
        taken, self.tokens = self.tokens, []
        self.queue.ack(taken)
        self._ended({one.seq_id for one in taken})

    def check_is_empty(self) -> None:
        assert self.queue.ready_count() == 0
        assert self.queue.count_delayed() == 0
        assert self.queue.ram_bytes() == 0
        index = self.queue.index_or_none()
        assert index is None or not index.segments
