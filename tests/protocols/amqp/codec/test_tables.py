"""Field tables: every type both ways, and bytes from strangers."""

from __future__ import annotations

import math
import struct
import time
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.protocols.amqp.codec.errors import MalformedArguments
from penstock.protocols.amqp.codec.tables import DEPTH_MAX, Timestamp, decode_table, encode_table
from tests.routing.typed_fields import Field, typed_table

# (tag, value on the line), value in Python
DECODED: list[tuple[Field, object]] = [
    (("t", 0), False),
    (("t", 1), True),
    (("t", 255), True),
    (("b", -128), -128),
    (("b", 127), 127),
    (("B", 255), 255),
    (("s", -32768), -32768),
    (("s", 32767), 32767),
    (("u", 65535), 65535),
    (("I", -(2**31)), -(2**31)),
    (("I", 2**31 - 1), 2**31 - 1),
    (("i", 2**32 - 1), 2**32 - 1),
    (("l", -(2**63)), -(2**63)),
    (("l", 2**63 - 1), 2**63 - 1),
    (("L", -2), -2),
    (("f", 1.5), 1.5),
    (("d", -0.1), -0.1),
    (("d", math.inf), math.inf),
    (("D", (2, 314)), Decimal("3.14")),
    (("D", (255, 2**32 - 1)), Decimal("4294967295E-255")),
    (("D", (0, 7)), Decimal(7)),
    (("T", 0), Timestamp(0)),
    (("T", 2**64 - 1), Timestamp(2**64 - 1)),
    (("S", b""), ""),
    (("S", "zwölf".encode()), "zwölf"),
    (("S", b"\xff\x00"), b"\xff\x00"),
    (("x", b"text"), b"text"),
    (("V", None), None),
    (("A", []), []),
    (("A", [("I", 1), ("V", None), ("A", [("t", 1)])]), [1, None, [True]]),
    (("F", {}), {}),
    (("F", {"k": ("F", {"": ("S", b"v")})}), {"k": {"": "v"}}),
]

# What is written for a value: the same bytes, tag for tag.
ENCODED: list[tuple[object, Field]] = [
    (True, ("t", 1)),
    (1, ("I", 1)),
    (2**31, ("l", 2**31)),
    (-(2**31), ("I", -(2**31))),
    (-(2**31) - 1, ("l", -(2**31) - 1)),
    (1.0, ("d", 1.0)),
    (Timestamp(1), ("T", 1)),
    (Decimal("0.10"), ("D", (2, 10))),
    (Decimal("1E3"), ("D", (0, 1000))),
    ("zwölf", ("S", "zwölf".encode())),
    (b"\xff", ("x", b"\xff")),
    (bytearray(b"a"), ("x", b"a")),
    (None, ("V", None)),
    ([1, "a"], ("A", [("I", 1), ("S", b"a")])),
    ((1,), ("A", [("I", 1)])),
    ({"k": {}}, ("F", {"k": ("F", {})})),
]


