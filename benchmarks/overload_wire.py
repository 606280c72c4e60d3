"""What an overload run says and hears: numbered messages, their confirms, and who saw them again.

Every body begins with its publisher and its number, so that at the end each message is accounted
for by itself: published, confirmed or refused, and how often it was consumed and acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from penstock.client.templates import filler
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import encode_method
from penstock.protocols.amqp.codec.properties import (
    FRAME_BODY,
    FRAME_HEADER,
    Properties,
    encode_content,
)

CHANNEL: Final = 1
PERSISTENT: Final = 2
FRAME_MAX: Final = 131_072
STAMP: Final = "%03d-%012d"
STAMP_BYTES: Final = 16
SAMPLE: Final = (987, 123_456_789_012)
WAITING: Final = 0
CONFIRMED: Final = 1
REFUSED: Final = 2


class Account:
    """One publisher's messages, by number."""

    def __init__(self) -> None:
        self.verdicts = bytearray()
        self.seen = bytearray()
        self.answered = 0
        self._low = 0  # all below have a verdict

    @property
    def published(self) -> int:
        return len(self.verdicts)

    @property
    def unanswered(self) -> int:
        return self.published - self.answered

    def publish(self, count: int) -> None:
        self.verdicts += bytes(count)
        self.seen += bytes(count)

    def settle(self, tag: int, multiple: bool, verdict: int) -> None:
        """A confirm: tags count from one."""
        first = self._low if multiple else tag - 1
        part = self.verdicts[first:tag]
        self.answered += part.count(WAITING)
        self.verdicts[first:tag] = part.replace(bytes([WAITING]), bytes([verdict]))
        if multiple:
            self._low = max(self._low, tag)
        while self._low < self.published and self.verdicts[self._low] != WAITING:
            self._low += 1

    def see(self, number: int) -> bool:
        """Consumed and acknowledged; False when no publisher sent it."""
        if number >= self.published:
            return False
        self.seen[number] = min(255, self.seen[number] + 1)
        return True

    def result(self) -> dict[str, int]:
        """``lost``: confirmed, and never seen again."""
        lost = doubled = 0
        for verdict, seen in zip(self.verdicts, self.seen, strict=True):
            lost += verdict == CONFIRMED and seen == 0
            doubled += seen > 1
        return {
            "published": self.published,
            "confirmed": self.verdicts.count(CONFIRMED),
            "refused": self.verdicts.count(REFUSED),
            "unanswered": self.unanswered,
            "found": self.published - self.seen.count(0),
            "lost": lost,
            "doubled": doubled,
        }


def message_format(queue: str, size: int) -> bytes:
    """One persistent publish as a format of publisher and number."""
    properties = Properties(delivery_mode=PERSISTENT)
    body = (STAMP % SAMPLE).encode() + filler(size)[STAMP_BYTES:]
    publish = encode_method(CHANNEL, m.BASIC_PUBLISH, (0, "", queue, False, False))
    whole = publish + encode_content(properties, body, CHANNEL, FRAME_MAX)
    whole = whole.replace(b"%", b"%%")
    assert whole.count((STAMP % SAMPLE).encode()) == 1
    return whole.replace((STAMP % SAMPLE).encode(), STAMP.encode())


class Reader:
    """Frames of one connection; deliveries and methods go to whoever asked for them."""

    def __init__(
        self, rest: bytes, delivered: Callable[[int, bytes], None], said: Callable[[bytes], None]
    ) -> None:
        self._rest = rest
        self._delivered = delivered
        self._said = said
        self._tag = 0
        self._stamp = b""
        self._left = 0  # of the body

    def feed(self, data: bytes) -> None:
        buffer, at = self._rest + data, 0
        end = len(buffer)
        while end - at > 7:
            kind, _, size = struct.unpack_from(">BHI", buffer, at)
            stop = at + 7 + size
            if stop >= end:
                break
            if kind == m.FRAME_METHOD:
                self._method(buffer[at + 7 : stop])
            elif kind == FRAME_HEADER:
                self._left = struct.unpack_from(">Q", buffer, at + 11)[0]
                self._stamp = b""
            elif kind == FRAME_BODY:
                self._body(buffer[at + 7 : at + 7 + STAMP_BYTES], size)
            at = stop + 1
        self._rest = buffer[at:]

    def _method(self, payload: bytes) -> None:
        if payload[:4] == m.BASIC_DELIVER.to_bytes(4, "big"):
            (self._tag,) = struct.unpack_from(">Q", payload, 5 + payload[4])
        else:
            self._said(payload)

    def _body(self, begin: bytes, size: int) -> None:
        if not self._stamp:
            self._stamp = begin
        self._left -= size
        if self._left == 0:
            self._delivered(self._tag, self._stamp)


def place(stamp: bytes) -> tuple[int, int]:
    """Publisher and number."""
    publisher, _, number = stamp.partition(b"-")
    return int(publisher), int(number)


def ack(tag: int, multiple: bool) -> bytes:
    values: tuple[Any, ...] = (tag, multiple)
    return encode_method(CHANNEL, m.BASIC_ACK, values)
