"""Random lives of a cluster with mirrored queues.

Clients at all nodes publish, consume and settle; queues, of which one may be a stream, are purged,
deleted and declared anew, and the policy that mirrors them changes (``cluster_clients.py``).
Machines are killed, lose their power, stop in good order, stand still beyond their lease and come
back with what their disk has; the network loses and doubles and is cut in parts, the coordinator
is out of reach and forgets answers (``Troubles``; ``cluster_nodes.py``).  Again and again
everything heals and comes to rest, and is judged (``cluster_judge.py``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.simulation.cluster_clients import Administration, Clients
from tests.simulation.cluster_judge import ClusterJudge, Judgement, MirroredQueues, QueueKind
from tests.simulation.cluster_nodes import Machine, SimWorld

NAMES: Final = ("a@h", "b@h", "c@h", "d@h", "e@h")
HEAL_MS: Final = 8000
REST_MS: Final = 120_000
EASE_MS: Final = 100


class Troubles:
    """What befalls machines and the network; each method is one trouble."""

    def __init__(self, rng: random.Random, judge: ClusterJudge, clients: Clients) -> None:
        self.rng = rng
        self.judge = judge
        self.clients = clients
        self.world = judge.world
        self.counts = judge.counts
        self.say = judge.history.say

    @property
    def machines(self) -> list[Machine]:
        return self.world.machines

    def all(self) -> list[Callable[[], None]]:
        return [
            self.kill,
            self.kill,
            self.power_cut,
            self.stop,
            self.start,
            self.start,
            self.start,
            self.start,
            self.pause,
            self.cut_network,
            self.cut_pair,
            self.cut_store,
            self.heal,
            self.heal,
        ]

    def some_running(self) -> Machine | None:
        running = [one for one in self.machines if one.runs]
        return self.rng.choice(running) if running else None

    def kill(self, *, power_cut: bool = False) -> None:
        machine = self.some_running()
        if machine is not None:
            self.say(f"{'power cut' if power_cut else 'kill'} {machine.name}")
            self.lost_machine(machine)
            machine.kill(power_cut=power_cut)
            self.counts["power cuts" if power_cut else "kills"] += 1

    def power_cut(self) -> None:
        self.kill(power_cut=True)

    def lost_machine(self, machine: Machine) -> None:
        self.judge.note_unviewed(machine)
        self.clients.lost_machine(machine)

    def stop(self) -> None:
        machine = self.some_running()
        if machine is not None and not machine.is_stuck():
            self.say(f"stop {machine.name}")
            self.clients.leave_all_at(machine)
            self.judge.note_unviewed(machine)
            machine.stop()
            self.counts["stops"] += 1

    def start(self) -> None:
        dead = [one for one in self.machines if not one.runs]
        if dead:
            machine = self.rng.choice(dead)
            self.say(f"start {machine.name}")
            machine.start()

    def pause(self) -> None:
        machine = self.some_running()
        if machine is not None:
            machine.paused_until_ms = self.world.now_ms + self.rng.choice((500, 3000, 8000))
            self.say(f"pause {machine.name}")
            self.counts["pauses"] += 1

    def cut_network(self) -> None:
        names = [machine.name for machine in self.machines]
        cut = self.rng.sample(names, self.rng.randint(1, len(names) - 1))
        self.say(f"cut {cut}")
        self.world.network.cut_off(cut)
        if self.rng.random() < 0.6:  # and from the coordinator, if it is on the other side
            for machine in self.machines:
                if machine.runs and machine.name in cut:
                    machine.sim.cut_off = True
        self.counts["partitions"] += 1

    def cut_pair(self) -> None:
        """Two do not hear each other, or one the other, and both the coordinator."""
        one, other = self.rng.sample([machine.name for machine in self.machines], 2)
        one_way = self.rng.random() < 0.3
        self.say(f"cut {one} {'->' if one_way else '<->'} {other}")
        if one_way:
            self.world.network.cut_one_way(one, other)
        else:
            self.world.network.cut(one, other)
        self.counts["pairs cut"] += 1

    def cut_store(self) -> None:
        machine = self.some_running()
        if machine is not None:
            self.say(f"no store at {machine.name}")
            machine.sim.cut_off = True
            self.counts["cut off"] += 1

    def heal(self) -> None:
        self.say("heal")
        self.world.network.heal()
        for machine in self.machines:
            if machine.runs and machine.sim.cut_off:
                machine.sim.cut_off = False

    def hold_disk(self, machine: Machine) -> None:
        committer = machine.quiet.committer
        committer.hold = not committer.hold
        if not committer.hold:
            committer.finish()


class Life:
    """``live`` is all of it: ``rounds`` of so many steps, each with a rest and a judgement.

    ``with_stream``: one more queue is a stream; ``kind``: of the other queues, if a policy does
    not mirror them; ``more_troubles``: beside those of every life.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        steps: int = 120,
        rounds: int = 2,
        *,
        with_stream: bool = False,
        kind: QueueKind | None = None,
        more_troubles: Sequence[Callable[[Troubles], None]] = (),
    ) -> None:
        self.rng = rng = random.Random(seed)
        names = NAMES[: rng.choice((3, 3, 3, 5))]
        self.world = SimWorld(rng, directory, names)
        self.world.after_turns = self._after_turns
        self.counts = self.world.counts
        self.steps = steps
        self.rounds = rounds
        streams = ("qs",) if with_stream else ()
        self.queues = ("q0", "q1")[: rng.choice((1, 2))] + streams
        self.judge = ClusterJudge(self.world, self.queues, kind or MirroredQueues(streams))
        self.clients = Clients(rng, self.judge, self.queues, streams)
        self.administration = Administration(rng, self.judge, self.queues)
        self.troubles = Troubles(rng, self.judge, self.clients)
        self.world.lost_machine = self.troubles.lost_machine
        self.more_troubles = [lambda one=one: one(self.troubles) for one in more_troubles]
        self.trouble = rng.choice((0.02, 0.06, 0.15))

    @property
    def machines(self) -> list[Machine]:
        return self.world.machines

    # -- life ------------------------------------------------------------------------------

    def live(self) -> None:
        with self.world.inside():
            for machine in self.machines:
                assert machine.start()
            self.wait(2000)
            self.declare_all()
            self.administration.set_policy(self.rng.choice(self.machines))
            self.wait(1000)
            for _ in range(self.rounds):
                for _ in range(self.steps):
                    self.step()
                self.rest()
                self.judge.judge()

    def wait(self, ms: int) -> None:
        until_ms = self.world.now_ms + ms
        while self.world.now_ms < until_ms:
            self.world.pass_time(EASE_MS)
            self.look()

    def step(self) -> None:
        rng = self.rng
        if rng.random() < self.trouble:
            rng.choice([*self.troubles.all(), *self.more_troubles])()
        else:
            ready = self.world.ready()
            if ready:
                rng.choice(self.doings())(rng.choice(ready))
        self.world.pass_time(rng.choice((1, 2, 5, 20, 100, 300)))
        self.look()
        self.counts["steps"] += 1

    def doings(self) -> list[Callable[[Machine], None]]:
        hold = self.troubles.hold_disk
        return [*self.clients.doings(), *self.administration.doings(), hold, hold]

    def look(self) -> None:
        """What has come to clients and to who asked."""
        self.clients.hear()
        self.administration.go_on()

    def _after_turns(self) -> None:
        self.judge.look()
        if self.rng.random() < 0.02:
            self.judge.check()

    def declare_all(self) -> None:
        for _ in range(100):
            machine = self.rng.choice(self.world.ready())
            for queue in self.queues:
                client = self.clients.declare_first(machine, queue)
                self.wait(1000)
                client.leave()
            if all(self.is_known(queue) for queue in self.queues):
                return
        raise Judgement("a queue cannot be declared")

    def is_known(self, name: str) -> bool:
        return all(machine.queue(name) is not None for machine in self.machines)

    # -- rest ----------------------------------------------------------------------------------

    def rest(self) -> None:
        self.judge.history.say("rest")
        self.troubles.heal()
        world = self.world
        loss, world.store.loss = world.store.loss, 0.0
        network_loss, world.network.loss = world.network.loss, 0.0
        self._start_all()
        self.clients.leave_all()
        self.administration.revive_all(world.ready()[0])
        self.wait(500)
        self.clients.settle_unknown()
        self._wait_for_rest()
        world.store.loss = loss
        world.network.loss = network_loss

    def _start_all(self) -> None:
        for machine in self.machines:
            machine.paused_until_ms = 0
            if machine.runs:
                machine.quiet.committer.hold = False
                machine.quiet.committer.finish()
        for machine in self.machines:
            if not any(machine.runs or machine.start() for _ in range(5)):
                raise Judgement(f"{machine.name} cannot start")
        self.wait(HEAL_MS)
        for machine in self.machines:
            if not machine.runs and not machine.start():
                raise Judgement(f"{machine.name} cannot start")

    def _wait_for_rest(self) -> None:
        until_ms = self.world.now_ms + REST_MS
        why = "?"
        asked_ms = 0
        while self.world.now_ms < until_ms:
            if self.world.now_ms - asked_ms > 5000:
                asked_ms = self.world.now_ms
                self.administration.synchronise(self.world.ready()[0])
            self.wait(500)
            why = self.why_no_rest()
            if not why:
                self.wait(1000)
                why = self.why_no_rest()
            if not why:
                return
        raise Judgement(f"CJ5: no rest: {why}")

    def why_no_rest(self) -> str:
        return self.administration.unanswered() or self.judge.why_no_rest()
