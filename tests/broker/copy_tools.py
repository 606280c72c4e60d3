"""Nodes that have copies of each other's queues, without links, loop or coordinator."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

from penstock.backing.variable_queue import VariableQueue
from penstock.broker.broker import Broker
from penstock.broker.topology.mirror_copies import Copy
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.replica import TERM_SHIFT, Replica, begin_term
from penstock.cluster.remote.queue import RemoteQueue
from penstock.cluster.remote.queue_places import take_place
from penstock.core.message import PERSISTENT, PRIORITY_SHIFT, Message
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.context import QueueIdentity
from penstock.queues.queue import Queue
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import VhostRecord
from penstock.storage.engine.engine import EngineLimits
from penstock.storage.engine.recovery import close_engine, run_waiting
from tests.cluster.mirror_tools import Pair, Set, set_of
from tests.helpers.connection_pair import JOURNAL_FILE_BYTES, QuietBroker
from tests.helpers.raw_codec import content_frames
from tests.helpers.sim_files import SimFileSystem

STOPS = ("clean", "kill", "power cut")
PLAIN: dict[str, object] = {}
PRIORITIES: dict[str, object] = {"x-max-priority": 3}
KEYED: dict[str, object] = {"x-max-priority": 2, "x-message-deduplication": True}
LIFE = "life1"
SEGMENT_ENTRIES = 16
TERM = 3


class Node:
    """A node of two, without the noise; ``stop`` it in any way, and there is the next one."""

    def __init__(
        self,
        path: Path,
        rng: random.Random,
        name: str = "n",
        limits: EngineLimits | None = None,
        journal_file_bytes: int = JOURNAL_FILE_BYTES,
    ) -> None:
        self.path = str(path / f"{name}.db")
        self.rng = rng
        definitions = Definitions(self.path)
        for vhost in ("/", "other"):
            definitions.put_vhost(VhostRecord(vhost, SEGMENT_ENTRIES))
        definitions.commit()
        definitions.close()
        self._limits = limits
        self._journal_file_bytes = journal_file_bytes
        self.quiet = self._opened(SimFileSystem())

    def _opened(self, files: SimFileSystem) -> QuietBroker:
        size = self._journal_file_bytes
        return QuietBroker(files, self.path, limits=self._limits, journal_file_bytes=size)

    @property
    def vhost(self) -> Vhost:
        return self.quiet.broker.vhosts["/"]

    @property
    def now_ms(self) -> int:
        return self.quiet.now_ms

    def run(self) -> None:
        self.quiet.tick(300)

    def commit(self) -> None:
        """What was done so far is on disk; no time passes."""
        quiet = self.quiet
        quiet.definitions.commit()
        group = quiet.engine.seal(True)
        if group is not None:
            quiet.committer.submit(group)
        for done in quiet.committer.collect():
            quiet.engine.committed(done)

    def stop(self, how: str) -> None:
        """And start again.  Whatever was not committed is lost, or was never there."""
        quiet = self.quiet
        now_ms = quiet.now_ms
        if how == "clean":
            self.commit()
            parts: list[Any] = [
                part
                for vhost in quiet.broker.vhosts.values()
                for backing in vhost.durable_backings()
                for part in backing.parts()
            ]
            numbers = {int(part.queue_id): int(part.records.next_seq_id) for part in parts}
            quiet.committer.close()
            close_engine(quiet.engine, parts, numbers, quiet.files)
        elif how == "kill":
            quiet.files.kill()
        else:
            quiet.files.power_cut(self.rng)
        quiet.definitions.close()
        self.quiet = self._opened(quiet.files)
        self.quiet.now_ms = now_ms
        assert self.quiet.opening.clean == (how == "clean")
        self.vhost.copies.check()

    def close(self) -> None:
        self.quiet.committer.close()
        self.quiet.definitions.close()

    def remote(self, name: str, arguments: dict[str, object], life: str = LIFE) -> Queue:
        return remote_queue(self.quiet.broker, name, life, arguments)

    def enter_remote(self, name: str, arguments: dict[str, object], life: str = LIFE) -> Queue:
        queue = self.remote(name, arguments, life)
        self.vhost.enter_queue(queue)
        return queue

    def open_copy(self, name: str, arguments: dict[str, object]) -> Replica:
        copy = self.vhost.copies.open(name, LIFE, False, arguments)
        return self.replica(copy)

    def replica(self, copy: Copy) -> Replica:
        replica = Replica(copy.backing, self.quiet.engine.journal)
        while replica.prepare():
            pass
        return replica

    def records(self) -> list[str]:
        """Names of durable queues, as the next start will find them."""
        with sqlite3.connect(self.path) as db:
            found = [row[0] for row in db.execute("SELECT name FROM queues ORDER BY name")]
        db.close()
        return found


def remote_queue(broker: Broker, name: str, life: str, arguments: dict[str, object]) -> RemoteQueue:
    """Its master is on another node."""
    return RemoteQueue(QueueIdentity("/", name, life, True, False, arguments), broker.queue_context)


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
    return node.vhost.make_queue(QueueIdentity("/", name, LIFE, True, False, arguments), None)


def all_of(backing: Any, now_ms: int) -> list[Set]:
    return [set_of(part, now_ms) for part in backing.parts()]


def consumer(prefetch: int = 0) -> Consumer:
    outlet = OutputWindow()
    return Consumer("t", object(), outlet, SharedWindow(), False, prefetch, False, {}, 0)


def take(node: Node, queue: Queue, count: int) -> tuple[Consumer, list[Message]]:
    """So many are handed out to somebody who stays for no more."""
    reader = consumer(count)
    queue.add_consumer(reader)
    handed: list[Message] = []
    for _ in range(200):
        for delivery in queue.deliver(node.now_ms):
            handed += delivery.messages
        if len(handed) == count:
            break
        run_waiting(node.quiet.engine, node.quiet.files)
    queue.remove_consumer(reader)
    assert len(handed) == count
    return reader, handed


def synchronised(master: Node, node: Node, name: str, arguments: dict[str, object]) -> Pair:
    """A queue there, and a complete copy of it here."""
    mirrored = mirrored_in(master, name, TERM)
    for part in mirrored.parts:
        part.replica.begin_at(TERM << TERM_SHIFT)
    pair = paired(mirrored, node.open_copy(name, arguments), node)
    pair.synchronise()
    return pair


def mirrored_in(master: Node, name: str, term: int) -> MirroredBacking:
    mirrored = MirroredBacking(master.vhost.queues[name].backing, {}, ("/", name))
    mirrored.begin(term, 0)
    return mirrored


class OpenedNode:
    """As much of an engine as a pair asks for."""

    def __init__(self, node: Node) -> None:
        self.engine = node.quiet.engine
        self._node = node

    def commit(self) -> None:
        self._node.run()


def paired(mirrored: MirroredBacking, replica: Replica, node: Node) -> Pair:
    """``replica`` is on that node, and may know nothing yet."""
    replica.follow(mirrored.term, False)
    opened: Any = OpenedNode(node)
    return Pair(mirrored, replica, opened)


def promoted(node: Node, name: str, term: int) -> Queue:
    """As a node does that finds itself the master."""
    copy = node.vhost.copies.copies[name]
    begin_term(copy.backing, term)
    queue = node.vhost.copies.to_queue(name, node.now_ms)
    enter(node, queue)
    node.run()
    return queue


def demoted(node: Node, name: str) -> Copy:
    """As a node does that hears of another master."""
    queue = node.vhost.queues[name]
    copy = node.vhost.copies.from_queue(queue)
    enter(node, node.remote(name, queue.arguments))
    node.run()
    return copy


def enter(node: Node, queue: Queue) -> None:
    there = node.vhost.queues.get(queue.name)
    if there is None:
        node.vhost.enter_queue(queue)
    else:
        take_place(node.quiet.broker, there, queue, node.now_ms)


def part_of(backing: Any) -> VariableQueue:
    part = backing.parts()[0]
    assert isinstance(part, VariableQueue)
    return part


def parts_of(backing: Any) -> list[VariableQueue]:
    return list(backing.parts())
