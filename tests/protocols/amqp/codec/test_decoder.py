"""Bytes become events: whatever the cuts, in order, whole, and within bounds.

The frames are made by the tests' own codec.  ``story`` writes a decoder's events down as plain
tuples, runs undone, so that two of them can be compared.
"""

from __future__ import annotations

import struct
import sys
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.message import COPIES, PERSISTENT
from penstock.protocols.amqp.codec import methods, refusals
from penstock.protocols.amqp.codec.decoder import (
    ADDRESSES_MAX,
    EVENTS_MAX,
    LONG_BYTES_MAX,
    PASSED_BY_MAX,
    AmqpDecoder,
    read_address,
)
from penstock.protocols.amqp.codec.errors import MalformedArguments
from penstock.protocols.amqp.codec.events import (
    AckRun,
    ChannelFailed,
    ConnectionFailed,
    Event,
    MethodReceived,
    PublishRun,
)
from tests.helpers import raw_codec as codec

FRAME_MAX = 4096
NOW_MS = 1_000_000
Story = list[tuple[Any, ...]]


def decoder(frame_max: int = FRAME_MAX, message_max: int = 1 << 20, channels: int = 3) -> Any:
    """One that has gone through the handshake, with channels 1..n open."""
    fresh = AmqpDecoder(frame_max, message_max)
    fresh.open(b"guest")
    for channel in range(1, channels + 1):
        assert len(fresh.receive(codec.method_frame(channel, "channel.open"), NOW_MS)) == 1
    return fresh


def story(events: list[Event]) -> Story:
    told: Story = []
    for event in events:
        if isinstance(event, PublishRun):
            for message in event.messages:
                address = event.address
                told.append(
                    (
                        *("publish", event.channel, address.exchange, address.routing_key),
                        *(address.mandatory, bytes(message.content), message.flags),
                        *(message.expires_at_ms, message.address),
                    )
                )
        elif isinstance(event, AckRun):
            last = event.last_tag
            tags = [last] if event.multiple else range(event.first_tag, last + 1)
            told += [("ack", event.channel, tag, event.multiple) for tag in tags]
        elif isinstance(event, MethodReceived):
            told.append(("method", event.channel, event.method.name, dict(event.method.fields)))
        elif isinstance(event, ChannelFailed):
            told.append(("channel failed", event.channel, str(event.error), event.method_key))
        else:
            assert isinstance(event, ConnectionFailed)
            violation = event.violation
            told.append(("failed", event.channel, violation.code, violation.text))
    return told


def told(data: bytes, cuts: list[int], **options: Any) -> Story:
    subject = decoder(**options)
    found: Story = []
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    for start, end in pairwise(edges):
        found += story(subject.receive(data[start:end], NOW_MS))
    return found


def publish(
    channel: int, exchange: str, key: str, body: bytes, *, mandatory: bool = False, **more: Any
) -> bytes:
    method = codec.method_frame(
        channel, "basic.publish", exchange=exchange, routing_key=key, mandatory=mandatory
    )
    return method + codec.content_frames(channel, body, more, FRAME_MAX)


def publish_head(size: int) -> bytes:
    """Of a publish whose body has so many bytes."""
    return codec.method_frame(1, "basic.publish") + codec.header_frame(1, size, {})


# -- any input, any cuts ---------------------------------------------------------------------

