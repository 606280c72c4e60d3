"""Exchanges that delay: when messages come, that none is lost, and what they look like then."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.connection_pair import ClientEnd, QuietBroker


def declare(client: ClientEnd, kind: str = "direct", **fields: Any) -> None:
    client.call(
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": kind},
        **fields,
    )
    client.call("queue.declare", queue="q", durable=True)
    client.call("queue.bind", queue="q", exchange="later", routing_key="k")


def publish(client: ClientEnd, body: bytes, delay: object, key: str = "k", **more: Any) -> None:
    headers = {"x-delay": delay} if delay is not None else {}
    client.publish("later", key, body, delivery_mode=2, headers=headers, **more)


def count(node: QuietBroker, queue: str = "q") -> int:
    return int(node.broker.vhosts["/"].queues[queue].backing.ready_count())


def delivered(client: ClientEnd) -> list[dict[str, Any]]:
    return [fields for name, fields in client.methods() if name == "basic.deliver"]


def test_messages_come_when_their_time_does() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    for body, delay in ((b"3", 3000), (b"1", 1000), (b"0", None), (b"2", "2000"), (b"-", -5)):
        publish(client, body, delay)
    client.consume("q", no_ack=True)
    assert [one["body"] for one in delivered(client)] == [b"0", b"-"]
    node.tick(999)
    assert delivered(client) == []
    node.tick(1)
    (one,) = delivered(client)
    assert (one["body"], one["exchange"], one["routing_key"]) == (b"1", "later", "k")
    assert one["properties"]["headers"]["x-delay"] == -1000
    assert not one["redelivered"]
    node.tick(5000)
    assert [one["body"] for one in delivered(client)] == [b"2", b"3"]
    node.check()


def test_it_is_routed_by_what_is_bound_when_it_leaves() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "topic")
    publish(client, b"unbound", 100, "a.b")
    client.call("queue.declare", queue="new", durable=True)
    client.call("queue.bind", queue="new", exchange="later", routing_key="a.*")
    node.tick(100)
    assert (count(node), count(node, "new")) == (0, 1)


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("waited_ms", [0, 500, 1500])
def test_a_crash_loses_and_doubles_nothing(tmp_path: Path, power_cut: bool, waited_ms: int) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(client)
    client.call("confirm.select")
    publish(client, b"first", 1000)
    publish(client, b"second" * 2000, 2000)
    assert [name for name, _ in client.methods()] == ["basic.ack"] * 2
    node.tick(waited_ms)
    node.tick(300)  # what nobody waits for is synced by now
    now_ms = node.now_ms
    if power_cut:
        node.files.power_cut(random.Random(7))
    else:
        node.files.kill()
    again = QuietBroker(node.files, definitions)
    again.now_ms = now_ms
    reader = again.client()
    reader.consume("q", no_ack=True)
    bodies = [one["body"] for one in delivered(reader)]
    for _ in range(20):
        again.tick(100)
        bodies += [one["body"] for one in delivered(reader)]
    assert bodies == [b"first", b"second" * 2000]
    again.check()
    node.definitions.close()


def test_what_was_released_leaves_the_room_when_it_is_on_disk() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    publish(client, b"x", 100)
    room = node.broker.vhosts["/"].internal_queues.queues["amq.delayed.later"]
    node.committer.hold = True
    node.tick(100)
    assert count(node) == 1
    backing: Any = room.backing
    assert backing.tiers.pending.count == 1
    while node.committer.held:
        node.committer.finish()
        node.tick(300)  # nobody waits for it, so it is synced with the next ones
    assert backing.tiers.pending.count == 0
    assert backing.ready_count() == 0
    node.check()


def test_its_own_time_to_live_begins_when_it_leaves() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    publish(client, b"x", 1000, expiration="500")
    node.tick(1000)
    assert count(node) == 1
    node.tick(499)
    assert count(node) == 1
    node.tick(1)
    assert count(node) == 0


def test_a_delayed_message_is_not_returned_and_an_unroutable_one_without_delay_is() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    publish(client, b"x", 1000, key="nobody", mandatory=True)
    assert client.methods() == []
    publish(client, b"x", None, key="nobody", mandatory=True)
    assert [name for name, _ in client.methods()] == ["basic.return"]


def test_the_exchange_takes_what_waits_with_it(tmp_path: Path) -> None:
    node = QuietBroker(definitions=str(tmp_path / "definitions.db"))
    client = node.client()
    declare(client)
    publish(client, b"x", 1000)
    client.call("exchange.delete", exchange="later")
    node.tick(2000)
    assert count(node) == 0
    assert node.broker.vhosts["/"].internal_queues.queues == {}
    assert [queue.name for queue in node.definitions.load().queues] == ["q"]
    declare(client)
    node.tick(2000)
    assert count(node) == 0


def test_dead_letters_and_other_exchanges_lead_there_too() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    client.call("exchange.declare", exchange="front", type="fanout")
    client.call("exchange.bind", destination="later", source="front", routing_key="")
    client.publish("front", "k", b"by way of front", headers={"x-delay": 300})
    letters = {"x-dead-letter-exchange": "later", "x-dead-letter-routing-key": "k"}
    client.call("queue.declare", queue="dying", arguments={**letters, "x-message-ttl": 100})
    client.publish("", "dying", b"letter", headers={"x-delay": 200})
    node.tick(100)
    node.tick(199)
    assert count(node) == 0
    node.tick(1)
    assert count(node) == 2
    client.consume("q", no_ack=True)
    letter = delivered(client)[1]
    assert letter["properties"]["headers"]["x-death"][0]["reason"] == "expired"
    node.check()


def test_copies_go_where_their_keys_say_and_bcc_is_not_seen() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    client.call("queue.declare", queue="hidden")
    client.call("queue.bind", queue="hidden", exchange="later", routing_key="h")
    headers = {"x-delay": 100, "BCC": ["h"]}
    client.publish("later", "k", b"x", headers=headers)
    node.tick(100)
    assert (count(node), count(node, "hidden")) == (1, 1)
    client.consume("q", no_ack=True)
    assert delivered(client)[0]["properties"]["headers"] == {"x-delay": -100}


@pytest.mark.parametrize(
    "arguments", [{}, {"x-delayed-type": "nonsense"}, {"x-delayed-type": "x-delayed-message"}]
)
def test_the_type_within_must_be_one(arguments: dict[str, Any]) -> None:
    node = QuietBroker()
    client = node.client()
    client.method(
        1, "exchange.declare", exchange="later", type="x-delayed-message", arguments=arguments
    )
    ((name, fields),) = client.methods()
    assert (name, fields["code"]) == ("channel.close", 406)
    assert "'x-delayed-type' must be an existing exchange type" in fields["text"]
    assert "later" not in node.broker.vhosts["/"].exchanges


def test_nobody_gets_into_the_room() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    publish(client, b"x", 1000)
    for method in ("queue.purge", "basic.get"):
        client.call("channel.open", 2)
        client.method(2, method, queue="amq.delayed.later")
        ((name, fields),) = client.methods()
        assert (name, fields["code"]) == ("channel.close", 404)
        client.method(2, "channel.close-ok")
    client.publish("", "amq.delayed.later", b"y", mandatory=True)
    assert [name for name, _ in client.methods()] == ["basic.return"]


@pytest.mark.slow
def test_thousands_wait_and_come_in_order() -> None:
    node = QuietBroker(memory_bytes=2_000_000)
    client = node.client()
    declare(client)
    delays = list(range(1, 3001))
    random.Random(3).shuffle(delays)
    for delay in delays:
        publish(client, b"%d" % delay + b"." * 500, delay)
    client.consume("q", no_ack=True)
    bodies: list[int] = []
    for _ in range(400):
        node.tick(10)
        bodies += [int(one["body"].split(b".")[0]) for one in delivered(client)]
    assert sorted(bodies) == sorted(delays)
    assert all(abs(one - place) <= 10 for place, one in enumerate(bodies))
    node.check()
