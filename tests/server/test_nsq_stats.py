"""``/stats`` in pieces: how Go prints durations, and what a stalled disk says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.server.nsq_answers import go_json, parse_query
from penstock.server.nsq_stats import StatsView, go_duration


@pytest.mark.parametrize(
    "duration_ns, text",
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (2_000_000, "2ms"),
        (727_965_719, "727.965719ms"),
        (1_000_000_000, "1s"),
        (61_500_000_000, "1m1.5s"),
        (3_600_000_000_000, "1h0m0s"),
        (90_061_000_000_000, "25h1m1s"),
    ],
)
def test_durations(duration_ns: int, text: str) -> None:
    assert go_duration(duration_ns) == text


def test_a_stalled_disk_is_bad_health() -> None:
    for stalled, health in (("", "OK"), ("no space", "NOK - no space")):
        loop = SimpleNamespace(turn=SimpleNamespace(disk_stalled=lambda text=stalled: text))
        view = StatsView(cast(Any, loop), cast(Any, None), cast(Any, None), ())
        assert view.health() == health


def test_json_as_go_writes_it() -> None:
    value = {"a": 2.0, "b": [0.5, None, True], "c": "<é&>"}
    assert go_json(value) == '{"a":2,"b":[0.5,null,true],"c":"\\u003cé\\u0026\\u003e"}'


@pytest.mark.parametrize(
    "text, found",
    [
        ("", {}),
        ("a=1&a=2&&b", {"a": "1", "b": ""}),
        ("a=%23e+f&=x", {"a": "#e f", "": "x"}),
        ("a=%zz", None),
        ("a=%4", None),
        ("a=1;b=2", None),
    ],
)
def test_queries_as_go_reads_them(text: str, found: dict[str, str] | None) -> None:
    assert parse_query(text) == found
