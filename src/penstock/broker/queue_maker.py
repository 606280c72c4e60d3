"""``QueueMaker``: a queue with its backing, not yet known to anybody.

In: what it is to be called and how it is kept.  Out: the queue, on the lists on which it asks for
turns and reports its deaths.
"""

from collections.abc import Callable
from typing import final

from penstock.backing.interface import BackingQueue
from penstock.queues.limits import Death
from penstock.queues.queue import Queue

BackingFactory = Callable[[int, bool, int, dict[str, object]], BackingQueue]
"""(queue id, durable, segment entries, arguments) -> the backing of a new queue."""


@final
class QueueMaker:
    """For one virtual host; ``segment_entries``: of its queues' index."""

    def __init__(
        self,
        vhost: str,
        segment_entries: int,
        make_backing: BackingFactory,
        wakeups: list[Queue],
        refills: list[Queue],
        deaths: list[Death],
    ) -> None:
        self._vhost = vhost
        self._segment_entries = segment_entries
        self._make_backing = make_backing
        self._wakeups = wakeups
        self._refills = refills
        self._deaths = deaths

    def make(
        self,
        queue_id: int,
        name: str,
        incarnation: str,
        durable: bool,
        kept: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> Queue:
        """``kept``: its messages are to be there after a restart."""
        backing = self._make_backing(queue_id, kept, self._segment_entries, arguments)
        queue = Queue(
            self._vhost,
            name,
            incarnation,
            durable,
            auto_delete,
            arguments,
            backing,
            self._wakeups,
            self._refills,
            self._deaths,
        )
        backing.set_reader(queue)
        return queue

    def room(self, queue_id: int, name: str, incarnation: str, kept: bool) -> Queue:
        """A waiting room."""
        return self.make(queue_id, name, incarnation, kept, kept, False, {})