CHANNELS = st.integers(1, 3)
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([4087, 4088, 4089, 9000]).map(lambda size: b"x" * size),
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "expiration": st.sampled_from(["0", "1000", "86400000"]),
        "headers": st.dictionaries(
            st.sampled_from(["a", "CC", "BCC", "xCC"]), st.integers(0, 9), max_size=2
        ),
        "content_type": st.sampled_from(["", "text/plain"]),
        "user_id": st.just("guest"),
        "message_id": st.text(max_size=5),
        "timestamp": st.integers(0, 2**40),
    },
)
PUBLISHES = st.builds(
    lambda channel, exchange, key, body, mandatory, properties: publish(
        channel, exchange, key, body, mandatory=mandatory, **properties
    ),
    CHANNELS,
    st.sampled_from(["", "ex", "line\r\nbreak"]),
    st.sampled_from(["", "k", "long." * 40]),
    BODIES,
    st.booleans(),
    PROPERTIES,
)
ACKS = st.builds(
    lambda channel, tag, multiple: codec.method_frame(
        channel, "basic.ack", delivery_tag=tag, multiple=multiple
    ),
    CHANNELS,
    st.integers(0, 5) | st.just(2**64 - 1),
    st.booleans(),
)
OTHERS = st.sampled_from(
    [
        codec.encode_frame(codec.HEARTBEAT, 0, b""),
        codec.method_frame(1, "basic.qos", prefetch_count=9),
        codec.method_frame(2, "queue.declare", queue="q", arguments={"x": 1}),
        codec.method_frame(3, "channel.close", code=200, text="bye"),
        codec.method_frame(3, "channel.open"),
        codec.method_frame(4, "channel.open"),
        codec.method_frame(2, "channel.close-ok"),
    ]
)
WRONG = st.sampled_from(
    [
        codec.encode_frame(codec.HEARTBEAT, 1, b""),
        codec.encode_frame(codec.BODY, 1, b"lost"),
        codec.header_frame(2, 3, {}),
        codec.encode_frame(7, 0, b"??"),
        codec.encode_frame(codec.METHOD, 1, b"\x00\x3c\x00\x28\x00"),
        codec.encode_frame(codec.METHOD, 1, b"\x01\x02\x03\x04"),
        codec.method_frame(9, "basic.qos"),
        struct.pack(">BHI", 3, 1, FRAME_MAX + 1),
        codec.method_frame(1, "basic.qos")[:-1] + b"\x00",
        publish(1, "", "q", b"m", expiration="soon"),
        publish(1, "", "q", b"m", delivery_mode=7),
        publish(2, "", "q", b"m", user_id="somebody"),
        codec.method_frame(1, "basic.publish") + codec.header_frame(1, 1 << 21, {}),
        codec.method_frame(1, "basic.publish") + codec.header_frame(1, 1, {}, class_id=50),
        codec.method_frame(1, "basic.publish", immediate=True),
        codec.method_frame(1, "basic.publish") + codec.content_frames(2, b"m", {}),
        codec.method_frame(1, "basic.publish")
        + codec.header_frame(1, 1, {})
        + codec.encode_frame(codec.BODY, 2, b"m"),
        codec.method_frame(1, "basic.publish") + codec.method_frame(1, "basic.qos"),
        codec.method_frame(1, "basic.publish")
        + codec.header_frame(1, 2, {})
        + codec.encode_frame(codec.BODY, 1, b"more than two"),
        codec.method_frame(1, "basic.publish")
        + codec.header_frame(1, 2, {"headers": {"h": "x" * FRAME_MAX}})
        + codec.encode_frame(codec.BODY, 1, b"ab"),
    ]
)


@given(st.lists(PUBLISHES | ACKS | OTHERS, max_size=8), st.lists(WRONG, max_size=1), st.data())
def test_cuts_change_nothing(sound: list[bytes], wrong: list[bytes], data: st.DataObject) -> None:
    stream = b"".join([*sound, *wrong, *sound[:2]])
    whole = told(stream, [])
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    assert told(stream, cuts) == whole


@given(st.lists(PUBLISHES | ACKS | OTHERS | WRONG, max_size=3))
def test_byte_by_byte_changes_nothing(parts: list[bytes]) -> None:
    stream = b"".join(parts)
    assert told(stream, list(range(len(stream)))) == told(stream, [])


@given(st.lists(st.tuples(CHANNELS, BODIES, PROPERTIES), max_size=6), st.randoms())
def test_publishes_of_several_channels_may_be_woven(
    messages: list[tuple[int, bytes, dict[str, Any]]], rng: Any
) -> None:
    """Frames of one channel stay in order; between channels anything goes."""
    waiting: dict[int, list[bytes]] = {}
    expected: dict[int, list[tuple[bytes, int]]] = {}
    for channel, body, properties in messages:
        frames, rest = codec.split_frames(publish(channel, "", "q", body, **properties))
        assert not rest
        lane = waiting.setdefault(channel, [])
        lane += [codec.encode_frame(frame.type, channel, frame.payload) for frame in frames]
        mode = properties.get("delivery_mode") == 2
        expected.setdefault(channel, []).append((body, PERSISTENT if mode else 0))
    woven = b""
    while lanes := [lane for lane in waiting.values() if lane]:
        woven += rng.choice(lanes).pop(0)
    found: dict[int, list[tuple[bytes, int]]] = {}
    for entry in told(woven, []):
        assert entry[0] == "publish"
        found.setdefault(entry[1], []).append((body_in(entry[5]), entry[6] & PERSISTENT))
    assert found == expected


