"""Cuts of the network, told as stories: who goes on, how soon, and what clients elsewhere are told.

Three whole nodes in one process (cluster_nodes.py), a mirrored queue ``q`` with two copies and a
plain one ``p``, both at the first node.  The network loses nothing but what is cut.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.cluster.agreement.coordinator import node_of
from tests.helpers.connection_pair import ClientEnd
from tests.helpers.requests import Request
from tests.simulation.cluster_nodes import Machine, SimWorld

NAMES = ("a@h", "b@h", "c@h")
GOES_ON_MS = 5000
"""So soon a mirrored queue confirms again, or its clients are told to go elsewhere."""
TOLD_MS = 8000
"""A master that is not reached has a successor by then, or it is said that it is not reached."""
STEP_MS = 20
TWO = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}


class Story:
    """The world, with both queues declared and ``q`` in step."""

    def __init__(self, directory: Path) -> None:
        self.world = SimWorld(random.Random(6), directory, NAMES)
        self.world.network.loss = self.world.network.doubling = 0.0
        self.world.store.loss = 0.0
        self.stack = ExitStack()

    def begin(self) -> None:
        self.stack.enter_context(self.world.inside())
        for machine in self.world.machines:
            assert machine.start()
        self.wait(1000)
        self.set_policy()
        client = self.client(self.master)
        for name in ("q", "p"):
            client.method(1, "queue.declare", queue=name, durable=True)
            self.until(lambda: "queue.declare-ok" in heard(client), 2000)
        self.until(lambda: self.synced() == 2, 10_000)

    def set_policy(self) -> None:
        broker = self.master.quiet.broker
        policy = Policy("ha", "^q", "queues", 0, TWO)
        administration = Administration(broker, 64)
        puts = Request(broker.changes.ask(), lambda: administration.put_policy("/", policy))
        self.until(puts.is_decided, 2000)

    @property
    def master(self) -> Machine:
        """Of both queues, in the beginning."""
        return self.world.machines[0]

    def view(self, machine: Machine) -> Any:
        known = machine.cluster.mirrors.mirroring.queues.get(("/", "q"))
        return None if known is None else known.view

    def synced(self) -> int:
        """Copies, as the master sees it."""
        view = self.view(self.master)
        return 0 if view is None else len(view.synced)

    @property
    def mirror(self) -> Machine:
        [name] = [node_of(one) for one in self.view(self.master).mirrors()]
        return next(one for one in self.world.machines if one.name == name)

    @property
    def third(self) -> Machine:
        mirror = self.mirror
        return next(one for one in self.world.machines[1:] if one is not mirror)

    def cut_off(self, machine: Machine) -> None:
        """From the others, and from the coordinator, which they hear."""
        self.world.network.cut_off([machine.name])
        machine.sim.cut_off = True

    def heal(self) -> None:
        self.world.network.heal()
        for machine in self.world.machines:
            if machine.sim.cut_off:
                machine.sim.cut_off = False

    def client(self, machine: Machine) -> ClientEnd:
        client = machine.client()
        client.call("confirm.select")
        return client

    def wait(self, ms: int) -> None:
        until_ms = self.world.now_ms + ms
        while self.world.now_ms < until_ms:
            self.world.pass_time(STEP_MS)

    def until(self, found: Callable[[], bool], within_ms: int) -> int:
        """How long it took."""
        began_ms = self.world.now_ms
        while not found():
            assert self.world.now_ms - began_ms < within_ms, f"not within {within_ms} ms"
            self.world.pass_time(STEP_MS)
        return self.world.now_ms - began_ms

    def publish(self, client: ClientEnd, queue: str) -> None:
        client.publish("", queue, b"x", delivery_mode=2, run=False)

    def answer(self, client: ClientEnd, within_ms: int) -> str:
        """The next method it is told, but for deliveries."""
        found: list[str] = []

        def is_there() -> bool:
            found.extend(name for name in heard(client) if name != "basic.deliver")
            return bool(found)

        self.until(is_there, within_ms)
        return found[0]


def heard(client: ClientEnd) -> list[str]:
    """Closes with their codes."""
    names = []
    for name, fields in client.methods():
        code = fields.get("code") if name.endswith(".close") else None
        names.append(name if code is None else f"{name} {code}")
    return names


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path)
    with story.stack:
        story.begin()
        yield story
        for machine in story.world.machines:
            machine.quiet.check()
            machine.cluster.mirrors.mirroring.check()


CLOSED = "connection.close 541"


@pytest.mark.parametrize("way", ["both", "to the mirror", "to the master"])
def test_a_master_does_without_a_mirror_it_does_not_reach(story: Story, way: str) -> None:
    """And with another one, as the policy has it; healed nothing is missing."""
    network = story.world.network
    master, mirror = story.master, story.mirror
    client = story.client(master)
    if way == "both":
        network.cut(master.name, mirror.name)
    elif way == "to the mirror":
        network.cut_one_way(master.name, mirror.name)
    else:
        network.cut_one_way(mirror.name, master.name)
    story.publish(client, "q")
    assert story.answer(client, GOES_ON_MS) == "basic.ack"
    story.until(lambda: story.synced() == 2, 10_000)
    assert story.mirror is not mirror
    story.heal()
    story.until(lambda: story.synced() == 2, 20_000)


def test_clients_of_a_master_that_is_cut_off_are_sent_elsewhere(story: Story) -> None:
    """Publishers, consumers, and whoever comes; a queue that nobody mirrors goes on there."""
    master, mirror = story.master, story.mirror
    publisher, consumer, plain = (story.client(master) for _ in range(3))
    consumer.consume("q")
    story.cut_off(master)
    story.publish(publisher, "q")
    assert story.answer(publisher, GOES_ON_MS) == "basic.nack"
    assert story.answer(consumer, 1000) == CLOSED
    story.publish(publisher, "q")
    assert story.answer(publisher, 1000) == CLOSED
    late = story.client(master)
    late.consume("q")
    assert story.answer(late, 1000) == CLOSED
    story.publish(plain, "p")
    assert story.answer(plain, 1000) == "basic.ack"
    other = story.client(mirror)
    story.publish(other, "q")
    assert story.answer(other, GOES_ON_MS) == "basic.ack"
    story.heal()
    story.until(lambda: len(story.view(mirror).synced) == 2, 20_000)
    story.wait(500)  # it joins again, and sends clients elsewhere until then
    again = story.client(master)
    story.publish(again, "q")
    assert story.answer(again, GOES_ON_MS) == "basic.ack"


def test_a_master_that_is_cut_off_says_so(story: Story) -> None:
    master = story.master
    facts = master.quiet.broker.mirrors.facts
    queue = master.queue("q")
    assert queue is not None
    known = facts(queue)
    assert known is not None
    assert known.why == ""
    story.cut_off(master)
    story.wait(GOES_ON_MS)
    known = facts(queue)
    assert known is not None
    assert f"node '{master.name}' is cut off" in known.why


def test_clients_of_another_node_that_is_cut_off_are_sent_elsewhere(story: Story) -> None:
    third = story.third
    publisher, consumer, asking = (story.client(third) for _ in range(3))
    consumer.consume("q")
    story.wait(500)
    story.cut_off(third)
    story.publish(publisher, "q")
    assert story.answer(publisher, GOES_ON_MS) == "basic.nack"
    assert story.answer(consumer, 1000) == CLOSED
    story.publish(publisher, "q")
    assert story.answer(publisher, 1000) == CLOSED
    asking.method(1, "basic.get", queue="q")
    assert story.answer(asking, 1000) == CLOSED


def test_with_the_whole_coordinator_away_mirrored_queues_go_on(story: Story) -> None:
    for machine in story.world.machines:
        machine.sim.cut_off = True
    clients = [story.client(machine) for machine in story.world.machines]
    for _ in range(10):
        for client in clients:
            story.publish(client, "q")
            assert story.answer(client, 1000) == "basic.ack"
        story.wait(1000)


def test_a_queue_whose_home_lives_and_is_not_reached_is_inaccessible_until_it_is(
    story: Story,
) -> None:
    """Nobody else has it: as when its node is down."""
    third = story.third
    story.world.network.cut(story.master.name, third.name)
    publisher, waiting, asking = (story.client(third) for _ in range(3))
    waiting.method(1, "queue.declare", queue="p", durable=True, passive=True)
    story.publish(publisher, "p")
    assert story.answer(publisher, TOLD_MS) == "basic.nack"
    assert story.answer(waiting, 1000) == "channel.close 404"
    asking.consume("p")
    assert story.answer(asking, 1000) == "channel.close 404"
    story.heal()
    story.wait(1000)
    story.publish(publisher, "p")
    assert story.answer(publisher, 1000) == "basic.ack"


def test_clients_of_a_node_that_does_not_reach_the_master_are_sent_elsewhere(
    story: Story,
) -> None:
    """Both hear the coordinator, so there is no other master; a third node reaches it."""
    third = story.third
    story.world.network.cut(story.master.name, third.name)
    consumer, publisher = story.client(third), story.client(third)
    consumer.consume("q")
    assert story.answer(consumer, TOLD_MS) == CLOSED
    story.publish(publisher, "q")
    assert story.answer(publisher, 1000) == CLOSED
    story.heal()
    story.wait(1000)
    again = story.client(third)
    story.publish(again, "q")
    assert story.answer(again, 1000) == "basic.ack"


def test_a_master_that_dies_has_a_successor_before_anybody_is_sent_away(story: Story) -> None:
    third = story.third
    client, consumer = story.client(third), story.client(third)
    consumer.consume("q")
    story.wait(500)
    story.master.kill()
    story.publish(client, "q")
    assert story.answer(client, TOLD_MS) == "basic.nack", "it was under way to the dead one"
    story.publish(client, "q")
    assert story.answer(client, GOES_ON_MS) == "basic.ack", "its successor had not begun yet"
    assert heard(consumer)[0] == "basic.deliver"
