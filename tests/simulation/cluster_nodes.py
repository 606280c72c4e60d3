"""Whole nodes of a cluster in one process, without sockets, threads or clocks.

    SimWorld      the time, the network, the coordinator's store, who runs
    SimPeers      links over the network that loses, delays and doubles frames (sim_network.py)
    Machine       a node through all its lives: its disk, its definitions, its process if it has one

What is the product's own here: everything of a node's turn but its loop, sockets, etcd and
Unix sockets.  A node that waits (at a start, at a stop) lets the world's time pass meanwhile.
All chance comes from the world's generator.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.remote.link_session import LinkSession, Parcel
from penstock.core.errors import PenstockError
from penstock.node.cluster import member as cluster_member
from penstock.node.cluster import node as cluster_node
from penstock.node.cluster.member import ClusterAccess, ClusterMember, NameTaken
from penstock.node.cluster.node import ClusterNode
from penstock.protocols.peers.access import read_secret
from penstock.protocols.peers.link import Member
from penstock.protocols.peers.peers import PeerOwner
from penstock.queues.queue import Queue
from penstock.settings.settings import load_settings
from penstock.storage.engine.recovery import close_engine
from penstock.storage.engine.resting_queue import RestingQueue
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.sim_files import SimFileSystem
from tests.simulation.sim_coordinator import SimCoordinator, SimStore
from tests.simulation.sim_network import SimNetwork

RESEND_MS: Final = 100
HEARTBEAT_MS: Final = 250
UNHEARD_MS: Final = 500
SILENCE_MS: Final = 1500
START_MS: Final = 1_700_000_000_000
START_MONO_MS: Final = 5_000_000


class SimLink:
    """What ``Peers`` keeps of a neighbour, as far as anybody looks at it."""

    def __init__(self, member: Member, now_ms: int) -> None:
        self.member = member
        self.session = LinkSession(now_ms, resend_after_ms=RESEND_MS)
        self.session.connected(0)
        self.made_ms = now_ms
        self.heard_ms = 0
        self.said_ms = 0
        self.inbox: deque[list[Parcel]] = deque()


class SimPeers:
    """In the place of ``protocols/peers/peers.py``."""

    def __init__(self, loop: SimLoop, own: Member, owner: PeerOwner) -> None:
        self.own = own
        self.links: dict[str, SimLink] = {}
        self._world = loop.machine.world
        self._owner = owner
        self._ended: set[tuple[str, str]] = set()
        self._stopped = False

    def begin_life(self, own: Member) -> None:
        self.set_members([])
        self.own = own
        self._ended = set()

    def set_members(self, members: Sequence[Member]) -> None:
        named = {one.name: one for one in members if one.name != self.own.name}
        for name, link in list(self.links.items()):
            now = named.get(name)
            if now is None or now.life() != link.member.life():
                del self.links[name]
                self._ended.add(link.member.life())
                self._owner.ended(link.member)
        for name, member in named.items():
            if name not in self.links and member.life() not in self._ended:
                self.links[name] = SimLink(member, self._world.now_ms)
                self._owner.begun(member)

    def begin(self, _now_ms: int) -> None:
        now_ms = self._world.now_ms
        for _, frame in self._world.network.arrived(self.own.name, now_ms):
            sender, receiver, parcels = frame
            link = self.links.get(sender[0])
            if link is not None and link.member.life() == sender and self.own.life() == receiver:
                link.heard_ms = now_ms
                link.inbox.append(parcels)
        for link in list(self.links.values()):
            self._take(link)

    def _take(self, link: SimLink) -> None:
        while link.inbox and self._owner.may_take(link.member):
            deliveries = link.session.receive(link.inbox.popleft())
            assert not link.session.fault, link.session.fault
            if deliveries:
                self._owner.arrived(link.member, deliveries)
            if self.links.get(link.member.name) is not link:
                return

    def end(self, _now_ms: int) -> None:
        if self._stopped:
            return
        now_ms = self._world.now_ms
        for link in self.links.values():
            link.session.tick(now_ms)
            link.session.check()
            parcels = link.session.take_outgoing(1 << 20)
            if not parcels and now_ms - link.said_ms < HEARTBEAT_MS:
                continue
            while True:
                link.said_ms = now_ms
                frame = (self.own.life(), link.member.life(), parcels)
                self._world.network.send(self.own.name, link.member.name, frame, now_ms)
                parcels = link.session.take_outgoing(1 << 20)
                if not parcels:
                    break

    def send(self, name: str, stream: int, payload: bytes) -> None:
        link = self.links.get(name)
        if link is not None:
            link.session.send(stream, payload)

    def is_connected(self, name: str) -> bool:
        link = self.links.get(name)
        return link is not None and self._world.now_ms - link.heard_ms < SILENCE_MS

    def silent_ms(self, name: str) -> int:
        link = self.links.get(name)
        if link is None or self.is_connected(name):
            return 0
        return self._world.now_ms - max(link.made_ms, link.heard_ms + SILENCE_MS)

    def full(self) -> list[str]:
        return [name for name, link in self.links.items() if link.session.is_full()]

    def is_unheard(self, name: str) -> bool:
        link = self.links.get(name)
        heard_ms = 0 if link is None else max(link.made_ms, link.heard_ms)
        return link is not None and self._world.now_ms - heard_ms > UNHEARD_MS

    def waiting_bytes(self, name: str = "") -> int:
        links = [link for link in self.links.values() if name in ("", link.member.name)]
        return sum(int(link.session.waiting_bytes) for link in links)

    def has_work(self) -> bool:
        return False

    def facts(self) -> list[Any]:
        return []

    def stop(self) -> None:
        self._stopped = True


class SimLoop:
    """What of the loop a node of a cluster uses."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.turn = machine.quiet.turn

    def wake(self) -> None:
        """It turns all the time."""