def body_in(content: bytes) -> bytes:
    frames, rest = codec.split_frames(content)
    assert not rest
    assert frames[0].type == codec.HEADER
    return b"".join(frame.payload for frame in frames[1:])


# -- what a publish becomes ------------------------------------------------------------------


def test_a_publish_keeps_its_content_and_address() -> None:
    data = publish(2, "ex", "key", b"body", mandatory=True, delivery_mode=2, expiration="500")
    [entry] = told(data, [])
    assert entry[:5] == ("publish", 2, "ex", "key", True)
    assert body_in(entry[5]) == b"body"
    assert entry[6:] == (PERSISTENT, NOW_MS + 500, b"\x02ex\x03key")


@pytest.mark.parametrize("body", [b"", b"m"])
def test_content_on_another_channel_is_not_taken_for_its_own(body: bytes) -> None:
    data = codec.method_frame(1, "basic.publish") + codec.content_frames(2, body, {})
    assert [entry[:3] for entry in told(data, [])] == [("failed", 2, 505)]


def test_empty_body_frames_leave_no_trace() -> None:
    method = codec.method_frame(1, "basic.publish")
    empty = codec.encode_frame(codec.BODY, 1, b"")
    body = codec.encode_frame(codec.BODY, 1, b"m")
    [entry] = told(method + codec.header_frame(1, 1, {}) + empty * 1000 + body, [])
    assert entry[5] == codec.content_frames(1, b"m", {})


@pytest.mark.parametrize(
    "headers, looks", [({"CC": ["a"]}, True), ({"BCC": ["a"]}, True), ({"cc": ["CC"]}, False)]
)
def test_headers_that_name_more_keys_are_noticed(headers: dict[str, Any], looks: bool) -> None:
    [entry] = told(publish(1, "", "q", b"m", headers=headers), [])
    assert bool(entry[6] & COPIES) == looks


def test_publishes_to_one_address_are_one_run() -> None:
    data = publish(1, "", "q", b"1") + publish(1, "", "q", b"2") + publish(1, "", "r", b"3")
    events = decoder().receive(data, NOW_MS)
    assert [len(event.messages) for event in events] == [2, 1]
    assert events[0].address is not events[1].address


def test_an_ack_between_two_publishes_keeps_its_place() -> None:
    one = publish(1, "", "q", b"1")
    acks = [codec.method_frame(1, "basic.ack", delivery_tag=tag) for tag in (1, 2)]
    assert [entry[0] for entry in told(one + acks[0] + one + acks[1] + one, [])] == [
        *("publish", "ack", "publish", "ack", "publish")
    ]


def test_neighbouring_acks_are_one_run() -> None:
    acks = b"".join(codec.method_frame(1, "basic.ack", delivery_tag=tag) for tag in (4, 5, 6, 8))
    events = decoder().receive(acks, NOW_MS)
    assert [(event.first_tag, event.last_tag) for event in events] == [(4, 6), (8, 8)]


def test_acks_of_two_channels_are_not_one_run() -> None:
    acks = b"".join(
        codec.method_frame(channel, "basic.ack", delivery_tag=tag)
        for channel, tag in ((1, 1), (2, 2), (1, 3))
    )
    assert [entry[1:3] for entry in told(acks, [])] == [(1, 1), (2, 2), (1, 3)]


# -- a channel that is being closed ----------------------------------------------------------


def test_a_discarded_channel_is_deaf_until_close_ok() -> None:
    subject = decoder()
    half = codec.method_frame(1, "basic.publish") + codec.header_frame(1, 10, {})
    subject.receive(half, NOW_MS)
    subject.discard(1)
    rest = codec.encode_frame(codec.BODY, 1, b"12345") + publish(1, "", "q", b"m")
    more = codec.method_frame(1, "basic.qos") + publish(2, "", "q", b"heard")
    assert [entry[:2] for entry in story(subject.receive(rest + more, NOW_MS))] == [("publish", 2)]
    answer = codec.method_frame(1, "channel.close-ok") + codec.method_frame(1, "channel.open")
    again = answer + publish(1, "", "q", b"m")
    found = story(subject.receive(again, NOW_MS))
    assert [entry[0] for entry in found] == ["method", "method", "publish"]


