"""What is due happens without any traffic: times to live, delays, limits and unused queues.

A life is a broker under a fake clock whose queues rest on disk or are paged, with nothing that
consumes.  Messages expire by their queue's time or their own, are buried in a queue where they
expire again, or are delayed; a policy makes a queue shorter, a queue ends because it is unused; a
consumer takes some and leaves.  Between two publishes only time passes, and now and then the
process dies.  A message may be in a queue only as long as its time has not passed there, and no
shorter.

``PENSTOCK_DUE_LIVES`` says how many lives, ``PENSTOCK_DUE_LIFE`` where to begin.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.storage.engine.engine import EngineLimits
from tests.helpers.connection_pair import EVERYTHING, QuietBroker
from tests.helpers.range_pair import bodies_in
from tests.helpers.sim_files import SimFileSystem

LIVES = int(os.environ.get("PENSTOCK_DUE_LIVES", "12"))
FIRST = int(os.environ.get("PENSTOCK_DUE_LIFE") or random.SystemRandom().randrange(10**9))
STEPS = 25
TTL_MS = 3000
UNUSED_MS = 20_000
NEVER_MS = 1 << 60
SHORT = 10
GRAIN_MS = 100
"""A tick and what follows from it."""
LAZY = {"x-queue-mode": "lazy"}
TTL = {"x-message-ttl": TTL_MS}
TO_LATE = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"}
TO_END = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}
QUEUES: dict[str, dict[str, object]] = {
    "plain": {**TTL, **TO_LATE},
    "lazy": {**TTL, **TO_LATE, **LAZY},
    "priorities": {**TTL, **TO_LATE, "x-max-priority": 3},
    "own": {**TO_END, **LAZY},  # each message has its own time
    "late": {**TTL, **TO_END, **LAZY},
    "due": {**TTL, **LAZY},  # behind the exchange of delayed messages
    "short": {**TO_END, **LAZY},
    "unused": {**LAZY, "x-expires": UNUSED_MS},
    "end": LAZY,
}
TIMED = ("plain", "lazy", "priorities", "late", "due")


class Life:
    """``seen``: by queue and body, when it was first and last possible that it came."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.definitions = str(directory / f"{seed}.db")
        self.limits = EngineLimits(
            self.rng.choice([200, 4096]),
            self.rng.choice([20_000, 10**7]),
            self.rng.choice([20, 10**6]),
            EVERYTHING,
            self.rng.choice([10_000, 100_000, EVERYTHING]),
        )
        self.number = 0
        self.waiting: dict[bytes, int] = {}  # delayed until
        self.seen: dict[tuple[str, bytes], tuple[int, int]] = {}
        self.due: dict[tuple[str, bytes], int] = {}  # of those with a time of their own
        self.node = self.opened(SimFileSystem())
        client = self.node.client()
        for name, arguments in QUEUES.items():
            client.call("queue.declare", queue=name, durable=True, arguments=arguments)
        self.used_ms = self.node.now_ms
        delays = {"x-delayed-type": "fanout"}
        client.call(
            "exchange.declare",
            exchange="later",
            type="x-delayed-message",
            durable=True,
            arguments=delays,
        )
        client.call("queue.bind", queue="due", exchange="later")
        client.drop()
        self.looked_ms = self.node.now_ms

    def opened(self, files: SimFileSystem) -> QuietBroker:
        return QuietBroker(files, self.definitions, limits=self.limits, journal_file_bytes=16_384)

    def live(self) -> None:
        verbs = [self.publish, self.take_and_leave, self.make_short, self.restart, self.let_pass]
        for _ in range(STEPS):
            self.rng.choices(verbs, [6, 2, 1, 1, 10])[0]()
            self.look()
        self.node.check()

    def publish(self) -> None:
        client = self.node.client()
        queue = self.rng.choice(["plain", "lazy", "priorities", "own", "due", "short", "unused"])
        for _ in range(self.rng.randint(1, 60)):
            self.number += 1
            body = b"%d:" % self.number + b"x" * self.rng.choice([5, 300, 3000])
            properties = {"priority": self.number % 4} if queue == "priorities" else {}
            if queue == "own" and self.rng.random() < 0.9:
                own_ms = self.rng.choice([500, 2000, 9000])
                properties["expiration"] = str(own_ms)
                self.due[("own", body)] = self.node.now_ms + own_ms
            if queue == "due":
                delay_ms = self.rng.choice([0, 1000, 5000])
                self.waiting[body] = self.node.now_ms + delay_ms
                properties["headers"] = {"x-delay": delay_ms}
            exchange, key = ("later", "") if queue == "due" else ("", queue)
            client.publish(exchange, key, body, run=False, delivery_mode=2, **properties)
        self.node.run()
        client.drop()

    def take_and_leave(self) -> None:
        queue = self.rng.choice(TIMED)
        client = self.node.client()
        client.call("basic.qos", prefetch_count=20)
        client.consume(queue)
        client.drop()

    def make_short(self) -> None:
        longest = self.rng.choice([SHORT, 1000])
        policy = Policy("short", "^short$", "queues", 0, {"max-length": longest})
        Administration(self.node.broker, 64).put_policy("/", policy)
        self.settle()

    def settle(self) -> None:
        for _ in range(4):
            self.node.tick(GRAIN_MS // 4)

    def restart(self) -> None:
        client = self.node.client()
        client.call("confirm.select")
        client.publish("", "end", b"0:", delivery_mode=2)  # all before is on disk with it
        files, now_ms = self.node.files, self.node.now_ms
        files.kill()
        self.node.definitions.close()
        self.node = self.opened(files)
        self.node.now_ms = now_ms
        self.node.run()
        if "unused" in self.node.broker.vhosts["/"].queues:
            self.used_ms = now_ms  # a start is a use

    def let_pass(self) -> None:
        self.node.worker.hold = self.rng.random() < 0.2
        self.node.tick(self.rng.choice([100, 1000, 4000, 15_000]))
        self.node.worker.hold = False
        self.settle()

    def look(self) -> None:
        """Without moving anything."""
        node = self.node
        now_ms = node.now_ms
        queues = node.broker.vhosts["/"].queues
        if "unused" in queues:
            assert now_ms < self.used_ms + UNUSED_MS + GRAIN_MS, "the unused queue is there"
        else:
            assert now_ms >= self.used_ms + UNUSED_MS, "the unused queue is gone"
        there: set[tuple[str, bytes]] = set()
        for name in QUEUES:
            if name in queues:
                there |= {(name, body) for body in bodies_in(node, name)}
        for name, body in there:
            first_ms, last_ms = self.seen.setdefault((name, body), (self.looked_ms, now_ms))
            if name in TIMED:
                assert now_ms < last_ms + TTL_MS + GRAIN_MS, f"{name}: {body[:9]!r} is there"
        for name, body in list(self.seen):
            if (name, body) not in there:
                first_ms, _ = self.seen.pop((name, body))
                if name in TIMED:
                    assert now_ms >= first_ms + TTL_MS, f"{name}: {body[:9]!r} is gone"
        for body, due_ms in list(self.waiting.items()):
            if due_ms + GRAIN_MS <= now_ms:
                del self.waiting[body]
                if now_ms < due_ms + TTL_MS:
                    assert ("due", body) in there, f"{body[:9]!r} is not there"
        own = [body for name, body in there if name == "own"]
        if own:
            head = min(own, key=lambda body: int(body.split(b":")[0]))
            assert now_ms < self.due.get(("own", head), NEVER_MS) + GRAIN_MS, "the head is there"
        policy = node.broker.vhosts["/"].policies.policies.get("short")
        if policy is not None and "short" in queues:
            count = sum(name == "short" for name, _ in there)
            assert count <= int(str(policy.definition["max-length"])), "too many for the limit"
        self.looked_ms = now_ms


def test_what_is_due_happens_without_traffic(tmp_path: Path) -> None:
    for seed in range(FIRST, FIRST + LIVES):
        life = Life(seed, tmp_path)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        life.node.definitions.close()
