"""Random lives of a cluster with mirrored queues, and their judge.

Clients at all nodes publish, consume and settle; queues, of which one may be a stream, are purged,
deleted and declared anew, and
the policy that mirrors them changes; machines are killed, lose their power, stop in good order,
stand still beyond their lease and come back with what their disk has; the network loses and doubles
and is cut in parts, the coordinator is out of reach and forgets answers (``cluster_nodes.py``).
Again and again everything heals and comes to rest.

The judge knows every message by its number, with which its body begins:

  J1  a persistent message whose confirm was seen is there at rest, unless somebody settled it, or
      it was purged, or a copy that was not synchronised was promoted as the policy allows; a
      transient one unless all synchronised copies went down since
  J2  a term has one master, and a seq_id means one message for ever
  J3  what was gone at rest never comes back
  J4  what one publisher publishes is delivered for the first time in this order to each consumer
  J5  at rest every mirrored queue has a master and the copies its policy wants, all synchronised
      and equal; nothing is left over of queues and copies that are gone
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.mirror_keys import RINGS, SYNC, VIEWS, kind_of, parts_of, place_of
from penstock.cluster.agreement.placement import Placement, wanted_copies
from penstock.cluster.agreement.queue_views import SYNCED, QueueView, view_from_json
from penstock.cluster.ring.views import from_json as ring_from_json
from penstock.core.errors import BrokerError
from penstock.protocols.amqp.codec.properties import body_of
from penstock.queues.queue import Queue
from penstock.queues.stream_backing import StreamBacking
from penstock.streams.block_codec import MESSAGES, read_head, read_records, segment_path
from penstock.streams.log import StreamLog
from tests.cluster.mirror_tools import set_of
from tests.helpers.requests import Request
from tests.helpers.sim_files import SimFileSystem
from tests.simulation.cluster_clients import Judgement, Person, Sent
from tests.simulation.cluster_nodes import Machine, SimWorld

NAMES: Final = ("a@h", "b@h", "c@h", "d@h", "e@h")
HEAL_MS: Final = 8000
ANSWER_MS: Final = 60_000
REST_MS: Final = 120_000
EASE_MS: Final = 100
OWN_TERM: Final = 1 << 40


class Asked:
    """Something of administration that is waited for."""

    def __init__(self, machine: Machine, what: str, run: Callable[[], Any]) -> None:
        self.machine = machine
        self.life = machine.cluster.member
        self.what = what
        self.request = Request(machine.quiet.broker.changes.ask(), run)


class Life:
    """``live`` is all of it: ``rounds`` of so many steps, each with a rest and a judgement.

    ``with_stream``: one more queue is a stream.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        steps: int = 120,
        rounds: int = 2,
        *,
        with_stream: bool = False,
    ) -> None:
        self.rng = rng = random.Random(seed)
        names = NAMES[: rng.choice((3, 3, 3, 5))]
        self.world = SimWorld(rng, directory, names)
        self.world.after_turns = self._after_turns
        self.world.lost_machine = self.lost_machine
        self.counts = self.world.counts
        self.steps = steps
        self.rounds = rounds
        self.queues = ("q0", "q1")[: rng.choice((1, 2))]
        self.streams = ("qs",) if with_stream else ()
        self.queues += self.streams
        self.sent: list[Sent] = []
        self.publishers: dict[int, int] = {}
        self.gone: set[int] = set()
        self.people: list[Person] = []
        self.asked: list[Asked] = []
        self.unknown: list[str] = []  # queues that were purged or deleted, or not
        self.terms: dict[tuple[str, int], str] = {}
        self.places: dict[tuple[str, int], int] = {}
        self.last_publisher = 0
        self.definition: dict[str, object] = {}
        self.trouble = rng.choice((0.02, 0.06, 0.15))
        self.heard = 0
        self.losses: dict[str, list[tuple[int, bool]]] = {}  # queue: revision, of persistent ones
        self.views: dict[str, QueueView] = {}
        self.killed_at: list[int] = []
        self.log: list[str] = []
        self.incarnations: dict[str, str] = {}  # by queue, as the store has it; "" = deleted

    @property
    def machines(self) -> list[Machine]:
        return self.world.machines

    def next_publisher(self) -> int:
        self.last_publisher += 1
        return self.last_publisher

    # -- life ------------------------------------------------------------------------------

    def live(self) -> None:
        with self.world.inside():
            for machine in self.machines:
                assert machine.start()
            self.wait(2000)
            self.declare_all()
            self.set_policy(self.rng.choice(self.machines))
            self.wait(1000)
            for _ in range(self.rounds):
                for _ in range(self.steps):
                    self.step()
                self.rest()
                self.judge()

    def wait(self, ms: int) -> None:
        until_ms = self.world.now_ms + ms
        while self.world.now_ms < until_ms:
            self.world.pass_time(EASE_MS)
            self.look()

    def step(self) -> None:
        rng = self.rng
        if rng.random() < self.trouble:
            rng.choice(self.troubles())()
        else:
            ready = self.world.ready()
            if ready:
                rng.choice(self.doings())(rng.choice(ready))
        self.world.pass_time(rng.choice((1, 2, 5, 20, 100, 300)))
        self.look()
        self.counts["steps"] += 1

    def look(self) -> None:
        """What has come to clients and to who asked."""
        for person in list(self.people):
            if not person.machine.is_stuck() and not person.over:
                person.hear()
        for asked in list(self.asked):
            self.go_on(asked)

    def _after_turns(self) -> None:
        self.hear_history()
        self.look_at_masters()
        if self.rng.random() < 0.02:
            self.check()

    # -- people ----------------------------------------------------------------------------

    def doings(self) -> list[Callable[[Machine], None]]:
        return [
            *(self.publish,) * 10,
            *(self.consume,) * 3,
            *(self.get,) * 2,
            *(self.settle,) * 8,
            self.cancel,
            self.purge,
            self.leave,
            self.delete,
            self.declare,
            self.declare,
            self.set_policy,
            self.verb,
            self.hold_disk,
            self.hold_disk,
        ]

    def person_at(self, machine: Machine) -> Person | None:
        here = [one for one in self.people if one.machine is machine and not one.over]
        if (len(here) < 2 and self.rng.random() < 0.5) or not here:
            if "/" not in machine.quiet.broker.vhosts:
                return None
            person = Person(self, machine)
            self.people.append(person)
            return person
        return self.rng.choice(here)

    def publish(self, machine: Machine) -> None:
        person = self.person_at(machine)
        if person is None:
            return
        rng = self.rng
        for _ in range(rng.choice((1, 1, 3, 10))):
            if person.over:
                return
            number = len(self.sent) + 1
            body = b"%d:" % number + b"x" * rng.choice((0, 20, 300, 6000))
            queue, persistent = rng.choice(self.queues), self.is_persistent()
            now = self.world.store.model.revision
            sent = Sent(number, queue, body, now, persistent=persistent)
            sent.of_two = self.is_of_two(queue)
            self.sent.append(sent)
            self.publishers[number] = person.publisher
            person.published += 1
            person.open_publishes[person.published] = sent
            mode = 2 if sent.persistent else 1
            run = rng.random() < 0.1
            person.client.publish("", sent.queue, body, delivery_mode=mode, mandatory=True, run=run)
            self.counts["published"] += 1

    def is_persistent(self) -> bool:
        return self.rng.random() < 0.8

    def sent_as(self, body: bytes) -> Sent:
        number = int(body.partition(b":")[0])
        sent = self.sent[number - 1]
        if sent.body != body:
            raise Judgement(f"{number} is damaged")
        return sent

    def consume(self, machine: Machine) -> None:
        person = self.person_at(machine)
        if person is not None and len(person.consuming) < 2:
            person.tags += 1
            tag = f"c{person.tags}"
            queue = self.rng.choice(self.queues)
            person.consuming[tag] = queue
            first = {"x-stream-offset": "first"} if queue in self.streams else {}
            person.client.consume(queue, tag=tag, arguments=first)

    def cancel(self, machine: Machine) -> None:
        person = self.person_at(machine)
        if person is not None and person.consuming:
            tag = self.rng.choice(list(person.consuming))
            del person.consuming[tag]
            person.client.method(1, "basic.cancel", consumer_tag=tag, nowait=True)

    def get(self, machine: Machine) -> None:
        person = self.person_at(machine)
        if person is not None:
            queue = self.rng.choice(self.queues)
            if queue not in self.streams:
                person.client.method(1, "basic.get", queue=queue)

    def settle(self, machine: Machine) -> None:
        person = self.person_at(machine)
        if person is None or not person.deliveries:
            return
        rng = self.rng
        tag = rng.choice(list(person.deliveries))
        what = rng.choice(("ack", "ack", "multiple", "reject", "requeue", "requeue"))
        tags = [one for one in person.deliveries if one <= tag] if what == "multiple" else [tag]
        for one in tags:
            sent = person.deliveries.pop(one)
            stays = what == "requeue" or sent.queue in self.streams
            sent.settled = sent.settled or not stays
        self.counts["settled"] += len(tags)
        if what in ("ack", "multiple"):
            person.client.method(1, "basic.ack", delivery_tag=tag, multiple=what == "multiple")
        else:
            requeue = what == "requeue"
            person.client.method(1, "basic.reject", delivery_tag=tag, requeue=requeue)

    def purge(self, machine: Machine) -> None:
        if self.rng.random() < 0.3:
            self._ask_queue(machine, "queue.purge")

    def delete(self, machine: Machine) -> None:
        if self.rng.random() < 0.3:
            self._ask_queue(machine, "queue.delete")

    def declare(self, machine: Machine) -> None:
        self._ask_queue(machine, "queue.declare", durable=True)

    def _ask_queue(self, machine: Machine, method: str, **fields: Any) -> None:
        person = self.person_at(machine)
        if person is not None and not person.waits:
            queue = self.rng.choice(self.queues)
            if method == "queue.purge" and queue in self.streams:
                return
            if method == "queue.declare":
                fields["arguments"] = self.arguments_of(queue)
            person.waits.append((method + "-ok", queue))
            person.client.method(1, method, queue=queue, **fields)

    def arguments_of(self, queue: str) -> dict[str, object]:
        return {"x-queue-type": "stream"} if queue in self.streams else {}

    def took_all(self, queue: str) -> None:
        """It was purged, or deleted, at some moment until now."""
        for sent in self.sent:
            if sent.queue == queue:
                sent.settled = True

    def leave(self, machine: Machine) -> None:
        here = [one for one in self.people if one.machine is machine]
        if here:
            self.rng.choice(here).leave()

    def left(self, person: Person) -> None:
        self.people.remove(person)
        for what, queue in person.waits:
            if what != "queue.declare-ok":
                self.unknown.append(queue)

    # -- administration -----------------------------------------------------------------------

    def ask(self, machine: Machine, what: str, run: Callable[[], Any]) -> None:
        asked = Asked(machine, what, run)
        self.asked.append(asked)
        self.go_on(asked)

    def go_on(self, asked: Asked) -> None:
        machine = asked.machine
        if not machine.runs or machine.cluster.member != asked.life:
            self.asked.remove(asked)
            return
        if machine.is_stuck():
            return
        try:
            if not asked.request.is_decided():
                return
            self.counts[asked.what] += 1
        except BrokerError as error:
            self.counts[f"{asked.what}: {type(error).__name__}"] += 1
        self.asked.remove(asked)

    def declare_all(self) -> None:
        for _ in range(100):
            machine = self.rng.choice(self.world.ready())
            for queue in self.queues:
                self.declare_first(machine, queue)
            if all(self.is_known(queue) for queue in self.queues):
                return
        raise Judgement("a queue cannot be declared")

    def declare_first(self, machine: Machine, queue: str) -> None:
        person = Person(self, machine)
        self.people.append(person)
        person.waits.append(("queue.declare-ok", queue))
        fields = {"durable": True, "arguments": self.arguments_of(queue)}
        person.client.method(1, "queue.declare", queue=queue, **fields)
        self.wait(1000)
        person.leave()

    def is_known(self, name: str) -> bool:
        return all(machine.queue(name) is not None for machine in self.machines)

    def set_policy(self, machine: Machine) -> None:
        definition = self.some_definition()
        policy = Policy("ha", "^q", "queues", 0, definition)
        broker = machine.quiet.broker

        def run() -> None:
            admin = Administration(broker, 64)
            if definition:
                admin.put_policy("/", policy, False)
            elif "ha" in broker.vhosts["/"].policies.policies:
                admin.delete_policy("/", "ha")

        self.ask(machine, "policy", run)

    def some_definition(self) -> dict[str, object]:
        rng = self.rng
        mode = rng.choice(("all", "all", "exactly", "exactly", "nodes", ""))
        if not mode:
            return {}
        found: dict[str, object] = {"ha-mode": mode}
        if mode == "exactly":
            found["ha-params"] = rng.choice((1, 2, 2, 3))
        elif mode == "nodes":
            names = [machine.name for machine in self.machines]
            found["ha-params"] = rng.sample(names, rng.randint(1, len(names)))
        found["ha-sync-mode"] = rng.choice(("automatic", "automatic", "manual"))
        found["ha-sync-batch-size"] = rng.choice((1, 7, 4096))
        if rng.random() < 0.15:
            found["ha-promote-on-failure"] = "always"
        if rng.random() < 0.15:
            found["ha-promote-on-shutdown"] = "always"
        return found

    def verb(self, machine: Machine) -> None:
        rng = self.rng
        broker = machine.quiet.broker
        mirrors = broker.mirrors
        name = rng.choice(self.queues)
        node = rng.choice(self.machines).name
        what = rng.choice(
            ("sync", "sync", "cancel", "hand", "hand", "rebalance", "drain", "revive")
        )

        def run() -> None:
            queue = broker.vhosts["/"].queues.get(name)
            if what == "drain":
                mirrors.drain(node)
            elif what == "revive":
                mirrors.revive(node)
            elif what == "rebalance":
                mirrors.rebalance(".*", ".*")
            elif queue is None:
                return
            elif what == "sync":
                mirrors.sync(queue)
            elif what == "cancel":
                mirrors.cancel_sync(queue)
            else:
                mirrors.hand_over(queue, node)

        self.ask(machine, what, run)

    # -- trouble -----------------------------------------------------------------------------

    def troubles(self) -> list[Callable[[], None]]:
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
        self.note_unviewed(machine)
        for person in [one for one in self.people if one.machine is machine]:
            person.over = True
            self.left(person)

    def note_unviewed(self, machine: Machine) -> None:
        """Transient messages of queues that nobody mirrors go with their process."""
        for name in self.queues:
            queue = machine.queue(name)
            if queue is not None and not queue.remote and name not in self.views:
                self.lost(name, of_persistent=False)

    def stop(self) -> None:
        machine = self.some_running()
        if machine is not None and not machine.is_stuck():
            self.say(f"stop {machine.name}")
            for person in [one for one in self.people if one.machine is machine]:
                person.leave()
            self.note_unviewed(machine)
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

    def say(self, text: str) -> None:
        self.log.append(f"{self.world.now_ms - 1_700_000_000_000} {text}")

    # -- what the store's history says ----------------------------------------------------------

    def hear_history(self) -> None:
        """Which views followed each other, and what could be lost with that."""
        history = self.world.store.model.history
        for event in history[self.heard :]:
            if kind_of(event.key) in (VIEWS, RINGS, SYNC, "drained", "members"):
                self.log.append(
                    f"{self.world.now_ms - 1_700_000_000_000} {event.revision} {event.key}"
                    f" {event.value}"
                )
            if kind_of(event.key) == VIEWS:
                self.view_changed(place_of(event.key)[1], event.value, event.revision)
            elif kind_of(event.key) == md.QUEUES:
                self.queue_changed(parts_of(event.key)[1], event.value, event.revision)
        self.heard = len(history)

    def queue_changed(self, name: str, value: str | None, revision: int) -> None:
        """Its node goes on with a deleted one until it hears of that."""
        self.incarnations[name] = "" if value is None else json.loads(value)["incarnation"]
        if value is None:
            self.lost(name, of_persistent=True, revision=revision)

    def view_changed(self, name: str, value: str | None, revision: int) -> None:
        before = self.views.pop(name, None)
        if value is None:
            return
        view = self.views[name] = view_from_json(value)
        if before is None:
            return
        self.counts["views"] += 1
        if view.reign is not None:
            self.counts["elections"] += view.master not in ("", before.master)
            return
        if view.master == "":
            self.lost(name, of_persistent=False, revision=revision)
            self.counts["views without a master"] += 1
        elif before.master == "":
            was = before.recoverable.get(node_of(view.master)) == SYNCED
            self.lost(name, of_persistent=not was, revision=revision)
            self.counts["returned views"] += 1
        elif before.master != view.master:
            self.counts["masters changed"] += 1
            if view.master not in before.synced:
                self.lost(name, of_persistent=True, revision=revision)
                self.counts["unsynchronised promoted"] += 1

    def lost(self, name: str, *, of_persistent: bool, revision: int = 0) -> None:
        revision = revision or self.world.store.model.revision
        self.losses.setdefault(name, []).append((revision, of_persistent))

    def look_at_masters(self) -> None:
        for machine in self.machines:
            if not machine.ready:
                continue
            for place, known in machine.cluster.mirrors.mirroring.queues.items():
                group = known.group
                if group is None or group.mirrored is None:
                    continue
                queue = known.queue
                key = (queue.incarnation, int(group.mirrored.term))
                master = machine.cluster.member
                if self.terms.setdefault(key, master) != master:
                    raise Judgement(f"J2: {self.terms[key]} and {master} in term {key} of {place}")

    # -- checks --------------------------------------------------------------------------------

    def check(self) -> None:
        for machine in self.machines:
            if machine.ready:
                machine.quiet.check()
                machine.cluster.mirrors.mirroring.check()
                machine.cluster.metadata.applier.check()
                for vhost in machine.quiet.broker.vhosts.values():
                    vhost.copies.check()
                self.look_at_places(machine)
        self.counts["checks"] += 1

    def look_at_places(self, machine: Machine) -> None:
        for name in self.queues:
            for backing, incarnation in self.backings(machine, name):
                for seq_id, content in self.contents(machine, backing).items():
                    if seq_id < OWN_TERM:
                        continue
                    number = self.sent_as(body_of(content)).number
                    if self.places.setdefault((incarnation, seq_id), number) != number:
                        raise Judgement(f"J2: {seq_id} means two messages")

    def backings(self, machine: Machine, name: str) -> list[tuple[BackingQueue, str]]:
        vhost = machine.quiet.broker.vhosts["/"]
        found: list[tuple[BackingQueue, str]] = []
        queue = vhost.queues.get(name)
        if queue is not None and not queue.remote:
            found.append((queue.backing, queue.incarnation))
        copy = vhost.copies.copies.get(name)
        if copy is not None:
            found.append((copy.backing, copy.incarnation))
        return found

    def contents(self, machine: Machine, backing: BackingQueue) -> dict[int, bytes]:
        """Of all messages there, by their numbers."""
        if isinstance(backing, StreamBacking):
            return stream_contents(backing.log, machine.quiet.files)
        found = set_of(cast(VariableQueue, backing), self.world.now_ms)
        return {seq_id: content for seq_id, (content, _, _) in found.items()}

    # -- rest ----------------------------------------------------------------------------------

    def rest(self) -> None:
        self.say("rest")
        self.heal()
        world = self.world
        loss, world.store.loss = world.store.loss, 0.0
        network_loss, world.network.loss = world.network.loss, 0.0
        for machine in self.machines:
            machine.paused_until_ms = 0
            if machine.runs:
                machine.quiet.committer.hold = False
                machine.quiet.committer.finish()
        for machine in self.machines:
            for _ in range(5):
                if machine.runs or machine.start():
                    break
            else:
                raise Judgement(f"{machine.name} cannot start")
        self.wait(HEAL_MS)
        for machine in self.machines:
            if not machine.runs and not machine.start():
                raise Judgement(f"{machine.name} cannot start")
        for person in list(self.people):
            if person.open_publishes:
                self._judge_unanswered(person)
            person.leave()
        machine = world.ready()[0]
        mirrors = machine.quiet.broker.mirrors
        for name in mirrors.drained():
            self.ask(machine, "revive", lambda name=name: mirrors.revive(name))  # type: ignore[misc]
        self.wait(500)
        for name in self.unknown:
            self.took_all(name)
        self.unknown = []
        until_ms = world.now_ms + REST_MS
        why = "?"
        asked_ms = 0
        while world.now_ms < until_ms:
            if world.now_ms - asked_ms > 5000:
                asked_ms = world.now_ms
                self.synchronise_by_hand()
            self.wait(500)
            why = self.why_no_rest()
            if not why:
                self.wait(1000)
                why = self.why_no_rest()
            if not why:
                break
        if why:
            raise Judgement(f"J5: no rest: {why}")
        world.store.loss = loss
        world.network.loss = network_loss

    def _judge_unanswered(self, person: Person) -> None:
        queues = {sent.queue for sent in person.open_publishes.values()}
        lost = [name for name in queues if name in self.views and self.is_down(name)]
        if not lost:
            raise Judgement(f"{min(person.open_publishes)} is never answered")

    def synchronise_by_hand(self) -> None:
        machine = self.world.ready()[0]
        mirrors = machine.quiet.broker.mirrors
        for name, view in self.views.items():
            queue = machine.queue(name)
            if queue is not None and view.master and len(view.synced) < len(view.members):
                self.ask(machine, "sync", lambda queue=queue: mirrors.sync(queue))  # type: ignore[misc]

    def why_no_rest(self) -> str:
        """What of J5 is not so yet."""
        if self.asked:
            return f"{self.asked[0].what} is not answered"
        for name in self.queues:
            why = self.why_not_whole(name)
            if why:
                return f"{name}: {why}"
        return self.what_is_left_over()

    def why_not_whole(self, name: str) -> str:
        view = self.views.get(name)
        masters = []
        for machine in self.machines:
            queue = machine.queue(name)
            if queue is not None and not queue.remote:
                masters.append(machine)
        if not any(machine.queue(name) is not None for machine in self.machines):
            return "" if view is None else "it is gone, and has a view"
        if view is not None and self.is_dead_end(name, view):
            return ""
        if view is not None and view.master == "" and SYNCED not in view.recoverable.values():
            self.counts["down for people to decide"] += 1
            return ""  # whoever had everything came back without it; K3
        if len(masters) != 1:
            return f"masters at {[machine.name for machine in masters]}"
        master = masters[0]
        queue = master.queue(name)
        assert queue is not None
        if view is None:
            placed = self.placed(master, queue, [])
            return f"it wants {placed}" if placed.mirrors else ""
        if view.master != master.cluster.member:
            return f"the master is {view.master}, the queue is at {master.name}"
        why = self.why_other_copies(view, master, queue)
        return why or self.why_not_equal(name, master, view)

    def placed(self, master: Machine, queue: Queue, mirrors: list[str]) -> Placement:
        policy = master.quiet.broker.vhosts["/"].policies.ha_policy_of(queue)
        running = [machine.name for machine in self.machines]
        return wanted_copies(policy, master.name, mirrors, mirrors, running, lambda _n: 0)

    def is_down(self, name: str) -> bool:
        return self.views[name].master == ""

    def is_dead_end(self, name: str, view: QueueView) -> bool:
        """Its copies can elect no master."""
        return False

    def why_other_copies(self, view: QueueView, master: Machine, queue: Queue) -> str:
        """It has other copies than it should."""
        if set(view.synced) != set(view.members):
            return f"{view.synced} of {view.members} are synchronised"
        mirrors = [node_of(one) for one in view.mirrors()]
        placed = self.placed(master, queue, mirrors)
        if placed.master != master.name or set(placed.mirrors) != set(mirrors):
            return f"it has {mirrors}, and wants {placed}"
        keys = {entry.key for entry in self.world.store.model.entries()}
        policy = master.quiet.broker.vhosts["/"].policies.ha_policy_of(queue)
        if policy.mode == "" and md.path(RINGS, "/", queue.name) in keys:
            return "it has a ring, and nobody is to mirror it"
        return ""

    def why_not_equal(self, name: str, master: Machine, view: QueueView) -> str:
        [(backing, incarnation)] = self.backings(master, name)
        wanted = self.equals(master, backing)
        for machine in self.machines:
            if machine is master:
                continue
            found = self.backings(machine, name)
            if not view.counts_on(machine.name):
                continue
            if len(found) != 1 or found[0][1] != incarnation:
                return f"{machine.name} has no copy"
            if self.equals(machine, found[0][0]) != wanted:
                return f"{machine.name} is no copy"
        return ""

    def equals(self, machine: Machine, backing: BackingQueue) -> object:
        """The same at all copies."""
        if isinstance(backing, StreamBacking):
            return self.contents(machine, backing)
        return set_of(cast(VariableQueue, backing), self.world.now_ms)

    def what_is_left_over(self) -> str:
        keys = {entry.key: entry.value for entry in self.world.store.model.entries()}
        for key, value in keys.items():
            kind = kind_of(key)
            if kind in (VIEWS, RINGS, SYNC) and md.path(md.QUEUES, *parts_of(key)) not in keys:
                return f"{key} has no queue"
            if kind in (RINGS, SYNC) and md.path(VIEWS, *parts_of(key)) not in keys:
                return f"{key} has no view"
            if kind == SYNC:
                return f"{key} is there, and all is synchronised"
            if kind == RINGS:
                view = view_from_json(keys[md.path(VIEWS, *parts_of(key))])
                ring = ring_from_json(value)
                here = sorted(one.rpartition("#")[0] for one in ring.live())
                if here != sorted(view.members) and len(view.members) > 1:
                    return f"{key} has {ring.live()} of {view.members}"
        for machine in self.machines:
            why = self.what_is_left_over_at(machine)
            if why:
                return f"{machine.name}: {why}"
        return ""

    def what_is_left_over_at(self, machine: Machine) -> str:
        broker = machine.quiet.broker
        for vhost in broker.vhosts.values():
            for name in vhost.copies.copies:
                view = self.views.get(name)
                if view is None:
                    return f"a copy of {name}, which has no view"
                if view.master and not view.counts_on(machine.name):
                    return f"a copy of {name}, of which it is no member"
        for place, known in machine.cluster.mirrors.mirroring.queues.items():
            if known.leaving:
                return f"{place} is being left"
            group = known.group
            if group is not None and group.waiting_bytes() > 0:
                return f"the ring of {place} is not at rest"
        return ""

    # -- judgement -------------------------------------------------------------------------------

    def judge(self) -> None:
        self.check()
        for name in self.queues:
            self.judge_queue(name)
        self.counts["judged"] += 1

    def judge_queue(self, name: str) -> None:
        there: set[int] = set()
        for machine in self.machines:
            queue = machine.queue(name)
            if queue is not None and not queue.remote:
                for content in self.contents(machine, queue.backing).values():
                    number = self.sent_as(body_of(content)).number
                    if number in there:
                        raise Judgement(f"{number} is there twice")
                    there.add(number)
        back = there & self.gone
        if back:
            raise Judgement(f"J3: {sorted(back)[:5]} are back")
        for sent in self.sent:
            if sent.queue != name:
                continue
            if sent.number in there:
                if sent.confirmed_at:
                    self.counts["kept"] += 1
                continue
            if sent.confirmed_at and not sent.settled and not self.may_be_lost(sent):
                kind = "persistent" if sent.persistent else "transient"
                raise Judgement(f"J1: {sent.number} ({kind}) of {name} was confirmed, and is lost")
            self.gone.add(sent.number)

    def master_count(self, name: str) -> int:
        queues = [machine.queue(name) for machine in self.machines if machine.runs]
        return sum(queue is not None and not queue.remote for queue in queues)

    def is_of_two(self, name: str) -> bool:
        queues = [machine.queue(name) for machine in self.machines if machine.runs]
        own = [queue.incarnation for queue in queues if queue is not None and not queue.remote]
        return len(own) > 1 or any(one != self.incarnations.get(name) for one in own)

    def may_be_lost(self, sent: Sent) -> bool:
        """``always`` gives up what the former master goes on to confirm until it hears of that.

        Before its publisher hears of the confirm it may be gone: it counts when it was published.
        """
        if sent.of_two and self.losses.get(sent.queue):
            return True
        for revision, of_persistent in self.losses.get(sent.queue, []):
            if revision >= sent.published_at and (of_persistent or not sent.persistent):
                return True
        return False


def stream_contents(log: StreamLog, files: SimFileSystem) -> dict[int, bytes]:
    """What is in the files of a stream, up to what readers see."""
    found: dict[int, bytes] = {}
    segments = log.segments
    for number in range(len(segments)):
        path = segment_path(log.directory, segments.first(number))
        data = files.read(path) if files.exists(path) else b""
        at = 0
        while at < min(segments.size(number), len(data)):
            head = read_head(data, at, 0, log.stream, path)
            assert head is not None
            payload = data[head.payload_at() : head.end()]
            records = read_records(payload, head) if head.kind == MESSAGES else []
            assert records is not None
            found |= {int(one.seq_id): one.content for one in records}
            at = int(head.end())
    return {offset: one for offset, one in found.items() if offset < log.durable_offset}
