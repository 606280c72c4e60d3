"""What messages contain must not act in the page, and nothing is told by a picture alone."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from penstock.cli.pipelines.latency import _side_by_side, latency_html
from penstock.spark.reports.dlq_page import compared, side_by_side, since
from penstock.spark.reports.dlq_report import TIMES_MAX
from penstock.spark.reports.html_report import (
    MARGIN_LEFT,
    TOP,
    WIDTH,
    Bars,
    HtmlTable,
    Lines,
    Page,
    Section,
    TimeWindows,
    number,
    page,
    shown,
)

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style><svg onload=alert(1)>",
    "javascript:alert(1)",
    "]]><!--",
    "a\u202egpj.exe\x00\x1b[31m\ud800",
]
ALLOWED = (
    *("html", "head", "meta", "title", "style", "body", "main", "section", "div", "figure"),
    *("h1", "h2", "h3", "p", "dl", "dt", "dd", "pre"),
    *("svg", "g", "rect", "text", "line", "polyline", "circle"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
)


class Reader(HTMLParser):
    """Collects elements, attributes and text as a browser would see them."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def a_page(text: str) -> str:
    return page(
        Page(
            text,
            [(text, text), ("number", 12345)],
            [
                Section(
                    text,
                    text,
                    [
                        Bars(text, [(text, 3), ("b", 0)], text, text),
                        Lines(text, [text, "2"], [(text, [1.0, None])], text, text),
                        HtmlTable(text, [text, "p"], [[text, text], [None, 1.5]], ["p"]),
                    ],
                )
            ],
            verdict=text,
        )
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_from_outside_becomes_markup(text: str) -> None:
    found = Reader(a_page(text))
    assert found.open == []
    assert set(found.tags) <= set(ALLOWED)
    plain = Reader(a_page("plain"))
    assert found.tags == plain.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in plain.attributes]
    a_page(text).encode()  # lone surrogates are gone


def test_nothing_is_loaded_from_anywhere() -> None:
    source = a_page("plain")
    assert "default-src 'none'" in source
    for word in ("http://", "https://", "url(", "@import", "<script", "src="):
        assert word not in source


def test_every_chart_has_its_numbers_beside_it() -> None:
    source = page(
        Page(
            "t",
            [],
            [
                Section("s", parts=[Bars("reasons", [("rejected", 1234), ("expired", 5)])]),
                Section(
                    "l", parts=[Lines("waits", ["a", "b"], [("p50", [1.5, 2]), ("p99", [3, 4])])]
                ),
            ],
        )
    )
    assert source.count("<svg") == source.count("<table") == 2
    for cell in (">rejected<", ">1,234<", ">p99<", ">1.5<", ">4<"):
        assert (
            f"<td{cell}" in source
            or f'<td class="n"{cell}' in source
            or f"<th{cell}" in source
            or f'<th scope="col"{cell}' in source
        )
    assert "prefers-color-scheme:dark" in source


def chart(points: list[str], values: list[float | None], span: TimeWindows | None = None) -> str:
    lines = Lines("waits", points, [("p50", values)], span=span)
    return page(Page("r", [], [Section("l", parts=[lines])]))


def test_the_axis_of_a_chart_is_time() -> None:
    minute = 60_000
    span = TimeWindows([0, 4 * minute, 5 * minute], minute, 0, 10 * minute)
    source = chart(["00:00", "00:04", "00:05"], [8, 2, 1], span)
    found = [
        [float(point.partition(",")[0]) for point in line.split()]
        for line in re.findall(r'<polyline points="([^"]*)"', source)
    ]
    alone, line = [
        [MARGIN_LEFT + share * (WIDTH - MARGIN_LEFT) for share in shares]
        for shares in ((0, 0.1), (0.45, 0.55))
    ]
    assert found[0] == pytest.approx(alone, abs=0.1), "three windows are left out after it"
    assert found[1] == pytest.approx(line, abs=0.1)
    for at in ("00:00:00", "00:05:00", "00:10:00"):
        assert f">1970-01-01 {at} UTC<" in source


def test_a_single_point_is_a_dot_and_a_single_window_a_line_over_its_time() -> None:
    source = chart(["now"], [3])
    assert f'<circle cx="{(MARGIN_LEFT + WIDTH) / 2:.1f}"' in source
    assert "<polyline" not in source
    source = chart(["now"], [3], TimeWindows([0], 1000, 0, 1000))
    assert f'<polyline points="{MARGIN_LEFT:.1f},{TOP:.1f} {WIDTH:.1f},{TOP:.1f}"' in source


def test_text_is_cut_and_made_visible() -> None:
    assert shown("x" * 5000).endswith("…")
    assert len(shown("x" * 5000)) == 2001
    assert shown("a\x00\u202eb\n") == "a\\u{0}\\u{202e}b\n"
    assert shown(None) == "–"
    assert [number(n) for n in (0, 1234567, 0.12345, 1234.56, float("inf"))] == [
        "0", "1,234,567", "0.123", "1,234.6", "inf",
    ]  # fmt: skip


