"""A stream that takes each number of a publisher once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.queues.stream_backing import publisher_of
from penstock.streams.marks import PUBLISHERS_MAX
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.node.test_streams import after_a_power_cut, consume, declare, delivered


@pytest.fixture
def definitions(tmp_path: Path) -> str:
    return str(tmp_path / "definitions.db")


@pytest.fixture
def node(definitions: str) -> Iterator[QuietBroker]:
    node = QuietBroker(definitions=definitions)
    declare(node.client(), "s", message_deduplication=True)
    yield node
    node.check()


def publish(client: ClientEnd, key: object) -> None:
    """The body says the key."""
    body = str(key).encode()
    client.publish("", "s", body, headers={"x-deduplication-header": key})


def bodies(node: QuietBroker) -> list[bytes]:
    reader = node.client()
    consume(reader, "s", "first", prefetch=10_000)
    return [body for _, body in delivered(node, reader)]


@pytest.mark.parametrize(
    "key, found",
    [
        ("a:1", ("a", 1)),
        ("a:b:007", ("a:b", 7)),
        ("a:" + "9" * 18, ("a", 10**18 - 1)),
        ("a:" + "9" * 19, ("", 0)),
        ("x" * 255 + ":1", ("x" * 255, 1)),
        ("x" * 256 + ":1", ("", 0)),
        ("é" * 128 + ":1", ("", 0)),
        (":1", ("", 1)),
        ("a:", ("", 0)),
        ("a:-1", ("", 0)),
        ("a:²", ("", 0)),
        ("a", ("", 0)),
        (5, ("", 0)),
        (None, ("", 0)),
    ],
)
def test_a_key_is_a_name_and_a_number(key: object, found: tuple[str, int]) -> None:
    assert publisher_of(key) == found


def test_a_number_that_came_is_confirmed_and_not_taken(node: QuietBroker) -> None:
    client = node.client()
    client.call("confirm.select")
    for key in ("a:1", "a:2", "b:1", "a:2", "a:1", "b:5", "b:3", "plain", "plain", "a:3"):
        publish(client, key)
    node.run()
    acks = [args for name, args in client.methods() if name == "basic.ack"]
    assert acks[-1]["delivery_tag"] == 10
    assert bodies(node) == [b"a:1", b"a:2", b"b:1", b"b:5", b"plain", b"plain", b"a:3"]
    assert node.broker.vhosts["/"].queues["s"].backing.duplicate_count == 3


def test_a_duplicate_is_not_confirmed_before_the_first_one_is_on_disk(node: QuietBroker) -> None:
    client = node.client()
    client.call("confirm.select")
    node.run()
    node.committer.hold = True
    publish(client, "a:1")
    publish(client, "a:1")
    node.run()
    assert client.methods() == []
    node.committer.hold = False
    node.committer.finish()
    node.run()
    acks = [args for name, args in client.methods() if name == "basic.ack"]
    assert acks[-1]["delivery_tag"] == 2


def test_a_stream_without_the_argument_takes_all() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "s")
    for key in ("a:1", "a:1"):
        publish(client, key)
    assert bodies(node) == [b"a:1", b"a:1"]


def test_numbers_survive_crashes_and_retention(node: QuietBroker, definitions: str) -> None:
    client = node.client()
    client.call("confirm.select")
    for number in range(50):
        publish(client, f"a:{number}")
    node.run()
    node = after_a_power_cut(node, definitions)
    client = node.client()
    for number in range(45, 55):
        publish(client, f"a:{number}")
    assert bodies(node) == [b"a:%d" % number for number in range(55)]


def test_so_many_names_are_known_and_the_one_that_rests_longest_goes(node: QuietBroker) -> None:
    client = node.client()
    for number in range(int(PUBLISHERS_MAX)):
        publish(client, f"p{number}:1")
    publish(client, "p0:2")
    publish(client, "new:1")
    before = len(bodies(node))
    for key in ("p0:2", "new:1", "p2:1"):
        publish(client, key)
    assert len(bodies(node)) == before
    publish(client, "p1:1")
    assert len(bodies(node)) == before + 1


@pytest.mark.parametrize("seed", range(30))
def test_each_number_once_over_crashes(seed: int) -> None:
    """Publishers repeat what was not confirmed; segments are small, groups of any size."""
    rng = random.Random(seed)
    node = QuietBroker()
    declare(
        node.client(),
        "s",
        message_deduplication=True,
        stream_max_segment_size_bytes=rng.choice((300, 900, 100_000)),
    )
    confirmed = {"a": -1, "b": -1}
    for _ in range(12):
        client = node.client()
        client.call("confirm.select")
        node.committer.hold = rng.random() < 0.4
        sent: list[tuple[str, int]] = []
        for name in rng.sample(["a", "b"], 2):
            begin = max(confirmed[name] + 1 - rng.randrange(3), 0)
            for number in range(begin, confirmed[name] + 1 + rng.randrange(12)):
                publish(client, f"{name}:{number}")
                sent.append((name, number))
        node.run()
        for told, args in client.methods():
            if told == "basic.ack":
                for name, number in sent[: args["delivery_tag"]]:
                    confirmed[name] = max(confirmed[name], number)
        if rng.random() < 0.6:
            if rng.random() < 0.5:
                node.files.power_cut(rng)
            else:
                node.files.kill()
            node = QuietBroker(node.files, node.definitions)
        else:
            node.committer.hold = False
            node.committer.finish()
            node.run()
            for name, number in sent:
                confirmed[name] = max(confirmed[name], number)
        node.check()
        found = bodies(node)
        assert len(set(found)) == len(found)
        for name, last in confirmed.items():
            numbers = [int(body[2:]) for body in found if body.startswith(name.encode())]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) > last
