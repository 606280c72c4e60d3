"""Random lives of a cluster whose queues are confirmed by a majority of their copies.

J5 of cluster_lives.py is so: every queue has a leader and the copies that it should, all equal; but
for one whose nodes fell before their disks said that it begins (docs/design/majority.md).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.cluster.agreement.queue_views import QueueView
from penstock.queues.queue import Queue
from tests.simulation.cluster_lives import Life
from tests.simulation.cluster_nodes import Machine


class QuorumLife(Life):
    def arguments_of(self, queue: str) -> dict[str, object]:
        return {"x-queue-type": "quorum", "x-delivery-limit": -1}

    def is_persistent(self) -> bool:
        return True

    def is_down(self, name: str) -> bool:
        """It has no master, or one that is gone, and that no other follows."""
        lives = {one.cluster.member for one in self.machines if one.ready}
        return self.views[name].master not in lives

    def is_dead_end(self, name: str, view: QueueView) -> bool:
        assert view.reign is not None
        here = [one for one in self.machines if one.name in view.reign.copies]
        queues = [one.cluster.mirrors.mirroring.queues[("/", name)] for one in here]
        votes = sum(1 for known in queues if known.holding() is not None)
        if not self.is_down(name) or votes >= view.reign.majority():
            return False
        self.counts["no majority has a vote"] += 1
        return True

    def why_other_copies(self, view: QueueView, master: Machine, queue: Queue) -> str:
        assert view.reign is not None
        if set(view.reign.copies) != set(view.wanted):
            return f"it has {view.reign.copies}, and wants {view.wanted}"
        return ""


class DamagedLife(QuorumLife):
    """Disks fail to read copies of followers, of a queue one at a time."""

    def troubles(self) -> list[Callable[[], None]]:
        return [*super().troubles(), *[self.damage] * 3]

    def damage(self) -> None:
        machine, name = self.some_running(), self.rng.choice(self.queues)
        copy = None if machine is None else machine.quiet.broker.vhosts["/"].copies.copies.get(name)
        if copy is None or not self.all_vote(name):
            return
        self.counts["damaged copies"] += 1
        copy.backing.parts()[0].records.fault = "a block is damaged"

    def all_vote(self, name: str) -> bool:
        knowns = [
            one.cluster.mirrors.mirroring.queues.get(("/", name))
            for one in self.machines
            if one.ready
        ]
        return len(knowns) == len(self.machines) and all(
            known is not None and known.holding() is not None and known.is_current()
            for known in knowns
        )
