"""Frames between the nodes of a cluster (sans-IO): bytes of one connection become frames and back.

The page is docs/formats/peer.md.  In short, everything big-endian::

    preface   "PSTN", u16 lowest version, u16 highest version
    frame     u32 size, u32 not(size), u8 kind, u32 crc, payload     crc over kind and payload

    HELLO, PROOF        which node it is, and that it knows the secret: ``peers.codec.hello``
    PARCELS             u64 first, u64 ack, u32 count, (u32 stream, u32 size) × count, payloads
    ACK                 u64 ack
    HEARTBEAT           nothing
    ERROR, BYE          u16 code, text: the connection ends, for a reason or in good order

In come chunks as the socket gave them, cut anywhere; out come frames, a batch of parcels being one.
Nothing a peer sends makes the reader raise: what is wrong becomes a ``FrameFault``, the last frame.
Until ``admit`` only HELLO, PROOF, ERROR and BYE are read, none larger than
``UNPROVEN_MAX_BYTES``, and one at a time: what follows is looked at when the session has judged
the one before (``paused``).  Memory follows the bytes that came, never a size that was announced.

A size is said twice because one damaged on the way would otherwise be waited for: up to a gibibyte
of heartbeats would come in before the checksum is looked at.

Dropped: a frame for each parcel (25 bytes and a checksum for messages of a hundred); columns
instead of one table of streams and sizes (a table is one call to read and one to write).
"""

import struct
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from penstock.core.checksum import crc32

MAGIC: Final = b"PSTN"
VERSION: Final = 1
"""The highest that is spoken here."""
LOWEST_VERSION: Final = 1

HELLO: Final = 1
PROOF: Final = 2
PARCELS: Final = 3
ACK: Final = 4
HEARTBEAT: Final = 5
ERROR: Final = 6
BYE: Final = 7
KINDS: Final = ("", "HELLO", "PROOF", "PARCELS", "ACK", "HEARTBEAT", "ERROR", "BYE")

MALFORMED: Final = 1
NO_COMMON_VERSION: Final = 2
WRONG_CLUSTER: Final = 3
NOT_PROVEN: Final = 4
NOT_A_MEMBER: Final = 5
"""Unknown here, or known by another incarnation: either the list of members is old, or the peer."""
WRONG_DIRECTION: Final = 6
"""The one of two nodes whose name is lower calls."""
REPLACED: Final = 7
"""A newer connection of the same member takes this one's place."""
ENDED: Final = 8
"""This life of the node was counted as over: it must come back as a new member."""
STOPPING: Final = 9

HEAD_BYTES: Final[i64] = 13
PREFACE_BYTES: Final[i64] = 8
_KIND_AT: Final[i64] = 8
_CRC_AT: Final[i64] = 9
UNPROVEN_MAX_BYTES: Final[i64] = 1024
"""Of a payload, until the peer has proven itself."""
TEXT_MAX_BYTES: Final = 500
PARCEL_MAX_BYTES: Final = (1 << 30) - (1 << 20)
"""Of one payload; what is left of a gibibyte is for those that go in the same frame."""
STREAM_MAX: Final = (1 << 32) - 1
PAYLOAD_MAX_BYTES: Final[i64] = 1 << 30
JOINED_BELOW_BYTES: Final = 4096
"""Parcels that are smaller on the average are copied together: cheaper than one by one."""

_NUMBER_MAX: Final = (1 << 63) - 1
_HEAD: Final = struct.Struct(">IIBI")
_PREFACE: Final = struct.Struct(">4sHH")
_PARCELS: Final = struct.Struct(">QQI")
_U64: Final = struct.Struct(">Q")
_U16: Final = struct.Struct(">H")
_PARCELS_BYTES: Final[i64] = 20
_ROW_BYTES: Final[i64] = 8
_CRC_OF_PARCELS: Final = crc32(bytes((PARCELS,)))
_INVERSE: Final = 0xFFFFFFFF


Parcel: TypeAlias = tuple[int, int, int, bytes]
"""Number, what is acknowledged, stream, payload: as a session of the cluster gives and takes it."""


class Frame:
    """What came in, whole; of HELLO, PROOF and HEARTBEAT it is all there is to know."""

    def __init__(self, kind: int, payload: bytes) -> None:
        self.kind = kind
        self.payload = payload


@final
class Parcels(Frame):
    """A batch, numbered without a gap; or the acknowledgement alone, as a parcel with number 0."""

    def __init__(self, ack: int, parcels: list[Parcel], size_bytes: int) -> None:
        super().__init__(PARCELS, b"")
        self.ack = ack
        self.parcels = parcels
        self.size_bytes = size_bytes  # of the frame


