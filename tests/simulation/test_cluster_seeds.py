"""Random lives of a cluster with mirrored queues (cluster_lives.py): nothing confirmed is lost.

``PENSTOCK_CLUSTER_SEEDS`` says how many, ``PENSTOCK_CLUSTER_SEED`` where to begin,
``PENSTOCK_CLUSTER_STEPS`` how long a life is; seeds and counts are printed.  A seed that failed
once is in ``FAILED_ONCE`` and always run.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.cluster_lives import Life

SEEDS = int(os.environ.get("PENSTOCK_CLUSTER_SEEDS", "2"))
FIRST = int(os.environ.get("PENSTOCK_CLUSTER_SEED") or random.SystemRandom().randrange(10**9))
STEPS = int(os.environ.get("PENSTOCK_CLUSTER_STEPS", "120"))
FAILED_ONCE: tuple[int, ...] = ()


def test_random_lives_of_a_cluster(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    lives = 0
    for seed in dict.fromkeys((*FAILED_ONCE, *range(FIRST, FIRST + SEEDS))):
        directory = tmp_path / str(seed)
        directory.mkdir()
        life = Life(seed, directory, STEPS)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        counts += life.counts
        lives += 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{lives} lives from seed {FIRST}, nothing lost: {said}")
    assert counts["kept"] > 0, counts
