"""The status page: one HTML document, no script, nothing loaded from anywhere.

Its only style is inline and allowed by its digest, so the page works under a policy that
allows nothing else.  Every text that came from a client is escaped.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Final

from penstock.management.facts.rows import Row

MAX_QUEUES: Final = 500
"""The page shows the first ones; the API has them all."""

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem;
       color: #1c2733; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d9dfe5; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
p.totals { color: #4a5a69; }
@media (prefers-color-scheme: dark) {
  body { color: #dfe6ec; background: #14191e; }
  th, td { border-color: #2f3942; }
  p.totals { color: #9fb0bf; }
}
"""
STYLE_DIGEST: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{STYLE_DIGEST}';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

COLUMNS: Final = (
    ("virtual host", "vhost"),
    ("queue", "name"),
    ("durable", "durable"),
    ("ready", "messages_ready"),
    ("unacknowledged", "messages_unacknowledged"),
    ("consumers", "consumers"),
)


def status_page(node: str, version: str, queue_count: int, rows: Sequence[Row]) -> str:
    """The whole document; ``rows`` are the queues to show, ``queue_count`` all there are."""
    heads = "".join(f"<th{_class(rows, field)}>{title}</th>" for title, field in COLUMNS)
    lines = "\n".join(
        "<tr>"
        + "".join(f"<td{_class(rows, field)}>{_cell(row[field])}</td>" for _, field in COLUMNS)
        + "</tr>"
        for row in rows
    )
    shown = "" if len(rows) == queue_count else f", the first {len(rows)} shown"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(node)} - Penstock</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Penstock</h1>
<p class="totals">{escape(node)}, version {escape(version)}: {queue_count} queues{shown}.
Reload for new numbers; the API is under <code>/api/</code>.</p>
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{lines}
</tbody>
</table>
</body>
</html>
"""


def _class(rows: Sequence[Row], field: str) -> str:
    numeric = bool(rows) and type(rows[0][field]) is int
    return ' class="number"' if numeric else ""


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value).encode("utf-8", "replace").decode())
