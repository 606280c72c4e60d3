"""Deliveries, gets and returns, read back by the tests' own codec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from penstock.core.message import PERSISTENT, REDELIVERED, Message
from penstock.protocols.amqp.codec import encoder
from tests.helpers import raw_codec as codec

SIZES = st.sampled_from([0, 1, 100, 4087, 4088, 4089, 8176, 8177, 20_000])
FRAME_MAXES = st.sampled_from([4096, 5000, 8192, 131_072])
CHANNELS = st.sampled_from([1, 2, 255, 256, 65_535])
PROPERTIES = {"delivery_mode": 2, "headers": {"key": "value"}, "message_id": "m-1"}


def content(channel: int, body: bytes, frame_max: int) -> bytes:
    return codec.content_frames(channel, body, PROPERTIES, frame_max)


def written(write: Any, *arguments: Any) -> list[codec.Frame]:
    out = BytesWriter()
    write(out, *arguments)
    frames, rest = codec.split_frames(out.getvalue())
    assert not rest
    return frames


def pattern(size: int) -> bytes:
    return bytes(i * 31 & 0xFF for i in range(size))


def judge_content(frames: list[codec.Frame], body: bytes, channel: int, frame_max: int) -> None:
    """A header and the whole body, on that channel, no frame above the limit."""
    assert {frame.channel for frame in frames} == {channel}
    assert [frame.type for frame in frames] == [2] + [3] * (len(frames) - 1)
    assert codec.decode_header(frames[0].payload) == (60, len(body), PROPERTIES)
    assert b"".join(frame.payload for frame in frames[1:]) == body
    assert all(len(frame.payload) + 8 <= frame_max for frame in frames)


@given(SIZES, CHANNELS, FRAME_MAXES, CHANNELS, FRAME_MAXES)
def test_content_is_cut_anew_for_other_channels_and_smaller_frames(
    size: int, from_channel: int, from_max: int, to_channel: int, to_max: int
) -> None:
    body = pattern(size)
    raw = content(from_channel, body, from_max)
    frames = written(encoder.write_content, to_channel, raw, to_max)
    judge_content(frames, body, to_channel, to_max)
    if from_max <= to_max and from_channel == to_channel:
        out = BytesWriter()
        encoder.write_content(out, to_channel, raw, to_max)
        assert out.getvalue() == raw, "what fits travels as it came"


def test_a_body_that_came_in_many_small_frames_is_delivered_whole() -> None:
    body = pattern(300)
    raw = codec.header_frame(1, len(body), PROPERTIES) + b"".join(
        codec.encode_frame(codec.BODY, 1, body[at : at + 7]) for at in range(0, len(body), 7)
    )
    for channel in (1, 9):
        judge_content(written(encoder.write_content, channel, raw, 4096), body, channel, 4096)


def test_a_header_frame_is_never_cut() -> None:
    """Nobody could put it together again: better too large than broken."""
    headers = {"h": "x" * 6000}
    raw = codec.content_frames(3, b"body", {"headers": headers})
    frames = written(encoder.write_content, 1, raw, 4096)
    assert [frame.type for frame in frames] == [2, 3]
    assert codec.decode_header(frames[0].payload)[2] == {"headers": headers}


@given(
    st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=4),
    st.sampled_from(["", "ctag", "é" * 100, "x" * 255]),
    st.integers(1, 2**63 - 10),
    CHANNELS,
)
def test_deliveries(messages: list[tuple[int, bool]], tag: str, first: int, channel: int) -> None:
    batch = [
        Message(
            content(7, pattern(size), 4096),
            codec.short_string("ex") + codec.short_string(f"key{size}"),
            PERSISTENT | (REDELIVERED if again else 0),
            0,
        )
        for size, again in messages
    ]
    frames = written(
        encoder.write_deliveries, channel, encoder.short_bytes(tag), first, batch, 8192
    )
    starts = [at for at, frame in enumerate(frames) if frame.type == codec.METHOD]
    assert len(starts) == len(batch)
    for place, (size, again) in enumerate(messages):
        end = starts[place + 1] if place + 1 < len(starts) else len(frames)
        name, fields = codec.decode_method(frames[starts[place]].payload)
        assert name == "basic.deliver"
        assert fields == {
            "consumer_tag": tag,
            "delivery_tag": first + place,
            "redelivered": again,
            "exchange": "ex",
            "routing_key": f"key{size}",
        }
        judge_content(frames[starts[place] + 1 : end], pattern(size), channel, 8192)


def message(body: bytes, flags: int = 0) -> Message:
    return Message(
        content(1, body, 4096), codec.short_string("e") + codec.short_string("k"), flags, 0
    )


def test_get_ok() -> None:
    frames = written(encoder.write_get_ok, 5, 77, message(b"body", REDELIVERED), 3, 4096)
    assert codec.decode_method(frames[0].payload) == (
        "basic.get-ok",
        {
            "delivery_tag": 77,
            "redelivered": True,
            "exchange": "e",
            "routing_key": "k",
            "messages": 3,
        },
    )
    judge_content(frames[1:], b"body", 5, 4096)


def test_return() -> None:
    text = encoder.short_bytes("NO_ROUTE")
    frames = written(encoder.write_return, 2, 312, text, message(b"body"), 4096)
    assert codec.decode_method(frames[0].payload) == (
        "basic.return",
        {"code": 312, "text": "NO_ROUTE", "exchange": "e", "routing_key": "k"},
    )
    judge_content(frames[1:], b"body", 2, 4096)


@pytest.mark.parametrize("multiple", [False, True])
def test_confirm(multiple: bool) -> None:
    [frame] = written(encoder.write_ack, 65_535, 2**40, multiple)
    assert frame.channel == 65_535
    assert codec.decode_method(frame.payload) == (
        "basic.ack",
        {"delivery_tag": 2**40, "multiple": multiple},
    )


def test_names_that_are_no_utf8_go_back_as_they_came() -> None:
    assert encoder.short_bytes(b"\xff\xfe".decode("utf-8", "surrogateescape")) == b"\x02\xff\xfe"
