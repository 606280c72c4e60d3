"""Random lives of a whole broker whose messages move between queues, judged together.

Each way is a family of queues (``tests/helpers/families.py``): a transaction takes messages from
one queue to another, a full queue drops its head or buries it, a consumer rejects, times to live
end, delays end, a quorum queue counts what comes back, delays it and buries it at its limit, a
queue knows the keys of its messages.  The committer and the disk's threads do what they are told
when chance says so; groups of the journal are written one by one.  Any verb of the disk may fail,
once or for ever.

A life is a row of processes.  Each ends by a kill or a power cut, and before it goes on, more
images of the same disk are made, with other parts of what was not synced; the judge starts a
broker on each.  All chance comes from the seed.
"""

from __future__ import annotations

import copy
import errno
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from penstock.broker.message_moves import MOVE, MessageMove
from penstock.broker.rules.rights import Rights
from penstock.core.errors import NotFound
from penstock.storage.engine.engine import EngineLimits
from tests.helpers.connection_pair import EVERYTHING, ClientEnd, QuietBroker
from tests.helpers.families import Family, Found
from tests.helpers.sim_files import SimFileSystem

SEGMENT_ENTRIES = 32
SHORT = 40
LIVES = 4
STEPS = 60
SIZES = (5, 100, 3000)
BRIEF_MS = 2000
LATER_MS = 3000
RETRY_MS = 100
DISK_VERBS = ("pwrite", "sync", "rename", "remove", "sync_dir", "open_write", "pread", "read")
TO_LATE = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"}
RETRIED = {
    "x-queue-type": "quorum",
    "x-delivery-limit": 1,
    "x-delayed-retry-type": "all",
    "x-delayed-retry-min": RETRY_MS,
}
QUEUES: dict[str, dict[str, object]] = {
    "in": {},
    "out": {"x-queue-mode": "lazy"},
    "short": {"x-max-length": SHORT},
    "long": {"x-max-length": SHORT, **TO_LATE},
    "tried": TO_LATE,
    "brief": {"x-message-ttl": BRIEF_MS, **TO_LATE},
    "due": {},
    "chosen": {},
    "counted": RETRIED | TO_LATE,
    "once": {"x-message-deduplication": True},
    "late": {},
    "barrier": {"x-max-length": 1},
}
DRAINED = ("out", "late", "due")
"""What arrived there is acknowledged after a start, so that lives stay short."""


class Died(Exception):
    """The disk failed, and so does the process."""


