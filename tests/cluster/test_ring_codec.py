"""Messages of a ring ⇄ bytes: what is written is read, and nothing else is."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.ring.codec import (
    ACTIVITY,
    BLANK,
    CATCH_UP,
    RingEntry,
    RingMessage,
    decode,
    encode,
)
from penstock.core.byte_reader import Malformed

NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable())
NUMBERS = st.integers(1, 1 << 62)


@st.composite
def entries(draw: st.DrawFn, origin: str) -> RingEntry:
    first = draw(NUMBERS)
    items: list[bytes | None] = list(draw(st.lists(st.binary(max_size=50), max_size=5)))
    if draw(st.booleans()):
        items.append(None)
    return RingEntry(origin, first, items, draw(st.integers(0, first + len(items) - 1)))


@st.composite
def messages(draw: st.DrawFn) -> RingMessage:
    kind = draw(st.sampled_from((ACTIVITY, CATCH_UP, BLANK)))
    least, most = {ACTIVITY: (0, 0), CATCH_UP: (0, 4), BLANK: (1, 1)}[kind]
    names = draw(st.lists(NAMES, min_size=least, max_size=most, unique=True))
    origins = [] if kind == BLANK else draw(st.lists(NAMES, max_size=4, unique=True))
    return RingMessage(kind, draw(NUMBERS), names, [draw(entries(one)) for one in origins])


def told(message: RingMessage) -> object:
    return (
        message.kind,
        message.version,
        message.names,
        [(one.origin, one.first, one.items, one.ack) for one in message.entries],
    )


@given(messages())
def test_what_is_written_is_read(message: RingMessage) -> None:
    data = b"".join(encode(message))
    assert told(decode(data)) == told(message)
    assert told(decode(b"its carrier's" + data, 13)) == told(message)


@given(messages(), st.randoms(use_true_random=False))
def test_changed_bytes_are_refused_or_are_another_message(
    message: RingMessage, rng: random.Random
) -> None:
    """Every message has one spelling, so what can be read is written the same way."""
    data = bytearray(b"".join(encode(message)))
    for _ in range(rng.randint(1, 3)):
        match rng.randrange(4) if data else 2:
            case 0:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 1:
                del data[rng.randrange(len(data)) :]
                data += rng.randbytes(rng.randrange(4))
            case 2:
                data.insert(rng.randint(0, len(data)), rng.randrange(256))
            case 3:
                at = rng.randrange(len(data))
                data[at : at + 4] = b"\xff" * 4
    try:
        again = decode(bytes(data))
    except Malformed:
        return
    assert b"".join(encode(again)) == bytes(data)


def test_every_cut_is_refused() -> None:
    data = b"".join(encode(RingMessage(CATCH_UP, 3, ["n1"], [RingEntry("n2", 4, [b"x", None], 2)])))
    for length in range(len(data)):
        with pytest.raises(Malformed):
            decode(data[:length])
    with pytest.raises(Malformed):
        decode(data + b"\0")


def spelled(
    kind: int = 1, version: int = 1, names: tuple[bytes, ...] = (), rest: bytes = b""
) -> bytes:
    said = b"".join(struct.pack(">H", len(name)) + name for name in names)
    return struct.pack(">BQH", kind, version, len(names)) + said + (rest or struct.pack(">I", 0))


def entry(name: bytes, first: int, ack: int, count: int, items: bytes = b"") -> bytes:
    return struct.pack(">H", len(name)) + name + struct.pack(">QQI", first, ack, count) + items


ONE = struct.pack(">I", 1)
TWO = struct.pack(">I", 2)
END_SIGN = b"\xff" * 4
EMPTY = bytes(4)
REFUSED = {
    "an unknown kind": spelled(kind=4),
    "version 0": spelled(version=0),
    "a version too large": spelled(version=1 << 63),
    "activity with a name": spelled(names=(b"a",)),
    "blank without a name": spelled(kind=BLANK),
    "blank with an entry": spelled(kind=BLANK, names=(b"a",), rest=ONE + entry(b"a", 1, 0, 0)),
    "an empty name": spelled(kind=CATCH_UP, names=(b"",)),
    "a name that is no text": spelled(kind=CATCH_UP, names=(b"\xff",)),
    "a name twice": spelled(kind=CATCH_UP, names=(b"a", b"a")),
    "an origin twice": spelled(rest=TWO + entry(b"a", 1, 0, 0) * 2),
    "numbers from 0": spelled(rest=ONE + entry(b"a", 0, 0, 0)),
    "more acknowledged than there is": spelled(rest=ONE + entry(b"a", 3, 3, 0)),
    "a number too large": spelled(rest=ONE + entry(b"a", (1 << 63) - 1, 0, 1, EMPTY)),
    "something behind an end": spelled(rest=ONE + entry(b"a", 1, 0, 2, END_SIGN + EMPTY)),
    "many items and few bytes": spelled(rest=ONE + entry(b"a", 1, 0, 1 << 31, EMPTY)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_message_is_refused(what: str) -> None:
    with pytest.raises(Malformed):
        decode(REFUSED[what])
