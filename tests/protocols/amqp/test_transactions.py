"""Transactions: what is noted, what is given back, and when commit-ok may be said."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.core.capacity import MemoryLimit
from penstock.core.message import Message
from penstock.protocols.amqp.codec.ledger import DeliveryLedger
from penstock.protocols.amqp.settlements import ACK, REJECT, REQUEUE
from penstock.protocols.amqp.transaction import Transaction
from tests.helpers.connection_pair import ClientEnd, QuietBroker

KINDS = st.sampled_from([ACK, REJECT, REQUEUE])


class TransactionMachine(RuleBasedStateMachine):
    """Against two dictionaries: what is open, and what was said of it in which order."""

    @initialize()
    def begin(self) -> None:
        self.ledger = DeliveryLedger()
        self.transaction = Transaction(self.ledger)
        self.open: set[int] = set()
        self.said: dict[int, int] = {}
        self.committed: list[tuple[int, dict[int, int]]] = []
        self.position = 0

    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        first = self.ledger.add("h", [Message(b"", b"", 0, 0) for _ in range(count)])
        self.open.update(range(first, first + count))

    @rule(kind=KINDS, first=st.integers(0, 30), length=st.integers(1, 4))
    def say(self, kind: int, first: int, length: int) -> None:
        tag = first
        while tag < first + length and tag in self.open - self.noted():
            self.said[tag] = kind
            tag += 1
        assert self.transaction.note(kind, first, first + length - 1) == tag

    @rule(kind=KINDS, last=st.integers(0, 30))
    def say_through(self, kind: int, last: int) -> None:
        for tag in sorted(self.open):
            if tag <= last and tag not in self.noted():
                self.said[tag] = kind
        self.transaction.note_through(kind, last)
        self.finish()

    def finish(self) -> None:
        while self.transaction.step():
            pass

    @rule()
    def recover(self) -> None:
        verdict = self.transaction.spare_judged(REQUEUE)
        while not verdict.is_over():
            verdict.take(self.ledger, 2)
        self.open &= self.noted()

    @rule()
    def roll_back(self) -> None:
        self.transaction.roll_back()
        self.finish()
        self.said = {}

    @rule(publishes=st.booleans())
    def commit(self, publishes: bool) -> None:
        """Safe at the journal's next position, or at once."""
        self.position += 1
        position = self.position if publishes else 0
        self.transaction.commit(position, [])
        self.committed.append((position, self.said))
        self.said = {}

    @rule(behind=st.integers(0, 2), at_most=st.integers(1, 4))
    def sync(self, behind: int, at_most: int) -> None:
        durable = self.position - behind
        told = []
        while (commit := self.transaction.take_safe(durable)) is not None:
            for verdict in commit.verdicts:
                while not verdict.is_over():
                    was = self.ledger.open_tags(30 * 5)
                    verdict.take(self.ledger, at_most)
                    left = self.ledger.open_tags(30 * 5)
                    told += [(tag, verdict.kind) for tag in was if tag not in left]
        safe: list[tuple[int, int]] = []
        while self.committed and self.committed[0][0] <= durable:
            safe += self.committed.pop(0)[1].items()
        assert told == safe
        self.open -= {tag for tag, _ in safe}

    def noted(self) -> set[int]:
        return set(self.said).union(*(said for _, said in self.committed))

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "transaction"):
            self.transaction.check()
            unsaid = [tag for tag in range(30 * 5) if self.transaction.is_open(tag)]
            assert unsaid == sorted(self.open - self.noted())
            assert self.transaction.judged_count() == len(self.said)


TransactionMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=30, deadline=None
)
TestTransaction = TransactionMachine.TestCase


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def names(client: ClientEnd) -> list[str]:
    return [name for name, _ in client.methods()]


