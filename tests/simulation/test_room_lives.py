"""Random lives of waiting rooms on a disk that fails: nothing confirmed is lost on its way out.

A life is a broker with a topic of NSQ and an exchange that delays messages.  What is published to
the topic waits in its backlog while there is no channel, or the topic is paused; what is delayed
waits in the exchange's room.  Publishers have confirms; deferred messages of NSQ have none, and
count as confirmed when a sync came behind them.  Any verb of the disk may fail, once or from then
on, and the process may end at any moment, with or without power.

At the end every confirmed message is in the channel, or in the queue behind the exchange.  Without
a crash none is there twice: a failed read is no reason to publish a message once more.

``PENSTOCK_ROOM_LIVES`` says how many lives, ``PENSTOCK_ROOM_LIFE`` where to begin.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.topology.topics import PREFIX, Topic, exchange_name, queue_name
from penstock.core.message import PERSISTENT, Message
from penstock.storage.engine.engine import EngineLimits
from tests.helpers.connection_pair import EVERYTHING, QuietBroker
from tests.helpers.raw_codec import content_frames, short_string
from tests.helpers.sim_files import SimFileSystem

LIVES = int(os.environ.get("PENSTOCK_ROOM_LIVES", "8"))
FIRST = int(os.environ.get("PENSTOCK_ROOM_LIFE") or random.SystemRandom().randrange(10**9))
STEPS = 80
SIZES = (5, 300, 3000)
WRITES = ("pwrite", "sync", "rename", "remove", "sync_dir", "open_write")
READS = ("pread", "read")
TOPIC, CHANNEL = "t", "c"
LATE, BEHIND = "late", "behind"
DELAYS_MS = (0, 200, 20_000)


class Life:
    """``live`` it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.definitions = str(directory / f"{seed}.db")
        self.limits = EngineLimits(
            self.rng.choice([200, 4096]),
            self.rng.choice([20_000, 10**7]),
            self.rng.choice([20, 10**6]),
            EVERYTHING,
            self.rng.choice([10_000, EVERYTHING]),
        )
        self.number = self.failures = self.crashes = 0
        self.confirmed: dict[str, set[int]] = {TOPIC: set(), LATE: set()}
        self.failing = ""
        self.node = self.opened(SimFileSystem())
        vhost = self.node.broker.vhosts["/"]
        vhost.topics.topic(TOPIC)
        vhost.declare_exchange(
            LATE, "x-delayed-message", True, False, False, {"x-delayed-type": "fanout"}
        )
        vhost.declare_queue(BEHIND, True, None, False, {})
        vhost.bind_queue(vhost.queues[BEHIND], LATE, "", {})
        self.node.run()
        self.begin()

    def opened(self, files: SimFileSystem) -> QuietBroker:
        return QuietBroker(files, self.definitions, limits=self.limits, journal_file_bytes=16_384)

    def begin(self) -> None:
        self.publisher = self.node.client()
        self.publisher.call("confirm.select")
        self.published: list[tuple[str, int]] = []
        self.deferred: list[int] = []  # to the topic, and no sync came behind them yet
        self.failing = ""

    @property
    def topic(self) -> Topic:
        return self.node.broker.vhosts["/"].topics.topics[TOPIC]

    def live(self) -> None:
        verbs: list[tuple[float, Callable[[], None]]] = [
            (20, self.publish),
            (5, self.defer),
            (2, self.make_channel),
            (5, self.pause),
            (10, self.pass_time),
            (3, self.make_fail),
            (1, self.crash),
        ]
        for _ in range(STEPS):
            if self.failing:
                self.node.files.fail(self.failing)
            self.rng.choices([verb for _, verb in verbs], [weight for weight, _ in verbs])[0]()
            if self.has_died():
                self.crash()
        if self.rng.random() < 0.5:
            self.crash()
        self.judge()

    def has_died(self) -> bool:
        return self.node.engine.disk_error() is not None or self.node.committer.error is not None

    def body(self) -> bytes:
        self.number += 1
        return b"%d:" % self.number + b"x" * self.rng.choice(SIZES)

    def publish(self) -> None:
        for _ in range(self.rng.randint(1, 40)):
            exchange = self.rng.choice([TOPIC, LATE])
            body = self.body()
            self.published.append((exchange, self.number))
            headers = {"x-delay": self.rng.choice(DELAYS_MS)} if exchange == LATE else {}
            name = LATE if exchange == LATE else exchange_name(TOPIC)
            self.publisher.publish(name, "", body, run=False, delivery_mode=2, headers=headers)
        self.pass_time()

    def defer(self) -> None:
        """As DPUB does."""
        topics = self.node.broker.vhosts["/"].topics
        for _ in range(self.rng.randint(1, 20)):
            content = content_frames(1, self.body(), {"delivery_mode": 2})
            address = short_string(PREFIX + TOPIC) + short_string("")
            until_ms = self.node.now_ms + self.rng.choice(DELAYS_MS)
            messages = [Message(content, address, PERSISTENT, 0)]
            topics.publish_deferred(self.topic, messages, 1, until_ms, self.node.now_ms)
            self.deferred.append(self.number)

    def pass_time(self) -> None:
        self.node.tick(self.rng.choice((1, 50, 300, 5_000)))
        self.hear()

    def hear(self) -> None:
        for name, fields in self.publisher.methods():
            assert name == "basic.ack"
            for exchange, number in self.published[: int(fields["delivery_tag"])]:
                self.confirmed[exchange].add(number)

    def make_channel(self) -> None:
        self.node.broker.vhosts["/"].topics.channel(self.topic, CHANNEL)

    def pause(self) -> None:
        paused = self.topic.paused
        self.node.broker.vhosts["/"].topics.pause(self.topic, not paused)

    def make_fail(self) -> None:
        """Once, or from now on."""
        verb = self.rng.choice(READS if self.rng.random() < 0.8 else WRITES)
        self.node.files.fail(verb, errno.EIO, self.rng.randint(0, 5))
        self.failing = verb if self.rng.random() < 0.5 else ""

    def settle(self) -> None:
        """A confirm behind them makes deferred messages certain."""
        self.node.files.heal()
        self.failing = ""
        self.published.append((TOPIC, self.number + 1))
        self.publisher.publish(exchange_name(TOPIC), "", self.body(), delivery_mode=2)
        self.hear()
        if self.number in self.confirmed[TOPIC]:
            self.confirmed[TOPIC].update(self.deferred)

    def crash(self) -> None:
        self.crashes += 1
        self.failures += self.node.files.has_failed
        if not self.has_died() and self.rng.random() < 0.5:
            self.settle()
        files, now_ms = self.node.files, self.node.now_ms
        if self.rng.random() < 0.6:
            files.power_cut(self.rng)
        else:
            files.kill()
        self.node.definitions.close()
        self.node = self.opened(files)
        self.node.now_ms = now_ms
        self.node.run()
        self.begin()

    def judge(self) -> None:
        """All is let out."""
        self.failures += self.node.files.has_failed
        self.settle()
        self.make_channel()
        if self.topic.paused:
            self.pause()
        for _ in range(80):
            self.node.tick(5_000)
        for source, queue in ((TOPIC, queue_name(TOPIC, CHANNEL)), (LATE, BEHIND)):
            client = self.node.client()
            client.consume(queue, no_ack=True)
            for _ in range(4):  # an error of long ago may be heard only now
                self.node.tick(5_000)
            came = [int(body.split(b":")[0]) for body in client.bodies()]
            lost = self.confirmed[source] - set(came)
            assert not lost, f"{len(lost)} messages of {source} are lost, as {min(lost)}"
            if self.crashes == 0:
                assert len(came) == len(set(came)), "none comes twice"
        self.node.check()


def test_what_waits_is_never_lost(tmp_path: Path) -> None:
    failures = crashes = 0
    for seed in range(FIRST, FIRST + LIVES):
        life = Life(seed, tmp_path)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        failures += life.failures
        crashes += life.crashes
        life.node.definitions.close()
    print(f"{LIVES} lives from seed {FIRST}: {crashes} crashes, {failures} with a failed disk")
    assert failures > 0 or LIVES < 8
