"""What the commands print: tables for people, JSON for programs.

Names come from strangers, so a table prints no control character, and one long name does not widen
the rows of all others.
"""

import json
from collections.abc import Sequence
from typing import Final

import click

from penstock.core.printable import printable

WIDTH_MAX: Final = 60
"""A longer cell is printed whole, and moves the rest of its own row only."""


def say(found: object, output: str, text: str) -> None:
    """``found`` as JSON when that is the wish, else the text, if there is any."""
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    elif text:
        click.echo(text)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, grouped: bool = False
) -> str:
    """Rows under their titles, numbers to the right; safe to print on a terminal.

    ``grouped``: with separators of thousands.
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
    lines = []
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def shown(cell: object, *, grouped: bool = False) -> str:
    """As a table shows it: no control character leaves here."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if grouped and isinstance(cell, int | float):
        return f"{cell:,}"
    return printable(str(cell))
