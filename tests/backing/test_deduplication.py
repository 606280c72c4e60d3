"""A queue that takes each key once, against a dictionary; it may be reopened at any step."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.backing.deduplication import STEP_BYTES, STEP_MESSAGES, MessageKeys
from penstock.backing.factory import BackingMaker
from penstock.backing.priorities import PriorityBacking, classic_priorities, without_priorities
from penstock.core.message import PERSISTENT, PRIORITY_SHIFT, Message
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from tests.backing.engine_tools import OpenEngine, limits
from tests.helpers.raw_codec import content_frames
from tests.helpers.sim_files import SimFileSystem

EVERYTHING = 1 << 40
KEYS = st.sampled_from([None, "a", "b", "c", 1, "1"])


def content(number: int, key: object) -> bytes:
    headers = {} if key is None else {"x-deduplication-header": key}
    return content_frames(1, b"%06d" % number, {"headers": headers})


def once(parts: list[Any]) -> PriorityBacking:
    keys = MessageKeys(parts, AmqpHeaderReader())
    if len(parts) == 1:
        return without_priorities(parts[0], keys)
    return classic_priorities(parts, "lowest", keys)


def keys_of(backing: PriorityBacking) -> MessageKeys:
    keys = backing.keys()
    assert keys is not None
    return keys


class DeduplicationMachine(RuleBasedStateMachine):
    """``known`` maps the keys that are in the queue to the number of their message."""

    parts = 1

    @initialize(paging=st.sampled_from([1, EVERYTHING]))
    def begin(self, paging: int) -> None:
        self.files = SimFileSystem()
        self.paging = paging
        self.number = 0
        self.ready: dict[int, object] = {}
        self.pending: dict[int, tuple[Message, object]] = {}
        self.now_ms = 1000
        self.open()

    def open(self) -> None:
        ids = {5 + part: 64 for part in range(self.parts)}
        self.opened = OpenEngine(self.files, ids, limits(paging=self.paging))
        parts: list[Any] = list(self.opened.queues.values())
        self.backing = once(parts)
        self.backing.adopted()
        keys_of(self.backing).read_all_keys()

    def known(self) -> list[object]:
        held = list(self.ready.values()) + [key for _, key in self.pending.values()]
        return [(type(key), key) for key in held if key is not None]

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6), priority=st.integers(0, 9))
    def publish(self, keys: list[object], priority: int) -> None:
        messages = []
        for key in keys:
            flags = PERSISTENT | priority << PRIORITY_SHIFT
            messages.append(Message(content(self.number, key), b"\0\0", flags, 0))
            if key is None or (type(key), key) not in self.known():
                self.ready[self.number] = key
            self.number += 1
        self.backing.publish(messages, self.now_ms)

    @rule(count=st.integers(1, 8))
    def fetch(self, count: int) -> None:
        fetched = self.backing.fetch(count, EVERYTHING)
        if not fetched and self.ready:
            self.opened.settle(0)
            fetched = self.backing.fetch(count, EVERYTHING)
            assert fetched
        for message in fetched:
            whole = message if message.content else self.backing.whole(message)
            assert whole is not None
            number = int(whole.content[-7:-1])
            self.pending[number] = (message, self.ready.pop(number))

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), verb=st.sampled_from(["ack", "requeue"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.pending)))
        message, key = self.pending.pop(number)
        if verb == "ack":
            self.backing.ack([message])
        else:
            self.backing.requeue([message])
            self.ready[number] = key

    @rule()
    def purge(self) -> None:
        assert self.backing.purge() == len(self.ready)
        self.ready = {}

    @rule(kill=st.booleans())
    def come_back(self, kill: bool) -> None:
        self.opened.settle(0)
        if kill:
            self.files.kill()
        else:
            self.opened.close_cleanly()
        for number, (_, key) in self.pending.items():
            self.ready[number] = key
        self.pending = {}
        self.open()

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "backing"):
            self.backing.check()
            assert self.backing.ready_count() == len(self.ready)


class PrioritiesToo(DeduplicationMachine):
    parts = 5


for machine in (DeduplicationMachine, PrioritiesToo):
    machine.TestCase.settings = settings(
        max_examples=settings().max_examples, stateful_step_count=25, deadline=None
    )
TestDeduplication = DeduplicationMachine.TestCase
TestDeduplicationOfPriorities = PrioritiesToo.TestCase


@pytest.mark.parametrize("how", ["expire", "fetch_expired"])
def test_a_key_goes_with_its_message_when_its_time_is_over(how: str) -> None:
    opened = OpenEngine(SimFileSystem(), {5: 64})
    maker = BackingMaker(opened.engine, "lowest", AmqpHeaderReader())
    backing = maker.make(5, True, 64, {"x-message-deduplication": True})

    def publish(expires_at_ms: int) -> int:
        before = backing.ready_count()
        message = Message(content(1, "k"), b"\0\0", PERSISTENT, expires_at_ms)
        backing.publish([message], 0)
        return int(backing.ready_count() - before)

    assert publish(100) == 1
    assert publish(0) == 0
    if how == "expire":
        assert backing.expire(200, 10) == 1
    else:
        late = backing.fetch_expired(200, 10)
        assert publish(0) == 0, "it is handed out, to become a dead letter"
        backing.ack(late)
    assert publish(0) == 1
    assert backing.drop_below(backing.positions().records.next_seq_id) == 1
    assert publish(0) == 1
    backing.check()


def test_of_two_with_one_key_the_newer_has_it_after_a_start() -> None:
    """The first was delayed when a start forgot its key, so the second was taken."""
    opened = OpenEngine(SimFileSystem(), {1: 64})
    within = opened.queues[1]
    first, second, third = (
        Message(content(number, "a"), b"\0\0", PERSISTENT, 0) for number in range(3)
    )
    within.publish([first, second], 1000)
    backing = once([within])
    backing.adopted()
    backing.check()
    backing.ack(backing.fetch(1, EVERYTHING))
    backing.check()
    backing.publish([third], 1000)
    assert backing.ready_count() == 1, "the key of the second is known"
    backing.ack(backing.fetch(1, EVERYTHING))
    backing.publish([third], 1000)
    assert backing.ready_count() == 1
    backing.check()


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("size", [10, 40_000], ids=["many", "large"])
def test_a_mirror_that_becomes_master_reads_its_keys_in_steps(parts: int, size: int) -> None:
    """Each message comes once all the same, in order; the loop is free between two steps."""
    count = 20 * int(min(STEP_MESSAGES, STEP_BYTES // size))
    ids = {5 + part: 64 for part in range(parts)}
    opened = OpenEngine(SimFileSystem(), ids, limits(paging=1))
    queues: list[Any] = list(opened.queues.values())
    within = queues[0] if parts == 1 else classic_priorities(queues, "lowest")
    keyed = [
        Message(content(n, f"k{n}") + b"x" * size, b"\0\0", n % parts << PRIORITY_SHIFT, 0)
        for n in range(count)
    ]
    within.publish(keyed, 1000)
    backing = once(queues)
    backing.adopted()
    flags = (count - 1) % parts << PRIORITY_SHIFT
    known = [len(keys_of(backing)._places)]
    backing.publish([Message(content(0, f"k{count - 1}"), b"\0\0", flags, 0)], 1000)
    known.append(len(keys_of(backing)._places))
    while not (got := backing.fetch(1, EVERYTHING)):
        known.append(len(keys_of(backing)._places))
    steps = [after - before for before, after in pairwise(known)]
    assert len(steps) > 10
    assert max(steps) <= STEP_MESSAGES
    assert (max(steps) - 1) * size <= STEP_BYTES
    assert (backing.ready_count(), keys_of(backing).duplicate_count) == (count - 1, 1)
    backing.ack(got)
    backing.check()


def test_a_mirror_with_few_messages_knows_their_keys_with_the_first_step() -> None:
    opened = OpenEngine(SimFileSystem(), {1: 64})
    within = opened.queues[1]
    first, second = (Message(content(n, "a"), b"\0\0", PERSISTENT, 0) for n in range(2))
    within.publish([first], 1000)
    backing = once([within])
    backing.adopted()
    backing.publish([second], 1000)
    assert (backing.ready_count(), keys_of(backing).duplicate_count) == (1, 1)


class UnreadKeys:
    """A life in which a start does not find the keys at once, because reads fail.

    Nothing is handed out before all keys are known, and what was published meanwhile is no
    exception: of each key one message comes, and all of those without one.
    """

    def __init__(self, seed: int, parts: int) -> None:
        self.rng = random.Random(seed)
        self.parts = parts
        self.files = SimFileSystem()
        self.now_ms = 1_000
        self.numbers: dict[int, object] = {}  # of each message, its key
        self.got: list[int] = []
        self.open()
        for _ in range(4):
            self.publish()
        self.files.kill()
        self.open()

    def open(self) -> None:
        ids = {5 + part: 64 for part in range(self.parts)}
        self.opened = OpenEngine(self.files, ids)
        parts: list[Any] = list(self.opened.queues.values())
        self.backing = once(parts)
        if self.numbers:
            self.files.fail("pread", after=self.rng.choice([0, 0, 1, 2]))
        self.backing.adopted()
        keys_of(self.backing).read_all_keys()

    def publish(self) -> None:
        messages = []
        for _ in range(self.rng.randint(1, 60)):
            key = self.rng.choice([None, self.rng.randrange(200)])
            flags = PERSISTENT | self.rng.randrange(self.parts) << PRIORITY_SHIFT
            self.numbers[len(self.numbers)] = key
            messages.append(Message(content(len(self.numbers) - 1, key), b"\0\0", flags, 0))
        self.backing.publish(messages, self.now_ms)
        self.opened.commit()

    def fetch(self) -> None:
        messages = self.backing.fetch(self.rng.randint(1, 40), EVERYTHING)
        for message in messages:
            whole = message if message.content else self.backing.whole(message)
            assert whole is not None
            self.got.append(int(whole.content[-7:-1]))
        self.backing.check()

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice([10, 1_000, 10_000])
        self.opened.settle(self.now_ms)

    def live(self) -> None:
        assert self.parts > 1 or self.backing.why_stopped() != "" or not self.files.has_failed
        for _ in range(30):
            self.rng.choice([self.publish, self.fetch, self.pass_time])()
        self.files.heal()
        for _ in range(200):
            self.pass_time()
            self.fetch()
        assert self.backing.ready_count() == 0
        keys = [self.numbers[number] for number in self.got]
        assert sorted(self.got) == sorted(set(self.got))
        assert keys.count(None) == list(self.numbers.values()).count(None)
        # A key ends only when its message is acknowledged, which is never done here.
        keyed = [key for key in keys if key is not None]
        assert sorted(keyed, key=str) == sorted(set(self.numbers.values()) - {None}, key=str)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 5])
def test_no_duplicate_is_taken_because_the_keys_cannot_be_read(parts: int) -> None:
    stopped = 0
    for seed in range(20):
        life = UnreadKeys(seed, parts)
        stopped += life.backing.why_stopped() != ""
        try:
            life.live()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
    assert stopped > 10
