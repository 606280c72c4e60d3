"""A mirrored queue's publishes without sockets: processor time per message, at the master and at
a mirror.

    .venv/bin/python benchmarks/mirror_core.py                     the build that is installed
    PENSTOCK_PURE=1 .venv/bin/python benchmarks/mirror_core.py     the same files interpreted
    .venv/bin/python benchmarks/mirror_core.py --only 1kb --parts  where it goes

One ``MirrorGroup`` for each copy, each with an engine and files of its own, in one process; what
they say goes through the links' own sessions and frames.  A turn publishes one parcel of so many
messages, and ends when all copies have it on disk and the master knows.  Left out are clients and
the kernel's sockets.  Good for comparing a change with its parent in one sitting, and for seeing
early what a copy costs; with one core for each node, the dearest node bounds the rate.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import tempfile
import time
from pathlib import Path
from typing import Final

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.agreement.mirror_keys import Place
from penstock.cluster.mirrors.group import MirrorGroup
from penstock.cluster.remote.link_session import LinkSession
from penstock.cluster.ring.ring import Ring
from penstock.cluster.ring.views import NO_VIEW, View
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.confirm_watermark import PendingConfirm, PendingConfirms
from penstock.core.message import PERSISTENT, Message
from penstock.node.node import is_compiled
from penstock.protocols.peers.codec.frames import PeerReader, encode_parcels, preface
from penstock.protocols.peers.codec.mirrors import decode_said, encode_said
from penstock.runtime.disk.committer import Committer
from penstock.storage.common.disk_jobs import run_job
from penstock.storage.common.files import RealFileSystem
from penstock.storage.engine.engine import EngineLimits
from penstock.storage.engine.recovery import Opening
from penstock.storage.store.groups import StoreWriter

NOW_MS: Final = WallMs(1_700_000_000_000)
MONO_MS: Final = MonoMs(1_000_000)
ADDRESS: Final = b"\x00\x05queue"
STREAM: Final = 3
PARTS: Final = ("queue", "told", "link out", "link in", "applied", "disk")
"""What a node does: take messages in, say so, write and read frames, do what others said, write."""
MMAP_THRESHOLD: Final = -3
TRIM_THRESHOLD: Final = -1
DRAIN_EVERY: Final = 64
"""Turns after which the queue is emptied, off the clock."""

ROWS: Final = {"1kb": (1024, True), "100b": (100, False)}
"""Bytes of a message; persistent."""


class Line:
    """One direction between two members: a session at each end, and the bytes between them."""

    def __init__(self, sender: LinkSession, receiver: LinkSession) -> None:
        self.sender = sender
        self.receiver = receiver
        self.reader = PeerReader()
        self.reader.admit()
        self.reader.receive(preface())
        self.wire = b""

    def write(self) -> None:
        parcels = self.sender.take_outgoing(1 << 20)
        if parcels:
            self.wire += b"".join(encode_parcels(parcels))

    def read(self) -> list[bytes]:
        data, self.wire = self.wire, b""
        came: list[bytes] = []
        for frame in self.reader.receive(data):
            parcels = getattr(frame, "parcels", None)
            if parcels is None:  # an acknowledgement alone
                parcels = [(0, getattr(frame, "ack", 0), 0, b"")]
            came += [payload for _, payload in self.receiver.receive(parcels)]
        assert not self.receiver.fault, self.receiver.fault
        return came


class Clock:
    """Where a node's processor time goes.  Asking the kernel takes as long as a small step."""

    def __init__(self, *, by_parts: bool) -> None:
        self.ns = dict.fromkeys(PARTS, 0)
        self.by_parts = by_parts
        self.running = False
        self._since_ns = 0

    def start(self) -> None:
        self._since_ns = time.thread_time_ns()

    def spent(self, part: str, *, last: bool = False) -> None:
        """Since the step before; without parts all of it belongs to the last one."""
        if self.by_parts or last:
            now_ns = time.thread_time_ns()
            if self.running:
                self.ns[part] += now_ns - self._since_ns
            self._since_ns = now_ns


