"""A cluster's metadata by chance: nodes with real brokers, one simulated coordinator, clients.

Clients on all nodes declare, bind, delete and administrate at the same time
(``metadata_requests.py``), and the world is not kind: proposals and events take their time, answers
get lost, nodes are cut off, killed and started again with what their disk has.  In a *slow* world a
start, and any turn, may take longer than a lease: recovery, a slow disk, a machine that was
stopped; the node then finds that it is a member no more, and joins again.  Everything a client is
told is judged by the history of the store: what it was told must have been true at some moment
between its question and its answer.  At rest all nodes have the same, and it is what the store has.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.definitions.exporting import export_definitions
from penstock.broker.topology.changes import Ask
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import dead_among
from penstock.cluster.agreement.common_metadata import CommonMetadata
from penstock.cluster.agreement.coordinator import Entry
from penstock.core.errors import BrokerError, Unavailable
from penstock.core.message import Message
from penstock.core.pending import Pending
from penstock.protocols.amqp.codec.properties import Properties, encode_content
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.requests import Request
from tests.helpers.sim_files import SimFileSystem
from tests.simulation.metadata_requests import Asking, Requests
from tests.simulation.sim_coordinator import TTL_MS, SimCoordinator, SimStore

REST_MS: Final = 40_000
SLOW_MS: Final = (300, 2_500, TTL_MS + 100, 4 * TTL_MS)
"""How long a slow step takes: shorter than a lease, about as long, and much longer."""


class Judgement(AssertionError):
    """A client was told what was never true."""


class SimNode:
    """One node, through all its lives; ``killed``: no process at present."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.files = SimFileSystem()
        self.lives = 0
        self.killed = True
        self.sessions: list[Session] = []
        self.busy_until_ms = 0  # in a slow step

    def start(self) -> None:
        self.lives += 1
        self.killed = False
        self.busy_until_ms = 0
        path = self.world.directory / f"{self.name}.db"
        self.quiet = QuietBroker(self.files, str(path), mono_ms=self.world.mono_ms)
        self.quiet.new_name = self._new_name  # type: ignore[method-assign]
        self.coordinator: SimCoordinator = self.world.store.join(f"{self.name}/{self.lives}")
        self.common = CommonMetadata(
            self.quiet.broker,
            self.coordinator,
            self.name,
            f"{self.name}/{self.lives}",
            64,
            self._close_some,
        )
        self.common.changes.is_known = self.world.is_known
        self.slow_down(0.6)

    def slow_down(self, chance: float) -> None:
        """Its next turn, or what is left of its start, may take long."""
        chances = self.world.chances_of_slow
        if chances is not None and chances.random() < chance:
            self.busy_until_ms = self.world.now_ms + chances.choice(SLOW_MS)
            self.world.counts["slow steps"] += 1

    @property
    def busy(self) -> bool:
        return self.world.now_ms < self.busy_until_ms

    def _new_name(self, prefix: str) -> str:
        return f"{prefix}{self.world.rng.getrandbits(64)}"

    def _close_some(self, vhost: str, _count: int) -> bool:
        for session in [one for one in self.sessions if one.vhost == vhost]:
            session.end()
        return False

    @property
    def ready(self) -> bool:
        return not self.killed and self.common.is_ready

    def kill(self) -> None:
        """As by a signal: what the turn had committed stays."""
        self.killed = True
        self.quiet.definitions.close()
        self.files.kill()
        self.world.store.members.remove(self.coordinator)
        for session in self.sessions:
            session.over = True
        self.sessions = []

    def turn(self) -> None:
        if self.killed or self.busy:
            return
        self.coordinator.tick(self.world.now_ms)
        if self.coordinator.lease_has_ended():
            self.lease_ended()
        self.common.turn(self.world.mono_ms, self.coordinator.take_events())
        self.quiet.now_ms = max(self.quiet.now_ms, self.world.now_ms)
        self.quiet.mono_ms = max(self.quiet.mono_ms, self.world.mono_ms)
        self.common.take_lost()
        self.quiet.run()
        if self.world.checks:
            self.quiet.check()

    def lease_ended(self) -> None:
        """A new member, which has nothing of what was bound to the lease."""
        if self.coordinator.why_not() and not self.coordinator.cut_off:
            for session in list(self.sessions):
                session.end()
            self.coordinator.new_lease()
            self.world.counts["leases that ended"] += 1

    def vhost(self, name: str) -> Vhost:
        return self.quiet.broker.vhost(name)


