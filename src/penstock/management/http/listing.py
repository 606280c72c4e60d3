"""Lists the way RabbitMQ's API gives them: filter, sort, page, project.  Pure functions.

A list is *paged* only when ``page`` is given; then ``name`` (with ``use_regex``) filters by
name, without regard to case, and the answer is an object around the items.  ``sort`` (a dotted
field) with ``sort_reverse`` and ``columns`` (dotted fields, comma-separated) work either way.
The texts of the errors are RabbitMQ's.
"""

import heapq
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from penstock.core import patterns
from penstock.management.facts.rows import Row

DEFAULT_PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 500
MAX_NAME_CHARACTERS: Final = 1024
SORT_CHUNK: Final = 2048
"""A sort is one call in C during which no other thread of the process runs."""

T = TypeVar("T")
SortKey = tuple[int, float, str]


class BadQuery(Exception):
    """A request that asks for nonsense; ``error`` and ``reason`` go into the answer."""

    def __init__(
        self, reason: str | list[object], error: str = "bad_request", status: int = 400
    ) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason
        self.status = status


class ListQuery:
    def __init__(self, query: Mapping[str, str], default_columns: Sequence[str] = ()) -> None:
        """``default_columns``: where the query names none; none = all."""
        self.paged = "page" in query
        self.page = 1
        self.page_size = DEFAULT_PAGE_SIZE
        self.sort = query.get("sort", "")
        self.reverse = query.get("sort_reverse") == "true"
        self.columns = [
            column.split(".") for column in query.get("columns", "").split(",") if column
        ] or [[column] for column in default_columns]
        self.name: re.Pattern[str] | None = None
        if self.paged:
            self._read_page(query)

    def _read_page(self, query: Mapping[str, str]) -> None:
        self.page = _number(query["page"])
        shown_size = "undefined"
        if "page_size" in query:
            self.page_size = _number(query["page_size"])
            shown_size = str(self.page_size)
        if self.page < 1 or not 1 <= self.page_size <= MAX_PAGE_SIZE:
            raise BadQuery(
                f"Invalid pagination parameters: page number {self.page}, page size {shown_size}",
                "invalid_pagination_parameters",
            )
        name = query.get("name", "")
        if len(name) > MAX_NAME_CHARACTERS:
            raise _bad_parameters()
        if name:
            pattern = name if query.get("use_regex") == "true" else re.escape(name)
            try:
                self.name = patterns.compiled(pattern, re.IGNORECASE)
            except patterns.Refused as error:
                raise _bad_parameters() from error

    def ignore_page(self) -> None:
        """The list is given whole, whatever page and name were asked for."""
        self.paged = False
        self.name = None

    def wants(self, name: str) -> bool:
        return self.name is None or self.name.search(name) is not None

    def sorts_by_name(self) -> bool:
        """The natural order will do: rows need not be read before the page is cut."""
        return self.sort in ("", "name")

    def cut(self, items: Sequence[T]) -> Sequence[T]:
        """The items of the page; raises BadQuery when it lies behind the last."""
        if not self.paged:
            return items
        start = (self.page - 1) * self.page_size
        if start > len(items):
            raise BadQuery(
                f"Page out of range, page: {self.page} page size: {self.page_size},"
                f" len: {len(items)}",
                "page_out_of_range",
            )
        return items[start : start + self.page_size]

    def envelope(self, total_count: int, filtered_count: int, item_count: int) -> Row:
        """What stands around the items of a page."""
        return {
            "filtered_count": filtered_count,
            "item_count": item_count,
            "page": self.page,
            "page_count": -(-filtered_count // self.page_size),
            "page_size": self.page_size,
            "total_count": total_count,
        }

    def project(self, row: Row) -> Row:
        """Only the columns asked for; those the row lacks are left out."""
        if not self.columns:
            return row
        projected: Row = {}
        for path in self.columns:
            _copy_path(row, path, projected)
        return projected

    def sort_key(self, row: Row) -> SortKey:
        return sort_key(dig(row, self.sort.split(".")))


def _number(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise _bad_parameters()
    return int(text)


def _bad_parameters() -> BadQuery:
    return BadQuery("Pagination parameters are invalid")


def _copy_path(row: Row, path: list[str], into: Row) -> None:
    """Copy one dotted field with the objects around it; of a missing one, those there are."""
    if path[0] not in row:
        return
    value = row[path[0]]
    if len(path) == 1 or not isinstance(value, dict):
        into[path[0]] = value
        return
    # Always a copy: a column of the whole object may have put the row's own one there.
    before = into.get(path[0])
    inner: Row = dict(before) if isinstance(before, dict) else {}
    into[path[0]] = inner
    _copy_path(value, path[1:], inner)


def dig(row: object, path: list[str]) -> object:
    for part in path:
        row = row.get(part) if isinstance(row, dict) else None
    return row


def sort_key(value: object) -> SortKey:
    """Any JSON value in one order: nothing, numbers, false and true, text, the rest."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, bool):
        return (2, float(value), "")
    if isinstance(value, (int, float)):
        return (1, float(value), "")
    if isinstance(value, str):
        return (3, 0.0, value)
    return (4, 0.0, str(value))


def sorted_in_chunks(
    items: Sequence[T], key: Callable[[T], tuple[object, ...]], reverse: bool
) -> list[T]:
    """A stable sort of any length that never keeps other threads out for long."""
    chunks = [
        sorted(items[i : i + SORT_CHUNK], key=key, reverse=reverse)
        for i in range(0, len(items), SORT_CHUNK)
    ]
    if len(chunks) < 2:
        return chunks[0] if chunks else []
    return list(heapq.merge(*chunks, key=key, reverse=reverse))
