"""Names and arguments as they stand in ``definitions.db``.

A name comes from the line, where it need not be UTF-8; arguments are JSON with tags for what JSON
has not.  docs/formats/definitions.md, section 2, is the other half of this file.
"""

import json
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, cast

Cell = str | bytes | int

_BYTES_TAG: Final = "$bytes"
_DECIMAL_TAG: Final = "$decimal"
_DICT_TAG: Final = "$dict"


def name_to_cell(name: str) -> str | bytes:
    """Names come from the line, where they need not be UTF-8: such a one is stored as bytes."""
    if name.isascii():
        return name
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape")
    return name


def name_in_cell(cell: str | bytes) -> str:
    return cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else cell


def cell_of(value: object) -> Cell:
    """A name or other text, a number, yes or no, an arguments table, a list of texts."""
    if isinstance(value, str):
        return name_to_cell(value)
    if isinstance(value, bytes | int):
        return value
    if isinstance(value, dict):
        return arguments_to_json(value)
    return json.dumps(value)


def put_statement(table: str, count: int) -> str:
    """A row of ``count`` columns, in the place of the one with its key."""
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * count)})"  # noqa: S608


def arguments_to_json(arguments: dict[str, object]) -> str:
    """One spelling for equal tables: keys are sorted, and a binding is found by it again."""
    return json.dumps(to_json_value(arguments), sort_keys=True, separators=(",", ":"))


def to_json_value(value: object) -> object:
    """What JSON can say of it, with tags for what it cannot."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        return {_BYTES_TAG: b64encode(value).decode("ascii")}
    if isinstance(value, Decimal):
        return {_DECIMAL_TAG: str(value)}
    if isinstance(value, list):
        return [to_json_value(item) for item in value]
    if isinstance(value, dict):
        plain = {key: to_json_value(item) for key, item in value.items()}
        # A table of the user's that looks like a tag is wrapped in one.
        return {_DICT_TAG: plain} if any(key.startswith("$") for key in plain) else plain
    raise TypeError(f"arguments cannot hold a {type(value).__name__}")


def arguments_from_json(text: str) -> dict[str, object]:
    return table_from_json(json.loads(text))


def table_from_json(value: object) -> dict[str, object]:
    """The table that was written with ``to_json_value``."""
    table = _from_json(value)
    if not isinstance(table, dict):
        raise TypeError(f"arguments are no table: {str(value)[:40]}")
    return cast("dict[str, object]", table)


def _from_json(value: object) -> object:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        tag, content = next(iter(value.items()))
        if tag == _BYTES_TAG:
            return b64decode(content, validate=True)
        if tag == _DECIMAL_TAG:
            return Decimal(content)
        if tag == _DICT_TAG:
            return {key: _from_json(item) for key, item in content.items()}
    return {key: _from_json(item) for key, item in value.items()}


READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "t": name_in_cell,
    "i": int,
    "b": bool,
    "l": json.loads,
    "a": arguments_from_json,
}
"""Text, integer, yes or no, list, arguments."""


def read_rows(db: sqlite3.Connection, select: str, kinds: str) -> Iterator[list[Any]]:
    """``kinds``: a letter of ``READ`` for each column of ``select``."""
    readers = [READ[kind] for kind in kinds]
    for row in db.execute(f"SELECT {select}"):
        yield [read(cell) for read, cell in zip(readers, row, strict=True)]
