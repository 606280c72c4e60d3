"""Random lives of queues (engine_lives.py): nothing confirmed is lost, nothing else comes back.

``PENSTOCK_ENGINE_SEEDS`` says how many, ``PENSTOCK_ENGINE_SEED`` where to begin; the counts
are printed.  A seed that failed once is in ``FAILED_ONCE`` and always run.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from penstock.core.errors import Corrupt
from tests.simulation.engine_lives import Life
from tests.simulation.queue_judge import EVERYTHING

SEEDS = int(os.environ.get("PENSTOCK_ENGINE_SEEDS", "150"))
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
)


def test_random_lives() -> None:
    lives = 0
    counts: Counter[str] = Counter()
    for seed in (*FAILED_ONCE, *range(FIRST, FIRST + SEEDS)):
        life = Life(seed)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        lives += 1
        counts += life.counts
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{lives} lives from seed {FIRST}, nothing lost: {said}")
    assert all(counts[name] > 0 for name in WANTED), counts


@pytest.mark.parametrize("seed", [1, 2])
def test_a_life_is_its_seed(seed: int) -> None:
    lives = [Life(seed), Life(seed)]
    for life in lives:
        life.live()
    assert lives[0].files.calls == lives[1].files.calls


def flipped(life: Life) -> str:
    """Kill it and change one bit of what lies on its disk; where."""
    life.files.kill()
    names = [name for name in sorted(life.files.names) if life.files.size(name) > 0]
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
            for one in again.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING):
                wanted = life.contents[queue.names[one.seq_id]][0]
                assert one.content == wanted, f"seed {seed}, {name}"
    print(f"{refused} flips refused, {harmless} harmless")
    assert refused > harmless // 4
    assert all(judged), "a refusal names the file, or another journal file"
