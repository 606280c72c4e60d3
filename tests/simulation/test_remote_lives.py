"""Random lives of clients at two nodes, with queues whose masters are at one of them.

The judge knows what was published, confirmed, delivered and settled.  In the end every queue is
drained at its master.  While no member is lost, a message is seen through exactly once; when the
other member may be lost, one that was confirmed is seen at least once, and what was told "no"
may be there or not.

``PENSTOCK_SEED`` repeats a life; the seed is printed.  ``PENSTOCK_LIVES`` says how many.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

from penstock.cluster.remote.queue import RemoteQueue
from tests.helpers.connection_pair import ClientEnd
from tests.helpers.node_pair import NodePair

FAILED_ONCE: tuple[int, ...] = ()
LIVES = int(os.environ.get("PENSTOCK_LIVES", "6"))
STEPS = int(os.environ.get("PENSTOCK_STEPS", "150"))


def seeds() -> list[int]:
    """Drawn when a test runs: all workers must collect the same tests."""
    if "PENSTOCK_SEED" in os.environ:
        return [int(os.environ["PENSTOCK_SEED"])]
    return [*FAILED_ONCE, *(random.SystemRandom().randrange(1 << 32) for _ in range(LIVES))]


QUEUES = ("one", "two", "three")


class Person:
    """A client, and what it has been told."""

    def __init__(self, life: Life, client: ClientEnd) -> None:
        self.life = life
        self.client = client
        self.published = 0
        self.bodies: dict[int, bytes] = {}  # by the number of the publish
        self.open: dict[int, bytes] = {}  # by delivery tag
        self.consuming: list[str] = []
        self.tags = 0

    def hear(self) -> None:
        for name, fields in self.client.methods():
            if name in ("basic.deliver", "basic.get-ok"):
                self.open[fields["delivery_tag"]] = fields["body"]
            elif name == "basic.ack":
                self._confirmed(fields, self.life.confirmed)
            elif name == "basic.nack":
                self._confirmed(fields, self.life.denied)
            else:
                assert name not in ("channel.close", "connection.close"), fields

    def _confirmed(self, fields: dict[str, Any], to: set[bytes]) -> None:
        last = fields["delivery_tag"]
        numbers = [n for n in self.bodies if n <= last] if fields["multiple"] else [last]
        for number in numbers:
            to.add(self.bodies.pop(number))


class Life:
    def __init__(self, seed: int, *, lossy: bool) -> None:
        self.chance = random.Random(seed)
        self.lossy = lossy
        self.pair = NodePair()
        # Two have their masters there, one has it here.
        self.remotes = [self.pair.remote("one"), self.pair.remote("two")]
        self.remotes.append(self.pair.remote_there("three"))
        self.confirmed: set[bytes] = set()
        self.denied: set[bytes] = set()
        self.published: set[bytes] = set()
        self.seen_through: Counter[bytes] = Counter()
        self.unsure: set[bytes] = set()
        self.people = [self._new_person() for _ in range(3)]

    def _new_person(self) -> Person:
        node = self.pair.here if self.chance.random() < 0.7 else self.pair.there
        slow, self.pair.slow = self.pair.slow, False
        client = node.client()
        client.call("confirm.select")
        client.call("basic.qos", prefetch_count=self.chance.choice([0, 1, 3, 10]))
        self.pair.slow = slow
        client.methods()
        return Person(self, client)

    # -- steps -----------------------------------------------------------------------------

    def step(self) -> None:
        person = self.chance.choice(self.people)
        steps = [
            self.publish,
            self.publish,
            self.consume,
            self.cancel,
            self.get,
            self.settle,
            self.settle,
            self.settle,
            self.toggle_link,
            self.toggle_socket,
            self.hold_disk,
            self.wait,
            self.leave,
        ]
        if self.lossy:
            steps.append(self.lose)
        self.chance.choice(steps)(person)
        for one in self.people:
            one.hear()

    def publish(self, person: Person) -> None:
        for _ in range(self.chance.randint(1, 6)):
            person.published += 1
            body = b"%d" % len(self.published) + b"." * self.chance.choice([0, 10, 5000])
            self.published.add(body)
            person.bodies[person.published] = body
            mode = self.chance.choice([1, 2])
            queue = self.chance.choice(QUEUES)
            person.client.publish("", queue, body, delivery_mode=mode, run=False)
        self.pair.run()

    def consume(self, person: Person) -> None:
        if len(person.consuming) < 3:
            person.tags += 1
            tag = f"c{person.tags}"
            person.consuming.append(tag)
            arguments = (
                {"x-priority": self.chance.randint(0, 2)} if self.chance.random() < 0.3 else {}
            )
            person.client.consume(self.chance.choice(QUEUES), tag=tag, arguments=arguments)

    def cancel(self, person: Person) -> None:
        if person.consuming:
            tag = person.consuming.pop(self.chance.randrange(len(person.consuming)))
            person.client.method(1, "basic.cancel", consumer_tag=tag)

    def get(self, person: Person) -> None:
        person.client.method(1, "basic.get", queue=self.chance.choice(QUEUES))

    def settle(self, person: Person) -> None:
        if not person.open:
            return
        tag = self.chance.choice(sorted(person.open))
        what = self.chance.choice(["ack", "ack", "multiple", "reject", "requeue"])
        done = [one for one in person.open if one <= tag] if what == "multiple" else [tag]
        bodies = [person.open.pop(one) for one in done]
        if what != "requeue":
            self.seen_through.update(bodies)
        if what in ("ack", "multiple"):
            person.client.method(1, "basic.ack", delivery_tag=tag, multiple=what == "multiple")
        else:
            requeue = what == "requeue"
            person.client.method(1, "basic.reject", delivery_tag=tag, requeue=requeue)
        if person.client.session.waiting_head:
            self.unsure.update(bodies)  # nobody has read it; if its client leaves, nobody will

    def toggle_link(self, person: Person) -> None:
        self.pair.slow = not self.pair.slow
        self.pair.run()

    def toggle_socket(self, person: Person) -> None:
        person.client.blocked = not person.client.blocked
        self.pair.run()

    def hold_disk(self, person: Person) -> None:
        node = self.chance.choice([self.pair.here, self.pair.there])
        node.committer.hold = not node.committer.hold
        if not node.committer.hold:
            node.committer.finish()
        self.pair.run()

    def wait(self, person: Person) -> None:
        self.pair.tick(self.chance.choice([1, 100, 1500]))

    def leave(self, person: Person) -> None:
        if self.chance.random() < 0.7:
            return
        person.client.drop()
        self.people.remove(person)
        self.people.append(self._new_person())

    def lose(self, person: Person) -> None:
        """The other node's member is gone for us; it comes back as another one."""
        if self.chance.random() < 0.6:
            return
        self.pair.lose_link()
        if self.chance.random() < 0.5:
            self.publish(person)
        self.pair.connect()
        for queue in self.remotes:
            end = self.pair.ends[1 if queue.name == "three" else 0]
            assert queue.follow(end.queues.client) == []
        self.pair.run()

    # -- the end ---------------------------------------------------------------------------

    def end(self) -> None:
        self.pair.slow = False
        for node in (self.pair.here, self.pair.there):
            node.committer.hold = False
            node.committer.finish()
        for person in self.people:
            person.client.blocked = False
        self.pair.tick()
        for person in self.people:
            person.hear()
            assert person.bodies == {}, "every publish is answered"
            person.client.drop()
        self.pair.tick()
        self.pair.check()
        drain = self.pair.there.client()
        for name in QUEUES:
            assert self.pair.master(name).unacked_count == 0
            assert not self.pair.master(name).consumers
            drain.consume(name, tag=name, no_ack=True)
        self.seen_through.update(drain.bodies())
        for queue in self.remotes:
            assert queue.unacked_count == 0
            assert not queue.publishing.watermark.has_open()

    def judge(self) -> None:
        counts = self.seen_through
        assert set(counts) <= self.published
        left_early = self.published - self.confirmed - self.denied  # their publisher had gone
        if self.lossy:
            assert self.confirmed <= set(counts)
        else:
            assert self.denied == set()
            assert set(counts) | left_early == self.published
            doubled = [body for body in counts if counts[body] > 1 and body not in self.unsure]
            assert doubled == []


def live(seed: int, *, lossy: bool) -> Life:
    life = Life(seed, lossy=lossy)
    for _ in range(STEPS):
        life.step()
    life.end()
    life.judge()
    return life


def test_a_life_without_losses_sees_each_message_through_once() -> None:
    for seed in seeds():
        print("PENSTOCK_SEED", seed)
        assert live(seed, lossy=False).confirmed


def test_a_life_with_losses_loses_nothing_that_was_confirmed() -> None:
    for seed in seeds():
        print("PENSTOCK_SEED", seed)
        assert live(seed, lossy=True).confirmed


def test_the_judge_sees_queues_that_are_elsewhere() -> None:
    life = Life(1, lossy=False)
    assert all(isinstance(queue, RemoteQueue) for queue in life.remotes)
    life.published.add(b"lost")
    life.confirmed.add(b"lost")
    with pytest.raises(AssertionError):
        life.judge()
