"""Reports as HTML: strangers' names stay text, nothing is fetched, charts fit their frame."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from penstock.spark import html_page as h

EVIL = "</td><script>alert(1)</script><img src=http://x/>\"'&"


class Text(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.said: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def test_names_of_strangers_are_text_wherever_they_stand() -> None:
    parts = [
        h.heading(EVIL),
        h.paragraph(EVIL),
        h.verdict(EVIL, EVIL, good=False),
        h.table([EVIL], [[EVIL]], EVIL),
        h.lines({EVIL: [(0, 1), (1, 2)]}, EVIL, EVIL),
    ]
    text = h.page(EVIL, EVIL, parts)
    found = Text(text)
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert found.said.count(EVIL) >= 9
    assert not re.search(r"(src|href|url)\s*[=(]", re.sub(r"&[a-z#0-9]+;|src=http", "", text))
    assert "default-src 'none'" in text


def test_numbers_stand_right_and_what_is_not_there_is_a_dash() -> None:
    text = h.table(["name", "count"], [["a", 1_234_567], ["b", None], ["c", 0.25]])
    assert text.count('class="n"') == 4
    assert "1\u2009234\u2009567" in text
    assert "–" in text


def test_a_chart_stays_in_its_frame_whatever_the_values() -> None:
    cases = [[(5.0, 0.0)], [(0.0, 0.0), (0.0, 9.0)], [(0.0, 1e9), (1e12, 0.0), (2e12, 5.0)]]
    for points in cases:
        text = h.lines({"p50": points, "p99": points}, "ms", "label")
        drawn = re.findall(r'points="([-0-9., ]+)"', text)
        assert len(drawn) == 4  # two lines, and two in the key
        for x, y in (pair.split(",") for line in drawn[:2] for pair in line.split()):
            assert h.LEFT <= float(x) <= h.WIDTH
            assert 0 <= float(y) <= h.HEIGHT


def test_no_points_no_chart() -> None:
    assert h.lines({"p50": []}, "ms", "label") == ""
