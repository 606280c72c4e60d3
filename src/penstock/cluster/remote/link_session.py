"""``LinkSession``: between two members nothing is lost, doubled or put out of order.

    send(stream, payload) ─► take_outgoing ─► parcels ─► ~socket~ ─► receive ─► deliveries

One session stands for both directions of one pair of members (lives, not nodes) and outlives its
connections: it ends when one of the two members ends.  What is sent is a *parcel*, numbered from
1; it is kept until the other side has acknowledged it, and sent again after a reconnection.
Every parcel carries the number of the last one that came the other way, so acknowledgements are
cumulative and mostly free; a parcel with the number 0 carries nothing else.

For the layer below (bytes, sockets):

    parcels = session.take_outgoing(max_bytes)      [(number, ack, stream, payload)], or []
    deliveries = session.receive(parcels)           [(stream, payload)], in order, each once
    session.connected(their_last_received)          both say ``last_received`` in their greeting
    session.disconnected()
    session.tick(now_ms)                            several times a second; then take_outgoing
    session.has_outgoing()                          is it worth a write

After ``receive`` look at ``session.fault``: a sentence when the other side left a gap or
acknowledged what was never sent.  Then this connection is to be closed; the session remains, and
what was missing comes on the next one.  ``connected`` raises ``LinkFault`` when the other side
cannot mean this session at all.

For the layer above:

    session.send(stream, payload)      never refuses: the sender asks ``is_full`` before
    session.is_full(), has_room()      the limit is reached; it is half empty again
    waiting_bytes, waiting_count, resent_count, disconnected_since_ms      for operators

A ``stream`` is a number the two sides agree on elsewhere; a payload is opaque.  Nothing here looks
at bytes: a batch costs a tuple a parcel.

``resend_after_ms`` is for ways that lose single frames (the simulator's, never TCP): what was
sent and not acknowledged for so long goes again, and a parcel that comes too early is dropped
because its predecessor will come again.  With 0, as on a stream of bytes, a gap is a fault.

Invariants (``check``):
  L1  kept are exactly the parcels from the last acknowledged to the last numbered, in order, those
      sent on this connection before those to be sent
  L2  bytes that wait are the sum over what is kept
  L3  we never acknowledged more than we received

Rejected: a window of parcels that came too early (on a stream there are none, and in the simulator
sending again does as well); refusing in ``send`` (half of what a turn does would have been sent).
"""

from collections import deque
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs

Parcel: TypeAlias = tuple[int, int, int, bytes]
"""Number (0 = bare acknowledgement), acknowledged up to, stream, payload."""
Delivery: TypeAlias = tuple[int, bytes]
"""Stream, payload."""

PARCEL_BYTES: Final[i64] = 64
"""Counted for a parcel beside its payload: what it costs to keep."""
LIMIT_BYTES: Final[i64] = 16 << 20
ACK_AFTER_MS: Final[i64] = 20
"""So long an acknowledgement waits for a parcel to go with."""


class LinkFault(Exception):
    """Their greeting cannot be about this session."""


