"""What the loop knows of a connection's protocol: bytes in, bytes out, and the time.

A session is sans-IO.  The loop feeds it, asks for its output once per turn, and tells
it when the peer is gone; the session says when it wants to be closed.
"""

from collections.abc import Callable
from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from penstock.broker.rules.access import User
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.credit import READER, FlowBook, FlowPeer
from penstock.core.errors import BrokerError, Undecided
from penstock.core.events.book import NODE, Actor
from penstock.core.message import Message
from penstock.core.pending import Ticket
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer, OutputWindow
from penstock.queues.queue import Queue


@final
class SessionClient:
    """The client of a session: its user, and its name in the event log, once it has logged in."""

    def __init__(self) -> None:
        self.user: User | None = None
        self.actor: Actor = NODE  # the user, and where it comes from
        self.event_name: str = ""
        self.entered_at_ms = WallMs(0)  # as the event log has it; 0 = it has not, or has left
        self._rights_lost: i64 = 0  # of the user, when it was last looked at

    def log_in(self, user: User, protocol: str, address: str) -> None:
        """``address``: of the client, without a port."""
        self.user = user
        self.actor = Actor(user.name, protocol, address)
        self._rights_lost = _rights_lost(user)

    def has_lost_rights(self) -> bool:
        """Has the user lost rights since ``judged``?"""
        user = self.user
        return user is not None and _rights_lost(user) != self._rights_lost

    def judged(self) -> None:
        """What the session does rests on the rights that the user has now."""
        if self.user is not None:
            self._rights_lost = _rights_lost(self.user)

    def enter(self, name: str, now_ms: WallMs) -> None:
        """It has that name in the event log, from that time on."""
        self.event_name = name
        self.entered_at_ms = now_ms

    def leave(self) -> None:
        self.entered_at_ms = WallMs(0)


def _rights_lost(user: User) -> i64:
    own = user.own
    return user.rights_lost if own is None else user.rights_lost + own.rights_lost


