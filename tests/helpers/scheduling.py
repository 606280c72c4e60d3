"""How pytest-xdist spreads the tests over its workers with ``--dist loadfile``.

The tests of a file stay together, for they share a broker; a crash test has one of its own, and
goes alone.  Spark takes all the processor it gets, while most other tests wait: every third worker
begins with Spark's files, the others with the rest, so that both go on side by side to the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

ALONE = "tests/crash/"
SPARK = "tests/spark/"
WORKERS_PER_SPARK = 3


class SideBySide(LoadFileScheduling):
    """A unit of work is a file, or a crash test; ``workqueue`` has those that no worker has yet."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(ALONE) else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = int(node.gateway.id.removeprefix("gw")) % WORKERS_PER_SPARK == 0
        for unit in self.workqueue:
            if unit.startswith(SPARK) is wanted:
                self.workqueue.move_to_end(unit, last=False)
                break
        super()._assign_work_unit(node)
