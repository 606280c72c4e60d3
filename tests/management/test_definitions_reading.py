"""Definitions are read row by row, off the loops, and mean what Python's own reader says."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.management.http.bodies import parsed
from penstock.management.http.listing import BadQuery
from penstock.management.http.long_bodies import parsed_by_rows

ROWS = 40_000
REASON = "failed_to_parse_json"

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def outcome(read: Any, body: bytes) -> Any:
    try:
        return "read", read(body, REASON)
    except BadQuery as error:
        return str(error), None


@given(values, st.sampled_from([None, 1, "\t"]), st.sampled_from(["utf-8", "utf-16"]))
def test_it_is_what_python_reads(value: Any, indent: Any, encoding: str) -> None:
    body = json.dumps(value, indent=indent).encode(encoding)
    assert outcome(parsed_by_rows, body) == outcome(parsed, body)


@given(values, st.integers(0), st.sampled_from(list(b' ,:[]{}"0\\nN')))
def test_what_python_refuses_is_refused(value: Any, place: int, octet: int) -> None:
    body = bytearray(json.dumps({"queues": [value, {}], "users": value}).encode())
    body[place % len(body)] = octet
    assert outcome(parsed_by_rows, bytes(body)) == outcome(parsed, bytes(body))


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "{}", " { } ", "{}x", "[]", "[1,]", "7", "{,}", '{"a"}', '{"a":}', "{1:2}"),
        *('{"a":[}', '{"a":[]}', '{"a":[ ] }', '{"a":[1,]}', '{"a":[1 2]}', '{"a":[1],}'),
        *('{"a":[1]', '{"a":[NaN]}', '{"a":[{"b":-Infinity}]}', '{"a":[1e999]}'),
        *('{"a":1,"a":[2]}', '{"a":1 "b":2}'),
        *('{"a":["\\ud800"]}', '{"a":["\\udcff"]}', '{"\\ud800":[]}', '{"a":["\\ud83d\\ude00"]}'),
        '{"a":' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_at_the_edges(text: str) -> None:
    assert outcome(parsed_by_rows, text.encode()) == outcome(parsed, text.encode())


def test_meanwhile_others_are_served() -> None:
    rows = [{"name": f"q{i}", "vhost": "/", "arguments": {"x-expires": i}} for i in range(ROWS)]
    body = json.dumps({"queues": rows}).encode()

    async def longest_wait_s() -> tuple[float, float]:
        began = last = time.perf_counter()
        longest = 0.0
        reading = asyncio.create_task(asyncio.to_thread(parsed_by_rows, body, REASON))
        while not reading.done():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        assert len((await reading)["queues"]) == ROWS
        return longest, last - began

    # On a busy machine the whole process may stand still for a while: one of some runs counts.
    runs = [asyncio.run(longest_wait_s()) for _ in range(5)]
    assert any(longest < whole / 3 for longest, whole in runs), runs
