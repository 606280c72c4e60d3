"""Two nodes with real brokers and clients on one simulated coordinator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.broker.definitions.exporting import export_definitions
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement.applying import MakeQueue, make_here
from penstock.cluster.agreement.common_metadata import CommonMetadata
from penstock.cluster.agreement.coordinator import Event
from penstock.cluster.agreement.membership import JOINED, MemberRecord, Membership
from tests.helpers.connection_pair import ClientEnd
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.sim_files import SimFileSystem
from tests.simulation.metadata_world import shown
from tests.simulation.sim_coordinator import SimStore


class QuietCluster:
    """Two nodes; ``run`` lets time pass until everybody is at rest."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ms = 1_700_000_000_000
        self.mono_ms = 5_000_000
        self.store = SimStore(random.Random(1), delay_ms=(1, 9))
        self.store.advance(self.now_ms)
        self.files = {name: SimFileSystem() for name in "ab"}
        self.lives = 0
        self.makers: dict[str, MakeQueue] = {}  # of nodes whose queues are not all their own
        self.quiet: dict[str, NsqBroker] = {}
        self.common: dict[str, CommonMetadata] = {}
        for name in "ab":
            self.start(name)

    def start(self, name: str) -> None:
        self.lives += 1
        path = str(self.directory / f"{name}.db")
        quiet = NsqBroker(files=self.files[name], definitions=path, mono_ms=self.mono_ms)
        quiet._names = self.lives * 1000  # incarnations are random in a node
        self.coordinator = self.store.join(f"{name}/{self.lives}")
        self.quiet[name] = quiet
        self.common[name] = CommonMetadata(
            quiet.broker,
            self.coordinator,
            name,
            f"{name}/{self.lives}",
            64,
            lambda *_: False,
            self.makers.get(name, make_here),
        )
        self.common[name].changes.is_known = lambda revision: all(
            one.has(revision) for one in self.common.values() if one.is_ready
        )
        self.run()

    def kill(self, name: str) -> None:
        self.quiet.pop(name).definitions.close()
        self.files[name].kill()
        self.store.members.remove(self.common.pop(name).changes.coordinator)  # type: ignore[arg-type]

    def run(self, turns: int = 40) -> None:
        for _ in range(turns):
            self.now_ms += 10
            self.mono_ms += 10
            for name, common in self.common.items():
                self.quiet[name].now_ms, self.quiet[name].mono_ms = self.now_ms, self.mono_ms
                common.changes.coordinator.tick(self.now_ms)
                events = common.changes.coordinator.take_events()
                self.heard(name, events)
                common.turn(self.mono_ms, events)
                self.quiet[name].turn.cancelled(common.take_lost())
                self.quiet[name].run()

    def heard(self, name: str, events: Sequence[Event]) -> None:
        """For who hears news beside the metadata."""

    def vhost(self, name: str) -> Vhost:
        return self.quiet[name].broker.vhosts["/"]

    def check(self) -> None:
        told = []
        for name, common in self.common.items():
            common.applier.check()
            self.quiet[name].check()
            told.append(shown(export_definitions(self.quiet[name].broker, "", "")))
        assert all(one == told[0] for one in told)


class QuietMembers(QuietCluster):
    """The same, and each knows who lives."""

    def __init__(self, directory: Path) -> None:
        self.memberships: dict[str, Membership] = {}
        super().__init__(directory)

    def start(self, name: str) -> None:
        super().start(name)
        here = MemberRecord(name, f"{self.lives}", {}, "1", self.now_ms)
        coordinator = self.common[name].changes.coordinator
        self.memberships[name] = Membership(coordinator, here, self.now_ms, 6000)
        self.run(400)
        assert self.memberships[name].state == JOINED

    def kill(self, name: str) -> None:
        del self.memberships[name]
        super().kill(name)

    def heard(self, name: str, events: Sequence[Event]) -> None:
        if name in self.memberships:
            self.memberships[name].hear(events)
            self.memberships[name].tick(self.now_ms, self.now_ms)

    def lose(self, name: str) -> None:
        self.kill(name)
        while "b" in self.memberships["a"].running():
            self.run(10)


class Told(NamedTuple):
    name: str
    fields: dict[str, Any]


def told_to(client: ClientEnd) -> list[Told]:
    return [Told(name, fields) for name, fields in client.methods()]


def ask(cluster: QuietCluster, client: ClientEnd, method: str, **fields: Any) -> list[Told]:
    told_to(client)
    client.method(1, method, **fields)
    cluster.run()
    return told_to(client)
