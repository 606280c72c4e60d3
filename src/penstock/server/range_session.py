"""One Spark reader's connection, without its socket: range frames in, range frames out.

The listener saw ``wire.ranges.MAGIC`` and made a ``RangeSession``; it passes on every byte it
reads, the magic included, like to any ``Session``.  One thing more: while ``has_waiters`` the
session wants a ``tick`` every few tens of milliseconds, else new messages are noticed late.

Requests are answered in order.  A WAIT is answered early when another request follows it.
While the peer does not read its replies (``OUTPUT_MAX_BYTES``), its requests wait here; a
peer that keeps sending nevertheless is cut off (``REQUESTS_MAX``).

**Leases.**  A queue has one owner at a time: AMQP consumers, or one reader of ranges.  The
queue itself knows the newest token and refuses consumers meanwhile; ``RangeLeases``, one per
node, knows which connection stands behind the token:

    free ──READ──► held ──connection lost──► orphaned ──LEASE_GRACE_MS──► free
                    ▲ └──────CLOSE─────────────│───────────────────────► free
                    └──READ with its token─────┘      (READ without a token: a new token)

A READ on a held lease is refused unless it says ``force``; on an orphaned one it is granted,
because that is what a restarted pipeline does.  The old token is fenced off either way.

**Unacknowledged deliveries** must be settled before a queue can be leased: one that returned
to a place the reader has already passed would be acknowledged without having been read.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.rights import Rights
from penstock.broker.vhost import Vhost
from penstock.core.errors import AccessRefused, BrokerError, NotFound, ResourceLocked
from penstock.queues.queue import Queue
from penstock.server.session import Session
from penstock.wire import ranges

OPEN_TIMEOUT_MS: Final = 10_000
"""Who has not opened a queue by then is not a reader."""
LEASE_GRACE_MS: Final = 60_000
OUTPUT_MAX_BYTES: Final = 16 * 1024 * 1024
REQUESTS_MAX: Final = 64
BLOCK_MESSAGES_MAX: Final = 8192
BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
PLAN_MESSAGES_MAX: Final = 8192
PLAN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bounds of one request, so that no reader keeps the loop for more than a few ms."""


class Fenced(BrokerError):
    """A newer reader owns the queue."""


class LeaseGone(BrokerError):
    """Nobody owns the queue any more; the reader may open it again."""


@final
class _Lease:
    """A queue's current token, and who stands behind it (None since ``orphaned_at_ms``)."""

    def __init__(self, queue: Queue, token: int, owner: "RangeSession") -> None:
        self.queue = queue
        self.token = token
        self.owner: RangeSession | None = owner
        self.orphaned_at_ms = 0


@final
class RangeLeases:
    """Who reads which queue by ranges, and how far it has acknowledged; one per node."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._acked_below: dict[str, int] = {}

    def take(self, queue: Queue, owner: "RangeSession", token: int, force: bool) -> int:
        """The token under which ``owner`` now holds ``queue``; ``token`` renews an old one."""
        held = self._current(queue)
        if held is not None:
            if token == held.token:
                held.owner = owner
                return token
            if token != 0:
                raise Fenced(f"a newer reader has taken over {_named(queue)}")
            if held.owner is not None and not force:
                raise ResourceLocked(f"{_named(queue)} is being read by another pipeline")
        if queue.unacked_count > 0:
            raise ResourceLocked(
                f"{_named(queue)} has {queue.unacked_count} unacknowledged deliveries: "
                "settle them before reading it by ranges"
            )
        token = queue.open_range_lease()
        self._leases[queue.incarnation] = _Lease(queue, token, owner)
        return token

    def require(self, queue: Queue, token: int) -> None:
        """Raises Fenced or LeaseGone unless ``token`` is the current one."""
        if queue.check_range_lease(token):
            return
        if self._current(queue) is not None:
            raise Fenced(f"a newer reader has taken over {_named(queue)}")
        raise LeaseGone(f"{_named(queue)} is not leased any more: open it again")

    def acked(self, queue: Queue, upto: int) -> None:
        if upto > self.acked_below(queue):
            self._acked_below[queue.incarnation] = upto

    def acked_below(self, queue: Queue) -> int:
        """Everything below was acknowledged by a reader since this node started."""
        return self._acked_below.get(queue.incarnation, 0)

    def release(self, owner: "RangeSession") -> None:
        """The owner is done: consumers may have the queue again."""
        for incarnation, lease in list(self._leases.items()):
            if lease.owner is owner:
                lease.queue.close_range_lease(lease.token)
                del self._leases[incarnation]

    def orphan(self, owner: "RangeSession", now_ms: int) -> None:
        """The owner's connection broke: keep its place for a while."""
        for lease in self._leases.values():
            if lease.owner is owner:
                lease.owner = None
                lease.orphaned_at_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """End the leases nobody came back for; call about once a second."""
        for incarnation, lease in list(self._leases.items()):
            if lease.owner is None and now_ms - lease.orphaned_at_ms >= LEASE_GRACE_MS:
                lease.queue.close_range_lease(lease.token)
                del self._leases[incarnation]

    def forget(self, incarnation: str) -> None:
        """The queue was deleted."""
        self._leases.pop(incarnation, None)
        self._acked_below.pop(incarnation, None)

    def _current(self, queue: Queue) -> _Lease | None:
        held = self._leases.get(queue.incarnation)
        if held is not None and queue.check_range_lease(held.token):
            return held
        return None