@final
class Farewell(Frame):
    """ERROR or BYE: the peer ends the connection and says why."""

    def __init__(self, kind: int, code: int, text: str) -> None:
        super().__init__(kind, b"")
        self.code = code
        self.text = text


@final
class FrameFault(Frame):
    """What the peer sent cannot be; nothing after it is read."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(0, b"")
        self.code = code
        self.text = text


class Wrong(Exception):
    """Of a payload, on the way to a ``FrameFault``."""

    def __init__(self, text: str, code: int = MALFORMED) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


@final
class PeerReader:
    def __init__(self) -> None:
        self.paused: bool = False
        self.lowest: int = 0  # version that the peer speaks; known with the first frame
        self.highest: int = 0
        self._has_preface: bool = False
        self._admitted: bool = False
        self._failed: bool = False
        self._rest: list[bytes] = []
        self._rest_bytes: i64 = 0
        self._needed_bytes: i64 = PREFACE_BYTES

    def admit(self) -> None:
        """The peer has proven itself: from now on it may send parcels."""
        self._admitted = True

    def version(self) -> int:
        """The one spoken on this connection."""
        return min(self.highest, VERSION)

    def receive(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes; nothing more after a ``FrameFault``.

        ``paused`` afterwards: judge them, then call again with b"".
        """
        frames: list[Frame] = []
        self.paused = False
        if self._failed:
            return frames
        if self._rest_bytes > 0:
            if len(data) > 0:
                self._rest.append(data)
                self._rest_bytes += len(data)
            if self._rest_bytes < self._needed_bytes:
                return frames
            data = b"".join(self._rest)
        self._rest = []
        self._rest_bytes = 0
        try:
            done = self._split(data, frames)
        except Wrong as wrong:
            self._failed = True
            frames.append(FrameFault(wrong.code, wrong.text))
            return frames
        if done < len(data):
            rest = data[done:] if done > 0 else data
            self._rest = [rest]
            self._rest_bytes = len(rest)
        return frames

    def _split(self, data: bytes, frames: list[Frame]) -> i64:
        """Handle every whole frame; returns how many bytes were used up."""
        length: i64 = len(data)
        at: i64 = 0
        if not self._has_preface:
            if length < PREFACE_BYTES:
                return 0
            self._preface(data)
            at = PREFACE_BYTES
        self._needed_bytes = HEAD_BYTES
        view = memoryview(data)
        while length - at >= HEAD_BYTES and not self.paused:
            size, inverse, kind, crc = _HEAD.unpack_from(data, at)
            if size ^ inverse != _INVERSE:
                raise Wrong(f"a frame's size, {size}, and its complement do not agree")
            self._check(kind, size)
            start = at + HEAD_BYTES
            end: i64 = start + i64(size)
            if end > length:
                self._needed_bytes = end - at
                break
            if crc32(view[start:end], crc32(view[at + _KIND_AT : at + _CRC_AT])) != crc:
                raise Wrong(f"{KINDS[kind]} with a wrong checksum")
            if kind == PARCELS:
                frames.append(decode_parcels(data, start, end))
            else:
                frames.append(_small(kind, data[start:end]))
            at = end
            self.paused = not self._admitted
        return at

    def _preface(self, data: bytes) -> None:
        magic, lowest, highest = _PREFACE.unpack_from(data, 0)
        if magic != MAGIC:
            raise Wrong(f"this is no node of a cluster: it begins with {magic!r}")
        self.lowest = lowest
        self.highest = highest
        if lowest > highest or lowest > VERSION or highest < LOWEST_VERSION:
            text = f"it speaks versions {lowest} to {highest}, here {LOWEST_VERSION} to {VERSION}"
            raise Wrong(text, NO_COMMON_VERSION)
        self._has_preface = True

    def _check(self, kind: int, size: int) -> None:
        """May such a frame come now?"""
        if not HELLO <= kind <= BYE:
            raise Wrong(f"a frame of kind {kind}, which is none")
        if kind == PARCELS or kind == ACK or kind == HEARTBEAT:
            if not self._admitted:
                raise Wrong(f"{KINDS[kind]} from a peer that has not proven itself")
        elif self._admitted and (kind == HELLO or kind == PROOF):
            raise Wrong(f"{KINDS[kind]} for a second time")
        most = PAYLOAD_MAX_BYTES if kind == PARCELS else UNPROVEN_MAX_BYTES
        if size > most:
            raise Wrong(f"{KINDS[kind]} of {size} bytes, at most {int(most)} are allowed")


# -- in ----------------------------------------------------------------------------------


