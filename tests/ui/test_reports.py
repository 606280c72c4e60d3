"""The HTML reports of the pipelines, opened as files: charts and words, light and dark.

Their numbers are made up here; how they are found is tested with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.pipelines.flow import flow_html
from penstock.cli.pipelines.latency import latency_html
from penstock.spark.reports.dlq_page import dlq_page
from tests.ui.conftest import SHOTS
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

START_MS = 1_795_000_000_000
WINDOW_MS = 10_000
WINDOWS = 12


def counted(**counts: int) -> list[dict[str, Any]]:
    return [{"value": name, "count": count} for name, count in counts.items()]


def dead_letters(*queues: str) -> str:
    return dlq_page([letters_of(queue) for queue in queues or ("dead",)])


def letters_of(queue: str) -> dict[str, Any]:
    times = [f"2026-11-20T10:{minute:02d}:00+00:00" for minute in range(WINDOWS)]
    offender = {"value": "m-7", "count": 3, "first_seq_id": 1, "last_seq_id": 9, "deaths_max": 3}
    sample = {
        "seq_id": 4, "message_id": "m-7", "death_reason": "rejected", "death_queue": "orders",
        "routing_key": "order.new", "error": "ValueError", "body": '{"order": 7}', "cut": False,
        "body_bytes": 12,
    }  # fmt: skip
    return {
        "queue": queue, "from_seq_id": 0, "upto_seq_id": 100, "ready": 100, "messages": 100,
        "body_bytes": 12_345, "died": 97, "first_death_at": times[0], "first_arrival_at": times[0],
        "last_arrival_at": times[-1], "reasons": counted(rejected=70, expired=27),
        "source_queues": counted(orders=97), "exchanges": counted(shop=97),
        "routing_keys": counted(new=60, old=37), "errors": counted(ValueError=65),
        "body_kinds": counted(json=99), "content_types": counted(json=99),
        "deaths_per_message": counted(one=80, two=20), "body_sizes": counted(small=100),
        "json_keys": counted(order=99, total=98),
        "over_time": {
            "width_seconds": 60, "times": times, "messages": [2 + n for n in range(WINDOWS)],
            "reasons": {"rejected": list(range(WINDOWS)), "expired": [2] * WINDOWS},
        },
        "same_message_id": [offender], "same_body": [], "samples": [sample],
    }  # fmt: skip


def latency() -> str:
    step = {"p50": 1.2, "p90": 3.4, "p99": 9.9, "max": 30.0, "samples": 80}
    steps = {"publish_enqueue": step, "enqueue_deliver": step}
    figures: dict[str, Any] = {
        "samples": 80, "steps": steps, "redelivery_rate": 0.01, "ready": 12,
        "publish_precision_ms": 1,
    }  # fmt: skip
    for number, name in enumerate(("published", "delivered", "acked", "redelivered")):
        figures |= {name: 900 - number, f"{name}_per_s": 90.0 - number}
    windows = [{"start_ms": START_MS + n * WINDOW_MS} | figures for n in range(WINDOWS)]
    queue = {"vhost": "/", "queue": "orders.new", "windows": windows} | figures
    other = queue | {"queue": "returns", "windows": windows[3:7]}
    return latency_html(covered() | {"queues": [queue, other]})


def flow() -> str:
    windows = [
        {
            "start_ms": START_MS + number * WINDOW_MS, "covered_s": 10,
            "shares": {"connection": 0.05 * number, "channel": 0.02 * number, "queue": 0.0},
            "alarm_share": 0.0, "bottleneck": "channel", "sentence": "Channels wait.", "advice": "",
        }
        for number in range(WINDOWS)
    ]  # fmt: skip
    edge = {
        "waiter_kind": "connection", "waiter": "shop", "waits_for_kind": "channel",
        "waits_for": "shop (1)", "blocked_ms": 4200, "because": "", "first_ms": START_MS,
        "last_ms": START_MS + 60_000, "share": 0.3,
    }  # fmt: skip
    alarm = {
        "resource": "memory", "from_ms": START_MS, "until_ms": START_MS + 5000,
        "used_bytes": 2 << 30, "limit_bytes": 1 << 30, "open": False,
    }  # fmt: skip
    paging = {"vhost": "/", "queue": "orders.audit", "times": 2, "lasted_ms": 900}
    stages = [
        {"stage": stage, "in_flow_share": 0.2, "blocked_ms": 4200}
        for stage in ("connection", "channel", "queue")
    ]
    period = {"from_ms": START_MS, "until_ms": START_MS + 60_000, "bottleneck": "channel"}
    report = covered() | {
        "bottleneck": "channel", "sentence": "Channels wait for queues.", "advice": "More queues.",
        "stages": stages, "periods": [period | {"sentence": "Channels wait.", "advice": ""}],
        "edges": [edge], "alarms": [alarm], "starts": 1, "events_dropped": 0, "windows": windows,
        "queues": [{
            "queue": "orders", "blocked_ms": 9000,
            "windows": [{"start_ms": START_MS + 2 * WINDOW_MS, "blocked_ms": 9000}],
        }],
        "connections": [{"connection": "shop", "user": "u", "vhost": "/", "blocked_ms": 4200}],
        "paging": [paging | {"paged_bytes": 1 << 20, "held_bytes": 1 << 10}],
    }  # fmt: skip
    return flow_html(report)


def covered() -> dict[str, Any]:
    return {
        "from_ms": START_MS, "until_ms": START_MS + WINDOWS * WINDOW_MS, "broken_lines": 0,
        "covered_s": WINDOWS * WINDOW_MS // 1000, "window_s": WINDOW_MS / 1000,
    }  # fmt: skip


@pytest.fixture(scope="module")
def reader(browser: Browser) -> Iterator[Visit]:
    reader = Visit(browser, "about:blank")
    yield reader
    reader.close()


@pytest.mark.parametrize(
    "make, title, words, lines",
    [
        (dead_letters, "Dead letters in dead", "100 messages; 70 % of them: rejected", 2),
        (
            partial(dead_letters, "orders.dlq", "returns.dlq"),
            "Dead letters of several queues",
            "Queues side by side",
            6,
        ),
        (latency, "Latency of queues", "Queues side by side", 20),
        (flow, "Flow control", "Channels wait for queues. More queues.", 5),
    ],
    ids=["dlq", "dlqs", "latency", "flow"],
)
def test_a_report_in_a_browser(
    reader: Visit,
    tmp_path: Path,
    make: Callable[[], str],
    title: str,
    words: str,
    lines: int,
) -> None:
    file = tmp_path / "report.html"
    file.write_text(make(), encoding="utf-8")
    page = reader.page
    page.goto(file.as_uri())
    assert page.title() == title
    page.get_by_text(re.compile(re.escape(words))).first.wait_for()
    charts = page.locator("svg")
    assert charts.count() >= 1
    for chart in charts.all():
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 20
        # Nothing is told by a picture alone.
        assert chart.get_attribute("aria-label") or chart.locator("title").count()
    assert page.locator("svg polyline").count() >= lines
    assert page.locator("table").count() >= charts.count()
    colours = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        if SHOTS is not None:
            page.screenshot(path=SHOTS / "reports" / f"{title} {scheme}.png", full_page=True)
    assert len(colours) == 2, "dark is not dark"
    reader.check()
