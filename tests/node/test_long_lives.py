"""What must neither grow nor hang over a long life: each of these once did."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from penstock.broker.rules.confirms import ConfirmLedger
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.message import Message
from penstock.protocols.amqp.codec.ledger import ALL_OPEN, SPARSE_MIN, DeliveryLedger
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.session import OPEN_TIMEOUT_MS, RangeSession
from penstock_ranges import frames as range_frames
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.range_grace import LEASE_GRACE_MS


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def queue_of(node: QuietBroker, name: str) -> Any:
    return node.broker.vhosts["/"].queues[name]


def test_one_open_delivery_does_not_keep_a_place_for_each_that_came_after() -> None:
    ledger: Any = DeliveryLedger()
    first = ledger.add("old", [Message(b"", b"", 0, 1)])
    for number in range(10 * SPARSE_MIN):
        tag = ledger.add("new", [Message(b"", b"", 0, number)])
        settled, unknown = ledger.take(tag, tag)
        assert unknown == ALL_OPEN
        assert len(settled) == 1
    ledger.skip(5)
    ledger.check()
    assert len(ledger._messages) <= SPARSE_MIN
    assert ledger.is_open(first)
    assert not ledger.is_open(first + 1)
    last = ledger.add("new", [Message(b"", b"", 0, 7)])
    held = ledger.take_through(last)
    assert [(one.holder, [m.expires_at_ms for m in one.messages]) for one in held] == [
        ("old", [1]),
        ("new", [7]),
    ]
    ledger.check()
    assert ledger.open_count == 0


def test_a_tag_set_aside_is_settled_once() -> None:
    ledger: Any = DeliveryLedger()
    first = ledger.add("old", [Message(b"", b"", 0, 1)])
    for _ in range(2 * SPARSE_MIN):
        tag = ledger.add("new", [Message(b"", b"", 0, 0)])
        ledger.take(tag, tag)
    assert ledger.take(first, first)[1] == ALL_OPEN
    assert ledger.take(first, first)[1] == first
    ledger.check()


def test_a_publisher_that_never_pauses_leaves_no_list_behind() -> None:
    ledger: Any = ConfirmLedger()
    for number in range(1, 20_000):
        ledger.published(1, 10 * number, 0, WallMs(0))
        ledger.advance(10 * (number - 1), WallMs(0))
        ledger.take()
    assert ledger.waiting()
    assert len(ledger._numbers) < 5_000
    ledger.advance(10 * 20_000, WallMs(0))
    assert ledger.take() == 1


def test_mixed_times_to_live_leave_one_entry_in_the_schedule(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    for turn in range(300):
        client.publish("", "q", expiration=str(60_000 - 100 * turn))
        client.method(1, "basic.get", queue="q", no_ack=True)
        client.publish("", "q", expiration="1")
        node.tick(50)
    schedule: Any = node.broker.queue_turns.schedule
    assert len(schedule.entries) < 320  # one for each head that was earlier than those before it
    node.tick(100_000)
    assert queue_of(node, "q").backing.ready_count() == 0
    node.tick(100_000)
    assert len(schedule.entries) == 0


def test_a_reader_of_ranges_keeps_an_expiring_queue_alive(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments={"x-expires": 1000})
    queue = queue_of(node, "q")
    token = queue.ranges.open()
    for _ in range(5):
        node.tick(900)
    assert not queue.deleted
    queue.ranges.close(token)
    node.tick(900)
    assert not queue.deleted
    node.tick(1100)
    assert queue.deleted


def test_a_long_chain_of_auto_delete_exchanges_goes(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    names = [f"x{number}" for number in range(5000)]
    for name in names:
        vhost.declare_exchange(name, "fanout", False, True, False, {})
    for source, destination in pairwise(names):
        vhost.bind_exchange(destination, source, "", {})
    vhost.delete_exchange(names[-1], False)
    node.run()
    assert not set(names) & set(vhost.exchanges)


def test_with_no_time_to_live_a_consumer_with_room_gets_everything(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", arguments={"x-message-ttl": 0})
    client.consume("q", no_ack=True)
    client.method(1, "basic.qos", prefetch_count=0)
    client.methods()
    publisher = node.client()
    for _ in range(300):
        publisher.publish("", "q", b"x" * 1500, run=False)
    node.run()
    assert len([name for name, _ in client.methods() if name == "basic.deliver"]) == 300
    assert queue_of(node, "q")._limiter.expired_count == 0
    node.check()


def test_a_get_schedules_the_next_head(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    client.publish("", "q", b"lasting")
    client.publish("", "q", b"short", expiration="1000")
    client.method(1, "basic.get", queue="q", no_ack=True)
    node.tick(2000)
    assert queue_of(node, "q").backing.ready_count() == 0


@pytest.mark.parametrize("tag", [2**63, 2**64 - 1])
@pytest.mark.parametrize("method", ["basic.ack", "basic.nack", "basic.reject"])
def test_a_tag_beyond_all_tags_is_unknown(node: QuietBroker, method: str, tag: int) -> None:
    client = node.client()
    client.received = b""
    requeue = {} if method == "basic.ack" else {"requeue": True}
    client.method(1, method, delivery_tag=tag, **requeue)
    name, fields = client.methods()[-1]
    assert name == "channel.close"
    assert fields["code"] == 406
    assert fields["text"].endswith(f"unknown delivery tag {tag}")
    node.check()


def test_the_set_back_clock_stops_neither_syncs_nor_refills(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.publish("", "q", delivery_mode=2)
    node.tick(1000)
    node.now_ms -= 3_600_000
    client.publish("", "q", delivery_mode=2)
    node.run()
    assert node.engine.journal.durable_position == node.engine.journal.position


def test_a_peer_that_takes_nothing_is_given_up(node: QuietBroker) -> None:
    """Its heartbeats are missed while our bytes wait: there is nobody to be polite to."""
    client = node.connect()
    client.open(heartbeat=1)
    client.blocked = True
    for _ in range(20):
        node.tick(250)
    assert client.session.abandoned


def test_a_peer_that_is_slow_but_takes_bytes_stays(node: QuietBroker) -> None:
    client = node.connect()
    client.open(heartbeat=1)
    session = client.session
    session.note_reading(False, True)  # the loop does not read it while so much waits for it
    for _ in range(20):
        session.sent(1, node.now_ms)
        node.tick(250)
    assert not session.abandoned
    node.reports.clear()


def test_an_output_buffer_that_grew_is_renewed_everywhere(node: QuietBroker) -> None:
    client = node.client()
    session = client.session
    session.renew_output()
    assert client.call("queue.declare", queue="q")["queue"] == "q"


def test_a_range_reader_that_never_opens_is_sent_away(node: QuietBroker) -> None:
    session = RangeSession(
        node.broker,
        RangeLeases(LEASE_GRACE_MS, node.broker.letting_go, node.broker.idleness),
        ("127.0.0.1", True),
        WallMs(node.now_ms),
    )
    session.receive(range_frames.MAGIC, node.now_ms)
    for hours in (1, -1):  # the wall clock may be set meanwhile
        session.tick(node.now_ms + hours * 3_600_000)
    node.broker.idleness.set_now(MonoMs(node.mono_ms + OPEN_TIMEOUT_MS))
    session.tick(node.now_ms)
    assert not session.closed
    node.broker.idleness.set_now(MonoMs(node.mono_ms + OPEN_TIMEOUT_MS + 1))
    session.tick(node.now_ms)
    assert session.closed


def test_a_waiting_range_reader_that_is_lost_waits_no_more(node: QuietBroker) -> None:
    session: Any = RangeSession(
        node.broker,
        RangeLeases(LEASE_GRACE_MS, node.broker.letting_go, node.broker.idleness),
        ("127.0.0.1", True),
        WallMs(node.now_ms),
    )
    session._at._wait = (0, node.now_ms + 1000)
    assert session.has_waiters
    session.lost(node.now_ms)
    assert not session.has_waiters


def test_requeueing_a_batch_costs_no_sort_of_all_that_came_back(node: QuietBroker) -> None:
    """Order is what matters here; the cost is judged by benchmarks."""
    client = node.client()
    client.call("queue.declare", queue="q")
    for number in range(600):
        client.publish("", "q", b"%d" % number, run=False)
    node.run()
    queue = queue_of(node, "q")
    taken = queue.backing.fetch(600, 1 << 30)
    queue.backing.requeue(taken[200:])
    queue.backing.requeue(taken[:100])  # before all of them
    again = queue.backing.fetch(50, 1 << 30)
    queue.backing.requeue(taken[100:200])  # between
    queue.backing.requeue(again)
    assert [message.seq_id for message in queue.backing.fetch(600, 1 << 30)] == list(range(600))