class TurnOnce(QuietBroker):
    """A run is one turn: what others say to it comes in between."""

    machine: Machine | None = None

    def run(self, *, idle: bool = True) -> None:
        if self.machine is None or self.machine.is_starting:
            super().run(idle=idle)
        else:
            self.machine.turn()

    def turn_once(self, *, idle: bool = True) -> None:
        self.turn.begin(self.now_ms, self.mono_ms)
        for stage in self.turn.flow.book.take_freed():
            stage.owner.resume(self.now_ms)
            self.turn.fed(stage.owner)
        self.turn.run(self.now_ms, idle)
        for client in list(self.clients):
            if client.session.waiting_head:
                client.session.go_on(self.now_ms)
                self.turn.fed(client.session)
        self.turn.blocked_reason()
        for client in self.clients:
            client.session.look_at_gate()
        self.flush()
        self.turn.flow.end_turn(self.mono_ms)


class Machine:
    """One node through all its lives."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.files = SimFileSystem()
        self.runs = False
        self.is_starting = False
        self._is_turning = False
        self.paused_until_ms = 0
        self.quiet: TurnOnce
        self.sim: SimCoordinator
        self.cluster: ClusterNode
        self._names = 0

    # -- lives -----------------------------------------------------------------------------

    def start(self) -> bool:
        """False: it could not join, and has gone again."""
        assert not self.runs
        self.world.counts["starts"] += 1
        self.paused_until_ms = 0
        self.is_starting = True
        try:
            member = ClusterMember(self._access())
            self._open()
            self.runs = True
            self.cluster = ClusterNode(
                member,
                self.quiet.broker,
                cast(Any, SimLoop(self)),
                lambda _vhost, _count: False,
                self.quiet.turn.cancelled,
            )
        except (PenstockError, OSError):
            self.world.counts["failed starts"] += 1
            self.is_starting = False
            if self.runs:
                self.kill()
            else:
                self._leave_store()
            return False
        self.is_starting = False
        self.quiet.turn.join(self.cluster)
        return True

    def _access(self) -> ClusterAccess:
        """To a coordinator of its own world."""
        settings = self.world.settings
        incarnation = self.world.rng.randbytes(8).hex()
        self.sim = self.world.store.join(f"{self.name}/{incarnation}")
        self.sim.start = lambda _patience_s: None  # type: ignore[attr-defined]
        secret = read_secret("cluster_secret_file", settings.cluster_secret_file)
        return ClusterAccess(settings, self.name, incarnation, secret, None, cast(Any, self.sim))

    def _open(self) -> None:
        path = self.world.directory / f"{self.name}.db"
        self.quiet = TurnOnce(self.files, str(path), mono_ms=self.world.mono_ms)
        self.quiet.machine = self
        self.quiet.now_ms = self.world.wall_ms()
        self.quiet.new_name = self._new_name  # type: ignore[method-assign]
        self.quiet.broker.options = self.quiet.broker.options._replace(node_name=self.name)

    def _new_name(self, prefix: str) -> str:
        return f"{prefix}{self.world.rng.getrandbits(64)}"

    def lose_disk(self) -> None:
        """It is dead, and what it kept is gone."""
        assert not self.runs
        self.files = SimFileSystem()
        for path in self.world.directory.glob(f"{self.name}.db*"):
            path.unlink()

    def kill(self, *, power_cut: bool = False) -> None:
        self.runs = False
        self.quiet.definitions.close()
        if power_cut:
            self.files.power_cut(self.world.rng)
        else:
            self.files.kill()
        self.world.network.forget(self.name)
        self._leave_store()

    def _leave_store(self) -> None:
        """Nobody keeps its lease alive any more."""
        if self.sim in self.world.store.members:
            self.world.store.members.remove(self.sim)

    def stop(self) -> None:
        """In good order, as a node does it."""
        for client in list(self.quiet.clients):
            client.drop()
        self.quiet.definitions.commit()
        self.is_starting = True
        self.cluster.leave()
        self.is_starting = False
        quiet = self.quiet
        quiet.turn.leave()
        quiet.committer.hold = False
        quiet.committer.finish()
        for _ in range(3):
            group = quiet.engine.seal(sync=True)
            if group is not None:
                quiet.committer.commit_inline(group)
            for done in quiet.committer.collect():
                quiet.engine.committed(done)
            quiet.broker.dead_letters.settle()
        quiet.worker.finish_all()
        if self.world.rng.random() < 0.7:
            durable: list[RestingQueue] = []
            numbers: dict[int, int] = {}
            for vhost in quiet.broker.vhosts.values():
                for backing in vhost.durable_backings():
                    for part in backing.parts():
                        queue = cast(VariableQueue, part)
                        durable.append(queue)
                        numbers[int(queue.queue_id)] = int(queue.records.next_seq_id)
            close_engine(quiet.engine, durable, numbers, self.files)
        self.kill()

    # -- turns -----------------------------------------------------------------------------

    def is_stuck(self) -> bool:
        """Its process stands still."""
        return not self.runs or self.is_starting or self.world.now_ms < self.paused_until_ms

    def turn(self) -> None:
        if self.is_stuck() or self._is_turning:
            return  # it waits, in its turn
        self._is_turning = True
        self.quiet.now_ms = self.world.wall_ms()
        self.quiet.mono_ms = max(self.quiet.mono_ms, self.world.mono_ms)
        try:
            self.quiet.turn_once()
        except NameTaken:
            self.world.counts["names taken"] += 1
            self.world.lost_machine(self)
            self.kill()
        finally:
            self._is_turning = False

    @property
    def ready(self) -> bool:
        return self.runs and not self.is_starting

    def queue(self, name: str) -> Queue | None:
        return self.quiet.broker.vhosts["/"].queues.get(name)

    def client(self) -> ClientEnd:
        return self.quiet.client()


class _Door:
    port = 1


class _Time:
    """In the place of the module ``time``."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.mono_ms / 1000

    def sleep(self, _seconds: float) -> None:
        self._world.pass_time(20)