def test_a_channel_that_was_closed_is_to_be_opened_anew() -> None:
    """Also when no frame of another channel came between."""
    subject = decoder()
    closing = codec.method_frame(1, "channel.close", code=200, text="")
    message = publish(1, "", "q", b"m")
    found = story(subject.receive(message + closing + message, NOW_MS))
    assert [entry[:3] for entry in found[::2]] == [("publish", 1, ""), ("failed", 1, 504)]


def test_after_a_failure_the_rest_is_not_looked_at() -> None:
    subject = decoder()
    found = subject.receive(codec.encode_frame(9, 0, b"") + publish(1, "", "q", b"m"), NOW_MS)
    assert [entry[0] for entry in story(found)] == ["failed"]
    assert subject.receive(publish(1, "", "q", b"m"), NOW_MS) == []


# -- bounds ----------------------------------------------------------------------------------


def test_the_size_of_a_header_frame_is_judged_wherever_it_lies() -> None:
    """Also when the whole publish is in the buffer and could be cut out at once."""
    method = codec.method_frame(1, "basic.publish")
    data = method + codec.header_frame(1, 0, {"headers": {"h": "x" * FRAME_MAX}})
    [entry] = told(data, [])
    assert entry[0] == "failed"
    assert "frame_too_large" in entry[3]


@pytest.mark.parametrize("extra, ok", [(0, True), (1, False)])
def test_the_largest_body_is_exactly_the_limit(extra: int, ok: bool) -> None:
    body = b"x" * (1000 + extra)
    [entry] = told(publish(1, "", "q", body), [], message_max=1000)
    assert (entry[0] == "publish") == ok


def test_more_keys_than_are_remembered_meet_some_again() -> None:
    subject = decoder()
    keys = [f"key{n}" for n in range(ADDRESSES_MAX * 3 // 2)]
    chunks = [
        b"".join(publish(1, "", key, b"") for key in keys[start : start + 1000])
        for start in range(0, len(keys), 1000)
    ]
    seen = [
        [event for chunk in chunks for event in subject.receive(chunk, NOW_MS)] for _ in range(2)
    ]
    again = sum(one.address is other.address for one, other in zip(*seen, strict=True))
    assert again == ADDRESSES_MAX


def test_the_dictionary_of_addresses_is_bounded_and_begins_anew() -> None:
    subject = decoder()
    for start in range(0, ADDRESSES_MAX + PASSED_BY_MAX + 1000, 1000):
        data = b"".join(publish(1, "", f"key{n}", b"") for n in range(start, start + 1000))
        assert len(subject.receive(data, NOW_MS)) == 1000
        if hasattr(subject, "__dict__"):  # the compiled class hides it
            assert len(subject._addresses) <= ADDRESSES_MAX
    new = publish(1, "", "new", b"") + publish(1, "", "newer", b"") + publish(1, "", "new", b"")
    first, _, second = subject.receive(new, NOW_MS)
    assert first.address is second.address


PUBLISH = struct.pack(">HH", 60, 40)


@given(
    st.binary(min_size=2, max_size=2),
    st.one_of(st.text(max_size=20).map(str.encode), st.binary(max_size=20)),
    st.one_of(st.text(max_size=20).map(str.encode), st.binary(max_size=20)),
    st.integers(0, 255),
    st.integers(-3, 3),
)
def test_a_publish_is_read_as_any_method(
    ticket: bytes, exchange: bytes, key: bytes, bits: int, more: int
) -> None:
    payload = PUBLISH + ticket + bytes([len(exchange)]) + exchange + bytes([len(key)]) + key
    payload += bytes([bits])
    payload = payload[:more] if more < 0 else payload + bytes(more)
    address = read_address(payload)
    try:
        method = methods.decode_method(payload)
    except MalformedArguments:
        assert address is None
        return
    if method.flag("immediate"):
        assert address is None
        return
    assert address is not None
    name = method.text("exchange").replace("\r", "").replace("\n", "")
    assert (address.exchange, address.routing_key) == (name, method.text("routing_key"))
    assert (address.wire, address.mandatory) == (payload[6:-1], method.flag("mandatory"))


def test_an_idle_decoder_is_small() -> None:
    """Ten thousand idle connections must not cost a buffer each."""
    subject = decoder(frame_max=131_072)
    kept = subject.__dict__.values() if hasattr(subject, "__dict__") else []
    assert sum(sys.getsizeof(value) for value in kept) < 5000


def test_a_slow_frame_costs_no_repeated_copies() -> None:
    """A large frame in small pieces: joined once, not once per piece."""
    subject = AmqpDecoder(1 << 27, 1 << 27)
    subject.open(b"")
    subject.receive(codec.method_frame(1, "channel.open"), NOW_MS)
    body = b"x" * (16 << 20)
    stream = publish_head(len(body)) + codec.encode_frame(codec.BODY, 1, body)
    pieces = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]
    found: list[Event] = []
    for piece in pieces:  # 4,000 copies of 16 MB would take seconds
        found += subject.receive(piece, NOW_MS)
    assert [len(entry[5]) for entry in story(found)] == [len(body) + 8 + 22]


def test_a_body_that_was_cut_is_joined_once() -> None:
    size = 1 << 20
    subject = decoder(frame_max=1 << 21)
    stream = publish_head(size) + codec.encode_frame(codec.BODY, 1, b"x" * size)
    middle = len(stream) // 2
    subject.receive(stream[:middle], NOW_MS)
    last = stream[middle:]
    tracemalloc.start()
    found = subject.receive(last, NOW_MS)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(entry[5]) for entry in story(found)] == [size + 8 + 22]
    assert most_bytes < 2 * size, "half of the frame, and all of the content"


