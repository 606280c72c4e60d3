"""The HTTP API of NSQ in pieces: durations, queries and JSON as Go has them, bodies of MPUB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import AccessRefused
from penstock.core.pending import Pending
from penstock.protocols.nsq.http.admin import NsqAdmin
from penstock.protocols.nsq.http.answers import HttpRefused, go_json, parse_query
from penstock.protocols.nsq.http.routes import NsqdApi, binary_bodies, lines
from penstock.protocols.nsq.http.stats import StatsView, go_duration
from penstock.protocols.nsq.shared import NsqClient
from tests.helpers.nsq_pair import NsqBroker as NodeInProcess


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


def packed(bodies: list[bytes]) -> bytes:
    parts = [len(body).to_bytes(4, "big") + body for body in bodies]
    return len(bodies).to_bytes(4, "big") + b"".join(parts)


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20), st.binary())
def test_a_binary_mpub_is_read_as_it_was_written(bodies: list[bytes], more: bytes) -> None:
    assert binary_bodies(packed(bodies) + more, 50, 5000) == bodies


@given(st.binary(max_size=200) | st.lists(st.binary(max_size=9), max_size=9).map(packed))
def test_whatever_comes_is_messages_or_refused(body: bytes) -> None:
    try:
        found = binary_bodies(body, 8, 500)
    except HttpRefused:
        return
    assert body.startswith(packed(found))
    assert all(1 <= len(one) <= 8 for one in found)


@given(st.binary(max_size=200))
def test_lines_are_what_is_between_line_feeds(body: bytes) -> None:
    assert b"\n".join(lines(body, 200)).split() == body.split()
    assert b"" not in lines(body, 200)


def test_options_are_changed_by_who_may_configure_everything() -> None:
    node = NodeInProcess()
    admin = NsqAdmin(node.nsq, node.turn)
    guest = node.broker.users.users["guest"]
    here, elsewhere = NsqClient("127.0.0.1", True), NsqClient("10.0.0.1", False)
    admin.check_manager(here)
    with pytest.raises(AccessRefused):
        admin.check_manager(elsewhere)
    guest.tags = []
    guest.vhosts["/"] = (".*", "", "")
    admin.check_manager(here)
    guest.vhosts["/"] = ("^nsq", ".*", ".*")
    with pytest.raises(AccessRefused):
        admin.check_manager(here)
    guest.tags = ["administrator"]
    admin.check_manager(here)


def test_emptying_a_channel_is_answered_when_its_master_has_done_so() -> None:
    steps: list[str] = []

    def empty(topic: str, channel: str, _visitor: object) -> Pending:
        steps.append(f"asked for {topic}:{channel}")
        return Pending(None, lambda: steps.append("emptied"))

    def done(function: Callable[[], object]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function())
        return future

    admin = Mock(empty_channel=empty, change=lambda _visitor, function: function())
    names = {"topic": "t", "channel": "c"}
    call = SimpleNamespace(visitor=None, request=Mock(), argument=names.__getitem__)
    endpoint = NsqdApi(admin, Mock(), Mock(), Mock(), done).table()["/channel/empty"]["POST"]
    asyncio.run(cast(Any, endpoint(cast(Any, call))))
    assert steps == ["asked for t:c", "emptied"]
