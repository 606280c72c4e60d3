"""Requests between nodes: what is written is read, and what is anything else is refused."""

from __future__ import annotations

import os
import random
from collections import deque
from typing import Any

import pytest

from penstock.core import queue_requests as q
from penstock.core.byte_reader import Malformed
from penstock.core.message import ONE_ATTEMPT, PENDING, PERSISTENT, REDELIVERED, SAMPLED, Message
from penstock.protocols.peers.codec.queues import NUMBER_MAX, decode_requests, encode_some

FAILED_ONCE: tuple[int, ...] = ()
TRIALS = int(os.environ.get("PENSTOCK_FUZZ_TRIALS", "3000"))


def encode_requests(requests: list[q.QueueRequest]) -> bytes:
    return encode_some(deque(requests), NUMBER_MAX)


def message(number: int, address: bytes = b"\x00\x01q") -> Message:
    made = Message(b"content %d" % number, address, PERSISTENT | REDELIVERED | 3 * ONE_ATTEMPT, 17)
    made.enqueued_at_ms = 1_700_000_000_000
    return made


def everything() -> list[q.QueueRequest]:
    two = [message(1), message(2), message(3, b"\x02ex\x01k")]
    return [
        q.Open(1, "/", "größe \udce4"),
        q.Close(2),
        q.Given(3, 7, 0, two),
        q.Given(3, 10, 1_700_000_000_000, []),
        q.Subscribe(4, 1, 2, "tag", True, False, -3, q.ANY_WINDOW, {"x-priority": -3, "a": "b"}),
        q.Subscribe(4, 2, 0, "", False, True, 0, 0, {}),
        q.Window(5, 1, 20, 1 << 40),
        q.Unsubscribe(6, 1),
        q.Settle(7, 1, q.GIVE_BACK, 5000, [(1, 1), (3, 9)]),
        q.Ask(8, 3, q.GET, q.NO_ACK),
        q.Gone(9),
        q.Safe(10, 12, [3, 5]),
        q.Taken(11, 800),
        q.Delivered(12, 1, 44, 1, two),
        q.Cancelled(13, 1),
        q.Answered(14, 3, "NotFound", "no queue", 1, 2, two[:1]),
        q.State(15, 1, 2, 3, 4),
    ]


def fields(one: Any) -> Any:
    if isinstance(one, Message):
        return one.address, one.content, one.flags, one.expires_at_ms, one.enqueued_at_ms, one.size
    if isinstance(one, list):
        return [fields(each) for each in one]
    if isinstance(one, q.QueueRequest):
        names = [name for name in dir(one) if not name.startswith("_")]
        return type(one), [(name, fields(getattr(one, name))) for name in names]
    return one


def test_what_is_written_is_read() -> None:
    assert fields(decode_requests(encode_requests(everything()))) == fields(everything())
    for one in everything():
        assert fields(decode_requests(encode_requests([one]))) == fields([one])
    assert decode_requests(b"") == []


def test_a_request_of_every_kind_is_tried() -> None:
    kinds = {one for one in vars(q).values() if isinstance(one, type)} & set(
        q.QueueRequest.__subclasses__()
    )
    assert {type(one) for one in everything()} == kinds


def test_how_a_message_rests_does_not_travel() -> None:
    one = message(1)
    one.flags |= PENDING | SAMPLED
    [given] = decode_requests(encode_requests([q.Given(1, 1, 0, [one])]))
    assert isinstance(given, q.Given)
    assert given.messages[0].flags == message(1).flags


def test_what_is_cut_off_is_refused() -> None:
    for one in everything():
        data = encode_requests([one])
        for end in range(1, len(data)):
            with pytest.raises(Malformed):
                decode_requests(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" + bytes(8),
        b"\x09" + bytes(8),
        b"\x17" + bytes(8),
        b"\x02" + b"\xff" * 8,
        b"\x08" + bytes(16) + b"\x08\x00",
        b"\x08" + bytes(16) + b"\x00\x08",
        b"\x05" + bytes(16) + b"\xff" * 7 + b"\xfe" + bytes(8),
        b"\x07" + bytes(16) + b"\x04" + bytes(12),
        b"\x07"
        + bytes(16)
        + b"\x00"
        + bytes(8)
        + b"\x00\x00\x00\x01"
        + bytes(7)
        + b"\x01"
        + bytes(8),
        b"\x03" + bytes(24) + b"\xff\xff\xff\xff",
        b"\x03" + bytes(24) + b"\x00\x00\x00\x01" + b"\x80" + bytes(25) + bytes(4),
    ],
)
def test_what_no_peer_says_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_requests(data)


@pytest.mark.fuzz
def test_bytes_of_any_kind_are_read_or_refused() -> None:
    drawn = os.environ.get("PENSTOCK_SEED", random.SystemRandom().randrange(1 << 32))
    for seed in (*FAILED_ONCE, int(drawn)):
        print("PENSTOCK_SEED", seed)
        read_or_refuse(seed)


def read_or_refuse(seed: int) -> None:
    chance = random.Random(seed)
    good = encode_requests(everything())
    read = 0
    for _ in range(TRIALS):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice([0, 1, 1, 8])] = chance.randbytes(
                chance.choice([0, 1, 1, 8])
            )
        try:
            again = decode_requests(bytes(data))
        except Malformed:
            continue
        read += 1
        written = encode_requests(again)
        assert encode_requests(decode_requests(written)) == written
    assert 0 < read < TRIALS
