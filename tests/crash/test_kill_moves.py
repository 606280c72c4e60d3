"""Kill the broker while messages move: by transactions, as dead letters, out of full queues.

As test_kill.py, whose lives these are, but each queue is judged with those its messages go to
(``tests/helpers/families.py``): a confirmed message is in one of them, and where the head is
dropped so many newer ones are there.  ``PENSTOCK_KILLS`` and ``PENSTOCK_KILL_SEED`` as there.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.kill_clients import (
    Deliveries,
    Delivery,
    Line,
    Promises,
    Publishing,
    Worker,
    method_ids,
)
from tests.crash.test_kill import (
    KILLS,
    PASSING,
    RESTING,
    SEED,
    Lives,
    Shape,
    codec_ack,
    codec_consume,
    kill_again_and_again,
)
from tests.helpers import raw_codec as codec
from tests.helpers.families import Family, Found

SHORT = 50
TO_LATE = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"}
QUEUES: dict[str, dict[str, object]] = {
    "in": {},
    "out": {"x-queue-mode": "lazy"},
    "short": {"x-max-length": SHORT},
    "long": {"x-max-length": SHORT, **TO_LATE},
    "tried": TO_LATE,
    "brief": {"x-message-ttl": 200, **TO_LATE},
    "late": {},
    "barrier": {"x-max-length": 1},
}
DRAINED = ("out", "late")
WINDOW = 200
COMMIT_OK = codec.METHOD_IDS["tx.commit-ok"]

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(120 + 8 * KILLS)]


def publish(queue: str, body: bytes) -> bytes:
    method = codec.method_frame(1, "basic.publish", routing_key=queue)
    return method + codec.content_frames(1, body, {"delivery_mode": 2})


class Filler(Worker):
    """Publishes to the first queue of each family; numbers go on from life to life."""

    families: tuple[Family, ...] = ()
    first = 0

    def work(self, line: Line) -> None:
        line.call("confirm.select")
        self.ready.set()
        waiting: dict[int, tuple[Family, int]] = {}
        deliveries = Deliveries()
        published = 0
        while True:
            family = self.rng.choice(self.families)
            parts = []
            for _ in range(self.rng.randint(1, 2 * SHORT)):
                published += 1
                number = self.first + published
                waiting[published] = (family, number)
                body = family.body(number, self.rng.choice(self.sizes))
                parts.append(publish(family.queues[0], body))
            line.send(b"".join(parts))
            wait_s = 0.002
            while True:
                list(deliveries.take(line.frames(wait_s)))
                for tag in [one for one in waiting if one <= deliveries.confirmed_to]:
                    confirmed, number = waiting.pop(tag)
                    confirmed.lasting.add(number)
                if len(waiting) <= WINDOW:
                    break
                wait_s = 15.0


class Mover(Worker):
    """Takes from ``in``, publishes to ``out``, and commits both at once."""

    family: Family

    def work(self, line: Line) -> None:
        line.call("tx.select")
        line.call("basic.qos", prefetch_count=self.rng.choice((1, 30, 300)))
        line.send(codec_consume("in"))
        self.ready.set()
        deliveries = Deliveries()
        held: list[Delivery] = []
        committing: list[Delivery] = []
        while True:
            frames = line.frames()
            assert frames or not committing, "the commit is not answered"
            held += deliveries.take(frames)
            if COMMIT_OK in [method_ids(frame) for frame in frames]:
                self.family.moved.update(int(one.body.split(b":", 2)[1]) for one in committing)
                committing = []
            if held and not committing:
                committing, held = held, []
                tag = committing[-1].tag
                line.send(
                    b"".join(publish("out", one.body) for one in committing)
                    + codec.method_frame(1, "basic.ack", delivery_tag=tag, multiple=True)
                    + codec.method_frame(1, "tx.commit")
                )


class Rejecter(Worker):
    """All that it gets becomes a dead letter."""

    def work(self, line: Line) -> None:
        line.call("basic.qos", prefetch_count=self.rng.choice((1, 30, 300)))
        line.send(codec_consume("tried"))
        self.ready.set()
        deliveries = Deliveries()
        while True:
            taken = list(deliveries.take(line.frames()))
            if taken:
                tag = taken[-1].tag
                line.send(codec.method_frame(1, "basic.nack", delivery_tag=tag, multiple=True))


class MovingLives(Lives):
    def __init__(self, directory: Path, shape: Shape) -> None:
        super().__init__(directory, shape)
        self.moving = Family("tx", "in", "out")
        self.families = (
            self.moving,
            Family("short", "short", keeps=SHORT),
            Family("long", "long", "late"),
            Family("tried", "tried", "late"),
            Family("brief", "brief", "late"),
        )

    def declare(self) -> None:
        line = Line(self.broker.url)
        for name, arguments in QUEUES.items():
            line.call("queue.declare", queue=name, durable=True, arguments=arguments)
        line.close()

    def live(self, rng: random.Random, life: int) -> list[Worker]:
        url = self.broker.url
        filler = Filler(url, f"f{life}", f"{SEED}:{life}:f", {})
        filler.families = self.families
        filler.first = life * 1_000_000
        mover = Mover(url, f"m{life}", f"{SEED}:{life}:m", {})
        mover.family = self.moving
        workers = [filler, mover, Rejecter(url, f"r{life}", f"{SEED}:{life}:r", {})]
        for worker in workers:
            worker.sizes = tuple(size for size in self.shape.sizes if size <= 8000)
            worker.start()
        for worker in workers:
            assert worker.ready.wait(20)
        return workers

    def look_at_declarations(self) -> None:
        names = {entry["name"] for entry in self.api("queues")}
        assert names == set(QUEUES)

    def look(self, rng: random.Random, ending: str) -> None:
        line = Line(self.broker.url)
        self.come_to_rest(line)
        found: Found = {}
        acks = b""
        for queue in QUEUES:
            deliveries = self.read(line, queue)
            found[queue] = [one.body for one in deliveries]
            if queue in DRAINED:
                acks += b"".join(codec_ack(one.tag) for one in deliveries)
        counts = Counter(self.counts)
        for family in self.families:
            family.judge(found, counts)
            family.looked_at(found, DRAINED)
        self.counts = counts
        publishing = Publishing(line, "b", {"barrier": Promises()})
        line.send(acks)
        publishing.publish(("", "barrier"), ("barrier",), 10)
        reader = Deliveries()
        while publishing.unconfirmed():
            list(reader.take(line.frames()))
            publishing.confirmed(reader.confirmed_to)
        line.close()

    def come_to_rest(self, line: Line) -> None:
        """What is too old or too much has gone where it is to go."""
        end_s = time.monotonic() + 30
        before: list[object] = []
        while True:
            now = [
                line.call("queue.declare", queue=queue, passive=True)["messages"]
                for queue in QUEUES
            ]
            there = dict(zip(QUEUES, now, strict=True))
            if now == before and there["brief"] == 0:
                return
            assert time.monotonic() < end_s, there
            before = now
            time.sleep(0.05)


@pytest.mark.parametrize("shape", [PASSING, RESTING], ids=lambda shape: shape.name)
def test_kill_while_messages_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: Shape
) -> None:
    lives = MovingLives(tmp_path / "broker", shape)
    kill_again_and_again(lives, capsys)
    for what in ("tx found in out", "long found in late", "tried found in late", "short dropped"):
        assert lives.counts[what] > 0, what
