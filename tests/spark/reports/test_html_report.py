"""What messages contain must not act in the page, and nothing is told by a picture alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from penstock.spark.reports.dlq_page import compared, since
from penstock.spark.reports.html_report import (
    MARGIN_LEFT,
    TOP,
    WIDTH,
    Bars,
    Lines,
    Page,
    Section,
    Span,
    Table,
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
                        Table(text, [text, "p"], [[text, text], [None, 1.5]], ["p"]),
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


def chart(points: list[str], values: list[float | None], span: Span | None = None) -> str:
    lines = Lines("waits", points, [("p50", values)], span=span)
    return page(Page("r", [], [Section("l", parts=[lines])]))


def test_the_axis_of_a_chart_is_time() -> None:
    minute = 60_000
    span = Span([0, 4 * minute, 5 * minute], minute, 0, 10 * minute)
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
    source = chart(["now"], [3], Span([0], 1000, 0, 1000))
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
        page(Page("t", [], [Section("s", parts=[Bars("b", []), Table("x", ["a"], [])])])).count(
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
