"""What a verb's result looks like: tab-separated tables, CSV, JSON, boxes, and Erlang's terms.

A ``Table`` has columns and rows of Python values as JSON gives them; ``Facts`` is anything else
that has a text for people and a value for programs.  Which form is the verb's own, and which
``--formatter`` asks for another, is decided here, as RabbitMQ's programs decide it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.printable import printable
from penstock.ctl.call import Call

BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"
LINES_ON: Final = "\x1b(0"
LINES_OFF: Final = "\x1b(B"
FORMATTERS: Final = ("json", "csv", "table", "pretty_table")


class Table(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    has_head: bool = True
    empty_line: bool = False
    """Where there is no row, RabbitMQ prints an empty line after some verbs."""


class Facts(NamedTuple):
    text: str
    value: Any


class Arguments(dict[str, Any]):
    """An AMQP table: ``[{"x-max-length",10}]``, and in JSON triples with RabbitMQ's type names."""


class Term(NamedTuple):
    """An Erlang value that is no list or text: an atom, by its name."""

    name: str


def printed(result: object, call: Call) -> str | None:
    """As it goes to standard output, without the last line's end; None for nothing."""
    if isinstance(result, Table):
        return _table(result, call)
    if call.is_silent and call.verb.startswith("check_"):
        return None  # the exit code says it all
    if isinstance(result, Facts):
        return as_json(result.value, sort=True) if call.formatter == "json" else result.text
    if call.formatter == "json":
        done = {"node": call.node.name, "result": "ok"}
        return as_json(done | {"value": result} if isinstance(result, str) else done)
    return result if isinstance(result, str) else None


def _table(table: Table, call: Call) -> str | None:
    columns, rows = table.columns, table.rows
    if call.formatter == "json":
        filled = [["" if cell is None else cell for cell in row] for row in rows]
        lines = [as_json(dict(zip(columns, row, strict=True))) for row in filled]
        if not lines:
            return "[]" if table.empty_line else "[\n]"
        return "[\n" + "\n,".join(lines) + "\n]"
    if call.formatter == "csv":
        if not rows:
            return "" if table.empty_line else None
        return "\n".join(map(_csv_line, [columns, *rows]))
    if call.formatter == "pretty_table":
        # A tab would push the frame away.
        cells = [[shown(cell).expandtabs() for cell in row] for row in rows]
        return boxes(columns, cells) if rows else None
    head = table.has_head and not (call.is_silent or call.is_set("no-table-headers"))
    lines = ["\t".join(shown(cell) for cell in row) for row in rows]
    if not lines:
        return "" if table.empty_line else None
    return "\n".join([*(["\t".join(columns)] if head else []), *lines])


def _csv_line(row: Sequence[Any]) -> str:
    return ",".join('"' + shown(cell).replace('"', '""') + '"' for cell in row)


def boxes(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Drawn with the terminal's line drawing set, as RabbitMQ does."""
    widths = [max(len(line[i]) for line in [columns, *rows]) for i in range(len(columns))]

    def rule(left: str, middle: str, right: str) -> str:
        return (
            LINES_ON + left + middle.join("q" * (width + 2) for width in widths) + right + LINES_OFF
        )

    bar = f"{LINES_ON}x{LINES_OFF}"
    drawn = [rule("l", "w", "k")]
    for number, line in enumerate([columns, *rows]):
        if number:
            drawn.append(rule("t", "n", "u"))
        cells = []
        for cell, width in zip(line, widths, strict=True):
            text = f"{BOLD}{cell}{PLAIN}" if number == 0 else cell
            cells.append(f" {text}{' ' * (width - len(cell))} ")
        drawn.append(bar + bar.join(cells) + bar)
    drawn.append(rule("m", "v", "j"))
    return "\n".join(drawn)


# -- values ----------------------------------------------------------------------------------


def as_json(value: object, *, sort: bool = False) -> str:
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def _plain(value: Any) -> Any:
    """What JSON can carry, as RabbitMQ's programs carry it."""
    if isinstance(value, Term):
        return value.name
    if isinstance(value, Arguments):
        return [[name, *_typed(one)] for name, one in value.items()]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return "{" + ", ".join(str(one) for one in value) + "}"
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _typed(value: Any) -> tuple[str, Any]:
    """The type is guessed from JSON: which integer it was is not told there."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long", value
    if isinstance(value, float):
        return "double", value
    if isinstance(value, Mapping):
        return "table", [[name, *_typed(one)] for name, one in value.items()]
    if isinstance(value, list):
        return "array", [list(_typed(one)) for one in value]
    return "longstr", value


def shown(value: Any) -> str:
    """One cell: text as it is; numbers and truths, lists and objects in Erlang's way."""
    if value is None:
        return ""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list) and all(isinstance(one, Term) for one in value):
        return "[" + ", ".join(one.name for one in value) + "]"
    return erlang(value)


def visible(text: str) -> str:
    """Names come from strangers: nothing in one shall move a terminal's cursor, or end a line."""
    return printable(text, "\t")


def erlang(value: Any) -> str:
    """A value as Erlang would print it: ``[{"x-max-length",5}]``, ``true``, ``"text"``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Term):
        return value.name
    if isinstance(value, bytes):
        return f'<<"{value.decode()}">>'
    if value is None or isinstance(value, int | float):
        return "undefined" if value is None else str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return "{" + ",".join(erlang(one) for one in value) + "}"
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{{{erlang(k)},{erlang(one)}}}" for k, one in value.items()) + "]"
    return "[" + ",".join(erlang(one) for one in value) + "]"
