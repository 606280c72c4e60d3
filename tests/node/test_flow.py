"""Who waits for whom: publishes are held, in order; whatever makes room goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker.rules.flow import CROWDED, HELD_OWN_MAX_BYTES, INDEX
from penstock.core.credit import NODE, Credit, CreditSpec, FlowPeer
from penstock.core.errors import SettingInvalid
from penstock.node.broker_settings import make_flow
from penstock.protocols.amqp.codec.events import PublishRun
from penstock.protocols.amqp.link import TOPOLOGY_SHARE
from penstock.protocols.amqp.publish_buffer import SHIFTED_AT_ONCE
from penstock.queues.queue import CROWDED_BYTES
from penstock.settings.settings import load_settings
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker

LARGE = b"x" * 100_000


@pytest.fixture
def node() -> Iterator[QuietBroker]:
    quiet = QuietBroker()
    yield quiet
    quiet.check()
    for stage in quiet.broker.flow.book.flowing:
        stage.check()


def queue_of(node: QuietBroker, name: str = "q"):  # type: ignore[no-untyped-def]
    return node.broker.vhosts["/"].queues[name]


def close_gate(node: QuietBroker) -> None:
    node.worker.stalled = "no space left on device"
    node.run()


def open_gate(node: QuietBroker) -> None:
    node.worker.stalled = ""
    node.run()


def confirms(client: ClientEnd) -> int:
    """Up to which publish everything is confirmed."""
    last = 0
    for name, fields in client.methods():
        assert name == "basic.ack"
        last = max(last, fields["delivery_tag"])
    return last


# -- held for want of room -------------------------------------------------------------------


def test_a_blocked_publisher_still_acknowledges_rejects_and_cancels(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    for number in range(4):
        client.publish("", "q", b"%d" % number)
    client.call("basic.qos", prefetch_count=2)
    client.consume("q")
    assert client.bodies() == [b"0", b"1"]
    close_gate(node)
    client.publish("", "q", b"held")
    assert client.session.held_bytes > 0
    client.method(1, "basic.ack", delivery_tag=1)
    assert client.bodies() == [b"2"]
    client.method(1, "basic.reject", delivery_tag=2, requeue=False)
    assert client.bodies() == [b"3"]
    client.method(1, "basic.nack", delivery_tag=3, requeue=True)
    assert client.bodies() == [b"2"]
    assert client.call("basic.cancel", consumer_tag="c")
    assert queue_of(node).backing.ready_count() == 0
    open_gate(node)
    assert queue_of(node).backing.ready_count() == 1
    assert client.session.held_bytes == 0


def test_what_might_not_overtake_a_publish_waits_behind_it(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    client.method(2, "channel.open")
    client.publish("", "q", b"first")
    close_gate(node)
    client.received = b""
    client.publish("", "q", b"second")
    client.method(1, "queue.purge", queue="q")
    client.publish("", "q", b"third")
    client.method(1, "basic.get", queue="q", no_ack=True)
    client.method(1, "confirm.select")
    client.publish("", "q", b"fourth")
    client.method(1, "channel.close", code=200)
    assert client.methods() == []
    got = client.call("basic.get", channel=2, queue="q", no_ack=True)  # another channel's does not
    assert got["body"] == b"first"
    open_gate(node)
    told = client.methods()
    assert [name for name, _ in told] == [
        "queue.purge-ok",
        "basic.get-ok",
        "confirm.select-ok",
        "basic.ack",
        "channel.close-ok",
    ]
    assert told[0][1]["messages"] == 1
    assert told[1][1]["body"] == b"third"
    assert client.call("basic.get", channel=2, queue="q", no_ack=True)["body"] == b"fourth"


def test_what_waits_behind_the_last_held_publish_is_done_over_several_turns(
    node: QuietBroker,
) -> None:
    client = node.client()
    close_gate(node)
    client.received = b""
    client.publish("", "q", b"held")
    count = TOPOLOGY_SHARE + 20
    for number in range(count):
        client.method(1, "queue.declare", queue=f"q{number}")
    open_gate(node)
    assert [name for name, _ in client.methods()] == ["queue.declare-ok"] * count
    assert client.session.held_bytes == node.broker.flow.held_bytes == 0


def test_a_method_behind_what_is_left_of_held_ones_does_not_overtake(node: QuietBroker) -> None:
    client = node.client()
    close_gate(node)
    client.received = b""
    client.publish("", "q", b"held")
    for number in range(TOPOLOGY_SHARE + 20):
        client.method(1, "queue.declare", queue=f"q{number}")
    node.worker.stalled = ""
    node.turn.blocked_reason()
    client.session.look_at_gate()
    client.session.resume(node.now_ms)  # as far as one turn goes
    assert client.session.waiting_head
    client.method(1, "queue.delete", queue=f"q{TOPOLOGY_SHARE + 19}")
    node.run()
    told = [name for name, _ in client.methods()]
    assert told == ["queue.declare-ok"] * (TOPOLOGY_SHARE + 20) + ["queue.delete-ok"]
    assert f"q{TOPOLOGY_SHARE + 19}" not in node.broker.vhosts["/"].queues


def test_a_connection_closes_behind_what_it_published(node: QuietBroker) -> None:
    client, taker = node.client(), node.client()
    client.call("queue.declare", queue="q")
    close_gate(node)
    client.publish("", "q", b"last words")
    client.received = b""
    client.method(0, "connection.close", code=200)
    assert client.methods() == []
    open_gate(node)
    assert [name for name, _ in client.methods()] == ["connection.close-ok"]
    assert taker.call("basic.get", queue="q", no_ack=True)["body"] == b"last words"


def test_what_a_lost_connection_held_is_dropped(node: QuietBroker) -> None:
    client, taker = node.client(), node.client()
    client.call("queue.declare", queue="q")
    close_gate(node)
    client.publish("", "q", b"never confirmed")
    client.drop()
    assert node.broker.flow.held_bytes == 0
    open_gate(node)
    assert queue_of(node).backing.ready_count() == 0
    assert taker.session.state_name == "running"


def test_a_channel_that_fails_drops_what_it_held(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    close_gate(node)
    client.publish("", "q", b"held")
    client.received = b""
    client.method(1, "basic.ack", delivery_tag=77)
    assert [name for name, _ in client.methods()] == ["channel.close"]
    assert client.session.held_bytes == node.broker.flow.held_bytes == 0


def test_methods_that_wait_behind_a_publish_count_as_held(node: QuietBroker) -> None:
    client = node.client()
    close_gate(node)
    client.publish("", "q", b"held")
    for _ in range(100):
        client.method(1, "queue.declare", queue="q", arguments={"x-note": "x" * 16_384})
    assert not node.broker.flow.may_read_on(client.session.held_bytes)
    client.drop()
    assert node.broker.flow.held_bytes == 0


def test_a_session_that_holds_much_is_not_read(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    close_gate(node)
    flow = node.broker.flow
    while flow.may_read_on(client.session.held_bytes):
        client.publish("", "q", LARGE)
    assert client.session.held_bytes > HELD_OWN_MAX_BYTES
    open_gate(node)
    assert flow.may_read_on(client.session.held_bytes)
    assert flow.held_bytes == 0


def test_what_went_on_is_not_kept(node: QuietBroker) -> None:
    """Under steady load something is always held, for minutes."""
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    node.broker.flow.spec = CreditSpec(1, 1)
    client.method(2, "channel.open")
    intake = client.session.channels[2].intake
    data = b""
    for number in range(3 * SHIFTED_AT_ONCE):
        data += codec.method_frame(2, "basic.publish", exchange="", routing_key=f"none{number % 2}")
        data += codec.content_frames(2, b"m", {})
    client.send(data, run=False)
    while client.session.has_more:
        client.session.go_on(node.now_ms)
    seen = []
    while client.session.held_bytes > 0:
        node.broker.flow.end_turn(node.mono_ms)
        node.turn.begin(node.now_ms, node.mono_ms)
        client.session.resume(node.now_ms)
        seen.append(len(intake._held) - intake._place)
        assert intake._place <= SHIFTED_AT_ONCE
        assert all(isinstance(one, PublishRun) for one in intake._held[intake._place :])
        assert not any(isinstance(one, PublishRun) for one in intake._held[: intake._place])
        if len(seen) == 3:
            break
    assert seen[0] > 2 * SHIFTED_AT_ONCE
    while client.session.held_bytes > 0:
        node.broker.flow.end_turn(node.mono_ms)
        node.turn.begin(node.now_ms, node.mono_ms)
        client.session.resume(node.now_ms)
        assert len(intake._held) <= 3 * SHIFTED_AT_ONCE
    assert intake._held == []


# -- credit ----------------------------------------------------------------------------------


def test_one_turn_takes_no_more_than_the_channels_credit(node: QuietBroker) -> None:
    """What differs from message to message is handed over until the credit is used up."""
    node.broker.flow.spec = CreditSpec(10, 5)
    client = node.client()
    data = b""
    for number in range(25):
        client.call("queue.declare", queue=f"q{number}")
        data += codec.method_frame(1, "basic.publish", exchange="", routing_key=f"q{number}")
        data += codec.content_frames(1, b"m", {})
    client.send(data, run=False)
    taken = [queue_of(node, f"q{number}").statistics.published_count for number in range(25)]
    assert taken == [1] * 10 + [0] * 15
    assert client.session.reader.is_blocked()
    assert client.session.state_name == "flow"
    node.run()
    assert all(queue_of(node, f"q{number}").statistics.published_count == 1 for number in range(25))
    assert not client.session.reader.is_blocked()
    assert client.session.channels[1].intake.stage.share() == 0


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_makes_no_wait_longer(node: QuietBroker, hours: int) -> None:
    book = node.broker.flow.book
    book.note_waits(True)
    node.run()
    slow = FlowPeer(book, NODE, "its mirrors")
    credit = Credit(node.client().session.reader, slow, CreditSpec(1, 1))
    credit.send(1)
    node.now_ms += hours * 3_600_000
    node.tick(300)
    assert [one.blocked_ms for one in book.take_waits() if one.receiver is slow] == [300]


@pytest.mark.parametrize(
    "times, queues_wait",
    [((97, 1, 2), False), ((2, 1, 97), True), ((10, 80, 10), False), ((45, 10, 50), False)],
    ids=["decoding", "queues", "routing", "decoding and routing together"],
)
def test_queues_are_the_bottleneck_where_they_take_most_of_the_time(
    node: QuietBroker, times: tuple[int, int, int], queues_wait: bool
) -> None:
    """Decoding is the readers' time, and not the queues' (B5 of the review)."""
    flow = node.broker.flow
    flow.spec = CreditSpec(10, 5)
    client = node.client()
    client.call("queue.declare", queue="q")
    flow.reader_ns, flow.channel_ns, flow.queue_ns = times
    for _ in range(25):
        client.publish("", "q", run=False)
    stage = client.session.channels[1].intake.stage
    assert stage.blocked_by is None
    flow.end_turn(node.mono_ms)
    assert (stage.blocked_by is flow.works) == queues_wait


def test_little_by_little_is_no_way_around_a_queue_that_is_behind(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    fill_the_journal(node, client)
    other = node.client()
    sent = 0
    while other.session.held_bytes == 0:
        other.publish("", "q", b"s" * 10, delivery_mode=2)
        sent += 1
        assert sent < 5 * node.broker.flow.spec.initial
    node.committer.hold = False
    node.committer.finish()
    node.run()


def fill_the_journal(node: QuietBroker, client: ClientEnd) -> int:
    """Publishes small persistent messages until some are held; how many were sent."""
    node.committer.hold = True
    sent = 0
    while client.session.held_bytes == 0:
        client.publish("", "q", b"s" * 3000, delivery_mode=2)
        sent += 1
        assert sent < 5000
    return sent


def test_a_queue_whose_index_waits_for_the_disk_holds_its_publishers(node: QuietBroker) -> None:
    client, other = node.client(), node.client()
    client.call("queue.declare", queue="q", durable=True)
    other.call("queue.declare", queue="fast")
    client.call("confirm.select")
    sent = fill_the_journal(node, client)
    stage = queue_of(node).flow
    assert stage.why == INDEX
    assert not stage.is_blocked()  # it is the bottleneck itself
    assert client.session.channels[1].intake.stage.is_blocked()
    assert client.session.state_name == "flow"
    # Whoever does not need the disk goes on.
    other.publish("", "fast", b"m")
    assert queue_of(node, "fast").statistics.published_count == 1
    assert other.session.state_name == "running"
    client.received = b""
    node.committer.hold = False
    node.committer.finish()
    node.run()
    node.tick(300)
    assert queue_of(node).statistics.published_count == sent
    assert confirms(client) == sent
    assert not client.session.channels[1].intake.stage.is_blocked()


def test_large_messages_wait_for_the_message_store(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("confirm.select")
    node.committer.hold = True
    sent = 0
    while client.session.held_bytes == 0:
        client.publish("", "q", LARGE, delivery_mode=2)
        sent += 1
        assert sent < 200
    flow = node.broker.flow
    assert queue_of(node).flow.blockers[0].receiver is flow.store
    assert client.session.channels[1].intake.stage.is_blocked()
    assert client.session.reader.is_blocked()
    waiting = node.engine.store.unsealed_bytes + node.engine.store.cached_bytes
    assert waiting < 3 * flow.store_spec.initial * 1024
    client.received = b""
    node.committer.hold = False
    node.committer.finish()
    node.run()
    node.tick(300)
    assert confirms(client) == sent
    assert not queue_of(node).flow.is_blocked()
    queue_of(node).flow.down.check()
    assert queue_of(node).flow.down.in_hand == 0


def test_contents_given_up_before_they_were_written_cost_no_credit(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    node.committer.hold = True
    client.publish("", "q", b"first", delivery_mode=2)  # the committer is busy with it
    for _ in range(100):
        client.publish("", "q", LARGE, delivery_mode=2)
        client.call("queue.purge", queue="q")
    assert queue_of(node).statistics.published_count == 101
    assert queue_of(node).flow.down.in_hand == 0
    node.committer.hold = False
    node.committer.finish()
    node.run()


def test_the_loss_of_a_queue_frees_its_publishers(node: QuietBroker) -> None:
    client, other = node.client(), node.client()
    client.call("queue.declare", queue="q", durable=True)
    fill_the_journal(node, client)
    channel = client.session.channels[1]
    assert channel.intake.stage.is_blocked()
    assert other.call("queue.delete", queue="q")
    assert not channel.intake.stage.is_blocked()
    assert client.session.held_bytes == 0
    node.committer.hold = False
    node.committer.finish()
    node.run()


def test_a_lost_publisher_leaves_no_credit_behind(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    fill_the_journal(node, client)
    stage = queue_of(node).flow
    assert stage.kept
    client.drop()
    assert not stage.kept
    stage.check()
    node.committer.hold = False
    node.committer.finish()
    node.run()


def test_publishers_to_a_crowded_queue_wait_for_its_consumers_but_not_long(
    node: QuietBroker,
) -> None:
    client, taker = node.client(), node.client()
    client.call("queue.declare", queue="q")
    taker.call("basic.qos", prefetch_count=1)
    taker.consume("q")
    while queue_of(node).backing.ready_bytes() <= CROWDED_BYTES:
        client.publish("", "q", LARGE)
    while client.session.held_bytes == 0:
        client.publish("", "q", LARGE)
    stage = queue_of(node).flow
    assert stage.why == CROWDED
    node.now_ms += 6
    node.mono_ms += 6
    node.run()  # the turn that sees that it is over, and the one that goes on
    node.run()
    assert client.session.held_bytes == 0
    assert not client.session.channels[1].intake.stage.is_blocked()


def test_without_credit_flow_nothing_is_counted(node: QuietBroker) -> None:
    node.broker.flow.enabled = False
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    node.committer.hold = True
    for _ in range(100):
        client.publish("", "q", LARGE, delivery_mode=2)
    assert client.session.held_bytes == 0
    assert queue_of(node).flow is None
    node.committer.hold = False
    node.committer.finish()
    node.run()


# -- settings ----------------------------------------------------------------------------------


def test_credit_is_what_the_settings_say() -> None:
    text = "credit_flow_initial = 50\ncredit_flow_more_after = 25\nmsg_store_credit_initial = 900\n"
    flow = make_flow(load_settings(text, {}, {}))
    assert flow.enabled
    assert (flow.spec.initial, flow.spec.more_after) == (50, 25)
    assert (flow.store_spec.initial, flow.store_spec.more_after) == (900, 800)
    assert not make_flow(load_settings("credit_flow_initial = 0", {}, {})).enabled


def test_more_may_not_be_granted_than_there_is() -> None:
    settings = load_settings("credit_flow_initial = 100", {}, {})
    with pytest.raises(SettingInvalid, match="credit_flow_more_after = 200 is above"):
        make_flow(settings)
