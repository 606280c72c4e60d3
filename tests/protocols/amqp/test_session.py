"""Sessions around a broker, without sockets: what comes back, who goes on, what is left behind."""

from __future__ import annotations

import pytest

from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def deliveries(client: ClientEnd) -> list[tuple[bytes, bool]]:
    return [
        (fields.get("body", b""), fields["redelivered"])
        for name, fields in client.methods()
        if name == "basic.deliver"
    ]


# -- numbers at their limits -----------------------------------------------------------------


@pytest.mark.parametrize("channel", [32_767, 32_768, 65_535])
def test_a_channel_may_have_any_number(node: QuietBroker, channel: int) -> None:
    client = node.client()
    client.call("channel.open", channel)
    client.call("queue.declare", channel, queue="q", durable=True)
    client.call("confirm.select", channel)
    client.consume("q", channel=channel)
    client.publish("", "q", b"there", channel=channel, delivery_mode=2)
    client.publish("", "nowhere", b"back", channel=channel, mandatory=True)
    names = sorted(name for name, _ in client.methods())
    assert names == ["basic.ack", "basic.ack", "basic.deliver", "basic.return"]
    node.check()


def test_a_message_is_cut_to_the_frames_its_consumer_takes(node: QuietBroker) -> None:
    wide, narrow = node.client(), node.client(frame_max=4096)
    wide.call("queue.declare", queue="q")
    narrow.consume("q")
    body = bytes(range(256)) * 400
    wide.publish("", "q", body)
    frames = narrow.frames()
    assert b"".join(frame.payload for frame in frames if frame.type == codec.BODY) == body
    assert max(len(frame.payload) for frame in frames) + 8 == 4096


# -- what is unsettled comes back ------------------------------------------------------------


@pytest.mark.parametrize("how", ["channel.close", "connection.close", "cut", "error", "recover"])
def test_what_is_unsettled_comes_back_in_order_and_marked(node: QuietBroker, how: str) -> None:
    client, other = node.client(), node.client()
    client.call("queue.declare", queue="q", durable=True)
    for number in range(10):
        client.publish("", "q", b"%d" % number, delivery_mode=number % 2 + 1)
    client.call("basic.qos", prefetch_count=7)
    client.consume("q")
    for tag in (2, 5):
        client.method(1, "basic.ack", delivery_tag=tag)
    client.method(1, "basic.nack", delivery_tag=4, multiple=False, requeue=False)
    client.call("basic.cancel", consumer_tag="c")
    if how == "cut":
        client.drop()
    elif how == "error":
        client.method(1, "basic.ack", delivery_tag=99)
    elif how == "recover":
        client.method(1, "basic.recover", requeue=True)
    else:
        client.method(1 if how == "channel.close" else 0, how)
    other.consume("q")
    assert deliveries(other) == [
        *((b"0", True), (b"2", True), (b"5", True), (b"6", True)),
        *((b"7", True), (b"8", True), (b"9", True)),
    ]
    node.check()


def test_an_exclusive_queue_goes_with_its_connection(node: QuietBroker) -> None:
    owner, other = node.client(), node.client()
    owner.call("queue.declare", queue="mine", exclusive=True, durable=True)
    owner.call("queue.bind", queue="mine", exchange="amq.fanout")
    owner.drop()
    other.publish("amq.fanout", "", b"nobody", mandatory=True)
    assert [name for name, _ in other.methods()] == ["basic.return"]
    assert node.broker.vhosts["/"].queues == {}


def test_who_consumes_from_a_deleted_queue_is_told(node: QuietBroker) -> None:
    client, other = node.client(), node.client()
    client.call("queue.declare", queue="q")
    other.consume("q", "watcher")
    client.call("queue.delete", queue="q")
    assert [(name, f["consumer_tag"]) for name, f in other.methods()] == [
        ("basic.cancel", "watcher")
    ]
    other.call("basic.cancel", consumer_tag="watcher")
    node.check()


# -- a peer that does not take its bytes -----------------------------------------------------


def test_a_full_way_out_stops_one_consumer_and_is_pumped_again(node: QuietBroker) -> None:
    """The queue goes to rest while the outlet is shut; only the drain can wake it."""
    slow, publisher = node.client(), node.client()
    publisher.call("queue.declare", queue="q")
    slow.blocked = True
    slow.consume("q", no_ack=True)
    body = b"x" * 10_000
    count = 300
    for _ in range(count):
        publisher.publish("", "q", body)
    assert not slow.session.outlet.open
    queue = node.broker.vhosts["/"].queues["q"]
    waiting = queue.backing.ready_count()
    assert 0 < waiting < count
    assert len(slow.session.out) < 2 * 1024 * 1024, "the output grows with the queue"
    slow.blocked = False
    node.run()
    assert deliveries(slow) == [(body, False)] * count
    assert queue.backing.ready_count() == 0
    node.check()