class _Secrets:
    def __init__(self, world: SimWorld) -> None:
        self._world = world

    def token_hex(self, size: int) -> str:
        return self._world.rng.randbytes(size).hex()

    def randbelow(self, below: int) -> int:
        return self._world.rng.randrange(below)


class SimWorld:
    """``unkind``: how much the network loses, and the coordinator forgets."""

    def __init__(self, rng: random.Random, directory: Path, names: Sequence[str]) -> None:
        self.rng = rng
        self.directory = directory
        self.now_ms = START_MS
        self.mono_ms = START_MONO_MS
        self.wall_jump_ms = 0  # how far the wall clocks of all machines were set
        self.counts: Counter[str] = Counter()
        self.network = SimNetwork(
            rng,
            loss=rng.choice((0.0, 0.02, 0.1)),
            doubling=rng.choice((0.0, 0.05)),
            slowest_ms=rng.choice((2, 10, 60)),
        )
        self.store = SimStore(
            rng, delay_ms=(0, rng.choice((3, 30, 120))), loss=rng.choice((0.0, 0.0, 0.05))
        )
        self.store.advance(self.now_ms)
        secret = directory / "secret"
        secret.write_text("a secret of all the nodes of the cluster\n")
        secret.chmod(0o600)
        self.settings = load_settings(
            None,
            {},
            {
                "data_dir": str(directory),
                "cluster_secret_file": str(secret),
                "cluster_etcd_endpoints": "127.0.0.1:2379",
                "cluster_lease_ttl_s": "3",
                "cluster_bind": "127.0.0.1",
            },
        )
        self.machines = [Machine(self, name) for name in names]
        self.lost_machine: Callable[[Machine], None] = lambda _machine: None
        self.after_turns: Callable[[], None] = lambda: None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The product's modules have this world's time, chance, doors and links."""

        def peers(
            loop: SimLoop,
            own: Member,
            _n: str,
            _s: bytes,
            owner: PeerOwner,
            *_more: Any,
            **_options: Any,
        ) -> SimPeers:
            return SimPeers(loop, own, owner)

        theirs: list[tuple[Any, str, object]] = [
            (cluster_member, "boot_ms", lambda: self.now_ms),
            (cluster_member, "wall_ms", self.wall_ms),
            (cluster_member, "time", _Time(self)),
            (cluster_member, "secrets", _Secrets(self)),
            (cluster_member, "peer_listener", lambda *_a, **_o: _Door()),
            (cluster_node, "boot_ms", lambda: self.now_ms),
            (cluster_node, "wall_ms", self.wall_ms),
            (cluster_node, "mono_ms", lambda: self.mono_ms),
            (cluster_node, "time", _Time(self)),
            (cluster_node, "secrets", _Secrets(self)),
            (cluster_node, "Peers", peers),
        ]
        ours = [(where, name, getattr(where, name)) for where, name, _ in theirs]
        for where, name, value in theirs:
            setattr(where, name, value)
        try:
            yield
        finally:
            for where, name, value in ours:
                setattr(where, name, value)
            for machine in self.machines:
                if machine.runs:
                    machine.quiet.definitions.close()

    def wall_ms(self) -> int:
        return self.now_ms + self.wall_jump_ms

    def skip_ms(self, ms: int) -> None:
        """Nothing happens meanwhile, but for the monotonic clock."""
        self.mono_ms += ms

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.mono_ms += ms
        for machine in self.rng.sample(self.machines, len(self.machines)):
            machine.turn()
        self.store.advance(self.now_ms)
        self.after_turns()

    def ready(self) -> list[Machine]:
        return [one for one in self.machines if one.ready and not one.is_stuck()]
