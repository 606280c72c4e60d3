"""A report as one HTML file: no network, no script, readable by eye, by ear and on paper.

In: a ``Page`` of sections, each with words, facts, charts and tables, made of plain values.
Out: text.  Every chart is an SVG with the table of its numbers beside it, so nothing is said by
a picture alone; light and dark follow the reader's system.

The shown texts come from messages, hence from any publisher: *all* text
goes through ``shown``, which escapes, makes control and direction-changing characters visible,
and cuts what is long.  The page's policy forbids the browser to load or run anything, should
that ever fail.
"""

import html
import math
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

TEXT_MAX = 2000
LABEL_MAX = 60
WIDTH = 640
ROW = 22
PLOT_HEIGHT = 180
MARGIN_LEFT = 56
TOP = 20
"""Above a plot is its unit."""
LINES_MAX = 8
"""So many lines of one chart can be told apart; the rest is in the table."""

Value = str | int | float | None


@dataclass(frozen=True)
class Bars:
    title: str
    rows: Sequence[tuple[str, float]]
    label: str = "name"
    unit: str = "messages"


@dataclass(frozen=True)
class TimeWindows:
    """When each point of a chart was: windows of ``width_ms`` that begin at ``starts_ms``,
    within the time of the report.  Windows in which nothing was measured are left out.
    """

    starts_ms: Sequence[int]
    width_ms: float
    from_ms: float
    until_ms: float


@dataclass(frozen=True)
class Lines:
    """Several numbers per point of an axis; None = nothing was measured there.

    Without a ``span`` the points are at equal distances, and none is left out.
    """

    title: str
    points: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    label: str = "time"
    unit: str = ""
    span: TimeWindows | None = None


@dataclass(frozen=True)
class HtmlTable:
    """``preformatted`` names columns whose text keeps its line breaks."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    preformatted: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    title: str
    text: str = ""
    parts: Sequence[Bars | Lines | HtmlTable] = ()


@dataclass(frozen=True)
class Page:
    title: str
    facts: Sequence[tuple[str, Value]]
    sections: Sequence[Section] = field(default_factory=list)
    verdict: str = ""


STYLE = """\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;
--bar:#0969da;--l0:#0969da;--l1:#bc4c00;--l2:#1a7f37;--l3:#8250df;--l4:#bf3989;--l5:#9a6700;--l6:#1b7c83;--l7:#57606a}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--paper:#0d1117;--line:#3d444d;
--bar:#58a6ff;--l0:#58a6ff;--l1:#f0883e;--l2:#3fb950;--l3:#bc8cff;--l4:#f778ba;--l5:#d29922;
--l6:#56d4dd;--l7:#9198a1}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:64rem;
margin:0 auto;padding:1.5rem}
h1{font-size:1.6rem}h3{margin-bottom:.3rem}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
p.verdict{font-size:1.15rem;border-left:4px solid var(--bar);padding-left:.8rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dt{color:var(--soft)}
dd{margin:0}.pair{display:flex;flex-wrap:wrap;gap:1.5rem;align-items:flex-start}
figure{margin:0;flex:1 1 26rem;min-width:0}svg{max-width:100%;height:auto}
.scroll{overflow-x:auto;max-width:100%;max-height:32rem;overflow-y:auto}
table{border-collapse:collapse;font-size:.9rem}caption{text-align:left;color:var(--soft)}
th,td{text-align:left;vertical-align:top;padding:.15rem .7rem .15rem 0;
border-bottom:1px solid var(--line);overflow-wrap:anywhere;max-width:32rem}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td pre{margin:0;white-space:pre-wrap;font-size:.85rem}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .soft{fill:var(--soft)}
svg .bar{fill:var(--bar)}svg .axis{stroke:var(--line)}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Page) -> str:
    title = shown(report.title)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{title}</h1>",
    ]
    if report.verdict:
        parts.append(f'<p class="verdict">{shown(report.verdict)}</p>')
    facts = "".join(
        f"<dt>{shown(name)}</dt><dd>{shown(value)}</dd>" for name, value in report.facts
    )
    parts.append(f"<dl>{facts}</dl>")
    parts += [_section(section) for section in report.sections]
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


# -- text ------------------------------------------------------------------------------------


