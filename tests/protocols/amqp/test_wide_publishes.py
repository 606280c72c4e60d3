"""A message for more queues than a turn has time for reaches them in several turns, whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.protocols.amqp.wide_publish import QUEUES_AT_ONCE
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker

COUNT = int(QUEUES_AT_ONCE) * 2 + 100
LAST = f"q{COUNT - 1}"


@pytest.fixture(scope="module")
def opened() -> tuple[QuietBroker, ClientEnd]:
    node = QuietBroker()
    vhost = node.broker.vhosts["/"]
    for number in range(COUNT):
        queue = vhost.declare_queue(f"q{number}", number % 1000 == 0, None, False, {})
        assert queue is not None
        vhost.bind_queue(queue, "amq.fanout", "", {})
    return node, node.client()


@pytest.fixture
def wide(opened: tuple[QuietBroker, ClientEnd]) -> tuple[QuietBroker, ClientEnd]:
    """Its queues are empty."""
    node, _ = opened
    for queue in node.broker.vhosts["/"].queues.values():
        queue.purge()
    node.run()
    return node, node.client()


def publish(exchange: str, key: str, body: bytes) -> bytes:
    method = codec.method_frame(1, "basic.publish", exchange=exchange, routing_key=key)
    return method + codec.content_frames(1, body, {"delivery_mode": 2})


def counts(node: QuietBroker) -> set[int]:
    return {int(queue.backing.ready_count()) for queue in node.broker.vhosts["/"].queues.values()}


def bodies(end: ClientEnd, queue: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(count):
        end.send(codec.method_frame(1, "basic.get", queue=queue, no_ack=True))
        found += [fields["body"] for name, fields in end.methods() if name == "basic.get-ok"]
    return found


def confirmed(end: ClientEnd) -> list[tuple[int, bool]]:
    return [
        (arguments["delivery_tag"], arguments["multiple"])
        for name, arguments in end.methods()
        if name == "basic.ack"
    ]


def test_each_queue_has_each_message_once_and_in_order(
    wide: tuple[QuietBroker, ClientEnd],
) -> None:
    node, end = wide
    end.call("confirm.select")
    said = [publish("amq.fanout", "", b"%d" % number) for number in range(3)]
    end.send(b"".join(said) + publish("", LAST, b"alone"), run=False)
    assert not confirmed(end)
    assert counts(node) == {0, 1}, "one turn has not time for more"
    node.run()
    assert max(tag for tag, _ in confirmed(end)) == 4
    assert counts(node) == {3, 4}
    for name in ("q0", f"q{QUEUES_AT_ONCE}"):
        assert bodies(end, name, 4) == [b"0", b"1", b"2"]
    assert bodies(end, LAST, 4) == [b"0", b"1", b"2", b"alone"]
    node.check()


def test_a_commit_reaches_all(wide: tuple[QuietBroker, ClientEnd]) -> None:
    node, end = wide
    end.call("tx.select")
    end.send(publish("amq.fanout", "", b"x") * 2)
    assert counts(node) == {0}
    end.call("tx.commit")
    assert counts(node) == {2}


def test_what_is_full_refuses_and_the_others_have_it(wide: tuple[QuietBroker, ClientEnd]) -> None:
    node, end = wide
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    end.call("queue.declare", queue="full", arguments=limits)
    end.call("queue.bind", queue="full", exchange="amq.fanout")
    end.call("confirm.select")
    end.send(publish("amq.fanout", "", b"x"))
    assert confirmed(end)
    end.send(publish("amq.fanout", "", b"y"))
    assert [name for name, _ in end.methods()] == ["basic.nack"]
    assert counts(node) == {1, 2}
    end.call("queue.delete", queue="full")


HEADERS = {"source": "amq.fanout", "destination": "amq.headers"}
GOES: dict[str, Callable[[ClientEnd], object]] = {
    "the queue": lambda end: end.call("queue.delete", queue="gone"),
    "its binding": lambda end: end.call("queue.unbind", queue="gone", exchange="amq.fanout"),
    "the way of all by their keys": lambda end: end.call("exchange.bind", **HEADERS),
}


@pytest.mark.parametrize("what", GOES)
def test_what_goes_in_between_harms_nothing(wide: tuple[QuietBroker, ClientEnd], what: str) -> None:
    node, end = wide
    other = node.client()
    other.call("queue.declare", queue="gone")
    other.call("queue.bind", queue="gone", exchange="amq.fanout")
    end.call("confirm.select")
    end.send(publish("amq.fanout", "", b"x"), run=False)
    GOES[what](other)
    node.run()
    assert confirmed(end) == [(1, False)]
    assert counts(node) == {1}
    other.call("queue.delete", queue="gone")
    other.call("exchange.unbind", **HEADERS)
    node.check()
