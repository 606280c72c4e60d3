"""Copies of mirrored queues on disk: hidden, found again, promoted and demoted, over any stop."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.mirror_copies import PREFIX, Copy
from penstock.broker.vhost import Vhost
from penstock.cluster.mirrored_backing import MirroredBacking
from penstock.cluster.queue_places import take_place
from penstock.cluster.remote_queue import RemoteQueue
from penstock.cluster.replica import TERM_SHIFT, Replica, begin_term
from penstock.core.message import PERSISTENT, PRIORITY_SHIFT, REDELIVERED, Message
from penstock.queues.consumers import Consumer, Outlet, SharedWindow
from penstock.queues.queue import Queue
from penstock.storage.recovery import close_engine, run_waiting
from tests.cluster.mirror_tools import Pair, Set, set_of
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.raw_codec import content_frames
from tests.helpers.sim_files import SimFileSystem

STOPS = ("clean", "kill", "power cut")
PLAIN: dict[str, object] = {}
PRIORITIES: dict[str, object] = {"x-max-priority": 3}
KEYED: dict[str, object] = {"x-max-priority": 2, "x-message-deduplication": True}
LIFE = "life1"
TERM = 3


class Node:
    """A node of two, without the noise; ``stop`` it in any way, and there is the next one."""

    def __init__(self, path: Path, rng: random.Random, name: str = "n") -> None:
        self.path = str(path / f"{name}.db")
        self.rng = rng
        self.quiet = QuietBroker(SimFileSystem(), self.path)

    @property
    def vhost(self) -> Vhost:
        return self.quiet.broker.vhosts["/"]

    @property
    def now_ms(self) -> int:
        return self.quiet.now_ms

    def run(self) -> None:
        self.quiet.tick(300)

    def stop(self, how: str) -> None:
        """And start again.  Whatever was not committed is lost, or was never there."""
        quiet = self.quiet
        now_ms = quiet.now_ms
        if how == "clean":
            self.run()
            parts: list[Any] = [
                part
                for vhost in quiet.broker.vhosts.values()
                for backing in vhost.durable_backings()
                for part in backing.parts()
            ]
            numbers = {int(part.queue_id): int(part.next_seq_id()) for part in parts}
            quiet.committer.close()
            close_engine(quiet.engine, parts, numbers, quiet.files)
        elif how == "kill":
            quiet.files.kill()
        else:
            quiet.files.power_cut(self.rng)
        quiet.definitions.close()
        self.quiet = QuietBroker(quiet.files, self.path)
        self.quiet.now_ms = now_ms
        assert self.quiet.opening.clean == (how == "clean")
        self.vhost.copies.check()

    def close(self) -> None:
        self.quiet.committer.close()
        self.quiet.definitions.close()

    def enter_remote(self, name: str, arguments: dict[str, object], life: str = LIFE) -> Queue:
        """Its master is on another node."""
        broker = self.quiet.broker
        queue = RemoteQueue(
            "/",
            name,
            life,
            True,
            False,
            arguments,
            broker.wakeups,
            broker.refills,
            broker.dead_letters.deaths,
            broker.waits,
            broker.answers,
            broker.flow.book,
        )
        self.vhost.enter_queue(queue)
        return queue

    def open_copy(self, name: str, arguments: dict[str, object]) -> Replica:
        copy = self.vhost.copies.open(name, LIFE, False, arguments)
        return self.replica(copy)

    def replica(self, copy: Copy) -> Replica:
        return Replica(copy.backing, self.quiet.engine.journal)

    def records(self) -> list[str]:
        """Names of durable queues, as the next start will find them."""
        with sqlite3.connect(self.path) as db:
            found = [row[0] for row in db.execute("SELECT name FROM queues ORDER BY name")]
        db.close()
        return found


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("PENSTOCK_SEED", str(random.randrange(2**32))))
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def node(tmp_path: Path, rng: random.Random) -> Iterator[Node]:
    one = Node(tmp_path, rng)
    yield one
    one.close()


@pytest.fixture
def master(tmp_path: Path, rng: random.Random) -> Iterator[Node]:
    one = Node(tmp_path, rng, "master")
    yield one
    one.close()


def body(number: int, key: str = "") -> bytes:
    headers = {"headers": {"x-deduplication-header": key}} if key else {}
    return content_frames(1, b"%d" % number, headers)


def some(count: int, *, first: int = 0, persistent: bool = True) -> list[Message]:
    """Of all priorities in turn."""
    flags = PERSISTENT if persistent else 0
    return [
        Message(
            body(first + n, f"key {first + n}"), b"\x00\x00", flags | n % 4 << PRIORITY_SHIFT, 0
        )
        for n in range(count)
    ]


def declare(node: Node, name: str, arguments: dict[str, object]) -> Queue:
    return node.vhost.make_queue(name, LIFE, True, None, False, arguments, node.now_ms)


def all_of(backing: Any, now_ms: int) -> list[Set]:
    return [set_of(part, now_ms) for part in backing.parts()]


def consumer(prefetch: int = 0) -> Consumer:
    outlet = Outlet()
    return Consumer("t", object(), outlet, SharedWindow(), False, prefetch, False, {}, 0)


def take(node: Node, queue: Queue, count: int) -> tuple[Consumer, list[Message]]:
    """So many are handed out to somebody who stays for no more."""
    reader = consumer(count)
    queue.add_consumer(reader)
    handed: list[Message] = []
    for _ in range(10):
        for delivery in queue.deliver(node.now_ms):
            handed += delivery.messages
        run_waiting(node.quiet.engine, node.quiet.files)
    queue.remove_consumer(reader)
    assert len(handed) == count
    return reader, handed


def synchronised(master: Node, node: Node, name: str, arguments: dict[str, object]) -> Pair:
    """A queue there, and a complete copy of it here."""
    queue = master.vhost.queues[name]
    mirrored = MirroredBacking(queue.backing, [])
    mirrored.begin(TERM, 0)
    replica = node.open_copy(name, arguments)
    replica.follow(TERM, False)
    for part in mirrored.parts:
        part.begin_at(TERM << TERM_SHIFT)
    return _synchronise(mirrored, replica, node)


class _Opened:
    """As much of an engine as a pair asks for."""

    def __init__(self, node: Node) -> None:
        self.engine = node.quiet.engine
        self._node = node

    def commit(self) -> None:
        self._node.run()


def _synchronise(mirrored: MirroredBacking, replica: Replica, node: Node) -> Pair:
    opened: Any = _Opened(node)
    pair = Pair(mirrored, replica, opened)
    pair.synchronise()
    return pair


# -- hidden --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", STOPS)
def test_a_copy_is_found_again_and_seen_by_nobody(
    node: Node, master: Node, rng: random.Random, how: str
) -> None:
    queue = declare(master, "q", PRIORITIES)
    queue.publish(some(40), master.now_ms)
    queue.publish_deferred(some(8, first=40), master.now_ms + 60_000, master.now_ms)
    pair = synchronised(master, node, "q", PRIORITIES)
    expected = all_of(queue.backing, 0)
    assert sum(map(len, expected)) == 48
    assert all_of(pair.replica.backing, 0) == expected
    node.run()
    for _ in range(2):
        node.stop(how)
        assert node.vhost.queues == {}
        assert node.vhost.queue_ids == {}
        copy = node.vhost.copies.find("q", LIFE)
        assert copy is not None
        assert copy.recovered
        assert copy.arguments == PRIORITIES
        replica = node.replica(copy)
        replica.check()
        assert all_of(copy.backing, 0) == expected
    assert node.vhost.copies.find("q", "another") is None


# -- another role --------------------------------------------------------------------------


def promoted(node: Node, name: str, term: int) -> Queue:
    """As a node does that finds itself the master."""
    copy = node.vhost.copies.copies[name]
    begin_term(copy.backing, term)
    queue = node.vhost.copies.to_queue(name, node.now_ms)
    _enter(node, queue)
    node.run()
    return queue


def demoted(node: Node, name: str) -> Copy:
    queue = node.vhost.queues[name]
    copy = node.vhost.copies.from_queue(queue)
    remote = RemoteQueue(
        "/",
        name,
        LIFE,
        True,
        False,
        queue.arguments,
        node.quiet.broker.wakeups,
        node.quiet.broker.refills,
        node.quiet.broker.dead_letters.deaths,
        node.quiet.broker.waits,
        node.quiet.broker.answers,
        node.quiet.broker.flow.book,
    )
    take_place(node.quiet.broker, queue, remote, node.now_ms)
    node.run()
    return copy


def _enter(node: Node, queue: Queue) -> None:
    there = node.vhost.queues.get(queue.name)
    if there is None:
        node.vhost.enter_queue(queue)
    else:
        take_place(node.quiet.broker, there, queue, node.now_ms)


def bindings(node: Node) -> list[str]:
    return sorted(
        one.routing_key for exchange in node.vhost.exchanges.values() for one in exchange.bindings()
    )


def kept_bindings(node: Node) -> list[str]:
    return sorted(one.routing_key for one in node.quiet.definitions.load().bindings)


@pytest.mark.parametrize("how", [None, *STOPS])
@pytest.mark.parametrize(
    "arguments", [PLAIN, PRIORITIES, KEYED], ids=["plain", "priorities", "keys"]
)
def test_there_and_back(
    node: Node, master: Node, how: str | None, arguments: dict[str, object]
) -> None:
    """A mirror becomes master, serves, and is a mirror again; stopped between every two steps."""
    queue = declare(master, "q", arguments)
    queue.publish(some(40), master.now_ms)
    due_ms = master.now_ms + 60_000
    queue.publish_deferred(some(8, first=40), due_ms, master.now_ms)
    synchronised(master, node, "q", arguments)
    expected = all_of(queue.backing, 0)
    node.vhost.declare_exchange("x", "direct", True, False, False, {})
    node.vhost.bind_queue(node.enter_remote("q", arguments), "x", "k", {})
    node.run()
    assert node.records() == [PREFIX + "q"]
    assert kept_bindings(node) == []
    if how is not None:
        node.stop(how)
        assert bindings(node) == []
        node.vhost.bind_queue(node.enter_remote("q", arguments), "x", "k", {})

    queue = promoted(node, "q", TERM + 1)
    for _ in range(2):
        assert node.records() == ["q"]
        assert node.vhost.copies.copies == {}
        assert list(node.vhost.queue_ids) == ["q"]
        assert bindings(node) == kept_bindings(node) == ["k"]
        node.quiet.check()
        assert all_of(queue.backing, 0) == expected
        if how is not None:
            node.stop(how)
            queue = node.vhost.queues["q"]
            begin_term(queue.backing, TERM + 1)
    queue.publish(some(4, first=100), node.now_ms)
    reader, handed = take(node, queue, 10)
    assert all(one.flags & REDELIVERED for one in handed if one.seq_id < (TERM + 1) << TERM_SHIFT)
    queue.settle(reader, handed[:5])
    expected = all_of(queue.backing, 0)
    assert sum(map(len, expected)) == 47
    node.run()
    if how is not None:
        node.stop(how)
        queue = node.vhost.queues["q"]
        assert all_of(queue.backing, 0) == expected
        reader, handed = take(node, queue, 10)

    copy = demoted(node, "q")
    for _ in range(2):
        assert node.records() == [PREFIX + "q"]
        assert node.vhost.queue_ids == {}
        assert kept_bindings(node) == []
        node.vhost.copies.check()
        assert all_of(copy.backing, 0) == expected
        if how is None:
            replica = Replica(copy.backing, node.quiet.engine.journal, is_whole=True)
            assert replica.is_complete()
            replica.check()
        else:
            node.stop(how)
            copy = node.vhost.copies.copies["q"]
    queue.settle(reader, handed[5:])
    assert all_of(copy.backing, 0) == expected
    node.vhost.copies.check()
    node.vhost.copies.drop("q")
    node.run()
    assert node.records() == []
