"""What is pushed to statsd: names, counters since the last time, packets that are not too large."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.nsq.http.statsd import Report, Statsd, full_prefix, packets
from penstock.settings.settings import load_settings
from tests.helpers.nsq_broker import NsqBroker


def stats(count: int, channel: str = "c") -> dict[str, Any]:
    latency = {"count": 1, "percentiles": [{"quantile": 0.99, "value": 2500.7}]}
    inner = {
        "channel_name": channel,
        "depth": 1,
        "backend_depth": 0,
        "in_flight_count": 2,
        "deferred_count": 3,
        "message_count": count,
        "requeue_count": 4,
        "timeout_count": 5,
        "client_count": 6,
        "e2e_processing_latency": latency,
    }
    topic = {
        "topic_name": "t",
        "channels": [inner],
        "depth": 7,
        "backend_depth": 8,
        "message_count": count,
        "message_bytes": 10 * count,
        "e2e_processing_latency": {"count": 0, "percentiles": None},
    }
    return {"topics": [topic]}


def test_the_prefix_names_the_node() -> None:
    assert full_prefix("nsq.%s", "10.0.0.1", 4151) == "nsq.10_0_0_1_4151."
    assert full_prefix("a.", "h", 1) == "a."
    assert full_prefix("", "h", 1) == ""


def test_counters_are_what_came_since_the_last_time() -> None:
    report = Report("p.", exclude_ephemeral=False)
    first = report.lines(stats(3))
    assert first[:4] == [
        "p.topic.t.message_count:3|c\n",
        "p.topic.t.message_bytes:30|c\n",
        "p.topic.t.depth:7|g\n",
        "p.topic.t.backend_depth:8|g\n",
    ]
    assert first[4:] == [
        "p.topic.t.channel.c.message_count:3|c\n",
        "p.topic.t.channel.c.requeue_count:4|c\n",
        "p.topic.t.channel.c.timeout_count:5|c\n",
        "p.topic.t.channel.c.depth:1|g\n",
        "p.topic.t.channel.c.backend_depth:0|g\n",
        "p.topic.t.channel.c.in_flight_count:2|g\n",
        "p.topic.t.channel.c.deferred_count:3|g\n",
        "p.topic.t.channel.c.clients:6|g\n",
        "p.topic.t.channel.c.e2e_processing_latency_99:2500|g\n",
    ]
    assert report.lines(stats(10))[0] == "p.topic.t.message_count:7|c\n"
    # Deleted and made anew in between.
    assert report.lines(stats(2))[0] == "p.topic.t.message_count:2|c\n"


def test_what_is_ephemeral_may_be_left_out() -> None:
    report = Report("", exclude_ephemeral=True)
    assert len(report.lines(stats(1, "c#ephemeral"))) == 4


@given(st.lists(st.text("ab.", max_size=600).map(lambda text: text + "\n"), max_size=40))
def test_packets_hold_whole_lines_and_no_more_than_they_may(lines: list[str]) -> None:
    found = packets(lines, 508)
    assert b"".join(found).decode() == "".join(lines)
    for packet in found:
        assert packet.endswith(b"\n")
        assert len(packet) <= 508 or packet.count(b"\n") == 1


def test_a_broker_pushes() -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        settings = {
            "PENSTOCK_NSQ_STATSD_ADDRESS": f"127.0.0.1:{receiver.getsockname()[1]}",
            "PENSTOCK_NSQ_STATSD_INTERVAL_S": "1",
        }
        with NsqBroker(environment=settings) as broker:
            broker.post("/pub?topic=t", b"hello")
            prefix = f"nsq.127_0_0_1_{broker.api_port}."
            text = ""
            while "mem.gc_runs" not in text or f"{prefix}topic.t.message_bytes:5|c" not in text:
                text += receiver.recv(65536).decode()
            assert all(line.startswith(prefix) for line in text.splitlines())


class Trouble(Exception):
    """As when the virtual host is missing."""


def test_an_interval_that_fails_is_told_once_and_the_next_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(
        'nsq_statsd_address = "127.0.0.1:9"\nnsq_statsd_interval_s = 1', {}, {}
    )
    asked: list[bool] = []

    async def at_once(_delay_s: float, sleep: Any = asyncio.sleep) -> None:
        await sleep(0)

    async def fail(memory: bool) -> Any:
        asked.append(memory)
        raise Trouble("VHOST_NOT_FOUND")

    async def push() -> None:
        task = asyncio.create_task(Statsd(settings, "h", 1, fail).run())
        for _ in range(1000):
            if len(asked) < 3 and not task.done():
                await asyncio.sleep(0)
        assert not task.done()
        task.cancel()

    monkeypatch.setattr("penstock.protocols.nsq.http.statsd.asyncio.sleep", at_once)
    asyncio.run(push())
    assert len(asked) >= 3
    assert caplog.text.count("VHOST_NOT_FOUND") == 1
