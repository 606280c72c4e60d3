"""The endpoints: what each path answers, for whom.

Everything the broker knows is read through ``on_loop``, which runs a short function on the
data loop and awaits its result; a long list is read ``SLICE`` objects at a time, and each
slice becomes JSON before the next is read, so neither the data loop nor the interpreter's
lock is ever held for long.  Between two slices the broker goes on: a list is a walk through
a moving crowd, not a photograph, and what vanishes meanwhile is left out.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, ParamSpec, Protocol, TypeVar

from aiohttp import web

from penstock.core.errors import AccessRefused, NotFound
from penstock.management.access import Visitor
from penstock.management.listing import ListQuery, SortKey, dig, sort_key, sorted_in_chunks
from penstock.management.node_facts import NodeFacts
from penstock.management.page import MAX_QUEUES, POLICY, status_page
from penstock.management.view import BrokerView, Row

T = TypeVar("T")
P = ParamSpec("P")
Pair = tuple[str, str]

SLICE: Final = 100
DIALECT: Final = "3.10.8"
"""The RabbitMQ whose management API this one resembles; tools read it to know what to expect."""
EXCHANGE_TYPES: Final = ("direct", "fanout", "headers", "topic", "x-consistent-hash")
CLOSED_HERE: Final = "Closed via management plugin"
"""What RabbitMQ tells a client whose connection somebody closed without a word."""
BASIC_QUEUE_COLUMNS: Final = [
    "arguments",
    "auto_delete",
    "durable",
    "exclusive",
    "name",
    "node",
    "state",
    "type",
    "vhost",
]
QUEUE_TOTAL_COLUMNS: Final = ["messages", "messages_ready", "messages_unacknowledged"]


class OnLoop(Protocol):
    """Runs a short function on the data loop."""

    def __call__(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


class Api:
    """One method per path; ``request`` is checked for its user before."""

    def __init__(self, view: BrokerView, on_loop: OnLoop, node: NodeFacts, version: str) -> None:
        self._view = view
        self._on_loop = on_loop
        self._node = node
        self._version = version
        self.contexts: list[Row] = []  # set when the port is known

    # -- the node ------------------------------------------------------------------------

    async def whoami(self, request: web.Request, visitor: Visitor) -> web.Response:
        return json_response({"name": visitor.name, "tags": list(visitor.tags)})

    async def overview(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self._visible_vhosts(visitor)
        ready, unacked, consumers = await self._message_counts(vhosts)
        exchanges, queues = await self._on_loop(self._view.count_entities, vhosts)
        connections = await self._session_rows(self._view.connection_rows, visitor)
        channel_counts = [row["channels"] for row in connections]
        object_totals: Row = {
            "connections": len(connections),
            "channels": sum(count for count in channel_counts if isinstance(count, int)),
            "consumers": consumers,
            "exchanges": exchanges,
            "queues": queues,
        }
        row: Row = {
            "management_version": DIALECT,
            "rabbitmq_version": DIALECT,
            "product_name": "Penstock",
            "product_version": self._version,
            "node": self._view.node_name,
            "cluster_name": self._view.node_name,
            "rates_mode": "none",
            "exchange_types": [{"name": name, "enabled": True} for name in EXCHANGE_TYPES],
            "queue_totals": {
                "messages": ready + unacked,
                "messages_ready": ready,
                "messages_unacknowledged": unacked,
            },
            "object_totals": object_totals,
            # Tools refuse an overview without the key; nothing is counted over all channels.
            "message_stats": {},
        }
        if visitor.may_monitor:
            row["listeners"] = await self._on_loop(self._view.listener_rows)
            row["contexts"] = self.contexts
        return json_response(query.project(row))

    async def nodes(self, request: web.Request, visitor: Visitor) -> web.Response:
        _must_monitor(visitor)
        query = ListQuery(request.query)
        return json_response([query.project(self._node.row())])

    async def node(self, request: web.Request, visitor: Visitor) -> web.Response:
        _must_monitor(visitor)
        asked = request.match_info["node"]
        # Checks written for RabbitMQ spell the name themselves: rabbit@ and the host.
        alias = "rabbit@" + self._view.node_name.partition("@")[2]
        if asked not in (self._view.node_name, alias):
            raise NotFound(f"no node '{asked}'")
        return json_response(ListQuery(request.query).project(self._node.row()))

    async def flow(self, request: web.Request, visitor: Visitor) -> web.Response:
        _must_monitor(visitor)
        return json_response(await self._on_loop(self._view.flow_row))

    async def storage(self, request: web.Request, visitor: Visitor) -> web.Response:
        _must_monitor(visitor)
        row = await self._on_loop(self._view.storage_row)
        return json_response(ListQuery(request.query).project(row))

    # -- lists of named things -----------------------------------------------------------------

    async def vhosts(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        names = await self._on_loop(self._view.vhost_names)
        if not visitor.may_monitor:
            names = [name for name in names if visitor.may_enter(name)]
        rows = []
        for name in sorted(names):
            ready, unacked, _ = await self._message_counts([name])
            row = await self._on_loop(self._view.vhost_row, name)
            row.update(
                messages=ready + unacked, messages_ready=ready, messages_unacknowledged=unacked
            )
            rows.append(row)
        return await self._answer_rows(query, rows, pageable=True)

    async def queues(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        if request.query.get("disable_stats") == "true" and not query.columns:
            query.columns = [[column] for column in BASIC_QUEUE_COLUMNS]
            if request.query.get("enable_queue_totals") == "true":
                query.columns += [[column] for column in QUEUE_TOTAL_COLUMNS]
        vhosts = await self._asked_vhosts(request, visitor)
        pairs = await self._pairs(vhosts, self._view.queue_names)
        return await self._answer_pairs(query, pairs, self._view.queue_rows)

    async def exchanges(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self._asked_vhosts(request, visitor)
        pairs = await self._pairs(vhosts, self._view.exchange_names)
        return await self._answer_pairs(query, pairs, self._view.exchange_rows)

    async def queue(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self._asked_vhosts(request, visitor)
        name = request.match_info["name"]
        row = await self._on_loop(self._view.queue_row, vhost, name)
        return json_response(ListQuery(request.query).project(row))

    async def exchange(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self._asked_vhosts(request, visitor)
        name = request.match_info["name"]
        row = await self._on_loop(self._view.exchange_row, vhost, name)
        return json_response(ListQuery(request.query).project(row))

    async def purge(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self._asked_vhosts(request, visitor)
        name = request.match_info["name"]
        if not visitor.may_read(vhost, name):
            raise AccessRefused(f"access to queue '{name}' in vhost '{vhost}' refused")
        await self._on_loop(self._view.purge_queue, vhost, name)
        return web.Response(status=204)

    # -- lists of things without a name of their own -----------------------------------------------

    async def bindings(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        view = self._view
        rows: list[Row] = []
        for vhost in await self._asked_vhosts(request, visitor):
            queues = await self._on_loop(view.queue_names, vhost)
            for part in _slices(sorted(queues)):
                rows += await self._on_loop(view.default_binding_rows, vhost, part)
            exchanges = await self._on_loop(view.exchange_names, vhost)
            for exchange in sorted(exchanges):
                tokens = await self._on_loop(view.bindings_from, vhost, exchange)
                for some in _slices(tokens):
                    rows += await self._on_loop(view.binding_rows, some)
        return await self._answer_rows(query, rows, pageable=False)

    async def consumers(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self._asked_vhosts(request, visitor)
        pairs = await self._pairs(vhosts, self._view.queue_names)
        rows: list[Row] = []
        for vhost, names in _runs(pairs):
            rows += await self._on_loop(self._view.consumer_rows, vhost, names)
        return await self._answer_rows(query, rows, pageable=False)

    async def connections(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        rows = await self._session_rows(self._view.connection_rows, visitor)
        return await self._answer_rows(query, rows, pageable=True)

    async def connection(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._known_connection(request, visitor, visitor.may_monitor)
        return json_response(ListQuery(request.query).project(row))

    async def close_connection(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._known_connection(request, visitor, visitor.is_administrator)
        given = request.headers.get("X-Reason", CLOSED_HERE)
        reason = given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        await self._on_loop(self._view.close_connection, str(row["name"]), reason)
        return web.Response(status=204)

    async def _known_connection(
        self, request: web.Request, visitor: Visitor, others_too: bool
    ) -> Row:
        """That of the path; raises AccessRefused when it is somebody else's."""
        row = await self._on_loop(self._view.connection_row, request.match_info["name"])
        if not others_too and row["user"] != visitor.name:
            raise AccessRefused("User not authorised to access object")
        return row

    async def channels(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        rows = await self._session_rows(self._view.channel_rows, visitor)
        return await self._answer_rows(query, rows, pageable=True)

    # -- the page ------------------------------------------------------------------------

    async def page(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhosts = await self._visible_vhosts(visitor)
        pairs = _in_order(await self._pairs(vhosts, self._view.queue_names))
        rows: list[Row] = []
        async for part in self._read(pairs[:MAX_QUEUES], self._view.queue_rows):
            rows += part
        return web.Response(
            text=status_page(self._view.node_name, self._version, len(pairs), rows),
            content_type="text/html",
            headers={"Content-Security-Policy": POLICY},
        )

    # -- reading in slices ------------------------------------------------------------------

    async def _visible_vhosts(self, visitor: Visitor) -> list[str]:
        names = await self._on_loop(self._view.vhost_names)
        return [name for name in names if visitor.may_enter(name)]

    async def _asked_vhosts(self, request: web.Request, visitor: Visitor) -> list[str]:
        """The one in the path, which must exist and be open to the visitor; or all visible."""
        name = request.match_info.get("vhost")
        if name is None:
            return await self._visible_vhosts(visitor)
        if not await self._on_loop(self._view.has_vhost, name):
            raise NotFound(f"no vhost '{name}'")
        if not visitor.may_enter(name):
            raise AccessRefused("User not authorised to access virtual host")
        return [name]

    async def _pairs(
        self, vhosts: Sequence[str], names_of: Callable[[str], list[str]]
    ) -> list[Pair]:
        pairs: list[Pair] = []
        for vhost in vhosts:
            names = await self._on_loop(names_of, vhost)
            pairs.extend((vhost, name) for name in names)
        return pairs

    async def _message_counts(self, vhosts: Sequence[str]) -> list[int]:
        """Ready, unacknowledged and consumers over all queues of these virtual hosts."""
        totals = [0, 0, 0]
        for vhost, names in _runs(await self._pairs(vhosts, self._view.queue_names)):
            await self._on_loop(self._view.add_message_counts, vhost, names, totals)
        return totals

    async def _session_rows(
        self, rows_of: Callable[[Sequence[object]], list[Row]], visitor: Visitor
    ) -> list[Row]:
        rows: list[Row] = []
        for sessions in _slices(await self._on_loop(self._view.sessions)):
            rows += await self._on_loop(rows_of, sessions)
        if visitor.may_monitor:
            return rows
        return [row for row in rows if row["user"] == visitor.name]

    async def _read(
        self, pairs: Sequence[Pair], rows_of: Callable[[str, Sequence[str]], list[Row]]
    ) -> AsyncIterator[list[Row]]:
        """The rows of things known by name, in the order of the names, in slices."""
        for part in _slices(pairs):
            rows: list[Row] = []
            vhosts = {vhost: [name for other, name in part if other == vhost] for vhost, _ in part}
            for vhost, names in vhosts.items():
                rows += await self._on_loop(rows_of, vhost, names)
            if len(vhosts) > 1:
                place = {pair: i for i, pair in enumerate(part)}
                rows.sort(key=lambda row, place=place: place[_pair(row)])  # type: ignore[misc]
            yield rows

    # -- answering --------------------------------------------------------------------------

    async def _answer_pairs(
        self,
        query: ListQuery,
        pairs: list[Pair],
        rows_of: Callable[[str, Sequence[str]], list[Row]],
    ) -> web.Response:
        """A list of things known by name: only the names are held, rows are read when shown."""
        wanted = [pair for pair in pairs if query.wants(pair[1])]
        if query.sorts_by_name():
            ordered = _in_order(wanted, query.sort, reverse=query.reverse)
        else:
            ordered = await self._by_value(query, _in_order(wanted), rows_of)
        shown = query.cut(ordered)
        parts = [encode(query, rows) async for rows in self._read(shown, rows_of)]
        return self._list_response(query, parts, len(pairs), len(wanted))

    async def _by_value(
        self,
        query: ListQuery,
        pairs: list[Pair],
        rows_of: Callable[[str, Sequence[str]], list[Row]],
    ) -> list[Pair]:
        """Sorted by a field of the rows: every row is read once for its key, and let go."""
        keyed: list[tuple[SortKey, Pair]] = []
        async for rows in self._read(pairs, rows_of):
            keyed += [(query.sort_key(row), _pair(row)) for row in rows]
        return [pair for _, pair in sorted_in_chunks(keyed, itemgetter(0), query.reverse)]

    async def _answer_rows(
        self, query: ListQuery, rows: list[Row], *, pageable: bool
    ) -> web.Response:
        """A list that had to be read whole."""
        if not pageable:
            query.paged = False
            query.name = None
        wanted = [row for row in rows if query.wants(str(row.get("name", "")))]
        path = query.sort or "name"
        ordered: Sequence[Row] = wanted
        if pageable or query.sort:
            ordered = sorted_in_chunks(
                wanted, lambda row: sort_key(dig(row, path.split("."))), query.reverse
            )
        parts = await self._encode(query, query.cut(ordered))
        return self._list_response(query, parts, len(rows), len(wanted))

    async def _encode(self, query: ListQuery, rows: Sequence[Row]) -> list[bytes]:
        parts = []
        for some in _slices(rows):
            parts.append(encode(query, some))
            # Between two parts the data loop may have the interpreter.
            await asyncio.sleep(0)
        return parts

    def _list_response(
        self, query: ListQuery, parts: list[bytes], total_count: int, filtered_count: int
    ) -> web.Response:
        pieces = [b"["]
        for part in parts:
            if part:
                pieces += [part] if len(pieces) == 1 else [b",", part]
        pieces.append(b"]")
        if query.paged:
            first = (query.page - 1) * query.page_size
            item_count = max(0, min(query.page_size, filtered_count - first))
            around = to_json(query.envelope(total_count, filtered_count, item_count))
            pieces = [around[:-1] + b',"items":', *pieces, b"}"]
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


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def json_response(value: object, status: int = 200) -> web.Response:
    return web.Response(body=to_json(value), status=status, content_type="application/json")


def _must_monitor(visitor: Visitor) -> None:
    if not visitor.may_monitor:
        raise AccessRefused("Not monitor user")


def _in_order(pairs: Sequence[Pair], sort: str = "", *, reverse: bool = False) -> list[Pair]:
    """By virtual host and name, or by name alone when that is the wish."""
    return sorted_in_chunks(pairs, _by_name if sort == "name" else _by_vhost_and_name, reverse)


def _pair(row: Row) -> Pair:
    return str(row["vhost"]), str(row["name"])


def _by_name(pair: Pair) -> tuple[str, ...]:
    return pair[1:]


def _by_vhost_and_name(pair: Pair) -> tuple[str, ...]:
    return pair


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), SLICE):
        yield items[start : start + SLICE]


def _runs(pairs: Sequence[Pair]) -> Iterator[tuple[str, list[str]]]:
    """The names in their order, in slices of one virtual host each."""
    for part in _slices(pairs):
        for vhost, run in groupby(part, itemgetter(0)):
            yield vhost, [name for _, name in run]
