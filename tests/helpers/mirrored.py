"""Mirrors that say what a test wants, and note what they were asked to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from penstock.broker.mirrors import (
    MASTER,
    MIRROR,
    CopyFacts,
    MasterMove,
    MirrorFacts,
    Mirrors,
    RingFacts,
    SyncProgress,
    is_elected,
    not_mirrored,
)
from penstock.node.inspection.session_inspector import NodeSessionInspector
from penstock.queues.queue import Queue
from tests.management.conftest import Served

A, B, C = "penstock@test", "penstock@two", "penstock@three"


@contextmanager
def served_in_a_cluster(directory: Path) -> Iterator[Served]:
    """Its management API, with some queues to be mirrored."""
    running = Served(directory)
    in_a_cluster(cast(NodeSessionInspector, running.view.watch))
    running.declare("plain", "orders", "behind", "gone")
    try:
        yield running
    finally:
        running.stop()


def in_a_cluster(watch: NodeSessionInspector) -> None:
    """It tells that its node is one of three, the third of which is down."""
    addresses = {"peer": "127.0.0.1:25672"}
    living = {"running": True, "version": "1.2", "addresses": addresses, "started_ms": 1_000}
    link = {
        "connected": True,
        "waiting_bytes": 0,
        "last_error": "",
        "bytes_in": 700,
        "bytes_out": 900,
    }
    watch._cluster_facts = lambda: {
        "this_node": A,
        "coordinator": "etcd",
        "why_not": "",
        "nodes": [
            {"name": A, **living},
            {"name": B, **living, "link": dict(link)},
            {"name": C, "running": False, "down_since_ms": 2_000},
        ],
    }


def copy(node: str, role: str, synced: bool, sync: SyncProgress | None = None) -> CopyFacts:
    facts = CopyFacts(node, f"{node}/1", role, synced=synced)
    facts.applied = facts.durable = 70
    facts.behind = 0
    if not synced:
        facts.applied = facts.durable = 60
        facts.behind = 10
    facts.sync = sync
    return facts


def facts(
    *copies: CopyFacts, recoverable: dict[str, str] | None = None, state: str = "", why: str = ""
) -> MirrorFacts:
    """A master on ``A`` and a synchronised mirror on ``B``, unless others are given."""
    members = list(copies) or [copy(A, MASTER, True), copy(B, MIRROR, True)]
    ring = RingFacts(4, [f"{one.member}#1" for one in members], [])
    found = MirrorFacts(9, 3, members, recoverable or {}, ring)
    found.mode = "all, manual"
    found.state = state or found.state
    found.why = why
    return found


def members(*copies: CopyFacts, away: str = "", learning: str = "") -> MirrorFacts:
    """Of a quorum queue that ``A`` leads and ``B`` follows, unless others are given."""
    found = facts(*copies, recoverable={away: "synced"} if away else {})
    found.ring, found.mode = None, "a majority"
    for one in found.copies:
        one.votes = one.node != learning
    names = [one.node for one in found.copies] + [one for one in (away, learning) if one]
    found.members = tuple(dict.fromkeys(names))
    return found


def down(why: str, recoverable: dict[str, str]) -> MirrorFacts:
    found = MirrorFacts(12, 3, [], recoverable)
    found.mode, found.state, found.why = "all, manual", "down", why
    return found


class FakeMirrors(Mirrors):
    def __init__(self) -> None:
        self.known: dict[tuple[str, str], MirrorFacts] = {}
        self.asked: list[tuple[str, ...]] = []
        self.moves: list[MasterMove] = []
        self.out: list[str] = []
        self.to_go: list[tuple[str, str]] = []
        self.wanted: dict[str, tuple[str, ...]] = {}  # by the name of a quorum queue
        self.looked = 0

    def leaving(self, node: str) -> list[tuple[str, str]]:
        """One less each time somebody looks."""
        assert node == A
        self.looked += 1
        return self.to_go[self.looked :]

    def mirrored(self) -> list[tuple[str, str]]:
        return list(self.known)

    def facts(self, queue: Queue) -> MirrorFacts | None:
        return self.known.get((queue.vhost, queue.name))

    def drained(self) -> list[str]:
        return self.out

    def sync(self, queue: Queue) -> None:
        if self.facts(queue) is None:
            raise not_mirrored(queue)
        self.asked.append(("sync", queue.name))

    def cancel_sync(self, queue: Queue) -> bool:
        self.asked.append(("cancel_sync", queue.name))
        return self.facts(queue) is not None

    def hand_over(self, queue: Queue, node: str) -> None:
        if self.facts(queue) is None:
            raise not_mirrored(queue)
        self.asked.append(("hand_over", queue.name, node))

    def copies_wanted(self, queue: Queue) -> tuple[str, ...]:
        return self.wanted.get(queue.name, ())

    def want_copies(self, queue: Queue, nodes: Sequence[str]) -> None:
        found = self.facts(queue)
        assert found is not None
        if found.master() not in nodes:
            raise is_elected(queue)
        self.wanted[queue.name] = tuple(nodes)

    def rebalance(
        self, vhost_pattern: str, queue_pattern: str, kind: str = "all"
    ) -> list[MasterMove]:
        self.asked.append(("rebalance", vhost_pattern, queue_pattern, kind))
        return self.moves

    def drain(self, node: str) -> None:
        self.out.append(node)

    def revive(self, node: str) -> None:
        self.out.remove(node)
