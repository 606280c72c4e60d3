"""One connection to another node: from the first byte to the last, above a socket or TLS.

    the loop ─► receive(bytes) ─► PeerReader ─► handshake, then parcels for the link
    the link's session ─► fill ─► output, as much as the socket takes ─► the loop

A connection is bound to a link (``peers.link``) when both sides have proven that they know the
cluster's secret, and lets go of it when it ends, for whatever reason; what was under way is then
the business of the link's session, which outlives its connections.

Only so much is taken from the session at a time that its acknowledgements and heartbeats do not
wait long behind parcels.  A peer that says nothing for ``silence_ms`` is given up, and so is one
that takes too long to introduce itself; both are measured by the monotonic clock, and not while it
is this node that does not read.
"""

import secrets
from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.credit import FlowBook
from penstock.core.errors import BrokerError
from penstock.protocols.peers.codec.frames import (
    BYE,
    ERROR,
    HELLO,
    PROOF,
    REPLACED,
    STOPPING,
    Farewell,
    Frame,
    FrameFault,
    Parcels,
    PeerReader,
    Wrong,
    encode_farewell,
    encode_heartbeat,
    preface,
)
from penstock.protocols.peers.codec.hello import CALLER, LISTENER, NONCE_BYTES, Handshake, Hello
from penstock.runtime.connection import Connection
from penstock.runtime.session import Session

if TYPE_CHECKING:
    from penstock.protocols.peers.link import PeerLink
    from penstock.protocols.peers.peers import Peers

FRAME_BYTES: Final = 256 * 1024
"""Parcels are gathered into frames of about this size."""
AHEAD_BYTES: Final = 512 * 1024
"""More than this is not taken from the session before the socket has taken it."""
UNCOPIED_BYTES: Final = 16 * 1024
HEARTBEATS: Final = 4
"""So often in the time after which the other side hangs up something is said."""
HEARTBEAT_MS: Final = 150
"""At least so often: elections do not wait until a link has ended (``Peers.is_unheard``)."""


