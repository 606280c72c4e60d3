"""``QueueMaker``: a queue with its backing, not yet in a virtual host.

In: its identity and how it is kept.  Out: the queue, on the lists on which it asks for turns and
reports its deaths (``QueueContext``).
"""

from collections.abc import Callable
from typing import final

from penstock.backing.interface import BackingQueue
from penstock.core.long_work import Freeing, LongWork
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueContext, QueueIdentity, queue_type
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.stream import StreamQueue
from penstock.queues.stream_backing import StreamBacking

BackingFactory = Callable[[int, bool, int, dict[str, object]], BackingQueue]
"""(queue id, durable, segment entries, arguments) -> the backing of a new queue."""
IncarnationSource = Callable[[], str]
"""Names that no queue ever had before (random numbers come from outside)."""


@final
class QueueMaker:
    """For one virtual host; ``segment_entries``: of its queues' index."""

    def __init__(
        self, vhost: str, segment_entries: int, make_backing: BackingFactory, context: QueueContext
    ) -> None:
        self._vhost = vhost
        self._segment_entries = segment_entries
        self._make_backing = make_backing
        self._context = context

    def make(self, queue_id: int, kept: bool, identity: QueueIdentity) -> Queue:
        """``kept``: its messages are to be there after a restart."""
        backing = self.backing(queue_id, kept, identity.arguments)
        queue = self.over(backing, identity)
        shape = queue.durable, queue.auto_delete, queue_type(queue.arguments)
        self._note("queue_declared", (self._vhost, queue.name, *shape))
        return queue

    def backing(self, queue_id: int, kept: bool, arguments: dict[str, object]) -> BackingQueue:
        return self._make_backing(queue_id, kept, self._segment_entries, arguments)

    def over(self, backing: BackingQueue, identity: QueueIdentity) -> Queue:
        """A queue whose messages are there already."""
        if isinstance(backing, StreamBacking):
            return StreamQueue(identity, backing, self._context)
        return LocalQueue(identity, backing, self._context)

    def end(self, queue: Queue) -> list[Consumer]:
        """The queue, with everything in it; returns the consumers who lost it."""
        self._note("queue_deleted", (self._vhost, queue.name))
        return queue.end()

    def free(self, backing: BackingQueue) -> None:
        """Its messages go, on disk too."""
        self.start(Freeing(backing.delete()))

    def start(self, work: LongWork) -> None:
        self._context.long_works.start(work)

    def internal(
        self, queue_id: int, name: str, incarnation: str, kept: bool, delivers: bool
    ) -> LocalQueue:
        """An internal queue; without deliveries it has no turns, and what it drops is no death."""
        identity = QueueIdentity(self._vhost, name, incarnation, kept, False, {})
        context = self._context
        if not delivers:
            context = QueueContext(
                context.waits, context.book, context.sampling, context.long_works
            )
        return LocalQueue(identity, self.backing(queue_id, kept, {}), context)

    def _note(self, what: str, facts: tuple[object, ...]) -> None:
        self._context.sampling.book.note(what, facts)
