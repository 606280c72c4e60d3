"""Who reads which queue by ranges: ``RangeLeases``, one per node.

A queue has one owner at a time: AMQP consumers, or one reader of ranges.  The queue itself
knows the newest token and refuses consumers meanwhile; this table knows which connection
stands behind the token:

    free ──READ──► held ──connection lost──► orphaned ──── grace_ms ────► free
                    ▲ └──────CLOSE─────────────│───────────────────────► free
                    └──READ with its token─────┘      (READ without a token: a new token)

A READ on a held lease is refused unless it says ``force``; on an orphaned one it is granted,
because that is what a restarted pipeline does.  The old token is fenced off either way.  Leases of
durable queues outlive the node, as orphans.

**Unacknowledged deliveries** must be settled before a queue can be leased: one that returned
to a place the reader has already passed would be acknowledged without having been read.
"""

from typing import Final, final

from penstock.broker.broker import Broker
from penstock.broker.vhost import Vhost
from penstock.core.errors import BrokerError, ResourceLocked
from penstock.queues.queue import Queue
from penstock.storage.range_readers import RangeReaders

BLOCK_BYTES_AT_ONCE: Final = 2 * 1024 * 1024


class Fenced(BrokerError):
    """A newer reader owns the queue."""


class LeaseGone(BrokerError):
    """Nobody owns the queue any more; the reader may open it again."""


@final
class BlockBudget:
    """How many bytes all readers of a node together get, or have read, in one turn of the loop.

    Each block is read and made while everybody else waits, and there may be many readers.
    """

    def __init__(self) -> None:
        self._at_ms = -1
        self._left = 0

    def is_open(self, now_ms: int) -> bool:
        if now_ms != self._at_ms:
            self._at_ms = now_ms
            self._left = BLOCK_BYTES_AT_ONCE
        return self._left > 0

    def spend(self, size: int) -> None:
        self._left -= size


@final
class _Lease:
    """A queue's current token, and who stands behind it (None since ``orphaned_at_ms``)."""

    def __init__(self, vhost: Vhost, queue: Queue, token: int, owner: object) -> None:
        self.vhost = vhost
        self.queue = queue
        self.token = token
        self.owner: object | None = owner
        self.orphaned_at_ms = 0


