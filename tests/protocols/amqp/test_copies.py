"""CC and BCC in a whole node without noise, where other features meet them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp.codec.properties import body_of, decode_properties
from tests.helpers.connection_pair import ClientEnd, QuietBroker


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def queue_in(client: ClientEnd, name: str, **arguments: Any) -> None:
    client.call("queue.declare", queue=name, durable=True, arguments=arguments)


def sizes(node: QuietBroker, *names: str) -> list[int]:
    queues = node.broker.vhosts["/"].queues
    return [int(queues[name].backing.ready_count()) for name in names]


def test_a_full_queue_refuses_its_copy_and_the_others_have_theirs(node: QuietBroker) -> None:
    client = node.client()
    queue_in(client, "wide")
    queue_in(client, "full", **{"x-max-length": 0, "x-overflow": "reject-publish"})
    client.call("confirm.select")
    client.publish("", "wide", b"1", headers={"CC": ["wide"]})
    client.publish("", "wide", b"2", headers={"CC": ["full"]})
    client.publish("", "wide", b"3")
    node.tick(300)
    assert sizes(node, "wide", "full") == [3, 0]
    told = [(name, fields["delivery_tag"]) for name, fields in client.methods()]
    assert told == [("basic.ack", 1), ("basic.nack", 2), ("basic.ack", 3)]
    node.check()


def test_a_run_with_one_bad_header_keeps_what_came_before_it(node: QuietBroker) -> None:
    client = node.client()
    queue_in(client, "q")
    queue_in(client, "copy")
    for body, headers in ((b"1", {"CC": ["copy"]}), (b"2", {}), (b"3", {"BCC": "copy"})):
        client.publish("", "q", body, run=False, headers=headers)
    client.publish("", "q", b"4")
    (name, fields), *_ = client.methods()
    assert name == "channel.close"
    assert fields["text"] == (
        'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"BCC",longstr}'
    )
    assert sizes(node, "q", "copy") == [2, 1]


def test_in_a_transaction_it_is_told_before_the_commit(node: QuietBroker) -> None:
    client = node.client()
    queue_in(client, "q")
    client.call("tx.select")
    client.publish("", "q", b"1", headers={"CC": ["q"]})
    client.publish("", "q", b"2", headers={"CC": 7})
    (name, fields), *_ = client.methods()
    assert (name, fields["code"]) == ("channel.close", 406)
    assert sizes(node, "q") == [0]


def test_what_rests_has_no_bcc_and_is_else_the_same(node: QuietBroker) -> None:
    client = node.client()
    queue_in(client, "q")
    queue_in(client, "blind")
    headers = {"a": 1, "BCC": ["blind"], "z": [1, None]}
    client.publish("", "q", b"secret", headers=headers, delivery_mode=2, message_id="m")
    node.tick(300)
    for name in ("q", "blind"):
        (message,) = node.broker.vhosts["/"].queues[name].backing.reads.read_range(0, 9, 9, 9999)
        assert b"BCC" not in message.content
        assert decode_properties(message.content).as_dict() == {
            "headers": {"a": 1, "z": [1, None]},
            "delivery_mode": 2,
            "message_id": "m",
        }
        assert body_of(message.content) == b"secret"
        assert message.size == len(message.content)
    node.check()


def test_an_alternate_reached_by_no_copy_is_asked_once(node: QuietBroker) -> None:
    client = node.client()
    queue_in(client, "spare-q")
    client.call("exchange.declare", exchange="spare", type="fanout")
    client.call("queue.bind", queue="spare-q", exchange="spare")
    client.call("exchange.declare", exchange="x", type="direct",
                arguments={"alternate-exchange": "spare"})  # fmt: skip
    client.publish("x", "a", b"1", headers={"CC": ["b", "c"]}, mandatory=True)
    assert client.methods() == []
    assert sizes(node, "spare-q") == [1]


def test_hashed_by_a_property(node: QuietBroker) -> None:
    """Of messages as they are published and of dead letters."""
    client = node.client()
    client.call("exchange.declare", exchange="x", type="x-consistent-hash",
                arguments={"hash-property": "message_id"})  # fmt: skip
    names = [f"q{number}" for number in range(4)]
    for name in names:
        queue_in(client, name)
        client.call("queue.bind", queue=name, exchange="x", routing_key="1")
    queue_in(client, "dying", **{"x-dead-letter-exchange": "x", "x-max-length": 0})
    for number in range(200):
        client.publish("x", "k", b"m", message_id=str(number))
    direct = sizes(node, *names)
    assert sum(direct) == 200
    assert min(direct) > 20
    for number in range(200):
        client.publish("", "dying", b"m", message_id=str(number))
    node.tick(300)
    assert sizes(node, *names) == [2 * count for count in direct]


def test_headers_that_had_only_bcc_are_an_empty_table(node: QuietBroker) -> None:
    client = node.client()
    queue_in(client, "q")
    client.publish("", "q", headers={"BCC": ["nobody"]})
    client.publish("", "q")
    client.consume("q", no_ack=True)
    found = [fields["properties"] for _, fields in client.methods()]
    assert [one.get("headers") for one in found] == [{}, None]
