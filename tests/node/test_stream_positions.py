"""Positions of named consumers, which the broker keeps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.queues.stream import KEEP_MS
from penstock.streams.marks import POSITIONS_MAX
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.node.test_streams import after_a_power_cut, declare, delivered, expected, fill

TRACKING = "x-stream-automatic-offset-tracking"
KEPT: dict[str, object] = {TRACKING: True}


def consume(
    client: ClientEnd, arguments: dict[str, object], tag: str = "billing", prefetch: int = 1000
) -> None:
    client.call("basic.qos", prefetch_count=prefetch)
    client.method(1, "basic.consume", queue="s", consumer_tag=tag, arguments=arguments)


def tracked(node: QuietBroker, offset: object = "first", **more: Any) -> ClientEnd:
    """A client whose consumer has its position kept."""
    client = node.client()
    consume(client, KEPT | {"x-stream-offset": offset}, **more)
    return client


def settle(node: QuietBroker, client: ClientEnd, verb: str, tag: int, **more: Any) -> None:
    client.method(1, f"basic.{verb}", delivery_tag=tag, **more)
    node.now_ms += 5
    node.run()


def kept(node: QuietBroker) -> dict[str, int]:
    positions = node.broker.vhosts["/"].queues["s"].backing.log.marks.positions
    return {name: positions.find(name).number for name in positions.names()}


def written(node: QuietBroker) -> int:
    """Bytes of the stream's files."""
    return sum(node.files.size(name) for name in node.files.names if name.endswith(".stm"))


@pytest.fixture
def definitions(tmp_path: Path) -> str:
    return str(tmp_path / "definitions.db")


@pytest.fixture
def node(definitions: str) -> Iterator[QuietBroker]:
    """With a stream of ten messages."""
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(10))
    yield node
    node.check()


def test_a_consumer_goes_on_behind_what_it_acknowledged(node: QuietBroker) -> None:
    reader = tracked(node)
    assert delivered(node, reader) == expected(*range(10))
    settle(node, reader, "ack", 4, multiple=True)
    reader.drop()
    node.run()
    assert kept(node) == {"billing": 4}
    reader = node.client()
    consume(reader, KEPT)
    assert delivered(node, reader) == expected(*range(4, 10))


def test_its_offset_is_for_the_first_time(node: QuietBroker) -> None:
    reader = tracked(node, 7)
    assert delivered(node, reader) == expected(7, 8, 9)
    settle(node, reader, "ack", 1)
    reader.drop()
    reader = tracked(node, "first")
    assert delivered(node, reader) == expected(8, 9)


def test_an_offset_alone_wins_and_moves_nothing(node: QuietBroker) -> None:
    reader = tracked(node, 7)
    assert delivered(node, reader) == expected(7, 8, 9)
    settle(node, reader, "ack", 3, multiple=True)
    reader.drop()
    reader = node.client()
    consume(reader, {"x-stream-offset": 2})
    assert delivered(node, reader) == expected(*range(2, 10))
    settle(node, reader, "ack", 2, multiple=True)
    node.now_ms += KEEP_MS
    node.run()
    assert kept(node) == {"billing": 10}


def test_a_void_offset_is_kept_from_the_first_message_on(node: QuietBroker) -> None:
    for begin in (0, 3):
        reader = node.client()
        consume(reader, {"x-stream-offset": None})
        assert delivered(node, reader) == expected(*range(begin, 10))
        settle(node, reader, "ack", 3, multiple=True)
        reader.drop()
        node.run()
    assert kept(node) == {"billing": 6}
    reader = node.client()
    consume(reader, {"x-stream-offset": None}, tag="")
    assert delivered(node, reader) == expected(*range(10))
    assert kept(node) == {"billing": 6}


def test_acknowledged_in_any_order_it_stays_at_the_first_that_is_not(node: QuietBroker) -> None:
    reader = tracked(node)
    assert len(delivered(node, reader)) == 10
    for tag, position in ((2, 0), (3, 0), (1, 3), (5, 3), (4, 5)):
        settle(node, reader, "ack", tag)
        node.now_ms += KEEP_MS
        node.run()
        assert kept(node) == {"billing": position}


