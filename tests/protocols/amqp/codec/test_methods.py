"""The method codec against a second, independent one, and against RabbitMQ's refusals."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.amqp.codec import methods
from penstock.protocols.amqp.codec.errors import (
    MalformedArguments,
    MalformedTable,
    MalformedText,
    UnknownMethod,
)
from penstock.protocols.amqp.codec.methods import METHODS, decode_method, encode_method
from tests.helpers import raw_codec

TYPE_LETTERS = {
    "octet": "o",
    "short": "h",
    "long": "l",
    "longlong": "q",
    "bit": "b",
    "shortstr": "s",
    "longstr": "S",
    "table": "t",
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "bit": st.booleans(),
    "shortstr": st.text(max_size=60),
    "longstr": st.binary(max_size=300),
    "table": st.dictionaries(st.text(max_size=5), st.integers(-9, 9) | st.text(max_size=5)),
}
SOME = {
    "octet": 7,
    "short": 300,
    "long": 70_000,
    "longlong": 2**40,
    "bit": True,
    "shortstr": "zwölf",
    "longstr": b"long \xff",
    "table": {"k": 1},
}


def some_values(key: int) -> list[Any]:
    return [SOME[kind] for _, kind in METHODS[key][1]]


def payload_of(frame: bytes) -> bytes:
    return frame[7:-1]


def test_the_table_is_the_one_copied_from_the_specification() -> None:
    ours = {
        name: (key >> 16, key & 0xFFFF, [TYPE_LETTERS[kind] for _, kind in fields])
        for key, (name, fields) in METHODS.items()
    }
    theirs = {
        name: (class_id, method_id, [field.split(":")[1] for field in spec.split()])
        for name, (class_id, method_id, spec) in raw_codec._SPEC.items()
    }
    # The second table lacks what only old clients send.
    assert {name: row for name, row in ours.items() if name in theirs} == theirs
    assert set(ours) - set(theirs) <= {"basic.recover-async"}


def test_every_method_has_a_constant() -> None:
    for key, (name, _) in METHODS.items():
        assert getattr(methods, name.upper().replace(".", "_").replace("-", "_")) == key


@pytest.mark.parametrize("key", METHODS, ids=lambda key: METHODS[key][0])
def test_another_codec_reads_what_this_one_writes(key: int) -> None:
    name = METHODS[key][0]
    values = some_values(key)
    frames, rest = raw_codec.split_frames(encode_method(513, key, values))
    assert rest == b""
    (frame,) = frames
    assert (frame.type, frame.channel) == (1, 513)
    if name not in raw_codec._SPEC:
        return
    payload = frame.payload
    spec = raw_codec._SPEC[name][2].split()
    wanted = {field.split(":")[0]: value for field, value in zip(spec, values, strict=True)}
    assert payload == raw_codec.encode_method(name, **wanted)


@given(st.sampled_from(sorted(METHODS)), st.integers(0, 65535), st.data())
def test_every_method_comes_back(key: int, channel: int, data: st.DataObject) -> None:
    name, fields = METHODS[key]
    values = [data.draw(VALUES[kind]) for _, kind in fields]
    frame = encode_method(channel, key, values)
    assert frame[:1] == b"\x01"
    assert struct.unpack(">HI", frame[1:7]) == (channel, len(frame) - 8)
    assert frame[-1] == 0xCE
    method = decode_method(payload_of(frame))
    assert (method.key, method.name) == (key, name)
    assert list(method.fields.items()) == [
        (field, value) for (field, _), value in zip(fields, values, strict=True)
    ]


def test_neighbouring_bits_share_octets_lowest_first() -> None:
    frame = encode_method(1, methods.QUEUE_DECLARE, [0, "q", True, False, True, False, False, {}])
    assert payload_of(frame) == bytes.fromhex("0032000a 0000 0171 05 00000000")
    frame = encode_method(1, methods.EXCHANGE_DELETE, [0, "x", False, True])
    assert payload_of(frame) == bytes.fromhex("00280014 0000 0178 02")
    declared = decode_method(bytes.fromhex("0032000a 0000 0171 e5 00000000"))
    flags = ["passive", "durable", "exclusive", "auto_delete", "nowait"]
    assert [declared.flag(name) for name in flags] == [True, False, True, False, False]


def test_accessors_hold_the_caller_to_the_table() -> None:
    method = decode_method(
        payload_of(
            encode_method(0, methods.CONNECTION_START_OK, [{"a": 1}, "PLAIN", b"\0g\0g", "en"])
        )
    )
    assert method.table("client_properties") == {"a": 1}
    assert method.text("mechanism") == "PLAIN"
    assert method.raw("response") == b"\0g\0g"
    ack = decode_method(payload_of(encode_method(1, methods.BASIC_ACK, [2**64 - 1, True])))
    assert ack.number("delivery_tag") == 2**64 - 1
    assert ack.flag("multiple") is True
    for wrong in (method.number, method.flag, method.raw, method.table):
        with pytest.raises(AssertionError):
            wrong("mechanism")
    with pytest.raises(AssertionError):
        method.text("response")


# -- refusals: the texts are those RabbitMQ 3.10.8 gave to the same bytes ------------------


@pytest.mark.parametrize(
    "payload, text, key",
    [
        (
            "003c0050 000000000000000000 7a7a",
            "cannot decode <<0,0,0,0,0,0,0,0,0,122,122>>",
            0x3C0050,
        ),
        ("003c0050 0000000000", "cannot decode <<0,0,0,0,0>>", 0x3C0050),
        ("003c0050", "cannot decode <<>>", 0x3C0050),
        (
            "0032000a 0000 027131 08 00000000 78",
            "cannot decode <<0,0,2,113,49,8,0,0,0,0,120>>",
            0x32000A,
        ),
        # Shape is judged before text.
        (
            "0032000a 0000 01ff 00 00000000 7a",
            "cannot decode <<0,0,1,255,0,0,0,0,0,122>>",
            0x32000A,
        ),
        ("003c", "type 1, all octets = <<0,60>>: unknown_frame", 0),
        ("", "type 1, all octets = <<>>: unknown_frame", 0),
    ],
)
def test_arguments_of_the_wrong_shape(payload: str, text: str, key: int) -> None:
    with pytest.raises(MalformedArguments) as malformed:
        decode_method(bytes.fromhex(payload))
    assert type(malformed.value) is MalformedArguments
    assert (malformed.value.text, malformed.value.method_key) == (text, key)


@pytest.mark.parametrize(
    "payload",
    ["0032000a 0000 02fffe 08 00000000", "0032000a 0000 01ff 00 00000001 7a"],
)
def test_a_name_that_is_no_utf8(payload: str) -> None:
    with pytest.raises(MalformedText) as malformed:
        decode_method(bytes.fromhex(payload))
    assert malformed.value.text == "Malformed UTF-8 in shortstr"
    assert malformed.value.method_key == 0


@pytest.mark.parametrize("table", ["0161 5a", "0561", "0161 46 00000009"])
def test_a_bad_table_in_arguments_of_the_right_shape(table: str) -> None:
    inner = bytes.fromhex(table)
    head = bytes.fromhex("0032000a 0000 027131 08")
    with pytest.raises(MalformedTable) as malformed:
        decode_method(head + struct.pack(">I", len(inner)) + inner)
    assert malformed.value.method_key == methods.QUEUE_DECLARE


@pytest.mark.parametrize("ids", [(60, 250), (250, 10), (0, 0), (65535, 65535)])
def test_an_unknown_method(ids: tuple[int, int]) -> None:
    with pytest.raises(UnknownMethod) as unknown:
        decode_method(struct.pack(">HH", *ids) + b"anything")
    assert (unknown.value.class_id, unknown.value.method_id) == ids


def test_the_address_of_a_publish_may_be_any_bytes() -> None:
    payload = bytes.fromhex("003c0028 0000 02ff61 01fe 01")
    publish = decode_method(payload)
    values = list(publish.fields.values())
    assert payload_of(encode_method(1, methods.BASIC_PUBLISH, values)) == payload


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=60))
def test_random_arguments_raise_nothing_but_malformed_arguments(key: int, data: bytes) -> None:
    try:
        assert decode_method(struct.pack(">I", key) + data).key == key
    except MalformedText as malformed:
        blamed = malformed.method_key
        wanted = 0
    except MalformedArguments as malformed:
        blamed = malformed.method_key
        wanted = key
    else:
        return
    assert blamed == wanted


@given(st.binary(max_size=40))
def test_random_payloads_raise_nothing_but_the_two_refusals(data: bytes) -> None:
    with contextlib.suppress(MalformedArguments, UnknownMethod):
        decode_method(data)


@pytest.mark.parametrize("key", METHODS, ids=lambda key: METHODS[key][0])
def test_arguments_cut_short_or_too_long_are_malformed(key: int) -> None:
    payload = payload_of(encode_method(1, key, some_values(key)))
    for size in range(4, len(payload)):
        with pytest.raises(MalformedArguments, match="cannot decode"):
            decode_method(payload[:size])
    with pytest.raises(MalformedArguments, match="cannot decode"):
        decode_method(payload + b"\0")


# -- what cannot be written ----------------------------------------------------------------


def reply_text_of(text: str) -> str:
    frame = encode_method(1, methods.CHANNEL_CLOSE, [404, text, 50, 10])
    return decode_method(payload_of(frame)).text("reply_text")


def test_a_long_reply_text_ends_in_dots() -> None:
    assert reply_text_of("x" * 255) == "x" * 255
    assert reply_text_of("x" * 256) == "x" * 252 + "..."
    # 252 is inside a character here: the whole character goes.
    assert reply_text_of("x" + "ü" * 200) == "x" + "ü" * 125 + "..."
    assert reply_text_of("\N{GRINNING FACE}" * 100) == "\N{GRINNING FACE}" * 63 + "..."


def test_a_reply_text_is_utf8_whatever_it_quotes() -> None:
    assert reply_text_of("no exchange '\udcff'") == "no exchange '?'"


@pytest.mark.parametrize(
    "key, values",
    [
        (methods.QUEUE_DELETE_OK, []),
        (methods.QUEUE_DELETE_OK, [1, 2]),
        (methods.QUEUE_DELETE_OK, [2**32]),
        (methods.QUEUE_DELETE_OK, [-1]),
        (methods.QUEUE_DELETE_OK, ["1"]),
        (methods.BASIC_CONSUME_OK, ["t" * 256]),
        (methods.BASIC_CONSUME_OK, [5]),
        (methods.BASIC_ACK, [2**64, False]),
        (methods.CONNECTION_SECURE, [None]),
        (methods.CONNECTION_START, [0, 9, [], b"PLAIN", b"en_US"]),
        (methods.CONNECTION_START, [256, 9, {}, b"PLAIN", b"en_US"]),
    ],
)
def test_a_value_that_does_not_fit_is_refused(key: int, values: list[object]) -> None:
    with pytest.raises(ValueError):
        encode_method(1, key, values)
