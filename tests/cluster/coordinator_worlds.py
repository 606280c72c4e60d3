"""The same few words for every coordinator, so that one suite asks all of them.

A world has members that join, and time that passes.  Where the coordinator is simulated or
embedded the time is made up; with etcd it is the clock's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from penstock.cluster.agreement.coordinator import Change, Condition, Coordinator, Event, Proposal
from penstock.cluster.agreement.store_client import ServedCoordinator
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator
from penstock.node.coordination.etcd_http import EtcdOptions
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.node.coordination.local_coordinator import local_coordinator
from penstock.node.coordination.server import CoordinationServer
from penstock.storage.definitions.coordination import HISTORY_KEPT, CoordinationStore
from tests.cluster.embedded_coordinator import EmbeddedCoordinator
from tests.simulation.sim_coordinator import SimStore

STEP_MS = 20
SECRET = b"what the nodes of these tests share"


class World:
    """``asleep``: members whose process stands still; they are not ticked."""

    ttl_ms = 3000

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.members: list[Coordinator] = []
        self.asleep: list[Coordinator] = []

    def join(self, name: str) -> Coordinator:
        raise NotImplementedError

    def close(self) -> None:
        for member in self.members:
            member.close()

    def pass_time(self) -> None:
        self.now_ms += STEP_MS

    def step(self) -> None:
        self.pass_time()
        for member in self.members:
            if member not in self.asleep:
                member.tick(self.now_ms)

    def wait(self, until: Callable[[], bool], within_ms: int = 30_000) -> None:
        end_ms = self.now_ms + within_ms
        while not until():
            assert self.now_ms < end_ms, f"not within {within_ms} ms"
            self.step()

    def spend(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        self.wait(lambda: self.now_ms >= end_ms, duration_ms + 1000)

    def done(
        self, member: Coordinator, conditions: Sequence[Condition], changes: Sequence[Change]
    ) -> Proposal:
        """What became of it, some time later."""
        proposal = member.propose(conditions, changes)
        self.wait(lambda: proposal.done)
        return proposal

    def barrier(self, member: Coordinator) -> None:
        done = self.done(member, [], [])
        assert done.revision > 0, done.error


class SimWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.store = SimStore(Random(seed), delay_ms=(0, 60))
        self.store.now_ms = self.now_ms

    def join(self, name: str) -> Coordinator:
        member = self.store.join(name)
        self.members.append(member)
        return member


class EmbeddedWorld(World):
    def __init__(self, path: str, history_kept: int = HISTORY_KEPT) -> None:
        super().__init__()
        self.store = CoordinationStore(path, self.now_ms, history_kept)

    def join(self, name: str) -> Coordinator:
        member = EmbeddedCoordinator(self.store, name, self.now_ms, self.ttl_ms)
        self.members.append(member)
        return member

    def close(self) -> None:
        super().close()
        self.store.check()
        self.store.close()


class ClockWorld(World):
    """Its time is the clock's."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = boot_ms()

    def pass_time(self) -> None:
        time.sleep(0.002)
        self.now_ms = boot_ms()


class ServedWorld(ClockWorld):
    """The store is in another thread, behind a socket."""

    ttl_ms = 1500

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.file = str(directory / "coordination.db")
        self.path = str(directory / "coordination.sock")
        self.server = self.serve()

    def serve(self) -> CoordinationServer:
        server = CoordinationServer(self.file, self.path, self.ttl_ms)
        server.start()
        return server

    def join(self, name: str) -> ServedCoordinator:
        member = local_coordinator(self.path, name)
        member.start(patience_s=5)
        self.members.append(member)
        return member

    def close(self) -> None:
        super().close()
        self.server.stop()
        store = CoordinationStore(self.file, 0)
        store.check()
        store.close()


class EtcdWorld(ClockWorld):
    """``endpoints``: where clients find it."""

    def __init__(self, endpoints: tuple[str, ...], **options: Any) -> None:
        super().__init__()
        self.options = EtcdOptions(endpoints, SECRET, **options)
        self.ttl_ms = self.options.lease_ttl_s * 1000

    def join(self, name: str) -> EtcdCoordinator:
        member = EtcdCoordinator(self.options)
        member.start(patience_s=5)
        self.step()
        self.members.append(member)
        return member


class Copy:
    """What a member knows: its snapshot, and the events on top of it; judges their order.

    ``may_differ``: it may get the difference instead of the history.
    """

    def __init__(self, member: Coordinator, *, may_differ: bool = False) -> None:
        self.member = member
        self.may_differ = may_differ
        self.keys = {entry.key: entry.value for entry in member.snapshot()}
        self.revisions = {entry.key: entry.revision for entry in member.snapshot()}
        self.revision = max(self.revisions.values(), default=0)
        self.log: list[tuple[int, str, str | None]] = []

    def take(self) -> list[Event]:
        events = self.member.take_events()
        for event in events:
            assert self.may_differ or event.revision >= self.revision, "O2: in order"
            self.revision = event.revision
            self.log.append((event.revision, event.key, event.value))
            if event.value is None:
                assert event.key in self.keys, "O2: what goes was there"
                del self.keys[event.key], self.revisions[event.key]
            else:
                assert event.created == (event.key not in self.keys), "O2: created"
                assert event.revision > self.revisions.get(event.key, 0), "O2: none twice"
                self.keys[event.key] = event.value
                self.revisions[event.key] = event.revision
        return events