@mypyc_attr(allow_interpreted_subclasses=True)
class Session:
    """One peer, whatever it speaks."""

    def __init__(self, book: FlowBook) -> None:
        self.reader = FlowPeer(book, READER, self)
        self.out = BytesWriter()
        self.outlet = OutputWindow()
        self.closed: bool = False  # nothing more to say: close once the output has left
        self.awaiting_disk: bool = False  # some confirm waits for the journal
        self.abandoned: bool = False  # closed, and the peer cannot read the last output
        self.unread: bool = False  # the loop does not read it just now: its silence is ours
        self.clogged: bool = False  # not read because it does not read: sending proves it lives
        self.gate: str = ""  # why it may not publish for now
        self.received_bytes: i64 = 0
        self.sent_bytes: i64 = 0
        self.received_count: i64 = 0  # times that something came in, or left
        self.sent_count: i64 = 0
        self.held_bytes: i64 = 0  # publishes that came in and wait, and what waits behind
        self.has_published: bool = False  # others are never held up for lack of room
        self.waiting_head: bool = False  # what it asked for is on its way (``core/pending.py``)
        self.ticket: Ticket | None = None  # and is not to be asked for before this is done
        self.has_more: bool = False  # and waits only until others had their turn
        self.touched: bool = False  # listed for flushing
        self.waiting_listed: bool = False  # listed for confirms
        self.carrier: object = None  # the loop's connection
        self.client = SessionClient()
        self.swaps_carrier: bool = False  # as soon as what it has said has left
        self.close_after_ms: MonoMs = MonoMs(0)  # and not before this time
        self.mute_until_ms: MonoMs = MonoMs(0)  # what it says waits until then (a refused login)

    @property
    def has_waiters(self) -> bool:
        """Wants ``tick`` more often, because a peer waits for something to happen."""
        return False

    @property
    def is_mid_frame(self) -> bool:
        """What came in last completed no frame."""
        return False

    @property
    def user(self) -> User | None:
        """None before the log-in."""
        return self.client.user

    def output_bytes(self) -> i64:
        """Said, and not yet taken by its connection."""
        return len(self.out) + self.outlet.ahead_bytes

    def count_held(self, more_bytes: i64) -> None:
        """It holds so much more, or less."""
        self.held_bytes += more_bytes

    def ride_on(self, carrier: object) -> None:
        """Its connection; None: that is gone."""
        self.carrier = carrier

    def note_reading(self, unread: bool, clogged: bool) -> None:
        """Whether the loop reads from its peer."""
        self.unread = unread
        self.clogged = clogged

    def abort(self) -> None:
        """A fault of ours: nothing more comes from it."""
        self.closed = True
        self.awaiting_disk = False

    def close(self) -> None:
        """Nothing more to say: close it once the output has left."""
        self.closed = True

    def swap_carrier(self, wanted: bool) -> None:
        """Whether it goes on with its ``next_carrier`` as soon as the output has left."""
        self.swaps_carrier = wanted

    def abandon(self) -> None:
        """Close it at once: the peer cannot read the last output."""
        self.abandoned = True
        self.closed = True

    def close_after(self, when_ms: MonoMs) -> None:
        """As ``close``, but not before that time."""
        self.closed = True
        self.close_after_ms = when_ms

    def mute(self, until_ms: MonoMs) -> None:
        """A log-in was refused: what is said about it waits until then."""
        self.mute_until_ms = until_ms

    def wait_for(self, ticket: Ticket | None) -> None:
        """An answer is on its way, which is not to be asked for before the ticket is done."""
        self.waiting_head = True
        self.ticket = ticket

    def look_at_user(self, now_ms: WallMs, mono_ms: MonoMs) -> None:
        """The user may be deleted, or may have lost rights on which something here rests."""
        user = self.client.user
        if user is None or self.closed:
            return
        user.look(mono_ms)
        if user.counted.deleted:
            self.user_deleted()
        elif user.has_expired(now_ms):
            self.user_expired()
        elif self.client.has_lost_rights():
            try:
                self.rights_changed()
            except Undecided:
                return  # its backend was asked: at the next look
            self.client.judged()

    def user_deleted(self) -> None:
        """End, and say why where the protocol has words for it."""
        self.shut_down()

    def user_expired(self) -> None:
        """The log-in holds no longer: as ``user_deleted``."""
        self.shut_down()

    def rights_changed(self) -> None:
        """End what the user may not have any more; raises Undecided to be called once more."""

    def next_carrier(self, sock: object, touch: Callable[[], None]) -> object:
        """The socket ``swaps_carrier`` asked for; ``touch`` tells the loop of output later."""
        raise NotImplementedError

    def renew_output(self) -> None:
        """Begin a new output buffer; the old one grew too large to be kept."""
        self.out = BytesWriter()

    def may_go_on(self) -> bool:
        """Is there an answer to what it waits for?"""
        ticket = self.ticket
        if ticket is not None and not ticket.done:
            return False
        self.ticket = None
        return True

    def go_on_later(self) -> None:
        """What else it was asked for waits until others had their turn."""
        self.has_more = True
        self.waiting_head = True

    def begin_again(self) -> None:
        """It waits no more."""
        self.has_more = False
        self.waiting_head = False

    def drop_ticket(self) -> None:
        if self.ticket is not None:
            self.ticket.drop()
            self.ticket = None

    def go_on(self, now_ms: WallMs) -> None:
        """``waiting_head`` may be over: try again, then do what came in behind."""

    def look_at_gate(self) -> None:
        """Whether it may publish may have changed."""

    def resume(self, now_ms: WallMs) -> None:
        """It may publish again: go on with what was held."""

    def hung_up(self, now_ms: WallMs) -> bool:
        """The peer says no more; True while something is still to be said to it."""
        return False

    def receive(self, data: bytes, now_ms: WallMs) -> None:
        """Bytes came in."""
        raise NotImplementedError

    def channel_failed(self, number: i64, error: BrokerError, method_key: i64) -> None:
        """Something went wrong for which a channel, or the connection, is to be closed."""
        raise NotImplementedError

    def tick(self, now_ms: WallMs) -> None:
        """About a second has passed: heartbeats, time-outs."""
        raise NotImplementedError

    def drained(self) -> None:
        """The way out is free again after it was full."""
        raise NotImplementedError

    def confirm(self, durable_position: i64) -> None:
        """The journal is on disk up to here."""
        raise NotImplementedError

    def sent(self, count: i64, now_ms: WallMs) -> None:
        """So many bytes have left."""

    def lost(self, now_ms: WallMs) -> None:
        """The peer is gone, or was told to go: give back everything it held."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """The broker stops: say so to the peer."""
        raise NotImplementedError


class Subscriber:
    """The ``holder`` of a consumer: where deliveries go.

    ``number`` tells it from others of its session.
    """

    def __init__(self, session: Session, number: i64) -> None:
        self.session = session
        self.number: i64 = number

    def deliver(self, delivery: Delivery) -> None:
        """Messages for one of its consumers."""
        raise NotImplementedError

    def answer(self, answers: list[Message]) -> None:
        """Direct replies for its reply consumer; raises PreconditionFailed if they cannot leave."""
        raise NotImplementedError

    def queue_lost(self, consumer: Consumer) -> None:
        """The consumer's queue is gone."""
        raise NotImplementedError

    def send_away(self, consumer: Consumer, why: str) -> None:
        """This node cannot serve its queue, another one may: its client is to go there."""

    def queue_moved(self, consumer: Consumer, queue: Queue) -> None:
        """Its queue has another master: this one took its place.  Who cannot follow has lost it."""
        self.queue_lost(consumer)
