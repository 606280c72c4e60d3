"""Random lives of a queue whose confirms need a majority of its copies (majority_lives.py).

``PENSTOCK_MAJORITY_SEEDS`` says how many, ``PENSTOCK_MAJORITY_SEED`` where to begin.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.simulation.majority_lives import MajorityLife

SEEDS = int(os.environ.get("PENSTOCK_MAJORITY_SEEDS", "25"))
FIRST = int(os.environ.get("PENSTOCK_MAJORITY_SEED") or random.SystemRandom().randrange(10**9))
FAILED_ONCE = (
    43,  # a segment said what had ended before the journal said that it was heard
    162,  # the model forgot that a vote that was refused binds: that copy votes again
    91031871,  # the model wanted of a late master what the master of a later term had confirmed
)
WANTED = (
    "came back",
    "compared",
    "confirmed",
    "crashes",
    "disks compared",
    "elected",
    "given up",
    "judged",
    "stood still",
)


def test_random_lives_of_a_queue_with_a_majority() -> None:
    counts: Counter[str] = Counter()
    for seed in (*FAILED_ONCE, *range(FIRST, FIRST + SEEDS)):
        life = MajorityLife(seed, nodes=5 if seed % 4 == 0 else 3)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        counts += life.counts
    print(f"from seed {FIRST}, nothing lost: {dict(sorted(counts.items()))}")
    assert all(counts[name] > 0 for name in WANTED), counts
