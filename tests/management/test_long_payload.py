"""A publish with a long payload: what is read, and that everything besides is bounded."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.management.http import long_bodies
from penstock.management.http.long_bodies import TooMuchBesides, base64_decoded, read_publish


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_bodies, "PIECE_BYTES", 16)


def read(body: bytes, rest_max_bytes: int = 1000) -> tuple[object, bytes]:
    rest, mark, payload = read_publish(body, rest_max_bytes)
    asked = json.loads(rest)
    assert asked["payload"] == mark
    return asked | {"payload": None}, payload


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=15),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=1),
    st.booleans(),
)
def test_any_long_text_is_read_as_json_reads_it(text: str, key: str, is_ascii: bool) -> None:
    asked = {"properties": {"a": [1, "\\"]}, "payload": text + "x", "routing_key": key}
    body = json.dumps(asked, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    if len(json.dumps(text + "x", ensure_ascii=is_ascii).encode()) > 16:
        assert read(body) == (asked | {"payload": None}, (text + "x").encode())


def test_every_kind_of_escape_may_stand_at_the_end_of_a_piece() -> None:
    for before in range(40):
        text = "a" * before + '😀é"\\\n' * 9
        assert read(json.dumps({"payload": text}).encode())[1] == text.encode()


def test_bytes_that_are_no_utf_8_are_read_as_python_spells_them() -> None:
    data = b"\xff\xfe" * 20
    body = json.dumps({"payload": data.decode("utf-8", "surrogateescape")}).encode()
    assert read(body)[1] == data


@pytest.mark.parametrize(
    "wrong",
    [
        b"a" * 40,
        b"a" * 40 + b"\\",
        b"a" * 40 + b'\\ud83d"',
        b"a" * 40 + b'\\u12g4"',
        b"a" * 40 + b'\\x"',
        b"a" * 40 + b'\n"',
        b"a" * 40 + b'\xff"',
        b"\x80" * 40 + b'"',
        b'\x00a\x00a\x00a\x00a\x00a\x00a\x00a\x00a\x00a"',
    ],
)
def test_a_long_string_that_is_none_of_json_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError):
        read(b'{"payload":"' + wrong + b"}")


@pytest.mark.parametrize(
    "body",
    [
        b'{"payload":"' + b"a" * 40 + b'","properties":[' + b"[]," * 100 + b"1]}",
        b'{"payload":"' + b"a" * 40 + b'","x":[' + b'"",' * 100 + b"1]}",
        b'{"payload":"' + b"a" * 40 + b'","app_id":"' + b"b" * 40 + b'"}',
        b"[]" * 100,
    ],
)
def test_all_but_one_long_string_is_bounded(body: bytes) -> None:
    with pytest.raises(TooMuchBesides):
        read(body, 100)


@given(st.binary(max_size=100))
def test_base64_is_decoded_piece_by_piece(data: bytes) -> None:
    assert base64_decoded(base64.b64encode(data)) == data


@pytest.mark.parametrize("wrong", [b"a", b"ab\n=", b"a" * 14 + b"==" + b"a" * 4, b"=" * 4])
def test_what_is_no_base64_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError):
        base64_decoded(wrong)