def same(one: object, other: object) -> bool:
    """Equal, and of the same types all the way down."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("field, value", DECODED)
def test_every_type_is_read(field: Field, value: object) -> None:
    data = b"before" + typed_table({"a": field, "z": ("t", 1)}) + b"behind"
    table, end = decode_table(data, 6)
    assert same(table, {"a": value, "z": True})
    assert data[end:] == b"behind"


@pytest.mark.parametrize("value, field", ENCODED)
def test_every_type_is_written(value: object, field: Field) -> None:
    assert encode_table({"a": value}) == typed_table({"a": field})


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | st.builds(
        lambda n, scale: Decimal(f"{n}E-{scale}"), st.integers(0, 2**32 - 1), st.integers(0, 255)
    ),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5)
    ),
    max_leaves=20,
)
tables = st.dictionaries(st.text(max_size=20), values, max_size=6)


@given(tables)
def test_a_table_comes_back(table: dict[str, object]) -> None:
    data = encode_table(table)
    back, end = decode_table(data, 0)
    assert end == len(data)
    assert same(back, table)


def test_a_name_that_is_no_utf8_comes_back_as_the_same_bytes() -> None:
    data = struct.pack(">I", 4) + b"\x02\xffaV"
    table, _ = decode_table(data, 0)
    assert encode_table(table) == data


def test_of_two_fields_with_one_name_the_first_counts() -> None:
    data = b"\x01aI\x00\x00\x00\x01" + b"\x01aI\x00\x00\x00\x02"
    assert decode_table(struct.pack(">I", len(data)) + data, 0)[0] == {"a": 1}


def test_not_a_number_survives() -> None:
    table, _ = decode_table(encode_table({"a": math.nan}), 0)
    assert math.isnan(table["a"])  # type: ignore[arg-type]


@given(st.binary(max_size=60))
@example(b"\xff\xff\xff\xff")
@example(b"\x00\x00\x00\x07\x01aA\xff\xff\xff\xff")
@example(b"\x80\x00\x00\x00")
def test_random_bytes_raise_nothing_but_malformed_arguments(data: bytes) -> None:
    try:
        _, end = decode_table(data, 0)
    except MalformedArguments:
        return
    assert 4 <= end <= len(data)


@given(tables, st.data())
def test_mutated_tables_raise_nothing_but_malformed_arguments(
    table: dict[str, object], draw: st.DataObject
) -> None:
    data = bytearray(encode_table(table))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        _, end = decode_table(bytes(data), 0)
    except MalformedArguments:
        return
    assert 4 <= end <= len(data)


@given(tables)
def test_a_table_cut_short_anywhere_is_malformed(table: dict[str, object]) -> None:
    data = encode_table(table)
    for size in range(len(data)):
        with pytest.raises(MalformedArguments):
            decode_table(data[:size], 0)


@given(tables)
def test_nothing_behind_the_table_is_read(table: dict[str, object]) -> None:
    """The inner length is one less: the last field reaches over the end of its table."""
    data = encode_table({**table, "last": "value"})
    shorter = struct.pack(">I", len(data) - 5) + data[4:]
    with pytest.raises(MalformedArguments):
        decode_table(shorter, 0)


@pytest.mark.parametrize("tag", [c for c in range(256) if c not in b"AFStbBsuIilLfdDTVx"])
def test_an_unknown_type_is_malformed(tag: int) -> None:
    data = b"\x01a" + bytes([tag]) + bytes(16)
    with pytest.raises(MalformedArguments, match=f"unknown field type {tag}"):
        decode_table(struct.pack(">I", len(data)) + data, 0)


def nested(depth: int, tag: bytes) -> bytes:
    data = b""
    for _ in range(depth - 1):
        head = tag if tag == b"A" else b"\x01k" + tag
        data = head + struct.pack(">I", len(data)) + data
    if tag == b"A" and data:
        data = b"\x01k" + data
    return struct.pack(">I", len(data)) + data


@pytest.mark.parametrize("tag", [b"A", b"F"])
def test_depth_is_bounded(tag: bytes) -> None:
    table, _ = decode_table(nested(DEPTH_MAX, tag), 0)
    depth = 0
    inner: object = table
    while inner:
        inner = inner["k"] if isinstance(inner, dict) else inner[0]  # type: ignore[index]
        depth += 1
    assert depth == DEPTH_MAX - 1
    assert encode_table(table) == nested(DEPTH_MAX, tag)
    for depth in (DEPTH_MAX + 1, 20_000):
        with pytest.raises(MalformedArguments, match="deep"):
            decode_table(nested(depth, tag), 0)


def test_a_table_inside_itself_is_refused() -> None:
    table: dict[str, object] = {}
    table["self"] = table
    with pytest.raises(ValueError, match="deep"):
        encode_table(table)


def test_reading_is_linear() -> None:
    """Nested to the limit around a megabyte: copying it at each level would show."""
    data = struct.pack(">I", 1_000_000) + b"V" * 1_000_000
    for _ in range(DEPTH_MAX - 2):
        data = struct.pack(">I", len(data) + 1) + b"A" + data
    data = b"\x01kA" + data
    started = time.process_time()
    decode_table(struct.pack(">I", len(data)) + data, 0)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "value, words",
    [
        (2**63, "over 64 bits"),
        (-(2**63) - 1, "over 64 bits"),
        (Timestamp(-1), "does not fit"),
        (Timestamp(2**64), "does not fit"),
        (Decimal(-1), "decimal"),
        (Decimal("NaN"), "decimal"),
        (Decimal("Infinity"), "decimal"),
        (Decimal(2**32), "over 32 bits"),
        (Decimal("1E400000"), "over 32 bits"),
        (Decimal("1E-256"), "decimal"),
        (object(), "cannot hold a object"),
        ({"n" * 256: 1}, "at most 255"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_what_a_table_cannot_say_is_refused(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode_table({"a": value})
