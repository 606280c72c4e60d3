"""Random lives of a reader of ranges on a disk that fails: each message is read once, in order.

A life is a broker whose queue rests on disk, a publisher with confirms, and a reader: a Spark query
in small.  Its checkpoint is a position; below it, it has noted every message.  It plans a range,
reads it, notes it, and acknowledges it, at once, later, or some chosen ones; it may die between any
two of these steps.  Any verb of the disk may fail, once or from then on, reads most of all; a
queue that is stopped by that refuses the reader, and the next process goes on.

Statements of SQLite fail too, reads and writes: a token or a start position that was answered is
there after the crash, for the reader that comes with it.

What is not read is never taken for something that is not there: no range skips a message, no search
by time goes past one, and what was answered as acknowledged does not come back.

``PENSTOCK_RANGE_LIVES`` says how many lives, ``PENSTOCK_RANGE_LIFE`` where to begin.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.storage.engine.engine import EngineLimits
from penstock_ranges import ranges, subscriptions
from tests.helpers.connection_pair import EVERYTHING, ClientEnd, QuietBroker
from tests.helpers.failing_rows import FailingRows
from tests.helpers.range_blocks import Rows
from tests.helpers.range_pair import Answered, StagingEnd, bodies_in, body_of, leases_of
from tests.helpers.sim_files import SimFileSystem

LIVES = int(os.environ.get("PENSTOCK_RANGE_LIVES", "12"))
FIRST = int(os.environ.get("PENSTOCK_RANGE_LIFE") or random.SystemRandom().randrange(10**9))
STEPS = 150
QUEUE = "q"
SIZES = (5, 300, 3000)
WRITES = ("pwrite", "sync", "rename", "remove", "sync_dir", "open_write")
READS = ("pread", "read")


class Died(Exception):
    """The disk failed, and so does the process."""


class Reader:
    """``at``: everything below is in ``noted``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.at = 0
        self.noted: list[int] = []
        self.kept: dict[int, int] = {}  # of noted ones that are not acknowledged: seq_id, number
        self.times: dict[int, int] = {}  # by seq_id, of those
        self.going: set[int] = set()  # to be acknowledged later
        self.acknowledged: set[int] = set()  # answered, and not yet known to be on disk
        self.token = 0  # of a lease that was opened and not closed; 0 = unknown
        self.started: tuple[str, int] | None = None  # what START was asked and answered
        self.end: StagingEnd | None = None

    def die(self) -> None:
        if self.end is not None:
            with contextlib.suppress(OSError):  # of a process that has died
                self.end.drop()
        self.end = None

    def ask(self, request: bytes, kind: int) -> bytes:
        assert self.end is not None
        try:
            self.end.send(request)
            for _ in range(2000):  # a crash may leave millions of numbers without messages
                if not self.end.silent():
                    break
                self.end.node.tick(1)
                if has_died(self.end.node):
                    raise Died
        except (OSError, sqlite3.OperationalError) as error:
            raise Died from error  # not the process, if a row was read: the connection
        return self.end.expect(kind)

    def open(self, life: Life) -> None:
        self.end = StagingEnd(life.node, login=False, leases=life.leases)
        token = self.token if self.rng.random() < 0.5 else 0
        self.token = 0
        request = ranges.OpenRequest("guest", "guest", "/", QUEUE, ranges.READ, token, force=True)
        opened = ranges.decode_opened(self.ask(ranges.encode_open(request), ranges.OPENED))
        assert token in (0, opened.token), "it lasted over the crash"
        self.token = opened.token
        if self.started is not None:
            self.start()
        self.acknowledge()

    def start(self) -> None:
        """The query asks for its start again before anything behind it is acknowledged."""
        asked, at = self.started or (f"latest {self.rng.random()}", self.at)
        self.started = None
        answer = self.ask(subscriptions.encode_start(asked, self.at), subscriptions.STARTED)
        assert subscriptions.decode_started(answer) == at
        self.started = asked, at

    def head(self) -> ranges.Head:
        return ranges.decode_head(self.ask(ranges.encode_wait(self.at, 0), ranges.HEAD))

    def read(self) -> None:
        end = self.head().next_seq
        if end <= self.at:
            return
        most = self.rng.randint(1, 80)
        plan = ranges.encode_plan(self.at, end, most, self.rng.choice([500, 10**6]))
        upto, count, _, _ = ranges.decode_planned(self.ask(plan, ranges.PLANNED))
        rows: list[tuple[int, int, int]] = []
        at = self.at
        while at < upto:
            size = self.rng.choice([100, 10**6])
            block = Rows(self.ask(ranges.encode_range(at, upto, size, True), ranges.BLOCK))
            assert block.next_start > at
            at = block.next_start
            numbers = [int(body_of(content).split(b":")[0]) for content in block.contents]
            rows += zip(block.seq_ids, numbers, block.enqueued_at_ms, strict=True)
        assert len(rows) == count, "as many as were planned"
        if self.rng.random() < 0.1:
            self.die()  # before it noted them
            return
        self.noted += [number for _, number, _ in rows]
        self.kept |= {seq_id: number for seq_id, number, _ in rows}
        self.times |= {seq_id: at_ms for seq_id, _, at_ms in rows}
        self.at = max(self.at, upto)

    def acknowledge(self, *, later: bool = False) -> None:
        """All below ``at``."""
        self.started = None
        self.ask(subscriptions.encode_start("", self.at), subscriptions.STARTED)  # it is forgotten
        self.ask(ranges.encode_ack(self.at, later=later), ranges.ACKED)
        self.going |= set(self.kept.values())
        self.kept = {}
        if not later:
            self.gone()

    def gone(self) -> None:
        self.acknowledged |= self.going
        self.going = set()

    def acknowledge_some(self) -> None:
        chosen = [seq_id for seq_id in sorted(self.kept) if self.rng.random() < 0.3]
        if chosen:
            answer = self.ask(ranges.encode_ack_some(chosen), ranges.ACKED_SOME)
            assert ranges.decode_acked_some(answer) <= len(chosen)
            self.acknowledged |= {self.kept.pop(seq_id) for seq_id in chosen}

    def search(self) -> None:
        """Between the first message that may still be there, and where it is."""
        if not self.kept:
            return
        wanted_ms = self.rng.choice([self.times[seq_id] for seq_id in self.kept])
        low, high = min(self.kept), self.at
        while low < high:
            request = subscriptions.encode_offset_at(wanted_ms, low, high)
            low, high = subscriptions.decode_offset(self.ask(request, subscriptions.OFFSET))
        for seq_id in self.kept:
            assert (self.times[seq_id] >= wanted_ms) == (seq_id >= low)

    def close(self) -> None:
        self.acknowledge(later=self.rng.random() < 0.5)
        self.token = 0
        self.ask(ranges.encode_close(), ranges.CLOSED)
        self.gone()
        self.end = None