@final
class RangeSession(Session):
    """See the top of this file."""

    def __init__(self, broker: Broker, leases: RangeLeases, peer_is_loopback: bool) -> None:
        super().__init__(broker.flow.book)
        self._broker = broker
        self._leases = leases
        self._peer_is_loopback = peer_is_loopback
        self._greeting = b""
        self._greeted = False
        self._splitter = ranges.FrameSplitter(ranges.REQUEST_MAX_BYTES)
        self._requests: list[tuple[int, bytes]] = []
        self._vhost: Vhost | None = None
        self._queue: Queue | None = None
        self._mode = ranges.BROWSE
        self._token = 0
        self._wait: tuple[int, int] | None = None  # (from, deadline_ms)
        self._now_ms = 0
        self._came_at_ms = 0

    # -- what the listener calls -----------------------------------------------------------

    @property
    def has_waiters(self) -> bool:
        """Somebody waits for messages or for time to pass: tick often."""
        return self._wait is not None and not self.closed

    def receive(self, data: bytes, now_ms: i64) -> None:
        self._now_ms = int(now_ms)
        if self.closed:
            return
        try:
            if not self._greeted:
                data = self._take_greeting(data)
            self._requests.extend(self._splitter.feed(data))
        except ranges.MalformedFrame as error:
            self._fail(ranges.MALFORMED, str(error))
            return
        if len(self._requests) > REQUESTS_MAX:
            self._fail(ranges.MALFORMED, "too many requests without reading their replies")
            return
        self._work()

    def tick(self, now_ms: i64) -> None:
        """Answer the WAIT whose messages or whose time have come."""
        self._now_ms = int(now_ms)
        if self._wait is not None and not self.closed:
            self._guarded(self._look_for_messages)
        self._work()
        if self._came_at_ms == 0:
            self._came_at_ms = self._now_ms
        if self._queue is None and self._now_ms - self._came_at_ms > OPEN_TIMEOUT_MS:
            self.closed = True

    def drained(self) -> None:
        self._work()

    def sent(self, count: i64, now_ms: i64) -> None:
        """Output has left: there is room for more replies."""
        self._work()

    def confirm(self, durable_position: i64) -> None:
        """Readers publish nothing."""

    def lost(self, now_ms: i64) -> None:
        self.closed = True
        self._leases.orphan(self, int(now_ms))

    def shut_down(self) -> None:
        """Say nothing: a reader whose line breaks comes back, one that is refused does not."""
        self.closed = True

    # -- moves -----------------------------------------------------------------------------

    def _take_greeting(self, data: bytes) -> bytes:
        """Check the eight bytes of MAGIC; returns what follows them."""
        self._greeting += data
        if len(self._greeting) < len(ranges.MAGIC):
            return b""
        greeting, rest = self._greeting[:8], self._greeting[8:]
        if greeting != ranges.MAGIC:
            raise ranges.MalformedFrame(
                f"this broker speaks the range protocol {ranges.MAGIC!r}, not {greeting!r}"
            )
        self._greeted = True
        self._greeting = b""
        return rest

    def _work(self) -> None:
        while self._requests and not self.closed and self._has_room():
            if self._wait is not None:
                self._wait = (self._wait[0], 0)  # the next request ends the waiting
                self._guarded(self._look_for_messages)
            else:
                self._guarded(self._next_request)

    def _guarded(self, move: Callable[[], None]) -> None:
        try:
            move()
        except ranges.MalformedFrame as error:
            self._fail(ranges.MALFORMED, str(error))
        except BrokerError as error:
            self._fail(_code_of(error), str(error))

    def _next_request(self) -> None:
        kind, payload = self._requests.pop(0)
        if kind == ranges.OPEN:
            self._open(ranges.decode_open(payload))
        elif kind == ranges.WAIT:
            self._start_waiting(payload)
        elif kind == ranges.PLAN:
            self._plan(payload)
        elif kind == ranges.RANGE:
            self._range(payload)
        elif kind == ranges.ACK:
            self._ack(payload)
        elif kind == ranges.CLOSE:
            self._close()
        else:
            raise ranges.MalformedFrame(f"unknown request {kind}")

    def _open(self, request: ranges.OpenRequest) -> None:
        if self._queue is not None:
            raise ranges.MalformedFrame("this connection has opened its queue already")
        broker = self._broker
        user = broker.authenticate(request.user, request.password, self._peer_is_loopback)
        vhost = broker.enter(user, request.vhost)
        Rights(user, vhost.name).read("queue", request.queue)
        queue = vhost.queue(request.queue)
        queue.check_owner(self)
        if request.mode == ranges.READ:
            self._token = self._leases.take(queue, self, request.token, request.force)
        elif request.mode == ranges.JOIN:
            self._leases.require(queue, request.token)
            self._token = request.token
        self._mode = request.mode
        self._vhost = vhost
        self._queue = queue
        vhost.touch(queue, self._now_ms)
        opened = ranges.encode_opened(queue.incarnation, self._head(queue), self._token)
        self._send(opened)

    def _start_waiting(self, payload: bytes) -> None:
        start, timeout_ms = ranges.decode_wait(payload)
        self._wait = (start, self._now_ms + timeout_ms)
        self._look_for_messages()

    def _look_for_messages(self) -> None:
        assert self._wait is not None
        start, deadline_ms = self._wait
        queue = self._opened_queue()
        if queue.backing.next_seq_id() <= start and self._now_ms < deadline_ms:
            return
        self._wait = None
        self._send(ranges.encode_head(self._head(queue)))

    def _plan(self, payload: bytes) -> None:
        """Say where a slice of so many messages or bytes ends.

        One look has the bounds of PLAN_*; ``more`` tells the reader to ask on from ``end``.
        At least one message is planned, even if it alone is over ``max_bytes``.
        """
        start, end, max_messages, max_bytes = ranges.decode_plan(payload)
        if max_messages < 1 or max_bytes < 1:
            raise ranges.MalformedFrame("PLAN for no messages at all")
        queue = self._opened_queue()
        count_bound = min(max_messages, PLAN_MESSAGES_MAX)
        byte_bound = min(max_bytes, PLAN_BYTES_MAX)
        messages = queue.backing.read_range(start, end, count_bound, byte_bound)
        size = 0
        for message in messages:
            size += len(message.content)
        planned = int(messages[-1].seq_id) + 1 if messages else start
        more = bool(messages) and planned < end and len(messages) < max_messages
        self._send(ranges.encode_planned(planned, len(messages), size, more and size < max_bytes))

    def _range(self, payload: bytes) -> None:
        start, end, max_bytes, with_body = ranges.decode_range(payload)
        queue = self._opened_queue()
        byte_bound = min(max_bytes, BLOCK_BYTES_MAX)
        messages = queue.backing.read_range(start, end, BLOCK_MESSAGES_MAX, byte_bound)
        next_start = int(messages[-1].seq_id) + 1 if messages else end
        self._send(ranges.encode_block(messages, next_start, with_body))

    def _ack(self, payload: bytes) -> None:
        upto = ranges.decode_ack(payload)
        queue = self._opened_queue()
        if self._mode != ranges.READ:
            raise ranges.MalformedFrame("only the reader that owns the lease acknowledges")
        if upto > queue.backing.next_seq_id():
            raise ranges.MalformedFrame(f"ACK up to {upto}, which does not exist yet")
        count = queue.drop_below(upto)
        self._leases.acked(queue, upto)
        self._send(ranges.encode_acked(count))

    def _close(self) -> None:
        self._leases.release(self)
        self._send(ranges.encode_closed())
        self.closed = True

    # -- helpers ---------------------------------------------------------------------------

    def _opened_queue(self) -> Queue:
        """The queue of this connection, if it is still the same one and still ours."""
        queue = self._queue
        vhost = self._vhost
        if queue is None or vhost is None:
            raise ranges.MalformedFrame("OPEN comes first")
        if queue.deleted:
            self._leases.forget(queue.incarnation)
            raise NotFound(f"{_named(queue)} was deleted")
        vhost.touch(queue, self._now_ms)
        if self._mode != ranges.BROWSE:
            self._leases.require(queue, self._token)
        return queue

    def _head(self, queue: Queue) -> ranges.Head:
        backing = queue.backing
        return ranges.Head(
            int(backing.floor_seq_id()),
            self._leases.acked_below(queue),
            int(backing.next_seq_id()),
            int(backing.ready_count()),
        )

    def _has_room(self) -> bool:
        return self.outlet.open and len(self.out) < OUTPUT_MAX_BYTES

    def _send(self, frame: bytes) -> None:
        self.out.write(frame)

    def _fail(self, code: int, text: str) -> None:
        self._leases.release(self)
        self._wait = None
        self._requests.clear()
        self._send(ranges.encode_error(code, text))
        self.closed = True


def _code_of(error: BrokerError) -> int:
    """The wire code of a kind of error; the only such table for ranges."""
    if isinstance(error, AccessRefused):
        return ranges.ACCESS_REFUSED
    if isinstance(error, NotFound):
        return ranges.NOT_FOUND
    if isinstance(error, ResourceLocked):
        return ranges.LOCKED
    if isinstance(error, Fenced):
        return ranges.FENCED
    if isinstance(error, LeaseGone):
        return ranges.LEASE_GONE
    return ranges.REFUSED


def _named(queue: Queue) -> str:
    return f"queue '{queue.name}' in vhost '{queue.vhost}'"