def decode_parcels(data: bytes, start: i64, end: i64) -> Parcels:
    """What stands there in ``data``; raises ``Wrong``.  Payloads are cut out once, nothing else."""
    size: i64 = end - start
    if size < _PARCELS_BYTES:
        raise Wrong(f"PARCELS of {int(size)} bytes")
    first, ack, count = _PARCELS.unpack_from(data, start)
    if first < 1 or count < 1 or first + count > _NUMBER_MAX:
        raise Wrong(f"PARCELS that are {count}, from number {first} on")
    at: i64 = start + _PARCELS_BYTES + _ROW_BYTES * i64(count)
    if at > end:
        raise Wrong(f"PARCELS of {int(size)} bytes, which has no room for {count} of them")
    _number(ack)
    table = struct.unpack_from(f">{2 * count}I", data, start + _PARCELS_BYTES)
    parcels: list[Parcel] = []
    number: i64 = first
    place = 0
    for _ in range(count):
        after: i64 = at + i64(table[place + 1])
        if after > end:
            raise Wrong("PARCELS that end before the last one does")
        parcels.append((number, ack, table[place], data[at:after]))
        at = after
        number += 1
        place += 2
    if at != end:
        raise Wrong(f"PARCELS with {int(end - at)} bytes behind the last one")
    return Parcels(ack, parcels, size)


def _small(kind: int, payload: bytes) -> Frame:
    """Any other frame; raises ``Wrong``."""
    if kind == ACK:
        if len(payload) != 8:
            raise Wrong(f"ACK of {len(payload)} bytes")
        ack = _number(_U64.unpack(payload)[0])
        return Parcels(ack, [(0, ack, 0, b"")], 8)
    if kind == HEARTBEAT and len(payload) > 0:
        raise Wrong(f"HEARTBEAT of {len(payload)} bytes")
    if kind == ERROR or kind == BYE:
        return _farewell(kind, payload)
    return Frame(kind, payload)


def _number(number: int) -> int:
    if number > _NUMBER_MAX:
        raise Wrong(f"{number} as the number of a parcel")
    return number


def _farewell(kind: int, payload: bytes) -> Farewell:
    if not 2 <= len(payload) <= 2 + TEXT_MAX_BYTES:
        raise Wrong(f"{KINDS[kind]} of {len(payload)} bytes")
    try:
        text = payload[2:].decode()
    except UnicodeDecodeError:
        raise Wrong(f"{KINDS[kind]} whose text is not UTF-8") from None
    return Farewell(kind, _U16.unpack_from(payload, 0)[0], text)


# -- out ---------------------------------------------------------------------------------


def preface(lowest: int = LOWEST_VERSION, highest: int = VERSION) -> bytes:
    return _PREFACE.pack(MAGIC, lowest, highest)


def frame(kind: int, payload: bytes) -> bytes:
    """One frame of any kind."""
    size = len(payload)
    crc = crc32(payload, crc32(bytes((kind,))))
    return _HEAD.pack(size, size ^ _INVERSE, kind, crc) + payload


def encode_parcels(parcels: list[Parcel]) -> list[bytes]:
    """A batch as pieces to be written one behind the other; large payloads are not copied.

    The numbers follow each other; the newest acknowledgement counts.  One parcel with number 0 is
    an acknowledgement alone.
    """
    first, _, _, _ = parcels[0]
    _, ack, _, _ = parcels[-1]
    if first == 0:
        return [frame(ACK, _U64.pack(ack))]
    count = len(parcels)
    table: list[int] = []
    payloads: list[bytes] = []
    size = 20 + 8 * count
    for _, _, stream, payload in parcels:
        length = len(payload)
        table.append(stream)
        table.append(length)
        payloads.append(payload)
        size += length
    assert size <= (1 << 30)
    start = struct.pack(f">QQI{2 * count}I", first, ack, count, *table)
    if size < JOINED_BELOW_BYTES * count:
        body = b"".join([start, *payloads])
        crc = crc32(body, _CRC_OF_PARCELS)
        return [_HEAD.pack(size, size ^ _INVERSE, PARCELS, crc), body]
    crc = crc32(start, _CRC_OF_PARCELS)
    for payload in payloads:
        crc = crc32(payload, crc)
    pieces = [_HEAD.pack(size, size ^ _INVERSE, PARCELS, crc) + start]
    pieces.extend(payloads)
    return pieces


def encode_heartbeat() -> bytes:
    return frame(HEARTBEAT, b"")


def encode_farewell(kind: int, code: int, text: str) -> bytes:
    """``kind``: ERROR or BYE; a text that is too long is cut."""
    short = text.encode(errors="replace")[:TEXT_MAX_BYTES].decode(errors="ignore")
    return frame(kind, _U16.pack(code) + short.encode())
