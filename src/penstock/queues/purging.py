"""``Purge``: a purge of more messages than one turn of the loop can drop, in shares of turns."""

from collections.abc import Callable
from typing import final

from penstock.core.long_work import AT_ONCE, DELIVERY_STEPS, LongWork
from penstock.core.steps import steps
from penstock.queues.queue import Queue


@final
class Purge(LongWork):
    """Of a queue with many ready messages: ``drop_rest`` ends it, when few are left."""

    def __init__(self, queue: Queue, drop_rest: Callable[[], int]) -> None:
        self._queue = queue
        self._drop_rest = drop_rest
        self._count: int = 0
        queue.hold(True)

    def count(self) -> int:
        """How many went."""
        return self._count

    def step(self) -> bool:
        queue = self._queue
        steps.count(AT_ONCE * DELIVERY_STEPS)
        if not queue.deleted:
            dropped = int(queue.backing.purge_step(AT_ONCE))
            self._count += dropped
            if dropped > 0 and queue.backing.ready_count() > AT_ONCE:
                return True
            self._count += self._drop_rest()
        queue.hold(False)
        return False
