"""Copies of mirrored queues: their messages on this node's disk, while their masters are elsewhere.

    open        new and empty                            ─┐
    recover     found at a start, ``adopt`` its messages ─┼─► a copy: a backing, for a ``Replica``
    from_queue  its master has gone elsewhere            ─┘
    to_queue    its master comes here: a ``Queue`` over the same backing
    drop        it is gone, with everything in it

In the definitions a copy is a durable queue whose name begins with ``amq.mirror.``, with the
incarnation, arguments and ids of the queue's own backing.  So a start finds it like any other, the
journal and the stores know it by its ids, and no client can see, declare or bind it.  Whether the
messages under an id are a copy or a queue is this name alone, and changing it is one change of the
turn's transaction: a crash finds the one or the other, with the same messages.

**Bindings** of a queue are in this node's definitions only while it is here.  With the queue's
name they are deleted, for the next start would look for where they lead; who becomes a queue
again brings with it those that lead to the one it replaces.

**What was handed out** by a queue that becomes a copy is back at its place: settled or not, it is
the next master's.  The queue counts as deleted from then on, so what still refers to it only
lets go of his window, and what was to be acknowledged when it is safe elsewhere is not.

Not here: what is in a copy and what is missing (cluster/mirrors/replica.py), who is the master,
and the queue's place among the others (cluster/remote/queue_places.py).

Invariants (``check``):
  X1  no name has both a copy and a queue with its messages here
  X2  a copy is known by the name of its queue, and has as many ids as that
  X3  nothing of a copy is handed out, and no consumer waits for what is read of it
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from penstock.backing.factory import adopt_parts, look_at_heads
from penstock.backing.interface import BackingQueue
from penstock.broker.topology.queue_maker import QueueMaker
from penstock.core.clock_types import WallMs
from penstock.queues.context import QueueIdentity
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.stream_backing import StreamBacking
from penstock.storage.definitions.records import BindingRecord, QueueRecord, id_count, part_count
from penstock.storage.engine.recovery import FoundQueue

if TYPE_CHECKING:
    from penstock.broker.topology.vhost import Vhost

PREFIX: Final = "amq.mirror."


def is_copy(name: str) -> bool:
    """Of a record of a durable queue."""
    return name.startswith(PREFIX)


@final
class Copy:
    """Of the queue ``name``; ``recovered``: as the start found it, until it is used."""

    def __init__(
        self,
        name: str,
        incarnation: str,
        queue_id: int,
        backing: BackingQueue,
        recovered: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        self.name: str = name
        self.incarnation: str = incarnation
        self.queue_id: int = queue_id
        self.backing: BackingQueue = backing
        self.recovered: bool = recovered
        self.auto_delete: bool = auto_delete
        self.arguments: dict[str, object] = arguments

    def use(self) -> BackingQueue:
        """It is a mirror or a master from now on, and no more as the start found it."""
        self.recovered = False
        return self.backing


@final
class MirrorCopies:
    """Those of one virtual host, by the names of their queues."""

    def __init__(self, vhost: "Vhost", maker: QueueMaker) -> None:
        self.copies: dict[str, Copy] = {}
        self._vhost = vhost
        self._maker = maker
        self._range_lease: i64 = 0  # the newest token of those who were queues

    def backings(self) -> list[BackingQueue]:
        return [copy.backing for copy in self.copies.values()]

    def find(self, name: str, incarnation: str) -> Copy | None:
        """The copy of that very queue."""
        copy = self.copies.get(name)
        return copy if copy is not None and copy.incarnation == incarnation else None

    # -- coming ----------------------------------------------------------------------------

    def open(
        self, name: str, incarnation: str, auto_delete: bool, arguments: dict[str, object]
    ) -> Copy:
        """A new one without messages; takes the place of one that was there."""
        assert name not in self._vhost.queue_ids, "X1"
        self.drop(name)
        definitions = self._vhost.definitions
        queue_id = definitions.next_queue_id(id_count(arguments))
        who = (queue_id, incarnation, self._vhost.name, PREFIX + name)
        record = QueueRecord(*who, auto_delete, arguments, user=self._user_of(name))
        definitions.put_queue(record)
        return self._enter(record, False)

    def recover(self, record: QueueRecord) -> Copy:
        """``adopt`` comes later, when the disk has been read."""
        return self._enter(record, True)

    def adopt(self, record: QueueRecord, found: dict[int, FoundQueue]) -> None:
        adopt_parts(self.copies[_queue_name(record)].backing, found)

    def _enter(self, record: QueueRecord, recovered: bool) -> Copy:
        name = _queue_name(record)
        copy = Copy(
            name,
            record.incarnation,
            record.queue_id,
            self._maker.backing(record.queue_id, True, record.arguments),
            recovered,
            record.auto_delete,
            record.arguments,
        )
        self.copies[name] = copy
        self.apply_policy(copy)
        return copy

    def apply_policy(self, copy: Copy) -> None:
        """A policy says where messages rest, and how much a stream keeps."""
        settings = self._vhost.policies.queue_settings(copy.name, copy.arguments)
        copy.backing.set_mode(settings.queue_mode == "lazy")
        if settings.stream is not None and isinstance(copy.backing, StreamBacking):
            copy.backing.log.set_limits(settings.stream)

    # -- going -----------------------------------------------------------------------------

    def drop(self, name: str) -> None:
        """What is not there need not be dropped."""
        copy = self.copies.pop(name, None)
        if copy is not None:
            self._maker.free(copy.backing)
            self._vhost.definitions.delete_queue(self._vhost.name, PREFIX + name)

    def forget(self, queue: Queue) -> None:
        """This queue is deleted, wherever its master was."""
        if self.find(queue.name, queue.incarnation) is not None:
            self.drop(queue.name)

    def drop_all_but(self, incarnations: dict[str, str]) -> list[str]:
        """``incarnations``: of the queues there are, by their names; returns whose copies went."""
        gone = [
            copy.name
            for copy in self.copies.values()
            if incarnations.get(copy.name) != copy.incarnation
        ]
        for name in gone:
            self.drop(name)
        return gone

    def drop_some(self, at_most: int) -> bool:
        """False = there were none."""
        names = list(self.copies)[:at_most]
        for name in names:
            self.drop(name)
        return len(names) > 0

    # -- another role ----------------------------------------------------------------------

    def to_queue(self, name: str, now_ms: WallMs) -> Queue:
        """``begin_term`` has made a master's backing of it; the queue still has to be entered."""
        vhost = self._vhost
        copy = self.copies.pop(name)
        vhost.definitions.rename_queue(vhost.name, PREFIX + name, name)
        vhost.queue_ids[name] = copy.queue_id
        who = (vhost.name, name, copy.incarnation)
        user = self._user_of(name)
        identity = QueueIdentity(*who, True, copy.auto_delete, copy.arguments, user)
        queue = self._maker.over(copy.backing, identity)
        vhost.apply_settings(queue)
        if isinstance(queue, LocalQueue):
            # Newer than any here, and than those of other nodes as far as their clocks go.
            token = now_ms if now_ms > self._range_lease else self._range_lease
            queue.range_lease.begin(token, elsewhere=True)
            queue.defer_what_is_delayed()
        look_at_heads(copy.backing)
        replaced = vhost.queues.get(name)
        if replaced is not None:
            if replaced.paused:
                queue.set_paused(True)
            self._keep_bindings(replaced)
        vhost.definitions.pause_queue(vhost.name, name, queue.paused)
        return queue

    def _user_of(self, name: str) -> str:
        queue = self._vhost.queues.get(name)
        return "" if queue is None else queue.user

    def _keep_bindings(self, queue: Queue) -> None:
        """Those that lead to it were none of this node's definitions."""
        vhost = self._vhost
        for exchange in vhost.sources.of(queue):
            if not exchange.durable:
                continue
            for one in exchange.bindings_to(queue):
                ends = (vhost.name, exchange.name, queue.name)
                vhost.definitions.put_binding(
                    BindingRecord(*ends, "queue", one.routing_key, one.arguments)
                )

    def from_queue(self, queue: Queue) -> Copy:
        """The queue that is entered in its place tells its consumers."""
        vhost, name = self._vhost, queue.name
        vhost.definitions.rename_queue(vhost.name, name, PREFIX + name)
        copy = Copy(
            name,
            queue.incarnation,
            vhost.queue_ids.pop(name),
            queue.backing,
            _is_as_found(queue.backing),
            queue.auto_delete,
            queue.arguments,
        )
        if isinstance(queue, LocalQueue) and queue.range_lease.token > self._range_lease:
            self._range_lease = queue.range_lease.token
        queue.hand_over()
        for part in copy.backing.parts():
            assert part.records.notes is None, "its mirrors are still told of it"
            part.replica.take_all_back()
        copy.backing.set_reader(None)
        keys = copy.backing.keys()
        if keys is not None:
            keys.forget_keys()  # its next master finds them again
        self.copies[name] = copy
        return copy

    def check(self) -> None:
        """Assert X1 to X3, and what each backing promises."""
        for name, copy in self.copies.items():
            assert name not in self._vhost.queue_ids, "X1"
            parts = copy.backing.parts()
            assert name == copy.name, "X2"
            is_stream = isinstance(copy.backing, StreamBacking)
            assert len(parts) == (0 if is_stream else part_count(copy.arguments)), "X2"
            for place in range(len(parts)):
                part = parts[place]
                assert part.queue_id == copy.queue_id + place, "X2"
                assert part.tiers.pending.count == 0, "X3"
                assert part.reader is None, "X3"
                part.check()


def _queue_name(record: QueueRecord) -> str:
    return record.name.removeprefix(PREFIX)


def _is_as_found(backing: BackingQueue) -> bool:
    for part in backing.parts():  # noqa: SIM110 - a generator costs more than the loop
        if not part.replica.is_as_found():
            return False
    return True
