"""The frames by which a pipeline says what it reads: both ways, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_ranges import frames as range_frames
from penstock_ranges import subscriptions

I64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=40)


def only(data: bytes) -> tuple[int, bytes]:
    [frame] = range_frames.FrameSplitter(range_frames.REPLY_MAX_BYTES).feed(data)
    return frame


@given(st.booleans(), st.lists(NAMES, min_size=2, max_size=5))
def test_subscriptions_keep_every_field(make: bool, names: list[str]) -> None:
    kind, payload = only(subscriptions.encode_subscribe(make, subscriptions.BY_EXCHANGE, names))
    assert kind == subscriptions.SUBSCRIBE
    decoded = subscriptions.decode_subscribe(payload)
    assert decoded == (make, subscriptions.BY_EXCHANGE, names)
    kind, payload = only(subscriptions.encode_subscribed(names))
    assert kind == subscriptions.SUBSCRIBE + range_frames.REPLY
    assert subscriptions.decode_subscribed(payload) == names


@given(NAMES, I64, I64, I64)
def test_positions_keep_every_field(request: str, one: int, two: int, three: int) -> None:
    kind, payload = only(subscriptions.encode_start(request, one))
    assert (kind, subscriptions.decode_start(payload)) == (subscriptions.START, (request, one))
    kind, payload = only(subscriptions.encode_started(one))
    assert (kind, subscriptions.decode_started(payload)) == (subscriptions.STARTED, one)
    kind, payload = only(subscriptions.encode_offset_at(one, two, three))
    assert kind == subscriptions.OFFSET_AT
    assert subscriptions.decode_offset_at(payload) == (one, two, three)
    kind, payload = only(subscriptions.encode_offset(one, two))
    assert (kind, subscriptions.decode_offset(payload)) == (subscriptions.OFFSET, (one, two))


@pytest.mark.parametrize(
    "decode,payload",
    [
        (subscriptions.decode_subscribe, b"\0"),
        (subscriptions.decode_subscribe, b"\2\0\0\1\0\1a"),
        (subscriptions.decode_subscribe, b"\0\5\0\1\0\1a"),
        (subscriptions.decode_subscribe, b"\0\0\0\0"),
        (subscriptions.decode_subscribe, b"\0\1\0\1\0\1a"),
        (subscriptions.decode_subscribe, b"\0\2\0\3\0\1a\0\1b\0\1c"),
        (subscriptions.decode_subscribe, b"\0\0\0\1\0\1a!"),
        (subscriptions.decode_subscribe, b"\0\0\0\2\0\1a"),
        (subscriptions.decode_subscribe, b"\0\0\x27\x10" + b"\0\0" * 10_000),
        (subscriptions.decode_subscribed, b""),
        (subscriptions.decode_start, b"\0\1a" + bytes(7)),
        (subscriptions.decode_start, b"\0\x65" + b"a" * 101 + bytes(8)),
        (subscriptions.decode_offset_at, bytes(23)),
        (subscriptions.decode_offset, bytes(17)),
    ],
)
def test_what_is_not_in_the_grammar_is_refused(
    decode: Callable[[bytes], Any], payload: bytes
) -> None:
    with pytest.raises(range_frames.MalformedFrame):
        decode(payload)