def test_a_chunk_behind_a_cut_frame_is_not_copied() -> None:
    subject = decoder()
    beat = codec.encode_frame(codec.HEARTBEAT, 0, b"")
    chunk = beat[3:] + beat * 100_000
    subject.receive(beat[:3], NOW_MS)
    tracemalloc.start()
    found = subject.receive(chunk, NOW_MS)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == []
    assert most_bytes < len(chunk) // 4


def test_a_method_with_long_arguments_is_refused() -> None:
    """They are kept as long as what they declare; the connection and other channels go on."""
    arguments = {"x": "z" * refusals.METHOD_BYTES_MAX}
    subject = decoder(1 << 17)
    data = codec.method_frame(1, "queue.declare", queue="q", arguments=arguments)
    (failed,) = subject.receive(data, 1)
    assert isinstance(failed, ChannelFailed)
    assert (failed.channel, failed.method_key) == (1, methods.QUEUE_DECLARE)
    assert "with all its arguments it may have 20480" in str(failed.error)
    assert subject.receive(codec.method_frame(1, "queue.declare", queue="q"), 1) == []
    assert len(subject.receive(codec.method_frame(2, "queue.declare", queue="q"), 1)) == 1


def test_a_chunk_of_many_events_is_decoded_in_parts() -> None:
    subject = decoder()
    frame = codec.method_frame(1, "basic.recover", requeue=True)
    parts = [subject.receive(frame * (2 * EVENTS_MAX + 5) + frame[:4], NOW_MS)]
    while subject.full:
        parts.append(subject.receive(b"", NOW_MS))
    assert [len(part) for part in parts] == [EVENTS_MAX, EVENTS_MAX, 5]
    assert not subject.paused
    assert len(subject.receive(frame[4:], NOW_MS)) == 1


def test_a_call_ends_when_it_has_read_many_long_methods() -> None:
    """A read of bindings with 500 arguments each kept the loop for 34 ms, compiled."""
    subject = decoder()
    arguments = {f"h{number}": number for number in range(300)}
    frame = codec.method_frame(1, "queue.bind", queue="q", exchange="x", arguments=arguments)
    parts = [subject.receive(frame * 53, NOW_MS)]
    while subject.full:
        parts.append(subject.receive(b"", NOW_MS))
    assert sum(len(part) for part in parts) == 53
    assert max(len(part) for part in parts) == LONG_BYTES_MAX // len(frame) + 1


def test_publishes_of_many_runs_are_decoded_in_parts() -> None:
    subject = decoder()
    count = EVENTS_MAX + 1
    data = b"".join(
        publish(channel, "", "q", b"x") for channel in (1 + number % 2 for number in range(count))
    )
    assert len(subject.receive(data, NOW_MS)) == EVENTS_MAX
    assert subject.full
    assert len(subject.receive(b"", NOW_MS)) == 1
    assert not subject.full
