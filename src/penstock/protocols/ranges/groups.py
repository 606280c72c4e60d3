"""``GroupBook``: the groups that read streams by ranges, and how far they are; one per node.

In: where a group begins (START) and what its query has committed (ACK).  Out: the same position
for the same request until something beyond it is committed, after a restart of the node too.

A stream needs no lease: an offset means the same message for all readers, as long as retention
has left it.  So any number of groups reads at once, and two queries under one name are both right;
they share what is held back for it.

A commit is on disk after some ``STORE_EVERY_MS``: an older position holds more, not less.
"""

from typing import Final, final

from penstock.broker.broker import Broker
from penstock.broker.topology.idleness import Idleness
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import MonoMs
from penstock.core.errors import PreconditionFailed
from penstock.queues.stream import StreamQueue
from penstock.storage.definitions.range_readers import GROUP_MARK, RangeReaders

NAME_BYTES_MAX: Final = 255
STORE_EVERY_MS: Final = 5000
HOLD_BYTES: Final = 1 << 30
"""The default of the setting ``stream_hold_max_bytes``."""


def check_group(name: str) -> None:
    """Raises PreconditionFailed when no group of a stream may be called so."""
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX or GROUP_MARK in name:
        raise PreconditionFailed(
            f"a group of a stream has a name of 1 to {NAME_BYTES_MAX} bytes in one line"
        )


@final
class GroupBook:
    """See the head of this file; ``idleness``: the time by the broker's clock."""

    def __init__(self, hold_bytes: int, idleness: Idleness) -> None:
        self._hold_bytes = hold_bytes
        self._idleness = idleness
        self._streams: dict[str, tuple[Vhost, StreamQueue]] = {}  # with groups, by incarnation
        self._unstored: set[tuple[str, str]] = set()  # (incarnation, group) whose position moved
        self._stored_ms = MonoMs(0)

    def adopt(self, broker: Broker) -> None:
        """The groups there were when the node ended, of streams that are there; once, at start."""
        readers = RangeReaders(broker.definitions)
        for row in readers.groups():
            vhost = broker.vhosts.get(row.vhost)
            queue = None if vhost is None else vhost.queues.get(row.queue)
            if (
                vhost is not None
                and isinstance(queue, StreamQueue)
                and queue.incarnation == row.incarnation
            ):
                self._take(vhost, queue, row.group, row.position, row.request)
            elif vhost is None or GROUP_MARK.join((row.queue, row.group)) not in vhost.queues:
                readers.delete_start(row.vhost, GROUP_MARK.join((row.queue, row.group)))

    def position(self, queue: StreamQueue, name: str) -> int:
        """What is next for the group; -1 = it is not known."""
        group = queue.groups.by_name.get(name)
        return -1 if group is None else int(group.position)

    def start(self, vhost: Vhost, queue: StreamQueue, name: str, request: str, offset: int) -> int:
        """``offset``, or what the same request got the first time; "" forgets the group."""
        group = queue.groups.by_name.get(name)
        if request == "":
            if group is not None:
                self._delete(vhost, queue, queue.groups.drop(name))
        elif group is not None and group.request == request:
            return int(group.position)
        else:
            self._put(vhost, queue, name, offset, request)
        return offset

    def move(self, vhost: Vhost, queue: StreamQueue, name: str, upto: int) -> None:
        """All below is committed."""
        group = queue.groups.by_name.get(name)
        if group is None:
            self._put(vhost, queue, name, upto, "")
        elif group.request == "" and upto != group.position:
            self._take(vhost, queue, name, upto, "")
            self._unstored.add((queue.incarnation, name))
        elif upto > group.position:
            self._put(vhost, queue, name, upto, "")
        else:  # nothing new; but it was heard of
            self._take(vhost, queue, name, int(group.position), group.request)

    def tick(self) -> None:
        """Forget deleted streams, and groups of which nothing was heard; store what has moved."""
        now_ms = self._now_ms()
        for incarnation, (vhost, queue) in list(self._streams.items()):
            if queue.deleted:
                del self._streams[incarnation]
            else:
                self._delete(vhost, queue, queue.groups.forget_idle(now_ms))
        if self._unstored and now_ms - self._stored_ms >= STORE_EVERY_MS:
            self._stored_ms = now_ms
            for incarnation, name in self._unstored:
                if incarnation in self._streams:
                    self._store(*self._streams[incarnation], name)
            self._unstored.clear()

    # -- helpers ---------------------------------------------------------------------------

    def _put(self, vhost: Vhost, queue: StreamQueue, name: str, at: int, request: str) -> None:
        self._take(vhost, queue, name, at, request)
        self._store(vhost, queue, name)

    def _store(self, vhost: Vhost, queue: StreamQueue, name: str) -> None:
        group = queue.groups.by_name.get(name)
        if group is not None:
            row = GROUP_MARK.join((queue.name, name))
            given = (row, queue.incarnation, group.request, int(group.position))
            RangeReaders(vhost.definitions).put_start(vhost.name, *given)

    def _take(self, vhost: Vhost, queue: StreamQueue, name: str, at: int, request: str) -> None:
        self._streams[queue.incarnation] = vhost, queue
        groups = queue.groups
        groups.allow(self._hold_bytes)
        self._delete(vhost, queue, groups.put(name, at, request, self._now_ms()))
        queue.wake()  # retention may go on

    def _delete(self, vhost: Vhost, queue: StreamQueue, names: list[str]) -> None:
        for name in names:
            self._unstored.discard((queue.incarnation, name))
            row = GROUP_MARK.join((queue.name, name))
            RangeReaders(vhost.definitions).delete_start(vhost.name, row)

    def _now_ms(self) -> MonoMs:
        return self._idleness.now_ms