def has_died(node: QuietBroker) -> bool:
    return node.engine.disk_error() is not None or node.committer.error is not None


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
        self.reader = Reader(self.rng)
        self.number = 0
        self.confirmed: set[int] = set()
        self.failing = ""
        self.refused = self.crashes = 0
        self.node = self.opened(SimFileSystem())
        arguments = self.rng.choice([{}, {"x-queue-mode": "lazy"}])
        self.node.client().call("queue.declare", queue=QUEUE, durable=True, arguments=arguments)
        self.begin()

    def opened(self, files: SimFileSystem) -> QuietBroker:
        return QuietBroker(
            files,
            self.definitions,
            limits=self.limits,
            journal_file_bytes=16_384,
        )

    def begin(self) -> None:
        self.leases = leases_of(self.node)
        self.leases.adopt(self.node.broker)
        self.rows = FailingRows(self.node.definitions._db)
        self.node.definitions._db = self.node.definitions._transaction._db = self.rows  # type: ignore[assignment]
        self.publisher = self.node.client()
        self.publisher.call("confirm.select")
        self.published: list[int] = []
        self.failing = ""

    def live(self) -> None:
        verbs: list[tuple[float, Callable[[], None]]] = [
            (20, self.publish),
            (40, self.read_on),
            (3, self.reader.die),
            (3, lambda: self.node.tick(self.rng.choice((1, 300)))),
            (2, self.make_fail),
            (1, self.crash),
        ]
        for _ in range(STEPS):
            if self.failing:
                self.node.files.fail(self.failing)
            try:
                self.rng.choices([verb for _, verb in verbs], [weight for weight, _ in verbs])[0]()
            except OSError:
                assert self.rows.failed
            if self.has_died():
                self.crash()
        self.crash()
        self.judge()

    def has_died(self) -> bool:
        """A row that could be read is not the end of a process."""
        return has_died(self.node) or self.node.definitions._transaction._error is not None

    def publish(self) -> None:
        size = self.rng.choice(SIZES)
        for _ in range(self.rng.randint(1, 60)):
            self.number += 1
            self.published.append(self.number)
            body = b"%d:" % self.number + b"x" * size
            self.publisher.publish("", QUEUE, body, run=False, delivery_mode=2)
        self.node.tick(self.rng.choice((1, 50)))
        self.hear(self.publisher)

    def hear(self, client: ClientEnd) -> None:
        for name, fields in client.methods():
            assert name == "basic.ack"
            self.confirmed |= set(self.published[: int(fields["delivery_tag"])])

    def read_on(self) -> None:
        reader = self.reader
        try:
            if reader.end is None:
                reader.open(self)
                return
            verbs = [
                (10, reader.read),
                (2, reader.acknowledge),
                (2, lambda: reader.acknowledge(later=True)),
                (2, reader.acknowledge_some),
                (2, reader.search),
                (2, reader.start),
                (1, reader.close),
            ]
            self.rng.choices([verb for _, verb in verbs], [weight for weight, _ in verbs])[0]()
        except Died:
            reader.die()
        except Answered as error:
            of_row = self.rows.failed and "is read from is unknown" in error.text
            if not of_row and not (self.node.files.has_failed and "is stopped" in error.text):
                raise
            self.refused += 1
            reader.token = 0  # a session that is refused gives its lease back
            reader.die()

    def make_fail(self) -> None:
        """Once, or from now on."""
        if self.rng.random() < 0.2:
            self.rows.fail(self.rng.randint(0, 5), once=self.rng.random() < 0.5)
            return
        verb = self.rng.choice(READS if self.rng.random() < 0.8 else WRITES)
        self.node.files.fail(verb, errno.EIO, self.rng.randint(0, 5))
        self.failing = verb if self.rng.random() < 0.5 else ""

    def settle(self) -> None:
        """A confirm behind them makes acknowledgements certain."""
        self.number += 1
        self.published.append(self.number)
        self.publisher.publish("", QUEUE, b"%d:" % self.number, delivery_mode=2)
        self.hear(self.publisher)
        if self.number not in self.confirmed:
            self.reader.acknowledged = set()

    def crash(self) -> None:
        self.crashes += 1
        self.rows.after = -1
        if not self.has_died():
            self.node.files.heal()
            self.settle()
        else:
            self.reader.acknowledged = set()
        self.reader.die()
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
        left = {int(body.split(b":")[0]) for body in bodies_in(self.node, QUEUE)}
        assert not left & self.reader.acknowledged, "acknowledged ones came back"
        self.reader.acknowledged = set()

    def judge(self) -> None:
        """The reader reads on to the end: each once, in order, none left out."""
        reader = self.reader
        reader.open(self)
        while reader.end is None or reader.head().ready > 0:
            if reader.end is None:
                reader.open(self)
            reader.read()
            if reader.end is not None:
                reader.acknowledge()
        assert reader.noted == sorted(set(reader.noted))
        lost = self.confirmed - set(reader.noted)
        assert not lost, f"{len(lost)} messages were skipped, as {min(lost)}"
        reader.close()
        client = self.node.client()
        client.consume(QUEUE)
        assert client.bodies() == []
        self.node.check()


def test_no_message_is_skipped_or_comes_twice(tmp_path: Path) -> None:
    refused = crashes = 0
    for seed in range(FIRST, FIRST + LIVES):
        life = Life(seed, tmp_path)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        refused += life.refused
        crashes += life.crashes
        life.node.definitions.close()
    print(f"{LIVES} lives from seed {FIRST}: {crashes} crashes, refused {refused} times")
    assert refused > 0 or LIVES < 12