class Session:
    """A connection: it has exclusive queues, and asks one thing at a time."""

    def __init__(self, node: SimNode, vhost: str) -> None:
        self.node = node
        self.vhost = vhost
        self.ask: Ask = self.broker.changes.ask()
        self.request: Request | None = None
        self.over = False
        self.asking: Asking | None = None
        node.sessions.append(self)

    @property
    def broker(self) -> Broker:
        return self.node.quiet.broker

    @property
    def member(self) -> str:
        """Its node's, in this life."""
        return f"{self.node.name}/{self.node.lives}"

    def end(self) -> None:
        self.over = True
        if self in self.node.sessions:
            self.node.sessions.remove(self)
        if not self.node.killed:
            self.node.quiet.broker.changes.owner_gone(self)


class World:
    """See the head of this file; everything comes from the seed."""

    def __init__(
        self, seed: int, directory: Path, *, checks: bool = False, slow: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.chances_of_slow = random.Random(seed) if slow else None
        self.directory = directory
        self.checks = checks
        self.now_ms = 1_700_000_000_000
        self.mono_ms = 5_000_000
        self.counts: Counter[str] = Counter()
        rng = self.rng
        self.store = SimStore(
            rng, delay_ms=(0, rng.choice((3, 30, 120))), loss=rng.choice((0.0, 0.0, 0.1))
        )
        self.store.advance(self.now_ms)
        self.nodes = [SimNode(self, name) for name in ("a", "b", "c")[: rng.choice((2, 3))]]
        self.requests = Requests(rng, slow=slow)
        self.asked: list[Session] = []

    # -- who knows -------------------------------------------------------------------------

    def is_known(self, revision: int) -> bool:
        """To every node that is not cut off: links tell, in a real cluster."""
        return all(
            node.common.has(revision)
            for node in self.nodes
            if node.ready and not node.coordinator.why_not()
        )

    # -- a life ----------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        for node in self.nodes:
            node.start()
        self.settle()
        for _ in range(steps):
            self.step()
        self.rest()

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        node = rng.choice(self.nodes)
        if chance < 0.55:
            self.begin(node)
        elif chance < 0.60:
            self.lose_connection()
        elif chance < 0.63 and not node.killed:
            node.coordinator.cut_off = not node.coordinator.cut_off
            self.counts["cuts"] += 1
        elif chance < 0.65:
            self.kill_or_start(node)
        elif chance < 0.67 and not node.killed:
            self.publish(node)
        if not node.killed and not node.busy:
            node.slow_down(0.03)
        self.pass_time(rng.choice((1, 1, 5, 20, 100, 400)))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.mono_ms += ms
        for node in self.rng.sample(self.nodes, len(self.nodes)):
            node.turn()
        self.store.advance(self.now_ms)
        for session in list(self.asked):
            self.go_on(session)

    def kill_or_start(self, node: SimNode) -> None:
        if node.killed:
            node.start()
        else:
            node.kill()
            self.counts["kills"] += 1

    def lose_connection(self) -> None:
        sessions = [one for node in self.nodes if not node.killed for one in node.sessions]
        if sessions:
            self.rng.choice(sessions).end()
            self.counts["lost connections"] += 1

    def publish(self, node: SimNode) -> None:
        if node.ready and "/" in node.quiet.broker.vhosts:
            queues = list(node.quiet.broker.vhosts["/"].queues.values())
            if queues:
                content = encode_content(Properties(), b"x", 0, 131_072)
                message = Message(content, b"\0\0", 1, 0)
                self.rng.choice(queues).publish([message], node.quiet.now_ms)
                self.counts["messages"] += 1

    # -- asking ----------------------------------------------------------------------------

    def begin(self, node: SimNode) -> None:
        if not node.ready or node.busy:
            return
        vhost = self.rng.choice(("/", "/", "/", "v"))
        if vhost not in node.quiet.broker.vhosts or node.quiet.broker.vhosts[vhost].closing:
            vhost = "/"
        free = [one for one in node.sessions if one.asking is None and one.vhost == vhost]
        session = self.rng.choice(free) if free and self.rng.random() < 0.8 else None
        session = session or Session(node, vhost)
        asking = self.requests.anything(session)
        asking.from_revision = node.common.agreed.revision
        session.asking = asking
        session.request = Request(session.ask, asking.run)
        self.asked.append(session)
        self.go_on(session)

    def go_on(self, session: Session) -> None:
        asking, request = session.asking, session.request
        assert asking is not None
        assert request is not None
        if session.over or session.node.killed:
            self.asked.remove(session)
            return
        if session.node.busy:
            return
        said: Any = None
        try:
            said = request.again()
        except Unavailable:
            self.counts["unavailable"] += 1
            self._answered(session)
            return
        except BrokerError as error:
            said = error
        if isinstance(said, Pending):
            return
        self._answered(session)
        name = type(said).__name__ if isinstance(said, BrokerError) else "ok"
        self.counts[f"{asking.what.split()[0]} {name}"] += 1
        self._judge(session, asking, said)
        self._judge_known(session, said)

    def _answered(self, session: Session) -> None:
        session.asking = None
        self.asked.remove(session)

    def _judge(self, session: Session, asking: Asking, said: object) -> None:
        for keys in self.states(asking.from_revision):
            if asking.judge(keys, said):
                return
        raise Judgement(f"{session.node.name}: {asking.what}: {said!r} was never true")

    def _judge_known(self, session: Session, said: object) -> None:
        """A queue that a client was told of is there on every node that is not cut off.

        One in a slow step may have been cut off when it began; no client hears of it meanwhile.
        """
        if not isinstance(said, str):
            return
        made = gone = 0
        for event in self.store.model.history:
            if event.value is not None and said in event.value:
                made = made or event.revision
                key = event.key
            elif made and not gone and event.key == key:
                gone = event.revision
        name = md.parts_of(key)[1]
        for node in self.nodes:
            if node.ready and not node.busy and not node.coordinator.why_not() and not gone:
                queue = node.vhost(session.vhost).queues.get(name)
                if queue is None or queue.incarnation != said:
                    raise Judgement(f"{node.name} does not know {key}, which was declared")

    def states(self, from_revision: int) -> list[dict[str, str]]:
        """What the store had, after each revision from that one on."""
        keys: dict[str, str] = {}
        states: list[dict[str, str]] = []
        revision = 0
        for event in self.store.model.history:
            if event.revision != revision and event.revision > from_revision:
                states.append(dict(keys))
            revision = event.revision
            if event.value is None:
                keys.pop(event.key, None)
            else:
                keys[event.key] = event.value
        states.append(keys)
        return states

    # -- rest ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until all nodes are ready and nothing is asked any more."""
        for _ in range(4000):
            self.pass_time(20)
            jobs = sum(node.common.changes.job_count() for node in self.nodes if node.ready)
            if all(node.ready for node in self.nodes) and not self.asked and jobs == 0:
                return
        waits = [one.asking.what for one in self.asked if one.asking]
        raise Judgement(f"no rest: {waits}, {[node.ready for node in self.nodes]}, {jobs} jobs")

    def rest(self) -> None:
        self.store.loss = 0.0
        self.chances_of_slow = None
        for node in self.nodes:
            if node.killed:
                node.start()
            node.coordinator.cut_off = False
        until_ms = self.now_ms + REST_MS
        while self.now_ms < until_ms:
            self.pass_time(250)
        self.settle()
        for _ in range(20):
            self.pass_time(50)
        self._judge_rest()

    def _judge_rest(self) -> None:
        entries = [one for one in self.store.model.entries() if md.kind_of(one.key)]
        dead = dead_among(entries)
        live = {entry.key: entry for entry in entries if entry.key not in dead}
        told = []
        for node in self.nodes:
            node.common.applier.check()
            assert node.common.agreed.living() == live.keys(), node.name
            told.append(shown(export_definitions(node.quiet.broker, "", "")))
            node.quiet.check()
            self._judge_sessions(node)
        assert all(one == told[0] for one in told), told
        self._judge_leftovers(live)

    def _judge_sessions(self, node: SimNode) -> None:
        """Exclusive queues are there as long as their connection."""
        for vhost in node.quiet.broker.vhosts.values():
            for queue in vhost.queues.values():
                owner = queue.owner
                if isinstance(owner, Session):
                    assert not owner.over, f"{queue.name} has outlived its connection"
                elif owner is not None:
                    name = str(owner).partition("/")[0]
                    lives = {one.name: one for one in self.nodes}[name].lives
                    assert owner == f"{name}/{lives}", f"{queue.name} has outlived {owner}"

    def _judge_leftovers(self, live: dict[str, Entry]) -> None:
        """No exchange that deletes itself has lost its last binding and is there."""
        bound = {source_of(key) for key in live if md.kind_of(key) == md.BINDINGS}
        for key, entry in live.items():
            if md.kind_of(key) != md.EXCHANGES or key in bound:
                continue
            meta = md.read(key, entry.value)
            assert isinstance(meta, md.ExchangeMeta)
            if meta.auto_delete:
                had = any(
                    md.kind_of(event.key) == md.BINDINGS
                    and event.value is not None
                    and event.revision > entry.made
                    and source_of(event.key) == key
                    for event in self.store.model.history
                )
                assert not had, f"{key} has lost its last binding and is still there"


def source_of(binding: str) -> str:
    vhost, _, _, source, _ = md.parts_of(binding)
    return md.path(md.EXCHANGES, vhost, source)


def shown(definitions: dict[str, Any]) -> dict[str, list[str]]:
    """In an order that does not depend on whose they are."""
    return {
        section: sorted(repr(sorted(row.items(), key=str)) for row in rows)
        for section, rows in definitions.items()
        if isinstance(rows, list)
    }