def test_rejected_is_dealt_with_and_given_back_is_not(node: QuietBroker) -> None:
    reader = tracked(node)
    assert len(delivered(node, reader)) == 10
    settle(node, reader, "reject", 1, requeue=False)
    settle(node, reader, "nack", 2, requeue=False)
    settle(node, reader, "nack", 4, requeue=True)
    settle(node, reader, "ack", 10, multiple=True)
    reader.drop()
    node.run()
    assert kept(node) == {"billing": 3}


def test_what_a_cancelled_consumer_acknowledges_counts(node: QuietBroker) -> None:
    reader = tracked(node)
    assert len(delivered(node, reader)) == 10
    reader.call("basic.cancel", consumer_tag="billing")
    settle(node, reader, "ack", 6, multiple=True)
    node.tick(int(KEEP_MS))
    assert kept(node) == {"billing": 6}
    reader.call("channel.close", code=200)
    node.run()
    assert kept(node) == {"billing": 6}
    settled = tracked(node)
    assert delivered(node, settled) == expected(*range(6, 10))


def test_the_next_message_counts_also_when_nothing_was_delivered(node: QuietBroker) -> None:
    reader = tracked(node, "next")
    node.run()
    reader.drop()
    node.run()
    fill(node, node.client(), "s", range(10, 12))
    reader = tracked(node, "next")
    assert delivered(node, reader) == expected(10, 11)


def test_a_filter_moves_it_behind_what_it_passes_over(node: QuietBroker) -> None:
    reader = node.client()
    consume(reader, KEPT | {"x-stream-offset": "first", "x-stream-filter": "eu"})
    assert delivered(node, reader) == []
    reader.drop()
    node.run()
    assert kept(node) == {"billing": 10}


def test_it_survives_a_power_cut_a_second_later_and_is_never_ahead(
    node: QuietBroker, definitions: str
) -> None:
    reader = tracked(node)
    assert len(delivered(node, reader)) == 10
    settle(node, reader, "ack", 3, multiple=True)
    node.tick(int(KEEP_MS))
    node.tick(int(KEEP_MS))
    settle(node, reader, "ack", 5, multiple=True)
    again = after_a_power_cut(node, definitions)
    assert kept(again)["billing"] in (3, 5)
    reader = tracked(again)
    begun = delivered(again, reader)
    assert begun[0][0] in (3, 5)
    assert begun == expected(*range(begun[0][0], 10))


def test_a_clean_end_of_a_connection_writes_it_at_once(node: QuietBroker, definitions: str) -> None:
    reader = tracked(node)
    assert len(delivered(node, reader)) == 10
    node.tick(int(KEEP_MS))
    settle(node, reader, "ack", 9, multiple=True)
    reader.drop()
    node.run()
    node.files.kill()
    node.definitions.close()
    again = QuietBroker(node.files, definitions)
    assert kept(again) == {"billing": 9}


def test_many_acknowledgements_cost_one_block_a_second(node: QuietBroker) -> None:
    readers = [tracked(node, tag=f"r{number}") for number in range(20)]
    for reader in readers:
        assert len(delivered(node, reader)) == 10
    node.tick(int(KEEP_MS))
    before = written(node)
    for tag in range(1, 11):
        for reader in readers:
            settle(node, reader, "ack", tag)
    node.tick(int(KEEP_MS))
    assert set(kept(node).values()) == {10}
    assert written(node) - before <= 2 * (80 + 20 * (17 + 3))


