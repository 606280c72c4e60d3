"""``Message``: one message in one queue.

A message rests in the broker in the form in which it travelled: its *content* is
the AMQP content header frame followed by its body frames, untouched.  Delivering
it is copying those bytes behind a new ``basic.deliver``; nothing of the body or the
properties is decoded unless a feature needs it.  Its *address* is the pair
(exchange, routing key) in the form both ``basic.publish`` and ``basic.deliver``
spell it: two short strings, one after the other.

One ``Message`` object is one message **in one queue**: a fan-out makes one object
per queue, and they share ``content`` and ``address``.  The object is also the token
by which a delivery is settled: its holder may give it back to the queue.

Millions of these may rest in memory, so the compiled class is invisible to the
garbage collector (``acyclic``): it must only ever refer to ``bytes`` and integers.
"""

from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs

PERSISTENT: Final = 1
"""The publisher asked for delivery mode 2."""
REDELIVERED: Final = 2
"""The message was handed to a consumer before, or may have been."""
LOGGED: Final = 4
"""The disk is to keep this message: its end needs a record in the journal."""
SETTLED: Final = 8
"""Acknowledged, dropped or dead: the queue has forgotten it."""
COPIES: Final = 16
"""The headers may name further routing keys (CC, BCC): look before routing."""
INDEXED: Final = 32
"""A segment of the queue index has a record of it (written, or being written)."""
STORED: Final = 64
"""Its content is in the message store under ``msg_id``, not in the index."""
PENDING: Final = 128
"""Handed out and not yet settled."""
PRIORITY_SHIFT: Final = 8
PRIORITY_MASK: Final[i64] = 0xFF00
"""These bits are the publisher's priority, 0 to 255.  They come from the properties, so no
record on disk has them."""
ATTEMPTS_SHIFT: Final = 16
"""Above this bit the flags count attempts to deliver (saturating at 65,535)."""
ATTEMPTS_MAX: Final = 65_535
ONE_ATTEMPT: Final[i64] = 65_536
_ATTEMPTS: Final[i64] = 0xFFFF_0000
ASKS_REPLY: Final[i64] = 1 << 32
"""``reply_to`` is the pseudo queue of direct reply-to: on its way to the broker only, which
names the real one before it routes."""
SAMPLED: Final[i64] = 1 << 33
"""The event log wants to know when this delivery is settled; never on disk."""
RETURNS_SHIFT: Final = 34
"""Above this bit the flags count how often a quorum queue got it back (saturating at 32,767)."""
RETURNS_MAX: Final = 32_767
ONE_RETURN: Final[i64] = 1 << 34
_RETURNS: Final[i64] = 32_767 << 34
LEAST_PRIORITY: Final[i64] = 1 << 49
"""The publisher's priority is 0; without this bit and those of ``PRIORITY_MASK`` there is none."""
PRIORITY_BITS: Final[i64] = LEAST_PRIORITY | 0xFF00

_COPIED: Final[i64] = LEAST_PRIORITY | 0xFF01  # PERSISTENT, and the priority

PROPERTY_PREFIX: Final = "." * 256
"""Before the name of a property among the headers a message is routed by: no header of the line
has so long a name."""

BODY_SIZE_AT: Final[i64] = 11
"""Where a content header frame says how long the body is."""


def priority_flags(priority: i64) -> i64:
    """The bits that say so; -1 = the publisher names none."""
    if priority < 0:
        return 0
    return LEAST_PRIORITY if priority == 0 else priority << PRIORITY_SHIFT


def body_size(content: bytes) -> i64:
    """Bytes of the body, without properties and frames."""
    return read_i64_be(content, BODY_SIZE_AT)


