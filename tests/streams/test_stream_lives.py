"""Long random lives of a stream on a disk that forgets, tears, fills up and flips bits.

``PENSTOCK_STREAM_SEEDS`` says how many lives (default 200); ``PENSTOCK_STREAM_SEED`` names the
first, so a seed that failed is run alone with its number and a count of 1.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import run_job
from penstock.streams import cursor as at
from penstock.streams.cursor import Start, StreamCursor
from penstock.streams.filtering import Wanted
from penstock.streams.log import StreamLimits
from tests.streams.stream_tools import StreamWorld

SEEDS = int(os.environ.get("PENSTOCK_STREAM_SEEDS", "200"))
FIRST_SEED = int(os.environ.get("PENSTOCK_STREAM_SEED", "0"))
BATCHES = 4
STEPS = 120
VERBS = ["pread", "pwrite", "sync", "sync_dir", "remove", "open_write", "makedirs"]
VALUES = [b"", b"", b"eu", b"us", b"asia"]


class Life:
    """One random life of a stream; ``seen`` counts what happened in it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seen: Counter[str] = Counter()
        rng = self.rng
        limits = StreamLimits(
            rng.choice([0, 0, 3000, 800]),
            rng.choice([0, 0, 5000]),
            rng.choice([200, 900, 4000]),
            rng.choice([1, 16, 255]),
        )
        self.world = StreamWorld(
            limits, cache_bytes=rng.choice([0, 1000, 20_000]), held_bytes=rng.choice([100, 1 << 20])
        )
        self.readers: list[tuple[StreamCursor, int]] = []
        self.steps: list[Callable[[], None]] = [
            self.append,
            self.append,
            self.append,
            self.commit,
            self.commit,
            self.retire,
            self.attach,
            self.follow,
            self.follow,
            self.by_time,
            self.by_filter,
        ]

    def live(self) -> None:
        for _ in range(STEPS):
            self.world.now_ms += self.rng.choice([0, 1, 100, 2000, -50])
            self.rng.choice(self.steps)()
            if self.rng.random() < 0.04:
                self.rng.choice([self.crash, self.crash, self.restart, self.full_disk])()
            self.world.log.check()
        self.world.flush()
        self.world.read_all()

    def append(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([1, 1, 5])):
            sizes = [rng.choice([0, 3, 50, 300]) for _ in range(rng.randint(1, 4))]
            contents = [rng.randbytes(size) for size in sizes]
            values = [rng.choice(VALUES) for _ in contents] if rng.random() < 0.5 else None
            self.world.append(*contents, values=values)
            if rng.random() < 0.7:
                self.world.seal()

    def commit(self) -> None:
        self.world.seal()
        for _ in range(self.rng.randint(1, 8)):
            if self.world.sealed:
                self.world.commit()

    def retire(self) -> None:
        world = self.world
        before = world.log.segments
        sizes = [before.size(i) for i in range(len(before))]
        count = world.log.retire(world.now_ms)
        self.seen["segments retired"] += count
        limit = world.limits.max_bytes
        if limit and world.log.durable_offset == world.log.next_offset and len(sizes) > 1:
            following = world.log.segments.first(1) if len(world.log.segments) > 1 else -1
            is_last = following in (-1, world.log.durable_offset)
            assert sum(sizes[count:]) <= limit or is_last
        if count and limit and not world.limits.max_age_ms:
            assert sum(sizes[count - 1 :]) > limit, "retired without need"

    # -- readers ---------------------------------------------------------------------------

    def attach(self) -> None:
        """From every kind of place; what it must begin with is computed from the list."""
        log, rng = self.world.log, self.rng
        first, end, durable = log.first_offset, log.next_offset, log.durable_offset
        number = rng.randint(-5, end + 10)
        start, expected = rng.choice(
            [
                (Start(at.FIRST), first),
                (Start(at.NEXT), end),
                (Start(at.LAST), max(first, log.last_block)),
                (Start(at.OFFSET, number), max(first, number)),
            ]
        )
        if start.kind == at.OFFSET and number < 0:
            expected = max(first, durable + number)
        self.readers.append((StreamCursor(log, start), expected))

    def follow(self) -> None:
        """A reader goes on from where it was, or from the floor that overtook it."""
        if not self.readers:
            return
        place = self.rng.randrange(len(self.readers))
        cursor, expected = self.readers[place]
        world = self.world
        if self.rng.random() < 0.2:
            cursor.look()  # and the read arrives only later
            return
        found = world.read(cursor, self.rng.randint(1, 9), self.rng.choice([1, 7, 1000]))
        assert cursor.error is None
        for one in found:
            if one.seq_id != expected:
                assert expected < one.seq_id <= world.log.first_offset
                self.seen["overtaken"] += 1
                assert cursor.overtaken > 0
            assert one.content == world.entries[one.seq_id].content
            expected = one.seq_id + 1
        self.seen["messages followed"] += len(found)
        self.readers[place] = (cursor, expected)

    def by_time(self) -> None:
        world, log = self.world, self.world.log
        time_ms = world.now_ms - self.rng.choice([-500, 0, 3, 1000, 10_000])
        found = world.read_from(Start(at.TIME, time_ms))
        first, end = log.first_offset, log.durable_offset
        due = [i for i in range(first, end) if world.entries[i].time_ms >= time_ms]
        if due:
            world.judge(found, found[0].seq_id)
            assert found[0].seq_id <= due[0]
            self.seen["found by time"] += found[0].seq_id > first
        else:
            assert all(one.enqueued_at_ms >= time_ms for one in found)

    def by_filter(self) -> None:
        world = self.world
        values = self.rng.sample([b"eu", b"us", b"asia", b"none"], self.rng.randint(1, 2))
        unfiltered = self.rng.random() < 0.3
        found = world.read_from(Start(at.FIRST), Wanted(values, unfiltered))
        told = [one.seq_id for one in found]
        assert told == sorted(set(told))
        wanted = {*values, b""} if unfiltered else set(values)
        first, end = world.log.first_offset, world.log.durable_offset
        must = {i for i in range(first, end) if world.entries[i].value in wanted}
        assert must <= set(told)
        self.seen["passed over"] += end - first - len(told)

    # -- trouble ---------------------------------------------------------------------------

    def crash(self) -> None:
        """In the middle of whatever is under way; sometimes again while recovering."""
        world, rng = self.world, self.rng
        self.seen["crashes"] += 1
        self.readers = []
        world.files.fail(rng.choice(VERBS), after=rng.randint(0, 4))
        with contextlib.suppress(OSError):
            for _ in range(3):
                self.append()
                world.seal()
                while world.sealed and rng.random() < 0.8:
                    world.commit()
        for job in world.board.take_reads():
            run_job(job, world.files)
        world.crash(rng, power=rng.random() < 0.8)
        while rng.random() < 0.3:
            self.seen["crashes in recovery"] += 1
            world.files.fail(rng.choice([*VERBS, "read_back"]), after=rng.randint(0, 3))
            with contextlib.suppress(OSError):
                world.recover()
            world.crash(rng, power=rng.random() < 0.8)
        world.recover()
        world.read_all()

    def restart(self) -> None:
        self.world.flush()
        self.readers = []
        self.world.files.kill()
        end = self.world.log.next_offset
        self.world.recover()
        assert self.world.log.next_offset == end
        self.world.read_all()

    def full_disk(self) -> None:
        world = self.world
        world.flush()
        world.files.space_left = self.rng.choice([0, 50, 500])
        for _ in range(3):
            self.append()
        world.seal()
        while world.sealed:
            try:
                world.commit()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self.seen["full disks"] += 1
                world.files.space_left = 1 << 40
        world.files.space_left = 1 << 40
        world.read_all()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_nothing_committed_is_lost_or_changed(batch: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED + batch, FIRST_SEED + SEEDS, BATCHES):
        life = Life(seed)
        try:
            life.live()
        except BaseException:
            print(f"PENSTOCK_STREAM_SEED={seed} PENSTOCK_STREAM_SEEDS=1 repeats it")
            raise
        seen += life.seen
    print(dict(seen))
    if SEEDS >= 200:
        assert set(seen) >= {
            "segments retired",
            "overtaken",
            "messages followed",
            "found by time",
            "passed over",
            "crashes in recovery",
            "full disks",
        }


