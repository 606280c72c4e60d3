"""``QueueMaker``: a queue with its backing, not yet known to anybody.

In: what it is to be called and how it is kept.  Out: the queue, on the lists on which it asks for
turns and reports its deaths.
"""

from collections.abc import Callable
from typing import final

from penstock.backing.interface import BackingQueue
from penstock.core.event_book import EventBook
from penstock.core.traffic import DropCounters
from penstock.queues.consumers import Consumer
from penstock.queues.limits import DeadLetterBatch
from penstock.queues.queue import Queue
from penstock.queues.sampling import Sampler, Sampling

BackingFactory = Callable[[int, bool, int, dict[str, object]], BackingQueue]
"""(queue id, durable, segment entries, arguments) -> the backing of a new queue."""
IncarnationSource = Callable[[], str]
"""Names that no queue ever had before (dice live in noisy rooms)."""


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
        deaths: list[DeadLetterBatch],
        sampling: Sampling,
    ) -> None:
        self._vhost = vhost
        self._segment_entries = segment_entries
        self._make_backing = make_backing
        self._wakeups = wakeups
        self._refills = refills
        self._deaths = deaths
        self._sampling = sampling
        self._events: EventBook = sampling.book
        self.fates = DropCounters()  # the node's

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
        queue = self._make(queue_id, name, incarnation, durable, kept, auto_delete, arguments)
        self._events.note("queue_declared", (self._vhost, name, durable))
        return queue

    def _make(
        self,
        queue_id: int,
        name: str,
        incarnation: str,
        durable: bool,
        kept: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> Queue:
        backing = self.backing(queue_id, kept, arguments)
        return self.over(backing, name, incarnation, durable, auto_delete, arguments)

    def backing(self, queue_id: int, kept: bool, arguments: dict[str, object]) -> BackingQueue:
        return self._make_backing(queue_id, kept, self._segment_entries, arguments)

    def over(
        self,
        backing: BackingQueue,
        name: str,
        incarnation: str,
        durable: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> Queue:
        """A queue whose messages are there already."""
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
        queue.fates = self.fates
        self.sample(queue)
        return queue

    def sample(self, queue: Queue) -> None:
        """Its messages' times are of interest, if somebody listens."""
        if self._events.directory != "":
            queue.sampler = Sampler(self._sampling, self._vhost, queue.name)

    def end(self, queue: Queue) -> list[Consumer]:
        """The queue, with everything in it; returns the consumers who lost it."""
        self._events.note("queue_deleted", (self._vhost, queue.name))
        return queue.end()

    def room(self, queue_id: int, name: str, incarnation: str, kept: bool) -> Queue:
        """A waiting room."""
        return self._make(queue_id, name, incarnation, kept, kept, False, {})
