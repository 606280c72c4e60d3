"""Queues that take each key once, as publishers see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.management.facts.storage_view import listed_fields
from tests.helpers.connection_pair import ClientEnd, QuietBroker

ONCE = {"x-message-deduplication": True}


def publish(client: ClientEnd, body: bytes, key: object) -> None:
    client.publish("", "q", body, delivery_mode=2, headers={"x-deduplication-header": key})


def test_a_duplicate_is_confirmed_and_gone(tmp_path: Path) -> None:
    """Until the first one is acknowledged; a restart finds the keys again."""
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments=ONCE)
    client.call("confirm.select")
    for place, key in enumerate(("a", "b", "a", "a")):
        publish(client, b"%d" % place, key)
    acks: list[Any] = [fields for name, fields in client.methods() if name == "basic.ack"]
    assert acks[-1]["delivery_tag"] == 4
    row: Any = listed_fields(node.broker.vhosts["/"].queues["q"].backing)
    assert row["penstock_duplicates"] == 2
    client.consume("q")
    client.method(1, "basic.ack", delivery_tag=1, multiple=False)
    publish(client, b"4", "a")
    publish(client, b"5", "b")
    node.files.kill()
    again = QuietBroker(node.files, definitions)
    reader = again.client()
    publish(reader, b"6", "a")
    publish(reader, b"7", "c")
    reader.consume("q", no_ack=True)
    bodies = [fields["body"] for name, fields in reader.methods() if name == "basic.deliver"]
    assert bodies == [b"1", b"4", b"7"]
    publish(reader, b"8", "a")
    assert [fields["body"] for _, fields in reader.methods()] == [b"8"]
    again.check()
    node.definitions.close()


def test_every_queue_of_a_fan_out_judges_for_itself() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments=ONCE)
    client.call("queue.declare", queue="all", durable=True)
    for name in ("q", "all"):
        client.call("queue.bind", queue=name, exchange="amq.fanout")
    large = b"x" * 5000
    for _ in range(3):
        headers = {"x-deduplication-header": "same"}
        client.publish("amq.fanout", "", large, delivery_mode=2, headers=headers)
    queues = node.broker.vhosts["/"].queues
    assert [queues[name].backing.ready_count() for name in ("q", "all")] == [1, 3]
    client.consume("all", no_ack=True)
    client.consume("q", "d", no_ack=True)
    bodies = [fields["body"] for name, fields in client.methods() if name == "basic.deliver"]
    assert bodies == [large] * 4
    node.check()
