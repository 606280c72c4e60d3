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

**Failover.**  A queue's next master is told of no leases.  The first who shows a token there had it
from an earlier master (``begun_elsewhere``), and gets a new one; the old one means the same
from then on (``_Lease.before``), because tasks that run know no other.  Among tokens of earlier
masters the highest is the newest reader's: a reader that comes later with a higher one takes over,
one with a lower token is fenced.  So only a newer reader fences a reader, in whatever order they
find the next master.

**Unacknowledged deliveries** must be settled before a queue can be leased: one that returned
to a place the reader has already passed would be acknowledged without having been read.
"""

from typing import Final, final

from penstock.broker.broker import Broker
from penstock.broker.topology.idleness import Idleness
from penstock.broker.topology.vhost import Vhost
from penstock.broker.transfers.deferred_trim import DeferredTrim
from penstock.core.clock_types import MonoMs
from penstock.core.errors import BrokerError, Corrupt, NoMaster, ResourceLocked, Unavailable
from penstock.core.turn_share import TurnShare
from penstock.protocols.ranges.groups import HOLD_BYTES, GroupBook
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.storage.definitions.range_readers import RangeReaders

TURN_BYTES: Final = 2 * 1024 * 1024
BESIDE_PUBLISHERS_BYTES: Final = 512 * 1024
"""All readers of a node together get, or have read, so much in a turn, or a millisecond."""


class Fenced(BrokerError):
    """A newer reader owns the queue."""


class LeaseGone(BrokerError):
    """The queue has no owner any more; the reader may open it again."""


@final
class _Lease:
    """A queue's current token, and its connection, the owner (None since ``orphaned_at_ms``)."""

    def __init__(
        self,
        vhost: Vhost,
        queue: LocalQueue,
        token: int,
        owner: object,
        now_ms: MonoMs,
        before: int = 0,
    ) -> None:
        self.vhost = vhost
        self.queue = queue
        self.token = token
        self.before = before  # as an earlier master called it; 0 = it began here
        self.owner: object | None = owner
        self.orphaned_at_ms = now_ms

    def pass_to(self, owner: object) -> None:
        self.owner = owner

    def orphan(self, now_ms: MonoMs) -> None:
        """Its connection broke."""
        self.owner = None
        self.orphaned_at_ms = now_ms

    def is_called(self, token: int) -> bool:
        return token == self.token or (token == self.before and token != 0)

    def is_older_than(self, token: int) -> bool:
        """Is ``token`` of an earlier master, and newer than the one this reader had there?"""
        return 0 < self.before < token and token != self.token