@final
class LinkSession:
    """This member's end; ``limit_bytes`` bounds what may wait, ``resend_after_ms`` 0 = never."""

    def __init__(
        self, now_ms: MonoMs, limit_bytes: i64 = LIMIT_BYTES, resend_after_ms: i64 = 0
    ) -> None:
        self.limit_bytes: i64 = limit_bytes
        self.last_received: i64 = 0
        self.last_sent: i64 = 0  # the last number given
        self.acked: i64 = 0  # by them
        self.waiting_bytes: i64 = 0
        self.resent_count: i64 = 0
        self.sent_bytes: i64 = 0
        self.received_bytes: i64 = 0
        self.is_connected: bool = False
        self.fault: str = ""
        self.disconnected_since_ms: MonoMs = now_ms
        self._resend_after_ms: i64 = resend_after_ms
        self._now_ms: MonoMs = now_ms
        self._heard_at_ms: MonoMs = now_ms  # when they last acknowledged more, or all was
        self._taken: i64 = 0  # the highest number ever taken: below it is a repetition
        self._acknowledged: i64 = 0  # the last one we sent
        self._unacked_bytes: i64 = 0  # received since then
        self._since_ms: MonoMs = now_ms  # the oldest of these
        self._bare: bool = False
        self._sent: deque[tuple[int, int, bytes]] = deque()
        self._to_send: deque[tuple[int, int, bytes]] = deque()

    # -- for the layer above -----------------------------------------------------------------

    def send(self, stream: int, payload: bytes) -> None:
        self.last_sent += 1
        self.waiting_bytes += len(payload) + PARCEL_BYTES
        self._to_send.append((self.last_sent, stream, payload))

    def is_full(self) -> bool:
        """The sender is to wait until it ``has_room``."""
        return self.waiting_bytes >= self.limit_bytes

    def has_room(self) -> bool:
        return self.waiting_bytes * 2 <= self.limit_bytes

    @property
    def waiting_count(self) -> int:
        return len(self._sent) + len(self._to_send)

    # -- connections --------------------------------------------------------------------------

    def connected(self, their_last_received: int) -> None:
        """A new connection, greetings exchanged: what they have not got goes (again) on it."""
        if their_last_received < self.acked or their_last_received > self._taken:
            raise LinkFault(
                f"they received up to {their_last_received}, we know of {self.acked}, "
                f"and sent up to {self._taken}"
            )
        self._rewind()
        self._heard(their_last_received)
        self._acknowledged = self.last_received  # our greeting said it
        self._unacked_bytes = 0
        self._bare = False
        self.fault = ""
        self.is_connected = True

    def disconnected(self) -> None:
        if self.is_connected:
            self.is_connected = False
            self.disconnected_since_ms = self._now_ms

    # -- parcels ------------------------------------------------------------------------------

    def has_outgoing(self) -> bool:
        return self.is_connected and (self._bare or len(self._to_send) > 0)

    def take_outgoing(self, max_bytes: int) -> list[Parcel]:
        """About so many bytes, at least one parcel if there is any; [] while not connected."""
        parcels: list[Parcel] = []
        if not self.is_connected:
            return parcels
        to_send = self._to_send
        ack = self.last_received
        room: i64 = max_bytes
        if len(self._sent) == 0:
            self._heard_at_ms = self._now_ms
        while len(to_send) > 0 and room > 0:
            one = to_send.popleft()
            self._sent.append(one)
            room -= len(one[2]) + PARCEL_BYTES
            parcels.append((one[0], ack, one[1], one[2]))
            if one[0] <= self._taken:
                self.resent_count += 1
            else:
                self._taken = one[0]
        if not parcels and self._bare:
            parcels.append((0, ack, 0, b""))
        if parcels:
            self._acknowledged = ack
            self._unacked_bytes = 0
            self._bare = False
        self.sent_bytes += i64(max_bytes) - room
        return parcels

    def receive(self, parcels: list[Parcel]) -> list[Delivery]:
        """What came in one go; what it could not take is said in ``fault``."""
        deliveries: list[Delivery] = []
        last = self.last_received
        ack = self.acked
        size: i64 = 0
        for number, theirs, stream, payload in parcels:
            if theirs > ack:
                ack = theirs
            if number == last + 1:
                last += 1
                size += len(payload) + PARCEL_BYTES
                deliveries.append((stream, payload))
            elif number > 0:
                self._came_wrong(number, last)
        self.last_received = last
        self._note_received(size)
        self._heard(ack)
        return deliveries

    def tick(self, now_ms: MonoMs) -> None:
        """Time has passed: acknowledgements that found no company, and what got lost."""
        self._now_ms = now_ms
        if self._unacked_bytes > 0 and self._now_ms - self._since_ms >= ACK_AFTER_MS:
            self._bare = True
        waited = self._now_ms - self._heard_at_ms
        if len(self._sent) > 0 and 0 < self._resend_after_ms <= waited:
            self._rewind()

    # -- inside -------------------------------------------------------------------------------

    def _came_wrong(self, number: i64, last: i64) -> None:
        if number <= last:
            self._bare = True  # they do not know yet that we have it
        elif self._resend_after_ms == 0:
            self.fault = f"parcel {number} came after {last}"

    def _note_received(self, size: i64) -> None:
        if size == 0:
            return
        if self._unacked_bytes == 0:
            self._since_ms = self._now_ms
        self._unacked_bytes += size
        self.received_bytes += size
        if self._unacked_bytes * 4 >= self.limit_bytes:
            self._bare = True  # or they would be full and silent, and wait for our next tick

    def _heard(self, ack: i64) -> None:
        """They have everything up to there."""
        if ack <= self.acked:
            return
        if ack > self._taken:
            self.fault = f"{ack} acknowledged, {self._taken} sent"
            return
        self.acked = ack
        self._heard_at_ms = self._now_ms
        sent = self._sent
        while sent and sent[0][0] <= ack:
            self.waiting_bytes -= len(sent.popleft()[2]) + PARCEL_BYTES
        to_send = self._to_send  # what was to be repeated
        while to_send and to_send[0][0] <= ack:
            self.waiting_bytes -= len(to_send.popleft()[2]) + PARCEL_BYTES

    def _rewind(self) -> None:
        self._to_send.extendleft(reversed(self._sent))
        self._sent.clear()

    def check(self) -> None:
        kept = list(self._sent) + list(self._to_send)
        numbers = [number for number, _, _ in kept]
        assert numbers == list(range(self.acked + 1, self.last_sent + 1)), "L1"
        assert self.waiting_bytes == sum(len(p) + PARCEL_BYTES for _, _, p in kept), "L2"
        assert self._acknowledged <= self.last_received, "L3"
