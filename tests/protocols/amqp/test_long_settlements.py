"""Very many deliveries that one event settles are settled in shares, over turns of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.long_work import AT_ONCE, DELIVERY_STEPS
from penstock.core.steps import steps
from penstock.core.turn_share import TurnShare
from penstock.queues.limits import QueueLimits
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker

COUNT = 6000
STEPS = 4000
AT_MOST = STEPS // DELIVERY_STEPS + 2 * AT_ONCE
"""In one turn, with what it takes to find that the share is used up."""


def opened(arguments: dict[str, Any], durable: bool = False) -> tuple[QuietBroker, ClientEnd, Any]:
    """A consumer with ``COUNT`` open deliveries, and its queue."""
    node = QuietBroker()
    node.broker.queue_turns.long_works._share = TurnShare(STEPS, STEPS)  # a small one
    publisher = node.client()
    publisher.call("queue.declare", queue="q", durable=durable, arguments=arguments)
    for number in range(COUNT // 1000):
        some = range(number * 1000, number * 1000 + 1000)
        publisher.send(b"".join(publish(one) for one in some))
    end = node.client()
    end.call("basic.qos", prefetch_count=60_000)
    first = {"x-stream-offset": "first"} if "stream" in arguments.values() else {}
    end.consume("q", arguments=first)
    queue = node.broker.vhosts["/"].queues["q"]
    assert queue.unacked_count == COUNT
    end.received = b""
    return node, end, queue


def publish(number: int) -> bytes:
    method = codec.method_frame(1, "basic.publish", exchange="", routing_key="q")
    return method + codec.content_frames(1, b"%d" % number, {"delivery_mode": 2})


def method(name: str, channel: int = 1, **fields: Any) -> Callable[[ClientEnd], None]:
    return lambda end: end.send(codec.method_frame(channel, name, **fields), run=False)


def lose(end: ClientEnd) -> None:
    end.lost = True
    end.session.lost(end.node.now_ms)


WAYS: dict[str, Callable[[ClientEnd], None]] = {
    "ack": method("basic.ack", delivery_tag=0, multiple=True),
    "nack": method("basic.nack", delivery_tag=COUNT, multiple=True, requeue=True),
    "reject": method("basic.nack", delivery_tag=0, multiple=True, requeue=False),
    "recover": method("basic.recover", requeue=True),
    "channel.close": method("channel.close"),
    "channel error": method("queue.declare", queue="none", passive=True),
    "connection error": method("channel.open"),
    "connection.close": method("connection.close", 0),
    "loss": lose,
}


def turn(node: QuietBroker, end: ClientEnd) -> None:
    """One of the loop."""
    node.now_ms += 1
    node.mono_ms += 1
    node.turn.begin(node.now_ms, node.mono_ms)
    node.turn.run(node.now_ms, True)
    if end.session.waiting_head and not end.lost:
        end.session.go_on(node.now_ms)
        node.turn.fed(end.session)
    node.flush()


@pytest.mark.parametrize(
    "way, kind",
    [*((way, "") for way in WAYS), ("ack", "stream"), ("loss", "stream"), ("nack", "quorum")],
)
def test_no_turn_settles_them_all(way: str, kind: str) -> None:
    node, end, queue = opened({"x-queue-type": kind} if kind else {}, durable=kind != "")
    queue.set_paused(True)  # else what comes back leaves again
    before = queue.unacked_count
    WAYS[way](end)
    turns = 0
    while before > 0:
        assert 0 < before - queue.unacked_count <= AT_MOST
        before = queue.unacked_count
        turn(node, end)
        turns += 1
    assert turns > 1
    node.run()
    if kind != "stream":
        assert queue.backing.ready_count() == (0 if way in ("ack", "reject") else COUNT)
    assert not node.broker.queue_turns.long_works.waiting
    node.check()


def got(end: ClientEnd) -> list[tuple[int, bool]]:
    """The bodies of its deliveries, and whether they were told to be redelivered."""
    told = [fields for name, fields in end.methods() if name == "basic.deliver"]
    return [(int(fields["body"]), bool(fields["redelivered"])) for fields in told]


@pytest.mark.parametrize("way", ["nack", "channel.close", "connection.close", "loss"])
def test_all_are_back_before_the_first_is_delivered_again(way: str) -> None:
    node, end, _ = opened({})
    other = node.client()
    other.call("basic.qos", prefetch_count=20)
    other.send(b"".join(publish(COUNT + number) for number in range(20)), run=False)
    WAYS[way](end)
    other.consume("q", tag="other")
    node.run()
    step = 2 if way == "nack" else 1  # two consumers get them in turn
    delivered = got(other)
    first = delivered[0][0]
    assert first < step
    assert delivered == [(first + step * number, True) for number in range(20)]
    node.check()


def test_a_get_waits_until_all_are_back() -> None:
    node, end, _ = opened({})
    other = node.client()
    other.send(publish(COUNT))
    lose(end)
    other.method(1, "basic.get", queue="q", no_ack=True)
    ((name, fields),) = other.methods()
    assert name == "basic.get-ok"
    assert (fields["body"], fields["redelivered"]) == (b"0", True)


def test_what_was_acknowledged_does_not_come_back_when_the_line_breaks_at_once() -> None:
    node, end, queue = opened({}, durable=True)
    WAYS["ack"](end)
    assert queue.unacked_count > 0
    end.drop()
    assert queue.unacked_count == 0
    assert queue.backing.ready_count() == 0
    node.check()


def test_requests_behind_the_settlement_wait_for_it() -> None:
    node, end, queue = opened({})
    recover = codec.method_frame(1, "basic.recover", requeue=True)
    declare = codec.method_frame(1, "queue.declare", queue="q", passive=True)
    queue.set_paused(True)
    end.send(recover + declare, run=False)
    assert not end.frames()
    node.run()
    assert [name for name, _ in end.methods()] == ["basic.recover-ok", "queue.declare-ok"]
    assert queue.backing.ready_count() == COUNT


def test_the_number_of_a_channel_is_free_when_its_deliveries_are_back() -> None:
    node, end, queue = opened({})
    queue.set_paused(True)
    WAYS["channel error"](end)
    assert [name for name, _ in _flushed(end)] == ["channel.close"]
    close_ok = codec.method_frame(1, "channel.close-ok")
    reopen = codec.method_frame(1, "channel.open")
    end.send(close_ok + reopen, run=False)
    assert queue.unacked_count > 0
    assert not _flushed(end)
    node.run()
    assert [name for name, _ in end.methods()] == ["channel.open-ok"]
    assert queue.backing.ready_count() == COUNT
    assert end.session.link.consumer_count == 0


def _flushed(end: ClientEnd) -> list[tuple[str, dict[str, Any]]]:
    end.flush()
    return end.methods()


def test_a_connection_counts_until_nothing_is_left_of_it() -> None:
    node, end, queue = opened({})
    end.call("queue.declare", queue="mine", exclusive=True)
    user = end.session.user
    assert user is not None
    assert (user.connection_count, user.channel_count) == (2, 2)
    lose(end)
    assert (user.connection_count, user.channel_count) == (2, 2)
    assert not end.session.channels
    ram = node.engine.ram
    assert ram.ending_bytes == 16 * COUNT  # the messages are counted by their queue
    node.run()
    assert ram.ending_bytes == 0
    assert (user.connection_count, user.channel_count) == (1, 1)
    assert "mine" not in node.broker.vhosts["/"].queues
    assert queue.backing.ready_count() == COUNT


def test_connection_close_ok_says_that_everything_is_back() -> None:
    node, end, queue = opened({})
    WAYS["connection.close"](end)
    assert not _flushed(end)
    assert queue.unacked_count > 0
    node.run()
    assert [name for name, _ in end.methods()] == ["connection.close-ok"]
    assert end.session.closed
    assert queue.unacked_count == 0


def test_the_end_of_a_queue_while_it_gets_messages_back() -> None:
    node, end, queue = opened({})
    lose(end)
    node.client().call("queue.delete", queue="q")
    node.run()
    assert queue.unacked_count == 0
    node.check()


def test_a_broker_that_stops_finishes_what_is_left() -> None:
    node, end, queue = opened({}, durable=True)
    WAYS["ack"](end)
    assert queue.unacked_count > 0
    node.broker.queue_turns.long_works.finish()
    assert queue.unacked_count == 0
    node.check()


def test_consumers_and_exclusive_queues_of_a_connection_leave_in_shares() -> None:
    node = QuietBroker()
    node.broker.queue_turns.long_works._share = TurnShare(STEPS, STEPS)
    end = node.client()
    for number in range(20):
        end.call("queue.declare", queue=f"q{number}", exclusive=True)
    for number in range(200):
        end.consume("q0", tag=f"c{number}")
    queues = node.broker.vhosts["/"].queues
    lose(end)
    assert len(queues) == 20
    assert len(queues["q0"].consumers) > 0
    node.run()
    assert not queues
    assert end.session.link.consumer_count == 0


def test_the_consumers_of_a_deleted_queue_are_cancelled_in_shares() -> None:
    node = QuietBroker()
    node.broker.queue_turns.long_works._share = TurnShare(STEPS, STEPS)
    end = node.client()
    for name in ("q", "other"):
        end.call("queue.declare", queue=name)
    for number in range(3000):
        end.send(codec.method_frame(1, "basic.consume", queue="q", consumer_tag=f"c{number}"))
    end.received = b""
    end.send(codec.method_frame(1, "queue.delete", queue="q"), run=False)
    end.flush()
    assert 0 < end.session.link.consumer_count < 3000
    # A tag that is free again belongs to another consumer, which is not cancelled.
    cancel = codec.method_frame(1, "basic.cancel", consumer_tag="c2999", nowait=True)
    anew = codec.method_frame(1, "basic.consume", queue="other", consumer_tag="c2999")
    end.send(cancel + anew, run=False)
    node.run()
    said = [(name, fields.get("consumer_tag")) for name, fields in end.methods()]
    assert [tag for name, tag in said if name == "basic.cancel"] == [f"c{n}" for n in range(2999)]
    assert ("basic.consume-ok", "c2999") in said
    assert end.session.link.consumer_count == 1


@pytest.mark.parametrize("priorities", [False, True])
def test_a_purge_is_answered_when_the_last_share_is_gone(priorities: bool) -> None:
    node, end, queue = opened({"x-max-priority": 2} if priorities else {})
    queue.set_paused(True)
    WAYS["nack"](end)
    node.run()
    before = queue.backing.ready_count()
    assert before == COUNT
    other = node.client()
    other.send(codec.method_frame(1, "queue.purge", queue="q"), run=False)
    turns = 0
    while before > 0:
        assert 0 < before - queue.backing.ready_count() <= AT_MOST
        before = queue.backing.ready_count()
        turn(node, other)
        turns += 1
    assert turns > 1
    node.run()
    (answer,) = other.frames()
    assert answer.payload[4:] == COUNT.to_bytes(4, "big")
    queue.set_paused(False)
    end.received = b""
    other.send(publish(7))
    assert got(end) == [(7, False)]
    node.check()


def test_a_new_limit_drops_what_is_over_it_in_shares() -> None:
    node, end, queue = opened({})
    queue.set_paused(True)
    WAYS["nack"](end)
    node.run()
    queue.set_limits(QueueLimits(max_length=1))
    queue.wake()
    before = COUNT
    while before > 1:
        turn(node, end)
        assert 0 < before - queue.backing.ready_count() <= AT_MOST
        before = queue.backing.ready_count()
    node.run()
    assert queue.backing.ready_count() == 1
    assert queue.dropped_count() == COUNT - 1
    node.check()


def test_a_transaction_looks_at_each_delivery_once() -> None:
    """Of 10,000 deliveries each such acknowledgement looked at all, and a read has 12,000."""
    node, end, queue = opened({})
    end.call("tx.select")
    ack = codec.method_frame(1, "basic.ack", delivery_tag=0, multiple=True)
    before = steps.taken
    end.send(ack * 1000, run=False)
    assert steps.taken - before < 10 * COUNT
    end.call("tx.rollback")
    end.send(ack)
    end.call("tx.commit")
    assert queue.unacked_count == 0
    node.check()


SAID: dict[str, Callable[[int], bytes]] = {
    "ack all": lambda _: codec.method_frame(1, "basic.ack", delivery_tag=0, multiple=True),
    "nack all": lambda _: codec.method_frame(1, "basic.nack", multiple=True, requeue=True),
    "ack each": lambda n: codec.method_frame(1, "basic.ack", delivery_tag=n + 1),
    "ack and nack": lambda n: (
        codec.method_frame(1, "basic.nack", delivery_tag=n + 1, requeue=True)
        if n % 2
        else codec.method_frame(1, "basic.ack", delivery_tag=n + 1)
    ),
}


def judged(said: str, count: int = COUNT) -> tuple[QuietBroker, ClientEnd, Any]:
    """A transaction that has judged so many of the open deliveries."""
    node, end, queue = opened({}, durable=True)
    queue.set_paused(True)
    end.call("tx.select")
    end.send(b"".join(SAID[said](number) for number in range(1 if "all" in said else count)))
    assert queue.unacked_count == COUNT
    assert end.session.channels[1].transaction.judged_count() == count
    return node, end, queue


@pytest.mark.parametrize("said", SAID)
def test_a_commit_settles_in_shares_and_is_answered_behind_the_last(said: str) -> None:
    node, end, queue = judged(said)
    before = queue.unacked_count
    end.send(codec.method_frame(1, "tx.commit"), run=False)
    turns = 0
    while before > 0:
        end.flush()
        assert not end.received or queue.unacked_count == 0
        assert 0 < before - queue.unacked_count <= AT_MOST
        before = queue.unacked_count
        turn(node, end)
        turns += 1
    assert turns > 1
    node.run()
    assert [name for name, _ in end.methods()] == ["tx.commit-ok"]
    back = {"nack all": COUNT, "ack and nack": COUNT // 2}
    assert queue.backing.ready_count() == back.get(said, 0)
    end.session.channels[1].transaction.check()
    node.check()


def test_a_commit_of_few_deliveries_is_one_share_whatever_else_there_is_to_do() -> None:
    """So that it is one block of the journal, and a crash leaves all of it or nothing."""
    node, end, queue = judged("ack and nack", AT_ONCE)
    works = node.broker.queue_turns.long_works
    share, works._share = works._share, TurnShare(0, 0)  # others have had it
    end.send(codec.method_frame(1, "tx.commit"), run=False)
    assert queue.unacked_count == COUNT
    works._share = share
    turn(node, end)
    assert queue.unacked_count == COUNT - AT_ONCE


def test_what_a_commit_has_begun_goes_on_when_the_line_breaks() -> None:
    node, end, queue = judged("ack each")
    end.send(codec.method_frame(1, "tx.commit"), run=False)
    assert 0 < queue.unacked_count < COUNT
    end.drop()
    assert (queue.unacked_count, queue.backing.ready_count()) == (0, 0)
    node.check()


@pytest.mark.parametrize("said", SAID)
def test_a_rollback_forgets_in_shares(said: str) -> None:
    node, end, queue = judged(said)
    before = steps.taken
    end.send(codec.method_frame(1, "tx.rollback"), run=False)
    assert steps.taken - before < STEPS + 6 * AT_ONCE, "one share of it"
    node.run()
    assert [name for name, _ in end.methods()] == ["tx.rollback-ok"]
    transaction = end.session.channels[1].transaction
    assert transaction.judged_count() == 0
    transaction.check()
    end.send(SAID["ack all"](0))
    end.call("tx.commit")
    assert queue.unacked_count == 0


@pytest.mark.parametrize("end_of_it", ["tx.commit", "tx.rollback", "loss"])
def test_what_a_transaction_holds_is_published_or_freed_in_shares(end_of_it: str) -> None:
    node = QuietBroker()
    node.broker.queue_turns.long_works._share = TurnShare(STEPS, STEPS)
    end = node.client()
    end.call("queue.declare", queue="q")
    end.call("tx.select")
    for _ in range(12):
        end.send(publish(1) * 1000)
    end.received = b""
    channel = end.session.channels[1]
    assert channel.publishing.held_count == 12_000
    queue = node.broker.vhosts["/"].queues["q"]
    if end_of_it == "loss":
        lose(end)
    else:
        end.send(codec.method_frame(1, end_of_it), run=False)
    before, turns = 0, 0
    while node.turn.has_work() or end.session.waiting_head:
        assert queue.backing.ready_count() - before <= 6000
        before = queue.backing.ready_count()
        turn(node, end)
        turns += 1
    assert turns > 1
    node.run()
    assert queue.backing.ready_count() == (12_000 if end_of_it == "tx.commit" else 0)
    assert channel.publishing.held_count == 0
    assert node.engine.ram.uncommitted_bytes == 0
    answer = [] if end_of_it == "loss" else [end_of_it + "-ok"]
    assert [name for name, _ in end.methods()] == answer
    node.check()


def test_a_recover_in_a_transaction_spares_what_is_judged() -> None:
    node, end, queue = judged("ack each", 2000)
    end.send(codec.method_frame(1, "basic.recover", requeue=True), run=False)
    assert COUNT - AT_MOST <= queue.unacked_count < COUNT
    node.run()
    assert queue.unacked_count == 2000
    end.received = b""
    end.call("tx.commit")
    assert (queue.unacked_count, queue.backing.ready_count()) == (0, COUNT - 2000)
    node.check()


def test_a_deleted_queue_is_freed_in_shares() -> None:
    node, end, queue = opened({})
    queue.set_paused(True)
    WAYS["nack"](end)
    node.run()
    end.method(1, "queue.delete", queue="q")
    node.run()
    assert node.engine.ram.queued_bytes == 0
    assert not node.broker.queue_turns.long_works.waiting


def test_a_read_ends_while_its_consumer_gives_back_in_shares() -> None:
    node, end, queue = opened({"x-queue-type": "stream"}, durable=True)
    lose(end)
    [consumer] = queue.consumers
    queue._reading[consumer] = None
    queue.disk_came()
    queue._reading[consumer] = None
    while queue.consumers:
        turn(node, end)
    queue.disk_came()
    assert not queue._reading