def test_others_go_on_while_one_does_not_read(node: QuietBroker) -> None:
    slow, quick, publisher = node.client(), node.client(), node.client()
    publisher.call("queue.declare", queue="q")
    slow.blocked = True
    slow.consume("q", no_ack=True)
    for _ in range(200):
        publisher.publish("", "q", b"x" * 10_000)
    quick.consume("q", no_ack=True)
    assert len(deliveries(quick)) > 0
    assert node.broker.vhosts["/"].queues["q"].backing.ready_count() == 0


def test_a_session_that_is_lost_with_a_full_way_out_gives_everything_back(
    node: QuietBroker,
) -> None:
    slow, publisher = node.client(), node.client()
    publisher.call("queue.declare", queue="q")
    slow.blocked = True
    slow.consume("q")
    for _ in range(200):
        publisher.publish("", "q", b"x" * 10_000)
    slow.drop()
    queue = node.broker.vhosts["/"].queues["q"]
    assert queue.backing.ready_count() == 200
    assert (queue.unacked_count, len(queue.consumers)) == (0, 0)
    node.check()


# -- time ------------------------------------------------------------------------------------


def test_heartbeats_are_sent_when_nothing_else_is(node: QuietBroker) -> None:
    client = node.connect()
    client.open(heartbeat=4)
    client.frames()
    beats = 0
    for _ in range(20):
        node.tick(1000)
        client.send(codec.encode_frame(codec.HEARTBEAT, 0, b""))
        beats += len([frame for frame in client.frames() if frame.type == codec.HEARTBEAT])
    assert 5 <= beats <= 11, "every two to four seconds"
    assert not client.session.closed


def test_a_peer_that_is_silent_for_too_long_is_dropped(node: QuietBroker) -> None:
    client = node.connect()
    client.open(heartbeat=4)
    for _ in range(8):
        node.tick(1000)
    assert not client.session.closed, "two intervals are allowed"
    for _ in range(4):
        node.tick(1000)
    assert client.session.closed
    assert "missed heartbeats" in node.reports[0]


def test_any_traffic_counts_as_a_heartbeat(node: QuietBroker) -> None:
    client = node.client(heartbeat=4)
    for _ in range(30):
        node.tick(1000)
        client.publish("", "nowhere")
    assert not client.session.closed


def test_without_heartbeats_silence_is_fine(node: QuietBroker) -> None:
    client = node.client(heartbeat=0)
    node.tick(10**9)
    assert not client.session.closed
    assert client.frames() == []


def test_expiry_of_messages_and_of_a_queue(node: QuietBroker) -> None:
    client = node.client()
    arguments = {"x-expires": 60_000}
    client.call("queue.declare", queue="q", arguments=arguments)
    client.publish("", "q", b"short", expiration="1000")
    client.publish("", "q", b"long", expiration="30000")
    node.tick(1000)
    assert client.call("queue.declare", queue="q", arguments=arguments)["messages"] == 1
    node.tick(59_000)
    assert "q" in node.broker.vhosts["/"].queues, "declaring it again was a use"
    node.tick(2000)
    assert "q" not in node.broker.vhosts["/"].queues


