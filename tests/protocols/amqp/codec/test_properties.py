"""Message properties and contents: both ways, piece by piece, and from strangers."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp.codec import properties as props
from penstock.protocols.amqp.codec.errors import MalformedArguments
from penstock.protocols.amqp.codec.properties import (
    Properties,
    body_of,
    decode_properties,
    encode_content,
    has_header_key,
    headers_of,
    parse_expiration,
)
from tests.helpers import raw_codec

short = st.text(max_size=20)
some_properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": short,
        "content_encoding": short,
        "headers": st.dictionaries(short, st.none() | st.integers(-9, 9) | short, max_size=4),
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "correlation_id": short,
        "reply_to": short,
        "expiration": st.integers(0, 10**9).map(str),
        "message_id": short,
        "timestamp": st.integers(0, 2**64 - 1),
        "type": short,
        "user_id": short,
        "app_id": short,
        "cluster_id": short,
    },
)


def content_with(raw_properties: bytes, body: bytes = b"") -> bytes:
    payload = struct.pack(">HHQ", 60, 0, len(body)) + raw_properties
    frames = raw_codec.encode_frame(2, 1, payload)
    return frames + raw_codec.encode_frame(3, 1, body) if body else frames


@given(some_properties, st.binary(max_size=100), st.integers(4096, 5000))
def test_another_codec_writes_what_this_one_reads(
    values: dict[str, Any], body: bytes, frame_max: int
) -> None:
    content = raw_codec.content_frames(9, body, values, frame_max)
    decoded = decode_properties(content)
    assert decoded.as_dict() == values
    assert decoded == Properties(**values)
    assert body_of(content) == body


@given(some_properties, st.binary(max_size=9000), st.sampled_from([0, 4096, 131072]))
def test_this_codec_writes_what_another_one_does(
    values: dict[str, Any], body: bytes, frame_max: int
) -> None:
    ours = encode_content(Properties(**values), body, 9, frame_max)
    assert ours == raw_codec.content_frames(9, body, values, frame_max or 2**31)
    assert body_of(ours) == body


@given(some_properties, st.binary(max_size=9))
def test_one_property_is_found_without_the_others(values: dict[str, Any], before: bytes) -> None:
    content = raw_codec.content_frames(9, b"body", values)
    offset = len(before)
    assert props.delivery_mode(before + content, offset) == values.get("delivery_mode", 0)
    assert props.priority(before + content, offset) == values.get("priority", -1)
    assert props.expiration(before + content, offset) == values.get("expiration")
    assert headers_of(content) == values.get("headers")
    for key in values.get("headers", {}):
        assert has_header_key(before + content, key.encode(), offset)
    if "headers" not in values:
        assert not has_header_key(before + content, b"", offset)


def test_a_header_key_is_not_looked_for_outside_the_headers() -> None:
    headers = {"C": "xCC", "BCC": ["a"]}
    values = {"headers": headers, "correlation_id": "CC", "content_type": "CC"}
    content = raw_codec.content_frames(1, b"\x02CC", values)
    assert not has_header_key(content, b"CC")
    assert has_header_key(content, b"BCC")
    assert has_header_key(raw_codec.content_frames(1, b"", {"headers": {"CC": ["a"]}}), b"CC")


def test_strings_that_are_no_utf8_come_back_as_the_same_bytes() -> None:
    content = content_with(b"\x81\x00\x02\xff\xfe\x01\xfd")
    decoded = decode_properties(content)
    assert encode_content(decoded, b"", 1, 0) == content
    assert props.expiration(content) == decoded.expiration == "\udcfd"


def test_further_flag_words_are_stepped_over() -> None:
    plain = decode_properties(content_with(b"\x98\x00" + b"\x01t" + b"\x02\x05"))
    words = content_with(b"\x98\x01" + b"\xff\xff" + b"\x00\x00" + b"\x01t" + b"\x02\x05")
    assert decode_properties(words) == plain
    assert plain.as_dict() == {"content_type": "t", "delivery_mode": 2, "priority": 5}
    assert props.delivery_mode(words, 0) == 2
    assert props.priority(words) == 5


def test_a_flag_word_that_is_announced_but_missing_is_forgiven() -> None:
    content = content_with(b"\x00\x01")
    assert decode_properties(content) == Properties()


@pytest.mark.parametrize(
    "raw",
    [b"\x00\x00zz", b"\x80\x00\x05a", b"\x20\x00\x00\x00\x00\x09", b"\x00", b"", b"\x10\x00",
     b"\x00\x40\x00", b"\x80\x00"],
)  # fmt: skip
def test_properties_rabbitmq_refuses_are_malformed(raw: bytes) -> None:
    content = content_with(raw, b"a body that must not be taken for properties")
    with pytest.raises(MalformedArguments):
        decode_properties(content)


def test_a_bad_table_is_found_when_the_headers_are_read() -> None:
    content = content_with(b"\x20\x00\x00\x00\x00\x03\x01aZ")
    with pytest.raises(MalformedArguments):
        decode_properties(content)
    with pytest.raises(MalformedArguments):
        headers_of(content)


def everything(content: bytes, offset: int) -> None:
    for look in (props.delivery_mode, props.priority, props.expiration):
        with contextlib.suppress(MalformedArguments):
            look(content, offset)
    for read in (decode_properties, headers_of, body_of):
        with contextlib.suppress(MalformedArguments):
            read(content)
    with contextlib.suppress(MalformedArguments):
        has_header_key(content, b"CC", offset)


@given(st.binary(max_size=80), st.integers(-2, 90))
def test_random_contents_raise_nothing_but_malformed_arguments(data: bytes, offset: int) -> None:
    everything(data, offset)


@given(some_properties, st.binary(max_size=9), st.data())
def test_mutated_contents_raise_nothing_but_malformed_arguments(
    values: dict[str, Any], body: bytes, data: st.DataObject
) -> None:
    content = bytearray(raw_codec.content_frames(1, body, values))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    everything(bytes(content), 0)
    everything(bytes(content[: data.draw(st.integers(0, len(content)))]), 0)


@given(some_properties)
def test_what_passes_the_check_can_be_read_piece_by_piece(values: dict[str, Any]) -> None:
    """Flipped flags: either the check refuses, or no look goes wrong."""
    content = raw_codec.content_frames(1, b"xyz", values)
    for bit in range(16):
        flags = struct.unpack(">H", content[19:21])[0] ^ (1 << bit)
        turned = content[:19] + struct.pack(">H", flags) + content[21:]
        try:
            decode_properties(turned)
        except MalformedArguments:
            continue
        props.delivery_mode(turned, 0)
        props.priority(turned)
        props.expiration(turned)
        has_header_key(turned, b"CC")


@pytest.mark.parametrize(
    "rest", [b"\x03\x00\x01\x00\x00\x00\x02a\xce", b"\x03\x00", b"\x02\x00\x01\x00\x00\x00\x00\xce"]
)
def test_a_body_that_is_not_body_frames_is_malformed(rest: bytes) -> None:
    with pytest.raises(MalformedArguments):
        body_of(content_with(b"\x00\x00") + rest)


def test_properties_have_to_fit_one_frame() -> None:
    big = Properties(headers={"a": "x" * 5000})
    with pytest.raises(ValueError, match="do not fit"):
        encode_content(big, b"", 1, 4096)
    assert decode_properties(encode_content(big, b"", 1, 0)) == big


@pytest.mark.parametrize(
    "values",
    [{"priority": 256}, {"delivery_mode": -1}, {"timestamp": 2**64}, {"type": "x" * 256}],
)
def test_a_property_that_does_not_fit_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        encode_content(Properties(**values), b"", 1, 0)


# The texts are RabbitMQ 3.10.8's.
@pytest.mark.parametrize(
    "text, reason",
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        (" 5", "no_integer"),
        ("-", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("99999999999999", "{value_too_large,99999999999999}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("5.0", '{leftover_string,".0"}'),
        ("5x", '{leftover_string,"x"}'),
        ("5\x01", "{leftover_string,[1]}"),
        ('5"', '{leftover_string,"\\""}'),
    ],
)
def test_an_expiration_that_is_no_number_is_refused_in_rabbitmqs_words(
    text: str, reason: str
) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        parse_expiration(text)
    assert str(refused.value) == f"invalid expiration '{text}': {reason}"


@pytest.mark.parametrize(
    "text, value", [("0", 0), ("+5", 5), ("-0", 0), ("007", 7), ("315360000000", 315360000000)]
)
def test_an_expiration_is_a_number_of_milliseconds(text: str, value: int) -> None:
    assert parse_expiration(text) == value
