"""Properties sent again as they were published: every value keeps its type."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pyspark  # noqa: F401
import pytest

from pyspark_penstock.raw_properties import with_headers

TYPES: dict[str, Any] = {
    "number": 7,
    "large": 1 << 40,
    "price": Decimal("1.25"),
    "yes": True,
    "nothing": None,
    "when": datetime(2026, 11, 21, tzinfo=UTC),
    "nested": {"a": [1, "b", {"c": False}]},
    "text": "ü",
}


def raw(**properties: Any) -> bytes:
    return b"".join(pika.BasicProperties(**properties).encode())


def read(data: bytes) -> pika.BasicProperties:
    properties = pika.BasicProperties()
    properties.decode(data)
    return properties


def test_every_value_keeps_its_type_and_place() -> None:
    before = raw(headers=TYPES, content_type="a/b", content_encoding="gzip", priority=3, app_id="x")
    after = read(with_headers(before, [("x-replay-name", "r"), ("x-original-seq", "12")]))
    wanted = read(before)
    wanted.headers |= {"x-replay-name": "r", "x-original-seq": "12"}
    assert vars(after) == vars(wanted)


@pytest.mark.parametrize(
    "properties", [{}, {"delivery_mode": 2}, {"content_type": "t", "type": "u"}]
)
def test_headers_come_where_there_were_none(properties: dict[str, Any]) -> None:
    after = read(with_headers(raw(**properties), [("a", "1"), ("b", None)]))
    assert vars(after) == vars(pika.BasicProperties(headers={"a": "1", "b": None}, **properties))


def test_headers_of_the_same_name_are_replaced_and_copies_are_not_sent_again() -> None:
    before = raw(headers={"CC": ["q"], "BCC": ["p"], "x-original-seq": 1, "kept": "yes"})
    assert read(with_headers(before, [("x-original-seq", "2")])).headers == {
        "kept": "yes",
        "x-original-seq": "2",
    }


def test_who_published_first_is_left_out() -> None:
    """The broker would refuse another's name."""
    others = {
        "content_type": "t", "headers": {"a": "1"}, "delivery_mode": 2, "priority": 1,
        "correlation_id": "c", "reply_to": "r", "expiration": "5", "message_id": "m",
        "timestamp": 7, "type": "y", "app_id": "p", "cluster_id": "z",
    }  # fmt: skip
    for kept in (others, {"app_id": "p"}, {"headers": {"a": "1"}}, {}):
        before = raw(user_id="bob", **kept)
        assert with_headers(before, []) == raw(**kept)


def test_without_anything_to_change_the_bytes_are_the_same() -> None:
    for properties in ({}, {"type": "x"}, {"headers": {}}, {"headers": TYPES}):
        assert with_headers(raw(**properties), []) == raw(**properties)


@pytest.mark.parametrize("data", [b"", b"\x20\x00\x00\x00\x00\x09abc", b"\x80\x00\x09x"])
def test_what_nobody_can_decode_stays_as_it_is(data: bytes) -> None:
    assert with_headers(data, [("a", "1")]) == data
