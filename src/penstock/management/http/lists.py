"""Lists over HTTP: read in slices, filtered, sorted, cut into pages.

A long list is read ``SLICE`` objects at a time, and each slice becomes JSON before the next is
read, so neither the data loop nor the interpreter's lock is ever held for long.  Between two slices
the broker goes on: a list is a walk through a moving crowd, not a photograph, and what vanishes
meanwhile is left out.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

from aiohttp import web

from penstock.management.facts.on_loop import OnLoop
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import to_json
from penstock.management.http.listing import (
    BadQuery,
    ListQuery,
    SortKey,
    dig,
    sort_key,
    sorted_in_chunks,
)
from penstock.management.rows.view import BrokerView
from penstock.management.statistics.completing import NOTHING, asked_now

T = TypeVar("T")
U = TypeVar("U")
Pair = tuple[str, str]

SLICE: Final = 100
SLICE_WITH_SAMPLES: Final = 5
"""A row with samples is a hundred times as long."""
ROWS_WITH_SAMPLES_MAX: Final = 500
OF_SAMPLES: Final = ("avg", "avg_rate")
EVERYTHING: Final = ListQuery({})
"""No column, no page."""


class Lists:
    def __init__(self, view: BrokerView, on_loop: OnLoop) -> None:
        self._view = view
        self._on_loop = on_loop

    async def pairs_of(
        self, vhosts: Sequence[str], names_of: Callable[[str], list[str]]
    ) -> list[Pair]:
        pairs: list[Pair] = []
        for vhost in vhosts:
            names = await self._on_loop(names_of, vhost)
            pairs.extend((vhost, name) for name in names)
        return pairs

    async def message_counts(self, vhosts: Sequence[str]) -> list[int]:
        """Ready, unacknowledged and consumers over all queues of these virtual hosts."""
        totals = [0, 0, 0]
        for vhost, names in runs(await self.pairs_of(vhosts, self._view.queues.names)):
            await self._on_loop(self._view.add_message_counts, vhost, names, totals)
        return totals

    async def session_rows(
        self, rows_of: Callable[[Sequence[object]], list[Row]], visitor: Visitor
    ) -> list[Row]:
        rows: list[Row] = []
        for sessions in slices(await self._on_loop(self._view.watch.sessions)):
            rows += await self._on_loop(rows_of, sessions)
        if visitor.may_monitor:
            return rows
        return [row for row in rows if row["user"] == visitor.name]

    async def read(
        self, pairs: Sequence[Pair], rows_of: Callable[[str, Sequence[str]], list[Row]]
    ) -> AsyncIterator[list[Row]]:
        """The rows of things known by name, in the order of the names, in slices."""
        for part in slices(pairs):
            rows: list[Row] = []
            vhosts = {vhost: [name for other, name in part if other == vhost] for vhost, _ in part}
            for vhost, names in vhosts.items():
                rows += await self._on_loop(rows_of, vhost, names)
            if len(vhosts) > 1:
                place = {pair: i for i, pair in enumerate(part)}
                rows.sort(key=lambda row, place=place: place[_pair(row)])  # type: ignore[misc]
            yield rows

    # -- answering --------------------------------------------------------------------------

    async def answer_pairs(
        self,
        query: ListQuery,
        pairs: list[Pair],
        rows_of: Callable[[str, Sequence[str]], list[Row]],
        keys_of: Callable[[str, Sequence[str]], list[Row]] | None = None,
    ) -> web.Response:
        """A list of things known by name: only the names are held, rows are read when shown.

        ``keys_of``: rows of nothing but names and the field that sorts, which cost less.
        """
        wanted = [pair for pair in pairs if query.wants(pair[1])]
        if query.sorts_by_name():
            ordered = in_order(wanted, query.sort, reverse=query.reverse)
        else:
            ordered = await self._by_value(query, in_order(wanted), keys_of or rows_of)
        shown = query.cut(ordered)
        check_samples(len(shown))
        parts = [encode(query, rows) async for rows in self.read(shown, rows_of)]
        return self._list_response(query, parts, len(pairs), len(wanted))

    async def _by_value(
        self,
        query: ListQuery,
        pairs: list[Pair],
        rows_of: Callable[[str, Sequence[str]], list[Row]],
    ) -> list[Pair]:
        """Sorted by a field of the rows: every row is read once for its key, and let go."""
        keyed: list[tuple[SortKey, Pair]] = []
        asked = asked_now.get()
        if query.sort.rpartition(".")[2] in OF_SAMPLES:
            check_samples(len(pairs), "sort by something else")
        else:
            asked_now.set(NOTHING)  # of rows that may not be shown
        async for rows in self.read(pairs, rows_of):
            keyed += [(query.sort_key(row), _pair(row)) for row in rows]
        asked_now.set(asked)
        return [pair for _, pair in sorted_in_chunks(keyed, itemgetter(0), query.reverse)]

    async def answer_rows(
        self, query: ListQuery, rows: list[Row], *, pageable: bool
    ) -> web.Response:
        if not pageable:
            query.ignore_page()
        wanted = [row for row in rows if query.wants(str(row.get("name", "")))]
        path = query.sort or "name"
        ordered: Sequence[Row] = wanted
        if pageable or query.sort:
            ordered = sorted_in_chunks(
                wanted, lambda row: sort_key(dig(row, path.split("."))), query.reverse
            )
        shown = query.cut(ordered)
        if pageable:
            check_samples(len(shown))
        parts = await self._encode(query, shown)
        return self._list_response(query, parts, len(rows), len(wanted))

    async def answer_object(self, row: Row) -> web.Response:
        """A large one: what is a list in it becomes JSON a part at a time."""
        pieces: list[bytes] = []
        for key, value in row.items():
            pieces.append((b"," if pieces else b"{") + to_json(key) + b":")
            if isinstance(value, list):
                parts = await self._encode(EVERYTHING, value)
                pieces += [b"[", *_with_commas(parts), b"]"]
            else:
                pieces.append(to_json(value))
        pieces.append(b"}")
        return in_pieces(pieces)

    async def gathered(
        self, items: Sequence[T], rows_of: Callable[[Sequence[T]], list[U]]
    ) -> list[U]:
        rows: list[U] = []
        for part in slices(items):
            rows += await self._on_loop(rows_of, part)
        return rows

    async def _encode(self, query: ListQuery, rows: Sequence[Row]) -> list[bytes]:
        parts = []
        for some in slices(rows):
            parts.append(encode(query, some))
            # Between two parts the data loop may have the interpreter.
            await asyncio.sleep(0)
        return parts

    def _list_response(
        self, query: ListQuery, parts: list[bytes], total_count: int, filtered_count: int
    ) -> web.Response:
        pieces = [b"[", *_with_commas(parts), b"]"]
        if query.paged:
            first = (query.page - 1) * query.page_size
            item_count = max(0, min(query.page_size, filtered_count - first))
            around = to_json(query.envelope(total_count, filtered_count, item_count))
            pieces = [around[:-1] + b',"items":', *pieces, b"}"]
        return in_pieces(pieces)


def _with_commas(parts: Sequence[bytes]) -> list[bytes]:
    pieces: list[bytes] = []
    for part in parts:
        if part:
            pieces += [b",", part] if pieces else [part]
    return pieces


def in_pieces(pieces: Sequence[bytes]) -> web.Response:
    size_bytes = sum(len(piece) for piece in pieces)
    return web.Response(
        # One piece at a time: joining megabytes would keep the data loop waiting.
        body=_one_by_one(pieces),
        headers={"Content-Type": "application/json", "Content-Length": str(size_bytes)},
    )


async def _one_by_one(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def encode(query: ListQuery, rows: Sequence[Row]) -> bytes:
    """The rows as they stand inside a JSON array, without its brackets."""
    return to_json([query.project(row) for row in rows])[1:-1]


def in_order(pairs: Sequence[Pair], sort: str = "", *, reverse: bool = False) -> list[Pair]:
    """By virtual host and name, or by name alone when that is the wish."""
    return sorted_in_chunks(pairs, _by_name if sort == "name" else _by_vhost_and_name, reverse)


def _pair(row: Row) -> Pair:
    return str(row["vhost"]), str(row["name"])


def _by_name(pair: Pair) -> tuple[str, ...]:
    return pair[1:]


def _by_vhost_and_name(pair: Pair) -> tuple[str, ...]:
    return pair


def slices(items: Sequence[T], *, become_rows: bool = True) -> Iterator[Sequence[T]]:
    """``become_rows``: each of them, with the samples that the request asks for."""
    size = SLICE_WITH_SAMPLES if become_rows and asked_now.get() else SLICE
    for start in range(0, len(items), size):
        yield items[start : start + size]


def check_samples(count: int, instead: str = "ask for a page") -> None:
    """Raises BadQuery when samples are asked of so many rows."""
    if count > ROWS_WITH_SAMPLES_MAX and asked_now.get():
        raise BadQuery(
            f"samples (…_age) of {count} rows, more than {ROWS_WITH_SAMPLES_MAX}: {instead}",
        )


def runs(pairs: Sequence[Pair]) -> Iterator[tuple[str, list[str]]]:
    """The names in their order, in slices of one virtual host each; they become no rows."""
    for part in slices(pairs, become_rows=False):
        for vhost, run in groupby(part, itemgetter(0)):
            yield vhost, [name for _, name in run]
