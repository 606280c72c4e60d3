"""Clients of random lives of a cluster (``cluster_lives.py``): what they do, and what they hear.

NodeClient       a connection to one node
Clients          all of them, and the next thing that one of them does
Administration   policies and verbs of mirrors, asked of nodes and waited for
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from penstock.broker import administration
from penstock.broker.rules.policies import Policy
from penstock.core.errors import BrokerError
from tests.helpers.connection_pair import ClientEnd
from tests.helpers.requests import Request
from tests.simulation.cluster_judge import ClusterJudge, Judgement, Sent
from tests.simulation.cluster_nodes import Machine


class NodeClient:
    """A client at one node, with one channel."""

    def __init__(self, clients: Clients, machine: Machine) -> None:
        self.clients = clients
        self.judge = clients.judge
        self.counts = clients.judge.counts
        self.machine = machine
        self.end: ClientEnd = machine.client()
        self.end.call("confirm.select")
        counts = (1, 5, 20) if clients.streams else (0, 1, 5, 20)
        self.end.call("basic.qos", prefetch_count=clients.rng.choice(counts))
        self.published = 0
        self.open_publishes: dict[int, Sent] = {}
        self.deliveries: dict[int, Sent] = {}
        self.consuming: dict[str, str] = {}
        self.last_first: dict[tuple[str, int], int] = {}  # by tag and publisher
        self.publisher = clients.next_publisher()
        self.waits: list[tuple[str, str]] = []  # methods that are to be answered
        self.tags = 0
        self.over = False

    def hear(self) -> None:
        for name, fields in self.end.methods():
            if self.over:
                return
            if name in ("basic.deliver", "basic.get-ok"):
                self._delivered(name, fields)
            elif name == "basic.ack":
                self._answered(fields, confirmed=True)
            elif name == "basic.nack":
                self._answered(fields, confirmed=False)
            elif name == "basic.return":
                self._returned(fields["body"])
            elif name == "basic.cancel":
                self.consuming.pop(fields["consumer_tag"], None)
            elif name in ("queue.purge-ok", "queue.delete-ok", "queue.declare-ok"):
                self._done(name)
            elif name in ("channel.close", "connection.close"):
                self.counts[f"closed {fields.get('code')}"] += 1
                self.leave()

    def _done(self, name: str) -> None:
        what, queue = self.waits.pop(0)
        assert name == what, (name, what)
        if what != "queue.declare-ok":
            self.judge.took_all(queue)
        self.counts[what] += 1

    def _delivered(self, name: str, fields: dict[str, Any]) -> None:
        sent = self.judge.sent_as(fields["body"])
        self.counts["delivered"] += 1
        if sent.number in self.judge.gone:
            raise Judgement(f"CJ3: {sent.number} was gone, and is delivered")
        self.deliveries[fields["delivery_tag"]] = sent
        if name == "basic.get-ok" or fields["redelivered"]:
            return
        tag = fields["consumer_tag"]
        last = self.last_first.get((tag, sent.publisher), 0)
        if sent.number <= last:
            raise Judgement(f"CJ4: {sent.number} is delivered for the first time behind {last}")
        self.last_first[tag, sent.publisher] = sent.number

    def _answered(self, fields: dict[str, Any], *, confirmed: bool) -> None:
        last = fields["delivery_tag"]
        numbers = [n for n in self.open_publishes if n <= last] if fields["multiple"] else [last]
        for number in numbers:
            sent = self.open_publishes.pop(number)
            if confirmed:
                sent.confirmed_at = self.judge.world.store.model.revision
                sent.of_two = sent.of_two or self.judge.is_of_two(sent.queue)
                self.counts["confirmed"] += 1
            else:
                self.counts["denied"] += 1

    def _returned(self, body: bytes) -> None:
        """There was no queue; it is confirmed behind this."""
        self.judge.sent_as(body).settled = True
        self.counts["returned"] += 1

    def leave(self) -> None:
        if not self.over:
            self.over = True
            if self.machine.runs:
                self.end.drop()
                self.end.node.clients.remove(self.end)
            self.clients.left(self)


class Clients:
    """All that are connected; each of ``doings`` lets one at that node do something."""

    def __init__(
        self,
        rng: random.Random,
        judge: ClusterJudge,
        queues: tuple[str, ...],
        streams: tuple[str, ...],
    ) -> None:
        self.rng = rng
        self.judge = judge
        self.queues = queues
        self.streams = streams
        self.connected: list[NodeClient] = []
        self.unknown: list[str] = []  # queues that were purged or deleted, or not
        self.last_publisher = 0

    def next_publisher(self) -> int:
        self.last_publisher += 1
        return self.last_publisher

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
        ]

    def hear(self) -> None:
        for client in list(self.connected):
            if not client.machine.is_stuck() and not client.over:
                client.hear()

    def connect(self, machine: Machine) -> NodeClient:
        client = NodeClient(self, machine)
        self.connected.append(client)
        return client

    def some_at(self, machine: Machine) -> NodeClient | None:
        here = [one for one in self.connected if one.machine is machine and not one.over]
        if (len(here) < 2 and self.rng.random() < 0.5) or not here:
            return self.connect(machine) if "/" in machine.quiet.broker.vhosts else None
        return self.rng.choice(here)

    # -- messages --------------------------------------------------------------------------

    def publish(self, machine: Machine) -> None:
        client = self.some_at(machine)
        if client is None:
            return
        rng, judge = self.rng, self.judge
        for _ in range(rng.choice((1, 1, 3, 10))):
            if client.over:
                return
            number = len(judge.sent) + 1
            body = b"%d:" % number + b"x" * rng.choice((0, 20, 300, 6000))
            queue, persistent = rng.choice(self.queues), judge.kind.is_persistent(rng)
            now = judge.world.store.model.revision
            sent = Sent(number, client.publisher, queue, body, now, persistent=persistent)
            sent.of_two = judge.is_of_two(queue)
            judge.sent.append(sent)
            client.published += 1
            client.open_publishes[client.published] = sent
            mode = 2 if persistent else 1
            run = rng.random() < 0.1
            client.end.publish("", queue, body, delivery_mode=mode, mandatory=True, run=run)
            judge.counts["published"] += 1

    def consume(self, machine: Machine) -> None:
        client = self.some_at(machine)
        if client is not None and len(client.consuming) < 2:
            client.tags += 1
            tag = f"c{client.tags}"
            queue = self.rng.choice(self.queues)
            client.consuming[tag] = queue
            first = {"x-stream-offset": "first"} if queue in self.streams else {}
            client.end.consume(queue, tag=tag, arguments=first)

    def cancel(self, machine: Machine) -> None:
        client = self.some_at(machine)
        if client is not None and client.consuming:
            tag = self.rng.choice(list(client.consuming))
            del client.consuming[tag]
            client.end.method(1, "basic.cancel", consumer_tag=tag, nowait=True)

    def get(self, machine: Machine) -> None:
        client = self.some_at(machine)
        if client is not None:
            queue = self.rng.choice(self.queues)
            if queue not in self.streams:
                client.end.method(1, "basic.get", queue=queue)

    def settle(self, machine: Machine) -> None:
        client = self.some_at(machine)
        if client is None or not client.deliveries:
            return
        rng = self.rng
        tag = rng.choice(list(client.deliveries))
        what = rng.choice(("ack", "ack", "multiple", "reject", "requeue", "requeue"))
        tags = [one for one in client.deliveries if one <= tag] if what == "multiple" else [tag]
        for one in tags:
            sent = client.deliveries.pop(one)
            stays = what == "requeue" or sent.queue in self.streams
            sent.settled = sent.settled or not stays
        self.judge.counts["settled"] += len(tags)
        if what in ("ack", "multiple"):
            client.end.method(1, "basic.ack", delivery_tag=tag, multiple=what == "multiple")
        else:
            requeue = what == "requeue"
            client.end.method(1, "basic.reject", delivery_tag=tag, requeue=requeue)

    # -- queues ----------------------------------------------------------------------------

    def purge(self, machine: Machine) -> None:
        if self.rng.random() < 0.3:
            self._ask_queue(machine, "queue.purge")

    def delete(self, machine: Machine) -> None:
        if self.rng.random() < 0.3:
            self._ask_queue(machine, "queue.delete")

    def declare(self, machine: Machine) -> None:
        self._ask_queue(machine, "queue.declare", durable=True)

    def _ask_queue(self, machine: Machine, method: str, **fields: Any) -> None:
        client = self.some_at(machine)
        if client is not None and not client.waits:
            queue = self.rng.choice(self.queues)
            if method == "queue.purge" and queue in self.streams:
                return
            if method == "queue.declare":
                fields["arguments"] = self.judge.kind.arguments_of(queue)
            client.waits.append((method + "-ok", queue))
            client.end.method(1, method, queue=queue, **fields)

    def declare_first(self, machine: Machine, queue: str) -> NodeClient:
        client = self.connect(machine)
        client.waits.append(("queue.declare-ok", queue))
        arguments = self.judge.kind.arguments_of(queue)
        client.end.method(1, "queue.declare", queue=queue, durable=True, arguments=arguments)
        return client

    # -- their end -------------------------------------------------------------------------

    def leave(self, machine: Machine) -> None:
        here = [one for one in self.connected if one.machine is machine]
        if here:
            self.rng.choice(here).leave()

    def leave_all_at(self, machine: Machine) -> None:
        for client in [one for one in self.connected if one.machine is machine]:
            client.leave()

    def lost_machine(self, machine: Machine) -> None:
        for client in [one for one in self.connected if one.machine is machine]:
            client.over = True
            self.left(client)

    def left(self, client: NodeClient) -> None:
        self.connected.remove(client)
        for what, queue in client.waits:
            if what != "queue.declare-ok":
                self.unknown.append(queue)

    def leave_all(self) -> None:
        """Before a rest, when each of their publishes has its answer."""
        for client in list(self.connected):
            if client.open_publishes:
                self.judge.judge_unanswered(client.open_publishes)
            client.leave()

    def settle_unknown(self) -> None:
        """What a purge or a deletion without an answer may have taken."""
        for name in self.unknown:
            self.judge.took_all(name)
        self.unknown = []


class Asked:
    """Something of administration that is waited for."""

    def __init__(self, machine: Machine, what: str, run: Callable[[], Any]) -> None:
        self.machine = machine
        self.life = machine.cluster.member
        self.what = what
        self.request = Request(machine.quiet.broker.changes.ask(), run)


class Administration:
    def __init__(self, rng: random.Random, judge: ClusterJudge, queues: tuple[str, ...]) -> None:
        self.rng = rng
        self.judge = judge
        self.queues = queues
        self.counts = judge.counts
        self.asked: list[Asked] = []

    def doings(self) -> list[Callable[[Machine], None]]:
        return [self.set_policy, self.verb]

    def ask(self, machine: Machine, what: str, run: Callable[[], Any]) -> None:
        asked = Asked(machine, what, run)
        self.asked.append(asked)
        self._go_on(asked)

    def go_on(self) -> None:
        for asked in list(self.asked):
            self._go_on(asked)

    def _go_on(self, asked: Asked) -> None:
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

    def unanswered(self) -> str:
        return f"{self.asked[0].what} is not answered" if self.asked else ""

    def set_policy(self, machine: Machine) -> None:
        definition = self._some_definition()
        policy = Policy("ha", "^q", "queues", 0, definition)
        broker = machine.quiet.broker

        def run() -> None:
            admin = administration.Administration(broker, 64)
            if definition:
                admin.put_policy("/", policy, False)
            elif "ha" in broker.vhosts["/"].policies.policies:
                admin.delete_policy("/", "ha")

        self.ask(machine, "policy", run)

    def _some_definition(self) -> dict[str, object]:
        rng = self.rng
        mode = rng.choice(("all", "all", "exactly", "exactly", "nodes", ""))
        if not mode:
            return {}
        found: dict[str, object] = {"ha-mode": mode}
        if mode == "exactly":
            found["ha-params"] = rng.choice((1, 2, 2, 3))
        elif mode == "nodes":
            names = [machine.name for machine in self.judge.machines]
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
        node = rng.choice(self.judge.machines).name
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

    def revive_all(self, machine: Machine) -> None:
        mirrors = machine.quiet.broker.mirrors
        for name in mirrors.drained():
            self.ask(machine, "revive", lambda name=name: mirrors.revive(name))  # type: ignore[misc]

    def synchronise(self, machine: Machine) -> None:
        mirrors = machine.quiet.broker.mirrors
        for name in self.judge.unsynchronised():
            queue = machine.queue(name)
            if queue is not None:
                self.ask(machine, "sync", lambda queue=queue: mirrors.sync(queue))  # type: ignore[misc]
