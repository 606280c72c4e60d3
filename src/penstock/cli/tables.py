"""Tables, which the commands print for people.

Names come from strangers, so a table prints no control character, and one long name does not widen
the rows of all others.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.core.printable import printable

WIDTH_MAX: Final = 60
"""A longer cell is printed whole, and moves the rest of its own row only."""

TEXT_LEAST: Final = 8
"""So much of a text is left where a table is to fit a terminal."""
Fields = Sequence[tuple[str, str]]
"""Pairs of title and dotted JSON field."""


def fields_of(text: str) -> Fields:
    """``"name ready=messages_ready"``: the field is the title's own name where none is given."""
    pairs = (word.partition("=") for word in text.split())
    return [(title.replace("_", " "), field or title) for title, _, field in pairs]


def cells_of(item: object, fields: Fields) -> list[object]:
    return [_cell(_dig(item, field)) for _, field in fields]


def _dig(item: Any, dotted: str) -> object:
    for part in dotted.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


def _cell(value: object) -> object:
    """Lists and objects as a person would write them."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={inner}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return value


def table_of(items: Iterable[object], text: str) -> str:
    """Objects of JSON as a table; ``text``: its fields, as ``fields_of`` reads them."""
    fields = fields_of(text)
    return table([title for title, _ in fields], [cells_of(item, fields) for item in items])


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    grouped: bool = False,
    width: int = 0,
) -> str:
    """Rows under their titles, numbers to the right; safe to print on a terminal.

    ``grouped``: with separators of thousands; ``width``: of a row, in columns of a terminal that is
    to be fitted by cutting texts; 0 = as wide as it takes.
    """
    cells = [list(columns), *([shown(cell, grouped=grouped) for cell in row] for row in rows)]
    widths = [
        max(len(line[i]) for line in cells if len(line[i]) <= WIDTH_MAX or line[i] == columns[i])
        for i in range(len(columns))
    ]
    numeric = [
        bool(rows) and all(type(row[i]) in (int, float, type(None)) for row in rows)
        for i in range(len(columns))
    ]
    if width:
        widths = _fitted(widths, numeric, width - 2 * (len(widths) - 1))
        cells = [
            [_cut(cell, most) for cell, most in zip(line, widths, strict=True)] for line in cells
        ]
    lines = []
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _fitted(widths: Sequence[int], numeric: Sequence[bool], room: int) -> list[int]:
    """The widest texts give way until all is in the room, or all are short."""
    fitted = list(widths)
    while sum(fitted) > room:
        at = max(range(len(fitted)), key=lambda i: 0 if numeric[i] else fitted[i])
        if numeric[at] or fitted[at] <= TEXT_LEAST:
            break
        fitted[at] -= 1
    return fitted


def _cut(cell: str, most: int) -> str:
    return cell if len(cell) <= most else cell[: most - 1] + "…"


def shown(cell: object, *, grouped: bool = False) -> str:
    """As a table shows it: no control character leaves here."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if grouped and isinstance(cell, int | float):
        return f"{cell:,}"
    return printable(str(cell))