class Node:
    """One copy, and what its turns cost so far."""

    def __init__(self, name: str, directory: Path, *, by_parts: bool) -> None:
        self.name = name
        self.files = RealFileSystem()
        limits = EngineLimits(4096, 1 << 27, 32_768, 1 << 34, 1 << 33)
        opening = Opening(self.files, str(directory), limits, {})
        opening.run(lambda _jobs: None, lambda _text: None)
        self.engine = opening.engine
        journal = self.engine.journal
        self.committer = Committer(
            self.files,
            journal.directory,
            int(journal.file_size_bytes),
            StoreWriter(self.files, self.engine.store.directory),
            lambda: None,
        )
        self.queue = VariableQueue(self.engine, 1, True, 16_384)
        self.active: dict[Place, None] = {}
        self.waits = PendingConfirms()
        self.group = MirrorGroup(
            Ring(f"{name}#1", 0), self.queue, journal, self.active, ("/", "q"), self.waits, 4096
        )
        self.sessions: dict[str, LinkSession] = {}
        self.out: dict[str, Line] = {}
        self.came: list[tuple[str, bytes]] = []
        self.clock = Clock(by_parts=by_parts)
        self.turns = 0
        self.wanted = NO_VIEW
        self.complete: list[str] = []

    @staticmethod
    def settle_memory() -> None:
        """As a node does; else the C library would map and unmap large buffers all the time."""
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(MMAP_THRESHOLD, 8 * 1024 * 1024)
            libc.mallopt(TRIM_THRESHOLD, 64 * 1024 * 1024)

    def publish(self, messages: list[Message]) -> list[PendingConfirm]:
        self.clock.start()
        self.group.note(messages)
        self.queue.publish(messages, NOW_MS)
        self.clock.spent("queue", last=True)
        return self.waits.take()

    def turn(self, lines: list[tuple[str, Line]]) -> bool:
        """As a node's: what came is done, what there is to say leaves, the disk has it.

        False: nothing has changed, and only time could change it.
        """
        clock = self.clock
        clock.start()
        came = [
            (sender, speaker, data)
            for sender, line in lines
            for payload in line.read()
            for _, _, speaker, data in decode_said(payload)
        ]
        clock.spent("link in")
        for sender, speaker, data in came:
            self.group.receive(sender, speaker, data)
        clock.spent("applied")
        self.active.clear()
        ready = self.group.take(NOW_MS, MONO_MS)
        clock.spent("told")
        self.wanted = ready.view or NO_VIEW
        self.complete = ready.mirrors.complete
        self.say(ready.messages)
        clock.spent("link out")
        wrote = self.commit()
        clock.spent("disk", last=True)
        self.turns += 1
        return wrote or self.wanted is not NO_VIEW

    def say(self, messages: list[tuple[str, bytes]]) -> None:
        """One payload for each neighbour, as a node has it."""
        said: dict[str, list[bytes]] = {}
        for receiver, data in messages:
            said.setdefault(receiver, []).append(encode_said("/", "queue", f"{self.name}#1", data))
        for receiver, pieces in said.items():
            self.sessions[receiver].send(STREAM, b"".join(pieces))
            self.out[receiver].write()

    def is_addressed(self, nodes: list[Node]) -> bool:
        return any(one.out[self.name].wire for one in nodes if one is not self)

    def commit(self) -> bool:
        group = self.engine.seal(True)
        if group is not None:
            self.committer.commit_inline(group)
        done = self.committer.collect()
        for one in done:
            self.engine.committed(one)
        return bool(done)

    def work(self) -> None:
        """What the engine does beside, as far as it goes."""
        while self.engine.work(NOW_MS, False) or self.engine.board.writes:
            board = self.engine.board
            for lane in (board.writes, board.reads):
                for job in list(lane):
                    lane.remove(job)
                    run_job(job, self.files)
                    board.finish(job)
            self.commit()