def test_no_time_to_live_means_at_once_or_never(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", arguments={"x-message-ttl": 0})
    client.publish("", "q", b"too early")
    client.call("basic.qos", prefetch_count=1)
    client.consume("q")
    client.publish("", "q", b"taken")
    client.publish("", "q", b"no room")
    client.method(1, "basic.ack", delivery_tag=1)
    assert [body for body, _ in deliveries(client)] == [b"taken"]


# -- nothing is left behind ------------------------------------------------------------------


def test_consumers_that_come_and_go_leave_nothing(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    for number in range(200):
        client.consume("q", f"c{number}")
        client.publish("", "q", b"m")
        client.method(1, "basic.ack", delivery_tag=number + 1)
        client.call("basic.cancel", consumer_tag=f"c{number}")
    assert kept_by(client) < 20
    assert not node.broker.vhosts["/"].queues["q"].consumers


def test_gets_from_many_queues_leave_nothing(node: QuietBroker) -> None:
    client = node.client()
    for number in range(200):
        client.call("queue.declare", queue=f"q{number}", exclusive=True)
        client.publish("", f"q{number}", b"m")
        client.method(1, "basic.get", queue=f"q{number}")
        client.method(1, "basic.ack", delivery_tag=number + 1)
        client.call("queue.delete", queue=f"q{number}")
    assert kept_by(client) < 100


def test_channels_that_come_and_go_leave_nothing(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    client.publish("", "q", b"m")
    for number in range(2, 200):
        client.call("channel.open", number)
        client.consume("q", "c", number)
        client.call("channel.close", number, code=200)
    client.frames()
    assert list(client.session.channels) == [1]
    queue = node.broker.vhosts["/"].queues["q"]
    assert (queue.unacked_count, len(queue.consumers)) == (0, 0)
    node.check()


def kept_by(client: ClientEnd) -> int:
    """Entries in the dictionaries and lists of channel 1."""
    channel = client.session.channels[1]
    names = [name for name in dir(channel) if not name.startswith("__")]
    values = [getattr(channel, name) for name in names]
    return sum(len(value) for value in values if isinstance(value, dict | list))


def test_connections_that_come_and_go_leave_nothing(node: QuietBroker) -> None:
    for number in range(50):
        client = node.client()
        client.call("queue.declare", queue=f"q{number}", exclusive=True)
        client.call("queue.declare", queue="shared", auto_delete=True)
        client.consume("shared")
        client.publish("", "shared", b"m")
        if number % 2:
            client.drop()
        else:
            client.method(0, "connection.close", code=200)
    vhost = node.broker.vhosts["/"]
    assert vhost.queues == {}
    assert node.turn.waiting == []
    assert not node.broker.queue_context.wakeups


# -- our own faults --------------------------------------------------------------------------


def test_a_fault_of_ours_costs_one_connection(
    node: QuietBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = node.client(), node.client()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(node.definitions, "put_queue", broken)
        client.method(1, "queue.declare", queue="q", durable=True)
    closes = [fields["code"] for name, fields in client.methods() if name == "connection.close"]
    assert closes == [541]
    assert "internal error on channel 1" in node.reports[0]
    other.call("queue.declare", queue="still-here")


# -- queues that share a limit have turns ------------------------------------------------------


def tags(client: ClientEnd) -> str:
    return "".join(f["consumer_tag"] for name, f in client.methods() if name == "basic.deliver")


def test_queues_that_share_a_window_take_turns(node: QuietBroker) -> None:
    """Also while a publisher wakes one of them in every turn."""
    client, publisher = node.client(), node.client()
    for tag, count in (("f", 40), ("o", 5), ("p", 5)):
        client.call("queue.declare", queue=tag)
        for _ in range(count):
            client.publish("", tag)
    client.method(1, "basic.qos", prefetch_count=2, global_=True)
    client.received = b""
    for tag in "fop":
        client.consume(tag, tag)
    order = tags(client)
    for tag in range(1, 20):
        publisher.publish("", "f", run=False)
        client.method(1, "basic.ack", delivery_tag=tag)
        order += tags(client)
    assert order[2:17] == "fop" * 5
    assert set(order[17:]) == {"f"}
    node.check()


@pytest.mark.parametrize("channels", [1, 4])
def test_queues_that_share_a_full_way_out_take_turns(node: QuietBroker, channels: int) -> None:
    client = node.client()
    body = bytes(100_000)
    for number in range(4):
        channel = number % channels + 1
        if channel > 1:
            client.call("channel.open", channel)
        client.call("queue.declare", queue="abcd"[number])
        for _ in range(40):
            client.publish("", "abcd"[number], body)
    client.blocked = True
    for number in range(4):
        client.consume("abcd"[number], "abcd"[number], number % channels + 1, no_ack=True)
    for _ in range(4):
        client.blocked = False
        node.flush()
        client.blocked = True
        node.run()
    assert set(tags(client)) == set("abcd")
    node.check()


def test_a_second_close_right_behind_the_first(node: QuietBroker) -> None:
    """RabbitMQ answers both when they come in one packet (B99 of the review)."""
    close = {"code": 200, "text": "", "class_id": 0, "method_id": 0}
    client = node.client()
    client.send(codec.method_frame(1, "channel.close", **close) * 2)
    (first, _), (second, fields) = client.methods()
    assert (first, second, fields["code"]) == ("channel.close-ok", "connection.close", 504)
    client = node.client()
    client.send(codec.method_frame(0, "connection.close", **close) * 2)
    assert [name for name, _ in client.methods()] == ["connection.close-ok"]


@pytest.mark.parametrize("kind", ["Direct", "queue", "nope"])
def test_an_unknown_type_of_exchange(node: QuietBroker, kind: str) -> None:
    """Also where it is the name of an atom of Erlang (B99 of the review)."""
    client = node.client()
    client.method(1, "exchange.declare", exchange="x", type=kind)
    ((name, fields),) = client.methods()
    assert (name, fields["text"]) == (
        "connection.close",
        f"COMMAND_INVALID - unknown exchange type '{kind}'",
    )


def test_room_that_comes_to_a_shared_window_bit_by_bit_is_used() -> None:
    """A queue that drops looks for room after each message that comes back."""
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", arguments={"x-max-length": 3})
    client.call("basic.qos", prefetch_count=3, global_=True)
    for tag in ("a", "b"):
        client.call("basic.consume", queue="q", consumer_tag=tag)
    for _ in range(6):
        client.publish("", "q", b"x")
    queue = node.broker.vhosts["/"].queues["q"]
    assert (queue.unacked_count, queue.backing.ready_count()) == (3, 3)
    client.call("basic.qos", prefetch_count=1, global_=True)
    client.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert queue.unacked_count == 1
    node.check()
