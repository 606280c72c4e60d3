"""A simulated cluster of whole nodes, and what tests do to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from tests.helpers.requests import Request
from tests.simulation.cluster_nodes import Machine, SimWorld

PATIENCE_MS = 120_000
STEP_MS = 20


class SimCluster:
    """``machines`` in the order of their names; all verbs let time pass until they are done."""

    def __init__(self, directory: Path, names: tuple[str, ...]) -> None:
        self.world = SimWorld(random.Random(1), directory, names)
        self.machines = self.world.machines

    def until(self, is_true: Callable[[], bool]) -> None:
        end_ms = self.world.now_ms + PATIENCE_MS
        while not is_true():
            assert self.world.now_ms < end_ms
            self.world.pass_time(STEP_MS)

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.world.pass_time(STEP_MS)

    def put_policy(self, at: Machine, pattern: str, definition: dict[str, object]) -> None:
        broker = at.quiet.broker
        administration = Administration(broker, 64)
        policy = Policy("p", pattern, "queues", 0, definition)
        puts = Request(broker.changes.ask(), lambda: administration.put_policy("/", policy))
        self.until(puts.is_decided)

    def declare(self, at: Machine, queue: str, **arguments: Any) -> None:
        """A durable queue, known to all nodes."""
        client = at.client()
        client.method(1, "queue.declare", queue=queue, durable=True, arguments=arguments)
        self.until(lambda: all(one.queue(queue) is not None for one in self.world.ready()))
        client.drop()

    def publish(self, at: Machine, queue: str, count: int) -> None:
        """Persistent messages "0", "1", ..., all of them confirmed."""
        client = at.client()
        client.call("confirm.select")
        for number in range(count):
            client.publish("", queue, b"%d" % number, delivery_mode=2, run=False)
        confirmed: list[tuple[str, dict[str, Any]]] = []

        def are_confirmed() -> bool:
            confirmed.extend(client.methods())
            return confirmed[-1:] != [] and confirmed[-1][1].get("delivery_tag") == count

        self.until(are_confirmed)
        assert {name for name, _ in confirmed} == {"basic.ack"}
        client.drop()

    def synced(self, queue: str) -> list[str]:
        """Nodes with a synchronised copy, as the present master has it; empty = no master."""
        for machine in self.world.ready():
            found = machine.queue(queue)
            if found is not None and not found.remote:
                known = machine.cluster.mirrors.mirroring.queues.get(("/", queue))
                if known is None or known.view is None:
                    return []
                return sorted(member.partition("/")[0] for member in known.view.synced)
        return []


@contextmanager
def started(directory: Path, names: tuple[str, ...]) -> Iterator[SimCluster]:
    cluster = SimCluster(directory, names)
    with cluster.world.inside():
        for machine in cluster.machines:
            assert machine.start()
        yield cluster
