"""Queues with priorities behind sessions: crashes, dead letters, what people see."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.management.facts.storage_view import listed_fields, shown_fields
from tests.helpers.connection_pair import ClientEnd, QuietBroker

PRIORITIES = {"x-max-priority": 9}


def declare(client: ClientEnd, name: str = "q", **arguments: Any) -> None:
    client.call("queue.declare", queue=name, durable=True, arguments=PRIORITIES | arguments)


def delivered(client: ClientEnd) -> list[bytes]:
    return [fields["body"] for name, fields in client.methods() if name == "basic.deliver"]


@pytest.mark.parametrize("power_cut", [False, True])
def test_priorities_survive_a_crash(tmp_path: Path, power_cut: bool) -> None:
    node = QuietBroker(definitions=str(tmp_path / "definitions.db"))
    client = node.client()
    declare(client)
    declare(client, "other")
    client.call("confirm.select")
    for place, priority in enumerate((0, 9, 4, 9, 200)):
        body = b"%d-%d" % (place, priority)
        client.publish("", "q", body, delivery_mode=2, priority=priority)
    client.publish("", "other", b"another's", delivery_mode=2, priority=1)
    if power_cut:
        node.files.power_cut(random.Random(1))
    else:
        node.files.kill()
    again = QuietBroker(node.files, str(tmp_path / "definitions.db"))
    reader = again.client()
    reader.consume("q", no_ack=True)
    assert delivered(reader) == [b"1-9", b"3-9", b"4-200", b"2-4", b"0-0"]
    reader.consume("other", "o", no_ack=True)
    assert delivered(reader) == [b"another's"]
    again.check()


def test_dead_letters_keep_their_priority() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.call("queue.declare", queue="q", durable=True, arguments=letters)
    for priority in (1, 4, 2):
        client.publish("", "q", b"%d" % priority, delivery_mode=2, priority=priority)
    client.consume("q")
    client.method(1, "basic.nack", delivery_tag=3, multiple=True, requeue=False)
    client.methods()
    client.consume("dead", "d", no_ack=True)
    assert delivered(client) == [b"4", b"2", b"1"]
    node.check()


def test_consumers_of_one_session_see_the_order() -> None:
    node = QuietBroker()
    client, publisher = node.client(), node.client()
    declare(client)
    for priority in (3, 7, 7, 5):
        publisher.publish("", "q", b"%d" % priority, priority=priority)
    client.call("basic.qos", prefetch_count=1)
    client.consume("q", "a")
    client.consume("q", "b")
    assert delivered(client) == [b"7", b"7"]
    client.method(1, "basic.ack", delivery_tag=2, multiple=True)
    assert delivered(client) == [b"5", b"3"]
    node.check()


def test_what_came_back_is_above_what_is_lower() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    client.publish("", "q", b"low", priority=1)
    client.publish("", "q", b"high", priority=8)
    client.call("basic.qos", prefetch_count=1)
    client.consume("q")
    client.method(1, "basic.reject", delivery_tag=1, requeue=True)
    assert delivered(client) == [b"high", b"high"]


@pytest.mark.parametrize("order, left", [("lowest", b"2 3"), ("highest", b"1 1")])
def test_a_full_queue_loses_what_the_setting_says(order: str, left: bytes) -> None:
    node = QuietBroker(drop_order=order)
    client = node.client()
    declare(client, "q", **{"x-max-length": 2})
    for priority in (3, 1, 2, 1):
        client.publish("", "q", b"%d" % priority, priority=priority)
    client.consume("q", no_ack=True)
    assert b" ".join(sorted(delivered(client))) == left


def test_a_table_is_not_made_of_priorities() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    backing = node.broker.vhosts["/"].queues["q"].backing
    with pytest.raises(Exception, match="cannot be read by position: bind a queue without them"):
        backing.positions()


def test_people_see_sums_and_each_priority() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    for priority in (1, 4, 4):
        client.publish("", "q", b"body", priority=priority)
    backing = node.broker.vhosts["/"].queues["q"].backing
    row: Any = listed_fields(backing)
    assert row["messages_ready_ram"] == 3
    status = row["backing_queue_status"]
    assert status["len"] == 3
    assert {key: value for key, value in status["priority_lengths"].items() if value} == {
        "1": 1,
        "4": 2,
    }
    shown: Any = shown_fields(backing)
    assert sorted(shown["penstock"]["priorities"]) == ["1", "4"]
