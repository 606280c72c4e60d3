"""Random lives of queues on the engine: everything at once, with crashes, judged by promises.

A *life* is some hundred steps of two queues of one engine on a simulated disk: publishes to one
of them or to both (small and large, persistent and not), fetches, acknowledgements, requeues to
the place or to the tail, delays, purges, commits, slices of the engine's work, disk jobs one at a
time, changes of mode, clean stops, kills and power cuts.  In a *slow* life many messages are
handed out and few acknowledged, here and there, so that segments are rewritten again and again.
A life may have a stream beside its queues: appends, retention, readers from every kind of place.

Trouble is part of it.  The disk is full for a while: what waits for space is tried again, and
everything goes on when there is some.  A verb of the disk fails once: as soon as the engine or the
committer says so the process dies, perhaps the machine too.  Starts meet both as well.

queue_judge.py and stream_judge.py say what must be found then.  All chance comes from the seed.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable

from penstock.broker.topology.routes import share_contents
from penstock.core.message import Message
from tests.backing.engine_tools import PatientEngine, limits, message
from tests.helpers.sim_files import UNLIMITED, SimFileSystem
from tests.simulation.queue_judge import JudgedQueue
from tests.simulation.stream_judge import JudgedStream

ENTRIES = {7: 64, 8: 24}
"""The queues, and how many places their segments have."""
STREAM = 9
STEPS = 300
SLOW_STEPS = 600
SIZES = (5, 50, 150, 400)
EMBED_BELOW_BYTES = 200
WRITING_VERBS = ("pwrite", "sync", "rename", "remove", "sync_dir", "open_write", "allocate")
OPENING_VERBS = (*WRITING_VERBS, "read", "read_back", "listdir", "makedirs")

Verbs = list[tuple[float, Callable[[], object]]]


class Life:
    """Two queues, perhaps a stream, one disk, one judge each; ``live`` it."""

    def __init__(self, seed: int, *, trouble: bool = True, stream: bool = False) -> None:
        self.rng = random.Random(seed)
        self.trouble = trouble
        self.files = SimFileSystem()
        self.slow = self.rng.random() < 0.4
        self.limits = {
            "embed": EMBED_BELOW_BYTES,
            "paging": self.rng.choice([3000, 20_000, 10**9]),
            "journal": self.rng.choice([8000, 10**6]),
            "entries": self.rng.choice([20, 10**6]),
        }
        # Twice as much garbage is nothing to rewrite segments for.
        self.store_file_bytes = self.rng.choice([500, 3000])
        if self.slow:
            self.limits["journal"] = 8000
            self.store_file_bytes = 500
        self.now_ms = 1000
        self.full_steps = 0  # how long the disk will be full yet
        self.counts: Counter[str] = Counter()
        self.contents: dict[int, tuple[bytes, bool]] = {}
        self.queues = {number: JudgedQueue(self.rng, self.contents) for number in ENTRIES}
        self.streams = {STREAM: JudgedStream(self.rng)} if stream else {}
        self.cache_bytes = self.rng.choice([0, 2000, 50_000]) if stream else 0
        self.unsynced_groups = 0
        self.open()

    def live(self) -> None:
        verbs = self.slow_verbs() if self.slow else self.verbs()
        for stream in self.streams.values():
            verbs += self.stream_verbs(stream)
        if self.trouble and self.streams:
            verbs.append((2, self.tear_a_write))
        if self.trouble:
            often = 0.3 if self.slow else 1
            verbs += [(often, self.fill_disk), (often, self.make_fail)]
        weights = [weight for weight, _ in verbs]
        times = [1, 100, 300] if self.slow else [1, 1, 100]
        for _ in range(SLOW_STEPS if self.slow else STEPS):
            self.now_ms += self.rng.choice(times)
            self.rng.choices([verb for _, verb in verbs], weights)[0]()
            self.pass_time()
            if self.is_broken():
                self.counts["failures"] += 1
                self.crash()
            elif self.is_rewriting() and self.rng.random() < 0.04:
                self.crash()
            self.check()
        self.drain()

    def verbs(self) -> Verbs:
        return [
            (35, self.publish),
            (15, lambda: self.some_queue().fetch()),
            (10, lambda: self.some_queue().ack()),
            (5, lambda: self.some_queue().requeue()),
            (1, lambda: self.some_queue().unfetch()),
            (4, lambda: self.some_queue().requeue_to_tail(self.now_ms)),
            (4, lambda: self.some_queue().delay(self.now_ms)),
            (3, lambda: self.some_queue().release_due(self.now_ms)),
            (4, self.publish_delayed),
            (2, lambda: self.some_queue().cancel_delayed()),
            (0.3, lambda: self.some_queue().drop_delayed()),
            (1, lambda: self.some_queue().take_delayed()),
            (6, lambda: self.some_queue().note_attempts()),
            (8, self.commit),
            (4, self.commit_in_part),
            (10, self.work),
            (10, self.run_jobs),
            (2, lambda: self.some_queue().change_mode()),
            (1, lambda: self.some_queue().purge()),
            (2, lambda: self.some_queue().drop_below()),
            (2, lambda: self.some_queue().drop_some()),
            (2, lambda: self.some_queue().read_range()),
            (1, lambda: self.some_queue().await_head()),
            (2, self.end),
        ]

    def slow_verbs(self) -> Verbs:
        return [
            (8, self.publish),
            (10, lambda: self.some_queue().fetch()),
            (22, lambda: self.some_queue().ack(12)),
            (1, lambda: self.some_queue().requeue()),
            (1, lambda: self.some_queue().requeue_to_tail(self.now_ms)),
            (1, lambda: self.some_queue().delay(self.now_ms)),
            (1, lambda: self.some_queue().release_due(self.now_ms)),
            (1, self.publish_delayed),
            (1, lambda: self.some_queue().cancel_delayed()),
            (2, lambda: self.some_queue().note_attempts()),
            (10, self.commit),
            (1, self.commit_in_part),
            (25, self.work),
            (20, self.run_jobs),
            (1, lambda: self.some_queue().read_range()),
            (0.3, self.end),
        ]

    def stream_verbs(self, stream: JudgedStream) -> Verbs:
        return [
            (20, lambda: stream.publish(self.batch(), self.now_ms)),
            (4, lambda: stream.retire(self.now_ms)),
            (1, stream.change_limits),
            (3, stream.keep_position),
            (3, stream.attach),
            (12, stream.follow),
            (1, lambda: stream.read_on(self.opened)),
            (2, lambda: stream.read_by_time(self.opened, self.now_ms)),
            (2, lambda: stream.read_by_filter(self.opened)),
        ]

    def judges(self) -> list[JudgedQueue | JudgedStream]:
        return [*self.queues.values(), *self.streams.values()]

    def check(self) -> None:
        for judge in self.judges():
            judge.check()
        self.opened.engine.check()
        self.opened.engine.store.check()
        self.opened.engine.transient_store.check()

    def some_queue(self) -> JudgedQueue:
        return self.rng.choice(list(self.queues.values()))

    # -- verbs -----------------------------------------------------------------------------

    def publish(self) -> None:
        """To one queue or to both, which then share what is in the message store."""
        batch = self.batch()
        for queue in self.rng.sample(list(self.queues.values()), self.rng.choice([1, 1, 2])):
            copies = [one.copy_for_queue() for one in batch]
            queue.publish(copies, self.now_ms)
            share_contents(copies, batch)

    def publish_delayed(self) -> None:
        self.some_queue().publish_delayed(self.batch(), self.now_ms)

    def batch(self) -> list[Message]:
        batch: list[Message] = []
        for _ in range(self.rng.randint(1, 20)):
            name = len(self.contents)
            content = b"%d:" % name + b"x" * self.rng.choice(SIZES)
            persistent = self.rng.random() < 0.7
            self.contents[name] = (content, persistent)
            batch.append(message(content, persistent=persistent))
        return batch

    def commit(self) -> None:
        self.seal(sync=True)
        self.opened.write_groups()
        self.hear_groups()

    def commit_in_part(self) -> None:
        """Things happen between the steps of a commit; and not every group is synced."""
        how = self.rng.random()
        if how < 0.4:
            self.seal(sync=self.rng.random() < 0.5)
        elif how < 0.7:
            self.opened.write_groups()
        else:
            self.hear_groups()

    def seal(self, *, sync: bool) -> None:
        if self.opened.seal(sync=sync):
            for queue in self.queues.values():
                queue.promises.seal()
            for stream in self.streams.values():
                stream.seal()

    def hear_groups(self) -> None:
        for group in self.opened.hear_groups():
            self.unsynced_groups += 1
            if group.sync:
                for queue in self.queues.values():
                    queue.promises.commit(self.unsynced_groups)
                for stream in self.streams.values():
                    stream.commit(self.unsynced_groups)
                self.unsynced_groups = 0

    def work(self) -> None:
        self.opened.work(self.now_ms, idle=self.rng.random() < 0.2)

    def run_jobs(self) -> None:
        steps = (self.opened.run_write, self.opened.run_read, self.opened.hear_job)
        for _ in range(self.rng.randint(0, 30 if self.slow else 9)):
            self.rng.choice(steps)()

    # -- trouble ---------------------------------------------------------------------------

    def fill_disk(self) -> None:
        self.files.space_left = self.rng.choice([0, 0, 300, 2000])
        self.full_steps = self.rng.randint(3, 40)
        self.counts["full disks"] += 1

    def make_room(self) -> None:
        self.files.space_left = UNLIMITED
        self.full_steps = 0

    def pass_time(self) -> None:
        if self.full_steps > 0:
            self.full_steps -= 1
            if self.full_steps == 0:
                self.make_room()

    def make_fail(self) -> None:
        self.files.fail(self.rng.choice(WRITING_VERBS), errno.EIO, self.rng.randint(0, 5))

    def tear_a_write(self) -> None:
        """The one that comes, or its sync: nothing else leaves half a block on the disk."""
        self.files.fail(self.rng.choice(("pwrite", "sync")), errno.EIO, self.rng.randint(0, 2))

    def is_broken(self) -> bool:
        """Something the node cannot go on with."""
        error = self.opened.engine.disk_error() or self.opened.committer.error
        if error is None:
            return False
        assert isinstance(error, OSError), error
        assert error.errno == errno.EIO, error
        return True

    def is_rewriting(self) -> bool:
        return self.opened.engine.account.rewriting > 0

    # -- the end of the process ------------------------------------------------------------

    def end(self) -> None:
        """In one of three ways."""
        if self.rng.random() < 0.3 and self.close_cleanly():
            self.counts["clean stops"] += 1
            for judge in self.judges():
                judge.closed_cleanly()
            self.leave(self.rng.random() < 0.3)
            self.open()
        else:
            self.crash()

    def close_cleanly(self) -> bool:
        """False = the disk did not let it: it ends somewhere in the middle."""
        try:
            self.opened.close_cleanly()
        except OSError as error:
            must_be_trouble(error)
            self.counts["stops that failed"] += 1
            return False
        return True

    def crash(self) -> None:
        self.counts["crashes"] += 1
        for queue in self.queues.values():
            index = queue.queue.index_or_none()
            for job in [] if index is None else index.rewriting.jobs:
                copied = self.files.exists(index.unfinished_path(job.segment.number))
                if job.segment.renaming:
                    self.counts["crashes before rename" if copied else "crashes at rename"] += 1
                else:
                    self.counts["crashes after copy" if copied else "crashes before copy"] += 1
        self.leave(self.rng.random() < 0.65)
        self.open()

    def leave(self, power_cut: bool) -> None:
        self.counts["rewrites"] += self.opened.engine.account.rewritten
        self.counts["compactions"] += self.opened.engine.store.statistics()["compactions"]
        self.counts["stalls"] += self.opened.stalls
        self.counts["files kept"] += len(self.opened.engine.journal.resting.sizes)
        self.die(power_cut)

    def die(self, power_cut: bool) -> None:
        if power_cut:
            self.files.power_cut(self.rng)
        else:
            self.files.kill()

    def open(self) -> None:
        """The next process; a start that meets trouble ends, and the one after it goes on."""
        if self.trouble and self.rng.random() < 0.15:
            verb = self.rng.choice(OPENING_VERBS)
            self.files.fail(verb, errno.EIO, self.rng.choice([0, 1, 3, 10, 30]))
        while not self.try_to_open():
            self.counts["starts that failed"] += 1
            self.die(self.rng.random() < 0.5)
            if self.rng.random() < 0.5:
                self.make_room()
        self.unsynced_groups = 0
        for number, queue in self.queues.items():
            queue.reopened(self.opened.queues[number], clean=self.opened.opening.clean)
        for number, stream in self.streams.items():
            stream.reopened(self.opened.streams[number], self.opened)

    def try_to_open(self) -> bool:
        try:
            self.opened = PatientEngine(
                self.files,
                ENTRIES,
                limits(**self.limits),
                journal_file_bytes=4000,
                store_file_bytes=self.store_file_bytes,
                streams=list(self.streams),
                cache_bytes=self.cache_bytes,
            )
        except OSError as error:
            must_be_trouble(error)
            return False
        return True

    # -- the end of the life ---------------------------------------------------------------

    def settle(self) -> None:
        for _ in range(10_000):
            more = self.opened.work(self.now_ms, idle=False)
            self.commit()
            self.opened.run_jobs()
            if not more and not self.opened.jobs_wait() and not self.opened.groups_wait():
                return
        raise AssertionError("the engine never comes to rest")

    def drain(self) -> None:
        """Whatever happened: all of it comes out, and nothing is left behind."""
        self.trouble = False
        self.make_room()
        self.files._failures.clear()
        self.opened.run_jobs()  # one of them may have failed before
        if self.is_broken():
            self.crash()
        for _ in range(5000):
            self.settle()
            for queue in self.queues.values():
                queue.drain()
            self.check()
            if not any(queue.ready or queue.delayed for queue in self.queues.values()):
                break
        self.now_ms += 1000  # what was moved to the tail has its old place settled by the clock
        self.settle()
        for queue in self.queues.values():
            queue.check_is_empty()
        for stream in self.streams.values():
            stream.read_on(self.opened)
            stream.read_all(self.opened)
            self.counts += stream.counts
        assert self.opened.engine.store.statistics()["references"] == 0
        assert not self.opened.engine.journal.resting.sizes
        self.counts["rewrites"] += self.opened.engine.account.rewritten
        for queue in self.queues.values():
            self.counts["moves"] += queue.moves
            self.counts["delays"] += queue.delays
            self.counts["releases"] += queue.releases
            self.counts["counted"] += queue.counted


def must_be_trouble(error: OSError) -> None:
    """Of our making, and not a bug's."""
    if error.errno not in (errno.EIO, errno.ENOSPC):
        raise error
