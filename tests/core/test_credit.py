"""Credit is conserved, nobody waits for ever, and a lost peer frees its senders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.core.credit import (
    CHANNEL,
    QUEUE,
    READER,
    STORE,
    Credit,
    CreditSpec,
    FlowBook,
    FlowPeer,
    cost_of,
)


def pair(initial: int = 4, more_after: int = 2) -> tuple[FlowBook, FlowPeer, FlowPeer, Credit]:
    book = FlowBook()
    reader, channel = FlowPeer(book, READER, "reader"), FlowPeer(book, CHANNEL, "channel")
    return book, reader, channel, Credit(reader, channel, CreditSpec(initial, more_after))


def test_a_batch_costs_a_credit_a_message_or_a_kibibyte() -> None:
    assert cost_of(1, 10) == 1
    assert cost_of(100, 50 * 1024) == 100
    assert cost_of(2, 2 * 1024 * 1024) == 2048


def test_a_sender_waits_until_enough_is_acknowledged() -> None:
    book, reader, _, credit = pair()
    credit.send(3)
    assert not reader.is_blocked()
    credit.send(3)
    assert reader.is_blocked()
    assert reader.in_flow()
    credit.ack(2)  # two more are granted: the balance is 0
    assert reader.is_blocked()
    credit.ack(1)
    assert reader.is_blocked()
    credit.ack(1)
    assert not reader.is_blocked()
    assert book.take_freed() == [reader]


def test_grants_wait_until_the_receiver_is_free_itself() -> None:
    book, reader, channel, credit = pair()
    queue = FlowPeer(book, QUEUE, "queue")
    down = Credit(channel, queue, CreditSpec(4, 2))
    credit.send(4)
    down.send(4)
    credit.ack(4)
    assert reader.is_blocked()
    down.ack(2)
    assert not channel.is_blocked()
    assert not reader.is_blocked()
    assert credit.balance == 4


def test_what_is_kept_is_acknowledged_at_once() -> None:
    _, reader, channel, credit = pair()
    channel.keep(credit, 3)
    channel.keep(credit, 3)
    assert reader.is_blocked()
    channel.release()
    assert not reader.is_blocked()
    assert credit.in_hand == 0


def test_a_lost_receiver_frees_its_senders() -> None:
    _, reader, channel, credit = pair()
    channel.keep(credit, 9)
    channel.lost()
    assert not reader.is_blocked()
    assert credit.closed
    credit.ack(9)  # late, and harmless
    assert not reader.is_blocked()


def test_who_keeps_a_log_is_told_for_how_long_each_waited_for_whom() -> None:
    book, reader, channel, credit = pair()
    book.noting = True
    book.tick(1000)
    credit.send(4)
    book.tick(1300)
    (wait,) = book.take_waits()
    assert (wait.waiter, wait.receiver, wait.blocked_ms) == (reader, channel, 300)
    book.tick(1350)
    credit.ack(4)
    book.tick(9000)
    (wait,) = book.take_waits()  # what went on is told in parts, what is over once
    assert wait.blocked_ms == 50
    assert book.take_waits() == []
    assert book.noted == []


def test_a_channel_that_waits_for_the_queues_work_is_told_too() -> None:
    book, reader, _, _ = pair()
    works = FlowPeer(book, QUEUE, None)
    works.why = "work"
    book.tick(1000)
    reader.waited_for(works, 900)
    assert book.take_waits() == []  # nobody keeps a log
    book.noting = True
    reader.waited_for(works, 900)
    reader.waited_for(works, 990)
    (wait,) = book.take_waits()
    assert (wait.receiver, wait.why, wait.blocked_ms) == (works, "work", 110)
    assert book.take_waits() == []


def test_a_wait_that_ends_with_the_receiver_is_told() -> None:
    book, _, channel, credit = pair()
    book.noting = True
    book.tick(1000)
    credit.send(4)
    book.tick(1700)
    channel.lost()
    (wait,) = book.take_waits()
    assert wait.blocked_ms == 700
    assert book.noted == []


def test_one_of_two_receivers_is_enough_to_block() -> None:
    book, reader, _, first = pair()
    second = Credit(reader, FlowPeer(book, CHANNEL, "other"), CreditSpec(4, 2))
    first.send(4)
    second.send(4)
    first.ack(4)
    assert reader.is_blocked()
    second.ack(4)
    assert not reader.is_blocked()


def test_flow_is_seen_for_a_second_more_and_told_for_ten() -> None:
    book, reader, _, credit = pair()
    book.tick(5_000)
    credit.send(4)
    book.now_ms = 5_400
    credit.ack(4)
    book.tick(6_300)
    assert reader.in_flow()
    assert (reader.flow_s, reader.share()) == (1, 0.1)
    book.tick(7_400)
    assert not reader.in_flow()
    for second in range(8, 18):
        book.tick(second * 1000 + 400)
    assert reader.share() == 0
    assert book.flowing == []


def test_more_may_not_be_granted_than_there_was() -> None:
    with pytest.raises(AssertionError):
        CreditSpec(2, 3)


class Chain(RuleBasedStateMachine):
    """Readers, channels, queues and a store, any of them wired to any of the next kind."""

    def __init__(self) -> None:
        super().__init__()
        self.book = FlowBook()
        self.stages: dict[int, list[FlowPeer]] = {}
        self.credits: list[Credit] = []

    @initialize(
        sizes=st.tuples(*(st.integers(1, 3) for _ in range(4))),
        initial=st.integers(1, 9),
        more_after=st.integers(1, 9),
    )
    def wire(self, sizes: tuple[int, ...], initial: int, more_after: int) -> None:
        spec = CreditSpec(max(initial, more_after), min(initial, more_after))
        for kind in (READER, CHANNEL, QUEUE, STORE):
            self.stages[kind] = [FlowPeer(self.book, kind, "") for _ in range(sizes[kind])]
        for kind in (READER, CHANNEL, QUEUE):
            for sender in self.stages[kind]:
                for receiver in self.stages[kind + 1]:
                    self.credits.append(Credit(sender, receiver, spec))

    def open_credits(self) -> list[Credit]:
        return [credit for credit in self.credits if not credit.closed]

    @precondition(lambda self: self.open_credits())
    @rule(data=st.data(), cost=st.integers(1, 12))
    def send(self, data: Any, cost: int) -> None:
        data.draw(st.sampled_from(self.open_credits())).send(cost)

    @precondition(lambda self: self.open_credits())
    @rule(data=st.data(), cost=st.integers(1, 12))
    def keep(self, data: Any, cost: int) -> None:
        credit = data.draw(st.sampled_from(self.open_credits()))
        credit.receiver.keep(credit, cost)

    @precondition(lambda self: self.open_credits())
    @rule(data=st.data())
    def ack(self, data: Any) -> None:
        credit = data.draw(st.sampled_from(self.open_credits()))
        free = credit.in_hand - credit.kept
        if free > 0:
            credit.ack(data.draw(st.integers(1, free)))

    @rule(data=st.data(), kind=st.sampled_from((CHANNEL, QUEUE, STORE)))
    def release(self, data: Any, kind: int) -> None:
        data.draw(st.sampled_from(self.stages[kind])).release()

    @rule(data=st.data(), kind=st.sampled_from((READER, CHANNEL, QUEUE, STORE)))
    def lose(self, data: Any, kind: int) -> None:
        if len(self.stages[kind]) == 1:
            return
        stage = data.draw(st.sampled_from(self.stages[kind]))
        self.stages[kind].remove(stage)
        for credit in self.credits:
            if credit.sender is stage:
                credit.close()
        stage.lost()
        assert not stage.is_blocked()

    @invariant()
    def whole(self) -> None:
        for stages in self.stages.values():
            for stage in stages:
                stage.check()
        for credit in self.open_credits():
            credit.check()

    def teardown(self) -> None:
        """When everybody has done what he has in hand, nobody is blocked."""
        for kind in (STORE, QUEUE, CHANNEL):
            for stage in self.stages.get(kind, []):
                stage.release()
                for credit in self.open_credits():
                    if credit.receiver is stage and credit.in_hand > 0:
                        credit.ack(credit.in_hand)
        for stages in self.stages.values():
            for stage in stages:
                assert not stage.is_blocked(), "deadlock"


TestChain = Chain.TestCase