def shown(value: Value, length_max: int = TEXT_MAX) -> str:
    """Safe in any place of the page; see the head of this file."""
    if value is None:
        return "–"
    text = number(value) if isinstance(value, (int, float)) else value
    if len(text) > length_max:
        text = text[:length_max] + "…"
    return html.escape(visible(text), quote=True)


def visible(text: str) -> str:
    """Also for terminals: control characters, and those that turn text, become their numbers."""
    return "".join(_visible(character) for character in text)


def number(value: float) -> str:
    """In a form people read: 12,345 or 0.42 or 1.2e+09."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _visible(character: str) -> str:
    if character in "\n\t":
        return character
    kind = unicodedata.category(character)
    if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"\\u{{{ord(character):x}}}"
    return character


# -- parts -----------------------------------------------------------------------------------


def _section(section: Section) -> str:
    parts = [f"<section><h2>{shown(section.title)}</h2>"]
    if section.text:
        parts.append(f"<p>{shown(section.text)}</p>")
    parts += [_part(part) for part in section.parts]
    return "\n".join([*parts, "</section>"])


def _part(part: Bars | Lines | HtmlTable) -> str:
    if isinstance(part, HtmlTable):
        return f"<h3>{shown(part.title)}</h3>{_table(part)}"
    if isinstance(part, Bars):
        drawn = _bars(part)
        numbers = HtmlTable(part.title, (part.label, part.unit), part.rows)
    else:
        drawn = _lines(part)
        columns = (part.label, *(name for name, _ in part.series))
        values = [values for _, values in part.series]
        rows = [[point, *(v[at] for v in values)] for at, point in enumerate(part.points)]
        numbers = HtmlTable(part.title, columns, rows)
    pair = f'<div class="pair"><figure>{drawn}</figure>{_table(numbers)}</div>'
    return f"<h3>{shown(part.title)}</h3>{pair}"


def _table(table: HtmlTable) -> str:
    if not table.rows:
        return "<p>nothing</p>"
    kept = [name in table.preformatted for name in table.columns]
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in table.columns)
    rows = []
    for row in table.rows:
        cells = [_cell(value, pre=pre) for value, pre in zip(row, kept, strict=True)]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table><caption>{shown(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(value: Value, *, pre: bool) -> str:
    if isinstance(value, (int, float)):
        return f'<td class="n">{shown(value)}</td>'
    return f"<td><pre>{shown(value)}</pre></td>" if pre else f"<td>{shown(value)}</td>"


# -- charts ----------------------------------------------------------------------------------


def _bars(chart: Bars) -> str:
    most = max((value for _, value in chart.rows), default=0) or 1
    label_width = 220
    room = WIDTH - label_width - 70
    drawn = []
    for at, (label, value) in enumerate(chart.rows):
        y = at * ROW
        width = max(room * max(value, 0) / most, 1)
        name = shown(label, LABEL_MAX)
        short = shown(label, 30)
        drawn.append(
            f'<g><title>{name}: {shown(value)}</title><text x="{label_width - 6}" y="{y + 15}" '
            f'text-anchor="end">{short}</text><rect class="bar" x="{label_width}" y="{y + 3}" '
            f'width="{width:.1f}" height="{ROW - 6}"/><text class="soft" '
            f'x="{label_width + width + 6:.1f}" y="{y + 15}">{shown(value)}</text></g>'
        )
    return _svg(chart.title, max(len(chart.rows) * ROW, ROW), drawn)


def _lines(chart: Lines) -> str:
    known = [v for _, values in chart.series for v in values if v is not None]
    most = max(known, default=0) or 1
    drawn = _axes(chart, most)
    places = _places(chart)
    for at, (name, values) in enumerate(chart.series[:LINES_MAX]):
        for stretch in _stretches(chart, places, values):
            points = [(x, TOP + PLOT_HEIGHT * (1 - max(value, 0) / most)) for x, value in stretch]
            drawn.append(_line(_widened(chart, points), f"var(--l{at})"))
        y = TOP + PLOT_HEIGHT + 36 + at * 16
        drawn.append(
            f'<rect x="{MARGIN_LEFT}" y="{y - 9}" width="10" height="10" fill="var(--l{at})"/>'
            f'<text x="{MARGIN_LEFT + 16}" y="{y}">{shown(name, LABEL_MAX)}</text>'
        )
    height = TOP + PLOT_HEIGHT + 32 + min(len(chart.series), LINES_MAX) * 16
    return _svg(chart.title, height, drawn)


def _axes(chart: Lines, most: float) -> list[str]:
    floor, left = TOP + PLOT_HEIGHT, MARGIN_LEFT - 6
    drawn = [
        f'<line class="axis" x1="{MARGIN_LEFT}" y1="{floor}" x2="{WIDTH}" y2="{floor}"/>',
        f'<text class="soft" x="{left}" y="{TOP + 6}" text-anchor="end">{shown(most)}</text>',
        f'<text class="soft" x="{left}" y="{floor}" text-anchor="end">0</text>',
    ]
    if chart.unit:
        drawn.append(
            f'<text class="soft" x="{MARGIN_LEFT}" y="{TOP - 6}">{shown(chart.unit)}</text>'
        )
    for share, anchor, text in _ticks(chart):
        x = MARGIN_LEFT + share * (WIDTH - MARGIN_LEFT)
        drawn.append(
            f'<line class="axis" x1="{x:.1f}" y1="{floor}" x2="{x:.1f}" y2="{floor + 4}"/>'
            f'<text class="soft" x="{x:.1f}" y="{floor + 16}" text-anchor="{anchor}">'
            f"{shown(text, 30)}</text>"
        )
    return drawn


def _ticks(chart: Lines) -> list[tuple[float, str, str]]:
    """Places along the axis from 0 to 1, with what stands below them: first, middle, last."""
    anchors = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    span = chart.span
    if span is not None:
        length_ms = span.until_ms - span.from_ms
        return [(at, anchor, _moment(span.from_ms + at * length_ms)) for at, anchor in anchors]
    points = chart.points
    if len(points) == 1:
        return [(0.5, "middle", points[0])]
    odd = len(points) % 2 == 1
    ends = [(at, anchor) for at, anchor in anchors if points and (odd or at != 0.5)]
    return [(at, anchor, points[int(at * (len(points) - 1))]) for at, anchor in ends]


def _moment(at_ms: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def _places(chart: Lines) -> list[float]:
    """The horizontal place of each point; that of a window is its middle."""
    room = WIDTH - MARGIN_LEFT
    span, count = chart.span, len(chart.points)
    if span is None:
        shares = [at / (count - 1) if count > 1 else 0.5 for at in range(count)]
    else:
        length_ms = max(span.until_ms - span.from_ms, 1)
        middles = [start + span.width_ms / 2 - span.from_ms for start in span.starts_ms]
        shares = [min(max(middle / length_ms, 0), 1) for middle in middles]
    return [MARGIN_LEFT + share * room for share in shares]


def _stretches(
    chart: Lines, places: Sequence[float], values: Sequence[float | None]
) -> list[list[tuple[float, float]]]:
    """Places and values between the gaps: where nothing was measured, or a window is left out."""
    stretches: list[list[tuple[float, float]]] = [[]]
    span = chart.span
    starts_ms = [] if span is None else list(span.starts_ms)
    steps_ms = [0, *(later - start for start, later in pairwise(starts_ms))]
    for at, value in enumerate(values):
        if value is None or (span is not None and steps_ms[at] > 1.5 * span.width_ms):
            stretches.append([])
        if value is not None:
            stretches[-1].append((places[at], value))
    return [stretch for stretch in stretches if stretch]


def _widened(chart: Lines, points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """A window alone is a line from its begin to its end."""
    span = chart.span
    if span is None or len(points) != 1:
        return points
    ((x, y),) = points
    half = (WIDTH - MARGIN_LEFT) * span.width_ms / max(span.until_ms - span.from_ms, 1) / 2
    return [(max(x - half, MARGIN_LEFT), y), (min(x + half, WIDTH), y)]


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    if len(points) == 1:
        ((x, y),) = points
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-linecap="round"/>'
    )


def _svg(title: str, height: int, drawn: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{shown(title)}; the numbers are in the table beside it">'
        f"{''.join(drawn)}</svg>"
    )
