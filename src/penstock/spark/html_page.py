"""Reports as one HTML file that opens from disk: no script, no font, no image, no network.

In: titles, rows and numbers.  Out: text.  Every value from a broker is a stranger's and is escaped
here; the page forbids itself whatever is not in it (``POLICY``), so even what slipped through could
neither run nor fetch.  Charts are drawn as SVG, with their figures in a table beside them or in a
``title``: nothing is said by colour alone.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
STYLE: Final = """\
:root{color-scheme:light dark;--ink:#1c2430;--paper:#fff;--line:#d4d9e0;--soft:#f3f5f8;--a:#2563a8;
--b:#b45309;--c:#7c3aed;--d:#0f766e;--bad:#b3261e;--good:#1b6e3c}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#14181f;--line:#39424f;
--soft:#1d232c;--a:#7db2ea;--b:#eaa75c;--c:#b79bf5;--d:#5cc8bc;--bad:#f2938c;--good:#7fcf9b}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;
max-width:72rem;padding:1.5rem}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p.sub{margin:0;opacity:.75}.verdict{border-left:4px solid var(--bad);background:var(--soft);
padding:.75rem 1rem;margin:1rem 0}.verdict.good{border-color:var(--good)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
th.n,td.n{text-align:right;font-variant-numeric:tabular-nums}th{background:var(--soft)}
svg{width:100%;height:auto;background:var(--soft)}svg text{fill:var(--ink);font-size:11px}
.a{stroke:var(--a)}.b{stroke:var(--b)}.c{stroke:var(--c)}.d{stroke:var(--d)}
.fa{fill:var(--a)}.fb{fill:var(--b)}.fc{fill:var(--c)}.fd{fill:var(--d)}
polyline{fill:none;stroke-width:1.8}.axis{stroke:var(--line)}.key{font-size:.85rem}
.key b{font-weight:600}
"""
COLOURS: Final = "abcd"
DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")
WIDTH: Final = 900
HEIGHT: Final = 200
LEFT: Final = 60
BOTTOM: Final = 24

Point = tuple[float, float]


def page(title: str, sub: str, parts: Iterable[str]) -> str:
    """A whole document; ``parts`` are made by the functions below."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="sub">{escape(sub)}</p>\n'
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def verdict(sentence: str, advice: str, *, good: bool) -> str:
    kind = "verdict good" if good else "verdict"
    more = f"<br>{escape(advice)}" if advice else ""
    return f'<div class="{kind}" role="status"><strong>{escape(sentence)}</strong>{more}</div>'


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Numbers stand on the right; None is a dash."""
    shown = [list(row) for row in rows]
    numeric = [_is_numeric([row[at] for row in shown]) for at in range(len(headings))]
    marks = [' class="n"' if is_number else "" for is_number in numeric]
    head = "".join(
        f'<th scope="col"{mark}>{escape(text)}</th>'
        for mark, text in zip(marks, headings, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{mark}>{_cell(value)}</td>" for mark, value in zip(marks, row, strict=True))
        + "</tr>"
        for row in shown
    )
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{above}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _is_numeric(column: Sequence[object]) -> bool:
    there = [one for one in column if one is not None]
    return len(there) > 0 and all(isinstance(one, int | float) for one in there)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, int | float):
        return escape(number(value))
    return escape(str(value))


def number(value: float) -> str:
    """1234567 as 1 234 567, with thin spaces."""
    text = f"{value:,.1f}" if value % 1 else f"{value:,.0f}"
    return text.replace(",", "\u2009")


def lines(series: Mapping[str, Sequence[Point]], unit: str, label: str) -> str:
    """A chart over time; points are (milliseconds, value).  At most four series."""
    points = [point for one in series.values() for point in one]
    if not points:
        return ""
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    top = max(*(y for _, y in points), 1e-9)
    width = max(right - left, 1)

    def place(point: Point) -> str:
        x = LEFT + (point[0] - left) / width * (WIDTH - LEFT - 10)
        y = HEIGHT - BOTTOM - point[1] / top * (HEIGHT - BOTTOM - 12)
        return f"{x:.1f},{y:.1f}"

    drawn, key = [], []
    for place_no, (name, one) in enumerate(series.items()):
        colour, dash = COLOURS[place_no], DASHES[place_no]
        dots = " ".join(place(point) for point in one)
        drawn.append(
            f'<polyline class="{colour}" stroke-dasharray="{dash}" points="{dots}">'
            f"<title>{escape(name)}</title></polyline>"
        )
        key.append(
            f'<svg viewBox="0 0 24 8" style="width:24px;background:none" aria-hidden="true">'
            f'<polyline class="{colour}" stroke-dasharray="{dash}" points="0,4 24,4"/></svg> '
            f"<b>{escape(name)}</b>"
        )
    base = HEIGHT - BOTTOM
    axes = (
        f'<line class="axis" x1="{LEFT}" y1="{base}" x2="{WIDTH - 10}" y2="{base}"/>'
        f'<text x="{LEFT - 6}" y="16" text-anchor="end">{escape(number(top))}</text>'
        f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0 {escape(unit)}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 6}">{clock(left)}</text>'
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 6}" text-anchor="end">{clock(right)}</text>'
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'{axes}{"".join(drawn)}</svg><p class="key">{" &nbsp; ".join(key)}</p>'
    )


def clock(at_ms: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at_ms / 1000))


def moment(at_ms: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))