@final
class RangeLeases:
    """Who reads which queue by ranges, and how far it has acknowledged; one per node."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._leases: dict[str, _Lease] = {}
        self.budget = BlockBudget()
        self._acked_below: dict[str, int] = {}
        self._starts: dict[str, tuple[str, int]] = {}  # of queues that do not outlive the node
        self._noted: dict[str, Queue] = {}  # of which these two know something

    def adopt(self, broker: Broker, now_ms: int) -> None:
        """The leases there were when the node ended, of queues that are there; once, at start."""
        for vhost_name, name, incarnation, token in RangeReaders(broker.definitions).tokens():
            vhost = broker.vhosts.get(vhost_name)
            queue = None if vhost is None else vhost.queues.get(name)
            if vhost is None or queue is None or queue.incarnation != incarnation:
                continue
            queue.open_range_lease(token)
            lease = _Lease(vhost, queue, token, None)
            lease.orphaned_at_ms = now_ms
            self._leases[incarnation] = lease

    def take(self, vhost: Vhost, queue: Queue, owner: object, token: int, force: bool) -> int:
        """The token under which ``owner`` now holds ``queue``; ``token`` renews an old one."""
        held = self._current(queue)
        if held is not None:
            if token == held.token:
                held.owner = owner
                return token
            if token != 0:
                raise Fenced(f"a newer reader has taken over {named(queue)}")
            if held.owner is not None and not force:
                raise ResourceLocked(f"{named(queue)} is being read by another pipeline")
        if queue.unacked_count > 0:
            raise ResourceLocked(
                f"{named(queue)} has {queue.unacked_count} unacknowledged deliveries: "
                "settle them before reading it by ranges"
            )
        token = queue.open_range_lease()
        self._leases[queue.incarnation] = _Lease(vhost, queue, token, owner)
        if queue.name in vhost.queue_ids:
            readers = RangeReaders(vhost.definitions)
            readers.put_token(vhost.name, queue.name, queue.incarnation, token)
        return token

    def require(self, queue: Queue, token: int) -> None:
        """Raises Fenced or LeaseGone unless ``token`` is the current one."""
        if queue.check_range_lease(token):
            return
        if self._current(queue) is not None:
            raise Fenced(f"a newer reader has taken over {named(queue)}")
        raise LeaseGone(f"{named(queue)} is not leased any more: open it again")

    def acked(self, queue: Queue, upto: int) -> None:
        if upto > self.acked_below(queue):
            self._acked_below[queue.incarnation] = upto
            self._noted[queue.incarnation] = queue

    def acked_below(self, queue: Queue) -> int:
        """Everything below was acknowledged by a reader since this node started."""
        return self._acked_below.get(queue.incarnation, 0)

    # -- where a reader begins -------------------------------------------------------------

    def start(self, vhost: Vhost, queue: Queue) -> tuple[str, int] | None:
        """(what it asked for, the position it got); None = it begins with what there is."""
        if queue.name not in vhost.queue_ids:
            return self._starts.get(queue.incarnation)
        return RangeReaders(vhost.definitions).start(vhost.name, queue.name, queue.incarnation)

    def store_start(self, vhost: Vhost, queue: Queue, request: str, seq_id: int) -> None:
        if queue.name not in vhost.queue_ids:
            self._starts[queue.incarnation] = (request, seq_id)
            self._noted[queue.incarnation] = queue
            return
        readers = RangeReaders(vhost.definitions)
        readers.put_start(vhost.name, queue.name, queue.incarnation, request, seq_id)

    def forget_start(self, vhost: Vhost, queue: Queue) -> None:
        if queue.name not in vhost.queue_ids:
            self._starts.pop(queue.incarnation, None)
            return
        RangeReaders(vhost.definitions).delete_start(vhost.name, queue.name)

    # -- the end of it ---------------------------------------------------------------------

    def release(self, owner: object) -> None:
        """The owner is done: consumers may have the queue again."""
        for incarnation, lease in list(self._leases.items()):
            if lease.owner is owner:
                self._end(incarnation, lease)

    def orphan(self, owner: object, now_ms: int) -> None:
        """The owner's connection broke: keep its place for a while."""
        for lease in self._leases.values():
            if lease.owner is owner:
                lease.owner = None
                lease.orphaned_at_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """End the leases nobody came back for, forget deleted queues; call about once a second."""
        for incarnation, queue in list(self._noted.items()):
            if queue.deleted:
                self.forget(incarnation)
        for incarnation, lease in list(self._leases.items()):
            if lease.owner is None and now_ms - lease.orphaned_at_ms >= self._grace_ms:
                self._end(incarnation, lease)

    def _end(self, incarnation: str, lease: _Lease) -> None:
        vhost, queue = lease.vhost, lease.queue
        del self._leases[incarnation]
        if queue.deleted or not queue.check_range_lease(lease.token):
            return  # the row went with the queue, or is about a newer token
        queue.close_range_lease(lease.token)
        if queue.name in vhost.queue_ids:
            RangeReaders(vhost.definitions).delete_token(vhost.name, queue.name)

    def forget(self, incarnation: str) -> None:
        """The queue was deleted."""
        self._leases.pop(incarnation, None)
        self._acked_below.pop(incarnation, None)
        self._starts.pop(incarnation, None)
        self._noted.pop(incarnation, None)

    def _current(self, queue: Queue) -> _Lease | None:
        held = self._leases.get(queue.incarnation)
        if held is not None and queue.check_range_lease(held.token):
            return held
        return None


def named(queue: Queue) -> str:
    """As it is called in what readers are told."""
    return f"queue '{queue.name}' in vhost '{queue.vhost}'"
