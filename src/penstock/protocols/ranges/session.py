"""One Spark program's connection, without its socket: range frames in, range frames out.

The listener saw ``range_frames.MAGIC`` and made a ``RangeSession``; it passes on every byte it
reads, the magic included, like to any ``Session``.  One thing more: while ``has_waiters`` the
session wants a ``tick`` every few tens of milliseconds, else new messages are noticed late.

Requests are answered in order, by handlers (``request_handler``).  While the peer does not read its
replies (``OUTPUT_MAX_BYTES``), its requests wait here; a peer that keeps sending nevertheless is
cut off (``REQUESTS_MAX``).  What waits is ``held_bytes``, as of other sessions: it makes the loop
read no more of it, and the flow knows what all of them hold.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

import penstock
from penstock.broker.broker import Broker
from penstock.broker.rules.access import User
from penstock.broker.rules.judges import Source
from penstock.broker.rules.log_ins import NO_CREDENTIALS, RANGES, LogIn
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import (
    AccessRefused,
    BrokerError,
    LoginRefused,
    NoMaster,
    NotFound,
    QueueElsewhere,
    ResourceLocked,
    Undecided,
)
from penstock.core.steps import STEPS_MAX, UNLIMITED, steps
from penstock.protocols.amqp.input import TOO_MUCH, UnfinishedInput
from penstock.protocols.ranges.leases import Fenced, LeaseGone, RangeLeases
from penstock.protocols.ranges.reading import ReadRequests
from penstock.protocols.ranges.reporting import ReportRequests
from penstock.protocols.ranges.request_handler import RequestHandler
from penstock.protocols.ranges.sources import MessagesGone
from penstock.protocols.ranges.staging import StagingRequests
from penstock.protocols.ranges.subscribing import SubscriptionRequests
from penstock.runtime.session import Session
from penstock.runtime.session_events import entered, is_encrypted, left
from penstock_ranges import frames as range_frames
from penstock_ranges.frames import LOGIN, MalformedFrame

PROTOCOL: Final = "ranges"
"""As lists of connections and the event log name it."""
OPEN_TIMEOUT_MS: Final = 10_000
"""A client that has not logged in by then is not a reader."""
OUTPUT_MAX_BYTES: Final = 16 * 1024 * 1024
REQUESTS_MAX: Final = 64
LOGIN_MAX_BYTES: Final = 4096
"""Of a request before the log-in: three names and a password."""


@final
class RangeSession(Session):
    """See the top of this file."""

    def __init__(
        self, broker: Broker, leases: RangeLeases, peer: tuple[str, bool], now_ms: WallMs
    ) -> None:
        """``peer``: its address, and whether it is on this machine."""
        super().__init__(broker.flow.book)
        self.now_ms = now_ms
        self.connected_at_ms: Final[WallMs] = now_ms
        self._began_ms: Final[MonoMs] = broker.idleness.now_ms
        self._broker = broker
        self._address, self._is_local = peer
        self._peer: tuple[User, Vhost] | None = None
        self._greeting = b""
        self._greeted = False
        self._splitter = range_frames.FrameSplitter(LOGIN_MAX_BYTES)
        self._requests: list[tuple[int, bytes]] = []
        reading = ReadRequests(self, broker, leases)
        self._staging = StagingRequests(self, broker)
        self._input = UnfinishedInput(
            broker.engine.ram, broker.flow, broker.staging.message_bytes_max
        )
        self._handlers: list[RequestHandler] = [
            reading,
            SubscriptionRequests(self, broker, leases, reading),
            self._staging,
            ReportRequests(self, broker),
        ]
        self._by_kind = {kind: handler for handler in self._handlers for kind in handler.kinds}
        self._at: RequestHandler = self._handlers[0]  # the handler of the last request
        self._log_in: LogIn | None = None
        self._is_again: bool = False  # the next request was begun, and waited for a backend

    # -- what the listener calls -----------------------------------------------------------

    @property
    def has_waiters(self) -> bool:
        """A request waits for messages or for time to pass: tick often."""
        return self._at.busy and not self.closed

    def receive(self, data: bytes, now_ms: WallMs) -> None:
        self.now_ms = now_ms
        self.received_bytes += len(data)
        self.received_count += 1
        if self.closed:
            return
        try:
            if not self._greeted:
                data = self._take_greeting(data)
            self._requests.extend(self._splitter.feed(data, REQUESTS_MAX + 1))
        except MalformedFrame as error:
            self._fail(range_frames.MALFORMED, str(error))
            return
        if len(self._requests) > REQUESTS_MAX:
            self._fail(range_frames.MALFORMED, "too many requests without reading their replies")
            return
        self._work_for_a_turn()
        self._count_held()

    def go_on(self, now_ms: WallMs) -> None:
        self.now_ms = now_ms
        if self.may_go_on():
            self.begin_again()
            self._work_for_a_turn()
            self._count_held()

    def tick(self, now_ms: WallMs) -> None:
        """Answer what has waited for a message or for time.

        What began to wait for a ticket in ``confirm`` or ``sent`` goes on here: the loop looks for
        that after ``receive`` and ``go_on`` only.
        """
        self.now_ms = now_ms
        if self.waiting_head and self.may_go_on():
            self.begin_again()
        if not self.closed:
            for handler in self._handlers:
                self._guarded(handler.tick)
        self._go_on()
        self.look_at_user(now_ms, self.mono_ms)
        if self._peer is None and self.mono_ms - self._began_ms > OPEN_TIMEOUT_MS:
            self.closed = True

    def drained(self) -> None:
        self._go_on()

    def sent(self, count: i64, now_ms: WallMs) -> None:
        """Output has left: there is room for more replies."""
        self.sent_bytes += count
        self.sent_count += 1
        self._go_on()

    def confirm(self, durable_position: i64) -> None:
        position = int(durable_position)
        for handler in self._handlers:
            self._guarded(lambda handler=handler: handler.confirm(position))  # type: ignore[misc]
        self._go_on()

    def lost(self, now_ms: WallMs) -> None:
        self.now_ms = now_ms
        self.closed = True
        self.waiting_head = False
        self.drop_ticket()
        self._requests.clear()
        self._count_held()
        left(self._broker.events, self)
        for handler in self._handlers:
            handler.lost()
        self._input.forget()
        if self._peer is not None:
            self._broker.count_connection(*self._peer, -1)
            self._peer = None

    def user_expired(self) -> None:
        self._fail(range_frames.ACCESS_REFUSED, "credential expired")

    def rights_changed(self) -> None:
        for handler in self._handlers:
            self._guarded(handler.rights_changed)

    def shut_down(self) -> None:
        """Say nothing: a reader whose line breaks comes back, one that is refused does not."""
        self.closed = True

    # -- what desks call -------------------------------------------------------------------

    def log_in(self, user: str, password: str, vhost: str) -> tuple[User, Vhost]:
        """Once for a connection; raises what ``LogIn.user`` and ``Broker.enter`` raise.

        What it has begun (a set, a lease) was judged by the rights of this one.
        """
        if self._peer is not None:
            if self._is_again:
                return self._peer
            raise MalformedFrame("this connection has logged in already")
        begun = self._log_in or self._broker.users.begin(user, password, self._source())
        self._log_in = begun
        found = begun.user()
        self._peer = (found, self._broker.enter(found, vhost))
        self._broker.count_connection(*self._peer, 1)
        self.client.log_in(found, RANGES, self._source().address)
        self._splitter.allow(range_frames.REQUEST_MAX_BYTES)
        entered(self._broker.events, self, user, vhost, PROTOCOL)
        return self._peer

    @property
    def mono_ms(self) -> MonoMs:
        """Of the turn: what a request waits is measured by it."""
        return self._broker.idleness.now_ms

    @property
    def vhost_name(self) -> str:
        """Empty before it has logged in."""
        return "" if self._peer is None else self._peer[1].name

    def peer(self) -> tuple[User, Vhost]:
        if self._peer is None:
            self._broker.users.refuse(self._source(), "", AccessRefused(NO_CREDENTIALS))
            raise MalformedFrame("OPEN or LOGIN comes first")
        return self._peer

    def _source(self) -> Source:
        secure = is_encrypted(self)
        return Source(RANGES, RANGES, self._address, self._is_local, "", secure)

    def send(self, frame: bytes) -> None:
        self.out.write(frame)

    # -- moves -----------------------------------------------------------------------------

    def _take_greeting(self, data: bytes) -> bytes:
        """Check the eight bytes of MAGIC; returns what follows them."""
        self._greeting += data
        if len(self._greeting) < len(range_frames.MAGIC):
            return b""
        greeting, rest = self._greeting[:8], self._greeting[8:]
        if greeting != range_frames.MAGIC:
            raise MalformedFrame(
                f"this broker speaks the range protocol {range_frames.MAGIC!r}, not {greeting!r}"
            )
        self._greeted = True
        self._greeting = b""
        return rest

    def _work_for_a_turn(self) -> None:
        """The loop calls again for what is left: only after ``receive`` and ``go_on``."""
        self._work(steps.taken + STEPS_MAX)

    def _work(self, until: i64 = UNLIMITED) -> None:
        """``until``: what ``steps`` may have counted then."""
        while self._requests and not (self.closed or self.waiting_head) and self._has_room():
            if steps.taken >= until:
                self.go_on_later()
                return
            if self._at.busy:
                self._guarded(self._at.hurry)
                if self._at.busy:
                    return
            else:
                self._guarded(self._next_request)

    def _guarded(self, move: Callable[[], None]) -> None:
        try:
            move()
        except MalformedFrame as error:
            self._fail(range_frames.MALFORMED, str(error))
        except LoginRefused as error:
            self.mute(MonoMs(self.mono_ms + error.delay_ms))
            self._fail(range_frames.ACCESS_REFUSED, str(error))
        except BrokerError as error:
            self._fail(_code_of(error), str(error))
        self.awaiting_disk = any(handler.awaits_disk for handler in self._handlers)

    def _next_request(self) -> None:
        request = self._requests.pop(0)
        try:
            self._answer(*request)
            self._is_again = False
        except Undecided as undecided:
            self._requests.insert(0, request)
            self._is_again = True
            self.wait_for(undecided.ticket)

    def _answer(self, kind: int, payload: bytes) -> None:
        if kind == LOGIN:
            self._welcome(payload)
            return
        handler = self._by_kind.get(kind)
        if handler is None:
            raise MalformedFrame(f"unknown request {kind}")
        if kind not in handler.logs_in:
            self.peer()
        self._at = handler
        handler.request(kind, payload)

    def _welcome(self, payload: bytes) -> None:
        self.log_in(*range_frames.decode_login(payload))
        self.send(range_frames.encode_welcome(penstock.__version__))

    def _go_on(self) -> None:
        """With what waits, if anything does."""
        if self._requests:
            self._work()
            self._count_held()

    # -- helpers ---------------------------------------------------------------------------

    def _count_held(self) -> None:
        held = sum(len(payload) for _, payload in self._requests)
        more = held - self.held_bytes
        self._broker.flow.count_held(more)
        self.count_held(more)
        unfinished = self._splitter.rest_bytes + self._staging.unfinished_bytes
        if unfinished != self._input.size_bytes and not self._input.count(unfinished):
            self._fail(range_frames.REFUSED, TOO_MUCH)

    def _has_room(self) -> bool:
        return self.outlet.open and len(self.out) < OUTPUT_MAX_BYTES

    def _fail(self, code: int, text: str) -> None:
        for handler in self._handlers:
            handler.failed()
        self._requests.clear()
        self._count_held()
        self.send(range_frames.encode_error(code, text))
        self.closed = True


CODES: Final = (
    (NoMaster, range_frames.NO_MASTER),
    (QueueElsewhere, range_frames.ELSEWHERE),
    (AccessRefused, range_frames.ACCESS_REFUSED),
    (NotFound, range_frames.NOT_FOUND),
    (ResourceLocked, range_frames.LOCKED),
    (Fenced, range_frames.FENCED),
    (LeaseGone, range_frames.LEASE_GONE),
    (MessagesGone, range_frames.GONE),
)
"""Kind of error ─► its code on the wire; the first that fits."""


def _code_of(error: BrokerError) -> int:
    return next((code for kind, code in CODES if isinstance(error, kind)), range_frames.REFUSED)