@pytest.mark.parametrize("batch", range(BATCHES))
def test_what_a_flipped_bit_damaged_is_never_given_and_never_left_out(batch: int) -> None:
    refused = 0
    for seed in range(FIRST_SEED + batch, FIRST_SEED + SEEDS, BATCHES):
        try:
            refused += flip_and_look(seed)
        except BaseException:
            print(f"PENSTOCK_STREAM_SEED={seed} PENSTOCK_STREAM_SEEDS=1 repeats it")
            raise
    if SEEDS >= 200:
        assert refused > 10


def assert_names_the_damage(text: str) -> None:
    assert ".stm" in text or "missing" in text, text


def flip_and_look(seed: int) -> bool:
    """Whether the damage was named, by the start or by a reader."""
    life = Life(seed)
    life.live()
    world, rng = life.world, life.rng
    if not world.log.next_offset:
        return False
    world.files.kill()
    paths = sorted(path for path, file in world.files.names.items() if file.cache)
    path = rng.choice(paths)
    world.files.flip(path, rng.randrange(8 * world.files.size(path)))
    floor, end = world.log.first_offset, world.log.durable_offset
    try:
        world.recover()
        cursor = StreamCursor(world.log, Start(at.FIRST))
        found = world.read(cursor)
        assert world.log.durable_offset == end
    except Corrupt as error:
        assert_names_the_damage(str(error))
        return True
    expected = floor
    for one in found:
        assert one.seq_id == expected
        assert one.content == world.entries[expected].content
        expected += 1
    if cursor.error is not None:
        assert path in str(cursor.error)
        return True
    # Damage behind the last message (the floor, an index that no reader needed) hides nothing.
    assert expected == end
    return False
