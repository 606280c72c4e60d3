"""Messages go when their time is over, wherever in the queue they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import raw_codec as codec
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


# -- heads that are only on disk (D4 of the review) ------------------------------------------

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
RESTING = {
    "lazy": {"x-queue-mode": "lazy"},
    "lazy, by priority": {"x-queue-mode": "lazy", "x-max-priority": 3},
    "lazy, once": {"x-queue-mode": "lazy", "x-message-deduplication": True},
    "paged": {},
}
BODY_BYTES = {"in the tail": 10, "in segments": 900, "in the store": 5000}
COUNT = 300


def resting(kind: str, size: int, ttl: str, **more: Any) -> tuple[QuietBroker, ClientEnd]:
    """A queue of 300 messages that rests on disk, and has no consumer."""
    node = QuietBroker(memory_bytes=400_000 if kind == "paged" else 1 << 30)
    client = node.client()
    declare(client, "dead", **{"x-queue-mode": "lazy"})
    arguments: dict[str, Any] = {**RESTING[kind], **more}
    if ttl == "x-message-ttl":
        arguments["x-message-ttl"] = 60_000
    declare(client, **arguments)
    for number in range(COUNT):
        text = b"%d:" % number
        publish(client, text + b"x" * size, 60_000 if ttl == "expiration" else None)
        if number % 25 == 24:
            node.tick(300)
    return node, client


def pass_time(node: QuietBroker, seconds: int) -> None:
    for _ in range(seconds * 2):
        node.tick(500)


@pytest.mark.parametrize("ttl", ["x-message-ttl", "expiration"])
@pytest.mark.parametrize("place", BODY_BYTES)
@pytest.mark.parametrize("kind", RESTING)
def test_what_rests_on_disk_dies_in_time_without_a_consumer(
    kind: str, place: str, ttl: str
) -> None:
    node, _ = resting(kind, BODY_BYTES[place], ttl)
    pass_time(node, 50)
    assert count(node) == COUNT
    pass_time(node, 25)
    assert count(node) == 0
    assert not node.turn.has_work()
    node.check()


@pytest.mark.parametrize("ttl", ["x-message-ttl", "expiration"])
@pytest.mark.parametrize("place", BODY_BYTES)
@pytest.mark.parametrize("kind", RESTING)
def test_what_rests_on_disk_becomes_dead_letters_in_order(kind: str, place: str, ttl: str) -> None:
    """So a delay queue (a time to live, dead letters, no consumer) works on disk too."""
    node, client = resting(kind, BODY_BYTES[place], ttl, **DEAD)
    pass_time(node, 80)
    assert (count(node), count(node, "dead")) == (0, COUNT)
    client.consume("dead", no_ack=True)
    pass_time(node, 2)
    assert [int(one.partition(b":")[0]) for one in bodies(client)] == list(range(COUNT))
    node.check()


@pytest.mark.parametrize("kind", RESTING)
@pytest.mark.parametrize("dead", [{}, DEAD])
def test_get_hands_out_nothing_that_is_over_its_time(kind: str, dead: dict[str, Any]) -> None:
    node, client = resting(kind, 900, "x-message-ttl", **dead)
    publish(client, b"young", None)
    node.now_ms += 59_800  # in one leap: of the first no turn has taken notice
    assert client.call("basic.get", queue="q", no_ack=True)["body"] == b"young"
    node.check()


def test_a_lazy_queue_after_a_restart_lets_die_in_time(tmp_path: Path) -> None:
    path = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=path)
    client = node.client()
    declare(client, **{"x-queue-mode": "lazy", "x-message-ttl": 60_000})
    for _ in range(COUNT):
        publish(client, b"x" * 900)
    node.tick(300)
    node.files.kill()
    node.definitions.close()
    after = QuietBroker(node.files, path)
    after.now_ms = node.now_ms
    pass_time(after, 50)
    assert count(after) == COUNT
    pass_time(after, 15)
    assert count(after) == 0
    after.definitions.close()


@pytest.mark.parametrize("settled", ["basic.reject", "basic.nack", "basic.recover"])
@pytest.mark.parametrize("arguments", [{"x-message-ttl": 0}, {}, {"x-max-priority": 2}])
def test_with_a_time_to_live_of_0_it_is_delivered_once(
    settled: str, arguments: dict[str, Any]
) -> None:
    """It comes back within the same millisecond, and dies."""
    node = QuietBroker()
    client = node.client()
    declare(client, "dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(client, **letters, **arguments)
    client.consume("q")
    publish(client, b"once", None if "x-message-ttl" in arguments else 0)
    assert bodies(client) == [b"once"]
    if settled == "basic.recover":
        client.method(1, settled, requeue=True)
    else:
        client.method(1, settled, delivery_tag=1, requeue=True)
    assert bodies(client) == []
    assert (count(node), count(node, "dead")) == (0, 1)
    client.method(1, "basic.get", queue="dead", no_ack=True)
    [(_, got)] = client.methods()
    assert got["properties"]["headers"]["x-death"][0]["reason"] == "expired"
    node.check()


# -- when the time to live begins --------------------------------------------------------------


def test_a_transaction_begins_it_with_its_commit() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    client.call("tx.select")
    publish(client, b"m", 400)
    node.tick(700)
    client.call("tx.commit")
    node.tick(300)
    assert count(node) == 1
    node.tick(100)
    assert count(node) == 0
    node.check()


def test_an_alarm_does_not_use_it_up() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    node.worker.stalled = "no space left on device"
    node.run()
    publish(client, b"m", 400)
    node.tick(700)
    assert count(node) == 0
    node.worker.stalled = ""
    node.run()
    assert count(node) == 1
    node.tick(399)
    assert count(node) == 1
    node.tick(1)
    assert count(node) == 0
    node.check()


def test_a_body_that_comes_late_does_not_use_it_up() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client)
    content = codec.content_frames(1, b"body", {"expiration": "400"})
    method = codec.method_frame(1, "basic.publish", exchange="", routing_key="q")
    body = codec.encode_frame(3, 1, b"body")
    assert content.endswith(body)
    client.send(method + content[: -len(body)])
    node.tick(700)
    client.send(body)
    node.tick(399)
    assert count(node) == 1
    node.tick(1)
    assert count(node) == 0
    node.check()