def test_a_stream_keeps_so_many_and_one_that_is_deleted_keeps_none(node: QuietBroker) -> None:
    stream = node.broker.vhosts["/"].queues["s"]
    for number in range(POSITIONS_MAX - 1):
        stream.backing.log.marks.positions.move(f"r{number}", 1, 0)
    assert delivered(node, tracked(node)) == expected(*range(10))
    node.now_ms += KEEP_MS
    node.run()
    assert len(kept(node)) == POSITIONS_MAX
    refused = tracked(node, tag="one too many")
    node.run()
    (name, told), *_ = refused.methods()
    assert (name, told["code"]) == ("channel.close", 406)
    assert f"{POSITIONS_MAX} positions of consumers are kept" in told["text"]
    again = tracked(node, tag="r5")
    assert delivered(node, again) == expected(*range(1, 10))
    assert stream.backing.forget_position("r6")
    assert not stream.backing.forget_position("r6")
    assert delivered(node, tracked(node, tag="one too many")) == expected(*range(10))
    client = node.client()
    client.call("queue.delete", queue="s")
    node.run()
    declare(client, "s")
    assert kept(node) == {}


def test_a_tag_of_the_server_is_refused(node: QuietBroker) -> None:
    client = node.client()
    consume(client, KEPT, tag="")
    node.run()
    (name, told), *_ = client.methods()
    assert (name, told["code"]) == ("channel.close", 406)
    assert "the consumer tag is the server's" in told["text"]


class Life:
    """Consumers of three names that come, settle in any order and go, while the node crashes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.node = QuietBroker()
        declare(self.node.client(), "s", stream_max_segment_size_bytes=700)
        self.count = 0
        self.readers: dict[str, ClientEnd] = {}
        self.held: dict[str, dict[int, int]] = {}
        """By name: delivery tag -> offset."""
        self.next: dict[str, int] = {}
        """By name: the offset to be delivered next, of those that are here."""
        self.settled: dict[str, set[int]] = {name: set() for name in "abc"}

    def step(self) -> None:
        name = self.rng.choice("abc")
        is_here = name in self.readers
        steps = [self.fill, self.wait, self.crash]
        steps += [self.settle, self.settle, self.go] if is_here else [self.come] * 3
        self.rng.choice(steps)(name)
        self.node.check()
        for one, offset in kept(self.node).items():
            assert set(range(offset)) <= self.settled[one]

    def fill(self, _name: str) -> None:
        more = self.rng.randrange(1, 5)
        fill(self.node, self.node.client(), "s", range(self.count, self.count + more))
        self.count += more

    def wait(self, _name: str) -> None:
        self.node.tick(int(KEEP_MS))

    def come(self, name: str) -> None:
        reader = tracked(self.node, tag=name, prefetch=self.rng.choice((1, 3, 100)))
        self.readers[name] = reader
        self.held[name] = {}
        self.next.pop(name, None)

    def look(self, name: str) -> None:
        for told, args in self.readers[name].methods():
            if told == "basic.deliver":
                offset = args["properties"]["headers"]["x-stream-offset"].value
                if name not in self.next:
                    assert set(range(offset)) <= self.settled[name]
                    self.next[name] = offset
                assert offset == self.next[name]
                self.next[name] += 1
                self.held[name][args["delivery_tag"]] = offset

    def settle(self, name: str) -> None:
        self.look(name)
        if self.held[name]:
            tag = self.rng.choice(sorted(self.held[name]))
            settle(self.node, self.readers[name], "ack", tag)
            self.settled[name].add(self.held[name].pop(tag))

    def go(self, name: str) -> None:
        self.readers.pop(name).drop()

    def crash(self, _name: str) -> None:
        node = self.node
        if self.rng.random() < 0.5:
            node.files.power_cut(self.rng)
        else:
            node.files.kill()
        self.node = QuietBroker(node.files, node.definitions)
        self.node.now_ms = node.now_ms
        self.readers = {}

    def end(self) -> None:
        for name in "abc":
            if name in self.readers:
                self.go(name)
            reader = tracked(self.node, tag=name)
            found = [offset for offset, _ in delivered(self.node, reader)]
            unsettled = set(range(self.count)) - self.settled[name]
            assert unsettled <= set(found)
            assert found == list(range(self.count - len(found), self.count))


@pytest.mark.parametrize("seed", range(20))
def test_random_consumers_miss_nothing(seed: int) -> None:
    life = Life(seed)
    for _ in range(60):
        life.step()
    life.end()
