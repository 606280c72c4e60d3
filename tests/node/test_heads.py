"""``basic.get`` from a queue whose first message is only on disk: the loop does not wait for it."""

from __future__ import annotations

from penstock.backing.tiers import TAIL_BYTES
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker

BODY_BYTES = 1000
COUNT = 2 * int(TAIL_BYTES) // BODY_BYTES


def lazy_backlog(node: QuietBroker) -> ClientEnd:
    """A client of a lazy queue with more in it than what waits to be written."""
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments={"x-queue-mode": "lazy"})
    for number in range(COUNT):
        client.publish("", "q", b"%d:" % number + b"x" * BODY_BYTES, delivery_mode=2)
    node.run()
    client.received = b""
    return client


def get(queue: str = "q") -> bytes:
    return codec.method_frame(1, "basic.get", queue=queue, no_ack=True)


def answers(client: ClientEnd) -> list[tuple[str, bytes]]:
    return [(name, fields.get("body", b"").partition(b":")[0]) for name, fields in client.methods()]


def test_a_get_waits_for_the_disk_and_so_does_what_comes_behind_it() -> None:
    node = QuietBroker()
    client = lazy_backlog(node)
    node.worker.hold = True
    client.send(get() + codec.method_frame(1, "queue.declare", queue="q", passive=True))
    assert answers(client) == []
    assert client.session.waiting_head
    node.worker.hold = False
    node.run()
    assert [name for name, _ in answers(client)] == ["basic.get-ok", "queue.declare-ok"]
    assert not client.session.waiting_head
    node.check()


def test_others_are_served_meanwhile() -> None:
    node = QuietBroker()
    client = lazy_backlog(node)
    other = node.client()
    other.call("queue.declare", queue="t")
    other.publish("", "t", b"7:")
    node.worker.hold = True
    client.send(get())
    other.send(get("t"))
    assert answers(other) == [("basic.get-ok", b"7")]
    assert answers(client) == []


def test_gets_come_in_order_whatever_is_at_hand() -> None:
    node = QuietBroker()
    client = lazy_backlog(node)
    for _ in range(3):
        client.send(get() * (COUNT // 3))
    got = answers(client)
    assert got == [("basic.get-ok", b"%d" % number) for number in range(COUNT // 3 * 3)]
    node.check()


def test_a_client_that_leaves_while_it_waits_takes_nothing() -> None:
    node = QuietBroker()
    client = lazy_backlog(node)
    node.worker.hold = True
    client.send(get())
    client.drop()
    node.worker.hold = False
    node.run()
    other = node.client()
    assert other.call("queue.declare", queue="q", passive=True)["messages"] == COUNT


def test_a_damaged_head_is_said_and_not_waited_for() -> None:
    node = QuietBroker()
    client = lazy_backlog(node)
    (segment,) = [name for name in node.files.names if name.endswith("/0.idx")]
    node.files.flip(segment, 8 * 1000)
    client.send(get())
    (name, fields) = client.methods()[0]
    assert name == "channel.close"
    assert fields["code"] == 404
    assert "0.idx: damaged at offset 56" in fields["text"]
    assert "0.idx: damaged at offset 56" in node.engine.take_faults()[0]


def damaged_backlog(node: QuietBroker) -> ClientEnd:
    """A client of a queue whose head is damaged; it has found out, and is on a new channel."""
    client = lazy_backlog(node)
    (segment,) = [name for name in node.files.names if name.endswith("/0.idx")]
    node.files.flip(segment, 8 * 1000)
    client.send(get())
    assert [name for name, _ in client.methods()] == ["channel.close"]
    client.method(1, "channel.close-ok")
    client.call("channel.open")
    return client


def test_what_a_queue_that_is_stopped_says_to_each_method() -> None:
    node = QuietBroker()
    client = damaged_backlog(node)
    for method in ("basic.get", "basic.consume"):
        client.method(1, method, queue="q")
        ((name, fields),) = client.methods()
        assert (name, fields["code"]) == ("channel.close", 404)
        assert fields["text"].startswith("NOT_FOUND - queue 'q' in vhost '/' is stopped: ")
        assert "0.idx: damaged at offset 56" in fields["text"]
        client.method(1, "channel.close-ok")
        client.call("channel.open")
    assert client.call("queue.declare", queue="q", passive=True)["messages"] == COUNT
    client.call("confirm.select")
    client.publish("", "q", b"behind", delivery_mode=2)
    assert [name for name, _ in client.methods()] == ["basic.ack"]
    assert client.call("queue.delete", queue="q")["messages"] == COUNT + 1
    client.call("queue.declare", queue="q", durable=True)
    node.check()


def test_what_is_at_hand_before_the_damage_is_given_out() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.publish("", "q", b"1:", delivery_mode=2)
    client.publish("", "q", b"2:", delivery_mode=2)
    backing = node.broker.vhosts["/"].queues["q"].backing
    backing.records.fault = "a later one is damaged"  # type: ignore[attr-defined]
    client.consume("q")
    assert answers(client) == [("basic.deliver", b"1"), ("basic.deliver", b"2")]