class PeerSession(Session):
    """See the head of this file.

    ``link``: what it was opened for; None = the peer called, and has yet to say which node it is.
    """

    def __init__(self, peers: "Peers", book: FlowBook, where: str, link: "PeerLink | None") -> None:
        super().__init__(book)
        self.where = where
        self.link: PeerLink | None = None  # once both have proven themselves
        self.called = link is not None
        self.reason = ""  # why it ended
        self._peers = peers
        self._wanted = link
        self._reader = PeerReader()
        own = peers.own
        hello = Hello(
            peers.cluster,
            own.name,
            own.incarnation,
            secrets.token_bytes(NONCE_BYTES),
            peers.limits.silence_ms,
        )
        self._handshake = Handshake(peers.secret, hello, CALLER if link else LISTENER)
        self._began_ms = peers.clock()
        self._heard_ms = self._began_ms
        self._said_ms = self._began_ms
        self._heartbeat_ms = 0
        self._pieces: deque[bytes] = deque()  # of frames that are not yet output
        self._piece_at = 0  # so much of the first one is
        self._introduced = False
        self._is_mid_frame = False

    @property
    def is_mid_frame(self) -> bool:
        return self._is_mid_frame

    # -- beginning -----------------------------------------------------------------------

    def transport_up(self) -> None:
        """Of one that we opened: now something may be said."""
        self._introduce()
        self._peers.touch(self)

    def _introduce(self) -> None:
        self._introduced = True
        self._say(self._handshake.introduce())

    def receive(self, data: bytes, now_ms: WallMs) -> None:
        if self.closed:
            return
        self._heard_ms = self._peers.clock()
        self.received_bytes += len(data)
        self.received_count += 1
        frames = self._reader.receive(data)
        self._is_mid_frame = not frames
        while self._take(frames) and self._reader.paused:
            frames = self._reader.receive(b"")

    def _take(self, frames: list[Frame]) -> bool:
        """False when there is no sense in going on."""
        for one in frames:
            try:
                self._judge(one)
            except Wrong as wrong:
                self.refuse(wrong.code, wrong.text)
            if self.closed:
                return False
        return True

    def _judge(self, one: Frame) -> None:
        if isinstance(one, Parcels):
            assert self.link is not None
            self.link.came(one)
        elif isinstance(one, FrameFault):
            self.refuse(one.code, one.text)
        elif isinstance(one, Farewell):
            self._was_told(one)
        elif one.kind == HELLO:
            self._meet(one.payload)
        elif one.kind == PROOF:
            self._believe(one.payload)

    def _meet(self, payload: bytes) -> None:
        hello = self._handshake.meet(payload, self._reader)
        self._heartbeat_ms = min(hello.silence_ms // HEARTBEATS, HEARTBEAT_MS)
        if self._wanted is None:
            self._introduce()
            return
        self._wanted.check_answer(hello)
        self._say(self._handshake.prove(self._wanted.received()))

    def _believe(self, payload: bytes) -> None:
        received = self._handshake.believe(payload)
        link = self._wanted
        if link is None:
            hello = self._handshake.peer
            assert hello is not None  # or ``believe`` had refused
            link = self._peers.caller(hello)
            link.let_go(REPLACED, "it has called again")
            self._say(self._handshake.prove(link.received()))
        self._reader.admit()
        link.connected(self, received)
        self.link = link
        self._peers.introduced(self)
        self.fill()

    # -- out -----------------------------------------------------------------------------

    def _say(self, data: bytes) -> None:
        """A frame of its own; in the middle of another one it cannot be said."""
        if not self._pieces:
            self.out.write(data)
            self._said_ms = self._peers.clock()

    def fill(self) -> None:
        """Take of the session what the socket may take soon.

        A large parcel goes to the output in pieces: the loop reads no session that has much output
        waiting, and two nodes that send each other large ones would both wait for ever.
        """
        link = self.link
        if link is None or self.closed:
            return
        while self.output_bytes() < AHEAD_BYTES:
            if not self._pieces:
                if not link.has_outgoing():
                    return
                self._pieces.extend(link.take_outgoing(FRAME_BYTES))
                self._said_ms = self._peers.clock()
            piece = self._pieces[0]
            end = self._piece_at + AHEAD_BYTES
            if end < len(piece):
                self._write(piece[self._piece_at : end])
                self._piece_at = end
                continue
            self._write(piece[self._piece_at :] if self._piece_at else piece)
            self._piece_at = 0
            self._pieces.popleft()

    def _write(self, piece: bytes) -> None:
        """A large one is not copied, where the socket takes several buffers at once."""
        outlet = self.outlet
        if not outlet.gathers or len(piece) < UNCOPIED_BYTES:
            self.out.write(piece)
            return
        if len(self.out) > 0:
            outlet.put_ahead(self.out.getvalue())
            self.out.truncate(0)
        outlet.put_ahead(piece)

    def is_idle(self) -> bool:
        """All that was said has left."""
        carrier = self.carrier
        return self.output_bytes() == 0 and isinstance(carrier, Connection) and not carrier.unsent

    def sent(self, count: i64, now_ms: WallMs) -> None:
        """The loop goes on sending as long as there is output and the socket takes it."""
        self.sent_bytes += count
        self.sent_count += 1
        if self.output_bytes() < FRAME_BYTES:
            self.fill()

    def age_ms(self) -> int:
        return self._peers.clock() - self._began_ms

    # -- endings -------------------------------------------------------------------------

    def refuse(self, code: int, text: str) -> None:
        """The peer's fault, or so it seems here: say so to it and in the log, and end."""
        if not self.closed:
            first = b"" if self._introduced else preface()
            self._say(first + encode_farewell(ERROR, code, text))
            self._end(text)

    def _was_told(self, farewell: Farewell) -> None:
        who = "it says" if farewell.kind == ERROR else "it ended the connection"
        self._end(f"{who}: {farewell.text!r}")

    def leave(self, code: int, text: str) -> None:
        """In good order."""
        if not self.closed:
            self._say(encode_farewell(BYE, code, text))
            self._end(text)
            self._peers.touch(self)

    def give_up(self, text: str) -> None:
        """The peer would not read a last word."""
        self.abandon()
        self._end(text)

    def _end(self, reason: str) -> None:
        if self.closed and self.reason:
            return
        self.closed = True
        self.reason = reason
        link, self.link = self.link, None
        if link is not None:
            link.disconnected(self, reason)
        self._peers.ended(self, link, self._wanted)

    def silent_ms(self) -> int:
        """For how long it has said nothing, as far as it was read."""
        return 0 if self.unread else int(self._peers.clock() - self._heard_ms)

    # -- what the loop asks --------------------------------------------------------------

    def tick(self, now_ms: WallMs) -> None:
        if self.closed:
            return
        now = self._peers.clock()
        limits = self._peers.limits
        if self.link is None:
            if now - self._began_ms > limits.handshake_ms:
                self.give_up(f"it has not introduced itself in {limits.handshake_ms} ms")
            return
        if self.unread:
            self._heard_ms = now
        elif self.silent_ms() > limits.silence_ms:
            self.give_up(f"it has said nothing for {now - self._heard_ms} ms")
            return
        if now - self._said_ms >= self._heartbeat_ms and self.output_bytes() == 0:
            self._say(encode_heartbeat())

    def go_on(self, now_ms: WallMs) -> None:
        """It was not read because its owner could take no more."""
        self.look_at_link()

    def look_at_link(self) -> None:
        """Not to be read while the link holds too much."""
        self.waiting_head = self.link is not None and self.link.is_overfull()

    def lost(self, now_ms: WallMs) -> None:
        before = "" if self.link is not None else ", before it had introduced itself"
        self._end(f"it hung up or was cut off{before}")

    def shut_down(self) -> None:
        """Clients are told to leave; what they had confirmed goes over the links until the end."""
        if self.link is None:
            self.leave(STOPPING, "the node stops")

    def drained(self) -> None:
        """``sent`` has taken care of it."""

    def confirm(self, durable_position: i64) -> None:
        """What waits for the disk is above the links."""

    def channel_failed(self, number: i64, error: BrokerError, method_key: i64) -> None:
        raise AssertionError("a link has no channels")
