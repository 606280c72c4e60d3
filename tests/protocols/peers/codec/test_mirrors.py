"""What groups of mirrored queues say, as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.byte_reader import Malformed
from penstock.protocols.peers.codec.mirrors import decode_said, encode_said


def payload_of(said: list[tuple[str, str, str, bytes]]) -> bytes:
    """What is said comes in two pieces."""
    return b"".join(
        piece for *where, data in said for piece in encode_said(*where, [data[:9], data[9:]])
    )


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
SAID = st.tuples(TEXTS, TEXTS, TEXTS, st.binary(max_size=50))


@given(st.lists(SAID, max_size=5))
def test_what_is_said_arrives(said: list[tuple[str, str, str, bytes]]) -> None:
    assert decode_said(payload_of(said)) == said


@given(st.lists(SAID, min_size=1, max_size=3), st.integers(min_value=1))
def test_what_ends_too_soon_is_refused(
    said: list[tuple[str, str, str, bytes]], missing: int
) -> None:
    payload = payload_of(said)
    last = len(payload_of(said[-1:]))
    with pytest.raises(Malformed):
        decode_said(payload[: -(missing % (last - 1) + 1)])


@given(st.binary(max_size=100))
def test_anything_else_is_read_or_refused(payload: bytes) -> None:
    try:
        said = decode_said(payload)
    except Malformed:
        return
    assert payload_of(said) == payload


def test_a_name_that_is_no_text_is_kept() -> None:
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    said = [("/", name, "a/1#1", b"x")]
    assert decode_said(payload_of(said)) == said