def test_an_empty_chart_and_table_are_said_to_be_empty() -> None:
    assert (
        page(Page("t", [], [Section("s", parts=[Bars("b", []), HtmlTable("x", ["a"], [])])])).count(
            "nothing"
        )
        == 2
    )


def letters(reasons: dict[str | None, int], errors: dict[str | None, int]) -> dict[str, Any]:
    """As much of a report of dead letters as a comparison reads."""
    found: dict[str, Any] = {
        name: [{"value": value, "count": count} for value, count in counts.items()]
        for name, counts in (("reasons", reasons), ("source_queues", {}), ("errors", errors))
    }
    return found | {"messages": sum(reasons.values()), "last_arrival_at": None}


def arrivals(queue: str, width_s: int, start: str, *counts: int) -> dict[str, Any]:
    """As much of a report of dead letters as one beside others reads."""
    start_s = datetime.fromisoformat(start).timestamp()
    times = [
        datetime.fromtimestamp(start_s + n * width_s, UTC).isoformat() for n in range(len(counts))
    ]
    over_time = {"width_seconds": width_s, "times": times, "messages": counts}
    found = letters({"rejected": sum(counts)} if counts else {}, {})
    return found | {"queue": queue, "over_time": over_time}


def test_queues_are_side_by_side_in_the_stretches_of_the_widest() -> None:
    one = arrivals("a", 60, "2026-11-28T08:58:00+00:00", 1, 2, 4, 0, 8)
    two = arrivals("b", 300, "2026-11-28T09:00:00+00:00", 16, 0, 32) | {"before": {"messages": 7}}
    none = arrivals("c", 0, "2026-11-28T09:00:00+00:00")
    chart, table = side_by_side([one, two, none]).parts
    assert isinstance(chart, Lines)
    assert chart.unit == "messages per 300 s"
    assert [point[11:16] for point in chart.points] == ["08:55", "09:00", "09:05", "09:10"]
    assert chart.series == [("a", [3, 12, 0, 0]), ("b", [0, 16, 0, 32]), ("c", [0, 0, 0, 0])]
    assert isinstance(table, HtmlTable)
    assert [row[:4] for row in table.rows] == [
        ["a", 15, None, "rejected (100 %)"],
        ["b", 48, 7, "rejected (100 %)"],
        ["c", 0, None, None],
    ]
    far = arrivals("far", 60, "2025-01-01T00:00:00+00:00", 1)
    chart, _ = side_by_side([one, far]).parts
    assert isinstance(chart, Lines)
    assert len(chart.points) <= TIMES_MAX
    assert [sum(filter(None, values)) for _, values in chart.series] == [15, 1]
    assert side_by_side([none, none]).parts[0] == Lines("Arrivals over time", [], [])


def test_latencies_of_queues_are_side_by_side_in_one_time() -> None:
    def queue(name: str, vhost: str, *starts_ms: int) -> dict[str, Any]:
        steps = {"deliver_ack": dict.fromkeys(("p50", "p90", "p99", "max", "samples"), 5)}
        rates = {f"{one}_per_s": 1.0 for one in ("published", "delivered", "acked", "redelivered")}
        figures = {"steps": steps, "ready": 3, "redelivery_rate": 0.0, "delivered": 1} | rates
        windows = [{"start_ms": at} | figures for at in starts_ms]
        named = {"queue": name, "vhost": vhost, "windows": windows, "publish_precision_ms": 1}
        return figures | named

    times = {"from_ms": 0, "until_ms": 30, "window_s": 0.01, "covered_s": 1, "broken_lines": 0}
    queues = [queue("a", "/", 0, 10), queue("a", "other", 20)]
    assert "side by side" not in latency_html(times | {"queues": queues[:1]})
    found = _side_by_side(times, queues)
    assert [one.title for one in found.parts] == [
        "deliver → ack, p99", "Delivered a second", "Messages ready",
    ]  # fmt: skip
    chart = found.parts[0]
    assert isinstance(chart, Lines)
    assert chart.series == [("a in /", [5, 5, None]), ("a in other", [None, None, 5])]
    assert "a in other" in latency_html(times | {"queues": queues})


def test_a_report_is_compared_with_one_before() -> None:
    before = letters({"rejected": 5, "expired": 7}, {None: 12})
    now = letters({"rejected": 900, "maxlen": 1}, {None: 12, "<b>no stock": 889})
    found = compared(now, before)
    changes = [(row["value"], row["before"], row["now"]) for row in found["rows"]]
    assert changes == [
        ("rejected", 5, 900),
        ("<b>no stock", 0, 889),
        ("expired", 7, 0),
        ("maxlen", 0, 1),
        (None, 12, 12),
    ]
    source = page(Page("t", [], [since(found)]))
    assert "It had 12 messages" in source
    assert "+895" in source
    assert "&lt;b&gt;no stock" in source
    with pytest.raises(KeyError):
        compared(now, {"messages": 3})
