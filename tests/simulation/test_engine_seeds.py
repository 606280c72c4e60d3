"""Random lives of queues (engine_lives.py): nothing confirmed is lost, nothing else comes back.

``PENSTOCK_ENGINE_SEEDS`` says how many, ``PENSTOCK_STREAM_LIVES`` how many more, with a stream
beside the queues, ``PENSTOCK_ENGINE_SEED`` where to begin; the counts are printed.  A seed that
failed once is in ``FAILED_ONCE`` and always run.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable

import pytest

from penstock.core.errors import Corrupt
from tests.simulation.engine_lives import STREAM, Life
from tests.simulation.queue_judge import EVERYTHING

SEEDS = int(os.environ.get("PENSTOCK_ENGINE_SEEDS", "150"))
STREAM_SEEDS = int(os.environ.get("PENSTOCK_STREAM_LIVES", "30"))
FIRST = int(os.environ.get("PENSTOCK_ENGINE_SEED") or random.SystemRandom().randrange(10**9))
FAILED_ONCE = (
    4,  # a group tried again was written over in a store file left behind
    213,  # two starts on a full disk, each with a journal file begun in vain
    1307,  # a read here and now waited for a compaction to be heard of
    526066093,  # all of delta at hand were delayed, and no read followed
    770202,  # a stop failed behind its terms: what was delivered is marked, the rest is not
    216768323,  # published for later, and in a segment before its time was on disk
)
WANTED = (
    "crashes",
    "rewrites",
    "moves",
    "releases",
    "counted",
    "full disks",
    "failures",
    "clean stops",
    "files kept",
)
WANTED_OF_STREAMS = (
    *WANTED,
    "messages read",
    "messages cut",
    "positions kept",
    "segments retired",
    "readers overtaken",
    "found by time",
    "passed over",
)


def lived(seeds: Iterable[int], *, stream: bool = False) -> Counter[str]:
    """What happened in these lives; fails with the seed of one that goes wrong."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        life = Life(seed, stream=stream)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        counts["lives"] += 1
        counts += life.counts
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"from seed {FIRST}, nothing lost: {said}")
    return counts


def test_random_lives() -> None:
    counts = lived((*FAILED_ONCE, *range(FIRST, FIRST + SEEDS)))
    assert all(counts[name] > 0 for name in WANTED), counts


def test_random_lives_with_a_stream() -> None:
    counts = lived(range(FIRST, FIRST + STREAM_SEEDS), stream=True)
    assert all(counts[name] > 0 for name in WANTED_OF_STREAMS), counts


@pytest.mark.parametrize("seed", [1, 2])
def test_a_life_is_its_seed(seed: int) -> None:
    lives = [Life(seed, stream=True), Life(seed, stream=True)]
    for life in lives:
        life.live()
    assert lives[0].files.calls == lives[1].files.calls


def flipped(life: Life, suffix: str = "") -> str:
    """Kill it and change one bit of what lies on its disk; where."""
    life.files.kill()
    names = [name for name in sorted(life.files.names) if life.files.size(name) > 0]
    names = [name for name in names if name.endswith(suffix)]
    name = life.rng.choice(names)
    life.files.flip(name, life.rng.randrange(8 * life.files.size(name)))
    return name


def names_the_place(refusal: str, name: str) -> bool:
    """Journal files vouch for one another: a flip in one may show first in the other."""
    base = name.rpartition("/")[2]
    journal = base.endswith(".jif") and ".jif" in refusal
    return base in refusal or "is missing" in refusal or journal


def test_a_flipped_bit_is_refused_or_harmless_and_never_delivered() -> None:
    """A start that goes on after it has found nothing wrong: then what it gives is right."""
    refused = harmless = 0
    judged: list[bool] = []
    for seed in range(FIRST, FIRST + SEEDS // 2):
        life = Life(seed, trouble=False)
        for _ in range(60):
            life.now_ms += 1
            queue = life.some_queue()
            life.rng.choice([life.publish, queue.fetch, life.commit, life.work, life.run_jobs])()
        life.commit()
        name = flipped(life)
        try:
            assert life.try_to_open()
        except Corrupt as error:
            refused += 1
            judged.append(names_the_place(str(error), name))
            continue
        harmless += 1
        for number, queue in life.queues.items():
            again = life.opened.queues[number]
            for one in again.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING):
                wanted = life.contents[queue.names[one.seq_id]][0]
                assert one.content == wanted, f"seed {seed}, {name}"
    print(f"{refused} flips refused, {harmless} harmless")
    assert refused > harmless // 4
    assert all(judged), "a refusal names the file, or another journal file"


def test_a_flipped_bit_of_a_stream_is_named_or_harmless_and_never_delivered() -> None:
    """By the start, or by the reader that comes to it; nothing is left out in silence."""
    refused = stopped = harmless = 0
    judged: list[bool] = []
    for seed in range(FIRST, FIRST + STREAM_SEEDS):
        life = Life(seed, trouble=False, stream=True)
        [stream] = life.streams.values()
        verbs = [verb for _, verb in life.stream_verbs(stream)]
        for _ in range(60):
            life.now_ms += 1
            life.rng.choice([*verbs, life.commit, life.run_jobs])()
        life.commit()
        name = flipped(life, ".stm")
        is_open = False
        try:
            is_open = life.try_to_open()
            stream.reopened_damaged(life.opened.streams[STREAM], life.opened)
            harmless += 1
        except Corrupt as error:
            told = str(error)
            stopped += is_open
            refused += not is_open
            judged.append(name in told or (not is_open and "missing" in told))
    print(f"{refused} flips refused, {stopped} stopped a reader, {harmless} harmless")
    assert refused + stopped > harmless // 4
    assert all(judged), "an error names the file, or what is missing"