@final
@mypyc_attr(acyclic=True)
class Message:
    """One message in one queue.

    ``seq_id``          position in its queue; grows by one, is never reused
    ``content``         header frame and body frames, as published; empty = only on disk
    ``size``            bytes of the content, wherever it is
    ``msg_id``          its number in the message store, 0 = the index holds the content
    ``address``         short string exchange, short string routing key
    ``flags``           the constants above
    ``expires_at_ms``   wall clock, 0 = never
    ``enqueued_at_ms``  wall clock when the queue took it
    ``file_no``         journal file that holds its record, 0 = none
    """

    __slots__ = (
        "address", "content", "enqueued_at_ms", "expires_at_ms", "file_no", "flags", "msg_id",
        "seq_id", "size",
    )  # fmt: skip

    def __init__(self, content: bytes, address: bytes, flags: i64, expires_at_ms: WallMs) -> None:
        self.content: bytes = content
        self.address: bytes = address
        self.flags: i64 = flags
        self.expires_at_ms: WallMs = expires_at_ms
        self.seq_id: i64 = -1
        self.enqueued_at_ms = WallMs(0)
        self.file_no: i64 = 0
        self.msg_id: i64 = 0
        self.size: i64 = len(content)

    def place(self, seq_id: i64, enqueued_at_ms: WallMs) -> None:
        """It has this place in its queue, since that time."""
        self.seq_id = seq_id
        self.enqueued_at_ms = enqueued_at_ms

    def keep(self) -> None:
        """Its queue keeps it on disk, whatever the publisher asked for."""
        self.flags |= PERSISTENT

    def forget_priority(self) -> None:
        """It goes with those that name none."""
        self.flags &= ~PRIORITY_BITS

    def tried(self) -> None:
        """One attempt more."""
        if (self.flags >> ATTEMPTS_SHIFT) & ATTEMPTS_MAX < ATTEMPTS_MAX:
            self.flags += ONE_ATTEMPT

    def returned(self) -> None:
        """Its quorum queue got it back once more."""
        if (self.flags >> RETURNS_SHIFT) & RETURNS_MAX < RETURNS_MAX:
            self.flags += ONE_RETURN

    def set_counts(self, counts: i64) -> None:
        """``counts_in`` its flags are these."""
        self.flags = (self.flags & ~(_ATTEMPTS | _RETURNS)) | flags_of_counts(counts)

    def copy_for_queue(self) -> "Message":
        """The same message for one more queue: shares the bytes, has its own place."""
        copy = Message(self.content, self.address, self.flags & _COPIED, self.expires_at_ms)
        copy.msg_id = self.msg_id
        return copy

    def separated(self) -> "Message":
        """The same message as an object of its own, at the same place."""
        copy = self.copy_for_queue()
        copy.stand_for(self)
        return copy

    def without_content(self) -> "Message":
        """The same message, for its settlement only."""
        copy = Message(b"", self.address, self.flags, self.expires_at_ms)
        copy.stand_for(self)
        return copy

    def stand_for(self, message: "Message") -> None:
        self.place(message.seq_id, message.enqueued_at_ms)
        self.size = message.size


def attempts_of(message: Message) -> i64:
    """How often it was handed out, as far as that was counted."""
    return (message.flags >> ATTEMPTS_SHIFT) & ATTEMPTS_MAX


def set_attempts(message: Message, attempts: i64) -> None:
    message.flags = (message.flags & ~_ATTEMPTS) | (attempts << ATTEMPTS_SHIFT)


def returns_of(message: Message) -> i64:
    """How often its quorum queue got it back, for whatever reason."""
    return (message.flags >> RETURNS_SHIFT) & RETURNS_MAX


def counts_in(flags: i64) -> i64:
    """Attempts and returns in one number of 31 bits, as the disk has them."""
    attempts = (flags >> ATTEMPTS_SHIFT) & ATTEMPTS_MAX
    return attempts | (flags >> RETURNS_SHIFT & RETURNS_MAX) << 16


def flags_of_counts(counts: i64) -> i64:
    """The bits of flags that ``counts_in`` reads."""
    return (counts & ATTEMPTS_MAX) << ATTEMPTS_SHIFT | (counts >> 16) << RETURNS_SHIFT


def seq_id_of(message: Message) -> int:
    """For sorting."""
    return int(message.seq_id)


def mark_redelivered(messages: list[Message]) -> None:
    for message in messages:
        message.flags |= REDELIVERED


@final
class Address:
    """Where a publisher sends: parsed once, remembered by the bytes that spelled it.

    ``route`` is a memo of the broker (what routing found, and its permission check),
    valid while ``route_epoch`` is the virtual host's epoch; only the broker reads it.
    """

    __slots__ = ("exchange", "mandatory", "route", "route_epoch", "routing_key", "wire")

    def __init__(self, exchange: str, routing_key: str, wire: bytes, mandatory: bool) -> None:
        self.exchange: str = exchange
        self.routing_key: str = routing_key
        self.wire: bytes = wire
        self.mandatory: bool = mandatory
        self.route: object = None
        self.route_epoch: i64 = -1
