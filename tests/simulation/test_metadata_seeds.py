"""Random lives of a cluster's metadata (metadata_world.py): all nodes agree, nobody is told lies.

``PENSTOCK_METADATA_SEEDS`` says how many, ``PENSTOCK_METADATA_SEED`` where to begin; the counts
are printed.  A seed that failed once is in ``FAILED_ONCE`` and always run.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.simulation.metadata_world import World

SEEDS = int(os.environ.get("PENSTOCK_METADATA_SEEDS", "12"))
FIRST = int(os.environ.get("PENSTOCK_METADATA_SEED") or random.SystemRandom().randrange(10**9))
STEPS = 120
FAILED_ONCE = (
    26,  # a virtual host was made anew while a node that was removing it was away
    118,  # a bind whose answer was lost, and whose source had gone, was taken for done
    82,  # a snapshot does not say how new it is: others waited for ever for a node to know
    671,  # an exchange lost its last binding with a lease, while nobody was there to see it
    30719,  # somebody was deleted while he was given a permission, which was left behind
    500728,  # a queue was said to be there before the other nodes had it
    501595,  # a process ended while it removed a virtual host with a policy
    777,  # a touched exchange looked younger than its bindings to who had been cut off
)
WANTED = ("cuts", "kills", "lost connections", "unavailable", "bind ok", "declare ok", "unvhost ok")


SLOW = ("slow steps", "leases that ended", "kills", "declare ok")
"""What happens in slow worlds: a start that takes longer than a lease was the end of it once."""


def test_random_lives_of_metadata(tmp_path: Path) -> None:
    live((*FAILED_ONCE, *range(FIRST, FIRST + SEEDS)), tmp_path, WANTED, slow=False)


def test_random_lives_of_slow_nodes(tmp_path: Path) -> None:
    live(range(FIRST, FIRST + SEEDS), tmp_path, SLOW, slow=True)


def live(seeds: Iterable[int], tmp_path: Path, wanted: Iterable[str], *, slow: bool) -> None:
    counts: Counter[str] = Counter()
    lives = 0
    for seed in dict.fromkeys(seeds):
        directory = tmp_path / str(seed)
        directory.mkdir()
        world = World(seed, directory, slow=slow)
        try:
            world.live(STEPS)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        counts += world.counts
        lives += 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{lives} lives from seed {FIRST}, all agreed: {said}")
    assert all(counts[name] > 0 for name in wanted), counts
