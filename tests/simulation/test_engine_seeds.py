"""Random lives of queues (engine_lives.py): nothing confirmed is lost, nothing else comes back.

``PENSTOCK_ENGINE_SEEDS`` says how many, ``PENSTOCK_ENGINE_SEED`` where to begin; the counts
are printed.  A seed that failed once is in ``FAILED_ONCE`` and always run.
"""

from __future__ import annotations

import os
import random

import pytest

from penstock.core.errors import Corrupt
from tests.simulation.engine_lives import Life

SEEDS = int(os.environ.get("PENSTOCK_ENGINE_SEEDS", "150"))
FIRST = int(os.environ.get("PENSTOCK_ENGINE_SEED") or random.SystemRandom().randrange(10**9))
FAILED_ONCE: tuple[int, ...] = ()


def test_random_lives() -> None:
    lives = crashes = 0
    for seed in (*FAILED_ONCE, *range(FIRST, FIRST + SEEDS)):
        life = Life(seed)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        lives += 1
        crashes += life.crashes
    print(f"{lives} lives from seed {FIRST}, {crashes} crashes, nothing lost")
    assert crashes > 0


def flipped(life: Life) -> str:
    """Kill it and change one bit of what lies on its disk; where."""
    life.files.kill()
    names = [name for name in sorted(life.files.names) if life.files.size(name) > 0]
    name = life.rng.choice(names)
    life.files.flip(name, life.rng.randrange(8 * life.files.size(name)))
    return name


def test_a_flipped_bit_is_refused_or_harmless_and_never_delivered() -> None:
    """A start that goes on after it has found nothing wrong: then what it gives is right."""
    refused = harmless = 0
    judged: list[bool] = []
    for seed in range(FIRST, FIRST + SEEDS // 2):
        life = Life(seed)
        for _ in range(60):
            life.now_ms += 1
            life.rng.choice([life.publish, life.fetch, life.commit, life.work, life.run_jobs])()
        life.commit()
        name = flipped(life)
        try:
            life.open()
        except Corrupt as error:
            refused += 1
            named = name.rpartition("/")[2] in str(error) or "is missing" in str(error)
            judged.append(named)
            continue
        harmless += 1
        for one in life.queue.read_range(0, 1 << 40, 1 << 40, 1 << 40):
            assert one.content == life.contents[one.seq_id][0], f"seed {seed}, {name}"
    print(f"{refused} flips refused, {harmless} harmless")
    assert refused > harmless // 4
    assert all(judged), "a refusal names the file"
