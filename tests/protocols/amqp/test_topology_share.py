"""A client that changes the topology thousands of times in one breath: others have their turns."""

from __future__ import annotations

import pytest

from penstock.core.steps import STEPS_MAX
from penstock.protocols.amqp.link import TOPOLOGY_SHARE
from penstock.protocols.amqp.topology import VALUE_STEPS
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import QuietBroker

COUNT = 5 * TOPOLOGY_SHARE // 2


@pytest.mark.parametrize("nowait", [False, True])
def test_it_does_some_in_each_turn_and_all_in_order(nowait: bool) -> None:
    node = QuietBroker()
    client, other = node.client(), node.client()
    client.call("queue.declare", queue="q")
    other.call("queue.declare", queue="other")
    client.received = b""
    frames = [
        codec.method_frame(1, "queue.bind", queue="q", exchange="amq.topic",
                           routing_key=str(number), nowait=nowait)
        for number in range(COUNT)
    ]  # fmt: skip
    frames.append(codec.method_frame(1, "basic.publish", exchange="amq.topic", routing_key="9"))
    frames.append(codec.content_frames(1, b"behind", {}))
    vhost = node.broker.vhosts["/"]
    exchange = vhost.exchanges["amq.topic"]
    client.send(b"".join(frames), run=False)
    assert len(exchange.bindings()) == TOPOLOGY_SHARE
    assert node.turn.has_work()
    other.send(
        codec.method_frame(1, "basic.publish", routing_key="other")
        + codec.content_frames(1, b"between", {}),
        run=False,
    )
    assert vhost.queues["other"].backing.ready_count() == 1
    assert vhost.queues["q"].backing.ready_count() == 0
    node.run()
    assert len(exchange.bindings()) == COUNT
    assert vhost.queues["q"].backing.ready_count() == 1
    assert [name for name, _ in client.methods()] == ([] if nowait else ["queue.bind-ok"] * COUNT)
    assert not client.session.waiting_head
    node.check()


def test_long_arguments_are_a_larger_part_of_a_turn() -> None:
    """A binding with 500 values takes some milliseconds, and 53 of them fit into one read."""
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    values: dict[str, object] = {f"h{number}": number for number in range(250)}
    values["nested"] = {"list": list(range(250))}
    frames = [
        codec.method_frame(1, "queue.bind", queue="q", exchange="amq.headers", nowait=True,
                           routing_key=str(number), arguments=values)
        for number in range(20)
    ]  # fmt: skip
    exchange = node.broker.vhosts["/"].exchanges["amq.headers"]
    client.send(b"".join(frames), run=False)
    assert len(exchange.bindings()) == STEPS_MAX // (VALUE_STEPS * 500)
    node.run()
    assert len(exchange.bindings()) == 20


def test_a_refusal_in_the_middle_ends_the_channel_there() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    client.received = b""
    frames = [
        codec.method_frame(1, "queue.bind", queue="q", routing_key=str(number), nowait=True,
                           exchange="missing" if number == TOPOLOGY_SHARE + 5 else "amq.topic")
        for number in range(COUNT)
    ]  # fmt: skip
    client.send(b"".join(frames))
    ((name, fields),) = client.methods()
    assert (name, fields["code"]) == ("channel.close", 404)
    bindings = node.broker.vhosts["/"].exchanges["amq.topic"].bindings()
    assert len(bindings) == TOPOLOGY_SHARE + 5


def test_a_client_that_goes_in_between_leaves_the_rest_undone() -> None:
    node = QuietBroker()
    client = node.client()
    frames = [
        codec.method_frame(1, "queue.declare", queue=f"q{number}", nowait=True)
        for number in range(COUNT)
    ]
    client.send(b"".join(frames), run=False)
    client.drop()
    assert len(node.broker.vhosts["/"].queues) == TOPOLOGY_SHARE
    node.check()