class Cluster:
    """So many copies of one queue, the first of them the master."""

    def __init__(self, copies: int, directory: Path, *, by_parts: bool) -> None:
        self.view = NO_VIEW
        self.nodes: list[Node] = []
        self.synced: list[str] = []
        for number in range(copies):
            name = f"n{number + 1}"
            self.nodes.append(Node(name, directory / name, by_parts=by_parts))
            self.connect()
            self.join(self.nodes[-1])
        self.master = self.nodes[0]

    def connect(self) -> None:
        newest = self.nodes[-1]
        for other in self.nodes[:-1]:
            for one, two in ((newest, other), (other, newest)):
                one.sessions[two.name] = LinkSession(MONO_MS)
                one.sessions[two.name].connected(0)
            for one, two in ((newest, other), (other, newest)):
                one.out[two.name] = Line(one.sessions[two.name], two.sessions[one.name])

    def join(self, node: Node) -> None:
        node.group.ring.view_changed(self.view)
        self.synced = [one.name for one in self.nodes[:-1]] or [node.name]
        self.tell([node])
        self.rest()
        assert self.nodes[0].complete == [one.name for one in self.nodes[1:]][-1:]
        self.synced = [one.name for one in self.nodes]
        self.tell(self.nodes)
        self.rest()

    def tell(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.group.queue_view_changed(1, "n1", "", list(self.synced))

    def rest(self) -> None:
        """Turns until nobody has anything to say."""
        due = set(self.nodes)
        while due:
            for node in self.nodes:
                lines = [(one.name, one.out[node.name]) for one in self.nodes if one is not node]
                lines = [(name, line) for name, line in lines if line.wire]
                if node not in due and not lines:
                    continue
                due.discard(node)
                if node.turn(lines):
                    due.add(node)
                self.decide(node.wanted)
            if not due:
                due = {node for node in self.nodes if node.is_addressed(self.nodes)}

    def decide(self, wanted: View) -> None:
        """The coordinator: the first proposal of a version counts."""
        if wanted.version == self.view.version + 1:
            self.view = wanted
            for one in self.nodes:
                one.group.ring.view_changed(self.view)

    def measure(self, *, on: bool) -> None:
        for node in self.nodes:
            node.clock.running = on

    def drain(self) -> None:
        """All that was published ends; the disk's work is done."""
        queue = self.master.queue
        while messages := queue.fetch(1000, 1 << 30):
            queue.ack(messages)
        self.rest()
        for node in self.nodes:
            node.work()

    def close(self) -> None:
        for node in self.nodes:
            node.commit()
            node.committer.close()


def measured(
    copies: int, size: int, persistent: bool, batch: int, seconds: float, *, by_parts: bool
) -> Cluster:
    """Each node's time and turns, per message."""
    content = bytes(size)
    flags = PERSISTENT if persistent else 0
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(copies, Path(directory), by_parts=by_parts)
        try:
            count = rounds = 0
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                cluster.measure(on=True)
                for _ in range(DRAIN_EVERY):
                    messages = [Message(content, ADDRESS, flags, WallMs(0)) for _ in range(batch)]
                    waits = cluster.master.publish(messages)
                    cluster.rest()
                    assert all(wait.done for wait in waits)
                    rounds += 1
                    count += batch
                cluster.measure(on=False)
                cluster.drain()
            for node in cluster.nodes:
                node.turns //= rounds
                node.clock.ns = {part: spent // count for part, spent in node.clock.ns.items()}
            return cluster
        finally:
            cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="What copies of a queue cost, without sockets.")
    parser.add_argument("--only", default="", help="one of " + ", ".join(ROWS))
    parser.add_argument("--copies", default="1,2,3")
    parser.add_argument("--batches", default="1,10,100", help="messages in a parcel")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--parts", action="store_true", help="what of it goes where (the clock costs a little)"
    )
    asked = parser.parse_args()
    Node.settle_memory()
    print("compiled" if is_compiled() else "interpreted", "- µs per message; messages/s of a core")
    print(f"{'':26} {'master':>8} {'mirror':>8} {'master/s':>10} {'mirror/s':>10}")
    for name, (size, persistent) in ROWS.items():
        if asked.only and asked.only != name:
            continue
        for batch in map(int, asked.batches.split(",")):
            for copies in map(int, asked.copies.split(",")):
                found = measured(
                    copies, size, persistent, batch, asked.seconds, by_parts=asked.parts
                )
                show(f"{name}, parcels of {batch}, {copies}", found, parts=asked.parts)


def show(label: str, found: Cluster, *, parts: bool) -> None:
    """A mirror stands for all mirrors: the dearest."""
    mirrors = sorted(found.nodes[1:], key=lambda node: sum(node.clock.ns.values()))
    shown = [found.nodes[0], *mirrors[-1:]]
    spent = [max(1, sum(node.clock.ns.values())) for node in shown]
    us = " ".join(f"{ns / 1000:8.2f}" for ns in spent) + " " * 9 * (2 - len(spent))
    rates = " ".join(f"{1e9 / ns:10,.0f}" for ns in spent)
    print(f"{label:26} {us} {rates}", flush=True)
    if parts:
        for node in shown:
            words = ", ".join(f"{part} {ns / 1000:.2f}" for part, ns in node.clock.ns.items() if ns)
            print(f"    {node.name}, {node.turns} turns a parcel: {words}")


if __name__ == "__main__":
    main()