@final
class RangeLeases:
    """Who reads which queue by ranges, and how far it has acknowledged; one per node."""

    def __init__(
        self,
        grace_ms: int,
        letting_go: DeferredTrim,
        idleness: Idleness,
        hold_bytes: int = HOLD_BYTES,
    ) -> None:
        self.groups = GroupBook(hold_bytes, idleness)
        self._grace_ms = grace_ms
        self._letting_go = letting_go
        self._idleness = idleness  # of the same broker: the time by its clock
        self._leases: dict[str, _Lease] = {}
        self.share = TurnShare(TURN_BYTES, BESIDE_PUBLISHERS_BYTES)
        self._acked_below: dict[str, int] = {}
        self._starts: dict[str, tuple[str, int]] = {}  # of queues that do not outlive the node
        self._noted: dict[str, LocalQueue] = {}  # of which these two know something

    def adopt(self, broker: Broker) -> None:
        """The leases there were when the node ended, of queues that are there; once, at start."""
        self.groups.adopt(broker)
        for vhost_name, name, incarnation, token in RangeReaders(broker.definitions).tokens():
            vhost = broker.vhosts.get(vhost_name)
            queue = None if vhost is None else vhost.queues.get(name)
            if (
                vhost is None
                or not isinstance(queue, LocalQueue)
                or queue.incarnation != incarnation
            ):
                continue  # its master is asked meanwhile
            queue.ranges.open(token)
            self._leases[incarnation] = _Lease(vhost, queue, token, None, self._now_ms())

    def take(self, vhost: Vhost, queue: LocalQueue, owner: object, token: int, force: bool) -> int:
        """The token under which ``owner`` now holds ``queue``; ``token`` renews an old one."""
        held = self._current(queue)
        if held is not None:
            if held.is_called(token):
                held.pass_to(owner)
                return held.token
            if token != 0:
                if not held.is_older_than(token):
                    raise Fenced(f"a newer reader has taken over {named(queue)}")
            elif held.owner is not None and not force:
                raise ResourceLocked(f"{named(queue)} is being read by another pipeline")
        # A token of this node whose lease has ended means nothing any more.
        before = token if held is not None or queue.range_lease.begun_elsewhere else 0
        return self._open(vhost, queue, owner, before)

    def _open(self, vhost: Vhost, queue: LocalQueue, owner: object, before: int) -> int:
        if queue.unacked_count > 0:
            raise ResourceLocked(
                f"{named(queue)} has {queue.unacked_count} unacknowledged deliveries: "
                "settle them before reading it by ranges"
            )
        self._letting_go.finish(queue)  # a new reader finds what is left
        token = queue.ranges.open()
        self._leases[queue.incarnation] = _Lease(vhost, queue, token, owner, self._now_ms(), before)
        if queue.name in vhost.queue_ids:
            readers = RangeReaders(vhost.definitions)
            readers.put_token(vhost.name, queue.name, queue.incarnation, token)
        return token

    def join(self, vhost: Vhost, queue: LocalQueue, token: int) -> None:
        """As ``require``; but a queue that came here may have a task come before its reader."""
        held = self._current(queue)
        came_here = held is None and queue.range_lease.begun_elsewhere
        if came_here or (held is not None and held.is_older_than(token)):
            self._open(vhost, queue, None, token)
        self.require(queue, token)

    def require(self, queue: Queue, token: int) -> None:
        """Raises Fenced or LeaseGone unless ``token`` is the current one."""
        held = self._current(queue)
        if held is None:
            raise LeaseGone(f"{named(queue)} is not leased any more: open it again")
        if not held.is_called(token):
            raise Fenced(f"a newer reader has taken over {named(queue)}")

    def acked(self, queue: LocalQueue, upto: int) -> None:
        if upto > self.acked_below(queue):
            self._acked_below[queue.incarnation] = upto
            self._noted[queue.incarnation] = queue

    def acked_below(self, queue: Queue) -> int:
        """Everything below was acknowledged by a reader since this node started."""
        return self._acked_below.get(queue.incarnation, 0)

    # -- where a reader begins -------------------------------------------------------------

    def start(self, vhost: Vhost, queue: LocalQueue) -> tuple[str, int] | None:
        """(what it asked for, the position it got); None = it begins with what there is.

        Raises Unavailable when that cannot be read.
        """
        if queue.name not in vhost.queue_ids:
            return self._starts.get(queue.incarnation)
        try:
            return RangeReaders(vhost.definitions).start(vhost.name, queue.name, queue.incarnation)
        except (OSError, Corrupt) as error:
            raise Unavailable(f"where {named(queue)} is read from is unknown: {error}") from error

    def store_start(self, vhost: Vhost, queue: LocalQueue, request: str, seq_id: int) -> None:
        if queue.name not in vhost.queue_ids:
            self._starts[queue.incarnation] = (request, seq_id)
            self._noted[queue.incarnation] = queue
            return
        readers = RangeReaders(vhost.definitions)
        readers.put_start(vhost.name, queue.name, queue.incarnation, request, seq_id)

    def forget_start(self, vhost: Vhost, queue: LocalQueue) -> None:
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

    def orphan(self, owner: object) -> None:
        """The owner's connection broke: keep its place for a while."""
        for lease in self._leases.values():
            if lease.owner is owner:
                lease.orphan(self._now_ms())

    def tick(self) -> None:
        """End leases whose reader did not return, forget deleted queues; once a second."""
        for queue in list(self._noted.values()):
            if queue.deleted:
                self.forget(queue)
        self.groups.tick()
        now_ms = self._now_ms()
        for incarnation, lease in list(self._leases.items()):
            if lease.owner is None and now_ms - lease.orphaned_at_ms >= self._grace_ms:
                self._end(incarnation, lease)

    def _end(self, incarnation: str, lease: _Lease) -> None:
        vhost, queue = lease.vhost, lease.queue
        del self._leases[incarnation]
        if queue.deleted or not queue.ranges.is_current(lease.token):
            return  # the row went with the queue, or is about a newer token
        self._letting_go.finish(queue)  # consumers get what was not acknowledged
        queue.ranges.close(lease.token)
        if queue.name in vhost.queue_ids:
            RangeReaders(vhost.definitions).delete_token(vhost.name, queue.name)

    def forget(self, queue: Queue) -> None:
        """It was deleted, or its master has moved: then another may be here in its place."""
        incarnation = queue.incarnation
        lease = self._leases.get(incarnation)
        if lease is not None and lease.queue is queue:
            del self._leases[incarnation]
        if self._noted.get(incarnation) is queue:
            del self._noted[incarnation]
            self._acked_below.pop(incarnation, None)
            self._starts.pop(incarnation, None)

    def _now_ms(self) -> MonoMs:
        return self._idleness.now_ms

    def _current(self, queue: Queue) -> _Lease | None:
        held = self._leases.get(queue.incarnation)
        if held is not None and held.queue is queue and held.queue.ranges.is_current(held.token):
            return held
        return None


def check_moved(vhost: Vhost, queue: Queue) -> None:
    """It counts as deleted here; raises QueueElsewhere if only its master has moved."""
    successor = vhost.queues.get(queue.name)
    if successor is not None and successor.incarnation == queue.incarnation:
        successor.backing.positions()  # raises where it is
        raise NoMaster(f"{named(queue)} has got another master: open it again")


def named(queue: Queue) -> str:
    """As it is called in what readers are told."""
    return f"queue '{queue.name}' in vhost '{queue.vhost}'"
