"""``SegmentMarks``: what became of the messages of a segment after their records were written.

Two bitmaps of E / 8 bytes, which exist only once something was settled or delivered, and a row for
each message that is delayed or was counted.  Positions are those within the segment.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.storage.index.segment_codec import (
    DELAY_ROW_BYTES,
    decode_attempts,
    decode_delays,
    encode_marks,
)


@final
class SegmentMarks:
    """``dirty``: some of it is not on its way to the file.

    ``delays``    position → not before
    ``attempts``  position → ``counts_in``, since the records were written
    """

    __slots__ = ("attempts", "bitmap_bytes", "delays", "delivered", "dirty", "settled")

    def __init__(self, entries: i64) -> None:
        self.bitmap_bytes: i64 = (entries + 7) // 8
        self.settled: bytearray | None = None
        self.delivered: bytearray | None = None
        self.delays: dict[int, WallMs] = {}
        self.attempts: dict[int, int] = {}
        self.dirty: bool = False

    # -- settled ---------------------------------------------------------------------------

    def settle(self, position: i64) -> None:
        settled = self.settled
        if settled is None:
            settled = bytearray(int(self.bitmap_bytes))
            self.settled = settled
        byte = position >> 3
        bit: i64 = 1 << (position & 7)
        assert not settled[byte] & bit
        settled[byte] |= bit
        if self.delays:
            self.delays.pop(int(position), None)
        if self.attempts:
            self.attempts.pop(int(position), None)
        self.dirty = True

    def settle_all_but(self, kept: set[int], last: i64) -> None:
        """Every position up to and with ``last`` is done, except these."""
        settled = bytearray(int(self.bitmap_bytes))
        for position in range(last + 1):
            if int(position) not in kept:
                settled[position >> 3] |= 1 << (position & 7)
        self.settled = settled
        self.forget_settled()
        self.dirty = True

    def forget_settled(self) -> None:
        """What is settled needs no other mark."""
        self.delays = {at: ms for at, ms in self.delays.items() if not self.is_settled(at)}
        self.attempts = {at: no for at, no in self.attempts.items() if not self.is_settled(at)}

    def is_settled(self, position: i64) -> bool:
        settled = self.settled
        if settled is None:
            return False
        bit: i64 = 1 << (position & 7)
        return bool(settled[position >> 3] & bit)

    # -- delivered, delayed, counted -------------------------------------------------------

    def mark_delivered(self, position: i64) -> None:
        delivered = self.delivered
        if delivered is None:
            delivered = bytearray(int(self.bitmap_bytes))
            self.delivered = delivered
        delivered[position >> 3] |= 1 << (position & 7)
        self.dirty = True

    def was_delivered(self, position: i64) -> bool:
        delivered = self.delivered
        if delivered is None:
            return False
        bit: i64 = 1 << (position & 7)
        return bool(delivered[position >> 3] & bit)

    def set_delay(self, position: i64, until_ms: WallMs) -> None:
        """A living message is not to be ready before that time; 0 = it may."""
        if until_ms > 0:
            self.delays[int(position)] = until_ms
        else:
            self.delays.pop(int(position), None)
        self.dirty = True

    def set_attempts(self, position: i64, attempts: i64) -> None:
        """A living message has these ``counts_in``; its record may say less."""
        self.attempts[int(position)] = int(attempts)
        self.dirty = True

    # -- the file --------------------------------------------------------------------------

    def settled_bytes(self) -> bytes:
        """A copy of the bitmap."""
        return bytes(int(self.bitmap_bytes)) if self.settled is None else bytes(self.settled)

    def write_down(self) -> bytes:
        """The payload of a marks block, which the caller writes."""
        delivered = self.delivered
        if delivered is None:
            delivered = bytearray(int(self.bitmap_bytes))
        self.dirty = False
        return encode_marks(self.settled_bytes(), bytes(delivered), self.delays, self.attempts)

    def not_written(self) -> None:
        """What was written down did not become the file's."""
        self.dirty = True

    def read(self, payload: bytes, delays: i64, attempts: i64) -> None:
        """Take the payload of the last marks block, with so many rows of each kind."""
        size = self.bitmap_bytes
        if payload.count(0, 0, int(size)) < size:  # else they are of other things
            self.settled = bytearray(payload[:size])
        self.delivered = bytearray(payload[size : 2 * size])
        self.delays = decode_delays(payload, 2 * size, delays)
        self.attempts = decode_attempts(payload, 2 * size + DELAY_ROW_BYTES * delays, attempts)

    def restore(
        self, settled: bytes, delivered: bytes, delays: dict[int, WallMs], attempts: dict[int, int]
    ) -> None:
        """As the terms have it; an empty bitmap = there was none."""
        self.settled = bytearray(settled) if settled else None
        self.delivered = bytearray(delivered) if delivered else None
        self.delays = delays
        self.attempts = attempts


def has_bit(bits: bytes, position: i64) -> bool:
    """Of a bitmap as it was."""
    bit: i64 = 1 << (position & 7)
    return bool(bits[position >> 3] & bit)
