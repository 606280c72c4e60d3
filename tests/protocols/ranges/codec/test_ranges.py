"""The range protocol's frames: both ways, in any split, and against every kind of rubbish."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from penstock.core.message import PERSISTENT, Message
from penstock.protocols.ranges.codec.block import BlockColumns, encode_block
from penstock.streams.block_codec import write_record
from penstock_ranges import frames as range_frames
from penstock_ranges import ranges
from tests.helpers.range_blocks import Rows
from tests.helpers.raw_codec import content_frames, short_string

I64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=40)


def only(data: bytes) -> tuple[int, bytes]:
    frames = range_frames.FrameSplitter(range_frames.REPLY_MAX_BYTES).feed(data)
    assert len(frames) == 1
    return frames[0]


def message(seq_id: int, body: bytes, key: str = "k", flags: int = 0) -> Message:
    made = Message(
        content_frames(1, body, {}, 100), short_string("e") + short_string(key), flags, 0
    )
    made.seq_id = seq_id
    made.enqueued_at_ms = 1_700_000_000_000 + seq_id
    return made


@given(NAMES, NAMES, NAMES, NAMES, st.integers(0, 2), st.integers(0, 2**64 - 1), st.booleans())
def test_open_keeps_every_field(
    user: str, password: str, vhost: str, queue: str, mode: int, token: int, force: bool
) -> None:
    request = ranges.OpenRequest(user, password, vhost, queue, mode, token, force)
    kind, payload = only(ranges.encode_open(request))
    read = ranges.decode_open(payload)
    assert kind == ranges.OPEN
    assert (read.user, read.password, read.vhost, read.queue) == (user, password, vhost, queue)
    assert (read.mode, read.token, read.force) == (mode, token, force)


@given(NAMES, NAMES, NAMES)
def test_login_keeps_every_field(user: str, password: str, vhost: str) -> None:
    kind, payload = only(range_frames.encode_login(user, password, vhost))
    assert kind == range_frames.LOGIN
    assert range_frames.decode_login(payload) == (user, password, vhost)
    welcome = only(range_frames.encode_welcome(user))
    assert welcome[0] == range_frames.LOGIN + range_frames.REPLY
    assert range_frames.decode_welcome(welcome[1]) == user


@given(I64, I64, I64, I64, st.integers(0, 2**32 - 1), st.booleans(), NAMES)
def test_small_frames_keep_every_field(
    a: int, b: int, c: int, d: int, e: int, flag: bool, text: str
) -> None:
    assert ranges.decode_wait(only(ranges.encode_wait(a, e))[1]) == (a, e)
    assert ranges.decode_plan(only(ranges.encode_plan(a, b, c, d))[1]) == (a, b, c, d)
    assert ranges.decode_range(only(ranges.encode_range(a, b, e, flag))[1]) == (a, b, e, flag)
    assert ranges.decode_ack(only(ranges.encode_ack(a, later=flag))[1]) == (a, flag)
    assert ranges.decode_acked(only(ranges.encode_acked(a))[1]) == a
    assert ranges.decode_acked_some(only(ranges.encode_acked_some(a))[1]) == a
    assert ranges.decode_ack_some(only(ranges.encode_ack_some([a]))[1]) == [a]
    assert ranges.decode_group(only(ranges.encode_group(text))[1]) == text
    assert ranges.decode_grouped(only(ranges.encode_grouped(a))[1]) == a
    planned = ranges.encode_planned(a, b, c, flag)
    assert ranges.decode_planned(only(planned)[1]) == (a, b, c, flag)
    assert range_frames.decode_error(only(range_frames.encode_error(7, text))[1]) == (7, text)
    head = ranges.Head(a, b, c, d)
    read = ranges.decode_head(only(ranges.encode_head(head))[1])
    assert (read.floor, read.acked, read.next_seq, read.ready) == (a, b, c, d)
    incarnation, opened, token = ranges.decode_opened(only(ranges.encode_opened(text, head, e))[1])
    assert (incarnation, opened.floor, opened.ready, token) == (text, a, d, e)


@given(st.lists(st.tuples(st.binary(max_size=300), NAMES.filter(lambda n: len(n.encode()) < 256))))
def test_block_keeps_every_message(rows: list[tuple[bytes, str]]) -> None:
    messages = [message(i * 3, body, key, i % 16) for i, (body, key) in enumerate(rows)]
    kind, payload = only(encode_block(messages, 999, True))
    block = Rows(payload)
    assert kind == ranges.BLOCK
    assert block.next_start == 999
    assert block.seq_ids == [m.seq_id for m in messages]
    assert block.enqueued_at_ms == [m.enqueued_at_ms for m in messages]
    assert block.flags == [m.flags for m in messages]
    assert block.addresses == [m.address for m in messages]
    assert block.contents == [m.content for m in messages]


def test_block_without_bodies_keeps_the_header_frame_only() -> None:
    block = Rows(only(encode_block([message(1, b"x" * 5000)], 2, False))[1])
    assert block.contents == [content_frames(1, b"x" * 5000, {}, 100)[: len(block.contents[0])]]
    assert block.contents[0][0] == 2
    assert block.contents[0][-1] == 0xCE
    assert len(block.contents[0]) < 30


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_frames_come_out_whole_in_any_split(seed: int, most: int) -> None:
    chance = random.Random(seed)
    stream = (
        b"".join(range_frames.encode_error(n, "x" * n) for n in range(20)) + ranges.encode_close()
    )
    splitter = range_frames.FrameSplitter(1000)
    frames, at = [], 0
    while at < len(stream):
        step = chance.randint(1, most)
        frames += splitter.feed(stream[at : at + step])
        at += step
    assert [kind for kind, _ in frames] == [range_frames.ERROR] * 20 + [ranges.CLOSE]
    assert [range_frames.decode_error(payload) for kind, payload in frames[:20]] == [
        (n, "x" * n) for n in range(20)
    ]


def test_no_more_frames_than_asked_for_come_at_once() -> None:
    splitter = range_frames.FrameSplitter(1000)
    assert len(splitter.feed(ranges.encode_close() * 8, 3)) == 3
    assert len(splitter.feed(b"", 3)) == 3
    assert len(splitter.feed(ranges.encode_close())) == 3
    assert splitter.rest_bytes == 0


@pytest.mark.parametrize("length", [0, 1001, 2**32 - 1])
def test_a_frame_of_forbidden_length_is_refused_before_it_is_collected(length: int) -> None:
    with pytest.raises(range_frames.MalformedFrame):
        range_frames.FrameSplitter(1000).feed(length.to_bytes(4, "big"))


DECODERS: list[Callable[[bytes], Any]] = [
    ranges.decode_open,
    ranges.decode_wait,
    ranges.decode_plan,
    ranges.decode_range,
    ranges.decode_ack,
    ranges.decode_opened,
    ranges.decode_head,
    ranges.decode_planned,
    ranges.decode_acked,
    range_frames.decode_error,
    Rows,
]


@given(st.sampled_from(DECODERS), st.binary(max_size=200))
def test_rubbish_is_malformed_and_nothing_else(
    decode: Callable[[bytes], Any], payload: bytes
) -> None:
    with contextlib.suppress(range_frames.MalformedFrame):
        decode(payload)


@given(st.integers(0, 2**32), st.sampled_from(range(4)))
def test_damaged_blocks_are_malformed_or_a_block(seed: int, cut: int) -> None:
    chance = random.Random(seed)
    messages = [message(i, b"body" * i) for i in range(5)]
    payload = bytearray(only(encode_block(messages, 5, True))[1])
    damages = chance.randint(0, 3)
    for _ in range(damages):
        payload[chance.randrange(len(payload))] = chance.randrange(256)
    del payload[len(payload) - cut :]
    try:
        block = Rows(bytes(payload))
    except range_frames.MalformedFrame:
        return
    assert cut == 0 or damages > 0  # a damaged length may make up for what is cut
    assert len(block.contents) == len(block.seq_ids) == len(block.flags)


@pytest.mark.parametrize("seq_ids", [[], [1, 1], [2, 1], [*range(ranges.ACK_SOME_MAX + 1)]])
def test_chosen_messages_ascend_and_are_not_too_many(seq_ids: list[int]) -> None:
    _, payload = only(ranges.encode_ack_some(seq_ids))
    with pytest.raises(range_frames.MalformedFrame):
        ranges.decode_ack_some(payload)


def test_as_many_as_allowed_may_be_chosen() -> None:
    seq_ids = [*range(0, ranges.ACK_SOME_MAX * 3, 3)]
    assert ranges.decode_ack_some(only(ranges.encode_ack_some(seq_ids))[1]) == seq_ids


@given(
    st.lists(st.tuples(st.binary(max_size=300), NAMES), min_size=1, max_size=30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.booleans(),
)
def test_stored_records_make_the_block_that_their_messages_make(
    published: list[tuple[bytes, str]], start: int, count: int, with_body: bool
) -> None:
    messages = [message(n, body, key, PERSISTENT) for n, (body, key) in enumerate(published)]
    for one in messages:
        one.enqueued_at_ms = 7
    writer = BytesWriter()
    for one in messages:
        write_record(writer, one)
    columns = BlockColumns(with_body, 1 << 20, 1 << 30)
    end = min(start + count, len(messages))
    upto = columns.add(writer.getvalue(), 0, 7, start, end)
    assert upto == max(end, 0)
    assert columns.frame(99) == encode_block(messages[start:end], 99, with_body)


def test_a_block_of_records_is_full_in_time() -> None:
    writer = BytesWriter()
    for number in range(10):
        write_record(writer, message(number, bytes(100)))
    payload = writer.getvalue()
    size = len(payload) // 10
    for messages, content_bytes, taken in ((3, 1 << 20, 3), (99, 4 * size, 4), (99, 1, 1)):
        columns = BlockColumns(True, messages, content_bytes)
        assert columns.add(payload, 50, 7, 52, 99) == 52 + taken
        assert Rows(only(columns.frame(0))[1]).seq_ids == list(range(52, 52 + taken))
