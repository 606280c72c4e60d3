"""Reading a queue or stream: the requests of ``penstock_ranges.ranges``, answered by its source.

A WAIT is answered early when another request follows it.  One request has bounds
(``PLAN_*``, ``BLOCK_*``, ``CHOSEN_*``), and so has what all readers get, or have read from the
disk, in one turn (``TurnShare``), so they do not keep the loop for more than a few milliseconds.
"""

from typing import TYPE_CHECKING, ClassVar, Final, final

from penstock.broker.broker import Broker
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import MonoMs
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.protocols.ranges.groups import check_group
from penstock.protocols.ranges.leases import (
    BESIDE_PUBLISHERS_BYTES,
    RangeLeases,
    check_moved,
    named,
)
from penstock.protocols.ranges.request_handler import RequestHandler
from penstock.protocols.ranges.sources import BlockBounds, RangeSource, source_of
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.refusals import check_going
from penstock.queues.stream import StreamQueue
from penstock_ranges import ranges
from penstock_ranges.frames import MalformedFrame

if TYPE_CHECKING:
    from penstock.protocols.ranges.session import RangeSession

BLOCK_MESSAGES_MAX: Final = 8192
BLOCK_BYTES_MAX: Final = 1024 * 1024
"""A block is read and made while everybody else waits: some milliseconds, on a slow disk more."""
ACK_POSITIONS_AT_ONCE: Final = 8192
CHOSEN_READS_AT_ONCE: Final = 8
"""Chosen messages may lie far apart: so many blocks of segments are read in one turn."""
PLAN_MESSAGES_MAX: Final = 65_536
PLAN_BYTES_MAX: Final = 1 << 40


