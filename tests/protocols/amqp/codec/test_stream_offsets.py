"""What streams add to a message: its offset among the headers, and that it is transient."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock_types import WallMs
from penstock.core.message import PERSISTENT, Message
from penstock.protocols.amqp.codec.header_edit import with_stream_offsets
from penstock.protocols.amqp.codec.properties import (
    Properties,
    body_of,
    decode_properties,
    encode_content,
)

OFFSET = 0x0102030405060708
FRAME_MAX = 128
OTHERS = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "priority": 7,
    "message_id": "m",
    "timestamp": 1_700_000_000,
    "cluster_id": "c",
}


def shown(content: bytes, offset: int = OFFSET) -> Message:
    message = Message(content, b"\0\1q", PERSISTENT, WallMs(0))
    message.place(offset, WallMs(5))
    (copy,) = with_stream_offsets([message])
    assert (copy.address, copy.flags, copy.seq_id, copy.enqueued_at_ms) == (
        *(message.address, message.flags),
        *(offset, 5),
    )
    assert copy.size == len(copy.content)
    return copy


@given(
    names=st.sets(st.sampled_from(sorted(OTHERS))),
    mode=st.sampled_from([None, 1, 2]),
    headers=st.sampled_from([None, {}, {"a": 1, "z": "z"}, {"x-stream-offset": 3}]),
    offset=st.sampled_from([0, 255, OFFSET, (1 << 63) - 1]),
    body=st.binary(max_size=200),
)
def test_nothing_else_is_changed(
    names: set[str], mode: int | None, headers: dict[str, Any] | None, offset: int, body: bytes
) -> None:
    told = Properties(**{name: OTHERS[name] for name in names}, delivery_mode=mode, headers=headers)
    copy = shown(encode_content(told, body, 1, FRAME_MAX), offset)
    wanted = (headers or {}) | {"x-stream-offset": offset}
    assert decode_properties(copy.content) == told._replace(
        headers=dict(sorted(wanted.items())), delivery_mode=mode or 1
    )
    assert body_of(copy.content) == body


@pytest.mark.parametrize("mode, added", [(2, 29), (None, 30)])
def test_a_message_without_headers_grows_by_one_header(mode: int | None, added: int) -> None:
    content = encode_content(Properties(content_type="t", delivery_mode=mode), b"", 1, FRAME_MAX)
    assert len(shown(content).content) - len(content) == added
