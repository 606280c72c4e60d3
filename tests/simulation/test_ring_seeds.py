"""Random lives of a group (ring_lives.py): all survivors deliver the same, and it comes to rest.

``PENSTOCK_RING_SEEDS`` says how many, ``PENSTOCK_RING_SEED`` where to begin; the counts are
printed.  A seed that failed once is in ``FAILED_ONCE`` and always run.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.simulation.ring_lives import RingLife

SEEDS = int(os.environ.get("PENSTOCK_RING_SEEDS", "30"))
FIRST = int(os.environ.get("PENSTOCK_RING_SEED") or random.SystemRandom().randrange(10**9))
FAILED_ONCE = (
    491,  # a joiner that began behind an end never heard that its acknowledgement went round
    2161,  # one that owned nothing yet took the old owner's word for having gone round
    6154,  # an unsure owner did not take what the dead member itself had acknowledged
    2001261,  # one did not know that it had joined, was dead and erased, and joined again
    2008307,  # an unsure owner that was told the end took it as gone round before it passed it on
)
HASTY_FAILED_ONCE: tuple[int, ...] = ()
WANTED = (
    "crashes",
    "starts",
    "stopped",
    "partitions",
    "reconnections",
    "kicks",
    "lost",
    "doubled",
    "early",
    "views refused",
)


def lived(failed_once: tuple[int, ...], *, hasty: bool) -> Counter[str]:
    """Those that failed once, ``SEEDS`` more, and then as many as it takes to see all of WANTED."""
    counts: Counter[str] = Counter()
    for seed in (*failed_once, *range(FIRST, FIRST + 10 * SEEDS)):
        enough = counts["groups"] >= len(failed_once) + SEEDS
        if enough and all(counts[name] > 0 for name in WANTED):
            break
        life = RingLife(seed, 150 if hasty else 400, hasty=hasty)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}, hasty {hasty}: {type(error).__name__}: {error}")
        counts += life.counts
        counts["groups"] += 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"from seed {FIRST}, all survivors agree: {said}")
    return counts


def test_random_lives() -> None:
    counts = lived(FAILED_ONCE, hasty=False)
    assert all(counts[name] > 0 for name in WANTED), counts


def test_lives_in_which_hardly_anybody_stays() -> None:
    counts = lived(HASTY_FAILED_ONCE, hasty=True)
    assert all(counts[name] > 0 for name in WANTED), counts


@pytest.mark.parametrize("seed", [1, 2])
def test_a_life_is_its_seed(seed: int) -> None:
    lives = [RingLife(seed), RingLife(seed)]
    for life in lives:
        life.live()
    assert lives[0].counts == lives[1].counts
    assert lives[0].store.log == lives[1].store.log
