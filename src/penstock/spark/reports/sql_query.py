"""A query over queues, and its rows as text: table, lines of JSON, or CSV.

In: a query in which ``queue('name')`` stands for a table (``sql_tables``).  Out: rows, one by
one.  Queues are looked at: no message is taken, and consumers may go on.  What a queue holds is
decided once, before the query, so that a queue joined with itself is the same on both sides.
"""

import csv
import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from penstock.spark.dataframes.browsing import Extent, browse, look
from penstock.spark.dataframes.sql_tables import Rewritten, SqlSource, columns
from penstock.spark.reports.html_report import visible
from penstock_ranges.subscriptions import BY_TOPIC
from pyspark_penstock.client import subscribe
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.options import COLUMNS, DEFAULT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CELL_MAX = 60
TABLE_ROWS_AHEAD = 200
"""So many rows decide how wide the columns of a table are."""


def extents(url: str, query: Rewritten) -> dict[str, Extent]:
    """Of each queue what it holds now; raises what the client raises."""
    return {view: look(url, _queue_of(url, place)) for view, place in query.views.items()}


def _queue_of(url: str, place: SqlSource) -> str:
    """The channel of a topic is a queue, too; it is not made for a question."""
    if place.kind != "topic":
        return place.names[0]
    (queue,) = subscribe(parse_url(url), BY_TOPIC, place.names, make=False)
    return queue


def run(
    spark: "SparkSession",
    query: Rewritten,
    found: dict[str, Extent],
    limit: int | None,
    url: str | None = None,
) -> "DataFrame":
    """One row more than ``limit`` tells that there are more."""
    wanted = columns(query, COLUMNS, DEFAULT_COLUMNS)
    for view, extent in found.items():
        browse(spark, extent, wanted, url).createOrReplaceTempView(view)
    frame = spark.sql(query.text)
    return frame if limit is None else frame.limit(limit + 1)


# -- rows as text ----------------------------------------------------------------------------


class Counted:
    """Passes on at most ``limit`` rows, and knows whether there were more."""

    def __init__(self, rows: Iterable[Sequence[Any]], limit: int | None) -> None:
        self._rows = rows
        self._limit = limit
        self.count = 0
        self.more = False

    def __iter__(self) -> Iterator[Sequence[Any]]:
        for row in self._rows:
            if self.count == self._limit:
                self.more = True
                return
            self.count += 1
            yield row


Writer = Callable[[TextIO, Sequence[str], Iterable[Sequence[Any]]], None]


def write_json(out: TextIO, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        one = {name: plain(value) for name, value in zip(names, row, strict=True)}
        out.write(json.dumps(one, ensure_ascii=True, allow_nan=False) + "\n")


def write_csv(out: TextIO, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """With a line of names; null is an empty field."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_field(value) for value in row])


def write_table(out: TextIO, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """For reading: long values are cut, and control characters cannot reach the terminal."""
    ahead: list[list[str]] = [[visible(name) for name in names]]
    widths: list[int] | None = None
    for row in rows:
        line = [_cell(value) for value in row]
        if widths is not None:
            _write_line(out, line, widths)
            continue
        ahead.append(line)
        if len(ahead) > TABLE_ROWS_AHEAD:
            widths = _write_ahead(out, ahead)
    if widths is None:
        _write_ahead(out, ahead)


WRITERS: dict[str, Writer] = {"table": write_table, "json": write_json, "csv": write_csv}


def _write_ahead(out: TextIO, lines: list[list[str]]) -> list[int]:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    _write_line(out, lines[0], widths)
    _write_line(out, ["-" * width for width in widths], widths)
    for line in lines[1:]:
        _write_line(out, line, widths)
    return widths


def _write_line(out: TextIO, cells: Sequence[str], widths: Sequence[int]) -> None:
    text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    out.write(text.rstrip() + "\n")


def _cell(value: Any) -> str:
    text = visible(_field(value) if value is not None else "NULL")
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"


def _field(value: Any) -> str:
    made = plain(value)
    if made is None:
        return ""
    if isinstance(made, (dict, list, bool)):
        return json.dumps(made, ensure_ascii=False)
    return str(made)


def plain(value: Any) -> Any:
    """What JSON can say; bytes as text if they are text, else in hexadecimal after 0x."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return "0x" + bytes(value).hex()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)
