"""Messages go when their time is over, wherever in the queue they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.connection_pair import ClientEnd, QuietBroker


def count(node: QuietBroker, queue: str = "q") -> int:
    return int(node.broker.vhosts["/"].queues[queue].backing.ready_count())


def bodies(client: ClientEnd) -> list[bytes]:
    return [fields["body"] for name, fields in client.methods() if name == "basic.deliver"]


def declare(client: ClientEnd, name: str = "q", **arguments: Any) -> None:
    client.call("queue.declare", queue=name, durable=True, arguments=arguments)


def publish(client: ClientEnd, body: bytes, ttl_ms: int | None = None, **more: Any) -> None:
    expiration = {} if ttl_ms is None else {"expiration": str(ttl_ms)}
    client.publish("", "q", body, delivery_mode=2, **expiration, **more)


def fill(client: ClientEnd) -> None:
    for place, ttl_ms in enumerate((None, 100, 5000, 300, None, 200)):
        publish(client, b"%d" % place, ttl_ms)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-queue-mode": "lazy"}, {"x-max-priority": 3}, {"x-message-deduplication": True}],
)
def test_behind_others_too(arguments: dict[str, Any]) -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, **arguments)
    fill(client)
    counts = []
    for _ in range(6):
        node.tick(60)
        counts.append(count(node))
    assert counts == [6, 5, 5, 4, 3, 3]
    client.consume("q", no_ack=True)
    assert bodies(client) == [b"0", b"2", b"4"]
    node.check()


def test_they_become_dead_letters_in_time() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "dead")
    declare(client, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    fill(client)
    node.tick(250)
    assert (count(node), count(node, "dead")) == (4, 2)
    client.consume("dead", no_ack=True)
    letters = [fields for name, fields in client.methods() if name == "basic.deliver"]
    assert sorted(one["body"] for one in letters) == [b"1", b"5"]
    for one in letters:
        (death,) = one["properties"]["headers"]["x-death"]
        assert (death["reason"], death["queue"]) == ("expired", "q")
    node.tick(300)
    node.check()


def test_what_rests_on_disk_goes_too(tmp_path: Path) -> None:
    """And after a crash, when nothing is known of what is in which file."""
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions, memory_bytes=400_000)
    client = node.client()
    declare(client)
    client.call("confirm.select")
    publish(client, b"head")
    for number in range(3000):
        publish(client, b"%06d" % number * 100, 2000 if number % 3 == 0 else None)
    assert count(node) == 3001
    node.tick(1990)
    for _ in range(60):
        node.tick(20)
    assert count(node) == 3001 - 1000
    for number in range(100):
        publish(client, b"again %d" % number, 3000)
    for _ in range(20):
        node.tick(20)
    node.files.kill()
    after = QuietBroker(node.files, definitions, memory_bytes=400_000)
    after.now_ms = node.now_ms
    assert count(after) == 2101
    reader = after.client()
    reader.call("basic.get", queue="q", no_ack=True)
    for _ in range(200):
        after.tick(20)
    assert count(after) == 2000
    after.check()
    node.definitions.close()


def test_a_queue_with_one_time_to_live_is_never_swept() -> None:
    """Its messages go in the order they came, so looking at the head is enough."""
    node = QuietBroker()
    client = node.client()
    declare(client, **{"x-message-ttl": 1000})
    backing: Any = node.broker.vhosts["/"].queues["q"].backing
    for _ in range(20):
        publish(client, b"x", 2000)
        node.tick(100)
        assert backing.next_sweep_ms() == 0
    assert count(node) == 9


def test_bytes_of_the_limit_are_given_back() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, **{"x-max-length-bytes": 100})
    publish(client, b"a" * 40)
    publish(client, b"b" * 50, 100)
    node.tick(150)
    assert count(node) == 1
    publish(client, b"c" * 50)
    assert count(node) == 2
