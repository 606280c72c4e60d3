"""Random lives of a cluster with mirrored queues (cluster_lives.py): nothing confirmed is lost.

``PENSTOCK_NODES_SEEDS`` says how many, ``PENSTOCK_NODES_SEED`` where to begin,
``PENSTOCK_NODES_STEPS`` how long a round of a life is; seeds and counts are printed.  A seed that
failed once is in ``FAILED_ONCE`` and always run.  Lives of odd seeds have a stream beside queues.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.cluster_judge import Judgement
from tests.simulation.cluster_lives import Life
from tests.simulation.quorum_lives import damaged_life, quorum_life

# In CI the seeds of once-found faults and one more; these variables say how many and from which on.
SEEDS = int(os.environ.get("PENSTOCK_NODES_SEEDS", "1"))
FIRST = int(os.environ.get("PENSTOCK_NODES_SEED", "1"))
STEPS = int(os.environ.get("PENSTOCK_NODES_STEPS", "120"))
FAILED_ONCE = (
    4029,  # what an earlier life of a copy had heard was told again, and was there twice
    50096,  # who joined a quiet queue late never heard that its master's time had begun
    60318,  # a chunk of a deleted queue came to its successor, which asked for the same
    60420,  # a group that leaves was gone when another of its queue began anew
    50134,  # a master that had not begun was to mirror another with what it had
)
QUORUM_SEEDS = (
    6,  # a get at a queue without a leader waited for ever, and what came behind it
)


def test_random_lives_of_a_cluster(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    lives = 0
    for seed in dict.fromkeys((*FAILED_ONCE, *range(FIRST, FIRST + SEEDS))):
        directory = tmp_path / str(seed)
        directory.mkdir()
        life = Life(seed, directory, STEPS, with_stream=seed % 2 == 1 and seed not in FAILED_ONCE)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        counts += life.counts
        lives += 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{lives} lives from seed {FIRST}, nothing lost: {said}")
    assert counts["kept"] > 0, counts


@pytest.mark.parametrize("make", [quorum_life, damaged_life])
def test_random_lives_of_quorum_queues(tmp_path: Path, make: Callable[..., Life]) -> None:
    counts: Counter[str] = Counter()
    for seed in QUORUM_SEEDS if FIRST == 1 else range(FIRST, FIRST + SEEDS):
        directory = tmp_path / str(seed)
        directory.mkdir()
        life = make(seed, directory, STEPS)
        try:
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        counts += life.counts
    print(f"quorum queues, nothing lost: {sorted(counts.items())}")
    assert counts["kept"] > 0, counts
    assert counts["elections"] > 0, counts


def test_a_life_is_its_seed(tmp_path: Path) -> None:
    lives = []
    for name in ("one", "other"):
        directory = tmp_path / name
        directory.mkdir()
        lives.append(Life(5, directory, steps=40, rounds=1))
        lives[-1].live()
    assert lives[0].counts == lives[1].counts
    assert lives[0].judge.history.log == lives[1].judge.history.log


def test_the_judge_misses_what_was_confirmed(tmp_path: Path) -> None:
    life = Life(5, tmp_path, steps=25, rounds=1)
    life.live()
    lost = life.judge.sent[0]
    lost.queue, lost.persistent, lost.settled, lost.confirmed_at = "nowhere", True, False, 1
    with pytest.raises(Judgement, match="was confirmed, and is lost"):
        life.judge.judge_queue("nowhere")
