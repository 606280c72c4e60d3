"""Random lives of a cluster whose queues are confirmed by a majority of their copies.

CJ5 of ``cluster_judge.py`` is so: every queue has a leader and the copies it should, all equal,
but for one whose nodes fell before their disks said that it begins (docs/design/majority.md).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from penstock.cluster.agreement.queue_views import QueueView
from penstock.queues.queue import Queue
from tests.simulation.cluster_judge import ClusterJudge
from tests.simulation.cluster_lives import Life, Troubles
from tests.simulation.cluster_nodes import Machine


class QuorumQueues:
    """What is so of them (``QueueKind``)."""

    def arguments_of(self, queue: str) -> dict[str, object]:
        return {"x-queue-type": "quorum", "x-delivery-limit": -1}

    def is_persistent(self, rng: random.Random) -> bool:
        return True

    def is_down(self, judge: ClusterJudge, name: str) -> bool:
        """It has no master, or one that is gone, and that no other follows."""
        lives = {one.cluster.member for one in judge.machines if one.ready}
        return judge.history.views[name].master not in lives

    def is_dead_end(self, judge: ClusterJudge, name: str, view: QueueView) -> bool:
        assert view.reign is not None
        here = [one for one in judge.machines if one.name in view.reign.copies]
        queues = [one.cluster.mirrors.mirroring.queues[("/", name)] for one in here]
        votes = sum(1 for known in queues if known.holding() is not None)
        if not self.is_down(judge, name) or votes >= view.reign.majority():
            return False
        judge.counts["no majority has a vote"] += 1
        return True

    def why_other_copies(
        self, judge: ClusterJudge, view: QueueView, master: Machine, queue: Queue
    ) -> str:
        assert view.reign is not None
        if set(view.reign.copies) != set(view.wanted):
            return f"it has {view.reign.copies}, and wants {view.wanted}"
        return ""


def quorum_life(seed: int, directory: Path, steps: int = 120, rounds: int = 2) -> Life:
    return Life(seed, directory, steps, rounds, kind=QuorumQueues())


def damaged_life(seed: int, directory: Path, steps: int = 120, rounds: int = 2) -> Life:
    """Disks fail to read copies of followers, of a queue one at a time."""
    kind, troubles = QuorumQueues(), [damage] * 3
    return Life(seed, directory, steps, rounds, kind=kind, more_troubles=troubles)


def damage(troubles: Troubles) -> None:
    machine, name = troubles.some_running(), troubles.rng.choice(troubles.judge.queues)
    copy = None if machine is None else machine.quiet.broker.vhosts["/"].copies.copies.get(name)
    if copy is None or not all_vote(troubles.machines, name):
        return
    troubles.counts["damaged copies"] += 1
    copy.backing.parts()[0].records.fault = "a block is damaged"


def all_vote(machines: Sequence[Machine], name: str) -> bool:
    knowns = [
        one.cluster.mirrors.mirroring.queues.get(("/", name)) for one in machines if one.ready
    ]
    return len(knowns) == len(machines) and all(
        known is not None and known.holding() is not None and known.is_current() for known in knowns
    )
