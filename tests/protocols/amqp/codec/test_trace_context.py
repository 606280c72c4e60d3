"""Which ``traceparent`` headers put a message into a trace."""

from __future__ import annotations

import pytest

from penstock.protocols.amqp.codec.properties import Properties, encode_content
from penstock.protocols.amqp.codec.trace_context import trace_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def content_with(value: str, key: str = "traceparent") -> bytes:
    return encode_content(Properties(headers={"first": "1", key: value}), b"body", 1, 0)


@pytest.mark.parametrize("value", [GOOD, GOOD[:-2] + "ff", "cc" + GOOD[2:]])
def test_recorded(value: str) -> None:
    assert trace_parent(content_with(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        GOOD[:-2] + "00",
        "ff" + GOOD[2:],
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        GOOD.upper(),
        GOOD.replace("-", "_"),
        GOOD + "-more",
        "",
    ],
)
def test_none(value: str) -> None:
    assert trace_parent(content_with(value)) == ""


def test_other_keys_and_bodies_are_no_header() -> None:
    assert trace_parent(content_with(GOOD, "tracestate")) == ""
    body = b"\x0btraceparentS\0\0\0\x37" + GOOD.encode()
    assert trace_parent(encode_content(Properties(), body, 1, 0)) == ""