class BrokerLife:
    """``live`` it."""

    def __init__(self, seed: int, directory: Path, images: int, *, trouble: bool = True) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.images = images
        self.trouble = trouble
        self.limits = EngineLimits(
            self.rng.choice([200, 4096]),
            self.rng.choice([20_000, 10**7]),
            self.rng.choice([20, 10**6]),
            EVERYTHING,
            self.rng.choice([10_000, 100_000, EVERYTHING]),
        )
        self.number = 0
        self.counts: Counter[str] = Counter()
        self.families = {
            family.name: family
            for family in (
                Family("tx", "in", "out"),
                Family("short", "short", keeps=SHORT),
                Family("long", "long", "late"),
                Family("tried", "tried", "late"),
                Family("brief", "brief", "late"),
                Family("due", "due"),
                Family("chosen", "chosen", "late"),
                Family("counted", "counted", "late"),
                Family("once", "once"),
            )
        }
        self.node = self.opened(SimFileSystem(), self.directory)
        self.declare()

    # -- a process -------------------------------------------------------------------------

    def opened(self, files: SimFileSystem, directory: Path) -> QuietBroker:
        return QuietBroker(
            files,
            str(directory / "definitions.db"),
            limits=self.limits,
            journal_file_bytes=16_384,
            segment_entries=SEGMENT_ENTRIES,
        )

    def declare(self) -> None:
        client = self.node.client()
        for name, arguments in QUEUES.items():
            client.call("queue.declare", queue=name, durable=True, arguments=arguments)
        client.call(
            "exchange.declare",
            exchange="later",
            type="x-delayed-message",
            durable=True,
            arguments={"x-delayed-type": "fanout"},
        )
        client.call("queue.bind", queue="due", exchange="later")
        client.drop()

    def begin(self) -> None:
        """The clients of a process."""
        self.publisher = self.node.client()
        self.publisher.call("confirm.select")
        self.unconfirmed: dict[int, tuple[Family, int]] = {}
        self.published = 0
        self.mover = self.node.client()
        self.mover.call("tx.select")
        self.taken: dict[int, bytes] = {}
        self.commits: list[list[int]] = []
        self.mover.consume("in")
        self.rejecter = self.node.client()
        self.rejecter.call("basic.qos", prefetch_count=20)
        self.rejecter.consume("tried")
        self.rejectable = 0
        self.returner = self.node.client()
        self.returner.call("basic.qos", prefetch_count=20)
        self.returner.consume("counted")
        self.returnable = 0
        self.failing = ""

    def live(self) -> None:
        for _ in range(LIVES):
            self.begin()
            try:
                for _ in range(self.rng.randint(1, STEPS)):
                    self.step()
                    self.hear()
                    self.look_at_disk()
            except Died:
                self.counts["failures of the disk"] += 1
            self.crash()
        self.node.definitions.close()

    def step(self) -> None:
        if self.failing:
            self.node.files.fail(self.failing)
        verbs: list[tuple[float, Callable[[], None]]] = [
            (10, self.publish),
            (6, self.transact),
            (4, self.reject),
            (6, self.give_back),
            (3, self.move_chosen),
            (3, self.pass_time),
            (4, self.hold),
            (4, self.write_groups),
            (3, self.run_jobs),
            (0.5 if self.trouble else 0, self.make_fail),
        ]
        weights = [weight for weight, _ in verbs]
        self.rng.choices([verb for _, verb in verbs], weights)[0]()

    # -- verbs -----------------------------------------------------------------------------

    def publish(self) -> None:
        family = self.rng.choice(list(self.families.values()))
        size = self.rng.choice(SIZES)
        for _ in range(self.rng.randint(1, 2 * SHORT)):
            self.number += 1
            body = family.body(self.number, size)
            delayed = family.name == "due"
            headers: dict[str, object] = {"x-deduplication-header": str(self.number)}
            if delayed:
                headers = {"x-delay": self.rng.choice([0, LATER_MS])}
            self.published += 1
            self.unconfirmed[self.published] = (family, self.number)
            exchange, key = ("later", "") if delayed else ("", family.queues[0])
            self.publisher.publish(exchange, key, body, run=False, delivery_mode=2, headers=headers)
        self.node.run()

    def transact(self) -> None:
        tags = sorted(self.taken)[: self.rng.randint(1, 2 * SHORT)]
        numbers = []
        for tag in tags:
            body = self.taken.pop(tag)
            numbers.append(int(body.split(b":", 2)[1]))
            self.mover.publish("", "out", body, run=False, delivery_mode=2)
        if tags:
            self.mover.method(1, "basic.ack", delivery_tag=tags[-1], multiple=True)
            self.commits.append(numbers)
            self.mover.method(1, "tx.commit")

    def reject(self) -> None:
        if self.rejectable:
            self.rejecter.method(
                1, "basic.nack", delivery_tag=self.rejectable, multiple=True, requeue=False
            )
            self.rejectable = 0

    def give_back(self) -> None:
        """Those that fail wait longer, or have failed too often."""
        if self.returnable:
            self.returner.method(
                1, "basic.nack", delivery_tag=self.returnable, multiple=True, requeue=True
            )
            self.returnable = 0

    def move_chosen(self) -> None:
        """As an operator does; slices that read from the disk wait for it."""
        broker = self.node.broker
        vhost = broker.vhosts["/"]
        queue = vhost.queue("chosen")
        seq_id = int(queue.backing.parts()[0].records.next_seq_id)
        places = list(range(max(0, seq_id - self.rng.randint(1, 2 * SHORT)), seq_id))
        rights = Rights(broker.users.users["guest"], "/")
        errand = MessageMove(broker, rights, vhost, queue, 0, MOVE, ("", "late"))
        try:
            while places:
                places = errand.step(places, self.node.now_ms)
        except NotFound as error:
            if not self.trouble:
                raise
            raise Died(str(error)) from None  # a read failed and the queue is stopped
        self.node.run()

    def pass_time(self) -> None:
        self.node.tick(self.rng.choice([10, 300, 2500]))

    def hold(self) -> None:
        self.node.committer.hold = self.rng.random() < 0.7
        self.node.worker.hold = self.rng.random() < 0.3

    def write_groups(self) -> None:
        """Some of those that wait."""
        committer = self.node.committer
        count = self.rng.randint(0, len(committer.held))
        waiting = committer.held[count:]
        committer.held = committer.held[:count]
        committer.finish()
        committer.held = waiting
        self.node.run()

    def run_jobs(self) -> None:
        self.node.worker.finish_all()
        self.node.run()

    def make_fail(self) -> None:
        """Once, or from now on."""
        verb = self.rng.choice(DISK_VERBS)
        self.node.files.fail(verb, errno.EIO, self.rng.randint(0, 5))
        self.failing = verb if self.rng.random() < 0.5 else ""

    # -- what the clients hear -------------------------------------------------------------

    def hear(self) -> None:
        for name, fields in self.publisher.methods():
            if name != "basic.ack":
                raise Died(name)  # a queue is stopped
            up_to = int(fields["delivery_tag"])
            tags = [tag for tag in self.unconfirmed if tag <= up_to and fields["multiple"]]
            for tag in tags or [up_to]:
                family, number = self.unconfirmed.pop(tag)
                family.lasting.add(number)
        for name, fields in self.mover.methods():
            if name == "tx.commit-ok":
                self.families["tx"].moved.update(self.commits.pop(0))
            elif name == "basic.deliver":
                self.taken[int(fields["delivery_tag"])] = fields["body"]
            else:
                raise Died(name)
        for name, fields in self.rejecter.methods():
            if name != "basic.deliver":
                raise Died(name)
            self.rejectable = int(fields["delivery_tag"])
        for name, fields in self.returner.methods():
            if name != "basic.deliver":
                raise Died(name)
            self.returnable = int(fields["delivery_tag"])

    def look_at_disk(self) -> None:
        if self.node.engine.disk_error() or self.node.committer.error:
            raise Died

    # -- the end of a process --------------------------------------------------------------

    def crash(self) -> None:
        files = self.node.files
        self.node.definitions.close()
        now_ms = self.node.now_ms
        for number in range(self.images):
            image = copy.deepcopy(files)
            place = self.directory / "image"
            place.mkdir()
            for file in self.directory.glob("definitions.db*"):
                shutil.copy(file, place)
            self.cut(image, power=number > 0)
            node = self.started(image, place, now_ms)
            found = self.read(node.client())
            for family in self.families.values():
                family.judge(found, self.counts)
            node.definitions.close()
            shutil.rmtree(place)
            self.counts["images"] += 1
        self.cut(files, power=self.rng.random() < 0.6)
        self.node = self.started(files, self.directory, now_ms)
        self.look()

    def cut(self, files: SimFileSystem, *, power: bool) -> None:
        if power:
            files.power_cut(self.rng)
        else:
            files.kill()
        self.counts["power cuts" if power else "kills"] += 1

    def started(self, files: SimFileSystem, directory: Path, now_ms: int) -> QuietBroker:
        node = self.opened(files, directory)
        node.now_ms = now_ms
        node.tick(LATER_MS + BRIEF_MS)
        node.tick(1000)
        node.check()
        return node

    def read(self, client: ClientEnd) -> Found:
        """All messages of all queues, not acknowledged."""
        found: Found = {}
        for queue in QUEUES:
            client.consume(queue, queue)
            found[queue] = client.bodies()
            count = int(client.node.broker.vhosts["/"].queues[queue].backing.ready_count())
            assert count == 0, f"{count} messages of {queue} are not delivered"
        return found

    def look(self) -> None:
        """Judge, and settle what has arrived; a confirm behind that makes it certain."""
        client = self.node.client()
        client.call("confirm.select")
        found = self.read(client)
        last_tag = 0
        for queue, bodies in found.items():
            for tag in range(last_tag + 1, last_tag + len(bodies) + 1):
                if queue in DRAINED:
                    client.method(1, "basic.ack", delivery_tag=tag)
            last_tag += len(bodies)
        for family in self.families.values():
            family.judge(found, self.counts)
            family.looked_at(found, DRAINED)
        client.publish("", "barrier", delivery_mode=2)
        assert "basic.ack" in [name for name, _ in client.methods()]
        client.drop()
