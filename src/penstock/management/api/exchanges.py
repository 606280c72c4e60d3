"""Exchanges over HTTP, and their bindings: lists, one of them, declaring and deleting.

    PUT         type, durable, auto_delete, internal, arguments; as AMQP declares
    DELETE      ?if-unused=true

``amq.default`` is the default exchange.  What the body leaves out is ``direct``, and false.

POST makes a binding: it takes ``routing_key`` and ``arguments`` and names its place in
``Location``.  The routes of the default exchange are shown as bindings, which cannot be made or
deleted.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote_plus

from aiohttp import web

from penstock.broker.topology import declaring
from penstock.core.errors import NotFound
from penstock.core.pending import Pending, then
from penstock.management.facts.rows import DEFAULT_EXCHANGE_IN_PATHS, Row, properties_key
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import (
    arguments_in,
    flag,
    json_body,
    json_response,
    name_of,
    text,
)
from penstock.management.http.endpoints import Endpoint, Endpoints, NotThere, Route
from penstock.management.http.listing import ListQuery
from penstock.management.http.lists import slices
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Binding, Exchange

T = TypeVar("T")
KINDS: Final = {"q": "queue", "e": "exchange"}
"""How a path spells what a binding leads to."""


class Ends(NamedTuple):
    vhost: str
    source: str
    kind: str
    destination: str


class ExchangesApi(Endpoints):
    has_lists = True
    table = """
        user  exchanges                 GET=exchanges                       All exchanges
        user  exchanges/{vhost}         GET=exchanges                       In one virtual host
        user  exchanges/{vhost}/{name}  GET=exchange PUT=put DELETE=delete  One exchange
        user  bindings  GET=bindings  All bindings
        user  bindings/{vhost}  GET=bindings  In one virtual host
        user  exchanges/{vhost}/{name}/bindings/source  GET=from_exchange  From one exchange
        user  exchanges/{vhost}/{name}/bindings/destination  GET=to_exchange  To one exchange
        user  queues/{vhost}/{name}/bindings  GET=to_queue  To one queue
    """

    async def exchanges(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self.asked_vhosts(request, visitor)
        pairs = await self._lists.pairs_of(vhosts, self._view.exchanges.names)
        return await self._lists.answer_pairs(query, pairs, self._view.exchanges.rows)

    async def exchange(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        row = await self._on_loop(self._view.exchanges.row, vhost, name)
        return json_response(ListQuery(request.query).project(row))

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        vhost = await self.changed_vhost(request, visitor)
        asked = await json_body(request)
        name = name_of("exchange", exchange_asked(request))
        return await self.change(self._declare, vhost, name, asked, visitor)

    def _declare(self, vhost: str, name: str, asked: dict[str, Any], visitor: Visitor) -> bool:
        found = self._broker.vhost(vhost)
        is_new = self._broker.changes.at_first(name != "" and name not in found.exchanges)
        declaring.declare_exchange(
            found,
            self.rights(visitor, vhost),
            name,
            text("type", asked.get("type", "direct")),
            flag(asked.get("durable", False)),
            flag(asked.get("auto_delete", False)),
            flag(asked.get("internal", False)),
            arguments_in(asked),
        )
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        if_unused = flag(request.query.get("if-unused", False))
        await self.change(self._delete, vhost, exchange_asked(request), visitor, if_unused)

    def _delete(self, vhost: str, name: str, visitor: Visitor, if_unused: bool) -> None:
        found = self._broker.vhost(vhost)
        if name != "" and name not in found.exchanges:
            raise NotFound(f"no {found.exchange_text(name)}")
        declaring.delete_exchange(found, self.rights(visitor, vhost), name, if_unused)

    # -- bindings ----------------------------------------------------------------------

    def routes(self) -> list[Route]:
        routes = super().routes()
        for letter, kind in KINDS.items():
            path = "/api/bindings/{vhost}/e/{source}/" + letter + "/{destination}"
            several: dict[str, Endpoint] = {
                "GET": partial(self.between, kind),
                "POST": partial(self.bind, kind),
            }
            one: dict[str, Endpoint] = {
                "GET": partial(self.one, kind),
                "DELETE": partial(self.unbind, kind),
            }
            routes.append(Route(path, several, f"From an exchange to this {kind}"))
            routes.append(Route(path + "/{key}", one, f"One binding to this {kind}"))
        return routes

    # -- lists ---------------------------------------------------------------------------

    async def bindings(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        view = self._view
        rows: list[Row] = []
        for vhost in await self.asked_vhosts(request, visitor):
            rows += await self._default_ones(vhost)
            exchanges = await self._on_loop(view.exchanges.names, vhost)
            for exchange in sorted(exchanges):
                rows += await self._from(vhost, exchange)
        return await self._lists.answer_rows(query, rows, pageable=False)

    async def _default_ones(self, vhost: str) -> list[Row]:
        rows: list[Row] = []
        for part in slices(sorted(await self._on_loop(self._view.queues.names, vhost))):
            rows += await self._on_loop(self._view.exchanges.default_binding_rows, vhost, part)
        return rows

    async def _from(self, vhost: str, exchange: str) -> list[Row]:
        found = await self._on_loop(self._view.exchanges.bindings_from, vhost, exchange)
        return await self._lists.gathered(found, self._view.exchanges.binding_rows)

    async def from_exchange(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = exchange_asked(request)
        rows = await (self._from(vhost, name) if name else self._default_ones(vhost))
        return await self._lists.answer_rows(query, rows, pageable=False)

    async def to_exchange(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        rows = await self._leading_to(Ends(vhost, "", "exchange", exchange_asked(request)))
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def to_queue(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        rows = await self._on_loop(self._default_one, vhost, name)
        rows += await self._leading_to(Ends(vhost, "", "queue", name))
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    def _default_one(self, vhost: str, queue: str) -> list[Row]:
        self._broker.vhost(vhost).queue(queue)
        return self._view.exchanges.default_binding_rows(vhost, [queue])

    async def _leading_to(self, ends: Ends) -> list[Row]:
        rows: list[Row] = []
        for part in slices(sorted(await self._on_loop(self._view.exchanges.names, ends.vhost))):
            found = await self._on_loop(self._from_some, ends, part)
            rows += await self._lists.gathered(found, self._view.exchanges.binding_rows)
        return rows

    def _from_some(self, ends: Ends, sources: Sequence[str]) -> list[Binding]:
        return [one for name in sources for one in self._between(ends._replace(source=name))]

    # -- between two ends ------------------------------------------------------------------

    async def _known_rows(self, ends: Ends) -> list[Row]:
        if ends.source == "":
            return await self._on_loop(self._default_rows, ends)
        found = await self._on_loop(self._between, ends)
        return await self._lists.gathered(found, self._view.exchanges.binding_rows)

    async def between(self, kind: str, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._known_rows(await self._ends(kind, request, visitor))
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def one(self, kind: str, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._known_rows(await self._ends(kind, request, visitor))
        row = _named(request.match_info["key"], rows, lambda row: str(row["properties_key"]))
        return json_response(ListQuery(request.query).project(row))

    async def bind(self, kind: str, request: web.Request, visitor: Visitor) -> web.Response:
        await self.changed_vhost(request, visitor)
        ends = await self._ends(kind, request, visitor)
        asked = await json_body(request)
        try:
            key = await self.change(self._bind, ends, asked, visitor)
        except NotFound as error:
            raise NotThere(str(error)) from error
        place = f"{quote(ends.destination, safe='')}/{quote(key, safe='~')}"
        return web.Response(status=201, headers={"Location": place})

    async def unbind(self, kind: str, request: web.Request, visitor: Visitor) -> None:
        ends = await self._ends(kind, request, visitor)
        keyed = await self._lists.gathered(await self._on_loop(self._between, ends), _keyed)
        _, binding = _named(request.match_info["key"], keyed, itemgetter(0))
        await self.change(self._unbind, ends, binding, visitor)

    async def _ends(self, kind: str, request: web.Request, visitor: Visitor) -> Ends:
        (vhost,) = await self.asked_vhosts(request, visitor)
        source, destination = (
            "" if name == DEFAULT_EXCHANGE_IN_PATHS and is_exchange else name
            for name, is_exchange in (
                (request.match_info["source"], True),
                (request.match_info["destination"], kind == "exchange"),
            )
        )
        return Ends(vhost, source, kind, destination)

    # -- on the data loop ------------------------------------------------------------------

    def _destination(self, ends: Ends) -> Queue | Exchange | None:
        vhost = self._broker.vhost(ends.vhost)
        there: dict[str, Queue] | dict[str, Exchange] = vhost.exchanges
        if ends.kind == "queue":
            there = vhost.queues
        return there.get(ends.destination)

    def _between(self, ends: Ends) -> list[Binding]:
        source = self._broker.vhost(ends.vhost).exchanges.get(ends.source)
        return [] if source is None else source.bindings_to(self._destination(ends))

    def _default_rows(self, ends: Ends) -> list[Row]:
        """None where one of the ends is not there."""
        is_queue = isinstance(self._destination(ends), Queue)
        names = [ends.destination] if is_queue else []
        return self._view.exchanges.default_binding_rows(ends.vhost, names)

    def _bind(self, ends: Ends, asked: dict[str, Any], visitor: Visitor) -> str | Pending:
        vhost, rights = self._broker.vhost(ends.vhost), self.rights(visitor, ends.vhost)
        routing_key = name_of("routing_key", text("routing_key", asked.get("routing_key", "")))
        arguments = arguments_in(asked)
        if ends.kind == "queue":
            bound = declaring.bind_queue(
                vhost, rights, ends.destination, ends.source, routing_key, arguments, None
            )
        else:
            bound = declaring.bind_exchange(
                vhost, rights, ends.destination, ends.source, routing_key, arguments
            )
        return then(bound, lambda _: properties_key(routing_key, arguments))

    def _unbind(self, ends: Ends, binding: Binding, visitor: Visitor) -> None:
        vhost, rights = self._broker.vhost(ends.vhost), self.rights(visitor, ends.vhost)
        routing_key, arguments = binding.routing_key, binding.arguments
        if ends.kind == "queue":
            declaring.unbind_queue(
                vhost, rights, ends.destination, ends.source, routing_key, arguments, None
            )
        else:
            declaring.unbind_exchange(
                vhost, rights, ends.destination, ends.source, routing_key, arguments
            )


def exchange_asked(request: web.Request) -> str:
    name = request.match_info["name"]
    return "" if name == DEFAULT_EXCHANGE_IN_PATHS else name


def _named(key: str, found: Sequence[T], key_of: Callable[[T], str]) -> T:
    """Clients spell a key as they were told it, or once more; raises NotFound."""
    for one in found:
        if key_of(one) == key:
            return one
    for one in found:
        if unquote_plus(key_of(one)) == key:
            return one
    raise NotFound("no such binding")


def _keyed(bindings: Sequence[Binding]) -> list[tuple[str, Binding]]:
    return [(properties_key(one.routing_key, one.arguments), one) for one in bindings]