@final
class ReadRequests(RequestHandler):
    """One queue, once it is open; ``group`` reads it, if it is a stream."""

    kinds: ClassVar = frozenset(
        (
            *(ranges.OPEN, ranges.GROUP, ranges.WAIT, ranges.PLAN, ranges.RANGE),
            *(ranges.ACK, ranges.ACK_SOME, ranges.CLOSE),
        )
    )
    logs_in: ClassVar = frozenset((ranges.OPEN,))

    def __init__(self, session: "RangeSession", broker: Broker, leases: RangeLeases) -> None:
        super().__init__(session, broker)
        self._leases = leases
        self._vhost: Vhost | None = None
        self._queue: Queue | None = None
        self._source: RangeSource | None = None  # of that queue
        self.mode = ranges.BROWSE
        self.group = ""
        self._token = 0
        self._wait: tuple[int, MonoMs] | None = None  # (from, deadline_ms)
        self._put_off: tuple[int, bytes] | None = None  # what waits for its turn
        self._acking: tuple[int, int] | None = None  # (upto, how many went so far)
        self._choosing: tuple[list[int], int] | None = None  # (what is left, as above)
        self._closing: bool = False  # when what was acknowledged has gone

    @property
    def busy(self) -> bool:
        acking = self._acking is not None or self._choosing is not None
        return self._wait is not None or self._put_off is not None or acking or self._closing

    def request(self, kind: int, payload: bytes) -> None:
        if kind == ranges.OPEN:
            self._open(ranges.decode_open(payload))
        elif kind == ranges.GROUP:
            self._join_group(ranges.decode_group(payload))
        elif kind == ranges.WAIT:
            self._start_waiting(payload)
        elif kind in (ranges.PLAN, ranges.RANGE):
            self._look(kind, payload)
        elif kind == ranges.ACK:
            self._ack(payload)
        elif kind == ranges.ACK_SOME:
            self._ack_some(payload)
        else:
            self._close()

    def hurry(self) -> None:
        if self._wait is not None:
            self._wait = (self._wait[0], MonoMs(0))
            self._look_for_messages()

    def tick(self) -> None:
        if self._wait is not None:
            self._look_for_messages()
        put_off, self._put_off = self._put_off, None
        if put_off is not None:
            self._look(*put_off)
        if self._acking is not None:
            self._go_on_acking()
        if self._choosing is not None:
            self._go_on_choosing()
        if self._closing:
            self._close()

    def rights_changed(self) -> None:
        super().rights_changed()
        if self._queue is not None:
            Rights(self.user(), self.vhost().name).read("queue", self._queue.name)

    def failed(self) -> None:
        self._leases.release(self.session)
        self._wait = None
        self._put_off = None
        self._acking = None
        self._choosing = None

    def lost(self) -> None:
        self._leases.orphan(self.session)

    def _open(self, request: ranges.OpenRequest) -> None:
        if self._queue is not None:
            raise MalformedFrame("this connection has opened its queue already")
        user, vhost = self.session.log_in(request.user, request.password, request.vhost)
        Rights(user, vhost.name).read("queue", request.queue)
        queue = vhost.queue(request.queue)
        queue.check_owner(self.session)
        self._source = source_of(queue)
        if request.mode != ranges.BROWSE:
            if not isinstance(queue, LocalQueue):
                raise PreconditionFailed(
                    f"{named(queue)} is a stream: it is read under the name of a group, not leased"
                )
            self._take_lease(vhost, queue, request)
        self.mode = request.mode
        self._vhost = vhost
        self._queue = queue
        vhost.touch(queue)
        opened = ranges.encode_opened(queue.incarnation, self._head(queue), self._token)
        self.session.send(opened)

    def _take_lease(self, vhost: Vhost, queue: LocalQueue, request: ranges.OpenRequest) -> None:
        token = request.token
        if request.mode == ranges.READ:
            token = self._leases.take(vhost, queue, self.session, token, request.force)
        else:
            self._leases.join(vhost, queue, token)
        self._token = token

    def _join_group(self, name: str) -> None:
        queue = self.opened()[1]
        if not isinstance(queue, StreamQueue):
            raise PreconditionFailed(f"{named(queue)} is no stream, so it has no groups")
        check_group(name)
        self.group = name
        self.session.send(ranges.encode_grouped(self._leases.groups.position(queue, name)))

    def _start_waiting(self, payload: bytes) -> None:
        start, timeout_ms = ranges.decode_wait(payload)
        self._wait = (start, MonoMs(self.session.mono_ms + timeout_ms))
        self._look_for_messages()

    def _look_for_messages(self) -> None:
        assert self._wait is not None
        start, deadline_ms = self._wait
        queue = self.opened()[1]
        if self.source().end() <= start and self.session.mono_ms < deadline_ms:
            return
        self._wait = None
        self.session.send(ranges.encode_head(self._head(queue)))

    def _look(self, kind: int, payload: bytes) -> None:
        """What may read the disk: when its turn has come."""
        queue = self.opened()[1]
        if self._share_left() <= 0:
            self._put_off = (kind, payload)
            queue.wake()  # so that the loop comes back at once
        elif kind == ranges.PLAN:
            self._plan(payload)
        else:
            self._range(payload)

    def _plan(self, payload: bytes) -> None:
        """Say where a slice of so many messages or bytes ends.

        One look has the bounds of PLAN_*; ``more`` tells the reader to ask on from ``end``.
        At least one message is planned, even if it alone is over ``max_bytes``.
        """
        start, end, max_messages, max_bytes = ranges.decode_plan(payload)
        if max_messages < 1 or max_bytes < 1:
            raise MalformedFrame("PLAN for no messages at all")
        count_bound = min(max_messages, PLAN_MESSAGES_MAX)
        byte_bound = min(max_bytes, PLAN_BYTES_MAX)
        source = self.source()
        found = source.measure(start, end, count_bound, byte_bound)
        self._leases.share.spend(source.take_looked_bytes())
        count = int(found.count)
        size = int(found.size)
        planned = int(found.upto) if count or found.more else start
        more = found.more or (count > 0 and planned < end and count < max_messages)
        self.session.send(ranges.encode_planned(planned, count, size, more and size < max_bytes))

    def _range(self, payload: bytes) -> None:
        start, end, max_bytes, with_body = ranges.decode_range(payload)
        source = self.source()
        most_bytes = BESIDE_PUBLISHERS_BYTES if source.publishers_wait() else BLOCK_BYTES_MAX
        most = BlockBounds(BLOCK_MESSAGES_MAX, min(max_bytes, most_bytes))
        block = source.block(start, end, most, with_body)
        if block is None:
            self._put_off = (ranges.RANGE, payload)  # what is read wakes the queue
            return
        self._leases.share.spend(max(len(block), source.take_looked_bytes()))
        self.session.send(block)

    def _ack(self, payload: bytes) -> None:
        upto, later = ranges.decode_ack(payload)
        vhost, read = self.opened()
        if upto > self.source().next():
            raise MalformedFrame(f"ACK up to {upto}, which does not exist yet")
        if isinstance(read, StreamQueue) and self.group != "":
            self._leases.groups.move(vhost, read, self.group, upto)
            self.session.send(ranges.encode_acked(0))
            return
        queue = self.owned_queue()
        start = self._leases.start(vhost, queue)
        if start is not None:
            if upto <= start[1]:  # what the start position skips stays until the reader is beyond
                self.session.send(ranges.encode_acked(0))
                return
            self._leases.forget_start(vhost, queue)
        if later:
            self.broker.letting_go.add(queue, upto)
            self._leases.acked(queue, upto)
            queue.wake()  # as above
            self.session.send(ranges.encode_acked(0))
            return
        self._acking = (upto, 0)
        self._go_on_acking()

    def _go_on_acking(self) -> None:
        """A slice; who is killed in between finds the rest still there, and acknowledges again."""
        assert self._acking is not None
        upto, count = self._acking
        self._acking = None
        queue = self.owned_queue()
        before = int(queue.backing.positions().tiers.floor_seq_id())
        count += queue.ranges.drop_step(upto, ACK_POSITIONS_AT_ONCE)
        if before < queue.backing.positions().tiers.floor_seq_id() < upto:
            self._acking = (upto, count)
            queue.wake()  # as above
            return
        _check_gone(queue, upto)
        self._leases.acked(queue, upto)
        self.session.send(ranges.encode_acked(count))

    def _ack_some(self, payload: bytes) -> None:
        """Chosen ones; what is in between stays, so nothing is known to be done below."""
        seq_ids = ranges.decode_ack_some(payload)
        queue = self.owned_queue()
        if seq_ids[-1] >= queue.backing.positions().records.next_seq_id:
            raise MalformedFrame(f"ACK_SOME of {seq_ids[-1]}, which does not exist yet")
        self._choosing = (seq_ids, 0)
        self._go_on_choosing()

    def _go_on_choosing(self) -> None:
        """As ``_go_on_acking``, but what bounds a slice is what is read for it."""
        assert self._choosing is not None
        seq_ids, count = self._choosing
        self._choosing = None
        queue = self.owned_queue()
        positions = queue.backing.positions()
        if self._share_left() > 0:
            taken = int(positions.rare().settlement.few_reads(seq_ids, CHOSEN_READS_AT_ONCE))
            failed = positions.records.failed_reads
            count += queue.ranges.drop_some(seq_ids[:taken])
            if positions.records.failed_reads > failed:
                check_going(queue.backing, queue.name, queue.vhost)
            self._leases.share.spend(int(positions.records.take_looked_bytes()))
            seq_ids = seq_ids[taken:]
        if seq_ids:
            self._choosing = (seq_ids, count)
            queue.wake()  # as above
            return
        self.session.send(ranges.encode_acked_some(count))

    def owned_queue(self) -> LocalQueue:
        queue = self.opened()[1]
        if self.mode != ranges.READ or not isinstance(queue, LocalQueue):
            raise MalformedFrame("only the reader that owns the lease says what is done")
        return queue

    def _close(self) -> None:
        """At once; but the next to read or consume must not find what was acknowledged."""
        queue = self._queue
        self._closing = queue is not None and self.broker.letting_go.holds(queue)
        if self._closing:
            return
        if isinstance(queue, LocalQueue) and self.mode == ranges.READ and not queue.deleted:
            _check_gone(queue, self._leases.acked_below(queue))
        self._leases.release(self.session)
        self.session.send(ranges.encode_closed())
        self.session.shut_down()

    # -- helpers ---------------------------------------------------------------------------

    def _share_left(self) -> int:
        waits = self.source().publishers_wait()
        return int(self._leases.share.left(self.session.now_ms, waits))

    def source(self) -> RangeSource:
        """Of the queue that is open."""
        assert self._source is not None
        return self._source

    def opened(self) -> tuple[Vhost, Queue]:
        """The queue of this connection, if it is still the same one and still ours."""
        queue = self._queue
        vhost = self._vhost
        if queue is None or vhost is None:
            raise MalformedFrame("OPEN comes first")
        if queue.deleted:
            self._leases.forget(queue)
            check_moved(vhost, queue)
            raise NotFound(f"{named(queue)} was deleted")
        vhost.touch(queue)
        if self.mode != ranges.BROWSE:
            self._leases.require(queue, self._token)
        return vhost, queue

    def _head(self, queue: Queue) -> ranges.Head:
        source = self.source()
        end = source.end()  # what a reader notes as done must not come again
        acked = self._leases.acked_below(queue)
        return ranges.Head(min(source.floor(), end), acked, end, source.ready())


def _check_gone(queue: LocalQueue, below: int) -> None:
    """Raises NotFound when some below could not be read, and so not be acknowledged."""
    if queue.backing.positions().tiers.floor_seq_id() < below:
        check_going(queue.backing, queue.name, queue.vhost)
