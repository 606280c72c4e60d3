"""Exchanges over HTTP: lists, one of them, declaring and deleting.

    GET         /api/exchanges    /api/exchanges/{vhost}
    GET         /api/exchanges/{vhost}/{name}
    PUT         ...               type, durable, auto_delete, internal, arguments; as AMQP declares
    DELETE      ...               ?if-unused=true

``amq.default`` is the default exchange.  What the body leaves out is ``direct``, and false.
"""

from typing import Any

from aiohttp import web

from penstock.broker.topology import declaring
from penstock.core.errors import NotFound
from penstock.management.facts.rows import DEFAULT_EXCHANGE_IN_PATHS
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import (
    arguments_in,
    flag,
    json_body,
    json_response,
    name_of,
    text,
)
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import ListQuery


class ExchangesApi(Endpoints):
    has_lists = True

    def routes(self) -> list[Route]:
        one = "/api/exchanges/{vhost}/{name}"
        return [
            Route("/api/exchanges", {"GET": self.exchanges}, "All exchanges"),
            Route("/api/exchanges/{vhost}", {"GET": self.exchanges}, "In one virtual host"),
            Route(
                one, {"GET": self.exchange, "PUT": self.put, "DELETE": self.delete}, "One exchange"
            ),
        ]

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


def exchange_asked(request: web.Request) -> str:
    """The name in the path, as the broker knows it."""
    name = request.match_info["name"]
    return "" if name == DEFAULT_EXCHANGE_IN_PATHS else name
