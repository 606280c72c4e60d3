"""A queue and its consumers against a model: order, windows, outlets, leases, fairness."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused, ResourceLocked
from penstock.core.message import REDELIVERED, SETTLED, Message
from penstock.queues.allocator import DELIVER_BYTES_MAX, DELIVER_MESSAGES_MAX
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.limits import QueueLimits
from tests.helpers.engines import transient_backing
from tests.helpers.queues import local_queue, new_context
from tests.models.model_consumers import ModelConsumer, ModelHall, ModelWindow

NOW_MS = 1_000_000


class Hall:
    """A queue with the two lists its broker would look at."""

    def __init__(self, *, ttl_ms: int = -1) -> None:
        context = new_context()
        self.wakeups = context.wakeups
        self.refills = context.refills
        self.deaths = context.deaths
        self.queue = local_queue(transient_backing(), context)
        self.queue.set_limits(QueueLimits(message_ttl_ms=ttl_ms))

    def publish(self, count: int, size: int = 1, expires_at_ms: int = 0) -> None:
        body = b"x" * size
        self.queue.publish([Message(body, b"", 0, expires_at_ms) for _ in range(count)], NOW_MS)

    def deliveries(self) -> list[tuple[Consumer, Message]]:
        """Turns until the queue asks for no more."""
        found: list[tuple[Consumer, Message]] = []
        for _ in range(1000):
            for queue in self.refills:
                queue.refilling = False
                queue.wake()
            self.refills.clear()
            if not self.wakeups:
                return found
            self.wakeups.clear()
            for delivery in self.queue.deliver(NOW_MS):
                found += [(delivery.consumer, message) for message in delivery.messages]
        raise AssertionError("the queue never comes to rest")


def consumer(
    tag: str = "c", prefetch: int = 0, *, no_ack: bool = False, exclusive: bool = False, **more: Any
) -> Consumer:
    return Consumer(
        tag,
        more.get("holder", tag),
        more.get("outlet") or OutputWindow(),
        more.get("shared") or SharedWindow(),
        no_ack,
        prefetch,
        exclusive,
        {},
    )


class QueueMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.hall = Hall()
        self.model = ModelHall()
        self.windows = [(SharedWindow(), ModelWindow()) for _ in range(2)]
        self.pairs: list[tuple[Any, ModelConsumer]] = []
        self.tokens: dict[int, Message] = {}
        self.names = 0

    @property
    def queue(self) -> Any:
        return self.hall.queue

    # -- rules -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 12), turn=st.booleans())
    def publish(self, count: int, turn: bool) -> None:
        self.hall.publish(count)
        self.model.publish(count)
        if turn:
            self.turn()

    @precondition(lambda self: len(self.model.consumers) < 4)
    @rule(
        prefetch=st.sampled_from([0, 1, 1, 3, 8]),
        no_ack=st.booleans(),
        window=st.integers(0, 1),
        holder=st.integers(0, 2),
        exclusive=st.sampled_from([False] * 5 + [True]),
    )
    def subscribe(
        self, prefetch: int, no_ack: bool, window: int, holder: int, exclusive: bool
    ) -> None:
        self.names += 1
        shared, model_window = self.windows[window]
        name = f"c{self.names}"
        prefetch = 0 if no_ack else prefetch
        real = consumer(
            name, prefetch, no_ack=no_ack, exclusive=exclusive, shared=shared, holder=holder
        )
        there = self.model.consumers
        if self.model.leased:
            with pytest.raises(ResourceLocked):
                self.queue.add_consumer(real)
        elif there and (exclusive or any(c.exclusive for c in self.queue.consumers)):
            with pytest.raises(AccessRefused):
                self.queue.add_consumer(real)
        else:
            self.queue.add_consumer(real)
            model = ModelConsumer(name, model_window, no_ack=no_ack, prefetch=prefetch)
            there.append(model)
            self.pairs.append((real, model))

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        real, model = self.pick(data, [pair for pair in self.pairs if not pair[1].cancelled])
        self.queue.remove_consumer(real)
        model.cancelled = True
        self.model.consumers.remove(model)

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data(), turn=st.booleans())
    def outlet(self, data: st.DataObject, turn: bool) -> None:
        """A way out fills up, or is free again."""
        real, model = self.pick(data, [pair for pair in self.pairs if not pair[1].cancelled])
        real.outlet.open = model.open = not model.open
        if model.open:
            self.queue.room_came(real)  # what a session does when it has drained
        if turn:
            self.turn()

    @rule(window=st.integers(0, 1), limit=st.sampled_from([0, 1, 4, 20]))
    def limit(self, window: int, limit: int) -> None:
        shared, model = self.windows[window]
        shared.limit = model.limit = limit
        self.room_came(model)

    def room_came(self, window: ModelWindow) -> None:
        """What a channel does when its shared window has room."""
        for real, model in self.pairs:
            if model.window is window and not model.cancelled:
                self.queue.room_came(real)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), back=st.booleans(), turn=st.booleans())
    def settle(self, data: st.DataObject, back: bool, turn: bool) -> None:
        real, model = self.pick(data, [pair for pair in self.pairs if pair[1].held])
        seq_ids = data.draw(
            st.lists(st.sampled_from(sorted(model.held)), min_size=1, unique=True), "seq_ids"
        )
        messages = [self.tokens.pop(seq_id) for seq_id in seq_ids]
        if back:
            self.queue.requeue({real: messages}, True, WallMs(0))
            self.model.requeue(model, seq_ids)
        else:
            self.queue.settle(real, messages)
            self.model.settle(model, seq_ids)
        if model.window.limit:
            self.room_came(model.window)
        if turn:
            self.turn()

    @rule()
    def get(self) -> None:
        """One message for the account of a session, whatever the windows say."""
        account = consumer("account")
        if self.model.leased:
            with pytest.raises(ResourceLocked):
                self.queue.get(account)
            return
        message = self.queue.get(account)
        if not self.model.ready:
            assert message is None
            return
        seq_id = min(self.model.ready)
        assert message.seq_id == seq_id
        model = ModelConsumer("account", ModelWindow(), no_ack=False, prefetch=0)
        model.cancelled = True
        self.pairs.append((account, model))
        self.model.ready.remove(seq_id)
        model.held.add(seq_id)
        self.tokens[seq_id] = message

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.model.ready)
        self.model.ready.clear()

    @precondition(lambda self: not self.model.leased)
    @rule()
    def lease(self) -> None:
        if self.model.consumers:
            with pytest.raises(ResourceLocked):
                self.queue.ranges.open()
            return
        self.model.lease += 1
        self.model.leased = True
        assert self.queue.ranges.open() == self.model.lease

    @precondition(lambda self: self.model.leased)
    @rule(data=st.data(), again=st.booleans())
    def end_lease(self, data: st.DataObject, again: bool) -> None:
        """With the newest token it ends; an older one is fenced off."""
        if again:
            self.model.lease += 1
            assert self.queue.ranges.open() == self.model.lease
        token = data.draw(st.sampled_from([self.model.lease, self.model.lease, 0, 1]))
        current = self.model.leased and token == self.model.lease
        assert self.queue.ranges.is_current(token) == current
        self.queue.ranges.close(token)
        self.model.leased = self.model.leased and not current

    @precondition(lambda self: self.model.leased)
    @rule(data=st.data())
    def drop_below(self, data: st.DataObject) -> None:
        seq_id = data.draw(st.integers(0, self.model.published + 1))
        below = {known for known in self.model.ready if known < seq_id}
        if data.draw(st.booleans()):
            assert self.queue.ranges.drop_below(seq_id) == len(below)
        else:
            assert self.queue.ranges.drop_step(seq_id, 1 << 30) == len(below)
        self.model.ready -= below

    @precondition(lambda self: self.model.leased)
    @rule(data=st.data())
    def drop_some(self, data: st.DataObject) -> None:
        known = st.integers(0, self.model.published + 1)
        seq_ids = sorted(data.draw(st.lists(known, unique=True)))
        found = self.model.ready & set(seq_ids)
        assert self.queue.ranges.drop_some(seq_ids) == len(found)
        self.model.ready -= found

    @rule()
    def turn(self) -> None:
        self.model.begin_turn()
        by_name = {model.name: model for _, model in self.pairs}
        dealt = self.hall.deliveries()
        for real, message in sorted(dealt, key=lambda one: one[1].seq_id):
            seq_id = int(message.seq_id)
            again = bool(message.flags & REDELIVERED)
            self.model.delivered(by_name[real.tag], seq_id, again)
            assert bool(message.flags & SETTLED) == real.no_ack
            if not real.no_ack:
                self.tokens[seq_id] = message
        self.model.end_turn(max((int(message.seq_id) for _, message in dealt), default=None))
        for real, model in self.pairs:
            got = [int(message.seq_id) for taker, message in dealt if taker is real]
            assert got == sorted(got), f"{model.name} got them out of order"

    @staticmethod
    def pick(data: st.DataObject, pairs: list[Any]) -> Any:
        return pairs[data.draw(st.integers(0, len(pairs) - 1), "who")]

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "hall"):
            return
        self.queue.check()
        assert self.queue.backing.ready_count() == len(self.model.ready)
        for real, model in self.pairs:
            assert real.outstanding == len(model.held)
        for shared, window in self.windows:
            assert shared.outstanding == len(window.held)
        assert self.queue.unacked_count == len(self.tokens)


QueueMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=40, deadline=None
)
TestQueue = QueueMachine.TestCase


# -- single stories --------------------------------------------------------------------------


def tags(dealt: list[tuple[Consumer, Message]]) -> list[str]:
    return [taker.tag for taker, _ in sorted(dealt, key=lambda one: one[1].seq_id)]


def test_round_robin_goes_on_where_it_stopped() -> None:
    hall = Hall()
    for tag in "abc":
        hall.queue.add_consumer(consumer(tag))
    found: list[str] = []
    for count in (1, 1, 2, 5):
        hall.publish(count)
        found += tags(hall.deliveries())
    assert found == list("abcabcabc")


def test_a_pass_stays_within_its_limits_and_asks_for_another() -> None:
    hall = Hall()
    hall.queue.add_consumer(consumer(no_ack=True))
    hall.publish(DELIVER_MESSAGES_MAX * 2 + 1)
    hall.wakeups.clear()
    assert [len(d.messages) for d in hall.queue.deliver(NOW_MS)] == [DELIVER_MESSAGES_MAX]
    assert list(hall.wakeups) == [hall.queue]
    assert len(hall.deliveries()) == DELIVER_MESSAGES_MAX + 1


@pytest.mark.parametrize("consumers", [1, 2])
def test_a_pass_of_large_messages_is_short(consumers: int) -> None:
    hall = Hall()
    for number in range(consumers):
        hall.queue.add_consumer(consumer(str(number)))
    hall.publish(10, DELIVER_BYTES_MAX // 2)
    hall.wakeups.clear()
    assert sum(len(d.messages) for d in hall.queue.deliver(NOW_MS)) == 2
    assert len(hall.deliveries()) == 8


def test_a_message_larger_than_a_pass_is_delivered_alone() -> None:
    hall = Hall()
    hall.queue.add_consumer(consumer())
    hall.publish(2, DELIVER_BYTES_MAX + 1)
    assert len(hall.deliveries()) == 2


def test_a_nearly_full_window_is_refilled_soon_not_at_once() -> None:
    hall = Hall()
    taker = consumer(prefetch=8)
    hall.queue.add_consumer(taker)
    hall.publish(100)
    held = [message for _, message in hall.deliveries()]
    hall.queue.settle(taker, held[:1])
    assert (list(hall.wakeups), hall.refills) == ([], [hall.queue])
    hall.queue.settle(taker, held[1:])
    assert list(hall.wakeups) == [hall.queue]
    assert len(hall.deliveries()) == 8


def test_a_closed_outlet_gets_nothing_until_it_opens() -> None:
    hall = Hall()
    stuck, free = consumer("stuck"), consumer("free")
    hall.queue.add_consumer(stuck)
    hall.queue.add_consumer(free)
    stuck.outlet.open = False
    hall.publish(3)
    assert tags(hall.deliveries()) == ["free"] * 3
    hall.queue.remove_consumer(free)
    hall.publish(2)
    assert hall.deliveries() == []
    stuck.outlet.open = True
    hall.queue.room_came(stuck)
    assert tags(hall.deliveries()) == ["stuck"] * 2


def test_a_shared_window_in_the_middle_of_a_deal() -> None:
    """Two consumers of one session may hold three together; the rest stays, in order."""
    hall = Hall()
    shared = SharedWindow()
    shared.limit = 3
    for tag in "ab":
        hall.queue.add_consumer(consumer(tag, shared=shared, holder="one"))
    hall.publish(10)
    assert tags(hall.deliveries()) == ["a", "b", "a"]
    assert hall.queue.backing.tiers.floor_seq_id() == 3
    hall.queue.check()


def test_settling_after_deletion_only_gives_the_window_back() -> None:
    hall = Hall()
    taker = consumer(prefetch=2)
    hall.queue.add_consumer(taker)
    hall.publish(3)
    held = [message for _, message in hall.deliveries()]
    hall.queue.deleted = True
    hall.queue.backing.delete()
    hall.queue.settle(taker, held[:1])
    hall.queue.requeue({taker: held[1:]}, True, WallMs(0))
    assert taker.outstanding == 0
    assert hall.deliveries() == []
    assert hall.queue.backing.ready_count() == 0


def test_the_time_to_live_of_the_queue_is_an_upper_bound() -> None:
    hall = Hall(ttl_ms=100)
    hall.publish(1)
    hall.publish(1, expires_at_ms=NOW_MS + 50)
    hall.publish(1, expires_at_ms=NOW_MS + 500)
    found = hall.queue.backing.reads.read_range(0, 9, 9, 999)
    assert [message.expires_at_ms - NOW_MS for message in found] == [100, 50, 100]


@pytest.mark.parametrize("takers", [1, 2])
def test_what_is_over_its_time_is_not_delivered(takers: int) -> None:
    """Nor when it waits behind a message that lasts, where ``expire`` does not reach it."""
    hall = Hall()
    for expires_at_ms in (0, NOW_MS - 1, 0, NOW_MS - 1, NOW_MS - 1, NOW_MS, NOW_MS + 1):
        hall.publish(1, expires_at_ms=expires_at_ms)
    for number in range(takers):
        hall.queue.add_consumer(consumer(str(number), prefetch=50))
    dealt = hall.deliveries()
    assert sorted(message.seq_id for _, message in dealt) == [0, 2, 5, 6]
    assert hall.queue._limiter.expired_count == 3
    assert hall.queue.unacked_count == 4
    hall.queue.check()


def test_behind_many_that_are_over_their_time_the_next_is_found() -> None:
    hall = Hall()
    hall.publish(1)
    taker = consumer(prefetch=1)
    hall.queue.add_consumer(taker)
    [(_, first)] = hall.deliveries()
    hall.publish(3 * DELIVER_MESSAGES_MAX, expires_at_ms=NOW_MS - 1)
    hall.publish(1)
    hall.queue.settle(taker, [first])
    assert [message.seq_id for _, message in hall.deliveries()] == [3 * DELIVER_MESSAGES_MAX + 1]


def test_an_auto_delete_queue_goes_only_after_somebody_was_there() -> None:
    hall = Hall()
    hall.queue.auto_delete = True
    assert not hall.queue.unused
    taker = consumer()
    hall.queue.add_consumer(taker)
    assert not hall.queue.unused
    hall.queue.remove_consumer(taker)
    assert hall.queue.unused