def test_commit_ok_waits_for_the_sync(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("tx.select")
    client.publish("", "q", b"one", delivery_mode=2)
    node.committer.hold = True
    client.method(1, "tx.commit")
    assert names(client) == []
    node.committer.finish()
    node.run()
    assert names(client) == ["tx.commit-ok"]
    node.check()


def test_commit_ok_waits_for_the_acknowledgements_too(node: QuietBroker) -> None:
    """Whoever heard it never sees these messages again, whatever happens to the power."""
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.publish("", "q", b"one", delivery_mode=2)
    client.call("tx.select")
    client.consume("q")
    client.method(1, "basic.ack", delivery_tag=1)
    node.committer.hold = True
    client.method(1, "tx.commit")
    assert "tx.commit-ok" not in names(client)
    node.committer.finish()
    node.run()
    assert "tx.commit-ok" in names(client)


def test_what_was_settled_waits_for_the_publishes(node: QuietBroker) -> None:
    """A crash between them brings both; and what the next transaction says comes behind."""
    client = node.client()
    for queue in ("in", "out"):
        client.call("queue.declare", queue=queue, durable=True)
    client.publish("", "in", b"one", delivery_mode=2)
    client.publish("", "in", b"two", delivery_mode=2)
    client.call("tx.select")
    client.consume("in")
    node.committer.hold = True
    client.publish("", "out", b"one", delivery_mode=2)
    client.method(1, "basic.ack", delivery_tag=1)
    client.method(1, "tx.commit")
    client.method(1, "basic.ack", delivery_tag=2)
    client.method(1, "tx.commit")
    (queue,) = [one for one in node.broker.vhosts["/"].queues.values() if one.name == "in"]
    assert queue.unacked_count == 2
    client.method(1, "basic.ack", delivery_tag=1)
    assert "channel.close" in names(client), "it was settled already"
    node.committer.hold = False
    node.committer.finish()
    node.run()
    assert queue.backing.ready_count() == 2, "a channel that fails gives back what is not settled"


def test_commits_are_answered_in_order(node: QuietBroker) -> None:
    client = node.client()
    for queue in ("in", "out"):
        client.call("queue.declare", queue=queue, durable=True)
    client.publish("", "in", b"one", delivery_mode=2)
    client.call("tx.select")
    client.consume("in")
    node.committer.hold = True
    client.publish("", "out", b"one", delivery_mode=2)
    client.method(1, "tx.commit")
    client.method(1, "basic.ack", delivery_tag=1)
    client.method(1, "tx.commit")
    assert "tx.commit-ok" not in names(client)
    node.committer.hold = False
    node.committer.finish()
    node.run()
    assert names(client).count("tx.commit-ok") == 2
    assert not client.session.awaiting_disk
    node.check()


def test_an_exchange_that_went_before_the_commit_undoes_all_of_it(node: QuietBroker) -> None:
    client, other = node.client(), node.client()
    client.call("queue.declare", queue="q")
    client.call("exchange.declare", exchange="x", type="fanout")
    client.call("tx.select")
    client.publish("", "q", b"one")
    client.publish("x", "", b"two")
    other.call("exchange.delete", exchange="x")
    client.method(1, "tx.commit")
    assert names(client) == ["channel.close"]
    assert node.broker.vhosts["/"].queues["q"].backing.ready_count() == 0


def test_a_commit_after_which_nobody_asks_is_still_answered_once(node: QuietBroker) -> None:
    client = node.client()
    client.call("tx.select")
    for _ in range(3):
        client.method(1, "tx.commit")
    assert names(client) == ["tx.commit-ok"] * 3


def test_what_is_not_committed_counts_and_may_not_take_all_memory(node: QuietBroker) -> None:
    """Nothing but a commit frees it, and none could come once publishers are held."""
    client, other = node.client(), node.client()
    client.call("queue.declare", queue="q")
    ram = node.engine.ram
    for publisher in (client, other):
        publisher.call("tx.select")
        publisher.received = b""
    node.broker.admission.alarms.set_memory_limit(MemoryLimit(0.0, 8_000_000))
    client.publish("", "q", b"x" * 1_000_000)
    assert ram.uncommitted_bytes > 1_000_000
    assert ram.used_bytes() > 1_000_000
    client.call("tx.commit")
    assert ram.uncommitted_bytes == 0
    for _ in range(3):
        other.publish("", "q", b"x" * 900_000)
    (refusal,) = other.methods()
    assert refusal[0] == "channel.close"
    assert refusal[1]["code"] == 406
    assert refusal[1]["text"] == (
        "PRECONDITION_FAILED - transactions that are not committed would take more than a quarter"
        " of the 8000000 bytes there are for messages"
    )
    assert ram.uncommitted_bytes == 0
    client.publish("", "q", b"again")
    client.drop()
    assert ram.uncommitted_bytes == 0
